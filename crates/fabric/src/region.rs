// SPDX-License-Identifier: BSD-3-Clause
//! Registered memory, as the provider needs it: buffers of this process for its own sends and reads, or
//! memory for peers to read and write.
//!
//! Each use registers its memory anew, without a cache: where registration is expensive (verbs), libfabric
//! itself caches registrations for all its users in the process, and watches the memory (userfaultfd, or
//! hooks in munmap and the like: FI_MR_CACHE_MONITOR). Over tcp a registration costs nothing.
//! tests/programs/net_remap.c tests sends from memory that was unmapped and mapped anew.
//!
//! Invariant: memory is registered as long as its `Region` lives, and must stay mapped until then. Read next:
//! `endpoint.rs`.

use crate::domain::{Domain, Object};
use crate::ffi;
use error::{Class, Result, fail};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use sys::Span;

/// Memory that is registered with the provider until this value is dropped.
pub struct Region {
    // Declared before the domain, so that it is closed first.
    object: Object<ffi::FidMr>,
    span: Span,
    domain: Arc<Domain>,
}

// SAFETY: one thread at a time uses an endpoint's regions (`Endpoint::open`).
unsafe impl Send for Region {}

/// The key, address and length by which a process reads or writes memory that a peer has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The key by which the peer's provider knows the registered memory.
    pub key: u64,
    /// The address of the memory's first byte that the peer's provider expects in a read or write: its
    /// address in the peer's process, or 0.
    pub base: u64,
    /// The length of the registered memory, in bytes.
    pub bytes: u64,
}

impl RemoteMemory {
    /// Returns the address to pass for a read or write of `bytes` bytes from offset `at` of the memory on.
    /// Errors (MPI_ERR_INTERN): the bytes do not all lie in the registered memory.
    pub(crate) fn address(&self, at: u64, bytes: usize) -> Result<u64> {
        if at > self.bytes || bytes as u64 > self.bytes - at {
            fail!(Class::Intern, "{bytes} bytes from {at} on are not in a region of {} bytes", self.bytes);
        }
        match self.base.checked_add(at) {
            Some(address) => Ok(address),
            None => fail!(Class::Intern, "a region of {} bytes cannot begin at {:#x}", self.bytes, self.base),
        }
    }
}

impl Region {
    /// Registers the memory `span` for `access` (bits FI_READ, ...), and returns its region. The region's key
    /// is `key`, unless the provider chooses keys itself. Errors (MPI_ERR_NO_MEM): the provider refuses, most
    /// often because `ulimit -l` is too small.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        endpoint: *mut ffi::Fid,
        span: Span,
        access: u64,
        key: u64,
    ) -> Result<Region> {
        let library = domain.library();
        let at = domain.object.get();
        let mut made = ptr::null_mut();
        let calls = domain.object.calls(|record| record.mr);
        // SAFETY: the provider pins and later accesses `span`, which its claimer keeps mapped while the
        // region lives.
        let code = unsafe {
            (calls.reg)(
                at.cast(),
                span.address() as *const c_void,
                span.bytes(),
                access,
                0,
                key,
                0,
                &mut made,
                ptr::null_mut(),
            )
        };
        let refused = |code: c_int| -> Result<Region> {
            fail!(
                Class::NoMem,
                "{} cannot register {} bytes: {}; is the limit of locked memory (ulimit -l) high enough?",
                domain.name(),
                span.bytes(),
                library.error_text(code as isize)
            )
        };
        if code != 0 {
            return refused(code);
        }
        let object = Object::new(made)?;
        if domain.needs(ffi::FI_MR_ENDPOINT) {
            let code = object.bind(endpoint, 0);
            if code != 0 {
                return refused(code);
            }
            let code = object.control(ffi::FI_ENABLE, ptr::null_mut());
            if code != 0 {
                return refused(code);
            }
        }
        Ok(Region { object, span, domain: domain.clone() })
    }

    /// Returns the registered memory.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the key, address and length by which a peer reads or writes this memory.
    pub fn remote(&self) -> RemoteMemory {
        let base = if self.domain.needs(ffi::FI_MR_VIRT_ADDR) { self.span.address() as u64 } else { 0 };
        RemoteMemory { key: self.object.record().key, base, bytes: self.span.bytes() as u64 }
    }

    /// Returns the memory's descriptor. A call that passes libfabric an address in this memory must pass the
    /// descriptor, too.
    pub(crate) fn descriptor(&self) -> *mut c_void {
        self.object.record().mem_desc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_a_region_is_refused() {
        let memory = RemoteMemory { key: 1, base: u64::MAX - 10, bytes: 8 };
        assert_eq!(memory.address(3, 5).unwrap(), u64::MAX - 7);
        assert_eq!(memory.address(8, 0).unwrap(), u64::MAX - 2);
        for (at, bytes) in [(9, 0), (4, 5), (u64::MAX, 1), (0, usize::MAX)] {
            assert!(memory.address(at, bytes).is_err(), "{at} {bytes}");
        }
        assert!(RemoteMemory { base: u64::MAX - 1, ..memory }.address(3, 1).is_err());
    }
}
