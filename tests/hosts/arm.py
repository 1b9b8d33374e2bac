# SPDX-License-Identifier: BSD-3-Clause
"""`tests/hosts/run --arm`: jobs whose ranks are of this machine's processor and whose proxies, on other computers, are of aarch64, run by
qemu-user. Their mpirun is this machine's: qemu 7.2 lacks what it needs. `make proxy-aarch64` builds what is run."""
import shutil

import dpu, jobs, lab
from job_tests.running import BIN, ROOT, expect

MADE = ROOT / "target/packages/aarch64-unknown-linux-gnu/release"
QEMU = "qemu-aarch64"


def why_not():
    """Why it cannot be run, or None."""
    missing = [str(file) for file in (MADE / "outboard-proxy", MADE / "libfabric.so.1", BIN / "mpirun") if not file.exists()]
    if not shutil.which(QEMU):
        missing.append(QEMU)
    return f"missing: {', '.join(missing)} (make proxy-aarch64)" if missing else None


def collectives(hosts):
    # However slow the processor that is emulated is, no rank gives its proxy up.
    job = dpu.Offload(hosts, 2, 300, ranks=2, OUTBOARD_PROXY_TIMEOUT_MS=120000)
    job.begin()
    for host in job.dpus:
        found = [line for _, line in host.processes() if "outboard-proxy" in line]
        expect(found and all(QEMU in line for line in found), f"proxies on {host}: {found}")
    output = job.ends_well(600)
    expect(dpu.counted(output, "offloaded") > 0 and not dpu.counted(output, "recovered"), output)
    return f"{dpu.counted(output, 'offloaded')} operations"


def run():
    if reason := why_not():
        print(f"{reason}\nhosts: 0 passed, 1 failed")
        return False
    hosts = lab.Lab(4)
    hosts.start_ssh()
    proxy = lab.STATE / "outboard-proxy"
    words = ["exec", QEMU, "-L", "/usr/aarch64-linux-gnu", "-E", f"OUTBOARD_FABRIC_LIB={MADE}/libfabric.so.1", str(MADE / "outboard-proxy")]
    proxy.write_text(f'#!/bin/sh\n{" ".join(words)} "$@"\n')
    proxy.chmod(0o755)
    for host in hosts.hosts[2:]:
        host.command("mount", "--bind", proxy, BIN / "outboard-proxy")
    passed, failed = 0, 0
    for name, test in {"collectives": collectives, "messages": lambda it: dpu.carry(it, {"p2p_ways": 3, "partitioned": 4}, "Isend|Irecv|Start")}.items():
        try:
            print(f"proxies of aarch64 carry {name}: ok ({test(hosts)})", flush=True)
            jobs.nothing_left(hosts)
            passed += 1
        except AssertionError as error:
            print(f"proxies of aarch64 carry {name}: FAIL\n{error}", flush=True)
            failed += 1
    print(f"hosts: {passed} passed, {failed} failed")
    return not failed
