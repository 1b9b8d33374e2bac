// SPDX-License-Identifier: BSD-3-Clause
//! The layout of a datatype in a file whose basic types have other lengths (MPI 5.0, section 14.5).
//!
//! The constructors are applied again to basic types with the file's lengths. Counts, strides and
//! displacements in elements then span other lengths; displacements in bytes stay.

use crate::combiner::{Combiner, Width};
use crate::construct::{contiguous, hindexed, hindexed_block, hvector, indexed, indexed_block};
use crate::construct::{resized, structure, vector};
use crate::datatype::Datatype;
use crate::{Distribution, darray, predefined, predefined_handle, subarray};
use error::{Class, Result, fail};
use std::sync::Arc;

/// Makes a datatype like `datatype`, but with the length that `bytes_of` returns for each predefined datatype
/// in it. Its data are bytes.
pub fn represented(
    datatype: &Arc<Datatype>,
    bytes_of: &mut impl FnMut(&Arc<Datatype>) -> Result<u64>,
) -> Result<Arc<Datatype>> {
    if datatype.is_permanent() {
        return basic(datatype, bytes_of(datatype)?);
    }
    let recipe = datatype.recipe();
    let parts: Result<Vec<_>> = recipe.datatypes.iter().map(|part| represented(part, bytes_of)).collect();
    let parts = parts?;
    // Both widths of a constructor keep counts before displacements.
    let numbers = &recipe.numbers;
    let (wide, small) =
        (Width::Count, |list: &[i64]| -> Vec<i32> { list.iter().map(|&n| n as i32).collect() });
    let first = numbers.first().map_or(0, |&n| n as usize);
    let tail = |from: usize| &numbers[from.min(numbers.len())..];
    match recipe.combiner {
        Combiner::Dup => Ok(parts[0].clone()),
        Combiner::Contiguous => contiguous(wide, numbers[0], &parts[0]),
        Combiner::Vector => vector(wide, numbers[0], numbers[1], numbers[2], &parts[0]),
        Combiner::Hvector => hvector(wide, numbers[0], numbers[1], numbers[2], &parts[0]),
        Combiner::Indexed => indexed(wide, &numbers[1..1 + first], tail(1 + first), &parts[0]),
        Combiner::Hindexed => hindexed(wide, &numbers[1..1 + first], tail(1 + first), &parts[0]),
        Combiner::IndexedBlock => indexed_block(wide, numbers[1], tail(2), &parts[0]),
        Combiner::HindexedBlock => hindexed_block(wide, numbers[1], tail(2), &parts[0]),
        Combiner::Struct => structure(wide, &numbers[1..1 + first], tail(1 + first), parts),
        Combiner::Resized => resized(wide, numbers[0], numbers[1], &parts[0]),
        Combiner::Subarray => {
            // With large counts the order stands before the sizes.
            let (order, lists) = match recipe.counts() {
                [] => (numbers[numbers.len() - 1], &numbers[1..numbers.len() - 1]),
                counts => (numbers[1], counts),
            };
            let (sizes, rest) = lists.split_at(first);
            let (subsizes, starts) = rest.split_at(first);
            subarray(wide, sizes, subsizes, starts, order as i32, &parts[0])
        }
        Combiner::Darray => {
            let ndims = numbers[2] as usize;
            let (sizes, rest) = match recipe.counts() {
                [] => numbers[3..].split_at(ndims),
                sizes => (sizes, &recipe.integers()[3..]),
            };
            let (distributions, rest) = rest.split_at(ndims);
            let (arguments, rest) = rest.split_at(ndims);
            let (grid, order) = rest.split_at(ndims);
            let array = Distribution {
                size: numbers[0],
                rank: numbers[1],
                sizes,
                distributions: &small(distributions),
                arguments,
                grid,
                order: order[0] as i32,
            };
            darray(wide, &array, &parts[0])
        }
        Combiner::Named
        | Combiner::F90Real
        | Combiner::F90Complex
        | Combiner::F90Integer
        | Combiner::ValueIndex => {
            fail!(Class::Intern, "a {:?} datatype that is not predefined", recipe.combiner)
        }
    }
}

/// Returns a datatype of `bytes` bytes without padding: `datatype` itself if it has this length, otherwise
/// MPI_BYTEs.
fn basic(datatype: &Arc<Datatype>, bytes: u64) -> Result<Arc<Datatype>> {
    if datatype.size() as u64 == bytes && datatype.extent() as u64 == bytes {
        return Ok(datatype.clone());
    }
    let byte = predefined_handle("MPI_BYTE").and_then(predefined).expect("MPI_BYTE is predefined");
    contiguous(Width::Count, i64::try_from(bytes).unwrap_or(i64::MAX), byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DISTRIBUTE_CYCLIC, ORDER_C, ORDER_FORTRAN, dup};

    fn named(name: &str) -> Arc<Datatype> {
        predefined(predefined_handle(name).unwrap()).unwrap().clone()
    }

    // Goal: every constructor, in both widths, is applied again. Method: with unchanged lengths, the layout
    // stays the same.
    #[test]
    fn own_lengths_change_nothing() {
        let int = named("MPI_INT");
        let grid = Distribution {
            size: 4,
            rank: 3,
            sizes: &[9, 7],
            distributions: &[DISTRIBUTE_CYCLIC, DISTRIBUTE_CYCLIC],
            arguments: &[2, 1],
            grid: &[2, 2],
            order: ORDER_FORTRAN,
        };
        for width in [Width::Int, Width::Count] {
            let vector = vector(width, 3, 2, 5, &int).unwrap();
            let made = [
                contiguous(width, 5, &vector).unwrap(),
                hvector(width, 3, 2, 50, &vector).unwrap(),
                indexed(width, &[1, 2], &[3, 7], &int).unwrap(),
                hindexed(width, &[1, 2], &[4, 40], &vector).unwrap(),
                indexed_block(width, 2, &[1, 9, 5], &int).unwrap(),
                hindexed_block(width, 2, &[0, 100], &vector).unwrap(),
                structure(width, &[1, 3], &[0, 16], vec![named("MPI_DOUBLE"), vector.clone()]).unwrap(),
                resized(width, -4, 99, &vector).unwrap(),
                subarray(width, &[5, 6], &[2, 3], &[1, 2], ORDER_C, &int).unwrap(),
                darray(width, &grid, &int).unwrap(),
                dup(&vector),
            ];
            for datatype in made {
                let again = represented(&datatype, &mut |basic| Ok(basic.size() as u64)).unwrap();
                assert_eq!(again.layout(), datatype.layout(), "{:?}", datatype.recipe());
            }
        }
    }

    #[test]
    fn elements_scale_and_bytes_do_not() {
        let long = named("MPI_LONG");
        let half = |datatype: &Arc<Datatype>| {
            represented(datatype, &mut |basic| Ok(basic.size() as u64 / 2)).unwrap()
        };
        let shrunk = half(&vector(Width::Int, 3, 1, 2, &long).unwrap());
        assert_eq!((shrunk.size(), shrunk.extent()), (12, 20));
        let shrunk = half(&hvector(Width::Int, 3, 1, 16, &long).unwrap());
        assert_eq!((shrunk.size(), shrunk.extent()), (12, 36));
        let pair = represented(&named("MPI_DOUBLE_INT"), &mut |_| Ok(12)).unwrap();
        assert_eq!((pair.size(), pair.extent()), (12, 12));
    }
}
