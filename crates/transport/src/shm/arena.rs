// SPDX-License-Identifier: BSD-3-Clause
//! An arena, the part of the segment from which one rank allocates: its memory as any process of the host
//! sees it.

use super::{LocalRank, Segment};
use error::{Class, Error, Result, fail};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use sys::Span;

/// A process's view of one rank's arena, which keeps the segment mapped. Processes exchange offsets in it.
/// The first extent is always mapped. Others are mapped on first use, which can fail (MPI_ERR_NO_MEM, or
/// MPI_ERR_OTHER if the program has closed the job's descriptor).
#[derive(Clone, Debug)]
pub struct Arena {
    segment: Segment,
    rank: LocalRank,
    first: Span,
}

impl Segment {
    /// Maps the first extent of a rank's arena, and returns the view of the arena.
    pub fn arena(&self, rank: LocalRank) -> Result<Arena> {
        if rank.peer() >= self.shape().ranks {
            fail!(Class::Rank, "there is no arena of rank {rank} among {} ranks", self.shape().ranks);
        }
        let first = self.extents(rank).first()?;
        Ok(Arena { segment: self.clone(), rank, first })
    }
}

impl Arena {
    /// The rank that owns the arena.
    pub fn rank(&self) -> LocalRank {
        self.rank
    }

    /// Returns how many bytes the arena's rank may allocate. Offsets in the arena range over more than that.
    pub fn bytes(&self) -> u64 {
        self.segment.shape().arena_bytes
    }

    /// Returns the 64-bit word at an offset in the arena. Errors: the offset is not a multiple of 8, or the
    /// word lies in no extent.
    #[inline]
    pub fn word(&self, offset: u64) -> Result<&AtomicU64> {
        self.words(offset, 1).map(|words| &words[0])
    }

    /// Returns the `count` 64-bit words from an offset in the arena on. Errors: the offset is not a multiple
    /// of 8, or the words do not all lie in one extent.
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> Result<&[AtomicU64]> {
        let bytes = (count as u64).checked_mul(8).filter(|_| offset.is_multiple_of(8));
        let Some(bytes) = bytes else { return Err(self.no_words(offset, count)) };
        let span = self.span(offset, bytes)?;
        // SAFETY: mapped while `self` lives, in bounds (`span`), aligned (maps begin at pages, the offset is
        // a multiple of 8), and atomics are valid whatever they hold.
        Ok(unsafe { std::slice::from_raw_parts(span.address() as *const AtomicU64, count) })
    }

    #[cold]
    fn no_words(&self, offset: u64, count: usize) -> Error {
        Error::new(
            Class::Intern,
            format!("no {count} words can lie at offset {offset:#x} of the arena of rank {}", self.rank),
        )
    }

    /// Returns the `count` 64-bit words from an offset in the arena on, in a value that keeps the segment
    /// mapped. Errors: the offset is not a multiple of 8, or the words do not all lie in one extent.
    pub fn words_ref(&self, offset: u64, count: usize) -> Result<ArenaWords> {
        let span = self.span(offset, 8 * self.words(offset, count)?.len() as u64)?;
        #[cfg(not(loom))]
        return Ok(ArenaWords { _arena: self.clone(), span });
        #[cfg(loom)]
        Ok(ArenaWords { _arena: self.clone(), span, words: model::words(span) })
    }

    /// Returns the memory at the offsets `[offset, offset + bytes)`. Errors: it does not all lie in one
    /// extent. The span is valid until this process's last view of the segment ends; then the addresses stay
    /// reserved (`sys::memory::Map`).
    #[inline(always)]
    pub fn span(&self, offset: u64, bytes: u64) -> Result<Span> {
        let first = self.first.bytes() as u64;
        if offset <= first && bytes <= first - offset {
            return Ok(self.first.slice(offset as usize, bytes as usize));
        }
        self.in_later_extent(offset, bytes)
    }

    /// Returns the memory at the offsets `[offset, offset + bytes)`, in an extent after the first. It is a
    /// function of its own so that `span`, which is inlined, stays short.
    #[inline(never)]
    fn in_later_extent(&self, offset: u64, bytes: u64) -> Result<Span> {
        self.segment.extents(self.rank).in_later_extent(offset, bytes)
    }

    /// Returns the offset in the arena of the bytes that this process has at `address`. Returns None if they
    /// do not all lie in one mapped extent of the arena.
    #[inline]
    pub fn offset_of(&self, address: usize, bytes: u64) -> Option<u64> {
        self.segment.extents(self.rank).offset_of(address, bytes)
    }

    /// Returns the offsets at which the extents after the first end, ascending.
    pub fn extents(&self) -> Vec<u64> {
        self.segment.extents(self.rank).ends()
    }

    /// Copies `ends` into this arena, which mirrors a rank's arena on another computer. `extents` has
    /// returned them on that computer. Returns false if they are invalid.
    pub fn mirror_extents(&self, ends: &[u64]) -> bool {
        self.segment.extents(self.rank).enter(ends)
    }

    /// Takes the next extent that no allocator of this process has taken, maps it, and returns its offsets
    /// (`Extents::take`).
    pub(super) fn take_extent(&self, bytes: u64) -> Result<Range<u64>> {
        self.segment.extents(self.rank).take(bytes)
    }

    /// Returns the memory of `[offset, offset + bytes)` to the system: the bytes read as zero afterwards.
    pub(super) fn discard(&self, offset: u64, bytes: u64) {
        // If this fails, the memory only stays allocated.
        let _ = self.segment.discard(self.rank, offset..offset + bytes);
    }
}

/// Words of an arena whose bounds have been checked, in a value that keeps the segment mapped.
#[derive(Clone, Debug)]
pub struct ArenaWords {
    _arena: Arena,
    span: Span,
    #[cfg(loom)]
    words: std::sync::Arc<[super::atomic::AtomicU64]>,
}

impl ArenaWords {
    /// Returns the memory of the words. It stays mapped until this process's last view of the segment ends.
    #[inline]
    pub fn span(&self) -> Span {
        self.span
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for ArenaWords {
    type Target = [AtomicU64];
    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        let (address, bytes) = (self.span.address(), self.span.bytes());
        // SAFETY: `Arena::words_ref` found them aligned and in bounds, the arena that is held keeps them
        // mapped, and atomics are valid whatever they hold.
        unsafe { std::slice::from_raw_parts(address as *const AtomicU64, bytes / 8) }
    }
}

/// The words of `ArenaWords` under loom, whose atomics cannot lie in the arena's memory. In one execution of
/// a model, all requests for one address get the same atomics, which start at zero.
#[cfg(loom)]
mod model {
    use super::{ArenaWords, Span};
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

    impl std::ops::Deref for ArenaWords {
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
        assert_eq!((arena.bytes(), arena.rank()), (2 << 20, LocalRank(1)));
        // The first extent, and there is no other.
        let end = 8 << 20;
        assert!(arena.word(end - 8).is_ok());
        assert!(arena.word(end - 4).is_err() && arena.word(end).is_err() && arena.word(4).is_err());
        assert!(arena.word(u64::MAX - 7).is_err() && arena.words(8, usize::MAX).is_err());
        assert!(arena.words(end - 16, 2).is_ok() && arena.words(end - 16, 3).is_err());
        assert!(arena.span(end, 0).is_ok() && arena.span(end, 1).is_err());
        assert!(arena.span(8, u64::MAX).is_err());
        let span = arena.span(64, 8).unwrap();
        span.write(&77u64.to_le_bytes());
        assert_eq!(arena.word(64).unwrap().load(Ordering::Relaxed), 77);
        let held = arena.words_ref(64, 2).unwrap();
        assert_eq!(
            (held.len(), held[0].load(Ordering::Relaxed), held.span().address()),
            (2, 77, span.address())
        );
        assert!(arena.words_ref(end - 8, 2).is_err() && arena.words_ref(68, 1).is_err());
        assert_eq!(arena.offset_of(span.address(), 8), Some(64));
        assert_eq!(arena.offset_of(span.address() - 65, 1), None);
        assert_eq!(arena.offset_of(span.address() - 64 + end as usize, 1), None);
    }
}
