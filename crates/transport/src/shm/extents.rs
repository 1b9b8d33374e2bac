// SPDX-License-Identifier: BSD-3-Clause
//! The extents of a rank's arena: the parts of it that processes map and register as a whole.
//!
//! An arena is a range of offsets in the segment, several times as long as the bytes that its rank may
//! allocate. It grows extent by extent. The first extent has the same length in every arena; a table in
//! shared memory has the offsets at which the others end. An allocation lies inside one extent.
//!
//! Invariants: an extent never changes once it is in the table, not even for a later process with the same
//! number; a process maps an extent when it first uses it, and keeps it mapped as long as the segment. Read
//! next: `arena.rs`, `allocator.rs`.

use super::segment::{ARENA_ALIGN, InSharedMemory};
use error::{Class, Result, fail};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sys::Span;
use sys::memory::Map;

/// The length of an arena's first extent, in bytes. A rank whose program allocates no memory from MPI needs
/// no other extent.
pub const FIRST_BYTES: u64 = 8 << 20;
/// The most extents that an arena has after the first. Each is half as long as all extents before it
/// together, but at most `GROWTH_MAX`, so these suffice for 1 TiB.
const LATER_MAX: usize = 511;
/// The longest extent, in bytes. Only an allocation that is longer gets a longer extent.
const GROWTH_MAX: u64 = 4 << 30;

/// The extents of one arena, in shared memory: the offsets at which the extents after the first end,
/// ascending, then zeroes. Only the arena's rank writes it.
#[repr(C)]
#[derive(Debug)]
pub struct ExtentTable {
    ends: [AtomicU64; LATER_MAX],
}

// SAFETY: atomics only.
unsafe impl InSharedMemory for ExtentTable {}

impl ExtentTable {
    /// Returns the offsets of an extent after the first, by its `index` among these, in an arena of `range`
    /// bytes of offsets. Returns None if the table has no such extent, or has an invalid one.
    fn get(&self, index: usize, range: u64) -> Option<Range<u64>> {
        let end = |index: usize| self.ends.get(index).map(|end| end.load(Ordering::Acquire));
        let start = match index.checked_sub(1) {
            None => FIRST_BYTES.min(range),
            Some(before) => end(before)?,
        };
        let end = end(index)?;
        let sound = start < end && end <= range && end.is_multiple_of(ARENA_ALIGN);
        sound.then_some(start..end)
    }

    /// Finds the extent, after the first, that holds the offsets `[offset, offset + bytes)`. Returns its
    /// index in the table and its offsets; None if no extent holds them all.
    fn find(&self, offset: u64, bytes: u64, range: u64) -> Option<(usize, Range<u64>)> {
        let last = offset.checked_add(bytes)?;
        let holds = |extent: &Range<u64>| extent.start <= offset && last <= extent.end;
        (0..LATER_MAX)
            .map_while(|index| Some((index, self.get(index, range)?)))
            .find(|(_, extent)| holds(extent))
    }
}

/// The extents of one arena that this process has mapped.
#[derive(Debug, Default)]
pub(super) struct MappedExtents {
    first: OnceLock<Map>,
    later: OnceLock<Box<[OnceLock<Map>]>>,
    /// The number of extents that the allocators of this process have taken, the first extent included.
    taken: AtomicUsize,
}

/// The part of a segment that `Extents` uses: it maps parts of an arena. Tests implement it without a
/// segment.
pub(super) trait Mapper {
    /// Maps the part of the arena at the offsets `part`.
    fn map(&self, part: Range<u64>) -> Result<Map>;
    /// Returns the name of the arena's rank, for error sentences.
    fn name(&self) -> String;
}

/// The extents of one arena: their table, and this process's maps of them.
pub(super) struct Extents<'a, M> {
    pub table: &'a ExtentTable,
    pub mapped: &'a MappedExtents,
    pub mapper: M,
    /// The length in bytes of the arena's range of offsets in the segment.
    pub range: u64,
}

impl<M: Mapper> Extents<'_, M> {
    /// Returns the memory of the first extent, and maps it if it is not mapped.
    pub fn first(&self) -> Result<Span> {
        if let Some(map) = self.mapped.first.get() {
            return Ok(map.span());
        }
        let map = self.mapper.map(0..FIRST_BYTES.min(self.range))?;
        Ok(self.mapped.first.get_or_init(|| map).span())
    }

    /// Returns the memory at the offsets `[offset, offset + bytes)`, which lie in an extent after the first,
    /// and maps that extent if it is not mapped. Errors: no such extent holds all these bytes, or the extent
    /// cannot be mapped.
    pub fn in_later_extent(&self, offset: u64, bytes: u64) -> Result<Span> {
        let Some((index, extent)) = self.table.find(offset, bytes, self.range) else {
            fail!(
                Class::Intern,
                "{bytes} bytes at offset {offset:#x} lie in no extent of the arena of {}",
                self.mapper.name()
            );
        };
        let whole = self.whole(index, &extent)?;
        Ok(whole.slice((offset - extent.start) as usize, bytes as usize))
    }

    fn whole(&self, index: usize, extent: &Range<u64>) -> Result<Span> {
        let slot = &self.slots()[index];
        if let Some(map) = slot.get() {
            return Ok(map.span());
        }
        let map = self.mapper.map(extent.clone())?;
        Ok(slot.get_or_init(|| map).span())
    }

    fn slots(&self) -> &[OnceLock<Map>] {
        self.mapped.later.get_or_init(|| (0..LATER_MAX).map(|_| OnceLock::new()).collect())
    }

    /// Takes and maps the next extent that no allocator of this process has taken: the first; then those left
    /// by an earlier process with this number; then a new one for an allocation of `bytes`. An extent may be
    /// too short: the caller then calls again. Only the arena's rank calls it.
    pub fn take(&self, bytes: u64) -> Result<Range<u64>> {
        let index = self.mapped.taken.load(Ordering::Relaxed);
        if index == 0 {
            self.first()?;
        } else if let Some(extent) = self.table.get(index - 1, self.range) {
            self.whole(index - 1, &extent)?;
        } else {
            self.append(index - 1, bytes)?;
        }
        // If the exchange fails, another allocator of this process has taken this extent.
        if self.mapped.taken.compare_exchange(index, index + 1, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return self.take(bytes);
        }
        let first = 0..FIRST_BYTES.min(self.range);
        Ok(index.checked_sub(1).and_then(|later| self.table.get(later, self.range)).unwrap_or(first))
    }

    /// Maps a new extent for an allocation of `bytes` and adds it to the table. It maps first, since an
    /// extent that cannot be mapped must not be in the table.
    fn append(&self, index: usize, bytes: u64) -> Result<()> {
        let before = match index.checked_sub(1) {
            None => FIRST_BYTES.min(self.range),
            Some(before) => self.table.get(before, self.range).map_or(self.range, |extent| extent.end),
        };
        let left = self.range - before;
        let least = bytes.next_multiple_of(ARENA_ALIGN);
        let Some(end) = self.table.ends.get(index).filter(|_| least <= left) else {
            fail!(
                Class::NoMem,
                "the arena of {} has used up its {} offsets in {index} extents; {bytes} bytes more do not fit",
                self.mapper.name(),
                self.range
            );
        };
        let map = |length: u64| self.mapper.map(before..before + length).map(|map| (map, length));
        let (map, length) = map(growth(before, bytes).min(left)).or_else(|_| map(least))?;
        match end.compare_exchange(0, before + length, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => drop(self.slots()[index].set(map)),
            // Another allocator of this process has added an extent; `take` will find it.
            Err(_) => drop(map),
        }
        Ok(())
    }

    /// Returns the offset in the arena of the bytes that this process has at `address`. Returns None if they
    /// do not all lie in one mapped extent.
    pub fn offset_of(&self, address: usize, bytes: u64) -> Option<u64> {
        let offset = self.mapped.first.get().and_then(|map| inside(map.span(), address, bytes));
        offset.or_else(|| self.offset_in_later(address, bytes))
    }

    fn offset_in_later(&self, address: usize, bytes: u64) -> Option<u64> {
        let maps = self.mapped.later.get()?;
        let known = (0..LATER_MAX).map_while(|index| Some((index, self.table.get(index, self.range)?)));
        known
            .filter_map(|(index, extent)| {
                Some(extent.start + inside(maps[index].get()?.span(), address, bytes)?)
            })
            .next()
    }

    /// Calls `each` with the offset and the memory of each extent that this process has mapped.
    pub fn each_mapped(&self, mut each: impl FnMut(u64, Span)) {
        self.mapped.first.get().into_iter().for_each(|map| each(0, map.span()));
        let Some(maps) = self.mapped.later.get() else { return };
        for (index, map) in maps.iter().enumerate() {
            if let (Some(map), Some(extent)) = (map.get(), self.table.get(index, self.range)) {
                each(extent.start, map.span());
            }
        }
    }

    /// Returns the offsets at which the extents after the first end, ascending.
    pub fn ends(&self) -> Vec<u64> {
        (0..LATER_MAX).map_while(|index| Some(self.table.get(index, self.range)?.end)).collect()
    }

    /// Copies `ends` into the table of this arena. The function `ends` has returned them for the same arena
    /// in another segment. Returns false if they are invalid, or the table already has different ends.
    pub fn enter(&self, ends: &[u64]) -> bool {
        ends.len() <= LATER_MAX
            && (0..).zip(ends).all(|(index, &end)| {
                let word = &self.table.ends[index];
                let before = word.load(Ordering::Relaxed);
                if before == 0 {
                    word.store(end, Ordering::Release);
                }
                (before == 0 || before == end) && self.table.get(index, self.range).is_some()
            })
    }
}

/// Returns the length of a new extent for an allocation of `bytes`, if the arena's extents have `before`
/// bytes so far.
fn growth(before: u64, bytes: u64) -> u64 {
    // There are four lengths from each power of two to the next, so that the extent of a freed allocation
    // fits a later one that is a little longer.
    let step = (bytes.next_power_of_two() / 8).max(ARENA_ALIGN);
    let half = (before / 2).clamp(FIRST_BYTES, GROWTH_MAX).next_multiple_of(ARENA_ALIGN);
    bytes.next_multiple_of(step).max(half)
}

/// Returns the offset in `span` of the bytes at `address`; None if they do not all lie in the span.
fn inside(span: Span, address: usize, bytes: u64) -> Option<u64> {
    let at = address.wrapping_sub(span.address());
    (at <= span.bytes() && bytes <= (span.bytes() - at) as u64).then_some(at as u64)
}

#[cfg(all(test, not(loom)))]
#[path = "extents_tests.rs"]
mod tests;
