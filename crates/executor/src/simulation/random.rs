// SPDX-License-Identifier: BSD-3-Clause
//! Tests of random jobs: several comms with many operations at once. Ranks execute some of the operations,
//! and proxies, which may die, execute the others.

use super::plans::{KINDS, Plan};
use super::seeds::seeds;
use super::{Home, Job};
use crate::{Binding, Config, Cut, InstanceTicket, Offload, Poll, Reduction, Start};
use datatype::{Basic, Buffer, PredefinedOp};
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use schedule::Schedule;
use std::collections::HashMap;
use std::sync::Arc;
use transport::shm::State;

const HOMES: [Home; 4] = [Home::Private, Home::Arena, Home::Gaps, Home::ArenaGaps];

/// A comm of a test, with the operations that its members start, in order.
struct Comm {
    context: u64,
    members: Arc<[u32]>,
    operations: Vec<Operation>,
}

struct Operation {
    kind: Plan,
    /// The number of elements (of 4 bytes) in a block.
    elements: usize,
    in_place: bool,
    /// Whether the blocks of the user's data are in separate buffers, and not all in one buffer.
    pieces: bool,
    seed: u64,
}

/// An operation that a member of a comm has started.
struct Started {
    comm: usize,
    operation: usize,
    ticket: InstanceTicket,
    output: Vec<Buffer>,
}

struct Member {
    /// For each comm, the index of the operation that this member starts next.
    next: Vec<usize>,
    started: Vec<Started>,
    finished: usize,
}

struct Simulation {
    rng: SmallRng,
    job: Job,
    comms: Vec<Comm>,
    members: Vec<Member>,
    /// The schedules, by kind of collective, rank in the comm, size of the comm, and rank in the job. Comms
    /// share them.
    schedules: HashMap<(usize, usize, usize, u32), Arc<Schedule>>,
    /// The number of proxies that may still die in this run.
    kills: u32,
    /// Whether the kernel may begin to refuse access to private memory during the run.
    refuses: bool,
}

/// Returns element `index` of the data that the member `member` contributes.
fn element(seed: u64, member: usize, index: usize) -> u32 {
    (seed as u32).wrapping_mul(0x9e37_79b9)
        ^ (member as u32 * 1_000_003 + index as u32).wrapping_mul(0x85eb_ca6b)
}

fn contribution(operation: &Operation, member: usize, elements: usize) -> Vec<u8> {
    (0..elements).flat_map(|index| element(operation.seed, member, index).to_le_bytes()).collect()
}

/// Returns the bytes that an operation must leave in the output buffer of the member `member`.
fn expected(operation: &Operation, member: usize, size: usize) -> Vec<u8> {
    let n = operation.elements;
    let bytes = |word: u32| word.to_le_bytes();
    match operation.kind {
        Plan::Barrier => vec![],
        Plan::Bcast => contribution(operation, 0, n),
        Plan::Message if size > 1 && member + 1 == size => contribution(operation, 0, n),
        Plan::Message => vec![],
        Plan::Allgather => (0..size).flat_map(|from| contribution(operation, from, n)).collect(),
        Plan::Alltoall => (0..size)
            .flat_map(|from| (0..n).flat_map(move |i| bytes(element(operation.seed, from, member * n + i))))
            .collect(),
        Plan::Allreduce => (0..n)
            .flat_map(|i| {
                bytes((0..size).fold(0u32, |sum, from| sum.wrapping_add(element(operation.seed, from, i))))
            })
            .collect(),
    }
}

impl Simulation {
    fn new(seed: u64, kinds: &[Plan], cma_forbidden: bool) -> Simulation {
        let mut rng = SmallRng::seed_from_u64(seed);
        let ranks = rng.random_range(1..=6);
        let config = Config {
            offload: Offload::Auto,
            offload_bytes_min: 0,
            chunk_bytes: *[64, 256, 4096, 1 << 20].choose(&mut rng).unwrap(),
            inline_bytes_max: *[0, 64, 4096].choose(&mut rng).unwrap(),
            programs_max: rng.random_range(2..20),
            idle_bytes_max: rng.random_range(0..100_000),
            ..Config::default()
        };
        let job = Job::new(ranks, rng.random_range(1..=3), &config);
        if cma_forbidden {
            job.segment.job().cma_forbidden.store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let comms: Vec<Comm> = (0..rng.random_range(1..=3))
            .map(|_| {
                let mut members: Vec<u32> = (0..ranks).collect();
                members.shuffle(&mut rng);
                members.truncate(rng.random_range(1..=ranks as usize));
                let operations =
                    (0..rng.random_range(1..=6)).map(|_| Operation::random(&mut rng, kinds)).collect();
                Comm { context: rng.random(), members: members.into(), operations }
            })
            .collect();
        let members = (0..ranks).map(|_| Member { next: vec![0; comms.len()], started: vec![], finished: 0 });
        let members = members.collect();
        Simulation { rng, job, comms, members, schedules: HashMap::new(), kills: 0, refuses: false }
    }

    /// Starts the next operation of a random comm on the rank `rank`.
    fn start(&mut self, rank: u32) {
        let next = &self.members[rank as usize].next;
        let is_open = |comm: &Comm, next| next < comm.operations.len() && comm.members.contains(&rank);
        let open: Vec<usize> =
            (0..self.comms.len()).filter(|&comm| is_open(&self.comms[comm], next[comm])).collect();
        let Some(&comm) = open.choose(&mut self.rng) else { return };
        let index = next[comm];
        let operation = &self.comms[comm].operations[index];
        let peers = self.comms[comm].members.clone();
        let me = peers.iter().position(|&peer| peer == rank).unwrap();
        let size = peers.len();
        // One schedule for each kind, so that blocks are used again.
        let key = (operation.kind as usize, me, size, rank);
        let make = || Arc::new(operation.kind.schedule(me as u32, size as u32));
        let schedule = self.schedules.entry(key).or_insert_with(make).clone();
        let n = operation.elements;
        let memory = &mut self.job.ranks[rank as usize];
        let mut buffers = |data: &[u8], count: usize, rng: &mut SmallRng| -> Vec<Buffer> {
            let count = if operation.pieces { count } else { 1 };
            let bytes = data.len() / count;
            (0..count)
                .map(|i| memory.buffer(&data[i * bytes..][..bytes], *HOMES.choose(rng).unwrap()))
                .collect()
        };
        let rng = &mut self.rng;
        let (input, output) = match operation.kind {
            Plan::Message if size > 1 && me == 0 => (buffers(&contribution(operation, 0, n), 1, rng), vec![]),
            Plan::Message if size > 1 && me + 1 == size => (vec![], buffers(&vec![0xee; 4 * n], 1, rng)),
            Plan::Barrier | Plan::Message => (vec![], vec![]),
            Plan::Bcast => {
                let data = if me == 0 { contribution(operation, 0, n) } else { vec![0xee; 4 * n] };
                (vec![], buffers(&data, 1, rng))
            }
            Plan::Alltoall => {
                let data = contribution(operation, me, size * n);
                (buffers(&data, size, rng), buffers(&vec![0xee; 4 * size * n], size, rng))
            }
            Plan::Allgather => {
                let output = buffers(&vec![0xee; 4 * size * n], size, rng);
                (buffers(&contribution(operation, me, n), 1, rng), output)
            }
            Plan::Allreduce => {
                let input = buffers(&contribution(operation, me, n), 1, rng);
                let output =
                    if operation.in_place { input.clone() } else { buffers(&vec![0xee; 4 * n], 1, rng) };
                (input, output)
            }
        };
        let start = Start {
            context: self.comms[comm].context,
            sequence: index as u32,
            peers,
            input: binding(&input, schedule.input_blocks, n, operation.pieces),
            output: binding(&output, schedule.output_blocks, n, operation.pieces),
            schedule,
            reduction: (operation.kind == Plan::Allreduce).then_some(Reduction::Predefined {
                op: PredefinedOp::Sum,
                basic: Basic::U32,
                element_bytes: 4,
            }),
            offload: *[Offload::Auto, Offload::On, Offload::Off].choose(rng).unwrap(),
            fetched_bytes_min: u64::MAX,
            message: false,
        };
        let ticket = self.job.ranks[rank as usize].executor.start(start).unwrap();
        let member = &mut self.members[rank as usize];
        member.next[comm] += 1;
        member.started.push(Started { comm, operation: index, ticket, output });
    }

    /// Polls a rank, and checks the results of its operations that have ended.
    fn poll(&mut self, rank: u32) {
        let executor = &mut self.job.ranks[rank as usize].executor;
        assert!(!matches!(executor.poll(), Poll::Call(_)));
        let mut at = 0;
        while let Some(started) = self.members[rank as usize].started.get(at) {
            let Some(outcome) = self.job.ranks[rank as usize].executor.outcome(started.ticket) else {
                at += 1;
                continue;
            };
            outcome.unwrap();
            let started = self.members[rank as usize].started.swap_remove(at);
            self.members[rank as usize].finished += 1;
            let comm = &self.comms[started.comm];
            let operation = &comm.operations[started.operation];
            let me = comm.members.iter().position(|&peer| peer == rank).unwrap();
            let memory = &mut self.job.ranks[rank as usize];
            let data: Vec<u8> = started.output.iter().flat_map(|buffer| memory.data(buffer)).collect();
            assert_eq!(
                data,
                expected(operation, me, comm.members.len()),
                "{:?} on rank {rank}",
                operation.kind
            );
        }
    }

    fn turn_proxy(&mut self, kill: bool) {
        let index = self.rng.random_range(0..self.job.proxies.len());
        let proxy = &mut self.job.proxies[index];
        if kill && self.kills > 0 && !proxy.is_dead() && self.rng.random_ratio(1, 20) {
            self.kills -= 1;
            proxy.light_fuse(self.rng.random_range(1..60));
        }
        proxy.poll();
        if proxy.is_dead() && self.rng.random_ratio(1, 10) {
            self.job.segment.proxy(index as u32).set_state(State::Dead);
        }
    }

    /// Chooses a process (a rank or a proxy) and some ranks at random. From then on the kernel refuses that
    /// process access to the private memory of these ranks, even if the process is their proxy.
    fn refuse(&mut self) {
        let ranks: u64 = self.rng.random_range(0..1 << self.members.len());
        let process = self.rng.random_range(0..self.members.len() + self.job.proxies.len());
        match self.job.ranks.get(process) {
            Some(rank) => rank.executor.refuse(ranks, 0),
            None => self.job.proxies[process - self.members.len()].refuse(ranks, 0),
        }
    }

    fn run(&mut self, kill: bool) {
        self.kills = if kill { self.rng.random_range(1..=self.job.proxies.len() as u32) } else { 0 };
        let total = |comm: &Comm| comm.members.len() * comm.operations.len();
        let wanted: usize = self.comms.iter().map(total).sum();
        for _ in 0..400_000 {
            let rank = self.rng.random_range(0..self.members.len() as u32);
            if self.refuses && self.rng.random_ratio(1, 200) {
                self.refuse();
            }
            match self.rng.random_range(0..10) {
                0 => self.start(rank),
                1..5 => self.poll(rank),
                _ => self.turn_proxy(kill),
            }
            if self.members.iter().map(|member| member.finished).sum::<usize>() == wanted {
                return self.check_end();
            }
        }
        panic!("the job hangs");
    }

    /// Checks that no operation and no record is left.
    fn check_end(&self) {
        for (rank, member) in self.job.ranks.iter().enumerate() {
            assert!(!member.executor.is_busy());
            let directory = &self.job.segment.rank(self.job.segment.local(rank as u32).unwrap()).directory;
            assert!(directory.iter().all(|head| head.load(std::sync::atomic::Ordering::Relaxed) == 0));
        }
    }
}

impl Operation {
    fn random(rng: &mut SmallRng, kinds: &[Plan]) -> Operation {
        Operation {
            kind: *kinds.choose(rng).unwrap(),
            elements: *[0, 1, 5, 33, 700, 3000].choose(rng).unwrap(),
            in_place: rng.random(),
            pieces: rng.random(),
            seed: rng.random(),
        }
    }
}

fn binding(buffers: &[Buffer], blocks: u32, elements: usize, pieces: bool) -> Binding {
    match buffers {
        [] => Binding::None,
        [one] if !pieces && blocks.is_multiple_of(2) => {
            Binding::Whole { buffer: one.clone(), cut: Cut::Even { block_bytes: 4 * elements as u64 } }
        }
        [one] if !pieces => {
            let elements = elements as u64 * u64::from(blocks);
            Binding::Whole { buffer: one.clone(), cut: Cut::NearEqual { elements, element_bytes: 4 } }
        }
        many => Binding::Blocks(many.into()),
    }
}

/// Whether cross-memory attach, by which processes read each other's private memory, works in a job.
#[derive(Clone, Copy, PartialEq)]
enum Attach {
    Works,
    Forbidden,
    /// The kernel refuses access for some readers only: in some jobs from the beginning, in others in the
    /// middle of operations.
    OneWay,
}

/// Runs a random job for each seed, `count` of them if the environment does not say how many. Returns the
/// sums of the executors' counters, or None if there were fewer seeds.
fn runs(count: u64, kinds: &[Plan], kill: bool, attach: Attach) -> Option<crate::Counters> {
    let mut sum = crate::Counters::default();
    let are_all = seeds(count, |seed| {
        let mut simulation = Simulation::new(seed, kinds, attach == Attach::Forbidden);
        simulation.refuses = attach == Attach::OneWay;
        if simulation.refuses && seed % 2 == 0 {
            simulation.refuse();
        }
        simulation.run(kill);
        for rank in &simulation.job.ranks {
            let counters = rank.executor.counters();
            sum.started += counters.started;
            sum.offloaded += counters.offloaded;
            sum.recovered += counters.recovered;
            sum.refused += counters.refused;
        }
    });
    eprintln!("{sum:?}");
    are_all.then_some(sum)
}

#[test]
fn operations_of_callers_and_proxies_agree_with_their_definitions() {
    let Some(counters) = runs(400, &KINDS, false, Attach::Works) else { return };
    assert!(counters.offloaded > counters.started / 3 && counters.recovered == 0, "{counters:?}");
}

#[test]
fn dying_proxies_lose_nothing() {
    let Some(counters) = runs(600, &KINDS, true, Attach::Works) else { return };
    assert!(counters.recovered > counters.started / 50, "{counters:?}");
}

#[test]
fn in_place_allreduce_survives_dying_proxies() {
    let Some(counters) = runs(400, &[Plan::Allreduce], true, Attach::Works) else { return };
    assert!(counters.recovered > 0, "{counters:?}");
}

#[test]
fn without_cross_memory_attach_everything_goes_through_arenas() {
    let Some(counters) = runs(200, &KINDS, false, Attach::Forbidden) else { return };
    assert!(counters.refused > 0 && counters.offloaded > 0, "{counters:?}");
}

/// Goal: a receiver that cannot read a sender's private memory gets the bytes through the sender's arena,
/// even if the refusal begins during the operation.
#[test]
fn one_way_refusals_of_cross_memory_attach_lose_nothing() {
    let Some(counters) = runs(600, &KINDS, false, Attach::OneWay) else { return };
    assert!(counters.recovered > 0, "proxies give back what they cannot do: {counters:?}");
}

#[test]
fn one_way_refusals_and_dying_proxies_lose_nothing() {
    runs(400, &KINDS, true, Attach::OneWay);
}
