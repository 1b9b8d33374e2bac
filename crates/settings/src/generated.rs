// SPDX-License-Identifier: BSD-3-Clause
// Generated from tables/settings.toml by `cargo run -p outboard-xtask -- gen`; do not edit.

use std::path::PathBuf;

use crate::value::{FromText, Scope, Setting, SettingKind, Values};

/// All settings of this process. See [`TABLE`] for their defaults and reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether proxies carry out collectives and messages: auto gives a proxy those of at least OUTBOARD_OFFLOAD_BYTES_MIN during which the program computes (with other hosts, those where its steps are shorter then), on all, off none.
    pub offload: Offload,
    /// With offload=auto: the least number of bytes, sent and received by this rank, of an operation that a proxy gets.
    pub offload_bytes_min: u64,
    /// How many proxies each host of a job has: under srun and Hydra, where the lowest rank of the host starts them, and under mpirun without --proxies.
    pub proxies: u64,
    /// The cpus on which a host's proxies run, as 3 or 2,6-7. The option --proxy-cores of mpirun takes precedence. Without both, mpirun chooses the cpus; under srun and Hydra they are those of the host's lowest rank.
    pub proxy_cores: Option<Vec<u64>>,
    /// How long the heartbeat of a proxy that has work may stand still before a waiting rank takes its operations back.
    pub proxy_timeout_ms: u64,
    /// How long a proxy polls after its last work before it sleeps. One that shares its core with ranks sleeps at once, unless this is 1s or more.
    pub proxy_poll_us: u64,
    /// The longest message that is sent without asking the receiver (eager); a longer one waits for the receive (rendezvous). The default becomes less where reading by the receiver is faster (`outboard info --tuning`), and is 4 MiB for nonblocking collectives over tcp beside which the program computes.
    pub eager_bytes_max: u64,
    /// How many eager bytes one peer may leave unexpected at this rank; beyond that it must use rendezvous.
    pub eager_credit_bytes: u64,
    /// How a rendezvous message moves: cma is one copy by cross-memory attach, cells is two overlapping copies through the ring, auto is the faster one as measured (`outboard info --tuning`).
    pub large_protocol: LargeProtocol,
    /// The table of measured protocols and thresholds: auto is the one that `outboard tune` made for this machine, off is none, anything else is the path of a table. Without a table the first long messages measure which copy is faster.
    pub tuning: String,
    /// Whether mpirun keeps what the long messages of a job have shown in the user's cache (~/.cache/outboard/tuning/NAME.facts), and begins the next job on such a machine with it. Only with OUTBOARD_TUNING=auto, and where no table says which copy is faster.
    pub tuning_facts: bool,
    /// Whether cross-memory attach is tried at start (auto) or never used (off).
    pub cma: Cma,
    /// The file of libfabric (version 1.17 or later), by which the hosts of a job reach each other. Default: the system's libfabric.so.1, or, on a host without a fabric, one of version 2 that is installed next to Outboard or the Python that it belongs to. Jobs on one host need none.
    pub fabric_lib: Option<PathBuf>,
    /// The provider of libfabric that carries packets between hosts: verbs, cxi, efa, opx, psm3, tcp. Default: the best that serves the address by which `mpirun` knows this host.
    pub fabric_provider: Option<String>,
    /// The interface by which packets go to other hosts (eth0), a device (mlx5_0), an address, or a network (10.0.0.0/8), or several, separated by commas, of which a host has one. mpirun -iface sets it. Default: the one with the address by which `mpirun` knows this host.
    pub fabric_interface: Option<String>,
    /// Whether a rank says which provider and interface it takes to other hosts, and of which libfabric. mpirun -v sets it.
    pub fabric_tell: bool,
    /// The file of libpmix (version 3 or later), by which ranks that a PMIx launcher started find each other. Default: the one that the launcher itself has loaded, where that can be seen, else the system's libpmix.so.2.
    pub pmix_lib: Option<PathBuf>,
    /// For tests: cross-memory attach refuses private buffers of at least so many bytes, as the kernel refuses a device's memory.
    pub cma_refused_bytes_min: Option<u64>,
    /// The longest block of a collective that its sender copies into shared memory; the receivers read a longer one in the sender's memory. 0: as measured (inline_bytes_max and flat_bytes_max of `outboard info --tuning`). All ranks must agree.
    pub inline_bytes_max: u64,
    /// How many bytes of a step are moved before they are published and another operation gets its turn.
    pub chunk_bytes: u64,
    /// The algorithm of MPI_Barrier; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub barrier: String,
    /// The algorithm of MPI_Bcast; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub bcast: String,
    /// The algorithm of MPI_Gather; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub gather: String,
    /// The algorithm of MPI_Gatherv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub gatherv: String,
    /// The algorithm of MPI_Scatter; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub scatter: String,
    /// The algorithm of MPI_Scatterv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub scatterv: String,
    /// The algorithm of MPI_Allgather; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub allgather: String,
    /// The algorithm of MPI_Allgatherv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub allgatherv: String,
    /// The algorithm of MPI_Alltoall; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub alltoall: String,
    /// The algorithm of MPI_Alltoallv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub alltoallv: String,
    /// The algorithm of MPI_Alltoallw; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub alltoallw: String,
    /// The algorithm of MPI_Reduce; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub reduce: String,
    /// The algorithm of MPI_Allreduce; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub allreduce: String,
    /// The algorithm of MPI_Reduce_scatter_block; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub reduce_scatter_block: String,
    /// The algorithm of MPI_Reduce_scatter; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub reduce_scatter: String,
    /// The algorithm of MPI_Scan; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub scan: String,
    /// The algorithm of MPI_Exscan; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.
    pub exscan: String,
    /// When a reduction combines in the same order again, so that a rounded sum has the same bits. run: in every run with the same placement of the ranks on hosts, whoever carries the call out. placement: with every placement, too. Ranks must agree.
    pub reproducible: Reproducible,
    /// How many schedules a rank keeps for reuse.
    pub schedule_cache_entries: u64,
    /// How long a waiting rank polls before it sleeps on its doorbell. It spins for 50us, then it yields. With more processes than cores it yields at once. If a yield of the last 100ms has let another program run for 100us, it sleeps early, unless this setting is 1s or more.
    pub spin_us: u64,
    /// The most shared memory that a rank may use for MPI_Alloc_mem, operations and staging. Not set: what the machine or the cgroup has, less under `ulimit -f`.
    pub arena_bytes: Option<u64>,
    /// Where the program's allocations (malloc, new, ALLOCATE, ...) of at least OUTBOARD_MALLOC_BYTES_MIN come from after MPI_Init: libc is the C library, arena the rank's shared memory, by liboutboard_malloc.so, which mpirun preloads.
    pub malloc: Malloc,
    /// With OUTBOARD_MALLOC=arena: the least length in bytes of an allocation that comes from the arena.
    pub malloc_bytes_min: u64,
    /// Whether mpirun takes cores that no other job of this machine has. With 0 it neither looks at other jobs nor keeps cores from them.
    pub claim_cores: bool,
    /// How many processes started by MPI_Comm_spawn may live in a job at the same time, in addition to those that mpirun starts.
    pub spawn_ranks_max: u64,
    /// How many commands mpirun starts to reach other hosts. With more hosts, the first of each part of them starts the agents of the others. Not set: 32 by ssh, rsh and srun, and no limit by another command (--launcher-exec).
    pub launch_fanout: Option<u64>,
    /// How long mpirun and its agent on another host may hear nothing of each other before the job ends. Each says every 2 s that it lives.
    pub launch_silence_ms: u64,
    /// How long MPI_Comm_connect waits for an accept before it fails with MPI_ERR_PORT. The info key timeout (seconds) of a call has precedence.
    pub connect_timeout_ms: u64,
    /// Which memory MPI calls take in addition to the host's: cuda (NVIDIA's driver, loaded at run time), hip (AMD's; has run nowhere), sentinel (memory that the CPU cannot touch, for tests), auto (cuda or hip if it finds a device), or off (docs/gpu.md). Ranks must agree.
    pub device: Device,
    /// With OUTBOARD_DEVICE: the least bytes of a reduction that ranks of one host make by kernels, if all their buffers are device memory. Ranks must agree.
    pub device_bytes_min: u64,
    /// For tests: the seed of random delays of up to 2 ms before each piece of work on a stream of sentinel memory; 0: no delays.
    pub device_seed: u64,
    /// The collective library that carries out collectives: nccl, oneccl, rccl and mscclpp (which have run nowhere), the path of a library with NCCL's functions, or off (docs/gpu.md). Types and operators that it lacks go the usual way.
    pub ccl: String,
    /// With OUTBOARD_CCL: the least bytes, of the vector or of one rank's block, of a collective that the library gets. 0: from which length on it is faster, as `outboard tune --device` measured, else 64 KiB. It also gets those whose ranks do not know each other's lengths (gatherv, scatterv, alltoallv, alltoallw). Ranks must agree.
    pub ccl_bytes_min: u64,
    /// 0: check what a call can see by itself. 1: also compare the arguments of a collective between its ranks. 2: also report at MPI_Finalize unmatched messages and receives, and objects never freed.
    pub check: u64,
    /// What a rank does when a signal such as SIGSEGV ends it: report prints where it was, wait also keeps it for a debugger, off does nothing. A handler that the program set before MPI_Init stays.
    pub crash: Crash,
    /// Print a summary of the counters at the end of the job, however it ends, and a sentence for each collective on each communicator: bytes, time, and how much of it a proxy did during computation.
    pub stats: bool,
    /// Record events and write them to this file in the Chrome trace format (chrome://tracing, ui.perfetto.dev).
    pub trace: Option<PathBuf>,
    /// How many events a process keeps; later ones are counted as lost.
    pub trace_events_max: u64,
    /// The inherited file descriptor of the job's shared memory.
    pub job_fd: Option<u64>,
    /// The rank of this process in MPI_COMM_WORLD.
    pub rank: Option<u64>,
    /// For a process started by MPI_Comm_spawn: the ranks of the communicator that spawned it, in its order.
    pub parents: Option<Vec<u64>>,
    /// The number of this proxy in the job.
    pub proxy: Option<u64>,
    /// The random id that all processes of a job carry in their environment.
    pub job_id: Option<String>,
    /// The value of the attribute MPI_UNIVERSE_SIZE.
    pub universe_size: Option<u64>,
    /// The process id of mpirun, the parent of all ranks and proxies; for a proxy under another launcher, of the rank that has started it.
    pub launcher_pid: Option<u64>,
}

impl Settings {
    pub(crate) fn read(values: &Values) -> error::Result<Settings> {
        Ok(Settings {
            offload: values.required(0)?,
            offload_bytes_min: values.required(1)?,
            proxies: values.required(2)?,
            proxy_cores: values.optional(3)?,
            proxy_timeout_ms: values.required(4)?,
            proxy_poll_us: values.required(5)?,
            eager_bytes_max: values.required(6)?,
            eager_credit_bytes: values.required(7)?,
            large_protocol: values.required(8)?,
            tuning: values.required(9)?,
            tuning_facts: values.required(10)?,
            cma: values.required(11)?,
            fabric_lib: values.optional(12)?,
            fabric_provider: values.optional(13)?,
            fabric_interface: values.optional(14)?,
            fabric_tell: values.required(15)?,
            pmix_lib: values.optional(16)?,
            cma_refused_bytes_min: values.optional(17)?,
            inline_bytes_max: values.required(18)?,
            chunk_bytes: values.required(19)?,
            barrier: values.required(20)?,
            bcast: values.required(21)?,
            gather: values.required(22)?,
            gatherv: values.required(23)?,
            scatter: values.required(24)?,
            scatterv: values.required(25)?,
            allgather: values.required(26)?,
            allgatherv: values.required(27)?,
            alltoall: values.required(28)?,
            alltoallv: values.required(29)?,
            alltoallw: values.required(30)?,
            reduce: values.required(31)?,
            allreduce: values.required(32)?,
            reduce_scatter_block: values.required(33)?,
            reduce_scatter: values.required(34)?,
            scan: values.required(35)?,
            exscan: values.required(36)?,
            reproducible: values.required(37)?,
            schedule_cache_entries: values.required(38)?,
            spin_us: values.required(39)?,
            arena_bytes: values.optional(40)?,
            malloc: values.required(41)?,
            malloc_bytes_min: values.required(42)?,
            claim_cores: values.required(43)?,
            spawn_ranks_max: values.required(44)?,
            launch_fanout: values.optional(45)?,
            launch_silence_ms: values.required(46)?,
            connect_timeout_ms: values.required(47)?,
            device: values.required(48)?,
            device_bytes_min: values.required(49)?,
            device_seed: values.required(50)?,
            ccl: values.required(51)?,
            ccl_bytes_min: values.required(52)?,
            check: values.required(53)?,
            crash: values.required(54)?,
            stats: values.required(55)?,
            trace: values.optional(56)?,
            trace_events_max: values.required(57)?,
            job_fd: values.optional(58)?,
            rank: values.optional(59)?,
            parents: values.optional(60)?,
            proxy: values.optional(61)?,
            job_id: values.optional(62)?,
            universe_size: values.optional(63)?,
            launcher_pid: values.optional(64)?,
        })
    }

    /// Whether `self` and `other` have the same value of the setting that is row `index` of the table.
    pub(crate) fn agrees(&self, other: &Settings, index: usize) -> bool {
        match index {
            0 => self.offload == other.offload,
            1 => self.offload_bytes_min == other.offload_bytes_min,
            2 => self.proxies == other.proxies,
            3 => self.proxy_cores == other.proxy_cores,
            4 => self.proxy_timeout_ms == other.proxy_timeout_ms,
            5 => self.proxy_poll_us == other.proxy_poll_us,
            6 => self.eager_bytes_max == other.eager_bytes_max,
            7 => self.eager_credit_bytes == other.eager_credit_bytes,
            8 => self.large_protocol == other.large_protocol,
            9 => self.tuning == other.tuning,
            10 => self.tuning_facts == other.tuning_facts,
            11 => self.cma == other.cma,
            12 => self.fabric_lib == other.fabric_lib,
            13 => self.fabric_provider == other.fabric_provider,
            14 => self.fabric_interface == other.fabric_interface,
            15 => self.fabric_tell == other.fabric_tell,
            16 => self.pmix_lib == other.pmix_lib,
            17 => self.cma_refused_bytes_min == other.cma_refused_bytes_min,
            18 => self.inline_bytes_max == other.inline_bytes_max,
            19 => self.chunk_bytes == other.chunk_bytes,
            20 => self.barrier == other.barrier,
            21 => self.bcast == other.bcast,
            22 => self.gather == other.gather,
            23 => self.gatherv == other.gatherv,
            24 => self.scatter == other.scatter,
            25 => self.scatterv == other.scatterv,
            26 => self.allgather == other.allgather,
            27 => self.allgatherv == other.allgatherv,
            28 => self.alltoall == other.alltoall,
            29 => self.alltoallv == other.alltoallv,
            30 => self.alltoallw == other.alltoallw,
            31 => self.reduce == other.reduce,
            32 => self.allreduce == other.allreduce,
            33 => self.reduce_scatter_block == other.reduce_scatter_block,
            34 => self.reduce_scatter == other.reduce_scatter,
            35 => self.scan == other.scan,
            36 => self.exscan == other.exscan,
            37 => self.reproducible == other.reproducible,
            38 => self.schedule_cache_entries == other.schedule_cache_entries,
            39 => self.spin_us == other.spin_us,
            40 => self.arena_bytes == other.arena_bytes,
            41 => self.malloc == other.malloc,
            42 => self.malloc_bytes_min == other.malloc_bytes_min,
            43 => self.claim_cores == other.claim_cores,
            44 => self.spawn_ranks_max == other.spawn_ranks_max,
            45 => self.launch_fanout == other.launch_fanout,
            46 => self.launch_silence_ms == other.launch_silence_ms,
            47 => self.connect_timeout_ms == other.connect_timeout_ms,
            48 => self.device == other.device,
            49 => self.device_bytes_min == other.device_bytes_min,
            50 => self.device_seed == other.device_seed,
            51 => self.ccl == other.ccl,
            52 => self.ccl_bytes_min == other.ccl_bytes_min,
            53 => self.check == other.check,
            54 => self.crash == other.crash,
            55 => self.stats == other.stats,
            56 => self.trace == other.trace,
            57 => self.trace_events_max == other.trace_events_max,
            58 => self.job_fd == other.job_fd,
            59 => self.rank == other.rank,
            60 => self.parents == other.parents,
            61 => self.proxy == other.proxy,
            62 => self.job_id == other.job_id,
            63 => self.universe_size == other.universe_size,
            64 => self.launcher_pid == other.launcher_pid,
            _ => true,
        }
    }
}

/// Every setting, in the order of the table.
pub const TABLE: &[Setting] = &[
    Setting {
        name: "offload",
        variable: "OUTBOARD_OFFLOAD",
        kind: SettingKind::Choice(&["auto", "on", "off"]),
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "Whether proxies carry out collectives and messages: auto gives a proxy those of at least OUTBOARD_OFFLOAD_BYTES_MIN during which the program computes (with other hosts, those where its steps are shorter then), on all, off none.",
        why: "Giving an operation to a proxy costs about a microsecond, so the calling thread is faster with short ones.",
    },
    Setting {
        name: "offload_bytes_min",
        variable: "OUTBOARD_OFFLOAD_BYTES_MIN",
        kind: SettingKind::Bytes { min: 0, max: u64::MAX },
        default: "16KiB",
        scope: Scope::Job,
        internal: false,
        doc: "With offload=auto: the least number of bytes, sent and received by this rank, of an operation that a proxy gets.",
        why: "Below it the wake-up of the proxy takes longer than the operation. All ranks have the same, because between hosts a shorter operation is messages of the ranks.",
    },
    Setting {
        name: "proxies",
        variable: "OUTBOARD_PROXIES",
        kind: SettingKind::Count { min: 0, max: 4096 },
        default: "0",
        scope: Scope::Job,
        internal: false,
        doc: "How many proxies each host of a job has: under srun and Hydra, where the lowest rank of the host starts them, and under mpirun without --proxies.",
        why: "Only a process beside the ranks carries an operation out while they compute, and other launchers start none. Each polls on a core.",
    },
    Setting {
        name: "proxy_cores",
        variable: "OUTBOARD_PROXY_CORES",
        kind: SettingKind::List,
        default: "",
        scope: Scope::Launch,
        internal: false,
        doc: "The cpus on which a host's proxies run, as 3 or 2,6-7. The option --proxy-cores of mpirun takes precedence. Without both, mpirun chooses the cpus; under srun and Hydra they are those of the host's lowest rank.",
        why: "What binds ranks knows nothing of proxies, and a proxy on the core of a rank takes half of it.",
    },
    Setting {
        name: "proxy_timeout_ms",
        variable: "OUTBOARD_PROXY_TIMEOUT_MS",
        kind: SettingKind::Milliseconds { min: 10, max: u64::MAX },
        default: "2s",
        scope: Scope::Process,
        internal: false,
        doc: "How long the heartbeat of a proxy that has work may stand still before a waiting rank takes its operations back.",
        why: "A stalled proxy is killed before its work is taken over. Too short a time kills a proxy that the kernel only scheduled late.",
    },
    Setting {
        name: "proxy_poll_us",
        variable: "OUTBOARD_PROXY_POLL_US",
        kind: SettingKind::Microseconds { min: 0, max: 10000000 },
        default: "1ms",
        scope: Scope::Proxy,
        internal: false,
        doc: "How long a proxy polls after its last work before it sleeps. One that shares its core with ranks sleeps at once, unless this is 1s or more.",
        why: "A wake-up costs the host a few microseconds; a proxy with a core of its own can afford to poll.",
    },
    Setting {
        name: "eager_bytes_max",
        variable: "OUTBOARD_EAGER_BYTES_MAX",
        kind: SettingKind::Bytes { min: 0, max: 1073741824 },
        default: "64KiB",
        scope: Scope::Process,
        internal: false,
        doc: "The longest message that is sent without asking the receiver (eager); a longer one waits for the receive (rendezvous). The default becomes less where reading by the receiver is faster (`outboard info --tuning`), and is 4 MiB for nonblocking collectives over tcp beside which the program computes.",
        why: "A rendezvous costs a round trip before the first byte; up to here that is more than the third copy of an unexpected message. Eager messages above 16 KiB travel in pieces.",
    },
    Setting {
        name: "eager_credit_bytes",
        variable: "OUTBOARD_EAGER_CREDIT_BYTES",
        kind: SettingKind::Bytes { min: 65536, max: u64::MAX },
        default: "16MiB",
        scope: Scope::Process,
        internal: false,
        doc: "How many eager bytes one peer may leave unexpected at this rank; beyond that it must use rendezvous.",
        why: "Bounds the memory of unexpected messages.",
    },
    Setting {
        name: "large_protocol",
        variable: "OUTBOARD_LARGE_PROTOCOL",
        kind: SettingKind::Choice(&["auto", "cma", "cells"]),
        default: "auto",
        scope: Scope::Process,
        internal: false,
        doc: "How a rendezvous message moves: cma is one copy by cross-memory attach, cells is two overlapping copies through the ring, auto is the faster one as measured (`outboard info --tuning`).",
        why: "Which is faster depends on the machine. If the kernel refuses cross-memory attach, only cells works.",
    },
    Setting {
        name: "tuning",
        variable: "OUTBOARD_TUNING",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Launch,
        internal: false,
        doc: "The table of measured protocols and thresholds: auto is the one that `outboard tune` made for this machine, off is none, anything else is the path of a table. Without a table the first long messages measure which copy is faster.",
        why: "Which copies are fast depends on the machine, its kernel and its container (docs/tuning.md).",
    },
    Setting {
        name: "tuning_facts",
        variable: "OUTBOARD_TUNING_FACTS",
        kind: SettingKind::Flag,
        default: "1",
        scope: Scope::Launch,
        internal: false,
        doc: "Whether mpirun keeps what the long messages of a job have shown in the user's cache (~/.cache/outboard/tuning/NAME.facts), and begins the next job on such a machine with it. Only with OUTBOARD_TUNING=auto, and where no table says which copy is faster.",
        why: "The first messages of each job need not go both ways. Measurements of what a job finds by itself set 0.",
    },
    Setting {
        name: "cma",
        variable: "OUTBOARD_CMA",
        kind: SettingKind::Choice(&["auto", "off"]),
        default: "auto",
        scope: Scope::Launch,
        internal: false,
        doc: "Whether cross-memory attach is tried at start (auto) or never used (off).",
        why: "To test what happens if a container or a security module forbids it.",
    },
    Setting {
        name: "fabric_lib",
        variable: "OUTBOARD_FABRIC_LIB",
        kind: SettingKind::Path,
        default: "",
        scope: Scope::Process,
        internal: false,
        doc: "The file of libfabric (version 1.17 or later), by which the hosts of a job reach each other. Default: the system's libfabric.so.1, or, on a host without a fabric, one of version 2 that is installed next to Outboard or the Python that it belongs to. Jobs on one host need none.",
        why: "A site may have a libfabric of its own in addition to the distribution's, with the provider of its network.",
    },
    Setting {
        name: "fabric_provider",
        variable: "OUTBOARD_FABRIC_PROVIDER",
        kind: SettingKind::Text,
        default: "",
        scope: Scope::Process,
        internal: false,
        doc: "The provider of libfabric that carries packets between hosts: verbs, cxi, efa, opx, psm3, tcp. Default: the best that serves the address by which `mpirun` knows this host.",
        why: "A host may have several networks.",
    },
    Setting {
        name: "fabric_interface",
        variable: "OUTBOARD_FABRIC_INTERFACE",
        kind: SettingKind::Text,
        default: "",
        scope: Scope::Process,
        internal: false,
        doc: "The interface by which packets go to other hosts (eth0), a device (mlx5_0), an address, or a network (10.0.0.0/8), or several, separated by commas, of which a host has one. mpirun -iface sets it. Default: the one with the address by which `mpirun` knows this host.",
        why: "A host may have several networks of one kind, and the one of its name may be the slow one.",
    },
    Setting {
        name: "fabric_tell",
        variable: "OUTBOARD_FABRIC_TELL",
        kind: SettingKind::Flag,
        default: "0",
        scope: Scope::Process,
        internal: false,
        doc: "Whether a rank says which provider and interface it takes to other hosts, and of which libfabric. mpirun -v sets it.",
        why: "The network is the first place to look when a job is slow.",
    },
    Setting {
        name: "pmix_lib",
        variable: "OUTBOARD_PMIX_LIB",
        kind: SettingKind::Path,
        default: "",
        scope: Scope::Process,
        internal: false,
        doc: "The file of libpmix (version 3 or later), by which ranks that a PMIx launcher started find each other. Default: the one that the launcher itself has loaded, where that can be seen, else the system's libpmix.so.2.",
        why: "A site's Slurm or PRRTE may have a libpmix of its own.",
    },
    Setting {
        name: "cma_refused_bytes_min",
        variable: "OUTBOARD_CMA_REFUSED_BYTES_MIN",
        kind: SettingKind::Bytes { min: 0, max: u64::MAX },
        default: "",
        scope: Scope::Process,
        internal: false,
        doc: "For tests: cross-memory attach refuses private buffers of at least so many bytes, as the kernel refuses a device's memory.",
        why: "Tests without a device that messages, collectives by ranks and proxies, and windows work on such memory.",
    },
    Setting {
        name: "inline_bytes_max",
        variable: "OUTBOARD_INLINE_BYTES_MAX",
        kind: SettingKind::Bytes { min: 0, max: 1073741824 },
        default: "0",
        scope: Scope::Job,
        internal: false,
        doc: "The longest block of a collective that its sender copies into shared memory; the receivers read a longer one in the sender's memory. 0: as measured (inline_bytes_max and flat_bytes_max of `outboard info --tuning`). All ranks must agree.",
        why: "Two copies by two ranks are faster on some machines, one copy by the kernel on others (docs/tuning.md).",
    },
    Setting {
        name: "chunk_bytes",
        variable: "OUTBOARD_CHUNK_BYTES",
        kind: SettingKind::Bytes { min: 4096, max: 1073741824 },
        default: "256KiB",
        scope: Scope::Process,
        internal: false,
        doc: "How many bytes of a step are moved before they are published and another operation gets its turn.",
        why: "Short chunks let the steps of a long operation overlap, but each chunk costs a system call and a doorbell.",
    },
    Setting {
        name: "barrier",
        variable: "OUTBOARD_BARRIER",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Barrier; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "bcast",
        variable: "OUTBOARD_BCAST",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Bcast; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "gather",
        variable: "OUTBOARD_GATHER",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Gather; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "gatherv",
        variable: "OUTBOARD_GATHERV",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Gatherv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "scatter",
        variable: "OUTBOARD_SCATTER",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Scatter; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "scatterv",
        variable: "OUTBOARD_SCATTERV",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Scatterv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "allgather",
        variable: "OUTBOARD_ALLGATHER",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Allgather; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "allgatherv",
        variable: "OUTBOARD_ALLGATHERV",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Allgatherv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "alltoall",
        variable: "OUTBOARD_ALLTOALL",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Alltoall; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "alltoallv",
        variable: "OUTBOARD_ALLTOALLV",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Alltoallv; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "alltoallw",
        variable: "OUTBOARD_ALLTOALLW",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Alltoallw; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "reduce",
        variable: "OUTBOARD_REDUCE",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Reduce; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "allreduce",
        variable: "OUTBOARD_ALLREDUCE",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Allreduce; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "reduce_scatter_block",
        variable: "OUTBOARD_REDUCE_SCATTER_BLOCK",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Reduce_scatter_block; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "reduce_scatter",
        variable: "OUTBOARD_REDUCE_SCATTER",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Reduce_scatter; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "scan",
        variable: "OUTBOARD_SCAN",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Scan; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "exscan",
        variable: "OUTBOARD_EXSCAN",
        kind: SettingKind::Text,
        default: "auto",
        scope: Scope::Job,
        internal: false,
        doc: "The algorithm of MPI_Exscan; auto chooses by size and number of ranks. `outboard plan --list` lists them. All ranks must agree.",
        why: "To compare algorithms, and to avoid a bad choice.",
    },
    Setting {
        name: "reproducible",
        variable: "OUTBOARD_REPRODUCIBLE",
        kind: SettingKind::Choice(&["run", "placement"]),
        default: "run",
        scope: Scope::Job,
        internal: false,
        doc: "When a reduction combines in the same order again, so that a rounded sum has the same bits. run: in every run with the same placement of the ranks on hosts, whoever carries the call out. placement: with every placement, too. Ranks must agree.",
        why: "Over hosts an order that follows the placement sends less between them (docs/tuning.md, Reproducible sums).",
    },
    Setting {
        name: "schedule_cache_entries",
        variable: "OUTBOARD_SCHEDULE_CACHE_ENTRIES",
        kind: SettingKind::Count { min: 1, max: 1000000 },
        default: "256",
        scope: Scope::Process,
        internal: false,
        doc: "How many schedules a rank keeps for reuse.",
        why: "A new schedule costs microseconds to milliseconds; a kept one costs memory in proportion to its steps.",
    },
    Setting {
        name: "spin_us",
        variable: "OUTBOARD_SPIN_US",
        kind: SettingKind::Microseconds { min: 0, max: 10000000 },
        default: "10ms",
        scope: Scope::Process,
        internal: false,
        doc: "How long a waiting rank polls before it sleeps on its doorbell. It spins for 50us, then it yields. With more processes than cores it yields at once. If a yield of the last 100ms has let another program run for 100us, it sleeps early, unless this setting is 1s or more.",
        why: "A wake-up costs 5 to 400 us, and the peer may wait so long that it sleeps, too (docs/measured/waiting.md). A polling rank uses its core.",
    },
    Setting {
        name: "arena_bytes",
        variable: "OUTBOARD_ARENA_BYTES",
        kind: SettingKind::Bytes { min: 1048576, max: 70368744177664 },
        default: "",
        scope: Scope::Launch,
        internal: false,
        doc: "The most shared memory that a rank may use for MPI_Alloc_mem, operations and staging. Not set: what the machine or the cgroup has, less under `ulimit -f`.",
        why: "The layout of the job's segment is fixed at start; memory is taken when it is first touched.",
    },
    Setting {
        name: "malloc",
        variable: "OUTBOARD_MALLOC",
        kind: SettingKind::Choice(&["libc", "arena"]),
        default: "libc",
        scope: Scope::Launch,
        internal: false,
        doc: "Where the program's allocations (malloc, new, ALLOCATE, ...) of at least OUTBOARD_MALLOC_BYTES_MIN come from after MPI_Init: libc is the C library, arena the rank's shared memory, by liboutboard_malloc.so, which mpirun preloads.",
        why: "Peers and proxies copy such buffers once, as they do those of MPI_Alloc_mem (docs/offload.md). It is not the default, because a program may bring an allocator of its own, and core dumps leave shared memory out.",
    },
    Setting {
        name: "malloc_bytes_min",
        variable: "OUTBOARD_MALLOC_BYTES_MIN",
        kind: SettingKind::Bytes { min: 4096, max: u64::MAX },
        default: "64KiB",
        scope: Scope::Launch,
        internal: false,
        doc: "With OUTBOARD_MALLOC=arena: the least length in bytes of an allocation that comes from the arena.",
        why: "Shorter messages are copied through the rings, wherever they lie, and a page is the least that an arena gives.",
    },
    Setting {
        name: "claim_cores",
        variable: "OUTBOARD_CLAIM_CORES",
        kind: SettingKind::Flag,
        default: "1",
        scope: Scope::Launch,
        internal: false,
        doc: "Whether mpirun takes cores that no other job of this machine has. With 0 it neither looks at other jobs nor keeps cores from them.",
        why: "A job that finds too few free cores must not spin. Tests and measurements of what a spinning rank does set 0.",
    },
    Setting {
        name: "spawn_ranks_max",
        variable: "OUTBOARD_SPAWN_RANKS_MAX",
        kind: SettingKind::Count { min: 0, max: 4095 },
        default: "256",
        scope: Scope::Launch,
        internal: false,
        doc: "How many processes started by MPI_Comm_spawn may live in a job at the same time, in addition to those that mpirun starts.",
        why: "The layout of the job's segment is fixed at start; an unused process costs address space, but no memory.",
    },
    Setting {
        name: "launch_fanout",
        variable: "OUTBOARD_LAUNCH_FANOUT",
        kind: SettingKind::Count { min: 2, max: 4096 },
        default: "",
        scope: Scope::Launch,
        internal: false,
        doc: "How many commands mpirun starts to reach other hosts. With more hosts, the first of each part of them starts the agents of the others. Not set: 32 by ssh, rsh and srun, and no limit by another command (--launcher-exec).",
        why: "Each connection costs mpirun's host a process and the work of ssh. The tree needs hosts that may reach each other; where only mpirun's host may, set the number of hosts.",
    },
    Setting {
        name: "launch_silence_ms",
        variable: "OUTBOARD_LAUNCH_SILENCE_MS",
        kind: SettingKind::Milliseconds { min: 5000, max: u64::MAX },
        default: "45s",
        scope: Scope::Launch,
        internal: false,
        doc: "How long mpirun and its agent on another host may hear nothing of each other before the job ends. Each says every 2 s that it lives.",
        why: "Where processes are many more than cores, a silence of 20 s was seen; a host without power should be noticed within a minute.",
    },
    Setting {
        name: "connect_timeout_ms",
        variable: "OUTBOARD_CONNECT_TIMEOUT_MS",
        kind: SettingKind::Milliseconds { min: 0, max: u64::MAX },
        default: "180s",
        scope: Scope::Process,
        internal: false,
        doc: "How long MPI_Comm_connect waits for an accept before it fails with MPI_ERR_PORT. The info key timeout (seconds) of a call has precedence.",
        why: "The standard wants an attempt to end after some time (MPI 5.0, section 11.9.3); a server may be slow to accept.",
    },
    Setting {
        name: "device",
        variable: "OUTBOARD_DEVICE",
        kind: SettingKind::Choice(&["off", "auto", "cuda", "hip", "sentinel"]),
        default: "off",
        scope: Scope::Job,
        internal: false,
        doc: "Which memory MPI calls take in addition to the host's: cuda (NVIDIA's driver, loaded at run time), hip (AMD's; has run nowhere), sentinel (memory that the CPU cannot touch, for tests), auto (cuda or hip if it finds a device), or off (docs/gpu.md). Ranks must agree.",
        why: "Asking whose memory a buffer is takes the short calls off their fast path, which a program without devices should not pay for.",
    },
    Setting {
        name: "device_bytes_min",
        variable: "OUTBOARD_DEVICE_BYTES_MIN",
        kind: SettingKind::Bytes { min: 0, max: u64::MAX },
        default: "64KiB",
        scope: Scope::Job,
        internal: false,
        doc: "With OUTBOARD_DEVICE: the least bytes of a reduction that ranks of one host make by kernels, if all their buffers are device memory. Ranks must agree.",
        why: "Short reductions are faster by the CPU than by starting work on a device. The value is a guess.",
    },
    Setting {
        name: "device_seed",
        variable: "OUTBOARD_DEVICE_SEED",
        kind: SettingKind::Count { min: 0, max: u64::MAX },
        default: "0",
        scope: Scope::Process,
        internal: false,
        doc: "For tests: the seed of random delays of up to 2 ms before each piece of work on a stream of sentinel memory; 0: no delays.",
        why: "An operation that does not wait for its stream, or a stream for its operation, then gives wrong data.",
    },
    Setting {
        name: "ccl",
        variable: "OUTBOARD_CCL",
        kind: SettingKind::Text,
        default: "off",
        scope: Scope::Job,
        internal: false,
        doc: "The collective library that carries out collectives: nccl, oneccl, rccl and mscclpp (which have run nowhere), the path of a library with NCCL's functions, or off (docs/gpu.md). Types and operators that it lacks go the usual way.",
        why: "Such a library knows the links between devices. It is asked for by name: whether it pays depends on the machine.",
    },
    Setting {
        name: "ccl_bytes_min",
        variable: "OUTBOARD_CCL_BYTES_MIN",
        kind: SettingKind::Bytes { min: 0, max: u64::MAX },
        default: "0",
        scope: Scope::Job,
        internal: false,
        doc: "With OUTBOARD_CCL: the least bytes, of the vector or of one rank's block, of a collective that the library gets. 0: from which length on it is faster, as `outboard tune --device` measured, else 64 KiB. It also gets those whose ranks do not know each other's lengths (gatherv, scatterv, alltoallv, alltoallw). Ranks must agree.",
        why: "Short collectives are faster through shared memory than by starting work on a device.",
    },
    Setting {
        name: "check",
        variable: "OUTBOARD_CHECK",
        kind: SettingKind::Count { min: 0, max: 2 },
        default: "0",
        scope: Scope::Job,
        internal: false,
        doc: "0: check what a call can see by itself. 1: also compare the arguments of a collective between its ranks. 2: also report at MPI_Finalize unmatched messages and receives, and objects never freed.",
        why: "Comparing between ranks costs shared-memory traffic in each collective.",
    },
    Setting {
        name: "crash",
        variable: "OUTBOARD_CRASH",
        kind: SettingKind::Choice(&["report", "wait", "off"]),
        default: "report",
        scope: Scope::Process,
        internal: false,
        doc: "What a rank does when a signal such as SIGSEGV ends it: report prints where it was, wait also keeps it for a debugger, off does nothing. A handler that the program set before MPI_Init stays.",
        why: "Answers the first question after a crash. The signal, the exit code and the core dump do not change.",
    },
    Setting {
        name: "stats",
        variable: "OUTBOARD_STATS",
        kind: SettingKind::Flag,
        default: "0",
        scope: Scope::Process,
        internal: false,
        doc: "Print a summary of the counters at the end of the job, however it ends, and a sentence for each collective on each communicator: bytes, time, and how much of it a proxy did during computation.",
        why: "The first look at where messages and time went. Each MPI call then reads the clock twice.",
    },
    Setting {
        name: "trace",
        variable: "OUTBOARD_TRACE",
        kind: SettingKind::Path,
        default: "",
        scope: Scope::Process,
        internal: false,
        doc: "Record events and write them to this file in the Chrome trace format (chrome://tracing, ui.perfetto.dev).",
        why: "Shows on one time line what ranks and proxies did.",
    },
    Setting {
        name: "trace_events_max",
        variable: "OUTBOARD_TRACE_EVENTS_MAX",
        kind: SettingKind::Count { min: 1, max: 100000000 },
        default: "200000",
        scope: Scope::Process,
        internal: false,
        doc: "How many events a process keeps; later ones are counted as lost.",
        why: "Bounds the file of a trace: 120 bytes an event.",
    },
    Setting {
        name: "job_fd",
        variable: "OUTBOARD_JOB_FD",
        kind: SettingKind::Count { min: 0, max: 2147483647 },
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "The inherited file descriptor of the job's shared memory.",
        why: "The memory has no name, so a killed job leaves nothing behind.",
    },
    Setting {
        name: "rank",
        variable: "OUTBOARD_RANK",
        kind: SettingKind::Count { min: 0, max: 4294967295 },
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "The rank of this process in MPI_COMM_WORLD.",
        why: "mpirun decides it.",
    },
    Setting {
        name: "parents",
        variable: "OUTBOARD_PARENTS",
        kind: SettingKind::List,
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "For a process started by MPI_Comm_spawn: the ranks of the communicator that spawned it, in its order.",
        why: "MPI_Comm_get_parent returns them.",
    },
    Setting {
        name: "proxy",
        variable: "OUTBOARD_PROXY",
        kind: SettingKind::Count { min: 0, max: 4294967295 },
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "The number of this proxy in the job.",
        why: "mpirun decides it.",
    },
    Setting {
        name: "job_id",
        variable: "OUTBOARD_JOB_ID",
        kind: SettingKind::Text,
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "The random id that all processes of a job carry in their environment.",
        why: "If mpirun is killed, the processes that remain are found by it, and no other process can be mistaken for one.",
    },
    Setting {
        name: "universe_size",
        variable: "OUTBOARD_UNIVERSE_SIZE",
        kind: SettingKind::Count { min: 0, max: 2147483647 },
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "The value of the attribute MPI_UNIVERSE_SIZE.",
        why: "From mpirun -usize, or the slots if there are more than ranks; otherwise it is the number of ranks.",
    },
    Setting {
        name: "launcher_pid",
        variable: "OUTBOARD_LAUNCHER_PID",
        kind: SettingKind::Count { min: 0, max: 4294967295 },
        default: "",
        scope: Scope::Launch,
        internal: true,
        doc: "The process id of mpirun, the parent of all ranks and proxies; for a proxy under another launcher, of the rank that has started it.",
        why: "Ranks let mpirun and its other children attach to their memory. A child of a rank must not take itself for the rank.",
    },
];

/// Whether proxies carry out collectives and messages: auto gives a proxy those of at least OUTBOARD_OFFLOAD_BYTES_MIN during which the program computes (with other hosts, those where its steps are shorter then), on all, off none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The value `auto` of OUTBOARD_OFFLOAD.
    Auto,
    /// The value `on` of OUTBOARD_OFFLOAD.
    On,
    /// The value `off` of OUTBOARD_OFFLOAD.
    Off,
}

impl FromText for Offload {
    fn from_text(_: &SettingKind, text: &str) -> Result<Offload, String> {
        match text {
            "auto" => Ok(Offload::Auto),
            "on" => Ok(Offload::On),
            "off" => Ok(Offload::Off),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}

/// How a rendezvous message moves: cma is one copy by cross-memory attach, cells is two overlapping copies through the ring, auto is the faster one as measured (`outboard info --tuning`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeProtocol {
    /// The value `auto` of OUTBOARD_LARGE_PROTOCOL.
    Auto,
    /// The value `cma` of OUTBOARD_LARGE_PROTOCOL.
    Cma,
    /// The value `cells` of OUTBOARD_LARGE_PROTOCOL.
    Cells,
}

impl FromText for LargeProtocol {
    fn from_text(_: &SettingKind, text: &str) -> Result<LargeProtocol, String> {
        match text {
            "auto" => Ok(LargeProtocol::Auto),
            "cma" => Ok(LargeProtocol::Cma),
            "cells" => Ok(LargeProtocol::Cells),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}

/// Whether cross-memory attach is tried at start (auto) or never used (off).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cma {
    /// The value `auto` of OUTBOARD_CMA.
    Auto,
    /// The value `off` of OUTBOARD_CMA.
    Off,
}

impl FromText for Cma {
    fn from_text(_: &SettingKind, text: &str) -> Result<Cma, String> {
        match text {
            "auto" => Ok(Cma::Auto),
            "off" => Ok(Cma::Off),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}

/// When a reduction combines in the same order again, so that a rounded sum has the same bits. run: in every run with the same placement of the ranks on hosts, whoever carries the call out. placement: with every placement, too. Ranks must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reproducible {
    /// The value `run` of OUTBOARD_REPRODUCIBLE.
    Run,
    /// The value `placement` of OUTBOARD_REPRODUCIBLE.
    Placement,
}

impl FromText for Reproducible {
    fn from_text(_: &SettingKind, text: &str) -> Result<Reproducible, String> {
        match text {
            "run" => Ok(Reproducible::Run),
            "placement" => Ok(Reproducible::Placement),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}

/// Where the program's allocations (malloc, new, ALLOCATE, ...) of at least OUTBOARD_MALLOC_BYTES_MIN come from after MPI_Init: libc is the C library, arena the rank's shared memory, by liboutboard_malloc.so, which mpirun preloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malloc {
    /// The value `libc` of OUTBOARD_MALLOC.
    Libc,
    /// The value `arena` of OUTBOARD_MALLOC.
    Arena,
}

impl FromText for Malloc {
    fn from_text(_: &SettingKind, text: &str) -> Result<Malloc, String> {
        match text {
            "libc" => Ok(Malloc::Libc),
            "arena" => Ok(Malloc::Arena),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}

/// Which memory MPI calls take in addition to the host's: cuda (NVIDIA's driver, loaded at run time), hip (AMD's; has run nowhere), sentinel (memory that the CPU cannot touch, for tests), auto (cuda or hip if it finds a device), or off (docs/gpu.md). Ranks must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The value `off` of OUTBOARD_DEVICE.
    Off,
    /// The value `auto` of OUTBOARD_DEVICE.
    Auto,
    /// The value `cuda` of OUTBOARD_DEVICE.
    Cuda,
    /// The value `hip` of OUTBOARD_DEVICE.
    Hip,
    /// The value `sentinel` of OUTBOARD_DEVICE.
    Sentinel,
}

impl FromText for Device {
    fn from_text(_: &SettingKind, text: &str) -> Result<Device, String> {
        match text {
            "off" => Ok(Device::Off),
            "auto" => Ok(Device::Auto),
            "cuda" => Ok(Device::Cuda),
            "hip" => Ok(Device::Hip),
            "sentinel" => Ok(Device::Sentinel),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}

/// What a rank does when a signal such as SIGSEGV ends it: report prints where it was, wait also keeps it for a debugger, off does nothing. A handler that the program set before MPI_Init stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The value `report` of OUTBOARD_CRASH.
    Report,
    /// The value `wait` of OUTBOARD_CRASH.
    Wait,
    /// The value `off` of OUTBOARD_CRASH.
    Off,
}

impl FromText for Crash {
    fn from_text(_: &SettingKind, text: &str) -> Result<Crash, String> {
        match text {
            "report" => Ok(Crash::Report),
            "wait" => Ok(Crash::Wait),
            "off" => Ok(Crash::Off),
            _ => Err(format!("no such choice: {text}")),
        }
    }
}
