"""What differs between ranks, what the machine limits, and what is left of a rank that crashes."""
import os, re, resource, signal, subprocess, sys, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, PROGRAMS, compile_c, expect, mpirun, run, test


@test
def settings_must_agree():
    program = compile_c(HERE / "faults/churn.c")
    offload = r"OUTBOARD_OFFLOAD is (on|not set \(which is auto\)) at rank \d and (on|not set \(which is auto\)) at rank \d"
    code, output = mpirun("-n", 1, "-env", "OUTBOARD_OFFLOAD", "on", program, 50, ":", "-n", 2, program, 50)
    expect(code != 0 and re.search(offload, output), f"ranks that differ: exit code {code}\n{output}")
    # Between mpirun and the program, where only the rank itself can tell.
    script = 'test $OUTBOARD_RANK = 0 || export OUTBOARD_CHECK=1; exec "$0" 50'
    code, output = mpirun("-n", 3, "sh", "-c", script, program)
    expect(code != 0 and "OUTBOARD_CHECK is" in output, f"a script that makes ranks differ: exit code {code}\n{output}")
    # What only mpirun reads says so, instead of being without effect.
    code, output = mpirun("-n", 2, "-env", "OUTBOARD_ARENA_BYTES", "64MiB", program, 50)
    expect(code != 0 and re.search("OUTBOARD_ARENA_BYTES is 64MiB at rank . and not set at mpirun", output), output)
    # The same value in other words, and a setting that is each rank's own, do no harm.
    code, output = mpirun("-genv", "OUTBOARD_INLINE_BYTES_MAX", "1MiB", "-n", 1, "-env", "OUTBOARD_SPIN_US", "5us", program, 50,
                          ":", "-n", 2, "-env", "OUTBOARD_INLINE_BYTES_MAX", "1048576", program, 50)
    expect(code == 0, f"exit code {code}\n{output}")
