// SPDX-License-Identifier: BSD-3-Clause
//! Tests of sets of slots with several members in one process: every collective, several calls under way at
//! once, members at their own pace, members that disagree. Here two members take turns in one thread; in
//! `flat_team_tests.rs` the members are threads.

#[path = "flat_team_tests.rs"]
mod team;

use super::*;
use crate::attach::{Location, SMALL_SLOT_BYTES_MAX};
use crate::call::CollBuffer;
use crate::pull::Pull;
use crate::queue::{CallQueue, QueueState, QueueTicket, QueuedCall};
use crate::round::COMBINED_BYTES;
use crate::set::ActiveRound;
use crate::short::{BYTES_MAX, CROWDED_FLAT_MAX, FLAT_MAX, FlatAllreduce, Short, ShortPhase};
use Collective::*;
use datatype::{Basic, Buffer, PredefinedOp};
use error::Class;
use schedule::algorithm::Collective;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::Block;

use transport::shm::{Allocator, Shape};
use tuning::{Distance, Load, Method, Probes};

/// The longest block, in bytes, that goes through slots in these tests. It is short, so that blocks that are
/// read from the sender's memory are common, too.
const INLINE_BYTES_MAX: u64 = 160;
/// How many turns of a waiting loop may bring no progress until a test takes the other members for dead.
const TURNS_MAX: u32 = 20_000_000;
const SUM: Option<(PredefinedOp, Basic)> = Some((PredefinedOp::Sum, Basic::F64));
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

/// Returns the word at index `at` that a member contributes: a floating-point number between 1 and 2 that
/// uses all bits. So a sum of three or more such numbers is rounded, and its bits show the order in which
/// they were added.
fn word(rank: usize, round: u64, at: usize) -> u64 {
    let drawn = (rank as u64 + 3).wrapping_mul(0x9e37_79b9 + round) ^ (at as u64) << 40;
    1f64.to_bits() | drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12
}

/// A buffer of words that belongs to one member of a test.
struct TestWords(Block);

impl TestWords {
    /// Makes a buffer of `many` words, each byte of which is `byte`.
    fn new(many: usize, byte: u8) -> TestWords {
        TestWords(Block::of(&vec![byte; 8 * many]))
    }

    fn of(words: &[u64]) -> TestWords {
        TestWords(Block::of(words.iter().map(|word| word.to_ne_bytes()).collect::<Vec<_>>().as_flattened()))
    }

    fn len(&self) -> usize {
        self.0.span().bytes() / 8
    }

    fn buffer(&self, from: usize, many: usize) -> Buffer {
        Buffer::from(self.0.span().slice(8 * from, 8 * many))
    }

    fn set(&self, at: usize, word: u64) {
        self.0.span().slice(8 * at, 8).write(&word.to_ne_bytes());
    }

    fn to_vec(&self) -> Vec<u64> {
        self.0.to_vec().as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    }
}

fn short(collective: Collective, root: usize, bytes: u64) -> Short {
    Short { root, bytes, given: bytes, operator: SUM, ..Short::new(collective) }
}

/// Returns a call as the fast path makes it (`FlatAllreduce`), or None if the fast path does not take it.
fn flat(short: &Short) -> Option<FlatAllreduce> {
    let (input, output) = (short.input.contiguous()?, short.output.contiguous()?);
    let is_flat = short.collective == Allreduce && short.root == 0 && short.bytes > 0;
    is_flat.then_some(FlatAllreduce { operator: short.operator?, input, output })
}

/// Makes a blocking call, with all its rounds.
fn blocking(
    sets: &mut FlatSets,
    set: usize,
    call: &mut impl Round,
    mut wait: impl FnMut(&mut FlatSets),
) -> Result<()> {
    loop {
        one_round(sets, set, call, &mut wait)?;
        if !call.next_phase() {
            return Ok(());
        }
    }
}

fn one_round(
    sets: &mut FlatSets,
    set: usize,
    call: &mut impl Round,
    wait: &mut impl FnMut(&mut FlatSets),
) -> Result<()> {
    // Half of the rounds go by the fast path.
    if sets.blocking(set).set.round().is_multiple_of(2) && sets.try_now(set, call, 3).is_some() {
        return Ok(());
    }
    start_and_wait(sets, set, call, wait)
}

fn start_and_wait(
    sets: &mut FlatSets,
    set: usize,
    call: &mut impl Round,
    wait: &mut impl FnMut(&mut FlatSets),
) -> Result<()> {
    let mut active = sets.start_round(set, call);
    loop {
        if let Some(outcome) = sets.advance(set, &mut active, call) {
            return outcome;
        }
        sets.wait(set, true);
        wait(sets);
        sets.wait(set, false);
    }
}

/// Adds a short nonblocking call to a queue.
fn enqueue(sets: &mut FlatSets, queue: usize, short: &Short) -> QueueTicket {
    let QueueState::Attached(attached) = &sets.queues.queues[queue].state else {
        unreachable!("it is attached")
    };
    let flat = attached.flat_short(short.clone()).expect("there is space");
    let queued = QueuedCall::flat(flat, || unreachable!("a short call is whole"));
    sets.queues.push(queue, queued, &mut sets.memory, &mut no_schedule)
}

fn poll(sets: &mut FlatSets) {
    sets.queues.poll(&mut sets.memory, &mut no_schedule);
}

/// Waits until a nonblocking call has ended, and returns its outcome.
fn finish(sets: &mut FlatSets, ticket: QueueTicket) -> Result<()> {
    for _ in 0..TURNS_MAX {
        if let Some(outcome) = sets.queues.outcome(ticket, &mut no_schedule) {
            return outcome;
        }
        poll(sets);
        std::thread::yield_now();
    }
    panic!("no other member moves");
}

/// Stands in for the function that returns the outcome of a schedule. No short call leaves anything to a
/// schedule, so it must not be called.
fn no_schedule(_: executor::InstanceTicket) -> Option<Result<()>> {
    unreachable!("a schedule of a short call")
}

/// Makes a call with blocks of `block` words at member `rank`, and fills its input. Returns the call, and the
/// words that must be in its output when it has ended.
fn call(
    (collective, root, block): (Collective, usize, usize),
    (rank, round, size): (usize, u64, usize),
    (out, into): (&TestWords, &TestWords),
) -> (Short, Vec<u64>) {
    (0..out.len()).for_each(|at| out.set(at, word(rank, round, at)));
    let (here, all, mine) = (rank == root, size * block, rank * block..(rank + 1) * block);
    let of = |rank: usize, words: &Range<usize>| -> Vec<u64> {
        words.clone().map(|at| word(rank, round, at)).collect()
    };
    let of_all = |words: &Range<usize>| -> Vec<u64> { (0..size).flat_map(|rank| of(rank, words)).collect() };
    let sum = |ranks: usize, words: &Range<usize>| -> Vec<u64> {
        // This is the definition of `schedule::CombineOrder::InRanks`, with which the verifier compares
        // schedules.
        let given = |rank, at| f64::from_bits(word(rank, round, at));
        let add = |at| (1..ranks).fold(given(0, at), |sum, rank| sum + given(rank, at));
        words.clone().map(|at| add(at).to_bits()).collect()
    };
    let whole = 0..block;
    let (given, wanted, expected) = match collective {
        Bcast if here => (block, 0, vec![]),
        Bcast => (0, block, of(root, &whole)),
        Gather | Reduce if !here => (block, 0, vec![]),
        Gather | Allgather => (block, all, of_all(&whole)),
        Scatter => (if here { all } else { 0 }, block, of(root, &mine)),
        Alltoall => (all, all, of_all(&mine)),
        Reduce | Allreduce => (block, block, sum(size, &whole)),
        ReduceScatterBlock => (all, block, sum(size, &mine)),
        Scan => (block, block, sum(rank + 1, &whole)),
        Exscan => (block, block, if rank == 0 { vec![] } else { sum(rank, &whole) }),
        _ => (0, 0, vec![]),
    };
    let scatters = collective == ReduceScatterBlock;
    let bytes = 8 * if scatters { all } else { given.max(wanted).min(block) } as u64;
    let part = if scatters { 8 * mine.start..8 * mine.end } else { 0..8 * block };
    let (input, output) = (out.buffer(0, given), into.buffer(0, wanted));
    (Short { input, output, part, ..short(collective, root, bytes) }, expected)
}

/// Makes two members of a set of slots in one process.
fn pair() -> [FlatSets; 2] {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 16 << 20 }).unwrap();
    let mut members = [0, 1].map(|rank| {
        (
            Allocator::new(segment.arena(segment.require(rank).unwrap()).unwrap(), 16 << 20),
            FlatSets::new(segment.clone(), false, Bounds::pulling_above(u64::MAX)),
        )
    });
    let mut exchange = || members.each_mut().map(|(memory, sets)| sets.memory.alloc(memory, &[]).0 as i64);
    let (blocking, queued) = (exchange(), exchange());
    members.iter_mut().enumerate().for_each(|(rank, (_, sets))| {
        assert_eq!(sets.attach(rank, &[0, 1], &blocking).unwrap(), Some(0));
        let attached = sets.memory.attach(rank, &[0, 1], &queued).unwrap().unwrap();
        assert_eq!(sets.queues.queues.insert(CallQueue::new(QueueState::Attached(attached))), 0);
    });
    members.map(|(_, sets)| sets)
}

/// Goal: a waiting rank knows whether a member that it waits for may need this cpu, so that it yields. A
/// member may be on any cpu until it has waited.
#[test]
fn a_call_knows_where_those_are_that_it_waits_for() {
    let [mut fast, mut slow] = pair();
    let mut call = short(Barrier, 0, 0);
    let needed = |sets: &FlatSets| [0, 1].map(|cpu| sets.blocking(0).set.may_need_cpu(cpu));
    let mut active = fast.start_round(0, &call);
    assert_eq!(fast.advance(0, &mut active, &mut call), None);
    assert_eq!(needed(&fast), [true, true]);
    fast.memory.segment.rank(fast.memory.segment.require(1).unwrap()).wait_on(1);
    assert_eq!(needed(&fast), [false, true]);
    let mut last = slow.start_round(0, &call);
    assert_eq!(slow.advance(0, &mut last, &mut call), Some(Ok(())));
    assert_eq!(needed(&fast), [false, false], "it has come");
    assert_eq!(fast.advance(0, &mut active, &mut call), Some(Ok(())));
}

/// A call that did not end at once continues as the same call, whether it succeeds or fails.
#[test]
fn a_call_that_was_tried_goes_on() {
    let [mut fast, mut slow] = pair();
    let (barrier, other) = (short(Barrier, 0, 0), short(Allgather, 0, 0));
    for (theirs, ends_well) in [(&barrier, true), (&other, false)] {
        assert_eq!(fast.try_now(0, &mut barrier.clone(), 5), None, "no other member has come");
        let last = slow.try_now(0, &mut theirs.clone(), 5);
        assert_eq!(last.is_some(), ends_well);
        let mut active = fast.start_round(0, &barrier);
        assert!(active.posted);
        let outcome = fast.advance(0, &mut active, &mut barrier.clone()).expect("the other has come");
        assert_eq!(outcome.is_ok(), ends_well);
        assert_eq!(fast.blocking(0).set.round(), slow.blocking(0).set.round());
    }
    let mut active = slow.start_round(0, &other);
    assert_eq!(slow.advance(0, &mut active, &mut other.clone()).map(|outcome| outcome.is_err()), Some(true));
}

/// No member writes into a slot that another member has not read yet.
#[test]
fn no_member_is_two_rounds_ahead() {
    let [mut fast, mut slow] = pair();
    let words = TestWords::of(&[1, 2, 3, 0]);
    let spread = |at: usize, to: bool| {
        let mut call = short(Bcast, 0, 8);
        *(if to { &mut call.output } else { &mut call.input }) = words.buffer(at, 1);
        call
    };
    for round in 0..2 {
        let calls = [0, 1, 2].map(|at| spread(at, false));
        let (call, next) = (&mut calls[round].clone(), &mut calls[2].clone());
        let read = &mut spread(3, true);
        let mut active = fast.start_round(0, call);
        assert_eq!(
            fast.advance(0, &mut active, call),
            (round == 0).then_some(Ok(())),
            "no member has begun the first"
        );
        if round == 0 {
            continue;
        }
        let mut first = slow.start_round(0, read);
        assert_eq!(slow.advance(0, &mut first, read), Some(Ok(())));
        assert_eq!(fast.advance(0, &mut active, call), Some(Ok(())));
        let mut third = fast.start_round(0, next);
        assert_eq!(fast.advance(0, &mut third, next), None, "the second has not been read");
        let mut second = slow.start_round(0, read);
        assert_eq!(slow.advance(0, &mut second, read), Some(Ok(())));
        assert_eq!(words.to_vec()[3], 2);
        assert_eq!(fast.advance(0, &mut third, next), Some(Ok(())));
    }
}

/// A long vector is summed in blocks, in place or not, whether the call blocks or not.
#[test]
fn a_long_vector_takes_two_rounds() {
    // The blocks of the longer vectors are combined in several steps.
    let many = [(1 << 13) + 1, BYTES_MAX as usize / 8];
    assert!(BYTES_MAX as usize / 2 > COMBINED_BYTES);
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    for (words, (in_place, queued)) in many.into_iter().flat_map(|words| kinds.map(|kind| (words, kind))) {
        let mut members = pair();
        let times = |factor: u64| (0..words as u64).map(|at| at * factor).collect::<Vec<_>>();
        let out = [7, 8].map(|factor| TestWords::of(&times(factor)));
        let into =
            [0, 1].map(|rank| TestWords::of(&if in_place { out[rank].to_vec() } else { vec![0; words] }));
        let calls = [0, 1].map(|rank| {
            let mut call = short(Allreduce, 0, 8 * words as u64);
            call.output = into[rank].buffer(0, words);
            call.input = if in_place { call.output.clone() } else { out[rank].buffer(0, words) };
            call.in_place = in_place;
            assert!(crate::carrier::slots::fits(call.collective, call.bytes, 2));
            call
        });
        if queued {
            let tickets = [0, 1].map(|rank| enqueue(&mut members[rank], 0, &calls[rank]));
            // Each member posts, then adds and posts, then gathers.
            for rank in [0, 1, 0] {
                poll(&mut members[rank]);
            }
            assert_eq!(
                [0, 1].map(|rank| members[rank].queues.outcome(tickets[rank], &mut no_schedule)),
                [Some(Ok(())), Some(Ok(()))]
            );
        } else {
            let mut calls = calls;
            calls.iter_mut().enumerate().for_each(|(rank, call)| call.choose_rounds(rank, 2, FLAT_MAX));
            for has_next in [true, false] {
                let mut active = [0, 1].map(|rank| members[rank].start_round(0, &calls[rank]));
                assert_eq!(members[0].advance(0, &mut active[0], &mut calls[0]), None);
                for rank in [1, 0] {
                    let outcome = members[rank].advance(0, &mut active[rank], &mut calls[rank]);
                    assert_eq!(outcome, Some(Ok(())));
                    assert_eq!(calls[rank].next_phase(), has_next);
                }
            }
        }
        assert!(into.iter().all(|sums| sums.to_vec() == times(15)));
    }
}

/// Returns the error class that each of two members gets from a round in which they make different calls.
fn disagree(calls: [(Collective, usize, u64); 2]) -> [Option<Class>; 2] {
    let mut members = pair();
    let words = [0, 1].map(|_| TestWords::new(2, 0));
    let mut started = [0, 1].map(|rank| {
        let (collective, root, bytes) = calls[rank];
        let mut call = short(collective, root, bytes);
        call.output = words[rank].buffer(0, bytes as usize / 8);
        (call.input, call.in_place) = (call.output.clone(), true);
        call.part = 0..bytes as usize;
        let mut active = members[rank].start_round(0, &call);
        let _ = members[rank].advance(0, &mut active, &mut call);
        (active, call)
    });
    // A member that has its answer gets the same answer again.
    let again = |rank: usize| {
        let (active, call) = &mut started[rank];
        members[rank].advance(0, active, call).expect("all have posted")
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

/// Goal: members with different settings, of which only one reads the other's memory, both get an error.
/// Where only lengths differ, the error names the lengths.
#[test]
fn members_of_which_one_pulls_are_told() {
    for (bytes, class) in [(8, Class::Other), (16, Class::Truncate)] {
        let [mut pulls, mut posts] = pair();
        let words = [0, 1].map(|_| TestWords::new(4, 0));
        let [one, mut other] = [(0, 8), (1, bytes)].map(|(rank, bytes): (usize, u64)| {
            let output = words[rank].buffer(0, bytes as usize / 4);
            Short { input: output.clone(), output, in_place: true, ..short(Alltoall, 0, bytes) }
        });
        let mut pull = Pull::new(&one, &pulls.memory.segment);
        let (mut active, mut last) = (pulls.start_round(0, &pull), posts.start_round(0, &other));
        assert_eq!(pulls.advance(0, &mut active, &mut pull), None);
        let outcomes = [posts.advance(0, &mut last, &mut other), pulls.advance(0, &mut active, &mut pull)];
        for outcome in outcomes {
            assert_eq!(outcome.expect("all have posted").unwrap_err().class, class);
        }
    }
}

/// Goal: a call gives the right result although one member's memory cannot be read; later calls do not try to
/// read it.
#[test]
fn blocks_that_cannot_be_read_go_through_slots() {
    for (collective, in_place) in [(Alltoall, false), (Alltoall, true), (Allgather, false)] {
        let [mut one, mut two] = pair();
        // No process has this number.
        let page = one.memory.segment.rank(one.memory.segment.require(1).unwrap());
        page.pid.store(i32::MAX as u32, Ordering::Relaxed);
        for round in 0..2 {
            // The block has several pieces, of which the last is shorter.
            let block = 2 * one.blocking(0).set.contribution_max() / 8 + 5;
            let memory = [0, 1].map(|_| (TestWords::new(2 * block, 0), TestWords::new(2 * block, 0xff)));
            let calls = [0, 1].map(|rank| {
                let (out, into) = (&memory[rank].0, &memory[rank].1);
                let (mut call, expected) = call((collective, 0, block), (rank, round, 2), (out, into));
                if in_place {
                    (call.in_place, call.output) = (true, call.input.clone());
                }
                (Pull::new(&call, &one.memory.segment), expected)
            });
            let [(mut first, first_words), (mut second, second_words)] = calls;
            let (mut here, mut there) = (Some(one.start_round(0, &first)), Some(two.start_round(0, &second)));
            for _ in 0..100 {
                turn(&mut one, &mut here, &mut first);
                turn(&mut two, &mut there, &mut second);
            }
            assert!(here.is_none() && there.is_none(), "they do not end");
            for ((out, into), expected) in memory.iter().zip([first_words, second_words]) {
                assert!(if in_place { out } else { into }.to_vec() == expected, "{collective:?} {in_place}");
            }
            assert!(one.blocking(0).set.reads_fail.get() && two.blocking(0).set.reads_fail.get());
        }
    }
}

/// Advances a pulled call as far as possible. Sets `active` to None when the call is over.
fn turn(sets: &mut FlatSets, active: &mut Option<ActiveRound>, call: &mut Pull) {
    while let Some(mut now) = active.take() {
        match sets.advance(0, &mut now, call) {
            None => return *active = Some(now),
            Some(outcome) => assert_eq!(outcome, Ok(())),
        }
        *active = call.next_phase().then(|| sets.start_round(0, call));
    }
}

/// Goal: if one member gives blocks of another length than the others expect, all members fail.
#[test]
fn blocks_of_two_lengths_are_told() {
    let mut members = pair();
    let words = TestWords::new(8, 0);
    let started: Vec<_> = [1, 2]
        .iter()
        .enumerate()
        .map(|(rank, given)| {
            let (send, recv) = (words.buffer(0, *given), words.buffer(4, 2));
            let call = Call::new(Allgather, CollBuffer::bytes(send), CollBuffer::PerRank(recv));
            let mut call = Short::of(&call, rank, 2).unwrap();
            let mut active = members[rank].start_round(0, &call);
            assert_eq!(members[rank].advance(0, &mut active, &mut call).is_some(), rank == 1);
            (rank, active, call)
        })
        .collect();
    for (rank, mut active, mut call) in started {
        let outcome = members[rank].advance(0, &mut active, &mut call).unwrap();
        assert_eq!(outcome.unwrap_err().class, Class::Truncate);
    }
}

#[test]
fn slots_of_which_one_is_nowhere_are_not_attached() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 16 << 20 }).unwrap();
    let mut sets = FlatSets::new(segment, false, Bounds::pulling_above(u64::MAX));
    assert_eq!(sets.attach(0, &[0, 1], &[64, Location::NONE.0 as i64]), Ok(None));
    for wrong in [1 << 40 | 20, 64, 64 | 13, 64 | 21, 64 | 63] {
        assert!(sets.attach(0, &[0, 1], &[64 | 20, wrong]).is_err(), "{wrong:#x}");
    }
}

/// Goal: a member that has allocated many slots allocates smaller ones, and then all members use the smaller
/// size.
#[test]
fn the_least_space_counts() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 256 << 20 }).unwrap();
    let [mut many, mut few] =
        [0, 1].map(|_| FlatSets::new(segment.clone(), false, Bounds::pulling_above(u64::MAX)));
    let mut memory =
        [0, 1].map(|rank| Allocator::new(segment.arena(segment.require(rank).unwrap()).unwrap(), 16 << 20));
    for sets in 1..=65 {
        let locations =
            [many.memory.alloc(&mut memory[0], &[]).0 as i64, few.memory.alloc(&mut memory[1], &[]).0 as i64];
        if sets > 1 && sets < 65 {
            few.memory.left.push((Location(locations[1] as u64), 0));
            continue;
        }
        let set = few.attach(1, &[0, 1], &locations).unwrap().unwrap();
        let has_space = |bytes| few.blocking(set).space.moves(Bcast, bytes, 2).is_some();
        assert!(has_space(SMALL_SLOT_BYTES_MAX));
        assert_eq!(has_space(BYTES_MAX), sets == 1);
    }
}

/// Goal: members that know different things about shared cpus divide vectors alike, by what they have
/// exchanged for the set. A later set may have other values.
#[test]
fn members_cut_alike_and_say_anew_what_they_know() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 16 << 20 }).unwrap();
    let mut sets = [0, 1].map(|_| FlatSets::new(segment.clone(), false, Bounds::pulling_above(0)));
    let mut memory =
        [0, 1].map(|rank| Allocator::new(segment.arena(segment.require(rank).unwrap()).unwrap(), 16 << 20));
    for (spins, flat_max) in
        [([1, 0], CROWDED_FLAT_MAX), ([1, 1], FLAT_MAX), ([0, 1], CROWDED_FLAT_MAX), ([1, 1], FLAT_MAX)]
    {
        let locations = [0, 1].map(|rank| {
            segment.job().spin_allowed.store(spins[rank], Ordering::Relaxed);
            sets[rank].memory.alloc(&mut memory[rank], &[]).0 as i64
        });
        let attached = [0, 1].map(|rank| sets[rank].attach(rank, &[0, 1], &locations).unwrap().unwrap());
        for rank in [0, 1] {
            assert_eq!(sets[rank].blocking(attached[rank]).flat_max, flat_max);
            sets[rank].leave(attached[rank]);
        }
    }
}

// Goal: without a measurement, blocks are pulled once messages have shown that the kernel copies faster,
// wherever they have shown anything.
#[test]
fn messages_show_whether_to_pull() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
    let bounds = Bounds { inline_bytes_max: Bounds::PROBED, near_bytes_max: 0, is_probed: true };
    let show = |distance, [cells, read]: [u64; 2]| {
        let (probes, at) = (Probes(&segment.job().probes), (distance, Load::Exchange, 4));
        for _ in 0..4 {
            probes.record(at, Method::Cells, cells);
            probes.record(at, Method::Read, read);
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
