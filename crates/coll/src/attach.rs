// SPDX-License-Identifier: BSD-3-Clause
//! How a set of slots is attached. Each member of a comm or queue allocates its slots in its arena, all
//! members exchange the locations of their slots, and each member maps the slots of all.
//!
//! Invariants: whatever members must decide alike follows from the exchanged locations; a member uses its
//! slots for another set only after all other members have left the set.
//!
//! Read next: `set.rs` (the rounds), `flat.rs` (the sets of a process).

use crate::call::Call;
use crate::carrier::Space;
use crate::carrier::slots::Moved;
use crate::pull::Pull;
use crate::set::{ActiveRound, BESIDE_MAX, FlatSet, FlatSlot, SetMember};
use crate::short::{BYTES_MAX, CROWDED_FLAT_MAX, FLAT_MAX, MEMBERS_MAX, Short};
use crate::with_counts::{Backoff, CallWithCounts};
use error::{Class, Result, fail};
use std::sync::atomic::Ordering;
use transport::shm::{Allocator, Arena, ArenaWords, Segment, cma};
use tuning::{Distance, Load, Method, Probes};

/// The distance, in bytes, between the atomic words of a member's slots in shared memory: two cache lines,
/// which processors fetch as a pair.
const WORD_BYTES: u64 = 128;
/// The length of the first part of a member's slots, in bytes. It holds the word `left`, a word for each of
/// the two slots with space for a short contribution after it, and a spare word. Longer contributions lie
/// behind this part.
const WORDS_BYTES: u64 = 4 * WORD_BYTES;
/// Once a rank has allocated this many bytes of slots, its new sets get smaller slots, since the kernel keeps
/// all pages that were ever written.
const SLOTS_BYTES_MAX: u64 = 128 << 20;
/// The longest contribution, in bytes, that fits the smaller slots, which a rank allocates once it has
/// allocated `SLOTS_BYTES_MAX` bytes of slots.
pub(crate) const SMALL_SLOT_BYTES_MAX: u64 = 16 << 10;
const _: () = assert!(FLAT_MAX <= CROWDED_FLAT_MAX && CROWDED_FLAT_MAX / 2 <= SMALL_SLOT_BYTES_MAX);

/// The location of a member's slots in its arena, with flags in the bits that alignment leaves free. The
/// lowest five bits are the binary logarithm of the longest contribution, in bytes, that fits a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(pub u64);

impl Location {
    /// The value that a member states if it has no slots: its arena is full, or some member is on another
    /// host.
    pub(crate) const NONE: Location = Location(u64::MAX);
    /// A flag in the location of a member's slots: a proxy carries out this member's nonblocking collectives.
    const SERVED: u64 = 1 << 5;
    /// A flag in the location of a member's slots: this member has found that ranks of the job may share
    /// cpus.
    const CROWDED: u64 = 1 << 61;
    /// A flag in the location of a member's slots: this member can read the memory of all others, and wants
    /// to (`pull.rs`).
    const PULLS: u64 = 1 << 62;

    pub(crate) fn offset(self) -> u64 {
        self.0 & !(Location::PULLS | Location::CROWDED | 63)
    }

    /// Returns the longest contribution, in bytes, for which the slots at this location have space.
    fn bytes_max(self) -> u64 {
        1 << (self.0 & 31)
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// The lengths that decide how a member copies its bytes or reads those of others. They come from
/// measurements (`tuning`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The longest block, in bytes, that goes through the slots where all members want to read each other's
    /// memory. Longer blocks are read from the sender's memory.
    pub(crate) inline_bytes_max: u64,
    /// The total length, in bytes, up to which a call's buffers stay in the L2 cache of a rank with a core of
    /// its own.
    pub(crate) near_bytes_max: usize,
    /// Whether `wants_pulls` decides by messages that the job has timed (`tuning::Probes`), because neither a
    /// table of measurements nor a setting says whether to pull.
    pub(crate) is_probed: bool,
}

impl Bounds {
    /// The value of `inline_bytes_max` where the timed messages of the job show that the kernel copies fast.
    pub(crate) const PROBED: u64 = 64 << 10;

    /// Returns bounds for tests, by which blocks longer than `inline_bytes_max` bytes are read from the
    /// sender's memory.
    #[cfg(test)]
    pub(crate) fn pulling_above(inline_bytes_max: u64) -> Bounds {
        Bounds { inline_bytes_max, near_bytes_max: 512 << 10, is_probed: false }
    }

    /// Whether this member wants to read long blocks from the senders' memory. The members' answers may
    /// differ, since members exchange them. Without a table of measurements, the job's timed messages must
    /// have shown that reading is faster at some distance between cores, and slower at none.
    pub(crate) fn wants_pulls(&self, segment: &Segment) -> bool {
        if !self.is_probed {
            return self.inline_bytes_max < BYTES_MAX;
        }
        let probes = Probes(&segment.job().probes);
        let class = tuning::class_of(4 * self.inline_bytes_max);
        let seen = Distance::ALL.map(|distance| probes.choice((distance, Load::Exchange, class)));
        seen.contains(&Some(Method::Read)) && !seen.contains(&Some(Method::Cells))
    }
}

/// Allocates a rank's slots in its arena. Slots of sets that the rank has left are used again, once all other
/// members have left these sets, too.
pub(crate) struct SlotMemory {
    pub(crate) segment: Segment,
    /// The slots of sets that this rank has left: their location, and how many other members their set had.
    /// All these members must leave before the slots are used again.
    pub(crate) left: Vec<(Location, u64)>,
    made_bytes: u64,
    bounds: Bounds,
    /// Whether proxies carry out this rank's nonblocking collectives.
    served: bool,
}

impl SlotMemory {
    pub(crate) fn new(segment: Segment, served: bool, bounds: Bounds) -> SlotMemory {
        SlotMemory { segment, left: Vec::new(), made_bytes: 0, bounds, served }
    }

    /// Allocates this rank's slots for a set among the ranks `peers`. Returns their location, which this rank
    /// states to the other members, or `Location::NONE` if a peer is on another host or the arena is full.
    pub(crate) fn alloc(&mut self, memory: &mut Allocator, peers: &[u32]) -> Location {
        if peers.iter().any(|&peer| self.segment.local(peer).is_none()) {
            return Location::NONE;
        }
        let reaches =
            |peer: &u32| self.segment.local(*peer).is_some_and(|peer| cma::reaches(&self.segment, peer));
        let pulls =
            peers.len() <= MEMBERS_MAX && self.bounds.wants_pulls(&self.segment) && peers.iter().all(reaches);
        let arena = memory.arena().clone();
        let word = |location: Location, at: u64| {
            arena.words_ref(location.offset() + at * WORD_BYTES, 1).expect("slots lie inside their arenas")
        };
        let unused =
            |&(location, others): &(Location, u64)| word(location, 0)[0].load(Ordering::Acquire) == others;
        let location = match self.left.iter().position(unused) {
            Some(at) => Location(self.left.swap_remove(at).0.0 & !(Location::PULLS | Location::CROWDED)),
            None => {
                let bytes = if self.made_bytes < SLOTS_BYTES_MAX { BYTES_MAX } else { SMALL_SLOT_BYTES_MAX };
                self.made_bytes += 2 * bytes;
                let served = if self.served { Location::SERVED } else { 0 };
                match memory.alloc(slots_bytes(bytes)) {
                    Ok(offset) => Location(offset | u64::from(bytes.ilog2()) | served),
                    Err(_) => return Location::NONE,
                }
            }
        };
        (0..3).for_each(|at| word(location, at)[0].store(0, Ordering::Relaxed));
        let crowded = if self.segment.job().may_spin() { 0 } else { Location::CROWDED };
        Location(location.0 | crowded | if pulls { Location::PULLS } else { 0 })
    }

    /// Takes back this rank's slots at `location`, which no member has attached. This rank's next set uses
    /// them.
    pub(crate) fn free_unattached(&mut self, location: Location) {
        if location != Location::NONE {
            self.left.push((location, 0));
        }
    }

    /// Maps the slots of all members at `stated`, the locations that the members have exchanged. Returns None
    /// if some member has no slots.
    pub(crate) fn attach(&self, rank: usize, peers: &[u32], stated: &[i64]) -> Result<Option<AttachedSet>> {
        AttachedSet::new(&self.segment, rank, peers, stated, self.bounds)
    }

    /// Leaves a set of slots, on which this rank makes no more calls. Calls of other members may still be
    /// under way there.
    pub(crate) fn detach(&mut self, attached: AttachedSet) {
        self.left.push((attached.location, attached.set.size() as u64 - 1));
        attached.set.leave();
    }
}

/// A set: the slots of all members of a comm or queue, mapped by this rank (`set`), and what follows from the
/// locations that the members have exchanged.
pub(crate) struct AttachedSet {
    pub(crate) set: FlatSet,
    /// The location of this member's slots.
    location: Location,
    /// Whether a proxy carries out some member's nonblocking collectives.
    pub(crate) served: bool,
    pub(crate) space: Space,
    /// The total bytes of all members' vectors above which an allreduce takes two rounds
    /// (`Short::choose_rounds`).
    pub(crate) flat_max: u64,
    segment: Segment,
    /// Decides which calls with counts (gatherv and the like) go to a schedule at once, because the counts of
    /// an earlier call were too long for the slots.
    pub(crate) backoff: Backoff,
    /// The round of the blocking call that `FlatSets::try_now` has started and `start_round` continues; None
    /// if there is none.
    pub(crate) tried: Option<ActiveRound>,
}

/// The way in which a set of shared slots carries out a short collective call.
#[derive(Debug)]
pub enum FlatForm {
    /// The call's bytes go through the slots, in one round or two.
    Short,
    /// The members read each other's memory (cross-memory attach), in rounds that publish addresses.
    Pulled(Box<Pull>),
}

/// A collective call, prepared for one of the three ways in which a set of slots carries calls out.
pub(crate) enum FlatCall {
    Short(Short),
    Pulled(Box<Pull>),
    WithCounts(CallWithCounts),
}

impl AttachedSet {
    fn new(
        segment: &Segment,
        rank: usize,
        peers: &[u32],
        stated: &[i64],
        bounds: Bounds,
    ) -> Result<Option<AttachedSet>> {
        let locations: Vec<_> = stated.iter().map(|word| Location(*word as u64)).collect();
        if locations.contains(&Location::NONE) {
            return Ok(None);
        }
        let member = |(&peer, &location): (&u32, &Location)| {
            let peer = segment.require(peer)?;
            let (left, slots) = map_slots(&segment.arena(peer)?, location)?;
            Ok((SetMember { peer, page: segment.rank_page_ref(peer), left }, slots))
        };
        let (members, slots): (Vec<_>, (_, _)) =
            peers.iter().zip(&locations).map(member).collect::<Result<_>>()?;
        let near_bytes_max = match (sys::copy::vectors_suit(), segment.job().may_spin()) {
            (false, _) => 0,
            (true, true) => bounds.near_bytes_max,
            (true, false) => bounds.near_bytes_max / 2,
        };
        let some = |flag| locations.iter().any(|location| location.has(flag));
        let all_pull = locations.iter().all(|location| location.has(Location::PULLS));
        Ok(Some(AttachedSet {
            set: FlatSet::new(rank, members, slots.into(), near_bytes_max),
            location: locations[rank],
            served: some(Location::SERVED),
            space: Space {
                bytes_max: locations.iter().map(|location| location.bytes_max()).min().unwrap_or(0),
                inline_bytes_max: if all_pull { bounds.inline_bytes_max } else { u64::MAX },
            },
            flat_max: if some(Location::CROWDED) { CROWDED_FLAT_MAX } else { FLAT_MAX },
            segment: segment.clone(),
            backoff: Backoff::default(),
            tried: None,
        }))
    }

    /// Returns the way in which this set of slots carries out a short call that the slots can take: through
    /// the slots, or by reading the senders' memory, as `moved` says. Also sets the number of the call's
    /// rounds.
    #[inline]
    pub(crate) fn form(&self, short: &mut Short, moved: Moved) -> FlatForm {
        match moved {
            Moved::Pulled => FlatForm::Pulled(Box::new(Pull::new(short, &self.segment))),
            Moved::Inline => {
                short.choose_rounds(self.set.rank(), self.set.size(), self.flat_max);
                FlatForm::Short
            }
        }
    }

    /// Returns the way in which this set of slots carries out a call, or None if the slots do not take it.
    /// All members come to the same answer.
    pub(crate) fn flat_call(&self, call: &Call) -> Option<FlatCall> {
        let (rank, members) = (self.set.rank(), self.set.size());
        let mut short = Short::new(call.collective);
        if !short.fill(call, rank, members) {
            return CallWithCounts::new(call, self.space.bytes_max).map(FlatCall::WithCounts);
        }
        self.flat_short(short)
    }

    /// Returns the way in which this set of slots carries out a call whose blocks all have one length, or
    /// None if the slots do not take it.
    #[inline(always)]
    pub(crate) fn flat_short(&self, mut short: Short) -> Option<FlatCall> {
        let moved = self.space.moves(short.collective, short.bytes, self.set.size())?;
        Some(match self.form(&mut short, moved) {
            FlatForm::Short => FlatCall::Short(short),
            FlatForm::Pulled(pull) => FlatCall::Pulled(pull),
        })
    }
}

/// Returns how many bytes a member's two slots take, with their words, if each slot has space for a
/// contribution of `bytes` bytes.
fn slots_bytes(bytes: u64) -> u64 {
    WORDS_BYTES + 2 * bytes
}

/// Maps a member's word `left` and its two slots. Errors: the slots do not lie inside the member's arena
/// (MPI_ERR_INTERN), or the arena cannot be mapped.
pub(crate) fn map_slots(arena: &Arena, location: Location) -> Result<(ArenaWords, (FlatSlot, FlatSlot))> {
    let (offset, bytes) = (location.offset(), location.bytes_max());
    if !(SMALL_SLOT_BYTES_MAX..=BYTES_MAX).contains(&bytes) {
        fail!(Class::Intern, "rank {} says that its slots are at {:#x}", arena.rank(), location.0);
    }
    let whole = arena.span(offset, slots_bytes(bytes))?;
    let slot = |parity: u64| {
        let (word, apart) = ((1 + parity) * WORD_BYTES, WORDS_BYTES + parity * bytes);
        Ok::<_, error::Error>(FlatSlot {
            word: arena.words_ref(offset + word, 1)?,
            beside: whole.slice(word as usize + 8, BESIDE_MAX as usize),
            apart: whole.slice(apart as usize, bytes as usize),
        })
    };
    Ok((arena.words_ref(offset, 1)?, (slot(0)?, slot(1)?)))
}
