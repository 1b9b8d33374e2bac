// SPDX-License-Identifier: BSD-3-Clause
//! Tests of a set's rounds under every interleaving and every stale read that the memory model allows.
//!
//! The words of arenas are loom's here (`transport/src/shm/arena.rs`). Contributions lie in loom's cells,
//! which report a read that is not ordered after its write, and a write to a slot that is still read.

use super::*;
use crate::attach::Location;
use crate::set::{BESIDE_MAX, CROSSED_MIN};
use crate::word::{LENGTH_MAX, facts, with_length};
use error::Error;
use loom::cell::Cell;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use schedule::algorithm::Collective;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use sys::Span;
use transport::shm::{Allocator, Shape};

/// How often a member may look without success in one call of a run. After more looks, the rest of the run
/// goes in one order only. The other orders differ in little but the number of looks, and with three members
/// they would never end.
const FAILED_LOOKS_MAX: u32 = 1;

/// Which members each member waits for in a call of a test, and what they exchange.
#[derive(Clone, Copy)]
enum Needs {
    All,
    /// The members wait for this root only. The root waits for nobody, and may run ahead of the others.
    Root(usize),
    /// Each member waits for all others, and gives each of them a number of its own.
    Pairs,
    /// Members exchange numbers as in `Pairs`, and each leaves an answer in the slot from which it took a
    /// number.
    Asked,
    /// The round after `Asked`: all members take the answers.
    Answered,
}
use Needs::*;

loom::lazy_static! {
    /// A cell for the contents of each place in a slot, by address. It is made when a member of this run
    /// first uses the place.
    static ref CELLS: Mutex<BTreeMap<usize, Arc<Cell<u64>>>> = Mutex::default();
}

/// Returns the cell for the contents of the memory at the start of `place`.
fn cell(place: Span) -> Arc<Cell<u64>> {
    let mut all = CELLS.lock().expect("no run goes on after a panic");
    all.entry(place.address()).or_insert_with(|| Arc::new(Cell::new(0))).clone()
}

/// A call of a test in which each member contributes a number. A member's number lies in its slot: beside the
/// slot's word, or in the memory for longer contributions.
struct NumberCall {
    needs: Needs,
    /// The call's number, which no other call of a run has.
    number: u64,
}

impl NumberCall {
    /// Returns the length that member `rank` states for its contribution. It decides where in the slot the
    /// contribution lies.
    fn bytes(&self, rank: usize) -> u64 {
        if (self.number + rank as u64).is_multiple_of(2) { BESIDE_MAX } else { BESIDE_MAX + 1 }
    }

    /// Returns the cell in which member `from` leaves its number for member `to` in an all-to-all.
    fn passage(&self, set: &FlatSet, from: usize, to: usize) -> Arc<Cell<u64>> {
        cell(set.passage(from, to, blocks_bytes(set)))
    }

    /// Returns the cell of the number for member `to` in a slot.
    fn block(&self, slot: Span, to: usize) -> Arc<Cell<u64>> {
        cell(slot.slice(BLOCK_BYTES * to, BLOCK_BYTES))
    }

    fn number_for(&self, from: usize, to: usize) -> u64 {
        self.number << 16 | (from << 8 | to) as u64
    }
}

/// The length of a block in bytes. The blocks of two members are together long enough (`CROSSED_MIN`) to go
/// into the receivers' slots.
const BLOCK_BYTES: usize = CROSSED_MIN as usize / 2;

/// Returns the total length in bytes of a member's blocks for all members.
fn blocks_bytes(set: &FlatSet) -> u64 {
    (BLOCK_BYTES * set.size()) as u64
}

impl Round for NumberCall {
    const MINE: u64 = LENGTH_MAX;

    fn facts(&self) -> u64 {
        let name = match self.needs {
            Asked | Answered => Collective::Allreduce,
            _ => Collective::Bcast,
        };
        facts(name, 0, 0)
    }

    fn put(&mut self, set: &FlatSet, word: u64) -> u64 {
        let me = set.rank();
        match self.needs {
            All | Root(_) => {
                let bytes = self.bytes(me);
                cell(set.contribution(me, bytes)).set(self.number << 8 | me as u64);
                return with_length(word, bytes);
            }
            Pairs => set.others().for_each(|to| self.passage(set, me, to).set(self.number_for(me, to))),
            Asked => {
                let slot = set.contribution(me, blocks_bytes(set));
                set.others().for_each(|to| self.block(slot, to).set(self.number_for(me, to)));
            }
            Answered => (),
        }
        word
    }

    fn needs(&self, rank: usize, members: usize) -> Range<usize> {
        match self.needs {
            All | Pairs | Asked | Answered => 0..members,
            Root(root) if root == rank => 0..0,
            Root(root) => root..root + 1,
        }
    }

    fn take(&mut self, set: &FlatSet) -> Result<()> {
        let me = set.rank();
        match self.needs {
            All | Root(_) => {
                for rank in self.needs(me, set.size()) {
                    let bytes = self.bytes(rank);
                    assert_eq!(cell(set.contribution(rank, bytes)).get(), self.number << 8 | rank as u64);
                    assert_eq!(set.facts_of(rank) & LENGTH_MAX, bytes);
                }
            }
            Pairs => {
                for from in set.others() {
                    assert_eq!(self.passage(set, from, me).get(), self.number_for(from, me));
                }
            }
            Asked => {
                for from in set.others() {
                    let cell = self.block(set.contribution(from, blocks_bytes(set)), me);
                    assert_eq!(cell.get(), self.number_for(from, me));
                    cell.set(self.number);
                }
            }
            Answered => {
                let slot = set.last_contribution(blocks_bytes(set));
                set.others().for_each(|from| assert_eq!(self.block(slot, from).get(), self.number - 1));
            }
        }
        Ok(())
    }

    fn disagreement(&self, _: &FlatSet, rank: usize, word: u64) -> Error {
        panic!("in call {} rank {rank} has the word {word:#x}", self.number)
    }
}

/// The shared memory of the simulated job, and the allocator of each rank's arena. All runs of a test use the
/// same, since to map memory takes longer than a run.
struct Arenas {
    segment: Segment,
    allocators: Vec<Arc<Mutex<Allocator>>>,
}

impl Arenas {
    fn new(ranks: u32) -> Arenas {
        let segment = Segment::create(Shape { ranks, proxies: 0, arena_bytes: 16 << 20 }).unwrap().0;
        let allocator = |rank| Allocator::new(segment.arena(rank).unwrap(), 16 << 20);
        let allocators = segment.places().map(|rank| Arc::new(Mutex::new(allocator(rank)))).collect();
        Arenas { segment, allocators }
    }

    /// Returns the process of a rank, which has allocated nothing yet.
    fn process(&self, rank: u32) -> LoomProcess {
        let memory = self.allocators[rank as usize].clone();
        let sets = FlatSets::new(self.segment.clone(), false, Bounds::pulling_above(u64::MAX));
        LoomProcess { rank, memory, allocated: BTreeSet::new(), sets }
    }
}

/// A process of the simulated job: its rank, the allocator of its arena, the offsets that it has allocated
/// there, and its sets of slots.
struct LoomProcess {
    rank: u32,
    memory: Arc<Mutex<Allocator>>,
    allocated: BTreeSet<u64>,
    sets: FlatSets,
}

/// The process frees its slots, so that the next run finds the arena as this run has found it.
impl Drop for LoomProcess {
    fn drop(&mut self) {
        let mut memory = self.memory.lock().expect("no run goes on after a panic");
        self.allocated.iter().for_each(|offset| assert!(memory.free(*offset)));
    }
}

impl LoomProcess {
    fn alloc_slots(&mut self) -> Location {
        let location = self.sets.memory.alloc(&mut self.memory.lock().unwrap(), &[]);
        self.allocated.insert(location.offset());
        location
    }

    /// Makes the calls `calls` on a comm of the processes `peers`, whose slots lie at `locations`. The first
    /// call has the number `first`. Then frees the comm.
    fn call(&mut self, peers: &[u32], locations: &[Location], first: u64, calls: &[Needs]) {
        let (me, sets) = (self.rank, &mut self.sets);
        let rank = peers.iter().position(|peer| *peer == me).unwrap();
        let words: Vec<_> = locations.iter().map(|location| location.0 as i64).collect();
        let set = sets.attach(rank, peers, &words).unwrap().unwrap();
        for (number, needs) in (first..).zip(calls) {
            let mut call = NumberCall { needs: *needs, number };
            let (mut active, mut failed_looks) = (sets.start_round(set, &call), 0);
            while sets.advance(set, &mut active, &mut call).is_none() {
                failed_looks += 1;
                if failed_looks > FAILED_LOOKS_MAX {
                    loom::skip_branch();
                }
                thread::yield_now();
            }
        }
        sets.leave(set);
    }
}

/// Runs `run` in every order of its threads in which at most `preemptions` switches from one thread to
/// another are forced.
fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// Lets `members` threads make these calls, each at its own pace, in every order that `explore` tries. Each
/// call checks what its member gets.
fn check(members: u32, preemptions: usize, calls: &'static [Needs]) {
    let arenas = Arenas::new(members);
    explore(preemptions, move || {
        let mut all: Vec<_> = (0..members).map(|rank| arenas.process(rank)).collect();
        let locations: Vec<_> = all.iter_mut().map(LoomProcess::alloc_slots).collect();
        let peers: Vec<_> = (0..members).collect();
        let shared = Arc::new((peers, locations));
        let mut runs = all.into_iter().map(|mut process| {
            let shared = shared.clone();
            move || process.call(&shared.0, &shared.1, 1, calls)
        });
        let mut first = runs.next().unwrap();
        let others: Vec<_> = runs.map(thread::spawn).collect();
        first();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn loom_two_members_that_need_each_other() {
    check(2, 4, &[All; 5]);
}

#[test]
fn loom_two_members_of_which_one_runs_ahead() {
    check(2, 4, &[Root(0), Root(0), Root(0), All, Root(1), Root(1), Root(0)]);
}

/// Members write into each other's slots in the second and third rounds of four, but not into slots that are
/// still read.
#[test]
fn loom_two_members_that_use_each_others_slots() {
    check(2, 4, &[All, Pairs, Pairs, All, Pairs]);
    check(2, 4, &[Pairs, Asked, Answered, Pairs]);
    check(2, 4, &[Asked, Answered, Pairs, Asked, Answered, Pairs]);
}

#[test]
fn loom_three_members_that_use_each_others_slots() {
    check(3, 2, &[Pairs; 3]);
    check(3, 2, &[Asked, Answered, Pairs]);
}

#[test]
fn loom_three_members_that_need_each_other() {
    check(3, 2, &[All; 3]);
}

#[test]
fn loom_three_members_of_which_some_run_ahead() {
    check(3, 2, &[Root(0), Root(0), All, Root(1), Root(1)]);
}

/// Process 0 shares slots with one other process, then with another, then with none. The other processes may
/// still be in earlier calls.
#[test]
fn loom_slots_are_used_again_only_after_all_have_left() {
    const SHARED: [&[u32]; 2] = [&[0, 1], &[0, 2]];
    let seen = Arc::new(Mutex::new([[false; 2]; 2]));
    let used_again = seen.clone();
    let arenas = Arenas::new(3);
    explore(2, move || {
        let [mut zero, mut one, mut two] = [0, 1, 2].map(|rank| arenas.process(rank));
        let locations = [&mut zero, &mut one, &mut two].map(LoomProcess::alloc_slots);
        let stated = Arc::new(AtomicU64::new(0));
        let others = [
            thread::spawn(move || one.call(SHARED[0], &locations[..2], 1, &[Root(0)])),
            thread::spawn({
                let stated = stated.clone();
                move || {
                    let mut location = 0;
                    while location == 0 {
                        thread::yield_now();
                        location = stated.load(Ordering::Acquire);
                    }
                    two.call(SHARED[1], &[Location(location), locations[2]], 2, &[Root(0), Root(0)]);
                }
            }),
        ];
        zero.call(SHARED[0], &locations[..2], 1, &[Root(0)]);
        let second = zero.alloc_slots();
        stated.store(second.0, Ordering::Release);
        zero.call(SHARED[1], &[second, locations[2]], 2, &[Root(0), Root(0)]);
        let third = zero.alloc_slots();
        zero.call(&[0], &[third], 4, &[All, All]);
        let mut seen = seen.lock().unwrap();
        seen[0][usize::from(second == locations[0])] = true;
        seen[1][usize::from(third == second)] = true;
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    assert_eq!(*used_again.lock().unwrap(), [[true; 2]; 2], "no run, or each, has used slots again");
}
