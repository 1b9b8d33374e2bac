// SPDX-License-Identifier: BSD-3-Clause
//! Views: which bytes of the file a rank sees, and in which order (MPI 5.0, section 14.3).
//!
//! A view is a sequence of *tiles*: elements of the filetype, one after the other. Offsets into a view are
//! *packed*: they count the bytes of data in the tiles, without holes. The filetype's layout says where these
//! bytes are in the file, as a layout does in memory: a file offset is an address relative to the
//! displacement.

use crate::representation::Representation;
use datatype::{Datatype, Layout};
use error::{Class, Result, fail};
use std::sync::{Arc, OnceLock};

/// The view of a file: which of its bytes a rank sees, and in which order. It holds the arguments of
/// MPI_File_set_view, and what follows from them.
#[derive(Clone, Debug)]
pub struct View {
    /// The offset in the file, in bytes, at which the first tile (an element of the filetype) begins.
    pub displacement: u64,
    /// The elementary datatype, which is the unit of offsets in the view.
    pub etype: Arc<Datatype>,
    /// The datatype of which the view is a sequence. One element of this datatype is a tile.
    pub filetype: Arc<Datatype>,
    pub representation: Representation,
    /// The number of data bytes of one etype as the file represents it.
    pub etype_bytes: u64,
    pub tiles: Tiles,
}

/// The part of a view that other ranks need: tiles of one layout, one after the other, from a displacement in
/// the file on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles {
    displacement: u64,
    layout: Arc<Layout>,
    /// The offset in the file of the first data byte, if the tiles have no holes, so that the data are
    /// contiguous. None if they have holes.
    gapless: Option<u64>,
    sorted: bool,
}

/// The views of all ranks, unset until the ranks have exchanged them. Then an aggregator holds all views;
/// other ranks hold an empty list, which says that the aggregators have them.
pub type KnownViews = Arc<OnceLock<Vec<Tiles>>>;

/// The greatest offset of a byte in a file.
const OFFSET_MAX: i128 = i64::MAX as i128;

impl Tiles {
    /// Makes tiles, one element of `layout` after the other, from the file offset `displacement` on. Errors
    /// (MPI_ERR_INTERN): the layout has negative offsets.
    pub fn new(displacement: u64, layout: Arc<Layout>) -> Result<Tiles> {
        if layout.size > 0 && (layout.true_lb < 0 || layout.extent < 0) {
            fail!(Class::Intern, "tiles from {} bytes on, {} bytes apart", layout.true_lb, layout.extent);
        }
        let one_piece = layout.pieces() == 1 && layout.extent == layout.size as i64;
        let gapless = one_piece.then(|| displacement.saturating_add(layout.true_lb as u64));
        let order = order(&layout);
        let sorted = gapless.is_some() || (order.disjoint && layout.extent >= order.reach);
        Ok(Tiles { displacement, layout, gapless, sorted })
    }

    /// Whether the offsets in the file grow with the packed offsets, so that no byte appears twice.
    pub fn sorted(&self) -> bool {
        self.sorted
    }

    /// Returns the number of data bytes of one tile (an element of the filetype).
    pub fn tile_bytes(&self) -> u64 {
        self.layout.size as u64
    }

    /// Whether all packed bytes `[from, from + bytes)` are at offsets below 2^63 in the file.
    pub fn holds(&self, from: u64, bytes: u64) -> bool {
        if self.layout.size == 0 {
            return bytes == 0;
        }
        let last_tile = (i128::from(from) + i128::from(bytes.max(1)) - 1) / self.layout.size as i128;
        let reach = i128::from(self.layout.true_lb) + i128::from(self.layout.true_extent);
        i128::from(self.displacement) + last_tile * i128::from(self.layout.extent) + reach <= OFFSET_MAX
    }

    /// Returns the offset in the file of the data byte at packed offset `packed`.
    pub fn offset_of(&self, packed: u64) -> u64 {
        let mut offset = self.displacement;
        self.pieces(packed, 1, |at, _| offset = at);
        offset
    }

    /// Calls `each` for every contiguous run of bytes in the file that holds some of the packed bytes `[from,
    /// from + bytes)`, in order, with its offset in the file and its length. Adjacent runs are joined.
    pub fn pieces(&self, from: u64, bytes: u64, mut each: impl FnMut(u64, u64)) {
        if bytes == 0 {
            return;
        }
        if let Some(first) = self.gapless {
            return each(first + from, bytes);
        }
        let mut last: Option<(u64, u64)> = None;
        self.layout.pieces_at(self.displacement as usize, from as usize, bytes as usize, |at, bytes| {
            let (at, bytes) = (at as u64, bytes as u64);
            match &mut last {
                Some((start, length)) if *start + *length == at => *length += bytes,
                _ => {
                    if let Some((start, length)) = last.replace((at, bytes)) {
                        each(start, length);
                    }
                }
            }
        });
        if let Some((start, length)) = last {
            each(start, length);
        }
    }

    /// Returns an upper bound for the number of contiguous runs of bytes in the file that hold the packed
    /// bytes `[from, from + bytes)`.
    pub fn pieces_max(&self, from: u64, bytes: u64) -> u64 {
        match (self.gapless, bytes) {
            (_, 0) => 0,
            (Some(_), _) => 1,
            (None, _) => {
                let tiles = (from + bytes - 1) / self.tile_bytes() - from / self.tile_bytes() + 1;
                tiles.saturating_mul(self.layout.pieces()).min(bytes)
            }
        }
    }

    /// Returns how many of the packed bytes `[from, to)` are before the byte at `offset` in the file. The
    /// tiles must be sorted.
    pub fn below(&self, offset: u64, from: u64, to: u64) -> u64 {
        if let Some(first) = self.gapless {
            return offset.saturating_sub(first).clamp(from, to) - from;
        }
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.offset_of(middle) < offset { low = middle + 1 } else { high = middle }
        }
        low - from
    }

    /// Returns how many of all data bytes of the view are before the byte at `offset` in the file. The tiles
    /// need not be sorted.
    pub fn bytes_before(&self, offset: u64) -> u64 {
        if let Some(first) = self.gapless {
            return offset.saturating_sub(first);
        }
        let (tile_bytes, extent) = (self.tile_bytes(), self.layout.extent as u64);
        if tile_bytes == 0 || offset <= self.displacement {
            return 0;
        }
        let reach = (self.layout.true_lb + self.layout.true_extent) as u64;
        // Tiles that end before the offset count whole; tiles that begin before it and end after it are
        // counted piece by piece.
        let inside = offset - self.displacement;
        let (whole, started) = match extent {
            0 => (0, 1),
            _ => (if inside >= reach { (inside - reach) / extent + 1 } else { 0 }, inside.div_ceil(extent)),
        };
        let mut bytes = whole * tile_bytes;
        for tile in whole..started {
            self.pieces(tile * tile_bytes, tile_bytes, |at, length| {
                bytes += offset.saturating_sub(at).min(length);
            });
        }
        bytes
    }

    /// Returns the tiles as words, from which another process makes the same tiles.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![self.displacement];
        words.extend(self.layout.to_words());
        words
    }

    pub fn words(&self) -> usize {
        1 + self.layout.words()
    }

    pub fn from_words(words: &[u64]) -> Result<Tiles> {
        let [displacement, layout @ ..] = words else { fail!(Class::Intern, "a view came as no words") };
        Tiles::new(*displacement, Arc::new(Layout::from_words(layout)?))
    }
}

/// How the runs (contiguous bytes) of one element of a layout follow one another in memory or in the file.
struct PieceOrder {
    /// Whether each run of bytes begins where the run before it begins, or later.
    ascending: bool,
    /// Whether each run of bytes begins where the run before it ends, or later.
    disjoint: bool,
    /// The distance in bytes from the start of the element's first run to the end of its last run.
    reach: i64,
}

fn order(layout: &Layout) -> PieceOrder {
    let (mut ascending, mut disjoint, mut start, mut end) = (true, true, i64::MIN, i64::MIN);
    for run in layout.runs() {
        ascending &= run.offset >= start && (run.repeat == 1 || run.stride >= 0);
        disjoint &= run.offset >= end && (run.repeat == 1 || run.stride >= run.bytes as i64);
        start = run.offset + run.stride * (run.repeat as i64 - 1);
        end = start + run.bytes as i64;
    }
    let first = layout.runs().first().map_or(0, |run| run.offset);
    let (mut reach, mut last) = (end.max(first) - first, start.max(first) - first);
    for around in layout.loops().iter().rev().filter(|around| around.repeat > 1) {
        ascending &= around.stride >= last;
        disjoint &= around.stride >= reach;
        let by = around.stride * (around.repeat as i64 - 1);
        (reach, last) = (reach + by, last + by);
    }
    PieceOrder { ascending, disjoint: ascending && disjoint, reach }
}

/// Fails if `layout` breaks a rule of the standard for etypes and filetypes (MPI 5.0, section 14.1.1). Some
/// rules hold only if the file is `writable`. `what` names the datatype in the error sentence.
fn check_type(what: &str, layout: &Layout, writable: bool) -> Result<()> {
    if layout.size > 0 && (layout.true_lb < 0 || layout.extent < 0) {
        fail!(
            Class::Io,
            "the {what} has data {} bytes from its origin and the extent {}; neither may be negative",
            layout.true_lb,
            layout.extent
        );
    }
    let order = order(layout);
    if !order.ascending {
        fail!(Class::Io, "the displacements of the {what} decrease");
    }
    if writable && !order.disjoint {
        fail!(Class::Io, "the {what} has overlapping data, and the file may be written");
    }
    Ok(())
}

impl View {
    /// Returns the view of a file that was just opened: all its bytes, in order.
    pub fn bytes() -> View {
        let byte = datatype::predefined_handle("MPI_BYTE").and_then(datatype::predefined);
        let byte = byte.expect("MPI_BYTE is predefined").clone();
        View::new(0, byte.clone(), byte.clone(), Representation::Native, &byte, &byte, true)
            .expect("a view of bytes is sound")
    }

    /// Makes a view. `etype_in_file` and `filetype_in_file` are the datatypes as the representation lays them
    /// out in the file. `writable` says whether the file was opened for writing.
    pub fn new(
        displacement: u64,
        etype: Arc<Datatype>,
        filetype: Arc<Datatype>,
        representation: Representation,
        etype_in_file: &Arc<Datatype>,
        filetype_in_file: &Arc<Datatype>,
        writable: bool,
    ) -> Result<View> {
        check_type("etype", etype_in_file.layout(), writable)?;
        check_type("filetype", filetype_in_file.layout(), writable)?;
        let etype_bytes = etype_in_file.size() as u64;
        if etype_bytes == 0 {
            fail!(Class::Arg, "the etype has no data, so that offsets in it mean nothing");
        }
        if !(filetype_in_file.size() as u64).is_multiple_of(etype_bytes) {
            fail!(
                Class::Arg,
                "a filetype of {} bytes does not consist of etypes of {etype_bytes} bytes",
                filetype_in_file.size()
            );
        }
        let tiles = Tiles::new(displacement, filetype_in_file.layout().clone())?;
        Ok(View { displacement, etype, filetype, representation, etype_bytes, tiles })
    }

    /// Converts an offset in the view from etypes to data bytes (a packed offset).
    pub fn packed(&self, etypes: i64) -> Result<u64> {
        let packed = u64::try_from(etypes).ok().and_then(|etypes| etypes.checked_mul(self.etype_bytes));
        match packed {
            Some(packed) if packed <= i64::MAX as u64 => Ok(packed),
            _ => {
                fail!(Class::Arg, "offset {etypes}, in etypes of {} bytes, lies in no file", self.etype_bytes)
            }
        }
    }

    /// Converts an offset in the view, in etypes, to an offset in the file, in bytes
    /// (MPI_File_get_byte_offset).
    pub fn byte_offset(&self, etypes: i64) -> Result<i64> {
        let packed = self.packed(etypes)?;
        if self.tiles.tile_bytes() == 0 {
            return Ok(self.displacement as i64);
        }
        if !self.tiles.holds(packed, 1) {
            fail!(Class::Arg, "offset {etypes} of this view lies beyond 2^63 bytes");
        }
        Ok(self.tiles.offset_of(packed) as i64)
    }

    /// Returns how many etypes of the view begin before the end of a file of `bytes` bytes. This is the
    /// position from which MPI_SEEK_END counts.
    pub fn end(&self, bytes: u64) -> i64 {
        self.tiles.bytes_before(bytes).div_ceil(self.etype_bytes) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatype::{Width, hindexed, predefined, predefined_handle, resized, vector};
    use proptest::prelude::*;

    fn byte() -> Arc<Datatype> {
        predefined(predefined_handle("MPI_BYTE").unwrap()).unwrap().clone()
    }

    /// Returns the offsets in the file of the view's first `many` data bytes, found byte by byte.
    fn model(displacement: u64, blocks: &[(i64, i64)], extent: i64, many: usize) -> Vec<u64> {
        let tile: Vec<i64> = blocks.iter().flat_map(|&(at, length)| at..at + length).collect();
        (0..many)
            .map(|k| displacement + (tile[k % tile.len()] + (k / tile.len()) as i64 * extent) as u64)
            .collect()
    }

    fn tiles(displacement: u64, blocks: &[(i64, i64)], lb: i64, extent: i64) -> Tiles {
        let (at, lengths): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
        let datatype = hindexed(Width::Count, &lengths, &at, &byte()).unwrap();
        let datatype = resized(Width::Count, lb, extent, &datatype).unwrap();
        Tiles::new(displacement, datatype.layout().clone()).unwrap()
    }

    fn check(tiles: &Tiles, offsets: &[u64], from: usize, bytes: usize) {
        let mut seen = Vec::new();
        let (mut end, mut pieces) = (None, 0);
        tiles.pieces(from as u64, bytes as u64, |at, length| {
            assert_ne!(end, Some(at), "touching pieces are one");
            end = Some(at + length);
            pieces += 1;
            seen.extend(at..at + length);
        });
        assert_eq!(seen, offsets[from..from + bytes]);
        assert!(pieces <= tiles.pieces_max(from as u64, bytes as u64));
        assert_eq!(tiles.offset_of(from as u64), offsets[from]);
        let is_sorted = offsets.windows(2).all(|pair| pair[0] < pair[1]);
        assert_eq!(tiles.sorted(), is_sorted);
        for limit in 0..offsets[from] + 20 {
            let below = offsets[from..from + bytes].iter().filter(|at| **at < limit).count();
            if is_sorted {
                assert_eq!(tiles.below(limit, from as u64, (from + bytes) as u64), below as u64);
            }
        }
        assert_eq!(&Tiles::from_words(&tiles.to_words()).unwrap(), tiles);
        assert_eq!(tiles.words(), tiles.to_words().len());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, failure_persistence: None, ..ProptestConfig::default()
        })]

        // Method: a list of offsets, byte by byte, answers every query about a view.
        #[test]
        fn views_agree_with_a_list_of_offsets(
            gaps in prop::collection::vec((0i64..5, 1i64..6), 1..6),
            tail in 0i64..6, lb in -5i64..5, displacement in 0u64..20,
            from in 0usize..40, bytes in 1usize..60,
        ) {
            let mut at = 0;
            let blocks: Vec<(i64, i64)> = gaps.iter().map(|&(gap, length)| {
                at += gap + length;
                (at - length, length)
            }).collect();
            let extent = at + tail;
            let tiles = tiles(displacement, &blocks, lb, extent);
            let offsets = model(displacement, &blocks, extent, 800);
            check(&tiles, &offsets, from, bytes);
            for limit in 0..200 {
                let before = offsets.iter().filter(|at| **at < limit).count() as u64;
                prop_assert_eq!(tiles.bytes_before(limit), before, "before {}", limit);
            }
        }
    }

    #[test]
    fn tiles_that_interleave_are_not_sorted() {
        let blocks = [(0, 2), (10, 2)];
        let interleaved = tiles(3, &blocks, 0, 4);
        check(&interleaved, &model(3, &blocks, 4, 40), 1, 20);
        assert_eq!(interleaved.bytes_before(7), 2);
        assert_eq!(interleaved.bytes_before(14), 2 * 3 + 1);
        let backwards = tiles(0, &[(4, 2), (0, 2)], 0, 8);
        check(&backwards, &model(0, &[(4, 2), (0, 2)], 8, 40), 1, 20);
        let still = tiles(0, &[(4, 2)], 0, 0);
        assert!(!still.sorted());
        assert_eq!(still.bytes_before(5), 1);
    }

    #[test]
    fn a_vector_in_a_loop_is_sorted_without_being_written_out() {
        let inner = vector(Width::Count, 1000, 1, 3, &byte()).unwrap();
        let pair = hindexed(Width::Count, &[1, 2], &[0, 5000], &inner).unwrap();
        let outer = datatype::hvector(Width::Count, 1 << 20, 1, 20_000, &pair).unwrap();
        let tiles = Tiles::new(0, outer.layout().clone()).unwrap();
        assert!(tiles.sorted());
        let far = 3000 * ((1 << 20) - 1);
        assert_eq!(tiles.offset_of(far), 20_000 * ((1 << 20) - 1));
        assert_eq!(tiles.below(tiles.offset_of(far) + 1, 0, 2 * far), far + 1);
    }

    #[test]
    fn decreasing_and_overlapping_filetypes_are_told_apart() {
        let verdict = |blocks: &[(i64, i64)], writable| {
            let (at, lengths): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
            let datatype = hindexed(Width::Count, &lengths, &at, &byte()).unwrap();
            check_type("filetype", datatype.layout(), writable).map_err(|error| error.class)
        };
        assert_eq!(verdict(&[(3, 1), (0, 1)], false), Err(Class::Io));
        assert_eq!(verdict(&[(0, 12), (4, 4)], false), Ok(()));
        assert_eq!(verdict(&[(0, 12), (4, 4)], true), Err(Class::Io));
        assert_eq!(verdict(&[(0, 4), (4, 4), (9, 1)], true), Ok(()));
        assert_eq!(verdict(&[], true), Ok(()));
    }

    #[test]
    fn negative_and_far_offsets_are_refused() {
        let layout = hindexed(Width::Count, &[1], &[-1], &byte()).unwrap().layout().clone();
        assert!(check_type("filetype", &layout, false).unwrap_err().message.contains("-1 bytes"));
        assert!(Tiles::new(5, layout).is_err());
        let view = View::bytes();
        assert_eq!(view.byte_offset(77), Ok(77));
        assert!(view.byte_offset(-1).is_err());
        let sparse = tiles(0, &[(0, 1)], 0, 1 << 60);
        assert!(sparse.holds(6, 1));
        assert!(!sparse.holds(8, 1));
        assert_eq!(view.end(100), 100);
    }
}
