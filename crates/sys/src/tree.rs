// SPDX-License-Identifier: BSD-3-Clause
//! Where the installed tree lies (`bin`, `lib`, ...): it may have been moved, so no path is compiled in.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The folder above the `lib` or `bin` that has this code; empty if that is not known.
pub fn folder() -> PathBuf {
    let file = library().or_else(|| std::env::current_exe().ok()).unwrap_or_default();
    let file = std::fs::canonicalize(file).unwrap_or_default();
    file.parent().and_then(Path::parent).unwrap_or(Path::new("")).to_owned()
}

/// The file of the shared library that has this code; nothing if that is a program.
fn library() -> Option<PathBuf> {
    let mut facts = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = library as fn() -> Option<PathBuf> as *const ();
    // SAFETY: the address is of this code; the record has room for what is known of it.
    let known = unsafe { libc::dladdr(here.cast(), facts.as_mut_ptr()) } != 0;
    // SAFETY: zeroed, and written if anything is known; null is no invalid pointer.
    let facts = unsafe { facts.assume_init() };
    if !known || facts.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which stays as long as the library.
    let name = unsafe { CStr::from_ptr(facts.dli_fname) }.to_string_lossy();
    // A program has the name by which it was called, which may be of a folder in PATH.
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
