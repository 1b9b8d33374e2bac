// SPDX-License-Identifier: BSD-3-Clause
//! A few threads that wait for the storage device, so that the program's threads need not.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The result of a job: empty until the job is done, and again after the result was taken.
#[derive(Debug)]
pub struct Promise<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Promise<T> {
        Promise(self.0.clone())
    }
}

impl<T> Default for Promise<T> {
    fn default() -> Promise<T> {
        Promise(Arc::new(Mutex::new(None)))
    }
}

impl<T> Promise<T> {
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }
}

/// Up to `THREADS_MAX` threads that run jobs, such as reads of files, each started when it is first needed.
pub struct ThreadPool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
}

type PoolJob = Box<dyn FnOnce() + Send>;

struct PoolState {
    queue: Mutex<JobQueue>,
    news: Condvar,
    /// The number of jobs done so far.
    done: AtomicU64,
    /// Called after each job: wakes the process, whose thread may sleep until a job is done.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<PoolJob>,
    idle: usize,
    stopped: bool,
}

/// The most threads that a pool starts. The reads and writes of more threads would only wait for the storage
/// device.
const THREADS_MAX: usize = 4;

impl ThreadPool {
    /// Makes a pool without threads. `wake` is called whenever a job is done.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> ThreadPool {
        let shared = PoolState {
            queue: Mutex::default(),
            news: Condvar::new(),
            done: AtomicU64::new(0),
            wake: Box::new(wake),
        };
        ThreadPool { shared: Arc::new(shared), threads: Vec::new() }
    }

    /// Gives `work` to a thread, which is started if none is idle. Returns the promise of the work's result.
    pub fn submit<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Promise<T> {
        let promise = Promise::default();
        let into = promise.clone();
        let job: PoolJob = Box::new(move || into.put(work()));
        let mut queue = self.shared.queue();
        queue.jobs.push_back(job);
        let short = queue.idle < queue.jobs.len();
        drop(queue);
        self.shared.news.notify_one();
        if short && self.threads.len() < THREADS_MAX {
            let shared = self.shared.clone();
            match std::thread::Builder::new().name("outboard-io".into()).spawn(move || shared.serve()) {
                Ok(thread) => self.threads.push(thread),
                // Some thread will take the job. Without any thread, the caller does it.
                Err(_) if !self.threads.is_empty() => {}
                Err(_) => self.shared.clone().run_one(),
            }
        }
        promise
    }

    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Acquire)
    }
}

impl PoolState {
    fn queue(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        // Signals belong to the program's threads.
        sys::signal::block_all();
        loop {
            let mut queue = self.queue();
            queue.idle += 1;
            while queue.jobs.is_empty() && !queue.stopped {
                queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            queue.idle -= 1;
            if queue.jobs.is_empty() {
                return;
            }
            drop(queue);
            self.run_one();
        }
    }

    fn run_one(&self) {
        let job = self.queue().jobs.pop_front();
        if let Some(job) = job {
            job();
            self.done.fetch_add(1, Ordering::Release);
            (self.wake)();
        }
    }
}

impl Drop for ThreadPool {
    /// Waits until the threads have done all submitted jobs.
    fn drop(&mut self) {
        self.shared.queue().stopped = true;
        self.shared.news.notify_all();
        for thread in self.threads.drain(..) {
            // A job that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_are_done_and_ring() {
        let rung = Arc::new(AtomicU64::new(0));
        let bell = rung.clone();
        let mut pool = ThreadPool::new(move || {
            bell.fetch_add(1, Ordering::Relaxed);
        });
        let promises: Vec<_> = (0..100).map(|i| pool.submit(move || i * i)).collect();
        assert!(pool.threads.len() <= THREADS_MAX);
        let shared = pool.shared.clone();
        drop(pool);
        assert_eq!(promises.iter().map(|promise| promise.take().unwrap()).sum::<i32>(), 328_350);
        assert!(!promises[0].is_full());
        assert_eq!((shared.done.load(Ordering::Relaxed), rung.load(Ordering::Relaxed)), (100, 100));
    }
}
