// SPDX-License-Identifier: BSD-3-Clause
//! How MPI's wait and test calls end requests: one request, one of many, or many in one call (MPI 5.0,
//! section 3.7.5). A function with "retire" in its name frees a complete request, or makes it inactive if it
//! is persistent. Read next: `request.rs`.

use crate::args::{Array, Handle, Out, Status, StatusOut, Statuses};
use crate::process::{Guard, JobState, On, Process};
use crate::request::{Completion, Work};
use error::{Class, Error, Result};
use objects::constants;

/// Returns `error`, the error of an operation, or Ok if it is None. The error handler of `comm`, a comm or
/// file, gets the error. If `comm` is MPI_COMM_NULL, the handler for calls on no object gets it.
pub(super) fn failed_on(guard: &mut Guard, comm: Handle, error: Option<Error>) -> Result<()> {
    let Some(error) = error else { return Ok(()) };
    guard.blame(match comm.kind() {
        Some(objects::HandleKind::File) => On::File(comm),
        _ if comm == constants::COMM_NULL => On::Nothing,
        _ => On::Comm(comm),
    });
    Err(error)
}

/// Returns `outcome`, the outcome of a call on the request `request`. Makes the error handler of the
/// request's comm or file receive the error.
pub(crate) fn for_owner(guard: &mut Guard, request: Handle, outcome: Result<()>) -> Result<()> {
    let Err(error) = outcome else { return Ok(()) };
    let JobState { requests, deferred, .. } = guard.job();
    let known = requests.get(request).map(|request| request.comm);
    let owner = deferred.get(request).map_or(known.unwrap_or(constants::COMM_NULL), |receive| receive.comm);
    failed_on(guard, owner, Some(error))
}

impl Completion {
    /// Stores the status of an ended operation in the program's variable. Returns the operation's error.
    pub(crate) fn store(self, status: StatusOut) -> Result<()> {
        status.set(self.status);
        self.error.map_or(Ok(()), Err)
    }
}

/// How a request ended. A wait or test call has freed the request, or made it inactive.
pub(super) struct Retired {
    /// The comm or file of the request. Its error handler receives the operation's error.
    comm: Handle,
    completion: Completion,
    /// Whether the program's request variable keeps its value, because the request is persistent or null.
    stays: bool,
    /// Whether the request was active. A null or inactive request has the empty status.
    was_active: bool,
}

impl Retired {
    /// Stores the request's status for the program. Returns the operation's error, which the error handler of
    /// the request's comm or file receives.
    fn store(self, guard: &mut Guard, status: StatusOut) -> Result<()> {
        if !self.was_active {
            return status.set_empty();
        }
        let completion = self.completion.ended(guard);
        status.set(completion.status);
        failed_on(guard, self.comm, completion.error)
    }
}

pub(super) fn finish_one(
    guard: &mut Guard,
    request: Out<Handle>,
    retired: Retired,
    status: StatusOut,
) -> Result<()> {
    if !retired.stays {
        request.set(constants::REQUEST_NULL)?;
    }
    retired.store(guard, status)
}

/// The index of the first complete request among many, and how it ended. None if no request is active.
pub(super) type FirstDone = Option<(usize, Retired)>;

#[rustfmt::skip]
pub(super) fn finish_any(
    guard: &mut Guard, requests: Array<Handle>, done: FirstDone, indx: Out<i32>, status: StatusOut,
) -> Result<()> {
    let Some((at, retired)) = done else {
        status.set_empty()?;
        return indx.set(constants::UNDEFINED);
    };
    indx.set(at as i32)?;
    if !retired.stays {
        requests.set(at, constants::REQUEST_NULL)?;
    }
    retired.store(guard, status)
}

#[rustfmt::skip]
pub(super) fn finish_some(
    guard: &mut Guard, requests: Array<Handle>, done: Option<Vec<usize>>, outcount: Out<i32>,
    indices: Array<i32>, statuses: Statuses,
) -> Result<()> {
    let Some(done) = done else { return outcount.set(constants::UNDEFINED) };
    outcount.set(done.len() as i32)?;
    for (at, index) in done.iter().enumerate() {
        indices.set(at, *index as i32)?;
    }
    finish_many(guard, requests, done.into_iter(), statuses)
}

/// Frees the requests with the indices `done`, which are all complete (or makes them inactive if they are
/// persistent), and stores their statuses.
#[rustfmt::skip]
pub(super) fn finish_many(
    guard: &mut Guard, requests: Array<Handle>, done: impl Iterator<Item = usize>, statuses: Statuses,
) -> Result<()> {
    let mut ended = EndedRequests::new(requests, statuses);
    for index in done {
        let over = ended.retire(guard, index)?;
        assert!(over, "it was over a moment ago");
    }
    ended.conclude(guard)
}

/// The state of a call that ends many requests, one after the other. If an operation has failed, the call
/// returns MPI_ERR_IN_STATUS, and each status holds the error of its operation (MPI 5.0, section 3.7.5).
pub(super) struct EndedRequests {
    requests: Array<Handle>,
    statuses: Statuses,
    /// How many requests the call has ended so far. The status of the next one is stored at this index.
    count: usize,
    failed: Vec<(usize, Handle, Error)>,
    /// The generalized requests that have ended: index of the status, comm, and outcome. At the end of the
    /// call the library calls their query and free functions, without the lock.
    generalized: Vec<(usize, Handle, Completion)>,
}

impl EndedRequests {
    pub(super) fn new(requests: Array<Handle>, statuses: Statuses) -> EndedRequests {
        EndedRequests { requests, statuses, count: 0, failed: Vec::new(), generalized: Vec::new() }
    }

    /// Frees complete requests in order, up to index `end`, or makes them inactive if they are persistent.
    /// Begins where the last call stopped. Returns None at a request that is not complete, `Some(Ok)` after
    /// the last request, and an error for an invalid handle.
    #[inline(never)] // A wait calls it in several places.
    pub(super) fn retire_until(&mut self, process: &mut Process, end: usize) -> Option<Result<()>> {
        while self.count < end {
            match self.retire(process, self.count) {
                Ok(false) => return None,
                Ok(true) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(()))
    }

    /// Frees the request at `index` if it is complete, or makes it inactive if it is persistent. Returns
    /// whether it was complete.
    #[inline(always)]
    fn retire(&mut self, process: &mut Process, index: usize) -> Result<bool> {
        let handle = self.requests.get(index)?;
        let Some((source, tag, bytes)) = process.retire_message(handle) else {
            return self.retire_other(process, index, handle);
        };
        self.requests.set(index, constants::REQUEST_NULL)?;
        self.statuses.set(self.count, Status::new(source, tag, bytes));
        self.count += 1;
        Ok(true)
    }

    #[inline(never)]
    fn retire_other(&mut self, process: &mut Process, index: usize, handle: Handle) -> Result<bool> {
        let Some(retired) = process.retire(handle)? else { return Ok(false) };
        let Retired { comm, completion, stays, .. } = retired;
        if !stays {
            self.requests.set(index, constants::REQUEST_NULL)?;
        }
        let at = self.count;
        self.count += 1;
        if completion.generalized.is_some() {
            self.generalized.push((at, comm, completion));
            return Ok(true);
        }
        self.statuses.set(at, completion.status);
        if let Some(error) = completion.error {
            self.failed.push((at, comm, error));
        }
        Ok(true)
    }

    pub(super) fn conclude(mut self, guard: &mut Guard) -> Result<()> {
        for (at, comm, completion) in self.generalized {
            let completion = completion.ended(guard);
            self.statuses.set(at, completion.status);
            if let Some(error) = completion.error {
                self.failed.push((at, comm, error));
            }
        }
        self.failed.sort_by_key(|(at, ..)| *at);
        let Some((_, comm, first)) = self.failed.first() else { return Ok(()) };
        (0..self.count).for_each(|at| self.statuses.set_error(at, constants::SUCCESS));
        self.failed.iter().for_each(|(at, _, error)| self.statuses.set_error(*at, error.code()));
        let error = Error::new(Class::InStatus, format!("of {} operations: {}", self.count, first.message));
        failed_on(guard, *comm, Some(error))
    }
}

impl Process {
    /// Returns how a request ended, or None if it is not complete. Leaves the request as it is.
    pub(super) fn look(&mut self, handle: Handle) -> Result<Option<Completion>> {
        if handle == constants::REQUEST_NULL {
            return Ok(Some(Completion::EMPTY));
        }
        let JobState { requests, deferred, p2p, coll, operators, .. } = self.job();
        if let Some(receive) = deferred.get(handle) {
            return Ok(p2p
                .outcome(receive.ticket())
                .map(|outcome| Completion::of(outcome, &receive.source())));
        }
        let Some(work) = &mut requests.get_mut(handle)?.work else { return Ok(Some(Completion::EMPTY)) };
        let Some(completion) = work.poll(p2p, coll, operators) else { return Ok(None) };
        *work = Work::Done(completion.clone());
        Ok(Some(completion))
    }

    /// Returns how a request ended, or None if it is not complete. Frees a complete request, or makes it
    /// inactive if it is persistent.
    #[inline(always)] // Else its result is copied several times.
    pub(super) fn retire(&mut self, handle: Handle) -> Result<Option<Retired>> {
        if handle == constants::REQUEST_NULL {
            return Ok(Some(Retired {
                comm: constants::COMM_NULL,
                completion: Completion::EMPTY,
                stays: true,
                was_active: false,
            }));
        }
        let JobState { requests, deferred, sent, p2p, coll, operators, .. } = self.job();
        if let Some(receive) = deferred.get(handle).copied() {
            let Some(outcome) = p2p.take(receive.ticket()) else { return Ok(None) };
            deferred.remove(receive);
            let completion = Completion::of(outcome, &receive.source());
            return Ok(Some(Retired { comm: receive.comm, completion, stays: false, was_active: true }));
        }
        if Some(handle) == *sent {
            return Ok(Some(Retired {
                comm: constants::COMM_NULL,
                completion: Completion::EMPTY,
                stays: false,
                was_active: true,
            }));
        }
        let mut entry = requests.entry(handle)?;
        let request = entry.get_mut();
        let (comm, stays) = (request.comm, request.recipe.is_some());
        let Some(work) = &mut request.work else {
            return Ok(Some(Retired { comm, completion: Completion::EMPTY, stays, was_active: false }));
        };
        let Some(completion) = work.poll(p2p, coll, operators) else { return Ok(None) };
        if stays {
            request.work = None;
        } else {
            entry.discard();
        }
        Ok(Some(Retired { comm, completion, stays, was_active: true }))
    }

    /// Frees a complete request of the most frequent kinds: a send that was complete when it started, or a
    /// receive whose message arrived before the receive was posted. Returns the status's source, tag and
    /// number of bytes, or None if the request is of another kind.
    #[inline(always)]
    fn retire_message(&mut self, handle: Handle) -> Option<(i32, i32, u64)> {
        let JobState { deferred, sent, p2p, .. } = self.job();
        if Some(handle) == *sent {
            return Some((Status::EMPTY.source, Status::EMPTY.tag, 0));
        }
        let receive = *deferred.get(handle)?;
        let (tag, bytes) = p2p.take_arrived(receive.ticket())?;
        deferred.remove(receive);
        Some((receive.rank, tag, bytes))
    }

    /// Frees the first request that is active and complete, or makes it inactive if it is persistent. Returns
    /// None if no active request is complete, and `Some(None)` if no request is active.
    pub(super) fn retire_any(&mut self, handles: &[Handle]) -> Result<Option<FirstDone>> {
        self.first_active(handles, |process, handle| process.retire(handle))
    }

    /// Finds the first active request for which `ask` returns a value. Returns the request's index and the
    /// value. Returns None if `ask` returns no value for any, and `Some(None)` if no request is active.
    #[inline(always)]
    pub(super) fn first_active<T>(
        &mut self,
        handles: &[Handle],
        ask: impl Fn(&mut Process, Handle) -> Result<Option<T>>,
    ) -> Result<Option<Option<(usize, T)>>> {
        let mut active = false;
        for (at, handle) in handles.iter().enumerate() {
            if !self.is_active(*handle)? {
                continue;
            }
            active = true;
            if let Some(found) = ask(self, *handle)? {
                return Ok(Some(Some((at, found))));
            }
        }
        Ok(if active { None } else { Some(None) })
    }

    /// Returns the indices of the active requests that are complete. Returns None if no active request is
    /// complete, and `Some(None)` if no request is active.
    pub(super) fn peek_some(&mut self, handles: &[Handle]) -> Result<Option<Option<Vec<usize>>>> {
        let (mut active, mut done) = (false, Vec::new());
        for (at, handle) in handles.iter().enumerate() {
            if self.is_active(*handle)? {
                active = true;
                if self.peek(*handle)? {
                    done.push(at);
                }
            }
        }
        Ok(match (active, done.is_empty()) {
            (false, _) => Some(None),
            (true, true) => None,
            (true, false) => Some(Some(done)),
        })
    }

    pub(super) fn is_active(&mut self, handle: Handle) -> Result<bool> {
        let JobState { requests, deferred, .. } = self.job();
        let is_deferred = deferred.get(handle).is_some();
        Ok(is_deferred || handle != constants::REQUEST_NULL && requests.get(handle)?.work.is_some())
    }
}
