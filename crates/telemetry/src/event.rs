//! Timed facts, kept in a mapped file while OUTBOARD_TRACE is set, so that they outlive the process however it ends.
//!
//! A fact without duration is an `event`; one with is `let begun = begin(); ...; end(begun, Event::..)`. What may never end, an MPI
//! call or an operation, is opened and closed: its record is there from its beginning. Where tracing is off, `begin` returns 0 after
//! one load and `end` does nothing with that. While tracing, a short lock guards the records: a trace is asked for by name,
//! and its cost is known.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock::now;
use sys::memory::Map;

use crate::{Counter, chrome, count};

/// What happened. Peers are ranks of MPI_COMM_WORLD; `context` and `sequence` name an operation on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are what they are called.
pub enum Event<'a> {
    /// An MPI call, from its entry to its return.
    Call { function: &'a str },
    /// A wait inside an MPI call: the wait loop with nothing to move.
    Wait,
    /// A collective, from its start to its completion, whoever carried it out: `name` is its function and comm, `number` counts the
    /// calls of that function on that comm.
    Operation { name: &'a str, number: u32, context: u64, sequence: u32, bytes: u64 },
    /// One piece of a schedule step was carried out.
    Step { kind: &'a str, peer: u32, context: u64, sequence: u32, bytes: u64 },
    /// An instance was given to a proxy.
    HandOver { proxy: u32, context: u64, sequence: u32 },
    /// An instance was taken back from a proxy that died or stalled.
    Recover { proxy: u32, context: u64, sequence: u32 },
}

/// Bytes of a name that a record keeps.
const NAME_BYTES: usize = 64;
/// Bytes of a record: seven words and a name.
const RECORD_BYTES: usize = 7 * 8 + NAME_BYTES;
/// How much the file grows at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// An event with its times, in ns of the machine's monotonic clock; `until` is 0 for one without duration, and for one that has not ended.
#[derive(Clone, Copy)]
pub struct Record([u8; RECORD_BYTES]);

/// The words of a record, by index. The first is 0 where there is none yet, or no name.
enum Word {
    /// 1 and the event's place in the enumeration; the thread in the high half.
    Kind = 0,
    From = 1,
    Until = 2,
    Context = 3,
    Bytes = 4,
    /// The sequence; the peer, proxy or number in the high half.
    Sequence = 5,
    NameBytes = 6,
}

impl Record {
    fn new(event: &Event, from: u64, until: u64) -> Record {
        let both = |sequence: u32, other: u32| u64::from(sequence) | u64::from(other) << 32;
        let (kind, context, bytes, sequence, name) = match *event {
            Event::Call { function } => (1, 0, 0, 0, function),
            Event::Wait => (2, 0, 0, 0, ""),
            Event::Operation { name, number, context, sequence, bytes } => {
                (3, context, bytes, both(sequence, number), name)
            }
            Event::Step { kind, peer, context, sequence, bytes } => {
                (4, context, bytes, both(sequence, peer), kind)
            }
            Event::HandOver { proxy, context, sequence } => (5, context, 0, both(sequence, proxy), ""),
            Event::Recover { proxy, context, sequence } => (6, context, 0, both(sequence, proxy), ""),
        };
        let mut name_bytes = name.len().min(NAME_BYTES);
        while !name.is_char_boundary(name_bytes) {
            name_bytes -= 1;
        }
        let mut record = Record([0; RECORD_BYTES]);
        let words = [kind | thread() << 32, from, until, context, bytes, sequence, name_bytes as u64];
        for (index, word) in words.into_iter().enumerate() {
            record.0[8 * index..8 * index + 8].copy_from_slice(&word.to_ne_bytes());
        }
        record.0[56..56 + name_bytes].copy_from_slice(&name.as_bytes()[..name_bytes]);
        record
    }

    fn word(&self, word: Word) -> u64 {
        let at = 8 * word as usize;
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
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
        let end = self.word(Word::NameBytes).min(NAME_BYTES as u64) as usize;
        let name = std::str::from_utf8(&self.0[56..56 + end]).ok()?;
        Some(match self.word(Word::Kind) as u32 {
            1 => Event::Call { function: name },
            2 => Event::Wait,
            3 => Event::Operation { name, number: other, context, sequence, bytes },
            4 => Event::Step { kind: name, peer: other, context, sequence, bytes },
            5 => Event::HandOver { proxy: other, context, sequence },
            6 => Event::Recover { proxy: other, context, sequence },
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

struct Trace {
    who: Who,
    /// Where the whole trace goes, if nobody joins parts.
    whole: Option<PathBuf>,
    part: File,
    map: Map,
    used: usize,
    capacity: usize,
    /// How long the file is.
    bytes: u64,
}

static TRACING: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// Whether events are kept.
#[inline]
pub fn tracing() -> bool {
    TRACING.load(Ordering::Relaxed)
}

/// Where a member of a job writes its part of the trace `file`, for `mpirun` to merge.
pub fn part(file: &Path, who: Who) -> PathBuf {
    let mut path = file.as_os_str().to_os_string();
    path.push(match who {
        Who::Rank(rank) => format!(".rank-{rank}.part"),
        Who::Proxy(proxy) => format!(".proxy-{proxy}.part"),
    });
    path.into()
}

/// Keeps events from now on, at most `capacity`, for `file`: in a part of it, or where this process is `alone`, to be written whole.
pub fn trace(who: Who, file: &Path, alone: bool, capacity: usize) -> std::io::Result<()> {
    let path = part(file, who);
    let part = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    if alone {
        // Nobody would look for it.
        std::fs::remove_file(&path)?;
    }
    let map = Map::shared(&part, 0, capacity * RECORD_BYTES)?;
    let whole = alone.then(|| file.to_path_buf());
    *lock() = Some(Trace { who, whole, part, map, used: 0, capacity, bytes: 0 });
    TRACING.store(true, Ordering::Relaxed);
    Ok(())
}

/// The time, for [`end`]; 0 where tracing is off.
#[inline]
pub fn begin() -> u64 {
    if tracing() { now() } else { 0 }
}

/// Keeps an event that lasted from `begun` until now.
#[inline]
pub fn end(begun: u64, event: Event) {
    if begun != 0 {
        keep(&event, begun, now());
    }
}

/// Keeps an event that has no duration.
#[inline]
pub fn event(event: Event) {
    if tracing() {
        keep(&event, now(), 0);
    }
}

/// Keeps an event that has begun, for [`close`]; nothing where tracing is off, or there is no room.
pub fn open(event: Event, begun: u64) -> Option<usize> {
    if tracing() { keep(&event, begun, 0) } else { None }
}

/// An event that `open` has kept ended at `until`.
pub fn close(record: Option<usize>, until: u64) {
    rewrite(record, Word::Until, |_| until);
}

/// Says by which number of its context peers and proxies know an open operation.
pub fn identify(record: Option<usize>, context: u64, sequence: u32) {
    rewrite(record, Word::Context, |_| context);
    rewrite(record, Word::Sequence, |word| word >> 32 << 32 | u64::from(sequence));
}

fn rewrite(record: Option<usize>, word: Word, change: impl FnOnce(u64) -> u64) {
    if let (Some(at), Some(trace)) = (record, lock().as_ref()) {
        let place = trace.map.span().slice(at * RECORD_BYTES + 8 * word as usize, 8);
        let mut bytes = [0; 8];
        place.read(&mut bytes);
        place.write(&change(u64::from_ne_bytes(bytes)).to_ne_bytes());
    }
}

#[cold]
fn keep(event: &Event, from: u64, until: u64) -> Option<usize> {
    let record = Record::new(event, from, until);
    let mut trace = lock();
    let at = trace.as_mut()?.push(&record);
    if at.is_none() {
        count(Counter::EventsLost, 1);
    }
    at
}

impl Trace {
    fn push(&mut self, record: &Record) -> Option<usize> {
        let end = (self.used + 1) * RECORD_BYTES;
        if end as u64 > self.bytes && self.used < self.capacity {
            let longer = (self.bytes + CHUNK_BYTES).min((self.capacity * RECORD_BYTES) as u64);
            match sys::file::allocate(&self.part, longer) {
                Ok(()) => self.bytes = longer,
                Err(_) => self.capacity = self.used,
            }
        }
        if self.used >= self.capacity {
            return None;
        }
        self.map.span().slice(end - RECORD_BYTES, RECORD_BYTES).write(&record.0);
        self.used += 1;
        Some(self.used - 1)
    }
}

/// Ends tracing; of a process alone, writes the file that was given to [`trace`]. Nothing where tracing is off. The process's last
/// word: called at finalize, when the job is ended, or when a proxy ends.
pub fn write() -> std::io::Result<()> {
    crate::operation::close_call();
    TRACING.store(false, Ordering::Relaxed);
    let Some(trace) = lock().take() else { return Ok(()) };
    let Some(whole) = trace.whole else { return Ok(()) };
    let mut bytes = vec![0; trace.used * RECORD_BYTES];
    trace.map.span().slice(0, bytes.len()).read(&mut bytes);
    std::fs::write(whole, chrome::file(&[(trace.who, decode(&bytes))]))
}

fn lock() -> std::sync::MutexGuard<'static, Option<Trace>> {
    // The buffer is a plain list, valid after any panic of another holder.
    TRACE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A small number for this thread: 1 for the first that kept an event, and so on.
pub(crate) fn thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.try_with(|mine| *mine).unwrap_or(0)
}

/// Of tests that trace or could be traced: there is one trace in a process.
#[cfg(test)]
pub(crate) static TRACED: Mutex<()> = Mutex::new(());

#[cfg(test)]
pub(crate) fn recorded(event: Event, from: u64, until: u64) -> Record {
    Record::new(&event, from, until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_only_while_tracing_and_only_so_many_however_the_process_ends() {
        let _one = TRACED.lock().unwrap();
        assert_eq!(begin(), 0);
        event(Event::Wait);
        let file = std::env::temp_dir().join(format!("outboard-telemetry-{}.json", std::process::id()));
        trace(Who::Rank(3), &file, true, 3).unwrap();
        assert!(!part(&file, Who::Rank(3)).exists(), "nobody would remove it");
        write().unwrap();
        std::fs::remove_file(&file).unwrap();

        trace(Who::Rank(3), &file, false, 3).unwrap();
        let lost = crate::value(Counter::EventsLost);
        let begun = begin();
        event(Event::HandOver { proxy: 0, context: 7, sequence: 1 });
        let name = "MPI_Ibarrier on MPI_COMM_WORLD";
        let operation = open(Event::Operation { name, number: 4, context: 0, sequence: 0, bytes: 0 }, begun);
        identify(operation, 7, 1);
        open(Event::Call { function: "MPI_Recv" }, begun);
        event(Event::Wait);
        assert_eq!(crate::value(Counter::EventsLost), lost + 1);
        close(operation, begun + 5);
        // What another process finds, whether this one says anything more or not.
        let part = part(&file, Who::Rank(3));
        let records = decode(&std::fs::read(&part).unwrap());
        std::fs::remove_file(&part).unwrap();
        let events: Vec<_> = records.iter().map(|record| (record.event().unwrap(), record.until())).collect();
        assert_eq!(events[0], (Event::HandOver { proxy: 0, context: 7, sequence: 1 }, 0));
        let named = Event::Operation { name, number: 4, context: 7, sequence: 1, bytes: 0 };
        assert_eq!(events[1], (named, begun + 5));
        assert_eq!(events[2], (Event::Call { function: "MPI_Recv" }, 0));
        assert_eq!(events.len(), 3);
        write().unwrap();
        assert!(!tracing() && !file.exists());
    }
}
