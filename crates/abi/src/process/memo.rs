//! What the arguments of the latest calls on a fast path came to. The next call often has the same ones.

use super::Process;
use datatype::{Basic, PredefinedOp};
use objects::Handle;

/// Arguments of a call but for its buffers: all that decides what is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key<W> {
    pub count: i64,
    pub datatype: Handle,
    /// What the call is with: a rank, an op.
    pub with: W,
    pub comm: Handle,
    /// `Process::removals`: a handle may be given again once its object has been freed.
    pub removals: u64,
}

/// What was found for the latest keys, one in each place.
pub(crate) struct Memo<W, F, const PLACES: usize>([(Key<W>, F); PLACES]);

impl<W: Copy + Eq, F: Copy, const PLACES: usize> Memo<W, F, PLACES> {
    /// Nothing: no comm has this handle.
    pub const fn new(with: W, found: F) -> Memo<W, F, PLACES> {
        let key = Key { count: 0, datatype: Handle(0), with, comm: Handle(0), removals: 0 };
        Memo([(key, found); PLACES])
    }

    /// What was found for a key, if its place still has it.
    #[inline(always)]
    pub fn get(&self, place: usize, key: &Key<W>) -> Option<F> {
        let (known, found) = &self.0[place % PLACES];
        (known == key).then_some(*found)
    }

    /// Remembers what was found, in the place of the key before.
    #[inline(always)]
    pub fn set(&mut self, place: usize, key: Key<W>, found: F) {
        self.0[place % PLACES] = (key, found);
    }
}

/// The messages of the fast path, by the peer's rank.
pub(crate) type Messages = Memo<i32, FoundMessage, 8>;

/// The process a message is for, and its bytes.
#[derive(Clone, Copy)]
pub(crate) struct FoundMessage {
    pub context: u64,
    pub peer: u32,
    pub bytes: usize,
}

/// The MPI_Allreduce of the fast path, by its op.
pub(crate) type Allreduces = Memo<Handle, FoundAllreduce, 1>;

/// The slots of an MPI_Allreduce, what it does to its elements, and its bytes.
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
