// SPDX-License-Identifier: BSD-3-Clause
//! Open objects of libfabric: `Object`, an object of any kind, and `Domain`, an opened device in which
//! endpoints and registered memory live.
//!
//! Invariant: an object is closed before the object from which it was opened. The order of fields in structs
//! ensures this. Read next: `region.rs`, `endpoint.rs`.

use crate::ffi;
use crate::library::Libfabric;
use crate::provider::Provider;
use error::{Class, Result, fail};
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

/// An open object of libfabric, which is closed when this value is dropped.
pub(crate) struct Object<T>(NonNull<T>);

impl<T> Object<T> {
    /// Takes over the object at `made`, which libfabric has opened and whose C struct begins with a `Fid`.
    /// Fails if `made` is null.
    pub(crate) fn new(made: *mut T) -> Result<Object<T>> {
        match NonNull::new(made) {
            Some(made) => Ok(Object(made)),
            None => fail!(Class::Intern, "libfabric opened an object and did not say where"),
        }
    }

    pub(crate) fn get(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub(crate) fn fid(&self) -> *mut ffi::Fid {
        self.0.as_ptr().cast()
    }

    /// Returns the C struct of the object, as libfabric declares it.
    pub(crate) fn record(&self) -> &T {
        // SAFETY: the object is open, and the provider does not change the fields that this crate reads.
        unsafe { self.0.as_ref() }
    }

    /// Returns the table of functions whose address `pick` reads from the object's C struct. libfabric keeps
    /// the functions for an object in such tables.
    pub(crate) fn calls<C>(&self, pick: impl FnOnce(&T) -> *const C) -> &C {
        // SAFETY: every open object has its tables as long as it is open.
        unsafe { &*pick(self.record()) }
    }

    fn base(&self) -> &ffi::Ops {
        // SAFETY: the object is open, and begins with a `Fid`.
        let fid = unsafe { &*self.fid() };
        // SAFETY: every open object has its table of calls.
        unsafe { &*fid.ops }
    }

    pub(crate) fn bind(&self, other: *mut ffi::Fid, flags: u64) -> c_int {
        // SAFETY: both objects are open.
        unsafe { (self.base().bind)(self.fid(), other, flags) }
    }

    pub(crate) fn control(&self, command: c_int, argument: *mut c_void) -> c_int {
        // SAFETY: the object is open; the callers pass the argument that each command requires.
        unsafe { (self.base().control)(self.fid(), command, argument) }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: nothing else closes it; objects that were opened from it have been dropped before, by the
        // order of fields.
        unsafe { (self.base().close)(self.fid()) };
    }
}

/// A device that a provider has opened, in which an endpoint and its registered memory live.
pub(crate) struct Domain {
    // In the order in which the fields must be dropped.
    pub(crate) object: Object<ffi::FidDomain>,
    pub(crate) fabric: Object<ffi::FidFabric>,
    pub(crate) provider: Provider,
}

// SAFETY: FI_THREAD_DOMAIN allows any thread, one at a time, as the caller of `Endpoint::open` ensures.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn open(provider: Provider) -> Result<Domain> {
        let library = &provider.library;
        let info = provider.info();
        let mut fabric = ptr::null_mut();
        // SAFETY: the record came from fi_getinfo.
        let code = unsafe { (library.open_fabric)(info.fabric_attr, &mut fabric, ptr::null_mut()) };
        check(library, code, || format!("{provider} cannot be opened"))?;
        let fabric = Object::new(fabric)?;
        let mut domain = ptr::null_mut();
        let calls = fabric.calls(|record| record.ops);
        // SAFETY: the object is open; the record came from fi_getinfo for this fabric.
        let code =
            unsafe { (calls.domain)(fabric.get(), provider.info.as_ptr(), &mut domain, ptr::null_mut()) };
        check(library, code, || format!("{provider} cannot be opened"))?;
        Ok(Domain { object: Object::new(domain)?, fabric, provider })
    }

    pub(crate) fn library(&self) -> &Libfabric {
        &self.provider.library
    }

    /// Returns the names of the provider and its interface, for error sentences.
    pub(crate) fn name(&self) -> String {
        self.provider.to_string()
    }

    /// Whether the provider requires `mode`, one of libfabric's bits FI_MR_..., each of which is a demand on
    /// registered memory.
    pub(crate) fn needs(&self, mode: c_int) -> bool {
        // SAFETY: the record's attributes live as long as it does.
        let attributes = unsafe { &*self.provider.info().domain_attr };
        attributes.mr_mode & mode != 0
    }

    /// Makes the key of registered memory from `number`: keeps as many low bits as the provider's keys have.
    pub(crate) fn key_of(&self, number: u64) -> u64 {
        // SAFETY: the record's attributes live as long as it does.
        let bytes = unsafe { &*self.provider.info().domain_attr }.mr_key_size;
        number & u64::MAX.checked_shr(64 - 8 * bytes.clamp(1, 8) as u32).unwrap_or(u64::MAX)
    }

    /// Calls `open` with the domain's functions and the place for the new object's address. Returns the
    /// object. Fails if `open` returns an error code; `what` names the object in the error sentence.
    pub(crate) fn object<T>(
        &self,
        what: &str,
        open: impl FnOnce(&ffi::OpsDomain, *mut *mut T) -> c_int,
    ) -> Result<Object<T>> {
        let calls = self.object.calls(|record| record.ops);
        let mut made = ptr::null_mut();
        let code = open(calls, &mut made);
        check(self.library(), code, || format!("{} cannot open {what}", self.name()))?;
        Object::new(made)
    }
}

/// Fails with MPI_ERR_OTHER if `code`, which a function of libfabric returned, is not 0. The error sentence
/// begins with the text that `what` makes, and then says libfabric's reason.
pub(crate) fn check(library: &Libfabric, code: c_int, what: impl FnOnce() -> String) -> Result<()> {
    if code != 0 {
        fail!(Class::Other, "{}: {}", what(), library.error_text(code as isize));
    }
    Ok(())
}
