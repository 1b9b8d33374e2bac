// SPDX-License-Identifier: BSD-3-Clause
//! The constructors of derived datatypes (MPI 5.0, section 5.1.2).
//!
//! Each checks its arguments, composes a `LayoutDraft` (runs, bounds and size, checked for overflow), and
//! records its name and arguments as the datatype's recipe. Bounds follow MPI 5.0, section 5.1.7: bounds that
//! were set in any part (`resized`, array types) replace those of the data; a struct's extent is rounded up
//! to its alignment.
//!
//! Read next: `arrays.rs`.

use crate::combiner::{Combiner, Width};
use crate::datatype::{Datatype, OldTypes, Recipe};
use crate::facts::TypeFacts;
use crate::layout::{Body, Layout};
use error::{Class, Error, Result, fail};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How deep structs may be nested at most, since functions on datatypes recurse.
pub const DEPTH_MAX: u32 = 1000;

/// Makes the datatype of `count` elements of `old`, one after the other (MPI_Type_contiguous).
pub fn contiguous(width: Width, count: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
    check_count(count)?;
    let draft = LayoutDraft::of(old).times(count, old.extent())?;
    let recipe = Recipe::new(Combiner::Contiguous, width, vec![count], 0, OldTypes::One(old.clone()));
    draft.finish(old.facts.times(count as u64), recipe)
}

/// Makes the datatype of `count` blocks of `length` elements, whose starts are `stride` elements apart
/// (MPI_Type_vector).
pub fn vector(
    width: Width,
    count: i64,
    length: i64,
    stride: i64,
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let stride_bytes = if count > 1 { stride.checked_mul(old.extent()).ok_or_else(too_large)? } else { 0 };
    strided(Combiner::Vector, width, [count, length, stride], stride_bytes, old)
}

/// Makes the datatype of `count` blocks of `length` elements, whose starts are `stride` bytes apart
/// (MPI_Type_create_hvector).
pub fn hvector(
    width: Width,
    count: i64,
    length: i64,
    stride: i64,
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    strided(Combiner::Hvector, width, [count, length, stride], stride, old)
}

/// Makes the datatype of blocks of `lengths` elements at `displacements`, both counted in elements
/// (MPI_Type_indexed).
pub fn indexed(
    width: Width,
    lengths: &[i64],
    displacements: &[i64],
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    check_equal(lengths, displacements)?;
    let numbers = [&[lengths.len() as i64], lengths, displacements].concat();
    let recipe = Recipe::new(Combiner::Indexed, width, numbers, 0, OldTypes::One(old.clone()));
    blocks(lengths, &in_bytes(displacements, old)?, old, recipe)
}

/// Makes the datatype of blocks of `lengths` elements at `displacements`, which are in bytes
/// (MPI_Type_create_hindexed).
pub fn hindexed(
    width: Width,
    lengths: &[i64],
    displacements: &[i64],
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    check_equal(lengths, displacements)?;
    let numbers = [&[lengths.len() as i64], lengths, displacements].concat();
    let recipe =
        Recipe::new(Combiner::Hindexed, width, numbers, displacements.len(), OldTypes::One(old.clone()));
    blocks(lengths, displacements, old, recipe)
}

/// Makes the datatype of blocks of `length` elements at `displacements`, both counted in elements
/// (MPI_Type_create_indexed_block).
pub fn indexed_block(
    width: Width,
    length: i64,
    displacements: &[i64],
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let numbers = [&[displacements.len() as i64, length], displacements].concat();
    let recipe = Recipe::new(Combiner::IndexedBlock, width, numbers, 0, OldTypes::One(old.clone()));
    blocks(&vec![length; displacements.len()], &in_bytes(displacements, old)?, old, recipe)
}

/// Makes the datatype of blocks of `length` elements at `displacements`, which are in bytes
/// (MPI_Type_create_hindexed_block).
pub fn hindexed_block(
    width: Width,
    length: i64,
    displacements: &[i64],
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let numbers = [&[displacements.len() as i64, length], displacements].concat();
    let recipe =
        Recipe::new(Combiner::HindexedBlock, width, numbers, displacements.len(), OldTypes::One(old.clone()));
    blocks(&vec![length; displacements.len()], displacements, old, recipe)
}

/// Makes the datatype of blocks of different datatypes (`parts`) at `displacements`, which are in bytes
/// (MPI_Type_create_struct).
pub fn structure(
    width: Width,
    lengths: &[i64],
    displacements: &[i64],
    parts: Vec<Arc<Datatype>>,
) -> Result<Arc<Datatype>> {
    check_equal(lengths, displacements)?;
    if parts.len() != lengths.len() {
        fail!(Class::Arg, "a struct of {} blocks has {} datatypes", lengths.len(), parts.len());
    }
    let mut draft = LayoutDraft::default();
    for ((&length, &displacement), part) in lengths.iter().zip(displacements).zip(&parts) {
        check_length(length)?;
        draft.join(&LayoutDraft::of(part).times(length, part.extent())?, displacement)?;
    }
    let numbers = [&[lengths.len() as i64], lengths, displacements].concat();
    let recipe = Recipe::new(Combiner::Struct, width, numbers, displacements.len(), OldTypes::Many(parts));
    let facts = recipe.facts();
    draft.padded()?.finish(facts, recipe)
}

/// Makes a datatype with the data of `old` and other bounds (MPI_Type_create_resized).
pub fn resized(width: Width, lb: i64, extent: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>> {
    let ub = lb.checked_add(extent).ok_or_else(too_large)?;
    let draft = LayoutDraft { marks: (Some(lb), Some(ub)), ..LayoutDraft::of(old) };
    let recipe = Recipe::new(Combiner::Resized, width, vec![lb, extent], 2, OldTypes::One(old.clone()));
    draft.finish(old.facts, recipe)
}

/// Makes a duplicate of `old`, which is committed if `old` is (MPI_Type_dup). Predefined operators take the
/// duplicate of a predefined datatype, too.
pub fn dup(old: &Arc<Datatype>) -> Arc<Datatype> {
    Arc::new(Datatype {
        layout: old.layout.clone(),
        basic: old.basic,
        predefined: None,
        permanent: false,
        marked: old.marked,
        align: old.align,
        facts: old.facts,
        recipe: Recipe::new(Combiner::Dup, Width::Int, vec![], 0, OldTypes::One(old.clone())),
        committed: AtomicBool::new(old.is_committed()),
    })
}

/// The layout of a datatype that a constructor is making, without the recipe (constructor and arguments).
#[derive(Clone, Debug)]
pub(crate) struct LayoutDraft<'a> {
    /// The data as loops and runs. They are borrowed from the datatype that the draft began with, until the
    /// draft changes them.
    pub body: Cow<'a, Body>,
    pub size: i64,
    /// The offsets at which the data begin and end, including the padding of structs; None without data.
    pub data: Option<(i64, i64)>,
    /// The lower and the upper bound of the draft. Each is None if no datatype in it has set that bound,
    /// which then follows from the data.
    pub marks: (Option<i64>, Option<i64>),
    /// The greatest alignment of the basic types in the data, in bytes.
    pub align: i64,
}

impl Default for LayoutDraft<'_> {
    fn default() -> Self {
        LayoutDraft { body: Cow::Owned(Body::default()), size: 0, data: None, marks: (None, None), align: 1 }
    }
}

impl<'a> LayoutDraft<'a> {
    /// Makes the draft of one element of `old`.
    pub fn of(old: &'a Datatype) -> LayoutDraft<'a> {
        LayoutDraft {
            body: Cow::Borrowed(old.layout.body()),
            size: old.size() as i64,
            data: (old.size() > 0).then(|| (old.lb(), old.lb() + old.extent())),
            marks: (old.marked.0.then(|| old.lb()), old.marked.1.then(|| old.lb() + old.extent())),
            align: old.align,
        }
    }

    /// Returns the draft of `count` copies of this draft's data, `stride` bytes apart.
    pub fn times(self, count: i64, stride: i64) -> Result<LayoutDraft<'a>> {
        match count {
            0 => return Ok(LayoutDraft::default()),
            1 => return Ok(self),
            _ => {}
        }
        let last = stride.checked_mul(count - 1).ok_or_else(too_large)?;
        let data = match self.data {
            Some((from, to)) => {
                spanned(shifted(Some(from), last.min(0))?.zip(shifted(Some(to), last.max(0))?))?
            }
            None => None,
        };
        let marks = (shifted(self.marks.0, last.min(0))?, shifted(self.marks.1, last.max(0))?);
        let size = self.size.checked_mul(count).ok_or_else(too_large)?;
        let body = Cow::Owned(self.body.into_owned().repeated(count as u64, stride));
        Ok(LayoutDraft { body, size, data, marks, align: self.align })
    }

    /// Adds `by` bytes to the offsets of all data, and to the bounds that are set.
    pub fn shifted(mut self, by: i64) -> Result<LayoutDraft<'a>> {
        if by != 0 {
            self.data = moved(self.data, by)?;
            self.marks = (shifted(self.marks.0, by)?, shifted(self.marks.1, by)?);
            self.body = Cow::Owned(self.body.into_owned().shifted(by));
        }
        Ok(self)
    }

    /// Appends the data of `other`, moved by `by` bytes, and widens the bounds so that they contain the
    /// bounds of `other`.
    pub fn join(&mut self, other: &LayoutDraft<'_>, by: i64) -> Result<()> {
        self.data = spanned(hull(self.data, moved(other.data, by)?))?;
        let (lower, upper) = (shifted(other.marks.0, by)?, shifted(other.marks.1, by)?);
        self.marks.0 = self.marks.0.into_iter().chain(lower).min();
        self.marks.1 = self.marks.1.into_iter().chain(upper).max();
        self.size = self.size.checked_add(other.size).ok_or_else(too_large)?;
        if other.size > 0 {
            self.align = self.align.max(other.align);
            self.body.to_mut().append(&other.body, by)?;
        }
        Ok(())
    }

    /// Rounds the extent up to the alignment unless bounds were set (the epsilon of MPI 5.0, section 5.1.6),
    /// as compilers pad structs. As in all other MPIs, only structs are padded, although the standard's
    /// definition covers every constructor: programs use hvectors whose extent is not aligned.
    fn padded(mut self) -> Result<LayoutDraft<'a>> {
        if let Some((lb, ub)) = self.data {
            let extent = ub.checked_sub(lb).ok_or_else(too_large)?;
            let rounded = extent.checked_add(self.align - 1).ok_or_else(too_large)?;
            self.data = Some((lb, lb.checked_add(rounded - rounded % self.align).ok_or_else(too_large)?));
        }
        Ok(self)
    }

    pub fn finish(self, facts: TypeFacts, recipe: Recipe) -> Result<Arc<Datatype>> {
        let (first, end) = self.data.unwrap_or((0, 0));
        let (lb, ub) = (self.marks.0.unwrap_or(first), self.marks.1.unwrap_or(end));
        let extent = ub.checked_sub(lb).ok_or_else(too_large)?;
        if facts.depth > DEPTH_MAX {
            fail!(Class::Type, "the datatype is nested more than {DEPTH_MAX} deep");
        }
        Ok(Arc::new(Datatype {
            layout: Arc::new(Layout::new(self.body.into_owned(), lb, extent)?),
            basic: None,
            predefined: None,
            permanent: false,
            marked: (self.marks.0.is_some(), self.marks.1.is_some()),
            align: self.align,
            facts,
            recipe,
            committed: AtomicBool::new(false),
        }))
    }
}

fn shifted(bound: Option<i64>, by: i64) -> Result<Option<i64>> {
    bound.map(|at| at.checked_add(by).ok_or_else(too_large)).transpose()
}

fn moved(bounds: Option<(i64, i64)>, by: i64) -> Result<Option<(i64, i64)>> {
    let Some((from, to)) = bounds else { return Ok(None) };
    Ok(shifted(Some(from), by)?.zip(shifted(Some(to), by)?))
}

/// Returns the bounds if they are less than 2^63 bytes apart, so that all strides between runs fit an `i64`;
/// otherwise an error.
fn spanned(bounds: Option<(i64, i64)>) -> Result<Option<(i64, i64)>> {
    match bounds {
        Some((from, to)) if to.checked_sub(from).is_none() => Err(too_large()),
        fits => Ok(fits),
    }
}

/// Returns the smallest range that contains both ranges; None stands for an empty range.
fn hull(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (one, other) => one.or(other),
    }
}

/// Makes the datatype of blocks of `old` whose starts are `stride_bytes` apart. `numbers` are the number of
/// blocks, the length of one block, and the stride as the program gave it.
fn strided(
    combiner: Combiner,
    width: Width,
    numbers: [i64; 3],
    stride_bytes: i64,
    old: &Arc<Datatype>,
) -> Result<Arc<Datatype>> {
    let [count, length, _] = numbers;
    check_count(count)?;
    check_length(length)?;
    let draft = LayoutDraft::of(old).times(length, old.extent())?.times(count, stride_bytes)?;
    let displacements = usize::from(combiner == Combiner::Hvector);
    let recipe = Recipe::new(combiner, width, numbers.to_vec(), displacements, OldTypes::One(old.clone()));
    draft.finish(old.facts.times((count as u64).saturating_mul(length as u64)), recipe)
}

/// Makes the datatype of blocks of `old` with these lengths at these displacements in bytes. Equal blocks at
/// equal distances become a loop, all other blocks are listed one by one.
fn blocks(
    lengths: &[i64],
    displacements: &[i64],
    old: &Arc<Datatype>,
    recipe: Recipe,
) -> Result<Arc<Datatype>> {
    lengths.iter().try_for_each(|&length| check_length(length))?;
    let elements =
        lengths.iter().try_fold(0i64, |sum, &length| sum.checked_add(length)).ok_or_else(too_large)?;
    let element = LayoutDraft::of(old);
    let mut draft = LayoutDraft::default();
    if let Some(step) = regular(lengths, displacements) {
        let all = element.times(lengths[0], old.extent())?.times(lengths.len() as i64, step)?;
        draft = all.shifted(displacements[0])?;
    } else {
        let (mut block, mut block_length) = (LayoutDraft::default(), 0);
        for (&length, &displacement) in lengths.iter().zip(displacements) {
            if length != block_length {
                block = element.clone().times(length, old.extent())?;
                block_length = length;
            }
            draft.join(&block, displacement)?;
        }
    }
    draft.finish(old.facts.times(elements as u64), recipe)
}

/// Returns the distance in bytes from the start of one block to the start of the next, if all these distances
/// are equal and all blocks have one length; otherwise None.
fn regular(lengths: &[i64], displacements: &[i64]) -> Option<i64> {
    let step = match displacements {
        [] => return None,
        [_] => 0,
        [first, second, ..] => second.checked_sub(*first)?,
    };
    let in_step = displacements.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step));
    (in_step && lengths.iter().all(|&length| length == lengths[0])).then_some(step)
}

fn in_bytes(displacements: &[i64], old: &Datatype) -> Result<Vec<i64>> {
    displacements.iter().map(|d| d.checked_mul(old.extent()).ok_or_else(too_large)).collect()
}

fn check_count(count: i64) -> Result<()> {
    if count < 0 {
        fail!(Class::Count, "the count {count} is negative");
    }
    Ok(())
}

fn check_length(length: i64) -> Result<()> {
    if length < 0 {
        fail!(Class::Arg, "the block length {length} is negative");
    }
    Ok(())
}

fn check_equal(lengths: &[i64], displacements: &[i64]) -> Result<()> {
    if lengths.len() != displacements.len() {
        fail!(Class::Arg, "{} block lengths came with {} displacements", lengths.len(), displacements.len());
    }
    Ok(())
}

#[cold]
pub(crate) fn too_large() -> Error {
    Error::new(Class::Arg, "the datatype's size or its offsets do not fit 63 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{predefined, predefined_handle};

    fn named(name: &str) -> Arc<Datatype> {
        predefined(predefined_handle(name).unwrap()).unwrap().clone()
    }

    fn bounds(datatype: &Datatype) -> (i64, i64) {
        (datatype.lb(), datatype.extent())
    }

    #[test]
    fn bounds_are_those_of_the_standards_examples() {
        // MPI 5.0, example 5.1: a double and a char; the extent is padded.
        let pair =
            structure(Width::Int, &[1, 1], &[0, 8], vec![named("MPI_DOUBLE"), named("MPI_CHAR")]).unwrap();
        assert_eq!((bounds(&pair), pair.size()), ((0, 16), 9));
        // Section 5.1.7: resizing MPI_INT to [-3, 6) and repeating it gives [-3, 15).
        let wide = resized(Width::Int, -3, 9, &named("MPI_INT")).unwrap();
        assert_eq!(bounds(&contiguous(Width::Int, 2, &wide).unwrap()), (-3, 18));
        // Bounds that were set hide the data around them.
        let mixed = structure(Width::Int, &[1, 1], &[0, 100], vec![wide, named("MPI_INT")]).unwrap();
        assert_eq!((bounds(&mixed), mixed.true_extent()), ((-3, 9), 104));
        // Only structs are padded: a contiguous type of a struct keeps the padding, a vector of basic
        // elements has none.
        assert_eq!(bounds(&contiguous(Width::Int, 2, &pair).unwrap()), (0, 32));
        assert_eq!(bounds(&hvector(Width::Int, 3, 1, 5, &named("MPI_INT")).unwrap()), (0, 14));
        let nothing = contiguous(Width::Int, 0, &pair).unwrap();
        assert_eq!((bounds(&nothing), nothing.size()), ((0, 0), 0));
    }

    #[test]
    fn what_has_no_short_form_is_refused_at_once() {
        let gaps = hvector(Width::Int, 3, 1, 5, &named("MPI_INT")).unwrap();
        let spread = resized(Width::Int, 0, 100, &gaps).unwrap();
        let error = hindexed(Width::Count, &[1, 1 << 40], &[0, 1 << 30], &spread).unwrap_err();
        assert_eq!(error.class, Class::NoMem, "{}", error.message);
    }

    #[test]
    fn bad_arguments_get_their_class() {
        let int = named("MPI_INT");
        let class = |result: Result<Arc<Datatype>>| result.unwrap_err().class;
        assert_eq!(class(contiguous(Width::Int, -1, &int)), Class::Count);
        assert_eq!(class(vector(Width::Int, 2, -1, 1, &int)), Class::Arg);
        assert_eq!(class(indexed(Width::Int, &[1, 2], &[0], &int)), Class::Arg);
        assert_eq!(class(contiguous(Width::Count, i64::MAX, &int)), Class::Arg);
        assert_eq!(class(hvector(Width::Count, 3, 1, i64::MAX, &int)), Class::Arg);
        assert_eq!(class(hindexed(Width::Count, &[1], &[i64::MAX], &int)), Class::Arg);
        assert_eq!(class(resized(Width::Count, i64::MAX, 1, &int)), Class::Arg);
        assert_eq!(class(vector(Width::Count, i64::MAX, i64::MAX, 0, &int)), Class::Arg);
        assert_eq!(class(hvector(Width::Count, i64::MAX, 2, 0, &int)), Class::Arg);
    }

    #[test]
    fn recipes_tell_the_arguments_in_order() {
        let int = named("MPI_INT");
        let small = hindexed(Width::Int, &[1, 2], &[0, 40], &int).unwrap();
        let recipe = small.recipe();
        assert_eq!((recipe.integers(), recipe.addresses()), (&[2i64, 1, 2][..], &[0i64, 40][..]));
        assert!(recipe.counts().is_empty() && Arc::ptr_eq(&recipe.datatypes[0], &int));
        let large = hindexed(Width::Count, &[1, 2], &[0, 40], &int).unwrap();
        assert_eq!(large.recipe().counts(), [2, 1, 2, 0, 40]);
        assert!(large.recipe().integers().is_empty() && large.recipe().addresses().is_empty());
        let copy = dup(&large);
        assert_eq!((copy.recipe().combiner, copy.is_committed()), (Combiner::Dup, false));
        copy.commit();
        assert!(dup(&copy).is_committed() && !large.is_committed());
    }

    #[test]
    fn blocks_in_step_are_one_run_and_nested_vectors_stay_small() {
        let double = named("MPI_DOUBLE");
        let displacements: Vec<i64> = (0..100_000).map(|i| i * 3).collect();
        let regular = indexed_block(Width::Int, 1, &displacements, &double).unwrap();
        assert_eq!(regular.layout().runs().len(), 1);
        let plane = vector(Width::Int, 1000, 2, 5, &double).unwrap();
        let planes = hvector(Width::Int, 1000, 1, 1 << 20, &plane).unwrap();
        let cubes = hvector(Width::Int, 1000, 1, 1 << 30, &planes).unwrap();
        assert_eq!((cubes.layout().runs().len(), cubes.layout().loops().len()), (1, 2));
        assert_eq!(cubes.layout().pieces(), 1_000_000_000);
        let record = structure(Width::Int, &[1, 1], &[0, 8], vec![named("MPI_CHAR"), double]).unwrap();
        let records = contiguous(Width::Int, 1_000_000, &record).unwrap();
        assert_eq!((records.layout().runs().len(), records.layout().loops().len()), (2, 1));
    }

    #[test]
    #[cfg_attr(miri, ignore)] // This takes hours.
    fn long_chains_end_well() {
        let mut chain = named("MPI_INT");
        for _ in 0..100_000 {
            chain = dup(&contiguous(Width::Int, 1, &chain).unwrap());
        }
        drop(chain);
        let mut nest = named("MPI_INT");
        let char = named("MPI_CHAR");
        let refusal = loop {
            match structure(Width::Int, &[1, 1], &[0, nest.extent()], vec![nest.clone(), char.clone()]) {
                Ok(deeper) => nest = deeper,
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refusal.class, Class::Type);
        assert_eq!(nest.elements_of(4), Some(1));
    }
}
