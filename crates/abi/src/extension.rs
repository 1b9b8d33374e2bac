// SPDX-License-Identifier: BSD-3-Clause
//! Functions that the standard does not have, for programs with device memory and for bindings of other
//! languages (include/mpi-ext.h, docs/gpu.md).
//!
//! The program guarantees that the arguments of each function are as the header demands.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use crate::args::{Address, Out};
use crate::body::request;
use crate::process::{self, On, call};
use crate::shim;
use crate::staging::{self, AttachedCopy, AttachedFunction};
use error::{Class, Result, fail};
use objects::constants::SUCCESS;
use std::ffi::{c_int, c_void};
use sys::Span;

/// The value of MPIX_GPU_SUPPORT_CUDA in MPICH's headers.
const CUDA: c_int = 0;
/// The value of MPIX_GPU_SUPPORT_HIP in MPICH's headers.
const HIP: c_int = 2;

/// Exports each function under two names, `$name` (MPIX_...) and `$profiled` (PMPIX_...).
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $profiled:ident($($argument:ident: $kind:ty),*) $body:block)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $profiled($($argument: $kind),*) -> c_int $body

        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $kind),*) -> c_int { $profiled($($argument),*) }
    )* };
}

functions! {
    /// `MPIX_Query_cuda_support` of MPICH and Open MPI: returns 1 if MPI calls of this process accept CUDA
    /// memory.
    MPIX_Query_cuda_support PMPIX_Query_cuda_support() {
        c_int::from(backend() == Some("cuda"))
    }

    /// `MPIX_Query_hip_support` of MPICH: returns 1 if MPI calls of this process accept HIP memory.
    MPIX_Query_hip_support PMPIX_Query_hip_support() {
        c_int::from(backend() == Some("hip"))
    }

    /// `MPIX_GPU_query_support` of MPICH: stores whether MPI calls of this process accept the memory of a
    /// kind of GPU.
    MPIX_GPU_query_support PMPIX_GPU_query_support(gpu_type: c_int, is_supported: *mut c_int) {
        anytime("MPIX_GPU_query_support", || {
            if !(CUDA..=HIP).contains(&gpu_type) {
                fail!(Class::Arg, "gpu_type is {gpu_type}; it must be CUDA (0), Level Zero (1) or HIP (2)");
            }
            let supported = match gpu_type {
                CUDA => backend() == Some("cuda"),
                HIP => backend() == Some("hip"),
                _ => false,
            };
            Out::new(is_supported.expose_provenance(), "is_supported").set(c_int::from(supported))
        })
    }

    /// Allocates memory of the current device, and stores its address at `memory`.
    MPIX_Device_alloc PMPIX_Device_alloc(bytes: usize, memory: *mut *mut c_void) {
        anytime("MPIX_Device_alloc", || {
            let out = Address(memory.expose_provenance());
            backend();
            out.store(device::alloc(bytes)?)
        })
    }

    /// Frees memory that `MPIX_Device_alloc` has allocated.
    MPIX_Device_free PMPIX_Device_free(memory: *mut c_void) {
        anytime("MPIX_Device_free", || device::free(memory.expose_provenance()))
    }

    /// Copies bytes, and waits for the end of the copy. `to` and `from` may each be host or device memory.
    MPIX_Device_copy PMPIX_Device_copy(to: *mut c_void, from: *const c_void, bytes: usize) {
        anytime("MPIX_Device_copy", || {
            device::copy(span(to.expose_provenance(), bytes)?, span(from.expose_provenance(), bytes)?)
        })
    }

    /// Makes a stream (a queue of work) of the current device.
    MPIX_Device_stream_create PMPIX_Device_stream_create(stream: *mut *mut c_void) {
        anytime("MPIX_Device_stream_create", || {
            let out = Address(stream.expose_provenance());
            backend();
            out.store(device::create_stream()?)
        })
    }

    /// Frees a stream that `MPIX_Device_stream_create` has made. The program has waited for its work before.
    MPIX_Device_stream_free PMPIX_Device_stream_free(stream: *mut c_void) {
        anytime("MPIX_Device_stream_free", || device::destroy_stream(stream.addr()))
    }

    /// Enqueues a copy of bytes on a stream, and does not wait. `to` and `from` may each be host or device
    /// memory.
    MPIX_Device_stream_copy PMPIX_Device_stream_copy(
        to: *mut c_void, from: *const c_void, bytes: usize, stream: *mut c_void
    ) {
        anytime("MPIX_Device_stream_copy", || {
            let (to, from) = (span(to.expose_provenance(), bytes)?, span(from.expose_provenance(), bytes)?);
            device::created_stream(stream.addr())?.copy(to, from)
        })
    }

    /// Waits until the work on a stream is over. Other threads may call MPI meanwhile.
    MPIX_Device_stream_synchronize PMPIX_Device_stream_synchronize(stream: *mut c_void) {
        anytime("MPIX_Device_stream_synchronize", || device::created_stream(stream.addr())?.synchronize())
    }

    /// Gives a request functions that a language binding provides. The binding has passed a copy of the
    /// program's memory to MPI. One function fills this copy before a persistent operation starts, one copies
    /// it back when an operation ends, and one frees it.
    MPIX_Request_attach PMPIX_Request_attach(
        request: usize, start: AttachedFunction, end: AttachedFunction, release: AttachedFunction,
        state: *mut c_void
    ) {
        let shim = shim::get();
        let attached = || AttachedCopy { start, end, release, state: state.expose_provenance() };
        let request = (shim.handle_from)(request);
        (shim.code)(call("MPIX_Request_attach", On::Nothing, |guard| request::attach(guard, request, attached)))
    }

    /// Lets the CPU access an allocation of sentinel memory (simulated device memory), or forbids it again.
    /// For tests.
    MPIX_Device_open PMPIX_Device_open(memory: *mut c_void, open: c_int) {
        anytime("MPIX_Device_open", || device::set_open(memory.expose_provenance(), open != 0))
    }
}

fn span(address: usize, bytes: usize) -> Result<Span> {
    match Address(address).contiguous(bytes) {
        Some(span) => Ok(span),
        None => fail!(Class::Buffer, "{bytes} bytes at {address:#x} are no memory"),
    }
}

/// Runs the body of a function that uses no state of the process, so any thread may call it. Returns the
/// error code in the numbers of the program's ABI.
fn anytime(name: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    let Err(error) = body() else { return SUCCESS };
    (shim::get().code)(process::anytime(name, On::Nothing, |_| Err(error)))
}

/// Returns the name of the device backend (such as "cuda") in this process, or None without one. May be
/// called before MPI_Init.
fn backend() -> Option<&'static str> {
    settings::load().and_then(staging::start).ok()?;
    device::name()
}
