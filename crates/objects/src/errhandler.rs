// SPDX-License-Identifier: BSD-3-Clause
//! Error handlers as data (MPI 5.0, section 9.3). The `abi` crate calls them.

use crate::constants;
use crate::handle::{Handle, HandleKind};
use crate::table::HandleTable;
use error::{Class, Result, fail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorAction {
    /// MPI_ERRORS_ARE_FATAL: prints the error and ends the job.
    Fatal,
    /// MPI_ERRORS_ABORT: prints the error and ends the job, as `Fatal` does.
    Abort,
    /// MPI_ERRORS_RETURN: the MPI call returns the error's class or code.
    Return,
    /// Calls the program's function at this address.
    Call(usize),
}

/// An error handler, and how many handles and objects refer to it. It outlives MPI_Errhandler_free while an
/// object uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errhandler {
    /// The kind of objects that the error handler serves. None for a predefined error handler, which serves
    /// all kinds.
    pub on: Option<HandleKind>,
    pub action: ErrorAction,
    references: u32,
}

impl Errhandler {
    /// Makes an error handler for objects of the kind `on`, with one reference.
    pub fn new(on: Option<HandleKind>, action: ErrorAction) -> Errhandler {
        Errhandler { on, action, references: 1 }
    }
}

/// Makes the table of error handlers, with the predefined error handlers only.
pub(crate) fn table() -> HandleTable<Errhandler> {
    let mut table = HandleTable::new(HandleKind::Errhandler);
    table.predefine(constants::ERRORS_ARE_FATAL, Errhandler::new(None, ErrorAction::Fatal));
    table.predefine(constants::ERRORS_ABORT, Errhandler::new(None, ErrorAction::Abort));
    table.predefine(constants::ERRORS_RETURN, Errhandler::new(None, ErrorAction::Return));
    table
}

/// Adds one to the reference count of an error handler, for an object of the kind `on`. Fails if the error
/// handler was made for another kind.
pub fn retain(table: &mut HandleTable<Errhandler>, handle: Handle, on: HandleKind) -> Result<()> {
    let predefined = table.is_predefined(handle);
    let errhandler = table.get_mut(handle)?;
    if let Some(kind) = errhandler.on.filter(|kind| *kind != on) {
        fail!(Class::Errhandler, "{handle} was made for {}, not for {}", kind.noun(), on.noun());
    }
    if !predefined {
        errhandler.references += 1;
    }
    Ok(())
}

/// Subtracts one from the reference count of an error handler, and removes the error handler if the count is
/// then 0. Predefined error handlers stay.
pub fn release(table: &mut HandleTable<Errhandler>, handle: Handle) -> Result<()> {
    let predefined = table.is_predefined(handle);
    let errhandler = table.get_mut(handle)?;
    if !predefined {
        errhandler.references -= 1;
        if errhandler.references == 0 {
            table.remove(handle)?;
        }
    }
    Ok(())
}
