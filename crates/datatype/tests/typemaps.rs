// SPDX-License-Identifier: BSD-3-Clause
//! Tests of random nested datatypes against the standard's definition: a typemap as a list (MPI 5.0, sections
//! 5.1.1 to 5.1.7).

use outboard_datatype::{
    self as datatype, Basic, Buffer, DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_DEFAULT, Datatype,
    Distribution, Layout, ORDER_C, ORDER_FORTRAN, Width, predefined, predefined_handle,
};
use proptest::prelude::*;
use std::sync::Arc;
use sys::Span;

/// A datatype, described by the nested constructor calls that make it.
#[derive(Clone, Debug)]
enum Type {
    Named(&'static str),
    Contiguous(i64, Box<Type>),
    Vector(i64, i64, i64, Box<Type>),
    Hvector(i64, i64, i64, Box<Type>),
    Indexed(Vec<(i64, i64)>, Box<Type>),
    Hindexed(Vec<(i64, i64)>, Box<Type>),
    IndexedBlock(i64, Vec<i64>, Box<Type>),
    HindexedBlock(i64, Vec<i64>, Box<Type>),
    Struct(Vec<(i64, i64, Type)>),
    Resized(i64, i64, Box<Type>),
    Subarray(Vec<(i64, i64, i64)>, bool, Box<Type>),
    Darray(i64, i64, i64, bool, Box<Type>),
    Dup(Box<Type>),
}

/// An entry of a typemap: an element, the standard's marker of a lower or upper bound, or the end of a
/// struct's padding.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Data(Basic),
    Pad,
    Lb,
    Ub,
}

type Map = Vec<(i64, Entry)>;

fn data_of(map: &Map) -> impl Iterator<Item = Basic> {
    map.iter().filter_map(|entry| if let Entry::Data(basic) = entry.1 { Some(basic) } else { None })
}

fn ends(map: &Map) -> Option<(i64, i64)> {
    let data = map.iter().filter_map(|&(at, entry)| match entry {
        Entry::Data(basic) => Some((at, at + basic.size() as i64)),
        _ => None,
    });
    data.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Returns the lower bound and the extent of a typemap by the standard's definition.
fn bounds(map: &Map) -> (i64, i64) {
    let of = |kind| map.iter().filter(move |entry| entry.1 == kind).map(|entry| entry.0);
    if let (Some(lb), Some(ub)) = (of(Entry::Lb).min(), of(Entry::Ub).max()) {
        return (lb, ub - lb);
    }
    let Some((lb, ub)) = ends(map) else { return (0, 0) };
    (lb, of(Entry::Pad).max().unwrap_or(ub).max(ub) - lb)
}

/// Adds to the typemap of a struct the padding that the struct's alignment needs.
fn padded(mut map: Map) -> Map {
    if let Some((lb, _)) = ends(&map) {
        let align = data_of(&map).map(|basic| basic.align() as i64).max().unwrap_or(1);
        let data: Map =
            map.iter().filter(|entry| !matches!(entry.1, Entry::Lb | Entry::Ub)).copied().collect();
        map.push((lb + (bounds(&data).1 + align - 1) / align * align, Entry::Pad));
    }
    map
}

fn copies(map: &Map, at: i64, length: i64) -> Map {
    let extent = bounds(map).1;
    (0..length)
        .flat_map(|i| map.iter().map(move |&(offset, entry)| (at + i * extent + offset, entry)))
        .collect()
}

/// Returns the typemap of a datatype by the standard's definition of each constructor.
fn expand(t: &Type) -> Map {
    match t {
        Type::Named(name) => {
            let basic = named(name).basic().unwrap();
            match basic.pair() {
                None => vec![(0, Entry::Data(basic))],
                Some((value, index)) => {
                    let at = value.size().next_multiple_of(index.align()) as i64;
                    padded(vec![(0, Entry::Data(value)), (at, Entry::Data(index))])
                }
            }
        }
        Type::Contiguous(count, old) => copies(&expand(old), 0, *count),
        Type::Vector(count, length, stride, old) => {
            let old = expand(old);
            (0..*count).flat_map(|i| copies(&old, i * stride * bounds(&old).1, *length)).collect()
        }
        Type::Hvector(count, length, stride, old) => {
            let old = expand(old);
            (0..*count).flat_map(|i| copies(&old, i * stride, *length)).collect()
        }
        Type::Indexed(blocks, old) => {
            let old = expand(old);
            blocks.iter().flat_map(|(length, at)| copies(&old, at * bounds(&old).1, *length)).collect()
        }
        Type::Hindexed(blocks, old) => {
            let old = expand(old);
            blocks.iter().flat_map(|(length, at)| copies(&old, *at, *length)).collect()
        }
        Type::IndexedBlock(length, places, old) => {
            let old = expand(old);
            places.iter().flat_map(|at| copies(&old, at * bounds(&old).1, *length)).collect()
        }
        Type::HindexedBlock(length, places, old) => {
            let old = expand(old);
            places.iter().flat_map(|at| copies(&old, *at, *length)).collect()
        }
        Type::Struct(parts) => {
            let copied = |(length, at, part): &(i64, i64, Type)| copies(&expand(part), *at, *length);
            padded(parts.iter().flat_map(copied).collect())
        }
        Type::Resized(lb, extent, old) => marked(expand(old), *lb, lb + extent),
        Type::Subarray(dims, c_order, old) => {
            let owned = dims.iter().map(|&(_, subsize, start)| (start..start + subsize).collect()).collect();
            array(dims.iter().map(|dim| dim.0).collect(), owned, *c_order, &expand(old))
        }
        Type::Darray(rows, columns, rank, c_order, old) => {
            // The rows are dealt out cyclically in twos over 2 processes, the columns in blocks over 3.
            let (i, j) = (rank / 3, rank % 3);
            let block = (columns + 2) / 3;
            let rows_owned = (0..*rows).filter(|row| row / 2 % 2 == i).collect();
            let columns_owned = (0..*columns).filter(|column| column / block == j).collect();
            array(vec![*rows, *columns], vec![rows_owned, columns_owned], *c_order, &expand(old))
        }
        Type::Dup(old) => expand(old),
    }
}

fn marked(mut map: Map, lb: i64, ub: i64) -> Map {
    map.retain(|entry| !matches!(entry.1, Entry::Lb | Entry::Ub));
    map.push((lb, Entry::Lb));
    map.push((ub, Entry::Ub));
    map
}

/// Returns the typemap of a part of an array: the elements whose index in each dimension is in `owned`, in
/// the order of the array.
fn array(mut sizes: Vec<i64>, mut owned: Vec<Vec<i64>>, c_order: bool, old: &Map) -> Map {
    if !c_order {
        sizes.reverse();
        owned.reverse();
    }
    let mut places = vec![0];
    for (size, indices) in sizes.iter().zip(&owned) {
        places =
            places.iter().flat_map(|place| indices.iter().map(move |index| place * size + index)).collect();
    }
    let extent = bounds(old).1;
    let map = places.iter().flat_map(|place| copies(old, place * extent, 1)).collect();
    marked(map, 0, sizes.iter().product::<i64>() * extent)
}

fn named(name: &str) -> Arc<Datatype> {
    predefined(predefined_handle(name).unwrap()).unwrap().clone()
}

fn build(t: &Type) -> Arc<Datatype> {
    let width = Width::Int;
    let order = |c_order| if c_order { ORDER_C } else { ORDER_FORTRAN };
    let split = |blocks: &[(i64, i64)]| -> (Vec<i64>, Vec<i64>) { blocks.iter().copied().unzip() };
    match t {
        Type::Named(name) => Ok(named(name)),
        Type::Contiguous(count, old) => datatype::contiguous(width, *count, &build(old)),
        Type::Vector(count, length, stride, old) => {
            datatype::vector(width, *count, *length, *stride, &build(old))
        }
        Type::Hvector(count, length, stride, old) => {
            datatype::hvector(width, *count, *length, *stride, &build(old))
        }
        Type::Indexed(blocks, old) => {
            datatype::indexed(width, &split(blocks).0, &split(blocks).1, &build(old))
        }
        Type::Hindexed(blocks, old) => {
            datatype::hindexed(width, &split(blocks).0, &split(blocks).1, &build(old))
        }
        Type::IndexedBlock(length, places, old) => {
            datatype::indexed_block(width, *length, places, &build(old))
        }
        Type::HindexedBlock(length, places, old) => {
            datatype::hindexed_block(width, *length, places, &build(old))
        }
        Type::Struct(parts) => {
            let lengths: Vec<i64> = parts.iter().map(|part| part.0).collect();
            let places: Vec<i64> = parts.iter().map(|part| part.1).collect();
            let types: Vec<_> = parts.iter().map(|part| build(&part.2)).collect();
            datatype::structure(width, &lengths, &places, types)
        }
        Type::Resized(lb, extent, old) => datatype::resized(width, *lb, *extent, &build(old)),
        Type::Subarray(dims, c_order, old) => {
            let column = |pick: fn(&(i64, i64, i64)) -> i64| dims.iter().map(pick).collect::<Vec<_>>();
            let (sizes, subsizes, starts) = (column(|d| d.0), column(|d| d.1), column(|d| d.2));
            datatype::subarray(width, &sizes, &subsizes, &starts, order(*c_order), &build(old))
        }
        Type::Darray(rows, columns, rank, c_order, old) => {
            let array = Distribution {
                size: 6,
                rank: *rank,
                sizes: &[*rows, *columns],
                distributions: &[DISTRIBUTE_CYCLIC, DISTRIBUTE_BLOCK],
                arguments: &[2, DISTRIBUTE_DEFAULT],
                grid: &[2, 3],
                order: order(*c_order),
            };
            datatype::darray(width, &array, &build(old))
        }
        Type::Dup(old) => Ok(datatype::dup(&build(old))),
    }
    .expect("the arguments are legal")
}

const NAMES: &[&str] =
    &["MPI_INT", "MPI_DOUBLE", "MPI_CHAR", "MPI_SHORT", "MPI_SHORT_INT", "MPI_DOUBLE_INT", "MPI_REAL16"];

fn any_type() -> impl Strategy<Value = Type> {
    let leaf = proptest::sample::select(NAMES).prop_map(Type::Named);
    leaf.prop_recursive(3, 12, 3, |inner| {
        let old = inner.clone().prop_map(Box::new);
        let blocks = |at: i64| prop::collection::vec((0i64..4, -at..at), 0..5);
        let places = |at: i64| prop::collection::vec(-at..at, 0..5);
        let dims = prop::collection::vec((1i64..4, 0i64..3, 0i64..4), 1..4).prop_map(|dims| {
            let fit = |(subsize, before, after): (i64, i64, i64)| (subsize + before + after, subsize, before);
            dims.into_iter().map(fit).collect::<Vec<_>>()
        });
        prop_oneof![
            (0i64..5, old.clone()).prop_map(|(n, old)| Type::Contiguous(n, old)),
            (0i64..5, 0i64..4, -4i64..6, old.clone()).prop_map(|(n, b, s, old)| Type::Vector(n, b, s, old)),
            (0i64..5, 0i64..4, -40i64..60, old.clone())
                .prop_map(|(n, b, s, old)| Type::Hvector(n, b, s, old)),
            (blocks(9), old.clone()).prop_map(|(b, old)| Type::Indexed(b, old)),
            (blocks(90), old.clone()).prop_map(|(b, old)| Type::Hindexed(b, old)),
            (0i64..4, places(9), old.clone()).prop_map(|(n, p, old)| Type::IndexedBlock(n, p, old)),
            (0i64..4, places(90), old.clone()).prop_map(|(n, p, old)| Type::HindexedBlock(n, p, old)),
            prop::collection::vec((0i64..3, -50i64..90, inner), 0..4).prop_map(Type::Struct),
            (-20i64..20, -30i64..60, old.clone()).prop_map(|(lb, e, old)| Type::Resized(lb, e, old)),
            (dims, any::<bool>(), old.clone()).prop_map(|(d, c, old)| Type::Subarray(d, c, old)),
            (1i64..8, 1i64..8, 0i64..6, any::<bool>(), old.clone())
                .prop_map(|(r, c, p, o, old)| Type::Darray(r, c, p, o, old)),
            old.prop_map(Type::Dup),
        ]
    })
}

fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: the tests keep the slice alive while they use the span.
    unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }
}

/// Returns memory for `count` elements of a typemap. Also returns the index in this memory of each byte of
/// data, in packed order, and the offset from the first element's origin at which the memory begins.
fn place(map: &Map, count: usize) -> (Vec<u8>, Vec<usize>, i64) {
    let extent = bounds(map).1;
    let data: Vec<i64> = (0..count as i64)
        .flat_map(|i| {
            map.iter().flat_map(move |&(at, entry)| {
                let bytes = if let Entry::Data(basic) = entry { basic.size() as i64 } else { 0 };
                (0..bytes).map(move |byte| i * extent + at + byte)
            })
        })
        .collect();
    let first = data.iter().copied().min().unwrap_or(0);
    let end = data.iter().copied().max().unwrap_or(0) + 1;
    let memory = (0..end - first).map(|i| (i * 7 + i / 251) as u8).collect();
    (memory, data.iter().map(|at| (at - first) as usize).collect(), first)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 12 } else { 600 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn datatypes_are_their_typemaps(t in any_type(), count in 0usize..4, cuts in (0.0f64..1.0, 0.0f64..1.0)) {
        let map = expand(&t);
        prop_assume!(map.len() < 3000);
        let made = build(&t);
        let (lb, extent) = bounds(&map);
        prop_assert_eq!((made.lb(), made.extent()), (lb, extent));
        let (true_lb, true_ub) = ends(&map).unwrap_or((0, 0));
        prop_assert_eq!((made.true_lb(), made.true_extent()), (true_lb, true_ub - true_lb));

        let (mut memory, data, first) = place(&map, count);
        let expected: Vec<u8> = data.iter().map(|&at| memory[at]).collect();
        let base = memory.as_mut_ptr().expose_provenance().wrapping_add_signed(-first as isize);
        // SAFETY: `memory` holds every byte of the elements and outlives the buffer.
        let buffer = unsafe { Buffer::claim(base, count, made.layout()) };
        prop_assert_eq!(buffer.bytes(), expected.len());
        let (a, b) = ((cuts.0 * expected.len() as f64) as usize, (cuts.1 * expected.len() as f64) as usize);
        for (from, to) in [(0, expected.len()), (a.min(b), a.max(b))] {
            let mut packed = vec![0; to - from];
            buffer.pack(from, span(&mut packed));
            prop_assert_eq!(&packed, &expected[from..to]);
            packed.fill(0);
            buffer.pack_away(from, span(&mut packed));
            prop_assert_eq!(&packed, &expected[from..to]);
            let mut sliced = vec![0; to - from];
            buffer.slice(from, to - from).pack(0, span(&mut sliced));
            prop_assert_eq!(&sliced, &expected[from..to]);
            let mut pieces = vec![];
            buffer.pieces(from, to - from, |piece| {
                let at = piece.address() - memory.as_ptr().addr();
                pieces.extend(at..at + piece.bytes());
            });
            prop_assert_eq!(&pieces, &data[from..to]);
        }

        let mut target = vec![0; memory.len()];
        let target_base = target.as_mut_ptr().expose_provenance().wrapping_add_signed(-first as isize);
        // SAFETY: as above, for `target`.
        let into = unsafe { Buffer::claim(target_base, count, made.layout()) };
        let (from, to) = (a.min(b), a.max(b));
        let fresh: Vec<u8> = (0..to - from).map(|i| !(i as u8)).collect();
        into.unpack(from, span(&mut fresh.clone()));
        let mut wanted = vec![0; memory.len()];
        data[from..to].iter().zip(&fresh).for_each(|(&at, &byte)| wanted[at] = byte);
        prop_assert_eq!(&target, &wanted);

        let words = made.layout().to_words();
        prop_assert_eq!(&Layout::from_words(&words).unwrap(), &**made.layout());
    }

    #[test]
    fn elements_are_counted_by_the_typemap(t in any_type()) {
        let map = expand(&t);
        prop_assume!(map.len() < 1000);
        let made = build(&t);
        let sizes: Vec<u64> = data_of(&map).map(|basic| basic.size() as u64).collect();
        prop_assert_eq!(made.elements(), sizes.len() as u64);
        let (mut ends, mut end) = (vec![0], 0);
        for size in sizes.iter().chain(&sizes) {
            end += size;
            ends.push(end);
        }
        for bytes in 0..=end {
            prop_assert_eq!(made.elements_of(bytes), ends.binary_search(&bytes).ok().map(|n| n as u64));
        }
        if end > 0 {
            for (elements, &bytes) in ends.iter().enumerate() {
                prop_assert_eq!(made.bytes_of_elements(elements as u64), Some(bytes));
            }
        }
    }

    #[test]
    fn external32_comes_back(t in any_type(), count in 0u64..3) {
        let map = expand(&t);
        prop_assume!(map.len() < 1000);
        let made = build(&t);
        let (mut memory, data, first) = place(&map, count as usize);
        let base = memory.as_mut_ptr().expose_provenance().wrapping_add_signed(-first as isize);
        // SAFETY: `memory` holds every byte of the elements and outlives the buffer.
        let buffer = unsafe { Buffer::claim(base, count as usize, made.layout()) };
        let mut external = vec![0; datatype::external32_size(&made, count).unwrap() as usize];
        datatype::pack_external32(&buffer, &made, count, span(&mut external)).unwrap();
        let mut at = 0;
        let mut position = 0;
        for _ in 0..count {
            for basic in data_of(&map) {
                let reversed: Vec<u8> = (0..basic.size()).rev().map(|i| memory[data[position + i]]).collect();
                prop_assert_eq!(&external[at..at + basic.size()], &reversed[..]);
                at += basic.size();
                position += basic.size();
            }
        }
        let mut target = vec![0; memory.len()];
        let target_base = target.as_mut_ptr().expose_provenance().wrapping_add_signed(-first as isize);
        // SAFETY: as above, for `target`.
        let into = unsafe { Buffer::claim(target_base, count as usize, made.layout()) };
        datatype::unpack_external32(span(&mut external), &into, &made, count).unwrap();
        for &at in &data {
            prop_assert_eq!(target[at], memory[at]);
        }
    }
}
