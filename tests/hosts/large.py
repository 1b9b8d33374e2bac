# SPDX-License-Identifier: BSD-3-Clause
"""`tests/hosts/run --large HOSTSxRANKS`: one job as large as the published ones, right and not fast, with a proxy for each host."""
import re, time

import jobs, lab
from dpu import counted
from job_tests import running
from job_tests.running import HERE, expect

# What a rank and a proxy take at most, in MB: a job for which there is no room would end other programs of this machine.
RANK_MB = 12
# A job of 1,024 ranks on two cores.
LONG_S = 3000


def free_mb():
    with open("/proc/meminfo") as file:
        return int(re.search(r"MemAvailable: +(\d+)", file.read()).group(1)) // 1024


def run(text, has_dpu, rounds=1):
    """Starts the hosts, and runs the job on them; returns whether it was right."""
    count, ranks = map(int, text.split("x"))
    wanted = (count * ranks + 2 * count) * RANK_MB
    if free_mb() < wanted:
        print(f"not run: {wanted} MB are wanted, {free_mb()} are free\nhosts: 0 passed, 0 failed")
        return False
    hosts = lab.Lab(2 * count if has_dpu else count)
    hosts.start_ssh()
    words = ["--proxies", 1]
    if has_dpu:
        file = lab.STATE / "dpus"
        file.write_text("".join(f"h{count + number}\n" for number in range(1, count + 1)))
        words = ["--dpu-hostfile", file]
    settings = {"OUTBOARD_OFFLOAD": "on", "OUTBOARD_STATS": 1, "OUTBOARD_PROXY_TIMEOUT_MS": 600000}
    given = [word for pair in settings.items() for word in ["-genv", *pair]]
    began, free = time.monotonic(), free_mb()
    child = jobs.start(hosts.hosts[0], jobs.MPIRUN, "-hosts", f"h[1-{count}]:{ranks}", *words, *given,
                       running.compile_c(HERE / "hosts/large.c"), rounds)
    try:
        output = running.finish(child, LONG_S)[1]
        print(output)
        expect(child.returncode == 0 and "all right" in output, f"exit code {child.returncode}")
        expect(counted(output, "offloaded") > 0 and not counted(output, "recovered"), "not carried by proxies to the end")
        jobs.nothing_left(hosts)
    except AssertionError as error:
        print(f"{text}: FAIL: {error}\nhosts: 0 passed, 1 failed")
        return False
    print(f"{text}{' with computers for proxies' if has_dpu else ''}: ok ({time.monotonic() - began:.0f} s)\nhosts: 1 passed, 0 failed")
    return True
