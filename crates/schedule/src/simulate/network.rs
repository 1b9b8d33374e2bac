// SPDX-License-Identifier: BSD-3-Clause
//! The model network: two levels, between nodes and within them.

/// What a message costs on one level. Times are picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// On the way.
    pub latency_ps: u64,
    /// Of a processor, to send or to receive a message.
    pub overhead_ps: u64,
    /// Between the starts of two messages at a port, at least.
    pub gap_ps: u64,
    /// Of a port, or within a node of the receiver's processor.
    pub per_byte_ps: u64,
    /// Whether bytes pass on before the whole message is there. As the executor's edges are, they do within
    /// a node, and not between nodes.
    pub streams: bool,
}

/// A network and the processors at it. Times are picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Between nodes.
    pub between: Link,
    /// Within a node.
    pub within: Link,
    /// Of a processor that copies.
    pub copy_per_byte_ps: u64,
    /// Of a processor that reduces.
    pub reduce_per_byte_ps: u64,
    /// What passes between streaming steps at once; not 0.
    pub chunk_bytes: u64,
    /// Ranks start at random times before this.
    pub skew_ps: u64,
    /// Of the memory of a node, for what its processors copy and reduce: at least this for each byte of all
    /// together; 0: it keeps up with them.
    pub memory_per_byte_ps: u64,
    /// Who carries out the steps of a node's ranks; nothing: each rank its own.
    pub proxies: Option<Proxies>,
    /// The computation of each rank between the call that starts the operation and the one that ends it. A
    /// rank carries out steps inside these two only; it leaves the first when nothing of its own has been
    /// ready for `LINGER_PS`.
    pub work_ps: u64,
}

/// The proxies of each node. One serves every so manieth rank of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxies {
    /// So many on the node itself; not 0.
    Host(u32),
    /// One on each core of a data processing unit, and who carries out the steps between ranks of one node.
    Dpu(Dpu, Within),
}

/// Who carries out the steps within a node that has a DPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// The ranks, in shared memory, in the calls that start and end the operation.
    Ranks,
    /// So many proxies on the node itself, in shared memory; not 0.
    Proxies(u32),
    /// The DPU: what stays within the node passes its port, too.
    Dpu,
}

/// A data processing unit: a computer in the node's network adapter. It reads bytes from the node's memory
/// into its own, sends them on, and writes what arrives into the node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpu {
    /// Its cores, which carry out the steps; not 0.
    pub cores: u32,
    /// How long they take, as a percentage of what a processor of the node takes.
    pub slowness_percent: u64,
    /// There and back between the node and the DPU.
    pub round_trip_ps: u64,
    /// Of its memory, for each byte that passes through it one way: written once and read once.
    pub staged_per_byte_ps: u64,
    /// Of its port: of the node's, which is the same.
    pub port_per_byte_ps: u64,
    /// A core's work on the note that starts an operation of a rank, if a processor of the node did it.
    pub note_ps: u64,
    /// Values of up to so many bytes travel in notes: nothing is fetched.
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

    /// A network of nodes with such ports, whose memory carries 200 GB/s of copies.
    pub fn network(&self) -> Network {
        let network = Network::default();
        let between = Link { per_byte_ps: self.port_per_byte_ps, ..network.between };
        Network { between, memory_per_byte_ps: 5, ..network }
    }

    /// The same, if it moves bytes from memory of one host to that of another without a copy of its own
    /// (Cross-GVMI), or if its copies never leave its caches.
    pub fn direct(self) -> Dpu {
        Dpu { staged_per_byte_ps: 0, ..self }
    }

    /// Of a core of the DPU, what takes a processor of the node so long.
    pub(super) fn slowed(&self, time_ps: u64) -> u64 {
        time_ps * self.slowness_percent / 100
    }
}

/// How long a rank looks for more to do in the call that starts an operation.
pub const LINGER_PS: u64 = 1_000_000;

impl Default for Network {
    /// About a cluster of today: between nodes 1 us, 25 GB/s; within a node 150 ns, 20 GB/s.
    fn default() -> Network {
        let between = Link {
            latency_ps: 1_000_000,
            overhead_ps: 200_000,
            gap_ps: 100_000,
            per_byte_ps: 40,
            streams: false,
        };
        Network {
            within: Link {
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
