// SPDX-License-Identifier: BSD-3-Clause
//! Keyvals (the keys of attributes), and attributes of comms, datatypes and windows (MPI 5.0, section 7.7).

use crate::args::{Address, Callback, Handle, Out};
use crate::attribute::{create, delete, free, get, predefined, predefined_value, set};
use crate::process::Guard;
use error::Result;
use objects::{AttributeValue, HandleKind, constants as c};

/// MPI_Comm_create_keyval
pub fn comm_create_keyval(
    guard: &mut Guard,
    copy: Callback,
    delete: Callback,
    keyval: Out<i32>,
    extra_state: Address,
) -> Result<()> {
    create(guard, HandleKind::Comm, copy, delete, keyval, extra_state)
}

/// MPI_Keyval_create, deprecated: makes a keyval for attributes of comms.
pub fn keyval_create(
    guard: &mut Guard,
    copy: Callback,
    delete: Callback,
    keyval: Out<i32>,
    extra_state: Address,
) -> Result<()> {
    create(guard, HandleKind::Comm, copy, delete, keyval, extra_state)
}

/// MPI_Type_create_keyval
pub fn type_create_keyval(
    guard: &mut Guard,
    copy: Callback,
    delete: Callback,
    keyval: Out<i32>,
    extra_state: Address,
) -> Result<()> {
    create(guard, HandleKind::Datatype, copy, delete, keyval, extra_state)
}

/// MPI_Win_create_keyval
pub fn win_create_keyval(
    guard: &mut Guard,
    copy: Callback,
    delete: Callback,
    keyval: Out<i32>,
    extra_state: Address,
) -> Result<()> {
    create(guard, HandleKind::Win, copy, delete, keyval, extra_state)
}

/// MPI_Comm_free_keyval
pub fn comm_free_keyval(guard: &mut Guard, keyval: Out<i32>) -> Result<()> {
    free(guard, HandleKind::Comm, keyval)
}

/// MPI_Keyval_free, deprecated.
pub fn keyval_free(guard: &mut Guard, keyval: Out<i32>) -> Result<()> {
    free(guard, HandleKind::Comm, keyval)
}

/// MPI_Type_free_keyval
pub fn type_free_keyval(guard: &mut Guard, keyval: Out<i32>) -> Result<()> {
    free(guard, HandleKind::Datatype, keyval)
}

/// MPI_Win_free_keyval
pub fn win_free_keyval(guard: &mut Guard, keyval: Out<i32>) -> Result<()> {
    free(guard, HandleKind::Win, keyval)
}

/// MPI_Comm_set_attr
pub fn comm_set_attr(guard: &mut Guard, comm: Handle, keyval: i32, value: Address) -> Result<()> {
    set(guard, HandleKind::Comm, comm, keyval, AttributeValue::Pointer(value.0))
}

/// MPI_Attr_put, deprecated.
pub fn attr_put(guard: &mut Guard, comm: Handle, keyval: i32, value: Address) -> Result<()> {
    set(guard, HandleKind::Comm, comm, keyval, AttributeValue::Pointer(value.0))
}

/// MPI_Type_set_attr
pub fn type_set_attr(guard: &mut Guard, datatype: Handle, keyval: i32, value: Address) -> Result<()> {
    set(guard, HandleKind::Datatype, datatype, keyval, AttributeValue::Pointer(value.0))
}

/// MPI_Comm_get_attr
pub fn comm_get_attr(
    guard: &mut Guard,
    comm: Handle,
    keyval: i32,
    value: Address,
    flag: Out<i32>,
) -> Result<()> {
    if let Some(found) = predefined(guard, comm, keyval)? {
        Out::<usize>::new(value.0, "attribute_val").set(found)?;
        return flag.set(1);
    }
    get(guard, HandleKind::Comm, comm, keyval, value, flag)
}

/// MPI_Attr_get, deprecated.
pub fn attr_get(guard: &mut Guard, comm: Handle, keyval: i32, value: Address, flag: Out<i32>) -> Result<()> {
    comm_get_attr(guard, comm, keyval, value, flag)
}

/// MPI_Type_get_attr
pub fn type_get_attr(
    guard: &mut Guard,
    datatype: Handle,
    keyval: i32,
    value: Address,
    flag: Out<i32>,
) -> Result<()> {
    get(guard, HandleKind::Datatype, datatype, keyval, value, flag)
}

/// MPI_Comm_delete_attr
pub fn comm_delete_attr(guard: &mut Guard, comm: Handle, keyval: i32) -> Result<()> {
    delete(guard, HandleKind::Comm, comm, keyval)
}

/// MPI_Attr_delete, deprecated.
pub fn attr_delete(guard: &mut Guard, comm: Handle, keyval: i32) -> Result<()> {
    delete(guard, HandleKind::Comm, comm, keyval)
}

/// MPI_Type_delete_attr
pub fn type_delete_attr(guard: &mut Guard, datatype: Handle, keyval: i32) -> Result<()> {
    delete(guard, HandleKind::Datatype, datatype, keyval)
}

/// MPI_Win_set_attr
pub fn win_set_attr(guard: &mut Guard, win: Handle, keyval: i32, value: Address) -> Result<()> {
    set(guard, HandleKind::Win, win, keyval, AttributeValue::Pointer(value.0))
}

/// MPI_Win_get_attr
pub fn win_get_attr(
    guard: &mut Guard,
    win: Handle,
    keyval: i32,
    value: Address,
    flag: Out<i32>,
) -> Result<()> {
    if (c::WIN_BASE..=c::WIN_MODEL).contains(&keyval) {
        let found = predefined_value(guard, win, keyval)?;
        Out::<usize>::new(value.0, "attribute_val").set(found)?;
        return flag.set(1);
    }
    get(guard, HandleKind::Win, win, keyval, value, flag)
}

/// MPI_Win_delete_attr
pub fn win_delete_attr(guard: &mut Guard, win: Handle, keyval: i32) -> Result<()> {
    delete(guard, HandleKind::Win, win, keyval)
}
