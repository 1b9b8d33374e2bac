// SPDX-License-Identifier: BSD-3-Clause
//! Tests of sets of slots whose members are threads, each at its own pace.

use super::*;
use crate::attach::{FlatCall, FlatForm};
use crate::call::{Call, CollBuffer, Members};
use crate::queue::ScheduleCall;
use crate::with_counts::{CallWithCounts, LongBlock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Mutex;

const ROUNDS: u64 = 500;
const UNDER_WAY_MAX: usize = 3;

/// The state that the members of a test share. Each member is a thread.
struct Team {
    segment: Segment,
    locations: Mutex<Vec<i64>>,
    gate: std::sync::Barrier,
}

impl Team {
    fn new(size: usize) -> Team {
        let shape = Shape { ranks: size as u32, proxies: 0, arena_bytes: 16 << 20 };
        let (segment, _fd) = Segment::create(shape).unwrap();
        // With this, allreduces take two rounds above `FLAT_MAX`.
        segment.job().spin_allowed.store(1, Ordering::Relaxed);
        Team { segment, locations: Mutex::new(vec![0; size]), gate: std::sync::Barrier::new(size) }
    }

    /// Makes a member with two sets of slots: one for blocking calls, and one for a queue. Returns its
    /// allocator, its sets, and the numbers of the two sets.
    fn join(&self, rank: usize) -> (Allocator, FlatSets, usize, usize) {
        let mut memory =
            Allocator::new(self.segment.arena(self.segment.require(rank as u32).unwrap()).unwrap(), 16 << 20);
        let mut sets = FlatSets::new(self.segment.clone(), false, Bounds::pulling_above(INLINE_BYTES_MAX));
        self.segment
            .rank(self.segment.require(rank as u32).unwrap())
            .pid
            .store(sys::process::id(), Ordering::Relaxed);
        let mut exchange = || {
            self.locations.lock().unwrap()[rank] = sets.memory.alloc(&mut memory, &[]).0 as i64;
            self.gate.wait();
            let locations = self.locations.lock().unwrap().clone();
            self.gate.wait();
            locations
        };
        let (blocking, queued) = (exchange(), exchange());
        let peers: Vec<u32> = (0..blocking.len() as u32).collect();
        let set = sets.attach(rank, &peers, &blocking).unwrap().unwrap();
        let attached = sets.memory.attach(rank, &peers, &queued).unwrap().unwrap();
        let queue = sets.queues.queues.insert(CallQueue::new(QueueState::Attached(attached)));
        (memory, sets, set, queue)
    }
}

/// Fails a test in which no member has made progress for many turns.
struct Patience {
    turns: u32,
    place: String,
}

impl Patience {
    fn wait(&mut self) {
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "{}: nothing moves", self.place);
        std::thread::yield_now();
    }

    fn wait_for_events(&mut self, sets: &FlatSets) {
        while !sets.has_events() {
            self.wait();
        }
    }
}

/// A short call of a test: the number of its round, the call, and the words that it must return.
type Expected = (u64, Short, Vec<u64>);

/// Draws random short calls over these buffers. All members draw the same calls.
fn draw(
    all: &mut StdRng,
    (rank, round, size): (usize, u64, usize),
    buffers: &[(TestWords, TestWords)],
) -> Vec<Expected> {
    let calls = (round..).zip(buffers).map(|(round, (out, into))| {
        let collective = ALL[all.random_range(0..ALL.len())];
        // Vectors of all lengths are reduced, in one round or two; some divide evenly among the members,
        // others do not.
        let blocks = if collective == Allreduce { out.len() + 1 } else { 40 };
        let (root, block) = (all.random_range(0..size), all.random_range(0..blocks));
        let (short, expected) = call((collective, root, block), (rank, round, size), (out, into));
        assert!(crate::carrier::slots::fits(short.collective, short.bytes, size));
        (round, short, expected)
    });
    calls.collect()
}

/// Makes a blocking call in one of the forms that the call may have at this member, drawn at random.
fn call_in_any_form(
    sets: &mut FlatSets,
    set: usize,
    short: &Short,
    mine: &mut StdRng,
    patience: &mut Patience,
) -> Result<()> {
    let mut short = short.clone();
    let attached = sets.blocking(set);
    let moved = attached.space.moves(short.collective, short.bytes, attached.set.size());
    let form = attached.form(&mut short, moved.expect("there is space"));
    let flat = flat(&short).filter(|_| short.phase == ShortPhase::Whole && mine.random());
    let mut wait = |sets: &mut FlatSets| patience.wait_for_events(sets);
    match (form, flat) {
        (FlatForm::Pulled(mut pull), _) => blocking(sets, set, &mut *pull, wait),
        // Like in MPI_Allreduce, the general path continues what the fast path has started.
        (_, Some(mut flat)) => match sets.try_now(set, &mut flat, 3) {
            Some(()) => Ok(()),
            None => start_and_wait(sets, set, &mut short, &mut wait),
        },
        _ => blocking(sets, set, &mut short, wait),
    }
}

/// Makes calls that are under way at the same time, and asks for their outcomes in random order.
fn call_at_once(
    sets: &mut FlatSets,
    queue: usize,
    calls: &[Expected],
    mine: &mut StdRng,
    patience: &mut Patience,
) {
    let mut tickets: Vec<_> = calls.iter().map(|(_, short, _)| enqueue(sets, queue, short)).collect();
    while !tickets.is_empty() {
        let one = mine.random_range(0..tickets.len());
        match sets.queues.outcome(tickets[one], &mut no_schedule) {
            Some(outcome) => {
                assert_eq!(outcome, Ok(()), "{}", patience.place);
                tickets.swap_remove(one);
            }
            None if sets.queues.busy.is_empty() => (),
            None => {
                patience.wait_for_events(sets);
                poll(sets);
            }
        }
    }
}

/// Runs `size` members through the same random collectives. With `unread`, from some time on no member can
/// read rank 0's memory.
fn run(size: usize, seed: u64, unread: bool) {
    let team = Team::new(size);
    let member = |rank: usize| {
        let (mut memory, mut sets, set, queue) = team.join(rank);
        let (mut all, mut mine) =
            (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed + 1 + rank as u64));
        let buffers = [0; UNDER_WAY_MAX].map(|_| (TestWords::new(512, 0), TestWords::new(512, 0xff)));
        let mut patience = Patience { turns: 0, place: String::new() };
        let mut round = 0;
        while round < ROUNDS {
            // The run makes one blocking call, or nonblocking calls that are under way at the same time.
            let under_way = all.random_range(0..=UNDER_WAY_MAX);
            let calls = draw(&mut all, (rank, round, size), &buffers[..under_way.max(1)]);
            patience.place = format!("seed {seed}, round {round}, rank {rank}");
            if unread && rank == 0 && round > ROUNDS / 2 {
                let page = team.segment.rank(team.segment.require(0).unwrap());
                page.pid.store(i32::MAX as u32, Ordering::Relaxed);
            }
            round += calls.len() as u64;
            if under_way == 0 {
                let outcome = call_in_any_form(&mut sets, set, &calls[0].1, &mut mine, &mut patience);
                assert_eq!(outcome, Ok(()), "{}", patience.place);
            } else {
                call_at_once(&mut sets, queue, &calls, &mut mine, &mut patience);
            }
            for ((round, short, expected), (_, into)) in calls.iter().zip(&buffers) {
                assert_eq!(
                    into.to_vec()[..expected.len()],
                    *expected,
                    "seed {seed}, round {round}: {short:?} at {rank}"
                );
            }
            if mine.random_range(0..8) == 0 {
                std::thread::sleep(std::time::Duration::from_micros(mine.random_range(0..50)));
            }
        }
        team.gate.wait();
        // A queue may be closed while a call is under way.
        let ticket = enqueue(&mut sets, queue, &short(Barrier, 0, 0));
        sets.queues.close(queue, &mut sets.memory);
        while sets.queues.outcome(ticket, &mut no_schedule).is_none() {
            patience.wait_for_events(&sets);
            poll(&mut sets);
        }
        team.gate.wait();
        // All members have left, so the slots are used again.
        let first = team.locations.lock().unwrap()[rank] as u64;
        assert_eq!(sets.memory.alloc(&mut memory, &[]).0, first);
    };
    std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
}

#[test]
fn members_at_their_own_pace_get_the_right_words() {
    for (size, seed) in [(2, 1), (3, 2), (4, 3), (7, 4)] {
        run(size, seed, false);
    }
}

#[test]
fn members_of_which_one_cannot_be_read_any_more_get_the_right_words() {
    for (size, seed) in [(2, 11), (4, 13)] {
        run(size, seed, true);
    }
}

/// A collective with a count for each pair of members.
struct VectorCall {
    collective: Collective,
    root: usize,
    size: usize,
    round: u64,
    counts: Vec<usize>,
}

impl VectorCall {
    fn draw(all: &mut StdRng, size: usize, round: u64) -> VectorCall {
        const KINDS: [Collective; 5] = [Gatherv, Scatterv, Allgatherv, Alltoallv, Alltoallw];
        let (collective, root) = (KINDS[all.random_range(0..5)], all.random_range(0..size));
        let longest = [1, 4, 30, 120][all.random_range(0..4)];
        let counts = (0..size * size).map(|_| all.random_range(0..longest)).collect();
        VectorCall { collective, root, size, round, counts }
    }

    /// Returns the words that member `from` sends to member `to`.
    fn words(&self, from: usize, to: usize) -> Vec<u64> {
        let (count, source) = match self.collective {
            Gatherv if to != self.root => (0, 0),
            Scatterv if from != self.root => (0, 0),
            Gatherv | Allgatherv => (self.counts[from], from),
            _ => (self.counts[from * self.size + to], from * self.size + to),
        };
        (0..count).map(|at| word(source, self.round, at)).collect()
    }

    /// Returns the call of a member with these buffers. `in_place` says whether its own block is in the
    /// output already.
    fn call(&self, rank: usize, in_place: bool, out: &[TestWords], into: &[TestWords]) -> Call {
        let whole = |words: &TestWords| words.buffer(0, words.len());
        let each = |all: &[TestWords]| CollBuffer::Each(all.iter().map(whole).collect());
        let one = |words: &TestWords| CollBuffer::bytes(whole(words));
        let root = self.root;
        let takes = match self.collective {
            Gatherv if rank != root => CollBuffer::None,
            Scatterv => one(&into[root]),
            _ => each(into),
        };
        let gives = match self.collective {
            _ if in_place => CollBuffer::None,
            Gatherv => one(&out[root]),
            Allgatherv => one(&out[0]),
            Scatterv if rank != root => CollBuffer::None,
            _ => each(out),
        };
        Call { root: root as u32, in_place, ..Call::new(self.collective, gives, takes) }
    }
}

/// Makes a collective with a count for each pair of members. Returns the call after its round and, if the
/// call is nonblocking, the number of this round.
fn call_with_counts(
    sets: &mut FlatSets,
    (set, queue): (usize, usize),
    (rank, size): (usize, usize),
    (call, mut with_counts): (Call, CallWithCounts),
    blocks: bool,
    patience: &mut Patience,
) -> (CallWithCounts, Option<u64>) {
    if blocks {
        let mut active = sets.start_round(set, &with_counts);
        let outcome = loop {
            match sets.advance(set, &mut active, &mut with_counts) {
                Some(outcome) => break outcome,
                None => patience.wait(),
            }
        };
        assert_eq!(outcome, Ok(()), "{}", patience.place);
        return (with_counts, None);
    }
    let peers = (0..size as u32).collect();
    let members = Members { context: 0, sequence: 0, rank: rank as u32, peers, first_group: 0 };
    let queued = QueuedCall::flat(FlatCall::WithCounts(with_counts), || ScheduleCall { call, members });
    let ticket = sets.queues.push(queue, queued, &mut sets.memory, &mut no_schedule);
    while sets.queues.remainders.is_empty() {
        patience.wait();
        poll(sets);
    }
    assert_eq!(sets.queues.outcome(ticket, &mut no_schedule), Some(Ok(())), "{}", patience.place);
    let remainder = sets.queues.remainders.pop().unwrap();
    let (with_counts, number) = remainder.tried.expect("a call that tried");
    (with_counts, Some(number))
}

/// Runs `size` members through collectives with a length of its own for each member, some blocking, some not.
/// Some of the lengths are too long for the slots.
fn run_with_counts(size: usize, seed: u64) {
    const SPACE: u64 = 600;
    let team = Team::new(size);
    let (long, scheduled) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::new()));
    let tried = Mutex::new(BTreeMap::new());
    let member = |rank: usize| {
        let (_memory, mut sets, set, queue) = team.join(rank);
        let mut all = StdRng::seed_from_u64(seed);
        for round in 0..3 * ROUNDS {
            let drawn = VectorCall::draw(&mut all, size, round);
            let out: Vec<_> = (0..size).map(|to| TestWords::of(&drawn.words(rank, to))).collect();
            let may_be_in_place = [Gatherv, Allgatherv].contains(&drawn.collective);
            let in_place =
                may_be_in_place && all.random() && (drawn.collective == Allgatherv || rank == drawn.root);
            let into = |from: usize| match from == rank && in_place {
                true => TestWords::of(&drawn.words(rank, rank)),
                false => TestWords::new(drawn.words(from, rank).len(), 0xff),
            };
            let into: Vec<_> = (0..size).map(into).collect();
            let call = drawn.call(rank, in_place, &out, &into);
            let Some(with_counts) = CallWithCounts::new(&call, SPACE) else { continue };
            let mut patience =
                Patience { turns: 0, place: format!("seed {seed}, round {round}, rank {rank}") };
            let (with_counts, number) = call_with_counts(
                &mut sets,
                (set, queue),
                (rank, size),
                (call, with_counts),
                all.random(),
                &mut patience,
            );
            if let Some(number) = number {
                tried.lock().unwrap().entry(round).or_insert_with(Vec::new).push(number);
            }
            if with_counts.is_scheduled() {
                scheduled.lock().unwrap().entry(round).or_insert_with(Vec::new).push(rank);
                continue;
            }
            let blocks: Vec<_> = with_counts.long_blocks(rank).collect();
            let is_short = |from: &usize| blocks.iter().all(|long| (long.from, long.to) != (*from, rank));
            for from in (0..size).filter(is_short) {
                let expected = drawn.words(from, rank);
                assert_eq!(
                    into[from].to_vec(),
                    expected,
                    "{}: {:?} from {from}",
                    patience.place,
                    drawn.collective
                );
            }
            for LongBlock { from, to, block } in blocks {
                let bytes = 8 * drawn.words(from, to).len();
                assert!([from, to].contains(&rank) && block.bytes() == bytes && from != to);
                *long.lock().unwrap().entry((round, from, to)).or_insert(0) += 1;
            }
        }
    };
    std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
    // A block's sender and receiver agree that it is long, and either all or no members need a schedule.
    let (long, scheduled) = (long.into_inner().unwrap(), scheduled.into_inner().unwrap());
    assert!(long.len() > 5 && long.values().all(|ends| *ends == 2), "seed {seed}: {long:?}");
    let agreed = |ranks: &Vec<usize>| ranks.len() == size;
    let alike = |rounds: &Vec<u64>| rounds.len() == size && rounds.iter().all(|round| *round == rounds[0]);
    let tried = tried.into_inner().unwrap();
    assert!(tried.len() > 50 && tried.values().all(alike), "seed {seed}: {tried:?}");
    assert!(scheduled.len() > 10 && scheduled.values().all(agreed), "seed {seed}: {scheduled:?}");
}

#[test]
fn blocks_of_any_length_arrive_or_are_known_to_be_long() {
    for (size, seed) in [(2, 5), (3, 6), (7, 7)] {
        run_with_counts(size, seed);
    }
}

/// A member that cannot read another's memory reports that in the second round. Then all members exchange the
/// blocks through slots in a third round.
#[test]
fn members_that_cannot_read_get_pieces_in_a_third_round() {
    let (size, block) = (3, 2 * INLINE_BYTES_MAX as usize / 8);
    let team = Team::new(size);
    let member = |rank: usize| {
        let (_memory, mut sets, _, queue) = team.join(rank);
        team.gate.wait();
        // No process has this number.
        team.segment.rank(team.segment.require(1).unwrap()).pid.store(i32::MAX as u32, Ordering::Relaxed);
        team.gate.wait();
        let (out, into) = (TestWords::new(size * block, 0), TestWords::new(size * block, 0xff));
        let (short, expected) = call((Alltoall, 0, block), (rank, 0, size), (&out, &into));
        let ticket = enqueue(&mut sets, queue, &short);
        assert_eq!(finish(&mut sets, ticket), Ok(()));
        assert_eq!(into.to_vec(), expected);
        assert_eq!(sets.queues.queues[queue].set().unwrap().round(), 3);
    };
    std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
}

/// Each member gets what the others had before the call, also in place.
#[test]
fn members_read_what_was_there_before_the_call() {
    const BLOCK: usize = 2 * INLINE_BYTES_MAX as usize / 8;
    for collective in [Alltoall, Allgather] {
        let team = Team::new(2);
        let words = [0, 1].map(|rank| TestWords::new(2 * BLOCK, 1 + rank));
        let member = |rank: usize| {
            let (_memory, mut sets, _, queue) = team.join(rank);
            let output = words[rank].buffer(0, 2 * BLOCK);
            let input = match collective {
                Alltoall => output.clone(),
                _ => output.slice(8 * rank * BLOCK, 8 * BLOCK),
            };
            let bytes = 8 * BLOCK as u64;
            let call = Short { input, output, in_place: true, ..short(collective, 0, bytes) };
            let ticket = enqueue(&mut sets, queue, &call);
            assert_eq!(finish(&mut sets, ticket), Ok(()));
        };
        std::thread::scope(|scope| {
            let member = &member;
            (0..2).for_each(|rank| drop(scope.spawn(move || member(rank))));
        });
        for words in &words {
            let bytes = words.0.to_vec();
            assert!(bytes[..8 * BLOCK].iter().all(|byte| *byte == 1), "{collective:?}");
            assert!(bytes[8 * BLOCK..].iter().all(|byte| *byte == 2), "{collective:?}");
        }
    }
}
