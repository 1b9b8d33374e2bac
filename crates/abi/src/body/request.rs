// SPDX-License-Identifier: BSD-3-Clause
//! MPI's calls on requests: wait, test, free, cancel, start (MPI 5.0, sections 3.7.3 to 3.7.6, 3.8.4 and
//! 3.9).
//!
//! Each wait and test call does one of two things with one or many requests. `Process::peek` asks whether a
//! request is complete. `Process::retire` also frees a complete request, or makes it inactive if it is
//! persistent. Read next: `completion.rs`.

use super::completion::{EndedRequests, finish_any, finish_many, finish_one, finish_some, for_owner};
use crate::args::{Array, Handle, In, Out, Status, StatusOut, Statuses};
use crate::process::{Awaiting, Guard, JobState, Process};
use crate::request::{Completion, Recipe, Request, TracedCollective, Work};
use crate::staging::{AttachedCopy, StandIns};
use error::{Class, Result, fail};
use objects::{QueueState, constants};
use std::sync::Arc;
use telemetry::Counter;

/// MPI_Wait
pub fn wait(guard: &mut Guard, request: Out<Handle>, status: StatusOut) -> Result<()> {
    let handle = request.get()?;
    guard.awaiting = Awaiting::Request(handle);
    let retired = guard.wait(|process| process.retire(handle).transpose())?;
    finish_one(guard, request, retired, status)
}

/// MPI_Test
pub fn test(guard: &mut Guard, request: Out<Handle>, flag: Out<i32>, status: StatusOut) -> Result<()> {
    let handle = request.get()?;
    flag.check()?;
    let awaiting = || Awaiting::Request(handle);
    let retired = guard.poll(Counter::VainTest, awaiting, |process| process.retire(handle))?;
    flag.set(i32::from(retired.is_some()))?;
    retired.map_or(Ok(()), |retired| finish_one(guard, request, retired, status))
}

/// MPI_Waitany
#[rustfmt::skip]
pub fn waitany(
    guard: &mut Guard, count: i32, array_of_requests: Array<Handle>, indx: Out<i32>, status: StatusOut,
) -> Result<()> {
    let handles = array_of_requests.read(length(count)?)?;
    let done = guard.wait(|process| process.retire_any(&handles).transpose())?;
    finish_any(guard, array_of_requests, done, indx, status)
}

/// MPI_Testany
#[rustfmt::skip]
pub fn testany(
    guard: &mut Guard, count: i32, array_of_requests: Array<Handle>, indx: Out<i32>, flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    let handles = array_of_requests.read(length(count)?)?;
    match guard.poll(Counter::VainTestany, || Awaiting::Nothing, |process| process.retire_any(&handles))? {
        Some(done) => {
            flag.set(1)?;
            finish_any(guard, array_of_requests, done, indx, status)
        }
        None => {
            flag.set(0)?;
            indx.set(constants::UNDEFINED)
        }
    }
}

/// MPI_Waitall
pub fn waitall(
    guard: &mut Guard,
    count: i32,
    array_of_requests: Array<Handle>,
    array_of_statuses: Statuses,
) -> Result<()> {
    let count = length(count)?;
    let mut ended = EndedRequests::new(array_of_requests, array_of_statuses);
    // Complete requests are retired on the way, so each look costs no more than a look at one request that is
    // not complete.
    guard.wait(|process| ended.retire_until(process, count))?;
    ended.conclude(guard)
}

/// MPI_Testall
#[rustfmt::skip]
pub fn testall(
    guard: &mut Guard, count: i32, array_of_requests: Array<Handle>, flag: Out<i32>,
    array_of_statuses: Statuses,
) -> Result<()> {
    let handles = array_of_requests.read(length(count)?)?;
    let all_over = |process: &mut Process| {
        for handle in &handles {
            if !process.peek(*handle)? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    if guard.poll(Counter::VainTestall, || Awaiting::Nothing, all_over)?.is_none() {
        return flag.set(0);
    }
    flag.set(1)?;
    finish_many(guard, array_of_requests, 0..handles.len(), array_of_statuses)
}

/// MPI_Waitsome
#[rustfmt::skip]
pub fn waitsome(
    guard: &mut Guard, incount: i32, array_of_requests: Array<Handle>, outcount: Out<i32>,
    array_of_indices: Array<i32>, array_of_statuses: Statuses,
) -> Result<()> {
    let handles = array_of_requests.read(length(incount)?)?;
    let some = guard.wait(|process| process.peek_some(&handles).transpose())?;
    finish_some(guard, array_of_requests, some, outcount, array_of_indices, array_of_statuses)
}

/// MPI_Testsome
#[rustfmt::skip]
pub fn testsome(
    guard: &mut Guard, incount: i32, array_of_requests: Array<Handle>, outcount: Out<i32>,
    array_of_indices: Array<i32>, array_of_statuses: Statuses,
) -> Result<()> {
    let handles = array_of_requests.read(length(incount)?)?;
    let some =
        guard.poll(Counter::VainTestsome, || Awaiting::Nothing, |process| process.peek_some(&handles))?;
    let some = some.unwrap_or_else(|| Some(Vec::new()));
    finish_some(guard, array_of_requests, some, outcount, array_of_indices, array_of_statuses)
}

/// MPI_Request_get_status
pub fn request_get_status(
    guard: &mut Guard,
    request: Handle,
    flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    flag.check()?;
    let awaiting = || Awaiting::Request(request);
    let completion = guard.poll(Counter::VainRequestGetStatus, awaiting, |process| process.look(request))?;
    flag.set(i32::from(completion.is_some()))?;
    if !guard.is_active(request)? {
        return status.set_empty();
    }
    completion.map_or(Ok(()), |completion| report(guard, completion, |seen| status.set(seen)))
}

/// MPI_Request_get_status_any
#[rustfmt::skip]
pub fn request_get_status_any(
    guard: &mut Guard, count: i32, array_of_requests: In<Handle>, indx: Out<i32>, flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    let handles = array_of_requests.read(length(count)?)?;
    let look_at_any = |process: &mut Process| process.first_active(&handles, Process::look);
    let found = guard.poll(Counter::VainRequestGetStatus, || Awaiting::Nothing, look_at_any)?;
    flag.set(i32::from(found.is_some()))?;
    indx.set(constants::UNDEFINED)?;
    match found {
        Some(Some((at, completion))) => {
            indx.set(at as i32)?;
            report(guard, completion, |seen| status.set(seen))
        }
        Some(None) => status.set_empty(),
        None => Ok(()),
    }
}

/// MPI_Request_get_status_all
#[rustfmt::skip]
pub fn request_get_status_all(
    guard: &mut Guard, count: i32, array_of_requests: In<Handle>, flag: Out<i32>, array_of_statuses: Statuses,
) -> Result<()> {
    let handles = array_of_requests.read(length(count)?)?;
    let look_at_all = |process: &mut Process| handles.iter().map(|handle| process.look(*handle)).collect();
    let all: Option<Vec<Completion>> =
        guard.poll(Counter::VainRequestGetStatus, || Awaiting::Nothing, look_at_all)?;
    let Some(completions) = all else { return flag.set(0) };
    flag.set(1)?;
    report_many(guard, completions, array_of_statuses)
}

/// MPI_Request_get_status_some
#[rustfmt::skip]
pub fn request_get_status_some(
    guard: &mut Guard, incount: i32, array_of_requests: In<Handle>, outcount: Out<i32>,
    array_of_indices: Array<i32>, array_of_statuses: Statuses,
) -> Result<()> {
    let handles = array_of_requests.read(length(incount)?)?;
    let peek = |process: &mut Process| process.peek_some(&handles);
    let done = match guard.poll(Counter::VainRequestGetStatus, || Awaiting::Nothing, peek)? {
        Some(Some(done)) => done,
        Some(None) => return outcount.set(constants::UNDEFINED),
        None => return outcount.set(0),
    };
    outcount.set(done.len() as i32)?;
    let mut completions = Vec::with_capacity(done.len());
    for (at, index) in done.iter().enumerate() {
        array_of_indices.set(at, *index as i32)?;
        completions.push(guard.look(handles[*index])?.expect("it was over a moment ago"));
    }
    report_many(guard, completions, array_of_statuses)
}

/// Stores the status for MPI_Request_get_status or a similar call, which leaves the request as it is. Returns
/// no error of the operation, but an error of a generalized request's functions.
fn report(guard: &mut Guard, completion: Completion, store: impl FnOnce(Status)) -> Result<()> {
    let failed = completion.generalized.is_some();
    let completion = completion.queried(guard);
    store(completion.status);
    completion.error.filter(|_| failed).map_or(Ok(()), Err)
}

fn report_many(guard: &mut Guard, completions: Vec<Completion>, statuses: Statuses) -> Result<()> {
    let mut outcome = Ok(());
    for (at, completion) in completions.into_iter().enumerate() {
        outcome = outcome.and(report(guard, completion, |seen| statuses.set(at, seen)));
    }
    outcome
}

/// MPI_Request_free: the operation continues to its end. A generalized request stays in the table of requests
/// until MPI_Grequest_complete is called.
pub fn request_free(guard: &mut Guard, request: Out<Handle>) -> Result<()> {
    let handle = request.get()?;
    let freed = free(guard, request, handle);
    for_owner(guard, handle, freed)
}

fn free(guard: &mut Guard, request: Out<Handle>, handle: Handle) -> Result<()> {
    if Some(handle) == guard.job().sent {
        return request.set(constants::REQUEST_NULL);
    }
    let JobState { requests, deferred, detached, .. } = guard.job();
    if let Some(receive) = deferred.get(handle).copied() {
        deferred.remove(receive);
        detached.push(Work::Recv(receive.ticket(), receive.source()));
        return request.set(constants::REQUEST_NULL);
    }
    match &mut requests.get_mut(handle)?.work {
        Some(Work::Generalized { complete: false, freed, .. }) => *freed = true,
        _ => {
            let over = guard.peek(handle)?;
            if !over
                && let Some(Work::Partitioned(parts)) =
                    guard.job().requests.get(handle)?.work.as_ref().map(Work::inner)
            {
                fail!(Class::Request, "{}", parts.active(handle, "MPI_Request_free"));
            }
            let Request { work, recipe, .. } = guard.job().requests.remove(handle)?;
            match recipe.as_deref().map(Recipe::inner) {
                Some(Recipe::Coll { queue: QueueState::Open(queue), .. }) => {
                    guard.job().coll.close_queue(*queue)
                }
                Some(Recipe::Coll { library: Some(_), members, .. }) => {
                    guard.job().communicators.leave(members.context)
                }
                _ => (),
            }
            match work {
                Some(Work::Done(completion)) => {
                    request.set(constants::REQUEST_NULL)?;
                    return completion.freed(guard);
                }
                Some(work) => guard.job().detached.push(work),
                None => {}
            }
        }
    }
    request.set(constants::REQUEST_NULL)
}

/// MPI_Cancel
pub fn cancel(guard: &mut Guard, request: Out<Handle>) -> Result<()> {
    let handle = request.get()?;
    let cancelled = cancel_one(guard, handle);
    for_owner(guard, handle, cancelled)
}

fn cancel_one(guard: &mut Guard, handle: Handle) -> Result<()> {
    let JobState { requests, deferred, .. } = guard.job();
    if let Some(receive) = deferred.get(handle) {
        let ticket = receive.ticket();
        guard.job().cancel(ticket);
        guard.wake_others();
        return Ok(());
    }
    let work = &mut requests.get_mut(handle)?.work;
    if let Some(Work::Partitioned(parts)) = work.as_ref().map(Work::inner) {
        fail!(Class::Request, "{}", parts.active(handle, "MPI_Cancel"));
    }
    match work {
        Some(staged)
            if matches!(
                staged.inner(),
                Work::Coll(..) | Work::Checked(_) | Work::Library(_) | Work::OnDevice(_)
            ) =>
        {
            fail!(Class::Request, "{handle} is a collective, which cannot be cancelled")
        }
        Some(Work::Generalized { functions, complete, .. }) => {
            let (functions, complete) = (*functions, *complete);
            return functions.cancel(guard, complete);
        }
        Some(Work::Done(Completion { generalized: Some(functions), .. })) => {
            let functions = **functions;
            return functions.cancel(guard, true);
        }
        Some(work) => {
            if let Some(ticket) = work.ticket() {
                guard.wait(|process| process.job().cancel(ticket));
            }
        }
        None => fail!(Class::Request, "{handle} is not active, so there is nothing to cancel"),
    }
    guard.wake_others();
    Ok(())
}

/// MPI_Start
pub fn start(guard: &mut Guard, request: Out<Handle>) -> Result<()> {
    let handle = request.get()?;
    let started = start_again(guard, handle);
    guard.send_edges_now();
    for_owner(guard, handle, started)
}

/// MPI_Startall
pub fn startall(guard: &mut Guard, count: i32, array_of_requests: Array<Handle>) -> Result<()> {
    for handle in array_of_requests.read(length(count)?)? {
        let started = start_again(guard, handle);
        for_owner(guard, handle, started)?;
    }
    guard.send_edges_now();
    Ok(())
}

fn start_again(guard: &mut Guard, handle: Handle) -> Result<()> {
    let request = guard.job().requests.get_mut(handle)?;
    if request.work.is_some() {
        fail!(Class::Request, "{handle} is active; MPI_Start takes a persistent request that is not");
    }
    let Some(mut recipe) = request.recipe.take() else {
        fail!(Class::Request, "{handle} is not a persistent request");
    };
    let mut work = recipe.start(guard);
    if let (Recipe::Coll { planned, members, starts, .. }, Ok(work)) = (recipe.inner_mut(), &mut work) {
        *starts = starts.wrapping_add(1);
        let started = Some((members.context, *starts));
        let operation =
            guard.operation(planned.function(), || TracedCollective { started, ..planned.traced() });
        work.follow(operation, &guard.job().coll);
    }
    let request = guard.job().requests.get_mut(handle)?;
    request.recipe = Some(recipe);
    let work = request.work.insert(work?);
    // An earlier start that completed at once may have left the request in the list.
    if work.is_driven() && !guard.job().driven.contains(&handle) {
        guard.job().driven.push(handle);
    }
    Ok(())
}

/// MPIX_Request_attach: adds functions of a language binding to a request whose buffer is the binding's copy
/// of the program's memory. One fills the copy before each start, one copies it back, and one frees it.
pub(crate) fn attach(
    guard: &mut Guard,
    handle: Handle,
    attached: impl FnOnce() -> AttachedCopy,
) -> Result<()> {
    if handle == constants::REQUEST_NULL || Some(handle) == guard.job().sent {
        fail!(Class::Request, "{handle} has no operation to which something could be attached");
    }
    let request = guard.job().requests.get_mut(handle)?;
    let staged = Arc::new(StandIns::Copy(attached()));
    if let Some(work) = &mut request.work {
        work.stand_in(staged.clone());
    }
    request.recipe = request.recipe.take().map(|recipe| Box::new(Recipe::Staged(recipe, staged)));
    Ok(())
}

/// Makes a request that is complete from the beginning, and stores its handle for the program.
pub(crate) fn enter_complete(guard: &mut Guard, comm: Handle, request: Out<Handle>) -> Result<()> {
    request.set(guard.request(comm, Work::Done(Completion::EMPTY))?)
}

fn length(count: i32) -> Result<usize> {
    crate::args::count(i64::from(count), "the number of requests")
}
