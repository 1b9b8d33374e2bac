//! Completion of requests (MPI 5.0, sections 3.7.3 to 3.7.6, 3.8.4 and 3.9).
//!
//! Every call does one of two things to one or many requests: `Process::peek` asks whether a request is
//! complete; `Process::retire` also ends it, if it is.

use crate::args::{Array, Handle, In, Out, Status, StatusOut, Statuses};
use crate::process::{Awaiting, Guard, Job, On, Process};
use crate::request::{Completion, Recipe, Request, Work};
use error::{Class, Error, Result, fail};
use objects::{Queue, constants};
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
    let mut ended = Ended::new(array_of_requests, array_of_statuses);
    // Complete requests are retired on the way, so each look costs no more than one request that is not
    // complete.
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

/// Gives the status of a request that stays. Only the errors of a generalized request's functions are
/// returned now.
fn report(guard: &mut Guard, completion: Completion, tell: impl FnOnce(Status)) -> Result<()> {
    let failed = completion.generalized.is_some();
    let completion = completion.queried(guard);
    tell(completion.status);
    completion.error.filter(|_| failed).map_or(Ok(()), Err)
}

fn report_many(guard: &mut Guard, completions: Vec<Completion>, statuses: Statuses) -> Result<()> {
    let mut outcome = Ok(());
    for (at, completion) in completions.into_iter().enumerate() {
        outcome = outcome.and(report(guard, completion, |seen| statuses.set(at, seen)));
    }
    outcome
}

/// MPI_Request_free: the operation goes on to its end. A generalized request stays in the table until
/// MPI_Grequest_complete.
pub fn request_free(guard: &mut Guard, request: Out<Handle>) -> Result<()> {
    let handle = request.get()?;
    let freed = free(guard, request, handle);
    for_owner(guard, handle, freed)
}

fn free(guard: &mut Guard, request: Out<Handle>, handle: Handle) -> Result<()> {
    if Some(handle) == guard.job().sent {
        return request.set(constants::REQUEST_NULL);
    }
    let Job { requests, deferred, orphans, .. } = guard.job();
    if let Some(receive) = deferred.get(handle).copied() {
        deferred.remove(receive);
        orphans.push(Work::Recv(receive.ticket(), receive.source()));
        return request.set(constants::REQUEST_NULL);
    }
    match &mut requests.get_mut(handle)?.work {
        Some(Work::Generalized { complete: false, freed, .. }) => *freed = true,
        _ => {
            let over = guard.peek(handle)?;
            if !over && let Some(Work::Parts(parts)) = &guard.job().requests.get(handle)?.work {
                fail!(Class::Request, "{}", parts.active(handle, "MPI_Request_free"));
            }
            let Request { work, recipe, .. } = guard.job().requests.remove(handle)?;
            if let Some(Recipe::Coll { queue: Queue::Open(queue), .. }) = recipe.as_deref() {
                guard.job().coll.close_queue(*queue);
            }
            match work {
                Some(Work::Done(completion)) => {
                    request.set(constants::REQUEST_NULL)?;
                    return completion.freed(guard);
                }
                Some(work) => guard.job().orphans.push(work),
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
    let Job { requests, deferred, p2p, .. } = guard.job();
    if let Some(receive) = deferred.get(handle) {
        p2p.cancel(receive.ticket());
        guard.wake_others();
        return Ok(());
    }
    match &mut requests.get_mut(handle)?.work {
        Some(Work::Coll(..) | Work::Checked(_)) => {
            fail!(Class::Request, "{handle} is a collective, which cannot be cancelled")
        }
        Some(Work::Parts(parts)) => fail!(Class::Request, "{}", parts.active(handle, "MPI_Cancel")),
        Some(Work::Generalized { functions, complete, .. }) => {
            let (functions, complete) = (*functions, *complete);
            return functions.cancel(guard, complete);
        }
        Some(Work::Done(Completion { generalized: Some(functions), .. })) => {
            let functions = **functions;
            return functions.cancel(guard, true);
        }
        Some(work) => work.cancel(p2p),
        None => fail!(Class::Request, "{handle} is not active, so there is nothing to cancel"),
    }
    guard.wake_others();
    Ok(())
}

/// MPI_Start
pub fn start(guard: &mut Guard, request: Out<Handle>) -> Result<()> {
    let handle = request.get()?;
    let started = start_again(guard, handle);
    for_owner(guard, handle, started)
}

/// MPI_Startall
pub fn startall(guard: &mut Guard, count: i32, array_of_requests: Array<Handle>) -> Result<()> {
    for handle in array_of_requests.read(length(count)?)? {
        let started = start_again(guard, handle);
        for_owner(guard, handle, started)?;
    }
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
    if let (Recipe::Coll { planned, .. }, Ok(work)) = (&*recipe, &mut work) {
        let (comm, bytes) = planned.told();
        let operation = guard.operation(planned.function(), comm, bytes);
        work.follow(operation, &guard.job().coll);
    }
    let request = guard.job().requests.get_mut(handle)?;
    request.recipe = Some(recipe);
    let work = request.work.insert(work?);
    // An earlier start that completed at once may have left it in the list.
    if work.is_driven() && !guard.job().driven.contains(&handle) {
        guard.job().driven.push(handle);
    }
    Ok(())
}

/// An operation's failure goes to the error handler of the request's comm or file, if it has one.
fn failed_on(guard: &mut Guard, comm: Handle, error: Option<Error>) -> Result<()> {
    let Some(error) = error else { return Ok(()) };
    guard.blame(match comm.kind() {
        Some(objects::Kind::File) => On::File(comm),
        _ if comm == constants::COMM_NULL => On::Nothing,
        _ => On::Comm(comm),
    });
    Err(error)
}

/// A call's failure goes to the same error handler as the failure of the request's operation.
pub(crate) fn for_owner(guard: &mut Guard, request: Handle, outcome: Result<()>) -> Result<()> {
    let Err(error) = outcome else { return Ok(()) };
    let Job { requests, deferred, .. } = guard.job();
    let known = requests.get(request).map(|request| request.comm);
    let owner = deferred.get(request).map_or(known.unwrap_or(constants::COMM_NULL), |receive| receive.comm);
    failed_on(guard, owner, Some(error))
}

fn length(count: i32) -> Result<usize> {
    crate::args::count(i64::from(count), "the number of requests")
}

/// Enters an inactive persistent request and hands it to the program.
pub(crate) fn enter_persistent(
    guard: &mut Guard,
    comm: Handle,
    recipe: Recipe,
    request: Out<Handle>,
) -> Result<()> {
    request.set(guard.job().requests.insert(Request { comm, work: None, recipe: Some(Box::new(recipe)) })?)
}

/// Enters a request that is complete already and hands it to the program.
pub(crate) fn enter_complete(guard: &mut Guard, comm: Handle, request: Out<Handle>) -> Result<()> {
    request.set(guard.request(comm, Work::Done(Completion::EMPTY))?)
}

impl Completion {
    /// Gives the status to the program, and returns the error.
    pub(crate) fn tell(self, status: StatusOut) -> Result<()> {
        status.set(self.status);
        self.error.map_or(Ok(()), Err)
    }
}

/// A request that has ended.
struct Retired {
    /// Its error handler gets a failure.
    comm: Handle,
    completion: Completion,
    /// The request is persistent, or null: the program's variable keeps it.
    stays: bool,
}

impl Retired {
    /// Gives the status to the program, and returns the error.
    fn tell(self, guard: &mut Guard, status: StatusOut) -> Result<()> {
        let completion = self.completion.ended(guard);
        status.set(completion.status);
        failed_on(guard, self.comm, completion.error)
    }
}

fn finish_one(guard: &mut Guard, request: Out<Handle>, retired: Retired, status: StatusOut) -> Result<()> {
    if !retired.stays {
        request.set(constants::REQUEST_NULL)?;
    }
    retired.tell(guard, status)
}

/// The index of a request among many, and how it ended. `None` if no request is active.
type Done = Option<(usize, Retired)>;

#[rustfmt::skip]
fn finish_any(
    guard: &mut Guard, requests: Array<Handle>, done: Done, indx: Out<i32>, status: StatusOut,
) -> Result<()> {
    let Some((at, retired)) = done else {
        status.set_empty()?;
        return indx.set(constants::UNDEFINED);
    };
    indx.set(at as i32)?;
    if !retired.stays {
        requests.set(at, constants::REQUEST_NULL)?;
    }
    retired.tell(guard, status)
}

#[rustfmt::skip]
fn finish_some(
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

/// Retires the requests with the indices `done`, which are all complete.
#[rustfmt::skip]
fn finish_many(
    guard: &mut Guard, requests: Array<Handle>, done: impl Iterator<Item = usize>, statuses: Statuses,
) -> Result<()> {
    let mut ended = Ended::new(requests, statuses);
    for index in done {
        let over = ended.retire(guard, index)?;
        assert!(over, "it was over a moment ago");
    }
    ended.conclude(guard)
}

/// Many requests, which end one after the other. If one has failed, the call returns MPI_ERR_IN_STATUS, and
/// every status has its own error (MPI 5.0, section 3.7.5).
struct Ended {
    requests: Array<Handle>,
    statuses: Statuses,
    /// How many have ended. The next to end gets the status of this index.
    count: usize,
    failed: Vec<(usize, Handle, Error)>,
    /// Generalized requests. Their functions are called at the end, without the lock.
    generalized: Vec<(usize, Handle, Completion)>,
}

impl Ended {
    fn new(requests: Array<Handle>, statuses: Statuses) -> Ended {
        Ended { requests, statuses, count: 0, failed: Vec::new(), generalized: Vec::new() }
    }

    /// Retires the requests in order, from the first that has not ended to index `end`. `None` if one is not
    /// complete.
    #[inline(never)] // A wait calls it in several places.
    fn retire_until(&mut self, process: &mut Process, end: usize) -> Option<Result<()>> {
        while self.count < end {
            match self.retire(process, self.count) {
                Ok(false) => return None,
                Ok(true) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(()))
    }

    /// Retires the request at `index`, if it is complete.
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
        let Retired { comm, completion, stays } = retired;
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

    fn conclude(mut self, guard: &mut Guard) -> Result<()> {
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
    /// How a request ended, if it is complete. It stays.
    fn look(&mut self, handle: Handle) -> Result<Option<Completion>> {
        if handle == constants::REQUEST_NULL {
            return Ok(Some(Completion::EMPTY));
        }
        let Job { requests, deferred, p2p, coll, operators, .. } = self.job();
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

    /// As `look`, and ends the request: it is freed, or inactive if it is persistent.
    #[inline(always)] // Else its result is copied several times.
    fn retire(&mut self, handle: Handle) -> Result<Option<Retired>> {
        if handle == constants::REQUEST_NULL {
            return Ok(Some(Retired {
                comm: constants::COMM_NULL,
                completion: Completion::EMPTY,
                stays: true,
            }));
        }
        let Job { requests, deferred, sent, p2p, coll, operators, .. } = self.job();
        if let Some(receive) = deferred.get(handle).copied() {
            let Some(outcome) = p2p.take(receive.ticket()) else { return Ok(None) };
            deferred.remove(receive);
            let completion = Completion::of(outcome, &receive.source());
            return Ok(Some(Retired { comm: receive.comm, completion, stays: false }));
        }
        if Some(handle) == *sent {
            return Ok(Some(Retired {
                comm: constants::COMM_NULL,
                completion: Completion::EMPTY,
                stays: false,
            }));
        }
        let mut entry = requests.entry(handle)?;
        let request = entry.get_mut();
        let (comm, stays) = (request.comm, request.recipe.is_some());
        let Some(work) = &mut request.work else {
            return Ok(Some(Retired { comm, completion: Completion::EMPTY, stays }));
        };
        let Some(completion) = work.poll(p2p, coll, operators) else { return Ok(None) };
        if stays {
            request.work = None;
        } else {
            entry.discard();
        }
        Ok(Some(Retired { comm, completion, stays }))
    }

    /// Retires a complete request of the most frequent kinds: a send that was complete when it began, or a
    /// receive whose message came before it was posted. Returns source, tag and bytes for the status; `None`
    /// for any other request.
    #[inline(always)]
    fn retire_message(&mut self, handle: Handle) -> Option<(i32, i32, u64)> {
        let Job { deferred, sent, p2p, .. } = self.job();
        if Some(handle) == *sent {
            return Some((Status::EMPTY.source, Status::EMPTY.tag, 0));
        }
        let receive = *deferred.get(handle)?;
        let (tag, bytes) = p2p.take_arrived(receive.ticket())?;
        deferred.remove(receive);
        Some((receive.rank, tag, bytes))
    }

    /// Retires the first request that is active and complete. `Some(None)`: none is active.
    fn retire_any(&mut self, handles: &[Handle]) -> Result<Option<Done>> {
        self.first_active(handles, |process, handle| process.retire(handle))
    }

    /// The first active request for which `ask` has something, with its index. `Some(None)`: none is active.
    #[inline(always)]
    fn first_active<T>(
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

    /// The indices of the active requests that are complete, if any is. `Some(None)`: none is active.
    fn peek_some(&mut self, handles: &[Handle]) -> Result<Option<Option<Vec<usize>>>> {
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

    fn is_active(&mut self, handle: Handle) -> Result<bool> {
        let Job { requests, deferred, .. } = self.job();
        let is_deferred = deferred.get(handle).is_some();
        Ok(is_deferred || handle != constants::REQUEST_NULL && requests.get(handle)?.work.is_some())
    }
}
