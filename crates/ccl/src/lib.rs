// SPDX-License-Identifier: BSD-3-Clause
//! Collective libraries of vendors (NCCL, RCCL, oneCCL), loaded at run time, behind one table of functions.
//!
//! Purpose: a collective becomes `LibraryStep`s, which a `Communicator` carries out in a thread of its own. A
//! call of a library may block until all ranks have made it, and MPI calls must go on meanwhile. Invariants:
//! the steps of one communicator are carried out in the order in which they were started. After an error a
//! communicator carries out no more steps. Read next: `library.rs` (the table), `communicator.rs`;
//! `abi/src/collective/library.rs` makes the steps.

mod communicator;
mod library;
mod step;

pub use communicator::{Communicator, PendingResult};
use error::Result;
pub use library::{Id, Library, MemoryKind};
use std::sync::OnceLock;
pub use step::{ElementKind, ExchangePart, LibraryStep, Op};

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Loads a collective library: `nccl`, `rccl`, `mscclpp`, `oneccl`, or the name of a file. Only the first
/// call that succeeds has an effect.
///
/// Errors (MPI_ERR_OTHER): the library is missing, is no such library, or needs a device that is off.
pub fn start(name: &str) -> Result<()> {
    if LIBRARY.get().is_none() {
        let library = Library::load(name)?;
        LIBRARY.get_or_init(|| library);
    }
    Ok(())
}

/// Returns the collective library that this process has loaded, or None if it has loaded none.
pub fn get() -> Option<&'static Library> {
    LIBRARY.get()
}
