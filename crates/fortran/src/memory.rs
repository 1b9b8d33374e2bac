//! The variables whose addresses mean something, such as MPI_BOTTOM, and what C has instead.
//!
//! Each is a common block of its own in `mpif.h` and in the modules (`xtask`, `fortran/constants.rs`). A
//! program may hold the block itself; then the loader makes this library's name mean the program's.

use crate::c::{self, STATUS_INTS};
use std::ffi::{c_int, c_void};

macro_rules! blocks {
    ($($name:ident: $ints:expr;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)] // As Fortran compilers write the name of a common block.
        pub static mut $name: [i32; $ints] = [0; $ints];
    )* };
}

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

fn is<T, U>(address: *const T, block: *const U) -> bool {
    address.addr() == block.addr()
}

/// A choice buffer, or the constant of C for a special one.
#[inline]
pub fn buffer(address: *mut c_void) -> *mut c_void {
    if is(address, &raw const mpifort_in_place_) {
        std::ptr::without_provenance_mut(c::IN_PLACE as usize)
    } else if is(address, &raw const mpifort_bottom_) {
        std::ptr::without_provenance_mut(c::BOTTOM as usize)
    } else if is(address, &raw const mpifort_buffer_automatic_) {
        std::ptr::without_provenance_mut(c::BUFFER_AUTOMATIC as usize)
    } else {
        address
    }
}

/// Whether the address is one of those that `buffer` replaces.
pub fn is_special(address: *mut c_void) -> bool {
    buffer(address) != address
}

/// A status or statuses.
#[inline]
pub fn status(address: *mut i32) -> *mut c_int {
    if is(address, &raw const mpifort_status_ignore_) || is(address, &raw const mpifort_statuses_ignore_) {
        std::ptr::without_provenance_mut(c::STATUS_IGNORE as usize)
    } else {
        address
    }
}

/// Weights or error codes.
pub fn ignorable(address: *mut i32) -> *mut c_int {
    let constant = if is(address, &raw const mpifort_unweighted_) {
        c::UNWEIGHTED
    } else if is(address, &raw const mpifort_weights_empty_) {
        c::WEIGHTS_EMPTY
    } else if is(address, &raw const mpifort_errcodes_ignore_) {
        c::ERRCODES_IGNORE
    } else {
        return address;
    };
    std::ptr::without_provenance_mut(constant as usize)
}

/// Whether texts are MPI_ARGV_NULL or MPI_ARGVS_NULL.
pub fn is_argv_null(address: *const u8) -> bool {
    is(address, &raw const mpifort_argv_null_) || is(address, &raw const mpifort_argvs_null_)
}
