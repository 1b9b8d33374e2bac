// SPDX-License-Identifier: BSD-3-Clause
//! Buffers with known content, and simulated jobs, for the tests of this crate.
#![allow(dead_code)] // Each test program uses a part.

pub mod engines;
#[path = "../../../transport/tests/seeds/mod.rs"]
pub mod seeds;

use datatype::{Buffer, Layout};
use outboard_p2p::{Config, Outcome, P2p, Ticket};
use std::sync::Arc;
use sys::Span;
use transport::route::Reach;
use transport::sim::{Conditions, Network};

/// Memory of a send or a receive: elements of `piece` bytes with `gap` unused bytes after each.
pub struct Bytes {
    memory: Box<[u8]>,
    layout: Arc<Layout>,
    piece: usize,
    gap: usize,
    pub bytes: usize,
}

/// The content of gaps, and of receive buffers into which no message has come.
const UNTOUCHED: u8 = 0xee;

impl Bytes {
    /// Makes `bytes` untouched bytes without gaps.
    pub fn new(bytes: usize) -> Bytes {
        Bytes::with_gaps(bytes, bytes.max(1), 0)
    }

    /// Makes `bytes` untouched bytes in elements of `piece` bytes, which divides `bytes`, with `gap` bytes
    /// after each.
    pub fn with_gaps(bytes: usize, piece: usize, gap: usize) -> Bytes {
        assert_eq!(bytes % piece, 0);
        let memory = vec![UNTOUCHED; bytes / piece * (piece + gap)].into_boxed_slice();
        Bytes { memory, layout: Arc::new(element(piece, piece + gap)), piece, gap, bytes }
    }

    /// Writes the content of message `id` into the memory, without its gaps.
    pub fn holding(mut self, id: u64) -> Bytes {
        let (piece, step) = (self.piece, self.piece + self.gap);
        for at in 0..self.bytes {
            self.memory[at / piece * step + at % piece] = byte_of(id, at);
        }
        self
    }

    pub fn buffer(&self) -> Buffer {
        // SAFETY: every test keeps its `Bytes` until the job that uses them has ended.
        unsafe { Buffer::claim(self.memory.as_ptr() as usize, self.bytes / self.piece, &self.layout) }
    }

    pub fn span(&self) -> Span {
        // SAFETY: as above.
        unsafe { Span::claim(self.memory.as_ptr() as usize, self.memory.len()) }
    }

    /// Returns the bytes of the memory without its gaps.
    pub fn packed(&self) -> Vec<u8> {
        let (piece, step) = (self.piece, self.piece + self.gap);
        (0..self.bytes).map(|at| self.memory[at / piece * step + at % piece]).collect()
    }

    /// Fails unless the memory holds the first `bytes` bytes of message `id`, and its other bytes are
    /// untouched.
    #[track_caller]
    pub fn assert_holds(&self, id: u64, bytes: usize) {
        let packed = self.packed();
        for (at, &byte) in packed.iter().enumerate() {
            let wanted = if at < bytes { byte_of(id, at) } else { UNTOUCHED };
            assert_eq!(byte, wanted, "byte {at} of message {id:#x}, {bytes} of {} bytes", self.bytes);
        }
        self.assert_gaps_untouched();
    }

    #[track_caller]
    pub fn assert_gaps_untouched(&self) {
        if self.gap > 0 {
            let gaps = self.memory.chunks(self.piece + self.gap).flat_map(|element| &element[self.piece..]);
            assert!(gaps.into_iter().all(|&byte| byte == UNTOUCHED), "a gap was written");
        }
    }
}

/// Makes the layout of a datatype of `piece` contiguous bytes whose extent is `extent` bytes.
pub fn element(piece: usize, extent: usize) -> Layout {
    let mark = Layout::contiguous(1).to_words()[0];
    let words = [mark, piece as u64, 0, extent as u64, 0, 1, 0, piece as u64, 1, 0];
    Layout::from_words(&words).expect("the words of a layout")
}

/// Returns byte `at` of the content of message `id`, whose first eight bytes are the id itself.
pub fn byte_of(id: u64, at: usize) -> u8 {
    match at {
        0..8 => id.to_le_bytes()[at],
        _ => (id as usize * 31 + at * 7 + at / 251) as u8,
    }
}

/// A simulated job, whose ranks make progress only when the test polls them.
pub struct Job {
    pub network: Network,
    pub ranks: Vec<P2p>,
    settling_polls: usize,
}

impl Job {
    pub fn new(ranks: u32, seed: u64, conditions: Conditions, config: Config) -> Job {
        let network = Network::new(ranks, seed, conditions);
        let ranks = (0..ranks).map(|rank| P2p::new(Reach::Sim(network.port(rank)), config)).collect();
        // A packet may be lost several times.
        let settling_polls = if conditions.lost_percent > 0 { 20_000 } else { 2000 };
        Job { network, ranks, settling_polls }
    }

    /// Polls one rank, which is drawn from the job's seed.
    pub fn step(&mut self) {
        let rank = self.network.below(self.ranks.len() as u64) as usize;
        self.ranks[rank].poll().expect("no rank is corrupt");
    }

    /// Polls every rank so often that all that can happen has happened.
    pub fn settle(&mut self) {
        for _ in 0..self.settling_polls * self.ranks.len() {
            self.step();
        }
    }

    /// Polls all ranks until the operation of `rank` with this ticket has ended. Returns its outcome.
    #[track_caller]
    pub fn wait(&mut self, rank: usize, ticket: Ticket) -> Outcome {
        for _ in 0..1_000_000 {
            if let Some(outcome) = self.ranks[rank].take(ticket) {
                return outcome;
            }
            self.step();
        }
        panic!("nothing moves: {:?}", self.ranks.iter().map(P2p::pending).collect::<Vec<_>>());
    }
}

/// A network that neither loses, delays, refuses nor repeats packets.
pub const CALM: Conditions = Conditions {
    ring_packets: 8,
    payload_bytes_max: 256,
    delay_max: 0,
    refused_percent: 0,
    unreadable_percent: 0,
    unexposed_percent: 100,
    lost_percent: 0,
    repeated_percent: 0,
    is_disordered: false,
};

/// Makes a configuration with small limits, so that small messages reach every protocol.
pub fn small() -> Config {
    Config {
        eager_bytes_max: 128,
        overlapped_bytes_max: 600,
        credit_bytes: 4000,
        read_piece_bytes: 300,
        pull_piece_bytes: 300,
        pull_bytes_min: 60,
        patience_polls: 15,
        ..Config::default()
    }
}

/// Makes the configuration `small`, with the longest eager message drawn from a seed. With half of the seeds,
/// a rank that both sends and receives reads its message in the sender's memory.
pub fn drawn(seed: u64) -> Config {
    let mut tuning = tuning::Tuning::default();
    let row = tuning::read_row(tuning::Distance::Far, tuning::Load::Exchange);
    tuning.set(row, u64::MAX * (seed >> 7 & 1), tuning::ValueSource::Table);
    Config { eager_bytes_max: [128, 800][(seed >> 6) as usize % 2], tuning, ..small() }
}

/// Draws from a seed the faults of the network that sequence numbers must hide: from none to heavy losses.
pub fn weather(seed: u64) -> Conditions {
    // Neighbouring seeds differ in all parts.
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let pick = |choices: &[u64], shift: u64| choices[(mixed >> shift) as usize % choices.len()];
    Conditions {
        lost_percent: pick(&[0, 5, 40], 20),
        repeated_percent: pick(&[0, 0, 20], 30),
        is_disordered: pick(&[0, 1], 40) == 1,
        ..CALM
    }
}

/// Draws the faults of the network from a seed: from none to delays, refusals, losses, and memory that cannot
/// be read.
pub fn moods(seed: u64) -> Conditions {
    let pick = |choices: &[u64], shift: u64| choices[(seed >> shift) as usize % choices.len()];
    Conditions {
        ring_packets: pick(&[1, 2, 3, 8], 0) as usize,
        payload_bytes_max: pick(&[128, 200, 1000], 2) as usize,
        delay_max: pick(&[0, 3, 20, 100], 3),
        refused_percent: pick(&[0, 30, 60], 4),
        unreadable_percent: pick(&[0, 2, 100], 5),
        unexposed_percent: pick(&[100, 0, 50], 7),
        ..weather(seed)
    }
}
