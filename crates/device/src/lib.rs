// SPDX-License-Identifier: BSD-3-Clause
//! Device memory: whether an address belongs to a device, and copies between device and host memory.
//!
//! Purpose: the layers above access device memory through `copy` and kernels only. A process has one backend,
//! loaded at run time by `start`: `cuda` or `hip` (`driver.rs`, by dlopen), or `sentinel` (memory that the
//! CPU cannot access, for tests on every machine).
//! Invariants: `on` is false until a backend runs or `set_on` was called, and until then no other function
//! needs to be called. An address that belongs to no device belongs to the host.
//! Read next: `sentinel.rs`, `driver.rs`, `stream.rs`, `export.rs`, `kernel.rs`; `abi/src/staging.rs` uses
//! them.
pub mod compiler;
mod driver;
pub mod export;
pub mod kernel;
mod sentinel;
mod stream;
mod words;

use driver::{CUDA, Driver, HIP};
use error::{Class, Result, fail};
use kernel::{KernelReduction, Strip};
use sentinel::Sentinel;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
pub use stream::Stream;
use sys::Span;
pub use words::{StreamWords, has_reached};

/// The user's choice of a backend (OUTBOARD_DEVICE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// No backend: every address belongs to the host.
    Off,
    /// The backend is CUDA if this host has CUDA's driver and a device of it, otherwise HIP if the host has
    /// both for HIP, otherwise there is none.
    Auto,
    /// The backend is CUDA's driver.
    Cuda,
    /// The backend is HIP, AMD's counterpart of CUDA.
    Hip,
    /// The backend is `sentinel`, for tests: memory that the CPU cannot access.
    Sentinel,
}

enum Backend {
    Driver(Driver),
    Sentinel(Sentinel),
}

/// The first word of the record (`export.rs`) that describes exported memory of the backend `sentinel`.
const SENTINEL_NUMBER: u64 = 1;

static ON: AtomicBool = AtomicBool::new(false);
static BACKEND: OnceLock<Backend> = OnceLock::new();

/// Loads a backend. Once a backend runs, later calls change nothing. `seed` is the seed of the delays of
/// sentinel streams, 0 for no delays. `cache` is the folder for compiled kernels.
///
/// Errors: the chosen backend cannot be loaded.
pub fn start(choice: BackendChoice, seed: u64, cache: Option<PathBuf>) -> Result<()> {
    if BACKEND.get().is_some() {
        return Ok(());
    }
    let backend = match choice {
        BackendChoice::Off => return Ok(()),
        BackendChoice::Sentinel => Backend::Sentinel(Sentinel::new(seed)?),
        BackendChoice::Cuda => Backend::Driver(Driver::load(&CUDA, cache)?),
        BackendChoice::Hip => Backend::Driver(Driver::load(&HIP, cache)?),
        BackendChoice::Auto => {
            match Driver::load(&CUDA, cache.clone()).or_else(|_| Driver::load(&HIP, cache)) {
                Ok(driver) => Backend::Driver(driver),
                Err(_) => return Ok(()),
            }
        }
    };
    BACKEND.get_or_init(|| backend);
    ON.store(true, Ordering::Release);
    Ok(())
}

/// Makes `on` true even without a backend, because a collective library needs MPI calls to leave their fast
/// path, too.
pub fn set_on() {
    ON.store(true, Ordering::Release);
}

/// Whether a backend runs or `set_on` was called. In programs without devices this costs one load.
#[inline(always)]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns the name of the backend. None if none runs.
pub fn name() -> Option<&'static str> {
    BACKEND.get().map(|backend| match backend {
        Backend::Driver(driver) => driver.api.name,
        Backend::Sentinel(_) => "sentinel",
    })
}

/// Whether the `bytes` bytes at `address` are memory of a device.
///
/// Errors (MPI_ERR_BUFFER): the memory has been freed, or its allocation has fewer bytes.
pub fn holds(address: usize, bytes: usize) -> Result<bool> {
    match BACKEND.get() {
        None => Ok(false),
        Some(Backend::Driver(driver)) => driver.holds(address, bytes),
        Some(Backend::Sentinel(sentinel)) => sentinel.holds(address, bytes),
    }
}

/// Copies `from` to `to`; each may be on a device or the host. When it returns, the bytes are visible to the
/// host and to all work that the device starts from then on. The spans have equal lengths.
///
/// Errors: device memory was freed or is shorter than its span (MPI_ERR_BUFFER); the device's driver fails.
pub fn copy(to: Span, from: Span) -> Result<()> {
    match BACKEND.get() {
        None => from.copy_to(to),
        Some(Backend::Driver(driver)) => driver.copy(to, from)?,
        Some(Backend::Sentinel(sentinel)) => sentinel.copy(to, from)?,
    }
    Ok(())
}

/// Exports the device memory `user` to the receiver of a message, until `export::withdraw`: writes a record
/// of it into `stand_in`, its stand-in in host memory. Returns false if the memory cannot be exported.
///
/// Errors (MPI_ERR_BUFFER): the memory was freed, or its allocation has fewer bytes.
pub fn export(stand_in: Span, user: Span) -> Result<bool> {
    let (backend, words) = match BACKEND.get() {
        Some(Backend::Driver(driver)) => (driver.api.number, driver.export(user)),
        Some(Backend::Sentinel(sentinel)) => (SENTINEL_NUMBER, sentinel.export(user)?),
        None => return Ok(false),
    };
    Ok(words.is_some_and(|words| export::write_description(stand_in, user, backend, &words)))
}

/// Revokes the export by the stand-in at `address`, and copies the device memory into the stand-in, since a
/// receiver cannot open the memory.
///
/// Errors: the device memory was freed (MPI_ERR_BUFFER); the device's driver fails.
pub fn fill_exported(address: usize) -> Result<()> {
    export::revoke(address).map_or(Ok(()), |(stand_in, user)| copy(stand_in, user))
}

/// Copies exported bytes to `to`, from byte `at` of the memory that `description` describes. `to` may be a
/// part of a stand-in; then the bytes go to the device memory for which it stands.
///
/// Errors: the description is invalid; the memory cannot be opened; the copy fails.
pub fn copy_exported(description: &[u64; export::DESCRIPTION_WORDS], at: usize, to: Span) -> Result<()> {
    let from = open_exported(description, at, to.bytes())?;
    let Some((stand_in, user)) = export::direct_target(to) else { return copy(to, from) };
    copy(user, from)?;
    export::note_direct(stand_in, user.bytes());
    Ok(())
}

/// Opens exported memory for this process's device. Returns the span of `bytes` bytes from byte `at` of the
/// memory that `description` describes.
///
/// Errors: the description is invalid; the memory cannot be opened.
pub fn open_exported(
    description: &[u64; export::DESCRIPTION_WORDS],
    at: usize,
    bytes: usize,
) -> Result<Span> {
    let [backend, whole, words @ ..] = description;
    if at.checked_add(bytes).is_none_or(|end| end as u64 > *whole) {
        fail!(Class::Intern, "{bytes} bytes from {at} on of {whole} lent bytes");
    }
    let all = match (BACKEND.get(), *backend) {
        (Some(Backend::Driver(driver)), number) if number == driver.api.number => {
            driver.import(words, *whole as usize)?
        }
        (Some(Backend::Sentinel(sentinel)), SENTINEL_NUMBER) => sentinel.import(words, *whole as usize)?,
        _ => fail!(Class::Other, "memory of another kind of device was lent"),
    };
    Ok(all.slice(at, bytes))
}

/// Packs strips of device memory to `packed`, or unpacks them from there if `is_pack` is false, by a kernel.
/// Returns false if no kernel can: the strips are not all in one allocation, or kernels cannot be compiled
/// for the device.
///
/// Errors: the device's driver fails.
pub fn move_strips(strips: &[Strip], packed: Span, is_pack: bool) -> Result<bool> {
    let ends = |strip: &Strip| {
        let last = strip.address.wrapping_add_signed(strip.stride as isize * (strip.repeat as isize - 1));
        (strip.address.min(last), strip.address.max(last) + strip.bytes)
    };
    let from = strips.iter().map(|strip| ends(strip).0).min().unwrap_or(0);
    let to = strips.iter().map(|strip| ends(strip).1).max().unwrap_or(0);
    // `holds` refuses memory of several allocations, which is longer than the first of them.
    if from == to || !holds(from, to - from).unwrap_or(false) {
        return Ok(false);
    }
    match BACKEND.get() {
        None => Ok(false),
        Some(Backend::Driver(driver)) => driver.move_strips(strips, packed, is_pack),
        Some(Backend::Sentinel(sentinel)) => sentinel.move_strips(strips, packed, is_pack),
    }
}

/// Computes `into[i] = left[i] op into[i]` by a kernel. Returns false if no kernel can, so that the CPU must
/// (`KernelReduction::kernel`). `into` is memory of a device; `left` is, too, or comes from `open_exported`.
/// Without elements it only returns whether a kernel could.
///
/// Errors: device memory was freed (MPI_ERR_BUFFER); the device's driver fails.
pub fn reduce(reduction: KernelReduction, left: usize, into: usize) -> Result<bool> {
    let Some(kernel) = reduction.kernel() else { return Ok(false) };
    if !reduction.is_aligned(left, into) {
        return Ok(false);
    }
    let bytes = reduction.bytes();
    // SAFETY: buffers of the program (contract of `abi/src/args/memory.rs`); the backends check them.
    let [left, into] = [left, into].map(|address| unsafe { Span::claim(address, bytes) });
    match BACKEND.get() {
        None => Ok(false),
        Some(Backend::Driver(driver)) => driver.reduce(reduction, &kernel, left, into),
        Some(Backend::Sentinel(sentinel)) => sentinel.reduce(reduction, left, into),
    }
}

/// Returns the calling thread's device, as a number that `adopt` takes in another thread. Only CUDA has a
/// device for each thread; other backends return 0.
pub fn context() -> Result<usize> {
    match BACKEND.get() {
        Some(Backend::Driver(driver)) => driver.context(),
        _ => Ok(0),
    }
}

/// Sets the calling thread's device, for the rest of the thread's life, to the device that `context` returned
/// in another thread.
pub fn adopt(context: usize) -> Result<()> {
    match BACKEND.get() {
        Some(Backend::Driver(driver)) => driver.adopt(context),
        _ => Ok(()),
    }
}

/// Allocates `bytes` bytes of memory of the current device, and returns their address.
///
/// Errors: the device has no more memory (MPI_ERR_NO_MEM); no backend runs (MPI_ERR_OTHER).
pub fn alloc(bytes: usize) -> Result<usize> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there is no device memory: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.alloc(bytes),
        Some(Backend::Sentinel(sentinel)) => sentinel.alloc(bytes),
    }
}

/// Frees device memory that `alloc` has allocated.
///
/// Errors (MPI_ERR_BUFFER): no such memory begins at `address`.
pub fn free(address: usize) -> Result<()> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there is no device memory: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.free(address),
        Some(Backend::Sentinel(sentinel)) => sentinel.free(address),
    }
}

/// Opens an allocation of sentinel memory to the CPU, or closes it if `open` is false. While open, it counts
/// as host memory. Tests use this to read and write buffers between MPI calls.
///
/// Errors: the backend is not sentinel (MPI_ERR_OTHER); `address` is not an allocation (MPI_ERR_BUFFER).
pub fn set_open(address: usize, open: bool) -> Result<()> {
    match BACKEND.get() {
        Some(Backend::Sentinel(sentinel)) => sentinel.set_open(address, open),
        _ => fail!(Class::Other, "only sentinel memory can be opened to the CPU"),
    }
}

/// Returns the program's stream with this handle. `kind` is the program's name for the type of streams:
/// `cudaStream_t`, or `sentinel`.
///
/// Errors (MPI_ERR_ARG): the backend has no such streams.
pub fn stream(kind: &str, handle: usize) -> Result<Stream> {
    match (BACKEND.get(), kind) {
        (Some(Backend::Driver(driver)), kind) if kind == driver.api.stream_kind => {
            driver.check_ordering()?;
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

/// Returns the name of the backend's type of streams. None if no backend runs.
pub fn stream_kind() -> Option<&'static str> {
    BACKEND.get().map(|backend| match backend {
        Backend::Driver(driver) => driver.api.stream_kind,
        Backend::Sentinel(_) => "sentinel",
    })
}

/// Makes a stream on the current device and returns its handle.
///
/// Errors (MPI_ERR_OTHER): no backend runs, or the backend fails.
pub fn create_stream() -> Result<usize> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there are no streams: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.create_stream(),
        Some(Backend::Sentinel(sentinel)) => sentinel.create_stream(),
    }
}

/// Returns the stream whose handle `create_stream` has returned.
pub fn created_stream(handle: usize) -> Result<Stream> {
    stream(stream_kind().unwrap_or("none"), handle)
}

/// Destroys a stream that `create_stream` has made. Its work must be over.
pub fn destroy_stream(handle: usize) -> Result<()> {
    match BACKEND.get() {
        None => fail!(Class::Other, "there are no streams: OUTBOARD_DEVICE is off"),
        Some(Backend::Driver(driver)) => driver.destroy_stream(handle),
        Some(Backend::Sentinel(sentinel)) => sentinel.destroy_stream(handle),
    }
}
