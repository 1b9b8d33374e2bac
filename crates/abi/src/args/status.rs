// SPDX-License-Identifier: BSD-3-Clause
//! MPI_Status as the library holds it, and wrappers of parameters that point to statuses: `StatusIn`,
//! `StatusOut` and `Statuses`.

use super::{Array, In, Out, ShimForm};
use error::{Class, Result, fail};
use objects::constants;
use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// MPI_Status of the standard ABI (MPI 5.0, section 20.3.1). `hidden` holds how many bytes of data were moved
/// (the low word first), and whether the operation was cancelled.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the standard's.
pub struct Status {
    pub source: i32,
    pub tag: i32,
    pub error: i32,
    hidden: [i32; 5],
}

impl Status {
    /// Returns the status of a receive or probe of a message of `bytes` bytes.
    pub fn new(source: i32, tag: i32, bytes: u64) -> Status {
        let mut status = Status { source, tag, error: 0, hidden: [0; 5] };
        status.set_bytes(bytes);
        status
    }
    /// The empty status (MPI 5.0, section 3.7.3), for null and inactive requests, and for sends.
    pub const EMPTY: Status =
        Status { source: constants::ANY_SOURCE, tag: constants::ANY_TAG, error: 0, hidden: [0; 5] };
    /// The status of a receive from MPI_PROC_NULL (MPI 5.0, section 3.10).
    pub const NO_PROCESS: Status =
        Status { source: constants::PROC_NULL, tag: constants::ANY_TAG, error: 0, hidden: [0; 5] };
    /// Returns how many bytes of data the status's operation has moved.
    pub fn bytes(&self) -> u64 {
        u64::from(self.hidden[0] as u32) | u64::from(self.hidden[1] as u32) << 32
    }
    /// Sets how many bytes of data the status's operation has moved.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.hidden[0] = bytes as u32 as i32;
        self.hidden[1] = (bytes >> 32) as u32 as i32;
    }
    /// Whether the operation that the status describes was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.hidden[2] != 0
    }
    /// Sets whether the operation that the status describes was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.hidden[2] = i32::from(cancelled);
    }
}

/// Exports variables of mpi.h with the names `$name`, such as MPI_F_STATUS_IGNORE. Each holds an address that
/// Fortran passes in place of a status. Outboard's Fortran library sets the variables when it is loaded.
macro_rules! ignored {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of mpi.h (MPI 5.0, section 19.3.5).")]
            #[unsafe(no_mangle)]
            pub static $name: AtomicPtr<c_void> = AtomicPtr::new((&raw const NO_STATUS) as *mut c_void);
        )*
        /// Whether `is` returns true for one of the addresses that Fortran passes for MPI_STATUS_IGNORE or
        /// MPI_STATUSES_IGNORE.
        fn is_ignored_by_fortran(is: impl Fn(usize) -> bool) -> bool {
            [$(&$name),*].iter().any(|place| is(place.load(Relaxed) as usize))
        }
    };
}

/// A status to which MPI_F_STATUS_IGNORE and the like (see `ignored!`) point until a Fortran library is
/// loaded.
static NO_STATUS: Status = Status::EMPTY;

ignored! { MPI_F_STATUS_IGNORE MPI_F_STATUSES_IGNORE MPI_F08_STATUS_IGNORE MPI_F08_STATUSES_IGNORE }

/// Copies a whole status from C to Fortran or back; both have the same form. Refuses MPI_STATUS_IGNORE, which
/// is not a status (MPI 5.0, section 19.3.5).
pub(crate) fn convert(from: StatusIn, to: StatusOut) -> Result<()> {
    if is_ignored_by_fortran(|address| from.0.is(address) || to.0.is(address)) {
        fail!(Class::Arg, "MPI_STATUS_IGNORE is no status that can be converted");
    }
    let status = from.get()?;
    to.change(|to| *to = status)
}

/// A status parameter that the library only reads. A null pointer is an error.
#[derive(Clone, Copy, Debug)]
pub struct StatusIn(In<Status>);

impl StatusIn {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    pub fn new(address: usize, name: &'static str) -> StatusIn {
        StatusIn(In::new(address, name))
    }
    /// Wraps the parameter `name` of a program with another ABI: a pointer to a status in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<Status>) -> StatusIn {
        StatusIn(In::in_form(address, name, form))
    }
    /// Returns the status that the program passed.
    pub fn get(self) -> Result<Status> {
        self.0.get(0)
    }
}

/// A status parameter that the library writes. A null pointer is MPI_STATUS_IGNORE.
#[derive(Clone, Copy, Debug)]
pub struct StatusOut(Out<Status>);

impl StatusOut {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> StatusOut {
        StatusOut(Out::new(address, name))
    }
    /// Wraps the parameter `name` of a program with another ABI: a pointer to a status in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<Status>) -> StatusOut {
        StatusOut(Out::in_form(address, name, form))
    }
    /// Whether the pointer is MPI_STATUS_IGNORE.
    pub fn is_ignored(self) -> bool {
        self.0.is_null()
    }
    /// Stores all fields of `status` but MPI_ERROR. A call that completes one operation leaves MPI_ERROR as
    /// it was (MPI 5.0, section 3.2.5).
    #[inline]
    pub fn set(self, status: Status) {
        if !self.is_ignored() {
            let error = self.0.get().expect("not null").error;
            self.0.set(Status { error, ..status }).expect("not null");
        }
    }
    /// Stores the empty status, whose MPI_ERROR is MPI_SUCCESS (MPI 5.0, section 3.7.3).
    pub fn set_empty(self) -> Result<()> {
        if self.is_ignored() { Ok(()) } else { self.0.set(Status::EMPTY) }
    }
    /// Reads the program's status, lets `change` change it, and writes it back. Calls such as
    /// MPI_Status_set_elements do so.
    pub fn change(self, change: impl FnOnce(&mut Status)) -> Result<()> {
        let mut status = self.0.get()?;
        change(&mut status);
        self.0.set(status)
    }
}

/// A parameter that is an array of statuses, which the library writes. A null pointer is MPI_STATUSES_IGNORE.
#[derive(Clone, Copy, Debug)]
pub struct Statuses(Array<Status>);

impl Statuses {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Statuses {
        Statuses(Array::new(address, name))
    }
    /// Wraps the parameter `name` of a program with another ABI: a pointer to statuses in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<Status>) -> Statuses {
        Statuses(Array::in_form(address, name, form))
    }
    /// Whether the pointer is MPI_STATUSES_IGNORE.
    pub fn is_ignored(self) -> bool {
        self.0.is_null()
    }
    /// Stores all fields of `status` but MPI_ERROR in element `at` of the array.
    #[inline]
    pub fn set(self, at: usize, status: Status) {
        if self.is_ignored() {
            return;
        }
        // The fields are stored one by one: a move in wider words than the fields were written in would
        // stall.
        if let Some(Status { source, tag, hidden, .. }) = self.0.0.element(at) {
            (*source, *tag, *hidden) = (status.source, status.tag, status.hidden);
            return;
        }
        let error = self.0.get(at).expect("not null").error;
        self.0.set(at, Status { error, ..status }).expect("not null");
    }
    /// Stores `code` in the field MPI_ERROR of the status with the index `at`. A call that returns
    /// MPI_ERR_IN_STATUS does so.
    pub fn set_error(self, at: usize, code: i32) {
        if !self.is_ignored() {
            let status = self.0.get(at).expect("not null");
            self.0.set(at, Status { error: code, ..status }).expect("not null");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_hides_its_bytes_and_keeps_its_error() {
        assert_eq!(size_of::<Status>(), 32);
        let mut status = Status { error: 5, ..Status::EMPTY };
        let out = StatusOut::new(&raw mut status as usize, "status");
        let mut new = Status::new(1, 2, (1 << 40) + 3);
        new.set_cancelled(true);
        out.set(new);
        assert_eq!((status.source, status.tag, status.error, status.bytes()), (1, 2, 5, (1 << 40) + 3));
        assert!(status.is_cancelled());
        StatusOut::new(0, "status").set(new);
    }
}
