// SPDX-License-Identifier: BSD-3-Clause
//! MPIX streams and the operations that are enqueued on them, as data. `crate::stream` says how they work.

use super::Completion;
use device::{StreamWords, has_reached};
use error::{Class, Error, Result, fail};
use objects::Handle;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// MPICH's value of MPIX_STREAM_NULL. Streams have the numbers after this.
pub const STREAM_NULL: i32 = 0x3c00_0000;

/// The MPIX streams of this process.
#[derive(Default)]
pub struct Streams {
    pub all: Slab<MpixStream>,
    /// The numbers of the MPIX streams of each stream comm (a comm that was made with streams), by the comm's
    /// context id.
    pub of_comm: HashMap<u64, Vec<i32>>,
}

pub struct MpixStream {
    /// The stream of a device for which this MPIX stream stands, with a thread of its own. None if the
    /// program named no device's stream.
    pub thread: Option<Arc<StreamThread>>,
    /// How many comms were made with the stream and are not freed.
    pub comms: usize,
}

/// A device's stream, and the operations that wait until the stream reaches them.
pub struct StreamThread {
    pub stream: device::Stream,
    pub words: &'static StreamWords,
    pub queue: Mutex<StreamQueue>,
    pub news: Condvar,
    pub wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
pub struct StreamQueue {
    pub jobs: VecDeque<(u32, StreamJob)>,
    /// How many operations have been enqueued so far.
    pub count: u32,
    /// The first error of an enqueued operation. None if there was none, or if a call has returned it since.
    pub error: Option<Error>,
    pub stopped: bool,
}

/// An MPI call that a stream's thread is to make. `call` makes it, and returns its error code.
pub struct StreamJob {
    pub held: HeldHandles,
    pub call: Box<dyn FnOnce(HeldHandles) -> c_int + Send>,
}

/// The datatype and the operator of an enqueued operation. Each is a duplicate if the program could free its
/// own handle before the operation is over.
#[derive(Clone, Copy)]
pub struct HeldHandles {
    pub datatype: Handle,
    pub op: Handle,
    pub(crate) owns_datatype: bool,
    pub(crate) owns_op: bool,
}

/// The operation of a request that MPIX_Isend_enqueue or MPIX_Irecv_enqueue has made.
#[derive(Debug, Default)]
pub struct Enqueued {
    pub stream: i32,
    /// The request that the stream's thread has got for the operation, in the form of the program's ABI.
    pub real: AtomicUsize,
}

impl StreamThread {
    pub fn queue(&self) -> MutexGuard<'_, StreamQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_idle(&self) -> bool {
        let count = self.queue().count;
        has_reached(&self.words.done, count)
    }
}

impl Streams {
    /// Whether any stream has a thread, which makes MPI calls.
    pub(crate) fn have_threads(&self) -> bool {
        self.all.iter().any(|(_, stream)| stream.thread.is_some())
    }

    /// Returns the number by which the program knows the MPIX stream at `index` in the table `Streams::all`.
    pub(crate) fn number(index: usize) -> i32 {
        STREAM_NULL + 1 + index as i32
    }

    /// Returns the index, in the table `Streams::all`, of the MPIX stream with the number `number`. The table
    /// has no entry at this index if no stream has this number.
    pub(crate) fn index(number: i32) -> usize {
        number.wrapping_sub(STREAM_NULL + 1) as usize
    }

    pub fn get(&mut self, number: i32) -> Result<&mut MpixStream> {
        match self.all.get_mut(Streams::index(number)) {
            Some(stream) => Ok(stream),
            None => fail!(Class::Arg, "{number:#x} is no MPIX stream"),
        }
    }

    /// Whether all operations are over that were enqueued on the streams of the comm with the context id
    /// `context`. If `context` is None, asks this about all streams.
    pub(crate) fn are_idle(&self, context: Option<u64>) -> bool {
        let of_comm = context.map(|context| self.of_comm.get(&context).map_or(&[][..], |list| list));
        self.all
            .iter()
            .filter(|(at, _)| of_comm.is_none_or(|list| list.contains(&Streams::number(*at))))
            .all(|(_, stream)| stream.thread.as_ref().is_none_or(|thread| thread.is_idle()))
    }

    /// Removes a stream comm (a comm that was made with MPIX streams), which is being freed. Each of its
    /// streams then belongs to one comm less.
    pub(crate) fn leave(&mut self, context: u64) {
        for number in self.of_comm.remove(&context).unwrap_or_default() {
            if let Ok(stream) = self.get(number) {
                stream.comms -= 1;
            }
        }
    }
}

impl Enqueued {
    /// Returns the error for a program that calls MPI_Wait or the like for a request of MPIX_Isend_enqueue or
    /// MPIX_Irecv_enqueue.
    pub(crate) fn awaited_by_host() -> Completion {
        let text =
            "the request of an enqueued operation is awaited by MPIX_Wait_enqueue or MPIX_Waitall_enqueue";
        Completion { error: Some(Error::new(Class::Request, text)), ..Completion::EMPTY }
    }
}
