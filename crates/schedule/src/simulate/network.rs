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
    /// Whether bytes pass on before the whole message is there. As the executor's edges are, they do within a
    /// node, and not between nodes.
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
    /// Who carries out the steps of a node's ranks; nothing: each rank its own.
    pub proxies: Option<Proxies>,
}

/// The proxies of each node. One serves every so manieth rank of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxies {
    /// How many; not 0.
    pub per_node: u32,
    /// They run on a data processing unit: messages within the host pass its port, too, and its cores take
    /// `DPU_SLOWNESS` times as long for everything.
    pub is_dpu: bool,
}

/// BlueField-2's Arm cores sustain about half of what the link carries (Liu et al., arXiv 2105.06619).
pub const DPU_SLOWNESS: u64 = 2;

impl Network {
    /// How many times as long a processor takes as a host's.
    pub(super) fn slowness(&self) -> u64 {
        if self.proxies.is_some_and(|proxies| proxies.is_dpu) { DPU_SLOWNESS } else { 1 }
    }
}

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
            proxies: None,
        }
    }
}
