// SPDX-License-Identifier: BSD-3-Clause
//! One-sided communication (MPI 5.0, section 12.3). An operation whose target is on this host is complete
//! when the call returns. So a call such as MPI_Rput then stores a request that is complete already.

use super::request::enter_complete;
use crate::args::{Address, Handle, Out, claim_buffer};
use crate::lenient::{self, Accepted};
use crate::process::{Guard, Win};
use crate::request::Work;
use crate::staging::Fill;
use datatype::{Basic, Buffer, BufferClaim, Datatype, PredefinedOp, check_op};
use error::{Class, Result, fail};
use objects::{Objects, Op, constants as c};
use rma::{Direction, Swap, TargetRange, Update, Window};

/// The buffer, count and datatype of a one-sided operation at its origin.
#[derive(Clone, Copy)]
struct Origin(Address, i64, Handle);

/// The rank, displacement, count and datatype of a one-sided operation at its target.
#[derive(Clone, Copy)]
struct AtTarget(i32, i64, i64, Handle);

/// The kinds of epochs in which a one-sided operation is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Epoch {
    Any,
    /// The operation is allowed only in epochs that MPI_Win_lock or MPI_Win_lock_all opened. This holds for
    /// an operation with a request, such as MPI_Rput.
    Lock,
}

/// MPI_Put
#[inline(always)]
#[rustfmt::skip]
pub fn put(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Result<()> {
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    let origin = Origin(origin_addr, origin_count, origin_datatype);
    move_bytes(guard, origin, target, win, Epoch::Any, Direction::Put)
}

/// MPI_Get
#[inline(always)]
#[rustfmt::skip]
pub fn get(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Result<()> {
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    let origin = Origin(origin_addr, origin_count, origin_datatype);
    move_bytes(guard, origin, target, win, Epoch::Any, Direction::Fetch)
}

/// MPI_Rput
#[rustfmt::skip]
pub fn rput(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let origin = Origin(origin_addr, origin_count, origin_datatype);
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    move_bytes(guard, origin, target, win, Epoch::Lock, Direction::Put)?;
    finish(guard, win, target_rank, request)
}

/// MPI_Rget
#[rustfmt::skip]
pub fn rget(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let origin = Origin(origin_addr, origin_count, origin_datatype);
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    move_bytes(guard, origin, target, win, Epoch::Lock, Direction::Fetch)?;
    finish(guard, win, target_rank, request)
}

/// MPI_Accumulate
#[inline(always)]
#[rustfmt::skip]
pub fn accumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, op: Handle, win: Handle,
) -> Result<()> {
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), None, target, op, win, Epoch::Any)
}

/// MPI_Raccumulate
#[rustfmt::skip]
pub fn raccumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, op: Handle, win: Handle,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), None, target, op, win, Epoch::Lock)?;
    finish(guard, win, target_rank, request)
}

/// MPI_Get_accumulate
#[inline(always)]
#[rustfmt::skip]
pub fn get_accumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, result_addr: Address,
    result_count: i64, result_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64,
    target_datatype: Handle, op: Handle, win: Handle,
) -> Result<()> {
    let result = Some(Origin(result_addr, result_count, result_datatype));
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), result, target, op, win, Epoch::Any)
}

/// MPI_Rget_accumulate
#[rustfmt::skip]
pub fn rget_accumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, result_addr: Address,
    result_count: i64, result_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64,
    target_datatype: Handle, op: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let result = Some(Origin(result_addr, result_count, result_datatype));
    let target = AtTarget(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), result, target, op, win, Epoch::Lock)?;
    finish(guard, win, target_rank, request)
}

/// MPI_Fetch_and_op: does what MPI_Get_accumulate does, for one element of a predefined datatype.
#[inline(always)]
#[rustfmt::skip]
pub fn fetch_and_op(
    guard: &mut Guard, origin_addr: Address, result_addr: Address, datatype: Handle, target_rank: i32,
    target_disp: i64, op: Handle, win: Handle,
) -> Result<()> {
    predefined(&guard.objects, datatype)?;
    let (origin, result) = (Origin(origin_addr, 1, datatype), Origin(result_addr, 1, datatype));
    update(guard, origin, Some(result), AtTarget(target_rank, target_disp, 1, datatype), op, win, Epoch::Any)
}

/// MPI_Compare_and_swap
#[inline(always)]
#[rustfmt::skip]
pub fn compare_and_swap(
    guard: &mut Guard, origin_addr: Address, compare_addr: Address, result_addr: Address, datatype: Handle,
    target_rank: i32, target_disp: i64, win: Handle,
) -> Result<()> {
    let (objects, job) = guard.parts();
    let (window, rma) = job.window(win)?;
    let basic = predefined(objects, datatype)?;
    // The types of MPI_LXOR and MPI_BXOR are the integers, the logicals and MPI_BYTE (MPI 5.0, section
    // 12.3.4).
    if check_op(PredefinedOp::Lxor, basic).or(check_op(PredefinedOp::Bxor, basic)).is_err() {
        let given = basic.describe();
        fail!(Class::Type, "MPI_Compare_and_swap takes integers, logicals and MPI_BYTE, not {given}");
    }
    if target_rank == c::PROC_NULL {
        return Ok(());
    }
    let target = window.target(target_rank)?;
    let (range, _) = range_of(objects, target_disp, 1, datatype)?;
    let element = |address| {
        let buffer = claim_buffer(address, 1, range.bytes, range.layout, Fill::Now)?;
        Ok(buffer.contiguous().expect("integers, logicals and bytes have no gaps"))
    };
    let (compare, origin, result) = (element(compare_addr)?, element(origin_addr)?, element(result_addr)?);
    window.compare_and_swap(rma, target, Swap { basic, compare, origin, result }, range)?;
    guard.send_window_requests_now();
    guard.polled_window();
    Ok(())
}

/// Carries out MPI_Put or MPI_Get, as `way` says.
#[inline(always)]
fn move_bytes(
    guard: &mut Guard,
    Origin(address, count, datatype): Origin,
    AtTarget(rank, disp, target_count, target_datatype): AtTarget,
    win: Handle,
    epoch: Epoch,
    way: Direction,
) -> Result<()> {
    let (objects, job) = guard.parts();
    let (window, rma) = job.window(win)?;
    if rank == c::PROC_NULL {
        return Ok(());
    }
    let target = open(window, rank, epoch)?;
    let (range, _) = range_of(objects, disp, target_count, target_datatype)?;
    let origin =
        origin_of(objects, Origin(address, count, datatype), "origin_count", target_datatype, range)?;
    window.copy(rma, target, origin, range, way)?;
    guard.send_window_requests_now();
    Ok(())
}

/// Carries out one of the accumulate functions. If there is a `result`, also stores the target's old values
/// there.
#[inline(always)]
fn update(
    guard: &mut Guard,
    origin: Origin,
    result: Option<Origin>,
    AtTarget(rank, disp, count, target_datatype): AtTarget,
    op: Handle,
    win: Handle,
    epoch: Epoch,
) -> Result<()> {
    let (objects, job) = guard.parts();
    let (window, rma) = job.window(win)?;
    let Op::Predefined(op) = objects.op(op)? else {
        fail!(Class::Op, "accumulates take predefined operators only, and the program made this one");
    };
    if rank == c::PROC_NULL {
        return Ok(());
    }
    let target = open(window, rank, epoch)?;
    let (range, datatype) = range_of(objects, disp, count, target_datatype)?;
    // MPI_NO_OP ignores the origin's arguments, whatever they are (MPI 5.0, section 12.3.4).
    let Origin(_, _, origin_datatype) = origin;
    let origin = match op {
        PredefinedOp::NoOp => None,
        _ => Some(origin_of(objects, origin, "origin_count", target_datatype, range)?),
    };
    let result = match result {
        Some(result) => Some(origin_of(objects, result, "result_count", target_datatype, range)?),
        None if origin.is_none() => fail!(Class::Op, "MPI_NO_OP is only for accumulates that fetch"),
        None => None,
    };
    if range.bytes == 0 && origin.is_none_or(|origin| origin.bytes() == 0) {
        return Ok(());
    }
    let basic = element(datatype)?;
    if origin.is_some()
        && origin_datatype != target_datatype
        && element(objects.datatype(origin_datatype)?)? != basic
    {
        fail!(
            Class::Type,
            "the elements at the origin and at the target have different predefined datatypes"
        );
    }
    check_op(op, basic)?;
    if basic == Basic::Char && !matches!(op, PredefinedOp::Replace | PredefinedOp::NoOp) {
        lenient::accept(Accepted::Characters);
    }
    window.accumulate(rma, target, Update { op, basic }, origin, result, range)?;
    let fetches = result.is_some();
    guard.send_window_requests_now();
    if fetches {
        guard.polled_window();
    }
    Ok(())
}

#[inline(always)]
fn open(window: &mut Window, rank: i32, epoch: Epoch) -> Result<usize> {
    match epoch {
        Epoch::Any => window.target(rank),
        Epoch::Lock => window.locked_target(rank),
    }
}

/// Returns the range of the target's memory that an operation uses, and the datatype that `handle` names.
#[inline(always)]
fn range_of(
    objects: &Objects,
    disp: i64,
    count: i64,
    handle: Handle,
) -> Result<(TargetRange<'_>, &Datatype)> {
    let datatype = objects.committed(handle)?;
    let (layout, elements) = (datatype.layout(), crate::args::count(count, "target_count")?);
    let Some(bytes) = Buffer::bytes_of(elements, layout) else { return too_many(elements, handle) };
    Ok((TargetRange { disp, count: elements, bytes, layout }, datatype))
}

/// Returns the buffer of an operation at its origin. `range` has the count and the datatype at the target,
/// which are checked already. Checks the origin's only if they differ from the target's.
#[inline(always)]
fn origin_of<'a>(
    objects: &'a Objects,
    Origin(address, count, datatype): Origin,
    name: &str,
    target_datatype: Handle,
    range: TargetRange<'a>,
) -> Result<BufferClaim<'a>> {
    if datatype == target_datatype && count == range.count as i64 {
        return claim_buffer(address, range.count, range.bytes, range.layout, Fill::Now);
    }
    let layout = objects.committed(datatype)?.layout();
    let elements = crate::args::count(count, name)?;
    let Some(bytes) = Buffer::bytes_of(elements, layout) else { return too_many(elements, datatype) };
    claim_buffer(address, elements, bytes, layout, Fill::Now)
}

#[cold]
fn too_many<T>(elements: usize, datatype: Handle) -> Result<T> {
    fail!(Class::Count, "{elements} elements of {datatype} are more than 2^63 bytes")
}

/// Returns the predefined datatype that all elements of `datatype` have. Returns MPI_ERR_TYPE if they differ
/// (MPI 5.0, section 12.3.4).
#[inline]
fn element(datatype: &Datatype) -> Result<Basic> {
    match datatype.element() {
        Some(basic) => Ok(basic),
        None => {
            fail!(Class::Type, "an accumulate needs a datatype whose elements have one predefined datatype")
        }
    }
}

#[inline]
fn predefined(objects: &Objects, datatype: Handle) -> Result<Basic> {
    match objects.datatype(datatype)?.basic() {
        Some(basic) => Ok(basic),
        None => fail!(Class::Type, "{datatype} is not a predefined datatype"),
    }
}

/// Stores a request for the latest operation of this process at the target `rank`. The request is complete
/// already if the target is on this host.
fn finish(guard: &mut Guard, win: Handle, rank: i32, request: Out<Handle>) -> Result<()> {
    let Win { window, comm, .. } = guard.job().windows.get_mut(win)?;
    let (ended, comm) = (window.completion_of_latest(rank), *comm);
    guard.polled_window();
    match ended {
        Some(ended) => request.set(guard.request(comm, Work::Window(ended))?),
        None => enter_complete(guard, comm, request),
    }
}
