// SPDX-License-Identifier: BSD-3-Clause
//! Lets operations use device memory of the program. While an operation runs, a *stand-in* takes the place
//! of the device memory: a block of host memory with the packed bytes. So all crates below see host memory
//! only. A language binding may pass host memory of its own instead, and move the bytes (`AttachedCopy`).
//! Read next: `device/src/lib.rs`.
//!
//! | state of a stand-in | who moves it there |
//! |---|---|
//! | empty, in this thread's list | `stand_in`, when `args/memory.rs` makes a claim from an address |
//! | filled with the program's bytes | `stand_in` (`Fill::Now`); `fill`, `Unfilled::filled` (`Fill::Later`) |
//! | exported: peers read the device memory | `Unfilled::filled_or_exported`, for long sends within a host |
//! | taken by a request | `taken`, when the call makes a request |
//! | delivered: copied back, then freed | `end` of the call, or `StandIns::deliver` of the request |

use datatype::{Basic, Buffer, BufferClaim, Layout, PredefinedOp};
use device::kernel::{KernelReduction, Strip};
use error::{Class, Result, fail};
use objects::constants::BYTE;
use objects::session::support_memory_kinds;
use settings::Settings;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use sys::{Block, Span};
use telemetry::Counter;

/// A buffer of the program in device memory, and its stand-in, a block of host memory with the buffer's
/// packed bytes.
#[derive(Debug)]
pub struct Staged {
    user: Buffer,
    block: StandInMemory,
    /// Whether the operation may write the stand-in (host memory in place of device memory). If not, it is
    /// not copied back.
    is_written: bool,
    /// Whether the stand-in (host memory in place of device memory) is filled, or need not be, because the
    /// operation only writes it.
    is_filled: bool,
    /// The offset and length of each part that a partitioned receive has copied to the program's memory
    /// already.
    delivered: Mutex<Vec<(usize, usize)>>,
    /// How many bytes are to be copied back to the program's memory when the running call ends.
    arrived: usize,
    /// Whether `device::export` has an entry for the stand-in (host memory in place of device memory). Then
    /// peers read the device memory itself, or write received bytes to it.
    is_entered: bool,
}

/// The block of memory that takes the place of the program's: host memory, or device memory for a collective
/// library.
#[derive(Debug)]
pub(crate) enum StandInMemory {
    Host(Block),
    Device(Span),
}

impl StandInMemory {
    pub(crate) fn new(bytes: usize, on_device: bool) -> Result<StandInMemory> {
        if !on_device {
            return Ok(StandInMemory::Host(Block::new(bytes)));
        }
        let address = device::alloc(bytes)?;
        // SAFETY: allocated just now, and freed when this value is dropped.
        Ok(StandInMemory::Device(unsafe { Span::claim(address, bytes) }))
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            StandInMemory::Host(block) => block.span(),
            StandInMemory::Device(span) => *span,
        }
    }
}

impl Drop for StandInMemory {
    fn drop(&mut self) {
        if let StandInMemory::Device(span) = self {
            // A device that refuses its own memory has failed; its next call reports that.
            let _ = device::free(span.address());
        }
    }
}

/// The smallest number of contiguous runs of memory that one kernel moves together. Fewer runs are copied one
/// by one. An estimate: to launch a kernel takes about as long as a few copies.
const KERNEL_PIECES_MIN: usize = 8;

/// When the host memory that stands in for device memory is filled with the program's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// The host memory that stands in for device memory is filled when it is made.
    Now,
    /// The host memory that stands in for device memory is filled later, by the function `fill`, once it is
    /// known what carries out the operation.
    Later,
}

/// A function that a language binding passes to `MPIX_Request_attach`, which must keep the contract in
/// include/mpi-ext.h. None if the binding passes none.
pub(crate) type AttachedFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// A language binding's functions for a copy of the program's memory, which the binding fills and copies
/// back.
#[derive(Debug)]
pub struct AttachedCopy {
    pub(crate) start: AttachedFunction,
    pub(crate) end: AttachedFunction,
    pub(crate) release: AttachedFunction,
    pub(crate) state: usize,
}

impl AttachedCopy {
    fn call(&self, function: AttachedFunction) {
        if let Some(function) = function {
            // SAFETY: the binding passed it with this state (contract of `AttachedFunction`).
            unsafe { function(std::ptr::with_exposed_provenance_mut(self.state)) };
        }
    }
}

impl Drop for AttachedCopy {
    fn drop(&mut self) {
        self.call(self.release);
    }
}

/// What stands in for the program's memory in the operation of a request.
#[derive(Debug)]
pub enum StandIns {
    Device(Vec<Staged>),
    Copy(AttachedCopy),
}

impl StandIns {
    /// Copies the program's bytes to the stand-ins (host memory in place of device memory) again, before a
    /// persistent operation starts once more.
    pub(crate) fn fetch(&self) -> Result<()> {
        match self {
            StandIns::Device(all) => all.iter().try_for_each(|staged| staged.fetch(0, staged.user.bytes())),
            StandIns::Copy(attached) => {
                attached.call(attached.start);
                Ok(())
            }
        }
    }

    /// Copies the stand-ins (host memory in place of device memory) back to the program's memory when the
    /// operation is over. `received` is how many bytes a receive got, and None for other operations.
    pub(crate) fn deliver(&self, received: Option<u64>) -> Result<()> {
        match self {
            StandIns::Device(all) => all.iter().try_for_each(|staged| {
                let bytes = staged.user.bytes();
                staged.deliver_rest(received.map_or(bytes, |received| bytes.min(received as usize)))
            }),
            StandIns::Copy(attached) => {
                attached.call(attached.end);
                Ok(())
            }
        }
    }

    /// Returns the blocks of host memory that stand in for device memory, and may be copied back in parts. An
    /// `AttachedCopy` has none.
    pub(crate) fn of_device(&self) -> &[Staged] {
        match self {
            StandIns::Device(all) => all,
            StandIns::Copy(_) => &[],
        }
    }
}

thread_local! {
    static LIST: RefCell<Vec<Staged>> = const { RefCell::new(Vec::new()) };
}

/// Loads the device backend that OUTBOARD_DEVICE names, and the collective library that OUTBOARD_CCL names.
pub(crate) fn start(settings: &Settings) -> Result<()> {
    let choice = match settings.device {
        settings::Device::Off => device::BackendChoice::Off,
        settings::Device::Auto => device::BackendChoice::Auto,
        settings::Device::Cuda => device::BackendChoice::Cuda,
        settings::Device::Hip => device::BackendChoice::Hip,
        settings::Device::Sentinel => device::BackendChoice::Sentinel,
    };
    device::start(choice, settings.device_seed, settings::cache_folder().map(|cache| cache.join("kernels")))?;
    match device::name() {
        // MPI Forum, Memory Allocation Kinds Side Document 1.0, section 3.
        Some("cuda") => support_memory_kinds(&["cuda", "cuda:device", "cuda:host", "cuda:managed"]),
        Some("hip") => support_memory_kinds(&["rocm", "rocm:device", "rocm:host", "rocm:managed"]),
        Some(_) => support_memory_kinds(&["sentinel", "sentinel:device"]),
        None => (),
    }
    if settings.ccl != "off" {
        ccl::start(&settings.ccl)?;
        device::set_on();
    }
    Ok(())
}

/// Returns the memory that an operation uses for a buffer of the program: the buffer itself, or host memory
/// that stands in for it if a part of it is device memory. The result is an address, how many elements are
/// there, and their layout. Fails if `device::holds` or `device::copy` fails.
#[cold]
#[inline(never)]
pub(crate) fn stand_in(
    address: usize,
    elements: usize,
    bytes: usize,
    layout: &Arc<Layout>,
    fill: Fill,
) -> Result<(usize, usize, &Arc<Layout>)> {
    // SAFETY: the program passed it as a buffer of so many elements (contract of `args/memory.rs`).
    let user = unsafe { BufferClaim::claim(address, elements, bytes, layout) }.buffer();
    let mut there = Ok(false);
    user.pieces(0, bytes, |piece| {
        if let Ok(false) = there {
            there = device::holds(piece.address(), piece.bytes());
        }
    });
    if !there? {
        return Ok((address, elements, layout));
    }
    let mut staged = Staged::new(user, false)?;
    if fill == Fill::Now {
        staged.fill()?;
    }
    let stands_in = staged.block.span().address();
    LIST.with_borrow_mut(|list| list.push(staged));
    Ok((stands_in, bytes, datatype::predefined(BYTE.0 as u32).expect("MPI_BYTE is predefined").layout()))
}

impl Staged {
    /// Makes a stand-in for a buffer of the program: a block of host memory or of device memory. Does not
    /// fill it.
    pub(crate) fn new(user: Buffer, on_device: bool) -> Result<Staged> {
        let block = StandInMemory::new(user.bytes(), on_device)?;
        let (arrived, delivered) = (user.bytes(), Mutex::default());
        Ok(Staged { user, block, is_written: true, is_filled: false, delivered, arrived, is_entered: false })
    }

    /// Returns the address of the block that stands in for the program's memory.
    pub(crate) fn address(&self) -> usize {
        self.block.span().address()
    }

    /// Copies all bytes of the program's buffer to the block that stands in for it. Does nothing if that has
    /// been done, or if the operation does not read the block.
    pub(crate) fn fill(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.is_filled, true) {
            self.fetch(0, self.user.bytes())?;
        }
        Ok(())
    }

    /// Sets whether the operation that starts now reads and writes the block that stands in for the program's
    /// buffer. Fills the block if it is read.
    pub(crate) fn set_use(&mut self, is_read: bool, is_written: bool) -> Result<()> {
        self.is_written = is_written;
        self.is_filled = !is_read;
        self.fill()
    }

    /// Copies part of the program's buffer to the block that stands in for it: `bytes` packed bytes, from
    /// packed offset `offset` on.
    pub(crate) fn fetch(&self, offset: usize, bytes: usize) -> Result<()> {
        if self.move_strips(offset, bytes, true)? {
            return Ok(());
        }
        self.each(offset, bytes, |user, ours| device::copy(ours, user))
    }

    /// Copies `bytes` packed bytes, from `offset` on, of the block that stands in for the program's buffer
    /// back to this buffer. Does nothing if the operation does not write the block.
    pub(crate) fn deliver(&self, offset: usize, bytes: usize) -> Result<()> {
        if !self.is_written || !self.is_filled {
            return Ok(());
        }
        if self.move_strips(offset, bytes, false)? {
            return Ok(());
        }
        self.each(offset, bytes, device::copy)
    }

    /// Moves the packed bytes `[offset, offset + bytes)` between the program's buffer and the block that
    /// stands in for it, by a kernel. Returns false if the buffer has few contiguous runs of memory, or if no
    /// kernel can move them.
    fn move_strips(&self, offset: usize, bytes: usize, is_pack: bool) -> Result<bool> {
        if matches!(self.block, StandInMemory::Device(_)) || self.user.contiguous().is_some() {
            return Ok(false);
        }
        let (mut strips, mut pieces, mut at) = (Vec::new(), 0, 0);
        self.user.strips(offset, bytes, |address, bytes, repeat, stride| {
            strips.push(Strip { address, stride, bytes, repeat, at });
            (pieces, at) = (pieces + repeat, at + bytes * repeat);
        });
        if pieces < KERNEL_PIECES_MIN {
            return Ok(false);
        }
        let moved = device::move_strips(&strips, self.block.span().slice(offset, bytes), is_pack)?;
        telemetry::count(Counter::DeviceKernels, u64::from(moved));
        Ok(moved)
    }

    /// Copies `bytes` packed bytes, from `offset` on, to the program's buffer before the operation is over,
    /// because the program may use them from now on.
    pub(crate) fn deliver_early(&self, offset: usize, bytes: usize) -> Result<()> {
        let mut delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        if delivered.contains(&(offset, bytes)) {
            return Ok(());
        }
        delivered.push((offset, bytes));
        self.deliver(offset, bytes)
    }

    /// Copies the first `bytes` packed bytes to the program's buffer, except those that `deliver_early` has
    /// copied. Then forgets what `deliver_early` has copied.
    fn deliver_rest(&self, bytes: usize) -> Result<()> {
        let mut early = std::mem::take(&mut *self.delivered.lock().unwrap_or_else(PoisonError::into_inner));
        early.sort_unstable();
        let mut at = if self.is_entered { device::export::take_direct_bytes(self.address()) } else { 0 };
        for (offset, bytes) in early {
            self.deliver(at, offset.saturating_sub(at))?;
            at = at.max(offset + bytes);
        }
        self.deliver(at, bytes.saturating_sub(at))
    }

    fn each(&self, offset: usize, bytes: usize, copy: impl Fn(Span, Span) -> Result<()>) -> Result<()> {
        let (mut at, mut result) = (offset, Ok(()));
        self.user.pieces(offset, bytes, |piece| {
            if result.is_ok() {
                result = copy(piece, self.block.span().slice(at, piece.bytes()));
            }
            at += piece.bytes();
        });
        result
    }

    fn stands_for(&self, buffer: &Buffer) -> bool {
        self.address() == buffer.base()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_entered {
            device::export::withdraw(self.address());
        }
    }
}

/// Fills the host memory that stands in for device memory in the running call with the program's bytes.
pub(crate) fn fill() -> Result<()> {
    LIST.with_borrow_mut(|list| list.iter_mut().try_for_each(Staged::fill))
}

/// Takes the stand-ins (host memory in place of device memory) of the running call out of this thread's list:
/// for a request, or while a function of the program runs.
pub(crate) fn take() -> Vec<Staged> {
    LIST.take()
}

/// Makes `list`, which `take` returned, this thread's list of stand-ins again.
pub(crate) fn put_back(list: Vec<Staged>) {
    LIST.set(list);
}

/// Takes the stand-ins (host memory in place of device memory) of the running call for a request. Returns
/// None if the call has none.
pub(crate) fn taken() -> Option<Arc<StandIns>> {
    let list = take();
    (!list.is_empty()).then(|| Arc::new(StandIns::Device(list)))
}

/// Whether the running call was passed device memory, for which host memory stands in.
pub(crate) fn any() -> bool {
    LIST.with_borrow(|list| !list.is_empty())
}

/// Records that the running call only reads `buffer`. If `buffer` stands in for device memory, it is not
/// copied back.
pub(crate) fn reads(buffer: &Buffer) {
    LIST.with_borrow_mut(|list| {
        list.iter_mut()
            .filter(|staged| staged.stands_for(buffer))
            .for_each(|staged| staged.is_written = false);
    });
}

/// Records that the running call receives into `buffer`. If `buffer` stands in for device memory, it need not
/// be filled, and a sender on this host may write directly to the device memory.
#[cold]
pub(crate) fn receives(buffer: &Buffer) {
    with(buffer, |staged| {
        (staged.is_filled, staged.arrived) = (true, 0);
        if let Some(user) = staged.user.contiguous() {
            device::export::expect(staged.block.span(), user);
            staged.is_entered = true;
        }
        Ok(())
    })
    .expect("nothing here fails");
}

/// Records that the receive of the running call got `bytes` bytes, so that only these are copied back.
#[cold]
pub(crate) fn received(bytes: usize) {
    LIST.with_borrow_mut(|list| {
        let receives = list.iter_mut().filter(|staged| staged.is_written);
        receives.for_each(|staged| staged.arrived = bytes.min(staged.user.bytes()));
    });
}

/// The buffer of a send. It may be host memory that stands in for device memory and is not filled yet. The
/// functions that return the buffer fill it first, or let peers read the device memory itself.
#[derive(Clone, Debug)]
pub struct Unfilled(Buffer);

impl Unfilled {
    pub(crate) fn new(buffer: Buffer) -> Unfilled {
        Unfilled(buffer)
    }

    /// Returns how many bytes of data the buffer has.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Whether the buffer stands in for device memory.
    #[cold]
    pub(crate) fn is_stand_in(&self) -> bool {
        LIST.with_borrow(|list| list.iter().any(|staged| staged.stands_for(&self.0)))
    }

    /// Returns the buffer. If it stands in for device memory, fills it with the program's bytes first.
    #[inline]
    pub(crate) fn filled(self) -> Result<Buffer> {
        self.filled_or_exported(|| Ok(false))
    }

    /// Returns the buffer. If it stands in for device memory, fills it with the program's bytes first. If
    /// `exports` returns true, lets peers read the device memory instead.
    #[inline(always)]
    pub(crate) fn filled_or_exported(self, exports: impl FnOnce() -> Result<bool>) -> Result<Buffer> {
        if device::on() {
            provide(&self.0, exports()?)?;
        }
        Ok(self.0)
    }
}

/// Fills `buffer` with the program's bytes if it stands in for device memory. If `exports` is true, lets
/// peers read the device memory instead, where this is possible.
#[cold]
fn provide(buffer: &Buffer, exports: bool) -> Result<()> {
    with(buffer, |staged| {
        if exports && let Some(user) = staged.user.contiguous() {
            staged.is_entered = device::export(staged.block.span(), user)?;
        }
        if staged.is_entered { Ok(()) } else { staged.fill() }
    })
}

/// Computes `into = left op into` by a kernel, if both stand in for device memory and there is a kernel.
/// `stride` is the distance in bytes between elements. Returns whether a kernel has done it.
pub(crate) fn reduce(
    op: PredefinedOp,
    basic: Basic,
    stride: usize,
    left: &Buffer,
    into: &Buffer,
) -> Result<bool> {
    if !any() {
        return Ok(false);
    }
    let reduction = KernelReduction { op, basic, count: into.bytes() / basic.size(), stride };
    let reduced = device::reduce(reduction, user_of(left).base(), user_of(into).base())?;
    telemetry::count(Counter::DeviceReductions, u64::from(reduced));
    Ok(reduced)
}

/// Calls `each` with the `Staged` whose block is `buffer`. Does nothing if there is none.
fn with(buffer: &Buffer, each: impl FnOnce(&mut Staged) -> Result<()>) -> Result<()> {
    LIST.with_borrow_mut(|list| list.iter_mut().find(|staged| staged.stands_for(buffer)).map_or(Ok(()), each))
}

/// Returns the program's buffer if `buffer` stands in for device memory, and otherwise `buffer` itself.
pub(crate) fn user_of(buffer: &Buffer) -> Buffer {
    LIST.with_borrow(|list| {
        let staged = list.iter().find(|staged| staged.stands_for(buffer));
        staged.map_or_else(|| buffer.clone(), |staged| staged.user.clone())
    })
}

/// Ends a call with the result `result`: copies the stand-ins (host memory in place of device memory) that no
/// request has taken back to the program's memory.
pub(crate) fn end(result: Result<()>) -> Result<()> {
    let list = take();
    let delivered = list.iter().try_for_each(|staged| staged.deliver_rest(staged.arrived));
    if result.is_err() {
        // An operation that the call has started may still use the stand-ins.
        std::mem::forget(list);
    }
    result.and(delivered)
}

/// Fails with MPI_ERR_BUFFER if the memory is a device's. A call that accepts only host memory checks so. The
/// error's text calls the memory `what`.
pub(crate) fn host_only(address: usize, bytes: usize, what: &str) -> Result<()> {
    if device::on() && bytes > 0 && device::holds(address, bytes)? {
        fail!(Class::Buffer, "{what} at {address:#x} is device memory; it must be the host's");
    }
    Ok(())
}
