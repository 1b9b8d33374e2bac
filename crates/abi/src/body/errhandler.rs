// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make, set, get and call error handlers (MPI 5.0, section 9.3).

use crate::args::{Callback, Handle, Out};
use crate::lenient::{self, Accepted};
use crate::process::raise;
use crate::process::{Guard, On};
use error::{Class, Result, fail};
use objects::errhandler::{release, retain};
use objects::{Errhandler, ErrorAction, HandleKind, constants as c};

/// MPI_Comm_create_errhandler
pub fn comm_create_errhandler(guard: &mut Guard, function: Callback, errhandler: Out<Handle>) -> Result<()> {
    create(guard, HandleKind::Comm, function, errhandler)
}

/// MPI_Win_create_errhandler
pub fn win_create_errhandler(guard: &mut Guard, function: Callback, errhandler: Out<Handle>) -> Result<()> {
    create(guard, HandleKind::Win, function, errhandler)
}

/// MPI_File_create_errhandler
pub fn file_create_errhandler(guard: &mut Guard, function: Callback, errhandler: Out<Handle>) -> Result<()> {
    create(guard, HandleKind::File, function, errhandler)
}

/// MPI_Session_create_errhandler
pub fn session_create_errhandler(
    guard: &mut Guard,
    function: Callback,
    errhandler: Out<Handle>,
) -> Result<()> {
    create(guard, HandleKind::Session, function, errhandler)
}

/// MPI_Errhandler_free
pub fn errhandler_free(guard: &mut Guard, errhandler: Out<Handle>) -> Result<()> {
    release(&mut guard.objects.errhandlers, errhandler.get()?)?;
    errhandler.set(c::ERRHANDLER_NULL)
}

/// MPI_Comm_set_errhandler
pub fn comm_set_errhandler(guard: &mut Guard, comm: Handle, errhandler: Handle) -> Result<()> {
    let objects = &mut guard.objects;
    objects.comm(comm)?;
    retain(&mut objects.errhandlers, errhandler, HandleKind::Comm)?;
    let old = std::mem::replace(&mut objects.comms.get_mut(comm)?.errhandler, errhandler);
    objects.self_errhandler_set |= comm == c::COMM_SELF;
    release(&mut objects.errhandlers, old)
}

/// MPI_Comm_get_errhandler: stores a handle that counts as one more reference. The program frees it.
pub fn comm_get_errhandler(guard: &mut Guard, comm: Handle, errhandler: Out<Handle>) -> Result<()> {
    errhandler.check()?;
    let handle = guard.objects.comm(comm)?.errhandler;
    retain(&mut guard.objects.errhandlers, handle, HandleKind::Comm)?;
    errhandler.set(handle)
}

/// MPI_Comm_call_errhandler
pub fn comm_call_errhandler(guard: &mut Guard, comm: Handle, errorcode: i32) -> Result<()> {
    guard.objects.comm(comm)?;
    call(guard, "MPI_Comm_call_errhandler", On::Comm(comm), errorcode)
}

/// MPI_Win_set_errhandler
pub fn win_set_errhandler(guard: &mut Guard, win: Handle, errhandler: Handle) -> Result<()> {
    let (objects, job) = guard.parts();
    let window = job.windows.get_mut(win)?;
    retain(&mut objects.errhandlers, errhandler, HandleKind::Win)?;
    release(&mut objects.errhandlers, std::mem::replace(&mut window.errhandler, errhandler))
}

/// MPI_Win_get_errhandler: stores a handle that counts as one more reference. The program frees it.
pub fn win_get_errhandler(guard: &mut Guard, win: Handle, errhandler: Out<Handle>) -> Result<()> {
    errhandler.check()?;
    let (objects, job) = guard.parts();
    let handle = job.windows.get(win)?.errhandler;
    retain(&mut objects.errhandlers, handle, HandleKind::Win)?;
    errhandler.set(handle)
}

/// MPI_Win_call_errhandler
pub fn win_call_errhandler(guard: &mut Guard, win: Handle, errorcode: i32) -> Result<()> {
    guard.job().windows.get(win)?;
    call(guard, "MPI_Win_call_errhandler", On::Win(win), errorcode)
}

/// MPI_Session_set_errhandler
pub fn session_set_errhandler(guard: &mut Guard, session: Handle, errhandler: Handle) -> Result<()> {
    let objects = &mut guard.objects;
    objects.sessions.get(session)?;
    retain(&mut objects.errhandlers, errhandler, HandleKind::Session)?;
    let old = std::mem::replace(&mut objects.sessions.get_mut(session)?.errhandler, errhandler);
    release(&mut objects.errhandlers, old)
}

/// MPI_Session_get_errhandler: stores a handle that counts as one more reference. The program frees it.
pub fn session_get_errhandler(guard: &mut Guard, session: Handle, errhandler: Out<Handle>) -> Result<()> {
    errhandler.check()?;
    let handle = guard.objects.sessions.get(session)?.errhandler;
    retain(&mut guard.objects.errhandlers, handle, HandleKind::Session)?;
    errhandler.set(handle)
}

/// MPI_Session_call_errhandler
pub fn session_call_errhandler(guard: &mut Guard, session: Handle, errorcode: i32) -> Result<()> {
    guard.objects.sessions.get(session)?;
    call(guard, "MPI_Session_call_errhandler", On::Session(session), errorcode)
}

/// MPI_File_set_errhandler: for MPI_FILE_NULL, sets the error handler that newly opened files get (MPI 5.0,
/// section 14.7).
pub fn file_set_errhandler(guard: &mut Guard, file: Handle, errhandler: Handle) -> Result<()> {
    file_errhandler(guard, file)?;
    retain(&mut guard.objects.errhandlers, errhandler, HandleKind::File)?;
    let old = std::mem::replace(file_errhandler(guard, file)?, errhandler);
    release(&mut guard.objects.errhandlers, old)
}

/// MPI_File_get_errhandler
pub fn file_get_errhandler(guard: &mut Guard, file: Handle, errhandler: Out<Handle>) -> Result<()> {
    errhandler.check()?;
    let handle = *file_errhandler(guard, file)?;
    retain(&mut guard.objects.errhandlers, handle, HandleKind::File)?;
    errhandler.set(handle)
}

/// MPI_File_call_errhandler
pub fn file_call_errhandler(guard: &mut Guard, fh: Handle, errorcode: i32) -> Result<()> {
    file_errhandler(guard, fh)?;
    call(guard, "MPI_File_call_errhandler", On::File(fh), errorcode)
}

fn file_errhandler(guard: &mut Guard, file: Handle) -> Result<&mut Handle> {
    if file == c::FILE_NULL {
        return Ok(&mut guard.objects.file_errhandler);
    }
    Ok(&mut guard.job().files.get_mut(file)?.errhandler)
}

fn create(guard: &mut Guard, on: HandleKind, function: Callback, errhandler: Out<Handle>) -> Result<()> {
    errhandler.check()?;
    if function.0 == 0 {
        fail!(Class::Arg, "the error handler function is a null pointer");
    }
    let entry = Errhandler::new(Some(on), ErrorAction::Call(function.0));
    errhandler.set(guard.objects.errhandlers.insert(entry)?)
}

fn call(guard: &mut Guard, name: &str, on: On, code: i32) -> Result<()> {
    let text = guard.objects.errors.text_of(code).unwrap_or_else(|_| {
        lenient::accept(Accepted::ErrorCode);
        format!("error {code}")
    });
    raise::invoke(guard, on, code, &format!("{name}: {text}"));
    Ok(())
}
