// SPDX-License-Identifier: BSD-3-Clause
//! Operations (collectives and messages), from start to completion, and the time that the rank spends in MPI
//! meanwhile. The rank's page in shared memory has a row of sums for each function and comm. The page
//! survives the rank. Active only if OUTBOARD_STATS or OUTBOARD_TRACE is set.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sys::clock::now;

use crate::record::{Event, Needs, TracedMessage, thread};
use crate::{Choice, event, site};

/// The number of rows in a rank's `Operations`. Once all rows are in use, the last row counts all further
/// functions and comms.
const ROWS: usize = 48;
/// The number of 64-bit words that hold the name of an `OperationRow`.
const NAME_WORDS: usize = 9;

/// The sums in an `OperationRow`. Each sum adds up the operations of one function on one comm.
#[derive(Clone, Copy, Debug)]
pub enum Sum {
    /// The number of operations (collectives and messages) that have started.
    Calls,
    /// How many of the started operations are messages. One rank alone starts a message; all ranks of a comm
    /// start a collective.
    Messages,
    /// How many of the started operations have completed.
    Over,
    /// The bytes of the operations' buffers: for each operation, the length of the rank's send buffer or
    /// receive buffer, whichever is longer.
    Bytes,
    /// The time that the rank spent in MPI calls that started, tested or completed the operations, in
    /// nanoseconds.
    HostNs,
    /// How many of the completed operations a proxy carried out.
    Carried,
    /// The bytes that proxies moved for the operations that `Carried` counts.
    CarriedBytes,
    /// The time from start to completion of the operations that `Carried` counts, in nanoseconds.
    CarriedNs,
    /// How much of the time in `CarriedNs` the rank spent outside MPI, in nanoseconds.
    BesideNs,
    /// The processor time that proxies spent on the operations that `Carried` counts, in nanoseconds.
    ProxyCpuNs,
}

impl Sum {
    /// All sums, in the order of their words in a row.
    pub const ALL: &[Sum] = &[
        Sum::Calls,
        Sum::Messages,
        Sum::Over,
        Sum::Bytes,
        Sum::HostNs,
        Sum::Carried,
        Sum::CarriedBytes,
        Sum::CarriedNs,
        Sum::BesideNs,
        Sum::ProxyCpuNs,
    ];
}

const SUMS: usize = Sum::ALL.len();

/// A row of sums over the operations (collectives and messages) of one function on one comm.
#[repr(C)]
#[derive(Debug)]
pub struct OperationRow {
    /// How many bytes of `name` are used. It is 0 while the row is free.
    name_bytes: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    sums: [AtomicU64; SUMS],
}

/// The rows of sums of one rank, in a page of shared memory that only this rank writes. A page of zeros has
/// no rows.
#[repr(C)]
#[derive(Debug)]
pub struct Operations {
    rows: [OperationRow; ROWS],
}

impl OperationRow {
    const fn free() -> OperationRow {
        OperationRow {
            name_bytes: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; NAME_WORDS],
            sums: [const { AtomicU64::new(0) }; SUMS],
        }
    }

    /// Returns the value of a sum. Any process may read it at any time.
    pub fn sum(&self, sum: Sum) -> u64 {
        self.sums[sum as usize].load(Ordering::Relaxed)
    }

    /// Adds `n` to a sum. Only the rank that owns the page may call this.
    pub fn add(&self, sum: Sum, n: u64) {
        let word = &self.sums[sum as usize];
        word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Returns the function and comm whose operations the row adds up, as one text, or None if the row is
    /// free.
    pub fn name(&self) -> Option<String> {
        let length = (self.name_bytes.load(Ordering::Acquire) as usize).min(8 * NAME_WORDS);
        let bytes: Vec<u8> =
            self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        (length > 0).then(|| String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn set_name(&self, name: &str) {
        let mut bytes = [0; 8 * NAME_WORDS];
        let length = name.len().min(bytes.len());
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        for (word, bytes) in self.name.iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
        self.name_bytes.store(length as u64, Ordering::Release);
    }
}

impl Operations {
    /// Makes a page without rows.
    pub const fn new() -> Operations {
        Operations { rows: [const { OperationRow::free() }; ROWS] }
    }

    /// Returns the rows in use, each with its name.
    pub fn rows(&self) -> impl Iterator<Item = (String, &OperationRow)> {
        self.rows.iter().map_while(|row| Some((row.name()?, row)))
    }

    /// Takes a free row for the function and comm `name`, or the last row if none is free. Returns the row's
    /// index.
    pub fn enter(&self, name: &str) -> usize {
        let free = self.rows.iter().position(|row| row.name_bytes.load(Ordering::Relaxed) == 0);
        let at = free.unwrap_or(ROWS - 1);
        if at < ROWS - 1 {
            self.rows[at].set_name(name);
        } else {
            self.rows[at].set_name("other operations");
        }
        at
    }

    /// Frees all rows of this page.
    pub fn clear(&self) {
        for row in &self.rows {
            row.name_bytes.store(0, Ordering::Relaxed);
            row.sums.iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
        }
    }
}

impl Default for Operations {
    fn default() -> Operations {
        Operations::new()
    }
}

static ATTACHED: OnceLock<&'static Operations> = OnceLock::new();
static TIMED: AtomicBool = AtomicBool::new(false);

/// Makes this process add its operations up in `page` from now on. Only the first call has an effect.
pub fn sum_up_in(page: &'static Operations) {
    let _ = ATTACHED.set(page);
}

/// Returns the rows of this process: the page that `sum_up_in` got, or before that call a private page.
pub fn operations() -> &'static Operations {
    static PRIVATE: Operations = Operations::new();
    ATTACHED.get().copied().unwrap_or(&PRIVATE)
}

/// Starts to time this process's MPI calls and operations.
pub fn time() {
    TIMED.store(true, Ordering::Relaxed);
}

/// Whether this process times its MPI calls and operations.
#[inline]
pub fn timed() -> bool {
    TIMED.load(Ordering::Relaxed)
}

/// Returns the word that is true while calls are timed. Other libraries in this process, such as
/// `liboshmem.so`, read it.
pub fn timed_word() -> &'static AtomicBool {
    &TIMED
}

/// The MPI calls of one thread: the calls in which it is now, and the time that its earlier calls took.
#[derive(Default)]
struct ThreadCalls {
    /// In how many MPI calls the thread is. There are more than one if MPI has called a function of the
    /// program that calls MPI.
    depth: Cell<u32>,
    /// The time, in nanoseconds, at which the outermost MPI call of this thread started.
    entered: Cell<u64>,
    /// The name of the outermost MPI function in which the thread is, or was last.
    function: Cell<&'static str>,
    /// The number of the place where the program called the outermost MPI function; 0 without tracing.
    site: Cell<u32>,
    /// The index of the record of the outermost MPI call in the trace. None without tracing.
    record: Cell<Option<usize>>,
    /// The time that this thread spent in earlier MPI calls, in nanoseconds.
    in_mpi: Cell<u64>,
}

thread_local!(static HOST: ThreadCalls = const {
    ThreadCalls {
        depth: Cell::new(0),
        entered: Cell::new(0),
        function: Cell::new(""),
        site: Cell::new(0),
        record: Cell::new(None),
        in_mpi: Cell::new(0),
    }
});

/// Notes that an MPI call starts. Returns the time now in nanoseconds, or 0 if calls are not timed.
#[inline]
pub fn enter(function: &'static str) -> u64 {
    if timed() { entered(function) } else { 0 }
}

/// Notes that an OpenSHMEM call starts that moves bytes to or from a PE. Returns the time now in nanoseconds,
/// or 0 if calls are not timed.
pub fn enter_access(function: &'static str, pe: u32, bytes: u64) -> u64 {
    if timed() { entered_as(function, |site| Event::Access { function, site, pe, bytes }) } else { 0 }
}

/// Notes that a call ends. `started` is what `enter` or `enter_access` returned for it.
#[inline]
pub fn leave(started: u64) {
    if started != 0 {
        left(started);
    }
}

#[cold]
fn entered(function: &'static str) -> u64 {
    entered_as(function, |site| Event::Call { function, site })
}

/// Notes the start of a call and returns the time in nanoseconds. Only the outermost call of a thread gets a
/// record; a call within a call counts as part of it.
#[cold]
fn entered_as(function: &'static str, event: impl FnOnce(u32) -> Event<'static>) -> u64 {
    let started = now();
    HOST.with(|host| {
        if host.depth.replace(host.depth.get() + 1) == 0 {
            let site = if event::tracing() { site::caller() } else { 0 };
            host.entered.set(started);
            host.function.set(function);
            host.site.set(site);
            host.record.set(event::open(event(site), started));
        }
    });
    started
}

/// Returns the name of the MPI function in which this thread is, or was last.
pub fn function() -> &'static str {
    HOST.with(|host| host.function.get())
}

#[cold]
fn left(started: u64) {
    let now = now();
    HOST.with(|host| {
        host.depth.set(host.depth.get().saturating_sub(1));
        if host.depth.get() == 0 {
            host.in_mpi.set(host.in_mpi.get() + now - started);
            event::close(host.record.take(), now);
        }
    });
}

/// Ends the record of the MPI call in which this thread is. Called before the trace is written.
pub(crate) fn close_call() {
    HOST.with(|host| event::close(host.record.take(), now()));
}

/// Opens the record of an epoch of a window (`Event::Epoch`) that began at `from`. The record names the place
/// of this thread's MPI call. Returns the record's index, or None without tracing.
#[cold]
pub fn open_epoch(from: u64, name: &str, context: u64, peer: u32, lock: &'static str) -> Option<usize> {
    let site = HOST.with(|host| host.site.get());
    event::open(Event::Epoch { name, context, peer, lock, site }, from)
}

/// How an operation (collective or message) was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The context of the operation's instance (its started schedule). Proxies know the instance by `context`
    /// and `sequence`.
    pub context: u64,
    /// The number of the operation's instance in its context. It is 0 if the operation has no instance.
    pub sequence: u32,
    /// Who carries the operation out (proxy, rank, device or library), and why.
    pub choice: Choice,
    /// The name of the algorithm; empty if the operation has no algorithm.
    pub algorithm: &'static str,
    /// How many bytes were moved for the operation, or 0 if that is not known.
    pub bytes: u64,
    /// The time, in nanoseconds, at which the operation completed, or 0 if that is not known.
    pub completed: u64,
    /// The processor time that the proxy spent on the operation, in nanoseconds.
    pub cpu_ns: u64,
}

/// An operation (collective or message) in progress. It exists only while the rank's calls are timed.
#[derive(Debug)]
pub struct TimedOperation {
    row: usize,
    record: Option<usize>,
    thread: u64,
    /// The time, in nanoseconds, at which the MPI call that started the operation began.
    started: u64,
    /// The time that the thread had spent in MPI before the call that started the operation, in nanoseconds.
    in_mpi: u64,
    /// The time, in nanoseconds, that MPI calls before the latest one (`call`) worked on the operation. Each
    /// call counts from its start until it last progressed the operation.
    host: u64,
    /// The time, in nanoseconds, at which the latest MPI call that has progressed the operation began.
    call: u64,
    /// How long the latest MPI call that progressed the operation had run when it last did so, in
    /// nanoseconds.
    looked: u64,
    carried: Carried,
}

impl TimedOperation {
    /// Starts to time a collective: call `number` (counted from 1) of the function in `name`, on the comm
    /// with `context`. Its times go into row `row`. If it has an instance, `note_carried` adds the instance's
    /// number later.
    pub fn start(
        row: usize,
        (name, context, number): (&str, u64, u32),
        bytes: u64,
        needs: Needs,
    ) -> TimedOperation {
        let event = |site| Event::Operation { name, number, context, sequence: 0, bytes, site, needs };
        TimedOperation::open(row, bytes, event)
    }

    /// Starts to time a message that this thread's MPI call sends or receives. Its times go into row `row`.
    pub fn message(row: usize, message: TracedMessage) -> TimedOperation {
        operations().rows[row].add(Sum::Messages, 1);
        TimedOperation::open(row, message.bytes, |site| Event::Message(TracedMessage { site, ..message }))
    }

    fn open<'a>(row: usize, bytes: u64, event: impl FnOnce(u32) -> Event<'a>) -> TimedOperation {
        let (started, in_mpi, site) =
            HOST.with(|host| (host.entered.get(), host.in_mpi.get(), host.site.get()));
        let page = &operations().rows[row];
        page.add(Sum::Calls, 1);
        page.add(Sum::Bytes, bytes);
        let record = event::open(event(site), started);
        let (thread, carried) = (thread(), Carried::default());
        let mut operation = TimedOperation {
            row,
            record,
            thread,
            started,
            in_mpi,
            host: 0,
            call: started,
            looked: 0,
            carried,
        };
        operation.note_progress();
        operation
    }

    /// Notes that a message has completed, so that its peer, tag and length are known.
    #[cold]
    pub fn end_message(mut self, peer: u32, tag: i32, bytes: u64, carried: Carried) {
        self.carried = carried;
        self.note_progress();
        self.count();
        event::change(self.record, |record| {
            record.set_message(peer, tag, bytes, carried.choice);
            record.end(self.call + self.looked, self.call);
        });
    }

    /// Notes that a message was cancelled.
    #[cold]
    pub fn cancelled(self) {
        operations().rows[self.row].add(Sum::Over, 1);
        event::change(self.record, |record| {
            record.cancel();
            record.end(now(), self.call);
        });
    }

    /// Notes how the operation is carried out, once that is known. `carried` is None while the operation
    /// waits in a queue.
    #[cold]
    pub fn note_carried(&mut self, carried: Option<Carried>) {
        if let Some(carried) = carried {
            if carried.sequence != 0 {
                event::identify(self.record, carried.context, carried.sequence);
            }
            self.carried = carried;
        }
    }

    /// Notes that the present MPI call of this thread progresses the operation.
    #[cold]
    pub fn note_progress(&mut self) {
        let entered = HOST.with(|host| host.entered.get());
        if entered != self.call {
            self.host += self.looked;
            self.call = entered;
        }
        self.looked = now().saturating_sub(entered);
    }

    /// Records that the operation has completed. The MPI call in which this thread is has found that out.
    #[cold]
    pub fn end(mut self) {
        self.note_progress();
        event::carried(self.record, self.carried.choice, self.carried.algorithm);
        let completed = self.count();
        event::change(self.record, |record| record.end(completed, self.call));
    }

    /// Adds this operation to the sums of its row. Returns the time at which the operation completed.
    fn count(&self) -> u64 {
        let (host, carried) = (self.host + self.looked, self.carried);
        let (entered, in_mpi) = HOST.with(|host| (host.entered.get(), host.in_mpi.get()));
        let completed = if carried.completed > self.started { carried.completed } else { now() };
        let row = &operations().rows[self.row];
        row.add(Sum::Over, 1);
        row.add(Sum::HostNs, host);
        if carried.choice.is_proxy() {
            let lasted = completed - self.started;
            // Calls between its completion and this one count as before it, so that the figure is never too
            // high. What another thread did before is not known here.
            let inside = match self.thread == thread() {
                true => in_mpi - self.in_mpi + completed.saturating_sub(entered),
                false => host,
            };
            row.add(Sum::Carried, 1);
            row.add(Sum::CarriedBytes, carried.bytes);
            row.add(Sum::CarriedNs, lasted);
            row.add(Sum::BesideNs, lasted.saturating_sub(inside));
            row.add(Sum::ProxyCpuNs, carried.cpu_ns);
        }
        completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(ns: u64) {
        let started = now();
        while now() - started < ns {}
    }

    #[test]
    fn what_is_beside_computation_is_what_lies_between_calls() {
        let _one = event::TRACED.lock().unwrap();
        assert_eq!(enter("MPI_Test"), 0);
        time();
        let row = operations().enter("MPI_Ialltoall on MPI_COMM_WORLD");
        let started = now();
        let start = enter("MPI_Ialltoall");
        pass(1_000_000);
        let mut operation = TimedOperation::start(row, ("", 7, 1), 100, Needs::Unknown);
        leave(start);
        let mut in_calls = now() - started;
        pass(3_000_000);
        let completed = now();
        pass(1_000_000);
        let started = now();
        let test = enter("MPI_Test");
        pass(1_000_000);
        operation.note_progress();
        leave(test);
        in_calls += now() - started;
        let wait = enter("MPI_Wait");
        let carried =
            Carried { choice: Choice::ProxyLong, bytes: 7, completed, cpu_ns: 5, ..Carried::default() };
        operation.note_carried(Some(carried));
        operation.end();
        leave(wait);
        let row = &operations().rows[row];
        let ms = |sum| row.sum(sum) as f64 / 1e6;
        assert_eq!(
            [Sum::Calls, Sum::Over, Sum::Bytes, Sum::CarriedBytes].map(|sum| row.sum(sum)),
            [1, 1, 100, 7]
        );
        // One ms is in the start and three are beside; the test comes after completion and may count as
        // before it.
        assert!(ms(Sum::CarriedNs) >= 4.0 && ms(Sum::HostNs) >= 2.0, "{row:?}");
        // The lower bound is not 2 ms: a thread that loses its core in a call has less time outside.
        let beside = ms(Sum::CarriedNs) - in_calls as f64 / 1e6..=ms(Sum::CarriedNs) - 1.0;
        assert!(beside.contains(&ms(Sum::BesideNs)), "{row:?}");
    }

    #[test]
    fn a_page_with_more_operations_than_rows() {
        let page = Operations::new();
        let rows: Vec<usize> =
            (0..ROWS + 5).map(|number| page.enter(&format!("{number} {}", "é".repeat(50)))).collect();
        assert_eq!((rows[0], rows[ROWS - 2], rows[ROWS + 4]), (0, ROWS - 2, ROWS - 1));
        let names: Vec<String> = page.rows().map(|(name, _)| name).collect();
        assert!(names[0].starts_with("0 éé") && names[ROWS - 1] == "other operations", "{names:?}");
        page.clear();
        assert_eq!(page.rows().count(), 0);
    }
}
