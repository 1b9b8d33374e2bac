// SPDX-License-Identifier: BSD-3-Clause
//! Timed collectives for OUTBOARD_STATS and OUTBOARD_TRACE: by function, comm, and number of the call.

use super::{Guard, Process};
use objects::Handle;
use std::collections::HashMap;
use telemetry::{Carried, Choice, Operation};

/// The most pairs of function and comm that are counted.
const COUNTED_MAX: usize = 10_000;

/// The calls, by context and function.
pub type Counted = HashMap<(u64, &'static str), Calls>;

/// The calls of a function on a comm.
pub struct Calls {
    name: String,
    row: usize,
    number: u32,
}

impl Process {
    /// The record of a collective that begins now, if operations are timed.
    #[inline]
    pub(crate) fn operation(
        &mut self,
        function: &'static str,
        comm: Handle,
        bytes: u64,
    ) -> Option<Box<Operation>> {
        if telemetry::timed() { self.timed_operation(function, comm, bytes) } else { None }
    }

    #[cold]
    fn timed_operation(
        &mut self,
        function: &'static str,
        handle: Handle,
        bytes: u64,
    ) -> Option<Box<Operation>> {
        let (objects, job) = self.parts();
        let comm = objects.comm(handle).ok()?;
        let key = (comm.context, function);
        if job.operations.len() >= COUNTED_MAX && !job.operations.contains_key(&key) {
            return None;
        }
        let calls = job.operations.entry(key).or_insert_with(|| {
            let named = if comm.name.is_empty() { handle.to_string() } else { comm.name.clone() };
            let name = format!("{function} on {named}");
            Calls { row: telemetry::operations().enter(&name), name, number: 0 }
        });
        calls.number = calls.number.wrapping_add(1);
        Some(Box::new(Operation::begin(calls.row, &calls.name, calls.number, bytes)))
    }
}

impl Guard {
    /// The record of a collective under the name of the running MPI function, if operations are timed.
    #[inline]
    pub(crate) fn begun(&mut self, told: impl FnOnce() -> (Handle, u64)) -> Option<Box<Operation>> {
        if !telemetry::timed() {
            return None;
        }
        let (function, (comm, bytes)) = (self.doing.0, told());
        self.operation(function, comm, bytes)
    }
}

/// Ends the record of a collective that its call has completed.
#[inline]
pub(crate) fn over(operation: Option<Box<Operation>>, choice: Choice) {
    if let Some(mut operation) = operation {
        operation.carry(Some(Carried { choice, ..Carried::default() }));
        operation.over();
    }
}
