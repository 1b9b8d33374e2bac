// SPDX-License-Identifier: BSD-3-Clause
//! Converts texts. A CHARACTER of Fortran has a length, and blanks at its end; a text of C ends with a NUL.

use crate::memory;
use crate::section::Descriptor;
use std::ffi::{CString, c_char};

/// The length in bytes of the longest text that a C function stores, MPI_MAX_LIBRARY_VERSION_STRING.
const LONGEST: usize = 8192;

/// Converts a CHARACTER to a text of C. Leaves out the blanks at its end and, if `trimmed`, at its start (MPI
/// 5.0, section 10). A NUL ends the text, too: some programs append one by habit.
///
/// # Safety
/// `from` holds `length` bytes.
pub unsafe fn to_c(from: *const u8, length: usize, trimmed: bool) -> CString {
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(from, length) };
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let kept = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    let first = if trimmed { bytes[..kept].iter().position(|byte| *byte != b' ').unwrap_or(0) } else { 0 };
    CString::new(&bytes[first..kept]).unwrap_or_default()
}

/// Converts a CHARACTER that comes with a descriptor to a text of C. If `trimmed`, leaves out the blanks at
/// its start, too.
///
/// # Safety
/// The descriptor describes a CHARACTER.
pub unsafe fn described(text: *const Descriptor, trimmed: bool) -> CString {
    // SAFETY: the caller's promise.
    let text = unsafe { &*text };
    // SAFETY: as above.
    unsafe { to_c(text.address.cast(), text.element_bytes, trimmed) }
}

/// A buffer in which a C function stores a text. The text is then copied to a CHARACTER.
pub struct Out(Vec<u8>);

/// The first byte of a buffer before the call. No text begins with it, so it shows that C has stored none.
const UNTOUCHED: u8 = 0xff;

impl Out {
    pub fn new() -> Out {
        let mut room = vec![0; LONGEST + 1];
        room[0] = UNTOUCHED;
        Out(room)
    }
    pub fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }
    /// Copies the text to the program's CHARACTER at `to`, and fills the rest with blanks. Does nothing if
    /// the call failed, or stored no text.
    ///
    /// # Safety
    /// `to` has room for `length` bytes.
    pub unsafe fn store(&self, to: *mut u8, length: usize, code: i32) {
        if code != 0 || self.0[0] == UNTOUCHED {
            return;
        }
        // SAFETY: the caller's promise; the bytes are plain.
        let room = unsafe { std::slice::from_raw_parts_mut(to, length) };
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let kept = text.len().min(length);
        room[..kept].copy_from_slice(&text[..kept]);
        room[kept..].fill(b' ');
    }
}

/// Returns the length to pass to C for a CHARACTER of `length` bytes, with one byte more for the NUL. A
/// length of 0, which asks only for the text's length, stays 0.
pub fn length_to_c(length: i32) -> i32 {
    if length > 0 { length.saturating_add(1).min(LONGEST as i32) } else { length }
}

/// An array of texts for a C function: pointers to the texts, and a null pointer at the end.
pub struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    /// Converts `count` CHARACTERs of `length` bytes, which stand one after the other. With None for `count`,
    /// converts the CHARACTERs before the first blank one.
    ///
    /// # Safety
    /// `from` holds these texts of `length` bytes, or is MPI_ARGV_NULL.
    pub unsafe fn new(from: *const u8, length: usize, count: Option<i64>) -> Texts {
        // SAFETY: the caller's promise.
        unsafe { Texts::strided(from, length, 1, count) }
    }
    /// Converts `count` CHARACTERs of `length` bytes, or, if `count` is None, those before the first blank
    /// one. Each begins `stride` times `length` bytes behind the one before.
    ///
    /// # Safety
    /// `from` holds these texts of `length` bytes, or is MPI_ARGV_NULL.
    unsafe fn strided(from: *const u8, length: usize, stride: usize, count: Option<i64>) -> Texts {
        let mut texts = Vec::new();
        if !memory::is_argv_null(from) {
            while count.is_none_or(|count| (texts.len() as i64) < count) {
                let at = texts.len() * stride * length;
                // SAFETY: the caller's promise: no blank text has come yet.
                let text = unsafe { to_c(from.wrapping_add(at), length, false) };
                if count.is_none() && text.is_empty() {
                    break;
                }
                texts.push(text);
            }
        }
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Texts { _texts: texts, pointers }
    }
    /// Returns the address of the array of pointers, for a C function.
    pub fn as_ptr(&self) -> usize {
        self.pointers.as_ptr().expose_provenance()
    }
}

/// The arguments of several commands for a C function: for each command a pointer to its array of texts.
pub struct Rows {
    _rows: Vec<Texts>,
    pointers: Vec<usize>,
}

impl Rows {
    /// Converts the arguments of `count` commands. Fortran passes a two-dimensional array, in which each row
    /// has the arguments of one command.
    ///
    /// # Safety
    /// `from` holds `count` rows of texts of `length` bytes, or is MPI_ARGVS_NULL.
    pub unsafe fn new(from: *const u8, length: usize, count: i64) -> Rows {
        let count = count.max(0) as usize;
        let mut rows = Vec::new();
        if !memory::is_argv_null(from) {
            for row in 0..count {
                // SAFETY: the caller's promise: the texts of one row stand `count` apart.
                rows.push(unsafe { Texts::strided(from.wrapping_add(row * length), length, count, None) });
            }
        }
        let pointers = rows.iter().map(Texts::as_ptr).collect();
        Rows { _rows: rows, pointers }
    }
    /// Returns the address of the array of pointers, for a C function. Returns MPI_ARGVS_NULL if there are no
    /// commands.
    pub fn as_ptr(&self) -> usize {
        if self.pointers.is_empty() { 0 } else { self.pointers.as_ptr().expose_provenance() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(text: &[u8], trimmed: bool) -> CString {
        // SAFETY: the bytes of a slice.
        unsafe { to_c(text.as_ptr(), text.len(), trimmed) }
    }

    #[test]
    fn blanks_at_the_end_go_and_at_the_start_only_if_asked() {
        assert_eq!(c(b"  a b  ", false).to_bytes(), b"  a b");
        assert_eq!(c(b"  a b  ", true).to_bytes(), b"a b");
        assert_eq!(c(b"    ", true).to_bytes(), b"");
        assert_eq!(c(b"path\0rest", false).to_bytes(), b"path");
    }

    #[test]
    fn a_text_is_padded_or_cut_and_left_alone_if_nothing_was_stored() {
        let mut room = *b"xxxxx";
        let mut out = Out::new();
        // SAFETY: the bytes of an array.
        unsafe { out.store(room.as_mut_ptr(), room.len(), 0) };
        assert_eq!(&room, b"xxxxx");
        out.0[..4].copy_from_slice(b"abc\0");
        // SAFETY: as above.
        unsafe { out.store(room.as_mut_ptr(), room.len(), 0) };
        assert_eq!(&room, b"abc  ");
        // SAFETY: as above.
        unsafe { out.store(room.as_mut_ptr(), 2, 0) };
        assert_eq!(&room, b"abc  ");
    }

    #[test]
    fn arguments_end_at_a_blank_text_and_rows_stand_apart() {
        // SAFETY: three texts of two bytes.
        let texts = unsafe { Texts::new(b"a b   ".as_ptr(), 2, None) };
        assert_eq!(texts._texts, [c"a".to_owned(), c"b".to_owned()]);
        // Two commands: the first has the arguments x and y, the second z.
        // SAFETY: six texts of one byte, by columns.
        let rows = unsafe { Rows::new(b"xzy   ".as_ptr(), 1, 2) };
        assert_eq!(rows._rows[0]._texts, [c"x".to_owned(), c"y".to_owned()]);
        assert_eq!(rows._rows[1]._texts, [c"z".to_owned()]);
    }
}
