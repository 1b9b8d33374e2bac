// SPDX-License-Identifier: BSD-3-Clause
//! The allocator of a rank's arena, the part of shared memory from which the rank allocates. It finds the
//! shortest free stretch that fits, joins neighbouring free stretches, and takes the arena's extents (parts
//! that are mapped as a whole) one by one.
//!
//! Its tables lie in the rank's private memory, where no other process can damage them; only offsets are
//! shared.

use super::Arena;
use error::{Class, Result, fail};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// The offset and the length of every allocation are multiples of this, in bytes.
const UNIT: u64 = 64;
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// The fewest bytes of a freed allocation that stays *warm*: its pages stay in memory for the next
/// allocation. If the warm bytes exceed `warm_max`, all warm memory goes back to the system.
const DISCARD_BYTES_MIN: u64 = 1 << 20;
/// The first value of `warm_max`. The first touch of a page that went back to the system costs a page fault,
/// several times the time of the copy, so memory for short use should be warm.
const WARM_MAX: u64 = 32 << 20;
/// The highest value of `warm_max`. An allocation raises `warm_max` by the bytes that it takes from what had
/// gone back to the system. Four sums of 25 MiB under way on 4 ranks need 150 MiB (docs/measured/sums.md).
const WARM_LIMIT: u64 = 512 << 20;

/// An allocator of one rank's arena; only that rank uses it. A rank may have several, each with its own
/// extents of the arena.
#[derive(Debug)]
pub struct Allocator {
    arena: Arena,
    /// The most bytes that all allocations together may have.
    bytes_max: u64,
    /// The arena's extents that this allocator has taken: the offset of each one's end, by the offset of its
    /// start.
    extents: BTreeMap<u64, u64>,
    /// The free stretches inside the extents: the length of each, by its offset. Free stretches that touch
    /// are joined to one.
    free: BTreeMap<u64, u64>,
    /// The free stretches of `free` again, as (length, offset), to find the shortest that fits.
    by_size: BTreeSet<(u64, u64)>,
    /// The allocations that are in use: the length of each, by its offset.
    used: HashMap<u64, u64>,
    used_bytes: u64,
    /// The parts of free stretches whose pages are still in memory (`DISCARD_BYTES_MIN`): the length of each,
    /// by its offset.
    warm: BTreeMap<u64, u64>,
    warm_bytes: u64,
    /// The most bytes that may be warm. With more, all warm memory goes back to the system.
    warm_max: u64,
    /// How many bytes have gone back to the system and were not allocated again.
    returned: u64,
}

impl Allocator {
    /// Makes an allocator of up to `bytes_max` bytes. It never allocates offset 0, which stands for "no
    /// allocation" in shared memory.
    pub fn new(arena: Arena, bytes_max: u64) -> Allocator {
        Allocator {
            arena,
            bytes_max,
            extents: BTreeMap::new(),
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            used: HashMap::new(),
            used_bytes: 0,
            warm: BTreeMap::new(),
            warm_bytes: 0,
            warm_max: WARM_MAX,
            returned: 0,
        }
    }

    /// The arena from which this allocator allocates.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Allocates `bytes` bytes of undefined content and returns their offset: a multiple of 64, of 4096 if
    /// they are at least a page, of 2 MiB if they are at least 2 MiB. Errors (MPI_ERR_NO_MEM): so many bytes
    /// are not left or cannot be mapped.
    pub fn alloc(&mut self, bytes: u64) -> Result<u64> {
        let left = self.bytes_max.saturating_sub(self.used_bytes);
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(UNIT).filter(|bytes| *bytes <= left) else {
            fail!(
                Class::NoMem,
                "the arena of rank {} has {} bytes (OUTBOARD_ARENA_BYTES), of which {} are in use; {bytes} more do not fit",
                self.arena.rank(),
                self.bytes_max,
                self.used_bytes
            );
        };
        let (start, at, length) = loop {
            match self.fitting(bytes) {
                Some(found) => break found,
                None => self.take_extent(bytes)?,
            }
        };
        self.claim(start, length);
        self.release(start, at - start);
        self.release(at + bytes, start + length - (at + bytes));
        let warm_before = self.warm_bytes;
        self.take_warm(at, at + bytes);
        if bytes >= DISCARD_BYTES_MIN {
            let again = (bytes - (warm_before - self.warm_bytes)).min(self.returned);
            self.returned -= again;
            self.warm_max = (self.warm_max + again).min(WARM_LIMIT);
        }
        self.used.insert(at, bytes);
        self.used_bytes += bytes;
        Ok(at)
    }

    /// Finds the shortest free stretch in which `bytes` aligned bytes fit. Returns where the stretch begins,
    /// where the bytes would lie, and how long the stretch is. None if no stretch is long enough.
    fn fitting(&self, bytes: u64) -> Option<(u64, u64, u64)> {
        let align = match bytes {
            HUGE.. => HUGE,
            PAGE.. => PAGE,
            _ => UNIT,
        };
        self.by_size.range((bytes, 0)..).find_map(|&(length, start)| {
            let at = start.next_multiple_of(align);
            (at - start <= length - bytes).then_some((start, at, length))
        })
    }

    /// Takes the arena's next extent and adds it to the free stretches. If the arena has no further extent,
    /// adds a new one of at least `bytes` bytes to the arena first.
    fn take_extent(&mut self, bytes: u64) -> Result<()> {
        let extent = self.arena.take_extent(bytes)?;
        let start = extent.start.max(PAGE);
        self.extents.insert(extent.start, extent.end);
        self.release(start, extent.end - start);
        Ok(())
    }

    /// Frees the allocation at `offset`. Returns false if there is none.
    pub fn free(&mut self, offset: u64) -> bool {
        let Some(bytes) = self.used.remove(&offset) else {
            return false;
        };
        self.used_bytes -= bytes;
        if bytes >= DISCARD_BYTES_MIN {
            self.keep_warm(offset, bytes);
        }
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
            && !self.extents.contains_key(&start)
        {
            self.claim(before, length);
            start = before;
        }
        if let Some(&length) = self.free.get(&end).filter(|_| !self.extents.contains_key(&end)) {
            self.claim(end, length);
            end += length;
        }
        self.release(start, end - start);
        true
    }

    /// Returns the length of the allocation at `offset`, which may be more than was requested; None if there
    /// is no allocation.
    pub fn bytes_at(&self, offset: u64) -> Option<u64> {
        self.used.get(&offset).copied()
    }

    /// Returns the arena's extents that this allocator has taken, in ascending order.
    pub fn extents(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents.iter().map(|(&start, &end)| start..end)
    }

    /// Returns the length of all allocations together, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Marks memory that is being freed as warm. If more than `warm_max` bytes are then warm, returns all
    /// warm memory to the system.
    fn keep_warm(&mut self, start: u64, bytes: u64) {
        self.warm.insert(start, bytes);
        self.warm_bytes += bytes;
        if self.warm_bytes > self.warm_max {
            self.returned += self.warm_bytes;
            for (start, bytes) in std::mem::take(&mut self.warm) {
                self.arena.discard(start, bytes);
            }
            self.warm_bytes = 0;
        }
    }

    /// Marks `[start, end)`, which is being allocated, as warm no more.
    fn take_warm(&mut self, start: u64, end: u64) {
        while let Some((&from, &bytes)) = self.warm.range(..end).next_back()
            && from + bytes > start
        {
            self.warm.remove(&from);
            self.warm_bytes -= bytes;
            let to = from + bytes;
            for (from, to) in [(from, start), (end, to)] {
                if from < to {
                    self.warm.insert(from, to - from);
                    self.warm_bytes += to - from;
                }
            }
        }
    }

    /// Removes a free stretch from `free` and `by_size`.
    fn claim(&mut self, start: u64, length: u64) {
        self.free.remove(&start);
        self.by_size.remove(&(length, start));
    }

    /// Adds a free stretch, which touches no other free stretch, to `free` and `by_size`.
    fn release(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.free.insert(start, length);
            self.by_size.insert((length, start));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::{LocalRank, Segment, Shape};
    use rand::{Rng, SeedableRng, rngs::SmallRng};
    use std::sync::atomic::Ordering;

    fn allocator(bytes: u64) -> Allocator {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: bytes }).unwrap();
        Allocator::new(segment.arena(LocalRank(0)).unwrap(), bytes)
    }

    #[test]
    fn alignment_follows_size() {
        let mut allocator = allocator(64 << 20);
        for (bytes, align) in [(0, 64), (1, 64), (65, 64), (4096, 4096), (5000, 4096), (2 << 20, 2 << 20)] {
            let offset = allocator.alloc(bytes).unwrap();
            assert!(offset > 0 && offset.is_multiple_of(align), "{bytes} at {offset}");
            assert!(allocator.bytes_at(offset).unwrap() >= bytes);
        }
        for bytes in [65 << 20, u64::MAX] {
            let why = allocator.alloc(bytes).unwrap_err();
            assert_eq!(why.class, Class::NoMem);
            assert!(why.message.contains("OUTBOARD_ARENA_BYTES"), "{why}");
        }
        assert!(!allocator.free(0) && !allocator.free(64));
    }

    #[test]
    fn random_use_never_overlaps_and_all_comes_back() {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut allocator = allocator(16 << 20);
            let mut live: Vec<(u64, u64)> = vec![];
            for _ in 0..2000 {
                if live.is_empty() || random.random_bool(0.55) {
                    let bytes = 1 << random.random_range(0..22);
                    let bytes = random.random_range(1..=bytes);
                    if let Ok(at) = allocator.alloc(bytes) {
                        assert!(at >= 64 && allocator.used_bytes() <= 16 << 20);
                        let inside = allocator.arena().span(at, bytes).expect("inside one extent");
                        assert_eq!(allocator.arena().offset_of(inside.address(), bytes), Some(at));
                        for &(other, length) in &live {
                            assert!(at + bytes <= other || other + length <= at, "seed {seed}");
                        }
                        live.push((at, bytes));
                    }
                } else {
                    let (at, _) = live.swap_remove(random.random_range(0..live.len()));
                    assert!(allocator.free(at));
                    assert!(!allocator.free(at));
                }
            }
            for (&from, &bytes) in &allocator.warm {
                let (&start, &length) = allocator.free.range(..=from).next_back().unwrap();
                assert!(from + bytes <= start + length, "seed {seed}: warm memory that is not free");
            }
            assert_eq!(allocator.warm.values().sum::<u64>(), allocator.warm_bytes);
            live.iter().for_each(|&(at, _)| assert!(allocator.free(at)));
            assert_eq!(allocator.used_bytes(), 0);
            let ends: Vec<u64> = allocator.arena().extents();
            let starts: Vec<u64> =
                std::iter::once(PAGE).chain(std::iter::once(8 << 20)).chain(ends).collect();
            let whole: BTreeMap<u64, u64> = starts.windows(2).map(|two| (two[0], two[1] - two[0])).collect();
            assert_eq!(allocator.free, whole, "seed {seed}: a stretch for each extent");
            assert_eq!(allocator.by_size.len(), whole.len());
        }
    }

    fn touch(allocator: &Allocator, at: u64, bytes: u64) {
        for offset in (at..at + bytes).step_by(4096) {
            allocator.arena().word(offset).unwrap().store(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn large_frees_stay_warm_up_to_a_bound() {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 128 << 20 }).unwrap();
        let mut allocator = Allocator::new(segment.arena(LocalRank(0)).unwrap(), 128 << 20);
        let before = segment.resident().unwrap();
        let at = allocator.alloc(8 << 20).unwrap();
        touch(&allocator, at, 8 << 20);
        assert!(allocator.free(at));
        assert!(segment.resident().unwrap() >= before + (8 << 20), "8 MiB were not kept warm");
        assert_eq!(allocator.alloc(8 << 20).unwrap(), at, "the warm memory is found again");
        assert_eq!(allocator.warm_bytes, 0);
        let more = allocator.alloc(WARM_MAX).unwrap();
        touch(&allocator, more, WARM_MAX);
        assert!(allocator.free(at) && allocator.free(more));
        assert_eq!(segment.resident().unwrap(), before);
    }

    #[test]
    fn what_comes_again_stays_warm_up_to_a_limit() {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 1 << 30 }).unwrap();
        let mut allocator = Allocator::new(segment.arena(LocalRank(0)).unwrap(), 1 << 30);
        let first = WARM_MAX + DISCARD_BYTES_MIN;
        for (bytes, stays) in [(first, true), (WARM_LIMIT + DISCARD_BYTES_MIN, false)] {
            let warm = (0..4).map(|_| {
                let at = allocator.alloc(bytes).unwrap();
                assert!(allocator.free(at));
                allocator.warm_bytes
            });
            let warm: Vec<u64> = warm.collect();
            assert_eq!(warm[0], 0, "the first is given back");
            assert_eq!(warm[3], if stays { bytes } else { 0 });
            if stays {
                let both = [(); 2].map(|()| allocator.alloc(bytes).unwrap());
                assert_eq!(allocator.warm_max, WARM_MAX + first, "nothing came again");
                assert!(both.iter().all(|at| allocator.free(*at)));
            }
        }
        assert_eq!(allocator.warm_max, WARM_LIMIT);
    }
}
