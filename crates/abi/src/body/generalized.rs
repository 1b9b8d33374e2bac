// SPDX-License-Identifier: BSD-3-Clause
//! Generalized requests: operations that the program carries out, and for which MPI's wait and test calls
//! wait (MPI 5.0, section 13.2).
//!
//! Invariant: no request is borrowed while one of the program's functions runs, because this function may
//! call MPI. So `request.rs` takes a request out of the table of requests before it calls a function.

use crate::args::{Address, Callback, Handle, Out, Status};
use crate::process::Guard;
use crate::process::callback;
use crate::process::raise::from_callback;
use crate::request::{Completion, Generalized, Work};
use error::{Class, Error, Result, fail};
use objects::constants;

/// MPI_Grequest_start
pub fn grequest_start(
    guard: &mut Guard,
    query_fn: Callback,
    free_fn: Callback,
    cancel_fn: Callback,
    extra_state: Address,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    for (function, name) in [(query_fn, "query_fn"), (free_fn, "free_fn"), (cancel_fn, "cancel_fn")] {
        if function.0 == 0 {
            fail!(Class::Arg, "{name} is a null pointer");
        }
    }
    let functions = Generalized {
        query: query_fn.0,
        free: free_fn.0,
        cancel: cancel_fn.0,
        extra_state: extra_state.0,
        is_fortran: false,
    };
    let work = Work::Generalized { functions, complete: false, freed: false };
    request.set(guard.request(constants::COMM_NULL, work)?)
}

/// MPI_Grequest_complete
pub fn grequest_complete(guard: &mut Guard, request: Handle) -> Result<()> {
    let Some(Work::Generalized { functions, complete, freed }) =
        &mut guard.job().requests.get_mut(request)?.work
    else {
        fail!(Class::Request, "{request} is not a generalized request, or has been completed already");
    };
    if std::mem::replace(complete, true) {
        fail!(Class::Request, "{request} has been completed already");
    }
    let (functions, freed) = (*functions, *freed);
    guard.wake_others();
    if !freed {
        return Ok(());
    }
    guard.job().requests.remove(request)?;
    functions.free(guard)
}

impl Generalized {
    fn free(self, guard: &mut Guard) -> Result<()> {
        from_callback("a generalized request's free function", callback::free_request(guard, self))
    }

    /// Calls the program's cancel function for MPI_Cancel. `complete` says whether MPI_Grequest_complete has
    /// been called.
    pub(crate) fn cancel(self, guard: &mut Guard, complete: bool) -> Result<()> {
        let code = callback::cancel_request(guard, self, complete);
        from_callback("a generalized request's cancel function", code)
    }
}

impl Completion {
    /// Fills in the status of a generalized request by a call of its query function. Does nothing for other
    /// requests.
    pub(crate) fn queried(mut self, guard: &mut Guard) -> Completion {
        if let Some(functions) = self.generalized.as_deref() {
            let mut status = Status::EMPTY;
            let code = callback::query_request(guard, *functions, &mut status);
            // The query function does not set MPI_ERROR.
            status.error = constants::SUCCESS;
            self.status = status;
            self.error = from_callback("a generalized request's query function", code).err();
        }
        self
    }

    /// Calls the query and the free function of a generalized request that has left the table of requests. If
    /// both fail, the error is the free function's.
    pub(crate) fn ended(self, guard: &mut Guard) -> Completion {
        let completion = self.queried(guard);
        let error: Option<Error> = completion.freed(guard).err();
        Completion { error: error.or(completion.error), ..completion }
    }

    /// Calls the free function of a generalized request, but not its query function, since no status is
    /// needed.
    pub(crate) fn freed(&self, guard: &mut Guard) -> Result<()> {
        self.generalized.as_deref().map_or(Ok(()), |functions| functions.free(guard))
    }
}
