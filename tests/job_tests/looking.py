# SPDX-License-Identifier: BSD-3-Clause
"""What a job shows of itself: deadlock reports, `outboard top`, statistics, traces, debuggers."""
import json, os, re, shutil, signal, tempfile, textwrap
from pathlib import Path

from job_tests.running import (BIN, HERE, ROOT, children, compile_c, expect, finish, mpirun, read_until, rest,
                               run, start, test, wait_for)


@test
def a_hanging_program_tells_what_it_waits_for():
    program = compile_c(HERE / "faults/hangs.c")
    child = start(BIN / "mpirun", "-n", 5, program)
    read_until(child, "rank 4 computes")

    def waiting():
        text = run(BIN / "outboard", "top", "--once", "--job", child.pid)[1]
        return text if text.count(" on MPI_COMM_WORLD") == 4 else None

    top = wait_for("four waiting ranks in `outboard top`", waiting)
    expect("MPI_Recv on MPI_COMM_WORLD: from rank 1, tag 5, 100 bytes" in top, top)
    os.kill(child.pid, signal.SIGUSR1)
    said = read_until(child, "rank 4 (pid")
    os.kill(child.pid, signal.SIGTERM)
    said += rest(child)
    for wanted in ["MPI_Recv on MPI_COMM_WORLD: from rank 1, tag 5, 100 bytes", "from any rank, tag 77, 4 bytes on MPI_COMM_WORLD",
                   "unexpected messages: 2", "from rank 1, tag 9, 4 bytes", "MPI_Send on MPI_COMM_WORLD: to rank 0, tag 6, 200000 bytes",
                   "MPI_Barrier on MPI_COMM_WORLD", "not started by rank 0, 1, 3, 4", "MPI_Probe on MPI_COMM_WORLD: from rank 2, any tag",
                   "does not wait, and never did for long"]:
        expect(wanted in said, f"no {wanted!r} in:\n{said}")


@test
def finalize_and_its_like_tell_what_they_wait_for():
    program = compile_c(HERE / "faults/unmatched.c")
    calls = ["MPI_Finalize", "MPI_Comm_disconnect", "MPI_Session_finalize"]
    jobs = [start(BIN / "mpirun", "--timeout", 60, "-n", 2, program, call) for call in calls]
    for call, child in zip(calls, jobs):
        said = read_until(child, "to rank 1")
        os.kill(child.pid, signal.SIGTERM)
        said += rest(child)
        expect(re.search(rf"rank 0: {call} has waited [1-9]\d* s for what others have not matched", said)
               and "to rank 1, tag 7, 200000 bytes" in said and said.count("has waited") == 1, said)


@test
def valgrind_reports_nothing():
    if not shutil.which("valgrind"):
        return
    code, output = mpirun("-n", 2, "valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,possible",
                          f"--suppressions={ROOT / 'build/share/outboard/valgrind.supp'}", compile_c(HERE / "faults/copies.c"),
                          timeout=300, env={"OUTBOARD_ARENA_BYTES": "64MiB"})
    expect(code == 0, f"code {code}:\n{output}")


@test
def a_rank_maps_only_what_it_uses():
    """Otherwise a program that reads all mapped memory, such as valgrind's search for leaks, would give memory to every page
    of it."""
    child = start(BIN / "mpirun", "-n", 3, compile_c(HERE / "faults/churn.c"), 20000, env={"OUTBOARD_ARENA_BYTES": "64MiB"})
    read_until(child, "ready")
    ranks = children(child.pid, "churn")
    maps = [line.split()[0].split("-") for rank in ranks for line in Path(f"/proc/{rank}/maps").read_text().splitlines()
            if "outboard-job" in line]
    child.terminate()
    finish(child)
    mapped = sum(int(end, 16) - int(begin, 16) for begin, end in maps) / len(ranks)
    expect(1 << 16 < mapped < 3 * (64 << 20) + (16 << 20), f"{len(ranks)} ranks map {mapped / (1 << 20):.0f} MiB each")


@test
def debuggers_find_the_ranks():
    if not shutil.which("gdb"):
        return
    child = start(BIN / "mpirun", "-n", 3, compile_c(HERE / "faults/hangs.c"))
    ranks = wait_for("three ranks", lambda: children(child.pid, "hangs")[2:] and children(child.pid, "hangs"))
    table = "(*(char**)&MPIR_proctable+%d)"
    looks = ["*(int*)&MPIR_proctable_size", "*(int*)&MPIR_debug_state", "*(char**)" + table % 8,
             *("*(int*)" + table % (24 * i + 16) for i in range(3))]

    def shown():
        words = [word for look in ["set language c", *("print " + look for look in looks)] for word in ("-ex", look)]
        output = run("gdb", "-p", child.pid, "-batch", *words)[1]
        values = re.findall(r"^\$\d+ = (.*)$", output, re.M)
        return values if values[:2] == ["3", "1"] else None

    values = wait_for("a table of 3 processes", shown)
    child.terminate()
    finish(child)
    expect("hangs" in values[2] and sorted(map(int, values[3:])) == ranks, f"{values}, but the ranks are {ranks}")


@test
def telemetry():
    program = compile_c(HERE / "faults/churn.c")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        code, output = mpirun("-n", 2, "--proxies", 1, program, 300,
                              env={"OUTBOARD_STATS": "1", "OUTBOARD_TRACE": str(trace), "OUTBOARD_OFFLOAD": "on"})
        expect(code == 0 and "counters of 2 ranks" in output, f"no summary, code {code}:\n{output}")
        events = json.loads(trace.read_text())["traceEvents"]
        expect(len({e["pid"] for e in events if "pid" in e} | {e.get("tid") for e in events}) > 1, "one timeline only")
        # These calls take the fast path if nothing is traced.
        code, output = mpirun("-n", 2, compile_c(HERE / "programs/p2p_handles.c"), env={"OUTBOARD_TRACE": str(trace)})
        expect(code == 0, f"code {code}:\n{output}")
        expect({"MPI_Irecv", "MPI_Send"} <= {e.get("name") for e in json.loads(trace.read_text())["traceEvents"]}, "sends and receives are missing")
    child = start(BIN / "mpirun", "-n", 2, "--proxies", 1, program, 2000, env={"OUTBOARD_OFFLOAD": "on"})
    read_until(child, "ready")
    code, output = run(BIN / "outboard", "top", "--once", "--json", "--job", child.pid)
    expect(code == 0, f"outboard top: {output}")
    json.loads(output)
    expect(finish(child)[0] == 0, "the job that was looked at failed")


def arrows(events):
    """For each name, the arrows of a trace as lists of points, after a check of what viewers need."""
    bars, points = {}, {}
    for e in events:
        if e["ph"] in "XB":
            bars.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e.get("dur", float("inf"))))
        elif e["ph"] in "stf":
            points.setdefault((e["name"], e["id"]), []).append(e)
    for it in points.values():
        it.sort(key=lambda e: (e["ts"], "stf".index(e["ph"])))
        expect([e["ph"] for e in it] == ["s"] + ["t"] * (len(it) - 2) + ["f"], f"not from its begin to its end: {it}")
        for e in it:
            expect(any(begun - 0.01 <= e["ts"] <= ended + 0.01 for begun, ended in bars[e["pid"], e["tid"]]), f"in no bar: {e}")
    return {name: [it for (other, _), it in points.items() if other == name] for name in {name for name, _ in points}}


def messages(events, ranks):
    """Checks the trace of traced.c: each message that was received has an arrow, from the right rank."""
    ends = [e for e in events if e.get("cat") == "message" and e["ph"] == "b"]
    keys = {way: sorted((e["args"]["context"], *sorted([e["pid"], e["args"]["peer"]]), e["args"]["tag"], e["args"]["number"], e["args"]["bytes"])
                        for e in ends if e["args"]["direction"] == way) for way in ("send", "receive")}
    # There are 20 in the first loop, 20 in the second, MPI_Sendrecv, and 3 by a persistent request. A receive may be longer
    # than its message.
    expect(len(keys["send"]) == 44 * ranks and keys["send"] == keys["receive"], f"{len(keys['send'])} sends: {keys}")
    expect({e["args"]["comm"] for e in ends} == {"MPI_COMM_WORLD"} and all("traced+0x" in e["args"]["site"] for e in ends), f"{ends[:3]}")
    drawn = arrows(events)
    expect(len(drawn["message"]) == 44 * ranks, f"{len(drawn['message'])} arrows")
    expect(all((it[0]["pid"] + 1) % ranks == it[-1]["pid"] for it in drawn["message"]), "between other ranks")
    expect(len([e for e in events if e.get("cat") == "cancelled"]) == ranks, "cancelled receives")
    return drawn


@test
def messages_and_proxies_steps_are_joined_by_arrows():
    program = compile_c(HERE / "faults/traced.c")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        env = {"OUTBOARD_TRACE": str(trace), "OUTBOARD_OFFLOAD": "on", "OUTBOARD_STATS": "1"}
        code, output = mpirun("-n", 3, "--proxies", 1, program, env=env)
        expect(code == 0 and "MPI_Isend on MPI_COMM_WORLD, 60 messages of 3 ranks: proxy carried" in output, f"{code}\n{output}")
        whole = json.loads(trace.read_text())
        events = whole["traceEvents"]
        drawn = messages(events, 3)
        # Long messages of blocking calls are offered. Proxies carry out the other long messages and the collectives.
        expect(len(drawn["rendezvous"]) >= 9 and all(len(it) == 3 for it in drawn["rendezvous"]), f"{drawn.get('rendezvous')}")
        expect(len(drawn["proxy"]) >= 45 and all(it[1]["pid"] == 1000000 for it in drawn["proxy"]), f"{drawn.get('proxy')}")
        expect(whole["otherData"]["command"].endswith("traced") and len(whole["otherData"]["hosts"]) == 1, f"{whole['otherData']}")
        told = {(e["pid"], e["name"]): e["args"] for e in events if e["ph"] == "M"}
        expect(told[1, "thread_name"]["name"] == "main thread" and "host " in told[1, "process_labels"]["labels"], f"{told}")
        order = sorted((args["sort_index"], pid) for (pid, name), args in told.items() if name == "process_sort_index")
        expect([pid for _, pid in order] == [0, 1000000, 1, 2], f"a proxy stands beside its ranks: {order}")
        expect(all(e["cname"] for e in events if e.get("cat") == "wait") and any(e["ph"] == "C" for e in events), "colours and counters")
        code, output = run(BIN / "outboard", "explain", "--json", trace)
        rows = [row for row in json.loads(output) if row["call"] == "MPI_Send on MPI_COMM_WORLD"]
        expect(sum(row["calls"] for row in rows) == 60 and {row["function"] for row in rows} == {"main"}, f"{rows}")
        profiled(trace)


@test
def partitions_and_windows_are_joined_by_arrows():
    """traced_windows.c on 3 ranks has 3 rounds of 4 partitions to the next rank, of each kind of epoch, and of rooted
    collectives. Rank 0 is late."""
    program = compile_c(HERE / "faults/traced_windows.c")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        code, output = mpirun("-n", 3, program, env={"OUTBOARD_TRACE": str(trace)})
        expect(code == 0, f"{code}\n{output}")
        events = json.loads(trace.read_text())["traceEvents"]
        drawn = arrows(events)
        lengths = {name: len(it) for name, it in drawn.items()}
        # There is an arrow for each partition of each message, and for each post and each completion, all of them of
        # rank 0 and rank 1.
        expect((lengths["partition"], lengths["message"], lengths["window"]) == (36, 9, 6), f"{lengths}")
        expect(all((it[0]["pid"] + 1) % 3 == it[-1]["pid"] for it in drawn["partition"]), "between other ranks")
        begun = [e for e in events if e["ph"] == "b"]
        ends = [(e["args"]["direction"], e["args"]["number"], e["args"]["bytes"]) for e in begun if e["cat"] == "message"]
        expect(sorted(ends) == sorted((way, number, 1 << 17) for way in ("send", "receive") for number in (1, 2, 3) for _ in range(3)), f"{ends}")
        epochs = [(e["name"], e["args"].get("peer"), e["args"].get("lock")) for e in begun if e["cat"] == "epoch"]
        wanted = {("MPI_Win_fence on table", None, None): 9, ("MPI_Win_post on table", None, None): 3, ("MPI_Win_start on table", None, None): 3,
                  ("MPI_Win_lock on table", 1, "exclusive"): 9, ("MPI_Win_lock_all on table", None, "shared"): 9}
        expect({epoch: epochs.count(epoch) for epoch in epochs} == wanted, f"{epochs}")
        closed = {e["id2"]["local"] for e in events if e["ph"] == "e"}
        expect(all(e["id2"]["local"] in closed for e in begun), "epochs that do not end")
        code, output = run(BIN / "outboard", "profile", "--json", trace)
        expect(code == 0, f"outboard profile: {output}")
        rows = json.loads(output)["late"]
        late = {(row["why"], row["function"]) for row in rows if row["late"] == 0 and row["longest_us"] > 5000}
        wanted = {("sender", "MPI_Waitall"), ("collective", "MPI_Win_fence"), ("target", "MPI_Win_start"), ("holder", "MPI_Win_lock"),
                  ("collective", "MPI_Bcast"), ("collective", "MPI_Reduce"), ("collective", "MPI_Scan")}
        expect(wanted <= late, f"{wanted - late} are missing in {late}")
        # Members of a comm and neighbours wait only for each other, whatever other operations of the same name do.
        waits = lambda function: {(row["late"], row["rank"]): row["us"] for row in rows if row["function"] == function}
        part, line = waits("MPI_Allreduce"), waits("MPI_Neighbor_allgather")
        expect(part.get((0, 1), 0) > 5000 and set(part) <= {(0, 1), (1, 0)}, f"{part}")
        expect(line.get((0, 1), 0) > 5000 and set(line) <= {(0, 1), (1, 2)}, f"{line}")
        contexts = [{e["args"]["context"] for e in begun if e["pid"] == rank and e["name"].startswith("MPI_Allreduce")} for rank in range(3)]
        expect(contexts[0] == contexts[1] and len(contexts[0]) == len(contexts[2]) == 1 and contexts[0] != contexts[2], f"{contexts}")
        # A request is one call, whatever the order in which the members start it.
        pairs = {}
        for event in begun:
            if event["name"].startswith("MPI_Barrier_init"):
                pairs.setdefault((event["args"]["context"], event["name"]), []).append((event["pid"], event["ts"]))
        expect([len(pair) for pair in pairs.values()] == [3, 3], f"{pairs}")
        first, second = ({pid: ts for pid, ts in pair} for pair in pairs.values())
        expect((first[0] < second[0]) == (first[2] < second[2]) != (first[1] < second[1]), f"{pairs}")


def profiled(trace):
    """The page of `outboard profile` for the trace of traced.c on 3 ranks with a proxy."""
    code, output = run(BIN / "outboard", "profile", "--json", trace)
    expect(code == 0, f"outboard profile: {output}")
    figures = json.loads(output)
    traffic = {(pair["from"], pair["to"]): pair["messages"] for pair in figures["traffic"]}
    expect(traffic == {(rank, (rank + 1) % 3): 44 for rank in range(3)}, f"{traffic}")
    sends = [row for row in figures["functions"] if row["function"] == "MPI_Send"]
    # There are 60 messages, and one to MPI_PROC_NULL from each rank.
    expect(sum(row["calls"] for row in sends) == 63 and all("traced+0x" in row["site"] for row in sends), f"{sends}")
    # A rank waits in MPI no longer than it is in MPI, and the sums contain all calls.
    for rank in figures["ranks"]:
        expect(0 <= rank["waited_us"] <= rank["in_mpi_us"], f"{rank}")
    finalize = sum(row["us"] for row in figures["functions"] if row["function"] == "MPI_Finalize")
    sums = [sum(row["us"] for row in figures["functions"]) - finalize, sum(rank["in_mpi_us"] for rank in figures["ranks"])]
    expect(abs(sums[0] - sums[1]) < 1e-3 * sums[0] and figures["cut_off"] == [], f"{sums}, {figures['cut_off']}")
    code, output = run(BIN / "outboard", "profile", trace)
    page = Path(output.strip()).read_text()
    for wanted in ["main (traced.c:", "MPI_Send", "rows: sender", "proxy 0", "Who waits for whom", "<svg"]:
        expect(wanted in page, f"no {wanted!r} in {page}")
    cut = trace.with_suffix(".cut")
    cut.write_bytes(trace.read_bytes()[:20000])
    code, output = run(BIN / "outboard", "profile", cut)
    expect(code == 1 and "the file is cut off" in output, f"{code}: {output}")


@test
def the_tutorial_does_what_it_says():
    """Runs each command of docs/tutorial.md and compares the output with the sentences shown there, except for their
    figures."""
    page = (HERE.parent / "docs/tutorial.md").read_text()
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.M)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "overlap.c").write_text(next(block for block in blocks if "#include" in block).strip("\n") + "\n")
        said = None
        for line in "".join(block for block in blocks if "#include" not in block).splitlines():
            if line.startswith("$ "):
                command, shell = line[2:], ["env", f"PATH={BIN}:{os.environ['PATH']}", "sh", "-c"]
                code, said = run(*shell, f"cd {folder} && {line[2:]}")
                expect(code == 0, f"{command}: {code}\n{said}")
            elif line.strip():
                # Times differ, and so does the share of them beside computation. A proxy that starts late misses calls.
                form = re.sub(r"[\d.]+\\? ?([mun]?s|%)", r"[\\d.]+ ?[mun]?[s%]", re.escape(line.strip()).replace("\\.", "."))
                form = form.replace("50\\ by", r"\d+ by").replace("200\\ MiB", r"[\d.]+ MiB")
                form = re.sub(r"(a\\ proxy|beside\\ computation)([,;])", r"\1( \\(.*\\))?\2", form)
                expect(re.search(form, said), f"{command}\nprints no line like\n{line}\nbut\n{said}")
        expect("MPI_Ialltoall" in (Path(folder) / "trace.html").read_text(), "the page of the tutorial")


@test
def statistics_and_traces_outlive_every_end():
    """They print whether communication overlapped, and have one span for each operation, with its function, comm and
    number."""
    program = compile_c(HERE / "faults/overlap.c")
    with tempfile.TemporaryDirectory() as folder:
        jobs, said = {}, {}
        for end in ["hang", "finalize", "abort", "error", "kill", "compute"]:
            env = {"OUTBOARD_STATS": "1", "OUTBOARD_TRACE": f"{folder}/{end}.json", "OUTBOARD_OFFLOAD": "on"}
            jobs[end] = start(BIN / "mpirun", "-n", 2, "--proxies", 1, "--timeout", 5 if end == "hang" else 100, program, end, env=env)
            said[end] = read_until(jobs[end], "ready") if end in ("hang", "compute") else rest(jobs[end])
        explained(jobs["compute"].pid)
        jobs["compute"].send_signal(signal.SIGTERM)
        for end, child in jobs.items():
            said[end] += rest(child) if end in ("hang", "compute") else ""
            # A rank carries out itself what it starts before its proxy runs.
            sentence = re.search(r"^MPI_Ialltoall on MPI_COMM_WORLD, 10 calls of 2 ranks: proxy carried (.*) MiB in [\d.]+ [mu]?s, (\d+) % "
                                 r"of it beside computation(?: \(.*\))?; host .* in MPI; proxy CPU [\d.]+ [mu]?s$", said[end], re.M)
            expect(sentence and float(sentence[1]) >= 2.5 and int(sentence[2]) > 0, f"{end}: no sentence in:\n{said[end][-2000:]}")
            expect(len(re.findall(r"^after [\d.]+ s of wall time:$", said[end], re.M)) == 1, f"{end}: told not once:\n{said[end]}")
            expect("MPI_Allreduce on MPI_COMM_WORLD, 1 calls of 2 ranks: proxy carried 24 B" in said[end], f"{end}: {said[end][-2000:]}")
            events = json.loads(Path(f"{folder}/{end}.json").read_text())["traceEvents"]
            spans = [(e["pid"], e["name"]) for e in events if e["ph"] == "e"]
            wanted = [(rank, f"MPI_Ialltoall on MPI_COMM_WORLD #{n}") for rank in (0, 1) for n in range(1, 11)]
            expect(set(wanted) <= set(spans) and len(spans) == len(set(spans)), f"{end}: {spans}")
            steps = {e["args"]["operation"] for e in events if e["cat" if "cat" in e else "ph"] == "step" and e["pid"] >= 1000000}
            expect(len({name for _, name in wanted} & steps) >= 5, f"{end}: {steps}")
            unfinished = {e["name"] for e in events if e["ph"] == "B"}
            expect(unfinished >= ({"MPI_Recv"} if end == "hang" else set()), f"{end}: {unfinished}")
        parts = [path.name for path in Path(folder).iterdir() if not path.name.endswith(".json")]
        expect(not parts, f"left behind: {parts}")
        explained(f"{folder}/kill.json")
        # Without mpirun no process is left that could write it.
        env = {"OUTBOARD_STATS": "1", "OUTBOARD_TRACE": f"{folder}/alone.json"}
        for end in ["finalize", "abort", "error"]:
            code, output = run(program, end, env=env)
            expect("MPI_Ialltoall on MPI_COMM_WORLD, 10 calls: 2.5 MiB by the ranks themselves" in output, f"{end}:\n{output}")
            events = json.loads(Path(f"{folder}/alone.json").read_text())["traceEvents"]
            expect("MPI_Ialltoall on MPI_COMM_WORLD #10" in {e["name"] for e in events if e["ph"] == "e"}, f"alone, {end}")
            Path(f"{folder}/alone.json").unlink()


def explained(what):
    """The output of `outboard explain` for overlap.c, from a running job or from a trace."""
    code, output = run(BIN / "outboard", "explain", "--json", what)
    expect(code == 0, f"outboard explain {what}: {output}")
    rows = {row["call"]: row for row in json.loads(output)}
    row = rows["MPI_Ialltoall on MPI_COMM_WORLD"]
    text = (HERE / "faults/overlap.c").read_text().splitlines()
    expect(row["function"] == "main" and row["file"].endswith("overlap.c") and "MPI_Ialltoall(" in text[row["line"] - 1], f"{what}: {row}")
    expect(row["ranks"] == [0, 1] and row["bytes_min"] == row["bytes_max"] == 1 << 19, f"{what}: {row}")
    ways = row["ways"]
    # A call counts once for both ranks, even if each carried it out in another way.
    expect(row["calls"] == 10 and all(way["algorithm"] for way in ways), f"{what}: {row}")
    expect(10 <= sum(way["calls"] for way in ways) <= 20 and all(way["on_some_ranks_only"] <= way["calls"] for way in ways), f"{what}: {ways}")
    why = {way["why"] for way in ways if way["by"] == "proxy"}
    expect(why == {"OUTBOARD_OFFLOAD=on"}, f"{what}: {ways}")
    # Each call has 2 ms outside of MPI, if it took that long.
    expect(all(0 <= way["outside_mpi_ns"] <= way["took_ns"] for way in ways), f"{what}: {ways}")


@test
def offload_that_cannot_pay_is_said_once():
    program = compile_c(HERE / "faults/overlap.c")
    output = mpirun("-n", 2, program, env={"OUTBOARD_OFFLOAD": "on"})[1]
    expect(output.count("OUTBOARD_OFFLOAD=on, but this job has no proxy") == 1, output)
    core = str(min(os.sched_getaffinity(0)))
    output = run("taskset", "-c", core, BIN / "mpirun", "-n", 2, "--proxies", 1, program)[1]
    expect(output.count("proxy 0 shares its cpus (any) with ranks") == 1, output)
    output = mpirun("-n", 1, "--proxies", 1, program, env={"OUTBOARD_OFFLOAD": "on"})[1]
    expect("outboard:" not in output and "mpirun:" not in output, output)
