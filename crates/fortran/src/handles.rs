// SPDX-License-Identifier: BSD-3-Clause
//! Arrays of handles. Fortran's handles are INTEGERs, those of the C binding pointers.

use std::ffi::c_int;

/// The length of the longest array of handles that is copied without memory from the heap.
const INLINE: usize = 32;

/// A copy of a program's array of handles, in C's form.
pub struct Handles<T> {
    short: [T; INLINE],
    long: Vec<T>,
    length: usize,
}

impl<T: Copy + Default> Handles<T> {
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
    /// # Safety
    /// `to` has room for as many handles.
    pub unsafe fn store(&mut self, to: *mut i32, convert: unsafe extern "C" fn(T) -> c_int) {
        // SAFETY: the caller's promise.
        let numbers = unsafe { std::slice::from_raw_parts_mut(to, self.length) };
        for (number, handle) in numbers.iter_mut().zip(self.all()) {
            // SAFETY: a conversion takes every handle that C has given or kept.
            *number = unsafe { convert(*handle) };
        }
    }
}

/// Makes indices count from 1, as Fortran's arrays do. `length` may be MPI_UNDEFINED.
///
/// # Safety
/// `indices` holds `length` of them.
pub unsafe fn count_from_one(indices: *mut i32, length: i32) {
    // SAFETY: the caller's promise.
    let indices = unsafe { std::slice::from_raw_parts_mut(indices, length.max(0) as usize) };
    indices.iter_mut().for_each(|index| *index += 1);
}
