// SPDX-License-Identifier: BSD-3-Clause
//! Functions and variables of the MPICH ABI that the standard ABI does not have: conversions of Fortran's
//! handles, functions that MPI-3.0 removed, functions that MPICH's bindings of other languages need
//! (libmpichfort.so.12, libmpichcxx.so.12), and MPICH's extensions.
//!
//! The program guarantees that the arguments of each function are what MPI requires (MPI 5.0, section 2.5).
#![allow(non_snake_case, non_upper_case_globals, clippy::missing_safety_doc)]

use crate::shim;
use crate::translate;
use abi::args::{Handle, In, Out, Text};
use abi::mpich_bindings::{self, HandleKind};
use abi::process::{Guard, On, anytime, call};
use abi::stream;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

/// Exports pointer variables of MPICH's mpi.h, which Fortran's start-up code may set.
macro_rules! pointers {
    ($($name:ident = $value:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of mpi.h.")]
        #[unsafe(no_mangle)]
        pub static $name: AtomicPtr<c_void> = AtomicPtr::new($value);
    )* };
}

pointers! {
    // Programs read these three here, so they have the standard ABI's values at once.
    MPI_UNWEIGHTED = std::ptr::without_provenance_mut(10);
    MPI_WEIGHTS_EMPTY = std::ptr::without_provenance_mut(11);
    MPI_T_PVAR_ALL_HANDLES = std::ptr::without_provenance_mut(1);
}

/// The callback that MPICH's mpi.h calls MPI_DUP_FN, MPI_COMM_DUP_FN and the like: copies an attribute's
/// value.
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

/// Exports each function under two names, `$name` (MPI_...) and `$profiled` (PMPI_...).
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
}

// Functions that MPI-3.0 removed and mpi.h still has: other names of those by which MPI-2.0 replaced them.
functions! {
    MPI_Address PMPI_Address(location: usize, address: usize) -> c_int {
        // SAFETY: the arguments are those of the function's own (contract of this file); so below.
        unsafe { shim::PMPI_Get_address(location, address) }
    }
    MPI_Errhandler_create PMPI_Errhandler_create(function: usize, errhandler: usize) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Comm_create_errhandler(function, errhandler) }
    }
    MPI_Errhandler_get PMPI_Errhandler_get(comm: c_int, errhandler: usize) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Comm_get_errhandler(comm, errhandler) }
    }
    MPI_Errhandler_set PMPI_Errhandler_set(comm: c_int, errhandler: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Comm_set_errhandler(comm, errhandler) }
    }
    MPI_Type_extent PMPI_Type_extent(datatype: c_int, extent: usize) -> c_int {
        let mut lb = 0isize;
        // SAFETY: as above; the other address is of our own variable.
        unsafe { shim::PMPI_Type_get_extent(datatype, &raw mut lb as usize, extent) }
    }
    MPI_Type_lb PMPI_Type_lb(datatype: c_int, displacement: usize) -> c_int {
        let mut extent = 0isize;
        // SAFETY: as above.
        unsafe { shim::PMPI_Type_get_extent(datatype, displacement, &raw mut extent as usize) }
    }
    MPI_Type_ub PMPI_Type_ub(datatype: c_int, displacement: *mut isize) -> c_int {
        let mut extent = 0isize;
        // SAFETY: as above.
        let code =
            unsafe { shim::PMPI_Type_get_extent(datatype, displacement as usize, &raw mut extent as usize) };
        if code == 0 {
            // SAFETY: the call has just written the lower bound there.
            let lb = unsafe { displacement.read() };
            // SAFETY: as above.
            unsafe { displacement.write(lb + extent) };
        }
        code
    }
    MPI_Type_hvector PMPI_Type_hvector(
        count: c_int, blocklength: c_int, stride: isize, oldtype: c_int, newtype: usize
    ) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Type_create_hvector(count, blocklength, stride, oldtype, newtype) }
    }
    MPI_Type_hindexed PMPI_Type_hindexed(
        count: c_int, lengths: usize, displacements: usize, oldtype: c_int, newtype: usize
    ) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Type_create_hindexed(count, lengths, displacements, oldtype, newtype) }
    }
    MPI_Type_struct PMPI_Type_struct(
        count: c_int, lengths: usize, displacements: usize, types: usize, newtype: usize
    ) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Type_create_struct(count, lengths, displacements, types, newtype) }
    }
}

/// Exports functions of MPICH that have only one name, without a PMPI form.
macro_rules! internal {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $returns:ty $body:block)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of MPICH's bindings.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $returns $body
    )* };
}

internal! {
    MPII_Comm_set_attr(comm: c_int, keyval: c_int, bits: i64, language: c_int) -> c_int {
        set("MPI_Comm_set_attr", On::Comm, HandleKind::Comm, comm, keyval, bits, language)
    }
    MPII_Type_set_attr(datatype: c_int, keyval: c_int, bits: i64, language: c_int) -> c_int {
        set("MPI_Type_set_attr", |_| On::Nothing, HandleKind::Datatype, datatype, keyval, bits, language)
    }
    MPII_Win_set_attr(win: c_int, keyval: c_int, bits: i64, language: c_int) -> c_int {
        set("MPI_Win_set_attr", On::Win, HandleKind::Win, win, keyval, bits, language)
    }
    MPII_Comm_get_attr(comm: c_int, keyval: c_int, to: usize, flag: usize, language: c_int) -> c_int {
        get("MPI_Comm_get_attr", On::Comm, HandleKind::Comm, comm, keyval, [to, flag], language)
    }
    MPII_Type_get_attr(datatype: c_int, keyval: c_int, to: usize, flag: usize, language: c_int) -> c_int {
        get("MPI_Type_get_attr", |_| On::Nothing, HandleKind::Datatype, datatype, keyval, [to, flag], language)
    }
    MPII_Win_get_attr(win: c_int, keyval: c_int, to: usize, flag: usize, language: c_int) -> c_int {
        get("MPI_Win_get_attr", On::Win, HandleKind::Win, win, keyval, [to, flag], language)
    }
    MPII_Keyval_set_proxy(keyval: c_int, copy: usize, delete: usize) -> () {
        let keyval = translate::keyval_from(keyval);
        let wrappers = |guard: &mut Guard| mpich_bindings::set_wrappers(guard, keyval, copy, delete);
        anytime("MPII_Keyval_set_proxy", On::Nothing, wrappers);
    }
    MPII_Grequest_set_lang_f77(request: c_int) -> () {
        let request = translate::handle_from(request);
        call("MPI_Grequest_start", On::Nothing, |guard| mpich_bindings::set_fortran(guard, request));
    }
    // The C++ bindings, which MPI-3.0 removed, load; what they cannot do without these says so.
    MPII_Errhandler_set_cxx(_errhandler: c_int, _proxy: usize) -> () { refused("the error handlers of MPICH's C++ bindings"); }
    MPII_Op_set_cxx(_op: c_int, _proxy: usize) -> () { refused("the operators of MPICH's C++ bindings"); }
}

fn set(
    name: &'static str,
    on: fn(Handle) -> On,
    kind: HandleKind,
    object: c_int,
    keyval: c_int,
    bits: i64,
    language: c_int,
) -> c_int {
    let (object, keyval) = (translate::handle_from(object), translate::keyval_from(keyval));
    let body = |guard: &mut Guard| mpich_bindings::set_attribute(guard, kind, object, keyval, bits, language);
    translate::code_to(call(name, on(object), body))
}

fn get(
    name: &'static str,
    on: fn(Handle) -> On,
    kind: HandleKind,
    object: c_int,
    keyval: c_int,
    [to, flag]: [usize; 2],
    language: c_int,
) -> c_int {
    let (object, keyval) = (translate::handle_from(object), translate::keyval_from(keyval));
    let (to, flag) = (Out::new(to, "attribute_val"), Out::new(flag, "flag"));
    let body =
        |guard: &mut Guard| mpich_bindings::get_attribute(guard, kind, object, keyval, to, flag, language);
    translate::code_to(call(name, on(object), body))
}

/// Calls the error handler for a call of MPICH's function `name`, which Outboard lacks. Returns the error
/// code.
fn refused(name: &'static str) -> c_int {
    translate::code_to(anytime(name, On::Nothing, |_| mpich_bindings::refuse(name)))
}

// MPICH's extensions that Outboard has.
functions! {
    MPIX_Delete_error_class PMPIX_Delete_error_class(errorclass: c_int) -> c_int {
        // SAFETY: the arguments are those of the function's own (contract of this file); so below.
        unsafe { shim::PMPI_Remove_error_class(errorclass) }
    }
    MPIX_Delete_error_code PMPIX_Delete_error_code(errorcode: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Remove_error_code(errorcode) }
    }
    MPIX_Delete_error_string PMPIX_Delete_error_string(errorcode: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { shim::PMPI_Remove_error_string(errorcode) }
    }
    // abi/src/extension.rs answers for CUDA and HIP.
    MPIX_Query_ze_support PMPIX_Query_ze_support() -> c_int { 0 }
    MPIX_Comm_test_threadcomm PMPIX_Comm_test_threadcomm(_comm: c_int, flag: usize) -> c_int {
        no("MPIX_Comm_test_threadcomm", flag, "flag")
    }
    MPIX_Request_is_complete PMPIX_Request_is_complete(request: c_int) -> c_int {
        let mut complete = false;
        call("MPIX_Request_is_complete", On::Nothing, |guard| {
            complete = mpich_bindings::is_complete(guard, translate::handle_from(request));
            Ok(())
        });
        c_int::from(complete)
    }
    MPIX_Async_get_state PMPIX_Async_get_state(_thing: usize) -> usize {
        refused("MPIX_Async_get_state");
        0
    }
}

/// Makes an output parameter of `address`: a function for MPICH's streams stores a handle there, in MPICH's
/// form. `name` is the parameter's name.
fn out(address: usize, name: &'static str) -> Out<Handle> {
    Out::in_form(address, name, &translate::HANDLE)
}

use translate::code_to as code;

abi::stream_functions! {
    handle: c_int, from: translate::handle_from, to: translate::handle_to, out: out, shim: crate::shim
}

/// Stores 0 ("no") at the address `to`, the output parameter `what` of the function `name`. Returns the error
/// code.
fn no(name: &'static str, to: usize, what: &'static str) -> c_int {
    translate::code_to(anytime(name, On::Nothing, |_| Out::<i32>::new(to, what).set(0)))
}

/// Exports functions of MPICH that Outboard lacks. They fail whatever their arguments are.
macro_rules! refused {
    ($($name:ident $profiled:ident)*) => { functions! { $(
        $name $profiled() -> c_int { refused(stringify!($name)) }
    )* } };
}

// Fault tolerance, messages between streams of one comm, threads as ranks, callbacks with a state, progress
// threads, the blocks of a datatype.
refused! {
    MPIX_Async_spawn PMPIX_Async_spawn
    MPIX_Async_start PMPIX_Async_start
    MPIX_Comm_agree PMPIX_Comm_agree
    MPIX_Comm_create_errhandler_x PMPIX_Comm_create_errhandler_x
    MPIX_Comm_failure_ack PMPIX_Comm_failure_ack
    MPIX_Comm_failure_get_acked PMPIX_Comm_failure_get_acked
    MPIX_Comm_get_failed PMPIX_Comm_get_failed
    MPIX_Comm_revoke PMPIX_Comm_revoke
    MPIX_Comm_shrink PMPIX_Comm_shrink
    MPIX_File_create_errhandler_x PMPIX_File_create_errhandler_x
    MPIX_Grequest_class_allocate PMPIX_Grequest_class_allocate
    MPIX_Grequest_class_create PMPIX_Grequest_class_create
    MPIX_Grequest_start PMPIX_Grequest_start
    MPIX_Op_create_x PMPIX_Op_create_x
    MPIX_Session_create_errhandler_x PMPIX_Session_create_errhandler_x
    MPIX_Start_progress_thread PMPIX_Start_progress_thread
    MPIX_Stop_progress_thread PMPIX_Stop_progress_thread
    MPIX_Stream_irecv PMPIX_Stream_irecv
    MPIX_Stream_irecv_c PMPIX_Stream_irecv_c
    MPIX_Stream_isend PMPIX_Stream_isend
    MPIX_Stream_isend_c PMPIX_Stream_isend_c
    MPIX_Stream_recv PMPIX_Stream_recv
    MPIX_Stream_recv_c PMPIX_Stream_recv_c
    MPIX_Stream_send PMPIX_Stream_send
    MPIX_Stream_send_c PMPIX_Stream_send_c
    MPIX_Threadcomm_finish PMPIX_Threadcomm_finish
    MPIX_Threadcomm_free PMPIX_Threadcomm_free
    MPIX_Threadcomm_init PMPIX_Threadcomm_init
    MPIX_Threadcomm_start PMPIX_Threadcomm_start
    MPIX_Type_iov PMPIX_Type_iov
    MPIX_Type_iov_len PMPIX_Type_iov_len
    MPIX_Win_create_errhandler_x PMPIX_Win_create_errhandler_x
}
