// SPDX-License-Identifier: BSD-3-Clause
//! How an MPI function runs its body, the function in `body/` that does its work: takes the lock, times the
//! call, and passes an error to the error handler.

use super::lock::{Guard, On, lock};
use super::raise;
use super::{Phase, Process};
use crate::staging;
use error::{Class, Error, Result};
pub use objects::constants::SUCCESS;
use std::ffi::c_int;

/// Runs the body of the MPI function `name`. The call fails before MPI_Init, and after MPI_Finalize unless a
/// session is open.
#[inline(always)]
pub fn call(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let started = telemetry::enter(name);
    let mut guard = Guard::with(lock(), (name, on));
    let result = if guard.job.is_some() { body(&mut guard) } else { Err(outside(guard.phase)) };
    telemetry::leave(started);
    let result = if device::on() { end_on_device(&mut guard, result) } else { result };
    match result {
        Ok(()) => SUCCESS,
        Err(error) => raise::raise(guard, error),
    }
}

/// Runs `body` with the lock held, for a C function that is not an MPI function.
pub fn run_locked(name: &'static str, body: impl FnOnce(&mut Guard)) {
    body(&mut Guard::with(lock(), (name, On::Nothing)));
}

/// Ends a call in which host memory may stand in for device memory. The host memory is freed with the call,
/// so this waits for the call's operations on a window that spans hosts. Then it copies the results to device
/// memory.
#[cold]
#[inline(never)]
fn end_on_device(guard: &mut Guard, result: Result<()>) -> Result<()> {
    staging::end(match guard.doing.1 {
        On::Win(win) if staging::any() => result.and_then(|()| guard.wait_for_answers(win, None)),
        _ => result,
    })
}

/// Runs an MPI function that has a fast path: calls `$fast`, which needs no guard, and then the body `$body`
/// if `$fast` has returned None. This is a macro because a function would store the arguments for the body in
/// memory before the fast path starts.
#[macro_export]
macro_rules! call_fast {
    ($name:literal, $on:expr, $fast:path, $body:path, ($($argument:ident),* $(,)?)) => {
        match $crate::process::bare(|process| $fast(process, $($argument),*)) {
            Some(Some(())) => $crate::process::SUCCESS,
            Some(None) => $crate::process::call_apart($name, $on, move |guard| $body(guard, $($argument),*)),
            None => $crate::process::call_held(
                $name,
                $on,
                move |process| $fast(process, $($argument),*),
                move |guard| $body(guard, $($argument),*),
            ),
        }
    };
}

/// Runs the body of an MPI function whose fast path has returned None. The macro `call_fast` calls it.
#[inline(never)] // Otherwise the fast path's frame would hold the guard, too.
pub fn call_apart(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    call(name, on, body)
}

/// Runs the fast path of an MPI function with the lock held, and then, if it returns None, the body. The
/// macro `call_fast` calls it where calls are timed or several threads call MPI.
#[inline(never)]
pub fn call_held(
    name: &'static str,
    on: On,
    fast: impl FnOnce(&mut Process) -> Option<()>,
    body: impl FnOnce(&mut Guard) -> Result<()>,
) -> c_int {
    if telemetry::timed() {
        return call(name, on, move |guard| fast(guard).map_or_else(|| body(guard), Ok));
    }
    let mut held = lock();
    let process = Process::locked(&mut held);
    if process.job.is_none() || fast(process).is_none() {
        drop(held);
        return call_apart(name, on, body);
    }
    SUCCESS
}

/// Runs the body of an MPI function that programs may call at any time, also before MPI_Init.
pub fn anytime(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let mut guard = Guard::with(lock(), (name, on));
    match body(&mut guard) {
        Ok(()) => SUCCESS,
        Err(error) => raise::raise(guard, error),
    }
}

/// Runs the body of a function of the tool interface (MPI_T_..., MPI 5.0, section 15.3). The interface has
/// its own init and finalize, and calls no error handler.
pub fn tool(name: &'static str, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let mut guard = Guard::enter();
    if !guard.has_tools() && name != "MPI_T_init_thread" {
        return objects::constants::T_ERR_NOT_INITIALIZED;
    }
    match body(&mut guard).map_err(|error| error.code()) {
        Ok(()) => SUCCESS,
        // An argument wrapper does not know this interface's codes.
        Err(code) if code < objects::constants::T_ERR_CANNOT_INIT => objects::constants::T_ERR_INVALID,
        Err(code) => code,
    }
}

#[cold]
fn outside(phase: Phase) -> Error {
    let when = if phase == Phase::Before { "before MPI_Init" } else { "after MPI_Finalize" };
    Error::new(Class::Other, format!("called {when}"))
}
