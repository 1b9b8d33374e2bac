// SPDX-License-Identifier: BSD-3-Clause
//! Wrappers of parameters that are C strings: `Text` for strings to read, `TextOut` for strings to write.

use super::null;
use error::Result;

/// A parameter that is a C string, which the library reads.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    address: usize,
    name: &'static str,
}

impl Text {
    /// Wraps the parameter `name`, a C string at `address`.
    pub fn new(address: usize, name: &'static str) -> Text {
        Text { address, name }
    }
    /// Whether the program passed a null pointer for this parameter.
    pub fn is_null(self) -> bool {
        self.address == 0
    }
    /// Returns the string. A byte sequence that is not UTF-8 becomes the character U+FFFD.
    pub fn read(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }
    /// Returns the bytes of the string, without the final zero.
    pub fn bytes(self) -> Result<Vec<u8>> {
        if self.address == 0 {
            return null(self.name);
        }
        // SAFETY: not null, and the program gave it as a C string (contract of this file).
        let text = unsafe { std::ffi::CStr::from_ptr(self.address as *const _) };
        Ok(text.to_bytes().to_vec())
    }
}

impl Text {
    /// Returns the string as the path of a file, which need not be UTF-8.
    pub fn path(self) -> Result<std::path::PathBuf> {
        if self.address == 0 {
            return null(self.name);
        }
        // SAFETY: not null, and the program gave it as a C string (contract of this file).
        let text = unsafe { std::ffi::CStr::from_ptr(self.address as *const _) };
        let bytes = std::os::unix::ffi::OsStringExt::from_vec(text.to_bytes().to_vec());
        Ok(std::ffi::OsString::into(bytes))
    }
}

/// A parameter that is a buffer of the program, in which the library stores a C string.
#[derive(Clone, Copy, Debug)]
pub struct TextOut {
    address: usize,
    name: &'static str,
    bytes_max: usize,
}

impl TextOut {
    /// Wraps the parameter `name`, a buffer at `address`.
    pub fn new(address: usize, name: &'static str) -> TextOut {
        TextOut { address, name, bytes_max: usize::MAX }
    }
    /// Wraps the parameter `name`, for an ABI whose programs provide a buffer of only `bytes_max` bytes.
    pub fn at_most(address: usize, name: &'static str, bytes_max: usize) -> TextOut {
        TextOut { address, name, bytes_max }
    }
    /// Whether the program passed a null pointer for this parameter.
    pub fn is_null(self) -> bool {
        self.address == 0
    }
    /// Stores as much of `text` as fits `bytes_max` bytes, and a zero byte, which must fit, too. Returns how
    /// many bytes precede the zero.
    pub fn set(self, text: &str, bytes_max: usize) -> Result<usize> {
        if self.address == 0 {
            return null(self.name);
        }
        let bytes_max = bytes_max.min(self.bytes_max);
        let mut bytes = text.len().min(bytes_max.saturating_sub(1));
        while !text.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let to = self.address as *mut u8;
        // SAFETY: not null, and the program gave room for `bytes_max` bytes (contract of this file), which
        // are at least bytes + 1.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, bytes) };
        if bytes_max > 0 {
            // SAFETY: as above; this is the last of the bytes + 1.
            unsafe { to.wrapping_add(bytes).write(0) };
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let mut buffer = [0xffu8; 8];
        let out = TextOut::new(buffer.as_mut_ptr() as usize, "name");
        assert_eq!(out.set("abcdefé", 8), Ok(6));
        assert_eq!(&buffer, b"abcdef\0\xff");
    }
}
