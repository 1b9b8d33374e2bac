"""What differs between ranks, what the machine limits, and what is left of a rank that crashes."""
import os, re, resource, signal, sys, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, compile_c, expect, finish, mpirun, read_until, run, start, stat, test, wait_for


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


@test
def buffers_that_cross_memory_attach_refuses():
    """All paths, where the kernel's refusal is simulated; tests/programs/hidden_memory.c meets the kernel's own."""
    code, output = run(HERE / "run", "coll_regular", "coll_outstanding", "persistent", "rma_moves", "rma_windows", "p2p_modes",
                       "io_views", "--ways", "refused", "refused-proxy", "--ranks", 3, timeout=300)
    expect(code == 0, output)


@test
def a_core_holds_no_shared_memory():
    """Arenas are as large as the machine, and a core would have every page of them."""
    if Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core":
        return "cores do not go to the program's folder here"
    program = compile_c(HERE / "faults/crashes.c")
    with tempfile.TemporaryDirectory() as folder:
        code, output = run("sh", "-c", 'ulimit -c unlimited; exec "$0" "$@"', BIN / "mpirun", "-genv", "OUTBOARD_ARENA_BYTES", "1GiB",
                           "-n", 2, program, "segv", cwd=folder)
        expect(code == 128 + signal.SIGSEGV, f"exit code {code}\n{output}")
        cores = list(Path(folder).glob("core*"))
        expect(cores, f"no core was written:\n{output}")
        blocks = sum(core.stat().st_blocks * 512 for core in cores)
        expect(blocks < 64 << 20, f"a core of {blocks} bytes")
        return f"{blocks >> 10} KiB"
