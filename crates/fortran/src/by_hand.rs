// SPDX-License-Identifier: BSD-3-Clause
//! Fortran procedures that are not generated: those without a C function, and those that MPI-2.0 deprecated.

use crate::section::Descriptor;
use crate::{attribute, c, callback, fault, logical};
use std::ffi::c_void;

/// Exports each procedure under its MPI and PMPI names. References are Fortran's arguments, which are valid
/// (see the contract in `lib.rs`).
macro_rules! procedures {
    ($($(#[$doc:meta])* $body:ident($($argument:ident: $kind:ty),*) as $($name:ident)* $inside:block)*) => {$(
        $(#[$doc])*
        fn $body($($argument: $kind),*) $inside
        names!($body ($($argument: $kind),*) $($name)*);
    )*};
}

macro_rules! names {
    ($body:ident $arguments:tt $($name:ident)*) => { $( names!(@ $body $name $arguments); )* };
    (@ $body:ident $name:ident ($($argument:ident: $kind:ty),*)) => {
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)] // As Fortran compilers write it, or the binding label.
        pub extern "C" fn $name($($argument: $kind),*) {
            $body($($argument),*);
        }
    };
}

procedures! {
    /// MPI_STATUS_F2F08 and MPI_STATUS_F082F: copies a status, which has one form in `mpif.h` and in
    /// `mpi_f08`.
    status_copy(from: &[i32; c::STATUS_INTS], to: &mut [i32; c::STATUS_INTS], ierror: *mut i32)
    as mpi_status_f2f08_ pmpi_status_f2f08_ mpi_status_f2f08_f08_ pmpi_status_f2f08_f08_
       mpi_status_f082f_ pmpi_status_f082f_ mpi_status_f082f_f08_ pmpi_status_f082f_f08_ {
        *to = *from;
        fault::end(ierror, c::SUCCESS);
    }

    /// MPI_SIZEOF: stores the size in bytes of a variable, or of one element of an array.
    sizeof(variable: &Descriptor, size: &mut i32, ierror: *mut i32)
    as MPI_Sizeof_fts MPI_Sizeof_f08ts {
        *size = variable.element_bytes as i32;
        fault::end(ierror, c::SUCCESS);
    }

    /// MPI_F_SYNC_REG: does nothing. The call only makes the compiler assume that the buffer may have
    /// changed.
    sync_reg(_buffer: *const c_void)
    as mpi_f_sync_reg_ pmpi_f_sync_reg_ MPI_F_sync_reg_f08ts PMPI_F_sync_reg_f08ts {}

    /// MPI_ATTR_PUT (deprecated): stores an INTEGER as an attribute of a comm.
    attr_put(comm: &i32, keyval: &i32, value: &i32, ierror: *mut i32) as mpi_attr_put_ pmpi_attr_put_ {
        // SAFETY: C takes every number.
        let comm = unsafe { c::MPI_Comm_fromint(*comm) };
        // SAFETY: C checks the handle and the key.
        let code = unsafe { c::MPI_Comm_set_attr(comm, *keyval, attribute::store((*value).into())) };
        fault::end(ierror, code);
    }

    /// MPI_ATTR_GET (deprecated): reads an attribute of a comm as an INTEGER.
    attr_get(comm: &i32, keyval: &i32, value: &mut i32, flag: &mut i32, ierror: *mut i32)
    as mpi_attr_get_ pmpi_attr_get_ {
        let (mut pointer, mut found) = (std::ptr::null_mut::<c_void>(), 0);
        let keyval = attribute::key(*keyval);
        // SAFETY: C takes every number.
        let comm = unsafe { c::MPI_Comm_fromint(*comm) };
        // SAFETY: C checks the handle and the key.
        let code = unsafe { c::MPI_Comm_get_attr(comm, keyval, (&raw mut pointer).cast(), &mut found) };
        if code == c::SUCCESS && found != 0 {
            *value = attribute::load(keyval, pointer) as i32;
        }
        *flag = logical::from_c(found);
        fault::end(ierror, code);
    }

    /// MPI_ATTR_DELETE (deprecated): does what MPI_Comm_delete_attr does.
    attr_delete(comm: &i32, keyval: &i32, ierror: *mut i32) as mpi_attr_delete_ pmpi_attr_delete_ {
        // SAFETY: C takes every number.
        let comm = unsafe { c::MPI_Comm_fromint(*comm) };
        // SAFETY: C checks the handle and the key.
        let code = unsafe { c::MPI_Comm_delete_attr(comm, *keyval) };
        fault::end(ierror, code);
    }

    /// MPI_KEYVAL_CREATE (deprecated): makes a keyval for INTEGER attributes of comms.
    keyval_create(copy: usize, delete: usize, keyval: &mut i32, state: &i32, ierror: *mut i32)
    as mpi_keyval_create_ pmpi_keyval_create_ {
        let state = callback::narrow_state(&[copy, delete], *state);
        let copy = match copy {
            _ if copy == mpi_null_copy_fn_ as *const () as usize => 0,
            _ if copy == mpi_dup_fn_ as *const () as usize => callback::dup(),
            _ => callback::comm_copy_attr(copy),
        };
        let is_null = delete == mpi_null_delete_fn_ as *const () as usize;
        let delete = if is_null { 0 } else { callback::comm_delete_attr(delete) };
        // SAFETY: functions of this library with their state.
        let code = unsafe { c::MPI_Comm_create_keyval(copy, delete, keyval, state) };
        fault::end(ierror, code);
    }

    /// MPI_KEYVAL_FREE (deprecated): does what MPI_Comm_free_keyval does.
    keyval_free(keyval: &mut i32, ierror: *mut i32) as mpi_keyval_free_ pmpi_keyval_free_ {
        // SAFETY: C checks the key.
        let code = unsafe { c::MPI_Comm_free_keyval(keyval) };
        fault::end(ierror, code);
    }

    /// MPI_NULL_COPY_FN: a predefined copy procedure for MPI_KEYVAL_CREATE, which copies nothing.
    null_copy(_a: &i32, _b: &i32, _c: &i32, _old: &i32, _new: *mut i32, flag: &mut i32, code: &mut i32)
    as mpi_null_copy_fn_ {
        *flag = 0;
        *code = c::SUCCESS;
    }

    /// MPI_DUP_FN: a predefined copy procedure for MPI_KEYVAL_CREATE, which copies the value.
    dup(_a: &i32, _b: &i32, _c: &i32, old: &i32, new: &mut i32, flag: &mut i32, code: &mut i32)
    as mpi_dup_fn_ {
        *new = *old;
        *flag = 1;
        *code = c::SUCCESS;
    }

    /// MPI_NULL_DELETE_FN: a predefined delete procedure for MPI_KEYVAL_CREATE, which does nothing.
    null_delete(_a: &i32, _b: &i32, _value: &i32, _state: &i32, code: &mut i32) as mpi_null_delete_fn_ {
        *code = c::SUCCESS;
    }
}

#[cfg(mpich)]
names!(status_copy (from: &[i32; c::STATUS_INTS], to: &mut [i32; c::STATUS_INTS], ierror: *mut i32)
    __mpi_f08_types_MOD_mpi_status_f2f08 __mpi_f08_types_MOD_mpi_status_f082f);

/// Exports the functions of Fortran's operators `==` and `/=` on handles, two for each type of handle.
macro_rules! comparisons {
    ($($equal:ident $unequal:ident)*) => { $(
        #[doc = "Whether two handles are the same."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $equal(left: &i32, right: &i32) -> i32 {
            logical::from_c((left == right).into())
        }
        #[doc = "Whether two handles differ."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $unequal(left: &i32, right: &i32) -> i32 {
            logical::from_c((left != right).into())
        }
    )* };
}

#[cfg(not(mpich))]
comparisons! {
    mpi_comm_eq_ mpi_comm_ne_
    mpi_datatype_eq_ mpi_datatype_ne_
    mpi_errhandler_eq_ mpi_errhandler_ne_
    mpi_file_eq_ mpi_file_ne_
    mpi_group_eq_ mpi_group_ne_
    mpi_info_eq_ mpi_info_ne_
    mpi_message_eq_ mpi_message_ne_
    mpi_op_eq_ mpi_op_ne_
    mpi_request_eq_ mpi_request_ne_
    mpi_session_eq_ mpi_session_ne_
    mpi_win_eq_ mpi_win_ne_
}

#[cfg(mpich)]
comparisons! {
    __mpi_f08_types_MOD_mpi_comm_eq __mpi_f08_types_MOD_mpi_comm_neq
    __mpi_f08_types_MOD_mpi_datatype_eq __mpi_f08_types_MOD_mpi_datatype_neq
    __mpi_f08_types_MOD_mpi_errhandler_eq __mpi_f08_types_MOD_mpi_errhandler_neq
    __mpi_f08_types_MOD_mpi_file_eq __mpi_f08_types_MOD_mpi_file_neq
    __mpi_f08_types_MOD_mpi_group_eq __mpi_f08_types_MOD_mpi_group_neq
    __mpi_f08_types_MOD_mpi_info_eq __mpi_f08_types_MOD_mpi_info_neq
    __mpi_f08_types_MOD_mpi_message_eq __mpi_f08_types_MOD_mpi_message_neq
    __mpi_f08_types_MOD_mpi_op_eq __mpi_f08_types_MOD_mpi_op_neq
    __mpi_f08_types_MOD_mpi_request_eq __mpi_f08_types_MOD_mpi_request_neq
    __mpi_f08_types_MOD_mpi_session_eq __mpi_f08_types_MOD_mpi_session_neq
    __mpi_f08_types_MOD_mpi_win_eq __mpi_f08_types_MOD_mpi_win_neq
}
