// SPDX-License-Identifier: BSD-3-Clause
//! The model network: two levels, between nodes and within them.

/// What a message costs between nodes, or within a node. Times are in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCosts {
    /// How long a byte takes from one end of the link to the other.
    pub latency_ps: u64,
    /// How long a processor is busy to send or to receive a message, whatever its length.
    pub overhead_ps: u64,
    /// The least time between the starts of two messages at a port.
    pub gap_ps: u64,
    /// How long a port is busy with each byte. Within a node, how long the receiver's processor is.
    pub per_byte_ps: u64,
    /// Whether bytes pass on before the whole message is there. As with the executor's edges, they do within
    /// a node, and not between nodes.
    pub streams: bool,
}

/// The model: nodes, the links between and within them, and who carries out steps. Times are in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The costs of a message from node to node.
    pub between: LinkCosts,
    /// The costs of a message between ranks of one node.
    pub within: LinkCosts,
    /// How long a processor takes to copy a byte.
    pub copy_per_byte_ps: u64,
    /// How long a processor takes to reduce a byte.
    pub reduce_per_byte_ps: u64,
    /// The bytes that pass between streaming steps at once; not 0.
    pub chunk_bytes: u64,
    /// Each rank starts at a random time below this one.
    pub skew_ps: u64,
    /// The least time of a node's memory for each byte that its processors copy and reduce, all together; 0:
    /// the memory keeps up with them.
    pub memory_per_byte_ps: u64,
    /// The proxies that carry out the steps of a node's ranks; None: each rank carries out its own.
    pub proxies: Option<Proxies>,
    /// The computation of each rank between the call that starts the operation and the one that ends it. A
    /// rank carries out steps inside these two only. It leaves the first when no step of its own has been
    /// ready for `LINGER_PS`.
    pub work_ps: u64,
}

/// The proxies of each node. Of n proxies each serves every n-th rank of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxies {
    /// This many proxies on the node itself; not 0.
    Host(u32),
    /// One proxy on each core of a data processing unit, and who carries out the steps between ranks of one
    /// node.
    Dpu(Dpu, Within),
}

/// Who carries out the steps within a node that has a DPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// The ranks, in shared memory, in the calls that start and end the operation.
    Ranks,
    /// This many proxies on the node itself, in shared memory; not 0.
    Proxies(u32),
    /// The DPU: bytes that stay within the node pass its port, too.
    Dpu,
}

/// A data processing unit: a computer in the node's network adapter. It reads bytes from the node's memory
/// into its own, sends them on, and writes what arrives into the node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpu {
    /// The number of cores that carry out steps; not 0.
    pub cores: u32,
    /// How long a core takes for a piece of work, as a percentage of what a processor of the node takes.
    pub slowness_percent: u64,
    /// How long a note takes from the node to the DPU and an answer back.
    pub round_trip_ps: u64,
    /// The time of its memory for each byte that passes through it one way: written once and read once.
    pub staged_per_byte_ps: u64,
    /// How long the DPU's port, which is the node's port, is busy with each byte.
    pub port_per_byte_ps: u64,
    /// The work on the note that starts an operation of a rank, as the time of a processor of the node.
    pub note_ps: u64,
    /// Up to so many bytes, a rank's values travel in the note, so that the DPU fetches nothing.
    pub inline_bytes: u64,
}

impl Dpu {
    /// NVIDIA BlueField-2, as in the clusters of the published figures: 8 Cortex-A72, one channel of
    /// DDR4-3200 (64 bits: 25.6 GB/s, of which 80 % are taken here), InfiniBand HDR100 (12.5 GB/s): NVIDIA,
    /// BlueField-2 DPU user guide. Its cores: 2.5 times as slow (they sustain half of what the link
    /// carries; Liu et al., arXiv 2105.06619).
    pub const BLUEFIELD_2: Dpu = Dpu {
        cores: 8,
        slowness_percent: 250,
        round_trip_ps: 2_000_000,
        staged_per_byte_ps: 98,
        port_per_byte_ps: 80,
        note_ps: 500_000,
        inline_bytes: 256,
    };
    /// NVIDIA BlueField-3: 16 Cortex-A78, 128 bits of DDR5-5600 (89.6 GB/s, of which 80 % are taken here),
    /// a port of NDR200 (25 GB/s): NVIDIA, BlueField-3 DPU user guide. Its cores: 1.5 times as slow (Chen
    /// et al., arXiv 2402.03041, find them behind the host's; by how much is our guess).
    pub const BLUEFIELD_3: Dpu = Dpu {
        cores: 16,
        slowness_percent: 150,
        round_trip_ps: 1_500_000,
        staged_per_byte_ps: 28,
        port_per_byte_ps: 40,
        ..Dpu::BLUEFIELD_2
    };

    /// Makes a network of nodes with ports like this DPU's. The memory of each node carries 200 GB/s of
    /// copies.
    pub fn network(&self) -> Network {
        let network = Network::default();
        let between = LinkCosts { per_byte_ps: self.port_per_byte_ps, ..network.between };
        Network { between, memory_per_byte_ps: 5, ..network }
    }

    /// Returns this DPU as it would be if it moved bytes from memory of one host to another's without a copy
    /// of its own (Cross-GVMI), or if its copies never left its caches.
    pub fn direct(self) -> Dpu {
        Dpu { staged_per_byte_ps: 0, ..self }
    }

    /// Returns how long a core of the DPU takes for what takes a processor of the node `time_ps`.
    pub(super) fn slowed(&self, time_ps: u64) -> u64 {
        time_ps * self.slowness_percent / 100
    }
}

/// How long a rank without work stays in the call that starts an operation, in picoseconds.
pub const LINGER_PS: u64 = 1_000_000;

impl Default for Network {
    /// A network about like a cluster of today: between nodes 1 us, 25 GB/s; within a node 150 ns, 20 GB/s.
    fn default() -> Network {
        let between = LinkCosts {
            latency_ps: 1_000_000,
            overhead_ps: 200_000,
            gap_ps: 100_000,
            per_byte_ps: 40,
            streams: false,
        };
        Network {
            within: LinkCosts {
                latency_ps: 150_000,
                overhead_ps: 50_000,
                gap_ps: 0,
                per_byte_ps: 50,
                streams: true,
            },
            between,
            copy_per_byte_ps: 50,
            reduce_per_byte_ps: 100,
            chunk_bytes: 32 << 10,
            skew_ps: 0,
            memory_per_byte_ps: 0,
            proxies: None,
            work_ps: 0,
        }
    }
}
