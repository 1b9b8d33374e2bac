// SPDX-License-Identifier: BSD-3-Clause
//! Tests of faults, and of users' reduction functions. Each test runs one small job.

use super::plans::{Plan, PlanBuilder, blocks, whole};
use super::{Home, Job};
use crate::record::{self, BUCKETS, Head, Lookup, RETURNED};
use crate::{Binding, Config, Cut, InstanceTicket, Offload, Poll, Reduction, Start};
use datatype::{Basic, Buffer, PredefinedOp};
use error::Class;
use schedule::{Action, BufferId, Partition, Schedule};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::Choice;
use transport::shm::State;

const SUM: Reduction = Reduction::Predefined { op: PredefinedOp::Sum, basic: Basic::U32, element_bytes: 4 };

fn even(buffer: &Buffer, blocks: u64) -> Binding {
    Binding::Whole { buffer: buffer.clone(), cut: Cut::Even { block_bytes: buffer.bytes() as u64 / blocks } }
}

fn start(job: &Job, schedule: Schedule, input: Binding, output: Binding, offload: Offload) -> Start {
    Start {
        context: 5,
        sequence: 1,
        peers: (0..job.ranks.len() as u32).collect(),
        schedule: Arc::new(schedule),
        input,
        output,
        reduction: None,
        offload,
        fetched_bytes_min: u64::MAX,
        message: false,
    }
}

/// Polls all ranks and proxies in turn until the operation of each rank has ended. Returns the outcomes in
/// the order of `tickets`, which has one ticket for each rank.
fn outcomes(job: &mut Job, tickets: &[InstanceTicket]) -> Vec<error::Result<()>> {
    let mut ended: Vec<Option<error::Result<()>>> = vec![None; tickets.len()];
    for _ in 0..200_000 {
        for (rank, &ticket) in tickets.iter().enumerate() {
            if ended[rank].is_none() {
                job.ranks[rank].executor.poll();
                ended[rank] = job.ranks[rank].executor.outcome(ticket);
            }
        }
        for (index, proxy) in (0..).zip(&mut job.proxies) {
            proxy.poll();
            if proxy.has_failed() {
                job.segment.proxy(index).set_state(State::Dead);
            }
        }
        if ended.iter().all(Option::is_some) {
            return ended.into_iter().flatten().collect();
        }
    }
    panic!("the job hangs: {ended:?}");
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Goal: a newly spawned rank does not wait for an answer of a proxy that another rank has already cut off.
#[test]
fn a_rank_awaits_no_answer_of_a_proxy_that_has_ended() {
    let config = Config::default();
    let mut job = Job::on_node(0, 2, &[0, 1], 1, &config);
    job.add_dpu(&config);
    assert!(!job.ranks[0].executor.is_welcome());
    job.proxy_ended(job.segment.proxy_endpoint(0));
    assert!(job.ranks[0].executor.is_welcome());
}

/// Goal: while a proxy has many operations of a rank, a round of the rank's progress looks at none of them. A
/// word in the rank's page says whether the proxy has ended or returned an operation since the last round.
#[test]
fn a_round_looks_at_no_operation_that_the_proxy_has() {
    let mut job = Job::new(2, 1, &Config::default());
    let send = |job: &mut Job, sequence: u32, rank: u32| {
        let buffer = job.ranks[rank as usize].buffer(&[7; 4], Home::Private);
        let schedule = Plan::Bcast.schedule(rank, 2);
        let start = start(job, schedule, Binding::None, even(&buffer, 1), Offload::On);
        job.ranks[rank as usize].executor.start(Start { sequence, ..start }).unwrap()
    };
    let tickets: Vec<_> = (1..100).map(|sequence| send(&mut job, sequence, 0)).collect();
    job.proxies[0].poll();
    let sender = &mut job.ranks[0].executor;
    assert!(sender.poll() == Poll::Idle && !sender.has_events());
    // This operation was not reported, so the round has not looked at it.
    let local = job.segment.local(0).unwrap();
    let arena = job.segment.arena(local).unwrap();
    let directory = &job.segment.rank(local).directory[..];
    let Ok(Lookup::Here(record, _)) = record::find(directory, &arena, 0, 5, 1) else { panic!() };
    record.head(Head::State).store(RETURNED, Ordering::Relaxed);
    assert_eq!((sender.poll(), sender.has_events()), (Poll::Idle, false));
    job.segment.rank(local).scalars[crate::proxy::RETURNS].fetch_add(1, Ordering::Relaxed);
    assert_eq!((sender.poll(), sender.counters().recovered), (Poll::Progressed, 1));
    // An ended operation wakes the rank once, whether or not the rank asks for the outcome.
    for sequence in 2..100 {
        send(&mut job, sequence, 1);
    }
    while job.proxies[0].poll() {}
    let sender = &mut job.ranks[0].executor;
    assert!(sender.has_events());
    sender.poll();
    assert!(!sender.has_events());
    assert!(tickets[1..].iter().all(|&ticket| sender.outcome(ticket) == Some(Ok(()))));
}

/// Goal: with `auto`, a proxy gets no message below `offload_bytes_min`; with `on`, it gets every message.
#[test]
fn auto_gives_a_proxy_no_short_message() {
    let bounds = [(Offload::Off, None), (Offload::Auto, Some(1000)), (Offload::On, Some(0))];
    for (offload, least) in bounds {
        let config = Config { offload, offload_bytes_min: 1000, ..Config::default() };
        let job = Job::new(2, 1, &config);
        for bytes in [0, 4, 999, 1000, 1 << 30] {
            let taken = job.ranks[0].executor.takes_message(1, bytes);
            assert_eq!(taken, least.is_some_and(|least| bytes >= least), "{offload:?}, {bytes} bytes");
        }
    }
}

#[test]
fn different_lengths_are_told_to_the_receiver_and_no_rank_hangs() {
    for offload in [Offload::Off, Offload::On] {
        for (sent, expected) in [(64usize, 16usize), (16, 64), (0, 8), (8, 0)] {
            let mut job = Job::new(3, 1, &Config::default());
            let mut tickets = vec![];
            // In this pipeline rank 1 passes on what it cannot receive, so that rank 2 does not hang.
            for (rank, bytes) in [sent, expected, expected].into_iter().enumerate() {
                let buffer = job.ranks[rank].buffer(&vec![rank as u8; bytes], Home::Private);
                let schedule = Plan::Bcast.schedule(rank as u32, 3);
                let start = start(&job, schedule, Binding::None, even(&buffer, 1), offload);
                tickets.push(job.ranks[rank].executor.start(start).unwrap());
            }
            let ended = outcomes(&mut job, &tickets);
            assert_eq!((&ended[0], &ended[2]), (&Ok(()), &Ok(())));
            let error = ended[1].as_ref().unwrap_err();
            assert_eq!(error.class, Class::Truncate);
            let facts = format!("rank 0 contributes {sent} bytes where rank 1 expects {expected}");
            assert!(error.message.contains(&facts), "{error}");
        }
    }
}

#[test]
fn a_proxy_forgets_what_a_rank_left_waiting() {
    let mut job = Job::new(2, 1, &Config::default());
    let buffer = job.ranks[1].buffer(&[0; 8], Home::Arena);
    let start = start(&job, Plan::Bcast.schedule(1, 2), Binding::None, even(&buffer, 1), Offload::On);
    job.ranks[1].executor.start(start).unwrap();
    job.proxies[0].poll();
    assert!(job.proxies[0].is_busy());
    let rank = job.segment.places().nth(1).unwrap();
    job.segment.rank(rank).set_state(State::Finalized);
    job.proxies[0].check_ranks();
    assert!(!job.proxies[0].is_busy());
}

#[test]
fn who_executes_and_why_is_told() {
    let told = |proxies, offload, asked, offload_bytes_min| {
        let config = Config { offload, offload_bytes_min, ..Config::default() };
        let mut job = Job::new(2, proxies, &config);
        let buffer = job.ranks[1].buffer(&[0; 8], Home::Arena);
        let start = start(&job, Plan::Bcast.schedule(1, 2), Binding::None, even(&buffer, 1), asked);
        let ticket = job.ranks[1].executor.start(start).unwrap();
        job.ranks[1].executor.carried(ticket).unwrap().choice
    };
    use Offload::{Auto, Off, On};
    assert_eq!(told(1, On, Auto, 9), Choice::ProxyAlways);
    assert_eq!(told(1, Auto, On, 9), Choice::ProxyAlways);
    assert_eq!(told(1, Auto, Auto, 8), Choice::ProxyLong);
    assert_eq!(told(1, Auto, Auto, 9), Choice::Short);
    assert_eq!(told(1, On, Off, 0), Choice::Blocking);
    assert_eq!(told(1, Off, On, 0), Choice::Off);
    assert_eq!(told(0, Auto, Auto, 0), Choice::NoProxy);
}

#[test]
fn unequal_sides_of_a_copy_are_an_error_of_that_rank() {
    let mut job = Job::new(1, 1, &Config::default());
    for offload in [Offload::Off, Offload::On] {
        let input = job.ranks[0].buffer(&[1; 8], Home::Arena);
        let output = job.ranks[0].buffer(&[2; 12], Home::Private);
        let schedule = Plan::Allgather.schedule(0, 1);
        let start = start(&job, schedule, even(&input, 1), even(&output, 1), offload);
        let ticket = job.ranks[0].executor.start(start).unwrap();
        let ended = outcomes(&mut job, &[ticket]);
        assert_eq!(ended[0].as_ref().unwrap_err().class, Class::Truncate);
        assert_eq!(job.ranks[0].data(&output), [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    }
}

/// Goal: a user's function gets its operands in the order of ranks. `into = left - right` over three ranks
/// depends on that order.
#[test]
fn a_users_function_gets_its_operands_in_order() {
    let mut job = Job::new(3, 1, &Config::default());
    let mut tickets = vec![];
    let mut outputs = vec![];
    for rank in 0..3 {
        let input = job.ranks[rank].buffer(&words([1000 * (3 - rank as u32), 7]), Home::Private);
        let output = job.ranks[rank].buffer(&[0; 8], Home::Arena);
        let schedule = Plan::Allreduce.schedule(rank as u32, 3);
        let mut start = start(&job, schedule, even(&input, 1), even(&output, 1), Offload::On);
        start.reduction = Some(Reduction::User { token: 42, element_bytes: 4 });
        tickets.push(job.ranks[rank].executor.start(start).unwrap());
        outputs.push(output);
    }
    let mut calls = 0;
    let mut ended = [false; 3];
    for turn in 0..3000 {
        let rank = turn % 3;
        let executor = &mut job.ranks[rank].executor;
        if ended[rank] {
            continue;
        }
        if let Poll::Call(call) = executor.poll() {
            assert_eq!(
                (call.token, call.into.bytes(), call.blocks.clone(), call.ticket),
                (42, 8, 0..1, tickets[rank])
            );
            let (mut a, mut b) = ([0; 8], [0; 8]);
            call.left.read(&mut a);
            call.into.read(&mut b);
            let word = |bytes: &[u8; 8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            call.into.write(&words([0, 4].map(|at| word(&a, at).wrapping_sub(word(&b, at)))));
            // The engine does not ask for the call again while it runs.
            assert!(!matches!(executor.poll(), Poll::Call(_)));
            executor.called(call);
            calls += 1;
        }
        ended[rank] = executor.outcome(tickets[rank]).is_some();
    }
    assert_eq!((calls, ended), (2, [true; 3]));
    for (rank, output) in outputs.iter().enumerate() {
        assert_eq!(job.ranks[rank].data(output), words([0, 7u32.wrapping_neg()]));
        assert_eq!(job.ranks[rank].executor.counters().refused, 1);
    }
}

#[test]
fn a_corrupt_peer_is_an_error_and_no_panic() {
    // The words of rank 0's record or directory, and the wrong values.
    let spoils: [fn(&Job, u64); 5] = [
        |job, at| set(job, at + 8 * Head::SendsAt as u64, u64::MAX - 7),
        |job, at| set(job, at + 8 * Head::SendCount as u64, u64::MAX),
        |job, at| set(job, at + 8 * Head::Steps as u64, 1 << 40),
        // The address of rank 0's first send; below, the bytes that it has published.
        |job, at| set(job, at + 8 * (24 + 2), 1 << 63 | (1 << 40)),
        |job, at| set(job, at + 8 * 24, 1 << 50),
    ];
    for spoil in spoils {
        let mut job = Job::new(2, 0, &Config::default());
        let buffers = [0, 1].map(|rank| job.ranks[rank].buffer(&[1; 5000], Home::Private));
        let mut tickets = vec![];
        for rank in [0, 1] {
            let schedule = Plan::Bcast.schedule(rank, 2);
            let start = start(&job, schedule, Binding::None, even(&buffers[rank as usize], 1), Offload::Off);
            tickets.push(job.ranks[rank as usize].executor.start(start).unwrap());
        }
        job.ranks[0].executor.poll();
        let directory = &job.segment.rank(job.segment.local(0).unwrap()).directory;
        let heads = (0..BUCKETS).map(|bucket| directory[bucket].load(Ordering::Relaxed));
        spoil(&job, heads.max().unwrap());
        for _ in 0..100_000 {
            job.ranks[1].executor.poll();
        }
        let error = job.ranks[1].executor.outcome(tickets[1]).unwrap().unwrap_err();
        assert_eq!(error.class, Class::Intern);
        assert!(error.message.contains("rank 0"), "{error}");
    }
    // A directory with a cycle.
    let mut job = Job::new(2, 0, &Config::default());
    let buffer = job.ranks[1].buffer(&[1; 50], Home::Private);
    let schedule = Plan::Bcast.schedule(1, 2);
    let start = start(&job, schedule, Binding::None, even(&buffer, 1), Offload::Off);
    let ticket = job.ranks[1].executor.start(start).unwrap();
    job.segment
        .rank(job.segment.local(0).unwrap())
        .directory
        .iter()
        .for_each(|head| head.store(64, Ordering::Relaxed));
    set(&job, 64 + 8 * Head::Next as u64, 64);
    for _ in 0..20_000 {
        job.ranks[1].executor.poll();
    }
    assert_eq!(job.ranks[1].executor.outcome(ticket).unwrap().unwrap_err().class, Class::Intern);
}

fn set(job: &Job, at: u64, value: u64) {
    job.segment
        .arena(job.segment.local(0).unwrap())
        .unwrap()
        .word(at)
        .unwrap()
        .store(value, Ordering::Relaxed);
}

/// A proxy returns an operation that it cannot decode, and the rank executes it.
#[test]
fn spoiled_programs_and_parameters_come_back_from_the_proxy() {
    for head in [Head::ProgramAt, Head::ProgramWords, Head::ParametersAt, Head::ParametersWords, Head::Steps]
    {
        for value in [0, 1 << 20, u64::MAX] {
            let mut job = Job::new(1, 1, &Config::default());
            let input = job.ranks[0].buffer(&words([1, 2, 3]), Home::Private);
            let output = job.ranks[0].buffer(&[0; 12], Home::Private);
            let schedule = Plan::Allgather.schedule(0, 1);
            let start = start(&job, schedule, even(&input, 1), even(&output, 1), Offload::On);
            let ticket = job.ranks[0].executor.start(start).unwrap();
            let directory = &job.segment.rank(job.segment.local(0).unwrap()).directory;
            let at = directory.iter().map(|head| head.load(Ordering::Relaxed)).max().unwrap();
            set(&job, at + 8 * head as u64, value);
            assert_eq!(outcomes(&mut job, &[ticket]), [Ok(())]);
            assert_eq!(job.ranks[0].data(&output), words([1, 2, 3]));
            let counters = job.ranks[0].executor.counters();
            assert_eq!((counters.offloaded, counters.recovered), (1, 1), "{} {value}", head as u64);
        }
    }
}

#[test]
fn any_word_of_the_parameters_may_be_spoiled() {
    for word in 0..120 {
        for value in [0, 1, 3, 1 << 62, u64::MAX] {
            let mut job = Job::new(2, 1, &Config::default());
            let mut tickets = vec![];
            for rank in [0, 1] {
                // Words of an exchange with gaps, and of a reduction.
                let (kind, blocks, homes) = match word % 2 {
                    0 => (Plan::Alltoall, 2, [Home::ArenaGaps, Home::Gaps]),
                    _ => (Plan::Allreduce, 1, [Home::Arena, Home::Private]),
                };
                let input = job.ranks[rank].buffer(&words([1, 2, 3, 4]), homes[0]);
                let output = job.ranks[rank].buffer(&[0; 16], homes[1]);
                let schedule = kind.schedule(rank as u32, 2);
                let mut start =
                    start(&job, schedule, even(&input, blocks), even(&output, blocks), Offload::On);
                start.reduction = (kind == Plan::Allreduce).then_some(SUM);
                tickets.push(job.ranks[rank].executor.start(start).unwrap());
            }
            let directory = &job.segment.rank(job.segment.local(0).unwrap()).directory;
            let record = directory.iter().map(|head| head.load(Ordering::Relaxed)).max().unwrap();
            let arena = job.segment.arena(job.segment.local(0).unwrap()).unwrap();
            let head = |head: Head| arena.word(record + 8 * head as u64).unwrap().load(Ordering::Relaxed);
            // The last word is the peers, which no check can refuse.
            if word / 2 + 1 < head(Head::ParametersWords) {
                set(&job, head(Head::ParametersAt) + 8 * (word / 2), value);
            }
            // The operation ends, right, wrong or with an error, without a panic.
            outcomes(&mut job, &tickets);
        }
    }
}

#[test]
fn a_full_submission_ring_leaves_operations_to_the_caller() {
    let mut job = Job::new(1, 1, &Config::default());
    let schedule = Arc::new(Plan::Barrier.schedule(0, 1));
    assert!(schedule.steps.is_empty());
    let schedule = Arc::new(Plan::Allgather.schedule(0, 1));
    let buffer = job.ranks[0].buffer(&[1; 4], Home::Arena);
    let mut tickets = vec![];
    for sequence in 0..200 {
        let mut start =
            start(&job, Plan::Barrier.schedule(0, 1), even(&buffer, 1), even(&buffer, 1), Offload::On);
        (start.schedule, start.sequence) = (schedule.clone(), sequence);
        tickets.push(job.ranks[0].executor.start(start).unwrap());
    }
    let counters = job.ranks[0].executor.counters();
    assert_eq!((counters.started, counters.offloaded, counters.refused), (200, 128, 72));
    job.proxies[0].poll();
    job.ranks[0].executor.poll();
    for ticket in tickets {
        assert_eq!(job.ranks[0].executor.outcome(ticket), Some(Ok(())));
    }
}

#[test]
fn without_a_living_proxy_the_caller_executes() {
    let mut job = Job::new(1, 1, &Config::default());
    let buffer = job.ranks[0].buffer(&[1; 4], Home::Private);
    let go = |job: &mut Job| {
        let start =
            start(job, Plan::Allgather.schedule(0, 1), even(&buffer, 1), even(&buffer, 1), Offload::On);
        let ticket = job.ranks[0].executor.start(start).unwrap();
        job.ranks[0].executor.poll();
        job.ranks[0].executor.outcome(ticket)
    };
    assert_eq!(go(&mut job), None);
    for state in [State::Unborn, State::Dead, State::Finalized] {
        let mut job = Job::new(1, 1, &Config::default());
        job.segment.proxy(0).set_state(state);
        assert_eq!(go(&mut job), Some(Ok(())));
    }
    // Where the proxy may not attach, the caller executes and warns once.
    let mut job = Job::new(1, 1, &Config::default());
    job.segment.job().cma_forbidden.store(1, Ordering::Relaxed);
    assert_eq!((go(&mut job), go(&mut job)), (Some(Ok(())), Some(Ok(()))));
    assert!(job.ranks[0].executor.warning().unwrap().contains("MPI_Alloc_mem"));
    assert_eq!(job.ranks[0].executor.warning(), None);
}

#[test]
fn bindings_that_do_not_fit_are_refused() {
    let mut job = Job::new(2, 0, &Config::default());
    let buffer = job.ranks[0].buffer(&[1; 12], Home::Private);
    let refused = |job: &mut Job, change: &dyn Fn(&mut Start)| {
        let mut start =
            start(job, Plan::Allreduce.schedule(1, 2), even(&buffer, 1), even(&buffer, 1), Offload::Off);
        start.reduction = Some(SUM);
        change(&mut start);
        job.ranks[0].executor.start(start).unwrap_err().class
    };
    let cut = |cut: Cut| Binding::Whole { buffer: buffer.clone(), cut };
    let broken = Reduction::Predefined { op: PredefinedOp::Sum, basic: Basic::U64, element_bytes: 4 };
    let changes: [&dyn Fn(&mut Start); 8] = [
        &|start| start.reduction = None,
        &|start| start.reduction = Some(broken),
        &|start| start.peers = Arc::from([0]),
        &|start| start.peers = Arc::from([0, 2]),
        &|start| start.input = cut(Cut::Even { block_bytes: 16 }),
        &|start| start.input = cut(Cut::Bounds(Arc::from([0, 4, 8]))),
        // Operands of different lengths, and elements that are cut.
        &|start| start.input = cut(Cut::Even { block_bytes: 8 }),
        &|start| start.output = cut(Cut::Bounds(Arc::from([0, 11]))),
    ];
    for change in changes {
        assert_eq!(refused(&mut job, change), Class::Intern);
    }
    assert!(!job.ranks[0].executor.is_busy());
}

#[test]
fn memory_of_operations_comes_back() {
    let config = Config { programs_max: 3, idle_bytes_max: 1 << 20, ..Config::default() };
    let mut job = Job::new(1, 0, &config);
    let buffer = job.ranks[0].buffer(&vec![1; 2 << 20], Home::Private);
    let mut used = vec![];
    for sequence in 0..30 {
        // Scratch of 2 MiB each, more than may lie idle, and a new schedule each time.
        let mut plan = PlanBuilder::new(0, 1, 1, 1).scratch(Partition::Input, 0, 1);
        let (input, scratch) = (blocks(BufferId::Input, 0, 1), blocks(BufferId::Scratch(0), 0, 1));
        let copied = plan.step(Action::Copy { from: input, into: scratch }, &[]);
        plan.step(Action::Copy { from: scratch, into: blocks(BufferId::Output, 0, 1) }, &[whole(copied)]);
        let mut start = start(&job, plan.finish(), even(&buffer, 1), even(&buffer, 1), Offload::Off);
        start.sequence = sequence;
        let ticket = job.ranks[0].executor.start(start).unwrap();
        assert_eq!(outcomes(&mut job, &[ticket]), [Ok(())]);
        used.push(job.ranks[0].executor.memory().used_bytes());
    }
    assert!(used[5..].iter().all(|&bytes| bytes == used[5] && bytes < 64 << 10), "{used:?}");
}

#[test]
fn an_arena_that_is_full_is_an_error_with_facts() {
    let mut job = Job::new(1, 0, &Config::default());
    while job.ranks[0].executor.memory().alloc(64).is_ok() {}
    let start = start(&job, Plan::Allgather.schedule(0, 1), Binding::None, Binding::None, Offload::Off);
    let error = job.ranks[0].executor.start(start).unwrap_err();
    assert_eq!(error.class, Class::NoMem);
    assert!(error.message.contains("OUTBOARD_ARENA_BYTES"));
}

/// Runs a job of three ranks, which start the collective `kind`. Before that, `refuse` sets what the kernel
/// refuses. Returns the job, and the outcome on each rank.
fn refused(kind: Plan, offload: Offload, refuse: impl Fn(&Job)) -> (Job, Vec<error::Result<()>>) {
    let config = Config { inline_bytes_max: 0, ..Config::default() };
    let mut job = Job::new(3, 1, &config);
    refuse(&job);
    let mut tickets = vec![];
    for rank in 0..3 {
        let data = words((0..3000).map(|at| at + rank));
        let memory = &mut job.ranks[rank as usize];
        let (input, output) = (memory.buffer(&data, Home::Private), memory.buffer(&data, Home::Private));
        let blocks = if kind == Plan::Alltoall { 3 } else { 1 };
        let input = if kind == Plan::Bcast { Binding::None } else { even(&input, blocks) };
        let mut start = start(&job, kind.schedule(rank, 3), input, even(&output, blocks), offload);
        start.reduction = (kind == Plan::Allreduce).then_some(SUM);
        tickets.push(job.ranks[rank as usize].executor.start(start).unwrap());
    }
    let ended = outcomes(&mut job, &tickets);
    (job, ended)
}

/// Goal: nobody waits for a rank that cannot map its peers' arenas, and every rank's error gives the reason.
#[test]
fn arenas_that_cannot_be_mapped_are_told_to_all() {
    for kind in [Plan::Bcast, Plan::Allreduce, Plan::Alltoall, Plan::Barrier] {
        for offload in [Offload::Off, Offload::On] {
            // All ranks have the fault, then rank 1 has it.
            for all in [true, false] {
                let (mut job, ended) = refused(kind, offload, |job| {
                    for (rank, memory) in job.ranks.iter().enumerate().filter(|(rank, _)| all || *rank == 1) {
                        memory.executor.refuse(0, 0b111 & !(1 << rank));
                    }
                    job.proxies[0].refuse(0, 0b101);
                });
                for (rank, outcome) in ended.iter().enumerate() {
                    let Err(error) = outcome else {
                        assert!(!all && rank != 1 || kind == Plan::Bcast && rank == 0, "{kind:?} {rank}");
                        continue;
                    };
                    assert_eq!((error.class, error.errno), (Class::NoMem, Some(12)), "{error}");
                    assert!(error.message.contains("cannot map") && error.message.contains("RLIMIT_AS"));
                }
                // Once the ranks can map the arenas, they go on.
                job.ranks.iter().for_each(|rank| rank.executor.refuse(0, 0));
                for sequence in [2, 3] {
                    let tickets: Vec<_> = (0..3)
                        .map(|rank| {
                            let schedule = Plan::Barrier.schedule(rank, 3);
                            let mut start = start(&job, schedule, Binding::None, Binding::None, Offload::Off);
                            start.sequence = sequence;
                            job.ranks[rank as usize].executor.start(start).unwrap()
                        })
                        .collect();
                    let ended = outcomes(&mut job, &tickets);
                    // The first operation may fail once more, since a rank has not noticed yet that it can
                    // map the arena.
                    assert!(sequence == 2 || ended.iter().all(|ended| ended.is_ok()), "{ended:?}");
                }
            }
        }
    }
}

/// Goal: a sender copies its bytes to its arena for a receiver that cannot read them. Without room for the
/// copy, sender and receiver report an error.
#[test]
fn a_copy_for_a_refused_reader_needs_room() {
    let (job, ended) = refused(Plan::Bcast, Offload::Off, |job| job.ranks[1].executor.refuse(0b1, 0));
    assert!(ended.iter().all(|ended| ended.is_ok()), "{ended:?}");
    let rank = |peer| job.segment.local(peer).unwrap();
    assert!(job.segment.rank(rank(1)).unreadable.has(0) && !job.segment.rank(rank(0)).unreadable.has(1));
    let mut job = Job::new(2, 0, &Config { inline_bytes_max: 0, ..Config::default() });
    job.ranks[1].executor.refuse(0b1, 0);
    let mut tickets = vec![];
    for rank in [0, 1] {
        let buffer = job.ranks[rank as usize].buffer(&[rank as u8; 5000], Home::Private);
        let start = start(&job, Plan::Bcast.schedule(rank, 2), Binding::None, even(&buffer, 1), Offload::Off);
        tickets.push(job.ranks[rank as usize].executor.start(start).unwrap());
    }
    while job.ranks[0].executor.memory().alloc(64).is_ok() {}
    for ended in outcomes(&mut job, &tickets) {
        let error = ended.unwrap_err();
        assert_eq!(error.class, Class::NoMem);
        assert!(error.message.contains("rank 0 has no 5000 bytes left"), "{error}");
    }
}
