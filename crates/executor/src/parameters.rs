// SPDX-License-Identifier: BSD-3-Clause
//! What the driver of an instance (a started schedule) must know of the rank's buffers, operator and peers.
//! The rank encodes it as words in its arena, where a proxy reads it.
//!
//! Invariants: `from_words` decodes what `to_words` wrote, and refuses all other words.
//! `buffers::bind_remote` checks whether parameters fit a schedule and an arena.

use crate::checked::{high, low, pair};
use crate::{Cut, Reduction};
use datatype::{Basic, Layout, PredefinedOp};
use std::sync::Arc;

/// What a driver in another process must know of an operation: the rank's buffers, operator and peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The predefined operator of the reductions. None if there are no reductions. The user's own functions
    /// are never called by another process.
    pub reduction: Option<Reduction>,
    /// How the schedule's input, and its output, is cut into blocks.
    pub cuts: [Cut; 2],
    /// The parts of the input buffer, then those of the output buffer, in the order of their bytes.
    pub parts: [Vec<PartParameters>; 2],
    /// For each scratch buffer, its offset in the rank's arena.
    pub scratch: Vec<u64>,
    /// The layouts (where bytes and gaps are) of all parts with gaps, without repetition.
    pub layouts: Vec<Arc<Layout>>,
    /// For each rank of the schedule, its number in the job.
    pub peers: Vec<u32>,
}

/// A part of a buffer: a range of its packed bytes that lies in one place. Each part begins where the part
/// before ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartParameters {
    /// The offset, in packed bytes of the buffer, at which the part ends.
    pub end: u64,
    /// Where this part of a buffer lies.
    pub place: PartLocation,
}

/// Where a part of a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartLocation {
    /// The part begins at this offset of the rank's arena.
    Arena(u64),
    /// The part begins at this address of the rank's process, outside the arena.
    Private(u64),
    /// The part is a range of the packed bytes of elements with gaps, as of a strided datatype.
    Gaps(Gaps),
}

/// Where elements with gaps lie, and which bytes of them are data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Whether `base` is an offset in the rank's arena. If not, it is an address in the rank's process.
    pub mapped: bool,
    /// The address, or the offset in the arena, at which the first element's layout begins.
    pub base: u64,
    /// The index of the elements' layout in `Parameters::layouts`.
    pub layout: u64,
    /// The number of packed bytes of the first element that come before the part.
    pub skip: u64,
}

const ARENA: u64 = 0;
const PRIVATE: u64 = 1;
const GAPS: u64 = 2;
const GAPS_MAPPED: u64 = 3;

const EVEN: u64 = 0;
const NEAR: u64 = 1;
const AT: u64 = 2;

impl Parameters {
    /// Encodes the parameters as words, which a proxy reads in the rank's arena.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = Vec::new();
        match self.reduction {
            Some(Reduction::Predefined { op, basic, element_bytes }) => {
                words.extend([1 | (op as u64) << 8 | (basic as u64) << 16, element_bytes]);
            }
            _ => words.extend([0, 0]),
        }
        for cut in &self.cuts {
            match cut {
                Cut::Even { block_bytes } => words.extend([EVEN, *block_bytes]),
                Cut::NearEqual { elements, element_bytes } => words.extend([NEAR, *elements, *element_bytes]),
                Cut::Bounds(at) => {
                    words.extend([AT, at.len() as u64]);
                    words.extend(at.iter());
                }
            }
        }
        for parts in &self.parts {
            words.push(parts.len() as u64);
            for PartParameters { end, place } in parts {
                words.push(*end);
                match *place {
                    PartLocation::Arena(offset) => words.extend([ARENA, offset]),
                    PartLocation::Private(address) => words.extend([PRIVATE, address]),
                    PartLocation::Gaps(Gaps { mapped, base, layout, skip }) => {
                        words.extend([if mapped { GAPS_MAPPED } else { GAPS }, base, layout, skip])
                    }
                }
            }
        }
        words.push(self.scratch.len() as u64);
        words.extend(&self.scratch);
        words.push(self.layouts.len() as u64);
        for layout in &self.layouts {
            words.push(layout.words() as u64);
            words.extend(layout.to_words());
        }
        words.push(self.peers.len() as u64);
        words.extend(self.peers.chunks(2).map(|two| pair(two[0], two.get(1).copied().unwrap_or(0))));
        words
    }

    /// Decodes words that `to_words` has made. Returns None for all other words.
    pub fn from_words(words: &[u64]) -> Option<Parameters> {
        let mut words = Words(words);
        let reduction = words.reduction()?;
        let cuts = [words.cut()?, words.cut()?];
        let parts = [words.parts()?, words.parts()?];
        let scratch = words.list()?.to_vec();
        let mut layouts = Vec::new();
        for _ in 0..words.next()? {
            layouts.push(Arc::new(Layout::from_words(words.list()?).ok()?));
        }
        let peers = words.peers()?;
        words.0.is_empty().then_some(Parameters { reduction, cuts, parts, scratch, layouts, peers })
    }
}

/// The encoded words from which nothing has been read yet.
struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*word)
    }

    fn take(&mut self, count: u64) -> Option<&'a [u64]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes a list from the words: its length, then its entries. None if fewer words are left.
    fn list(&mut self) -> Option<&'a [u64]> {
        let count = self.next()?;
        self.take(count)
    }

    fn reduction(&mut self) -> Option<Option<Reduction>> {
        let (kind, element_bytes) = (self.next()?, self.next()?);
        if kind == 0 {
            return (element_bytes == 0).then_some(None);
        }
        let op = PredefinedOp::from_number((kind >> 8) as u8)?;
        let basic = Basic::from_number((kind >> 16) as u8)?;
        datatype::check_op(op, basic).ok()?;
        let reduction = Reduction::Predefined { op, basic, element_bytes };
        (kind & 0xff == 1 && kind >> 24 == 0 && reduction.is_sound()).then_some(Some(reduction))
    }

    fn cut(&mut self) -> Option<Cut> {
        Some(match self.next()? {
            EVEN => Cut::Even { block_bytes: self.next()? },
            NEAR => Cut::NearEqual { elements: self.next()?, element_bytes: self.next()? },
            AT => Cut::Bounds(self.list()?.into()),
            _ => return None,
        })
    }

    fn parts(&mut self) -> Option<Vec<PartParameters>> {
        let mut parts = Vec::new();
        for _ in 0..self.next()? {
            let end = self.next()?;
            let place = match self.next()? {
                ARENA => PartLocation::Arena(self.next()?),
                PRIVATE => PartLocation::Private(self.next()?),
                kind @ (GAPS | GAPS_MAPPED) => PartLocation::Gaps(Gaps {
                    mapped: kind == GAPS_MAPPED,
                    base: self.next()?,
                    layout: self.next()?,
                    skip: self.next()?,
                }),
                _ => return None,
            };
            parts.push(PartParameters { end, place });
        }
        Some(parts)
    }

    fn peers(&mut self) -> Option<Vec<u32>> {
        let count = self.next()?;
        let halves = self.take(count.div_ceil(2))?.iter().flat_map(|&word| [high(word), low(word)]);
        let mut peers: Vec<u32> = halves.collect();
        let is_padded = count % 2 == 0 || peers.pop() == Some(0);
        is_padded.then_some(peers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn cuts() -> impl Strategy<Value = Cut> {
        prop_oneof![
            any::<u64>().prop_map(|block_bytes| Cut::Even { block_bytes }),
            any::<(u64, u64)>()
                .prop_map(|(elements, element_bytes)| Cut::NearEqual { elements, element_bytes }),
            vec(any::<u64>(), 0..4).prop_map(|at| Cut::Bounds(at.into())),
        ]
    }

    fn parts() -> impl Strategy<Value = Vec<PartParameters>> {
        let gaps = any::<(bool, u64, u64, u64)>()
            .prop_map(|(mapped, base, layout, skip)| PartLocation::Gaps(Gaps { mapped, base, layout, skip }));
        let places = prop_oneof![
            any::<u64>().prop_map(PartLocation::Arena),
            any::<u64>().prop_map(PartLocation::Private),
            gaps
        ];
        vec((any::<u64>(), places).prop_map(|(end, place)| PartParameters { end, place }), 0..4)
    }

    fn reductions() -> impl Strategy<Value = Option<Reduction>> {
        let sums = [Basic::U8, Basic::I32, Basic::F64].map(|basic| {
            let element_bytes = 2 * basic.size() as u64;
            Some(Reduction::Predefined { op: PredefinedOp::Sum, basic, element_bytes })
        });
        prop_oneof![Just(None), proptest::sample::select(sums.to_vec())]
    }

    fn parameters() -> impl Strategy<Value = Parameters> {
        let layouts = vec((0..9usize).prop_map(|bytes| Arc::new(Layout::contiguous(bytes))), 0..3);
        let numbers = (vec(any::<u64>(), 0..4), vec(any::<u32>(), 0..4));
        ((reductions(), [cuts(), cuts()]), [parts(), parts()], layouts, numbers).prop_map(
            |((reduction, cuts), parts, layouts, (scratch, peers))| Parameters {
                reduction,
                cuts,
                parts,
                scratch,
                layouts,
                peers,
            },
        )
    }

    proptest! {
        /// Goal: a driver reads what the rank wrote. Words of a broken rank are refused, or decode to some
        /// parameters.
        #[test]
        fn what_is_written_is_read(
            parameters in parameters(),
            place in any::<prop::sample::Index>(),
            word in any::<u64>(),
            bit in 0..64u32,
        ) {
            let words = parameters.to_words();
            prop_assert_eq!(Parameters::from_words(&words), Some(parameters));
            let place = place.index(words.len());
            prop_assert_eq!(Parameters::from_words(&words[..place]), None);
            prop_assert_eq!(Parameters::from_words(&[&words[..], &[0]].concat()), None);
            for wrong in [word, word % 4, words[place] ^ 1 << bit] {
                let mut words = words.clone();
                words[place] = wrong;
                if let Some(read) = Parameters::from_words(&words) {
                    prop_assert_eq!(Parameters::from_words(&read.to_words()), Some(read));
                }
            }
        }
    }
}
