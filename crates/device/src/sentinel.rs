// SPDX-License-Identifier: BSD-3-Clause
//! The test backend: device memory on a machine without a device.
//!
//! A sealed memfd is mapped twice: at the program's addresses with PROT_NONE, and at addresses that only this
//! file uses for copies. So a program that accesses device memory crashes at once, and a system call on it
//! fails (EFAULT). Streams are threads.
//! Invariant: addresses are never used again, so freed memory is always recognised.

use crate::export;
use crate::kernel::{KernelReduction, Strip};
use error::{Class, Result, fail};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use sys::{Block, Span};

/// The number of bytes of device memory that a process has. The memfd is sparse, so unused bytes take no
/// memory.
const BYTES: usize = 1 << 36;
const PAGE_BYTES: usize = 4096;

pub struct Sentinel {
    fd: OwnedFd,
    /// The address at which the device memory is mapped for the program. The CPU cannot access it there.
    base: usize,
    /// The address at which the device memory is mapped a second time, for this file, which copies its bytes.
    inner: usize,
    blocks: Mutex<Allocations>,
    /// The program's streams. The stream with handle `n` is at index `n - 1`. An entry is None once its
    /// stream was destroyed.
    streams: Mutex<Vec<Option<Arc<SentinelStream>>>>,
    seed: u64,
    /// The stream that runs kernels. It is started with the first kernel.
    kernels: OnceLock<Arc<SentinelStream>>,
    /// The addresses at which other processes' device memory is mapped in this process, by process and inode
    /// of the memory's file.
    opened: Mutex<BTreeMap<(u64, u64), usize>>,
}

/// The allocations of device memory, each with its address and length.
#[derive(Default)]
struct Allocations {
    used: usize,
    live: BTreeMap<usize, usize>,
    /// The addresses of the allocations that `set_open` has opened to the CPU.
    open: BTreeSet<usize>,
    freed: BTreeMap<usize, usize>,
}

impl Sentinel {
    pub(crate) fn new(seed: u64) -> Result<Sentinel> {
        let fd = match sys::memory::create("outboard-sentinel", BYTES as u64) {
            Ok(fd) => fd,
            Err(error) => fail!(Class::NoMem, "cannot make the memory of OUTBOARD_DEVICE=sentinel: {error}"),
        };
        let (base, inner) = (map(&fd, libc::PROT_NONE)?, map(&fd, libc::PROT_READ | libc::PROT_WRITE)?);
        Ok(Sentinel {
            fd,
            base,
            inner,
            blocks: Mutex::default(),
            streams: Mutex::default(),
            seed,
            kernels: OnceLock::new(),
            opened: Mutex::default(),
        })
    }

    fn blocks(&self) -> MutexGuard<'_, Allocations> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offset(&self, address: usize) -> Option<usize> {
        address.checked_sub(self.base).filter(|offset| *offset < BYTES)
    }

    pub(crate) fn holds(&self, address: usize, bytes: usize) -> Result<bool> {
        if self.offset(address).is_none() {
            return Ok(false);
        }
        let blocks = self.blocks();
        let within = |blocks: &BTreeMap<usize, usize>| {
            let (at, length) = blocks.range(..=address).next_back()?;
            (address - at < *length).then_some((*at, *length))
        };
        match (within(&blocks.live), within(&blocks.freed)) {
            (Some((at, _)), _) if blocks.open.contains(&at) => Ok(false),
            (Some((at, length)), _) if bytes <= length - (address - at) => Ok(true),
            (Some((at, length)), _) => fail!(
                Class::Buffer,
                "{bytes} bytes at {address:#x} of device memory are more than its allocation, which has {length} from {at:#x} on"
            ),
            (None, Some(_)) => fail!(Class::Buffer, "the device memory at {address:#x} has been freed"),
            (None, None) => fail!(Class::Buffer, "no device memory is allocated at {address:#x}"),
        }
    }

    pub(crate) fn copy(&self, to: Span, from: Span) -> Result<()> {
        self.inside(from)?.copy_to(self.inside(to)?);
        Ok(())
    }

    /// Returns the span at which this file can access the bytes of `span`: in the second map for device
    /// memory, otherwise `span` itself. Errors: the device memory was freed, or is shorter.
    fn inside(&self, span: Span) -> Result<Span> {
        match self.offset(span.address()) {
            Some(offset) if self.holds(span.address(), span.bytes())? => {
                // SAFETY: `holds` found all bytes in this map, which is never unmapped.
                Ok(unsafe { Span::claim(self.inner + offset, span.bytes()) })
            }
            _ => Ok(span),
        }
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<usize> {
        let mut blocks = self.blocks();
        // A page between two allocations belongs to neither, so a buffer that is too long is detected.
        let pages = bytes.max(1).next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        let Some(end) = blocks.used.checked_add(pages).filter(|end| *end <= BYTES) else {
            fail!(Class::NoMem, "no {bytes} bytes are left of the {BYTES} of sentinel memory");
        };
        let address = self.base + blocks.used;
        blocks.used = end;
        blocks.live.insert(address, bytes.max(1));
        Ok(address)
    }

    pub(crate) fn free(&self, address: usize) -> Result<()> {
        let mut blocks = self.blocks();
        let Some(bytes) = blocks.live.get(&address).copied() else {
            fail!(Class::Buffer, "no allocation of device memory begins at {address:#x}");
        };
        if export::is_in_use(address, bytes) {
            fail!(
                Class::Buffer,
                "the device memory at {address:#x} is lent to an operation that is not over"
            );
        }
        blocks.live.remove(&address);
        blocks.freed.insert(address, bytes);
        blocks.open.remove(&address);
        drop(blocks);
        self.protect(address, bytes, false)?;
        let length = bytes.next_multiple_of(PAGE_BYTES) as u64;
        // A kernel that refuses keeps the pages until the process ends.
        let _ = sys::memory::punch_hole(&self.fd, (address - self.base) as u64, length);
        Ok(())
    }

    /// Opens an allocation to the CPU, or closes it if `open` is false. An open allocation counts as host
    /// memory, as pinned memory does.
    pub(crate) fn set_open(&self, address: usize, open: bool) -> Result<()> {
        let mut blocks = self.blocks();
        let Some(bytes) = blocks.live.get(&address).copied() else {
            fail!(Class::Buffer, "no allocation of device memory begins at {address:#x}");
        };
        if open {
            blocks.open.insert(address)
        } else {
            blocks.open.remove(&address)
        };
        self.protect(address, bytes, open)
    }

    fn protect(&self, address: usize, bytes: usize, open: bool) -> Result<()> {
        let protection = if open { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let pages = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the pages are in the map that this file made for the program, and stay mapped.
        if unsafe { libc::mprotect(pages, bytes, protection) } != 0 {
            fail!(Class::Other, "mprotect: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }
}

// Memory of other processes (`export.rs`).
impl Sentinel {
    /// Describes `span` for another process: this process, the memfd's number and inode, and the offset. None
    /// if `span` is not device memory.
    pub(crate) fn export(&self, span: Span) -> Result<Option<export::DescriptionWords>> {
        if !self.holds(span.address(), span.bytes())? {
            return Ok(None);
        }
        let Ok(inode) = sys::memory::inode(&self.fd) else { return Ok(None) };
        let mut words = export::DescriptionWords::default();
        let offset = (span.address() - self.base) as u64;
        words[..4].copy_from_slice(&[std::process::id() as u64, self.fd.as_raw_fd() as u64, inode, offset]);
        Ok(Some(words))
    }

    /// Maps the device memory of the process that `words` describes, unless it is mapped already, and returns
    /// the span of `bytes` bytes that `words` names.
    pub(crate) fn import(&self, words: &export::DescriptionWords, bytes: usize) -> Result<Span> {
        let [process, number, inode, offset, ..] = *words;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > BYTES as u64) {
            fail!(Class::Intern, "{bytes} bytes at {offset} of another process's device memory");
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let base = match opened.get(&(process, inode)) {
            Some(base) => *base,
            None => {
                let path = format!("/proc/{process}/fd/{number}");
                let file = match std::fs::File::open(&path) {
                    Ok(file) => OwnedFd::from(file),
                    Err(error) => {
                        fail!(Class::Other, "cannot open device memory of another process, {path}: {error}")
                    }
                };
                // It must be sealed, so that a map never faults, and the exporter's memfd, not another file
                // that got its number.
                if !sys::memory::is_sealed(&file) || sys::memory::inode(&file).ok() != Some(inode) {
                    fail!(Class::Other, "{path} is no device memory of OUTBOARD_DEVICE=sentinel");
                }
                let base = map(&file, libc::PROT_READ)?;
                opened.insert((process, inode), base);
                base
            }
        };
        // SAFETY: a part of a map that is never unmapped; only `copy` reads it.
        Ok(unsafe { Span::claim(base + offset as usize, bytes) })
    }
}

impl Sentinel {
    fn streams(&self) -> MutexGuard<'_, Vec<Option<Arc<SentinelStream>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn create_stream(&self) -> Result<usize> {
        let mut streams = self.streams();
        let number = streams.len() as u64 + 1;
        let delays = if self.seed == 0 { 0 } else { self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number };
        streams.push(Some(SentinelStream::start(delays)?));
        Ok(streams.len())
    }

    pub(crate) fn stream(&self, handle: usize) -> Result<Arc<SentinelStream>> {
        match self.streams().get(handle.wrapping_sub(1)) {
            Some(Some(queue)) => Ok(queue.clone()),
            _ => fail!(Class::Arg, "{handle:#x} is no stream of OUTBOARD_DEVICE=sentinel"),
        }
    }

    pub(crate) fn destroy_stream(&self, handle: usize) -> Result<()> {
        let queue = self.stream(handle)?;
        self.streams()[handle - 1] = None;
        queue.stop();
        Ok(())
    }
}

// Kernels (`kernel.rs`).
impl Sentinel {
    pub(crate) fn move_strips(&'static self, strips: &[Strip], packed: Span, is_pack: bool) -> Result<bool> {
        let strips = strips.to_vec();
        self.run(move || strips.iter().try_for_each(|strip| self.move_strip(strip, packed, is_pack)))?;
        Ok(true)
    }

    /// Runs `kernel` on the thread of kernels, and waits until it has ended. Returns its result.
    fn run(&self, kernel: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let queue = match self.kernels.get() {
            Some(queue) => queue,
            None => {
                let queue = SentinelStream::start(self.seed)?;
                self.kernels.get_or_init(|| queue)
            }
        };
        let (done, over) = std::sync::mpsc::channel();
        queue.push(move || {
            // The caller receives the result, or has ended.
            let _ = done.send(kernel());
        });
        over.recv().expect("the thread of kernels never ends")
    }

    /// Makes a reduction by a kernel. `into` is memory of this process; `left` is, too, or was opened by
    /// `import`. Returns false if one of them is not device memory.
    pub(crate) fn reduce(&'static self, reduction: KernelReduction, left: Span, into: Span) -> Result<bool> {
        if !self.is_device(left)? || !self.holds(into.address(), into.bytes())? {
            return Ok(false);
        }
        let (left, into) = (self.inside(left)?, self.inside(into)?);
        if reduction.count == 0 {
            return Ok(true);
        }
        self.run(move || {
            combine(reduction, left, into);
            Ok(())
        })?;
        Ok(true)
    }

    fn is_device(&self, span: Span) -> Result<bool> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let is_opened = opened.values().any(|base| (*base..*base + BYTES).contains(&span.address()));
        Ok(is_opened || self.holds(span.address(), span.bytes())?)
    }

    fn move_strip(&self, strip: &Strip, packed: Span, is_pack: bool) -> Result<()> {
        (0..strip.repeat).try_for_each(|piece| {
            let address = strip.address.wrapping_add_signed(strip.stride as isize * piece as isize);
            // SAFETY: the strip is a part of the program's buffer.
            let user = unsafe { Span::claim(address, strip.bytes) };
            let packed = packed.slice(strip.at + piece * strip.bytes, strip.bytes);
            if is_pack { self.copy(packed, user) } else { self.copy(user, packed) }
        })
    }
}

/// Does what a kernel does for a reduction: combines each element at `left` with the element at `into`, and
/// stores the result there.
fn combine(reduction: KernelReduction, left: Span, into: Span) {
    let KernelReduction { op, basic, count, stride } = reduction;
    if stride == basic.size() {
        return datatype::reduce(op, basic, left, into, into);
    }
    // Pairs with padding, which must not change.
    let (bytes, (index_at, end)) = (basic.size(), reduction.element());
    let value_bytes = bytes - (end - index_at);
    let (ours, theirs) = (Block::new(bytes), Block::new(bytes));
    let parts = |element: Span, packed: Span| {
        let index = (element.slice(index_at, end - index_at), packed.slice(value_bytes, bytes - value_bytes));
        [(element.slice(0, value_bytes), packed.slice(0, value_bytes)), index]
    };
    for i in 0..count {
        let (a, b) = (left.slice(i * stride, end), into.slice(i * stride, end));
        let packing = parts(a, theirs.span()).into_iter().chain(parts(b, ours.span()));
        packing.for_each(|(element, packed)| element.copy_to(packed));
        datatype::reduce(op, basic, theirs.span(), ours.span(), ours.span());
        parts(b, ours.span()).into_iter().for_each(|(element, packed)| packed.copy_to(element));
    }
}

type StreamJob = Box<dyn FnOnce() + Send>;

/// A stream of the program, or of the kernels: a thread that runs its jobs in order.
pub struct SentinelStream {
    state: Mutex<JobQueue>,
    news: Condvar,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<StreamJob>,
    is_busy: bool,
    stopped: bool,
}

impl JobQueue {
    fn is_idle(&self) -> bool {
        !self.is_busy && self.jobs.is_empty()
    }
}

impl SentinelStream {
    /// Makes a stream and starts its thread. `delays` is the seed of the delays before jobs, 0 for no delays.
    fn start(delays: u64) -> Result<Arc<SentinelStream>> {
        let queue = Arc::new(SentinelStream { state: Mutex::default(), news: Condvar::new() });
        let ours = queue.clone();
        match std::thread::Builder::new().name("sentinel-stream".into()).spawn(move || ours.serve(delays)) {
            Ok(_) => Ok(queue),
            Err(error) => fail!(Class::Other, "no thread can be made for a stream: {error}"),
        }
    }

    fn state(&self) -> MutexGuard<'_, JobQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) {
        self.state().jobs.push_back(Box::new(job));
        self.news.notify_all();
    }

    /// Waits until all jobs of the stream are done.
    pub(crate) fn drain(&self) {
        let mut state = self.state();
        while !state.is_idle() {
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state().is_idle()
    }

    fn stop(&self) {
        self.state().stopped = true;
        self.news.notify_all();
    }

    fn serve(&self, mut seed: u64) {
        sys::signal::block_all();
        loop {
            let mut state = self.state();
            while state.jobs.is_empty() && !state.stopped {
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(job) = state.jobs.pop_front() else { return };
            state.is_busy = true;
            drop(state);
            if seed != 0 {
                // xorshift64 (Marsaglia 2003).
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                std::thread::sleep(Duration::from_micros(seed % 2000));
            }
            job();
            self.state().is_busy = false;
            self.news.notify_all();
        }
    }
}

/// Maps all of the file `fd`, for the life of the process. Returns the address.
fn map(fd: &OwnedFd, protection: i32) -> Result<usize> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new map at an address that the kernel chooses replaces nothing.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, fd.as_raw_fd(), 0) };
    if map == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        fail!(Class::NoMem, "cannot map the memory of OUTBOARD_DEVICE=sentinel: {error}");
    }
    Ok(map.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: bytes come back as they were written, and the error for a wrong address says what is wrong.
    #[test]
    fn copies_and_refuses() {
        let sentinel = Sentinel::new(0).unwrap();
        let (memory, data) = (sentinel.alloc(5000).unwrap(), Block::of(&[7; 5000]));
        // SAFETY: only `copy` gets the span.
        let there = unsafe { Span::claim(memory, 5000) };
        sentinel.copy(there, data.span()).unwrap();
        let back = Block::new(5000);
        sentinel.copy(back.span(), there).unwrap();
        assert_eq!(back.to_vec(), [7; 5000]);
        assert!(sentinel.holds(memory + 4999, 1).unwrap());
        assert!(!sentinel.holds(data.span().address(), 1).unwrap());
        let said = |result: Result<bool>| result.unwrap_err().message.clone();
        assert!(said(sentinel.holds(memory + 1, 5000)).contains("more than its allocation"));
        sentinel.free(memory).unwrap();
        assert!(said(sentinel.holds(memory, 1)).contains("has been freed"));
        assert!(sentinel.free(memory).is_err());
    }

    // Goal: the kernel refuses the program's addresses, as the CPU would.
    #[test]
    fn is_closed_until_it_is_opened() {
        let sentinel = Sentinel::new(0).unwrap();
        let memory = sentinel.alloc(1).unwrap();
        let zero = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: the kernel checks the address; nothing else uses the byte.
        let read =
            || unsafe { libc::read(zero.as_raw_fd(), std::ptr::with_exposed_provenance_mut(memory), 1) };
        assert_eq!(read(), -1);
        sentinel.set_open(memory, true).unwrap();
        assert_eq!(read(), 1);
        assert!(!sentinel.holds(memory, 1).unwrap());
    }
}
