// SPDX-License-Identifier: BSD-3-Clause
//! An event as bytes: what a trace file holds, and what the Chrome trace is made from.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Choice;

/// What happened. Peers are ranks of MPI_COMM_WORLD; `context` and `sequence` name an operation on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are what they are called.
pub enum Event<'a> {
    /// An MPI call, from its entry to its return.
    Call { function: &'a str },
    /// A wait inside an MPI call: the wait loop with nothing to move.
    Wait,
    /// A collective from start to completion, by rank or proxy: `name` is its function and comm, `number`
    /// counts the calls of that function on that comm, `site` says where it was called.
    Operation { name: &'a str, number: u32, context: u64, sequence: u32, bytes: u64, site: u32 },
    /// How the operation was carried out whose record has this index.
    Carried { operation: u32, choice: Choice, algorithm: &'a str },
    /// A part of the name of a call site.
    Site { number: u32, text: &'a str },
    /// One piece of a schedule step was carried out.
    Step { kind: &'a str, peer: u32, context: u64, sequence: u32, bytes: u64 },
    /// An instance was given to a proxy.
    HandOver { proxy: u32, context: u64, sequence: u32 },
    /// An instance was taken back from a proxy that died or stalled.
    Recover { proxy: u32, context: u64, sequence: u32 },
}

/// Bytes of a name that a record keeps.
pub(crate) const NAME_BYTES: usize = 64;
/// Bytes of a record: seven words and a name.
pub(crate) const RECORD_BYTES: usize = 7 * 8 + NAME_BYTES;
/// An event with its times, in ns of the machine's monotonic clock. `until` is 0 for an instant, and for an
/// event that has not ended.
#[derive(Clone, Copy)]
pub struct Record(pub(crate) [u8; RECORD_BYTES]);

/// The words of a record, by index. The first is 0 where there is none yet, or no name.
pub(crate) enum Word {
    /// 1 and the event's place in the enumeration; the thread in the high half.
    Kind = 0,
    From = 1,
    Until = 2,
    Context = 3,
    Bytes = 4,
    /// The sequence; the peer, proxy or number in the high half.
    Sequence = 5,
    /// The bytes of the name; an operation's call site in the high half.
    NameBytes = 6,
}

impl Record {
    pub(crate) fn new(event: &Event, from: u64, until: u64) -> Record {
        let both = |sequence: u32, other: u32| u64::from(sequence) | u64::from(other) << 32;
        let (kind, context, bytes, sequence, name) = match *event {
            Event::Call { function } => (1, 0, 0, 0, function),
            Event::Wait => (2, 0, 0, 0, ""),
            Event::Operation { name, number, context, sequence, bytes, .. } => {
                (3, context, bytes, both(sequence, number), name)
            }
            Event::Step { kind, peer, context, sequence, bytes } => {
                (4, context, bytes, both(sequence, peer), kind)
            }
            Event::HandOver { proxy, context, sequence } => (5, context, 0, both(sequence, proxy), ""),
            Event::Recover { proxy, context, sequence } => (6, context, 0, both(sequence, proxy), ""),
            Event::Carried { operation, choice, algorithm } => {
                (7, choice as u64, 0, operation.into(), algorithm)
            }
            Event::Site { number, text } => (8, 0, 0, number.into(), text),
        };
        let site = if let Event::Operation { site, .. } = *event { u64::from(site) } else { 0 };
        let mut name_bytes = name.len().min(NAME_BYTES);
        while !name.is_char_boundary(name_bytes) {
            name_bytes -= 1;
        }
        let mut record = Record([0; RECORD_BYTES]);
        let words =
            [kind | thread() << 32, from, until, context, bytes, sequence, name_bytes as u64 | site << 32];
        for (index, word) in words.into_iter().enumerate() {
            record.0[8 * index..8 * index + 8].copy_from_slice(&word.to_ne_bytes());
        }
        record.0[56..56 + name_bytes].copy_from_slice(&name.as_bytes()[..name_bytes]);
        record
    }

    pub(crate) fn word(&self, word: Word) -> u64 {
        let at = 8 * word as usize;
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Moves its times by so many nanoseconds.
    pub fn shift(&mut self, by: i64) {
        for word in [Word::From as usize, Word::Until as usize] {
            let at = 8 * word;
            let time = u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
            if time != 0 {
                self.0[at..at + 8].copy_from_slice(&time.wrapping_add_signed(by).to_ne_bytes());
            }
        }
    }

    /// When it happened or began.
    pub(crate) fn from(&self) -> u64 {
        self.word(Word::From)
    }

    /// When it ended.
    pub(crate) fn until(&self) -> u64 {
        self.word(Word::Until)
    }

    /// A small number for the thread that kept it.
    pub(crate) fn thread(&self) -> u64 {
        self.word(Word::Kind) >> 32
    }

    /// What happened; nothing if these bytes are no record.
    pub(crate) fn event(&self) -> Option<Event<'_>> {
        let (context, bytes) = (self.word(Word::Context), self.word(Word::Bytes));
        let (sequence, other) = (self.word(Word::Sequence) as u32, (self.word(Word::Sequence) >> 32) as u32);
        let (site, name_bytes) =
            ((self.word(Word::NameBytes) >> 32) as u32, self.word(Word::NameBytes) as u32);
        let end = (name_bytes as usize).min(NAME_BYTES);
        let name = std::str::from_utf8(&self.0[56..56 + end]).ok()?;
        Some(match self.word(Word::Kind) as u32 {
            1 => Event::Call { function: name },
            2 => Event::Wait,
            3 => Event::Operation { name, number: other, context, sequence, bytes, site },
            4 => Event::Step { kind: name, peer: other, context, sequence, bytes },
            5 => Event::HandOver { proxy: other, context, sequence },
            6 => Event::Recover { proxy: other, context, sequence },
            7 => Event::Carried { operation: sequence, choice: Choice::of(context)?, algorithm: name },
            8 => Event::Site { number: sequence, text: name },
            _ => return None,
        })
    }
}

/// The records in a part of a trace, up to the first that was not written.
pub fn decode(bytes: &[u8]) -> Vec<Record> {
    let records = bytes.chunks_exact(RECORD_BYTES).map(|one| Record(one.try_into().expect("of this length")));
    records.take_while(|record| record.word(Word::Kind) != 0).collect()
}

/// Whose events these are: one line group of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A rank of MPI_COMM_WORLD.
    Rank(u32),
    /// A proxy.
    Proxy(u32),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Who::Rank(rank) => write!(f, "rank {rank}"),
            Who::Proxy(proxy) => write!(f, "proxy {proxy}"),
        }
    }
}

/// A small number for this thread: 1 for the first that kept an event, and so on.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.try_with(|mine| *mine).unwrap_or(0)
}
