//! Collectives with a count for every member, on slots (`flat.rs`).
//!
//! What a member gives is known only to itself and to those who take it. So its word says how long its contribution is, which begins with a
//! table of where each taker's block ends if it has a block for each. Or the word says that the contribution is long: then a gatherv's
//! is passed to the root by a schedule of two, and in the others, where all who take part hear of it, the whole call goes by a schedule.
//!
//! Invariants: that a call goes over slots does not depend on its counts, but on what all members know.

use crate::call::{Call, Part};
use crate::flat::{LENGTH_MAX, Slots};
use crate::round::{Round, differ, facts, with_length};
use crate::short::SHORT_MAX;
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use schedule::algorithm::Collective;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The longest contribution: for longer ones one copy is better than two.
const BYTES_MAX: u64 = 128 << 10;

/// Calls between two that try the slots while they are too long for them.
const SKIPPED_MAX: u32 = 15;

/// How many of the next calls on slots try no round, since one before was too long for it.
#[derive(Debug, Default)]
pub(crate) struct Skipping(u32);

/// A call of this kind, as a member makes it on slots.
#[derive(Debug)]
pub struct Vector {
    name: Collective,
    root: usize,
    /// What it gives each taker, or all.
    gives: Part,
    /// What it takes from each giver, or from the root.
    takes: Part,
    in_place: bool,
    bytes_max: u64,
    /// A schedule carries it out.
    scheduled: Cell<bool>,
    /// The members whose blocks are passed to this one.
    long: RefCell<Vec<usize>>,
}

/// A block that one member passes to another.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) block: Buffer,
}

impl Skipping {
    /// Whether the next call tries no round. All members come to the same answer.
    pub(crate) fn skips(&mut self) -> bool {
        let skips = self.0 > 0;
        self.0 -= u32::from(skips);
        skips
    }

    /// A call that tried one has been left to a schedule, as then the next ones probably would be.
    pub(crate) fn begin(&mut self) {
        self.0 = SKIPPED_MAX;
    }
}

impl Vector {
    /// The call, for members with room for contributions of `bytes_max`, if it is one for slots. All come to the same answer.
    pub(crate) fn new(call: &Call, bytes_max: u64) -> Option<Vector> {
        use Collective::*;
        let bytes_max = bytes_max.min(BYTES_MAX);
        let fits = match (call.collective, &call.output) {
            (Gatherv | Scatterv | Alltoallv | Alltoallw, _) => true,
            (Allgatherv, Part::Each(blocks)) => {
                let fits = |block: &Buffer| block.bytes() as u64 <= bytes_max;
                blocks.iter().all(fits) && call.output.total() <= SHORT_MAX as u64
            }
            _ => false,
        };
        fits.then(|| Vector {
            name: call.collective,
            root: call.root as usize,
            gives: call.input.clone(),
            takes: call.output.clone(),
            in_place: call.in_place,
            bytes_max,
            scheduled: Cell::new(false),
            long: RefCell::default(),
        })
    }

    /// Has a schedule carry it out: no member tries a round.
    pub(crate) fn schedule(&self) {
        self.scheduled.set(true);
    }

    /// Whether it turned out, for all members, that a schedule must carry it out.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled.get()
    }

    /// The long blocks of a gatherv that this member passes or is passed, now that the round is over.
    pub(crate) fn passed(&self, rank: usize) -> impl Iterator<Item = Pass> {
        let pass = |from: usize, block: &Buffer| Pass { from, to: self.root, block: block.clone() };
        let received: Vec<_> =
            self.long.borrow().iter().map(|from| pass(*from, self.take_of(*from))).collect();
        let sends =
            |block: &&Buffer| self.name == Collective::Gatherv && block.bytes() as u64 > self.bytes_max;
        received.into_iter().chain(self.given(rank).first().filter(sends).map(|block| pass(rank, block)))
    }

    /// Whether contributions have a block for each member.
    fn has_table(&self) -> bool {
        !matches!(self.name, Collective::Gatherv | Collective::Allgatherv)
    }

    /// The blocks that it puts up: one for each member, or one for all.
    fn given(&self, rank: usize) -> &[Buffer] {
        match &self.gives {
            Part::Each(blocks) => blocks,
            Part::None if self.name == Collective::Alltoallv || self.name == Collective::Alltoallw => {
                self.takes.each()
            }
            // Its own block lies among those that it takes.
            Part::None if self.name == Collective::Allgatherv => std::slice::from_ref(self.take_of(rank)),
            Part::One { buffer, .. } if self.name == Collective::Allgatherv || rank != self.root => {
                std::slice::from_ref(buffer)
            }
            _ => &[],
        }
    }

    /// Where it takes the block of a member.
    fn take_of(&self, from: usize) -> &Buffer {
        match &self.takes {
            Part::Each(blocks) => &blocks[from],
            Part::One { buffer, .. } => buffer,
            _ => &Buffer::EMPTY,
        }
    }

    /// What it gives itself, and where it takes that.
    fn own(&self, rank: usize) -> Option<(&Buffer, &Buffer)> {
        let mine = match &self.gives {
            Part::Each(blocks) => &blocks[rank],
            Part::One { buffer, .. } => buffer,
            _ => return None,
        };
        let rooted = matches!(self.name, Collective::Gatherv | Collective::Scatterv);
        (!self.in_place && (!rooted || rank == self.root)).then(|| (mine, self.take_of(rank)))
    }

    /// Takes the block that a member has for this one.
    fn take_from(&self, slots: &Slots, from: usize) -> Result<()> {
        let (own, name, into) = (slots.rank, self.name.name(), self.take_of(from));
        let total = length_of(slots, from);
        if total == LENGTH_MAX {
            self.long.borrow_mut().push(from);
            return Ok(());
        }
        let (place, table) =
            (slots.contribution(from, total), if self.has_table() { 4 * slots.size() } else { 0 });
        let block = if total > self.bytes_max || table > total as usize {
            None
        } else if table == 0 {
            Some(0..total as usize)
        } else {
            let end = |entry: usize| {
                let mut word = [0; 4];
                place.slice(4 * entry, 4).read(&mut word);
                u32::from_ne_bytes(word) as usize
            };
            let block = if own == 0 { table } else { end(own - 1) }..end(own);
            (table <= block.start && block.start <= block.end && block.end <= total as usize).then_some(block)
        };
        let Some(block) = block else {
            fail!(Class::Intern, "in {name} the slots of rank {from} makes no sense to rank {own}");
        };
        if block.len() != into.bytes() {
            let (sent, room) = (block.len(), into.bytes());
            fail!(
                Class::Truncate,
                "in {name} rank {from} has {sent} bytes for rank {own}, which expects {room}"
            );
        }
        into.unpack(0, place.slice(block.start, block.len()));
        Ok(())
    }
}

/// How long a member says that its contribution is; `LENGTH_MAX` if it is long.
fn length_of(slots: &Slots, rank: usize) -> u64 {
    slots.facts_of(rank) & LENGTH_MAX
}

impl Round for Vector {
    const OWN_BITS: u64 = LENGTH_MAX;

    fn facts(&self) -> u64 {
        facts(self.name, self.root, 0)
    }

    fn put(&self, slots: &Slots, word: u64) -> u64 {
        let blocks = self.given(slots.rank);
        let has_table = self.has_table() && !blocks.is_empty();
        // Nobody else reads what it gives itself.
        let is_read = |to: usize| !has_table || to != slots.rank;
        let bytes = |(to, block): (usize, &Buffer)| if is_read(to) { block.bytes() as u64 } else { 0 };
        let table = if has_table { 4 * blocks.len() } else { 0 };
        let total = blocks.iter().enumerate().map(bytes).fold(table as u64, u64::saturating_add);
        if total > self.bytes_max {
            self.scheduled.set(has_table);
            return with_length(word, LENGTH_MAX);
        }
        let (place, mut end) = (slots.contribution(slots.rank, total), table);
        for (to, block) in blocks.iter().enumerate() {
            if is_read(to) {
                block.pack(0, place.slice(end, block.bytes()));
                end += block.bytes();
            }
            if has_table {
                place.slice(4 * to, 4).write(&(end as u32).to_ne_bytes());
            }
        }
        with_length(word, total)
    }

    fn needs(&self, rank: usize, members: usize) -> Range<usize> {
        use Collective::*;
        match self.name {
            Gatherv if rank != self.root => 0..0,
            Scatterv if rank == self.root => 0..0,
            Scatterv => self.root..self.root + 1,
            _ => 0..members,
        }
    }

    fn take(&self, slots: &Slots) -> Result<()> {
        let givers = || self.needs(slots.rank, slots.size());
        if self.has_table() && givers().any(|from| length_of(slots, from) == LENGTH_MAX) {
            self.scheduled.set(true);
        }
        if self.is_scheduled() {
            return Ok(());
        }
        // All blocks that can be taken are.
        let others = givers().filter(|from| *from != slots.rank);
        let taken = others.map(|from| self.take_from(slots, from)).fold(Ok(()), Result::and);
        let Some((mine, into)) = self.own(slots.rank) else { return taken };
        if mine.bytes() == into.bytes() {
            into.copy_from(mine);
            return taken;
        }
        let (name, rank, from, into) = (self.name.name(), slots.rank, mine.bytes(), into.bytes());
        let sentence = format!("in {name} rank {rank} has {from} bytes for itself, but expects {into}");
        taken.and(Err(Error::new(Class::Truncate, sentence)))
    }

    #[cold]
    fn disagreement(&self, slots: &Slots, rank: usize, word: u64) -> Error {
        differ(self.name, self.root, slots.rank, rank, word)
    }
}
