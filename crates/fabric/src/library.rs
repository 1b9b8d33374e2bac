// SPDX-License-Identifier: BSD-3-Clause
//! The loaded libfabric: the few symbols that it exports, and the texts of its error numbers.
//!
//! Invariant: an object of libfabric lives only while its `Libfabric` does; every object of this crate keeps
//! an `Arc` of the `Libfabric`. Read next: `provider.rs`.

use crate::ffi;
use crate::found::{self, FoundLibrary};
use error::{Class, Result, fail};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const ffi::Info,
    *mut *mut ffi::Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut ffi::Info);
type DupInfo = unsafe extern "C" fn(*const ffi::Info) -> *mut ffi::Info;
type OpenFabric = unsafe extern "C" fn(*mut ffi::FabricAttr, *mut *mut ffi::FidFabric, *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// A loaded libfabric, with the functions that it exports.
pub struct Libfabric {
    pub(crate) get_info: GetInfo,
    pub(crate) free_info: FreeInfo,
    pub(crate) dup_info: DupInfo,
    pub(crate) open_fabric: OpenFabric,
    strerror: StrError,
    version: (u32, u32),
    found: FoundLibrary,
    /// The loaded library, in which the functions lie. It is the last field, so that it is dropped last.
    _library: libloading::Library,
}

impl Libfabric {
    /// Loads libfabric from the file at `path`, or from the file that `found.rs` chooses. Errors
    /// (MPI_ERR_OTHER): there is no libfabric, or it is older than 1.17.
    pub fn load(path: Option<&Path>) -> Result<Arc<Libfabric>> {
        let found = found::find(path);
        let shown = found.path.display();
        // SAFETY: libfabric's initialisers may run at any time; the user alone can choose a file that is not
        // libfabric.
        let load = || unsafe { libloading::Library::new(&found.path) };
        // Intel's psm libraries, which Debian's libfabric needs, catch crashes and Ctrl-C when they are
        // loaded, and end the process with code 1 (unless IPATH_NO_BACKTRACE and HFI_NO_BACKTRACE are set).
        let library = match sys::signal::keeping_handlers(load) {
            Ok(library) => library,
            Err(error) => fail!(
                Class::Other,
                "{shown} cannot be loaded ({error}); install libfabric (Debian: libfabric1), or name its file by OUTBOARD_FABRIC_LIB"
            ),
        };
        macro_rules! symbol {
            ($name:literal, $kind:ty) => {
                // SAFETY: the symbol has this type since libfabric 1.3.
                match unsafe { library.get::<$kind>(concat!($name, "\0").as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => fail!(Class::Other, "{shown} is no libfabric: it has no {}", $name),
                }
            };
        }
        let version = symbol!("fi_version", unsafe extern "C" fn() -> u32);
        // SAFETY: it takes no arguments and only returns a number.
        let version = unsafe { version() };
        if version < ffi::VERSION {
            fail!(
                Class::Other,
                "{shown} is libfabric {}.{}; Outboard needs 1.17 or newer",
                version >> 16,
                version & 0xffff
            );
        }
        Ok(Arc::new(Libfabric {
            get_info: symbol!("fi_getinfo", GetInfo),
            free_info: symbol!("fi_freeinfo", FreeInfo),
            dup_info: symbol!("fi_dupinfo", DupInfo),
            open_fabric: symbol!("fi_fabric", OpenFabric),
            strerror: symbol!("fi_strerror", StrError),
            version: (version >> 16, version & 0xffff),
            found: found.clone(),
            _library: library,
        }))
    }

    /// Returns the major and the minor version of the loaded libfabric.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the version and the file of the loaded libfabric, and why this file was chosen, as text for
    /// people.
    pub fn origin(&self) -> String {
        format!("libfabric {}.{} ({})", self.version.0, self.version.1, self.found)
    }

    /// Returns libfabric's text for an error number. `code` may be negative, as libfabric's functions return
    /// it, or positive, as libfabric's structs hold it.
    pub(crate) fn error_text(&self, code: isize) -> String {
        // SAFETY: any number is allowed; the answer is a constant string.
        let text = unsafe { (self.strerror)(code.unsigned_abs() as c_int) };
        text_of(text).unwrap_or_else(|| format!("error {code}"))
    }
}

/// Copies a C string; returns None for a null pointer.
pub(crate) fn text_of(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: libfabric's strings end with a zero byte and live as long as the record that they were read
    // from.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_libfabric_is_named() {
        let missing =
            Libfabric::load(Some(Path::new("/nonexistent/libfabric.so"))).err().unwrap().message.clone();
        assert!(
            missing.contains("/nonexistent/libfabric.so") && missing.contains("OUTBOARD_FABRIC_LIB"),
            "{missing}"
        );
        let other = Libfabric::load(Some(Path::new("libc.so.6"))).err().unwrap().message.clone();
        assert!(other.contains("no libfabric"), "{other}");
    }

    #[test]
    fn the_systems_is_loaded() {
        let library = Libfabric::load(None).unwrap();
        assert!(library.version() >= (1, 17));
        assert!(library.origin().contains("libfabric.so.1: "), "{}", library.origin());
        assert_eq!(library.error_text(-11), library.error_text(11));
        assert!(!library.error_text(-61).is_empty());
    }
}
