// SPDX-License-Identifier: BSD-3-Clause
//! LOGICAL. GNU and LLVM Fortran store 1 for .TRUE.; others test the lowest bit or all bits, for which 1 is
//! right, too.

use std::ffi::c_int;

/// Converts a LOGICAL to C's flag, 0 or 1.
pub fn to_c(logical: i32) -> c_int {
    c_int::from(logical != 0)
}

/// Converts a flag of C to a LOGICAL.
pub fn from_c(flag: c_int) -> i32 {
    i32::from(flag != 0)
}

/// An array of LOGICALs, as flags of C.
pub struct Logicals(Vec<c_int>);

impl Logicals {
    /// # Safety
    /// `from` holds `length` LOGICALs.
    pub unsafe fn new(from: *const i32, length: i64) -> Logicals {
        // SAFETY: the caller's promise.
        let logicals = unsafe { std::slice::from_raw_parts(from, length.max(0) as usize) };
        Logicals(logicals.iter().map(|logical| to_c(*logical)).collect())
    }
    pub fn as_mut_ptr(&mut self) -> *mut c_int {
        self.0.as_mut_ptr()
    }
    /// # Safety
    /// `to` has room for as many LOGICALs.
    pub unsafe fn store(&self, to: *mut i32) {
        // SAFETY: the caller's promise.
        let logicals = unsafe { std::slice::from_raw_parts_mut(to, self.0.len()) };
        for (logical, flag) in logicals.iter_mut().zip(&self.0) {
            *logical = from_c(*flag);
        }
    }
}
