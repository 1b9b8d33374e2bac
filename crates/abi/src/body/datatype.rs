// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make datatypes and inquire about them (MPI 5.0, section 5.1). Packing is in `pack.rs`.
//!
//! A datatype records whether a call with or without the suffix `_c` made it, because MPI_Type_get_envelope
//! reports that. A call without an array argument cannot tell its two forms apart, so its `_c` form is a
//! function of its own here.

use crate::args::{self, Array, Counts, Handle, In, Out, OutCount, Text, TextOut, length};
use crate::attribute;
use crate::process::Guard;
use datatype::{Combiner, Datatype, Distribution, Recipe, Width};
use error::{Class, Result, fail};
use objects::{HandleKind, TypeEntry, constants as c};
use std::sync::Arc;

/// MPI_Type_contiguous
pub fn type_contiguous(guard: &mut Guard, count: i64, oldtype: Handle, newtype: Out<Handle>) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::contiguous(Width::Int, count, old))
}

/// MPI_Type_contiguous_c
pub fn type_contiguous_c(guard: &mut Guard, count: i64, oldtype: Handle, newtype: Out<Handle>) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::contiguous(Width::Count, count, old))
}

/// MPI_Type_vector
pub fn type_vector(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::vector(Width::Int, count, blocklength, stride, old))
}

/// MPI_Type_vector_c
pub fn type_vector_c(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::vector(Width::Count, count, blocklength, stride, old))
}

/// MPI_Type_create_hvector
pub fn type_create_hvector(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::hvector(Width::Int, count, blocklength, stride, old))
}

/// MPI_Type_create_hvector_c
pub fn type_create_hvector_c(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::hvector(Width::Count, count, blocklength, stride, old))
}

/// MPI_Type_indexed
pub fn type_indexed(
    guard: &mut Guard,
    count: i64,
    lengths: Counts,
    displacements: Counts,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let (width, count) = (width(lengths), args::count(count, "count")?);
    let (lengths, displacements) = (lengths.read(count)?, displacements.read(count)?);
    make(guard, oldtype, newtype, |old| datatype::indexed(width, &lengths, &displacements, old))
}

/// MPI_Type_create_hindexed
pub fn type_create_hindexed(
    guard: &mut Guard,
    count: i64,
    lengths: Counts,
    displacements: Counts,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let (width, count) = (width(lengths), args::count(count, "count")?);
    let (lengths, displacements) = (lengths.read(count)?, displacements.read(count)?);
    make(guard, oldtype, newtype, |old| datatype::hindexed(width, &lengths, &displacements, old))
}

/// MPI_Type_create_indexed_block
pub fn type_create_indexed_block(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    displacements: Counts,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let width = width(displacements);
    let displacements = displacements.read(args::count(count, "count")?)?;
    make(guard, oldtype, newtype, |old| datatype::indexed_block(width, blocklength, &displacements, old))
}

/// MPI_Type_create_hindexed_block
pub fn type_create_hindexed_block(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    displacements: Counts,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let displacements = displacements.read(args::count(count, "count")?)?;
    make(guard, oldtype, newtype, |old| {
        datatype::hindexed_block(Width::Int, blocklength, &displacements, old)
    })
}

/// MPI_Type_create_hindexed_block_c
pub fn type_create_hindexed_block_c(
    guard: &mut Guard,
    count: i64,
    blocklength: i64,
    displacements: Counts,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let displacements = displacements.read(args::count(count, "count")?)?;
    make(guard, oldtype, newtype, |old| {
        datatype::hindexed_block(Width::Count, blocklength, &displacements, old)
    })
}

/// MPI_Type_create_struct
pub fn type_create_struct(
    guard: &mut Guard,
    count: i64,
    lengths: Counts,
    displacements: Counts,
    types: In<Handle>,
    newtype: Out<Handle>,
) -> Result<()> {
    newtype.check()?;
    let (width, count) = (width(lengths), args::count(count, "count")?);
    let (lengths, displacements) = (lengths.read(count)?, displacements.read(count)?);
    let objects = &mut guard.objects;
    let parts = (0..count).map(|at| objects.datatype(types.get(at)?).cloned()).collect::<Result<Vec<_>>>()?;
    let new = datatype::structure(width, &lengths, &displacements, parts)?;
    newtype.set(objects.enter_datatype(new)?)
}

/// MPI_Type_create_subarray
pub fn type_create_subarray(
    guard: &mut Guard,
    ndims: i32,
    sizes: Counts,
    subsizes: Counts,
    starts: Counts,
    order: i32,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let (width, dims) = (width(sizes), length(ndims, "ndims")?);
    let (sizes, subsizes, starts) = (sizes.read(dims)?, subsizes.read(dims)?, starts.read(dims)?);
    make(guard, oldtype, newtype, |old| datatype::subarray(width, &sizes, &subsizes, &starts, order, old))
}

/// MPI_Type_create_darray
pub fn type_create_darray(
    guard: &mut Guard,
    size: i32,
    rank: i32,
    ndims: i32,
    gsizes: Counts,
    distribs: In<i32>,
    dargs: In<i32>,
    psizes: In<i32>,
    order: i32,
    oldtype: Handle,
    newtype: Out<Handle>,
) -> Result<()> {
    let (width, dims) = (width(gsizes), length(ndims, "ndims")?);
    let gsizes = gsizes.read(dims)?;
    let wide = |array: In<i32>| Ok(array.read(dims)?.into_iter().map(i64::from).collect::<Vec<_>>());
    let array = Distribution {
        size: size.into(),
        rank: rank.into(),
        sizes: &gsizes,
        distributions: &distribs.read(dims)?,
        arguments: &wide(dargs)?,
        grid: &wide(psizes)?,
        order,
    };
    make(guard, oldtype, newtype, |old| datatype::darray(width, &array, old))
}

/// MPI_Type_create_resized
pub fn type_create_resized(
    guard: &mut Guard,
    oldtype: Handle,
    lb: i64,
    extent: i64,
    newtype: Out<Handle>,
) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::resized(Width::Int, lb, extent, old))
}

/// MPI_Type_create_resized_c
pub fn type_create_resized_c(
    guard: &mut Guard,
    oldtype: Handle,
    lb: i64,
    extent: i64,
    newtype: Out<Handle>,
) -> Result<()> {
    make(guard, oldtype, newtype, |old| datatype::resized(Width::Count, lb, extent, old))
}

/// MPI_Type_dup: copies the attributes for which the copy callback allows this.
pub fn type_dup(guard: &mut Guard, oldtype: Handle, newtype: Out<Handle>) -> Result<()> {
    newtype.check()?;
    let new = datatype::dup(guard.objects.datatype(oldtype)?);
    let attributes = attribute::copy_all(guard, HandleKind::Datatype, oldtype)?;
    let entry = TypeEntry { datatype: new, name: String::new(), attributes };
    newtype.set(guard.objects.datatypes.insert(entry)?)
}

/// MPI_Type_commit
pub fn type_commit(guard: &mut Guard, datatype: Out<Handle>) -> Result<()> {
    guard.objects.datatype(datatype.get()?)?.commit();
    Ok(())
}

/// MPI_Type_free: frees the handle. The datatype stays while operations and other datatypes use it.
pub fn type_free(guard: &mut Guard, datatype: Out<Handle>) -> Result<()> {
    let handle = datatype.get()?;
    if guard.objects.datatype(handle)?.is_permanent() {
        fail!(Class::Type, "{handle} is predefined and cannot be freed");
    }
    attribute::delete_all(guard, HandleKind::Datatype, handle)?;
    guard.objects.datatypes.entry(handle)?.discard();
    datatype.set(c::DATATYPE_NULL)
}

/// MPI_Type_size: stores MPI_UNDEFINED if an int cannot hold the size.
#[inline(always)]
pub fn type_size(guard: &mut Guard, datatype: Handle, size: OutCount) -> Result<()> {
    size.set_or_undefined(Some(guard.objects.datatype(datatype)?.size() as u64))
}

/// MPI_Type_size_x
pub fn type_size_x(guard: &mut Guard, datatype: Handle, size: Out<i64>) -> Result<()> {
    size.set(guard.objects.datatype(datatype)?.size() as i64)
}

/// MPI_Type_get_extent
#[inline(always)]
pub fn type_get_extent(guard: &mut Guard, datatype: Handle, lb: OutCount, extent: OutCount) -> Result<()> {
    let described = guard.objects.datatype(datatype)?;
    lb.set(described.lb())?;
    extent.set(described.extent())
}

/// MPI_Type_get_extent_x
pub fn type_get_extent_x(guard: &mut Guard, datatype: Handle, lb: Out<i64>, extent: Out<i64>) -> Result<()> {
    type_get_extent(guard, datatype, OutCount::Long(lb), OutCount::Long(extent))
}

/// MPI_Type_get_true_extent
pub fn type_get_true_extent(
    guard: &mut Guard,
    datatype: Handle,
    lb: OutCount,
    extent: OutCount,
) -> Result<()> {
    let described = guard.objects.datatype(datatype)?;
    lb.set(described.true_lb())?;
    extent.set(described.true_extent())
}

/// MPI_Type_get_true_extent_x
pub fn type_get_true_extent_x(
    guard: &mut Guard,
    datatype: Handle,
    lb: Out<i64>,
    extent: Out<i64>,
) -> Result<()> {
    type_get_true_extent(guard, datatype, OutCount::Long(lb), OutCount::Long(extent))
}

/// MPI_Type_get_name
pub fn type_get_name(
    guard: &mut Guard,
    datatype: Handle,
    type_name: TextOut,
    resultlen: Out<i32>,
) -> Result<()> {
    // The null handle has a name, too (MPI 5.0, section 7.8).
    let name = if datatype == c::DATATYPE_NULL {
        "MPI_DATATYPE_NULL"
    } else {
        &guard.objects.datatypes.get(datatype)?.name
    };
    resultlen.set(type_name.set(name, c::MAX_OBJECT_NAME as usize)? as i32)
}

/// MPI_Type_set_name
pub fn type_set_name(guard: &mut Guard, datatype: Handle, type_name: Text) -> Result<()> {
    let name = super::comm::object_name(type_name)?;
    guard.objects.datatypes.get_mut(datatype)?.name = name;
    Ok(())
}

/// MPI_Type_get_envelope: fails for a datatype that was made with large counts (MPI 5.0, section 5.1.13).
pub fn type_get_envelope(
    guard: &mut Guard,
    datatype: Handle,
    num_integers: Out<i32>,
    num_addresses: Out<i32>,
    num_datatypes: Out<i32>,
    combiner: Out<i32>,
) -> Result<()> {
    let recipe = small_recipe(guard, datatype)?;
    num_integers.set(recipe.integers().len() as i32)?;
    num_addresses.set(recipe.addresses().len() as i32)?;
    num_datatypes.set(recipe.datatypes.len() as i32)?;
    combiner.set(recipe.combiner as i32)
}

/// MPI_Type_get_envelope_c
#[inline(always)]
pub fn type_get_envelope_c(
    guard: &mut Guard,
    datatype: Handle,
    num_integers: Out<i64>,
    num_addresses: Out<i64>,
    num_large_counts: Out<i64>,
    num_datatypes: Out<i64>,
    combiner: Out<i32>,
) -> Result<()> {
    let recipe = guard.objects.datatype(datatype)?.recipe();
    num_integers.set(recipe.integers().len() as i64)?;
    num_addresses.set(recipe.addresses().len() as i64)?;
    num_large_counts.set(recipe.counts().len() as i64)?;
    num_datatypes.set(recipe.datatypes.len() as i64)?;
    combiner.set(recipe.combiner as i32)
}

/// MPI_Type_get_contents
pub fn type_get_contents(
    guard: &mut Guard,
    datatype: Handle,
    max_integers: i32,
    max_addresses: i32,
    max_datatypes: i32,
    integers: Array<i32>,
    addresses: Array<i64>,
    datatypes: Array<Handle>,
) -> Result<()> {
    small_recipe(guard, datatype)?;
    type_get_contents_c(
        guard,
        datatype,
        max_integers.into(),
        max_addresses.into(),
        0,
        max_datatypes.into(),
        integers,
        addresses,
        Array::new(0, "array_of_large_counts"),
        datatypes,
    )
}

/// MPI_Type_get_contents_c
pub fn type_get_contents_c(
    guard: &mut Guard,
    datatype: Handle,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: Array<i32>,
    addresses: Array<i64>,
    large_counts: Array<i64>,
    datatypes: Array<Handle>,
) -> Result<()> {
    let recipe = guard.objects.datatype(datatype)?.recipe();
    if recipe.combiner == Combiner::Named {
        fail!(Class::Type, "{datatype} is predefined, so it has no contents");
    }
    for (kind, max, needed) in [
        ("integers", max_integers, recipe.integers().len()),
        ("addresses", max_addresses, recipe.addresses().len()),
        ("large_counts", max_large_counts, recipe.counts().len()),
        ("datatypes", max_datatypes, recipe.datatypes.len()),
    ] {
        if max < needed as i64 {
            fail!(Class::Arg, "max_{kind} is {max}, but {datatype} was made with {needed}");
        }
    }
    let mut numbers: Vec<i32> = recipe.integers().iter().map(|&number| number as i32).collect();
    (crate::shim::get().contents)(recipe.combiner as i32, !recipe.counts().is_empty(), &mut numbers);
    integers.write(&numbers)?;
    addresses.write(recipe.addresses())?;
    large_counts.write(recipe.counts())?;
    for at in 0..recipe.datatypes.len() {
        // The datatype is looked up again for each part, because entering a part may move the table.
        let part = &guard.objects.datatype(datatype)?.recipe().datatypes[at];
        let handle = match part.predefined() {
            Some(number) => Handle(number as usize),
            None => {
                let part = part.clone();
                guard.objects.enter_datatype(part)?
            }
        };
        datatypes.set(at, handle)?;
    }
    Ok(())
}

/// Returns the call and the arguments that made a datatype. Returns MPI_ERR_TYPE if only the calls with the
/// suffix `_c` can report them.
fn small_recipe(guard: &Guard, datatype: Handle) -> Result<&Recipe> {
    let recipe = guard.objects.datatype(datatype)?.recipe();
    if !recipe.counts().is_empty() {
        fail!(Class::Type, "{datatype} was made with large counts; only the _c forms can describe it");
    }
    Ok(recipe)
}

/// MPI_Type_match_size
pub fn type_match_size(_: &mut Guard, typeclass: i32, size: i32, datatype: Out<Handle>) -> Result<()> {
    datatype.set(handle_of(datatype::match_size(typeclass, size.into())?))
}

/// MPI_Type_get_value_index: stores MPI_DATATYPE_NULL if no datatype is a pair of `value_type`, `index_type`.
pub fn type_get_value_index(
    guard: &mut Guard,
    value_type: Handle,
    index_type: Handle,
    pair_type: Out<Handle>,
) -> Result<()> {
    let (value, index) = (guard.objects.datatype(value_type)?, guard.objects.datatype(index_type)?);
    pair_type.set(datatype::value_index(value, index).map_or(c::DATATYPE_NULL, handle_of))
}

/// MPI_Type_create_f90_real
pub fn type_create_f90_real(guard: &mut Guard, p: i32, r: i32, newtype: Out<Handle>) -> Result<()> {
    fortran(guard, datatype::f90_real(p, r)?, newtype)
}

/// MPI_Type_create_f90_complex
pub fn type_create_f90_complex(guard: &mut Guard, p: i32, r: i32, newtype: Out<Handle>) -> Result<()> {
    fortran(guard, datatype::f90_complex(p, r)?, newtype)
}

/// MPI_Type_create_f90_integer
pub fn type_create_f90_integer(guard: &mut Guard, r: i32, newtype: Out<Handle>) -> Result<()> {
    fortran(guard, datatype::f90_integer(r)?, newtype)
}

/// Stores the handle of the datatype `new`, which MPI_Type_create_f90_real or a similar call made. It is
/// predefined and never freed, so the same arguments give the same handle (MPI 5.0, section 19.1.5).
fn fortran(guard: &mut Guard, new: Arc<Datatype>, newtype: Out<Handle>) -> Result<()> {
    newtype.check()?;
    let same = |entry: &TypeEntry| {
        let (old, new) = (entry.datatype.recipe(), new.recipe());
        entry.datatype.is_permanent() && old.combiner == new.combiner && old.integers() == new.integers()
    };
    let known = guard.objects.datatypes.iter().find(|(_, entry)| same(entry)).map(|(handle, _)| handle);
    newtype.set(match known {
        Some(handle) => handle,
        None => guard.objects.enter_datatype(new)?,
    })
}

fn handle_of(predefined: &Arc<Datatype>) -> Handle {
    predefined.predefined().map_or(c::DATATYPE_NULL, |number| Handle(number as usize))
}

fn width(counts: Counts) -> Width {
    if counts.is_int() { Width::Int } else { Width::Count }
}

fn make(
    guard: &mut Guard,
    oldtype: Handle,
    newtype: Out<Handle>,
    construct: impl FnOnce(&Arc<Datatype>) -> Result<Arc<Datatype>>,
) -> Result<()> {
    newtype.check()?;
    let objects = &mut guard.objects;
    let new = construct(objects.datatype(oldtype)?)?;
    newtype.set(objects.enter_datatype(new)?)
}
