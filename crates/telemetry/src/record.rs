// SPDX-License-Identifier: BSD-3-Clause
//! The record of an event, as bytes. A process writes records into its part of a trace, and the Chrome trace
//! is made from them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Choice;

/// What happened in a traced event. A peer is the number of a process of the job (ranks of MPI_COMM_WORLD
/// first, then spawned ones). `context` and `sequence` together name an operation on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are what they are called.
pub enum Event<'a> {
    /// An MPI call, from its entry to its return. `site` is the number of the place where the program called
    /// it.
    Call { function: &'a str, site: u32 },
    /// A call of OpenSHMEM that moves bytes to or from a PE. `site` is the number of the place where the
    /// program called it.
    Access { function: &'a str, site: u32, pe: u32, bytes: u64 },
    /// A time inside an MPI call in which the call waited, because it could make no progress.
    Wait,
    /// A collective from start to completion, whoever carries it out. `name` is its function and comm.
    /// `number` counts the calls of this function on this comm.
    Operation {
        name: &'a str,
        number: u32,
        context: u64,
        sequence: u32,
        bytes: u64,
        site: u32,
        /// The ranks without which the collective cannot complete, if the function in `name` does not
        /// determine them.
        needs: Needs,
    },
    /// A message from the start of its send or receive to its completion.
    Message(TracedMessage<'a>),
    /// A message that the program has cancelled.
    Cancelled { name: &'a str },
    /// A partition of a partitioned message was marked "ready", or was found to have "arrived". `number` is
    /// the message's number in its context.
    Partition { what: &'a str, peer: u32, context: u64, number: u32, partition: u32, bytes: u64 },
    /// An epoch of a window. `name` is the function that opened it, and the window. `lock` is "shared",
    /// "exclusive" or empty; `peer` is the target that is locked.
    Epoch { name: &'a str, context: u64, peer: u32, lock: &'a str, site: u32 },
    /// A signal between two processes of a window. The sender records "post" or "complete"; the receiver
    /// records "start" or "wait".
    Signal { what: &'a str, peer: u32, context: u64 },
    /// A step of a rendezvous (a long message, which the sender first offers). The sender's number `ticket`
    /// names the offer on both ends.
    Rendezvous { what: &'a str, peer: u32, ticket: u64, bytes: u64 },
    /// Who carried an operation out, why, and by which algorithm. `operation` is the index of the operation's
    /// record.
    Carried { operation: u32, choice: Choice, algorithm: &'a str },
    /// A part of the text for call site `number`. A long text takes several records.
    Site { number: u32, text: &'a str },
    /// A part of the name of thread `number`. A long name takes several records.
    Thread { number: u32, text: &'a str },
    /// A neighbour from which this process receives in neighborhood collectives. `list` is the number of the
    /// list of neighbours to which it belongs (`Needs::Sources`).
    Source { list: u32, peer: u32 },
    /// A part of the text of a fact about the process. A long text takes several records.
    About { what: About, text: &'a str },
    /// A proxy or rank has carried out a step (such as a send), or a part of it, in the schedule of the rank
    /// `rank`.
    Step { kind: &'a str, rank: u32, peer: u32, context: u64, sequence: u32, bytes: u64 },
    /// A rank has handed an operation's instance (its started schedule) to a proxy.
    Offload { proxy: u32, context: u64, sequence: u32 },
    /// A rank took an operation's instance (its started schedule) back from a proxy that died or stalled.
    Recover { proxy: u32, context: u64, sequence: u32 },
}

/// The ranks that a collective needs in order to complete, if its function does not determine them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needs {
    /// It is not known which ranks the collective needs.
    #[default]
    Unknown,
    /// The collective needs its root. The number is the root's number among the processes of the job.
    Root(u32),
    /// The collective is a scan, and needs all ranks below this process. The number is this process's rank in
    /// the comm.
    Below(u32),
    /// The collective needs the neighbours in one list. The number is the list's number (`Event::Source`).
    Sources(u32),
}

impl Needs {
    /// Returns the 24 bits that stand for this value in a record.
    fn to_bits(self) -> u64 {
        let (kind, number) = match self {
            Needs::Unknown => (0, 0),
            Needs::Root(peer) => (1, peer),
            Needs::Below(rank) => (2, rank),
            Needs::Sources(list) => (3, list),
        };
        if number < 1 << 22 { kind | u64::from(number) << 2 } else { 0 }
    }

    fn from_bits(bits: u64) -> Needs {
        let number = (bits >> 2 & 0x3f_ffff) as u32;
        match bits & 3 {
            1 => Needs::Root(number),
            2 => Needs::Below(number),
            3 => Needs::Sources(number),
            _ => Needs::Unknown,
        }
    }
}

/// The values of `lock` in `Event::Epoch`. A record holds the index of the value.
const LOCKS: [&str; 3] = ["", "shared", "exclusive"];

/// One end of a message, as a process has traced it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedMessage<'a> {
    /// The MPI function and the comm, as one text.
    pub name: &'a str,
    /// Whether this is the end that sends the message.
    pub sends: bool,
    /// The number of the other process. For a receive from any source that is not complete, [`ANY_PEER`].
    pub peer: u32,
    /// The tag. For a receive of any tag that is not complete, [`ANY_TAG`].
    pub tag: i32,
    /// The number that identifies the comm on all its ranks.
    pub context: u64,
    /// The bytes of the message. For a receive that is not complete, the bytes of its buffer.
    pub bytes: u64,
    /// The number of the place where the program called the MPI function.
    pub site: u32,
    /// Who carried the message out, and why.
    pub choice: Choice,
}

/// The peer in the record of a receive from any source, until the receive completes.
pub const ANY_PEER: u32 = u32::MAX;
/// The tag in the record of a receive of any tag, until the receive completes.
pub const ANY_TAG: i32 = -1;

/// The kinds of facts that a process records about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum About {
    /// The name of the process's host.
    Host,
    /// The version of Outboard that the process uses.
    Version,
    /// The command line of the process.
    Command,
    /// The process id (pid).
    Pid,
}

impl About {
    const ALL: [About; 4] = [About::Host, About::Version, About::Command, About::Pid];

    /// Returns the name of the fact in the trace file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            About::Host => "host",
            About::Version => "version",
            About::Command => "command",
            About::Pid => "pid",
        }
    }
}

/// The most bytes of a name that a record keeps.
pub(crate) const NAME_BYTES: usize = 64;
/// The number of 64-bit words in a record. The bytes of its name follow them.
const WORDS: usize = 8;
/// The length of a record in bytes.
pub(crate) const RECORD_BYTES: usize = WORDS * 8 + NAME_BYTES;
/// An event with its start and end, as bytes. Times are in nanoseconds of the machine's monotonic clock. The
/// end is 0 for an instant, and for an event that has not ended.
#[derive(Clone, Copy)]
pub struct TraceRecord(pub(crate) [u8; RECORD_BYTES]);

/// The index of each 64-bit word of a record. The word `Kind` is 0 in an empty record; `NameBytes` is 0 if
/// the record has no name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The low half has the kind of event (8 bits, from 1 on), and then a message's choice (8 bits) or a
    /// collective's needs (24 bits). The high half has the number of the thread.
    Kind = 0,
    From = 1,
    Until = 2,
    Context = 3,
    Bytes = 4,
    /// The low half has the operation's sequence, a message's tag, or the event's number (of a site, a
    /// partition, ...). The high half has the peer, the proxy, or the number of a collective's call.
    Sequence = 5,
    /// The low half has the length of the name (16 bits) and the number of the thread that saw the event's
    /// end (16 bits). The high half has the call site, or the number of a partition's message.
    NameBytes = 6,
    /// In the record of a schedule step: the rank to which the step belongs. In other records: the time at
    /// which the MPI call that saw the event's end began, or 0.
    Detail = 7,
}

/// The number that stands for a send in the word `Kind` of a record.
pub(crate) const SEND: u64 = 9;
/// The number that stands for a receive in the word `Kind` of a record.
pub(crate) const RECEIVE: u64 = 10;
/// The number that stands for a cancelled message in the word `Kind` of a record.
pub(crate) const CANCELLED: u64 = 11;

/// Returns a word with `low` in its lower half and `high` in its upper half.
fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl TraceRecord {
    pub(crate) fn new(event: &Event, from: u64, until: u64) -> TraceRecord {
        let (kind, context, bytes, sequence, name) = match *event {
            Event::Call { function, .. } => (1, 0, 0, 0, function),
            Event::Wait => (2, 0, 0, 0, ""),
            Event::Operation { name, number, context, sequence, bytes, needs, .. } => {
                (3 | needs.to_bits() << 8, context, bytes, both(sequence, number), name)
            }
            Event::Step { kind, peer, context, sequence, bytes, .. } => {
                (4, context, bytes, both(sequence, peer), kind)
            }
            Event::Offload { proxy, context, sequence } => (5, context, 0, both(sequence, proxy), ""),
            Event::Recover { proxy, context, sequence } => (6, context, 0, both(sequence, proxy), ""),
            Event::Carried { operation, choice, algorithm } => {
                (7, choice as u64, 0, operation.into(), algorithm)
            }
            Event::Site { number, text } => (8, 0, 0, number.into(), text),
            Event::Message(TracedMessage { name, sends, peer, tag, context, bytes, choice, .. }) => {
                let kind = if sends { SEND } else { RECEIVE };
                (kind | (choice as u64) << 8, context, bytes, both(tag as u32, peer), name)
            }
            Event::Cancelled { name } => (CANCELLED, 0, 0, 0, name),
            Event::Partition { what, peer, context, partition, bytes, .. } => {
                (15, context, bytes, both(partition, peer), what)
            }
            Event::Signal { what, peer, context } => (16, context, 0, both(0, peer), what),
            Event::Epoch { name, context, peer, lock, .. } => {
                let lock = LOCKS.iter().position(|it| *it == lock).unwrap_or(0);
                (17, context, lock as u64, both(0, peer), name)
            }
            Event::Rendezvous { what, peer, ticket, bytes } => (12, ticket, bytes, both(0, peer), what),
            Event::Thread { number, text } => (13, 0, 0, number.into(), text),
            Event::Source { list, peer } => (19, 0, 0, both(list, peer), ""),
            Event::About { what, text } => (14, 0, 0, (what as u32).into(), text),
            Event::Access { function, pe, bytes, .. } => (18, 0, bytes, both(0, pe), function),
        };
        let site = match *event {
            Event::Operation { site, .. }
            | Event::Call { site, .. }
            | Event::Epoch { site, .. }
            | Event::Access { site, .. } => site,
            Event::Partition { number, .. } => number,
            Event::Message(message) => message.site,
            _ => 0,
        };
        let detail = if let Event::Step { rank, .. } = *event { rank.into() } else { 0 };
        let mut name_bytes = name.len().min(NAME_BYTES);
        while !name.is_char_boundary(name_bytes) {
            name_bytes -= 1;
        }
        let mut record = TraceRecord([0; RECORD_BYTES]);
        let names = both(name_bytes as u32, site);
        let words = [kind | thread() << 32, from, until, context, bytes, sequence, names, detail];
        for (index, word) in words.into_iter().enumerate() {
            record.0[8 * index..8 * index + 8].copy_from_slice(&word.to_ne_bytes());
        }
        record.0[8 * WORDS..8 * WORDS + name_bytes].copy_from_slice(&name.as_bytes()[..name_bytes]);
        record
    }

    pub(crate) fn word(&self, word: Word) -> u64 {
        let at = 8 * word as usize;
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    pub(crate) fn set(&mut self, word: Word, value: u64) {
        let at = 8 * word as usize;
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Stores that the event ended at the time `until`, as this thread saw in an MPI call that began at the
    /// time `call`.
    pub(crate) fn end(&mut self, until: u64, call: u64) {
        let names = self.word(Word::NameBytes) & !0xffff_0000;
        let thread = thread();
        self.set(Word::NameBytes, names | if thread <= 0xffff { thread << 16 } else { 0 });
        self.set(Word::Until, until);
        self.set(Word::Detail, call);
    }

    /// Stores the peer, tag and length in bytes of a message that has completed, and who carried it out and
    /// why (`choice`).
    pub(crate) fn set_message(&mut self, peer: u32, tag: i32, bytes: u64, choice: Choice) {
        self.set(Word::Kind, self.word(Word::Kind) & !0xff00 | (choice as u64) << 8);
        self.set(Word::Bytes, bytes);
        self.set(Word::Sequence, both(tag as u32, peer));
    }

    /// Makes this the record of a cancelled message.
    pub(crate) fn cancel(&mut self) {
        self.set(Word::Kind, self.word(Word::Kind) & !0xffff | CANCELLED);
    }

    /// Shifts each time in the record by the nanoseconds that `by` returns for that time.
    pub fn shift(&mut self, by: impl Fn(u64) -> i64) {
        for word in [Word::From, Word::Until, Word::Detail] {
            let time = self.word(word);
            // The rank of a step is no time.
            let is_time = !(word == Word::Detail && self.word(Word::Kind) as u8 == 4);
            if time != 0 && is_time {
                self.set(word, time.saturating_add_signed(by(time)));
            }
        }
    }

    /// Returns the time at which the event happened or started.
    pub(crate) fn from(&self) -> u64 {
        self.word(Word::From)
    }

    /// Returns the time at which the event ended, or 0 for an instant or an event that has not ended.
    pub(crate) fn until(&self) -> u64 {
        self.word(Word::Until)
    }

    /// Returns the time at which the MPI call that saw the event's end began. 0 if no call saw it.
    pub(crate) fn found_by(&self) -> u64 {
        self.word(Word::Detail)
    }

    /// Returns the number of the thread that recorded the event.
    pub(crate) fn thread(&self) -> u64 {
        self.word(Word::Kind) >> 32
    }

    /// Returns the number of the thread that saw the event's end. If that is not known, returns the number of
    /// the thread that recorded the event.
    pub(crate) fn last_thread(&self) -> u64 {
        match self.word(Word::NameBytes) >> 16 & 0xffff {
            0 => self.thread(),
            thread => thread,
        }
    }

    /// Decodes the event. Returns None if the bytes are no record.
    pub(crate) fn event(&self) -> Option<Event<'_>> {
        let (context, bytes) = (self.word(Word::Context), self.word(Word::Bytes));
        let (sequence, other) = (self.word(Word::Sequence) as u32, (self.word(Word::Sequence) >> 32) as u32);
        let (site, name_bytes) =
            ((self.word(Word::NameBytes) >> 32) as u32, self.word(Word::NameBytes) as u16);
        let end = (name_bytes as usize).min(NAME_BYTES);
        let name = std::str::from_utf8(&self.0[8 * WORDS..8 * WORDS + end]).ok()?;
        let kind = self.word(Word::Kind);
        Some(match kind & 0xff {
            1 => Event::Call { function: name, site },
            2 => Event::Wait,
            3 => {
                let needs = Needs::from_bits(kind >> 8);
                Event::Operation { name, number: other, context, sequence, bytes, site, needs }
            }
            4 => {
                let rank = self.word(Word::Detail) as u32;
                Event::Step { kind: name, rank, peer: other, context, sequence, bytes }
            }
            5 => Event::Offload { proxy: other, context, sequence },
            6 => Event::Recover { proxy: other, context, sequence },
            7 => Event::Carried { operation: sequence, choice: Choice::of(context)?, algorithm: name },
            8 => Event::Site { number: sequence, text: name },
            SEND | RECEIVE => Event::Message(TracedMessage {
                name,
                sends: kind & 0xff == SEND,
                peer: other,
                tag: sequence as i32,
                context,
                bytes,
                site,
                choice: Choice::of(kind >> 8 & 0xff)?,
            }),
            CANCELLED => Event::Cancelled { name },
            19 => Event::Source { list: sequence, peer: other },
            12 => Event::Rendezvous { what: name, peer: other, ticket: context, bytes },
            13 => Event::Thread { number: sequence, text: name },
            15 => Event::Partition {
                what: name,
                peer: other,
                context,
                number: site,
                partition: sequence,
                bytes,
            },
            16 => Event::Signal { what: name, peer: other, context },
            17 => Event::Epoch { name, context, peer: other, lock: LOCKS.get(bytes as usize)?, site },
            14 => Event::About { what: *About::ALL.get(sequence as usize)?, text: name },
            18 => Event::Access { function: name, site, pe: other, bytes },
            _ => return None,
        })
    }
}

/// Reads the records in one process's part of a trace, up to the first unused one.
pub fn decode(bytes: &[u8]) -> Vec<TraceRecord> {
    let records =
        bytes.chunks_exact(RECORD_BYTES).map(|one| TraceRecord(one.try_into().expect("of this length")));
    records.take_while(|record| record.word(Word::Kind) != 0).collect()
}

/// The name of a traced process. A trace viewer shows each process as one group of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessName {
    /// A rank, by its number among the processes of the job.
    Rank(u32),
    /// A proxy, by its number.
    Proxy(u32),
}

impl std::fmt::Display for ProcessName {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            ProcessName::Rank(rank) => write!(f, "rank {rank}"),
            ProcessName::Proxy(proxy) => write!(f, "proxy {proxy}"),
        }
    }
}

/// A traced process, and the records of its events.
pub struct TracedProcess {
    /// The process that has made the records.
    pub who: ProcessName,
    /// The number of the clock that the process reads. All processes of a host read the same clock.
    pub clock: u32,
    /// The records, in the order in which they were made.
    pub records: Vec<TraceRecord>,
}

/// Returns a small number for this thread: 1 for the first thread that recorded an event, then 2, and so on.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.try_with(|mine| *mine).unwrap_or(0)
}
