# SPDX-License-Identifier: BSD-3-Clause
"""mpirun: the options of MPICH and Open MPI, output as it is written, and which cores jobs take."""
import os, re, shutil, subprocess, sys, tempfile
from pathlib import Path

from job_tests.running import BIN, HANGS, HERE, PROGRAMS, compile_c, expect, mpirun, read_until, run, start, test

PRINTS = HERE / "faults/prints.c"


def cores():
    """One cpu of each core that this process may use."""
    siblings = lambda cpu: Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    return sorted({siblings(cpu): cpu for cpu in os.sched_getaffinity(0)}.values())


def runs(*words, ranks, **more):
    """The lines of a job of `echo`s, one for each rank, in order."""
    code, output = mpirun(*words, "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK", **more)
    lines = sorted(output.splitlines())
    expect(code == 0 and len([line for line in lines if "rank" in line]) == ranks, f"{words}: exit code {code}\n{output}")
    return lines


@test
def options_of_others_start_the_program():
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts"
        hosts.write_text("# this machine\nlocalhost slots=2 max_slots=4\n127.0.0.1:1\n")
        name = os.uname().nodename
        for words, ranks in [
            (["-ppn", 2], 2), (["-hosts", "localhost"], 1), (["-hosts", f"{name}:2"], 2), (["--host", "localhost:3"], 3),
            (["-H", "localhost", "-n", 2], 2), (["-f", hosts], 3), (["--hostfile", hosts, "-np", 2], 2),
            (["-machinefile", hosts, "-n", 1], 1), (["-genvall", "-launcher", "ssh", "-iface", "lo", "-n", 2], 2),
            (["--mca", "btl", "self,vader", "--oversubscribe", "--allow-run-as-root", "-np", 2], 2),
            (["--map-by", "socket", "--rank-by", "slot", "--bind-to", "socket", "-n", 2], 2),
            (["--map-by", "ppr:2:node"], 2), (["--bind-to", "hwthread", "-n", 2], 2), (["--use-hwthread-cpus", "-n", 1], 1),
            (["-bind-to", "numa", "-map-by", "numa", "-n", 2], 2), (["-envlist", "A,B", "-n", 1], 1),
            (["-q", "-n", 2], 2), (["-quiet", "-genv", "MV2_IBA_HCA", "x", "-n", 2], 2),
        ]:
            runs(*words, ranks=ranks)
        lines = runs("-genv", "MV2_IBA_HCA", "mlx5_0", "-genv", "MV2_ENABLE_GPU", "1", "-n", 1, ranks=1)
        expect([line for line in lines if "MV2_IBA_HCA has no effect" in line] and not any("MV2_ENABLE_GPU" in line for line in lines), f"{lines}")
        expect(runs("-n", 2, "-prepend-rank", ranks=2) == ["[0] rank 0", "[1] rank 1"], "-prepend-rank")
        expect(runs("-n", 2, "--tag-output", ranks=2) == ["[1,0]<stdout>: rank 0", "[1,1]<stdout>: rank 1"], "--tag-output")
        stamped = runs("-n", 1, "--timestamp-output", ranks=1)
        expect(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} rank 0", stamped[0]), f"{stamped}")
        config = Path(folder) / "config"
        config.write_text("-n 1 sh -c 'echo rank one'\n# more\n-n 2 sh -c 'echo rank two'\n")
        code, output = mpirun("-configfile", config)
        expect(code == 0 and sorted(output.split()) == ["one", "rank", "rank", "rank", "two", "two"], f"{code}\n{output}")
        script = Path(folder) / "only-here"
        script.write_text("#!/bin/sh\necho rank here\n")
        script.chmod(0o755)
        code, output = mpirun("-path", folder, "-n", 1, "only-here")
        expect((code, output) == (0, "rank here\n"), f"-path: {code}\n{output}")
        noted = runs("-v", "-rmk", "user", "-n", 1, ranks=2)
        expect(any("-rmk user has no effect: " in line for line in noted), f"{noted}")


@test
def options_that_are_refused_name_themselves():
    for words, sentence in [
        (["-hosts", "node7;x"], "node7;x"), (["-H", "a,-oProxyCommand=x"], "-oProxyCommand=x"),
        (["-hostlist", "x"], "--hostlist"), (["-gdb"], "-gdb is not an option of Outboard"),
        (["-genvnone"], "env -u NAME"), (["--bind-to", "teapot"], "socket"), (["-configfile", "/no/such"], "/no/such"),
        (["--map-by", "slot:PE=4000"], "4000 cores"), (["--outfile-pattern", "/proc/x/%r"], "/proc/x/0"),
    ]:
        code, output = mpirun(*words, "echo", "it ran")
        expect(code not in (0, None) and sentence in output and "it ran" not in output, f"{words}: {code}\n{output}")


@test
def output_in_files():
    with tempfile.TemporaryDirectory() as folder:
        def written(*words):
            code, output = mpirun("-n", 2, *words, "sh", "-c", "echo out $OUTBOARD_RANK; echo err >&2", cwd=folder)
            expect(code == 0, f"{words}: {code}\n{output}")
            files = {str(p.relative_to(folder)): p.read_text() for p in Path(folder).rglob("*") if p.is_file()}
            shutil.rmtree(folder)
            os.mkdir(folder)
            return output, files
        host = os.uname().nodename
        expect(written("-outfile-pattern", "a/%r-%h") == ("err\nerr\n", {f"a/0-{host}": "out 0\n", f"a/1-{host}": "out 1\n"}),
               "-outfile-pattern")
        output, files = written("-outfile-pattern", "all", "-errfile-pattern", "all", "-l")
        expect(output == "" and sorted(files["all"].splitlines()) == ["[0] err", "[0] out 0", "[1] err", "[1] out 1"], f"{files}")
        expect(written("--output-filename", "name") == ("", {"name.0.out": "out 0\n", "name.0.err": "err\n", "name.1.out": "out 1\n",
                                                             "name.1.err": "err\n"}), "--output-filename")


@test
def input_goes_where_it_is_sent():
    for words, readers in [([], [0]), (["-s", "all"], [0, 1, 2]), (["-stdin", "1-2"], [1, 2]), (["-s", 2], [2]), (["-s", "none"], [])]:
        child = start(BIN / "mpirun", "-l", "-n", 3, *words, "cat", stdin=subprocess.PIPE)
        output, _ = child.communicate("line\n", timeout=HANGS)
        expect(child.returncode == 0 and sorted(output.splitlines()) == [f"[{rank}] line" for rank in readers], f"{words}: {output}")


@test
def input_that_cannot_be_read_ends():
    child = start(BIN / "mpirun", "-n", 2, "-s", "all", "cat", stdin=os.open("/", os.O_RDONLY))
    output, _ = child.communicate(timeout=HANGS)
    expect(child.returncode == 0 and "cannot read standard input: Is a directory" in output, f"{child.returncode}\n{output}")


@test
def universe_size():
    program = compile_c(PRINTS)
    for words, size in [([], 2), (["-usize", 7], 7), (["--host", "localhost:5"], 5), (["-usize", "SYSTEM"], len(cores()))]:
        code, output = mpirun("-n", 2, *words, program, "universe")
        expect(code == 0 and output.split() == [str(size)] * 2, f"{words}: {code}\n{output}")


def ways_to_print():
    c = compile_c(PRINTS)
    cpp = PROGRAMS / "prints_cpp"
    subprocess.run([BIN / "mpicxx", "-O1", "-o", cpp, HERE / "faults/prints.cpp"], check=True)
    python = "import os, sys\nprint('a line'); print('a line before the end'); sys.stdin.readline(); os.kill(os.getpid(), 9)"
    yield "C", [c, "crash"]
    yield "C++", [cpp]
    if shutil.which("gfortran"):
        fortran = PROGRAMS / "prints_fortran"
        subprocess.run(["gfortran", "-o", fortran, HERE / "faults/prints.f90"], check=True)
        yield "Fortran", [fortran]
    yield "Python", [sys.executable, "-c", python]


@test
def lines_appear_as_they_are_written_and_survive_a_crash():
    unset = ["PYTHONUNBUFFERED", "GFORTRAN_UNBUFFERED_PRECONNECTED"]
    outside = {name: value for name, value in os.environ.items() if name not in unset}
    for pty in ([], ["--pty"]):
        for language, words in ways_to_print():
            child = subprocess.Popen([str(w) for w in [BIN / "mpirun", *pty, "-n", 1, *words]], env=outside, text=True, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            # The program waits for a line of input, so the lines that are seen now were written before.
            said = read_until(child, "before the end")
            child.stdin.write("go on\n")
            child.stdin.close()
            rest = child.stdout.read()
            expect(said == "a line\na line before the end\n" and "SIGKILL" in rest, f"{language} {pty}: {said}{rest}")
            child.wait()


@test
def what_the_program_or_the_user_chose_holds():
    code, output = mpirun("-n", 1, compile_c(PRINTS), "full")
    expect(code != 0 and "a line" not in output, f"a program's full buffer was written before it ended:\n{output}")
    names = ["PYTHONUNBUFFERED", "GFORTRAN_UNBUFFERED_PRECONNECTED"]
    shown = "; ".join(f"echo ${{{name}-unset}}" for name in names)
    for given, wanted in [({}, ["1", "y"]), (dict.fromkeys(names, "0"), ["0", "0"])]:
        outside = {name: value for name, value in os.environ.items() if name not in names}
        done = subprocess.run([BIN / "mpirun", "-n", "1", "sh", "-c", shown], env={**outside, **given}, text=True, stdout=subprocess.PIPE)
        expect(done.stdout.split() == wanted, f"{given}: {done.stdout}")
    code, output = mpirun("--pty", "-n", 1, "sh", "-c", "test -t 1 && test ! -t 2 && printf 'a\\tb\\n'")
    expect((code, output) == (0, "a\tb\n"), f"--pty: {code} {output!r}")


def alone(*words):
    """Runs a command in a network namespace of its own, in which it sees no other jobs, so that jobs of this machine do not
    decide about a test."""
    apart = ["unshare", "-r", "-n"]
    possible = subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode == 0
    return [*(apart if possible else []), *words]


@test
def jobs_take_cores_that_no_other_job_has():
    cpus = cores()
    if len(cpus) < 2 or "unshare" not in alone():
        return "left out: one core, or no network namespaces"
    # In one namespace: a job on all cpus but one, one on the last cpu, one for which no cpu is left, and one after they
    # have ended.
    job = f"{BIN}/mpirun --report-bindings"

    def waits(name):
        """A program that starts when a file exists and ends when the shell closes a descriptor."""
        return f"sh -c 'touch $0; read line; true' $0/{name} < $0/{name}.in"
    script = f"""
        mkfifo $0/one.in $0/two.in
        {job} --bind-to core -n {len(cpus) - 1} {waits("one")} 2>&1 & exec 3> $0/one.in
        until [ -e $0/one ]; do sleep 0.02; done
        {job} -n {len(cpus)} true 2>&1 | sed 's/^/crowded /'
        taskset -c {cpus[0]},{cpus[-1]} {job} --bind-to core -n 1 {waits("two")} 2>&1 | sed 's/^/second /' & exec 4> $0/two.in
        until [ -e $0/two ]; do sleep 0.02; done
        exec 3>&- 4>&-; wait
        {job} -n {len(cpus)} true 2>&1 | sed 's/^/later /'
    """
    with tempfile.TemporaryDirectory() as folder:
        code, output = run(*alone("taskset", "-c", ",".join(map(str, cpus)), "bash", "-c", script, folder))
    lines = output.splitlines()
    bound = lambda start: [re.search(r"(not bound|cpus .*)$", line).group(1) for line in lines
                           if line.startswith(start) and "bound" in line]
    expect(bound("mpirun: rank") == [f"cpus {cpu}" for cpu in cpus[:-1]], output)
    expect(bound("crowded") == ["not bound"] * len(cpus), output)
    expect(bound("second") == [f"cpus {cpus[-1]}"], output)
    expect(bound("later") == [f"cpus {cpu}" for cpu in cpus], output)
