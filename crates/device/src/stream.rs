// SPDX-License-Identifier: BSD-3-Clause
//! Streams of a device: work that the device does in order while the program goes on. A stream has a pair of
//! words in host memory for MPI operations. It writes one word when it reaches an operation, and then waits
//! until the host has written the other.

use crate::driver::Driver;
use crate::sentinel::{Sentinel, SentinelStream};
use crate::words::{StreamWords, has_reached};
use error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use sys::Span;

/// A stream of the program: a queue of work that the device does in order.
#[derive(Clone)]
pub enum Stream {
    /// A stream of the driver of CUDA or HIP: the driver, and the stream's handle.
    Driver(&'static Driver, usize),
    /// A stream of the test backend: a worker thread.
    Sentinel(&'static Sentinel, Arc<SentinelStream>),
}

impl Stream {
    /// Makes the two words of this stream. They are never freed, since the device may write them at any time.
    pub fn words(&self) -> Result<&'static StreamWords> {
        match self {
            Stream::Driver(driver, _) => driver.words(),
            Stream::Sentinel(..) => {
                Ok(Box::leak(Box::new(StreamWords { reached: AtomicU32::new(0), done: AtomicU32::new(0) })))
            }
        }
    }

    /// Enqueues the stream's `count`-th operation. The stream writes the word `reached`, and then waits for
    /// the word `done`, until the operation is over. The caller does not wait.
    ///
    /// Errors (MPI_ERR_OTHER): the stream is being captured into a graph, or the device failed.
    pub fn enqueue_operation(&self, words: &'static StreamWords, count: u32) -> Result<()> {
        match self {
            Stream::Driver(driver, stream) => driver.enqueue_operation(*stream, words, count),
            Stream::Sentinel(_, queue) => {
                queue.push(move || words.reached.store(count, Ordering::Release));
                queue.push(move || {
                    while !has_reached(&words.done, count) {
                        std::thread::sleep(std::time::Duration::from_micros(20));
                    }
                });
                Ok(())
            }
        }
    }

    /// Enqueues a copy of `from` to `to` in the stream. The caller does not wait for the copy.
    pub fn copy(&self, to: Span, from: Span) -> Result<()> {
        match self {
            Stream::Driver(driver, stream) => driver.enqueue_stream_copy(*stream, to, from),
            Stream::Sentinel(sentinel, queue) => {
                // A wrong address must be reported now, since nothing checks the copy's result later.
                sentinel.holds(to.address(), to.bytes())?;
                sentinel.holds(from.address(), from.bytes())?;
                let sentinel = *sentinel;
                queue.push(move || {
                    sentinel.copy(to, from).expect("memory of a copy was freed before its stream came to it")
                });
                Ok(())
            }
        }
    }

    /// Whether all work of the stream is over.
    ///
    /// Errors (MPI_ERR_OTHER): the device failed.
    pub fn is_idle(&self) -> Result<bool> {
        match self {
            Stream::Driver(driver, stream) => driver.is_idle(*stream),
            Stream::Sentinel(_, queue) => Ok(queue.is_idle()),
        }
    }

    /// Waits until all work of the stream is over.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Stream::Driver(driver, stream) => driver.synchronize(*stream),
            Stream::Sentinel(_, queue) => {
                queue.drain();
                Ok(())
            }
        }
    }
}
