// SPDX-License-Identifier: BSD-3-Clause
//! Memos: what a fast path has looked up for the arguments of the latest calls. The next call often has the
//! same arguments.

use super::Process;
use datatype::{Basic, PredefinedOp};
use objects::Handle;

/// The key under which a fast path stores what it has looked up: the arguments of a call, except its buffers.
/// The result of the look-up depends on these only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoKey<W> {
    pub count: i64,
    pub datatype: Handle,
    /// For a message, the other process's rank in the comm. For an MPI_Allreduce, the operator.
    pub with: W,
    pub comm: Handle,
    /// The value of `Process::removals` at the time of the look-up. A different value now means that an
    /// object has been freed since, so that its handle may name another object.
    pub removals: u64,
}

/// A table of what a fast path has looked up. It has `PLACES` entries, each with the latest key and its
/// result.
pub(crate) struct Memo<W, F, const PLACES: usize>([(MemoKey<W>, F); PLACES]);

impl<W: Copy + Eq, F: Copy, const PLACES: usize> Memo<W, F, PLACES> {
    /// Makes a table without results. All its keys have the handle 0 as the comm, which no comm has.
    pub const fn new(with: W, found: F) -> Memo<W, F, PLACES> {
        let key = MemoKey { count: 0, datatype: Handle(0), with, comm: Handle(0), removals: 0 };
        Memo([(key, found); PLACES])
    }

    /// Returns what a fast path has stored for a key, or None if the entry at `place` has another key.
    #[inline(always)]
    pub fn get(&self, place: usize, key: &MemoKey<W>) -> Option<F> {
        let (known, found) = &self.0[place % PLACES];
        (known == key).then_some(*found)
    }

    /// Stores `found`, what a fast path has looked up for a key, in the entry at `place`.
    #[inline(always)]
    pub fn set(&mut self, place: usize, key: MemoKey<W>, found: F) {
        self.0[place % PLACES] = (key, found);
    }
}

/// What the fast path of messages has looked up, in 8 entries. The other process's rank in the comm decides
/// which entry is used.
pub(crate) type MessageMemo = Memo<i32, FoundMessage, 8>;

/// What the fast path has looked up for a message: the comm's context id, the other process, and how many
/// bytes the message has.
#[derive(Clone, Copy)]
pub(crate) struct FoundMessage {
    pub context: u64,
    pub peer: u32,
    pub bytes: usize,
}

/// What the fast path of MPI_Allreduce has looked up, in one entry for the latest arguments.
pub(crate) type AllreduceMemo = Memo<Handle, FoundAllreduce, 1>;

/// What the fast path has looked up for an MPI_Allreduce: the comm's set of slots (shared memory of the
/// members), the operator with its type, and how many bytes the vector has.
#[derive(Clone, Copy)]
pub(crate) struct FoundAllreduce {
    pub set: usize,
    pub operator: (PredefinedOp, Basic),
    pub bytes: usize,
}

impl Process {
    /// Returns how many comms and datatypes this process has freed so far.
    #[inline(always)]
    pub(crate) fn removals(&self) -> u64 {
        self.objects.comms.removals() + self.objects.datatypes.removals()
    }
}
