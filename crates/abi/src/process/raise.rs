// SPDX-License-Identifier: BSD-3-Clause
//! Raises errors: calls the error handler of the object that a failed call is about (MPI 5.0, section 9.3).

use crate::process::callback;
use crate::process::{Guard, On};
use error::{Class, Error};
use objects::{ErrorAction, Handle, constants};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls the error handler for an error of the MPI function that `guard` names. Returns the code that the MPI
/// function returns to the program. Takes the guard by value: a caller that passes it only here need not keep
/// it in memory.
#[cold]
pub fn raise(mut guard: Guard, error: Error) -> c_int {
    let guard = &mut guard;
    let (name, on) = guard.doing;
    let sentence = format!("{name}{}: {}", on_object(guard, on), error.message);
    let code = error.code();
    guard.latest_error = Some((code, sentence.clone()));
    invoke(guard, on, code, &sentence)
}

/// Calls the error handler of `on` with an error code (MPI 5.0, section 9.3.1). Returns the code, which the
/// handler may have changed.
pub fn invoke(guard: &mut Guard, on: On, code: c_int, sentence: &str) -> c_int {
    match handler(guard, on) {
        ErrorAction::Return => code,
        ErrorAction::Fatal | ErrorAction::Abort => fatal(guard, code, sentence),
        ErrorAction::Call(function) => {
            let object = match on {
                On::Comm(handle) if guard.objects.comm(handle).is_ok() => handle,
                On::File(handle) => handle,
                On::Win(handle) if handler_of_window(guard, handle).is_some() => handle,
                On::AnyFile => constants::FILE_NULL,
                On::Session(handle) if guard.objects.sessions.get(handle).is_ok() => handle,
                On::WithHandler(_, object) => object,
                _ => guard.objects.comm_of_no_object(),
            };
            callback::errhandler(guard, function, object, code)
        }
    }
}

/// Ends the job because the library cannot continue. `doing` says what failed with the error.
#[cold]
pub fn end(guard: &mut Guard, doing: &str, error: &Error) -> ! {
    let sentence = format!("{doing}: {}", error.message);
    fatal(guard, error.code(), &sentence)
}

/// Whether this process is exiting by `leave`, and so inside an MPI call. Functions that run at the exit must
/// then call no MPI function.
static IS_LEAVING: AtomicBool = AtomicBool::new(false);

pub fn is_leaving() -> bool {
    IS_LEAVING.load(Ordering::Relaxed)
}

/// Ends this process at once with the exit code `code`, because the job is being ended.
pub fn leave(code: u8) -> ! {
    IS_LEAVING.store(true, Ordering::Relaxed);
    std::process::exit(code.into())
}

fn fatal(guard: &mut Guard, code: c_int, sentence: &str) -> ! {
    let name = match &guard.job {
        Some(job) => job.membership.segment.name(job.membership.rank.peer()),
        None => format!("outboard: process {}", std::process::id()),
    };
    // The line is one write, so that no other rank's line interrupts it.
    let line = format!("{name}, {sentence}\n");
    eprint!("{line}");
    match &guard.job {
        Some(job) => job.membership.fail(code),
        None => {
            boot::give_up_entering(code);
            leave((code as u8).max(1))
        }
    }
}

/// Returns what the error handler of an object does. A bad handle counts as a call on no object. Outside a
/// job errors are fatal, unless the call passes an error handler.
fn handler(guard: &Guard, on: On) -> ErrorAction {
    let objects = &guard.objects;
    let action = |handle: Handle| objects.errhandlers.get(handle).map(|handler| handler.action);
    if guard.job.is_none() && !matches!(on, On::WithHandler(..)) {
        return ErrorAction::Fatal;
    }
    let comm = |handle: Handle| objects.comm(handle).and_then(|comm| action(comm.errhandler));
    let nothing = || comm(objects.comm_of_no_object());
    match on {
        On::Comm(handle) => comm(handle).or_else(|_| nothing()),
        On::File(file) => {
            let own = guard.job.as_ref().and_then(|job| job.files.get(file).ok());
            action(own.map_or(objects.file_errhandler, |file| file.errhandler))
        }
        On::AnyFile => action(objects.file_errhandler),
        On::Win(handle) => match handler_of_window(guard, handle) {
            Some(errhandler) => action(errhandler),
            None => nothing(),
        },
        On::Session(handle) => {
            let own = objects.sessions.get(handle).and_then(|session| action(session.errhandler));
            own.or_else(|_| nothing())
        }
        On::WithHandler(handler, _) => action(handler).or_else(|_| nothing()),
        On::Nothing => nothing(),
    }
    .unwrap_or(ErrorAction::Fatal)
}

fn handler_of_window(guard: &Guard, window: Handle) -> Option<Handle> {
    guard.job.as_ref()?.windows.get(window).ok().map(|window| window.errhandler)
}

fn on_object(guard: &Guard, on: On) -> String {
    match on {
        On::Comm(handle) => match guard.objects.comm(handle) {
            Ok(comm) if !comm.name.is_empty() => format!(" on {}", comm.name),
            _ => format!(" on {handle}"),
        },
        On::Win(handle) | On::File(handle) | On::Session(handle) => format!(" on {handle}"),
        On::WithHandler(..) | On::AnyFile | On::Nothing => String::new(),
    }
}

/// Converts the code that a callback of the program returned into a result. The running MPI function returns
/// the same code (MPI 5.0, sections 7.7.2 and 13.2).
pub fn from_callback(what: &str, code: c_int) -> error::Result<()> {
    if code == constants::SUCCESS {
        return Ok(());
    }
    Err(Error::new(Class::Other, format!("{what} of the program returned the error {code}")).with_code(code))
}
