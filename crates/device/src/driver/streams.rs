// SPDX-License-Identifier: BSD-3-Clause
//! Streams of the program (`crate::Stream`). MPI operations in streams need CUDA; streams of HIP can only be
//! created and destroyed.

use super::{CurrentContext, Driver, GREATER_OR_EQUAL, MAPPED, NOT_READY, PORTABLE, StreamOrdering};
use crate::words::StreamWords;
use error::{Class, Result, fail};
use std::sync::atomic::AtomicU32;
use sys::Span;

impl Driver {
    /// Checks that the backend can put MPI operations into streams.
    ///
    /// Errors (MPI_ERR_OTHER): it cannot, because it is HIP.
    pub(crate) fn check_ordering(&self) -> Result<()> {
        self.ordering().map(drop)
    }

    fn ordering(&self) -> Result<&StreamOrdering> {
        match &self.ordering {
            Some(ordering) => Ok(ordering),
            None => {
                fail!(Class::Other, "MPI operations in streams of HIP are not there yet; CUDA's have them")
            }
        }
    }

    pub(crate) fn create_stream(&self) -> Result<usize> {
        let _context = self.enter_current()?;
        self.new_stream()
    }

    pub(crate) fn destroy_stream(&self, stream: usize) -> Result<()> {
        // SAFETY: a stream of the program, which may destroy it.
        self.check("cuStreamDestroy", unsafe { (self.destroy)(stream) })
    }

    /// Makes the two words by which a stream and the host synchronise, in pinned memory that all contexts can
    /// access.
    pub(crate) fn words(&self) -> Result<&'static StreamWords> {
        let _context = self.enter_current()?;
        let mut at = std::ptr::null_mut();
        // SAFETY: it stores one pointer.
        let code = unsafe { (self.host_alloc)(&mut at, size_of::<StreamWords>(), PORTABLE | MAPPED) };
        self.check("cuMemHostAlloc", code)?;
        // SAFETY: the memory has the size of `StreamWords`, is aligned to a page, and is never freed.
        unsafe {
            at.cast::<StreamWords>()
                .write(StreamWords { reached: AtomicU32::new(0), done: AtomicU32::new(0) })
        };
        // SAFETY: written just now.
        Ok(unsafe { &*at.cast::<StreamWords>() })
    }

    pub(crate) fn enqueue_operation(
        &self,
        stream: usize,
        words: &'static StreamWords,
        count: u32,
    ) -> Result<()> {
        let _context = self.enter_stream(stream)?;
        let ordering = self.ordering()?;
        let mut state = 0;
        // SAFETY: a stream of the program; it stores one number.
        self.check("cuStreamIsCapturing", unsafe { (ordering.capturing)(stream, &mut state) })?;
        if state != 0 {
            fail!(
                Class::Other,
                "the stream is being captured into a graph, which cannot hold MPI operations"
            );
        }
        let [reached, done] = [self.device_address(&words.reached)?, self.device_address(&words.done)?];
        // SAFETY: pinned memory that is never freed.
        self.check("cuStreamWriteValue32", unsafe { (ordering.write_value)(stream, reached, count, 0) })?;
        // SAFETY: as above. GREATER_OR_EQUAL compares as a counter that wraps.
        let code = unsafe { (ordering.wait_value)(stream, done, count, GREATER_OR_EQUAL) };
        self.check("cuStreamWaitValue32", code)
    }

    pub(crate) fn enqueue_stream_copy(&self, stream: usize, to: Span, from: Span) -> Result<()> {
        let _context = self.enter_stream(stream)?;
        // SAFETY: the program keeps both ranges until its stream has copied them (contract of `Span`).
        unsafe { self.enqueue_copy(to.address() as u64, from.address() as u64, to.bytes(), stream) }
    }

    pub(crate) fn synchronize(&self, stream: usize) -> Result<()> {
        let _context = self.enter_stream(stream)?;
        // SAFETY: a stream of the program.
        self.check("cuStreamSynchronize", unsafe { (self.wait)(stream) })
    }

    pub(crate) fn is_idle(&self, stream: usize) -> Result<bool> {
        let _context = self.enter_stream(stream)?;
        // SAFETY: a stream of the program, or of `create_stream`.
        match unsafe { (self.query)(stream) } {
            NOT_READY => Ok(false),
            code => self.check("cuStreamQuery", code).map(|()| true),
        }
    }

    fn enter_stream(&self, stream: usize) -> Result<CurrentContext<'_>> {
        let (mut context, ordering) = (std::ptr::null_mut(), self.ordering()?);
        // SAFETY: a stream of the program; it stores one pointer.
        self.check("cuStreamGetCtx", unsafe { (ordering.context_of)(stream, &mut context) })?;
        self.enter_context(context)
    }

    /// Returns the address that the device uses for `word`, which lies in pinned memory.
    fn device_address(&self, word: &'static AtomicU32) -> Result<u64> {
        let mut address = 0;
        // SAFETY: it stores one address.
        let code = unsafe { (self.host_pointer)(&mut address, word.as_ptr().cast(), 0) };
        self.check("cuMemHostGetDevicePointer", code)?;
        Ok(address)
    }
}
