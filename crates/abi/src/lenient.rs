// SPDX-License-Identifier: BSD-3-Clause
//! Arguments that the standard forbids or does not define, but that MPICH, Open MPI, Intel MPI and Outboard
//! all accept. With OUTBOARD_CHECK=1 Outboard warns once of each kind. docs/debugging.md lists the kinds.

use std::sync::atomic::{AtomicU32, Ordering};

/// A kind of argument that Outboard accepts although the standard does not.
#[derive(Clone, Copy)]
pub(crate) enum Accepted {
    /// The use of a predefined operator, such as MPI_SUM, on characters.
    Characters,
    /// MPI_DATATYPE_NULL as the datatype where no element is moved.
    NullDatatype,
    /// Bits in the access mode (amode) of MPI_File_open that the standard does not define.
    AccessMode,
    /// A number that is not an error code, where the program calls an error handler by
    /// MPI_Comm_call_errhandler or the like.
    ErrorCode,
}

/// A bit for each kind of argument of which this process has warned.
static WARNED: AtomicU32 = AtomicU32::new(0);

/// Prints a warning that an argument of the kind `what` is accepted. Does so once for each kind, and only
/// with OUTBOARD_CHECK=1.
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
