// SPDX-License-Identifier: BSD-3-Clause
//! The results of looking up the latest arguments on a fast path, since the next call often has the same
//! arguments.

use super::Process;
use datatype::{Basic, PredefinedOp};
use objects::Handle;

/// The arguments of a call on a fast path, except its buffers. What is looked up depends on nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoKey<W> {
    pub count: i64,
    pub datatype: Handle,
    /// For a message, the other process's rank in the comm. For an MPI_Allreduce, the operator.
    pub with: W,
    pub comm: Handle,
    /// The value of `Process::removals` when the arguments were looked up, since the handle of a freed object
    /// may be reused.
    pub removals: u64,
}

/// A table of what was looked up for the latest keys. It has `PLACES` entries, each with one key.
pub(crate) struct Memo<W, F, const PLACES: usize>([(MemoKey<W>, F); PLACES]);

impl<W: Copy + Eq, F: Copy, const PLACES: usize> Memo<W, F, PLACES> {
    /// Makes a memo that finds nothing: no comm has the handle 0, which all its keys have.
    pub const fn new(with: W, found: F) -> Memo<W, F, PLACES> {
        let key = MemoKey { count: 0, datatype: Handle(0), with, comm: Handle(0), removals: 0 };
        Memo([(key, found); PLACES])
    }

    /// Returns what was looked up for a key, or None if the entry at `place` holds another key.
    #[inline(always)]
    pub fn get(&self, place: usize, key: &MemoKey<W>) -> Option<F> {
        let (known, found) = &self.0[place % PLACES];
        (known == key).then_some(*found)
    }

    /// Stores what was looked up for a key. It replaces the entry at `place`.
    #[inline(always)]
    pub fn set(&mut self, place: usize, key: MemoKey<W>, found: F) {
        self.0[place % PLACES] = (key, found);
    }
}

/// The memo for messages of the fast path. The rank in the comm decides which entry is used.
pub(crate) type MessageMemo = Memo<i32, FoundMessage, 8>;

/// What was looked up for a message: the comm's context, the peer, and the message's bytes.
#[derive(Clone, Copy)]
pub(crate) struct FoundMessage {
    pub context: u64,
    pub peer: u32,
    pub bytes: usize,
}

/// The memo for MPI_Allreduce on the fast path. It holds only the latest arguments.
pub(crate) type AllreduceMemo = Memo<Handle, FoundAllreduce, 1>;

/// What was looked up for an MPI_Allreduce: the comm's slots, the operator with its type, and the vector's
/// bytes.
#[derive(Clone, Copy)]
pub(crate) struct FoundAllreduce {
    pub set: usize,
    pub operator: (PredefinedOp, Basic),
    pub bytes: usize,
}

impl Process {
    /// How many comms and datatypes have been freed.
    #[inline(always)]
    pub(crate) fn removals(&self) -> u64 {
        self.objects.comms.removals() + self.objects.datatypes.removals()
    }
}
