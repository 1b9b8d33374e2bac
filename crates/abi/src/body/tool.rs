// SPDX-License-Identifier: BSD-3-Clause
//! The tool information interface (MPI 5.0, section 15.3): its start and end, enumerations, and control
//! variables. Each setting of Outboard (an environment variable) is a control variable.
//!
//! Tools may call before MPI_Init and after MPI_Finalize. These calls return their error codes, and call no
//! error handler (section 15.3.10). Read next: `tool_pvars.rs`, `tool_categories.rs`.

use crate::args::{Address, Handle, Out, Text, TextOut};
use crate::process::{Guard, Tool};
use error::{Class, Error, Result};
use objects::constants as c;
use settings::{Setting, SettingKind, TABLE};

/// The number that is added to an index to make a handle, so that no handle of MPI_T equals a null handle or
/// MPI_T_PVAR_ALL_HANDLES.
pub(super) const HANDLE_OFFSET: usize = 16;

pub(super) fn wrong<T>(code: i32, sentence: &str) -> Result<T> {
    Err(Error::new(Class::Other, sentence.to_owned()).with_code(code))
}

/// Stores a result, or does nothing if the pointer is null. Tools may pass null for most results.
pub(super) fn store_unless_null<T: Copy>(out: Out<T>, value: T) -> Result<()> {
    if out.is_null() { Ok(()) } else { out.set(value) }
}

pub(super) fn store_handle(out: Address, value: usize) -> Result<()> {
    store_unless_null(Out::new(out.0, "a handle"), value)
}

/// Stores a string in `buffer`, whose length is in `length`. Then stores in `length` how many bytes were
/// stored, with the final zero. Without a buffer, stores the length of the whole string (MPI 5.0, section
/// 15.3.3).
pub(super) fn store_text(text: &str, buffer: TextOut, length: Out<i32>) -> Result<()> {
    if length.is_null() {
        return Ok(());
    }
    let capacity = length.get()?.max(0) as usize;
    let used = if buffer.is_null() || capacity == 0 { text.len() } else { buffer.set(text, capacity)? };
    length.set(used as i32 + 1)
}

pub(super) fn find<T>(all: &[T], index: i32) -> Result<&T> {
    match usize::try_from(index).ok().and_then(|index| all.get(index)) {
        Some(found) => Ok(found),
        None => wrong(c::T_ERR_INVALID_INDEX, "there is no such index"),
    }
}

pub(super) fn index_by_name<T>(
    all: &[T],
    name: Text,
    index: Out<i32>,
    of: impl Fn(&T) -> &str,
) -> Result<()> {
    if index.is_null() {
        return wrong(c::T_ERR_INVALID, "the index is a null pointer");
    }
    let Ok(name) = name.read() else { return wrong(c::T_ERR_INVALID, "the name is a null pointer") };
    match all.iter().position(|item| of(item) == name) {
        Some(at) => index.set(at as i32),
        None => wrong(c::T_ERR_INVALID_NAME, "there is nothing of this name"),
    }
}

/// MPI_T_init_thread: a tool may call in a thread of its own if it asks for more than MPI_THREAD_SINGLE. From
/// then on each call takes the lock.
pub fn t_init_thread(guard: &mut Guard, required: i32, provided: Out<i32>) -> Result<()> {
    let level = required.clamp(c::THREAD_SINGLE, c::THREAD_MULTIPLE);
    store_unless_null(provided, level)?;
    guard.tool.uses += 1;
    guard.tool.thread_level = guard.tool.thread_level.max(level);
    guard.decide_locking();
    Ok(())
}

/// MPI_T_finalize
pub fn t_finalize(guard: &mut Guard) -> Result<()> {
    guard.tool.uses -= 1;
    if guard.tool.uses == 0 {
        guard.tool = Tool::default();
        guard.decide_locking();
    }
    Ok(())
}

// Enumerations: the settings that are a choice.

/// MPI_T_enum_get_info
pub fn t_enum_get_info(
    _: &mut Guard,
    enumtype: Address,
    num: Out<i32>,
    name: TextOut,
    name_len: Out<i32>,
) -> Result<()> {
    let (setting, choices) = choice(enumtype)?;
    store_unless_null(num, choices.len() as i32)?;
    store_text(setting.name, name, name_len)
}

/// MPI_T_enum_get_item
#[rustfmt::skip]
pub fn t_enum_get_item(
    _: &mut Guard, enumtype: Address, indx: i32, value: Out<i32>, name: TextOut, name_len: Out<i32>,
) -> Result<()> {
    let (_, choices) = choice(enumtype)?;
    let Ok(item) = find(choices, indx) else {
        return wrong(c::T_ERR_INVALID_ITEM, "the enumeration has no such item");
    };
    store_unless_null(value, indx)?;
    store_text(item, name, name_len)
}

fn choice(enumtype: Address) -> Result<(&'static Setting, &'static [&'static str])> {
    let setting = enumtype.0.checked_sub(HANDLE_OFFSET).and_then(|at| cvars().into_iter().nth(at));
    match setting.map(|setting| (setting, setting.kind)) {
        Some((setting, SettingKind::Choice(choices))) => Ok((setting, choices)),
        _ => wrong(c::T_ERR_INVALID_HANDLE, "there is no such enumeration"),
    }
}

// Control variables: the settings that users may set. Settings are read once, so none can be written.

pub(super) fn cvars() -> Vec<&'static Setting> {
    TABLE.iter().filter(|setting| !setting.internal).collect()
}

/// The value of a setting as a tool reads it. For a setting with a list of choices this is the choice's
/// index.
enum SettingValue {
    Number(u64),
    Choice(i32),
    Text(String),
}

fn value_of(setting: &Setting) -> SettingValue {
    let text = settings::text_in_environment(setting).unwrap_or_else(|| setting.default.to_owned());
    match setting.kind {
        SettingKind::Choice(choices) => {
            SettingValue::Choice(choices.iter().position(|choice| *choice == text).map_or(-1, |at| at as i32))
        }
        // A setting with an empty default has no number for that default.
        kind if !setting.default.is_empty() => {
            kind.number(&text).map_or(SettingValue::Text(text), SettingValue::Number)
        }
        _ => SettingValue::Text(text),
    }
}

/// MPI_T_cvar_get_num
pub fn t_cvar_get_num(_: &mut Guard, num_cvar: Out<i32>) -> Result<()> {
    store_unless_null(num_cvar, cvars().len() as i32)
}

/// MPI_T_cvar_get_info
#[rustfmt::skip]
pub fn t_cvar_get_info(
    _: &mut Guard, cvar_index: i32, name: TextOut, name_len: Out<i32>, verbosity: Out<i32>,
    datatype: Out<Handle>, enumtype: Address, desc: TextOut, desc_len: Out<i32>, bind: Out<i32>,
    scope: Out<i32>,
) -> Result<()> {
    let cvars = cvars();
    let setting = *find(&cvars, cvar_index)?;
    let (kind, number) = match value_of(setting) {
        SettingValue::Number(_) => (c::UNSIGNED_LONG_LONG, c::T_ENUM_NULL),
        SettingValue::Choice(_) => (c::INT, HANDLE_OFFSET + cvar_index as usize),
        SettingValue::Text(_) => (c::CHAR, c::T_ENUM_NULL),
    };
    store_text(setting.name, name, name_len)?;
    store_text(setting.doc, desc, desc_len)?;
    store_unless_null(verbosity, c::T_VERBOSITY_USER_BASIC)?;
    store_unless_null(datatype, kind)?;
    store_handle(enumtype, number)?;
    store_unless_null(bind, c::T_BIND_NO_OBJECT)?;
    store_unless_null(scope, c::T_SCOPE_CONSTANT)
}

/// MPI_T_cvar_get_index
pub fn t_cvar_get_index(_: &mut Guard, name: Text, cvar_index: Out<i32>) -> Result<()> {
    index_by_name(&cvars(), name, cvar_index, |setting| setting.name)
}

/// MPI_T_cvar_handle_alloc
#[rustfmt::skip]
pub fn t_cvar_handle_alloc(
    guard: &mut Guard, cvar_index: i32, _obj_handle: Address, handle: Address, count: Out<i32>,
) -> Result<()> {
    let cvars = cvars();
    let setting = *find(&cvars, cvar_index)?;
    let elements =
        if let SettingValue::Text(text) = value_of(setting) { text.len() as i32 + 1 } else { 1 };
    store_unless_null(count, elements)?;
    let at = guard.tool.cvars.insert(cvar_index as usize);
    store_handle(handle, HANDLE_OFFSET + at)
}

/// MPI_T_cvar_handle_free
pub fn t_cvar_handle_free(guard: &mut Guard, handle: Address) -> Result<()> {
    cvar(guard, handle_in(handle)?)?;
    guard.tool.cvars.remove(handle_in(handle)?.0 - HANDLE_OFFSET);
    store_handle(handle, c::T_CVAR_HANDLE_NULL)
}

/// MPI_T_cvar_read
pub fn t_cvar_read(guard: &mut Guard, handle: Address, buf: Address) -> Result<()> {
    match value_of(cvar(guard, handle)?) {
        SettingValue::Number(number) => Out::new(buf.0, "buf").set(number),
        SettingValue::Choice(at) => Out::new(buf.0, "buf").set(at),
        SettingValue::Text(text) => TextOut::new(buf.0, "buf").set(&text, text.len() + 1).map(|_| ()),
    }
}

/// MPI_T_cvar_write
pub fn t_cvar_write(guard: &mut Guard, handle: Address, _buf: Address) -> Result<()> {
    cvar(guard, handle)?;
    wrong(c::T_ERR_CVAR_SET_NEVER, "settings are read from the environment once, and cannot be changed")
}

/// Returns the handle that is stored in the program's variable at the address `variable`.
pub(super) fn handle_in(variable: Address) -> Result<Address> {
    Ok(Address(Out::<usize>::new(variable.0, "handle").get()?))
}

fn cvar(guard: &Guard, handle: Address) -> Result<&'static Setting> {
    match handle.0.checked_sub(HANDLE_OFFSET).and_then(|at| guard.tool.cvars.get(at)) {
        Some(index) => Ok(cvars()[*index]),
        None => wrong(c::T_ERR_INVALID_HANDLE, "this is not a handle of a control variable"),
    }
}
