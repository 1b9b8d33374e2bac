// SPDX-License-Identifier: BSD-3-Clause
//! Converts LOGICALs between Fortran and C. GNU and LLVM Fortran store 1 for .TRUE.; other compilers test the
//! lowest bit or all bits, so to them, too, 1 is true.

use std::ffi::c_int;

/// Converts a LOGICAL of Fortran to a flag of C, which is 0 or 1.
pub fn to_c(logical: i32) -> c_int {
    c_int::from(logical != 0)
}

/// Converts a flag of C to a LOGICAL of Fortran.
pub fn from_c(flag: c_int) -> i32 {
    i32::from(flag != 0)
}

/// A copy of a Fortran program's array of LOGICALs, converted to flags of C.
pub struct Logicals(Vec<c_int>);

impl Logicals {
    /// Makes a copy of `length` LOGICALs at `from`.
    ///
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
    /// Stores the flags, which a C function may have changed, as LOGICALs at `to`.
    ///
    /// # Safety
    /// `to` has room for as many LOGICALs as `new` copied.
    pub unsafe fn store(&self, to: *mut i32) {
        // SAFETY: the caller's promise.
        let logicals = unsafe { std::slice::from_raw_parts_mut(to, self.0.len()) };
        for (logical, flag) in logicals.iter_mut().zip(&self.0) {
            *logical = from_c(*flag);
        }
    }
}
