//! One-sided communication (MPI 5.0, section 12.3). Every operation is over when its call returns, so the forms with a request
//! hand out one that is complete.

use crate::args::{Address, Handle, Out};
use crate::face;
use crate::process::Guard;
use crate::request::{Completion, Work};
use datatype::{Basic, Buffer, Datatype, PredefinedOp, check_op};
use error::{Class, Result, fail};
use objects::{Objects, Op, constants as c};
use rma::{Place, Rma, Update, Window};

/// The origin's side of an operation.
#[derive(Clone, Copy)]
struct Origin(Address, i64, Handle);

/// The target's side: rank, displacement, count, datatype.
#[derive(Clone, Copy)]
struct Target(i32, i64, i64, Handle);

/// Which epochs an operation may be in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Epoch {
    Any,
    /// Operations with a request: epochs of locks only.
    Lock,
}

/// MPI_Put
#[rustfmt::skip]
pub fn put(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Result<()> {
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    move_bytes(guard, Origin(origin_addr, origin_count, origin_datatype), target, win, Epoch::Any, Window::put)
}

/// MPI_Get
#[rustfmt::skip]
pub fn get(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Result<()> {
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    move_bytes(guard, Origin(origin_addr, origin_count, origin_datatype), target, win, Epoch::Any, Window::get)
}

/// MPI_Rput
#[rustfmt::skip]
pub fn rput(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    move_bytes(guard, Origin(origin_addr, origin_count, origin_datatype), target, win, Epoch::Lock, Window::put)?;
    hand_out(guard, win, request)
}

/// MPI_Rget
#[rustfmt::skip]
pub fn rget(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    move_bytes(guard, Origin(origin_addr, origin_count, origin_datatype), target, win, Epoch::Lock, Window::get)?;
    hand_out(guard, win, request)
}

/// MPI_Accumulate
#[rustfmt::skip]
pub fn accumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, op: Handle, win: Handle,
) -> Result<()> {
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), None, target, op, win, Epoch::Any)
}

/// MPI_Raccumulate
#[rustfmt::skip]
pub fn raccumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, op: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), None, target, op, win, Epoch::Lock)?;
    hand_out(guard, win, request)
}

/// MPI_Get_accumulate
#[rustfmt::skip]
pub fn get_accumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, result_addr: Address, result_count: i64, result_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, op: Handle, win: Handle,
) -> Result<()> {
    let result = Some(Origin(result_addr, result_count, result_datatype));
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), result, target, op, win, Epoch::Any)
}

/// MPI_Rget_accumulate
#[rustfmt::skip]
pub fn rget_accumulate(
    guard: &mut Guard, origin_addr: Address, origin_count: i64, origin_datatype: Handle, result_addr: Address, result_count: i64, result_datatype: Handle, target_rank: i32, target_disp: i64, target_count: i64, target_datatype: Handle, op: Handle, win: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let result = Some(Origin(result_addr, result_count, result_datatype));
    let target = Target(target_rank, target_disp, target_count, target_datatype);
    update(guard, Origin(origin_addr, origin_count, origin_datatype), result, target, op, win, Epoch::Lock)?;
    hand_out(guard, win, request)
}

/// MPI_Fetch_and_op: MPI_Get_accumulate of one predefined element.
#[rustfmt::skip]
pub fn fetch_and_op(
    guard: &mut Guard, origin_addr: Address, result_addr: Address, datatype: Handle, target_rank: i32, target_disp: i64, op: Handle, win: Handle,
) -> Result<()> {
    predefined(&guard.objects, datatype)?;
    let (origin, result) = (Origin(origin_addr, 1, datatype), Origin(result_addr, 1, datatype));
    update(guard, origin, Some(result), Target(target_rank, target_disp, 1, datatype), op, win, Epoch::Any)
}

/// MPI_Compare_and_swap
#[rustfmt::skip]
pub fn compare_and_swap(
    guard: &mut Guard, origin_addr: Address, compare_addr: Address, result_addr: Address, datatype: Handle, target_rank: i32, target_disp: i64, win: Handle,
) -> Result<()> {
    let basic = face::operand(predefined(&guard.objects, datatype)?);
    // What MPI_LXOR or MPI_BXOR takes is an integer, a logical or a byte (MPI 5.0, section 12.3.4).
    if check_op(PredefinedOp::Lxor, basic).or(check_op(PredefinedOp::Bxor, basic)).is_err() {
        fail!(Class::Type, "MPI_Compare_and_swap takes integers, logicals and MPI_BYTE, not {}", basic.describe());
    }
    guard.job().windows.get(win)?;
    if target_rank == c::PROC_NULL {
        return Ok(());
    }
    let element = |guard: &Guard, address| {
        let buffer = guard.buffer(address, 1, datatype)?;
        Ok(buffer.contiguous().expect("integers, logicals and bytes have no gaps"))
    };
    let spans = [element(guard, compare_addr)?, element(guard, origin_addr)?, element(guard, result_addr)?];
    let (objects, job) = guard.parts();
    let (window, rma) = job.window(win)?;
    let target = window.target(target_rank)?;
    let layout = objects.datatype(datatype)?.layout();
    window.compare_and_swap(rma, target, basic, spans, Place { disp: target_disp, count: 1, layout })
}

/// MPI_Put and MPI_Get.
#[inline]
fn move_bytes(
    guard: &mut Guard,
    Origin(address, count, datatype): Origin,
    Target(rank, disp, target_count, target_datatype): Target,
    win: Handle,
    epoch: Epoch,
    act: impl FnOnce(&mut Window, &mut Rma, usize, &Buffer, Place) -> Result<()>,
) -> Result<()> {
    if rank == c::PROC_NULL {
        return guard.job().windows.get(win).map(drop);
    }
    let origin = guard.buffer(address, count, datatype)?;
    let (objects, job) = guard.parts();
    let (window, rma) = job.window(win)?;
    let target = open(window, rank, epoch)?;
    let place = place(objects, disp, target_count, target_datatype)?;
    act(window, rma, target, &origin, place)
}

/// The accumulates; with `result` they fetch what was there.
fn update(
    guard: &mut Guard,
    origin: Origin,
    result: Option<Origin>,
    Target(rank, disp, count, datatype): Target,
    op: Handle,
    win: Handle,
    epoch: Epoch,
) -> Result<()> {
    guard.job().windows.get(win)?;
    let Op::Predefined(op) = guard.objects.op(op)? else {
        fail!(Class::Op, "accumulates take predefined operators only, and this one is the program's");
    };
    if rank == c::PROC_NULL {
        return Ok(());
    }
    // The origin's arguments are ignored for MPI_NO_OP, and its datatype may be anything (MPI 5.0, section 12.3.4).
    let fetches_only = op == PredefinedOp::NoOp;
    let Origin(address, origin_count, origin_datatype) = origin;
    let buffer =
        if fetches_only { Buffer::EMPTY } else { guard.buffer(address, origin_count, origin_datatype)? };
    let result = match result {
        Some(Origin(address, count, datatype)) => Some(guard.buffer(address, count, datatype)?),
        None if fetches_only => fail!(Class::Op, "MPI_NO_OP is for accumulates that fetch"),
        None => None,
    };
    let (objects, job) = guard.parts();
    let (window, rma) = job.window(win)?;
    let target = open(window, rank, epoch)?;
    let place = place(objects, disp, count, datatype)?;
    if place.count * place.layout.size == 0 && buffer.bytes() == 0 {
        return Ok(());
    }
    let basic = element(objects.datatype(datatype)?)?;
    if !fetches_only && element(objects.datatype(origin_datatype)?)? != basic {
        fail!(
            Class::Type,
            "the elements at the origin and at the target are of different predefined datatypes"
        );
    }
    let basic = face::operand(basic);
    check_op(op, basic)?;
    window.accumulate(rma, target, Update { op, basic }, &buffer, result.as_ref(), place)
}

fn open(window: &mut Window, rank: i32, epoch: Epoch) -> Result<usize> {
    match epoch {
        Epoch::Any => window.target(rank),
        Epoch::Lock => window.locked_target(rank),
    }
}

/// Where an operation goes at its target.
#[inline]
fn place(objects: &Objects, disp: i64, count: i64, datatype: Handle) -> Result<Place<'_>> {
    let layout = objects.committed(datatype)?.layout();
    let elements = crate::args::count(count, "target_count")?;
    if Buffer::bytes_of(elements, layout).is_none() {
        fail!(Class::Count, "{count} elements of {datatype} are more than 2^63 bytes");
    }
    Ok(Place { disp, count: elements, layout })
}

/// The predefined datatype that all elements are (MPI 5.0, section 12.3.4).
fn element(datatype: &Datatype) -> Result<Basic> {
    match datatype.element() {
        Some(basic) => Ok(basic),
        None => {
            fail!(Class::Type, "an accumulate needs a datatype whose elements are of one predefined datatype")
        }
    }
}

fn predefined(objects: &Objects, datatype: Handle) -> Result<Basic> {
    match objects.datatype(datatype)?.basic() {
        Some(basic) => Ok(basic),
        None => fail!(Class::Type, "{datatype} is no predefined datatype"),
    }
}

fn hand_out(guard: &mut Guard, win: Handle, request: Out<Handle>) -> Result<()> {
    let comm = guard.job().windows.get(win)?.comm;
    request.set(guard.request(comm, Work::Done(Completion::EMPTY))?)
}
