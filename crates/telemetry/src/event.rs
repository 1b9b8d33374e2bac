//! Timed facts, kept in memory while OUTBOARD_TRACE is set and written when the process ends.
//!
//! A fact without duration is an `event`; one with is `let begun = begin(); ...; end(begun, Event::..)`. Where tracing is
//! off, `begin` returns 0 after one load and `end` does nothing with that. While tracing, a short lock guards the buffer:
//! a trace is asked for by name, and its cost is known.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock::now;

use crate::{Counter, chrome, count};

/// What happened. Peers are ranks of MPI_COMM_WORLD; `context` and `sequence` name an operation on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The fields are what they are called.
pub enum Event {
    /// An MPI call, from its entry to its return.
    Call { function: &'static str },
    /// A wait inside an MPI call: the wait loop with nothing to move.
    Wait,
    /// A sleep on the doorbell.
    Sleep,
    /// A message left.
    Send { to: u32, tag: i32, bytes: u64, route: &'static str },
    /// A message was matched.
    Recv { from: u32, tag: i32, bytes: u64, route: &'static str },
    /// A long message moved.
    Transfer { peer: u32, bytes: u64, how: &'static str },
    /// A collective, from its start to its end, whoever executed it.
    Collective { name: &'static str, context: u64, sequence: u32, bytes: u64 },
    /// One piece of a schedule step was carried out.
    Step { kind: &'static str, peer: u32, context: u64, sequence: u32, bytes: u64 },
    /// An instance was given to a proxy.
    HandOver { proxy: u32, context: u64, sequence: u32 },
    /// An instance was taken back from a proxy that died or stalled.
    Recover { proxy: u32, context: u64, sequence: u32 },
}

/// An event with its times, in ns of the machine's monotonic clock; `until` is 0 for one without duration.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub(crate) event: Event,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) thread: u64,
}

/// Whose events these are: one line group of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A rank of MPI_COMM_WORLD.
    Rank(u32),
    /// A proxy.
    Proxy(u32),
}

struct Trace {
    who: Who,
    file: PathBuf,
    capacity: usize,
    records: Vec<Record>,
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

/// Keeps events from now on, at most `capacity`, for `file`.
pub fn trace(who: Who, file: &Path, capacity: usize) {
    let trace = Trace { who, file: file.to_path_buf(), capacity, records: Vec::new() };
    *lock() = Some(trace);
    TRACING.store(true, Ordering::Relaxed);
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
        keep(event, begun, now());
    }
}

/// Keeps an event that has no duration.
#[inline]
pub fn event(event: Event) {
    if tracing() {
        keep(event, now(), 0);
    }
}

#[cold]
fn keep(event: Event, from: u64, until: u64) {
    let thread = thread();
    let mut trace = lock();
    let Some(trace) = trace.as_mut() else { return };
    if trace.records.len() < trace.capacity {
        trace.records.push(Record { event, from, until, thread });
    } else {
        count(Counter::EventsLost, 1);
    }
}

/// Ends tracing and writes the file that was given to [`trace`]; nothing where tracing is off. The process's last word:
/// called at finalize, or when a proxy ends.
pub fn write() -> std::io::Result<()> {
    TRACING.store(false, Ordering::Relaxed);
    match lock().take() {
        Some(trace) => std::fs::write(&trace.file, chrome::file(&chrome::records(trace.who, &trace.records))),
        None => Ok(()),
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Trace>> {
    // The buffer is a plain list, valid after any panic of another holder.
    TRACE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A small number for this thread: 1 for the first that kept an event, and so on.
fn thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.try_with(|mine| *mine).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_only_while_tracing_and_only_so_many() {
        assert_eq!(begin(), 0);
        event(Event::Wait);
        let file = std::env::temp_dir().join(format!("outboard-telemetry-{}.json", std::process::id()));
        trace(Who::Rank(3), &file, 2);
        let lost = crate::value(Counter::EventsLost);
        let begun = begin();
        event(Event::HandOver { proxy: 0, context: 7, sequence: 1 });
        end(begun, Event::Call { function: "MPI_Send" });
        event(Event::Wait);
        assert_eq!(crate::value(Counter::EventsLost), lost + 1);
        write().unwrap();
        assert!(!tracing());
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        let names: Vec<_> =
            value["traceEvents"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["process_name", "process_sort_index", "hand-over", "MPI_Send"]);
    }
}
