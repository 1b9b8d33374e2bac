// SPDX-License-Identifier: BSD-3-Clause
//! Timed collectives for OUTBOARD_STATS and OUTBOARD_TRACE: by function, comm, and number of the call.
//! `message.rs` has the messages.

use super::{Guard, Process};
use crate::request::Told;
use std::collections::HashMap;
use telemetry::{Carried, Choice, Operation};

/// The most pairs of function and comm that are counted.
const COUNTED_MAX: usize = 10_000;

/// The calls, by context and function.
#[derive(Default)]
pub struct Counted(HashMap<(u64, &'static str), Calls>);

/// The calls of a function on a comm.
pub struct Calls {
    pub(super) name: String,
    pub(super) row: usize,
    number: u32,
}

impl Counted {
    /// Those of a function on the comm of a context, whose name is asked once; nothing if there are too many.
    pub(super) fn calls(
        &mut self,
        context: u64,
        function: &'static str,
        comm: impl FnOnce() -> String,
    ) -> Option<&mut Calls> {
        let key = (context, function);
        if self.0.len() >= COUNTED_MAX && !self.0.contains_key(&key) {
            return None;
        }
        Some(self.0.entry(key).or_insert_with(|| {
            let name = format!("{function} on {}", comm());
            Calls { row: telemetry::operations().enter(&name), name, number: 0 }
        }))
    }
}

impl Process {
    /// The record of a collective that begins now, if operations are timed.
    #[inline]
    pub(crate) fn operation(
        &mut self,
        function: &'static str,
        told: impl FnOnce() -> Told,
    ) -> Option<Box<Operation>> {
        if telemetry::timed() { self.timed_operation(function, told()) } else { None }
    }

    #[cold]
    fn timed_operation(&mut self, function: &'static str, told: Told) -> Option<Box<Operation>> {
        let (objects, job) = self.parts();
        let comm = objects.comm(told.comm).ok()?;
        let calls = job.operations.calls(comm.context, function, || comm.name_or(told.comm))?;
        calls.number = calls.number.wrapping_add(1);
        let needs = told.needs(comm);
        Some(Box::new(Operation::begin(calls.row, &calls.name, calls.number, told.bytes, needs)))
    }
}

impl Guard {
    /// The record of a collective under the name of the running MPI function, if operations are timed.
    #[inline]
    pub(crate) fn begun(&mut self, told: impl FnOnce() -> Told) -> Option<Box<Operation>> {
        let function = self.doing.0;
        self.operation(function, told)
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
