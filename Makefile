# Outboard. `make help` says what can be made.
# SPDX-License-Identifier: BSD-3-Clause

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin
# A rustup that was installed under another HOME than the present one is used where it stands.
RUSTUP_HOME ?= $(firstword $(wildcard $(HOME)/.rustup $(dir $(shell command -v cargo))../../.rustup))
ifneq ($(RUSTUP_HOME),)
export RUSTUP_HOME
endif

.PHONY: build install install-debug uninstall demo examples monitor install-monitor demo-monitor demo-training test test-more test-hosts test-monitor test-training conformance differential applications wheel torch-wheels tarball deb rpm monitor-packages test-packages aarch64 ppc64le proxy-aarch64 proxy-ppc64le test-1024 release check tidy clean help setup

build: setup  ## build the library and its programs into build/ (bin lib include share), which may be moved
	$(CARGO) build --release --workspace --exclude outboard-xtask
	-tools/libfabric target/release/libfabric.so.1
	CARGO=$(CARGO) tools/install-tree target/release build

install: build  ## install into $(DESTDIR)$(PREFIX), without debug information
	tools/install-tree --split target/release "$(DESTDIR)$(PREFIX)"

install-debug: build  ## install the debug information of what install has put into $(DESTDIR)$(PREFIX), for gdb and perf
	tools/install-tree --debug target/release "$(DESTDIR)$(PREFIX)"

monitor: setup  ## build the monitor, a workspace of its own (monitor/), into build/, where `outboard monitor` finds it
	-tools/setup --monitor
	$(CARGO) build --release --workspace --manifest-path monitor/Cargo.toml
	monitor/web/build monitor/target/release/monitor-page
	tools/install-tree --monitor monitor/target/release build

install-monitor: monitor  ## install the monitor into $(DESTDIR)$(PREFIX), beside the library
	tools/install-tree --split --monitor monitor/target/release "$(DESTDIR)$(PREFIX)"

uninstall:  ## take away what install and install-monitor have put into $(DESTDIR)$(PREFIX)
	tools/install-tree --remove "$(DESTDIR)$(PREFIX)"

demo: setup  ## run the Taylor-Green simulation on two test hosts: on MPICH, on the ranks alone, with proxies (built quickly, in target/quick)
	-tools/setup --demo
	$(CARGO) build --profile quick --no-default-features -p outboard-programs -p outboard-standard
	tools/install-tree --core target/quick target/quick/tree
	examples/taylor_green/two-hosts --tree target/quick/tree

examples: build  ## run four applications on this machine, alone, with proxies, beside MPICH and Open MPI, and make a page with plots
	examples/run

demo-monitor: build monitor  ## show the monitor on a simulated fabric with traffic and errors, until Ctrl-C
	tools/setup --monitor-tests
	monitor/tests/demo

demo-training: build  ## train ResNet-20 and a transformer with PyTorch over Outboard and gloo, and resume from a checkpoint
	examples/training/demo

test: build monitor  ## run all tests that fit into half an hour on 2 cores
	tools/setup --hosts
	-tools/setup --monitor-tests
	tests/all

test-hosts: build monitor  ## run the tests over several hosts, with every failure at 100 instants (an hour; root)
	tools/setup --hosts && tools/setup --verbs && tools/setup --monitor-tests && tools/setup --accounting
	code=0; for runner in kubernetes verbs hosts; do tests/$$runner/run --more || code=1; done; \
	monitor/tests/slurm --install && tests/hosts/run --slurm --accounting -- monitor/tests/slurm || code=1; exit $$code

test-monitor: build monitor  ## measure the monitor on a simulated fabric of 300 switches and 4,800 hosts, and its store with 30 days of history
	tools/setup --monitor-tests
	monitor/tests/scale
	monitor/tests/store --more
	monitor/tests/strangers --more

test-training: build  ## run the tests of outboard_torch, with torch from PyPI (5.4 GB, once, into .cache/)
	tests/training/run

test-more: build monitor  ## the same with many more proxy deaths and rank counts
	tests/all --more

conformance: build  ## run MPICH's test suite, fetched as Debian's source package, over build/
	tests/conformance/run

differential: build  ## run 10 000 programs made from seeds over build/, MPICH and Intel MPI (their wheels), and compare what they see
	tests/differential/run --seeds 10000
	tests/differential/run --seeds 2000 --sides caller intel

applications: build  ## run the tests of FFTW, HDF5, PnetCDF, PETSc, NetCDF-Fortran, hypre, ELPA and mpi4py-fft, fetched as Debian's source packages, over build/
	tests/applications/run

torch-wheels: build  ## build a wheel of outboard_torch for each minor version of torch from 2.11 on into dist/, for use with make wheel's
	tests/training/run -- tools/torch-wheels PYTHON

wheel tarball deb rpm: setup  ## build that package into dist/ (docs/packages.md), for any x86-64 Linux with glibc 2.28 or newer
	tools/setup --packages
	tools/packages $@

monitor-packages: setup  ## build the monitor's packages into dist/: a tarball to be unpacked over the library's, a deb and an RPM
	tools/setup --packages
	tools/setup --monitor
	tools/packages monitor

test-packages: setup  ## build all packages, install each into a clean root, use it, and take it away
	tools/setup --packages
	tools/setup --monitor
	tools/packages wheel tarball deb rpm monitor
	tests/packages

release:  ## the dry run of a release: gather text of the tag, source, packages, checksums in dist/release/, and say what forbids it (RELEASING.md)
	tools/release

aarch64 ppc64le: setup  ## build everything for that processor, and run programs of it under qemu-user
	tools/setup --$@
	tests/emulated $@

# Ranks of this machine's processor beside proxies of that one.
proxy-aarch64: build
proxy-aarch64 proxy-ppc64le: setup  ## build mpirun and outboard-proxy for that processor (the Arm cores of a DPU) into dist/, and run their unit tests under qemu-user; aarch64: a job, too (root)
	tools/setup --$(@:proxy-%=%)
	tools/packages --arch $(@:proxy-%=%) proxy tests
	$(if $(findstring aarch64,$@),tools/setup --hosts && tests/hosts/run --arm)

test-1024: build  ## run one job of 1,024 ranks on 32 test hosts, with a proxy for each, and one with computers for proxies (half an hour; 14 GB of memory; root)
	tools/setup --hosts
	tests/hosts/run --large 32x32
	tests/hosts/run --large 16x16 --dpu

check: setup  ## the quick test, under 3 minutes from a built tree: format, lints, tests of the small crates, four programs on a debug build
	tests/check

tidy: setup  ## format, lints, layers between crates, generated code, names in ARCHITECTURE.md
	$(CARGO) fmt --all --check
	$(CARGO) fmt --all --check --manifest-path monitor/Cargo.toml
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) clippy --workspace --all-targets --quiet --release --manifest-path monitor/Cargo.toml -- -D warnings
	$(CARGO) run --quiet -p outboard-xtask -- tidy

setup:  ## install what is missing on this machine (root on Debian or Ubuntu), or name it
	@tools/setup

clean:  ## remove everything that was built
	rm -rf build target monitor/target .cache

help:  ## this list
	@sed -n 's/^\([a-z0-9 -]*\):.*## */\1\t/p' $(MAKEFILE_LIST) | expand -t 18
