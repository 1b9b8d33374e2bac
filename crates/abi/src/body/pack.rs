// SPDX-License-Identifier: BSD-3-Clause
//! Packs elements of a datatype into contiguous bytes, and unpacks them (MPI 5.0, sections 5.2 and 5.3).

use crate::args::{Address, Handle, OutCount, Text, claim_buffer, count};
use crate::process::Guard;
use crate::staging::{self, Fill};
use datatype::{Buffer, Datatype, predefined};
use error::{Class, Result, fail};
use objects::constants::BYTE;
use sys::Span;

/// MPI_Pack: packs the data bytes without a header, in the order of the typemap.
pub fn pack(
    guard: &mut Guard,
    inbuf: Address,
    incount: i64,
    datatype: Handle,
    outbuf: Address,
    outsize: i64,
    position: OutCount,
    comm: Handle,
) -> Result<()> {
    guard.objects.comm(comm)?;
    let data = guard.buffer(inbuf, incount, datatype)?;
    staging::reads(&data);
    let (packed, next) = packed_range(outbuf, outsize, position, data.bytes() as u64, "outsize")?;
    data.pack(0, packed);
    position.set(next)
}

/// MPI_Unpack
pub fn unpack(
    guard: &mut Guard,
    inbuf: Address,
    insize: i64,
    position: OutCount,
    outbuf: Address,
    outcount: i64,
    datatype: Handle,
    comm: Handle,
) -> Result<()> {
    guard.objects.comm(comm)?;
    let data = guard.buffer(outbuf, outcount, datatype)?;
    let (packed, next) = packed_range(inbuf, insize, position, data.bytes() as u64, "insize")?;
    staging::reads(&Buffer::from(packed));
    data.unpack(0, packed);
    position.set(next)
}

/// MPI_Pack_size
pub fn pack_size(
    guard: &mut Guard,
    incount: i64,
    datatype: Handle,
    comm: Handle,
    size: OutCount,
) -> Result<()> {
    guard.objects.comm(comm)?;
    let described = guard.objects.committed(datatype)?;
    match Buffer::bytes_of(count(incount, "incount")?, described.layout()) {
        Some(bytes) => size.set(bytes as i64),
        None => too_large(incount, datatype),
    }
}

/// MPI_Pack_external
pub fn pack_external(
    guard: &mut Guard,
    datarep: Text,
    inbuf: Address,
    incount: i64,
    datatype: Handle,
    outbuf: Address,
    outsize: i64,
    position: OutCount,
) -> Result<()> {
    check_representation(datarep)?;
    let described = guard.objects.committed(datatype)?.clone();
    let data = guard.buffer(inbuf, incount, datatype)?;
    staging::reads(&data);
    let bytes = external_bytes(&described, incount, datatype)?;
    let (packed, next) = packed_range(outbuf, outsize, position, bytes, "outsize")?;
    datatype::pack_external32(&data, &described, incount as u64, packed)?;
    position.set(next)
}

/// MPI_Unpack_external
pub fn unpack_external(
    guard: &mut Guard,
    datarep: Text,
    inbuf: Address,
    insize: i64,
    position: OutCount,
    outbuf: Address,
    outcount: i64,
    datatype: Handle,
) -> Result<()> {
    check_representation(datarep)?;
    let described = guard.objects.committed(datatype)?.clone();
    let data = guard.buffer(outbuf, outcount, datatype)?;
    let bytes = external_bytes(&described, outcount, datatype)?;
    let (packed, next) = packed_range(inbuf, insize, position, bytes, "insize")?;
    staging::reads(&Buffer::from(packed));
    datatype::unpack_external32(packed, &data, &described, outcount as u64)?;
    position.set(next)
}

/// MPI_Pack_external_size
pub fn pack_external_size(
    guard: &mut Guard,
    datarep: Text,
    incount: i64,
    datatype: Handle,
    size: OutCount,
) -> Result<()> {
    check_representation(datarep)?;
    count(incount, "incount")?;
    let described = guard.objects.committed(datatype)?.clone();
    size.set(external_bytes(&described, incount, datatype)? as i64)
}

/// Returns the `bytes` bytes at `position` in a packed buffer of `size` bytes, and the position behind these
/// bytes.
fn packed_range(
    address: Address,
    size: i64,
    position: OutCount,
    bytes: u64,
    name: &str,
) -> Result<(Span, i64)> {
    let at = position.get()?;
    let size = count(size, name)? as u64;
    let Ok(start) = u64::try_from(at) else { fail!(Class::Arg, "position is {at}, which is negative") };
    let Some(end) = start.checked_add(bytes).filter(|end| *end <= size) else {
        fail!(Class::Truncate, "{bytes} bytes from position {at} on go beyond {name}, which is {size}");
    };
    if bytes > 0 && address.is_null() {
        fail!(Class::Buffer, "the packed buffer is null, but {bytes} bytes are to be moved");
    }
    let layout = predefined(BYTE.0 as u32).expect("MPI_BYTE is predefined").layout();
    let part = Address(address.0.wrapping_add(start as usize));
    let span = claim_buffer(part, bytes as usize, bytes as usize, layout, Fill::Now)?.contiguous();
    Ok((span.expect("bytes have no gaps"), end as i64))
}

fn external_bytes(described: &Datatype, elements: i64, datatype: Handle) -> Result<u64> {
    let bytes = datatype::external32_size(described, count(elements, "the number of elements")? as u64);
    match bytes.filter(|bytes| *bytes <= i64::MAX as u64) {
        Some(bytes) => Ok(bytes),
        None => too_large(elements, datatype),
    }
}

fn check_representation(datarep: Text) -> Result<()> {
    let name = datarep.read()?;
    if name != "external32" {
        fail!(
            Class::UnsupportedDatarep,
            "the data representation \"{name}\" is not known; it must be \"external32\""
        );
    }
    Ok(())
}

fn too_large<T>(elements: i64, datatype: Handle) -> Result<T> {
    fail!(Class::Count, "{elements} elements of {datatype} are more than memory can hold")
}
