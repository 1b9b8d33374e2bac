//! The part of the segment that one rank allocates from, as any process sees it.

use super::{LocalRank, Segment};
use error::Result;
use std::sync::atomic::AtomicU64;
use sys::Span;

/// A view of one rank's arena. Processes tell each other offsets from its start. Keeps the segment mapped.
#[derive(Clone, Debug)]
pub struct Arena {
    segment: Segment,
    rank: LocalRank,
    span: Span,
}

impl Segment {
    /// A rank's arena, mapped now if it was not yet.
    pub fn arena(&self, rank: LocalRank) -> Result<Arena> {
        let span = self.arena_memory(rank)?;
        Ok(Arena { segment: self.clone(), rank, span })
    }
}

impl Arena {
    /// Whose it is.
    pub fn rank(&self) -> LocalRank {
        self.rank
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.span.bytes() as u64
    }

    /// The word at an offset; none if it is not a multiple of 8 inside the arena.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words(offset, 1).and_then(|words| words.first())
    }

    /// `count` words at an offset; none if they are not at a multiple of 8, all inside the arena.
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let span = self.span(offset, (count as u64).checked_mul(8)?)?;
        // SAFETY: mapped while `self` lives, in bounds (`span`), aligned (maps begin at pages, the offset is
        // a multiple of 8), and atomics are valid whatever they hold.
        Some(unsafe { std::slice::from_raw_parts(span.address() as *const AtomicU64, count) })
    }

    /// The same for keeping.
    pub fn keep(&self, offset: u64, count: usize) -> Option<Words> {
        let span = self.span(offset, 8 * self.words(offset, count)?.len() as u64)?;
        #[cfg(not(loom))]
        return Some(Words { _arena: self.clone(), span });
        #[cfg(loom)]
        Some(Words { _arena: self.clone(), span, words: model::words(span) })
    }

    /// The bytes `[offset, offset + bytes)`; none if they are not all inside the arena. They are the arena's
    /// until the last view of this segment in the process ends; then the addresses stay reserved
    /// (`sys::memory::Map`).
    #[inline]
    pub fn span(&self, offset: u64, bytes: u64) -> Option<Span> {
        let inside = offset <= self.bytes() && bytes <= self.bytes() - offset;
        inside.then(|| self.span.slice(offset as usize, bytes as usize))
    }

    /// The offset of an address of this process, if it lies inside.
    #[inline]
    pub fn offset_of(&self, address: usize) -> Option<u64> {
        let offset = address.wrapping_sub(self.span.address());
        (offset < self.span.bytes()).then_some(offset as u64)
    }

    /// In a forked child: what it writes to `[offset, offset + bytes)`, in whole pages, stays its own.
    pub fn make_private(&self, offset: u64, bytes: u64) {
        if let Some(span) = self.span(offset, bytes) {
            let start = self.segment.arena_offset(self.rank) + offset;
            // On failure the memory stays shared.
            let _ = sys::memory::make_private(span, self.segment.descriptor(), start);
        }
    }

    /// Gives the memory of `[offset, offset + bytes)` back to the machine: the bytes read as zero afterwards.
    pub(super) fn discard(&self, offset: u64, bytes: u64) {
        if self.span(offset, bytes).is_some() {
            // On failure the memory is only kept longer.
            let start = self.segment.arena_offset(self.rank) + offset;
            let _ = sys::memory::punch_hole(self.segment.descriptor(), start, bytes);
        }
    }
}

/// Words of an arena, found and checked once. Keeps the segment mapped.
#[derive(Clone, Debug)]
pub struct Words {
    _arena: Arena,
    span: Span,
    #[cfg(loom)]
    words: std::sync::Arc<[super::atomic::AtomicU64]>,
}

impl Words {
    /// Their memory, as `Arena::span` lends it.
    #[inline]
    pub fn span(&self) -> Span {
        self.span
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for Words {
    type Target = [AtomicU64];
    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        let (address, bytes) = (self.span.address(), self.span.bytes());
        // SAFETY: `Arena::keep` found them aligned and in bounds, the arena that is held keeps them mapped,
        // and atomics are valid whatever they hold.
        unsafe { std::slice::from_raw_parts(address as *const AtomicU64, bytes / 8) }
    }
}

/// Loom's words cannot lie in shared memory: those at one address are the same in a run, zero at first.
#[cfg(loom)]
mod model {
    use super::{Span, Words};
    use crate::shm::atomic::AtomicU64;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    loom::lazy_static! {
        static ref WORDS: Mutex<BTreeMap<usize, Arc<[AtomicU64]>>> = Mutex::default();
    }

    pub(super) fn words(span: Span) -> Arc<[AtomicU64]> {
        let mut all = WORDS.lock().expect("no run goes on after a panic");
        let fresh = || (0..span.bytes() / 8).map(|_| AtomicU64::new(0)).collect();
        all.entry(span.address()).or_insert_with(fresh).clone()
    }

    impl std::ops::Deref for Words {
        type Target = [AtomicU64];
        fn deref(&self) -> &[AtomicU64] {
            &self.words
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::shm::{LocalRank, Segment, Shape};
    use std::sync::atomic::Ordering;

    #[test]
    fn only_what_lies_inside_is_given() {
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 2 << 20 }).unwrap();
        let arena = segment.arena(LocalRank(1)).unwrap();
        let end = arena.bytes();
        assert_eq!((end, arena.rank()), (2 << 20, LocalRank(1)));
        assert!(arena.word(end - 8).is_some());
        assert!(arena.word(end - 4).is_none() && arena.word(end).is_none() && arena.word(4).is_none());
        assert!(arena.word(u64::MAX - 7).is_none() && arena.words(8, usize::MAX).is_none());
        assert!(arena.words(end - 16, 2).is_some() && arena.words(end - 16, 3).is_none());
        assert!(arena.span(end, 0).is_some() && arena.span(end, 1).is_none());
        assert!(arena.span(8, u64::MAX).is_none());
        let span = arena.span(64, 8).unwrap();
        span.write(&77u64.to_le_bytes());
        assert_eq!(arena.word(64).unwrap().load(Ordering::Relaxed), 77);
        let kept = arena.keep(64, 2).unwrap();
        assert_eq!(
            (kept.len(), kept[0].load(Ordering::Relaxed), kept.span().address()),
            (2, 77, span.address())
        );
        assert!(arena.keep(end - 8, 2).is_none() && arena.keep(68, 1).is_none());
        assert_eq!(arena.offset_of(span.address()), Some(64));
        assert_eq!(arena.offset_of(span.address() - 65), None);
        assert_eq!(arena.offset_of(span.address() - 64 + end as usize), None);
    }
}
