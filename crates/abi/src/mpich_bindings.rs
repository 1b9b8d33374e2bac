// SPDX-License-Identifier: BSD-3-Clause
//! Functions that MPICH's bindings of other languages need (libmpichfort.so.12, libmpichcxx.so.12):
//! attributes as integers, and callbacks in the form of each language. The standard does not have these
//! functions. The MPICH shim, the C functions with MPICH's binary interface, exports them (`mpich/extra.rs`).

use crate::args::{Handle, Out};
use crate::attribute;
use crate::process::Guard;
use crate::request::Work;
use error::{Class, Result, fail};
pub use objects::HandleKind;
use objects::{AttributeValue, RegisteredKeyval, constants as c};
use std::sync::Arc;

/// MPICH's number for a language whose attributes are integers as wide as an address.
const ADDRESS: i32 = 1;
/// MPICH's number for a language whose attributes are C ints.
const INTEGER: i32 = 3;

/// Sets an attribute of an object to `bits`, like MPI_Comm_set_attr. `language` says how wide the value is.
pub fn set_attribute(
    guard: &mut Guard,
    on: HandleKind,
    object: Handle,
    keyval: i32,
    bits: i64,
    language: i32,
) -> Result<()> {
    let value = match language {
        ADDRESS => AttributeValue::Address(Arc::new(bits)),
        INTEGER => AttributeValue::Integer(Arc::new(i64::from(bits as i32))),
        _ => AttributeValue::Pointer(bits as usize),
    };
    attribute::set(guard, on, object, keyval, value)
}

/// Stores the value of an object's attribute, like MPI_Comm_get_attr, in the form of `language`. For a
/// predefined attribute Fortran gets the value, and C gets the address of the value.
pub fn get_attribute(
    guard: &mut Guard,
    on: HandleKind,
    object: Handle,
    keyval: i32,
    bits: Out<i64>,
    flag: Out<i32>,
    language: i32,
) -> Result<()> {
    let predefined = match on {
        HandleKind::Comm => (c::TAG_UB..=c::UNIVERSE_SIZE).contains(&keyval),
        HandleKind::Win => (c::WIN_BASE..=c::WIN_MODEL).contains(&keyval),
        _ => false,
    };
    let value = if predefined {
        let pointer = attribute::predefined_value(guard, object, keyval)?;
        Some(match keyval {
            // SAFETY: these values are of this type, and lie in memory of ours (MPI 5.0, section 12.2.6).
            c::WIN_SIZE => AttributeValue::Address(Arc::new(unsafe { (pointer as *const i64).read() })),
            c::WIN_BASE => AttributeValue::Pointer(pointer),
            // SAFETY: all other predefined values are ints, and lie in memory of ours.
            _ => AttributeValue::Integer(Arc::new(i64::from(unsafe { (pointer as *const i32).read() }))),
        })
    } else {
        attribute::found(guard, on, object, keyval)?
    };
    flag.set(i32::from(value.is_some()))?;
    let Some(value) = value else { return Ok(()) };
    bits.set(match language {
        ADDRESS => value.integer(),
        INTEGER => i64::from(value.integer() as i32),
        _ => value.pointer() as i64,
    })
}

/// Makes the library call a keyval's callbacks by way of two functions of a language's binding, one for
/// copies and one for deletions.
pub fn set_wrappers(guard: &mut Guard, keyval: i32, copy: usize, delete: usize) -> Result<()> {
    let RegisteredKeyval { keyval, .. } = guard.objects.keyvals.get_mut(Handle::from_int(keyval))?;
    Arc::make_mut(keyval).wrappers = Some((copy, delete));
    Ok(())
}

/// Records that the functions of the generalized request `request` have the Fortran form.
pub fn set_fortran(guard: &mut Guard, request: Handle) -> Result<()> {
    match &mut guard.job().requests.get_mut(request)?.work {
        Some(Work::Generalized { functions, .. }) => functions.is_fortran = true,
        _ => fail!(Class::Request, "{request} is not a generalized request"),
    }
    Ok(())
}

/// Whether a request is complete. Does not free the request, and makes no progress.
pub fn is_complete(guard: &mut Guard, request: Handle) -> bool {
    guard.peek(request).unwrap_or(false)
}

/// Makes one round of progress.
pub fn progress(guard: &mut Guard) {
    guard.progress();
}

/// Returns the error for a call of MPICH's function `name`, which this library does not have.
pub fn refuse(name: &str) -> Result<()> {
    fail!(
        Class::UnsupportedOperation,
        "{name} is an extension of MPICH that Outboard does not have; docs/later.md names those that it has"
    )
}
