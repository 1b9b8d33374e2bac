// SPDX-License-Identifier: BSD-3-Clause
//! Attributes of comms, datatypes and windows: sets, gets, copies and deletes them (MPI 5.0, section 7.7). A
//! keyval is the key of an attribute.

use crate::args::{Address, Callback, Handle, Out};
use crate::process::raise::from_callback;
use crate::process::{Guard, Process, callback};
use error::{Class, Result, fail};
use objects::{Attribute, AttributeValue, Attributes, HandleKind, Keyval, RegisteredKeyval, constants as c};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the attributes for a duplicate of `object`. The copy callback of each attribute decides whether
/// the duplicate gets the attribute, and its value there.
pub(crate) fn copy_all(guard: &mut Guard, kind: HandleKind, object: Handle) -> Result<Attributes> {
    let mut copies = Attributes::default();
    for attribute in attributes(guard, kind, object)?.all() {
        match callback::copy_attribute(guard, object, &attribute) {
            Ok(Some(value)) => copies.set(Attribute { value, ..attribute }),
            Ok(None) => {}
            Err(code) => from_callback("an attribute's copy function", code)?,
        }
    }
    Ok(copies)
}

/// Deletes all attributes of an object that is about to be freed; the attribute that was set last goes first.
/// If an attribute's delete callback fails, this attribute and all that are not deleted yet stay, and the
/// callback's error is returned.
pub(crate) fn delete_all(guard: &mut Guard, kind: HandleKind, object: Handle) -> Result<()> {
    // A callback may set or delete attributes of the object.
    while let Some(attribute) = attributes(guard, kind, object)?.last().cloned() {
        from_callback(
            "an attribute's delete function",
            callback::delete_attribute(guard, object, &attribute),
        )?;
        let number = attribute.number;
        attributes(guard, kind, object)?.remove(number);
        drop(attribute);
        forget(guard, number);
    }
    Ok(())
}

pub(crate) fn create(
    guard: &mut Guard,
    on: HandleKind,
    copy: Callback,
    delete: Callback,
    keyval: Out<i32>,
    extra_state: Address,
) -> Result<()> {
    keyval.check()?;
    let entry = Keyval { on, copy: copy.0, delete: delete.0, extra_state: extra_state.0, wrappers: None };
    keyval.set(
        guard.objects.keyvals.insert(RegisteredKeyval { keyval: Arc::new(entry), freed: false })?.to_int(),
    )
}

pub(crate) fn free(guard: &mut Guard, on: HandleKind, keyval: Out<i32>) -> Result<()> {
    let number = keyval.get()?;
    find(guard, on, number)?;
    guard.objects.keyvals.get_mut(Handle::from_int(number))?.freed = true;
    forget(guard, number);
    keyval.set(c::KEYVAL_INVALID)
}

/// Removes the keyval `number` if the program has freed it and no object has an attribute with it any more.
fn forget(process: &mut Process, number: i32) {
    let handle = Handle::from_int(number);
    let keyvals = &mut process.objects.keyvals;
    if keyvals.get(handle).is_ok_and(|entry| entry.freed && Arc::strong_count(&entry.keyval) == 1) {
        keyvals.remove(handle).expect("it was just found");
    }
}

fn find(process: &Process, on: HandleKind, number: i32) -> Result<Arc<Keyval>> {
    if (c::TAG_UB..=c::UNIVERSE_SIZE).contains(&number) {
        fail!(
            Class::Keyval,
            "keyval {number} is predefined: its attribute can only be read, and only on comms"
        );
    }
    if (c::WIN_BASE..=c::WIN_MODEL).contains(&number) {
        fail!(
            Class::Keyval,
            "keyval {number} is predefined: its attribute can only be read, and only on windows"
        );
    }
    let keyval = &process.objects.keyvals.get(Handle::from_int(number))?.keyval;
    if keyval.on != on {
        fail!(Class::Keyval, "keyval {number} was made for {}, not for {}", keyval.on.noun(), on.noun());
    }
    Ok(keyval.clone())
}

/// Sets the attribute of `object` with the program's keyval `number` to `value`. Deletes an old value first,
/// by the delete callback.
pub(crate) fn set(
    guard: &mut Guard,
    on: HandleKind,
    object: Handle,
    number: i32,
    value: AttributeValue,
) -> Result<()> {
    let keyval = find(guard, on, number)?;
    if let Some(old) = attributes(guard, on, object)?.get(number).cloned() {
        from_callback("an attribute's delete function", callback::delete_attribute(guard, object, &old))?;
    }
    attributes(guard, on, object)?.set(Attribute { number, keyval, value });
    Ok(())
}

pub(crate) fn get(
    guard: &mut Guard,
    on: HandleKind,
    object: Handle,
    number: i32,
    value: Address,
    flag: Out<i32>,
) -> Result<()> {
    match found(guard, on, object, number)? {
        Some(found) => {
            Out::<usize>::new(value.0, "attribute_val").set(found.pointer())?;
            flag.set(1)
        }
        None => flag.set(0),
    }
}

/// Returns the value of the attribute of `object` with the program's keyval `number`, or None if it is not
/// set.
pub(crate) fn found(
    guard: &mut Guard,
    on: HandleKind,
    object: Handle,
    number: i32,
) -> Result<Option<AttributeValue>> {
    find(guard, on, number)?;
    Ok(attributes(guard, on, object)?.get(number).map(|attribute| attribute.value.clone()))
}

pub(crate) fn delete(guard: &mut Guard, on: HandleKind, object: Handle, number: i32) -> Result<()> {
    find(guard, on, number)?;
    let Some(attribute) = attributes(guard, on, object)?.get(number).cloned() else {
        fail!(Class::Keyval, "{object} has no attribute for keyval {number}");
    };
    from_callback("an attribute's delete function", callback::delete_attribute(guard, object, &attribute))?;
    attributes(guard, on, object)?.remove(number);
    drop(attribute);
    forget(guard, number);
    Ok(())
}

fn attributes(process: &mut Process, on: HandleKind, object: Handle) -> Result<&mut Attributes> {
    match on {
        HandleKind::Comm => Ok(&mut process.objects.comms.get_mut(object)?.attributes),
        HandleKind::Datatype => Ok(&mut process.objects.datatypes.get_mut(object)?.attributes),
        HandleKind::Win => Ok(&mut process.job().windows.get_mut(object)?.attributes),
        _ => fail!(Class::UnsupportedOperation, "Outboard has no attributes on {}", on.noun()),
    }
}

/// Returns the address of the value of a predefined attribute of a comm or window. For MPI_WIN_BASE, returns
/// the value itself, which is an address.
pub(crate) fn predefined_value(guard: &mut Guard, object: Handle, keyval: i32) -> Result<usize> {
    match predefined(guard, object, keyval)? {
        Some(value) => Ok(value),
        None => Ok(guard.job().windows.get(object)?.predefined_attribute(keyval)),
    }
}

/// Returns the address of the value of a comm's predefined attribute (MPI 5.0, section 9.1.2). Returns None
/// if `keyval` is not the keyval of such an attribute.
pub(crate) fn predefined(guard: &mut Guard, comm: Handle, keyval: i32) -> Result<Option<usize>> {
    if !(c::TAG_UB..=c::UNIVERSE_SIZE).contains(&keyval) {
        return Ok(None);
    }
    guard.objects.comm(comm)?;
    let value = match keyval {
        c::TAG_UB => i32::MAX,
        c::IO => c::ANY_SOURCE,
        c::HOST => c::PROC_NULL,
        c::WTIME_IS_GLOBAL => 1,
        c::APPNUM => {
            let membership = guard.job().membership;
            membership.segment.rank(membership.rank).application.load(Ordering::Relaxed) as i32
        }
        c::LASTUSEDCODE => guard.objects.errors.last_used(),
        _ => settings::get().universe_size.unwrap_or(guard.job().membership.size.into()) as i32,
    };
    let slot = &mut guard.attribute_values[(keyval - c::TAG_UB) as usize];
    *slot = (crate::shim::get().attribute)(keyval, value);
    Ok(Some(&raw mut *slot as usize))
}
