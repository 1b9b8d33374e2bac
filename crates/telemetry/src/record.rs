// SPDX-License-Identifier: BSD-3-Clause
//! An event as bytes: a trace file holds these, and the Chrome trace is made from them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Choice;

/// What happened. Peers are numbers of processes of the job (ranks of MPI_COMM_WORLD, then spawned ones);
/// `context` and `sequence` name an operation on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are what they are called.
pub enum Event<'a> {
    /// An MPI call, from its entry to its return; `site` is where the program called it.
    Call { function: &'a str, site: u32 },
    /// A call of OpenSHMEM that moves bytes to or from a PE.
    Access { function: &'a str, site: u32, pe: u32, bytes: u64 },
    /// A wait inside an MPI call: the wait loop with nothing to move.
    Wait,
    /// A collective from start to completion, by rank or proxy: `name` is its function and comm, `number`
    /// counts the calls of that function on that comm.
    Operation {
        name: &'a str,
        number: u32,
        context: u64,
        sequence: u32,
        bytes: u64,
        site: u32,
        /// The ranks without which the collective cannot complete, if `name` alone does not say so.
        needs: Needs,
    },
    /// A message from the start of its send, or of its receive, to completion.
    Message(TracedMessage<'a>),
    /// A message that was cancelled.
    Cancelled { name: &'a str },
    /// A partition of a message: it is "ready", or found to have "arrived". `number` is that of the message
    /// in its context.
    Partition { what: &'a str, peer: u32, context: u64, number: u32, partition: u32, bytes: u64 },
    /// An epoch of a window: `name` is the function that opened it and the window. `lock` is "shared",
    /// "exclusive" or empty, `peer` the target that is locked.
    Epoch { name: &'a str, context: u64, peer: u32, lock: &'a str, site: u32 },
    /// A signal between two processes of a window: "post" and "complete" are sent, and received as "start"
    /// and "wait".
    Signal { what: &'a str, peer: u32, context: u64 },
    /// A step of a rendezvous. The sender's ticket names it on both ends.
    Rendezvous { what: &'a str, peer: u32, ticket: u64, bytes: u64 },
    /// How an operation was carried out; `operation` is the index of its record.
    Carried { operation: u32, choice: Choice, algorithm: &'a str },
    /// A part of the name of call site `number`; a long name takes several records.
    Site { number: u32, text: &'a str },
    /// A part of the name of thread `number`; a long name takes several records.
    Thread { number: u32, text: &'a str },
    /// A neighbour from which this process receives in neighborhood collectives; `list` groups them
    /// (`Needs::Sources`).
    Source { list: u32, peer: u32 },
    /// A part of the text of a fact about the process; a long text takes several records.
    About { what: About, text: &'a str },
    /// One piece of a schedule step of a rank was carried out.
    Step { kind: &'a str, rank: u32, peer: u32, context: u64, sequence: u32, bytes: u64 },
    /// An instance of an operation was handed to a proxy.
    Offload { proxy: u32, context: u64, sequence: u32 },
    /// The rank took back an instance of an operation from a proxy that died or stalled.
    Recover { proxy: u32, context: u64, sequence: u32 },
}

/// The ranks that a collective needs, if its function alone does not say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needs {
    /// It is not known which ranks the collective needs.
    #[default]
    Unknown,
    /// The collective needs its root; the number is the root's among the processes of the job.
    Root(u32),
    /// The scan needs the ranks below this one; the number is this process's rank in the comm.
    Below(u32),
    /// The collective needs the neighbours in the list with this number (`Event::Source`).
    Sources(u32),
}

impl Needs {
    /// The form of this value in a record: 24 bits.
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

/// The values of `Event::Epoch`'s `lock`. A record holds the index of one.
const LOCKS: [&str; 3] = ["", "shared", "exclusive"];

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedMessage<'a> {
    /// The names of the MPI function and of the comm, as one text.
    pub name: &'a str,
    /// Whether this is the sender's end.
    pub sends: bool,
    /// The other process, or [`ANY_PEER`] while a receive may match several.
    pub peer: u32,
    /// The tag, or [`ANY_TAG`] while a receive may match several.
    pub tag: i32,
    /// The number that identifies the comm on all its ranks.
    pub context: u64,
    /// The bytes of the message; for a receive that is not complete, those of its buffer.
    pub bytes: u64,
    /// The number of the place where the program called the function.
    pub site: u32,
    /// Which process carried the message out, and why.
    pub choice: Choice,
}

/// The peer of a receive from any source, until it completes.
pub const ANY_PEER: u32 = u32::MAX;
/// The tag of a receive of any tag, until it completes.
pub const ANY_TAG: i32 = -1;

/// The facts that a process records about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum About {
    /// The name of its host.
    Host,
    /// The version of Outboard.
    Version,
    /// The command line.
    Command,
    /// The process id.
    Pid,
}

impl About {
    const ALL: [About; 4] = [About::Host, About::Version, About::Command, About::Pid];

    /// The name of the fact in the trace file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            About::Host => "host",
            About::Version => "version",
            About::Command => "command",
            About::Pid => "pid",
        }
    }
}

/// How many bytes of a name a record keeps.
pub(crate) const NAME_BYTES: usize = 64;
/// The number of 64-bit words of a record before its name (`Word`).
const WORDS: usize = 8;
/// The length of a record in bytes.
pub(crate) const RECORD_BYTES: usize = WORDS * 8 + NAME_BYTES;
/// An event with its start and end, in nanoseconds of the machine's monotonic clock, as bytes. The end is 0
/// for an instant, and for an event that has not ended.
#[derive(Clone, Copy)]
pub struct TraceRecord(pub(crate) [u8; RECORD_BYTES]);

/// The index of each word of a record. Word `Kind` is 0 in an empty record, `NameBytes` is 0 without a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// 1 and the event's position in the enumeration (8 bits), a message's choice (8 bits) or a collective's
    /// needs (24 bits); the thread in the high half.
    Kind = 0,
    From = 1,
    Until = 2,
    Context = 3,
    Bytes = 4,
    /// The sequence, or a message's tag; the peer, proxy or number in the high half.
    Sequence = 5,
    /// The bytes of the name (16 bits), the thread that ended the event (16 bits); the call site in the high
    /// half, or the number of a partition's message.
    NameBytes = 6,
    /// In the record of a step, the step's rank. In others, when the call began that noticed the event's
    /// end, or 0 if no call did.
    Detail = 7,
}

/// The number in word `Kind` of the record of a send.
pub(crate) const SEND: u64 = 9;
/// The number in word `Kind` of the record of a receive.
pub(crate) const RECEIVE: u64 = 10;
/// The number in word `Kind` of the record of a message that was cancelled.
pub(crate) const CANCELLED: u64 = 11;

/// A word with `low` in its lower half and `high` in its upper half.
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

    /// Notes that the event ended at `until`, as this thread found in the call that started at `call`.
    pub(crate) fn end(&mut self, until: u64, call: u64) {
        let names = self.word(Word::NameBytes) & !0xffff_0000;
        let thread = thread();
        self.set(Word::NameBytes, names | if thread <= 0xffff { thread << 16 } else { 0 });
        self.set(Word::Until, until);
        self.set(Word::Detail, call);
    }

    /// Notes the peer, tag, length and carrier of the message that this receive got, or this send sent.
    pub(crate) fn set_message(&mut self, peer: u32, tag: i32, bytes: u64, choice: Choice) {
        self.set(Word::Kind, self.word(Word::Kind) & !0xff00 | (choice as u64) << 8);
        self.set(Word::Bytes, bytes);
        self.set(Word::Sequence, both(tag as u32, peer));
    }

    /// Notes that the message was cancelled.
    pub(crate) fn cancel(&mut self) {
        self.set(Word::Kind, self.word(Word::Kind) & !0xffff | CANCELLED);
    }

    /// Adds to each time of the record what `by` returns for that time, in nanoseconds.
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

    /// The time at which the event happened or started.
    pub(crate) fn from(&self) -> u64 {
        self.word(Word::From)
    }

    /// The time at which the event ended; 0 for an instant, and if the event has not ended.
    pub(crate) fn until(&self) -> u64 {
        self.word(Word::Until)
    }

    /// The time at which the MPI call began that found the event ended; 0 if no call did.
    pub(crate) fn found_by(&self) -> u64 {
        self.word(Word::Detail)
    }

    /// The number of the thread that recorded the event (`thread`).
    pub(crate) fn thread(&self) -> u64 {
        self.word(Word::Kind) >> 32
    }

    /// The number of the thread that found the event ended, or of that which recorded it, if that is not
    /// known.
    pub(crate) fn last_thread(&self) -> u64 {
        match self.word(Word::NameBytes) >> 16 & 0xffff {
            0 => self.thread(),
            thread => thread,
        }
    }

    /// Decodes the event. None if the bytes are no record.
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

/// Reads the records in a process's part of a trace, up to the first that was not written.
pub fn decode(bytes: &[u8]) -> Vec<TraceRecord> {
    let records =
        bytes.chunks_exact(RECORD_BYTES).map(|one| TraceRecord(one.try_into().expect("of this length")));
    records.take_while(|record| record.word(Word::Kind) != 0).collect()
}

/// A process of a trace, which is one group of lines in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessName {
    /// A rank of MPI_COMM_WORLD.
    Rank(u32),
    /// A proxy.
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

/// The events that one process has recorded.
pub struct TracedProcess {
    /// The process that made the records.
    pub who: ProcessName,
    /// The number of the clock that the process reads; processes of one host read the same.
    pub clock: u32,
    /// The records, in the order in which they were made.
    pub records: Vec<TraceRecord>,
}

/// A small number for this thread: 1 for the first that recorded an event, and so on.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.try_with(|mine| *mine).unwrap_or(0)
}
