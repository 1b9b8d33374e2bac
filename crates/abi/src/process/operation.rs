//! Collectives as OUTBOARD_STATS and OUTBOARD_TRACE tell of them: by function and comm, and by the number of the call.

use super::{Guard, Process};
use objects::Handle;
use std::collections::HashMap;
use telemetry::Operation;

/// Functions and comms that are told apart; what comes later is not told.
const COUNTED_MAX: usize = 10_000;

/// By context and function.
pub type Counted = HashMap<(u64, &'static str), Calls>;

/// The calls of a function on a comm.
pub struct Calls {
    name: String,
    row: usize,
    number: u32,
}

impl Process {
    /// A collective that this call starts, where operations are timed.
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
    /// A collective of this call's name.
    #[inline]
    pub(crate) fn begun(&mut self, comm: Handle, bytes: u64) -> Option<Box<Operation>> {
        let function = self.doing.0;
        self.operation(function, comm, bytes)
    }
}

/// It was over when its call ended.
#[inline]
pub(crate) fn over(operation: Option<Box<Operation>>) {
    if let Some(operation) = operation {
        operation.over(None);
    }
}
