// SPDX-License-Identifier: BSD-3-Clause
//! How Outboard's numbers (handles, error codes, ...) become those of the program's binary interface (ABI) in
//! callbacks, in values of predefined attributes, and in texts. Elsewhere the program gets numbers only
//! through parameters, which the shims convert. A shim is the set of generated C functions of one ABI.
//! Outboard's own numbers are those of the standard ABI.
//!
//! Invariants: a library has one shim, the standard's unless the shim's crate calls `choose` when it is
//! loaded. A shim converts parameters itself, and gives the wrappers of `args` the form of its programs' data
//! (`ShimForm`).

use crate::args::{ShimForm, Status};
use error::{Class, Result, fail};
use objects::{Handle, constants};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// How one ABI writes MPI's numbers. Each function here converts one of Outboard's numbers to the ABI's
/// number, except `code_from` and `handle_from`, which convert back.
#[derive(Debug)]
pub struct Shim {
    /// The name of the ABI, for MPI_Get_library_version.
    pub name: &'static str,
    /// The major and minor version of the ABI, for MPI_Abi_get_version. Both are -1 if it is not the standard
    /// ABI.
    pub version: (i32, i32),
    /// Converts a handle to the bits that the program passes as an argument. Handles in the program's memory
    /// may be narrower: they are then the low bytes, which come first on little-endian machines.
    pub handle: fn(Handle) -> usize,
    /// Converts the bits of an argument to Outboard's handle. Uses only as many bits as the program's handles
    /// have.
    pub handle_from: fn(usize) -> Handle,
    /// Converts a keyval to the program's number.
    pub keyval: fn(i32) -> i32,
    /// Converts the value of a predefined attribute. The arguments are the keyval and Outboard's value.
    pub attribute: fn(i32, i32) -> i32,
    /// Converts an error class or error code to the program's number.
    pub code: fn(i32) -> i32,
    /// Converts an error code that a function of the program has returned to Outboard's number.
    pub code_from: fn(i32) -> i32,
    /// Converts the MPI constants among the integers that MPI_Type_get_contents returns. The arguments are
    /// the combiner, and whether the datatype has large counts.
    pub contents: fn(i32, bool, &mut [i32]),
    /// The form in which programs of this ABI keep statuses. None if programs keep them as in the standard
    /// ABI.
    pub status: Option<&'static ShimForm<Status>>,
}

/// The description of the standard ABI. Outboard's own numbers are the same.
static STANDARD: Shim = Shim {
    name: "standard ABI 1.0",
    version: (constants::ABI_VERSION, constants::ABI_SUBVERSION),
    handle: |handle| handle.0,
    handle_from: Handle,
    keyval: |number| number,
    attribute: |_, value| value,
    code: |code| code,
    code_from: |code| code,
    contents: |_, _, _| {},
    status: None,
};

static CHOSEN: OnceLock<&'static Shim> = OnceLock::new();

/// Sets the ABI of the programs that use this library. The library of another ABI calls this when it is
/// loaded, before anything else.
pub fn choose(shim: &'static Shim) {
    let _ = CHOSEN.set(shim);
}

/// Returns the description of the ABI that the program uses.
pub fn get() -> &'static Shim {
    CHOSEN.get().copied().unwrap_or(&STANDARD)
}

/// Fails if another MPI library is initialized in this process: then this process would be two ranks of the
/// job.
pub(crate) fn check_alone() -> Result<()> {
    let this = path_of(get as *const () as *const c_void);
    let mut loaded: Vec<String> = Vec::new();
    // SAFETY: `enter` is of the type that this asks for, and gets back the vector, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(enter), (&raw mut loaded).cast()) };
    for path in loaded.into_iter().filter(|path| is_mpi(path) && Some(path) != this.as_ref()) {
        if is_running(&path) {
            let this = this.unwrap_or_else(|| "this library".into());
            fail!(
                Class::Other,
                "{path} runs in this process already, so {this} cannot: a process has one MPI; load one of the two"
            );
        }
    }
    Ok(())
}

fn is_mpi(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    ["libmpi.so", "libmpi_abi.so", "libmpich.so"].iter().any(|start| name.starts_with(start))
}

/// Adds the path of one loaded library to a `Vec<String>`, to which `paths` points. dl_iterate_phdr calls
/// this.
unsafe extern "C" fn enter(object: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
    // SAFETY: the loader passes a description that is valid during this call.
    let name = unsafe { (*object).dlpi_name };
    if !name.is_null() {
        // SAFETY: a C string of the loader, valid during this call.
        let name = unsafe { CStr::from_ptr(name) };
        // SAFETY: `check_alone` passed the address of its vector, and does not use it during this call.
        let paths = unsafe { &mut *paths.cast::<Vec<String>>() };
        paths.push(name.to_string_lossy().into_owned());
    }
    0
}

/// Whether the MPI library at `path`, which is loaded, is between its MPI_Init and MPI_Finalize.
fn is_running(path: &str) -> bool {
    let Ok(path) = std::ffi::CString::new(path) else { return false };
    // SAFETY: a C string; RTLD_NOLOAD runs no code of the library.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return false;
    }
    let flag_of = |name: &CStr| {
        // SAFETY: the library is open, and the name is a C string.
        let address = unsafe { libc::dlsym(library, name.as_ptr().cast::<c_char>()) };
        let mut flag: c_int = 0;
        if !address.is_null() {
            type FlagFunction = unsafe extern "C" fn(*mut c_int) -> c_int;
            // SAFETY: both functions have this type in every MPI.
            let function = unsafe { std::mem::transmute::<*mut c_void, FlagFunction>(address) };
            // SAFETY: it writes one int, ours; it may be called at any time (MPI 5.0, section 11.4.1).
            unsafe { function(&mut flag) };
        }
        flag != 0
    };
    let running = flag_of(c"PMPI_Initialized") && !flag_of(c"PMPI_Finalized");
    // SAFETY: opened above; it stays loaded, as it was before.
    unsafe { libc::dlclose(library) };
    running
}

fn path_of(address: *const c_void) -> Option<String> {
    // SAFETY: Dl_info is plain data, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the answer goes to our own variable.
    let known = unsafe { libc::dladdr(address, &mut info) };
    if known == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string of the loader, which stays as long as this library.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_mpi_are_known_by_name() {
        assert!(
            is_mpi("/opt/x/lib/libmpi.so.12")
                && is_mpi("libmpi_abi.so.1")
                && is_mpi("libmpi.so.40.30.1")
                && is_mpi("libmpich.so.12")
        );
        assert!(!is_mpi("/usr/lib/libmpifort.so.12") && !is_mpi("") && !is_mpi("libm.so.6"));
        check_alone().unwrap();
    }

    #[test]
    fn a_library_without_a_choice_has_the_standards_shim() {
        assert_eq!(get().version, (1, 0));
        assert_eq!((get().code)(constants::ERR_LASTCODE), constants::ERR_LASTCODE);
    }
}
