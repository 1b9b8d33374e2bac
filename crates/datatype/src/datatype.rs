// SPDX-License-Identifier: BSD-3-Clause
//! Datatypes: a layout, the basic types in it, and the recipe by which it was made.
//!
//! Invariant: a datatype never changes once made, except for its committed flag; it is shared by `Arc`. Its
//! content follows from its recipe: the constructor and the arguments, among them other datatypes. Numbers
//! that are often needed are computed when it is made.
//!
//! Read next: `construct.rs`, which makes derived datatypes, and `predefined.rs`.

use crate::basic::Basic;
use crate::combiner::{Combiner, Width};
use crate::facts::{Leaf, TypeFacts};
use crate::layout::Layout;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub struct Datatype {
    pub(crate) layout: Arc<Layout>,
    pub(crate) basic: Option<Basic>,
    pub(crate) predefined: Option<u32>,
    /// Whether the datatype is predefined, with a name or without. Then it is committed from the start, and
    /// never freed.
    pub(crate) permanent: bool,
    /// Whether a constructor has set the lower bound, and whether one has set the upper bound (resized,
    /// subarray, darray). A bound that is set determines the bound of the types that are derived from this
    /// one.
    pub(crate) marked: (bool, bool),
    /// The greatest alignment of the basic types in the datatype, in bytes; 1 if there are none.
    pub(crate) align: i64,
    pub(crate) facts: TypeFacts,
    pub(crate) recipe: Recipe,
    pub(crate) committed: AtomicBool,
}

/// How a datatype was made: the constructor and its arguments, in the order of MPI_Type_get_contents.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub combiner: Combiner,
    /// The arguments that are numbers: first `integers` arguments of type int, then `addresses` arguments of
    /// type MPI_Aint. All others are of type MPI_Count.
    pub(crate) numbers: Vec<i64>,
    pub(crate) integers: usize,
    pub(crate) addresses: usize,
    /// The arguments that are datatypes. A predefined datatype has a handle (`Datatype::predefined`); for the
    /// others MPI_Type_get_contents makes new handles.
    pub datatypes: OldTypes,
}

/// The datatypes from which a constructor made another datatype.
#[derive(Clone, Debug)]
pub enum OldTypes {
    One(Arc<Datatype>),
    /// The datatypes of a struct's blocks. The list is empty in a predefined datatype.
    Many(Vec<Arc<Datatype>>),
}

impl Datatype {
    /// Returns the number of data bytes of one element (MPI_Type_size).
    #[inline]
    pub fn size(&self) -> usize {
        self.layout.size
    }

    /// Returns the distance in bytes from one element to the next (MPI_Type_get_extent).
    #[inline]
    pub fn extent(&self) -> i64 {
        self.layout.extent
    }

    pub fn lb(&self) -> i64 {
        self.layout.lb
    }

    /// Returns the offset, from the element's origin, of the data byte that is first in memory
    /// (MPI_Type_get_true_extent).
    pub fn true_lb(&self) -> i64 {
        self.layout.true_lb
    }

    /// Returns the distance in bytes from the first data byte to the end of the last data byte
    /// (MPI_Type_get_true_extent).
    pub fn true_extent(&self) -> i64 {
        self.layout.true_extent
    }

    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the machine type of a predefined datatype or of a duplicate of one; None for all other
    /// datatypes, which predefined operators do not take.
    #[inline]
    pub fn basic(&self) -> Option<Basic> {
        self.basic
    }

    /// Returns the machine type of the predefined datatypes in this datatype if all have the same; otherwise
    /// None. Accumulate operations combine elements of this type (MPI 5.0, section 12.3.4). A pair is one
    /// element.
    #[inline]
    pub fn element(&self) -> Option<Basic> {
        if self.basic.is_some() { self.basic } else { self.element_of_parts() }
    }

    #[cold]
    fn element_of_parts(&self) -> Option<Basic> {
        let unit = self.unit();
        if unit.basic.is_some() {
            return unit.basic;
        }
        let mut elements = unit.recipe.blocks().map(|(_, part)| part.element());
        let first = elements.next()??;
        elements.all(|element| element == Some(first)).then_some(first)
    }

    /// Returns the datatype's handle in the standard ABI; None if the datatype has no fixed handle.
    pub fn predefined(&self) -> Option<u32> {
        self.predefined
    }

    /// Whether the datatype is predefined, so that it cannot be freed. The Fortran 90 types are predefined
    /// without a name.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Returns the constructor and the arguments that made the datatype (MPI_Type_get_envelope,
    /// MPI_Type_get_contents).
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    #[inline]
    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Commits the datatype (MPI_Type_commit). This only sets a flag: layouts are compiled when they are
    /// made.
    pub fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// Returns the number of basic elements in one element of this datatype: a pair has two, a complex number
    /// is one.
    pub fn elements(&self) -> u64 {
        self.facts.elements
    }

    /// Returns the number of elements in `bytes` packed bytes (MPI_Get_count); None (MPI_UNDEFINED) if the
    /// last element is incomplete.
    pub fn count_of(&self, bytes: u64) -> Option<u64> {
        match self.size() as u64 {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then_some(bytes / size),
        }
    }

    /// Returns the number of basic elements in `bytes` packed bytes (MPI_Get_elements); None (MPI_UNDEFINED)
    /// if the last element is incomplete.
    pub fn elements_of(&self, bytes: u64) -> Option<u64> {
        if self.size() == 0 {
            return (bytes == 0).then_some(0);
        }
        let unit = self.unit();
        let size = unit.size() as u64;
        let whole = (bytes / size).checked_mul(unit.facts.elements)?;
        let (mut rest, mut elements) = (bytes % size, 0);
        if let Some(basic) = unit.basic {
            // A pair may be cut after its value.
            let value_bytes = basic.pair().map_or(0, |(value, _)| value.size() as u64);
            return match rest {
                0 => Some(whole),
                _ if rest == value_bytes => whole.checked_add(1),
                _ => None,
            };
        }
        for (count, part) in unit.recipe.blocks() {
            let part_bytes = count * part.size() as u64;
            if rest < part_bytes {
                elements += part.elements_of(rest)?;
                break;
            }
            rest -= part_bytes;
            elements += count * part.facts.elements;
        }
        whole.checked_add(elements)
    }

    /// Returns the number of packed bytes of the first `elements` basic elements (MPI_Status_set_elements);
    /// None if the number is too large. It is the inverse of `elements_of`.
    pub fn bytes_of_elements(&self, elements: u64) -> Option<u64> {
        if self.facts.elements == 0 {
            return (elements == 0).then_some(0);
        }
        let unit = self.unit();
        let whole = (elements / unit.facts.elements).checked_mul(unit.size() as u64)?;
        let (mut rest, mut bytes) = (elements % unit.facts.elements, 0);
        if let Some((value, _)) = unit.basic.and_then(Basic::pair) {
            return whole.checked_add(rest * value.size() as u64);
        }
        for (count, part) in unit.recipe.blocks() {
            let part_elements = count * part.facts.elements;
            if rest < part_elements {
                bytes += part.bytes_of_elements(rest)?;
                break;
            }
            rest -= part_elements;
            bytes += count * part.size() as u64;
        }
        whole.checked_add(bytes)
    }

    /// Calls `each` for the basic elements of `count` elements, in typemap order: with a type, and how many
    /// elements of this type follow each other.
    pub(crate) fn each_leaf(&self, count: u64, each: &mut impl FnMut(Leaf, u64)) {
        if let Some(leaf) = self.facts.uniform {
            return each(leaf, count * self.facts.elements);
        }
        if self.facts.elements == 0 {
            return;
        }
        let unit = self.unit();
        for _ in 0..count * (self.facts.elements / unit.facts.elements) {
            match unit.basic.and_then(Basic::pair) {
                Some((value, index)) => {
                    let index = Leaf::of_index(index);
                    let external_bytes = unit.facts.external_size as u8 - index.external_bytes;
                    each(Leaf { basic: value, external_bytes }, 1);
                    each(index, 1);
                }
                None => unit.recipe.blocks().for_each(|(times, part)| part.each_leaf(times, each)),
            }
        }
    }

    /// Returns the datatype of which this datatype's data are a sequence: a predefined datatype or a struct.
    fn unit(&self) -> &Datatype {
        let mut unit = self;
        while let (None, OldTypes::One(part)) = (unit.basic, &unit.recipe.datatypes) {
            unit = part;
        }
        unit
    }
}

impl Drop for Datatype {
    /// Frees the datatypes from which this one was made, in a loop: recursion would need stack for a whole
    /// chain of datatypes.
    fn drop(&mut self) {
        let mut left = Vec::new();
        self.release(&mut left);
        while let Some(part) = left.pop() {
            if let Some(mut part) = Arc::into_inner(part) {
                part.release(&mut left);
            }
        }
    }
}

impl Datatype {
    /// Gives up the datatypes from which this one was made. Those that have no other owner are moved to
    /// `left`, and the caller frees them.
    fn release(&mut self, left: &mut Vec<Arc<Datatype>>) {
        let last = |part: &Arc<Datatype>| Arc::strong_count(part) == 1;
        match std::mem::replace(&mut self.recipe.datatypes, OldTypes::Many(vec![])) {
            OldTypes::One(part) if last(&part) => left.push(part),
            OldTypes::One(_) => {}
            OldTypes::Many(parts) => left.extend(parts.into_iter().filter(last)),
        }
    }
}

impl Deref for OldTypes {
    type Target = [Arc<Datatype>];
    fn deref(&self) -> &[Arc<Datatype>] {
        match self {
            OldTypes::One(part) => std::slice::from_ref(part),
            OldTypes::Many(parts) => parts,
        }
    }
}

impl Recipe {
    pub const NAMED: Recipe = Recipe {
        combiner: Combiner::Named,
        numbers: vec![],
        integers: 0,
        addresses: 0,
        datatypes: OldTypes::Many(vec![]),
    };

    /// Makes the recipe of a constructor. The last `displacements` of `numbers` are displacements in bytes,
    /// the others are counts. In the `int` form displacements are of type MPI_Aint and counts of type int; in
    /// the `_c` form all are MPI_Counts.
    pub(crate) fn new(
        combiner: Combiner,
        width: Width,
        numbers: Vec<i64>,
        displacements: usize,
        datatypes: OldTypes,
    ) -> Recipe {
        let (integers, addresses) = match width {
            Width::Int => (numbers.len() - displacements, displacements),
            Width::Count => (0, 0),
        };
        Recipe { combiner, numbers, integers, addresses, datatypes }
    }

    pub fn integers(&self) -> &[i64] {
        &self.numbers[..self.integers]
    }

    pub fn addresses(&self) -> &[i64] {
        &self.numbers[self.integers..self.integers + self.addresses]
    }

    /// Returns the constructor's arguments of the type MPI_Count; only the `_c` forms have any.
    pub fn counts(&self) -> &[i64] {
        &self.numbers[self.integers + self.addresses..]
    }

    /// Returns the blocks of a struct that have data: for each, the number of elements, and their datatype.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, &Arc<Datatype>)> {
        let blocks = self.numbers.iter().skip(1).zip(&*self.datatypes);
        blocks
            .map(|(&length, part)| (length as u64, part))
            .filter(|(length, part)| *length > 0 && part.size() > 0)
    }

    pub(crate) fn facts(&self) -> TypeFacts {
        let blocks = self.blocks().map(|(times, part)| part.facts.times(times));
        let facts = blocks.fold(TypeFacts::NONE, TypeFacts::then);
        TypeFacts { depth: facts.depth + 1, ..facts }
    }
}
