// SPDX-License-Identifier: BSD-3-Clause
//! Finds and calls the functions of the MPI library that comes after this library in the program.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the address of the MPI library's function `name`, or 0 if the library has no such function.
/// `found` keeps the address for further calls.
pub fn real(name: &CStr, found: &AtomicUsize) -> usize {
    match found.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the name is a C string; the call only looks it up in the libraries behind this one.
            let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            found.store(address, Ordering::Relaxed);
            address
        }
        address => address,
    }
}

/// The code that a call returns if the MPI library lacks the function. MPI_ERR_INTERN differs between the
/// ABIs, but a linked program never calls a function that is missing.
pub const NOT_THERE: c_int = 16;

/// Calls the MPI library's function `PMPI_...` with the arguments that the program has passed, as words.
macro_rules! pass {
    ($name:literal, ($($word:ident),*)) => {{
        static FOUND: AtomicUsize = AtomicUsize::new(0);
        match real($name, &FOUND) {
            0 => NOT_THERE,
            address => {
                // SAFETY: the library's function of this name takes these words, by both ABIs.
                let call: unsafe extern "C" fn($(pass!(@ $word)),*) -> c_int = unsafe { std::mem::transmute(address) };
                // SAFETY: the arguments are the program's own.
                unsafe { call($($word),*) }
            }
        }
    }};
    (@ $word:ident) => { usize };
}
pub(crate) use pass;
