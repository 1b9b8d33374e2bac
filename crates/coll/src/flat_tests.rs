//! FlatSets of several members in one process: every collective, several under way at once, members at their own pace, members that disagree.

use super::*;
use crate::call::{Call, Members, Part};
use crate::queue::{Found, State, Ticket, Whole};
use crate::round::COMBINED_BYTES;
use crate::short::FlatAllreduce;
use crate::vector::{Pass, Vector};
use Collective::*;
use datatype::{Basic, Buffer, PredefinedOp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Mutex;
use transport::owned;
use transport::shm::Shape;

const ROUNDS: u64 = 500;
const UNDER_WAY_MAX: usize = 3;
/// Long enough that blocks of either kind are common.
const INLINE_BYTES_MAX: u64 = 160;
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
    owned::lend(words[..many].as_flattened_mut(), Buffer::from)
}

fn short(collective: Collective, root: usize, bytes: u64) -> Short {
    Short { root, bytes, given: bytes, operator: SUM, ..Short::new(collective) }
}

/// The same call at its shortest, where there is that.
fn flat(short: &Short) -> Option<FlatAllreduce> {
    let (own, sum) = (short.input.contiguous()?, short.output.contiguous()?);
    let is_flat = short.collective == Allreduce && short.root == 0 && short.bytes > 0;
    is_flat.then_some(FlatAllreduce { operator: short.operator?, own, sum })
}

/// Makes a blocking call.
fn blocking(
    sets: &mut FlatSets,
    slots: usize,
    call: &impl Round,
    mut wait: impl FnMut(&mut FlatSets),
) -> Result<()> {
    // Half of them by the shortest way.
    if sets.blocking(slots).round().is_multiple_of(2) && sets.try_now(slots, call, 3).is_some() {
        return Ok(());
    }
    let mut turn = sets.begin(slots, call);
    loop {
        if let Some(outcome) = sets.advance(slots, &mut turn, call) {
            return outcome;
        }
        sets.wait(slots, true);
        wait(sets);
        sets.wait(slots, false);
    }
}

/// Makes a short call that does not block.
fn enqueue(sets: &mut FlatSets, queue: usize, short: &Short) -> Ticket {
    let State::Attached(attached) = &sets.queues[queue].state else { unreachable!("it is attached") };
    let found = Found::short(attached, short.clone()).expect("there is room");
    let queued = Queued::sure(found, || unreachable!("a short call is not asked for the whole"));
    sets.queue(queue, queued, &mut no_schedule)
}

/// Waits until a call that does not block has ended.
fn finish(sets: &mut FlatSets, ticket: Ticket) -> Result<()> {
    for _ in 0..TURNS_MAX {
        if let Some(outcome) = sets.outcome(ticket, &mut no_schedule) {
            return outcome;
        }
        sets.poll(&mut no_schedule);
        std::thread::yield_now();
    }
    panic!("nobody else moves");
}

/// Short calls leave nothing to schedules.
fn no_schedule(_: executor::Ticket) -> Option<Result<()>> {
    unreachable!("a schedule of a short call")
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
    let of_all = |words: &Range<usize>| -> Vec<u64> { (0..size).flat_map(|rank| of(rank, words)).collect() };
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

/// What members that are threads share.
struct Team {
    segment: Segment,
    rooms: Mutex<Vec<i64>>,
    told: std::sync::Barrier,
}

impl Team {
    fn new(size: usize) -> Team {
        let shape = Shape { ranks: size as u32, proxies: 0, arena_bytes: 16 << 20 };
        let (segment, _fd) = Segment::create(shape).unwrap();
        // Then they cut vectors of 8 KiB.
        segment.job().spin_allowed.store(1, Ordering::Relaxed);
        Team { segment, rooms: Mutex::new(vec![0; size]), told: std::sync::Barrier::new(size) }
    }

    /// A member's slots, which it is attached with all others': one of blocking calls, and one of a queue.
    fn join(&self, rank: usize) -> (Allocator, FlatSets, usize, usize) {
        let mut memory = Allocator::new(self.segment.arena(rank as u32).unwrap());
        let mut sets = FlatSets::new(self.segment.clone(), false, Bounds::pulling_above(INLINE_BYTES_MAX));
        self.segment.rank(rank as u32).pid.store(sys::process::id(), Ordering::Relaxed);
        let mut told = || {
            self.rooms.lock().unwrap()[rank] = sets.new_slots(&mut memory, &[]) as i64;
            self.told.wait();
            let rooms = self.rooms.lock().unwrap().clone();
            self.told.wait();
            rooms
        };
        let (blocking, queued) = (told(), told());
        let peers: Vec<u32> = (0..blocking.len() as u32).collect();
        let slots = sets.attach(rank, &peers, &blocking).unwrap().unwrap();
        let attached =
            Attached::find(&self.segment, rank, &peers, &queued, Bounds::pulling_above(INLINE_BYTES_MAX))
                .unwrap()
                .unwrap();
        let queue = sets.queues.insert(Queue::new(State::Attached(attached)));
        (memory, sets, slots, queue)
    }
}

/// Members as threads, each at its own pace, through the same random collectives.
fn run(size: usize, seed: u64) {
    let team = Team::new(size);
    let member = |rank: usize| {
        let (mut memory, mut sets, slots, queue) = team.join(rank);
        let (mut all, mut own) = (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed + 1 + rank as u64));
        let mut buffers = vec![([[0; 8]; 512], [[0xff; 8]; 512]); UNDER_WAY_MAX];
        let mut turns = 0;
        let mut wait = |sets: &mut FlatSets, round| {
            while !sets.has_events() {
                turns += 1;
                assert!(turns < TURNS_MAX, "seed {seed}, round {round}: nothing stirs at {rank}");
                std::thread::yield_now();
            }
        };
        let mut round = 0;
        while round < ROUNDS {
            // One blocking call, or nonblocking ones that are under way at the same time.
            let under_way = all.random_range(0..=UNDER_WAY_MAX);
            let mut calls = Vec::new();
            for (out, into) in &mut buffers[..under_way.max(1)] {
                let collective = ALL[all.random_range(0..ALL.len())];
                // Vectors of all lengths are summed up, in one round or two, with as many elements for each member or not.
                let blocks = if collective == Allreduce { out.len() + 1 } else { 40 };
                let (root, block) = (all.random_range(0..size), all.random_range(0..blocks));
                let (short, expected) = call((collective, root, block), (rank, round, size), (out, into));
                assert!(short.fits(size));
                calls.push((round, short, expected));
                round += 1;
            }
            if under_way == 0 {
                let short = &calls[0].1;
                // For others it is the same call.
                let outcome = match (sets.rounds(slots, short), flat(short).filter(|_| own.random())) {
                    (Rounds::Pulled(pull), _) => {
                        blocking(&mut sets, slots, &*pull, |sets| wait(sets, round)).unwrap();
                        blocking(&mut sets, slots, &pull.closing(), |sets| wait(sets, round)).unwrap();
                        pull.outcome()
                    }
                    (Rounds::Two(first, second), _) => {
                        blocking(&mut sets, slots, &first, |sets| wait(sets, round)).unwrap();
                        blocking(&mut sets, slots, &*second, |sets| wait(sets, round))
                    }
                    (_, Some(flat)) => blocking(&mut sets, slots, &flat, |sets| wait(sets, round)),
                    _ => blocking(&mut sets, slots, short, |sets| wait(sets, round)),
                };
                assert_eq!(outcome, Ok(()), "seed {seed}, round {round}");
            } else {
                let mut tickets: Vec<_> =
                    calls.iter().map(|(_, short, _)| enqueue(&mut sets, queue, short)).collect();
                while !tickets.is_empty() {
                    let one = own.random_range(0..tickets.len());
                    match sets.outcome(tickets[one], &mut no_schedule) {
                        Some(outcome) => {
                            assert_eq!(outcome, Ok(()), "seed {seed}, round {round}");
                            tickets.swap_remove(one);
                        }
                        None if sets.busy.is_empty() => (),
                        None => {
                            wait(&mut sets, round);
                            sets.poll(&mut no_schedule);
                        }
                    }
                }
            }
            for ((round, short, expected), (_, into)) in calls.iter().zip(&buffers) {
                let seen: Vec<u64> =
                    into[..expected.len()].iter().map(|word| u64::from_ne_bytes(*word)).collect();
                assert_eq!(seen, *expected, "seed {seed}, round {round}: {short:?} at {rank}");
            }
            if own.random_range(0..8) == 0 {
                std::thread::sleep(std::time::Duration::from_micros(own.random_range(0..50)));
            }
        }
        team.told.wait();
        // A queue may be closed while a call is under way.
        let ticket = enqueue(&mut sets, queue, &short(Barrier, 0, 0));
        sets.close(queue);
        while sets.outcome(ticket, &mut no_schedule).is_none() {
            wait(&mut sets, round);
            sets.poll(&mut no_schedule);
        }
        team.told.wait();
        // All have left, so the place is used again.
        let first = team.rooms.lock().unwrap()[rank] as u64;
        assert_eq!(sets.new_slots(&mut memory, &[]), first);
    };
    std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
}

#[test]
fn members_at_their_own_pace_get_the_right_words() {
    for (size, seed) in [(2, 1), (3, 2), (4, 3), (7, 4)] {
        run(size, seed);
    }
}

/// Members as threads, through collectives with other lengths for each member, blocking or not, of which some are too long for the places.
fn run_vectors(size: usize, seed: u64) {
    const ROOM: u64 = 600;
    const KINDS: [Collective; 5] = [Gatherv, Scatterv, Allgatherv, Alltoallv, Alltoallw];
    let team = Team::new(size);
    let (long, scheduled) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::new()));
    let tried = Mutex::new(BTreeMap::new());
    let member = |rank: usize| {
        let (_memory, mut sets, slots, queue) = team.join(rank);
        let mut all = StdRng::seed_from_u64(seed);
        for round in 0..3 * ROUNDS {
            let (collective, root) = (KINDS[all.random_range(0..5)], all.random_range(0..size));
            let longest = [1, 4, 30, 120][all.random_range(0..4)];
            let drawn: Vec<usize> = (0..size * size).map(|_| all.random_range(0..longest)).collect();
            // The words from one member to another.
            let words = |from: usize, to: usize| match collective {
                Gatherv if to != root => 0,
                Scatterv if from != root => 0,
                Gatherv | Allgatherv => drawn[from],
                _ => drawn[from * size + to],
            };
            let value = |from: usize, to: usize, at: usize| match collective {
                Gatherv | Allgatherv => word(from, round, at),
                _ => word(from * size + to, round, at),
            };
            let mut out: Vec<Vec<_>> = (0..size)
                .map(|to| (0..words(rank, to)).map(|at| value(rank, to, at).to_ne_bytes()).collect())
                .collect();
            let mut into: Vec<Vec<_>> = (0..size).map(|from| vec![[0xff; 8]; words(from, rank)]).collect();
            let in_place = [Gatherv, Allgatherv].contains(&collective) && all.random();
            let skips_own = in_place && (collective == Allgatherv || rank == root);
            if skips_own {
                into[rank] = out[rank].clone();
            }
            let each = |blocks: &mut [Vec<[u8; 8]>]| {
                let whole = |block: &mut Vec<[u8; 8]>| owned::lend(block.as_flattened_mut(), Buffer::from);
                Part::Each(blocks.iter_mut().map(whole).collect())
            };
            let takes = match collective {
                Gatherv if rank != root => Part::None,
                Scatterv => Part::bytes(buffer(&mut into[root], words(root, rank))),
                _ => each(&mut into),
            };
            let gives = match collective {
                _ if skips_own => Part::None,
                Gatherv => Part::bytes(buffer(&mut out[root], words(rank, root))),
                Allgatherv => Part::bytes(buffer(&mut out[0], words(rank, 0))),
                Scatterv if rank != root => Part::None,
                _ => each(&mut out),
            };
            let call = Call { root: root as u32, in_place: skips_own, ..Call::new(collective, gives, takes) };
            let Some(vector) = Vector::new(&call, ROOM) else { continue };
            let mut turns = 0;
            let mut wait = || {
                turns += 1;
                assert!(turns < TURNS_MAX, "seed {seed}, round {round}: never ends at {rank}");
                std::thread::yield_now();
            };
            let vector = if all.random() {
                let mut turn = sets.begin(slots, &vector);
                let outcome = loop {
                    match sets.advance(slots, &mut turn, &vector) {
                        Some(outcome) => break outcome,
                        None => wait(),
                    }
                };
                assert_eq!(outcome, Ok(()), "seed {seed}, round {round}");
                vector
            } else {
                let peers = (0..size as u32).collect();
                let members = Members { context: 0, sequence: 0, rank: rank as u32, peers, first_group: 0 };
                let queued = Queued::sure(Found::Vector(vector), || Whole { call, members });
                let ticket = sets.queue(queue, queued, &mut no_schedule);
                while sets.leaving.is_empty() {
                    wait();
                    sets.poll(&mut no_schedule);
                }
                assert_eq!(
                    sets.outcome(ticket, &mut no_schedule),
                    Some(Ok(())),
                    "seed {seed}, round {round}"
                );
                let left = sets.leaving.pop().unwrap();
                let (vector, number) = left.tried.expect("a call that tried");
                tried.lock().unwrap().entry(round).or_insert_with(Vec::new).push(number);
                vector
            };
            if vector.is_scheduled() {
                scheduled.lock().unwrap().entry(round).or_insert_with(Vec::new).push(rank);
                continue;
            }
            let passed: Vec<_> = vector.passed(rank).collect();
            for from in
                (0..size).filter(|from| passed.iter().all(|pass| (pass.from, pass.to) != (*from, rank)))
            {
                let expected: Vec<_> =
                    (0..words(from, rank)).map(|at| value(from, rank, at).to_ne_bytes()).collect();
                assert_eq!(
                    into[from], expected,
                    "seed {seed}, round {round}: {collective:?} {from} to {rank}"
                );
            }
            for Pass { from, to, block } in passed {
                assert!([from, to].contains(&rank) && block.bytes() == 8 * words(from, to) && from != to);
                let message = (round, from, to);
                *long.lock().unwrap().entry(message).or_insert(0) += 1;
            }
        }
    };
    std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
    // Who passes a block and who gets it say so alike, and either all or none need a schedule.
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
        run_vectors(size, seed);
    }
}

/// Two members of one process.
fn pair() -> [FlatSets; 2] {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 16 << 20 }).unwrap();
    let mut members = [0, 1].map(|rank| {
        (
            Allocator::new(segment.arena(rank).unwrap()),
            FlatSets::new(segment.clone(), false, Bounds::pulling_above(u64::MAX)),
        )
    });
    let mut told = || members.each_mut().map(|(memory, sets)| sets.new_slots(memory, &[]) as i64);
    let (blocking, queued) = (told(), told());
    members.iter_mut().enumerate().for_each(|(rank, (_, sets))| {
        assert_eq!(sets.attach(rank, &[0, 1], &blocking).unwrap(), Some(0));
        let attached = Attached::find(&segment, rank, &[0, 1], &queued, Bounds::pulling_above(u64::MAX))
            .unwrap()
            .unwrap();
        assert_eq!(sets.queues.insert(Queue::new(State::Attached(attached))), 0);
    });
    members.map(|(_, sets)| sets)
}

/// Who waits for a member that shares its cpu must let it run. A member may be anywhere until it has waited.
#[test]
fn a_call_knows_where_those_are_that_it_waits_for() {
    let [mut fast, mut slow] = pair();
    let call = short(Barrier, 0, 0);
    let needed = |sets: &FlatSets| [0, 1].map(|cpu| sets.waits_for_one_on(0, cpu));
    let mut turn = fast.begin(0, &call);
    assert_eq!(fast.advance(0, &mut turn, &call), None);
    assert_eq!(needed(&fast), [true, true]);
    fast.segment.rank(1).wait_on(1);
    assert_eq!(needed(&fast), [false, true]);
    let mut last = slow.begin(0, &call);
    assert_eq!(slow.advance(0, &mut last, &call), Some(Ok(())));
    assert_eq!(needed(&fast), [false, false], "it has come");
    assert_eq!(fast.advance(0, &mut turn, &call), Some(Ok(())));
}

/// A call that did not end at once goes on as the same, whether it then ends well or not.
#[test]
fn a_call_that_was_tried_goes_on() {
    let [mut fast, mut slow] = pair();
    let (barrier, other) = (short(Barrier, 0, 0), short(Allgather, 0, 0));
    for (theirs, ends_well) in [(&barrier, true), (&other, false)] {
        assert_eq!(fast.try_now(0, &barrier, 5), None, "nobody else has come");
        let last = slow.try_now(0, theirs, 5);
        assert_eq!(last.is_some(), ends_well);
        let mut turn = fast.begin(0, &barrier);
        assert!(turn.posted);
        let outcome = fast.advance(0, &mut turn, &barrier).expect("the other has come");
        assert_eq!(outcome.is_ok(), ends_well);
        assert_eq!(fast.blocking(0).round(), slow.blocking(0).round());
    }
    let mut turn = slow.begin(0, &other);
    assert_eq!(slow.advance(0, &mut turn, &other).map(|outcome| outcome.is_err()), Some(true));
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
            fast.advance(0, &mut turn, call),
            (round == 0).then_some(Ok(())),
            "nobody has begun the first"
        );
        if round == 0 {
            continue;
        }
        let mut first = slow.begin(0, read);
        assert_eq!(slow.advance(0, &mut first, read), Some(Ok(())));
        assert_eq!(fast.advance(0, &mut turn, call), Some(Ok(())));
        let mut third = fast.begin(0, next);
        assert_eq!(fast.advance(0, &mut third, next), None, "the second has not been read");
        let mut second = slow.begin(0, read);
        assert_eq!(slow.advance(0, &mut second, read), Some(Ok(())));
        assert_eq!(words[3], [2; 8]);
        assert_eq!(fast.advance(0, &mut third, next), Some(Ok(())));
    }
}

/// A long vector is summed in blocks, in place or not, whether the call blocks or not.
#[test]
fn a_long_vector_takes_two_rounds() {
    // The longer ones' blocks are combined in several steps.
    let many = [(1 << 13) + 1, BYTES_MAX as usize / 8];
    assert!(BYTES_MAX as usize / 2 > COMBINED_BYTES);
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    for (words, (in_place, queued)) in many.into_iter().flat_map(|words| kinds.map(|kind| (words, kind))) {
        let mut members = pair();
        let given = |rank: u64| (0..words as u64).map(|at| (at * (rank + 7)).to_ne_bytes()).collect();
        let mut out: [Vec<_>; 2] = [0, 1].map(given);
        let mut into = if in_place { out.clone() } else { [vec![[0; 8]; words], vec![[0; 8]; words]] };
        let calls = [0, 1].map(|rank| {
            let mut call = short(Allreduce, 0, 8 * words as u64);
            call.output = buffer(&mut into[rank], words);
            call.input = if in_place { call.output.clone() } else { buffer(&mut out[rank], words) };
            call.in_place = in_place;
            assert!(call.fits(2));
            call
        });
        if queued {
            let tickets = [0, 1].map(|rank| enqueue(&mut members[rank], 0, &calls[rank]));
            // Each member posts, adds and posts, and gathers.
            for rank in [0, 1, 0] {
                members[rank].poll(&mut no_schedule);
            }
            assert_eq!(
                [0, 1].map(|rank| members[rank].outcome(tickets[rank], &mut no_schedule)),
                [Some(Ok(())), Some(Ok(()))]
            );
        } else {
            let halves = [0, 1].map(|rank| calls[rank].halves(rank, 2, FLAT_MAX).unwrap());
            for round in 0..2 {
                let call = |rank: usize| if round == 0 { &halves[rank].0 } else { &halves[rank].1 };
                let mut turns = [0, 1].map(|rank| members[rank].begin(0, call(rank)));
                assert_eq!(members[0].advance(0, &mut turns[0], call(0)), None);
                for rank in [1, 0] {
                    assert_eq!(members[rank].advance(0, &mut turns[rank], call(rank)), Some(Ok(())));
                }
            }
        }
        let sums = (0..words as u64).map(|at| (at * 15).to_ne_bytes()).collect::<Vec<_>>();
        assert!(into.iter().all(|sum| *sum == sums));
    }
}

/// Who cannot read another's memory says so, and the others end alike: all have made two rounds.
#[test]
fn a_member_that_cannot_read_still_makes_the_second_round() {
    let (size, block) = (3, 2 * INLINE_BYTES_MAX as usize / 8);
    let team = Team::new(size);
    let member = |rank: usize| {
        let (_memory, mut sets, _, queue) = team.join(rank);
        team.told.wait();
        // No process has this number.
        team.segment.rank(1).pid.store(i32::MAX as u32, Ordering::Relaxed);
        team.told.wait();
        let (mut out, mut into) = (vec![[0; 8]; size * block], vec![[0xff; 8]; size * block]);
        let (short, expected) = call((Alltoall, 0, block), (rank, 0, size), (&mut out, &mut into));
        let ticket = enqueue(&mut sets, queue, &short);
        let outcome = finish(&mut sets, ticket);
        let seen: Vec<u64> = into.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        if rank == 1 {
            assert_eq!((outcome, seen), (Ok(()), expected));
        } else {
            let error = outcome.unwrap_err();
            assert_eq!(error.class, Class::ProcAborted);
            let start = format!("in alltoall rank {rank} cannot have rank 1's block: cannot read ");
            assert!(error.message.starts_with(&start), "{error}");
            let others = (0..size * block).filter(|at| !(block..2 * block).contains(at));
            assert!(others.into_iter().all(|at| seen[at] == expected[at]), "what could be read is there");
        }
        assert_eq!(sets.queues[queue].slots().unwrap().round(), 2);
    };
    std::thread::scope(|scope| (0..size).for_each(|rank| drop(scope.spawn(move || member(rank)))));
}

/// In place, too, everybody gets what the others had before.
#[test]
fn members_read_what_was_there_before_the_call() {
    const BLOCK: usize = 2 * INLINE_BYTES_MAX as usize / 8;
    for collective in [Alltoall, Allgather] {
        let team = Team::new(2);
        let mut words = [0, 1].map(|rank| vec![[1 + rank; 8]; 2 * BLOCK]);
        let member = |rank: usize, words: &mut Vec<[u8; 8]>| {
            let (_memory, mut sets, _, queue) = team.join(rank);
            let output = buffer(words, 2 * BLOCK);
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
            words
                .iter_mut()
                .enumerate()
                .for_each(|(rank, words)| drop(scope.spawn(move || member(rank, words))));
        });
        for words in &words {
            assert!(words[..BLOCK].iter().all(|word| *word == [1; 8]), "{collective:?}");
            assert!(words[BLOCK..].iter().all(|word| *word == [2; 8]), "{collective:?}");
        }
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
        let _ = members[rank].advance(0, &mut turn, &call);
        (turn, call)
    });
    // Who is done already gets the same answer again.
    let again = |rank: usize| {
        let (turn, call) = &mut turns[rank];
        members[rank].advance(0, turn, call).expect("all have posted")
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

/// Settings must be alike; where only lengths differ, the error speaks of these.
#[test]
fn members_of_which_one_pulls_are_told() {
    for (bytes, class) in [(8, Class::Other), (16, Class::Truncate)] {
        let [mut pulls, mut posts] = pair();
        let mut words = [[[0; 8]; 4], [[0; 8]; 4]];
        let [one, other] = [(0, 8), (1, bytes)].map(|(rank, bytes): (usize, u64)| {
            let output = buffer(&mut words[rank], bytes as usize / 4);
            Short { input: output.clone(), output, in_place: true, ..short(Alltoall, 0, bytes) }
        });
        let pull = Pull::new(&one, &pulls.segment);
        let (mut turn, mut last) = (pulls.begin(0, &pull), posts.begin(0, &other));
        assert_eq!(pulls.advance(0, &mut turn, &pull), None);
        let outcomes = [posts.advance(0, &mut last, &other), pulls.advance(0, &mut turn, &pull)];
        for outcome in outcomes {
            assert_eq!(outcome.expect("all have posted").unwrap_err().class, class);
        }
    }
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
            assert_eq!(members[rank].advance(0, &mut turn, &call).is_some(), rank == 1);
            (rank, turn, call)
        })
        .collect();
    for (rank, mut turn, call) in turns {
        let outcome = members[rank].advance(0, &mut turn, &call).unwrap();
        assert_eq!(outcome.unwrap_err().class, Class::Truncate);
    }
}

#[test]
fn slots_of_which_one_is_nowhere_are_not_attached() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 16 << 20 }).unwrap();
    let mut sets = FlatSets::new(segment, false, Bounds::pulling_above(u64::MAX));
    assert_eq!(sets.attach(0, &[0, 1], &[64, NO_SLOTS as i64]), Ok(None));
    for wrong in [1 << 40 | 20, 64, 64 | 13, 64 | 21, 64 | 63] {
        assert!(sets.attach(0, &[0, 1], &[64 | 20, wrong]).is_err(), "{wrong:#x}");
    }
}

/// Who has made many slots has less room in the next ones, and then so have all members.
#[test]
fn the_least_room_counts() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 256 << 20 }).unwrap();
    let [mut many, mut few] =
        [0, 1].map(|_| FlatSets::new(segment.clone(), false, Bounds::pulling_above(u64::MAX)));
    let mut memory = [0, 1].map(|rank| Allocator::new(segment.arena(rank).unwrap()));
    for sets in 1..=65 {
        let rooms = [many.new_slots(&mut memory[0], &[]) as i64, few.new_slots(&mut memory[1], &[]) as i64];
        if sets > 1 && sets < 65 {
            few.left.push((rooms[1] as u64, 0));
            continue;
        }
        let slots = few.attach(1, &[0, 1], &rooms).unwrap().unwrap();
        assert!(few.has_room(slots, &short(Bcast, 0, LESS_BYTES_MAX)));
        assert_eq!(few.has_room(slots, &short(Bcast, 0, BYTES_MAX)), sets == 1);
    }
}

/// What a member knows of shared cpus may change; all go by what they have told each other, for these slots only.
#[test]
fn members_cut_alike_and_say_anew_what_they_know() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 16 << 20 }).unwrap();
    let mut sets = [0, 1].map(|_| FlatSets::new(segment.clone(), false, Bounds::pulling_above(0)));
    let mut memory = [0, 1].map(|rank| Allocator::new(segment.arena(rank).unwrap()));
    for (spins, flat_max) in
        [([1, 0], CROWDED_FLAT_MAX), ([1, 1], FLAT_MAX), ([0, 1], CROWDED_FLAT_MAX), ([1, 1], FLAT_MAX)]
    {
        let rooms = [0, 1].map(|rank| {
            segment.job().spin_allowed.store(spins[rank], Ordering::Relaxed);
            sets[rank].new_slots(&mut memory[rank], &[]) as i64
        });
        let attached = [0, 1].map(|rank| sets[rank].attach(rank, &[0, 1], &rooms).unwrap().unwrap());
        for rank in [0, 1] {
            assert_eq!(sets[rank].flat_max(attached[rank]), flat_max);
            sets[rank].leave(attached[rank]);
        }
    }
}

// Goal: where nobody has measured, blocks are pulled once messages have shown that the kernel copies faster, wherever they have shown anything.
#[test]
fn messages_show_whether_to_pull() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
    let bounds = Bounds { inline_bytes_max: Bounds::PROBED, near_bytes_max: 0, is_probed: true };
    let show = |distance, [cells, read]: [u64; 2]| {
        let (probes, at) = (Probes(&segment.job().probes), (distance, Load::Exchange, 4));
        for _ in 0..4 {
            probes.record(at, Way::Cells, cells);
            probes.record(at, Way::Read, read);
        }
    };
    assert!(!bounds.wants_pulls(&segment), "nothing is known");
    show(Distance::L3, [100, 50]);
    assert!(bounds.wants_pulls(&segment));
    show(Distance::Far, [50, 50]);
    assert!(!bounds.wants_pulls(&segment), "some cores are as fast without");
    assert!(
        Bounds::pulling_above(8).wants_pulls(&segment)
            && !Bounds::pulling_above(u64::MAX).wants_pulls(&segment)
    );
}
