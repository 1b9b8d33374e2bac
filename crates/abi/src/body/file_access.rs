// SPDX-License-Identifier: BSD-3-Clause
//! Reading and writing files (MPI 5.0, section 14.4).
//!
//! The functions differ only in where an access begins, whether all ranks take part, and whether the call
//! waits.

use crate::args::{Address, Handle, Out, StatusOut};
use crate::file::{AccessArguments, At};
use crate::process::{Guard, Process};
use crate::request::{Completion, Work};
use crate::staging;
use error::{Class, Result, fail};
use io::{
    AccessDirection::{self, Read, Write},
    SplitAccess,
};

/// Returns the arguments of an access that this rank makes alone.
fn individual(
    at: At,
    way: AccessDirection,
    fh: Handle,
    buf: Address,
    count: i64,
    datatype: Handle,
) -> AccessArguments {
    AccessArguments { fh, at, way, all: false, buf, count, datatype }
}

/// Returns the arguments of an access in which all ranks of the file take part.
fn collective(
    at: At,
    way: AccessDirection,
    fh: Handle,
    buf: Address,
    count: i64,
    datatype: Handle,
) -> AccessArguments {
    AccessArguments { all: true, ..individual(at, way, fh, buf, count, datatype) }
}

/// Reads or writes a file, waits for the end, and stores the status.
fn run(guard: &mut Guard, arguments: AccessArguments, status: StatusOut) -> Result<()> {
    let outcome = guard.start_access(arguments, true)?;
    // Without this round of progress, a program that polls a file would never move its messages.
    guard.progress();
    let ended = |_: &mut Process| outcome.take().map(Completion::of_bytes);
    let completion = if arguments.all { guard.wait(ended) } else { guard.wait_for_thread(ended) };
    completion.store(status)
}

/// Starts to read or write a file, and stores a request for the program.
fn start_nonblocking(guard: &mut Guard, arguments: AccessArguments, request: Out<Handle>) -> Result<()> {
    request.check()?;
    let outcome = guard.start_access(arguments, false)?;
    request.set(guard.request(arguments.fh, Work::Io(outcome))?)
}

/// Starts a split collective access to a file. Only one may be under way on a file (MPI 5.0, section 14.4.5).
fn start_split(
    guard: &mut Guard,
    name: &'static str,
    at: At,
    way: AccessDirection,
    fh: Handle,
    buf: Address,
    count: i64,
    datatype: Handle,
) -> Result<()> {
    let outcome = guard.start_access(collective(at, way, fh, buf, count, datatype), false)?;
    if staging::any() {
        // Memory that stands in for the program's ends with this call, so the access must end, too. MPI 5.0,
        // section 14.4.5, allows that.
        let ended = guard.wait(|_| outcome.take());
        outcome.put(ended);
    }
    guard.job().files.get_mut(fh)?.split = Some(SplitAccess { name, outcome });
    Ok(())
}

/// Waits for the split collective access that is under way on the file. Fails unless the MPI function `name`
/// with the suffix `_begin` started it.
fn end_split(guard: &mut Guard, name: &'static str, fh: Handle, status: StatusOut) -> Result<()> {
    let file = guard.job().files.get_mut(fh)?;
    let split = match file.split.take_if(|split| split.name == name) {
        Some(split) => split,
        None => match &file.split {
            Some(other) => {
                fail!(Class::Other, "{}_begin was called, which another function ends", other.name)
            }
            None => fail!(Class::Other, "{name}_begin has not been called"),
        },
    };
    guard.wait(|_| split.outcome.take().map(Completion::of_bytes)).store(status)
}

/// MPI_File_read_at
#[rustfmt::skip]
pub fn file_read_at(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, individual(At::Offset(offset), Read, fh, buf, count, datatype), status)
}

/// MPI_File_iread_at
#[rustfmt::skip]
pub fn file_iread_at(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle,
    request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, individual(At::Offset(offset), Read, fh, buf, count, datatype), request)
}

/// MPI_File_read_at_all
#[rustfmt::skip]
pub fn file_read_at_all(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, collective(At::Offset(offset), Read, fh, buf, count, datatype), status)
}

/// MPI_File_iread_at_all
#[rustfmt::skip]
pub fn file_iread_at_all(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle,
    request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, collective(At::Offset(offset), Read, fh, buf, count, datatype), request)
}

/// MPI_File_read_at_all_begin
#[rustfmt::skip]
pub fn file_read_at_all_begin(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle,
) -> Result<()> {
    start_split(guard, "MPI_File_read_at_all", At::Offset(offset), Read, fh, buf, count, datatype)
}

/// MPI_File_read_at_all_end
pub fn file_read_at_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end_split(guard, "MPI_File_read_at_all", fh, status)
}

/// MPI_File_read
#[rustfmt::skip]
pub fn file_read(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, individual(At::Pointer, Read, fh, buf, count, datatype), status)
}

/// MPI_File_iread
#[rustfmt::skip]
pub fn file_iread(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, individual(At::Pointer, Read, fh, buf, count, datatype), request)
}

/// MPI_File_read_all
#[rustfmt::skip]
pub fn file_read_all(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, collective(At::Pointer, Read, fh, buf, count, datatype), status)
}

/// MPI_File_iread_all
#[rustfmt::skip]
pub fn file_iread_all(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, collective(At::Pointer, Read, fh, buf, count, datatype), request)
}

/// MPI_File_read_all_begin
#[rustfmt::skip]
pub fn file_read_all_begin(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle,
) -> Result<()> {
    start_split(guard, "MPI_File_read_all", At::Pointer, Read, fh, buf, count, datatype)
}

/// MPI_File_read_all_end
pub fn file_read_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end_split(guard, "MPI_File_read_all", fh, status)
}

/// MPI_File_read_shared
#[rustfmt::skip]
pub fn file_read_shared(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, individual(At::Shared, Read, fh, buf, count, datatype), status)
}

/// MPI_File_iread_shared
#[rustfmt::skip]
pub fn file_iread_shared(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, individual(At::Shared, Read, fh, buf, count, datatype), request)
}

/// MPI_File_read_ordered
#[rustfmt::skip]
pub fn file_read_ordered(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, collective(At::Ordered, Read, fh, buf, count, datatype), status)
}

/// MPI_File_read_ordered_begin
#[rustfmt::skip]
pub fn file_read_ordered_begin(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle,
) -> Result<()> {
    start_split(guard, "MPI_File_read_ordered", At::Ordered, Read, fh, buf, count, datatype)
}

/// MPI_File_read_ordered_end
pub fn file_read_ordered_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end_split(guard, "MPI_File_read_ordered", fh, status)
}

/// MPI_File_write_at
#[rustfmt::skip]
pub fn file_write_at(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, individual(At::Offset(offset), Write, fh, buf, count, datatype), status)
}

/// MPI_File_iwrite_at
#[rustfmt::skip]
pub fn file_iwrite_at(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle,
    request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, individual(At::Offset(offset), Write, fh, buf, count, datatype), request)
}

/// MPI_File_write_at_all
#[rustfmt::skip]
pub fn file_write_at_all(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, collective(At::Offset(offset), Write, fh, buf, count, datatype), status)
}

/// MPI_File_iwrite_at_all
#[rustfmt::skip]
pub fn file_iwrite_at_all(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle,
    request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, collective(At::Offset(offset), Write, fh, buf, count, datatype), request)
}

/// MPI_File_write_at_all_begin
#[rustfmt::skip]
pub fn file_write_at_all_begin(
    guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle,
) -> Result<()> {
    start_split(guard, "MPI_File_write_at_all", At::Offset(offset), Write, fh, buf, count, datatype)
}

/// MPI_File_write_at_all_end
pub fn file_write_at_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end_split(guard, "MPI_File_write_at_all", fh, status)
}

/// MPI_File_write
#[rustfmt::skip]
pub fn file_write(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, individual(At::Pointer, Write, fh, buf, count, datatype), status)
}

/// MPI_File_iwrite
#[rustfmt::skip]
pub fn file_iwrite(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, individual(At::Pointer, Write, fh, buf, count, datatype), request)
}

/// MPI_File_write_all
#[rustfmt::skip]
pub fn file_write_all(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, collective(At::Pointer, Write, fh, buf, count, datatype), status)
}

/// MPI_File_iwrite_all
#[rustfmt::skip]
pub fn file_iwrite_all(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, collective(At::Pointer, Write, fh, buf, count, datatype), request)
}

/// MPI_File_write_all_begin
#[rustfmt::skip]
pub fn file_write_all_begin(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle,
) -> Result<()> {
    start_split(guard, "MPI_File_write_all", At::Pointer, Write, fh, buf, count, datatype)
}

/// MPI_File_write_all_end
pub fn file_write_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end_split(guard, "MPI_File_write_all", fh, status)
}

/// MPI_File_write_shared
#[rustfmt::skip]
pub fn file_write_shared(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, individual(At::Shared, Write, fh, buf, count, datatype), status)
}

/// MPI_File_iwrite_shared
#[rustfmt::skip]
pub fn file_iwrite_shared(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>,
) -> Result<()> {
    start_nonblocking(guard, individual(At::Shared, Write, fh, buf, count, datatype), request)
}

/// MPI_File_write_ordered
#[rustfmt::skip]
pub fn file_write_ordered(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut,
) -> Result<()> {
    run(guard, collective(At::Ordered, Write, fh, buf, count, datatype), status)
}

/// MPI_File_write_ordered_begin
#[rustfmt::skip]
pub fn file_write_ordered_begin(
    guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle,
) -> Result<()> {
    start_split(guard, "MPI_File_write_ordered", At::Ordered, Write, fh, buf, count, datatype)
}

/// MPI_File_write_ordered_end
pub fn file_write_ordered_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end_split(guard, "MPI_File_write_ordered", fh, status)
}
