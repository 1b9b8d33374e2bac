// SPDX-License-Identifier: BSD-3-Clause
//! Errors of this library. An error is a code of `outboard_dl.h` and a sentence, which the thread keeps for
//! `outboard_dl_message`.

use crate::{c, numbers};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

pub const OK: c_int = 0;
pub const ARGUMENT: c_int = 1;
pub const TIMEOUT: c_int = 2;
pub const ABORTED: c_int = 3;
pub const MPI: c_int = 4;
pub const STATE: c_int = 5;

#[derive(Debug, Clone)]
pub struct Fault {
    pub code: c_int,
    pub message: String,
}

impl Fault {
    /// Returns the message of the error. If a call for many operations (MPI_Waitsome) failed, returns only
    /// the part about the first operation that failed.
    pub fn first_failure(&self) -> String {
        let sentence = self.message.split_once(" operations: ").map_or(&*self.message, |(_, rest)| rest);
        sentence.trim_end_matches(')').into()
    }

    pub fn with(mut self, facts: Option<String>) -> Fault {
        if let Some(facts) = facts {
            self.message = format!("{} ({facts})", self.message);
        }
        self
    }
}

pub type Result<T> = std::result::Result<T, Fault>;

pub fn fail<T>(code: c_int, message: impl Into<String>) -> Result<T> {
    Err(Fault { code, message: message.into() })
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the code that a C function returns for `result`. Keeps the sentence of an error for
/// `outboard_dl_message`.
pub fn code(result: Result<()>) -> c_int {
    let Err(fault) = result else { return OK };
    LAST.with_borrow_mut(|last| *last = CString::new(fault.message).unwrap_or_default());
    fault.code
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_message() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Makes a `Result` of `code`, which the MPI function `call` has returned. The error contains MPI's text for
/// the code.
pub fn mpi(code: c_int, call: &str) -> Result<()> {
    if code == numbers::SUCCESS {
        return Ok(());
    }
    let mut text = [0u8; numbers::MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the text has the length that MPI asks for (MPI 5.0, section 9.4).
    unsafe { c::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
    let text = String::from_utf8_lossy(&text[..usize::try_from(length).unwrap_or(0).min(text.len())]);
    fail(MPI, format!("{call}: {text}"))
}

/// Calls an MPI function by its name. Returns a `Result`, whose error is a `Fault`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the crate's contract for what the caller passes; the rest are values and locals of this
        // crate that have the types and lengths of the function's description.
        $crate::fault::mpi(unsafe { $crate::c::$name($($argument),*) }, stringify!($name))
    };
}
pub(crate) use call;
