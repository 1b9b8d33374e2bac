# SPDX-License-Identifier: BSD-3-Clause
"""Settings that differ between ranks, limits of the machine, and what remains of a rank that crashes."""
import os, re, resource, signal, sys, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, chosen, compile_c, expect, finish, mpirun, read_until, run, start, stat, test, wait_for


@test
def settings_must_agree():
    program = compile_c(HERE / "faults/churn.c")
    offload = r"OUTBOARD_OFFLOAD is (on|not set \(which is auto\)) at rank \d and (on|not set \(which is auto\)) at rank \d"
    code, output = mpirun("-n", 1, "-env", "OUTBOARD_OFFLOAD", "on", program, 50, ":", "-n", 2, program, 50)
    expect(code != 0 and re.search(offload, output), f"ranks that differ: exit code {code}\n{output}")
    # The variable is set between mpirun and the program, where only the rank itself can see it.
    script = 'test $OUTBOARD_RANK = 0 || export OUTBOARD_CHECK=1; exec "$0" 50'
    code, output = mpirun("-n", 3, "sh", "-c", script, program)
    expect(code != 0 and "OUTBOARD_CHECK is" in output, f"a script that makes ranks differ: exit code {code}\n{output}")
    # A setting that only mpirun reads is refused instead of having no effect.
    code, output = mpirun("-n", 2, "-env", "OUTBOARD_ARENA_BYTES", "64MiB", program, 50)
    expect(code != 0 and re.search("OUTBOARD_ARENA_BYTES is 64MiB at rank . and not set at mpirun", output), output)
    # The same value written in another form is accepted, and so is a setting of scope process.
    code, output = mpirun("-genv", "OUTBOARD_INLINE_BYTES_MAX", "1MiB", "-n", 1, "-env", "OUTBOARD_SPIN_US", "5us", program, 50,
                          ":", "-n", 2, "-env", "OUTBOARD_INLINE_BYTES_MAX", "1048576", program, 50)
    expect(code == 0, f"exit code {code}\n{output}")


@test
def buffers_that_cross_memory_attach_refuses():
    """Runs all paths with a simulated refusal of the kernel. tests/programs/hidden_memory.c meets the kernel's own
    refusal."""
    code, output = run(HERE / "run", "coll_regular", "coll_outstanding", "rma_moves", "p2p_modes", "--ways", "refused", "refused-proxy", "--ranks", 3, timeout=300)
    expect(code == 0, output)


@test
def a_core_holds_no_shared_memory():
    """Arenas are as large as the machine's memory, and a core file would have every page of them."""
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


@test
def a_crash_tells_where():
    program = compile_c(HERE / "faults/crashes.c")
    for way, sent, where in [("segv", signal.SIGSEGV, "#0 deep"), ("overflow", signal.SIGSEGV, "#0 endless"),
                             ("thread", signal.SIGSEGV, "#0 deep"), ("abort", signal.SIGABRT, "main")]:
        code, output = mpirun("-n", 2, program, way)
        expect(code == 128 + sent, f"{way}: exit code {code}\n{output}")
        expect(re.search(rf"rank 1 \(pid \d+ on .*\) crashed: {sent.name}", output) and where in output and "gdb -p" in output,
               f"{way}:\n{output}")
    # A handler of the program stays, a child of fork is not a rank, and a setting turns the report off.
    for way, code, env in [("own", 7, {}), ("fork", 0, {}), ("segv", 128 + signal.SIGSEGV, {"OUTBOARD_CRASH": "off"})]:
        seen, output = mpirun("-n", 2, program, way, env=env)
        expect(seen == code and "crashed" not in output, f"{way} {env}: exit code {seen}\n{output}")
    child = start(BIN / "mpirun", "-n", 2, program, "segv", env={"OUTBOARD_CRASH": "wait"})
    pid = int(re.search(r"it waits: `gdb -p (\d+)`", read_until(child, "it waits"))[1])
    expect(stat(pid)[2] in "SR", f"the crashed rank is {stat(pid)}")
    os.kill(child.pid, signal.SIGTERM)
    finish(child)


@test
def a_collective_that_hangs_points_to_the_check():
    code, output = mpirun("--timeout", 1, "-n", 3, compile_c(HERE / "faults/hangs.c"))
    expect(code == 124 and "OUTBOARD_CHECK=1 says" in output, f"exit code {code}\n{output}")


def within(**limits):
    """A function that `run` calls in the child: sets hard resource limits."""
    def set_all():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    return set_all


@test
def arenas_fit_into_limits():
    program = compile_c(HERE / "faults/churn.c")
    for limits in [{"AS": 4 << 30}, {"AS": 1 << 30}, {"FSIZE": 1 << 30}, {"FSIZE": 200 << 20}]:
        for proxies in [(), ("--proxies", 1)]:
            code, output = mpirun("-n", 3, *proxies, program, 50, preexec_fn=within(**limits))
            expect(code == 0, f"{limits} {proxies}: exit code {code}\n{output}")
        code, output = run(program, 50, preexec_fn=within(**limits))
        expect(code == 0, f"{limits} without mpirun: exit code {code}\n{output}")
    code, output = mpirun("-n", 3, program, 50, preexec_fn=within(FSIZE=1 << 20))
    expect(code == 1 and "ulimit -f" in output, f"too little: exit code {code}\n{output}")
    code, output = mpirun("-n", 30, "sleep", 100, preexec_fn=within(NOFILE=40))
    expect(code == 1 and "ulimit -n" in output, f"too few descriptors: exit code {code}\n{output}")


@test
def arenas_longer_than_the_address_space():
    """Ranks map only the parts of each other's arenas that they use: 4 arenas of 48 TiB each, in an address space of 2^47 bytes.
    `--more`: 192 of 768 GiB."""
    program = compile_c(HERE / "faults/extents.c")
    with tempfile.TemporaryDirectory() as folder:
        for ranks, arena, most in [(4, "48TiB", 1 << 20)] + [(192, "768GiB", 8 << 20)] * chosen.more:
            for more in [(), ("--proxies", 1)]:
                code, output = mpirun(*more, "-n", ranks, program, Path(folder) / "file", env={"OUTBOARD_ARENA_BYTES": arena}, timeout=60 + ranks)
                space = re.search(r"address space (\d+) KiB", output)
                expect(code == 0 and space and int(space[1]) < most, f"{ranks} ranks, {more}: exit code {code}\n{output}")
        code, output = mpirun("-n", 2, program, Path(folder) / "file", "lock", env={"OUTBOARD_ARENA_BYTES": "1GiB"}, timeout=60)
        locked = re.search(r"locked (\d+) KiB", output)
        expect(code == 0 and locked and int(locked[1]) < 200 << 10, f"mlockall: exit code {code}\n{output}")
        return f"{int(space[1]) >> 10} MiB, {int(locked[1]) >> 10} MiB locked"


@test
def memory_of_peers_that_cannot_be_mapped():
    """All ranks of a collective get the reason, and none waits."""
    program = compile_c(HERE / "faults/unmapped.c")
    for why, class_of, reason in [("descriptors", "OTHER", "Bad file descriptor"), ("descriptor", "OTHER", "Bad file descriptor"),
                                  ("space", "NO_MEM", "RLIMIT_AS"), ("maps", "NO_MEM", "vm.max_map_count")]:
        for call in ["allreduce", "iallreduce", "barrier", "alltoall", "window" if why == "descriptor" else "bcast"]:
            with tempfile.TemporaryDirectory() as folder:
                _, output = mpirun("-n", 3, program, why, call, folder, timeout=60)
            told = [line for line in output.splitlines() if re.match(r"rank \d: ", line)]
            # If one rank cannot map memory, the others may have all that they need; but no window has only some of the
            # members.
            faulty = [line for line in told if why != "descriptor" or call == "window" or line.startswith("rank 1: ")]
            expect(len(told) == 3 and all(class_of in line and "cannot map" in line and reason in line for line in faulty),
                   f"{why} {call}:\n{output}")


@test
def memfd_noexec():
    """Runs where the kernel makes memfds only for programs that say that the file will not be executed."""
    program = compile_c(HERE / "faults/churn.c")
    setting = Path("/proc/sys/vm/memfd_noexec")
    if os.getuid() != 0 or not setting.exists():
        return "cannot be tried here"
    # The setting is changed in a pid namespace of its own, where it affects no other process.
    code, output = run("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", f'echo 2 > {setting} && exec "$0" "$@"',
                       BIN / "mpirun", "-n", 2, "--proxies", 1, program, 50, env={"OUTBOARD_OFFLOAD": "on"})
    expect(code == 0, output)


@test
def the_kernel_kills_for_want_of_memory():
    folders = [(Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")]
    for above, limit in folders:
        group = above / f"outboard-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit).exists():
                continue
            (group / limit).write_text(str(128 << 20))
            hungry = "import os; held = bytearray(400 << 20) if os.environ['OUTBOARD_RANK'] == '1' else None"
            code, output = run("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$0" "$@"', BIN / "mpirun", "-n", 2,
                               sys.executable, "-c", hungry)
            expect(code == 128 + signal.SIGKILL, f"exit code {code}\n{output}")
            expect("rank 1" in output and "by the kernel: its cgroup has no more than 128 MiB of memory" in output, output)
            return None
        finally:
            wait_for("end of the cgroup", lambda: not (group / "cgroup.procs").read_text())
            group.rmdir()
    return "no cgroup can be made here"
