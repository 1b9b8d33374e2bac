// SPDX-License-Identifier: BSD-3-Clause
//! Arguments that the standard forbids or leaves open, and that MPICH, Open MPI, Intel MPI and Outboard all
//! accept. OUTBOARD_CHECK=1 warns once of each kind; docs/debugging.md lists them.

use std::sync::atomic::{AtomicU32, Ordering};

/// A kind of argument that is accepted.
#[derive(Clone, Copy)]
pub(crate) enum Accepted {
    /// A predefined operator that is applied to characters.
    Characters,
    /// MPI_DATATYPE_NULL where no element is moved.
    NullDatatype,
    /// Bits that are not those of an access mode (amode) of MPI_File_open.
    AccessMode,
    /// A number that is not an error code, passed to a function that calls an error handler.
    ErrorCode,
}

/// The kinds of arguments of which the user has been warned, one bit each.
static WARNED: AtomicU32 = AtomicU32::new(0);

/// Warns once, with OUTBOARD_CHECK=1, that the kind of argument `what` is accepted.
#[cold]
pub(crate) fn accept(what: Accepted) {
    let settings = settings::get();
    if settings.check == 0 || WARNED.fetch_or(1 << what as u32, Ordering::Relaxed) & 1 << what as u32 != 0 {
        return;
    }
    let sentence = match what {
        Accepted::Characters => {
            "an operator is applied to characters, as to the integers that they are in C; to the standard they are text (MPI 5.0, \
             section 6.9.2): MPI_SIGNED_CHAR and MPI_UNSIGNED_CHAR are its integers"
        }
        Accepted::NullDatatype => {
            "MPI_DATATYPE_NULL is given where no element is moved; the standard wants a datatype there, too, such as MPI_BYTE"
        }
        Accepted::AccessMode => {
            "an amode of MPI_File_open has bits that are no access mode; they are ignored"
        }
        Accepted::ErrorCode => {
            "an error handler is called for a number that is no error code of MPI's or of the program's"
        }
    };
    let rank = settings.rank.unwrap_or(0);
    eprintln!("outboard: rank {rank}: {sentence}. Said once.");
}
