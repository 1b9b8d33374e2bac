//! Boards: short collectives, each in one exchange of cache lines.
//!
//! On a board, which lies in its arena, each member of a comm has two places, used in turn: a word with the number of a round and what
//! the call is (its *facts*: collective, root, bytes), and the bytes that it contributes. To take part in round r, a member writes its
//! bytes and then the word into the place whose turn it is, and reads the places of those whose bytes it needs once their words are
//! its own. So a collective needs one look at each other member, and nobody walks a schedule. Only a long reduction for all takes two
//! rounds: a block of the sum for each, then all blocks.
//!
//! Always true here: a member overwrites a place only when all others have begun the round before, and so have read that place, whose
//! round was two before; operands are combined in the order of ranks, so all members get the same bits; whether a call is one for the
//! board depends only on what is the same for all members, so their rounds count alike.
//!
//! A comm gets its boards after some such calls: many have only a few. Only blocking calls count, since telling each other where the
//! boards lie takes waiting. It gets two for each member, since nonblocking calls never match blocking ones (MPI 5.0, section 6.12).
//!
//! Read next: `short.rs` (what a call is on a board), `queue.rs` (nonblocking calls).

use crate::queue::Queued;
use crate::short::{BYTES_MAX, MEMBERS_MAX, Short};
use error::{Class, Error, Result, fail};
use schedule::algorithm::Collective;
use slab::Slab;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::shm::{Allocator, Arena, Doorbell, Segment, Words};

/// The longest that lies beside the word, and so comes with it.
const BESIDE_MAX: u64 = 120;
/// Calls on a comm before its members hang boards.
pub const CALLS_BEFORE: u32 = 8;

/// Bits of a place's word below the round: five of the collective, four of the root, and those of the bytes.
const FACTS_BITS: u32 = 30;
const LENGTH_BITS: u32 = 21;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(Collective::ALL.len() <= 32 && MEMBERS_MAX <= 16 && BYTES_MAX < LENGTH_MAX);

/// From one word to the next: processors fetch lines in pairs.
const WORD_BYTES: u64 = 128;
/// Before the bytes that do not lie beside a word: the word `left`, which only blocking calls' boards use, and the words of both places.
const WORDS_BYTES: u64 = 4 * WORD_BYTES;
/// Room for contributions of `BYTES_MAX` while a rank's boards have less than this in all, then for less: touched pages stay.
const BOARDS_BYTES_MAX: u64 = 128 << 20;
const LESS_BYTES_MAX: u64 = 16 << 10;
/// In a `Hung::room`, beside the logarithm: proxies carry out this member's nonblocking collectives.
const SERVED: u64 = 1 << 5;
/// What members tell each other who have no room for a board.
pub const NO_BOARD: u64 = u64::MAX;

impl Short {
    /// What all members must say alike, for a vector or block of so many bytes.
    #[inline]
    fn facts(&self, bytes: u64) -> u64 {
        let root = (self.root as u64) << LENGTH_BITS;
        (self.name as u64) << (LENGTH_BITS + 4) | root | bytes.min(LENGTH_MAX)
    }
}

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

/// The boards of a process.
pub(crate) struct Boards {
    pub(crate) segment: Segment,
    pub(crate) hung: Slab<Hung>,
    /// Nonblocking calls that the program has not yet been told of, and the boards on which some are not over.
    pub(crate) queued: Slab<Queued>,
    pub(crate) busy: Vec<usize>,
    /// Those on which a thread has waited for long: it may go to sleep.
    waiting: Vec<usize>,
    /// `Hung::room` of comms that were freed here, and how many others used each: one may be used again when these have left, too.
    left: Vec<(u64, u64)>,
    /// Bytes of all boards that were made here.
    made_bytes: u64,
    /// Proxies carry out this rank's nonblocking collectives.
    served: bool,
}

/// The boards of a comm.
pub(crate) struct Hung {
    pub(crate) blocking: Board,
    pub(crate) nonblocking: Board,
    /// Nonblocking calls that are not over, as they were made; only the first has begun.
    pub(crate) queue: VecDeque<usize>,
    /// The comm is freed here.
    pub(crate) freed: bool,
    /// Where this rank's boards lie in its arena, and, in the bits that alignment leaves, the binary logarithm of the bytes for which a
    /// place has room, and `SERVED`: what members tell each other.
    room: u64,
    /// Some member's nonblocking collectives are for proxies.
    pub(crate) served: bool,
    /// For contributions of so many bytes all members have room.
    bytes_max: u64,
}

/// One board of each of a comm's members.
pub(crate) struct Board {
    rank: usize,
    members: Vec<Member>,
    round: u64,
    /// The latest round that all members are known to have begun.
    begun: u64,
    /// Who was not where a call needed it when it was last looked at: a member, and the round that it had not begun.
    missed: (usize, u64),
}

struct Member {
    /// Its rank in the job.
    peer: u32,
    left: Words,
    places: [Place; 2],
}

struct Place {
    word: Words,
    /// Contributions of up to `BESIDE_MAX` bytes, and longer ones.
    beside: Span,
    apart: Span,
}

impl Boards {
    pub(crate) fn new(segment: Segment, served: bool) -> Boards {
        Boards {
            segment,
            hung: Slab::new(),
            queued: Slab::new(),
            busy: Vec::new(),
            waiting: Vec::new(),
            left: Vec::new(),
            made_bytes: 0,
            served,
        }
    }

    /// Room for a member's boards (`Hung::room`), or `NO_BOARD`.
    pub(crate) fn new_board(&mut self, memory: &mut Allocator) -> u64 {
        let arena = memory.arena().clone();
        let word = |room: u64, board: u64, at: u64| {
            let (offset, bytes) = place_of(room);
            let at = offset + board * board_bytes(bytes) + at * WORD_BYTES;
            arena.word(at).expect("boards lie inside their arenas")
        };
        let unused = |&(room, others): &(u64, u64)| word(room, 0, 0).load(Ordering::Acquire) == others;
        let room = match self.left.iter().position(unused) {
            Some(at) => Some(self.left.swap_remove(at).0),
            None => {
                let bytes = if self.made_bytes < BOARDS_BYTES_MAX { BYTES_MAX } else { LESS_BYTES_MAX };
                self.made_bytes += 4 * bytes;
                let extra = u64::from(bytes.ilog2()) | if self.served { SERVED } else { 0 };
                memory.alloc(2 * board_bytes(bytes)).map(|offset| offset | extra)
            }
        };
        let Some(room) = room else { return NO_BOARD };
        for board in 0..2 {
            (0..3).for_each(|at| word(room, board, at).store(0, Ordering::Relaxed));
        }
        room
    }

    /// Hangs the members' boards, as all have told each other; nothing if some member has no room for them.
    pub(crate) fn hang(&mut self, rank: usize, peers: &[u32], rooms: &[i64]) -> Result<Option<usize>> {
        if rooms.contains(&(NO_BOARD as i64)) {
            return Ok(None);
        }
        let board = |which: u64| -> Result<Board> {
            let member = |(&peer, &room): (&u32, &i64)| match Member::find(
                &self.segment.arena(peer)?,
                peer,
                room as u64,
                which,
            ) {
                Some(member) => Ok(member),
                None => fail!(Class::Intern, "rank {peer} of the job says that its board is at {room:#x}"),
            };
            let members = peers.iter().zip(rooms).map(member).collect::<Result<Vec<_>>>()?;
            Ok(Board { rank, members, round: 0, begun: 0, missed: (0, 0) })
        };
        let hung = Hung {
            blocking: board(0)?,
            nonblocking: board(1)?,
            queue: VecDeque::new(),
            freed: false,
            room: rooms[rank] as u64,
            served: rooms.iter().any(|room| *room as u64 & SERVED != 0),
            bytes_max: rooms.iter().map(|room| place_of(*room as u64).1).min().unwrap_or(0),
        };
        Ok(Some(self.hung.insert(hung)))
    }

    /// Whether all members have room for a call that fits boards.
    #[inline]
    pub(crate) fn has_room(&self, board: usize, short: &Short) -> bool {
        let Hung { blocking, bytes_max, .. } = &self.hung[board];
        *bytes_max == BYTES_MAX || short.contribution(blocking.members.len()) <= *bytes_max
    }

    /// Begins the next round of blocking calls, with one that fits.
    #[inline]
    pub(crate) fn begin(&mut self, board: usize, short: &Short) -> Turn {
        self.hung[board].blocking.begin(short)
    }

    /// Takes a blocking call as far as it goes. How it ended, once it has.
    #[inline]
    pub(crate) fn advance(&mut self, board: usize, turn: &mut Turn, short: &Short) -> Option<Result<()>> {
        self.hung[board].blocking.advance(turn, short, &self.segment)
    }

    /// The thread that makes a blocking call is going to wait for long, or has done so.
    #[cold]
    pub(crate) fn wait(&mut self, board: usize, begins: bool) {
        self.waiting.retain(|waiting| *waiting != board);
        if begins {
            self.waiting.push(board);
        }
    }

    /// Those for which a thread may sleep.
    #[inline]
    fn awaited(&self) -> impl Iterator<Item = (usize, &Board)> {
        let blocking = self.waiting.iter().map(|number| (*number, &self.hung[*number].blocking));
        blocking.chain(self.busy.iter().map(|number| (*number, &self.hung[*number].nonblocking)))
    }

    /// Whether a call that has waited for long would get further.
    #[inline]
    pub(crate) fn stirred(&self) -> bool {
        self.awaited().any(|(_, board)| !board.misses())
    }

    /// The boards on which calls wait, and for which member.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (usize, usize)> {
        self.awaited().filter(|(_, board)| board.misses()).map(|(number, board)| (number, board.missed.0))
    }

    /// The comm of these boards is freed here: nobody calls on them any more, but calls may be under way.
    pub(crate) fn leave(&mut self, board: usize) {
        if !self.hung[board].queue.is_empty() {
            self.hung[board].freed = true;
            return;
        }
        let Hung { blocking, room, .. } = self.hung.remove(board);
        let others = blocking.members.len() as u64 - 1;
        self.left.push((room, others));
        for (_, member) in blocking.members.iter().enumerate().filter(|(rank, _)| *rank != blocking.rank) {
            member.left[0].fetch_add(1, Ordering::Release);
        }
    }
}

/// Where the boards of a `Hung::room` lie, and how long a contribution may be.
fn place_of(room: u64) -> (u64, u64) {
    (room & !63, 1 << (room & 31))
}

/// Of one board, for contributions of so many.
fn board_bytes(bytes: u64) -> u64 {
    WORDS_BYTES + 2 * bytes
}

impl Member {
    fn find(arena: &Arena, peer: u32, room: u64, which: u64) -> Option<Member> {
        let (offset, bytes) = place_of(room);
        if !(LESS_BYTES_MAX..=BYTES_MAX).contains(&bytes) {
            return None;
        }
        let offset = offset + which * board_bytes(bytes);
        let whole = arena.span(offset, board_bytes(bytes))?;
        let place = |turn: u64| {
            let (word, apart) = ((1 + turn) * WORD_BYTES, WORDS_BYTES + turn * bytes);
            Some(Place {
                word: arena.keep(offset + word, 1)?,
                beside: whole.slice(word as usize + 8, BESIDE_MAX as usize),
                apart: whole.slice(apart as usize, bytes as usize),
            })
        };
        Some(Member { peer, left: arena.keep(offset, 1)?, places: [place(0)?, place(1)?] })
    }
}

impl Board {
    /// The place of a member for a round.
    #[inline]
    fn place(&self, rank: usize, round: u64) -> &Place {
        &self.members[rank].places[round as usize % 2]
    }

    /// Whether a member has begun a round, and not the one two after.
    #[inline]
    fn has_begun(&self, rank: usize, round: u64) -> bool {
        let word = self.place(rank, round).word[0].load(Ordering::Acquire);
        (word ^ round << FACTS_BITS) >> FACTS_BITS == 0
    }

    /// Whether the member that a call missed is still not where it must be.
    #[inline]
    fn misses(&self) -> bool {
        !self.has_begun(self.missed.0, self.missed.1)
    }

    /// Where a member's contribution of `total` bytes to this round lies.
    #[inline]
    fn contribution(&self, rank: usize, total: u64) -> Span {
        let place = self.place(rank, self.round);
        if total <= BESIDE_MAX { place.beside } else { place.apart }
    }

    #[inline]
    pub(crate) fn begin(&mut self, short: &Short) -> Turn {
        self.round += 1;
        let unsure = self.begun != self.round - 1;
        let word = self.round << FACTS_BITS | short.facts(short.bytes);
        let ahead = 0..if unsure { self.members.len() } else { 0 };
        Turn { word, posted: false, ahead, all: false }
    }

    #[inline]
    pub(crate) fn advance(
        &mut self,
        turn: &mut Turn,
        short: &Short,
        segment: &Segment,
    ) -> Option<Result<()>> {
        let members = self.members.len();
        if !turn.posted {
            while turn.ahead.start < turn.ahead.end {
                if !self.has_begun(turn.ahead.start, self.round - 1) {
                    self.missed = (turn.ahead.start, self.round - 1);
                    return None;
                }
                turn.ahead.start += 1;
            }
            self.post(turn.word, short, segment);
            (turn.posted, turn.ahead) = (true, short.needs(self.rank, members));
            turn.all = turn.ahead.len() == members;
            self.keep(short);
        }
        while turn.ahead.start < turn.ahead.end {
            let rank = turn.ahead.start;
            let word = self.place(rank, self.round).word[0].load(Ordering::Acquire);
            if word != turn.word {
                if (word ^ turn.word) >> FACTS_BITS == 0 {
                    return Some(Err(self.disagreement(rank, word, short)));
                }
                self.missed = (rank, self.round);
                return None;
            }
            turn.ahead.start += 1;
        }
        self.take(short);
        if turn.all {
            self.begun = self.round;
        }
        Some(Ok(()))
    }

    /// Puts up what this member contributes, and then `word`, and wakes who waits for it.
    #[inline]
    fn post(&self, mut word: u64, short: &Short, segment: &Segment) {
        let bytes = short.input.bytes();
        if short.given != short.bytes {
            // Who gives another length than it expects will be told so, and all others, too.
            word = self.round << FACTS_BITS | short.facts(short.given);
        } else if bytes > 0 {
            let place = self.contribution(self.rank, bytes as u64);
            let put = |part: Range<usize>| short.input.pack(part.start, place.slice(part.start, part.len()));
            let unread = short.unread(self.rank);
            if unread.is_empty() {
                put(0..bytes);
            } else {
                put(0..unread.start);
                put(unread.end..bytes);
            }
        }
        self.place(self.rank, self.round).word[0].store(word, Ordering::Release);
        let others = self.members.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
        Doorbell::ring_all(others.map(|(_, member)| &*segment.rank(member.peer).bell));
    }

    /// Copies the member's own block, which no other member reads or which it need not read from its place.
    #[inline]
    fn keep(&self, short: &Short) {
        use Collective::*;
        let (own, block) = (short.own_block(self.rank), short.bytes as usize);
        if short.in_place || block == 0 || short.given != short.bytes {
            return;
        }
        let (from, to) = match short.collective {
            Alltoall => (own.start, own.start),
            Allgather => (0, own.start),
            Gather if self.rank == short.root => (0, own.start),
            Scatter if self.rank == short.root => (own.start, 0),
            _ => return,
        };
        short.output.slice(to, block).copy_from(&short.input.slice(from, block));
    }

    /// Takes the result from the places.
    #[inline]
    fn take(&self, short: &Short) {
        use Collective::*;
        let (members, block) = (self.members.len(), short.bytes as usize);
        if block == 0 {
            return;
        }
        let total = short.contribution(members);
        let each = |from: usize| {
            for rank in (0..members).filter(|rank| *rank != self.rank) {
                short.output.unpack(rank * block, self.contribution(rank, total).slice(from, block));
            }
        };
        match short.collective {
            Bcast | Gather | Reduce if short.output.bytes() == 0 => (),
            Scatter if self.rank == short.root => (),
            Bcast => short.output.unpack(0, self.contribution(short.root, total).slice(0, block)),
            Scatter => {
                short.output.unpack(0, self.contribution(short.root, total).slice(self.rank * block, block));
            }
            Gather | Allgather => each(0),
            Alltoall => each(self.rank * block),
            Scan => self.combine(self.rank + 1, total, short),
            Exscan => self.combine(self.rank, total, short),
            _ => self.combine(members, total, short),
        }
    }

    /// The first so many members' vectors, as far as this member wants them, one after the other.
    #[inline]
    fn combine(&self, members: usize, total: u64, short: &Short) {
        let (Some((op, basic)), Some(own), Some(sum)) =
            (short.operator, short.input.contiguous(), short.output.contiguous())
        else {
            unreachable!("a reduction without an operator, or with gaps")
        };
        // In place the sum of the first may lie over our own operand.
        let operand = |rank| {
            let whole =
                if rank == self.rank && !short.in_place { own } else { self.contribution(rank, total) };
            whole.slice(short.part.start, short.part.len())
        };
        match members {
            0 => (),
            1 => operand(0).copy_to(sum),
            _ => datatype::reduce(op, basic, operand(0), operand(1), sum),
        }
        for rank in 2..members {
            datatype::reduce(op, basic, sum, operand(rank), sum);
        }
    }

    /// What is wrong where a member has begun the round with another call than ours.
    #[cold]
    fn disagreement(&self, rank: usize, word: u64, short: &Short) -> Error {
        let (name, own) = (short.name.name(), self.rank);
        let (theirs, ours) = (word % (1 << FACTS_BITS), short.facts(short.bytes));
        let (length, root) = (theirs & LENGTH_MAX, theirs >> LENGTH_BITS & 15);
        let bits = LENGTH_BITS;
        let (class, sentence) =
            match (theirs >> (bits + 4) == ours >> (bits + 4), theirs >> bits == ours >> bits) {
                (_, true) => {
                    let least = if length == LENGTH_MAX { "at least " } else { "" };
                    let ours = short.bytes;
                    (
                        Class::Truncate,
                        format!("in {name} rank {rank} has {least}{length} bytes, but rank {own} has {ours}"),
                    )
                }
                (true, _) => {
                    let ours = short.root;
                    (
                        Class::Root,
                        format!("in {name} rank {rank} has root {root}, but rank {own} has root {ours}"),
                    )
                }
                _ => (
                    Class::Other,
                    format!("rank {own} is in {name}, but rank {rank} is in another collective"),
                ),
            };
        Error::new(class, sentence)
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
