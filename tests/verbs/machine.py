# SPDX-License-Identifier: BSD-3-Clause
"""An emulated machine with an RDMA device, on which verbs work for real: QEMU, Debian's kernel, and software RoCE (rxe).

It sees this machine's files through 9p, below a file system in memory that takes what it writes. Its processor is emulated, so it
needs no KVM, and is some 20 times slower: nothing is timed there. Needs root and what `tools/setup --verbs` installs."""
import os, re, shlex, shutil, subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/verbs"
MODULES = ["crc32_generic", "crc32c_generic", "virtio_pci", "9pnet_virtio", "9p", "overlay", "veth", "ib_uverbs", "rdma_ucm",
           "rdma_rxe"]
# The device is rxe0 with the address 10.9.0.1. Both ends of a connection are on this device.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for module in $(cat /modules/order); do insmod /modules/$module || echo "no $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=500000,ro,cache=loose files /files
mount -t tmpfs none /written; mkdir /written/new /written/work
mount -t overlay -o lowerdir=/files,upperdir=/written/new,workdir=/written/work,index=off,xino=off,metacopy=off none /all
mount -t proc none /all/proc; mount -t sysfs none /all/sys; mount -t devtmpfs none /all/dev
mkdir -p /all/dev/shm /all/dev/pts; mount -t tmpfs none /all/dev/shm; mount -t devpts none /all/dev/pts
script=$(sed 's/.*script=\\([^ ]*\\).*/\\1/' /proc/cmdline)
chroot /all /bin/bash $script </dev/null >/all/dev/ttyS1 2>&1
poweroff -f
"""
PREPARE = """ulimit -l unlimited
export HOME=/root PATH={path}
hostname machine
ip link set lo up
ip link add rdma0 type veth peer name rdma1
ip address add 10.9.0.1/24 dev rdma0
ip link set rdma0 mtu 4200 up; ip link set rdma1 mtu 4200 up
rdma link add rxe0 type rxe netdev rdma0
cd {root}
"""
END = "machine: ended with"


def quiet(*words, **more):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, **more).stdout.decode()


def kernel():
    """The package of the kernel, unpacked once."""
    folder = CACHE / "kernel"
    if not (folder / "done").exists():
        print("fetching Debian's kernel", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        package = re.search(r"Depends: (linux-image\S+)", quiet("apt-cache", "depends", "linux-image-amd64"))[1]
        # The user _apt may not write to this folder.
        quiet("apt-get", "-o", "APT::Sandbox::User=root", "download", package, cwd=folder)
        quiet("dpkg", "-x", next(folder.glob("*.deb")), folder)
        version = next((folder / "lib/modules").iterdir()).name
        quiet("/sbin/depmod", "-b", folder, version)
        (folder / "done").write_text(version)
    return folder, (folder / "done").read_text()


def first_files(folder, version):
    """The file system with which the kernel starts: busybox, the modules, and `init`."""
    tree = CACHE / "first"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ["bin", "modules", "proc", "sys", "dev", "files", "written", "all"]:
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin")
    order = []
    for module in MODULES:
        shown = quiet("/sbin/modprobe", "-d", folder, "-S", version, "--show-depends", module)
        order += [Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod")]
    order = list(dict.fromkeys(order))
    for path in order:
        # Busybox cannot load compressed modules.
        plain = tree / "modules" / path.name.removesuffix(".xz")
        plain.write_bytes(subprocess.run(["xz", "-dcf", path], check=True, capture_output=True).stdout)
    (tree / "modules/order").write_text("\n".join(path.name.removesuffix(".xz") for path in order))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    archive = CACHE / "first.cpio"
    with open(archive, "wb") as to:
        subprocess.run(["sh", "-c", "find . | cpio -o -H newc --quiet"], cwd=tree, stdout=to, check=True)
    return archive


def run(script, seconds):
    """Starts the machine, and runs the text of a bash script as root in the project's folder. Returns (exit code, output). The
    code is None if the machine had to be stopped."""
    folder, version = kernel()
    start, output = CACHE / "script", CACHE / "output"
    path = shlex.quote(os.environ["PATH"] + ":/usr/sbin:/sbin")
    start.write_text(PREPARE.format(path=path, root=shlex.quote(str(ROOT))) + f"(\n{script}\n)\necho '{END}' $?\n")
    output.write_text("")
    words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", 2, "-m", "3G", "-display", "none",
             "-no-reboot", "-net", "none", "-kernel", next(folder.glob("boot/vmlinuz-*")), "-initrd", first_files(folder, version),
             "-append", f"console=ttyS0 quiet panic=-1 script={start}", "-serial", f"file:{CACHE}/console", "-serial", f"file:{output}",
             "-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap",
             "-device", "virtio-9p-pci,fsdev=files,mount_tag=files"]
    try:
        subprocess.run([str(w) for w in words], timeout=seconds, stdin=subprocess.DEVNULL, check=True)
    except subprocess.TimeoutExpired:
        pass
    text = output.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    said, ended, code = text.rpartition(END)
    return (int(code), said) if ended else (None, text + (CACHE / "console").read_bytes().decode(errors="replace"))
