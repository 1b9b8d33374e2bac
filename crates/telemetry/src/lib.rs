// SPDX-License-Identifier: BSD-3-Clause
//! Counters that are always on, and events while tracing.
//!
//! A counter is a 64-bit word of the process's page in the job's segment (its shared memory), so `outboard
//! top` reads a running job without asking it. Only the process itself writes its page, under its lock, so
//! counting is a plain load and store. Without OUTBOARD_TRACE an event costs one branch. An operation costs
//! one branch unless OUTBOARD_TRACE or OUTBOARD_STATS is set.
//!
//! Read next: `counter.rs` (the table of counters), `page.rs`, `operation.rs`, `choice.rs`, `event.rs`,
//! `chrome.rs` (the file format), `arrow.rs`, `summary.rs`.
#![forbid(unsafe_code)]

mod arrow;
mod choice;
pub mod chrome;
mod counter;
pub mod event;
mod operation;
mod page;
mod record;
pub mod schema;
pub mod shmem;
mod site;
pub mod summary;

pub use choice::Choice;
pub use counter::{Counter, Unit};
pub use event::{close, end, event, event_at, start_time, tracing};
pub use operation::{
    Carried, OperationRow, Operations, Sum, TimedOperation, enter, enter_access, function, leave, open_epoch,
    operations, sum_up_in, time, timed, timed_word,
};
pub use page::{CounterPage, attach, count, page, set, value};
pub use record::{
    ANY_PEER, ANY_TAG, Event, Needs, ProcessName, TraceRecord, TracedMessage, TracedProcess, decode,
};

/// Ends tracing. A process that runs alone then writes the whole trace to the file that [`event::trace`] got.
/// Does nothing without tracing. It is a process's last call into tracing: at finalize, at the job's abort,
/// or at a proxy's end.
pub fn write_trace() -> std::io::Result<()> {
    operation::close_call();
    event::write()
}
