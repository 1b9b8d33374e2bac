# SPDX-License-Identifier: BSD-3-Clause
"""A simulated fabric: ibsim with a real opensm (Debian: ibsim-utils, opensm), and traffic set by ibsim's console."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

PRELOAD = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"
NEEDED = ["ibsim", "opensm"]


def missing():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = [name for name in NEEDED if not shutil.which(name, path=path)]
    return lacking + ([] if os.path.exists(PRELOAD) else ["libumad2sim.so"])


def tree(spines, leaves, hosts):
    """A fat tree with one link from each leaf to each spine, in ibsim's form. The first node runs opensm."""
    text = []
    for leaf in range(leaves):
        for host in range(hosts):
            number = leaf * hosts + host + 1
            text += [f'Hca 1 "host-{number:03}"', f'[1] "leaf-{leaf + 1:02}"[{host + 1}]', ""]
    for leaf in range(leaves):
        text.append(f'Switch {hosts + spines} "leaf-{leaf + 1:02}"')
        text += [f'[{host + 1}] "host-{leaf * hosts + host + 1:03}"[1]' for host in range(hosts)]
        text += [f'[{hosts + spine + 1}] "spine-{spine + 1}"[{leaf + 1}]' for spine in range(spines)] + [""]
    for spine in range(spines):
        text.append(f'Switch {leaves} "spine-{spine + 1}"')
        text += [f'[{leaf + 1}] "leaf-{leaf + 1:02}"[{hosts + spine + 1}]' for leaf in range(leaves)] + [""]
    return "\n".join(text) + "\n"


class Fabric:
    """A simulated fabric that runs until it is closed. `env` is what a program needs to be part of it."""

    def __init__(self, text):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="outboard-fabric-"))
        net = self.folder / "net"
        net.write_text(text)
        nodes = text.count('Hca ') + text.count("Switch ")
        # Every simulator has a socket of its own, because the default name is the same for the whole machine.
        self.env = os.environ | {"IBSIM_SOCKNAME": f"outboard-{os.getpid()}-{self.folder.name}", "LD_PRELOAD": PRELOAD}
        plain = {name: value for name, value in self.env.items() if name != "LD_PRELOAD"}
        limits = ["-N", str(nodes + 16), "-S", str(nodes + 16), "-P", str(64 * (nodes + 16))]
        self.log = open(self.folder / "ibsim.log", "w")
        self.ibsim = subprocess.Popen(["ibsim", "-s", *limits, str(net)], env=plain, stdin=subprocess.PIPE, stdout=self.log,
                                      stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        time.sleep(0.5)
        osm = self.env | {"OSM_TMP_DIR": str(self.folder), "OSM_CACHE_DIR": str(self.folder)}
        path = shutil.which("opensm", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        self.opensm = subprocess.Popen([path, "-f", str(self.folder / "opensm.log"), "-s", "5", "-v"], env=osm, stdin=subprocess.DEVNULL,
                                       stdout=self.log, stderr=subprocess.STDOUT, cwd=self.folder)
        self.totals = {}
        self.loads = {}
        self.lock = threading.Lock()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.drive, daemon=True)

    def wait_up(self, seconds=60):
        """Waits until opensm has brought the subnet up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if "SUBNET UP" in (self.folder / "ibsim.log").read_text() + self.read("opensm.log"):
                self.thread.start()
                return
            if self.ibsim.poll() is not None or self.opensm.poll() is not None:
                break
            time.sleep(0.2)
        raise RuntimeError("opensm did not bring the subnet up:\n" + (self.folder / "ibsim.log").read_text()[-2000:])

    def read(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def say(self, command):
        """Sends a command to ibsim's console."""
        with self.lock:
            self.ibsim.stdin.write(command + "\n")
            self.ibsim.stdin.flush()

    def load(self, node, port, peer, peer_port, bytes_per_second):
        """Lets data flow from a port to its peer until the load is changed."""
        self.loads[node, port, peer, peer_port] = bytes_per_second

    def count(self, node, port, name, value):
        self.say(f'PerformanceSet "{node}"[{port}] PortCounters.{name}={value}')

    def drive(self):
        """Moves the counters of ports with a load, ten times a second."""
        last = time.monotonic()
        while not self.is_over.wait(0.1):
            now = time.monotonic()
            for (node, port, peer, peer_port), rate in list(self.loads.items()):
                words = int(rate * (now - last) / 4)
                for end, name, packets in (((node, port), "Xmit", "PortXmitPkts"), ((peer, peer_port), "Rcv", "PortRcvPkts")):
                    total = self.totals[end, name] = self.totals.get((end, name), 0) + words
                    at = f'"{end[0]}"[{end[1]}] PortCountersExtended'
                    self.say(f"PerformanceSet {at}.Port{name}Data={total}")
                    self.say(f"PerformanceSet {at}.{packets}={total // 512}")
            last = now

    def clients(self):
        """The number of programs that have begun to attach themselves: each binds a socket of its own."""
        return pathlib.Path("/proc/net/unix").read_text().count(f"@{self.env['IBSIM_SOCKNAME']}:ctl") - 1

    @contextlib.contextmanager
    def slow(self):
        """Makes the next program wait for a second until it is attached."""
        before, is_over = self.clients(), threading.Event()

        def resume():
            while self.clients() == before and not is_over.wait(0.05):
                pass
            is_over.wait(1)
            self.ibsim.send_signal(signal.SIGCONT)

        self.ibsim.send_signal(signal.SIGSTOP)
        thread = threading.Thread(target=resume)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def close(self):
        self.is_over.set()
        for process in (self.opensm, self.ibsim):
            process.terminate()
        for process in (self.opensm, self.ibsim):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
