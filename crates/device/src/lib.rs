// SPDX-License-Identifier: BSD-3-Clause
//! Device memory: whether an address belongs to a device, and copies between it and the memory of the host.
//!
//! Purpose: the layers above touch device memory through `copy` and kernels only. A process has one backend,
//! loaded at run time by `start`: `cuda` or `hip` (`driver.rs`, by dlopen), or `sentinel` (memory that the
//! CPU cannot touch, for tests on every machine).
//! Invariants: `on` is false until a backend runs, and until then no other function needs to be called. An
//! address that belongs to no device is the host's.
//! Read next: `sentinel.rs`, `driver.rs`, `stream.rs`, `lend.rs`, `kernel.rs`; `abi/src/staging.rs` uses
//! them.
pub mod compiler;
mod driver;
pub mod kernel;
pub mod lend;
mod sentinel;
mod stream;
mod words;

use driver::{CUDA, Driver, HIP};
use error::{Class, Result, fail};
use kernel::{Reduction, Strip};
use sentinel::Sentinel;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
pub use stream::Stream;
use sys::Span;
pub use words::{Words, is_at};

/// Which backend to use (OUTBOARD_DEVICE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// None: every address is the host's.
    Off,
    /// `Cuda` if its driver and a device are here, else `Hip`, else none.
    Auto,
    /// The CUDA driver.
    Cuda,
    /// HIP.
    Hip,
    /// Memory that the CPU cannot touch.
    Sentinel,
}

enum Backend {
    Driver(Driver),
    Sentinel(Sentinel),
}

/// The first word of a note (`lend.rs`).
const NOTE_OF_SENTINEL: u64 = 1;

static ON: AtomicBool = AtomicBool::new(false);
static BACKEND: OnceLock<Backend> = OnceLock::new();

/// Loads a backend. Later calls change nothing. `seed`: the delays of sentinel streams, 0 for none. `cache`:
/// the folder in which compiled kernels are kept.
///
/// Errors: the one that was asked for cannot be had.
pub fn start(choice: Choice, seed: u64, cache: Option<PathBuf>) -> Result<()> {
    if BACKEND.get().is_some() {
        return Ok(());
    }
    let backend = match choice {
        Choice::Off => return Ok(()),
        Choice::Sentinel => Backend::Sentinel(Sentinel::new(seed)?),
        Choice::Cuda => Backend::Driver(Driver::load(&CUDA, cache)?),
        Choice::Hip => Backend::Driver(Driver::load(&HIP, cache)?),
        Choice::Auto => match Driver::load(&CUDA, cache.clone()).or_else(|_| Driver::load(&HIP, cache)) {
            Ok(driver) => Backend::Driver(driver),
            Err(_) => return Ok(()),
        },
    };
    BACKEND.get_or_init(|| backend);
    ON.store(true, Ordering::Release);
    Ok(())
}

/// Makes `on` true even without a backend: a collective library takes calls off their fast path, too.
pub fn look_always() {
    ON.store(true, Ordering::Release);
}

/// Whether a backend runs, or `look_always` was called: one load, for programs without devices.
#[inline(always)]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The backend's name, if one runs.
pub fn name() -> Option<&'static str> {
    BACKEND.get().map(|backend| match backend {
        Backend::Driver(driver) => driver.api.name,
        Backend::Sentinel(_) => "sentinel",
    })
}

/// Whether `bytes` bytes at `address` are memory of a device.
///
/// Errors (MPI_ERR_BUFFER): they have been freed, or are more than was allocated.
pub fn holds(address: usize, bytes: usize) -> Result<bool> {
    match BACKEND.get() {
        None => Ok(false),
        Some(Backend::Driver(driver)) => driver.holds(address, bytes),
        Some(Backend::Sentinel(sentinel)) => sentinel.holds(address, bytes),
    }
}

/// Copies `from` to `to`, either of them on a device. When it returns, the bytes are there for the host and
/// for everything that the device starts from then on. The spans have equal lengths.
///
/// Errors: those of `holds`, and of the device's driver.
pub fn copy(to: Span, from: Span) -> Result<()> {
    match BACKEND.get() {
        None => from.copy_to(to),
        Some(Backend::Driver(driver)) => driver.copy(to, from)?,
        Some(Backend::Sentinel(sentinel)) => sentinel.copy(to, from)?,
    }
    Ok(())
}

/// Lends device memory until `lend::withdraw`, with the note in its stand-in. False if it cannot be lent.
///
/// Errors: those of `holds`.
pub fn lend(stand_in: Span, user: Span) -> Result<bool> {
    let (backend, words) = match BACKEND.get() {
        Some(Backend::Driver(driver)) => (driver.api.note, driver.export(user)),
        Some(Backend::Sentinel(sentinel)) => (NOTE_OF_SENTINEL, sentinel.export(user)?),
        None => return Ok(false),
    };
    Ok(words.is_some_and(|words| lend::note(stand_in, user, backend, &words)))
}

/// Gives the stand-in at `address` its bytes instead of a note: somebody cannot open the memory.
///
/// Errors: those of `copy`.
pub fn fill_lent(address: usize) -> Result<()> {
    lend::take_back(address).map_or(Ok(()), |(stand_in, user)| copy(stand_in, user))
}

/// Copies lent bytes from `at` on to `to`, which may be a part of a stand-in.
///
/// Errors: the note is none; the memory cannot be opened; those of `copy`.
pub fn take_lent(note: &[u64; lend::NOTE_WORDS], at: usize, to: Span) -> Result<()> {
    let from = open_lent(note, at, to.bytes())?;
    let Some((stand_in, user)) = lend::past_stand_in(to) else { return copy(to, from) };
    copy(user, from)?;
    lend::went(stand_in, user.bytes());
    Ok(())
}

/// Where this process's device finds `bytes` lent bytes, from `at` on.
///
/// Errors: the note is none; the memory cannot be opened.
pub fn open_lent(note: &[u64; lend::NOTE_WORDS], at: usize, bytes: usize) -> Result<Span> {
    let [backend, lent, words @ ..] = note;
    if at.checked_add(bytes).is_none_or(|end| end as u64 > *lent) {
        fail!(Class::Intern, "{bytes} bytes from {at} on of {lent} lent bytes");
    }
    let all = match (BACKEND.get(), *backend) {
        (Some(Backend::Driver(driver)), note) if note == driver.api.note => {
            driver.import(words, *lent as usize)?
        }
        (Some(Backend::Sentinel(sentinel)), NOTE_OF_SENTINEL) => sentinel.import(words, *lent as usize)?,
        _ => fail!(Class::Other, "memory of another kind of device was lent"),
    };
    Ok(all.slice(at, bytes))
}

/// Packs strips of device memory to `packed`, or unpacks them from there (`is_pack` is false), by a kernel.
/// False if none can: the pieces are not all of one allocation, or kernels cannot be compiled for the device.
///
/// Errors: those of `copy`.
pub fn move_strips(strips: &[Strip], packed: Span, is_pack: bool) -> Result<bool> {
    let ends = |strip: &Strip| {
        let last = strip.address.wrapping_add_signed(strip.stride as isize * (strip.repeat as isize - 1));
        (strip.address.min(last), strip.address.max(last) + strip.bytes)
    };
    let from = strips.iter().map(|strip| ends(strip).0).min().unwrap_or(0);
    let to = strips.iter().map(|strip| ends(strip).1).max().unwrap_or(0);
    // Memory of several allocations is longer than the first of them.
    if from == to || !holds(from, to - from).unwrap_or(false) {
        return Ok(false);
    }
    match BACKEND.get() {
        None => Ok(false),
        Some(Backend::Driver(driver)) => driver.move_strips(strips, packed, is_pack),
        Some(Backend::Sentinel(sentinel)) => sentinel.move_strips(strips, packed, is_pack),
    }
}

/// `into[i] = left[i] op into[i]`, by a kernel. False if none can: `Reduction::kernel` says what is left to
/// the CPU. `into` is memory of a device, `left` too, or another process's by `open_lent`. No elements: it
/// only says whether a kernel could.
///
/// Errors: those of `copy`.
pub fn reduce(reduction: Reduction, left: usize, into: usize) -> Result<bool> {
    let Some(kernel) = reduction.kernel() else { return Ok(false) };
    if !reduction.is_aligned(left, into) {
        return Ok(false);
    }
    let bytes = reduction.bytes();
    // SAFETY: the program's buffers (contract of `abi/src/args/memory.rs`); the backends check them.
    let [left, into] = [left, into].map(|address| unsafe { Span::claim(address, bytes) });
    match BACKEND.get() {
        None => Ok(false),
        Some(Backend::Driver(driver)) => driver.reduce(reduction, &kernel, left, into),
        Some(Backend::Sentinel(sentinel)) => sentinel.reduce(reduction, left, into),
    }
}

/// The calling thread's device, for `adopt` in another thread. Only CUDA has one for each thread.
pub fn context() -> Result<usize> {
    match BACKEND.get() {
        Some(Backend::Driver(driver)) => driver.context(),
        _ => Ok(0),
    }
}

/// Makes what `context` returned in another thread the calling thread's device, for its life.
pub fn adopt(context: usize) -> Result<()> {
    match BACKEND.get() {
        Some(Backend::Driver(driver)) => driver.adopt(context),
        _ => Ok(()),
    }
}

/// Memory of the current device.
///
/// Errors (MPI_ERR_NO_MEM): it has no more. (MPI_ERR_OTHER): no backend runs.
pub fn alloc(bytes: usize) -> Result<usize> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there is no device memory: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.alloc(bytes),
        Some(Backend::Sentinel(sentinel)) => sentinel.alloc(bytes),
    }
}

/// Frees memory of `alloc`.
///
/// Errors (MPI_ERR_BUFFER): `address` is not the beginning of such memory.
pub fn free(address: usize) -> Result<()> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there is no device memory: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.free(address),
        Some(Backend::Sentinel(sentinel)) => sentinel.free(address),
    }
}

/// Lets the CPU touch an allocation of sentinel memory (`open`), or no longer. While it may, the memory is
/// the host's. For tests, whose programs read and write their buffers between MPI calls.
///
/// Errors (MPI_ERR_OTHER): the backend is another one. (MPI_ERR_BUFFER): nothing is allocated there.
pub fn set_open(address: usize, open: bool) -> Result<()> {
    match BACKEND.get() {
        Some(Backend::Sentinel(sentinel)) => sentinel.set_open(address, open),
        _ => fail!(Class::Other, "only sentinel memory can be opened to the CPU"),
    }
}

/// The stream with the handle `handle` of the program, which calls streams `kind`: `cudaStream_t`, or
/// `sentinel`.
///
/// Errors (MPI_ERR_ARG): the backend has no such streams.
pub fn stream(kind: &str, handle: usize) -> Result<Stream> {
    match (BACKEND.get(), kind) {
        (Some(Backend::Driver(driver)), kind) if kind == driver.api.stream_kind => {
            driver.orders()?;
            Ok(Stream::Driver(driver, handle))
        }
        (Some(Backend::Sentinel(sentinel)), "sentinel") => {
            Ok(Stream::Sentinel(sentinel, sentinel.stream(handle)?))
        }
        _ => match stream_kind() {
            Some(here) => fail!(Class::Arg, "the type of a stream is {kind}, but this device has {here}"),
            None => fail!(Class::Arg, "the type of a stream is {kind}, but OUTBOARD_DEVICE is off"),
        },
    }
}

/// What the streams of the backend are called.
pub fn stream_kind() -> Option<&'static str> {
    BACKEND.get().map(|backend| match backend {
        Backend::Driver(driver) => driver.api.stream_kind,
        Backend::Sentinel(_) => "sentinel",
    })
}

/// Makes a stream for the program, and returns its handle.
///
/// Errors (MPI_ERR_OTHER): no backend runs, or it cannot.
pub fn create_stream() -> Result<usize> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there are no streams: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.create_stream(),
        Some(Backend::Sentinel(sentinel)) => sentinel.create_stream(),
    }
}

/// The stream of a handle of `create_stream`.
pub fn created_stream(handle: usize) -> Result<Stream> {
    stream(stream_kind().unwrap_or("none"), handle)
}

/// Ends a stream of `create_stream`, once its work is over.
pub fn destroy_stream(handle: usize) -> Result<()> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there are no streams: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.destroy_stream(handle),
        Some(Backend::Sentinel(sentinel)) => sentinel.destroy_stream(handle),
    }
}
