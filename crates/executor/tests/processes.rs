// SPDX-License-Identifier: BSD-3-Clause
//! Tests with real processes: ranks and proxies that share only the segment (the job's memory), and proxies
//! that are killed or stopped. `cargo test --release -p outboard-executor --test processes -- measure`
//! measures instead.
//!
//! The program starts itself: the arguments `job-descriptor-path kind index scenario` make it a rank or a
//! proxy.

use datatype::{Basic, Buffer, PredefinedOp};
use outboard_executor::{Binding, Config, Cut, Executor, InstanceTicket, Offload, Poll, Reduction, Start};
use progress::{Idle, Pace};
use schedule::{Action, After, Blocks, BufferId, Partition, Schedule, Scratch, Step};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::Span;
use transport::shm::{Allocator, Segment, Shape, State, cma};

/// The index in `RankPage::scalars` of the number of rounds that a rank has done.
const ROUNDS: usize = 60;
/// The index in `RankPage::scalars` of the number of a rank's operations that went to a proxy.
const OFFLOADED: usize = 61;
/// The index in `RankPage::scalars` of the number of operations that a rank took back from a proxy.
const RECOVERED: usize = 62;
/// The index in `RankPage::scalars` of a word of rank 0. When it is not 0, the job ends.
const STOP: usize = 63;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path, "rank", index, scenario] => rank(&attach(path), index.parse().unwrap(), scenario),
        [path, "proxy", index, scenario] => {
            let segment = attach(path);
            let index = index.parse().unwrap();
            let parent = sys::process::ProcessHandle::open(sys::process::parent()).unwrap();
            segment.proxy(index).pid.store(sys::process::id(), Ordering::Release);
            segment.proxy(index).set_state(State::Running);
            outboard_executor::proxy::run(
                &segment,
                index,
                &config(scenario),
                &parent,
                None,
                || unreachable!(),
            )
            .unwrap();
        }
        ["measure", ..] => {
            steps();
            ["measure-private", "measure-arena", "measure-caller"].into_iter().for_each(measure);
        }

        _ => {
            agreement();
            killed();
            stopped();
        }
    }
}

fn attach(path: &str) -> Segment {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    Segment::attach(file.into()).unwrap()
}

/// Makes the configuration of a scenario. The time-out for stalled proxies is short in the scenario
/// `stopped`. In all others it is so long that a busy machine does not reach it.
fn config(scenario: &str) -> Config {
    let proxy_timeout_ms = if scenario == "stopped" { 300 } else { 3_600_000 };
    Config { proxy_timeout_ms, offload_bytes_min: 0, ..Config::default() }
}

/// A job of real processes. All its processes are killed when this value is dropped.
struct Job {
    segment: Segment,
    /// The descriptor of the segment. It stays open for children that have not attached yet.
    _fd: std::os::fd::OwnedFd,
    ranks: Vec<Child>,
    proxies: Vec<Child>,
}

impl Job {
    fn start(ranks: u32, proxies: u32, scenario: &str) -> Job {
        let (segment, fd) = Segment::create(Shape { ranks, proxies, arena_bytes: 256 << 20 }).unwrap();
        segment.job().launcher.store(sys::process::id(), Ordering::Relaxed);
        let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&fd));
        let spawn = |kind: &str, index: u32| {
            let arguments = [&path, kind, &index.to_string(), scenario];
            Command::new(std::env::current_exe().unwrap()).args(arguments).spawn().unwrap()
        };
        let proxies: Vec<Child> = (0..proxies).map(|index| spawn("proxy", index)).collect();
        for index in 0..proxies.len() as u32 {
            while segment.proxy(index).state() != State::Running {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ranks: Vec<Child> = (0..ranks).map(|index| spawn("rank", index)).collect();
        segment.world(0).born.wait(ranks.len() as u32, || false);
        Job { segment, _fd: fd, ranks, proxies }
    }

    /// Returns the sum, over all ranks, of the word `scalar` in the rank's page.
    fn sum(&self, scalar: usize) -> u64 {
        (0..self.ranks.len() as u32)
            .map(|rank| {
                self.segment.rank(self.segment.local(rank).unwrap()).scalars[scalar].load(Ordering::Relaxed)
            })
            .sum()
    }

    /// Waits until every rank has done `rounds` more rounds.
    fn wait_rounds(&mut self, rounds: u64) {
        let of = |job: &Job, rank: u32| {
            job.segment.rank(job.segment.local(rank).unwrap()).scalars[ROUNDS].load(Ordering::Relaxed)
        };
        for rank in 0..self.ranks.len() as u32 {
            let until = of(self, rank) + rounds;
            while of(self, rank) < until {
                assert_eq!(self.ranks[rank as usize].try_wait().unwrap(), None, "rank {rank} has ended");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Tells the ranks to end, and checks that each ends with success.
    fn finish(mut self) {
        self.segment.rank(self.segment.local(0).unwrap()).scalars[STOP].store(1, Ordering::Release);
        for (rank, child) in self.ranks.iter_mut().enumerate() {
            assert!(child.wait().unwrap().success(), "rank {rank} failed");
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in self.ranks.iter_mut().chain(&mut self.proxies) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Goal: operations that proxies carry out, in processes of their own, have the right results.
fn agreement() {
    let mut job = Job::start(3, 2, "test");
    job.wait_rounds(40);
    assert!(job.sum(OFFLOADED) > 3 * 30, "only {} operations were offloaded", job.sum(OFFLOADED));
    assert_eq!(job.sum(RECOVERED), 0);
    job.finish();
    println!("ranks and proxies agree");
}

/// Goal: when a proxy is killed, its operations go on, and later operations do without it.
fn killed() {
    for attempt in 1.. {
        let mut job = Job::start(3, 2, "test");
        job.wait_rounds(5 + attempt);
        job.proxies[0].kill().unwrap();
        // This is what mpirun does; the ranks also notice by themselves.
        job.proxies[0].wait().unwrap();
        job.wait_rounds(10);
        let recovered = job.sum(RECOVERED);
        job.finish();
        if recovered > 0 {
            return println!("a killed proxy left {recovered} operations, all completed");
        }
        assert!(attempt < 20, "no kill ever met an operation");
    }
}

/// Goal: a proxy that is stopped gets killed, and its operations go on.
fn stopped() {
    let mut job = Job::start(3, 1, "stopped");
    job.wait_rounds(5);
    let stop = Command::new("kill").args(["-STOP", &job.proxies[0].id().to_string()]).status().unwrap();
    assert!(stop.success());
    job.wait_rounds(10);
    assert!(job.proxies[0].wait().unwrap().code().is_none(), "it must have been killed by a signal");
    assert!(job.sum(RECOVERED) > 0);
    job.finish();
    println!("a stopped proxy was fenced");
}

/// Makes the schedule of `rank` from `steps`: each entry is a step's action and the indices of the steps for
/// which it waits. `blocks` holds the numbers of input blocks and output blocks.
fn plan(
    rank: u32,
    size: u32,
    blocks: [u32; 2],
    scratch: Vec<Scratch>,
    steps: &[(Action, &[u32])],
) -> Arc<Schedule> {
    let mut after = vec![];
    let steps = steps.iter().map(|&(action, waits)| {
        let after_first = after.len() as u32;
        after.extend(waits.iter().map(|&step| After { step, streaming: false }));
        Step { action, after_first, after_count: waits.len() as u32 }
    });
    let steps = steps.collect();
    let [input_blocks, output_blocks] = blocks;
    Arc::new(Schedule { rank, size, input_blocks, output_blocks, scratch, steps, after })
}

fn block(buffer: BufferId, first: u32) -> Blocks {
    Blocks { buffer, first, count: 1 }
}

fn alltoall(rank: u32, size: u32) -> Arc<Schedule> {
    let local =
        (Action::Copy { from: block(BufferId::Input, rank), into: block(BufferId::Output, rank) }, &[][..]);
    let mut steps = vec![local];
    for hop in 1..size {
        let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
        steps.push((Action::Send { to, edge: 0, from: block(BufferId::Input, to) }, &[]));
        steps.push((Action::Recv { from, edge: 0, into: block(BufferId::Output, from) }, &[]));
    }
    plan(rank, size, [size, size], vec![], &steps)
}

/// Makes an allreduce in which every rank sends its vector to all others, and adds up the vectors that it
/// gets. Input and output may be the same buffer.
fn allreduce(rank: u32, size: u32) -> Arc<Schedule> {
    let mut steps: Vec<(Action, Vec<u32>)> = vec![];
    let mut scratch = vec![];
    let mut sum = block(BufferId::Input, 0);
    let mut made: Vec<u32> = vec![];
    let mut sent = vec![];
    for hop in 1..size {
        let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
        sent.push(steps.len() as u32);
        steps.push((Action::Send { to, edge: 0, from: block(BufferId::Input, 0) }, vec![]));
        let arrived = block(BufferId::Scratch(scratch.len() as u8), 0);
        let into = block(BufferId::Scratch(scratch.len() as u8 + 1), 0);
        scratch.extend([Scratch { like: Partition::Input, first: 0, blocks: 1 }; 2]);
        made.push(steps.len() as u32);
        steps.push((Action::Recv { from, edge: 0, into: arrived }, vec![]));
        steps.push((Action::Reduce { left: sum, right: arrived, into }, made.clone()));
        (sum, made) = (into, vec![steps.len() as u32 - 1]);
    }
    made.extend(sent);
    steps.push((Action::Copy { from: sum, into: block(BufferId::Output, 0) }, made));
    let steps: Vec<_> = steps.iter().map(|(action, after)| (*action, &after[..])).collect();
    plan(rank, size, [1, 1], scratch, &steps)
}

/// A rank of the job, in its own process: its executor, its memory and its peers.
struct Member {
    segment: Segment,
    rank: u32,
    size: u32,
    executor: Executor,
    idle: Idle,
    peers: Arc<[u32]>,
    sequence: u32,
    /// Memory outside the arena. Most programs have their buffers in such memory.
    memory: Span,
    used: usize,
}

impl Member {
    fn span(&mut self, bytes: usize, arena: bool) -> Span {
        if arena {
            let at = self.executor.memory().alloc(bytes as u64).unwrap();
            return self.executor.memory().arena().span(at, bytes as u64).unwrap();
        }
        self.used += bytes;
        self.memory.slice(self.used - bytes, bytes)
    }

    fn start(
        &mut self,
        schedule: &Arc<Schedule>,
        input: Span,
        output: Span,
        offload: Offload,
    ) -> InstanceTicket {
        let whole = |span: Span, blocks: u32| Binding::Whole {
            buffer: Buffer::from(span),
            cut: Cut::Even { block_bytes: span.bytes() as u64 / u64::from(blocks) },
        };
        self.sequence += 1;
        let start = Start {
            context: 77,
            sequence: self.sequence,
            peers: self.peers.clone(),
            input: whole(input, schedule.input_blocks),
            output: whole(output, schedule.output_blocks),
            schedule: schedule.clone(),
            reduction: Some(Reduction::Predefined {
                op: PredefinedOp::Sum,
                basic: Basic::U32,
                element_bytes: 4,
            }),
            offload,
            fetched_bytes_min: u64::MAX,
            message: false,
        };
        self.executor.start(start).unwrap()
    }

    fn wait(&mut self, ticket: InstanceTicket) {
        loop {
            let polled = self.executor.poll();
            if let Some(outcome) = self.executor.outcome(ticket) {
                self.idle.reset();
                return outcome.unwrap();
            }
            match polled {
                Poll::Idle => {
                    let executor = &self.executor;
                    self.idle.wait(&self.segment.rank(self.segment.local(self.rank).unwrap()).bell, || {
                        !executor.has_events()
                    });
                }
                _ => self.idle.reset(),
            }
        }
    }

    fn publish(&mut self) {
        let counters = self.executor.counters();
        let scalars = &self.segment.rank(self.segment.local(self.rank).unwrap()).scalars;
        scalars[OFFLOADED].store(counters.offloaded, Ordering::Relaxed);
        scalars[RECOVERED].store(counters.recovered, Ordering::Relaxed);
        scalars[ROUNDS].fetch_add(1, Ordering::Relaxed);
        while let Some(warning) = self.executor.warning() {
            println!("{warning}");
        }
    }
}

impl Member {
    /// Makes a rank that is about to enter the job.
    fn new(segment: &Segment, rank: u32, scenario: &str) -> Member {
        let size = segment.shape().ranks;
        let bytes = 64 << 20;
        let memory = vec![0u8; bytes].leak();
        // SAFETY: leaked, so mapped until the process ends, and only used through spans from now on.
        let memory = unsafe { Span::claim(memory.as_mut_ptr().expose_provenance(), bytes) };
        let pace = Pace {
            spin: false,
            awake: Duration::from_micros(500),
            nap_max: Duration::from_millis(10),
            sleeps_if_shared: true,
        };
        let place = segment.local(rank).unwrap();
        let page = segment.rank(place);
        page.pid.store(sys::process::id(), Ordering::Release);
        cma::publish(segment, place);
        page.set_state(State::Running);
        Member {
            executor: Executor::new(
                segment.clone(),
                place,
                Allocator::new(segment.arena(place).unwrap(), 16 << 20),
                config(scenario),
            ),
            segment: segment.clone(),
            rank,
            size,
            idle: Idle::new(pace),
            peers: (0..size).collect(),
            sequence: 0,
            memory,
            used: 0,
        }
    }
}

/// Measures what starts and polls cost when no rank waits for another process: two ranks in one thread take
/// turns.
fn steps() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 64 << 20 }).unwrap();
    let mut members = [0, 1].map(|rank| Member::new(&segment, rank, "measure"));
    for bytes in [0, 8, 1024] {
        let schedules = [0, 1].map(|rank| alltoall(rank, 2));
        let spans = members.each_mut().map(|m| [m.span(2 * bytes, true), m.span(2 * bytes, true)]);
        let rounds = 100_000;
        let (mut starts, mut polls) = (0, 0);
        for _ in 0..rounds {
            let begun = sys::clock::now();
            let tickets = [0, 1].map(|rank| {
                let [input, output] = spans[rank];
                members[rank].start(&schedules[rank], input, output, Offload::Off)
            });
            let started = sys::clock::now();
            let mut left = 2;
            while left > 0 {
                for (member, ticket) in members.iter_mut().zip(tickets) {
                    member.executor.poll();
                    left -= usize::from(
                        left > 0 && member.executor.is_busy() && member.executor.outcome(ticket).is_some(),
                    );
                }
            }
            polls += sys::clock::now() - started;
            starts += started - begun;
        }
        let each = |ns: u64| ns as f64 / f64::from(2 * rounds);
        println!(
            "2 ranks in one thread, copy, send and receive of {bytes} bytes: start {:.0} ns, the rest {:.0} ns per rank",
            each(starts),
            each(polls)
        );
    }
}

fn rank(segment: &Segment, rank: u32, scenario: &str) {
    let mut member = Member::new(segment, rank, scenario);
    let size = member.size;
    segment.world(0).born.arrive();
    segment.world(0).born.wait(size, || false);
    match scenario {
        "test" | "stopped" => rounds(&mut member),
        _ => costs(&mut member, scenario),
    }
    segment.world(0).leaving.arrive();
    segment.world(0).leaving.wait(size, || false);
    segment.rank(segment.local(rank).unwrap()).set_state(State::Finalized);
}

/// Runs an all-to-all and an allreduce at the same time in each round, and checks their results. Some buffers
/// are in private memory, some in the arena. Rank 0's data tell all ranks whether this round is the last.
fn rounds(member: &mut Member) {
    let (rank, size) = (member.rank, member.size);
    let (exchange, sum) = (alltoall(rank, size), allreduce(rank, size));
    let words = 50_000 * size as usize;
    let arena = rank.is_multiple_of(2);
    let (input, output) = (member.span(4 * words, arena), member.span(4 * words, !arena));
    let total = member.span(4 * words, arena);
    let mut data = vec![0u8; 4 * words];
    for round in 0u32.. {
        let stop = member.segment.rank(member.segment.local(0).unwrap()).scalars[STOP].load(Ordering::Acquire)
            as u32;
        let element = |rank: u32, at: usize| round.wrapping_mul(31) ^ (rank << 24) ^ at as u32;
        let fill = |span: Span| {
            let bytes: Vec<u8> = (0..words).flat_map(|at| element(rank, at).to_le_bytes()).collect();
            span.write(&bytes);
        };
        fill(input);
        fill(total);
        let first = if rank == 0 { stop } else { 0 };
        total.slice(0, 4).write(&first.to_le_bytes());
        let offload = if round % 8 == 7 { Offload::Off } else { Offload::On };
        let tickets =
            [member.start(&exchange, input, output, offload), member.start(&sum, total, total, offload)];
        tickets.into_iter().rev().for_each(|ticket| member.wait(ticket));
        let word = |data: &[u8], at: usize| u32::from_le_bytes(data[4 * at..][..4].try_into().unwrap());
        output.read(&mut data);
        let each = words / size as usize;
        for at in 0..words {
            let expected = element((at / each) as u32, rank as usize * each + at % each);
            assert_eq!(word(&data, at), expected, "alltoall on rank {rank}, round {round}, word {at}");
        }
        total.read(&mut data);
        for at in 1..words {
            let expected = (0..size).fold(0u32, |sum, from| sum.wrapping_add(element(from, at)));
            assert_eq!(word(&data, at), expected, "allreduce on rank {rank}, round {round}, word {at}");
        }
        member.publish();
        if word(&data, 0) != 0 {
            return;
        }
    }
}

fn measure(scenario: &str) {
    println!("{scenario}: 2 ranks, 1 proxy; microseconds, median of 200");
    Job::start(2, 1, scenario).finish();
}

/// Measures how long a start takes, and how long a whole operation takes.
fn costs(member: &mut Member, scenario: &str) {
    let arena = scenario == "measure-arena";
    let offload = if scenario == "measure-caller" { Offload::Off } else { Offload::On };
    let exchange = alltoall(member.rank, member.size);
    for bytes in [8usize, 4 << 10, 64 << 10, 1 << 20] {
        let length = bytes * member.size as usize;
        let (input, output) = (member.span(length, arena), member.span(length, arena));
        let (mut starts, mut wholes) = (vec![], vec![]);
        for _ in 0..220 {
            let begun = sys::clock::now();
            let ticket = member.start(&exchange, input, output, offload);
            let started = sys::clock::now();
            member.wait(ticket);
            starts.push(started - begun);
            wholes.push(sys::clock::now() - begun);
        }
        let median = |times: &mut Vec<u64>| {
            times.drain(..20);
            times.sort();
            times[times.len() / 2] as f64 / 1000.0
        };
        if member.rank == 0 {
            let (start, whole) = (median(&mut starts), median(&mut wholes));
            println!("  alltoall of {bytes} bytes per pair: start {start:.2}, start and wait {whole:.2}");
        }
    }
}
