//! Boards: short blocking collectives, each in one exchange of cache lines.
//!
//! On a board, which lies in its arena, each member of a comm has two places, used in turn: the number of a round with what the call
//! is (its *facts*: collective, root, bytes), and bytes. To take part in round r, a member writes its bytes and then r into the place
//! whose turn it is, and reads the places of those whose bytes it needs once they say r, if their facts are its own. All that a short collective needs is then one cache line from each member, and nobody walks a schedule.
//!
//! Always true here: a member overwrites a place only when all others have begun the round before, and so have read that place, whose
//! round was two before; operands are combined in the order of ranks, so all members get the same bits; whether a call is one for the
//! board depends only on what is the same for all members, so their rounds count alike.
//!
//! A comm gets its boards at its eighth such call: many have only a few.

use crate::call::{Call, Part};
use datatype::Buffer;
use error::{Class, Result, fail};
use executor::Reduction;
use rustc_hash::FxHashMap;
use schedule::algorithm::Collective;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::Span;
use transport::own;
use transport::shm::{Allocator, Arena, Segment};

/// Longest contribution of a member: what a place holds beside the round.
const BYTES_MAX: u64 = 248;
/// Everybody reads everybody's line, so for more members a schedule's logarithm is less.
const MEMBERS_MAX: usize = 16;
/// Bits of a place's word below the round.
const FACTS_BITS: u32 = 24;
/// Calls on a comm before its members hang boards.
const CALLS_BEFORE: u32 = 8;

const PLACE_BYTES: u64 = BYTES_MAX + 8;
/// A line for `left`, two places.
const BOARD_BYTES: u64 = 64 + 2 * PLACE_BYTES;
/// What members tell each other who have no room for a board.
pub const NO_BOARD: u64 = u64::MAX;

/// The boards of a process, by context.
pub(crate) struct Boards {
    segment: Segment,
    comms: FxHashMap<u64, State>,
    /// What `State::With` names.
    hung: slab::Slab<Board>,
    /// Those whose round is under way: one for each thread that waits.
    waiting: Vec<usize>,
    /// Boards of comms that were freed here, and how many others used each: one may be used again when these have left, too.
    left: Vec<(u64, u64)>,
}

enum State {
    Counting(u32),
    /// Some member has no room for one.
    Without,
    With(usize),
}

/// Whether a call is one for the boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A schedule does it.
    No,
    /// It would be, and now is the time to hang boards: `Coll::new_board`, `Coll::hang_boards`.
    Hang,
    /// Post it on these boards.
    Yes(usize),
}

/// The boards of a comm's members.
struct Board {
    rank: usize,
    /// World ranks, arenas, and where the boards lie in them, by rank.
    peers: Vec<(u32, Arena, u64)>,
    round: u64,
    /// The part of the round that is left.
    now: Option<Turn>,
    /// How the latest round ended, until it is asked.
    outcome: Option<Result<()>>,
}

/// A call under way.
struct Turn {
    collective: Collective,
    root: usize,
    input: Option<Buffer>,
    output: Option<Buffer>,
    reduction: Option<Reduction>,
    /// Bytes of each member.
    bytes: u64,
    posted: bool,
    /// Members, in order, that are known to be where this needs them.
    seen: usize,
}
impl Turn {
    /// What all members must say alike: collective, root and bytes, 8 bits each.
    fn facts(&self) -> u64 {
        (self.collective as u64) << 16 | (self.root as u64) << 8 | self.bytes
    }
}

impl Boards {
    pub(crate) fn new(segment: Segment) -> Boards {
        Boards {
            segment,
            comms: FxHashMap::default(),
            hung: slab::Slab::new(),
            waiting: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Whether a call of a comm with so many members is one for its boards.
    pub(crate) fn due(&mut self, context: u64, members: usize, call: &Call) -> Due {
        use Collective::*;
        let predefined = !matches!(call.reduction, Some(Reduction::User { .. }));
        let known = matches!(call.collective, Barrier | Bcast | Reduce | Allreduce | Allgather) && predefined;
        let fits = (2..=MEMBERS_MAX).contains(&members) && call.bytes(members as u32) <= BYTES_MAX;
        if !(known && fits && call.neighbors.is_none()) {
            return Due::No;
        }
        match self.comms.entry(context).or_insert(State::Counting(0)) {
            State::With(board) => Due::Yes(*board),
            State::Without => Due::No,
            State::Counting(calls) => {
                *calls += 1;
                if *calls < CALLS_BEFORE { Due::No } else { Due::Hang }
            }
        }
    }

    /// Room for a board of this rank, or `NO_BOARD`.
    pub(crate) fn new_board(&mut self, memory: &mut Allocator) -> u64 {
        let arena = memory.arena().clone();
        let unused = |&(board, others): &(u64, u64)| word(&arena, board).load(Ordering::Acquire) == others;
        let board = match self.left.iter().position(unused) {
            Some(at) => Some(self.left.swap_remove(at).0),
            None => memory.alloc(BOARD_BYTES),
        };
        let Some(board) = board else { return NO_BOARD };
        for place in [0, 64, 64 + PLACE_BYTES] {
            word(&arena, board + place).store(0, Ordering::Relaxed);
        }
        board
    }

    /// The members' boards, as all have told each other.
    pub(crate) fn hang(&mut self, context: u64, rank: u32, peers: &[u32], boards: &[i64]) -> Result<()> {
        let state = if boards.contains(&(NO_BOARD as i64)) {
            State::Without
        } else {
            let board = |(&peer, &board): (&u32, &i64)| {
                let arena = self.segment.arena(peer)?;
                if !(board as u64).is_multiple_of(64) || arena.span(board as u64, BOARD_BYTES).is_none() {
                    fail!(Class::Intern, "rank {peer} of the job says that its board is at {board:#x}");
                }
                Ok((peer, arena, board as u64))
            };
            let peers = peers.iter().zip(boards).map(board).collect::<Result<Vec<_>>>()?;
            State::With(self.hung.insert(Board {
                rank: rank as usize,
                peers,
                round: 0,
                now: None,
                outcome: None,
            }))
        };
        self.comms.insert(context, state);
        Ok(())
    }

    /// Begins the next round of the boards with the call that is due on them.
    pub(crate) fn post(&mut self, number: usize, call: &Call) {
        let board = &mut self.hung[number];
        let (input, output) = (whole(&call.input), whole(&call.output));
        board.round += 1;
        board.now = Some(Turn {
            collective: call.collective,
            root: call.root as usize,
            bytes: call.bytes(board.peers.len() as u32),
            input,
            output,
            reduction: call.reduction,
            posted: false,
            seen: 0,
        });
        if !board.advance(&self.segment) {
            self.waiting.push(number);
        }
    }

    /// How the round of the boards ended, once it has.
    #[inline]
    pub(crate) fn outcome(&mut self, number: usize) -> Option<Result<()>> {
        self.hung[number].outcome.take()
    }

    /// Whether nobody waits for a round.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether `poll` would get further.
    #[inline]
    pub(crate) fn stirred(&self) -> bool {
        self.waiting.iter().any(|board| self.hung[*board].may_go_on())
    }

    /// Goes on with all rounds; whether one is over.
    pub(crate) fn poll(&mut self) -> bool {
        let before = self.waiting.len();
        let Boards { hung, waiting, segment, .. } = self;
        waiting.retain(|board| !hung[*board].advance(segment));
        waiting.len() < before
    }

    /// The comm is freed here.
    pub(crate) fn leave(&mut self, context: u64) {
        let Some(State::With(board)) = self.comms.remove(&context) else { return };
        let board = self.hung.remove(board);
        let others = board.peers.len() as u64 - 1;
        for (rank, (_, arena, offset)) in board.peers.iter().enumerate() {
            if rank == board.rank {
                self.left.push((*offset, others));
            } else {
                word(arena, *offset).fetch_add(1, Ordering::Release);
            }
        }
    }
}

impl Board {
    /// The number of the round that a member's place holds.
    #[inline]
    fn says(&self, rank: usize, round: u64) -> u64 {
        let (_, arena, board) = &self.peers[rank];
        word(arena, board + place(round)).load(Ordering::Acquire) >> FACTS_BITS
    }

    /// Whether a member, which has begun the round, makes the call that we make.
    fn agrees(&self, rank: usize, turn: &Turn) -> Result<()> {
        let (_, arena, board) = &self.peers[rank];
        let theirs = word(arena, board + place(self.round)).load(Ordering::Relaxed) % (1 << FACTS_BITS);
        let ours = turn.facts();
        if theirs == ours {
            return Ok(());
        }
        let name = turn.collective.name();
        match (theirs >> 16 == ours >> 16, theirs >> 8 == ours >> 8) {
            (true, true) => {
                let (theirs, ours) = (theirs % 256, turn.bytes);
                fail!(
                    Class::Truncate,
                    "in {name} rank {rank} has {theirs} bytes, but rank {} has {ours}",
                    self.rank
                )
            }
            (true, false) => {
                let theirs = theirs >> 8 & 0xff;
                fail!(
                    Class::Root,
                    "in {name} rank {rank} has root {theirs}, but rank {} has root {}",
                    self.rank,
                    turn.root
                )
            }
            _ => fail!(
                Class::Other,
                "rank {} is in {name}, but rank {rank} is in another collective",
                self.rank
            ),
        }
    }

    /// The bytes of a member in this round.
    fn bytes(&self, rank: usize, bytes: u64) -> Span {
        let (_, arena, board) = &self.peers[rank];
        arena.span(board + place(self.round) + 8, bytes).expect("checked when it was hung")
    }

    #[inline]
    fn may_go_on(&self) -> bool {
        let Some(turn) = &self.now else { return false };
        let round = if turn.posted { self.round } else { self.round - 1 };
        let member = if turn.posted && turn.collective == Collective::Bcast { turn.root } else { turn.seen };
        self.says(member, round) >= round
    }

    /// Goes on with the round; whether it is over.
    fn advance(&mut self, segment: &Segment) -> bool {
        let Some(mut turn) = self.now.take() else { return true };
        self.outcome = self.steps(&mut turn, segment);
        if self.outcome.is_none() {
            self.now = Some(turn);
        }
        self.outcome.is_some()
    }

    fn steps(&self, turn: &mut Turn, segment: &Segment) -> Option<Result<()>> {
        use Collective::*;
        if !turn.posted {
            if !self.all_say(turn, self.round - 1) {
                return None;
            }
            self.write(turn, segment);
            (turn.posted, turn.seen) = (true, 0);
        }
        let is_root = turn.root == self.rank;
        match turn.collective {
            Bcast if is_root => Some(Ok(())),
            Bcast => (self.says(turn.root, self.round) >= self.round).then(|| self.read(turn)),
            Reduce if !is_root => Some(Ok(())),
            _ => self.all_say(turn, self.round).then(|| self.read(turn)),
        }
    }

    /// Whether all have begun a round.
    fn all_say(&self, turn: &mut Turn, round: u64) -> bool {
        while turn.seen < self.peers.len() {
            if self.says(turn.seen, round) < round {
                return false;
            }
            turn.seen += 1;
        }
        true
    }

    /// Puts up what we contribute, and wakes who waits for it.
    fn write(&self, turn: &Turn, segment: &Segment) {
        let rooted = turn.collective == Collective::Bcast;
        if turn.bytes > 0 && (!rooted || turn.root == self.rank) {
            let ours = self.bytes(self.rank, turn.bytes);
            match (&turn.input, &turn.output) {
                (Some(input), _) => input.pack(0, ours),
                // In place: an allgather's own block, or the whole.
                (None, Some(output)) if turn.collective == Collective::Allgather => {
                    output.pack(self.rank * turn.bytes as usize, ours);
                }
                (None, Some(output)) => output.pack(0, ours),
                (None, None) => {}
            }
        }
        let (_, arena, board) = &self.peers[self.rank];
        word(arena, board + place(self.round))
            .store(self.round << FACTS_BITS | turn.facts(), Ordering::Release);
        for (rank, (peer, ..)) in self.peers.iter().enumerate() {
            if rank != self.rank {
                segment.rank(*peer).bell.ring();
            }
        }
    }

    /// Takes the result from the places.
    fn read(&self, turn: &Turn) -> Result<()> {
        match turn.collective {
            Collective::Bcast => self.agrees(turn.root, turn)?,
            _ => (0..self.peers.len()).try_for_each(|rank| self.agrees(rank, turn))?,
        }
        let Some(output) = turn.output.as_ref().filter(|_| turn.bytes > 0) else { return Ok(()) };
        match turn.collective {
            Collective::Bcast => output.unpack(0, self.bytes(turn.root, turn.bytes)),
            Collective::Allgather => {
                for rank in 0..self.peers.len() {
                    output.unpack(rank * turn.bytes as usize, self.bytes(rank, turn.bytes));
                }
            }
            _ => self.reduce(turn, output),
        }
        Ok(())
    }

    fn reduce(&self, turn: &Turn, output: &Buffer) {
        let Some(Reduction::Predefined { op, basic, .. }) = turn.reduction else {
            unreachable!("calls with other operators are not due")
        };
        let mut sum = [0; BYTES_MAX as usize];
        let sum = &mut sum[..turn.bytes as usize];
        self.bytes(0, turn.bytes).read(sum);
        own::lend(sum, |sum| {
            for rank in 1..self.peers.len() {
                datatype::reduce(op, basic, sum, self.bytes(rank, turn.bytes), sum);
            }
            output.unpack(0, sum);
        });
    }
}

/// Where the place of a round is on a board.
#[inline]
fn place(round: u64) -> u64 {
    64 + round % 2 * PLACE_BYTES
}

#[inline]
fn word(arena: &Arena, offset: u64) -> &AtomicU64 {
    arena.word(offset).expect("boards lie inside their arenas")
}

/// The one buffer of a part of these collectives.
fn whole(part: &Part) -> Option<Buffer> {
    match part {
        Part::One { buffer, .. } | Part::PerRank(buffer) => Some(buffer.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatype::{Basic, PredefinedOp};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::sync::Mutex;
    use transport::shm::Shape;

    const ROUNDS: u64 = 400;
    /// After so many turns without the others' doing anything they have died.
    const TURNS_MAX: u32 = 20_000_000;

    /// What a member contributes.
    fn word(rank: usize, round: u64) -> u64 {
        (rank as u64 + 3).wrapping_mul(0x9e37_79b9 + round)
    }

    fn part(bytes: &mut [u8]) -> Part {
        // The caller keeps the bytes until the round is over.
        own::lend(bytes, |span| Part::bytes(Buffer::from(span)))
    }

    /// One round: the call, and what must be in the output afterwards, if anything.
    fn call(
        collective: Collective,
        root: usize,
        rank: usize,
        round: u64,
        size: usize,
        out: &mut [u8],
        into: &mut [u8],
    ) -> (Call, Option<Vec<u64>>) {
        use Collective::*;
        let words = |rank| word(rank, round);
        out.copy_from_slice(&words(rank).to_ne_bytes());
        let sum = (0..size).map(words).fold(0u64, u64::wrapping_add);
        let op = Reduction::Predefined { op: PredefinedOp::Sum, basic: Basic::U64, element_bytes: 8 };
        let (mut call, expected) = match collective {
            Barrier => (Call::new(Barrier, Part::None, Part::None), None),
            Bcast => {
                into[..8].copy_from_slice(&words(rank).to_ne_bytes());
                (Call::new(Bcast, Part::None, part(&mut into[..8])), Some(vec![words(root)]))
            }
            Allgather => {
                let all = own::lend(&mut into[..8 * size], |span| Part::PerRank(Buffer::from(span)));
                (Call::new(Allgather, part(out), all), Some((0..size).map(words).collect()))
            }
            Reduce if rank != root => (Call::new(Reduce, part(out), Part::None), None),
            other => (Call::new(other, part(out), part(&mut into[..8])), Some(vec![sum])),
        };
        (call.root, call.reduction) = (root as u32, Some(op));
        (call, expected)
    }

    /// Members as threads, each at its own pace, through the same random collectives.
    fn run(size: usize, seed: u64) {
        use Collective::*;
        let shape = Shape { ranks: size as u32, proxies: 0, arena_bytes: 1 << 20 };
        let (segment, _fd) = Segment::create(shape).unwrap();
        let (offsets, told) = (Mutex::new(vec![0i64; size]), std::sync::Barrier::new(size));
        let peers: Vec<u32> = (0..size as u32).collect();
        let member = |rank: usize| {
            let mut memory = Allocator::new(segment.arena(rank as u32).unwrap());
            let mut boards = Boards::new(segment.clone());
            offsets.lock().unwrap()[rank] = boards.new_board(&mut memory) as i64;
            told.wait();
            boards.hang(7, rank as u32, &peers, &offsets.lock().unwrap()).unwrap();
            let (mut all, mut own) =
                (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed + 1 + rank as u64));
            for round in 0..ROUNDS {
                let collective = [Barrier, Bcast, Reduce, Allreduce, Allgather][all.random_range(0..5)];
                let root = all.random_range(0..size);
                let (mut out, mut into) = ([0; 8], [0xff; 8 * MEMBERS_MAX]);
                let (call, expected) = call(collective, root, rank, round, size, &mut out, &mut into);
                let Due::Yes(at) = boards.due(7, size, &call) else { panic!("boards hang") };
                boards.post(at, &call);
                let mut turns = 0;
                let outcome = loop {
                    turns += 1;
                    assert!(turns < TURNS_MAX, "seed {seed}, round {round}: never ends at {rank}");
                    if let Some(outcome) = boards.outcome(at) {
                        break outcome;
                    }
                    if !boards.stirred() || !boards.poll() {
                        std::thread::yield_now();
                    }
                };
                assert_eq!(outcome, Ok(()), "seed {seed}, round {round}");
                for (at, expected) in expected.into_iter().flatten().enumerate() {
                    let seen = u64::from_ne_bytes(into[8 * at..8 * at + 8].try_into().unwrap());
                    assert_eq!(
                        seen, expected,
                        "seed {seed}, round {round}: word {at} of {collective:?} at {rank}"
                    );
                }
                if own.random_range(0..8) == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(own.random_range(0..50)));
                }
            }
            told.wait();
            boards.leave(7);
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

    /// What two members make of a round in which they call different things: the class that each gets.
    fn disagree(calls: [(Collective, usize, usize); 2]) -> [Option<Class>; 2] {
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 << 20 }).unwrap();
        let mut members =
            [0, 1].map(|rank| (Allocator::new(segment.arena(rank).unwrap()), Boards::new(segment.clone())));
        let at = members.each_mut().map(|(memory, boards)| boards.new_board(memory) as i64);
        let mut memory = [[0u8; 64], [0; 64]];
        for (rank, ((_, boards), bytes)) in members.iter_mut().zip(&mut memory).enumerate() {
            boards.hang(7, rank as u32, &[0, 1], &at).unwrap();
            let (collective, root, length) = calls[rank];
            let mut call = Call::new(collective, Part::None, part(&mut bytes[..length]));
            call.root = root as u32;
            call.reduction =
                Some(Reduction::Predefined { op: PredefinedOp::Sum, basic: Basic::U64, element_bytes: 8 });
            boards.post(0, &call);
        }
        members.map(|(_, mut boards)| {
            boards.poll();
            boards.outcome(0).expect("all have posted").err().map(|error| error.class)
        })
    }

    #[test]
    fn members_that_disagree_are_told() {
        use Collective::*;
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

    #[test]
    fn long_calls_and_operators_of_the_program_are_not_due() {
        let shape = Shape { ranks: 2, proxies: 0, arena_bytes: 1 << 20 };
        let (segment, _fd) = Segment::create(shape).unwrap();
        let mut boards = Boards::new(segment);
        let bcast = |bytes: &mut [u8]| Call::new(Collective::Bcast, Part::None, part(bytes));
        for calls in 1..CALLS_BEFORE {
            assert_eq!(boards.due(1, 2, &bcast(&mut [0; 248])), Due::No, "call {calls}");
        }
        assert_eq!(boards.due(1, 2, &bcast(&mut [0; 248])), Due::Hang);
        assert_eq!(boards.due(2, 2, &bcast(&mut [0; 249])), Due::No);
        assert_eq!(boards.due(1, 17, &bcast(&mut [0; 8])), Due::No);
        let mut sum = Call::new(Collective::Allreduce, part(&mut [0; 8]), part(&mut [0; 8]));
        sum.reduction = Some(Reduction::User { token: 0, element_bytes: 8 });
        assert_eq!(boards.due(1, 2, &sum), Due::No);
        // Where one member has no room, nobody has boards.
        boards.hang(1, 0, &[0, 1], &[64, NO_BOARD as i64]).unwrap();
        assert_eq!(boards.due(1, 2, &bcast(&mut [0; 8])), Due::No);
        assert!(boards.hang(1, 0, &[0, 1], &[64, 1 << 40]).is_err(), "an offset outside the arena");
    }
}
