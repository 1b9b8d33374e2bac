// SPDX-License-Identifier: BSD-3-Clause
//! Reading and setting the fields of a status (MPI 5.0, sections 3.2.5, 3.8.4, 5.1.11 and 13.3).

use crate::args::{Handle, Out, OutCount, StatusIn, StatusOut};
use crate::process::Guard;
use error::{Class, Result, fail};
use objects::constants as c;

/// MPI_Get_count: stores MPI_UNDEFINED if the message's bytes are not a whole number of elements.
pub fn get_count(guard: &mut Guard, status: StatusIn, datatype: Handle, count: OutCount) -> Result<()> {
    let bytes = status.get()?.bytes();
    count.set_or_undefined(guard.objects.datatype(datatype)?.count_of(bytes))
}

/// MPI_Get_elements
pub fn get_elements(guard: &mut Guard, status: StatusIn, datatype: Handle, count: OutCount) -> Result<()> {
    let bytes = status.get()?.bytes();
    count.set_or_undefined(guard.objects.datatype(datatype)?.elements_of(bytes))
}

/// MPI_Get_elements_x
pub fn get_elements_x(guard: &mut Guard, status: StatusIn, datatype: Handle, count: Out<i64>) -> Result<()> {
    get_elements(guard, status, datatype, OutCount::Long(count))
}

/// MPI_Status_set_elements
pub fn status_set_elements(guard: &mut Guard, status: StatusOut, datatype: Handle, count: i64) -> Result<()> {
    let count = crate::args::count(count, "count")?;
    let Some(bytes) = guard.objects.datatype(datatype)?.bytes_of_elements(count as u64) else {
        fail!(Class::Count, "{count} elements of {datatype} have no size");
    };
    status.change(|status| status.set_bytes(bytes))
}

/// MPI_Status_set_elements_x
pub fn status_set_elements_x(
    guard: &mut Guard,
    status: StatusOut,
    datatype: Handle,
    count: i64,
) -> Result<()> {
    status_set_elements(guard, status, datatype, count)
}

/// MPI_Status_set_cancelled
pub fn status_set_cancelled(_: &mut Guard, status: StatusOut, flag: i32) -> Result<()> {
    status.change(|status| status.set_cancelled(flag != 0))
}

/// MPI_Test_cancelled
pub fn test_cancelled(_: &mut Guard, status: StatusIn, flag: Out<i32>) -> Result<()> {
    flag.set(i32::from(status.get()?.is_cancelled()))
}

/// MPI_Status_get_source
pub fn status_get_source(_: &mut Guard, status: StatusIn, source: Out<i32>) -> Result<()> {
    source.set(status.get()?.source)
}

/// MPI_Status_get_tag
pub fn status_get_tag(_: &mut Guard, status: StatusIn, tag: Out<i32>) -> Result<()> {
    tag.set(status.get()?.tag)
}

/// MPI_Status_get_error
pub fn status_get_error(_: &mut Guard, status: StatusIn, error: Out<i32>) -> Result<()> {
    error.set(status.get()?.error)
}

/// MPI_Status_set_source
pub fn status_set_source(_: &mut Guard, status: StatusOut, source: i32) -> Result<()> {
    if source < 0 && ![c::ANY_SOURCE, c::PROC_NULL, c::ROOT].contains(&source) {
        fail!(Class::Rank, "source is {source}, which no message has");
    }
    status.change(|status| status.source = source)
}

/// MPI_Status_set_tag
pub fn status_set_tag(_: &mut Guard, status: StatusOut, tag: i32) -> Result<()> {
    status.change(|status| status.tag = tag)
}

/// MPI_Status_set_error
pub fn status_set_error(_: &mut Guard, status: StatusOut, error: i32) -> Result<()> {
    status.change(|status| status.error = error)
}
