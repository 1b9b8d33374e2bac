// SPDX-License-Identifier: BSD-3-Clause
//! Writes the epochs of windows into the trace: how long each is open, and the signals between ranks in
//! MPI_Win_post, MPI_Win_start, MPI_Win_complete and MPI_Win_wait. This code runs only while tracing.

use super::Guard;
use error::Result;
use objects::Handle;
use telemetry::{ANY_PEER, Event};

/// The number of a record in the trace whose end is not known yet, or None if the trace had no room for it.
type OpenRecord = Option<usize>;

/// The epochs of a window that are open, and their records in the trace.
#[derive(Default)]
pub struct Epochs {
    /// The record, in the trace, of the open epoch that a fence, MPI_Win_start or MPI_Win_lock_all has
    /// opened.
    access: OpenRecord,
    /// The record, in the trace, of the open epoch that MPI_Win_post has opened.
    exposure: OpenRecord,
    /// The records, in the trace, of the open epochs that MPI_Win_lock has opened, each with the rank that is
    /// locked.
    locks: Vec<(i32, OpenRecord)>,
    /// The ranks in the group of the latest MPI_Win_start, until MPI_Win_complete.
    targets: Vec<usize>,
    /// The ranks in the group of the latest MPI_Win_post, until MPI_Win_wait.
    origins: Vec<usize>,
}

/// A call that opens or closes an epoch of a window.
#[derive(Clone, Copy)]
pub enum EpochChange<'a> {
    /// MPI_Win_fence. Holds whether the fence opens an epoch.
    Fence(bool),
    /// MPI_Win_post. Holds the ranks that it signals, and the `start_time` at which it began to signal them.
    Post(&'a [usize], u64),
    /// MPI_Win_start. Holds the target ranks, all of which have called MPI_Win_post.
    Start(&'a [usize]),
    /// MPI_Win_complete. Holds the `start_time` at which it began to signal the targets.
    Complete(u64),
    /// MPI_Win_wait or MPI_Win_test. All origins have called MPI_Win_complete.
    Wait,
    /// MPI_Win_lock. Holds the rank that it locks, and whether the lock is exclusive.
    Lock(i32, bool),
    LockAll,
    /// MPI_Win_unlock, before it releases the lock. Holds the rank that it unlocks.
    Unlock(i32),
    UnlockAll,
}

impl Guard {
    /// Records in the trace that the running call opens or closes an epoch of the window `win`.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_epoch(&mut self, win: Handle, turn: EpochChange) -> Result<()> {
        let (objects, job) = self.parts();
        let found = job.windows.get_mut(win)?;
        let comm = objects.comm(found.comm)?;
        let (context, peers) = (comm.context, &comm.group.peers);
        let window = if found.name.is_empty() { win.to_string() } else { found.name.clone() };
        let name = format!("{} on {window}", telemetry::function());
        let peer = |rank: usize| peers.get(rank).copied().unwrap_or(ANY_PEER);
        let now = sys::clock::now();
        let open = |peer: u32, lock: &'static str| telemetry::open_epoch(now, &name, context, peer, lock);
        let signal = |what: &str, ranks: &[usize], at: u64| {
            for rank in ranks {
                telemetry::event_at(at, Event::Signal { what, peer: peer(*rank), context });
            }
        };
        let close = |record: OpenRecord| telemetry::close(record, now);
        let epochs = found.epochs.get_or_insert_default();
        match turn {
            EpochChange::Fence(opens) => {
                close(epochs.access.take());
                epochs.access = if opens { open(ANY_PEER, "") } else { None };
            }
            EpochChange::Post(origins, at) => {
                signal("post", origins, at);
                (epochs.exposure, epochs.origins) = (open(ANY_PEER, ""), origins.to_vec());
            }
            EpochChange::Start(targets) => {
                signal("start", targets, now);
                close(epochs.access.take());
                (epochs.access, epochs.targets) = (open(ANY_PEER, ""), targets.to_vec());
            }
            EpochChange::Complete(at) => {
                signal("complete", &std::mem::take(&mut epochs.targets), at);
                close(epochs.access.take());
            }
            EpochChange::Wait => {
                signal("wait", &std::mem::take(&mut epochs.origins), now);
                close(epochs.exposure.take());
            }
            EpochChange::Lock(rank, exclusive) => {
                close(epochs.access.take());
                let lock = if exclusive { "exclusive" } else { "shared" };
                epochs.locks.push((rank, open(peer(rank as usize), lock)));
            }
            EpochChange::LockAll => {
                close(epochs.access.take());
                epochs.access = open(ANY_PEER, "shared");
            }
            EpochChange::Unlock(rank) => {
                if let Some(at) = epochs.locks.iter().position(|(locked, _)| *locked == rank) {
                    close(epochs.locks.swap_remove(at).1);
                }
            }
            EpochChange::UnlockAll => close(epochs.access.take()),
        }
        Ok(())
    }
}
