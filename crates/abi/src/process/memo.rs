// SPDX-License-Identifier: BSD-3-Clause
//! The results of looking up the latest arguments on a fast path, since the next call often has the same
//! arguments.

use super::Process;
use datatype::{Basic, PredefinedOp};
use objects::Handle;

/// The arguments of a call, without its buffers. They decide alone what is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoKey<W> {
    pub count: i64,
    pub datatype: Handle,
    /// A rank, or an op, as the call has.
    pub with: W,
    pub comm: Handle,
    /// `Process::removals` at that time, since the handle of a freed object may be reused.
    pub removals: u64,
}

/// What was found for the latest keys, one key per place of the memo.
pub(crate) struct Memo<W, F, const PLACES: usize>([(MemoKey<W>, F); PLACES]);

impl<W: Copy + Eq, F: Copy, const PLACES: usize> Memo<W, F, PLACES> {
    /// An empty memo: no comm has the handle of its keys.
    pub const fn new(with: W, found: F) -> Memo<W, F, PLACES> {
        let key = MemoKey { count: 0, datatype: Handle(0), with, comm: Handle(0), removals: 0 };
        Memo([(key, found); PLACES])
    }

    /// What was found for a key, or None if its place holds another key.
    #[inline(always)]
    pub fn get(&self, place: usize, key: &MemoKey<W>) -> Option<F> {
        let (known, found) = &self.0[place % PLACES];
        (known == key).then_some(*found)
    }

    /// Remembers what was found for a key, instead of the key that had the place.
    #[inline(always)]
    pub fn set(&mut self, place: usize, key: MemoKey<W>, found: F) {
        self.0[place % PLACES] = (key, found);
    }
}

/// Messages of the fast path; the rank decides the place.
pub(crate) type MessageMemo = Memo<i32, FoundMessage, 8>;

/// A message's peer, context and bytes.
#[derive(Clone, Copy)]
pub(crate) struct FoundMessage {
    pub context: u64,
    pub peer: u32,
    pub bytes: usize,
}

/// The MPI_Allreduce of the fast path.
pub(crate) type AllreduceMemo = Memo<Handle, FoundAllreduce, 1>;

/// The slots, operator and bytes of an MPI_Allreduce.
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
