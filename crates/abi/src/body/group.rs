// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make, free and inquire about groups (MPI 5.0, section 7.3).

use crate::args::{Array, Handle, In, Out, length};
use crate::process::Guard;
use error::Result;
use objects::{Group, constants as c};
use std::sync::Arc;

/// MPI_Group_size
pub fn group_size(guard: &mut Guard, group: Handle, size: Out<i32>) -> Result<()> {
    size.set(guard.objects.group(group)?.size() as i32)
}

/// MPI_Group_rank
pub fn group_rank(guard: &mut Guard, group: Handle, rank: Out<i32>) -> Result<()> {
    rank.set(guard.objects.group(group)?.rank.map_or(c::UNDEFINED, |rank| rank as i32))
}

/// MPI_Group_translate_ranks
pub fn group_translate_ranks(
    guard: &mut Guard,
    group1: Handle,
    n: i32,
    ranks1: In<i32>,
    group2: Handle,
    ranks2: Array<i32>,
) -> Result<()> {
    let (from, to) = (guard.objects.group(group1)?, guard.objects.group(group2)?);
    ranks2.write(&from.translate(&ranks1.read(length(n, "n")?)?, to)?)
}

/// MPI_Group_compare
pub fn group_compare(guard: &mut Guard, group1: Handle, group2: Handle, result: Out<i32>) -> Result<()> {
    let (one, other) = (guard.objects.group(group1)?, guard.objects.group(group2)?);
    result.set(one.compare(other))
}

/// MPI_Group_union
pub fn group_union(guard: &mut Guard, group1: Handle, group2: Handle, newgroup: Out<Handle>) -> Result<()> {
    combine(guard, group1, group2, newgroup, Group::union)
}

/// MPI_Group_intersection
pub fn group_intersection(
    guard: &mut Guard,
    group1: Handle,
    group2: Handle,
    newgroup: Out<Handle>,
) -> Result<()> {
    combine(guard, group1, group2, newgroup, Group::intersection)
}

/// MPI_Group_difference
pub fn group_difference(
    guard: &mut Guard,
    group1: Handle,
    group2: Handle,
    newgroup: Out<Handle>,
) -> Result<()> {
    combine(guard, group1, group2, newgroup, Group::difference)
}

/// MPI_Group_incl
pub fn group_incl(
    guard: &mut Guard,
    group: Handle,
    n: i32,
    ranks: In<i32>,
    newgroup: Out<Handle>,
) -> Result<()> {
    let ranks = ranks.read(length(n, "n")?)?;
    select(guard, group, newgroup, |group, me| group.include(&ranks, me))
}

/// MPI_Group_excl
pub fn group_excl(
    guard: &mut Guard,
    group: Handle,
    n: i32,
    ranks: In<i32>,
    newgroup: Out<Handle>,
) -> Result<()> {
    let ranks = ranks.read(length(n, "n")?)?;
    select(guard, group, newgroup, |group, me| group.exclude(&ranks, me))
}

/// MPI_Group_range_incl
pub fn group_range_incl(
    guard: &mut Guard,
    group: Handle,
    n: i32,
    ranges: Array<i32>,
    newgroup: Out<Handle>,
) -> Result<()> {
    let ranges = triplets(n, ranges)?;
    select(guard, group, newgroup, |group, me| group.include(&group.ranks_of(&ranges)?, me))
}

/// MPI_Group_range_excl
pub fn group_range_excl(
    guard: &mut Guard,
    group: Handle,
    n: i32,
    ranges: Array<i32>,
    newgroup: Out<Handle>,
) -> Result<()> {
    let ranges = triplets(n, ranges)?;
    select(guard, group, newgroup, |group, me| group.exclude(&group.ranks_of(&ranges)?, me))
}

/// MPI_Group_free
pub fn group_free(guard: &mut Guard, group: Out<Handle>) -> Result<()> {
    let handle = group.get()?;
    // Operations return MPI_GROUP_EMPTY for an empty group, so programs free it like any other.
    if handle != c::GROUP_EMPTY {
        guard.objects.groups.remove(handle)?;
    }
    group.set(c::GROUP_NULL)
}

fn combine(
    guard: &mut Guard,
    group1: Handle,
    group2: Handle,
    newgroup: Out<Handle>,
    operation: impl Fn(&Group, &Group, u32) -> Group,
) -> Result<()> {
    newgroup.check()?;
    let objects = &mut guard.objects;
    let new = operation(objects.group(group1)?, objects.group(group2)?, objects.me);
    newgroup.set(objects.enter_group(Arc::new(new))?)
}

fn select(
    guard: &mut Guard,
    group: Handle,
    newgroup: Out<Handle>,
    choose: impl Fn(&Group, u32) -> Result<Group>,
) -> Result<()> {
    newgroup.check()?;
    let objects = &mut guard.objects;
    let new = choose(objects.group(group)?, objects.me)?;
    newgroup.set(objects.enter_group(Arc::new(new))?)
}

fn triplets(n: i32, ranges: Array<i32>) -> Result<Vec<objects::group::RankRange>> {
    let numbers = ranges.read(3 * length(n, "n")?)?;
    Ok(numbers.chunks_exact(3).map(|range| [range[0], range[1], range[2]]).collect())
}
