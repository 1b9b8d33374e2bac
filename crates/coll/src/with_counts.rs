// SPDX-License-Identifier: BSD-3-Clause
//! Collectives with a count for every member, over slots.
//!
//! Only the sender and the receivers of a block know its length. So the word in a member's slot holds the
//! length of the member's contribution. Where each receiver gets a block of its own, a table of the ends of
//! these blocks comes first. If a contribution is too long, the word says so instead. Then a block of a
//! gatherv goes to the root by a schedule of two ranks. In the other collectives all members see the word,
//! and a schedule carries out the whole call.
//!
//! Invariants: whether a call goes over slots depends on what all members know alike, not on its counts.

use crate::call::{Call, CollBuffer};
use crate::set::{FlatSet, Round};
use crate::short::SHORT_MAX;
use crate::word::{LENGTH_MAX, differ, facts, with_length};
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use schedule::algorithm::Collective;
use std::ops::Range;

/// The longest contribution, in bytes, to a call with counts over slots. For longer ones one copy by a
/// schedule is faster than two copies through slots.
const BYTES_MAX: u64 = 128 << 10;

/// How many calls with counts go to schedules without a round, after a call that was too long for its slots.
const SKIPPED_MAX: u32 = 15;

/// Counts down the calls with counts that go to a schedule without trying slots, after a call that was too
/// long.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

/// A collective with a count for each member (gatherv and the like), as one member makes it over slots.
#[derive(Debug)]
pub struct CallWithCounts {
    collective: Collective,
    root: usize,
    /// The data that this member gives: a buffer for each receiver, or one for all.
    gives: CollBuffer,
    /// The memory into which this member receives: a buffer for each sender, or one buffer for the root's
    /// data.
    takes: CollBuffer,
    in_place: bool,
    bytes_max: u64,
    /// Whether a schedule must carry out the whole call, because some contribution is too long for the slots.
    scheduled: bool,
    /// The senders of those blocks of a gatherv that are too long for slots. Schedules carry these blocks to
    /// this member, the root.
    long: Vec<usize>,
}

/// A block of a gatherv that is too long for slots, which a schedule of two ranks carries from its sender to
/// the root.
#[derive(Debug)]
pub(crate) struct LongBlock {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) block: Buffer,
}

impl Backoff {
    /// Whether the next call with counts goes to a schedule without trying slots. Each time that this is
    /// true, the count of such calls falls by one. All members come to the same answer.
    pub(crate) fn skips(&mut self) -> bool {
        let skips = self.0 > 0;
        self.0 -= u32::from(skips);
        skips
    }

    /// Notes that a call was too long for its slots, since the next calls with counts probably are, too.
    pub(crate) fn start(&mut self) {
        self.0 = SKIPPED_MAX;
    }
}

impl CallWithCounts {
    /// Prepares a call with counts (gatherv and the like) for slots with space for contributions of
    /// `bytes_max` bytes. Returns None if slots do not take the call. All members come to the same answer.
    pub(crate) fn new(call: &Call, bytes_max: u64) -> Option<CallWithCounts> {
        use Collective::*;
        let bytes_max = bytes_max.min(BYTES_MAX);
        let fits = match (call.collective, &call.output) {
            (Gatherv | Scatterv | Alltoallv | Alltoallw, _) => true,
            (Allgatherv, CollBuffer::Each(blocks)) => {
                let fits = |block: &Buffer| block.bytes() as u64 <= bytes_max;
                blocks.iter().all(fits) && call.output.total() <= SHORT_MAX as u64
            }
            _ => false,
        };
        fits.then(|| CallWithCounts {
            collective: call.collective,
            root: call.root as usize,
            gives: call.input.clone(),
            takes: call.output.clone(),
            in_place: call.in_place,
            bytes_max,
            scheduled: false,
            long: Vec::new(),
        })
    }

    /// Leaves the call to a schedule, without a round over slots.
    pub(crate) fn schedule(&mut self) {
        self.scheduled = true;
    }

    /// Whether a schedule must carry out the call, according to what all members know after the call's round.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    /// Returns the blocks of a gatherv that are too long for slots and that this member sends or receives,
    /// once the round is over.
    pub(crate) fn long_blocks(&self, rank: usize) -> impl Iterator<Item = LongBlock> {
        let long = |from: usize, block: &Buffer| LongBlock { from, to: self.root, block: block.clone() };
        let received = self.long.iter().map(move |from| long(*from, self.take_of(*from)));
        let sends =
            |block: &&Buffer| self.collective == Collective::Gatherv && block.bytes() as u64 > self.bytes_max;
        received.chain(self.given(rank).first().filter(sends).map(move |block| long(rank, block)))
    }

    /// Whether each contribution has a block for each receiver, and so begins with the table of the ends of
    /// these blocks.
    fn has_table(&self) -> bool {
        !matches!(self.collective, Collective::Gatherv | Collective::Allgatherv)
    }

    /// Returns the blocks that this member contributes: one for each member, or one for all.
    fn given(&self, rank: usize) -> &[Buffer] {
        match &self.gives {
            CollBuffer::Each(blocks) => blocks,
            CollBuffer::None
                if self.collective == Collective::Alltoallv || self.collective == Collective::Alltoallw =>
            {
                self.takes.each()
            }
            // This member's own block lies among those that it takes.
            CollBuffer::None if self.collective == Collective::Allgatherv => {
                std::slice::from_ref(self.take_of(rank))
            }
            CollBuffer::One { buffer, .. }
                if self.collective == Collective::Allgatherv || rank != self.root =>
            {
                std::slice::from_ref(buffer)
            }
            _ => &[],
        }
    }

    /// Returns the memory for the block that member `from` gives to this member.
    fn take_of(&self, from: usize) -> &Buffer {
        match &self.takes {
            CollBuffer::Each(blocks) => &blocks[from],
            CollBuffer::One { buffer, .. } => buffer,
            _ => &Buffer::EMPTY,
        }
    }

    /// Returns the block that this member gives to itself, and the memory into which the block is copied.
    /// None if there is no such block, or if MPI_IN_PLACE says that it lies there already.
    fn for_itself(&self, rank: usize) -> Option<(&Buffer, &Buffer)> {
        let mine = match &self.gives {
            CollBuffer::Each(blocks) => &blocks[rank],
            CollBuffer::One { buffer, .. } => buffer,
            _ => return None,
        };
        let rooted = matches!(self.collective, Collective::Gatherv | Collective::Scatterv);
        (!self.in_place && (!rooted || rank == self.root)).then(|| (mine, self.take_of(rank)))
    }

    /// Copies the block for this member out of the slot of member `from`. A contribution that is too long for
    /// the slot is noted in `long`. Errors: the block is not as long as this member expects, or its slot is
    /// corrupt.
    fn take_from(&mut self, set: &FlatSet, from: usize) -> Result<()> {
        let total = length_of(set, from);
        if total == LENGTH_MAX {
            self.long.push(from);
            return Ok(());
        }
        let (me, name, into) = (set.rank(), self.collective.name(), self.take_of(from));
        let (slot, table) =
            (set.contribution(from, total), if self.has_table() { 4 * set.size() } else { 0 });
        let block = if total > self.bytes_max || table > total as usize {
            None
        } else if table == 0 {
            Some(0..total as usize)
        } else {
            let end = |entry: usize| {
                let mut word = [0; 4];
                slot.slice(4 * entry, 4).read(&mut word);
                u32::from_ne_bytes(word) as usize
            };
            let block = if me == 0 { table } else { end(me - 1) }..end(me);
            (table <= block.start && block.start <= block.end && block.end <= total as usize).then_some(block)
        };
        let Some(block) = block else {
            fail!(Class::Intern, "in {name} the slot of rank {from} makes no sense to rank {me}");
        };
        if block.len() != into.bytes() {
            let (sent, expected) = (block.len(), into.bytes());
            fail!(
                Class::Truncate,
                "in {name} rank {from} has {sent} bytes for rank {me}, which expects {expected}"
            );
        }
        into.unpack(0, slot.slice(block.start, block.len()));
        Ok(())
    }
}

/// Returns the length of a member's contribution, in bytes, or `LENGTH_MAX` if the contribution is too long
/// for its slot.
fn length_of(set: &FlatSet, rank: usize) -> u64 {
    set.facts_of(rank) & LENGTH_MAX
}

impl Round for CallWithCounts {
    const MINE: u64 = LENGTH_MAX;

    fn facts(&self) -> u64 {
        facts(self.collective, self.root, 0)
    }

    fn put(&mut self, set: &FlatSet, word: u64) -> u64 {
        let blocks = self.given(set.rank());
        let has_table = self.has_table() && !blocks.is_empty();
        // No other member reads what this member gives to itself.
        let is_read = |to: usize| !has_table || to != set.rank();
        let bytes = |(to, block): (usize, &Buffer)| if is_read(to) { block.bytes() as u64 } else { 0 };
        let table = if has_table { 4 * blocks.len() } else { 0 };
        let total = blocks.iter().enumerate().map(bytes).fold(table as u64, u64::saturating_add);
        if total > self.bytes_max {
            self.scheduled = has_table;
            return with_length(word, LENGTH_MAX);
        }
        let (slot, mut end) = (set.contribution(set.rank(), total), table);
        for (to, block) in blocks.iter().enumerate() {
            if is_read(to) {
                block.pack(0, slot.slice(end, block.bytes()));
                end += block.bytes();
            }
            if has_table {
                slot.slice(4 * to, 4).write(&(end as u32).to_ne_bytes());
            }
        }
        with_length(word, total)
    }

    fn needs(&self, rank: usize, members: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Gatherv if rank != self.root => 0..0,
            Scatterv if rank == self.root => 0..0,
            Scatterv => self.root..self.root + 1,
            _ => 0..members,
        }
    }

    fn take(&mut self, set: &FlatSet) -> Result<()> {
        let givers = self.needs(set.rank(), set.size());
        if self.has_table() && givers.clone().any(|from| length_of(set, from) == LENGTH_MAX) {
            self.scheduled = true;
        }
        if self.scheduled {
            return Ok(());
        }
        // An error of one block does not prevent the others from being taken.
        let mut taken = Ok(());
        for from in givers.filter(|from| *from != set.rank()) {
            taken = taken.and(self.take_from(set, from));
        }
        let Some((mine, into)) = self.for_itself(set.rank()) else { return taken };
        if mine.bytes() == into.bytes() {
            into.copy_from(mine);
            return taken;
        }
        let (name, rank, from, into) = (self.collective.name(), set.rank(), mine.bytes(), into.bytes());
        let sentence = format!("in {name} rank {rank} has {from} bytes for itself, but expects {into}");
        taken.and(Err(Error::new(Class::Truncate, sentence)))
    }

    #[cold]
    fn disagreement(&self, set: &FlatSet, rank: usize, word: u64) -> Error {
        differ(self.collective, self.root, set.rank(), rank, word)
    }
}
