# SPDX-License-Identifier: BSD-3-Clause
"""Fewer rights: no cross-memory attach, an ordinary user."""
import os, shutil, subprocess, tempfile
from pathlib import Path

from job_tests.running import BIN, HERE, PROGRAMS, ROOT, compile_c, expect, mpirun, run, test


def some_programs(*wrap, programs=("p2p_modes", "p2p_pairs", "coll_regular", "coll_outstanding"), env=None):
    code, output = run(HERE / "run", *programs, "--ways", "plain", "proxy", "--ranks", 3, "--wrap", *wrap, timeout=300,
                       env=env)
    expect(code == 0, output)


@test
def cross_memory_attach_refused_by_seccomp():
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    wrapper = PROGRAMS / "no_cma"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-o", wrapper, HERE / "faults/no_cma.c"], check=True)
    some_programs(wrapper)
    one = compile_c(HERE / "faults/churn.c")
    code, output = run(wrapper, BIN / "mpirun", "-n", 3, "--proxies", 1, one, 300, env={"OUTBOARD_OFFLOAD": "on"})
    expect(code == 0, output)


@test
def cross_memory_attach_that_works_one_way():
    """A rank in a user namespace of its own cannot read the memory of others, but others can read its memory. A rank may also
    lose the right while it runs."""
    program = compile_c(HERE / "faults/one_way.c")
    ways = [("seccomp", ["-n", 3, program, "refuse"])]
    if run("unshare", "--user", "--map-root-user", "true")[0] == 0:
        ways.append(("a user namespace", ["-n", 1, "unshare", "--user", "--map-root-user", program, ":", "-n", 2, program]))
    for way, words in ways:
        # After the first calls short blocks are also read in the members' memory (coll/pull.rs).
        for proxies, env in [((), {}), ((), {"OUTBOARD_INLINE_BYTES_MAX": "8KiB"}), (("--proxies", 1), {"OUTBOARD_OFFLOAD": "on"})]:
            code, output = mpirun(*proxies, *words, env=env)
            expect(code == 0, f"{way} {proxies} {env}: exit code {code}\n{output}")
    return "no user namespaces here" if len(ways) == 1 else None


@test
def an_ordinary_user():
    if os.getuid() != 0:
        return "is one"
    # Another user cannot read root's folders, so the tree is copied to a folder that he can read.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        tree = Path(folder) / "outboard"
        shutil.copytree(ROOT / "build", tree, symlinks=True)
        for source in ["faults/churn.c", "programs/p2p_modes.c", "programs/coll_regular.c"]:
            subprocess.run([tree / "bin/mpicc", "-std=gnu11", "-O1", "-o", Path(folder) / Path(source).stem, HERE / source],
                           check=True)
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
        for words in [("churn", 200), ("p2p_modes",), ("coll_regular",)]:
            for proxies in [(), ("--proxies", 1)]:
                code, output = run(*drop, tree / "bin/mpirun", "-n", 3, *proxies, Path(folder) / words[0], *words[1:],
                                   cwd="/", env={"OUTBOARD_OFFLOAD": "on" if proxies else "off", "HOME": "/"})
                expect(code == 0, f"{words} {proxies}: exit code {code}\n{output}")
