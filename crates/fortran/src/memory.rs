// SPDX-License-Identifier: BSD-3-Clause
//! Fortran variables whose addresses have a special meaning, such as MPI_BOTTOM, and C's constants for them.
//!
//! Each variable is a common block of its own in `mpif.h` and in the modules (`xtask`,
//! `fortran/constants.rs`). If a program contains the block itself, the loader makes the name in this library
//! refer to the program's block.

use crate::c::{self, STATUS_INTS};
use std::ffi::{CStr, c_char, c_int, c_void};

macro_rules! blocks {
    ($($name:ident: $ints:expr;)*) => { blocks!(i32: $($name: $ints;)*); };
    ($unit:ty: $($name:ident: $units:expr;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)] // As Fortran compilers write the name of a common block.
        pub static mut $name: [$unit; $units] = [0; $units];
    )* };
}

#[cfg(not(mpich))]
blocks! {
    mpifort_bottom_: 1;
    mpifort_in_place_: 1;
    mpifort_buffer_automatic_: 1;
    mpifort_status_ignore_: STATUS_INTS;
    mpifort_statuses_ignore_: STATUS_INTS;
    mpifort_errcodes_ignore_: 1;
    mpifort_unweighted_: 1;
    mpifort_weights_empty_: 1;
    mpifort_argv_null_: 1;
    mpifort_argvs_null_: 1;
}

// MPICH has blocks of several variables, and variables of its own for mpi_f08.
#[cfg(mpich)]
blocks! {
    mpipriv1_: 2 + STATUS_INTS;
    mpipriv2_: STATUS_INTS + 1;
    mpiprivc_: 1;
    mpifcmb5_: 1;
    mpifcmb9_: 1;
    MPIR_F08_MPI_BOTTOM: 1;
    MPIR_F08_MPI_IN_PLACE: 1;
    MPIR_F08_MPI_STATUS_IGNORE_OBJ: STATUS_INTS;
    MPIR_F08_MPI_STATUSES_IGNORE_OBJ: STATUS_INTS;
    __mpi_f08_link_constants_MOD_mpi_errcodes_ignore: 1;
    __mpi_f08_link_constants_MOD_mpi_unweighted: 1;
    __mpi_f08_link_constants_MOD_mpi_weights_empty: 1;
}

// These are as long as MPICH's: the loader copies a variable into a program that was compiled for it.
#[cfg(mpich)]
blocks! {
    u8:
    __mpi_f08_link_constants_MOD_mpi_argv_null: 1;
    __mpi_f08_link_constants_MOD_mpi_argvs_null: 1;
}

/// Defines functions that say whether an address has a special meaning, such as MPI_BOTTOM. Each row makes
/// one function, and lists the variables whose addresses have the meaning; `+ n` means int number n of a
/// common block.
macro_rules! meaning {
    ($($(#[$doc:meta])* $name:ident: $($block:ident $(+ $ints:expr)?),*;)*) => { $(
        $(#[$doc])*
        fn $name(address: usize) -> bool {
            [$((&raw const $block).addr() $(+ 4 * $ints)?),*].contains(&address)
        }
    )* };
}

#[cfg(not(mpich))]
meaning! {
    is_bottom: mpifort_bottom_;
    is_in_place: mpifort_in_place_;
    is_automatic: mpifort_buffer_automatic_;
    is_ignored_status: mpifort_status_ignore_, mpifort_statuses_ignore_;
    are_ignored_codes: mpifort_errcodes_ignore_;
    is_unweighted: mpifort_unweighted_;
    are_no_weights: mpifort_weights_empty_;
    is_no_argument: mpifort_argv_null_, mpifort_argvs_null_;
}

#[cfg(mpich)]
meaning! {
    is_bottom: mpipriv1_, MPIR_F08_MPI_BOTTOM;
    is_in_place: mpipriv1_ + 1, MPIR_F08_MPI_IN_PLACE;
    is_automatic: ;
    is_ignored_status: mpipriv1_ + 2, mpipriv2_,
        MPIR_F08_MPI_STATUS_IGNORE_OBJ, MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
    are_ignored_codes: mpipriv2_ + STATUS_INTS, __mpi_f08_link_constants_MOD_mpi_errcodes_ignore;
    is_unweighted: mpifcmb5_, __mpi_f08_link_constants_MOD_mpi_unweighted;
    are_no_weights: mpifcmb9_, __mpi_f08_link_constants_MOD_mpi_weights_empty;
    is_no_argument: mpiprivc_, __mpi_f08_link_constants_MOD_mpi_argv_null,
        __mpi_f08_link_constants_MOD_mpi_argvs_null;
}

/// Returns the names of C's variables that must hold the addresses of Fortran's MPI_STATUS_IGNORE and
/// MPI_STATUSES_IGNORE (MPI 5.0, section 19.3.5), each with the address.
fn ignored_statuses() -> [(&'static CStr, usize); 4] {
    #[cfg(not(mpich))]
    let [status, statuses] =
        [(&raw const mpifort_status_ignore_).addr(), (&raw const mpifort_statuses_ignore_).addr()];
    #[cfg(not(mpich))]
    let [status_08, statuses_08] = [status, statuses];
    #[cfg(mpich)]
    let [status, statuses, status_08, statuses_08] = [
        (&raw const mpipriv1_).addr() + 2 * 4,
        (&raw const mpipriv2_).addr(),
        (&raw const MPIR_F08_MPI_STATUS_IGNORE_OBJ).addr(),
        (&raw const MPIR_F08_MPI_STATUSES_IGNORE_OBJ).addr(),
    ];
    [
        (c"MPI_F_STATUS_IGNORE", status),
        (c"MPI_F_STATUSES_IGNORE", statuses),
        (c"MPI_F08_STATUS_IGNORE", status_08),
        (c"MPI_F08_STATUSES_IGNORE", statuses_08),
    ]
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Looks up a name in all libraries of the program. Returns the name's address, or null if no library has it.
pub fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the null handle searches all libraries of the program.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

/// Sets C's variables that `ignored_statuses` lists. Called when this library is loaded. MPI libraries other
/// than Outboard's may lack these variables.
extern "C" fn set_ignored_statuses() {
    for (name, address) in ignored_statuses() {
        let variable = symbol(name).cast::<usize>();
        if !variable.is_null() {
            // SAFETY: mpi.h declares it as a pointer; no other thread runs yet, or none of it uses Fortran.
            unsafe { variable.write(address) };
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = set_ignored_statuses;

/// Converts the address of a Fortran buffer for C: returns the address, or C's constant if it is MPI_BOTTOM,
/// MPI_IN_PLACE or MPI_BUFFER_AUTOMATIC.
#[inline]
pub fn buffer(address: *mut c_void) -> *mut c_void {
    if is_in_place(address.addr()) {
        std::ptr::without_provenance_mut(c::IN_PLACE as usize)
    } else if is_bottom(address.addr()) {
        std::ptr::without_provenance_mut(c::BOTTOM as usize)
    } else if is_automatic(address.addr()) {
        std::ptr::without_provenance_mut(c::BUFFER_AUTOMATIC as usize)
    } else {
        address
    }
}

/// Whether the address is that of MPI_BOTTOM, MPI_IN_PLACE or MPI_BUFFER_AUTOMATIC.
pub fn is_special(address: *mut c_void) -> bool {
    buffer(address) != address
}

/// Converts the address of a status, or of an array of statuses, for C: returns the address, or C's constant
/// if it is MPI_STATUS_IGNORE or MPI_STATUSES_IGNORE.
#[inline]
pub fn status(address: *mut i32) -> *mut c_int {
    if is_ignored_status(address.addr()) {
        std::ptr::without_provenance_mut(c::STATUS_IGNORE as usize)
    } else {
        address
    }
}

/// The value of C's constant MPI_UNWEIGHTED, both in the standard ABI and in libmpi.so.12.
const UNWEIGHTED: isize = 10;
/// The value of C's constant MPI_WEIGHTS_EMPTY, both in the standard ABI and in libmpi.so.12.
const WEIGHTS_EMPTY: isize = 11;

/// Converts the address of weights or error codes for C: returns the address, or C's constant if it is
/// MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY or MPI_ERRCODES_IGNORE.
pub fn ignorable(address: *mut i32) -> *mut c_int {
    let constant = if is_unweighted(address.addr()) {
        UNWEIGHTED
    } else if are_no_weights(address.addr()) {
        WEIGHTS_EMPTY
    } else if are_ignored_codes(address.addr()) {
        c::ERRCODES_IGNORE
    } else {
        return address;
    };
    std::ptr::without_provenance_mut(constant as usize)
}

/// Whether the address of an array of texts is that of MPI_ARGV_NULL or MPI_ARGVS_NULL.
pub fn is_argv_null(address: *const u8) -> bool {
    is_no_argument(address.addr())
}
