//! The model network.

/// A network and the processors at it. Times are picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// From a port to a port.
    pub latency_ps: u64,
    /// Of a processor, to send or to receive a message.
    pub overhead_ps: u64,
    /// Between the starts of two messages at a port, at least.
    pub gap_ps: u64,
    /// Of a port.
    pub per_byte_ps: u64,
    /// Of a processor that copies.
    pub copy_per_byte_ps: u64,
    /// Of a processor that reduces.
    pub reduce_per_byte_ps: u64,
    /// What passes between streaming steps at once; not 0.
    pub chunk_bytes: u64,
    /// Ranks start at random times before this.
    pub skew_ps: u64,
}

impl Default for Network {
    /// About a cluster of today: 1 us, 25 GB/s.
    fn default() -> Network {
        Network {
            latency_ps: 1_000_000,
            overhead_ps: 200_000,
            gap_ps: 100_000,
            per_byte_ps: 40,
            copy_per_byte_ps: 50,
            reduce_per_byte_ps: 100,
            chunk_bytes: 32 << 10,
            skew_ps: 0,
        }
    }
}
