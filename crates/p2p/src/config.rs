// SPDX-License-Identifier: BSD-3-Clause
//! The settings of this crate, gathered from the user's settings and the tuning table.

use tuning::{EAGER_BYTES_MAX, Tuning, ValueSource};

/// How the bytes of a long message travel once the receive that takes it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeProtocol {
    /// The way that was measured to be faster (`choice.rs`), or a read if the sender stays out of MPI. Where
    /// processes share cores, this is `Cma`.
    #[default]
    Auto,
    /// The receiver reads the bytes in the sender's memory by cross-memory attach, where it can.
    Cma,
    /// The receiver asks for the bytes, and the sender sends them as packets through the cells of the ring.
    Cells,
}

/// The settings of this crate; `Config::of` reads them.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The longest message, in bytes, that is sent before its receive is known.
    pub eager_bytes_max: usize,
    /// The longest message, in bytes, that is sent before its receive is known if the sender computes
    /// meanwhile (`Mode::Overlapped`) and the kernel carries the packets. It is what a socket takes at once
    /// (docs/measured/hosts.md).
    pub overlapped_bytes_max: usize,
    /// How many bytes of eager messages a peer accepts from this process before receives match them
    /// (`lane::cost` counts each message's bytes). A message's credit comes back when a receive has matched
    /// it.
    pub credit_bytes: usize,
    /// How a message that is too long to be eager travels once its receive is known.
    pub large_protocol: LargeProtocol,
    /// The most bytes of one message that one poll reads from a peer's memory.
    pub read_piece_bytes: usize,
    /// The length, in bytes, of each read by which the network fetches a message from a peer's memory
    /// (`pull.rs`).
    pub pull_piece_bytes: usize,
    /// The shortest message, in bytes, for which a sender exposes its memory to reads by the network
    /// (`pull.rs`).
    pub pull_bytes_min: usize,
    /// With `LargeProtocol::Auto`: a receiver that has asked for cells reads the sender's memory instead
    /// after this number of polls without a packet of the message. At 20 to 50 ns a poll, the default lasts
    /// about as long as the shortest long message takes.
    pub patience_polls: u32,
    /// The tuning table. With `LargeProtocol::Auto` it says which messages are better read in the sender's
    /// memory, as far as that has been measured.
    pub tuning: Tuning,
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
        }
    }
}

/// The longest message, in bytes, that a peer may send in pieces. It is also the greatest value of the
/// setting for `eager_bytes_max`.
pub(crate) const EAGER_MOST: u64 = 1 << 30;

/// The most bytes of one message that are read from a peer's memory before the next message gets its turn.
pub(crate) const READ_PIECE_BYTES: usize = 1 << 20;
