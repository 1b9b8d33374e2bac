// SPDX-License-Identifier: BSD-3-Clause
//! Subarrays and distributed arrays (MPI 5.0, sections 5.1.3 and 5.1.4). Both are built dimension by
//! dimension, beginning with the one along which elements are adjacent in memory, and have the bounds of the
//! whole array.

use crate::combiner::{Combiner, Width};
use crate::construct::{LayoutDraft, too_large};
use crate::datatype::{Datatype, OldTypes, Recipe};
use error::{Class, Result, fail};
use std::sync::Arc;

/// MPI_ORDER_C: elements that differ by 1 in the last index are adjacent in memory.
pub const ORDER_C: i32 = 12;
/// MPI_ORDER_FORTRAN: elements that differ by 1 in the first index are adjacent in memory.
pub const ORDER_FORTRAN: i32 = 15;
pub const DISTRIBUTE_NONE: i32 = 16;
pub const DISTRIBUTE_BLOCK: i32 = 17;
pub const DISTRIBUTE_CYCLIC: i32 = 18;
pub const DISTRIBUTE_DEFAULT: i64 = 19;

/// Makes the datatype of a part of an array (MPI_Type_create_subarray): in each dimension, `subsizes` of the
/// array's `sizes` elements, from `starts` on.
pub fn subarray(
    width: Width,
    sizes: &[i64],
    subsizes: &[i64],
    starts: &[i64],
    order: i32,
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let ndims = check_dims(sizes, order)?;
    if subsizes.len() != ndims || starts.len() != ndims {
        fail!(Class::Arg, "{ndims} sizes came with {} subsizes and {} starts", subsizes.len(), starts.len());
    }
    for dim in 0..ndims {
        let (size, subsize, start) = (sizes[dim], subsizes[dim], starts[dim]);
        if subsize < 1 || subsize > size {
            fail!(Class::Arg, "dimension {dim}: the subsize {subsize} is not from 1 to the size {size}");
        }
        if start < 0 || start > size - subsize {
            fail!(
                Class::Arg,
                "dimension {dim}: {subsize} elements from {start} on are not inside the size {size}"
            );
        }
    }
    let mut draft = LayoutDraft::of(old);
    let mut stride = old.extent();
    for dim in fastest_first(ndims, order) {
        let start = starts[dim].checked_mul(stride).ok_or_else(too_large)?;
        draft = draft.times(subsizes[dim], stride)?.shifted(start)?;
        stride = stride.checked_mul(sizes[dim]).ok_or_else(too_large)?;
    }
    draft.marks = (Some(0), Some(stride));
    let (head, lists, order) = ([ndims as i64], [sizes, subsizes, starts].concat(), [order as i64]);
    let (integers, numbers) = match width {
        Width::Int => (lists.len() + 2, [&head[..], &lists, &order].concat()),
        Width::Count => (2, [&head[..], &order, &lists].concat()),
    };
    let combiner = Combiner::Subarray;
    let recipe = Recipe { combiner, numbers, integers, addresses: 0, datatypes: OldTypes::One(old.clone()) };
    // The draft's size is checked, so the product of the subsizes overflows only if elements are empty.
    let elements = subsizes.iter().fold(1u64, |product, &n| product.saturating_mul(n as u64));
    draft.finish(old.facts.times(elements), recipe)
}

/// An array that is distributed over a grid of processes, and the process whose part is wanted: the arguments
/// of MPI_Type_create_darray.
#[derive(Clone, Copy, Debug)]
pub struct Distribution<'a> {
    /// The number of processes in the grid over which the array is distributed.
    pub size: i64,
    /// The rank in the grid of the process whose part is wanted.
    pub rank: i64,
    /// For each dimension: the number of elements of the whole array.
    pub sizes: &'a [i64],
    /// For each dimension: how it is distributed (MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC or
    /// MPI_DISTRIBUTE_NONE).
    pub distributions: &'a [i32],
    /// For each dimension: the length of a block in elements, or MPI_DISTRIBUTE_DFLT_DARG.
    pub arguments: &'a [i64],
    /// For each dimension: the number of processes in the grid along this dimension.
    pub grid: &'a [i64],
    /// The order of the array's elements in memory: MPI_ORDER_C or MPI_ORDER_FORTRAN.
    pub order: i32,
}

/// Makes the datatype of one process's part of a distributed array with elements `old`
/// (MPI_Type_create_darray).
pub fn darray(width: Width, array: &Distribution, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
    let ndims = check_distribution(array)?;
    // Ranks are row-major in the grid, whatever the order of the array (MPI 5.0, section 5.1.4).
    let mut coordinates = vec![0; ndims];
    let mut rank = array.rank;
    for dim in (0..ndims).rev() {
        coordinates[dim] = rank % array.grid[dim];
        rank /= array.grid[dim];
    }
    let mut draft = LayoutDraft::of(old);
    let mut stride = old.extent();
    let mut elements = 1u64;
    for dim in fastest_first(ndims, array.order) {
        let (size, processes, coordinate) = (array.sizes[dim], array.grid[dim], coordinates[dim]);
        let block = block_length(array, dim)?;
        let owned;
        (draft, owned) = distribute(draft, stride, size, block, processes, coordinate)?;
        elements = elements.saturating_mul(owned as u64);
        stride = stride.checked_mul(size).ok_or_else(too_large)?;
    }
    draft.marks = (Some(0), Some(stride));
    draft.finish(old.facts.times(elements), darray_recipe(width, array, old))
}

/// Returns the indices of the dimensions in the order of their strides: first the dimension along which
/// elements are adjacent in memory.
fn fastest_first(ndims: usize, order: i32) -> impl Iterator<Item = usize> {
    (0..ndims).map(move |step| if order == ORDER_C { ndims - 1 - step } else { step })
}

fn check_dims(sizes: &[i64], order: i32) -> Result<usize> {
    if sizes.is_empty() {
        fail!(Class::Arg, "an array datatype needs at least one dimension");
    }
    if let Some(dim) = sizes.iter().position(|&size| size < 1) {
        fail!(Class::Arg, "dimension {dim}: the size {} is not positive", sizes[dim]);
    }
    if order != ORDER_C && order != ORDER_FORTRAN {
        fail!(Class::Arg, "the order {order} is neither MPI_ORDER_C nor MPI_ORDER_FORTRAN");
    }
    Ok(sizes.len())
}

fn check_distribution(array: &Distribution) -> Result<usize> {
    let ndims = check_dims(array.sizes, array.order)?;
    if array.distributions.len() != ndims || array.arguments.len() != ndims || array.grid.len() != ndims {
        fail!(
            Class::Arg,
            "the arguments of a distributed array of {ndims} dimensions are of different lengths"
        );
    }
    if let Some(dim) = array.grid.iter().position(|&processes| processes < 1) {
        fail!(Class::Arg, "dimension {dim}: {} processes are not positive", array.grid[dim]);
    }
    let processes = array.grid.iter().try_fold(1i64, |product, &n| product.checked_mul(n));
    if processes != Some(array.size) {
        fail!(Class::Arg, "the grid {:?} does not have the {} processes given", array.grid, array.size);
    }
    if array.rank < 0 || array.rank >= array.size {
        fail!(Class::Arg, "rank {} is not in a grid of {} processes", array.rank, array.size);
    }
    Ok(ndims)
}

/// Returns how many elements of dimension `dim` make a block. Each block goes to one process.
fn block_length(array: &Distribution, dim: usize) -> Result<i64> {
    let (size, processes, argument) = (array.sizes[dim], array.grid[dim], array.arguments[dim]);
    let default = argument == DISTRIBUTE_DEFAULT;
    if !default && argument < 1 && array.distributions[dim] != DISTRIBUTE_NONE {
        fail!(Class::Arg, "dimension {dim}: the distribution argument {argument} is not positive");
    }
    match array.distributions[dim] {
        DISTRIBUTE_NONE if processes == 1 => Ok(size),
        DISTRIBUTE_NONE => {
            fail!(
                Class::Arg,
                "dimension {dim} is not distributed, but its grid has {processes} processes, not 1"
            )
        }
        DISTRIBUTE_BLOCK if default => Ok((size - 1) / processes + 1),
        DISTRIBUTE_BLOCK => match argument.checked_mul(processes) {
            Some(room) if room < size => {
                fail!(
                    Class::Arg,
                    "dimension {dim}: {processes} blocks of {argument} do not hold {size} elements"
                )
            }
            _ => Ok(argument),
        },
        DISTRIBUTE_CYCLIC => Ok(if default { 1 } else { argument }),
        other => fail!(
            Class::Arg,
            "dimension {dim}: {other} is none of MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE"
        ),
    }
}

/// Distributes a dimension of `size` slabs (all elements with one index in it), `stride` bytes apart,
/// cyclically over `processes` in blocks of `block` slabs. Returns the slabs of the process at `coordinate`,
/// and their number. In a block distribution each process gets at most one block.
fn distribute(
    slab: LayoutDraft<'_>,
    stride: i64,
    size: i64,
    block: i64,
    processes: i64,
    coordinate: i64,
) -> Result<(LayoutDraft<'_>, i64)> {
    let Some(first) = block.checked_mul(coordinate).filter(|&first| first < size) else {
        return Ok((LayoutDraft::default(), 0));
    };
    let left = size - first;
    let round = block.checked_mul(processes).unwrap_or(i64::MAX);
    // `whole` counts the rounds in which this process gets a whole block; it gets `rest` slabs in the round
    // after these.
    let whole = left / round + (left % round >= block) as i64;
    let rest = if left % round < block { left % round } else { 0 };
    let round_bytes = if whole > 1 { round.checked_mul(stride).ok_or_else(too_large)? } else { 0 };
    let blocks = slab.clone().times(block.min(size), stride)?.times(whole, round_bytes)?;
    let mut draft = blocks.shifted(first.checked_mul(stride).ok_or_else(too_large)?)?;
    if rest > 0 {
        let at = first + (left - left % round);
        draft.join(&slab.times(rest, stride)?, at.checked_mul(stride).ok_or_else(too_large)?)?;
    }
    Ok((draft, whole * block + rest))
}

fn darray_recipe(width: Width, array: &Distribution, old: &Arc<Datatype>) -> Recipe {
    let head = [array.size, array.rank, array.sizes.len() as i64];
    let distributions: Vec<i64> = array.distributions.iter().map(|&d| d as i64).collect();
    let tail = [&distributions[..], array.arguments, array.grid, &[array.order as i64]].concat();
    let integers = head.len() + tail.len();
    let (integers, numbers) = match width {
        Width::Int => (integers + array.sizes.len(), [&head[..], array.sizes, &tail].concat()),
        Width::Count => (integers, [&head[..], &tail, array.sizes].concat()),
    };
    Recipe {
        combiner: Combiner::Darray,
        numbers,
        integers,
        addresses: 0,
        datatypes: OldTypes::One(old.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{predefined, predefined_handle};

    fn int() -> Arc<Datatype> {
        predefined(predefined_handle("MPI_INT").unwrap()).unwrap().clone()
    }

    #[test]
    fn a_subarray_of_three_dimensions_is_one_run() {
        let box_of =
            subarray(Width::Int, &[100, 90, 80], &[10, 20, 30], &[1, 2, 3], ORDER_C, &int()).unwrap();
        assert_eq!(box_of.layout().runs().len(), 1);
        assert_eq!(box_of.layout().loops().len(), 1);
        assert_eq!((box_of.size(), box_of.lb(), box_of.extent()), (24_000, 0, 2_880_000));
        assert_eq!(box_of.true_lb(), 4 * (3 + 80 * (2 + 90)));
        assert_eq!(box_of.recipe().integers(), [3, 100, 90, 80, 10, 20, 30, 1, 2, 3, 12]);
        let large = subarray(Width::Count, &[9, 9], &[2, 2], &[0, 0], ORDER_C, &int()).unwrap();
        assert_eq!((large.recipe().integers(), large.recipe().counts().len()), (&[2i64, 12][..], 6));
    }

    #[test]
    fn parts_of_a_distributed_array_cover_it_once() {
        // Method: in many distributions, each element of the array belongs to exactly one process.
        let cases = [
            (DISTRIBUTE_BLOCK, DISTRIBUTE_DEFAULT),
            (DISTRIBUTE_CYCLIC, DISTRIBUTE_DEFAULT),
            (DISTRIBUTE_CYCLIC, 3),
        ];
        for order in [ORDER_C, ORDER_FORTRAN] {
            for (first, first_argument) in cases {
                for (second, second_argument) in cases {
                    let mut seen = [0; 13 * 7];
                    for rank in 0..6 {
                        let array = Distribution {
                            size: 6,
                            rank,
                            sizes: &[13, 7],
                            distributions: &[first, second],
                            arguments: &[first_argument, second_argument],
                            grid: &[3, 2],
                            order,
                        };
                        let part = darray(Width::Int, &array, &int()).unwrap();
                        assert_eq!(part.extent(), 4 * 13 * 7);
                        // SAFETY: the addresses are only counted, never read.
                        let buffer = unsafe { crate::Buffer::claim(0, 1, part.layout()) };
                        buffer.pieces(0, buffer.bytes(), |piece| {
                            let first = piece.address() / 4;
                            seen[first..first + piece.bytes() / 4].iter_mut().for_each(|times| *times += 1);
                        });
                    }
                    assert_eq!(seen, [1; 13 * 7]);
                }
            }
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        let bad = |sizes: &[i64], subsizes: &[i64], starts: &[i64], order| {
            subarray(Width::Int, sizes, subsizes, starts, order, &int()).unwrap_err().class
        };
        assert_eq!(bad(&[], &[], &[], ORDER_C), Class::Arg);
        assert_eq!(bad(&[4], &[5], &[0], ORDER_C), Class::Arg);
        assert_eq!(bad(&[4], &[2], &[3], ORDER_C), Class::Arg);
        assert_eq!(bad(&[4], &[2], &[-1], ORDER_C), Class::Arg);
        assert_eq!(bad(&[4], &[2], &[0], 0), Class::Arg);
        assert_eq!(bad(&[i64::MAX, i64::MAX], &[1, 1], &[0, 0], ORDER_C), Class::Arg);
    }
}
