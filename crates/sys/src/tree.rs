// SPDX-License-Identifier: BSD-3-Clause
//! Finds the folder of the installation (with `bin`, `lib`, ...). It may have been moved, so no path is
//! compiled into the programs.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// Returns the folder of the installation, which is the parent of the folder (`lib` or `bin`) that contains
/// this code. Empty if it is unknown.
pub fn folder() -> PathBuf {
    let file = library().or_else(|| std::env::current_exe().ok()).unwrap_or_default();
    let file = std::fs::canonicalize(file).unwrap_or_default();
    file.parent().and_then(Path::parent).unwrap_or(Path::new("")).to_owned()
}

/// Returns the path of the shared library that contains this code. None if this code is part of a program.
fn library() -> Option<PathBuf> {
    let mut facts = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = library as fn() -> Option<PathBuf> as *const ();
    // SAFETY: the address is of this code; the call writes only into `facts`.
    let known = unsafe { libc::dladdr(here.cast(), facts.as_mut_ptr()) } != 0;
    // SAFETY: zeroed, and the call may have written it; null is a valid value of a raw pointer.
    let facts = unsafe { facts.assume_init() };
    if !known || facts.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader, which stays as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(facts.dli_fname) }.to_string_lossy();
    // For a program this is the name by which it was called, which need not be its path.
    name.contains(".so").then(|| PathBuf::from(name.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_knows_its_tree() {
        assert_eq!(library(), None, "a test is no library");
        let own = std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        assert!(own.starts_with(folder()) && folder().is_absolute());
    }
}
