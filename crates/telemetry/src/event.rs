// SPDX-License-Identifier: BSD-3-Clause
//! Timed events, in a mapped file while OUTBOARD_TRACE is set: they outlive the process however it ends.
//!
//! An instant is an `event`; a duration is `let begun = begin(); ...; end(begun, Event::..)`. What may never
//! end, an MPI call or an operation, is opened and closed, so its record exists from its beginning. Without
//! tracing, `begin` returns 0 after one load, and `end` ignores it. With tracing, a lock guards the records.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock::now;
use sys::memory::Map;

use crate::record::{Event, NAME_BYTES, RECORD_BYTES, Record, Who, Word, decode};
use crate::{Choice, Counter, chrome, count};

/// How much the file grows at a time.
const CHUNK_BYTES: u64 = 1 << 20;

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

/// Whose part a file is by its name, also if it has been removed since a process opened it.
pub fn whose(part: &Path) -> Option<Who> {
    let name = part.to_str()?;
    let mut words = name.strip_suffix(" (deleted)").unwrap_or(name).strip_suffix(".part")?.rsplit('.');
    let (kind, number) = words.next()?.split_once('-')?;
    let number = number.parse().ok()?;
    match kind {
        "rank" => Some(Who::Rank(number)),
        "proxy" => Some(Who::Proxy(number)),
        _ => None,
    }
}

/// Keeps events from now on, at most `capacity`, for `file`: in a part of it, or, if `alone`, for the whole.
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

/// Keeps a text that may be longer than a record's name, in parts.
pub(crate) fn tell<'a>(number: u32, mut text: &'a str, event: impl Fn(u32, &'a str) -> Event<'a>) {
    while !text.is_empty() {
        let end = (1..=NAME_BYTES.min(text.len())).rfind(|&at| text.is_char_boundary(at));
        let (part, rest) = text.split_at(end.unwrap_or(text.len()));
        keep(&event(number, part), now(), 0);
        text = rest;
    }
}

/// Says how an open operation was carried out.
pub(crate) fn carried(record: Option<usize>, choice: Choice, algorithm: &'static str) {
    if let Some(record) = record {
        event(Event::Carried { operation: record as u32, choice, algorithm });
    }
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

/// Ends tracing. A process alone writes the file that was given to [`trace`]. Does nothing without tracing.
pub(crate) fn write() -> std::io::Result<()> {
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

/// Of tests that trace or could be traced: there is one trace in a process.
#[cfg(test)]
pub(crate) static TRACED: Mutex<()> = Mutex::new(());

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
        for who in [Who::Rank(3), Who::Proxy(12)] {
            assert_eq!(whose(&part(&file, who)), Some(who));
        }
        assert_eq!(whose(Path::new("/tmp/a.json.rank-3.part (deleted)")), Some(Who::Rank(3)));
        assert_eq!(whose(Path::new("/tmp/a.json")), None);
        write().unwrap();
        std::fs::remove_file(&file).unwrap();

        trace(Who::Rank(3), &file, false, 3).unwrap();
        let lost = crate::value(Counter::EventsLost);
        let begun = begin();
        event(Event::HandOver { proxy: 0, context: 7, sequence: 1 });
        let name = "MPI_Ibarrier on MPI_COMM_WORLD";
        let operation = {
            let event = Event::Operation { name, number: 4, context: 0, sequence: 0, bytes: 0, site: 9 };
            open(event, begun)
        };
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
        let named = Event::Operation { name, number: 4, context: 7, sequence: 1, bytes: 0, site: 9 };
        assert_eq!(events[1], (named, begun + 5));
        assert_eq!(events[2], (Event::Call { function: "MPI_Recv" }, 0));
        assert_eq!(events.len(), 3);
        write().unwrap();
        assert!(!tracing() && !file.exists());
    }
}
