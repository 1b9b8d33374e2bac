// SPDX-License-Identifier: BSD-3-Clause
//! The fast path of the most frequent calls: messages and one-sided operations on contiguous data with one
//! rank, and short allreduces. It runs before the general path of a call, and writes into a ring (the queue
//! of packets to one peer), into a slot (shared memory of one member), or into a window's memory.
//!
//! Invariants: a call that returns None has done nothing, and takes the general path, like every call whose
//! arguments may be wrong. No value that needs a drop is made on the way, so all values stay in registers. A
//! structure that went through memory would be read in wider words than it was written in. Such a read waits
//! until all earlier stores, also those of the previous message, have left the core.

use crate::args::{Address, Handle, Out};
use crate::collective::Reduced;
use crate::fast::allreduce;
use crate::fast::message::tag_of;
use crate::process::Process;
use rma::Direction;
use sys::Span;

/// MPI_Send
#[inline(always)]
#[rustfmt::skip]
pub fn send(
    process: &mut Process, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32, comm: Handle,
) -> Option<()> {
    let message = process.fast_message(buf, count, datatype, dest, comm)?;
    message.send(process, tag).then_some(())
}

/// MPI_Isend
#[inline(always)]
#[rustfmt::skip]
pub fn isend(
    process: &mut Process, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32, comm: Handle,
    request: Out<Handle>,
) -> Option<()> {
    request.check().ok()?;
    process.job().sent?;
    let started = process.fast_message(buf, count, datatype, dest, comm)?.isend(process, tag, comm)?;
    request.set(started).ok()
}

/// MPI_Irecv
#[inline(always)]
#[rustfmt::skip]
pub fn irecv(
    process: &mut Process, buf: Address, count: i64, datatype: Handle, source: i32, tag: i32, comm: Handle,
    request: Out<Handle>,
) -> Option<()> {
    request.check().ok()?;
    let tag = tag_of(tag)?;
    let started = process.fast_message(buf, count, datatype, source, comm)?.irecv(process, tag, comm)?;
    request.set(started).ok()
}

/// MPI_Put
#[inline(always)]
#[rustfmt::skip]
pub fn put(
    process: &mut Process, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Option<()> {
    let here = same(process, origin_addr, (origin_count, origin_datatype), (target_count, target_datatype))?;
    process.job().windows.get_mut(win).ok()?.window.copy_now(target_rank, target_disp, here, Direction::Put)
}

/// MPI_Get
#[inline(always)]
#[rustfmt::skip]
pub fn get(
    process: &mut Process, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Option<()> {
    let here = same(process, origin_addr, (origin_count, origin_datatype), (target_count, target_datatype))?;
    process.job().windows.get_mut(win).ok()?.window.copy_now(target_rank, target_disp, here, Direction::Fetch)
}

/// MPI_Win_flush
#[inline(always)]
pub fn win_flush(process: &mut Process, rank: i32, win: Handle) -> Option<()> {
    let job = process.job();
    if job.polls_window() || !job.shared.may_spin() || job.window(win).ok()?.0.spans_hosts() {
        return None;
    }
    job.flush(rank, win).ok()
}

/// MPI_Allreduce
#[inline(always)]
#[rustfmt::skip]
pub fn allreduce(
    process: &mut Process, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Option<()> {
    allreduce::try_now(process, comm, count, &Reduced { sendbuf, recvbuf, datatype, op })
}

/// Returns the buffer at the origin of a one-sided operation. Returns None if the buffer is not contiguous,
/// or if (count, datatype) at the origin and at the target differ.
#[inline(always)]
fn same(process: &Process, address: Address, origin: (i64, Handle), target: (i64, Handle)) -> Option<Span> {
    if origin == target { process.span(address, origin.0, origin.1) } else { None }
}
