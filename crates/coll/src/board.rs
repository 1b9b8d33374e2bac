//! Boards: short blocking collectives, each in one exchange of cache lines.
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
//! A comm gets its boards after some such calls: many have only a few.

use crate::call::meet;
use datatype::{Basic, Buffer, PredefinedOp};
use error::{Class, Error, Result, fail};
use schedule::algorithm::Collective;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::shm::{Allocator, Arena, Doorbell, Segment, Words};

/// Longest contribution of a member, and the most that a member reads of all.
pub const SHORT_MAX: usize = 1 << 20;
const BYTES_MAX: u64 = SHORT_MAX as u64;
/// The most that a member combines of all where it could leave most of it to the others.
const FLAT_MAX: u64 = 32 << 10;
/// The longest that lies beside the word, and so comes with it.
const BESIDE_MAX: u64 = 120;
/// Everybody reads everybody's place, so for more members a schedule's logarithm is less.
const MEMBERS_MAX: usize = 16;
/// Calls on a comm before its members hang boards.
pub const CALLS_BEFORE: u32 = 8;

/// Bits of a place's word below the round: five of the collective, four of the root, and those of the bytes.
const FACTS_BITS: u32 = 30;
const LENGTH_BITS: u32 = 21;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(Collective::ALL.len() <= 32 && MEMBERS_MAX <= 16 && BYTES_MAX < LENGTH_MAX);

/// From one word to the next: processors fetch lines in pairs.
const WORD_BYTES: u64 = 128;
/// Before the bytes that do not lie beside a word: the word `left`, and the words of both places.
const WORDS_BYTES: u64 = 4 * WORD_BYTES;
/// Room for contributions of `BYTES_MAX` while a rank's boards have less than this in all, then for less: touched pages stay.
const BOARDS_BYTES_MAX: u64 = 64 << 20;
const LESS_BYTES_MAX: u64 = 16 << 10;
/// What members tell each other who have no room for a board.
pub const NO_BOARD: u64 = u64::MAX;

/// A collective as a board takes it.
#[derive(Debug)]
pub struct Short {
    /// Which the program calls; those with a count for every member are none.
    pub name: Collective,
    /// Which this round is: not `name` only where a call takes two.
    collective: Collective,
    /// The root's rank, or 0.
    pub root: usize,
    /// The vector of a broadcast or reduction, or one member's block, as long as this member expects it to be.
    pub bytes: u64,
    /// The same, as long as this member gives it. Where it only receives: `bytes`.
    pub given: u64,
    /// What this member contributes.
    pub input: Buffer,
    /// Where this member wants the result. That of a reduction has no gaps.
    pub output: Buffer,
    /// The bytes of the vector that a reduction leaves with this member.
    pub part: Range<usize>,
    /// Whether this member's own block is in the output already.
    pub in_place: bool,
    /// Of a reduction.
    pub operator: Option<(PredefinedOp, Basic)>,
}

impl Short {
    /// A call without bytes.
    #[inline]
    pub fn new(collective: Collective) -> Short {
        Short {
            name: collective,
            collective,
            root: 0,
            bytes: 0,
            given: 0,
            input: Buffer::EMPTY,
            output: Buffer::EMPTY,
            part: 0..0,
            in_place: false,
            operator: None,
        }
    }

    /// The same with buffers of one block or of one for each member, as `given` and `expected` say. Nothing stands for MPI_IN_PLACE, or for a
    /// buffer that counts on the root only. Nothing if the two have bytes in common.
    pub fn with_blocks(
        self,
        rank: usize,
        input: Option<Buffer>,
        given: usize,
        output: Option<Buffer>,
        expected: usize,
    ) -> Option<Short> {
        let block =
            |part: &Option<Buffer>, blocks| part.as_ref().map(|all| all.bytes() as u64 / blocks as u64);
        let (gives, expects) = (block(&input, given), block(&output, expected));
        let bytes = expects.or(gives)?;
        if input.as_ref().zip(output.as_ref()).is_some_and(|(input, output)| meet(input, output)) {
            return None;
        }
        let in_place =
            if self.collective == Collective::Scatter { output.is_none() } else { input.is_none() };
        let output = output.unwrap_or(Buffer::EMPTY);
        let input = match (input, self.collective) {
            (Some(input), _) => input,
            (None, Collective::Allgather) => output.slice(rank * bytes as usize, bytes as usize),
            (None, Collective::Alltoall) => output.clone(),
            (None, _) => Buffer::EMPTY,
        };
        Some(Short { bytes, given: gives.unwrap_or(bytes), input, output, in_place, ..self })
    }

    /// Whether it fits the boards of so many members. All come to the same answer.
    #[inline]
    pub(crate) fn fits(&self, members: usize) -> bool {
        use Collective::*;
        let (times, most) = match self.collective {
            Bcast | ReduceScatter | ReduceScatterBlock => (1, BYTES_MAX),
            Allreduce if self.is_cut(members) => (1, BYTES_MAX),
            Allreduce => (members as u64, FLAT_MAX),
            _ => (members as u64, BYTES_MAX),
        };
        (2..=MEMBERS_MAX).contains(&members) && self.bytes <= most && self.bytes * times <= most
    }

    /// Whether a reduction for all is cut into a block for each member, since otherwise each would combine everything.
    fn is_cut(&self, members: usize) -> bool {
        let blocks = |(_, basic): (_, Basic)| self.bytes.is_multiple_of((members * basic.size()) as u64);
        self.bytes * members as u64 > FLAT_MAX && self.operator.is_some_and(blocks)
    }

    /// The two rounds of a call that takes so many: all get a block of the sum each, then all blocks.
    #[inline]
    pub fn halves(&self, rank: usize, members: usize) -> Option<(Short, Short)> {
        if self.collective != Collective::Allreduce || !self.is_cut(members) {
            return None;
        }
        let block = self.bytes / members as u64;
        let part = rank * block as usize..(rank + 1) * block as usize;
        let own = self.output.slice(part.start, part.len());
        let sum = Short {
            collective: Collective::ReduceScatterBlock,
            input: self.input.clone(),
            output: own.clone(),
            part,
            ..*self
        };
        let spread = Short {
            collective: Collective::Allgather,
            bytes: block,
            given: block,
            input: own,
            output: self.output.clone(),
            part: 0..0,
            in_place: true,
            ..*self
        };
        Some((sum, spread))
    }

    /// What all members must say alike, for a vector or block of so many bytes.
    #[inline]
    fn facts(&self, bytes: u64) -> u64 {
        let root = (self.root as u64) << LENGTH_BITS;
        (self.name as u64) << (LENGTH_BITS + 4) | root | bytes.min(LENGTH_MAX)
    }

    /// Bytes that each member contributes, or the root does.
    #[inline]
    fn contribution(&self, members: usize) -> u64 {
        match self.collective {
            Collective::Scatter | Collective::Alltoall => self.bytes * members as u64,
            _ => self.bytes,
        }
    }

    /// Where this member's own block is among those of all.
    #[inline]
    fn own_block(&self, rank: usize) -> Range<usize> {
        let block = self.bytes as usize;
        rank * block..(rank + 1) * block
    }

    /// What of this member's input nobody reads from its place.
    #[inline]
    fn unread(&self, rank: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Scatter | Alltoall => self.own_block(rank),
            ReduceScatter | ReduceScatterBlock if !self.in_place => self.part.clone(),
            _ => 0..0,
        }
    }

    /// The members of whom the one of this rank needs to know that they are here.
    #[inline]
    fn needs(&self, rank: usize, members: usize) -> Range<usize> {
        use Collective::*;
        match self.collective {
            Bcast | Scatter if rank == self.root => 0..0,
            Bcast | Scatter => self.root..self.root + 1,
            Gather | Reduce if rank != self.root => 0..0,
            Scan => 0..rank + 1,
            Exscan => 0..rank,
            _ => 0..members,
        }
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Turn {
    board: usize,
    /// The word of all who make this call.
    word: u64,
    posted: bool,
    /// The members that are still to be looked at.
    ahead: Range<usize>,
    /// Whether all are looked at.
    all: bool,
}

/// The boards of a process.
pub(crate) struct Boards {
    segment: Segment,
    hung: slab::Slab<Board>,
    /// Those on which a thread has waited for long: it may go to sleep.
    waiting: Vec<usize>,
    /// Boards of comms that were freed here, as members tell each other of them, and how many others used each: one may be used again
    /// when these have left, too.
    left: Vec<(u64, u64)>,
    /// Bytes of all boards that were made here.
    made_bytes: u64,
}

/// The boards of a comm's members.
struct Board {
    rank: usize,
    members: Vec<Member>,
    /// For contributions of so many bytes all members have room.
    bytes_max: u64,
    round: u64,
    /// The latest round that all members are known to have begun.
    begun: u64,
    /// Who was not where a call needed it when it was last looked at: a member, and the round that it had not begun.
    missed: (usize, u64),
}

struct Member {
    /// Its rank in the job.
    peer: u32,
    /// Where its board lies in its arena, and, in the bits that alignment leaves, the binary logarithm of the bytes for which it has room.
    board: u64,
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
    pub(crate) fn new(segment: Segment) -> Boards {
        Boards { segment, hung: slab::Slab::new(), waiting: Vec::new(), left: Vec::new(), made_bytes: 0 }
    }

    /// Room for a board of this rank (`Member::board`), or `NO_BOARD`.
    pub(crate) fn new_board(&mut self, memory: &mut Allocator) -> u64 {
        let arena = memory.arena().clone();
        let word = |board: u64, at: u64| {
            arena.word(place_of(board).0 + at * WORD_BYTES).expect("boards lie inside their arenas")
        };
        let unused = |&(board, others): &(u64, u64)| word(board, 0).load(Ordering::Acquire) == others;
        let board = match self.left.iter().position(unused) {
            Some(at) => Some(self.left.swap_remove(at).0),
            None => {
                let bytes = if self.made_bytes < BOARDS_BYTES_MAX { BYTES_MAX } else { LESS_BYTES_MAX };
                self.made_bytes += 2 * bytes;
                memory.alloc(WORDS_BYTES + 2 * bytes).map(|offset| offset | u64::from(bytes.ilog2()))
            }
        };
        let Some(board) = board else { return NO_BOARD };
        (0..3).for_each(|at| word(board, at).store(0, Ordering::Relaxed));
        board
    }

    /// Hangs the members' boards, as all have told each other; nothing if some member has no room for one.
    pub(crate) fn hang(&mut self, rank: usize, peers: &[u32], boards: &[i64]) -> Result<Option<usize>> {
        if boards.contains(&(NO_BOARD as i64)) {
            return Ok(None);
        }
        let member = |(&peer, &board): (&u32, &i64)| match Member::find(
            &self.segment.arena(peer)?,
            peer,
            board as u64,
        ) {
            Some(member) => Ok(member),
            None => fail!(Class::Intern, "rank {peer} of the job says that its board is at {board:#x}"),
        };
        let members = peers.iter().zip(boards).map(member).collect::<Result<Vec<_>>>()?;
        let bytes_max = boards.iter().map(|board| place_of(*board as u64).1).min().unwrap_or(0);
        let board = Board { rank, members, bytes_max, round: 0, begun: 0, missed: (0, 0) };
        Ok(Some(self.hung.insert(board)))
    }

    /// Whether all members have room for a call that fits boards.
    #[inline]
    pub(crate) fn has_room(&self, board: usize, short: &Short) -> bool {
        let board = &self.hung[board];
        board.bytes_max == BYTES_MAX || short.contribution(board.members.len()) <= board.bytes_max
    }

    /// Begins the next round of these boards, with a call that fits them.
    #[inline]
    pub(crate) fn begin(&mut self, board: usize, short: &Short) -> Turn {
        let at = &mut self.hung[board];
        at.round += 1;
        let unsure = at.begun != at.round - 1;
        let word = at.round << FACTS_BITS | short.facts(short.bytes);
        let ahead = 0..if unsure { at.members.len() } else { 0 };
        Turn { board, word, posted: false, ahead, all: false }
    }

    /// Takes a call as far as it goes. How it ended, once it has.
    #[inline]
    pub(crate) fn advance(&mut self, turn: &mut Turn, short: &Short) -> Option<Result<()>> {
        self.hung[turn.board].advance(turn, short, &self.segment)
    }

    /// The thread that makes a call is going to wait for long, or has done so.
    #[cold]
    pub(crate) fn wait(&mut self, turn: &Turn, begins: bool) {
        self.waiting.retain(|board| *board != turn.board);
        if begins {
            self.waiting.push(turn.board);
        }
    }

    /// Whether a call that has waited for long would get further.
    #[inline]
    pub(crate) fn stirred(&self) -> bool {
        self.waiting.iter().any(|board| {
            let board = &self.hung[*board];
            board.has_begun(board.missed.0, board.missed.1)
        })
    }

    /// The comm of these boards is freed here.
    pub(crate) fn leave(&mut self, board: usize) {
        let board = self.hung.remove(board);
        let others = board.members.len() as u64 - 1;
        for (rank, member) in board.members.iter().enumerate() {
            if rank == board.rank {
                self.left.push((member.board, others));
            } else {
                member.left[0].fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// Where a board lies, and how long a contribution may be.
fn place_of(board: u64) -> (u64, u64) {
    (board & !63, 1 << (board & 63))
}

impl Member {
    fn find(arena: &Arena, peer: u32, board: u64) -> Option<Member> {
        let (offset, bytes) = place_of(board);
        if !(LESS_BYTES_MAX..=BYTES_MAX).contains(&bytes) {
            return None;
        }
        let whole = arena.span(offset, WORDS_BYTES + 2 * bytes)?;
        let place = |turn: u64| {
            let (word, apart) = ((1 + turn) * WORD_BYTES, WORDS_BYTES + turn * bytes);
            Some(Place {
                word: arena.keep(offset + word, 1)?,
                beside: whole.slice(word as usize + 8, BESIDE_MAX as usize),
                apart: whole.slice(apart as usize, bytes as usize),
            })
        };
        Some(Member { peer, board, left: arena.keep(offset, 1)?, places: [place(0)?, place(1)?] })
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

    /// Where a member's contribution of `total` bytes to this round lies.
    #[inline]
    fn contribution(&self, rank: usize, total: u64) -> Span {
        let place = self.place(rank, self.round);
        if total <= BESIDE_MAX { place.beside } else { place.apart }
    }

    #[inline]
    fn advance(&mut self, turn: &mut Turn, short: &Short, segment: &Segment) -> Option<Result<()>> {
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
mod tests {
    use super::*;
    use Collective::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::sync::Mutex;
    use transport::own;
    use transport::shm::Shape;

    const ROUNDS: u64 = 500;
    /// After so many turns without the others' doing anything they have died.
    const TURNS_MAX: u32 = 20_000_000;
    const SUM: Option<(PredefinedOp, Basic)> = Some((PredefinedOp::Sum, Basic::U64));
    const ALL: [Collective; 11] = [
        Barrier,
        Bcast,
        Gather,
        Scatter,
        Allgather,
        Alltoall,
        Reduce,
        Allreduce,
        ReduceScatterBlock,
        Scan,
        Exscan,
    ];

    /// The `at`th word that a member gives.
    fn word(rank: usize, round: u64, at: usize) -> u64 {
        (rank as u64 + 3).wrapping_mul(0x9e37_79b9 + round) ^ (at as u64) << 40
    }

    /// So many of the words, which the caller keeps until the round is over.
    fn buffer(words: &mut [[u8; 8]], many: usize) -> Buffer {
        own::lend(words[..many].as_flattened_mut(), Buffer::from)
    }

    fn short(collective: Collective, root: usize, bytes: u64) -> Short {
        Short { root, bytes, given: bytes, operator: SUM, ..Short::new(collective) }
    }

    /// One round of blocks of `block` words: the call, and the words that the output must hold afterwards.
    fn call(
        (collective, root, block): (Collective, usize, usize),
        (rank, round, size): (usize, u64, usize),
        (out, into): (&mut [[u8; 8]], &mut [[u8; 8]]),
    ) -> (Short, Vec<u64>) {
        out.iter_mut().enumerate().for_each(|(at, out)| *out = word(rank, round, at).to_ne_bytes());
        let (here, all, own) = (rank == root, size * block, rank * block..(rank + 1) * block);
        let of = |rank: usize, words: &Range<usize>| -> Vec<u64> {
            words.clone().map(|at| word(rank, round, at)).collect()
        };
        let of_all =
            |words: &Range<usize>| -> Vec<u64> { (0..size).flat_map(|rank| of(rank, words)).collect() };
        let sum = |ranks: usize, words: &Range<usize>| -> Vec<u64> {
            let add = |at| (0..ranks).fold(0u64, |sum, rank| sum.wrapping_add(word(rank, round, at)));
            words.clone().map(add).collect()
        };
        let whole = 0..block;
        let (given, wanted, expected) = match collective {
            Bcast if here => (block, 0, vec![]),
            Bcast => (0, block, of(root, &whole)),
            Gather | Reduce if !here => (block, 0, vec![]),
            Gather | Allgather => (block, all, of_all(&whole)),
            Scatter => (if here { all } else { 0 }, block, of(root, &own)),
            Alltoall => (all, all, of_all(&own)),
            Reduce | Allreduce => (block, block, sum(size, &whole)),
            ReduceScatterBlock => (all, block, sum(size, &own)),
            Scan => (block, block, sum(rank + 1, &whole)),
            Exscan => (block, block, if rank == 0 { vec![] } else { sum(rank, &whole) }),
            _ => (0, 0, vec![]),
        };
        let scatters = collective == ReduceScatterBlock;
        let bytes = 8 * if scatters { all } else { given.max(wanted).min(block) } as u64;
        let part = if scatters { 8 * own.start..8 * own.end } else { 0..8 * block };
        let (input, output) = (buffer(out, given), buffer(into, wanted));
        (Short { input, output, part, ..short(collective, root, bytes) }, expected)
    }

    /// Members as threads, each at its own pace, through the same random collectives.
    fn run(size: usize, seed: u64) {
        let shape = Shape { ranks: size as u32, proxies: 0, arena_bytes: 8 << 20 };
        let (segment, _fd) = Segment::create(shape).unwrap();
        let (offsets, told) = (Mutex::new(vec![0i64; size]), std::sync::Barrier::new(size));
        let peers: Vec<u32> = (0..size as u32).collect();
        let member = |rank: usize| {
            let mut memory = Allocator::new(segment.arena(rank as u32).unwrap());
            let mut boards = Boards::new(segment.clone());
            offsets.lock().unwrap()[rank] = boards.new_board(&mut memory) as i64;
            told.wait();
            let board = boards.hang(rank, &peers, &offsets.lock().unwrap()).unwrap().unwrap();
            let (mut all, mut own) =
                (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed + 1 + rank as u64));
            let (mut out, mut into) = ([[0; 8]; 512], [[0xff; 8]; 512]);
            for round in 0..ROUNDS {
                let collective = ALL[all.random_range(0..ALL.len())];
                let (root, block) = (all.random_range(0..size), all.random_range(0..40));
                let (short, expected) =
                    call((collective, root, block), (rank, round, size), (&mut out, &mut into));
                assert!(short.fits(size));
                let mut turn = boards.begin(board, &short);
                let mut turns = 0;
                let outcome = loop {
                    turns += 1;
                    assert!(turns < TURNS_MAX, "seed {seed}, round {round}: never ends at {rank}");
                    if let Some(outcome) = boards.advance(&mut turn, &short) {
                        break outcome;
                    }
                    boards.wait(&turn, true);
                    while !boards.stirred() {
                        turns += 1;
                        assert!(turns < TURNS_MAX, "seed {seed}, round {round}: nothing stirs at {rank}");
                        std::thread::yield_now();
                    }
                    boards.wait(&turn, false);
                };
                assert_eq!(outcome, Ok(()), "seed {seed}, round {round}");
                let seen: Vec<u64> =
                    into[..expected.len()].iter().map(|word| u64::from_ne_bytes(*word)).collect();
                assert_eq!(seen, expected, "seed {seed}, round {round}: {collective:?} at {rank}");
                if own.random_range(0..8) == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(own.random_range(0..50)));
                }
            }
            told.wait();
            boards.leave(board);
            told.wait();
            // All have left, so the place is used again.
            let first = offsets.lock().unwrap()[rank] as u64;
            assert_eq!(boards.new_board(&mut memory), first);
        };
        std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
    }

    #[test]
    fn members_at_their_own_pace_get_the_right_words() {
        for (size, seed) in [(2, 1), (3, 2), (4, 3), (7, 4)] {
            run(size, seed);
        }
    }

    /// Two members of one process.
    fn pair() -> [Boards; 2] {
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 8 << 20 }).unwrap();
        let mut members =
            [0, 1].map(|rank| (Allocator::new(segment.arena(rank).unwrap()), Boards::new(segment.clone())));
        let at = members.each_mut().map(|(memory, boards)| boards.new_board(memory) as i64);
        members.iter_mut().enumerate().for_each(|(rank, (_, boards))| {
            assert_eq!(boards.hang(rank, &[0, 1], &at).unwrap(), Some(0));
        });
        members.map(|(_, boards)| boards)
    }

    /// Nobody writes into a place that another has yet to read: its round must be over for all.
    #[test]
    fn nobody_is_two_rounds_ahead() {
        let [mut fast, mut slow] = pair();
        let mut words = [[1; 8], [2; 8], [3; 8], [0; 8]];
        let spread = |words: &mut [[u8; 8]], to: bool| {
            let mut call = short(Bcast, 0, 8);
            *(if to { &mut call.output } else { &mut call.input }) = buffer(words, 1);
            call
        };
        for round in 0..2 {
            let calls = [0, 1, 2].map(|at| spread(&mut words[at..], false));
            let (call, next, read) = (&calls[round], &calls[2], &spread(&mut words[3..], true));
            let mut turn = fast.begin(0, call);
            assert_eq!(
                fast.advance(&mut turn, call),
                (round == 0).then_some(Ok(())),
                "nobody has begun the first"
            );
            if round == 0 {
                continue;
            }
            let mut first = slow.begin(0, read);
            assert_eq!(slow.advance(&mut first, read), Some(Ok(())));
            assert_eq!(fast.advance(&mut turn, call), Some(Ok(())));
            let mut third = fast.begin(0, next);
            assert_eq!(fast.advance(&mut third, next), None, "the second has not been read");
            let mut second = slow.begin(0, read);
            assert_eq!(slow.advance(&mut second, read), Some(Ok(())));
            assert_eq!(words[3], [2; 8]);
            assert_eq!(fast.advance(&mut third, next), Some(Ok(())));
        }
    }

    /// A long vector is summed in blocks, in place or not.
    #[test]
    fn a_long_vector_takes_two_rounds() {
        const WORDS: usize = 1 << 13;
        for in_place in [false, true] {
            let mut members = pair();
            let mut out = [1, 2].map(|rank| vec![[rank; 8]; WORDS]);
            let mut into = if in_place { out.clone() } else { [vec![[0; 8]; WORDS], vec![[0; 8]; WORDS]] };
            let halves = [0, 1].map(|rank| {
                let mut call = short(Allreduce, 0, 8 * WORDS as u64);
                call.output = buffer(&mut into[rank], WORDS);
                call.input = if in_place { call.output.clone() } else { buffer(&mut out[rank], WORDS) };
                call.in_place = in_place;
                assert!(call.fits(2));
                call.halves(rank, 2).unwrap()
            });
            for round in 0..2 {
                let call = |rank: usize| if round == 0 { &halves[rank].0 } else { &halves[rank].1 };
                let mut turns = [0, 1].map(|rank| members[rank].begin(0, call(rank)));
                assert_eq!(members[0].advance(&mut turns[0], call(0)), None);
                for rank in [1, 0] {
                    assert_eq!(members[rank].advance(&mut turns[rank], call(rank)), Some(Ok(())));
                }
            }
            assert!(into.iter().flatten().all(|word| *word == [3; 8]));
        }
    }

    /// What two members make of a round in which they call different things: the class that each gets.
    fn disagree(calls: [(Collective, usize, u64); 2]) -> [Option<Class>; 2] {
        let mut members = pair();
        let mut words = [[[0; 8]; 2], [[0; 8]; 2]];
        let mut turns = [0, 1].map(|rank| {
            let (collective, root, bytes) = calls[rank];
            let mut call = short(collective, root, bytes);
            call.output = buffer(&mut words[rank], bytes as usize / 8);
            (call.input, call.in_place) = (call.output.clone(), true);
            call.part = 0..bytes as usize;
            let mut turn = members[rank].begin(0, &call);
            let _ = members[rank].advance(&mut turn, &call);
            (turn, call)
        });
        // Who is done already gets the same answer again.
        let again = |rank: usize| {
            let (turn, call) = &mut turns[rank];
            members[rank].advance(turn, call).expect("all have posted")
        };
        [0, 1].map(again).map(|outcome| outcome.err().map(|error| error.class))
    }

    #[test]
    fn members_that_disagree_are_told() {
        let both = |class| [Some(class), Some(class)];
        assert_eq!(disagree([(Allreduce, 0, 8), (Allreduce, 0, 8)]), [None, None]);
        assert_eq!(disagree([(Allreduce, 0, 8), (Allreduce, 0, 16)]), both(Class::Truncate));
        assert_eq!(disagree([(Allreduce, 0, 8), (Barrier, 0, 0)]), both(Class::Other));
        assert_eq!(
            disagree([(Bcast, 0, 8), (Bcast, 0, 16)]),
            [None, Some(Class::Truncate)],
            "the root reads nothing"
        );
        assert_eq!(disagree([(Bcast, 1, 8), (Bcast, 0, 8)]), both(Class::Root));
    }

    /// A member that gives blocks of another length than it expects is told so, as are all.
    #[test]
    fn blocks_of_two_lengths_are_told() {
        let mut members = pair();
        let mut words = [[0; 8]; 8];
        let turns: Vec<_> = [1, 2]
            .iter()
            .enumerate()
            .map(|(rank, given)| {
                let (mine, all) = words.split_at_mut(4);
                let (send, recv) = (buffer(mine, *given), buffer(all, 2));
                let call = Short::new(Allgather).with_blocks(rank, Some(send), 1, Some(recv), 2).unwrap();
                let mut turn = members[rank].begin(0, &call);
                assert_eq!(members[rank].advance(&mut turn, &call).is_some(), rank == 1);
                (rank, turn, call)
            })
            .collect();
        for (rank, mut turn, call) in turns {
            let outcome = members[rank].advance(&mut turn, &call).unwrap();
            assert_eq!(outcome.unwrap_err().class, Class::Truncate);
        }
    }

    #[test]
    fn long_calls_are_none_for_boards() {
        let fits = |collective, bytes, members| short(collective, 0, bytes).fits(members);
        assert!(fits(Bcast, BYTES_MAX, 16) && !fits(Bcast, BYTES_MAX + 1, 2));
        assert!(fits(Gather, BYTES_MAX / 2, 2) && !fits(Gather, BYTES_MAX / 2, 3));
        // Vectors that cannot be cut into a block for each member are combined by every member.
        assert!(fits(Allreduce, FLAT_MAX / 2, 2) && !fits(Allreduce, FLAT_MAX / 2 + 8, 2));
        assert!(
            fits(Allreduce, FLAT_MAX, 2)
                && fits(Allreduce, BYTES_MAX, 16)
                && !fits(Allreduce, 2 * BYTES_MAX, 2)
        );
        assert!(!fits(Barrier, 0, 1) && !fits(Barrier, 0, 17));
        assert!(!fits(Alltoall, u64::MAX / 2, 2));
    }

    #[test]
    fn boards_of_which_one_is_nowhere_do_not_hang() {
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 8 << 20 }).unwrap();
        let mut boards = Boards::new(segment);
        assert_eq!(boards.hang(0, &[0, 1], &[64, NO_BOARD as i64]), Ok(None));
        for wrong in [1 << 40 | 20, 64, 64 | 13, 64 | 21, 64 | 63] {
            assert!(boards.hang(0, &[0, 1], &[64 | 20, wrong]).is_err(), "{wrong:#x}");
        }
    }

    /// Who has made many boards has less room in the next ones, and then so have all members.
    #[test]
    fn the_least_room_counts() {
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 128 << 20 }).unwrap();
        let [mut many, mut few] = [0, 1].map(|_| Boards::new(segment.clone()));
        let mut memory = [0, 1].map(|rank| Allocator::new(segment.arena(rank).unwrap()));
        for comms in 1..=33 {
            let boards = [many.new_board(&mut memory[0]) as i64, few.new_board(&mut memory[1]) as i64];
            if comms > 1 && comms < 33 {
                few.left.push((boards[1] as u64, 0));
                continue;
            }
            let board = few.hang(1, &[0, 1], &boards).unwrap().unwrap();
            assert!(few.has_room(board, &short(Bcast, 0, LESS_BYTES_MAX)));
            assert_eq!(few.has_room(board, &short(Bcast, 0, BYTES_MAX)), comms == 1);
        }
    }
}
