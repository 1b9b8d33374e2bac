// SPDX-License-Identifier: BSD-3-Clause
//! Timed events, recorded in a mapped file while OUTBOARD_TRACE is set. The records survive the process
//! however it ends.
//!
//! Code records an instant by `event`, and a duration by `let started = start_time(); ...; end(started,
//! Event::..)`. An MPI call or an operation may never end, so it is opened and closed: its record exists from
//! its start. Without tracing, `start_time` returns 0 after one load, and `end` ignores it. With tracing, a
//! lock guards the records.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock::now;
use sys::memory::Map;

use crate::record::{
    About, Event, NAME_BYTES, ProcessName, RECORD_BYTES, TraceRecord, TracedProcess, Word, decode, thread,
};
use crate::{Choice, Counter, chrome, count};

/// The number of bytes by which the mapped file grows when it is full.
const CHUNK_BYTES: u64 = 1 << 20;

struct Trace {
    who: ProcessName,
    /// The file of the whole trace, which `write` makes from this process's part if the process runs alone.
    /// None if `mpirun` joins the parts of several processes.
    whole: Option<PathBuf>,
    part: File,
    map: Map,
    used: usize,
    capacity: usize,
    /// The length of the mapped file, in bytes.
    bytes: u64,
}

static TRACING: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// Whether this process records events in a trace.
#[inline]
pub fn tracing() -> bool {
    TRACING.load(Ordering::Relaxed)
}

/// Returns the path of one process's part of the trace `file`. The process writes the part, and `mpirun`
/// joins the parts.
pub fn part(file: &Path, who: ProcessName) -> PathBuf {
    let mut path = file.as_os_str().to_os_string();
    path.push(match who {
        ProcessName::Rank(rank) => format!(".rank-{rank}.part"),
        ProcessName::Proxy(proxy) => format!(".proxy-{proxy}.part"),
    });
    path.into()
}

/// Returns which process has written the trace part `part`, by the file's name. The name may have the ending
/// that the kernel gives to an open file that is removed. Returns None for other names.
pub fn whose(part: &Path) -> Option<ProcessName> {
    let name = part.to_str()?;
    let mut words = name.strip_suffix(" (deleted)").unwrap_or(name).strip_suffix(".part")?.rsplit('.');
    let (kind, number) = words.next()?.split_once('-')?;
    let number = number.parse().ok()?;
    match kind {
        "rank" => Some(ProcessName::Rank(number)),
        "proxy" => Some(ProcessName::Proxy(number)),
        _ => None,
    }
}

/// Records events from now on, at most `capacity`, in this process's part of the trace `file`. With `alone`
/// the process runs without `mpirun`, and `write` makes the whole trace from the part.
pub fn trace(who: ProcessName, file: &Path, alone: bool, capacity: usize) -> std::io::Result<()> {
    let path = part(file, who);
    let part = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    if alone {
        // No other process looks for the part.
        std::fs::remove_file(&path)?;
    }
    let map = Map::shared(&part, 0, capacity * RECORD_BYTES)?;
    let whole = alone.then(|| file.to_path_buf());
    *lock() = Some(Trace { who, whole, part, map, used: 0, capacity, bytes: 0 });
    introduce();
    TRACING.store(true, Ordering::Relaxed);
    Ok(())
}

/// Records four facts about this process in the trace: its host, Outboard's version, the command line and the
/// process id.
fn introduce() {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let facts = [
        (About::Host, sys::host::name()),
        (About::Version, env!("CARGO_PKG_VERSION").into()),
        (About::Command, words.join(" ").trim_end().into()),
        (About::Pid, std::process::id().to_string()),
    ];
    for (what, text) in &facts {
        record_text(text, |text| Event::About { what: *what, text });
    }
}

/// Records the name of this thread in the trace.
#[cold]
fn introduce_thread() {
    let of_thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let name = match of_thread.file_name().and_then(|tid| tid.to_str()?.parse::<u32>().ok()) {
        Some(tid) if tid == std::process::id() => "main thread".into(),
        _ => std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default(),
    };
    record_text(name.trim(), |text| Event::Thread { number: thread() as u32, text });
}

/// Returns the time now in nanoseconds, to be passed to [`end`] as the start of an event. Returns 0 without
/// tracing.
#[inline]
pub fn start_time() -> u64 {
    if tracing() { now() } else { 0 }
}

/// Records in the trace an event that lasted from `started`, which [`start_time`] returned, until now.
#[inline]
pub fn end(started: u64, event: Event) {
    if started != 0 {
        keep(&event, started, now());
    }
}

/// Records in the trace an event that happens now and has no duration.
#[inline]
pub fn event(event: Event) {
    if tracing() {
        keep(&event, now(), 0);
    }
}

/// Records in the trace an event that happened at the time `at`, which [`start_time`] returned.
#[inline]
pub fn event_at(at: u64, event: Event) {
    if at != 0 {
        keep(&event, at, 0);
    }
}

/// Records an event that has started and will be ended by [`close`]. Returns the index of its record, or None
/// without tracing or if there is no room.
pub fn open(event: Event, started: u64) -> Option<usize> {
    if tracing() { keep(&event, started, 0) } else { None }
}

/// Notes that the event that [`open`] recorded ended at the time `until`, in nanoseconds.
pub fn close(record: Option<usize>, until: u64) {
    change(record, |record| record.set(Word::Until, until));
}

/// Adds to the record of an open operation the context and sequence by which peers and proxies know it.
pub fn identify(record: Option<usize>, context: u64, sequence: u32) {
    change(record, |record| {
        record.set(Word::Context, context);
        record.set(Word::Sequence, record.word(Word::Sequence) >> 32 << 32 | u64::from(sequence));
    });
}

/// Records a text in one or more records, because a record keeps at most `NAME_BYTES` of it.
pub(crate) fn record_text<'a>(mut text: &'a str, event: impl Fn(&'a str) -> Event<'a>) {
    while !text.is_empty() {
        let end = (1..=NAME_BYTES.min(text.len())).rfind(|&at| text.is_char_boundary(at));
        let (part, rest) = text.split_at(end.unwrap_or(text.len()));
        push(&event(part), now(), 0);
        text = rest;
    }
}

/// Records who carried an open operation out, why, and by which algorithm.
pub(crate) fn carried(record: Option<usize>, choice: Choice, algorithm: &'static str) {
    if let Some(record) = record {
        event(Event::Carried { operation: record as u32, choice, algorithm });
    }
}

/// Calls `change` with the record whose index [`open`] returned. Does nothing for None.
pub(crate) fn change(record: Option<usize>, change: impl FnOnce(&mut TraceRecord)) {
    if let (Some(at), Some(trace)) = (record, lock().as_ref()) {
        let place = trace.map.span().slice(at * RECORD_BYTES, RECORD_BYTES);
        let mut record = TraceRecord([0; RECORD_BYTES]);
        place.read(&mut record.0);
        change(&mut record);
        place.write(&record.0);
    }
}

#[cold]
fn keep(event: &Event, from: u64, until: u64) -> Option<usize> {
    thread_local!(static IS_INTRODUCED: Cell<bool> = const { Cell::new(false) });
    if IS_INTRODUCED.try_with(|it| it.replace(true)) == Ok(false) {
        introduce_thread();
    }
    push(event, from, until)
}

fn push(event: &Event, from: u64, until: u64) -> Option<usize> {
    let record = TraceRecord::new(event, from, until);
    let mut trace = lock();
    let at = trace.as_mut()?.push(&record);
    if at.is_none() {
        count(Counter::EventsLost, 1);
    }
    at
}

impl Trace {
    fn push(&mut self, record: &TraceRecord) -> Option<usize> {
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

/// Ends tracing. A process that runs alone then writes the whole trace to the file that [`trace`] got. Does
/// nothing without tracing.
pub(crate) fn write() -> std::io::Result<()> {
    TRACING.store(false, Ordering::Relaxed);
    let Some(trace) = lock().take() else { return Ok(()) };
    let Some(whole) = trace.whole else { return Ok(()) };
    let mut bytes = vec![0; trace.used * RECORD_BYTES];
    trace.map.span().slice(0, bytes.len()).read(&mut bytes);
    chrome::save(&whole, vec![TracedProcess { who: trace.who, clock: 0, records: decode(&bytes) }])
}

fn lock() -> std::sync::MutexGuard<'static, Option<Trace>> {
    // The buffer is a plain list, valid after any panic of another holder.
    TRACE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A lock for tests, because a process has only one trace. A test that traces, or whose calls could be traced
/// by another test, holds it.
#[cfg(test)]
pub(crate) static TRACED: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Needs;

    #[test]
    fn events_are_kept_only_while_tracing_and_only_so_many_however_the_process_ends() {
        let _one = TRACED.lock().unwrap();
        assert_eq!(start_time(), 0);
        event(Event::Wait);
        let file = std::env::temp_dir().join(format!("outboard-telemetry-{}.json", std::process::id()));
        trace(ProcessName::Rank(3), &file, true, 100).unwrap();
        assert!(!part(&file, ProcessName::Rank(3)).exists(), "nobody would remove it");
        for who in [ProcessName::Rank(3), ProcessName::Proxy(12)] {
            assert_eq!(whose(&part(&file, who)), Some(who));
        }
        assert_eq!(whose(Path::new("/tmp/a.json.rank-3.part (deleted)")), Some(ProcessName::Rank(3)));
        assert_eq!(whose(Path::new("/tmp/a.json")), None);
        event(Event::Wait);
        write().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let events = chrome::parse(&text).unwrap();
        chrome::check(&events).unwrap();
        let threads: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
        assert_eq!(threads.len(), 1, "{text}");
        std::fs::remove_file(&file).unwrap();

        // Records about the process itself come first.
        trace(ProcessName::Rank(3), &file, false, 100).unwrap();
        let facts = decode(&std::fs::read(part(&file, ProcessName::Rank(3))).unwrap()).len();
        assert!(facts >= 4, "{facts}");
        write().unwrap();
        trace(ProcessName::Rank(3), &file, false, facts + 3).unwrap();
        let lost = crate::value(Counter::EventsLost);
        let started = start_time();
        event(Event::Offload { proxy: 0, context: 7, sequence: 1 });
        let name = "MPI_Ibarrier on MPI_COMM_WORLD";
        let operation = {
            let needs = Needs::Root(7);
            let event =
                Event::Operation { name, number: 4, context: 0, sequence: 0, bytes: 0, site: 9, needs };
            open(event, started)
        };
        identify(operation, 7, 1);
        open(Event::Call { function: "MPI_Recv", site: 0 }, started);
        event(Event::Wait);
        assert_eq!(crate::value(Counter::EventsLost), lost + 1);
        close(operation, started + 5);
        // Another process finds these records, whether or not this one records more.
        let part = part(&file, ProcessName::Rank(3));
        let records = decode(&std::fs::read(&part).unwrap());
        std::fs::remove_file(&part).unwrap();
        let events = records[facts..].iter().map(|record| (record.event().unwrap(), record.until()));
        let events: Vec<_> = events.collect();
        assert_eq!(events[0], (Event::Offload { proxy: 0, context: 7, sequence: 1 }, 0));
        let needs = Needs::Root(7);
        let named = Event::Operation { name, number: 4, context: 7, sequence: 1, bytes: 0, site: 9, needs };
        assert_eq!(events[1], (named, started + 5));
        assert_eq!(events[2], (Event::Call { function: "MPI_Recv", site: 0 }, 0));
        assert_eq!(events.len(), 3);
        write().unwrap();
        assert!(!tracing() && !file.exists());
    }
}
