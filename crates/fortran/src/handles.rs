// SPDX-License-Identifier: BSD-3-Clause
//! Converts arrays of handles. Handles are INTEGERs in Fortran, and pointers or ints in C.

use std::ffi::c_int;

/// The length of the longest array of handles that is copied without an allocation.
const INLINE: usize = 32;

/// A copy of a Fortran program's array of handles, converted to C's handles.
pub struct Handles<T> {
    short: [T; INLINE],
    long: Vec<T>,
    length: usize,
}

impl<T: Copy + Default> Handles<T> {
    /// Makes a copy of `length` handles at `from`, each converted by `convert`.
    ///
    /// # Safety
    /// `from` holds `length` handles.
    pub unsafe fn new(
        from: *const i32,
        length: i64,
        convert: unsafe extern "C" fn(c_int) -> T,
    ) -> Handles<T> {
        let length = length.max(0) as usize;
        let mut handles = Handles { short: [T::default(); INLINE], long: Vec::new(), length };
        if length > INLINE {
            handles.long = vec![T::default(); length];
        }
        // SAFETY: the caller's promise.
        let numbers = unsafe { std::slice::from_raw_parts(from, length) };
        for (place, number) in handles.all().iter_mut().zip(numbers) {
            // SAFETY: a conversion takes every number.
            *place = unsafe { convert(*number) };
        }
        handles
    }
    fn all(&mut self) -> &mut [T] {
        if self.length > INLINE { &mut self.long } else { &mut self.short[..self.length] }
    }
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.all().as_mut_ptr()
    }
    /// Stores the handles, which a C function may have changed, in the Fortran program's array at `to`.
    ///
    /// # Safety
    /// `to` has room for as many handles as `new` copied.
    pub unsafe fn store(&mut self, to: *mut i32, convert: unsafe extern "C" fn(T) -> c_int) {
        // SAFETY: the caller's promise.
        let numbers = unsafe { std::slice::from_raw_parts_mut(to, self.length) };
        for (number, handle) in numbers.iter_mut().zip(self.all()) {
            // SAFETY: a conversion takes every handle that C has given or kept.
            *number = unsafe { convert(*handle) };
        }
    }
}

/// Adds 1 to each index, because Fortran's arrays begin at 1. `length` may be MPI_UNDEFINED, which is
/// negative.
///
/// # Safety
/// `indices` holds `length` indices.
pub unsafe fn count_from_one(indices: *mut i32, length: i32) {
    // SAFETY: the caller's promise.
    let indices = unsafe { std::slice::from_raw_parts_mut(indices, length.max(0) as usize) };
    indices.iter_mut().for_each(|index| *index += 1);
}
