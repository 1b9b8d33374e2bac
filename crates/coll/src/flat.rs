//! FlatSets: short collectives, each in one exchange of cache lines.
//!
//! In its arena each member of a comm has two places, used in turn: a word with the number of a round and what
//! the call is (its *facts*: collective, root, bytes), and the bytes that it contributes. To take part in round r, a member writes its
//! bytes and then the word into the place whose turn it is, and reads the places of those whose bytes it needs once their words are
//! its own. So a collective needs one look at each other member, and nobody walks a schedule. A long reduction for all takes two
//! rounds: the sum of a share for each, who leaves it where the others had put theirs, then all shares. So does a long all-to-all or allgather that is *pulled* (`pull.rs`).
//!
//! Invariants: a place is overwritten only by who knows that all members have begun the round before, and so have read that place, whose
//! round was two before; a byte is written by one member before its word, and then at most by the only one that reads it; operands are
//! combined in the order of ranks, so all members get the same bits; whether a call is flat depends only on what is the same
//! for all members, so their rounds count alike.
//!
//! A comm gets its slots after some such calls: many have only a few. Blocking calls have slots of their own, since nonblocking ones never
//! match them (MPI 5.0, section 6.12).
//!
//! Read next: `round.rs` (what a member does in a round), `short.rs` (what a call is on slots), `queue.rs` (calls that do not block), `flat_loom.rs` (this code under every interleaving).

use crate::call::Call;
use crate::pull::Pull;
use crate::queue::{Leaving, Queue, Queued};
use crate::round::{Round, is_of};
use crate::short::{BYTES_MAX, CROWDED_FLAT_MAX, FLAT_MAX, MEMBERS_MAX, Short};
use crate::vector::{Skipping, Vector};
use error::{Class, Result, fail};
use schedule::algorithm::Collective;
use slab::Slab;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::shm::{Allocator, Arena, Doorbell, KeptPage, Segment, Words, cma};
use tuning::{Distance, Load, Probes, Way};

/// The longest that lies beside the word, and so comes with it.
const BESIDE_MAX: u64 = 120;
/// Shorter contributions to an all-to-all do not cross: what they would gain is less than what it takes to tell.
const CROSSED_MIN: u64 = 1 << 10;
/// Calls on a comm before its members attach slots.
pub const CALLS_BEFORE: u32 = 8;

/// Bits of a place's word below the round: five of the collective, four of the root, and those of the bytes.
pub(crate) const FACTS_BITS: u32 = 30;
pub(crate) const LENGTH_BITS: u32 = 21;
pub(crate) const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(
    Collective::ALL.len() <= 32
        && MEMBERS_MAX <= 16
        && BYTES_MAX < LENGTH_MAX
        && FLAT_MAX <= CROWDED_FLAT_MAX
        && CROWDED_FLAT_MAX / 2 <= LESS_BYTES_MAX
);

/// From one word to the next: processors fetch lines in pairs.
const WORD_BYTES: u64 = 128;
/// Before the bytes that do not lie beside a word: the word `left`, which only blocking calls' slots use, and the words of both places.
const WORDS_BYTES: u64 = 4 * WORD_BYTES;
/// Room for contributions of `BYTES_MAX` while a rank's slots have less than this in all, then for less: touched pages stay.
const SLOTS_BYTES_MAX: u64 = 128 << 20;
const LESS_BYTES_MAX: u64 = 16 << 10;
/// In a `Attached::room`, beside the logarithm: proxies carry out this member's nonblocking collectives.
const SERVED: u64 = 1 << 5;
/// The same: ranks of the job share cpus, as far as this member knows.
const CROWDED: u64 = 1 << 61;
/// The same: this member can read the memory of all others, and wants to (`pull.rs`).
const PULLS: u64 = 1 << 62;
/// What members tell each other who have no room for slots.
pub const NO_SLOTS: u64 = u64::MAX;

/// A call under way.
#[derive(Debug)]
pub struct Turn {
    /// The word of all who make this call.
    word: u64,
    pub(crate) posted: bool,
    /// The members that are still to be looked at.
    ahead: Range<usize>,
    /// Whether all are looked at.
    all: bool,
}

/// Whose calls go over slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// A comm's blocking ones, by the slots' number.
    Blocking(usize),
    /// Those of a queue.
    Queued(usize),
}

/// What of slots was chosen by measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Longer blocks are pulled where all members can, and want to.
    pub(crate) inline_bytes_max: u64,
    /// Calls with buffers of up to so many bytes find them in a core's cache.
    pub(crate) near_bytes_max: usize,
    /// Nobody has measured: what the job's messages have shown by now tells whether to pull.
    pub(crate) is_probed: bool,
}

impl Bounds {
    /// The longest block that is not pulled where messages show that the kernel copies fast.
    pub(crate) const PROBED: u64 = 64 << 10;

    /// As a test wants it.
    #[cfg(test)]
    pub(crate) fn pulling_above(inline_bytes_max: u64) -> Bounds {
        Bounds { inline_bytes_max, near_bytes_max: 512 << 10, is_probed: false }
    }

    /// Whether this member wants long blocks to be pulled: as all members tell each other, these may come to different answers. Where nobody has measured,
    /// exchanged messages must have shown that reading is faster, at no distance that it is not.
    fn wants_pulls(&self, segment: &Segment) -> bool {
        if !self.is_probed {
            return self.inline_bytes_max < BYTES_MAX;
        }
        let probes = Probes(&segment.job().probes);
        let class = tuning::class_of(4 * self.inline_bytes_max);
        let seen = Distance::ALL.map(|distance| probes.choice((distance, Load::Exchange, class)));
        seen.contains(&Some(Way::Read)) && !seen.contains(&Some(Way::Cells))
    }
}

/// The slots of a process.
pub(crate) struct FlatSets {
    pub(crate) segment: Segment,
    /// Those of blocking calls.
    pub(crate) attached: Slab<Attached>,
    /// Those of other calls.
    pub(crate) queues: Slab<Queue>,
    /// Calls in queues that the program has not yet been told of, and the queues in which something is to be done.
    pub(crate) queued: Slab<Queued>,
    pub(crate) busy: Vec<usize>,
    /// What of them is to be carried out by schedules.
    pub(crate) leaving: Vec<Leaving>,
    /// Those on which a thread has waited for long: it may go to sleep.
    waiting: Vec<usize>,
    /// `Attached::room` of slots on which this member makes no more calls, and how many others used each: it may be used again when these have left, too.
    pub(crate) left: Vec<(u64, u64)>,
    /// Bytes of all slots that were made here.
    made_bytes: u64,
    pub(crate) bounds: Bounds,
    /// Proxies carry out this rank's nonblocking collectives.
    served: bool,
}

/// The slots of a comm, or of a queue.
pub(crate) struct Attached {
    pub(crate) slots: Slots,
    /// Where this rank's slots lies in its arena, and, in the bits that alignment leaves, the binary logarithm of the bytes for which a
    /// place has room, and `SERVED`: what members tell each other.
    room: u64,
    /// Some member's nonblocking collectives are for proxies.
    pub(crate) served: bool,
    /// For contributions of so many bytes all members have room.
    pub(crate) bytes_max: u64,
    /// Longer blocks are pulled.
    inline_bytes_max: u64,
    /// Of longer reductions for all each member makes a share (`Short::halves`).
    pub(crate) flat_max: u64,
    segment: Segment,
    /// Calls with counts that go by schedules.
    pub(crate) skipping: Skipping,
    /// The blocking call that `try_now` has begun.
    begun: Option<Turn>,
}

/// One slots of each of a comm's members.
pub struct Slots {
    pub(crate) rank: usize,
    members: Vec<Member>,
    /// Those of all members for rounds with even numbers, and with odd ones.
    places: [Vec<Place>; 2],
    round: u64,
    /// The latest round that all members are known to have begun.
    begun: u64,
    /// Who was not where a call needed it when it was last looked at: a member, and the round that it had not begun.
    missed: (usize, u64),
    /// Calls with buffers of up to so many bytes find them in the L2 cache, and vectors suit them.
    pub(crate) near_bytes_max: usize,
}

struct Member {
    /// Its rank in the job.
    peer: u32,
    page: KeptPage,
    left: Words,
}

struct Place {
    word: Words,
    /// Contributions of up to `BESIDE_MAX` bytes, and longer ones.
    beside: Span,
    apart: Span,
}

impl FlatSets {
    pub(crate) fn new(segment: Segment, served: bool, bounds: Bounds) -> FlatSets {
        FlatSets {
            segment,
            attached: Slab::new(),
            queues: Slab::new(),
            queued: Slab::new(),
            busy: Vec::new(),
            leaving: Vec::new(),
            waiting: Vec::new(),
            left: Vec::new(),
            made_bytes: 0,
            bounds,
            served,
        }
    }

    /// Room for a member's slots among these (`Attached::room`), or `NO_SLOTS`.
    pub(crate) fn new_slots(&mut self, memory: &mut Allocator, peers: &[u32]) -> u64 {
        let reaches = |peer: &u32| cma::reaches(&self.segment, *peer);
        let pulls =
            peers.len() <= MEMBERS_MAX && self.bounds.wants_pulls(&self.segment) && peers.iter().all(reaches);
        let arena = memory.arena().clone();
        let word = |room: u64, at: u64| {
            arena.keep(place_of(room).0 + at * WORD_BYTES, 1).expect("sets lie inside their arenas")
        };
        let unused = |&(room, others): &(u64, u64)| word(room, 0)[0].load(Ordering::Acquire) == others;
        let room = match self.left.iter().position(unused) {
            Some(at) => Some(self.left.swap_remove(at).0 & !(PULLS | CROWDED)),
            None => {
                let bytes = if self.made_bytes < SLOTS_BYTES_MAX { BYTES_MAX } else { LESS_BYTES_MAX };
                self.made_bytes += 2 * bytes;
                let extra = u64::from(bytes.ilog2()) | if self.served { SERVED } else { 0 };
                memory.alloc(slots_bytes(bytes)).map(|offset| offset | extra)
            }
        };
        let Some(room) = room else { return NO_SLOTS };
        (0..3).for_each(|at| word(room, at)[0].store(0, Ordering::Relaxed));
        let crowded = !self.segment.job().may_spin();
        room | if pulls { PULLS } else { 0 } | if crowded { CROWDED } else { 0 }
    }

    /// Attaches the slots of blocking calls, as all members have told each other; nothing if some member has no room for one.
    pub(crate) fn attach(&mut self, rank: usize, peers: &[u32], rooms: &[i64]) -> Result<Option<usize>> {
        let attached = Attached::find(&self.segment, rank, peers, rooms, self.bounds)?;
        Ok(attached.map(|attached| self.attached.insert(attached)))
    }

    /// Whether all members have room for a blocking call that fits slots.
    #[inline]
    pub(crate) fn has_room(&self, slots: usize, short: &Short) -> bool {
        self.attached[slots].has_room(short)
    }

    /// The rounds of a blocking call.
    #[inline]
    pub(crate) fn rounds(&self, slots: usize, short: &Short) -> Rounds {
        self.attached[slots].rounds(short)
    }

    /// Makes a blocking call that fits if it is over after so many looks; otherwise `begin` goes on with it.
    #[inline(always)]
    pub(crate) fn try_now(&mut self, slots: usize, call: &impl Round, looks: u32) -> Option<()> {
        let attached = &mut self.attached[slots];
        let mut turn = attached.slots.begin(call);
        for _ in 0..looks {
            match attached.slots.step(&mut turn, call) {
                None => sys::cpu::look_again(),
                Some(Ok(())) => return Some(()),
                Some(Err(_)) => break,
            }
        }
        attached.begun = Some(turn);
        None
    }

    /// Begins the next round of blocking calls, with one that fits.
    #[inline]
    pub(crate) fn begin(&mut self, slots: usize, call: &impl Round) -> Turn {
        let attached = &mut self.attached[slots];
        let turn = attached.begun.take().unwrap_or_else(|| attached.slots.begin(call));
        debug_assert_eq!(turn.word % (1 << FACTS_BITS), call.facts(), "another call was begun");
        turn
    }

    /// Whether the last blocking call waits for a member that may need this cpu.
    #[inline]
    pub(crate) fn waits_for_one_on(&self, slots: usize, cpu: usize) -> bool {
        self.attached[slots].slots.misses_one_on(cpu)
    }

    /// Takes a blocking call as far as it goes. How it ended, once it has.
    #[inline]
    pub(crate) fn advance(&mut self, slots: usize, turn: &mut Turn, call: &impl Round) -> Option<Result<()>> {
        self.attached[slots].slots.advance(turn, call)
    }

    /// The slots of blocking calls.
    pub(crate) fn blocking(&self, slots: usize) -> &Slots {
        &self.attached[slots].slots
    }

    /// A call with a count for each member, on these slots, if it is one for them.
    pub(crate) fn vector(&self, slots: usize, call: &Call) -> Option<Vector> {
        Vector::new(call, self.attached[slots].bytes_max)
    }

    /// The most that each member combines of all in a blocking call.
    pub(crate) fn flat_max(&self, slots: usize) -> u64 {
        self.attached[slots].flat_max
    }

    /// Which blocking calls go by schedules.
    pub(crate) fn skipping(&mut self, slots: usize) -> &mut Skipping {
        &mut self.attached[slots].skipping
    }

    /// The thread that makes a blocking call is going to wait for long, or has done so.
    #[cold]
    pub(crate) fn wait(&mut self, slots: usize, begins: bool) {
        self.waiting.retain(|waiting| *waiting != slots);
        if begins {
            self.waiting.push(slots);
        }
    }

    /// Those for which a thread may sleep: who they are, and the slots.
    #[inline]
    fn awaited(&self) -> impl Iterator<Item = (Calls, &Slots)> {
        let blocking =
            self.waiting.iter().map(|number| (Calls::Blocking(*number), &self.attached[*number].slots));
        let queued =
            self.busy.iter().filter_map(|queue| Some((Calls::Queued(*queue), self.queues[*queue].slots()?)));
        blocking.chain(queued)
    }

    /// Whether a call that has waited for long would get further.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.awaited().any(|(_, slots)| !slots.misses())
    }

    /// The slots on which calls wait, and for which member.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (Calls, usize)> {
        self.awaited().filter(|(_, slots)| slots.misses()).map(|(calls, slots)| (calls, slots.missed.0))
    }

    /// The comm of these slots is freed here.
    pub(crate) fn leave(&mut self, slots: usize) {
        let attached = self.attached.remove(slots);
        self.detach(attached);
    }

    /// A slots on which this member makes no more calls. The others' may be under way.
    pub(crate) fn detach(&mut self, Attached { slots, room, .. }: Attached) {
        self.left.push((room, slots.members.len() as u64 - 1));
        for rank in slots.others() {
            slots.members[rank].left[0].fetch_add(1, Ordering::Release);
        }
    }
}

impl Attached {
    /// The members' slots, as all have told each other; nothing if some member has no room for one.
    pub(crate) fn find(
        segment: &Segment,
        rank: usize,
        peers: &[u32],
        rooms: &[i64],
        bounds: Bounds,
    ) -> Result<Option<Attached>> {
        if rooms.contains(&(NO_SLOTS as i64)) {
            return Ok(None);
        }
        let member = |(&peer, &room): (&u32, &i64)| match member_at(&segment.arena(peer)?, room as u64) {
            Some((left, places)) => Ok((Member { peer, page: segment.keep_rank(peer), left }, places)),
            None => fail!(Class::Intern, "rank {peer} of the job says that its slots is at {room:#x}"),
        };
        let (members, places): (Vec<_>, (_, _)) =
            peers.iter().zip(rooms).map(member).collect::<Result<_>>()?;
        let near_bytes_max = match (sys::copy::vectors_suit(), segment.job().may_spin()) {
            (false, _) => 0,
            (true, true) => bounds.near_bytes_max,
            (true, false) => bounds.near_bytes_max / 2,
        };
        Ok(Some(Attached {
            slots: Slots {
                rank,
                members,
                places: places.into(),
                round: 0,
                begun: 0,
                missed: (0, 0),
                near_bytes_max,
            },
            room: rooms[rank] as u64,
            served: rooms.iter().any(|room| *room as u64 & SERVED != 0),
            skipping: Skipping::default(),
            begun: None,
            bytes_max: rooms.iter().map(|room| place_of(*room as u64).1).min().unwrap_or(0),
            inline_bytes_max: match rooms.iter().all(|room| *room as u64 & PULLS != 0) {
                true => bounds.inline_bytes_max,
                false => u64::MAX,
            },
            flat_max: match rooms.iter().any(|room| *room as u64 & CROWDED != 0) {
                true => CROWDED_FLAT_MAX,
                false => FLAT_MAX,
            },
            segment: segment.clone(),
        }))
    }

    /// Whether all members have room for a call that fits slots.
    #[inline]
    pub(crate) fn has_room(&self, short: &Short) -> bool {
        let members = self.slots.members.len();
        let room = self.bytes_max == BYTES_MAX || short.contribution(members) <= self.bytes_max;
        let is_short = !Pull::takes(short) || short.bytes * members as u64 <= BYTES_MAX;
        self.pulls(short) || room && is_short
    }

    /// Whether it is a call that is pulled.
    #[inline]
    fn pulls(&self, short: &Short) -> bool {
        short.bytes > self.inline_bytes_max && Pull::takes(short)
    }

    /// The rounds of a call for which there is room.
    #[inline]
    pub(crate) fn rounds(&self, short: &Short) -> Rounds {
        if self.pulls(short) {
            return Rounds::Pulled(Box::new(Pull::new(short, &self.segment)));
        }
        match short.halves(self.slots.rank, self.slots.members.len(), self.flat_max) {
            Some((first, second)) => Rounds::Two(first, Box::new(second)),
            None => Rounds::One,
        }
    }
}

/// The rounds of a short call.
pub enum Rounds {
    /// The call itself.
    One,
    /// A long reduction for all.
    Two(Short, Box<Short>),
    /// A call that is pulled.
    Pulled(Box<Pull>),
}

/// For `FlatSets::left`: slots that nobody has attached, if there was room for one.
pub(crate) fn unused(room: u64) -> Option<(u64, u64)> {
    (room != NO_SLOTS).then_some((room, 0))
}

/// Where the slots of a `Attached::room` lies, and how long a contribution may be.
fn place_of(room: u64) -> (u64, u64) {
    (room & !(PULLS | CROWDED | 63), 1 << (room & 31))
}

/// Of one slots, for contributions of so many.
fn slots_bytes(bytes: u64) -> u64 {
    WORDS_BYTES + 2 * bytes
}

/// A member's word `left`, and its places.
fn member_at(arena: &Arena, room: u64) -> Option<(Words, (Place, Place))> {
    let (offset, bytes) = place_of(room);
    if !(LESS_BYTES_MAX..=BYTES_MAX).contains(&bytes) {
        return None;
    }
    let whole = arena.span(offset, slots_bytes(bytes))?;
    let place = |turn: u64| {
        let (word, apart) = ((1 + turn) * WORD_BYTES, WORDS_BYTES + turn * bytes);
        Some(Place {
            word: arena.keep(offset + word, 1)?,
            beside: whole.slice(word as usize + 8, BESIDE_MAX as usize),
            apart: whole.slice(apart as usize, bytes as usize),
        })
    };
    Some((arena.keep(offset, 1)?, (place(0)?, place(1)?)))
}

impl Slots {
    /// The members' places for a round.
    #[inline]
    fn places(&self, round: u64) -> &[Place] {
        &self.places[round as usize % 2]
    }

    /// Whether a member has begun a round, and not the one two after.
    #[inline]
    fn has_begun(&self, rank: usize, round: u64) -> bool {
        let word = self.places(round)[rank].word[0].load(Ordering::Acquire);
        (word ^ round << FACTS_BITS) >> FACTS_BITS == 0
    }

    /// Whether the member that a call missed is still not where it must be.
    #[inline]
    fn misses(&self) -> bool {
        !self.has_begun(self.missed.0, self.missed.1)
    }

    /// Whether a member that has not begun what the call missed last waited on a cpu, or may be there because it never waited. The call
    /// may not need all of these, but each of them can use the cpu.
    #[inline]
    fn misses_one_on(&self, cpu: usize) -> bool {
        let (first, round) = self.missed;
        (first..self.members.len())
            .filter(|rank| !self.has_begun(*rank, round))
            .any(|rank| self.members[rank].page.waits_on().is_none_or(|on| on == cpu))
    }

    /// The number of the last round.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// This member.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// A member's rank in the job.
    pub(crate) fn peer(&self, rank: usize) -> u32 {
        self.members[rank].peer
    }

    /// How many members there are.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// What a member says of this round, as it is known to have begun it.
    pub(crate) fn facts_of(&self, rank: usize) -> u64 {
        self.places(self.round)[rank].word[0].load(Ordering::Acquire) % (1 << FACTS_BITS)
    }

    /// All members but this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.size()).filter(move |rank| *rank != own)
    }

    /// Where a member's contribution of `total` bytes to this round lies.
    #[inline]
    pub(crate) fn contribution(&self, rank: usize, total: u64) -> Span {
        self.place(self.round, rank, total)
    }

    /// Where this member's contribution of `total` bytes to the round before lies, until it begins the next one.
    pub(crate) fn last_contribution(&self, total: u64) -> Span {
        self.place(self.round - 1, self.rank, total)
    }

    /// Whether members put the blocks of an all-to-all, `total` bytes each, into each other's places, not their own: in every second pair of
    /// rounds. So a member writes where it has read last, for which it needs not fetch lines from another core. On an AMD EPYC that takes 2.4 instead of 2.8 us
    /// for blocks of 64 KiB, 3.5 instead of 4.7 where cores are far apart; 9.4 instead of 13.1 us of 4 ranks. Not after a reduction for all: a
    /// member may still take the others' sums from its place.
    #[inline]
    pub(crate) fn crosses(&self, total: u64) -> bool {
        self.round & 2 != 0 && total >= CROSSED_MIN && !is_of(self.last_facts(), Collective::Allreduce)
    }

    /// What this member said of the round before.
    #[inline]
    fn last_facts(&self) -> u64 {
        self.places(self.round - 1)[self.rank].word[0].load(Ordering::Relaxed) % (1 << FACTS_BITS)
    }

    /// Where the block lies that a member of an all-to-all, `total` bytes of each, has for another.
    #[inline]
    pub(crate) fn passage(&self, from: usize, to: usize, total: u64) -> Span {
        let block = total as usize / self.members.len();
        let (place, at) = if self.crosses(total) { (to, from) } else { (from, to) };
        self.contribution(place, total).slice(at * block, block)
    }

    #[inline]
    fn place(&self, round: u64, rank: usize, total: u64) -> Span {
        let place = &self.places(round)[rank];
        if total <= BESIDE_MAX { place.beside } else { place.apart }
    }

    #[inline]
    pub(crate) fn begin(&mut self, call: &impl Round) -> Turn {
        self.round += 1;
        let unsure = self.begun != self.round - 1;
        let word = self.round << FACTS_BITS | call.facts();
        let ahead = 0..if unsure { self.members.len() } else { 0 };
        Turn { word, posted: false, ahead, all: false }
    }

    /// Takes a call as far as it goes. How it ended, once it has.
    #[inline]
    pub(crate) fn advance(&mut self, turn: &mut Turn, call: &impl Round) -> Option<Result<()>> {
        self.step(turn, call)
    }

    /// The same within its caller.
    #[inline(always)]
    fn step<R: Round>(&mut self, turn: &mut Turn, call: &R) -> Option<Result<()>> {
        let members = self.members.len();
        if !turn.posted {
            while turn.ahead.start < turn.ahead.end {
                if !self.has_begun(turn.ahead.start, self.round - 1) {
                    self.missed = (turn.ahead.start, self.round - 1);
                    return None;
                }
                turn.ahead.start += 1;
            }
            self.post(turn.word, call);
            (turn.posted, turn.ahead) = (true, call.needs(self.rank, members));
            turn.all = turn.ahead.len() == members;
            call.keep(self);
        }
        let places = self.places(self.round);
        while turn.ahead.start < turn.ahead.end {
            let rank = turn.ahead.start;
            let word = places[rank].word[0].load(Ordering::Acquire);
            if (word ^ turn.word) & !R::OWN_BITS != 0 {
                if (word ^ turn.word) >> FACTS_BITS == 0 {
                    return Some(Err(call.disagreement(self, rank, word)));
                }
                self.missed = (rank, self.round);
                return None;
            }
            turn.ahead.start += 1;
        }
        if turn.all {
            self.begun = self.round;
        }
        Some(call.take(self))
    }

    /// Puts up what this member contributes, and then its word, and wakes who waits for it.
    #[inline(always)]
    fn post(&self, word: u64, call: &impl Round) {
        let word = call.put(self, word);
        self.places(self.round)[self.rank].word[0].store(word, Ordering::Release);
        if cfg!(loom) {
            // Nobody sleeps there: bells have a model of their own.
            return;
        }
        let others = self.members.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
        Doorbell::ring_all(others.map(|(_, member)| &*member.page.bell));
    }
}

#[cfg(all(test, not(loom)))]
#[path = "flat_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "flat_loom.rs"]
mod loom_tests;
