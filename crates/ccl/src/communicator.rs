//! A communicator of the library, and the thread that makes its calls.

use crate::library::{Id, Library, Raw};
use crate::step::{Message, Step};
use error::{Class, Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::{Block, Span};

/// How an operation ended, once it has.
#[derive(Clone, Debug, Default)]
pub struct Ended(Arc<OnceLock<Result<()>>>);

impl Ended {
    pub fn get(&self) -> Option<&Result<()>> {
        self.0.get()
    }
}

/// One rank of a communicator.
pub struct Communicator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    library: &'static Library,
    rank: u32,
    size: u32,
    queue: Mutex<Queue>,
    news: Condvar,
    /// Wakes the process, which may sleep until an operation is over.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    /// The communicator's name, or why it cannot be made.
    id: Option<Result<Id>>,
    jobs: VecDeque<(Vec<Step>, Ended)>,
    stopped: bool,
}

/// How long the thread sleeps between looks at an operation under way.
const LOOK: Duration = Duration::from_micros(50);
/// Looks without a sleep before that.
const LOOKS: u32 = 100;

impl Communicator {
    /// Rank `rank` of `size`. It joins the others once `identify` has named the communicator; what is started
    /// until then waits. `wake` is called whenever an operation is over.
    ///
    /// Errors (MPI_ERR_OTHER): no thread can be made.
    pub fn new(
        library: &'static Library,
        rank: u32,
        size: u32,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Communicator> {
        let (queue, news) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { library, rank, size, queue, news, wake: Box::new(wake) });
        let ours = shared.clone();
        match std::thread::Builder::new().name("outboard-ccl".into()).spawn(move || ours.serve()) {
            Ok(thread) => Ok(Communicator { shared, thread: Some(thread) }),
            Err(error) => {
                let library = library.told().0;
                Err(Error::new(Class::Other, format!("no thread can be made for {library}: {error}")))
            }
        }
    }

    /// Names the communicator, or says why it cannot be made.
    pub fn identify(&self, id: Result<Id>) {
        self.shared.queue().id.get_or_insert(id);
        self.shared.news.notify_one();
    }

    /// Starts a collective. The memory that its steps name is the library's until it has ended.
    pub fn start(&self, steps: Vec<Step>) -> Ended {
        let ended = Ended::default();
        self.shared.queue().jobs.push_back((steps, ended.clone()));
        self.shared.news.notify_one();
        ended
    }
}

impl Drop for Communicator {
    /// What has been started ends first.
    fn drop(&mut self) {
        self.shared.queue().stopped = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what `ready` finds in the queue; nothing after the end.
    fn next<T>(&self, mut ready: impl FnMut(&mut Queue) -> Option<T>) -> Option<T> {
        let mut queue = self.queue();
        loop {
            match ready(&mut queue) {
                None if queue.stopped => return None,
                None => queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner),
                found => return found,
            }
        }
    }

    fn serve(&self) {
        // Signals belong to the program's threads.
        sys::signal::block_all();
        let Some(id) = self.next(|queue| queue.id.take()) else { return };
        let mut joined = id.and_then(|id| self.join(&id));
        while let Some((steps, ended)) = self.next(|queue| queue.jobs.pop_front()) {
            let result = match &joined {
                Ok(raw) => steps.iter().try_for_each(|step| self.carry_out(step, *raw)),
                Err(error) => Err(error.clone()),
            };
            if let (Ok(raw), Err(error)) = (&joined, &result) {
                self.library.abort(*raw);
                joined = Err(error.clone());
            }
            // The one place that sets it.
            let _ = ended.0.set(result);
            (self.wake)();
        }
        if let Ok(raw) = joined {
            self.library.leave(raw);
        }
    }

    fn join(&self, id: &Id) -> Result<Raw> {
        let raw = self.library.join(id, self.rank, self.size)?;
        self.end(raw).inspect_err(|_| self.library.abort(raw))?;
        Ok(raw)
    }

    fn carry_out(&self, step: &Step, raw: Raw) -> Result<()> {
        let mut step = step.clone();
        if let Step::Exchange { sends, recvs } = &mut step {
            self.keep_own(sends, recvs)?;
            if self.library.exchanges_at_once() {
                return self.exchange(sends, recvs, raw);
            }
            if sends.is_empty() && recvs.is_empty() {
                return Ok(());
            }
        }
        // SAFETY: the caller of `start` lends the memory until the operation is over.
        unsafe { self.library.begin(&step, raw) }?;
        self.end(raw)
    }

    /// Copies what this rank sends to itself: not every library does so in a group.
    fn keep_own(&self, sends: &mut Vec<Message>, recvs: &mut Vec<Message>) -> Result<()> {
        let own = |all: &mut Vec<Message>| {
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

    /// An exchange by one call, which takes the bytes for and from all ranks in their order.
    fn exchange(&self, sends: &[Message], recvs: &[Message], raw: Raw) -> Result<()> {
        let counts = |messages: &[Message]| {
            let mut counts = vec![0; self.size as usize];
            messages.iter().for_each(|message| counts[message.peer as usize] = message.bytes);
            counts
        };
        let (sent, received) = (counts(sends), counts(recvs));
        let (out, into) = (Block::new(sent.iter().sum()), Block::new(received.iter().sum()));
        let copy = |messages: &[Message], counts: &[usize], block: &Block, is_send| {
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
        unsafe { self.library.exchange((from, &sent), (to, &received), raw) }?;
        self.end(raw)?;
        copy(recvs, &received, &into, false)
    }

    /// Waits until what was begun is over.
    fn end(&self, raw: Raw) -> Result<()> {
        let mut looks = 0;
        while !self.library.is_over(raw)? {
            looks += 1;
            if looks > LOOKS { std::thread::sleep(LOOK) } else { std::thread::yield_now() }
        }
        Ok(())
    }
}
