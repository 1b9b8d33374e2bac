// SPDX-License-Identifier: BSD-3-Clause
//! Converts values of attributes between C and Fortran (MPI 5.0, section 19.3.7).
//!
//! A value is a pointer in C, and an integer in Fortran. If Fortran has stored an integer, C gets a pointer
//! to this integer. If C has stored a pointer, Fortran gets the address as an integer. A predefined attribute
//! is a pointer to its value in C, and the value in Fortran.

use crate::c;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The integers that Fortran has stored as attributes. C gets the address of the map's boxed copy of an
/// integer, so equal integers have one address.
static STORED: LazyLock<Mutex<HashMap<i64, Box<i64>>>> = LazyLock::new(Mutex::default);

/// Returns the pointer that C gets for the integer `value`, which Fortran stores as an attribute.
pub fn store(value: i64) -> *mut c_void {
    let mut stored = STORED.lock().unwrap_or_else(PoisonError::into_inner);
    let place = stored.entry(value).or_insert_with(|| Box::new(value));
    (&raw mut **place).cast()
}

/// Returns the integer that Fortran gets for an attribute with the value `pointer` in C.
pub fn load(keyval: c_int, pointer: *mut c_void) -> i64 {
    if POINT_TO_INT.contains(&keyval) {
        // SAFETY: these attributes are pointers to int (MPI 5.0, sections 9.1.2 and 12.2.6).
        return unsafe { pointer.cast::<c_int>().read() }.into();
    }
    if keyval == c::WIN_SIZE {
        // SAFETY: this attribute is a pointer to MPI_Aint.
        return unsafe { pointer.cast::<i64>().read() };
    }
    unpack(pointer)
}

/// Returns the integer that Fortran gets for an attribute that is not predefined: the integer that Fortran
/// has stored, or the address that C has stored.
pub fn unpack(pointer: *mut c_void) -> i64 {
    let stored = STORED.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = stored.values().find(|place| std::ptr::eq(&raw const ***place, pointer.cast()));
    ours.map_or(pointer.addr() as i64, |place| **place)
}

/// Converts a keyval of Fortran to C's. In MPICH, a predefined attribute's keyval in Fortran is C's plus 1.
pub fn key(keyval: c_int) -> c_int {
    const PREDEFINED: [c_int; 2] = [0x6440_0000, 0x6600_0000];
    let is_fortran = cfg!(mpich) && PREDEFINED.contains(&(keyval & !0xff)) && keyval & 1 == 0;
    if is_fortran { keyval - 1 } else { keyval }
}

const POINT_TO_INT: [c_int; 10] = [
    c::TAG_UB,
    c::IO,
    c::HOST,
    c::WTIME_IS_GLOBAL,
    c::APPNUM,
    c::LASTUSEDCODE,
    c::UNIVERSE_SIZE,
    c::WIN_DISP_UNIT,
    c::WIN_CREATE_FLAVOR,
    c::WIN_MODEL,
];
