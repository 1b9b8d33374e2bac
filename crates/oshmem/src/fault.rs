// SPDX-License-Identifier: BSD-3-Clause
//! Errors end the job, since most functions of OpenSHMEM cannot return an error (section on error handling).

use crate::c::{MPI_Abort, MPI_Error_string};
use crate::{numbers as n, process};
use std::ffi::{CStr, c_char, c_int};

/// Calls a function of MPI, and ends the job if it fails.
macro_rules! mpi {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments are those that MPI's binding asks for.
        let code = unsafe { crate::c::$name($($argument),*) };
        crate::fault::check(code, stringify!($name))
    }};
}
pub(crate) use mpi;

pub fn check(code: c_int, function: &str) {
    if code != n::SUCCESS {
        fail(&format!("{function}: {}", text(code)));
    }
}

fn text(code: c_int) -> String {
    let mut text = [0 as c_char; 4096];
    let mut length = 0;
    // SAFETY: the buffer is longer than MPI_MAX_ERROR_STRING.
    unsafe { MPI_Error_string(code, text.as_mut_ptr(), &raw mut length) };
    // SAFETY: MPI has written a string that ends with a zero, or nothing.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

/// Prints `message`, with the number of this PE, and ends the job.
pub fn fail(message: &str) -> ! {
    match process::try_get() {
        Some(process) => {
            eprintln!("oshmem: PE {} of {}: {message}", process.me, process.n);
            // SAFETY: the communicator is this library's.
            unsafe { MPI_Abort(process.comm, 1) };
            std::process::exit(1)
        }
        None => {
            eprintln!("oshmem: {message}");
            std::process::exit(1)
        }
    }
}
