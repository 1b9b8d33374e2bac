//! What programs of the MPICH ABI may link to and the standard ABI does not have: conversions for Fortran, functions that MPI-3.0 removed, and data.
//!
//! Contract of every function, kept by the program (MPI 5.0, section 2.5): its arguments are what MPI asks for.
#![allow(non_snake_case, non_upper_case_globals, clippy::missing_safety_doc)]

use crate::door;
use crate::face;
use abi::process::{On, anytime};
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;

/// A Fortran or C status: five ints, alike in all three languages (C, mpif.h, mpi_f08).
type Five = [c_int; 5];

static FORTRAN_STATUS: Five = [0; 5];
static FORTRAN_STATUSES: Five = [0; 5];
static F08_STATUS: Five = [0; 5];
static F08_STATUSES: Five = [0; 5];

/// Exports a variable of C that points to something, and that Fortran's start-up code may set.
macro_rules! pointers {
    ($($name:ident = $value:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of mpi.h.")]
        #[unsafe(no_mangle)]
        pub static $name: AtomicPtr<c_void> = AtomicPtr::new($value);
    )* };
}

pointers! {
    MPI_F_STATUS_IGNORE = (&raw const FORTRAN_STATUS) as *mut c_void;
    MPI_F_STATUSES_IGNORE = (&raw const FORTRAN_STATUSES) as *mut c_void;
    MPI_F08_STATUS_IGNORE = (&raw const F08_STATUS) as *mut c_void;
    MPI_F08_STATUSES_IGNORE = (&raw const F08_STATUSES) as *mut c_void;
    // Programs read these three here, so they have the standard ABI's values at once.
    MPI_UNWEIGHTED = std::ptr::without_provenance_mut(10);
    MPI_WEIGHTS_EMPTY = std::ptr::without_provenance_mut(11);
    MPI_T_PVAR_ALL_HANDLES = std::ptr::without_provenance_mut(1);
}

/// MPI_DUP_FN and its siblings: copies the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIR_Dup_fn(
    _: c_int,
    _: c_int,
    _: *mut c_void,
    value: *mut c_void,
    copy: *mut *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: room for one value (contract of this file).
    unsafe { copy.write(value) };
    // SAFETY: as above.
    unsafe { flag.write(1) };
    0
}

/// Exports a function under both of its names.
macro_rules! functions {
    ($($name:ident $profiled:ident($($argument:ident: $kind:ty),*) -> $returns:ty $body:block)*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $kind),*) -> $returns $body

        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $returns {
            // SAFETY: the same function (contract of this file).
            unsafe { $profiled($($argument),*) }
        }
    )* };
}

// Fortran's handles are those of C; those of files are pointers that fit into an int.
functions! {
    MPI_Comm_c2f PMPI_Comm_c2f(comm: c_int) -> c_int { comm }
    MPI_Comm_f2c PMPI_Comm_f2c(comm: c_int) -> c_int { comm }
    MPI_Errhandler_c2f PMPI_Errhandler_c2f(errhandler: c_int) -> c_int { errhandler }
    MPI_Errhandler_f2c PMPI_Errhandler_f2c(errhandler: c_int) -> c_int { errhandler }
    MPI_File_c2f PMPI_File_c2f(file: usize) -> c_int { file as c_int }
    MPI_File_f2c PMPI_File_f2c(file: c_int) -> usize { file as u32 as usize }
    MPI_Group_c2f PMPI_Group_c2f(group: c_int) -> c_int { group }
    MPI_Group_f2c PMPI_Group_f2c(group: c_int) -> c_int { group }
    MPI_Info_c2f PMPI_Info_c2f(info: c_int) -> c_int { info }
    MPI_Info_f2c PMPI_Info_f2c(info: c_int) -> c_int { info }
    MPI_Message_c2f PMPI_Message_c2f(message: c_int) -> c_int { message }
    MPI_Message_f2c PMPI_Message_f2c(message: c_int) -> c_int { message }
    MPI_Op_c2f PMPI_Op_c2f(op: c_int) -> c_int { op }
    MPI_Op_f2c PMPI_Op_f2c(op: c_int) -> c_int { op }
    MPI_Request_c2f PMPI_Request_c2f(request: c_int) -> c_int { request }
    MPI_Request_f2c PMPI_Request_f2c(request: c_int) -> c_int { request }
    MPI_Session_c2f PMPI_Session_c2f(session: c_int) -> c_int { session }
    MPI_Session_f2c PMPI_Session_f2c(session: c_int) -> c_int { session }
    MPI_Type_c2f PMPI_Type_c2f(datatype: c_int) -> c_int { datatype }
    MPI_Type_f2c PMPI_Type_f2c(datatype: c_int) -> c_int { datatype }
    MPI_Win_c2f PMPI_Win_c2f(win: c_int) -> c_int { win }
    MPI_Win_f2c PMPI_Win_f2c(win: c_int) -> c_int { win }

    MPI_Status_c2f PMPI_Status_c2f(from: usize, to: usize) -> c_int { copy("MPI_Status_c2f", from, to) }
    MPI_Status_f2c PMPI_Status_f2c(from: usize, to: usize) -> c_int { copy("MPI_Status_f2c", from, to) }
    MPI_Status_c2f08 PMPI_Status_c2f08(from: usize, to: usize) -> c_int { copy("MPI_Status_c2f08", from, to) }
    MPI_Status_f082c PMPI_Status_f082c(from: usize, to: usize) -> c_int { copy("MPI_Status_f082c", from, to) }
    MPI_Status_f2f08 PMPI_Status_f2f08(from: usize, to: usize) -> c_int { copy("MPI_Status_f2f08", from, to) }
    MPI_Status_f082f PMPI_Status_f082f(from: usize, to: usize) -> c_int { copy("MPI_Status_f082f", from, to) }
}

/// Copies a status from one language to another. The sentinels that stand for no status cannot be converted (MPI 5.0, section 19.3.5).
fn copy(name: &'static str, from: usize, to: usize) -> c_int {
    door::code_to(anytime(name, On::Nothing, |_| {
        let places =
            [&MPI_F_STATUS_IGNORE, &MPI_F_STATUSES_IGNORE, &MPI_F08_STATUS_IGNORE, &MPI_F08_STATUSES_IGNORE];
        let sentinel = |at: usize| {
            at == 1
                || places.iter().any(|place| place.load(std::sync::atomic::Ordering::Relaxed) as usize == at)
        };
        if sentinel(from) || sentinel(to) {
            error::fail!(error::Class::Arg, "MPI_STATUS_IGNORE is no status that can be converted");
        }
        let status = abi::args::In::<Five>::new(from, "the status").get(0)?;
        abi::args::Out::<Five>::new(to, "the converted status").set(status)
    }))
}

// Removed by MPI-3.0, and still in mpi.h: other names of what MPI-2.0 put in their place.
functions! {
    MPI_Address PMPI_Address(location: usize, address: usize) -> c_int {
        // SAFETY: the arguments are those of the function's own (contract of this file); so below.
        unsafe { face::PMPI_Get_address(location, address) }
    }
    MPI_Errhandler_create PMPI_Errhandler_create(function: usize, errhandler: usize) -> c_int {
        // SAFETY: as above.
        unsafe { face::PMPI_Comm_create_errhandler(function, errhandler) }
    }
    MPI_Errhandler_get PMPI_Errhandler_get(comm: c_int, errhandler: usize) -> c_int {
        // SAFETY: as above.
        unsafe { face::PMPI_Comm_get_errhandler(comm, errhandler) }
    }
    MPI_Errhandler_set PMPI_Errhandler_set(comm: c_int, errhandler: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { face::PMPI_Comm_set_errhandler(comm, errhandler) }
    }
    MPI_Type_extent PMPI_Type_extent(datatype: c_int, extent: usize) -> c_int {
        let mut lb = 0isize;
        // SAFETY: as above; the other address is of our own variable.
        unsafe { face::PMPI_Type_get_extent(datatype, &raw mut lb as usize, extent) }
    }
    MPI_Type_lb PMPI_Type_lb(datatype: c_int, displacement: usize) -> c_int {
        let mut extent = 0isize;
        // SAFETY: as above.
        unsafe { face::PMPI_Type_get_extent(datatype, displacement, &raw mut extent as usize) }
    }
    MPI_Type_ub PMPI_Type_ub(datatype: c_int, displacement: *mut isize) -> c_int {
        let mut extent = 0isize;
        // SAFETY: as above.
        let code = unsafe { face::PMPI_Type_get_extent(datatype, displacement as usize, &raw mut extent as usize) };
        if code == 0 {
            // SAFETY: the call has just written the lower bound there.
            let lb = unsafe { displacement.read() };
            // SAFETY: as above.
            unsafe { displacement.write(lb + extent) };
        }
        code
    }
    MPI_Type_hvector PMPI_Type_hvector(count: c_int, blocklength: c_int, stride: isize, oldtype: c_int, newtype: usize) -> c_int {
        // SAFETY: as above.
        unsafe { face::PMPI_Type_create_hvector(count, blocklength, stride, oldtype, newtype) }
    }
    MPI_Type_hindexed PMPI_Type_hindexed(count: c_int, lengths: usize, displacements: usize, oldtype: c_int, newtype: usize) -> c_int {
        // SAFETY: as above.
        unsafe { face::PMPI_Type_create_hindexed(count, lengths, displacements, oldtype, newtype) }
    }
    MPI_Type_struct PMPI_Type_struct(count: c_int, lengths: usize, displacements: usize, types: usize, newtype: usize) -> c_int {
        // SAFETY: as above.
        unsafe { face::PMPI_Type_create_struct(count, lengths, displacements, types, newtype) }
    }
}
