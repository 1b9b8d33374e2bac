// SPDX-License-Identifier: BSD-3-Clause
//! Options of MPICH, Intel MPI and Open MPI that Outboard does not have. Some are accepted without effect;
//! `mpirun` refuses the others.

/// The names of the options by which Open MPI sets one of its parameters: `--mca NAME VALUE`.
pub const MCA: [&str; 4] = ["mca", "gmca", "prtemca", "pmixmca"];
/// The one parameter of Open MPI that Outboard obeys, and the option of `mpirun` that has the same effect.
pub const INTERFACE: (&str, &str) = ("btl_tcp_if_include", "iface");

/// Options of other launchers that `mpirun` accepts without effect. An entry has the names of an option, the
/// number of its values, and the reason why it has no effect.
pub const WITHOUT_EFFECT: [(&[&str], usize, &str); 9] = [
    (&["genvall", "envall"], 0, "all variables are passed on anyway"),
    (&["genvlist", "envlist"], 1, "all variables are passed on anyway"),
    (&["oversubscribe"], 0, "more ranks than cores are always allowed"),
    (&["allow-run-as-root"], 0, "every user may run jobs"),
    (&["rmk"], 1, "an allocation of Slurm is noticed by itself"),
    (&["localhost", "order-nodes"], 1, "the network is found by the names of the hosts"),
    (&["rr", "bynode", "byslot", "disable-hostname-propagation"], 0, "write --map-by node or --map-by slot"),
    (&MCA, 2, "it is for components of Open MPI; `outboard info --settings` lists our settings"),
    (&["prefix"], 1, "programs find the library of this mpirun by themselves"),
];

/// Options of other launchers that `mpirun` refuses. An entry has the names of an option, and what to do
/// instead.
pub const REFUSED: [(&[&str], &str); 8] = [
    (
        &["gdb", "gdba"],
        "write mpirun -n 2 xterm -e gdb --args PROGRAM, or attach by gdb -p PID (-v names the pids)",
    ),
    (&["genvnone", "envnone"], "ranks get all variables; take some away with env -u NAME mpirun"),
    (&["prepend-pattern"], "use -l, --tag-output or --timestamp-output"),
    (&["merge-stderr-to-stdout"], "write 2>&1 behind the command"),
    (&["cpu-set", "cpu-list"], "write taskset -c LIST mpirun"),
    (&["membind"], "write mpirun OPTIONS numactl --membind=NODES PROGRAM"),
    (&["disable-auto-cleanup", "enable-recovery"], "the death of a rank always ends the job"),
    (&["nolocal", "skip-launch-node"], "name the hosts without this machine"),
];
