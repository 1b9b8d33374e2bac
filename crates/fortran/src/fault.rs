// SPDX-License-Identifier: BSD-3-Clause
//! Errors that the Fortran bindings find before they call MPI's C functions. An error goes to the error
//! handler of the object that the call names, with an error code whose text is the error's sentence.

use crate::c;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, PoisonError};

/// An error class of MPI, and a sentence that says what is wrong.
#[derive(Debug)]
pub struct Error {
    pub class: i32,
    pub sentence: String,
}

/// The object whose error handler gets an error, with its handle in Fortran. `Nothing` stands for
/// MPI_COMM_SELF.
pub enum ErrorTarget {
    Comm(i32),
    Win(i32),
    File(i32),
    Session(i32),
    Nothing,
}

/// The error codes that the bindings have made, by their sentences. A repeated mistake gets the same code.
static CODES: LazyLock<Mutex<HashMap<String, i32>>> = LazyLock::new(Mutex::default);

impl Error {
    /// Calls the error handler of `on` with an error code whose text begins with `function`. Returns this
    /// code, for `ierror`.
    pub fn raise(self, function: &str, on: ErrorTarget) -> i32 {
        let sentence = format!("{function}: {}", self.sentence);
        let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
        let code = *codes.entry(sentence).or_insert_with_key(|sentence| code(self.class, sentence));
        drop(codes);
        invoke(on, code);
        code
    }
}

/// Makes a new error code in the class `class`, with the text `sentence`. Returns the class itself if that
/// fails.
fn code(class: i32, sentence: &str) -> i32 {
    let mut code = class;
    let text = CString::new(sentence).unwrap_or_default();
    // SAFETY: the address of a local.
    if unsafe { c::PMPI_Add_error_code(class, &mut code) } != c::SUCCESS {
        return class;
    }
    // SAFETY: a text that ends with NUL.
    unsafe { c::PMPI_Add_error_string(code, text.as_ptr()) };
    code
}

/// Calls the error handler of the object with the Fortran handle `$number` by the C function `$call`.
macro_rules! call {
    ($fromint:ident $call:ident $number:expr, $code:expr) => {{
        // SAFETY: C takes every number.
        let handle = unsafe { c::$fromint($number) };
        // SAFETY: C checks the handle.
        unsafe { c::$call(handle, $code) };
    }};
}

fn invoke(on: ErrorTarget, code: i32) {
    match on {
        ErrorTarget::Comm(number) => call!(MPI_Comm_fromint PMPI_Comm_call_errhandler number, code),
        ErrorTarget::Win(number) => call!(MPI_Win_fromint PMPI_Win_call_errhandler number, code),
        ErrorTarget::File(number) => call!(MPI_File_fromint PMPI_File_call_errhandler number, code),
        ErrorTarget::Session(number) => call!(MPI_Session_fromint PMPI_Session_call_errhandler number, code),
        ErrorTarget::Nothing => call!(MPI_Comm_fromint PMPI_Comm_call_errhandler c::COMM_SELF, code),
    }
}

/// Ends a procedure: stores `code` in `ierror`, which a program may leave out in `mpi_f08`.
#[inline]
pub fn end(ierror: *mut i32, code: i32) {
    if !ierror.is_null() {
        // SAFETY: Fortran's argument (contract of the crate).
        unsafe { ierror.write(code) };
    }
}
