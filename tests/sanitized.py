# SPDX-License-Identifier: BSD-3-Clause
"""Outboard built for a sanitizer: its library and programs under target/NAME, and how a C program is built over them.

Needs the nightly toolchain (with `rust-src` for ThreadSanitizer, which needs an instrumented standard library)."""
import os, shutil, subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST = "x86_64-unknown-linux-gnu"
# The file with the reports that ThreadSanitizer suppresses; it takes only one file.
SUPPRESSIONS = ROOT / "target/thread/thread.supp"
OPTIONS = {
    # Not every thread of a fuzzed program ends. valgrind checks what a program leaves allocated.
    "address": {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0:allocator_may_return_null=1"},
    "thread": {"TSAN_OPTIONS": f"halt_on_error=0:exitcode=66:history_size=4:suppressions={SUPPRESSIONS}"},
}


class Tree:
    """An installed tree, with everything that its programs need to be compiled and run."""

    def __init__(self, root, flags, environment):
        self.root, self.flags, self.environment = root, flags, environment

    def compile(self, source, program, *more, compiler=None):
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler or self.root / "bin/mpicc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *self.flags, *more,
                        "-o", program, source, "-lm"], check=True)


def cargo():
    """The environment in which cargo and rustup are found."""
    paths = [os.environ["PATH"], str(Path.home() / ".cargo/bin")]
    return {**os.environ, "PATH": os.pathsep.join(paths)}


def install(*components):
    """Installs the nightly toolchain and its components if they are missing."""
    found = subprocess.run(["rustup", "component", "list", "--toolchain", "nightly", "--installed"], env=cargo(), text=True,
                           capture_output=True)
    missing = [c for c in components if c not in found.stdout]
    if found.returncode or missing:
        subprocess.run(["rustup", "toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update",
                        *[word for c in components for word in ("--component", c)]], env=cargo(), check=True)


def build(sanitizer, suppressions=""):
    """Makes a copy of build/ with instrumented libraries; its programs are those of build/, which must exist. `suppressions` are
    reports that ThreadSanitizer suppresses besides those of thread.supp."""
    install(*(["rust-src"] if sanitizer == "thread" else []))
    target = ROOT / "target" / sanitizer
    environment = {**cargo(), "RUSTFLAGS": f"-Zsanitizer={sanitizer} -Cdebuginfo=1", "CARGO_TARGET_DIR": str(target),
                   "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1"}
    std = ["-Zbuild-std=std,panic_abort"] if sanitizer == "thread" else []
    subprocess.run(["cargo", "+nightly", "build", "--quiet", "--release", "--target", HOST, *std, "-p", "outboard-standard", "-p", "outboard-mpich"],
                   cwd=ROOT, env=environment, check=True)
    tree = target / "build"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "build", tree, symlinks=True, dirs_exist_ok=True)
    # The libraries leave the symbols of the sanitizer's runtime undefined, and the C compiler's runtime in the program defines
    # them: both compilers instrument alike.
    for made, name in [("libmpi_abi.so", "libmpi_abi.so.1"), ("libmpi.so", "libmpi.so.12")]:
        shutil.copy(target / HOST / "release" / made, tree / "lib" / name)
    flags = [f"-fsanitize={sanitizer}"]
    if sanitizer == "thread":
        # An object that is given to the linker is ignored where nothing is linked, and libtool does not see it. With -E its names
        # are exported even if a library is linked that does not ask for them, as MPICH's own is.
        subprocess.run(["cc", "-O1", *flags, "-c", "-o", target / "thread.o", ROOT / "tests/thread.c"], check=True)
        SUPPRESSIONS.write_text((ROOT / "tests/thread.supp").read_text() + suppressions)
        flags += ["-fno-builtin", f"-Wl,{target}/thread.o", "-Wl,-E"]
    return Tree(tree, flags, OPTIONS[sanitizer])
