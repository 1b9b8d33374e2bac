# SPDX-License-Identifier: BSD-3-Clause
"""Test hosts on this machine: h1, h2, ... at 10.88.0.1, 10.88.0.2, ... on one bridge.

A host is a process with network, mount, pid, ipc and uts namespaces of its own, so it has its own name, address, process
numbers, /dev/shm, /tmp and /run; the other files are this machine's. The runner itself is process 1 of a pid namespace
(`enter`), and owns the bridge. When it ends, in whatever way, the kernel ends all hosts, and their namespaces, mounts and
network disappear with them. So this file has nothing to clean up."""
import os, random, signal, subprocess, sys, time
from pathlib import Path

# Of the runner and its hosts: a file system in memory that only they see.
STATE = Path("/run/lab")
INSIDE = "TEST_HOSTS_ARE_ENTERED"
ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ["--fork", "--kill-child", "--mount", "--propagation", "private", "--net", "--pid", "--mount-proc"]
SETTLED_S = 75


def command(*words, **more):
    """Runs a command that must succeed, and returns what it says."""
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, **more)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout}"
    return done.stdout


def why_not():
    """Why this machine can have no test hosts, or None."""
    if os.getuid() != 0:
        return "test hosts need root"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", "mount -t tmpfs t /run && ip link add name bridge type bridge"],
                           capture_output=True, text=True)
    return f"this machine refuses namespaces, mounts or bridges: {tried.stderr.strip()}" if tried.returncode else None


def enter():
    """Starts this program again as process 1 of the lab, unless it is that already."""
    if os.environ.pop(INSIDE, None):
        # Process 1 is spared by signals that it does not ask for.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        mount_private("/run")
        STATE.mkdir()
        return
    words = ["unshare", *NAMESPACES, sys.executable, *sys.argv]
    # With the death of that, the runner dies, and with the runner all hosts.
    os.execvpe("setpriv", ["setpriv", "--pdeathsig", "KILL", *words], {**os.environ, INSIDE: "1"})


def mount_private(folder):
    """An empty folder of this mount namespace only. The tree that is tested stays visible."""
    keep = os.open(ROOT, os.O_PATH) if ROOT.is_relative_to(folder) else None
    command("mount", "-t", "tmpfs", "-o", "mode=1777", "private", folder)
    if keep is not None:
        ROOT.mkdir(parents=True)
        command("mount", "-c", "--rbind", f"/proc/self/fd/{keep}", ROOT, pass_fds=[keep])
        os.close(keep)


class Host:
    """One host: its name, address, and the first of its processes."""

    def __init__(self, number):
        self.number = number
        self.name, self.address, self.port = f"h{number}", f"10.88.0.{number}", f"port{number}"
        self.init = None

    def __str__(self):
        return self.name

    def boot(self):
        ready, answer = os.pipe()
        words = ["unshare", *NAMESPACES, "--ipc", "--uts", sys.executable, __file__, self.name, str(answer)]
        with open(STATE / f"{self}.log", "a") as log:
            self.parent = subprocess.Popen(words, pass_fds=[answer], stdin=subprocess.DEVNULL, stderr=log)
        os.close(answer)
        assert os.read(ready, 5) == b"ready", f"{self} did not start: {(STATE / f'{self}.log').read_text()}"
        os.close(ready)
        self.init = int(command("pgrep", "-P", self.parent.pid))
        command("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0",
                "address", f"02:88:00:00:00:{self.number:02x}", "netns", self.init)
        command("ip", "link", "set", self.port, "master", "bridge", "up")
        self.command("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.command("ip", "link", "set", "eth0", "up")

    def words(self, *words):
        """The command that runs a command on this host, in the present folder. When it ends early, the command gets SIGTERM."""
        into = ["nsenter", "--target", self.init, "--mount", "--uts", "--ipc", "--net", "--pid", f"--wd={os.getcwd()}"]
        return [str(w) for w in [*into, "--", "setpriv", "--pdeathsig", "TERM", "--", *words]]

    def command(self, *words):
        return command(*self.words(*words))

    def is_up(self):
        return self.init is not None and self.parent.poll() is None

    def cut(self):
        command("ip", "link", "set", self.port, "down")

    def mend(self):
        command("ip", "link", "set", self.port, "up")

    def lose(self, percent):
        """From now on so many percent of the packets are lost, each way; 0: none."""
        for run, device in [(command, self.port), (self.command, "eth0")]:
            rules = f"add table netdev {device}\ndelete table netdev {device}\n"
            if percent:
                rules += (f"table netdev {device} {{ chain incoming {{ type filter hook ingress device {device} priority 0; "
                          f"numgen random mod 1000 < {int(percent * 10)} drop; }}; }}\n")
            run("nft", rules)

    def close(self, is_closed):
        """Whether nobody reaches a port of it but sshd's, as behind a firewall that drops packets."""
        rules = "add table netdev eth0\ndelete table netdev eth0\n"
        if is_closed:
            rules += ("table netdev eth0 { chain incoming { type filter hook ingress device eth0 priority 0; "
                      "tcp dport != 22 drop; }; }\n")
        self.command("nft", rules)

    def kill(self):
        """As when its power fails: nobody hears of it."""
        self.cut()
        os.kill(self.init, signal.SIGKILL)
        self.parent.wait()
        self.init = None
        command("ip", "link", "delete", self.port)

    def processes(self):
        """The processes of this host, but for services: (number, command line)."""
        namespace, found = os.stat(f"/proc/{self.init}/ns/pid").st_ino, []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.stat(folder / "ns/pid").st_ino == namespace and int(folder.name) != self.init:
                    found.append((int(folder.name), (folder / "cmdline").read_text().replace("\0", " ").strip()))
            except OSError:
                continue
        return [(pid, line) for pid, line in found if line and not any(word in line for word in SERVICES)]

    def left(self):
        """What a job has left here: processes and files."""
        # Others build in the checkout, whose files come and go.
        files = self.command("find", "/dev/shm", "/tmp", "-mindepth", "1", "-path", str(ROOT), "-prune", "-o", "-print").split()
        found = [f"process {pid}: {line}" for pid, line in self.processes()]
        return [f"{self}: {it}" for it in found + [name for name in files if not ROOT.is_relative_to(name)]]


# What the lab itself runs on hosts.
SERVICES = ["sshd", "slurmd", "slurmctld", "slurmscriptd", "munged", "slurmstepd"]


class Lab:
    """Hosts, and the services on them."""

    def __init__(self, count):
        self.hosts = [Host(number) for number in range(1, count + 1)]
        self.has_slurm = False
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host}" for host in self.hosts)]
        (STATE / "hosts").write_text("\n".join(lines) + "\n")
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "name", "bridge", "type", "bridge")
        command("ip", "link", "set", "bridge", "up")
        for host in self.hosts:
            host.boot()

    def each(self, *words):
        for host in self.hosts:
            host.command(*words)

    def start_ssh(self, hosts=None, options=()):
        """sshd on all hosts, or some. Each reaches each without a password."""
        folder = STATE / "ssh"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
            (folder / "authorized").write_text((folder / "key.pub").read_text())
            (folder / "client").write_text(
                f"IdentityFile {folder}/key\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n")
        wanted = [*options, "UsePAM no", "StrictModes no", "PidFile none", f"HostKey {folder}/key", "MaxStartups 100",
                  f"AuthorizedKeysFile {folder}/authorized", "PermitRootLogin yes"]
        for host in hosts or self.hosts:
            (folder / f"{host}.server").write_text("\n".join(wanted) + "\n")
            host.command("mount", "--bind", folder / "client", "/etc/ssh/ssh_config")
            host.command("/usr/sbin/sshd", "-f", folder / f"{host}.server", "-E", STATE / f"{host}.sshd")

    def start_slurm(self, accounting=False):
        """munged and slurmd on all hosts, slurmctld on the first. A host pretends to have 8 processors. With accounting also mariadbd,
        slurmdbd and slurmrestd on the first (port 6820, with tokens of `scontrol token`)."""
        if self.has_slurm:
            return
        self.has_slurm = True
        key, count = STATE / "munge.key", len(self.hosts)
        key.write_bytes(random.randbytes(128))
        key.chmod(0o400)
        (STATE / "slurmctld").mkdir()
        settings = {
            "ClusterName": "lab", "SlurmctldHost": "h1(10.88.0.1)", "SlurmUser": "root", "AuthInfo": "socket=/run/munge.socket",
            "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU", "SlurmdParameters": "config_overrides", "ReturnToService": 2,
            "StateSaveLocation": STATE / "slurmctld", "SlurmdSpoolDir": "/run/slurmd", "TmpFS": "/tmp",
            "SlurmctldPidFile": "/run/slurmctld.pid", "SlurmdPidFile": "/run/slurmd.pid",
            "SlurmctldLogFile": STATE / "h1.slurmctld", "SlurmdLogFile": STATE / "%n.slurmd",
            "NodeName": f"h[1-{count}] CPUs=8", "PartitionName": "all Nodes=ALL Default=YES MaxTime=INFINITE",
        }
        if accounting:
            (STATE / "jwt.key").write_bytes(random.randbytes(32))
            (STATE / "jwt.key").chmod(0o600)
            tokens = {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={STATE}/jwt.key"}
            # A job that has ended is soon forgotten by slurmctld, so that sacct is needed.
            settings |= tokens | {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "10.88.0.1", "AccountingStoragePass": "/run/munge.socket",
                                  "JobAcctGatherType": "jobacct_gather/none", "MinJobAge": 2}
            of_dbd = tokens | {"DbdHost": "h1", "DbdAddr": "10.88.0.1", "SlurmUser": "root", "AuthType": "auth/munge", "AuthInfo": settings["AuthInfo"],
                               "StorageType": "accounting_storage/mysql", "StorageUser": "root", "StorageHost": "localhost", "LogFile": STATE / "h1.slurmdbd",
                               "PidFile": "/run/slurmdbd.pid"}
            (STATE / "slurmdbd.conf").write_text("".join(f"{name}={value}\n" for name, value in of_dbd.items()))
            (STATE / "slurmdbd.conf").chmod(0o600)
        os.environ["SLURM_CONF"] = str(STATE / "slurm.conf")
        (STATE / "slurm.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        # With the default fence of Slurm's pmix some jobs of several hosts fail in it; and few PMIx libraries have munge.
        (STATE / "mpi.conf").write_text("PMIxCollFence=ring\n")
        for host in self.hosts:
            host.command("munged", "--force", f"--key-file={key}", "--socket=/run/munge.socket", "--pid-file=/run/munged.pid",
                         "--seed-file=/run/munged.seed", f"--log-file={STATE}/{host}.munged")
        if accounting:
            self.start_accounting()
        for host in self.hosts:
            if host is self.hosts[0]:
                host.command("slurmctld")
            host.command("env", "PMIX_MCA_psec=native", "slurmd", "-N", host)
        until = time.monotonic() + SETTLED_S
        while (idle := self.hosts[0].command("sinfo", "-h", "-t", "idle", "-o", "%D").strip()) != str(count):
            assert time.monotonic() < until, f"Slurm has {idle or 'no'} idle nodes:\n{self.hosts[0].command('sinfo', '-N', '-l')}"
            time.sleep(0.2)

    def start_accounting(self):
        first, data = self.hosts[0], STATE / "mariadb"

        def answers(*words):
            until = time.monotonic() + SETTLED_S
            while (asked := subprocess.run(first.words(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True)).returncode:
                logs = [STATE / f"h1.{name}" for name in ("mariadb", "slurmdbd")]
                assert time.monotonic() < until, "\n".join([asked.stderr, *(log.read_text()[-1000:] for log in logs if log.exists())])
                time.sleep(0.2)

        first.command("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db")
        first.command("mkdir", "-p", "/run/mysqld")
        words = f"mariadbd --no-defaults --user=root --datadir={data} --socket=/run/mysqld/mysqld.sock --skip-networking >{STATE}/h1.mariadb 2>&1 &"
        first.command("sh", "-c", words)
        answers("mariadb-admin", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "ping")
        first.command("slurmdbd")
        answers("sacctmgr", "-i", "add", "cluster", "lab")
        words = f"SLURM_JWT=daemon SLURMRESTD_SECURITY=disable_user_check slurmrestd -a rest_auth/jwt 0.0.0.0:6820 >{STATE}/h1.slurmrestd 2>&1 &"
        first.command("sh", "-c", words)

    def left(self):
        """What jobs have left on any host. What is just ending gets a while."""
        until = time.monotonic() + SETTLED_S
        while found := [line for host in self.hosts if host.is_up() for line in host.left()]:
            if time.monotonic() > until:
                return found
            time.sleep(0.1)
        return []


def be_host(name, answer):
    """Process 1 of a host: it prepares the host's namespaces, says so, and reaps."""
    command("hostname", name)
    command("mount", "--bind", STATE / "hosts", "/etc/hosts")
    command("mount", "-t", "tmpfs", "-o", "mode=1777", "private", "/dev/shm")
    # What the hosts share stays in its place below their own /run.
    keep = os.open(STATE, os.O_PATH)
    mount_private("/run")
    for folder in [STATE, Path("/run/sshd"), Path("/run/slurmd")]:
        folder.mkdir(mode=0o755)
    command("mount", "-c", "--bind", f"/proc/self/fd/{keep}", STATE, pass_fds=[keep])
    os.close(keep)
    mount_private("/tmp")
    command("ip", "link", "set", "lo", "up")
    os.write(answer, b"ready")
    os.close(answer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.sigtimedwait([signal.SIGCHLD], 1)


if __name__ == "__main__":
    be_host(sys.argv[1], int(sys.argv[2]))
