// SPDX-License-Identifier: BSD-3-Clause
//! The settings of this crate, as the modules here read them.

use tuning::{EAGER_BYTES_MAX, Tuning, ValueSource};

/// How long messages travel once the receive is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeProtocol {
    /// Where each process has a core of its own: the method that was measured to be faster (`choice.rs`), and
    /// a read if the sender stays away from MPI. Elsewhere `Cma`.
    #[default]
    Auto,
    /// The receiver reads the sender's memory by cross-memory attach where it can.
    Cma,
    /// The receiver asks for the bytes, and the sender streams them as packets through cells.
    Cells,
}

/// The settings of this crate; `Config::of` reads them.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The longest message that is sent before its receive is known.
    pub eager_bytes_max: usize,
    /// The longest message that is sent before its receive is known if its sender computes meanwhile
    /// (`Mode::Overlapped`) and the kernel carries the packets: what a socket takes at once
    /// (docs/measured/hosts.md).
    pub overlapped_bytes_max: usize,
    /// The most that the eager messages of this process that one peer holds unmatched may cost together, as
    /// `lane::cost` counts.
    pub credit_bytes: usize,
    /// How a message that is too long to be eager travels once its receive is known.
    pub large_protocol: LargeProtocol,
    /// The most bytes of one message that a poll reads from a peer's memory.
    pub read_piece_bytes: usize,
    /// The length of one read when the network reads a message from a peer's memory in pieces (`pull.rs`).
    pub pull_piece_bytes: usize,
    /// The shortest message whose memory a sender exposes to a pull (`pull.rs`).
    pub pull_bytes_min: usize,
    /// With `LargeProtocol::Auto`: a long message is read after this many polls without a packet of it. At 20
    /// to 50 ns a poll, the default lasts about as long as the shortest long message takes.
    pub patience_polls: u32,
    /// The tuning table. With `LargeProtocol::Auto` it says which messages are read in the sender's memory,
    /// as far as that was measured.
    pub tuning: Tuning,
    /// How many bytes of the attached buffer a buffered send occupies beside its message's bytes:
    /// MPI_BSEND_OVERHEAD.
    pub bsend_overhead_bytes: usize,
}

impl Config {
    /// Makes the configuration from the user's settings and from the tuning table.
    pub fn of(settings: &settings::Settings, tuning: &Tuning) -> Config {
        Config {
            eager_bytes_max: tuning.get(EAGER_BYTES_MAX).min(EAGER_MOST) as usize,
            overlapped_bytes_max: match tuning.source(EAGER_BYTES_MAX) {
                ValueSource::Setting => 0,
                _ => Config::default().overlapped_bytes_max,
            },
            credit_bytes: settings.eager_credit_bytes as usize,
            large_protocol: match settings.large_protocol {
                settings::LargeProtocol::Auto => LargeProtocol::Auto,
                settings::LargeProtocol::Cma => LargeProtocol::Cma,
                settings::LargeProtocol::Cells => LargeProtocol::Cells,
            },
            tuning: *tuning,
            ..Config::default()
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            eager_bytes_max: 64 << 10,
            overlapped_bytes_max: 4 << 20,
            credit_bytes: 1 << 20,
            large_protocol: LargeProtocol::Auto,
            read_piece_bytes: READ_PIECE_BYTES,
            pull_piece_bytes: 128 << 10,
            pull_bytes_min: 64 << 10,
            patience_polls: 1000,
            tuning: Tuning::default(),
            bsend_overhead_bytes: 512,
        }
    }
}

/// The longest message that a peer may send in pieces, which is the greatest value of the setting for
/// `eager_bytes_max`.
pub(crate) const EAGER_MOST: u64 = 1 << 30;

/// The most bytes of one message that are read from a peer's memory before another message gets its turn.
pub(crate) const READ_PIECE_BYTES: usize = 1 << 20;
