// SPDX-License-Identifier: BSD-3-Clause
//! A set of slots: the rounds by which the members of a comm exchange short contributions.
//!
//! Each member has two slots in its arena, for even and odd rounds. A slot is a word (`word.rs`) and the
//! bytes that the member contributes. In round r a member writes its bytes and then its word, and reads the
//! slots of the members that it needs once their words show round r.
//!
//! Invariants: a member writes into a slot only after all members have begun the round before, and so have
//! read what the slot held two rounds before. Before the word is published only one member writes a byte, and
//! afterwards at most one, the member that reads it.
//!
//! Read next: `round.rs`, `with_counts.rs` and `pull.rs` (what calls do in a round), `attach.rs` (where the
//! slots lie).

use crate::word::{FACTS_BITS, collective_of, is_of};
use error::{Error, Result};
use schedule::algorithm::Collective;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::shm::{ArenaWords, Doorbell, LocalRank, RankPageRef};

/// The longest contribution, in bytes, that a slot holds beside its word, in the same pair of cache lines.
pub(crate) const BESIDE_MAX: u64 = 120;
/// The shortest contribution to an all-to-all, in bytes, whose blocks may go into the receivers' slots
/// (`crosses`). For shorter contributions the decision costs more than it gains.
pub(crate) const CROSSED_MIN: u64 = 1 << 10;

/// The methods of the calls that go over slots: what a member does in each round of a call.
pub trait Round {
    /// The bits of the facts (what a member's word says about the call) that may differ from member to
    /// member.
    const MINE: u64;
    /// Returns what this member's word says about the call in its present round (`word.rs`). All members
    /// publish the same facts, except for the bits `MINE`.
    fn facts(&self) -> u64;
    /// Returns which collective the call is.
    fn collective(&self) -> Collective {
        collective_of(self.facts())
    }
    /// Writes this member's contribution to its slot. Returns the word to publish there, which differs from
    /// `word` only in the bits of `MINE`.
    fn put(&mut self, set: &FlatSet, word: u64) -> u64;
    /// Copies the data that this member gives itself. The set calls this after it has published the member's
    /// word, while other members begin the round.
    fn copy_own(&mut self, _set: &FlatSet) {}
    /// Returns the range of members whose contributions the member `rank` needs to end the round.
    fn needs(&self, rank: usize, members: usize) -> Range<usize>;
    /// Takes this member's result from the slots, once all members that it needs have begun the round.
    fn take(&mut self, set: &FlatSet) -> Result<()>;
    /// Moves the call to its next round. Returns false if the present round was the call's last one.
    fn next_phase(&mut self) -> bool {
        false
    }
    /// Makes the error for the case that member `rank` has begun this round with another call, which its
    /// `word` describes.
    fn disagreement(&self, set: &FlatSet, rank: usize, word: u64) -> Error;
}

/// A round that this member has started and not ended.
#[derive(Debug)]
pub struct ActiveRound {
    /// The word that this member publishes in its slot. The words of all members that make the same call are
    /// equal, except for the bits `Round::MINE`.
    pub(crate) word: u64,
    /// Whether this member has published the round's word in its slot.
    pub(crate) posted: bool,
    /// The members whose words this member has still to check. Before it publishes its own word, it checks
    /// that they have begun the round before; afterwards that they have begun this round.
    ahead: Range<usize>,
    /// Whether this member needs the contributions of all members to end the round, not only of some.
    all: bool,
}

/// The slots of all members of a comm, and the progress of their rounds.
pub struct FlatSet {
    rank: usize,
    members: Vec<SetMember>,
    /// The slots of all members: first those for even rounds, then those for odd rounds.
    slots: [Vec<FlatSlot>; 2],
    round: u64,
    /// The latest round of which this member knows that all members have begun it.
    all_started: u64,
    /// The member for which this member has waited last, and the number of the round that the awaited member
    /// had not begun then.
    awaited: (usize, u64),
    /// The total length, in bytes, up to which the buffers of a call stay in the L2 cache. Calls within this
    /// length copy by vector instructions.
    pub(crate) near_bytes_max: usize,
    /// Whether a member could not read another's memory in some call. All members know this.
    pub(crate) reads_fail: Cell<bool>,
}

/// A member of a set: a process that shares slots with the others.
pub(crate) struct SetMember {
    /// The member's number in the job.
    pub(crate) peer: LocalRank,
    pub(crate) page: RankPageRef,
    /// A word in this member's arena that counts the other members that have left the set. The slots are free
    /// once all have left.
    pub(crate) left: ArenaWords,
}

/// One slot of a member, for even or for odd rounds: its word, and the memory for its contribution.
pub(crate) struct FlatSlot {
    pub(crate) word: ArenaWords,
    /// The slot's memory for contributions of up to `BESIDE_MAX` bytes.
    pub(crate) beside: Span,
    /// The slot's memory for contributions of more than `BESIDE_MAX` bytes.
    pub(crate) apart: Span,
}

impl FlatSet {
    /// Makes a set of slots of these members, in which no round was made yet. `rank` is this process's index
    /// among the members.
    pub(crate) fn new(
        rank: usize,
        members: Vec<SetMember>,
        slots: [Vec<FlatSlot>; 2],
        near_bytes_max: usize,
    ) -> FlatSet {
        FlatSet {
            rank,
            members,
            slots,
            round: 0,
            all_started: 0,
            awaited: (0, 0),
            near_bytes_max,
            reads_fail: Cell::new(false),
        }
    }

    /// Returns the number of the round that this member started last.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Returns this member's rank in the comm.
    #[inline(always)]
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number in the job of the member with this rank in the comm.
    pub(crate) fn peer(&self, rank: usize) -> LocalRank {
        self.members[rank].peer
    }

    /// Returns the number of members of this set of slots.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the ranks in the comm of all members but this one.
    #[inline]
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.rank;
        (0..self.size()).filter(move |rank| *rank != me)
    }

    /// Reports to the other members, in their arenas, that this member makes no more calls.
    pub(crate) fn leave(&self) {
        for rank in self.others() {
            self.members[rank].left[0].fetch_add(1, Ordering::Release);
        }
    }

    /// Returns what the word in a member's slot says about its call in this round. The member must be known
    /// to have begun the round.
    pub(crate) fn facts_of(&self, rank: usize) -> u64 {
        self.slots(self.round)[rank].word[0].load(Ordering::Acquire) % (1 << FACTS_BITS)
    }

    /// Returns where the `total` bytes lie that a member contributes to this round.
    #[inline]
    pub(crate) fn contribution(&self, rank: usize, total: u64) -> Span {
        self.bytes_of(self.round, rank, total)
    }

    /// Returns the longest contribution, in bytes, for which all members have space.
    pub(crate) fn contribution_max(&self) -> usize {
        self.slots(0).iter().map(|slot| slot.apart.bytes()).min().unwrap_or(0)
    }

    /// Returns where this member's contribution of `total` bytes to the round before lies. The bytes stay
    /// until this member begins the next round.
    pub(crate) fn last_contribution(&self, total: u64) -> Span {
        self.bytes_of(self.round - 1, self.rank, total)
    }

    /// Whether an all-to-all writes blocks into the receivers' slots, not into the sender's own. Each member
    /// contributes `total` bytes. The two ways take turns, two rounds each, so that a member writes where it
    /// read last. After an allreduce it is false, since a member may still read shares in its slot.
    #[inline]
    pub(crate) fn crosses(&self, total: u64) -> bool {
        self.round & 2 != 0 && total >= CROSSED_MIN && !is_of(self.last_facts(), Collective::Allreduce)
    }

    /// Returns what the word in this member's slot said about its call in the round before.
    #[inline]
    fn last_facts(&self) -> u64 {
        self.slots(self.round - 1)[self.rank].word[0].load(Ordering::Relaxed) % (1 << FACTS_BITS)
    }

    /// Returns where the block from member `from` to member `to` lies in an all-to-all to which each member
    /// contributes `total` bytes.
    #[inline]
    pub(crate) fn passage(&self, from: usize, to: usize, total: u64) -> Span {
        let block = total as usize / self.members.len();
        let (slot, at) = if self.crosses(total) { (to, from) } else { (from, to) };
        self.contribution(slot, total).slice(at * block, block)
    }

    #[inline]
    fn bytes_of(&self, round: u64, rank: usize, total: u64) -> Span {
        let slot = &self.slots(round)[rank];
        if total <= BESIDE_MAX { slot.beside } else { slot.apart }
    }

    /// Returns the slots of all members for a round, by rank.
    #[inline]
    fn slots(&self, round: u64) -> &[FlatSlot] {
        &self.slots[round as usize % 2]
    }

    /// Whether member `rank` has begun this round and has not begun the round two later, by the word in its
    /// slot.
    #[inline]
    fn has_started(&self, rank: usize, round: u64) -> bool {
        let word = self.slots(round)[rank].word[0].load(Ordering::Acquire);
        (word ^ round << FACTS_BITS) >> FACTS_BITS == 0
    }

    /// Whether the member for which a round waited last has still not begun that round.
    #[inline]
    pub(crate) fn still_waits(&self) -> bool {
        !self.has_started(self.awaited.0, self.awaited.1)
    }

    /// Returns the rank of the member for which a round has waited last.
    pub(crate) fn awaited_member(&self) -> usize {
        self.awaited.0
    }

    /// Whether a member that has not begun the awaited round waits on cpu `cpu`, or may run there because it
    /// has never waited. Members that the round does not need count, too, since they also use the cpu.
    #[inline]
    pub(crate) fn may_need_cpu(&self, cpu: usize) -> bool {
        let (first, round) = self.awaited;
        (first..self.members.len())
            .filter(|rank| !self.has_started(*rank, round))
            .any(|rank| self.members[rank].page.waits_on().is_none_or(|on| on == cpu))
    }

    /// Starts the next round of this member, without writing anything yet.
    #[inline]
    pub(crate) fn start_round(&mut self, call: &impl Round) -> ActiveRound {
        self.round += 1;
        let unsure = self.all_started != self.round - 1;
        let word = self.round << FACTS_BITS | call.facts();
        let ahead = 0..if unsure { self.members.len() } else { 0 };
        ActiveRound { word, posted: false, ahead, all: false }
    }

    /// Advances a round as far as possible. Returns the round's outcome, or None before the round has ended.
    #[inline]
    pub(crate) fn advance(&mut self, active: &mut ActiveRound, call: &mut impl Round) -> Option<Result<()>> {
        self.step(active, call)
    }

    /// Advances a round as far as possible, and returns its outcome once it has ended. It is always inlined,
    /// unlike `advance`.
    #[inline(always)]
    pub(crate) fn step<R: Round>(&mut self, active: &mut ActiveRound, call: &mut R) -> Option<Result<()>> {
        let members = self.members.len();
        if !active.posted {
            while active.ahead.start < active.ahead.end {
                if !self.has_started(active.ahead.start, self.round - 1) {
                    self.awaited = (active.ahead.start, self.round - 1);
                    return None;
                }
                active.ahead.start += 1;
            }
            self.post(active.word, call);
            (active.posted, active.ahead) = (true, call.needs(self.rank, members));
            active.all = active.ahead.len() == members;
            call.copy_own(self);
        }
        let slots = self.slots(self.round);
        while active.ahead.start < active.ahead.end {
            let rank = active.ahead.start;
            let word = slots[rank].word[0].load(Ordering::Acquire);
            if (word ^ active.word) & !R::MINE != 0 {
                if (word ^ active.word) >> FACTS_BITS == 0 {
                    return Some(Err(call.disagreement(self, rank, word)));
                }
                self.awaited = (rank, self.round);
                return None;
            }
            active.ahead.start += 1;
        }
        if active.all {
            self.all_started = self.round;
        }
        Some(call.take(self))
    }

    /// Writes this member's contribution to its slot, publishes its word there, and wakes the members that
    /// sleep.
    #[inline(always)]
    fn post(&self, word: u64, call: &mut impl Round) {
        let word = call.put(self, word);
        self.slots(self.round)[self.rank].word[0].store(word, Ordering::Release);
        if cfg!(loom) {
            // No member sleeps under loom; doorbells have their own model.
            return;
        }
        let others = self.members.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
        Doorbell::ring_all(others.map(|(_, member)| &*member.page.bell));
    }
}
