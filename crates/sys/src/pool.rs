//! What a malloc that stands before glibc's knows of a pool of memory elsewhere: the form that
//! `liboutboard_malloc.so` and the MPI library share.

use std::ffi::c_void;

/// A range of addresses, and the functions that divide it. They may be called by any thread, and within each
/// other.
#[repr(C)]
#[derive(Debug)]
pub struct Pool {
    /// Its first address.
    pub start: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Allocations of fewer bytes belong elsewhere.
    pub bytes_min: usize,
    /// Allocates; null if there is no room. Leaves errno as it is.
    pub alloc: extern "C" fn(usize) -> *mut c_void,
    /// Frees. Leaves errno as it is.
    pub free: extern "C" fn(*mut c_void),
    /// The length of an allocation; 0 for what is none.
    pub usable: extern "C" fn(*mut c_void) -> usize,
}

impl Pool {
    /// Every allocation begins at a multiple of this.
    pub const ALIGN: usize = 4096;

    /// Whether an address lies inside.
    pub fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}
