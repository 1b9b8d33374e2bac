// SPDX-License-Identifier: BSD-3-Clause
//! The calls that open and close epochs of RMA windows: fences, post and start, locks, flushes (MPI 5.0,
//! section 12.5).

use super::coll;
use crate::args::{Handle, Out};
use crate::process::{Awaiting, EpochChange, Guard, JobState, Process};
use error::{Class, Result, fail};
use objects::{Group, constants as c};
use rma::Lock;
use telemetry::Counter;

/// Returns MPI_ERR_ASSERT if `assert` has bits other than `allowed`, the assertions that a call accepts.
fn check_assert(assert: i32, allowed: i32) -> Result<()> {
    if assert & !allowed != 0 {
        fail!(Class::Assert, "assert is {assert}, which has bits that this call does not take");
    }
    Ok(())
}

/// MPI_Win_fence: with MPI_MODE_NOSUCCEED opens no new epoch. Ignores the other assertions, which could save
/// little time, since each fence makes a barrier in any case.
pub fn win_fence(guard: &mut Guard, assert: i32, win: Handle) -> Result<()> {
    let comm = guard.job().windows.get(win)?.comm;
    check_assert(assert, c::MODE_NOSTORE | c::MODE_NOPUT | c::MODE_NOPRECEDE | c::MODE_NOSUCCEED)?;
    guard.job().window(win)?.0.may_fence()?;
    guard.wait_for_answers(win, None)?;
    coll::barrier(guard, comm)?;
    let opens = assert & c::MODE_NOSUCCEED == 0;
    trace(guard, win, EpochChange::Fence(opens))?;
    guard.job().window(win)?.0.fenced(opens)
}

/// Records in the trace that the running call opens or closes an epoch of a window, if this process writes a
/// trace.
#[inline(always)]
fn trace(guard: &mut Guard, win: Handle, turn: EpochChange) -> Result<()> {
    if telemetry::tracing() { guard.trace_epoch(win, turn) } else { Ok(()) }
}

/// MPI_Win_post
pub fn win_post(guard: &mut Guard, group: Handle, assert: i32, win: Handle) -> Result<()> {
    check_assert(assert, c::MODE_NOCHECK | c::MODE_NOSTORE | c::MODE_NOPUT)?;
    let origins = members(guard, group, win)?;
    let started = telemetry::start_time();
    let (window, rma) = guard.job().window(win)?;
    window.post(rma, &origins)?;
    guard.send_window_requests_now();
    trace(guard, win, EpochChange::Post(&origins, started))
}

/// MPI_Win_start: returns once all targets have called MPI_Win_post.
pub fn win_start(guard: &mut Guard, group: Handle, assert: i32, win: Handle) -> Result<()> {
    check_assert(assert, c::MODE_NOCHECK)?;
    let targets = members(guard, group, win)?;
    guard.job().window(win)?.0.start(&targets)?;
    guard.wait_window(win, |window, _| Ok(window.has_started()))?;
    trace(guard, win, EpochChange::Start(&targets))
}

/// MPI_Win_complete
pub fn win_complete(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.wait_for_answers(win, None)?;
    let started = telemetry::start_time();
    let (window, rma) = guard.job().window(win)?;
    let completed = window.complete(rma);
    guard.send_window_requests_now();
    completed?;
    trace(guard, win, EpochChange::Complete(started))
}

/// MPI_Win_wait
pub fn win_wait(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.wait_window(win, |window, _| window.has_completed())?;
    trace(guard, win, EpochChange::Wait)
}

/// MPI_Win_test
pub fn win_test(guard: &mut Guard, win: Handle, flag: Out<i32>) -> Result<()> {
    flag.check()?;
    let completed = |process: &mut Process| Ok(process.job().window(win)?.0.has_completed()?.then_some(()));
    let completed = guard.poll(Counter::VainWinTest, || Awaiting::Nothing, completed)?;
    if completed.is_some() {
        trace(guard, win, EpochChange::Wait)?;
    }
    flag.set(i32::from(completed.is_some()))
}

/// Returns, for each member of a group, its rank in the group of the window.
fn members(guard: &mut Guard, group: Handle, win: Handle) -> Result<Vec<usize>> {
    let (objects, job) = guard.parts();
    let all: &Group = &objects.comm(job.windows.get(win)?.comm)?.group;
    let group = objects.group(group)?;
    let member = |peer: &u32| match all.rank_of(*peer) {
        Some(rank) => Ok(rank as usize),
        None => fail!(Class::Group, "the group has rank {peer} of MPI_COMM_WORLD, which is not in {win}"),
    };
    group.peers.iter().map(member).collect()
}

/// MPI_Win_lock
#[inline(always)]
pub fn win_lock(guard: &mut Guard, lock_type: i32, rank: i32, assert: i32, win: Handle) -> Result<()> {
    let (window, rma) = guard.job().window(win)?;
    let lock = match lock_type {
        c::LOCK_SHARED => Lock::Shared,
        c::LOCK_EXCLUSIVE => Lock::Exclusive,
        other => fail!(
            Class::LockType,
            "lock_type is {other}, which is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE"
        ),
    };
    check_assert(assert, c::MODE_NOCHECK)?;
    if rank == c::PROC_NULL {
        return Ok(());
    }
    let member = window.lock(rma, rank, lock, assert & c::MODE_NOCHECK == 0)?;
    guard.wait_window(win, |window, rma| Ok(window.is_granted(rma, member)))?;
    trace(guard, win, EpochChange::Lock(rank, lock == Lock::Exclusive))
}

/// MPI_Win_lock_all
pub fn win_lock_all(guard: &mut Guard, assert: i32, win: Handle) -> Result<()> {
    let (window, _) = guard.job().window(win)?;
    check_assert(assert, c::MODE_NOCHECK)?;
    window.lock_all()?;
    for member in 0..window.size() {
        let (window, rma) = guard.job().window(win)?;
        window.request_lock(rma, member, assert & c::MODE_NOCHECK == 0);
        guard.wait_window(win, |window, rma| Ok(window.is_granted(rma, member)))?;
    }
    trace(guard, win, EpochChange::LockAll)
}

/// MPI_Win_unlock
#[inline(always)]
pub fn win_unlock(guard: &mut Guard, rank: i32, win: Handle) -> Result<()> {
    guard.wait_for_answers(win, Some(rank))?;
    trace(guard, win, EpochChange::Unlock(rank))?;
    let (window, rma) = guard.job().window(win)?;
    let unlocked = if rank == c::PROC_NULL { Ok(()) } else { window.unlock(rma, rank) };
    guard.send_window_requests_now();
    unlocked?;
    if guard.job().shared.may_spin() {
        guard.polled_window()
    } else {
        guard.progress_after_polls()
    }
    Ok(())
}

/// MPI_Win_unlock_all
pub fn win_unlock_all(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.wait_for_answers(win, None)?;
    trace(guard, win, EpochChange::UnlockAll)?;
    let (window, rma) = guard.job().window(win)?;
    let unlocked = window.unlock_all(rma);
    guard.send_window_requests_now();
    guard.progress_after_polls();
    unlocked
}

/// MPI_Win_flush
#[inline(always)]
pub fn win_flush(guard: &mut Guard, rank: i32, win: Handle) -> Result<()> {
    guard.wait_for_answers(win, Some(rank))?;
    flushed(guard, rank, win)
}

#[inline(always)]
fn flushed(guard: &mut Guard, rank: i32, win: Handle) -> Result<()> {
    guard.job().flush(rank, win)?;
    guard.progress_after_polls();
    Ok(())
}

impl JobState {
    /// Does the last part of MPI_Win_flush. All answers from other hosts have arrived before.
    #[inline(always)]
    pub(super) fn flush(&mut self, rank: i32, win: Handle) -> Result<()> {
        let (window, _) = self.window(win)?;
        if rank != c::PROC_NULL {
            window.flush(Some(rank))?;
        }
        Ok(())
    }
}

/// MPI_Win_flush_all
pub fn win_flush_all(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.wait_for_answers(win, None)?;
    flushed_all(guard, win)
}

fn flushed_all(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.job().window(win)?.0.flush(None)?;
    guard.progress_after_polls();
    Ok(())
}

/// MPI_Win_flush_local
#[inline(always)]
pub fn win_flush_local(guard: &mut Guard, rank: i32, win: Handle) -> Result<()> {
    guard.wait_for_local_ends(win, Some(rank))?;
    flushed(guard, rank, win)
}

/// MPI_Win_flush_local_all
pub fn win_flush_local_all(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.wait_for_local_ends(win, None)?;
    flushed_all(guard, win)
}

/// MPI_Win_sync: orders memory accesses, which suffices because a window has only one copy. Also makes
/// progress: a program that polls memory by this call may wait for a rank that waits for this rank (MPI 5.0,
/// section 12.7.3).
pub fn win_sync(guard: &mut Guard, win: Handle) -> Result<()> {
    guard.job().windows.get(win)?;
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    guard.progress_after_polls();
    Ok(())
}
