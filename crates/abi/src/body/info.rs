// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make, change, read and free infos (MPI 5.0, chapter 10).

use crate::args::{Address, Handle, Out, Text, TextOut};
use crate::process::{Guard, environment};
use error::Result;
use objects::{Info, constants as c, info::check_key};

/// MPI_Info_create
pub fn info_create(guard: &mut Guard, info: Out<Handle>) -> Result<()> {
    enter_info(guard, Info::default(), info)
}

/// Stores a handle of the new info `new` for the program.
pub(crate) fn enter_info(guard: &mut Guard, new: Info, info: Out<Handle>) -> Result<()> {
    info.check()?;
    info.set(guard.objects.infos.insert(new)?)
}

/// MPI_Info_create_env: stores an info with the keys that MPI_INFO_ENV has after MPI_Init. The program's
/// arguments are read from /proc, not from `argc` and `argv`.
pub fn info_create_env(guard: &mut Guard, argc: i32, argv: Address, info: Out<Handle>) -> Result<()> {
    let _ = (argc, argv);
    enter_info(guard, environment(1), info)
}

/// MPI_Info_dup
pub fn info_dup(guard: &mut Guard, info: Handle, newinfo: Out<Handle>) -> Result<()> {
    let copy = guard.objects.infos.get(info)?.clone();
    enter_info(guard, copy, newinfo)
}

/// MPI_Info_free
pub fn info_free(guard: &mut Guard, info: Out<Handle>) -> Result<()> {
    guard.objects.infos.remove(info.get()?)?;
    info.set(c::INFO_NULL)
}

/// MPI_Info_set
pub fn info_set(guard: &mut Guard, info: Handle, key: Text, value: Text) -> Result<()> {
    guard.objects.infos.get_mut(info)?.set(&key.read()?, &value.read()?)
}

/// MPI_Info_delete
pub fn info_delete(guard: &mut Guard, info: Handle, key: Text) -> Result<()> {
    guard.objects.infos.get_mut(info)?.delete(&key.read()?)
}

/// MPI_Info_get: the length `valuelen` does not count the final zero.
pub fn info_get(
    guard: &mut Guard,
    info: Handle,
    key: Text,
    valuelen: i32,
    value: TextOut,
    flag: Out<i32>,
) -> Result<()> {
    let capacity = crate::args::length(valuelen, "valuelen")? + 1;
    match find(guard, info, key, flag)? {
        Some(found) => value.set(found, capacity).map(drop),
        None => Ok(()),
    }
}

/// MPI_Info_get_string: the length `buflen` counts the final zero. The call sets it to the length that the
/// value needs.
pub fn info_get_string(
    guard: &mut Guard,
    info: Handle,
    key: Text,
    buflen: Out<i32>,
    value: TextOut,
    flag: Out<i32>,
) -> Result<()> {
    let capacity = crate::args::length(buflen.get()?, "buflen")?;
    match find(guard, info, key, flag)? {
        Some(found) => {
            if capacity > 0 {
                value.set(found, capacity)?;
            }
            buflen.set(found.len() as i32 + 1)
        }
        None => Ok(()),
    }
}

/// MPI_Info_get_valuelen
pub fn info_get_valuelen(
    guard: &mut Guard,
    info: Handle,
    key: Text,
    valuelen: Out<i32>,
    flag: Out<i32>,
) -> Result<()> {
    match find(guard, info, key, flag)? {
        Some(found) => valuelen.set(found.len() as i32),
        None => Ok(()),
    }
}

/// MPI_Info_get_nkeys
pub fn info_get_nkeys(guard: &mut Guard, info: Handle, nkeys: Out<i32>) -> Result<()> {
    nkeys.set(guard.objects.infos.get(info)?.entries().len() as i32)
}

/// MPI_Info_get_nthkey
pub fn info_get_nthkey(guard: &mut Guard, info: Handle, n: i32, key: TextOut) -> Result<()> {
    key.set(guard.objects.infos.get(info)?.key(n)?, c::MAX_INFO_KEY as usize).map(drop)
}

fn find(guard: &Guard, info: Handle, key: Text, flag: Out<i32>) -> Result<Option<&str>> {
    let key = key.read()?;
    check_key(&key)?;
    let found = guard.objects.infos.get(info)?.get(&key);
    flag.set(i32::from(found.is_some()))?;
    Ok(found)
}
