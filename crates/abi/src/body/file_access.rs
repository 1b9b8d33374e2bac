//! Reading and writing files (MPI 5.0, section 14.4): one access, said in the standard's many ways.
//!
//! Where it begins, whether all ranks take part, and whether the caller waits, is all that tells these functions apart.

use crate::args::{Address, Handle, Out, StatusOut};
use crate::file::{At, Wanted};
use crate::process::{Guard, Process};
use crate::request::{Completion, Work};
use error::{Class, Result, fail};
use io::{Split, Way};

/// Waits for an access.
fn run(guard: &mut Guard, wanted: Wanted, status: StatusOut) -> Result<()> {
    let outcome = guard.start_access(wanted, true)?;
    // A program may poll a file.
    guard.progress();
    let ended = |_: &mut Process| outcome.take().map(Completion::of_bytes);
    let completion = if wanted.all { guard.wait(ended) } else { guard.wait_for_thread(ended) };
    finish(completion, status)
}

fn finish(completion: Completion, status: StatusOut) -> Result<()> {
    status.set(completion.status);
    completion.error.map_or(Ok(()), Err)
}

/// Gives the program a request for an access.
fn launch(guard: &mut Guard, wanted: Wanted, request: Out<Handle>) -> Result<()> {
    request.check()?;
    let outcome = guard.start_access(wanted, false)?;
    request.set(guard.request(wanted.fh, Work::Io(outcome))?)
}

/// The first half of a split collective access, of which a file has one at a time.
fn begin(guard: &mut Guard, name: &'static str, wanted: Wanted) -> Result<()> {
    let outcome = guard.start_access(wanted, false)?;
    guard.job().files.get_mut(wanted.fh)?.split = Some(Split { name, outcome });
    Ok(())
}

/// The second half.
fn end(guard: &mut Guard, name: &'static str, fh: Handle, status: StatusOut) -> Result<()> {
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
    let completion = guard.wait(|_| split.outcome.take().map(Completion::of_bytes));
    finish(completion, status)
}

/// MPI_File_read_at
#[rustfmt::skip]
pub fn file_read_at(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Offset(offset), way: Way::Read, all: false, buf, count, datatype }, status)
}

/// MPI_File_iread_at
#[rustfmt::skip]
pub fn file_iread_at(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Offset(offset), way: Way::Read, all: false, buf, count, datatype }, request)
}

/// MPI_File_read_at_all
#[rustfmt::skip]
pub fn file_read_at_all(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Offset(offset), way: Way::Read, all: true, buf, count, datatype }, status)
}

/// MPI_File_iread_at_all
#[rustfmt::skip]
pub fn file_iread_at_all(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Offset(offset), way: Way::Read, all: true, buf, count, datatype }, request)
}

/// MPI_File_read_at_all_begin
#[rustfmt::skip]
pub fn file_read_at_all_begin(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle) -> Result<()> {
    begin(guard, "MPI_File_read_at_all", Wanted { fh, at: At::Offset(offset), way: Way::Read, all: true, buf, count, datatype })
}

/// MPI_File_read_at_all_end
pub fn file_read_at_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end(guard, "MPI_File_read_at_all", fh, status)
}

/// MPI_File_read
#[rustfmt::skip]
pub fn file_read(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Pointer, way: Way::Read, all: false, buf, count, datatype }, status)
}

/// MPI_File_iread
#[rustfmt::skip]
pub fn file_iread(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Pointer, way: Way::Read, all: false, buf, count, datatype }, request)
}

/// MPI_File_read_all
#[rustfmt::skip]
pub fn file_read_all(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Pointer, way: Way::Read, all: true, buf, count, datatype }, status)
}

/// MPI_File_iread_all
#[rustfmt::skip]
pub fn file_iread_all(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Pointer, way: Way::Read, all: true, buf, count, datatype }, request)
}

/// MPI_File_read_all_begin
#[rustfmt::skip]
pub fn file_read_all_begin(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle) -> Result<()> {
    begin(guard, "MPI_File_read_all", Wanted { fh, at: At::Pointer, way: Way::Read, all: true, buf, count, datatype })
}

/// MPI_File_read_all_end
pub fn file_read_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end(guard, "MPI_File_read_all", fh, status)
}

/// MPI_File_read_shared
#[rustfmt::skip]
pub fn file_read_shared(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Shared, way: Way::Read, all: false, buf, count, datatype }, status)
}

/// MPI_File_iread_shared
#[rustfmt::skip]
pub fn file_iread_shared(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Shared, way: Way::Read, all: false, buf, count, datatype }, request)
}

/// MPI_File_read_ordered
#[rustfmt::skip]
pub fn file_read_ordered(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Ordered, way: Way::Read, all: true, buf, count, datatype }, status)
}

/// MPI_File_read_ordered_begin
#[rustfmt::skip]
pub fn file_read_ordered_begin(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle) -> Result<()> {
    begin(guard, "MPI_File_read_ordered", Wanted { fh, at: At::Ordered, way: Way::Read, all: true, buf, count, datatype })
}

/// MPI_File_read_ordered_end
pub fn file_read_ordered_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end(guard, "MPI_File_read_ordered", fh, status)
}

/// MPI_File_write_at
#[rustfmt::skip]
pub fn file_write_at(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Offset(offset), way: Way::Write, all: false, buf, count, datatype }, status)
}

/// MPI_File_iwrite_at
#[rustfmt::skip]
pub fn file_iwrite_at(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Offset(offset), way: Way::Write, all: false, buf, count, datatype }, request)
}

/// MPI_File_write_at_all
#[rustfmt::skip]
pub fn file_write_at_all(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Offset(offset), way: Way::Write, all: true, buf, count, datatype }, status)
}

/// MPI_File_iwrite_at_all
#[rustfmt::skip]
pub fn file_iwrite_at_all(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Offset(offset), way: Way::Write, all: true, buf, count, datatype }, request)
}

/// MPI_File_write_at_all_begin
#[rustfmt::skip]
pub fn file_write_at_all_begin(guard: &mut Guard, fh: Handle, offset: i64, buf: Address, count: i64, datatype: Handle) -> Result<()> {
    begin(guard, "MPI_File_write_at_all", Wanted { fh, at: At::Offset(offset), way: Way::Write, all: true, buf, count, datatype })
}

/// MPI_File_write_at_all_end
pub fn file_write_at_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end(guard, "MPI_File_write_at_all", fh, status)
}

/// MPI_File_write
#[rustfmt::skip]
pub fn file_write(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Pointer, way: Way::Write, all: false, buf, count, datatype }, status)
}

/// MPI_File_iwrite
#[rustfmt::skip]
pub fn file_iwrite(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Pointer, way: Way::Write, all: false, buf, count, datatype }, request)
}

/// MPI_File_write_all
#[rustfmt::skip]
pub fn file_write_all(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Pointer, way: Way::Write, all: true, buf, count, datatype }, status)
}

/// MPI_File_iwrite_all
#[rustfmt::skip]
pub fn file_iwrite_all(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Pointer, way: Way::Write, all: true, buf, count, datatype }, request)
}

/// MPI_File_write_all_begin
#[rustfmt::skip]
pub fn file_write_all_begin(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle) -> Result<()> {
    begin(guard, "MPI_File_write_all", Wanted { fh, at: At::Pointer, way: Way::Write, all: true, buf, count, datatype })
}

/// MPI_File_write_all_end
pub fn file_write_all_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end(guard, "MPI_File_write_all", fh, status)
}

/// MPI_File_write_shared
#[rustfmt::skip]
pub fn file_write_shared(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Shared, way: Way::Write, all: false, buf, count, datatype }, status)
}

/// MPI_File_iwrite_shared
#[rustfmt::skip]
pub fn file_iwrite_shared(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, request: Out<Handle>) -> Result<()> {
    launch(guard, Wanted { fh, at: At::Shared, way: Way::Write, all: false, buf, count, datatype }, request)
}

/// MPI_File_write_ordered
#[rustfmt::skip]
pub fn file_write_ordered(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle, status: StatusOut) -> Result<()> {
    run(guard, Wanted { fh, at: At::Ordered, way: Way::Write, all: true, buf, count, datatype }, status)
}

/// MPI_File_write_ordered_begin
#[rustfmt::skip]
pub fn file_write_ordered_begin(guard: &mut Guard, fh: Handle, buf: Address, count: i64, datatype: Handle) -> Result<()> {
    begin(guard, "MPI_File_write_ordered", Wanted { fh, at: At::Ordered, way: Way::Write, all: true, buf, count, datatype })
}

/// MPI_File_write_ordered_end
pub fn file_write_ordered_end(guard: &mut Guard, fh: Handle, buf: Address, status: StatusOut) -> Result<()> {
    let _ = buf;
    end(guard, "MPI_File_write_ordered", fh, status)
}
