// SPDX-License-Identifier: BSD-3-Clause
//! The model network of the simulation: links between nodes, links within a node, and who carries out steps.

/// The costs of a message on one kind of link: between nodes, or within a node. Times are in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCosts {
    /// The time that a byte takes from one end of the link to the other.
    pub latency_ps: u64,
    /// The time for which a processor is busy to send or receive a message, whatever its length.
    pub overhead_ps: u64,
    /// The least time between the starts of two messages at a port.
    pub gap_ps: u64,
    /// The time for which a port is busy with each byte. A message within a node passes no port: the
    /// receiver's processor is busy instead.
    pub per_byte_ps: u64,
    /// Whether the receiver can use bytes before the whole message has come. Outboard's executors do so
    /// within a node, but not between nodes.
    pub streams: bool,
}

/// The model network: its links, its processors and its proxies. Times are in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The costs of a message from one node to another.
    pub between: LinkCosts,
    /// The costs of a message between two ranks of one node.
    pub within: LinkCosts,
    /// The time for which a processor is busy to copy a byte.
    pub copy_per_byte_ps: u64,
    /// The time for which a processor is busy to reduce a byte.
    pub reduce_per_byte_ps: u64,
    /// The number of bytes that a step must have handled before a step that follows it byte by byte goes on;
    /// not 0.
    pub chunk_bytes: u64,
    /// The bound on each rank's random start time, in picoseconds; 0: all ranks start at once.
    pub skew_ps: u64,
    /// The time for which a node's memory is busy with each byte that its processors copy or reduce. At 0,
    /// the memory is never the limit.
    pub memory_per_byte_ps: u64,
    /// The proxies that carry out the steps of ranks. None if each rank carries out its own steps.
    pub proxies: Option<Proxies>,
    /// The time for which each rank computes between the call that starts the operation and the call that
    /// ends it. The rank carries out steps only inside these two calls, and leaves the first call after
    /// `LINGER_PS` without work.
    pub work_ps: u64,
}

/// The proxies of each node. If a node has n proxies, each serves every n-th rank of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxies {
    /// The proxies run on the node itself. The number is how many; not 0.
    Host(u32),
    /// A proxy runs on each core of a data processing unit, which `Dpu` describes. `StepsWithinNode`
    /// says who carries out the steps between ranks of one node.
    Dpu(Dpu, StepsWithinNode),
}

/// Who carries out the steps between ranks of one node, if the node has a DPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepsWithinNode {
    /// The ranks themselves carry out these steps, in shared memory, during the calls that start and end the
    /// operation.
    Ranks,
    /// Proxies on the node itself carry out these steps, in shared memory. The number is how many; not 0.
    Proxies(u32),
    /// The DPU carries out these steps. Bytes that stay within the node then pass its port, too.
    Dpu,
}

/// A data processing unit: a computer in the node's network adapter. It reads bytes from the node's memory
/// into its own memory, and sends them on. What arrives it writes into the node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpu {
    /// The number of the DPU's cores that carry out steps; not 0.
    pub cores: u32,
    /// The time that a core of the DPU takes for some work, in percent of what a processor of the node takes.
    pub slowness_percent: u64,
    /// The time in picoseconds that a note (a short message) takes from the node to the DPU and its answer
    /// takes back.
    pub round_trip_ps: u64,
    /// The time in picoseconds for which the DPU's memory is busy with each byte that passes through it:
    /// written once, read once.
    pub staged_per_byte_ps: u64,
    /// The time in picoseconds for which the DPU's port, which is the node's port, is busy with each byte.
    pub port_per_byte_ps: u64,
    /// The work for the note by which a rank gives its operation to the DPU: the time in picoseconds that a
    /// processor of the node would take.
    pub note_ps: u64,
    /// The most bytes of a rank's data that travel in the note by which the rank gives its operation to the
    /// DPU, so that the DPU need not fetch them.
    pub inline_bytes: u64,
}

impl Dpu {
    /// NVIDIA BlueField-2, as in the clusters of the published figures: 8 Cortex-A72, one channel of
    /// DDR4-3200 (64 bits: 25.6 GB/s, of which 80 % are taken here), InfiniBand HDR100 (12.5 GB/s): NVIDIA,
    /// BlueField-2 DPU user guide. Its cores take 2.5 times as long as the host's (they sustain half of what
    /// the link carries; Liu et al., arXiv 2105.06619).
    pub const BLUEFIELD_2: Dpu = Dpu {
        cores: 8,
        slowness_percent: 250,
        round_trip_ps: 2_000_000,
        staged_per_byte_ps: 98,
        port_per_byte_ps: 80,
        note_ps: 500_000,
        inline_bytes: 256,
    };
    /// NVIDIA BlueField-3: 16 Cortex-A78, 128 bits of DDR5-5600 (89.6 GB/s, of which 80 % are taken here), a
    /// port of NDR200 (25 GB/s): NVIDIA, BlueField-3 DPU user guide. Its cores take 1.5 times as long as the
    /// host's (Chen et al., arXiv 2402.03041, find them slower; by how much is our guess).
    pub const BLUEFIELD_3: Dpu = Dpu {
        cores: 16,
        slowness_percent: 150,
        round_trip_ps: 1_500_000,
        staged_per_byte_ps: 28,
        port_per_byte_ps: 40,
        ..Dpu::BLUEFIELD_2
    };

    /// Makes a network of nodes that have ports like this DPU's. The memory of each node copies 200 GB/s.
    pub fn network(&self) -> Network {
        let network = Network::default();
        let between = LinkCosts { per_byte_ps: self.port_per_byte_ps, ..network.between };
        Network { between, memory_per_byte_ps: 5, ..network }
    }

    /// Returns this DPU with a memory that takes no time: it moves bytes directly between the memories of two
    /// hosts (Cross-GVMI), or its copies never leave its caches.
    pub fn direct(self) -> Dpu {
        Dpu { staged_per_byte_ps: 0, ..self }
    }

    /// Returns the time that a core of the DPU takes for work that takes a processor of the node `time_ps`.
    pub(super) fn slowed(&self, time_ps: u64) -> u64 {
        time_ps * self.slowness_percent / 100
    }
}

/// The time in picoseconds for which a rank without work stays in the call that starts an operation.
pub const LINGER_PS: u64 = 1_000_000;

impl Default for Network {
    /// Returns a network about like a cluster of today: 1 us and 25 GB/s between nodes, 150 ns and 20 GB/s
    /// within a node.
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
