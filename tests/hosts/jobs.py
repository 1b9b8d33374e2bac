# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that mpirun starts by ssh: programs on 4 hosts x 2 ranks, and hosts that cannot be used."""

import lab
from job_tests import running
from job_tests.running import BIN, HERE, PROGRAMS, ROOT, expect, test

MPIRUN = BIN / "mpirun"
FOUR = "h1:2,h2:2,h3:2,h4:2"
# Programs of tests/programs, and on how many ranks.
FEW = {"p2p_order": 8, "coll_reduce": 5}
MANY = {"p2p_ways": 3, "p2p_modes": 4, "p2p_probe": 5, "p2p_requests": 6, "p2p_receives": 7, "coll_regular": 8, "coll_vector": 5,
        "coll_derived": 6, "coll_operators": 7, "neighbors": 8, "intercomms": 6,
        "split_types": 8, "persistent": 4, "partitioned": 4, "threads": 4, "types": 2, "topologies": 8}
MPI4PY = [HERE / "mpi4py/run", "--abi", "standard"]
CONFORMANCE = [HERE / "conformance/run"]
# Tests of `--more` only.
RARE = []


def rare(function):
    RARE.append(function)
    return function


def on(host, *words, **more):
    """Runs a command on a host: (exit code, output)."""
    return running.run(*host.words(*words), **more)


def start(host, *words, **more):
    return running.start(*host.words(*words), **more)


def begin(hosts):
    """Starts sshd on all hosts; the last one's takes passwords only."""
    hosts.start_ssh(hosts.hosts[:-1])
    hosts.start_ssh(hosts.hosts[-1:], ["PubkeyAuthentication no"])


def nothing_left(hosts):
    found = hosts.left()
    expect(not found, "left behind:\n" + "\n".join(found))


def program(name):
    """A program of tests/programs."""
    return running.compile_c(HERE / f"programs/{name}.c")


@test
def each_host_is_one_of_its_own(hosts):
    names = [h.command("hostname").strip() for h in hosts.hosts]
    expect(names == [h.name for h in hosts.hosts], names)
    code, output = on(hosts.hosts[0], "ssh", "h3", "hostname")
    expect((code, output) == (0, "h3\n"), f"{code}\n{output}")
    # What is left behind would be seen.
    hosts.hosts[1].command("touch", "/dev/shm/file")
    expect(len(hosts.hosts[1].left()) == 1, "a file was not found")
    hosts.hosts[1].command("rm", "/dev/shm/file")


@test
def eight_ranks_on_four_hosts_are_one_job(hosts):
    hello = running.compile_c(HERE / "faults/hello.c")
    code, output = on(hosts.hosts[0], MPIRUN, "-hosts", FOUR, hello)
    expect((code, sorted(output.splitlines())) == (0, [f"rank {r} of 8" for r in range(8)]), f"{code}\n{output}")
    tell = 'echo $OMPI_COMM_WORLD_RANK on $(hostname), $PWD, $A$B'
    words = ["env", "--chdir=/", "B=2", MPIRUN, "-hosts", FOUR, "-genv", "A", "1", "sh", "-c", tell]
    code, output = on(hosts.hosts[0], *words)
    wanted = [f"{r} on h{r // 2 + 1}, /, 12" for r in range(8)]
    expect((code, sorted(output.splitlines())) == (0, wanted), f"{code}\n{output}")
    # A tree: h2 reaches h1, and h4 h3.
    code, output = on(hosts.hosts[0], MPIRUN, "-genv", "OUTBOARD_LAUNCH_FANOUT", 2, "-hosts", "h2,h1,h4,h3", "-n", 4, hello)
    expect((code, sorted(output.splitlines())) == (0, [f"rank {r} of 4" for r in range(4)]), f"{code}\n{output}")
    # A host far away, seen from another than its own.
    code, output = on(hosts.hosts[4], MPIRUN, "-hosts", "h1,h2", hello)
    expect((code, sorted(output.splitlines())) == (0, ["rank 0 of 2", "rank 1 of 2"]), f"{code}\n{output}")
    nothing_left(hosts)


@test
def hosts_are_named_as_other_launchers_allow(hosts):
    tell = ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK on $(hostname)"]
    for words, wanted in [(["-hosts", "h[1-3]", *tell], "123"), (["--host", "h2:2", "-H", "h1", *tell], "221"),
                          (["-host", "h2", "-n", 1, *tell, ":", "-host", "h1,h3", "-n", 2, *tell], "213")]:
        code, output = on(hosts.hosts[0], MPIRUN, *words)
        expected = [f"{rank} on h{host}" for rank, host in enumerate(wanted)]
        expect((code, sorted(output.splitlines())) == (0, expected), f"{words}: {code}\n{output}")
    code, output = on(hosts.hosts[0], MPIRUN, "-hosts", "h1,h2", "/no/program")
    expect(code == 127 and any(f"mpirun: host {it}: /no/program: no such file" in output for it in ("h1", "h2")), f"{code}\n{output}")
    nothing_left(hosts)


@test
def a_host_whose_name_only_ssh_knows_takes_part(hosts):
    config = lab.STATE / "ssh/client"
    before = config.read_text()
    with config.open("a") as file:
        file.write("Host only-ssh\n    HostName 10.88.0.2\n")
    try:
        code, output = on(hosts.hosts[0], MPIRUN, "-v", "-hosts", "h1,only-ssh", running.compile_c(HERE / "hosts/exchange.c"), 1)
        expect(code == 0 and "all right" in output and "on eth0 (10.88.0.2)" in output, f"{code}\n{output}")
    finally:
        config.write_text(before)
    nothing_left(hosts)


@test
def the_interface_that_is_named_is_taken(hosts):
    exchange = running.compile_c(HERE / "hosts/exchange.c")
    for host in hosts.hosts[:2]:
        lab.command("ip", "link", "add", f"more{host.number}", "type", "veth", "peer", "name", "eth1", "netns", host.init)
        lab.command("ip", "link", "set", f"more{host.number}", "master", "bridge", "up")
        host.command("ip", "address", "add", f"10.89.0.{host.number}/24", "dev", "eth1")
        host.command("ip", "link", "set", "eth1", "up")
    try:
        for words, there in [(["-iface", "eth1"], "eth1 (10.89.0"), (["--mca", "btl_tcp_if_include", "10.89.0.0/16"], "eth1 (10.89.0"),
                             (["-iface", "ib0,eth0"], "eth0 (10.88.0"), ([], "eth0 (10.88.0")]:
            code, output = on(hosts.hosts[0], MPIRUN, "-v", *words, "-hosts", "h1,h2", exchange, 1)
            expect(code == 0 and "all right" in output, f"{words}: {code}\n{output}")
            expect(all(f"Outboard: {it} goes to other hosts by tcp" in output and f"{there}.{it.number})" in output for it in hosts.hosts[:2]),
                   f"{words}:\n{output}")
        code, output = on(hosts.hosts[0], MPIRUN, "-iface", "eth7", "-hosts", "h1,h2", exchange, 1)
        expect(code != 0 and "no interface eth7" in output and "eth1" in output, f"{code}\n{output}")
    finally:
        for host in hosts.hosts[:2]:
            lab.command("ip", "link", "delete", f"more{host.number}")
    nothing_left(hosts)


# `make build` goes on without it where Debian's source cannot be fetched.
OURS = ROOT / "build/lib/outboard/libfabric.so.1"
NO_OURS = f"not run: {OURS} was not built"


@test
def two_major_versions_of_libfabric_are_told(hosts):
    if not OURS.exists():
        return NO_OURS
    exchange = running.compile_c(HERE / "hosts/exchange.c")
    words = [word for host, library in [("h1", "libfabric.so.1"), ("h2", OURS)]
             for word in (":", "-n", 1, "-host", host, "-env", "OUTBOARD_FABRIC_LIB", library, exchange, 1)]
    code, output = on(hosts.hosts[0], MPIRUN, *words[1:])
    expect(code != 0 and "it uses libfabric " in output and "all hosts of a job need the same" in output, f"{code}\n{output}")
    nothing_left(hosts)


@test
def a_rank_takes_little_memory(hosts):
    memory = running.compile_c(HERE / "hosts/memory.c")
    seen = {}
    # Debian's libfabric, whose sizes of its own make 100 MB of it; and what is taken by itself: ours.
    for library in ("libfabric.so.1", "") if OURS.exists() else ("libfabric.so.1",):
        words = ["-genv", "OUTBOARD_FABRIC_LIB", library] if library else []
        code, output = on(hosts.hosts[0], MPIRUN, *words, "-hosts", "h[1-4]:4", memory)
        expect(code == 0, f"{code}\n{output}")
        seen[library] = float(output.split()[0])
    expect(seen["libfabric.so.1"] < 60, seen)
    expect(seen.get("", 0) < 20, seen)
    return f"{seen} MB" if OURS.exists() else f"{seen} MB; {NO_OURS}"


@test
def programs_are_right_on_four_hosts(hosts):
    debians = ["-genv", "OUTBOARD_FABRIC_LIB", "libfabric.so.1"]
    runs = [(*program, words) for program in {**FEW, **MANY}.items() for words in ([], debians)] if running.chosen.more else [
        (*program, words) for program, words in zip(FEW.items(), ([], debians), strict=True)]
    for name, ranks, words in runs:
        code, output = on(hosts.hosts[0], MPIRUN, *words, "-n", ranks, "-hosts", "h1,h2,h3,h4", "--map-by", "node", program(name))
        expect(code == 0, f"{name} on {ranks} ranks {words}: {code}\n{output}")
    nothing_left(hosts)


@test
def the_demo_runs_on_four_hosts(hosts):
    demo = ROOT / "target/demo/taylor_green"
    lab.command("make", "-s", "-C", ROOT / "examples/taylor_green", f"MPICC={BIN}/mpicc", f"OUT={demo.parent}")
    code, output = on(hosts.hosts[0], MPIRUN, "-hosts", FOUR, demo, "-n", 32, "-s", 5, "--overlap", "--check")
    expect(code == 0 and "result " in output, f"{code}\n{output}")
    nothing_left(hosts)


@rare
@test
def the_suite_of_mpi4py_runs_on_four_hosts(hosts):
    code, output = on(hosts.hosts[0], *MPI4PY, "--hosts", FOUR, "--ranks", 8, "--timeout", 1500, timeout=1800)
    expect(code == 0, f"{code}\n{output}")
    nothing_left(hosts)
    return output.splitlines()[-1]


def listening(host):
    """The sockets on this host to which others can connect, but for those of the lab's services."""
    lines = host.command("ss", "-Hltuxp").splitlines()
    # mpirun marks the cores that it takes by sockets that nobody reads.
    return [line for line in lines if not any(word in line for word in [*lab.SERVICES, "u_dgr"])]


@test
def only_the_endpoints_of_ranks_listen(hosts):
    exchange = running.compile_c(HERE / "hosts/exchange.c")
    for more, count in [(["-hosts", "h1:2,h2:2"], 2), (["-n", 2], 0)]:
        child = start(hosts.hosts[0], MPIRUN, *more, exchange, 600)
        running.read_until(child, "exchanging")
        found = {host: listening(host) for host in hosts.hosts[:2]}
        child.terminate()
        running.finish(child)
        for host, lines in found.items():
            expect(len(lines) == count and all(f" {host.address}:" in line and "exchange" in line for line in lines),
                   f"{more}: on {host} listen\n" + "\n".join(lines))
    nothing_left(hosts)


@test
def the_variables_of_kubeflows_operator_name_hosts(hosts):
    # As the operator names pods and writes lists: examples in its pkg/controller/mpi_job_controller.go.
    pods = [f"hello-worker-{number}.hello.default.svc" for number in range(2)]
    for host in hosts.hosts[:3]:
        names = "".join(f"{other.address} {pod}\n" for other, pod in zip(hosts.hosts[1:], pods))
        host.command("sh", "-c", f"echo '{names}' >> /etc/hosts")
    for file, options, line in [("HYDRA_HOST_FILE", "HYDRA_LAUNCH_EXTRA_ARGS", "{}:2"),
                                ("I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "{}:2"),
                                ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_args", "{} slots=2")]:
        (lab.STATE / "hostfile").write_text("".join(line.format(pod) + "\n" for pod in pods))
        given = [f"{file}={lab.STATE}/hostfile", f"{options}=-o ConnectionAttempts=10"]
        code, output = on(hosts.hosts[0], "env", *given, MPIRUN, "-v", "sh", "-c", "echo rank on $(hostname)")
        expect(code == 0 and output.count("rank on h2") == 2 and output.count("rank on h3") == 2, f"{given}: {code}\n{output}")
        expect(output.count("ConnectionAttempts=10") == 2, output)
    nothing_left(hosts)


def fails_at(hosts, list, *sentences):
    """A job with a host that cannot be used: one line says so, and all is over soon."""
    code, output = on(hosts.hosts[0], MPIRUN, "-hosts", list, "sleep", 1000)
    said = [line for line in output.splitlines() if line.startswith("mpirun")]
    expect(code == 1 and len(said) == 1, f"{list}: {code}\n{output}")
    for sentence in sentences:
        expect(sentence in said[0], f"{list}: {sentence!r} is not in\n{output}")
    nothing_left(hosts)


@test
def a_wrong_host_is_named_in_one_sentence(hosts):
    fails_at(hosts, "h1,h2,nosuch", "host nosuch")
    fails_at(hosts, "h1,h2,10.88.0.99", "host 10.88.0.99", "No route to host")


@test
def a_host_without_outboard_is_named_in_one_sentence(hosts):
    host = hosts.hosts[4]
    host.command("mount", "-t", "tmpfs", "none", ROOT / "build")
    try:
        fails_at(hosts, "h1,h2,h5", "host h5", "mpirun", "127")
    finally:
        host.command("umount", ROOT / "build")


@test
def a_host_that_asks_a_password_is_named_in_one_sentence(hosts):
    fails_at(hosts, "h1,h2,h6", "host h6", "Permission denied")
