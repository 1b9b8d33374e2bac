//! How a function of the MPI interface runs its body: with the lock held, timed, and with an error handler for its error.

use super::lock::{Guard, On, lock};
use super::raise;
use super::{Phase, Process};
use error::{Class, Error, Result};
pub use objects::constants::SUCCESS;
use std::ffi::c_int;

/// Runs the body of the MPI function `name`, which may be called between MPI_Init and MPI_Finalize or while there is a session.
#[inline(always)]
pub fn call(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let begun = telemetry::enter(name);
    let mut guard = Guard::with(lock(), (name, on));
    let result = if guard.job.is_some() { body(&mut guard) } else { Err(outside(guard.phase)) };
    telemetry::leave(begun);
    match result {
        Ok(()) => SUCCESS,
        Err(error) => raise::raise(guard, error),
    }
}

/// As `call`, of a function with a fast path, `plain`, which needs no guard. A macro: what the other ways need of the arguments would lie
/// in memory before the fast path begins.
#[macro_export]
macro_rules! call_plain {
    ($name:literal, $on:expr, $plain:path, $body:path, ($($argument:ident),* $(,)?)) => {
        match $crate::process::bare(|process| $plain(process, $($argument),*)) {
            Some(Some(())) => $crate::process::SUCCESS,
            Some(None) => $crate::process::call_apart($name, $on, move |guard| $body(guard, $($argument),*)),
            None => $crate::process::call_held(
                $name,
                $on,
                move |process| $plain(process, $($argument),*),
                move |guard| $body(guard, $($argument),*),
            ),
        }
    };
}

/// The call where there is no fast path.
#[inline(never)] // Else that would have a place for the guard, too.
pub fn call_apart(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    call(name, on, body)
}

/// The call where it may have to be timed, or the lock to be taken.
#[inline(never)]
pub fn call_held(
    name: &'static str,
    on: On,
    plain: impl FnOnce(&mut Process) -> Option<()>,
    body: impl FnOnce(&mut Guard) -> Result<()>,
) -> c_int {
    if telemetry::timed() {
        return call(name, on, move |guard| plain(guard).map_or_else(|| body(guard), Ok));
    }
    let mut held = lock();
    let process = Process::locked(&mut held);
    if process.job.is_none() || plain(process).is_none() {
        drop(held);
        return call_apart(name, on, body);
    }
    SUCCESS
}

/// Runs the body of an MPI function that may be called at any time.
pub fn anytime(name: &'static str, on: On, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let mut guard = Guard::with(lock(), (name, on));
    match body(&mut guard) {
        Ok(()) => SUCCESS,
        Err(error) => raise::raise(guard, error),
    }
}

/// Runs the body of a function of the tool interface, which has its own beginning and end, and no error handlers (MPI 5.0, section 15.3).
pub fn tool(name: &'static str, body: impl FnOnce(&mut Guard) -> Result<()>) -> c_int {
    let mut guard = Guard::enter();
    if !guard.has_tools() && name != "MPI_T_init_thread" {
        return objects::constants::T_ERR_NOT_INITIALIZED;
    }
    match body(&mut guard).map_err(|error| error.code()) {
        Ok(()) => SUCCESS,
        // Of the argument wrappers, which know nothing of this interface's codes.
        Err(code) if code < objects::constants::T_ERR_CANNOT_INIT => objects::constants::T_ERR_INVALID,
        Err(code) => code,
    }
}

#[cold]
fn outside(phase: Phase) -> Error {
    let when = if phase == Phase::Before { "before MPI_Init" } else { "after MPI_Finalize" };
    Error::new(Class::Other, format!("called {when}"))
}
