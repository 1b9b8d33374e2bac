// SPDX-License-Identifier: BSD-3-Clause
//! A communicator of a collective library (such as NCCL), and the thread that makes its calls.

use crate::library::{CommunicatorMembership, Id, Library};
use crate::step::{ExchangePart, LibraryStep};
use error::{Class, Error, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::{Block, Span};

/// The result of a collective that was started. It is empty until the collective has ended.
#[derive(Clone, Debug, Default)]
pub struct PendingResult(Arc<OnceLock<Result<()>>>);

impl PendingResult {
    pub fn get(&self) -> Option<&Result<()>> {
        self.0.get()
    }
}

/// One rank's communicator of the collective library. A thread of its own makes all calls for it.
pub struct Communicator {
    shared: Arc<CommunicatorState>,
    thread: Option<JoinHandle<()>>,
}

struct CommunicatorState {
    library: &'static Library,
    rank: u32,
    size: u32,
    /// The device of the thread that made the communicator. A library works on the device of the calling
    /// thread.
    device: usize,
    queue: Mutex<CallQueue>,
    news: Condvar,
    /// Whether this rank has left the communicator.
    left: AtomicBool,
    /// Wakes the MPI process. It is called when an operation is over, and when this rank has left the
    /// communicator.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct CallQueue {
    /// The id that all ranks need to join the communicator, or the error why there is none. None until
    /// `identify` is called.
    id: Option<Result<Id>>,
    jobs: VecDeque<(Vec<LibraryStep>, PendingResult)>,
    stopped: bool,
}

/// How long the communicator's thread sleeps between two polls of an operation in progress.
const POLL_PAUSE: Duration = Duration::from_micros(50);
/// How often the communicator's thread polls an operation before its first sleep.
const POLLS_BEFORE_SLEEP: u32 = 100;

impl Communicator {
    /// Makes this process's part of a communicator of `size` ranks, in which it is rank `rank`. The rank
    /// joins the communicator once `identify` has given the id. Collectives that are started earlier wait for
    /// that. `wake` is called whenever a collective is over.
    ///
    /// Errors (MPI_ERR_OTHER): no thread can be made; the device failed.
    pub fn new(
        library: &'static Library,
        rank: u32,
        size: u32,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Communicator> {
        let (queue, news) = (Mutex::default(), Condvar::new());
        let (device, wake) = (device::context()?, Box::new(wake));
        let shared = Arc::new(CommunicatorState {
            library,
            rank,
            size,
            device,
            queue,
            news,
            left: AtomicBool::new(false),
            wake,
        });
        let ours = shared.clone();
        let serve = move || {
            ours.serve();
            ours.left.store(true, Ordering::Release);
            (ours.wake)();
        };
        match std::thread::Builder::new().name("outboard-ccl".into()).spawn(serve) {
            Ok(thread) => Ok(Communicator { shared, thread: Some(thread) }),
            Err(error) => {
                let library = library.file_and_version().0;
                Err(Error::new(Class::Other, format!("no thread can be made for {library}: {error}")))
            }
        }
    }

    /// Gives this rank the communicator's id, or the error why there is none.
    pub fn identify(&self, id: Result<Id>) {
        self.shared.queue().id.get_or_insert(id);
        self.shared.news.notify_one();
    }

    /// Starts a collective, which `steps` describe. Returns its result, which is empty until the collective
    /// has ended. The memory in the steps belongs to the library until then.
    pub fn start(&self, steps: Vec<LibraryStep>) -> PendingResult {
        let ended = PendingResult::default();
        self.shared.queue().jobs.push_back((steps, ended.clone()));
        self.shared.news.notify_one();
        ended
    }

    /// Makes the communicator's thread leave once all started collectives are over. Does not wait for that,
    /// because a library may block until all ranks leave.
    pub fn leave(&self) {
        self.shared.queue().stopped = true;
        self.shared.news.notify_one();
    }

    /// Whether this rank has left the communicator.
    pub fn has_left(&self) -> bool {
        self.shared.left.load(Ordering::Acquire)
    }
}

impl Drop for Communicator {
    /// Leaves the communicator, and waits until this rank has left.
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}

impl CommunicatorState {
    fn queue(&self) -> MutexGuard<'_, CallQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` returns something, and returns that. Returns None once `leave` was called and no
    /// collective is waiting.
    fn next<T>(&self, mut ready: impl FnMut(&mut CallQueue) -> Option<T>) -> Option<T> {
        let mut queue = self.queue();
        loop {
            match ready(&mut queue) {
                None if queue.stopped && queue.jobs.is_empty() => return None,
                None => queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner),
                found => return found,
            }
        }
    }

    fn serve(&self) {
        // Signals belong to the program's threads.
        sys::signal::block_all();
        let Some(id) = self.next(|queue| queue.id.take()) else { return };
        let mut joined = id.and_then(|id| device::adopt(self.device).and_then(|()| self.join(&id)));
        while let Some((steps, ended)) = self.next(|queue| queue.jobs.pop_front()) {
            let result = match &joined {
                Ok(member) => steps.iter().try_for_each(|step| self.carry_out(step, member)),
                Err(error) => Err(error.clone()),
            };
            if let (Ok(member), Err(error)) = (&joined, &result) {
                self.library.abort(member);
                joined = Err(error.clone());
            }
            // Only this line sets it, so it cannot fail.
            let _ = ended.0.set(result);
            (self.wake)();
        }
        if let Ok(member) = joined {
            self.library.leave(member);
        }
    }

    fn join(&self, id: &Id) -> Result<CommunicatorMembership> {
        let member = self.library.join(id, self.rank, self.size)?;
        self.end(&member).inspect_err(|_| self.library.abort(&member))?;
        Ok(member)
    }

    fn carry_out(&self, step: &LibraryStep, member: &CommunicatorMembership) -> Result<()> {
        let mut step = step.clone();
        if let LibraryStep::Exchange { sends, recvs } = &mut step {
            self.copy_own(sends, recvs)?;
            if self.library.exchanges_at_once() {
                return self.exchange(sends, recvs, member);
            }
            if sends.is_empty() && recvs.is_empty() {
                return Ok(());
            }
        }
        // SAFETY: the caller of `start` leaves the memory to the library until the operation is over.
        unsafe { self.library.start(&step, member) }?;
        self.end(member)
    }

    /// Copies the message that this rank sends to itself, and removes it from both lists. Not every library
    /// copies such a message.
    fn copy_own(&self, sends: &mut Vec<ExchangePart>, recvs: &mut Vec<ExchangePart>) -> Result<()> {
        let own = |all: &mut Vec<ExchangePart>| {
            let at = all.iter().position(|message| message.peer == self.rank)?;
            let message = all.swap_remove(at);
            // SAFETY: as in `carry_out`.
            Some(unsafe { Span::claim(message.at, message.bytes) })
        };
        match (own(sends), own(recvs)) {
            (Some(from), Some(to)) => device::copy(to, from),
            _ => Ok(()),
        }
    }

    /// Carries out an exchange by one call of the library. Before the call, copies the bytes for all ranks
    /// into one block, in the order of the ranks.
    fn exchange(
        &self,
        sends: &[ExchangePart],
        recvs: &[ExchangePart],
        member: &CommunicatorMembership,
    ) -> Result<()> {
        let counts = |messages: &[ExchangePart]| {
            let mut counts = vec![0; self.size as usize];
            messages.iter().for_each(|message| counts[message.peer as usize] = message.bytes);
            counts
        };
        let (sent, received) = (counts(sends), counts(recvs));
        let (out, into) = (Block::new(sent.iter().sum()), Block::new(received.iter().sum()));
        let copy = |messages: &[ExchangePart], counts: &[usize], block: &Block, is_send| {
            messages.iter().try_for_each(|message| {
                let before = counts[..message.peer as usize].iter().sum();
                let ours = block.span().slice(before, message.bytes);
                // SAFETY: as in `carry_out`.
                let theirs = unsafe { Span::claim(message.at, message.bytes) };
                if is_send { device::copy(ours, theirs) } else { device::copy(theirs, ours) }
            })
        };
        copy(sends, &sent, &out, true)?;
        let (from, to) = (out.span().address(), into.span().address());
        // SAFETY: the blocks and the counts live until `end`.
        unsafe { self.library.exchange((from, &sent), (to, &received), member) }?;
        self.end(member)?;
        copy(recvs, &received, &into, false)
    }

    /// Waits until all library operations that this rank has started are over.
    fn end(&self, member: &CommunicatorMembership) -> Result<()> {
        let mut polls = 0;
        while !self.library.is_over(member)? {
            polls += 1;
            if polls > POLLS_BEFORE_SLEEP { std::thread::sleep(POLL_PAUSE) } else { std::thread::yield_now() }
        }
        Ok(())
    }
}
