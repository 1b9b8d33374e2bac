# SPDX-License-Identifier: BSD-3-Clause
"""mpirun on several hosts: two nodes on this machine, whose agents a script starts (`--launcher-exec`)."""
import json, os, signal, subprocess, tempfile, time
from pathlib import Path

from job_tests.looking import messages
from job_tests.running import BIN, HERE, children, compile_c, expect, finish, mpirun, start, stat, test, wait_for

HOSTS = "127.0.0.1,localhost"


def on_nodes(*words, launcher=HERE / "here", **more):
    return mpirun("--launcher-exec", launcher, "-hosts", HOSTS, *words, **more)


def script(folder, text):
    path = Path(folder) / "launch"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@test
def variables_of_other_libraries_name_the_launcher():
    """MPICH 5.0 and Intel MPI (Hydra), Open MPI 4.1 (ORTE) and 5.0 (PRRTE)."""
    for name in ["HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"]:
        with tempfile.TemporaryDirectory() as folder:
            launcher = script(folder, f'touch {folder}/called; exec {HERE / "here"} "$@"\n')
            # A job on hosts of this machine would need no launcher.
            code, output = mpirun("-hosts", "n1,n2", "echo", "a rank", env={name: str(launcher)})
            expect(code == 0 and output.count("a rank") == 2 and Path(folder, "called").exists(), f"{name}: {code}\n{output}")


@test
def ranks_of_two_nodes_are_one_job():
    echo = 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, $MPI_LOCALRANKID of $MPI_LOCALNRANKS here'
    code, output = on_nodes("-ppn", 2, "-l", "sh", "-c", echo)
    wanted = [f"[{r}] {r} of 4, {r % 2} of 2 here" for r in range(4)]
    expect(code == 0 and sorted(output.splitlines()) == wanted, f"{code}\n{output}")
    code, output = on_nodes("-n", 3, "--map-by", "node", "sh", "-c", echo)
    expect(code == 0 and "2 of 3, 1 of 2 here" in output and "1 of 3, 0 of 1 here" in output, f"{code}\n{output}")
    code, output = on_nodes("-genv", "A", "1", "sh", "-c", "echo $A$B; pwd", env={"B": "2"}, cwd="/")
    expect((code, sorted(output.split())) == (0, ["/", "/", "12", "12"]), f"variables and folder: {code}\n{output}")


@test
def a_local_flush_waits_for_no_other_host():
    program = compile_c(HERE / "faults/lets_go.c")
    with tempfile.TemporaryDirectory() as folder:
        # With a proxy, the proxy would answer for its rank.
        code, output = on_nodes("-n", 2, "-genv", "OUTBOARD_PROXIES", "0", program, Path(folder, "gone_on"))
        expect((code, output) == (0, "the word is 111\n"), f"{code}\n{output}")


@test
def standard_input_goes_to_those_who_read_it():
    with tempfile.TemporaryFile() as source:
        source.write(b"x" * 300_000 + b"\n")
        for readers, count in [("0", 1), ("1", 1), ("all", 2), ("none", 0)]:
            source.seek(0)
            code, output = on_nodes("-s", readers, "wc", "-c", stdin=source)
            whole = output.split().count("300001")
            expect(code == 0 and whole == count, f"-s {readers}: {code}\n{output}")
    with tempfile.TemporaryFile() as source:
        source.write(b"x" * 2_000_000)
        source.seek(0)
        # Input under way for a rank that has stopped reading fills its bound. The other rank still gets its input.
        reads = "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then head -c 1; sleep 1; exec <&-; sleep 1; else wc -c; fi"
        code, output = on_nodes("-s", "all", "sh", "-c", reads, stdin=source)
        expect(code == 0 and "2000000" in output, f"{code}\n{output}")


@test
def the_first_failure_ends_all_nodes():
    fails = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then {}; fi; sleep 1000"
    for how, code, sentence in [("exit 7", 7, "exited with code 7"), ("kill -9 $$", 137, "was killed by signal 9")]:
        ended, output = on_nodes("sh", "-c", fails.format(how))
        expect(ended == code and output.count(sentence) == 1 and "rank 1" in output, f"{how}: {ended}\n{output}")
    # $PPID is the agent.
    ended, output = on_nodes("sh", "-c", fails.format("kill -9 $PPID"))
    expect(ended == 1 and "the connection to host localhost is lost" in output, f"{ended}\n{output}")
    ended, output = on_nodes("--timeout", "1", "sleep", "1000")
    expect(ended == 124 and "what the 1 ranks of this job wait for" in output, f"{ended}\n{output}")


@test
def a_signal_to_mpirun_or_its_death_ends_all_nodes():
    for signum, code in [(signal.SIGTERM, 143), (signal.SIGKILL, -9)]:
        child = start(BIN / "mpirun", "--launcher-exec", HERE / "here", "-hosts", HOSTS, "sleep", "1017")
        running = lambda: subprocess.run(["pgrep", "-f", "^sleep 1017$"], capture_output=True, text=True).stdout.split()
        while len(running()) < 2:
            expect(child.poll() is None, "mpirun ended before its ranks had started")
            time.sleep(0.05)
        os.kill(child.pid, signum)
        ended, output = finish(child)
        expect(ended == code, f"signal {signum}: {ended}\n{output}")
        while running():
            time.sleep(0.05)


@test
def ctrl_z_stops_all_nodes_until_they_are_continued():
    for where in [("--launcher-exec", HERE / "here", "-hosts", HOSTS), ("-n", 2)]:
        with tempfile.TemporaryDirectory() as folder:
            counts = f"while ! test -e {folder}/end; do sleep 0.02; done; echo it ended"
            child = start(BIN / "mpirun", *where, "sh", "-c", counts)
            ranks = lambda: subprocess.run(["pgrep", "-f", f"^sh -c while .*{folder}"], capture_output=True, text=True).stdout.split()
            in_state = lambda state: [pid for pid in map(int, ranks()) if (stat(pid) or "?")[-1] in state]
            wait_for("both ranks", lambda: len(in_state("RS")) == 2)
            os.kill(child.pid, signal.SIGTSTP)
            wait_for("stopped ranks", lambda: len(in_state("T")) == 2)
            wait_for("a stopped mpirun", lambda: stat(child.pid)[-1] == "T")
            os.kill(child.pid, signal.SIGCONT)
            wait_for("ranks that go on", lambda: len(in_state("RS")) == 2)
            (Path(folder) / "end").touch()
            ended, output = finish(child)
            expect((ended, output) == (0, "it ended\nit ended\n"), f"{where}: {ended}\n{output}")


@test
def a_host_that_cannot_be_used_is_named_with_the_reason():
    other = 'if [ $1 = localhost ]; then {}; fi; shift; exec "$@"\n'
    with tempfile.TemporaryDirectory() as folder:
        for text, sentence in [
            ("echo Permission denied >&2; exit 255", "no agent could be started on host localhost"),
            ("echo Permission denied >&2; exit 255", "ended with code 255: Permission denied"),
            ("exec /no/mpirun", "ended with code 127"),
            ("echo hello; exit 0", "ended with code 0: hello"),
        ]:
            code, output = on_nodes("sleep", "1000", launcher=script(folder, other.format(text)))
            expect(code == 1 and sentence in output, f"{text}: {code}\n{output}")
        # The text that a login shell prints does not belong to the job.
        code, output = on_nodes("echo", "it ran", launcher=script(folder, 'echo Welcome; shift; exec "$@"\n'))
        expect((code, output) == (0, "it ran\nit ran\n"), f"noise: {code}\n{output}")
        long = "head -c 3000000 /dev/zero | tr '\\0' x; echo; shift; exec \"$@\"\n"
        code, output = on_nodes("echo", "it ran", launcher=script(folder, long))
        expect((code, output) == (0, "it ran\nit ran\n"), f"much noise: {code}\n{output[-1000:]}")
    code, output = on_nodes("true", launcher="/no/such/launcher")
    expect(code == 1 and "host 127.0.0.1 cannot be reached" in output, f"{code}\n{output}")
    code, output = on_nodes("no-such-program")
    expect(code == 127 and "no such command in PATH" in output, f"{code}\n{output}")
    own = os.uname().nodename
    for word, what in [("no-such-program", "no such command"), ("/no/program", "no such file")]:
        code, output = on_nodes(word)
        expect(code == 127 and f"mpirun: host {own}: {word}: {what}" in output, f"{code}\n{output}")


@test
def a_crash_is_told_although_libfabric_is_loaded():
    """Debian's libfabric loads libraries that catch crashes themselves, and end the process with code 1."""
    program = compile_c(HERE / "faults/crashes.c")
    for way, sent in [("segv", signal.SIGSEGV), ("abort", signal.SIGABRT)]:
        code, output = on_nodes(program, way, env={"OUTBOARD_FABRIC_LIB": "libfabric.so.1"})
        expect(code == 128 + sent and f"crashed: {sent.name}" in output, f"{way}: exit code {code}\n{output}")


@test
def a_host_that_is_slow_or_silent_is_told():
    slow = 'if [ $1 = localhost ]; then echo job 7 queued >&2; sleep 12; fi; shift; exec "$@"\n'
    with tempfile.TemporaryDirectory() as folder:
        code, output = on_nodes("echo", "it ran", launcher=script(folder, slow))
    told = [line for line in output.splitlines() if line.startswith("mpirun: still waiting for an agent on localhost, by ")]
    expect(code == 0 and len(told) == 1 and "which says: job 7 queued" in told[0] and output.count("it ran") == 2, f"{code}\n{output}")
    # $PPID is the agent.
    stops = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then kill -STOP $PPID; fi; sleep 1000"
    code, output = on_nodes("sh", "-c", stops, env={"OUTBOARD_LAUNCH_SILENCE_MS": "5s"})
    expect(code == 1 and "host localhost has been silent for 5 s; ending the job" in output, f"{code}\n{output}")


@test
def one_table_and_one_trace_tell_of_all_nodes():
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        env = {"OUTBOARD_STATS": "1", "OUTBOARD_TRACE": str(trace)}
        code, output = on_nodes("-ppn", 1, compile_c(HERE / "programs/p2p_handles.c"), env=env)
        expect(code == 0 and output.count("wall time") == 1 and "counters of 2 ranks" in output, f"{code}\n{output}")
        events = json.loads(trace.read_text())["traceEvents"]
        expect({event["pid"] for event in events if event["ph"] != "M"} == {0, 1}, "events of both ranks")
        expect(os.listdir(folder) == ["trace.json"], f"left behind: {os.listdir(folder)}")


@test
def clocks_of_hosts_are_put_right_in_a_trace():
    """The second agent's monotonic clock is an hour ahead, in a time namespace (time_namespaces(7)). This needs root."""
    ahead = ["unshare", "--time", "--monotonic", "3600", "--fork"]
    if subprocess.run([*ahead, "true"], capture_output=True).returncode != 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        launcher = script(folder, f'host=$1; shift; [ "$host" = localhost ] && exec {" ".join(ahead)} {HERE}/here "$host" "$@"; exec {HERE}/here "$host" "$@"')
        env = {"OUTBOARD_TRACE": str(trace)}
        code, output = on_nodes("-ppn", 1, compile_c(HERE / "faults/traced.c"), launcher=launcher, env=env)
        expect(code == 0, f"{code}\n{output}")
        events = json.loads(trace.read_text())["traceEvents"]
        drawn = messages(events, 2)
        spans = [[e["ts"] for e in events if e["pid"] == rank and e["ph"] == "X"] for rank in (0, 1)]
        expect(max(max(it) for it in spans) - min(min(it) for it in spans) < 600e6, "the same ten minutes")
        # The error of the offset is much less than the time of a short message for which a rank waits.
        waits = sorted(it[-1]["ts"] - it[0]["ts"] for it in drawn["message"])
        expect(0 <= waits[0] and waits[len(waits) // 2] < 1e6, f"{waits}")


@test
def an_agent_without_ranks_needs_no_core_of_its_own():
    """The second host has no rank before the spawn, and another job occupies all cores."""
    other = start(BIN / "mpirun", "-n", os.cpu_count(), "sleep", 60)
    try:
        code, output = on_nodes("-n", 1, "-genv", "OUTBOARD_CLAIM_CORES", 1, compile_c(HERE / "programs/spawn_hosts.c"))
    finally:
        other.terminate()
        finish(other)
    expect((code, output) == (0, ""), f"{code}\n{output}")


TREE = [f"127.0.0.{host}" for host in range(1, 10)]


def tree(*words, launcher=HERE / "here", hosts=TREE, **more):
    """Starts a job with a rank on each of nine hosts, in which no process starts more than two commands: three
    levels."""
    return start(BIN / "mpirun", "-genv", "OUTBOARD_LAUNCH_FANOUT", 2, "--launcher-exec", launcher, "-hosts", ",".join(hosts), *words, **more)


@test
def a_tree_of_hosts_is_one_job():
    with tempfile.TemporaryFile() as source:
        source.write(b"x" * 300_000)
        source.seek(0)
        code, output = finish(tree("-s", "all", "-l", "sh", "-c", "echo $(wc -c)", stdin=source))
        expect(code == 0 and sorted(output.splitlines()) == [f"[{rank}] 300000" for rank in range(9)], f"{code}\n{output}")
    code, output = finish(tree("sh", "-c", "if [ $OMPI_COMM_WORLD_RANK = 8 ]; then exit 7; fi; sleep 1000"))
    expect(code == 7 and output.count("exited with code 7") == 1 and "rank 8" in output, f"{code}\n{output}")


@test
def a_tree_that_loses_a_relay_ends():
    child = tree("sleep", "1018")
    running = lambda: subprocess.run(["pgrep", "-f", "^sleep 1018$"], capture_output=True, text=True).stdout.split()
    wait_for("ranks", lambda: len(running()) == 9)
    relays = children(child.pid, "mpirun-relay")
    expect(len(relays) == 5, f"{len(relays)} relays")
    os.kill(relays[-1], signal.SIGKILL)
    code, output = finish(child)
    expect(code == 1 and output.count("is lost") == 1 and "was killed" in output, f"{code}\n{output}")
    wait_for("end of all ranks", lambda: not running())


@test
def a_host_of_a_tree_that_cannot_be_used_is_named():
    with tempfile.TemporaryDirectory() as folder:
        for host in TREE[4], TREE[-1]:
            refuses = script(folder, f'if [ $1 = {host} ]; then echo Permission denied >&2; exit 255; fi; shift; exec "$@"\n')
            code, output = finish(tree("sleep", "1000", launcher=refuses))
            expect(code == 1 and "ended with code 255: Permission denied" in output, f"{host}: {code}\n{output}")
            expect(output.count("no agent could be started on host") == 1 and f"on host {host}:" in output, f"{host}: {output}")


@test
def spawns_obey_their_info_keys_on_one_host_and_on_four():
    program = compile_c(HERE / "faults/spawn_keys.c")
    four = ("--launcher-exec", HERE / "here", "-hosts", "127.0.0.1,localhost,127.0.0.2,127.0.0.3")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "hosts").write_text("localhost slots=2\n")
        (Path(folder) / "wrong").write_text("no-such-host\n")
        # The path is relative to the folder of the program that calls MPI_Comm_spawn.
        good = [("host", "localhost"), ("hosts", "127.0.0.1:2"), ("add-host", "localhost"), ("hostfile", "hosts"),
                ("add-hostfile", "hosts"), ("ppn", "2"), ("npernode", "1"), ("map_by", "node"), ("no-key-of-ours", "x")]
        bad = [("host", "no-such-host"), ("hosts", "no-such-host"), ("add-host", "no-such-host"), ("hostfile", "wrong"),
               ("add-hostfile", "missing"), ("ppn", "x"), ("npernode", "0"), ("hosts", "a b")]
        for where in [("-n", 1), (*four, "-n", 4), (*four, "-n", 1)]:
            for words, said in [(words, "spawned") for words in good] + [(words, "refused:") for words in bad]:
                code, output = mpirun(*where, program, *words, cwd=folder)
                told = f"{words[0]}={words[1]}: {said}"
                expect(code == 0 and output.count(told) == 1, f"{where} {words}: exit code {code}, not: {told}\n{output}")


@test
def ranks_are_dealt_out_as_ppr_says():
    four = ("--launcher-exec", HERE / "here", "-hosts", "127.0.0.1:4,localhost:4,127.0.0.2:4,127.0.0.3:4")
    echo = "echo $MPI_LOCALRANKID of $MPI_LOCALNRANKS"
    code, output = mpirun(*four, "--map-by", "ppr:1:node", "sh", "-c", echo)
    expect((code, output) == (0, "0 of 1\n" * 4), f"exit code {code}\n{output}")
    code, output = mpirun(*four, "-n", 3, "--map-by", "ppr:2:node", "sh", "-c", echo)
    expect((code, sorted(output.splitlines())) == (0, ["0 of 1", "0 of 2", "1 of 2"]), f"exit code {code}\n{output}")
