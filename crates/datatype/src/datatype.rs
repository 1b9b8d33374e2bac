//! Datatypes: a layout, the basic types that lie in it, and how it was made.
//!
//! A datatype never changes once made (its committed flag aside) and is shared by `Arc`. Its content is a tree that
//! shares its parts' trees; answers about it (elements, signature, external32 size) are composed when it is made.
//! Read next: `construct.rs`, which makes derived datatypes, and `predefined.rs`.

use crate::basic::Basic;
use crate::layout::Layout;
use crate::recipe::Recipe;
use crate::signature::Signature;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An MPI datatype.
#[derive(Debug)]
pub struct Datatype {
    pub(crate) layout: Arc<Layout>,
    pub(crate) basic: Option<Basic>,
    pub(crate) predefined: Option<u32>,
    /// Whether it is predefined, named or not: then it is committed from the start and cannot be freed.
    pub(crate) permanent: bool,
    /// Whether its lower and its upper bound were set (resized, subarray, darray), and so determine those of what is made from it.
    pub(crate) marked: (bool, bool),
    /// The greatest alignment of its basic types, in bytes; 1 where it has none.
    pub(crate) align: i64,
    pub(crate) content: Content,
    pub(crate) facts: Facts,
    pub(crate) recipe: Recipe,
    pub(crate) committed: AtomicBool,
}

/// A basic type where it lies: also how long it is in external32, which the machine type does not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub basic: Basic,
    pub external_bytes: u8,
}

/// The basic types of one element, in typemap order.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A predefined datatype: one basic type, or the two of a pair.
    Leaves(Vec<Leaf>),
    /// The elements of one datatype, so many times.
    Repeat(u64, Arc<Datatype>),
    /// Elements of several datatypes, one after the other.
    Sequence(Vec<(u64, Arc<Datatype>)>),
}

/// What follows from the content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub signature: Signature,
    /// Bytes of one element in external32; saturates.
    pub external_size: u64,
    /// The one basic type that all elements have, if they have one.
    pub uniform: Option<Leaf>,
    /// How deep the content is nested.
    pub depth: u32,
}

impl Datatype {
    /// Data bytes of one element (MPI_Type_size).
    #[inline]
    pub fn size(&self) -> usize {
        self.layout.size
    }
    /// Bytes from one element to the next (MPI_Type_get_extent).
    #[inline]
    pub fn extent(&self) -> i64 {
        self.layout.extent
    }
    /// Lower bound.
    pub fn lb(&self) -> i64 {
        self.layout.lb
    }
    /// Offset of the first data byte (MPI_Type_get_true_extent).
    pub fn true_lb(&self) -> i64 {
        self.layout.true_lb
    }
    /// Bytes from the first data byte to the end of the last.
    pub fn true_extent(&self) -> i64 {
        self.layout.true_extent
    }
    /// Where the data lies.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
    /// The machine type of a predefined datatype or of a duplicate of one: what the predefined operators work on.
    #[inline]
    pub fn basic(&self) -> Option<Basic> {
        self.basic
    }
    /// The predefined datatype, as its machine type, that all elements of this one are, if they are of one: what accumulate
    /// operations combine (MPI 5.0, section 12.3.4). A pair is one element.
    #[inline]
    pub fn element(&self) -> Option<Basic> {
        if self.basic.is_some() { self.basic } else { self.element_of_parts() }
    }

    fn element_of_parts(&self) -> Option<Basic> {
        match &self.content {
            Content::Leaves(leaves) => match leaves[..] {
                [leaf] => Some(leaf.basic),
                [value, index] => {
                    Basic::ALL.into_iter().find(|basic| basic.pair() == Some((value.basic, index.basic)))
                }
                _ => None,
            },
            Content::Repeat(_, part) => part.element(),
            Content::Sequence(parts) => {
                let mut elements = parts.iter().map(|(_, part)| part.element());
                let first = elements.next()??;
                elements.all(|element| element == Some(first)).then_some(first)
            }
        }
    }
    /// The handle in the standard ABI, if it has a fixed one.
    pub fn predefined(&self) -> Option<u32> {
        self.predefined
    }
    /// Whether it is predefined, named or not (the Fortran 90 ones have no name): it must not be freed.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }
    /// How it was made (MPI_Type_get_envelope, MPI_Type_get_contents).
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
    /// Whether it may be used in communication.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }
    /// Allows it in communication (MPI_Type_commit). Layouts are compiled when made, so nothing else happens.
    pub fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }
    /// The basic types of one element, for comparison between ranks; `.times(count)` gives that of a message.
    pub fn signature(&self) -> Signature {
        self.facts.signature
    }

    /// How many whole elements `bytes` packed bytes are (MPI_Get_count); nothing (MPI_UNDEFINED) if not a whole number.
    pub fn count_of(&self, bytes: u64) -> Option<u64> {
        match self.size() as u64 {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then_some(bytes / size),
        }
    }

    /// How many basic elements `bytes` packed bytes are (MPI_Get_elements); nothing (MPI_UNDEFINED) if the last is broken.
    pub fn elements_of(&self, bytes: u64) -> Option<u64> {
        let size = self.size() as u64;
        if size == 0 {
            return (bytes == 0).then_some(0);
        }
        let whole = (bytes / size).checked_mul(self.facts.signature.elements)?;
        let mut rest = bytes % size;
        let mut elements = 0;
        if rest > 0 {
            match &self.content {
                Content::Leaves(leaves) => {
                    for leaf in leaves {
                        if rest == 0 {
                            break;
                        }
                        rest = rest.checked_sub(leaf.basic.size() as u64)?;
                        elements += 1;
                    }
                }
                Content::Repeat(_, part) => elements = part.elements_of(rest)?,
                Content::Sequence(parts) => {
                    for (count, part) in parts {
                        let part_bytes = count * part.size() as u64;
                        if rest < part_bytes {
                            elements += part.elements_of(rest)?;
                            break;
                        }
                        rest -= part_bytes;
                        elements += count * part.facts.signature.elements;
                    }
                }
            }
        }
        whole.checked_add(elements)
    }

    /// How many packed bytes the first `elements` basic elements of a message are: the inverse of `elements_of`
    /// (MPI_Status_set_elements).
    pub fn bytes_of_elements(&self, elements: u64) -> Option<u64> {
        let per_element = self.facts.signature.elements;
        if per_element == 0 {
            return (elements == 0).then_some(0);
        }
        let whole = (elements / per_element).checked_mul(self.size() as u64)?;
        let mut rest = elements % per_element;
        let mut bytes = 0;
        if rest > 0 {
            match &self.content {
                Content::Leaves(leaves) => {
                    bytes = leaves.iter().take(rest as usize).map(|leaf| leaf.basic.size() as u64).sum();
                }
                Content::Repeat(_, part) => bytes = part.bytes_of_elements(rest)?,
                Content::Sequence(parts) => {
                    for (count, part) in parts {
                        let part_elements = count * part.facts.signature.elements;
                        if rest < part_elements {
                            bytes += part.bytes_of_elements(rest)?;
                            break;
                        }
                        rest -= part_elements;
                        bytes += count * part.size() as u64;
                    }
                }
            }
        }
        whole.checked_add(bytes)
    }

    /// Calls `each` with the basic types of `count` elements in typemap order: a type and how many of it follow each other.
    pub(crate) fn each_leaf(&self, count: u64, each: &mut impl FnMut(Leaf, u64)) {
        if let Some(leaf) = self.facts.uniform {
            return each(leaf, count * self.facts.signature.elements);
        }
        for _ in 0..count {
            match &self.content {
                Content::Leaves(leaves) => leaves.iter().for_each(|&leaf| each(leaf, 1)),
                Content::Repeat(times, part) => part.each_leaf(*times, each),
                Content::Sequence(parts) => {
                    parts.iter().for_each(|(times, part)| part.each_leaf(*times, each))
                }
            }
        }
    }
}

impl Drop for Datatype {
    /// Takes long chains of datatypes apart in a loop: each dropping the next would need stack for all.
    fn drop(&mut self) {
        let mut left = parts_of(self);
        while let Some(part) = left.pop() {
            if let Some(mut last) = Arc::into_inner(part) {
                left.extend(parts_of(&mut last));
            }
        }
    }
}

/// Takes the references to other datatypes out of `datatype`.
fn parts_of(datatype: &mut Datatype) -> Vec<Arc<Datatype>> {
    let mut parts = std::mem::take(&mut datatype.recipe.datatypes);
    match std::mem::replace(&mut datatype.content, Content::Leaves(vec![])) {
        Content::Leaves(_) => {}
        Content::Repeat(_, part) => parts.push(part),
        Content::Sequence(sequence) => parts.extend(sequence.into_iter().map(|(_, part)| part)),
    }
    parts
}

impl Content {
    /// Nothing.
    pub fn empty() -> Content {
        Content::Leaves(vec![])
    }

    /// `times` elements of `part`; nested repetitions become one.
    pub fn repeat(times: u64, part: &Arc<Datatype>) -> Content {
        match &part.content {
            _ if times == 0 || part.size() == 0 => Content::empty(),
            content if times == 1 => content.clone(),
            Content::Repeat(inner, part) => Content::Repeat(inner * times, part.clone()),
            _ => Content::Repeat(times, part.clone()),
        }
    }

    /// What follows from the content.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts { signature: Signature::EMPTY, external_size: 0, uniform: None, depth: 0 };
        match self {
            Content::Leaves(leaves) => leaves.iter().for_each(|&leaf| {
                let external_size = leaf.external_bytes as u64;
                let signature = Signature::of(leaf.basic);
                facts.add(1, Facts { signature, external_size, uniform: Some(leaf), depth: 0 });
            }),
            Content::Repeat(times, part) => facts.add(*times, part.facts),
            Content::Sequence(parts) => parts.iter().for_each(|(times, part)| facts.add(*times, part.facts)),
        }
        facts
    }
}

impl Facts {
    /// Adds `times` elements of a part.
    fn add(&mut self, times: u64, part: Facts) {
        if times == 0 || part.signature.elements == 0 {
            return;
        }
        let first = self.signature.elements == 0;
        self.uniform = if first || self.uniform == part.uniform { part.uniform } else { None };
        self.signature = self.signature.then(part.signature.times(times));
        self.external_size = self.external_size.saturating_add(part.external_size.saturating_mul(times));
        self.depth = self.depth.max(part.depth + 1);
    }
}
