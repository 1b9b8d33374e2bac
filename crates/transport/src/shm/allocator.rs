//! How a rank divides its arena: best fit with coalescing. Its tables lie in the rank's own memory, where no
//! other process can spoil them; only offsets are shared.

use super::Arena;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Every allocation begins at a multiple of this and has a multiple of it.
const UNIT: u64 = 64;
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// Freed allocations from this size on give their memory back to the machine, ...
const DISCARD: u64 = 1 << 20;
/// ... once there are so many bytes of them. A first touch costs a page fault per page, several times the
/// copy, so staging that comes and goes should find warm memory.
const WARM_MAX: u64 = 32 << 20;
/// The bound grows up to this by what a program allocates again after it was given back: so by no more than
/// it needs at once. Four sums of 25 MiB under way on 4 ranks need 150 MiB (docs/measured/sums.md).
const WARM_LIMIT: u64 = 512 << 20;

/// Allocates from one rank's arena. Belongs to that rank alone.
#[derive(Debug)]
pub struct Allocator {
    arena: Arena,
    /// Free stretches by offset: length. No two of them touch.
    free: BTreeMap<u64, u64>,
    /// The same by length, then offset.
    by_size: BTreeSet<(u64, u64)>,
    /// Allocations: offset, length.
    used: HashMap<u64, u64>,
    used_bytes: u64,
    /// Parts of free stretches that have not been given back though they could be: offset, length.
    warm: BTreeMap<u64, u64>,
    warm_bytes: u64,
    /// From how many warm bytes on they are given back.
    warm_max: u64,
    /// Bytes that were given back and not allocated again.
    given_back: u64,
}

impl Allocator {
    /// Everything is free but the first page: offset 0 means "none" everywhere.
    pub fn new(arena: Arena) -> Allocator {
        let bytes = arena.bytes();
        Allocator::within(arena, PAGE, bytes - PAGE)
    }

    /// All of `[start, start + bytes)` of the arena is free; both are multiples of a page. The rest is
    /// somebody else's.
    pub fn within(arena: Arena, start: u64, bytes: u64) -> Allocator {
        let mut allocator = Allocator {
            arena,
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            used: HashMap::new(),
            used_bytes: 0,
            warm: BTreeMap::new(),
            warm_bytes: 0,
            warm_max: WARM_MAX,
            given_back: 0,
        };
        allocator.release(start, bytes);
        allocator
    }

    /// The arena.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The offset of `bytes` fresh bytes (at least 64), of unspecified content: a multiple of 64, from a page
    /// on of 4096, from 2 MiB on of 2 MiB. `None` when no free stretch is long enough.
    pub fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT)?;
        let align = match bytes {
            HUGE.. => HUGE,
            PAGE.. => PAGE,
            _ => UNIT,
        };
        let (start, at, length) = self.by_size.range((bytes, 0)..).find_map(|&(length, start)| {
            let at = start.next_multiple_of(align);
            (at - start <= length - bytes).then_some((start, at, length))
        })?;
        self.claim(start, length);
        self.release(start, at - start);
        self.release(at + bytes, start + length - (at + bytes));
        let warm_before = self.warm_bytes;
        self.take_warm(at, at + bytes);
        if bytes >= DISCARD {
            let again = (bytes - (warm_before - self.warm_bytes)).min(self.given_back);
            self.given_back -= again;
            self.warm_max = (self.warm_max + again).min(WARM_LIMIT);
        }
        self.used.insert(at, bytes);
        self.used_bytes += bytes;
        Some(at)
    }

    /// Frees what `alloc` returned; false if it did not, or if it is free already.
    pub fn free(&mut self, offset: u64) -> bool {
        let Some(bytes) = self.used.remove(&offset) else {
            return false;
        };
        self.used_bytes -= bytes;
        if bytes >= DISCARD {
            self.keep_warm(offset, bytes);
        }
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.claim(before, length);
            start = before;
        }
        if let Some(&length) = self.free.get(&end) {
            self.claim(end, length);
            end += length;
        }
        self.release(start, end - start);
        true
    }

    /// The length of the allocation at `offset` (at least what was asked for), if there is one.
    pub fn bytes_at(&self, offset: u64) -> Option<u64> {
        self.used.get(&offset).copied()
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Notes what is being freed as warm. Gives all warm memory back if it is too much.
    fn keep_warm(&mut self, start: u64, bytes: u64) {
        self.warm.insert(start, bytes);
        self.warm_bytes += bytes;
        if self.warm_bytes > self.warm_max {
            self.given_back += self.warm_bytes;
            for (start, bytes) in std::mem::take(&mut self.warm) {
                self.arena.discard(start, bytes);
            }
            self.warm_bytes = 0;
        }
    }

    /// Takes `[start, end)`, which is being allocated, out of the warm parts.
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

    /// Takes a free stretch out of the tables.
    fn claim(&mut self, start: u64, length: u64) {
        self.free.remove(&start);
        self.by_size.remove(&(length, start));
    }

    /// Enters a free stretch that touches no other.
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
        Allocator::new(segment.arena(LocalRank(0)).unwrap())
    }

    #[test]
    fn alignment_follows_size() {
        let mut allocator = allocator(64 << 20);
        for (bytes, align) in [(0, 64), (1, 64), (65, 64), (4096, 4096), (5000, 4096), (2 << 20, 2 << 20)] {
            let offset = allocator.alloc(bytes).unwrap();
            assert!(offset > 0 && offset.is_multiple_of(align), "{bytes} at {offset}");
            assert!(allocator.bytes_at(offset).unwrap() >= bytes);
        }
        assert_eq!(allocator.alloc(65 << 20), None);
        assert_eq!(allocator.alloc(u64::MAX), None);
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
                    if let Some(at) = allocator.alloc(bytes) {
                        assert!(at >= 64 && at + bytes <= 16 << 20);
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
            assert_eq!(allocator.free, BTreeMap::from([(PAGE, (16 << 20) - PAGE)]));
            assert_eq!(allocator.by_size.len(), 1);
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
        let mut allocator = Allocator::new(segment.arena(LocalRank(0)).unwrap());
        let before = segment.resident().unwrap();
        let at = allocator.alloc(8 << 20).unwrap();
        touch(&allocator, at, 8 << 20);
        assert!(allocator.free(at));
        assert!(segment.resident().unwrap() >= before + (8 << 20), "8 MiB were not kept warm");
        assert_eq!(allocator.alloc(8 << 20), Some(at), "the warm memory is found again");
        assert_eq!(allocator.warm_bytes, 0);
        let more = allocator.alloc(WARM_MAX).unwrap();
        touch(&allocator, more, WARM_MAX);
        assert!(allocator.free(at) && allocator.free(more));
        assert_eq!(segment.resident().unwrap(), before);
    }

    #[test]
    fn what_comes_again_stays_warm_up_to_a_limit() {
        let (segment, _fd) = Segment::create(Shape { ranks: 1, proxies: 0, arena_bytes: 1 << 30 }).unwrap();
        let mut allocator = Allocator::new(segment.arena(LocalRank(0)).unwrap());
        let first = WARM_MAX + DISCARD;
        for (bytes, stays) in [(first, true), (WARM_LIMIT + DISCARD, false)] {
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
