// SPDX-License-Identifier: BSD-3-Clause
//! The rank's executor: starts instances (started schedules), drives some of them itself, and watches the
//! proxy that drives the others.
//!
//! | an instance | its driver | who changes that |
//! |---|---|---|
//! | in `driven` | the rank | `end()`, when it has ended |
//! | `choice.is_proxy()` | the proxy; the rank drives its share | `submit()`; `take_back_instances()` |
//! | `is_retiring` | the same driver as before | `outcome()`, when it is locally complete; `end()` |
//! | in `unseen_failures` | none | `end()`, after a fault; `start()`, once receivers saw it |

mod ends;
mod export;
mod policy;
mod submit;

use crate::block::{ExecutorParts, InstanceBlock, Program};
use crate::engine::{Execution, Progress, WantedMessage};
use crate::fault::Fault;
use crate::habit::{MeasuredStart, MessageHabit, Waits};
use crate::imported::RemoteProxy;
use crate::memory::{Driver, Reach};
use crate::note::{EdgePort, NoteKind, NoteOutcome};
use crate::proxy;
use crate::record::{COMPLETE, Field, Head};
use crate::remote_edges::RemoteEdges;
use crate::watch::ProxyWatch;
use crate::{
    Config, EdgeMessage, EdgeOutcome, InstanceTicket, Offload, PendingOperation, Poll, Reduction, Start,
    UserCall,
};
use error::{Class, Result, fail};
use rustc_hash::FxHashMap;
use schedule::Schedule;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::{Carried, Choice, Counter};
use transport::export::ExportedRange;
use transport::shm::{Allocator, LocalRank, Segment};

/// Lends a program or block the parts of an executor that it needs. It is a macro, because a function would
/// borrow the whole executor.
macro_rules! parts {
    ($executor:expr) => {
        ExecutorParts {
            allocator: &mut $executor.allocator,
            reach: &$executor.reach,
            config: &$executor.config,
            rank: $executor.rank,
        }
    };
}

/// How many operations a rank has started, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How many operations this rank has started.
    pub started: u64,
    /// How many of its operations this rank has given to its proxy.
    pub offloaded: u64,
    /// How many of its operations this rank wanted to give to its proxy, which could not take them.
    pub refused: u64,
    /// How many operations the rank and its proxy on another computer have divided: each drives a share of
    /// the steps.
    pub divided: u64,
    /// How many operations this rank took back from a proxy that died, stalled, or gave them back.
    pub recovered: u64,
}

/// A rank's executor: starts schedules, and drives them or gives them to the rank's proxy.
pub struct Executor {
    rank: LocalRank,
    config: Config,
    allocator: Allocator,
    reach: Reach,
    programs: Slab<Program>,
    /// For the address of each schedule, the index of its program in `programs`.
    by_schedule: FxHashMap<usize, usize>,
    outstanding: Slab<Instance>,
    /// The indices in `outstanding` of the operations that this rank drives, wholly or in part.
    driven: Vec<u32>,
    /// The number of instances (started schedules) that the proxy drives.
    offloaded: usize,
    /// The number of instances whose operations have ended for the MPI program, but that peers still need.
    retiring: usize,
    /// The bytes of the arena that instances use for scratch buffers and copies of sends while they are
    /// retiring.
    retiring_bytes: u64,
    /// The proxy's count of operations that it has ended or returned, as it was at the last `poll`.
    ended: u64,
    /// The proxy's count of operations that it has returned, as it was when `check_proxy` last ran.
    returns: u64,
    watch: Option<ProxyWatch>,
    waits: Waits,
    /// For each kind of message, what was learnt about whether a proxy should carry it. The caller gives each
    /// kind its key.
    habits: FxHashMap<(u64, u32), MessageHabit>,
    /// The number that was given to the program (stored schedule) made last. No other in the job has it.
    programs_made: u64,
    /// The version number that this rank gave to the parameters that it wrote last.
    version: u64,
    /// The number that was given to the ticket returned last.
    tickets: u32,
    idle_bytes: u64,
    /// The messages to or from ranks of other hosts that schedules need. `next_edge` takes them.
    edges: Vec<EdgeMessage>,
    far: RemoteEdges,
    /// The rank's proxy if it runs on another computer. None if it runs on this host, or if there is none.
    remote_proxy: Option<RemoteProxy>,
    /// The failed instances (started schedules) that have ended, each with the index of its program. They
    /// stay in the directory until the receivers of all their sends have seen the failure.
    unseen_failures: Vec<(usize, Box<InstanceBlock>)>,
    warnings: VecDeque<String>,
    warned_unreachable: bool,
    counters: Counters,
}

/// An operation that this rank has started, until its memory is free for another start.
struct Instance {
    program: usize,
    block: Box<InstanceBlock>,
    ticket: u32,
    /// Who drives the operation (the rank or its proxy), and why.
    choice: Choice,
    finished: bool,
    /// Whether the operation has ended for the MPI program, so that its ticket is invalid, while peers may
    /// still need its record and bytes.
    is_retiring: bool,
    /// When the operation began, if it is measured to learn whether the rank computes meanwhile. None if not.
    started: Option<MeasuredStart>,
    /// The ranges of memory that the rank's proxy on another computer may access for this operation.
    exported: Vec<ExportedRange>,
    /// Whether this rank has told its proxy on another computer that the rank drives this operation itself.
    is_owned: bool,
    /// Whether the proxy that drives this message, on another computer, was asked to withdraw it.
    withdrawal: Withdrawal,
}

/// Whether a proxy that drives a message, on another computer, was asked to withdraw it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Withdrawal {
    None,
    /// The proxy was asked to withdraw the message, and has not answered. The operation does not end before
    /// the answer.
    Asked,
    Answered,
}

impl Executor {
    /// Returns the segment: the memory that the processes of the job on this host share.
    pub fn segment(&self) -> &Segment {
        &self.reach.segment
    }

    /// Whether this rank has a proxy that may carry out what it starts.
    pub fn is_served(&self) -> bool {
        self.reach.segment.proxy_of(self.rank).is_some()
    }

    /// Makes the executor of `rank`. `allocator` allocates from that rank's arena.
    pub fn new(segment: Segment, rank: LocalRank, allocator: Allocator, config: Config) -> Executor {
        let generation = segment.generation(rank.peer());
        let watch = segment
            .proxy_of(rank)
            .map(|proxy| ProxyWatch::new(segment.clone(), proxy, config.proxy_timeout_ms));
        let scalar = |index: usize| segment.rank(rank).scalars[index].load(Ordering::Acquire);
        Executor {
            rank,
            reach: Reach::new(segment.clone(), Driver::Rank(rank), config.chunk_bytes),
            config,
            allocator,
            programs: Slab::new(),
            by_schedule: FxHashMap::default(),
            outstanding: Slab::new(),
            driven: Vec::new(),
            offloaded: 0,
            retiring: 0,
            retiring_bytes: 0,
            ended: scalar(proxy::ENDED),
            returns: scalar(proxy::RETURNS),
            watch,
            waits: Waits::default(),
            habits: FxHashMap::default(),
            // They are unique in the job, also after an earlier rank with this page: peers cache what they
            // found in a program, and proxies what they decoded.
            programs_made: (u64::from(generation) << 12 | u64::from(rank.peer())) << 32,
            version: u64::from(generation) << 32,
            tickets: 0,
            idle_bytes: 0,
            edges: Vec::new(),
            far: RemoteEdges::default(),
            remote_proxy: None,
            unseen_failures: Vec::new(),
            warnings: VecDeque::new(),
            warned_unreachable: false,
            counters: Counters::default(),
        }
    }

    /// Makes memory inaccessible in a test. `private` and `arenas` have a bit for each rank: the kernel
    /// refuses access to the private memory of the ranks in `private`, and the arenas of the ranks in
    /// `arenas` cannot be mapped.
    #[cfg(test)]
    pub(crate) fn refuse(&self, private: u64, arenas: u64) {
        self.reach.test_refused.set(private);
        self.reach.test_unmapped.set(arenas);
    }

    /// Returns the allocator of the rank's arena. MPI_Alloc_mem takes memory from it, too.
    pub fn memory(&mut self) -> &mut Allocator {
        &mut self.allocator
    }

    /// Starts an operation and returns its ticket. Peers can find the operation from now on. The proxy gets
    /// it, or `poll` drives it. Errors: class `NoMem`, or `Intern` if the buffers do not fit the schedule.
    pub fn start(&mut self, mut start: Start) -> Result<InstanceTicket> {
        self.check(&start)?;
        for at in (0..self.unseen_failures.len()).rev() {
            if !self.unseen_failures[at].1.run.record.has_unseen_failure() {
                let (program, block) = self.unseen_failures.swap_remove(at);
                self.release(program, block);
            }
        }
        let has_nodes = self.reach.segment.has_nodes();
        // All members decide this alike.
        if !has_nodes || self.config.offload == Offload::Off || !self.reach.segment.proxies_are_servers() {
            start.fetched_bytes_min = u64::MAX;
        }
        let key = self.program(&start.schedule)?;
        let mut block = self.programs[key].block(&start, &mut parts!(self))?;
        self.idle_bytes -= block.data_bytes();
        let prepared = self.prepare(key, &mut block, &start);
        let mut choice = match prepared {
            Ok(choice) => choice,
            Err(error) => {
                self.keep_for_reuse(key, block);
                return Err(error);
            }
        };
        self.counters.started += 1;
        self.programs[key].running += 1;
        self.programs[key].used = self.counters.started;
        let proxy = self.reach.segment.proxy_of(self.rank).filter(|_| choice.is_proxy());
        let driver = proxy.map_or(0, |proxy| 1 + u64::from(proxy));
        block.link(start.context, start.sequence, driver, &parts!(self));
        let mut exported = Vec::new();
        if choice.is_proxy() && !self.submit(key, &block, &start, &mut exported) {
            choice = Choice::Full;
        }
        let is_offloaded = choice.is_proxy();
        let is_owned = block.run.has_fetches() && !is_offloaded && self.remote_proxy.is_some();
        if is_owned {
            self.send_owned(NoteKind::Own, (start.context, start.sequence));
        }
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = self.tickets;
        let is_measured =
            has_nodes && self.measures_messages(&block, &start) || self.is_measured(&block, &start);
        let started = is_measured.then(|| self.waits.start());
        let instance = Instance {
            program: key,
            block,
            ticket,
            choice,
            finished: false,
            is_retiring: false,
            started,
            exported,
            is_owned,
            withdrawal: Withdrawal::None,
        };
        let index = self.outstanding.insert(instance) as u32;
        self.offloaded += usize::from(is_offloaded);
        let run = &mut self.outstanding[index as usize].block.run;
        if !is_offloaded {
            run.restart(start.context, start.sequence);
            self.driven.push(index);
        } else if self.remote_proxy.is_some() && run.is_divided() {
            run.restart_share(start.context, start.sequence);
            self.counters.divided += 1;
            self.driven.push(index);
        }
        Ok(InstanceTicket { index, generation: ticket })
    }

    /// Notes that the rank begins (`begins`) or ends a wait in an MPI call, at the time `at` in nanoseconds.
    pub fn wait(&mut self, begins: bool, at: u64) {
        self.waits.wait(begins, at);
    }

    /// Drives each operation that this rank drives a little further. Also checks whether the proxy still
    /// lives, if the proxy has any operation.
    pub fn poll(&mut self) -> Poll {
        let step = self.waits.step();
        let polled = self.poll_all();
        self.waits.stepped(step);
        polled
    }

    fn poll_all(&mut self) -> Poll {
        let mut progressed = false;
        let mut watches = self.offloaded > 0;
        let ended = self.scalar(proxy::ENDED);
        if std::mem::replace(&mut self.ended, ended) != ended {
            self.end_retired();
        }
        let mut at = 0;
        while let Some(&index) = self.driven.get(at) {
            let instance = &mut self.outstanding[index as usize];
            let polled = instance.block.run.poll(&self.reach);
            while let Some(wanted) = instance.block.run.next_wanted() {
                let WantedMessage { step, peer, is_send, context, tag, span } = wanted;
                let ticket = InstanceTicket { index, generation: instance.ticket };
                let is_overlapped =
                    instance.started.is_some() && self.programs[instance.program].habit.computes();
                self.edges.push(EdgeMessage {
                    ticket,
                    step,
                    peer,
                    is_send,
                    context,
                    tag,
                    span,
                    is_overlapped,
                });
            }
            self.far.take_outgoing(std::iter::from_fn(|| instance.block.run.next_outgoing()), &self.reach);
            if let Some(remote) = &self.remote_proxy {
                instance.send_steps(remote.endpoint, &mut self.far.notes_out);
            }
            watches |= instance.block.run.has_fetches();
            match polled {
                Ok(Progress::Idle) => at += 1,
                Ok(Progress::Moved | Progress::Local) => {
                    progressed = true;
                    at += 1;
                }
                Ok(Progress::Finished) => {
                    progressed = true;
                    instance.finished = true;
                    let retires = instance.is_retiring;
                    self.driven.swap_remove(at);
                    if retires {
                        self.end(index as usize);
                    }
                }
                Ok(Progress::Stage { step }) => {
                    progressed = true;
                    instance.block.stage(step, &mut parts!(self));
                }
                Ok(Progress::Call { step, left, into, blocks }) => {
                    let ticket = InstanceTicket { index, generation: instance.ticket };
                    let token = match instance.block.run.buffers.reduction {
                        Some(Reduction::User { token, .. }) => token,
                        _ => 0,
                    };
                    return Poll::Call(UserCall { ticket, step, token, left, into, blocks });
                }
                // A rank's engine stores every fault in the record and goes on; only a test's driver dies.
                Err(_) => return Poll::Idle,
            }
        }
        if watches {
            progressed |= self.check_proxy();
        }
        if progressed { Poll::Progressed } else { Poll::Idle }
    }

    /// Sends and receives notes (messages between executors) about this rank's operations. Returns whether
    /// any note was sent or received. Errors (MPI_ERR_PROC_ABORTED): a process is out of reach although it
    /// lives.
    pub fn exchange(&mut self, port: &mut impl EdgePort) -> Result<bool> {
        let Executor { far, reach, driven, outstanding, .. } = self;
        let moved = far.exchange(port, reach, |event, reads| {
            let run = |index: &u32| outstanding[*index as usize].block.run.is_of(event.note());
            if let Some(&index) = driven.iter().find(|index| run(index)) {
                // A rank's engine stores every fault in its step; only a test's driver dies.
                return outstanding[index as usize]
                    .block
                    .run
                    .take_event(event, reach, reads)
                    .unwrap_or(NoteOutcome::Ignored);
            }
            NoteOutcome::Early
        })?;
        self.take_proxy_notes();
        Ok(moved)
    }

    /// Takes a message that an operation needs. The caller sends it to a rank of another host, or receives it
    /// from there, and then calls `edge_ended`. None if no message is needed now.
    pub fn next_edge(&mut self) -> Option<EdgeMessage> {
        self.edges.pop()
    }

    /// Reports to an operation how a message that `next_edge` returned has ended.
    pub fn edge_ended(&mut self, edge: &EdgeMessage, outcome: EdgeOutcome) {
        let peer = edge.peer;
        let outcome = match outcome {
            EdgeOutcome::Moved(bytes) => Ok(bytes),
            EdgeOutcome::Longer => Err(Fault::Longer { peer, expected: edge.span.bytes() as u64 }),
            EdgeOutcome::Lost => Err(Fault::Lost { peer }),
        };
        if let Some(instance) = self.outstanding.get_mut(edge.ticket.index as usize)
            && instance.ticket == edge.ticket.generation
        {
            instance.block.run.message_ended(edge.step, outcome);
        }
    }

    /// Reports that the user's reduction function has run for the call `call`, which `poll` returned. The
    /// operation then goes on.
    pub fn called(&mut self, call: UserCall) {
        if let Some(instance) = self.outstanding.get_mut(call.ticket.index as usize)
            && instance.ticket == call.ticket.generation
        {
            instance.block.run.called(call.step);
        }
    }

    /// Withdraws the receive of a message. Returns whether that succeeded; false if its bytes have started to
    /// come, and None while a proxy on another computer has not answered: ask again.
    pub fn withdraw(&mut self, ticket: InstanceTicket) -> Option<bool> {
        let Some(run) = self.run_of(ticket) else { return Some(false) };
        let answer = match self.is_exported(ticket) {
            true => run.record.claim(),
            false => Some(run.record.withdraw() || run.record.is_withdrawn()),
        };
        match answer {
            None => self.send_withdrawn(ticket, Withdrawal::Asked),
            Some(_) => self.outstanding[ticket.index as usize].withdrawal = Withdrawal::Answered,
        }
        self.nudge();
        answer
    }

    /// Marks the send of a message as done, since no receive will take the message.
    pub fn abandon(&mut self, ticket: InstanceTicket) {
        if self.is_exported(ticket) {
            self.send_withdrawn(ticket, Withdrawal::Answered);
        }
        let Some(run) = self.run_of(ticket) else { return };
        run.record.step(0, Field::Done).store(COMPLETE, Ordering::Release);
        self.nudge();
    }

    fn run_of(&self, ticket: InstanceTicket) -> Option<&Execution> {
        Some(&self.instance_of(ticket)?.block.run)
    }

    /// Wakes the rank's proxy, because an operation that the proxy may drive has changed.
    fn nudge(&self) {
        if let Some(proxy) = self.reach.segment.proxy_of(self.rank) {
            self.reach.segment.proxy(proxy).bell.ring();
        }
    }

    /// Returns for traces who carries out an operation, how many bytes it moves and when it ended. None if
    /// the ticket is not valid.
    #[cold]
    pub fn carried(&self, ticket: InstanceTicket) -> Option<Carried> {
        let instance = self.instance_of(ticket)?;
        let run = &instance.block.run;
        let word = |which: Head| run.record.head(which).load(Ordering::Relaxed);
        Some(Carried {
            context: word(Head::Context),
            sequence: word(Head::Stamp) as u32,
            choice: instance.choice,
            algorithm: "",
            bytes: instance.block.moved_bytes,
            completed: word(Head::Completed),
            cpu_ns: word(Head::CpuNs),
        })
    }

    /// Returns the schedule of an operation, or None if the operation is not known any more.
    #[cold]
    pub fn schedule(&self, ticket: InstanceTicket) -> Option<&Arc<Schedule>> {
        let instance = self.instance_of(ticket)?;
        Some(&self.programs[instance.program].schedule)
    }

    /// Whether a call of `poll` may find something new. The rank asks this before it sleeps on its doorbell.
    pub fn has_events(&self) -> bool {
        let run = |&index: &u32| &self.outstanding[index as usize].block.run;
        self.far.has_work(&self.reach)
            || self.scalar(proxy::ENDED) != self.ended
            || self.driven.iter().map(run).any(|run| run.has_events(&self.reach))
    }

    /// Whether the rank has started any operation whose memory is not free yet.
    pub fn is_busy(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Describes every operation under way, for a report on a hanging job.
    pub fn pending(&self) -> Vec<PendingOperation> {
        let one = |(_, instance): (usize, &Instance)| {
            let run = &instance.block.run;
            let steps = run.steps() as u32;
            let done =
                |step: &u32| run.record.step(*step, Field::Done).load(Ordering::Relaxed) & COMPLETE != 0;
            PendingOperation {
                context: run.context,
                sequence: run.sequence,
                steps,
                done: (0..steps).filter(done).count() as u32,
                absent: run
                    .peers
                    .iter()
                    .filter(|peer| self.is_absent(run, **peer))
                    .map(|peer| peer.number())
                    .collect(),
                is_offloaded: instance.choice.is_proxy(),
            }
        };
        self.outstanding.iter().map(one).collect()
    }

    /// Takes the oldest warning that has not been shown to the user; None if there is none.
    pub fn warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// Returns how many operations the rank has started so far, and what became of them.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn check(&self, start: &Start) -> Result<()> {
        let ranks = self.reach.segment.shape().ranks;
        if start.peers.len() != start.schedule.size as usize || start.peers.iter().any(|&peer| peer >= ranks)
        {
            fail!(
                Class::Intern,
                "a schedule for {} ranks with {} peers of a job of {ranks}",
                start.schedule.size,
                start.peers.len()
            );
        }
        Ok(())
    }

    /// Returns the index of a schedule's program, and makes the program if there is none yet. If there are
    /// too many programs, the least recently used one is dropped first.
    fn program(&mut self, schedule: &Arc<Schedule>) -> Result<usize> {
        let address = Arc::as_ptr(schedule) as usize;
        if let Some(&key) = self.by_schedule.get(&address) {
            return Ok(key);
        }
        if self.programs.len() >= self.config.programs_max {
            self.forget_one();
        }
        self.programs_made += 1;
        let program = Program::new(schedule, self.programs_made, &mut parts!(self))?;
        let key = self.programs.insert(program);
        self.by_schedule.insert(address, key);
        Ok(key)
    }

    fn forget_one(&mut self) {
        let idle = self.programs.iter().filter(|(_, program)| program.running == 0);
        let Some((key, _)) = idle.min_by_key(|(_, program)| program.used) else { return };
        let program = self.programs.remove(key);
        self.by_schedule.remove(&(Arc::as_ptr(&program.schedule) as usize));
        self.idle_bytes -= program.idle.iter().map(|block| block.data_bytes()).sum::<u64>();
        program.free(&mut self.allocator);
    }

    /// Fills an operation's memory in for a start. Returns who executes it (rank or proxy), and why.
    fn prepare(&mut self, key: usize, block: &mut InstanceBlock, start: &Start) -> Result<Choice> {
        block.bind(start, &parts!(self))?;
        if self.reach.segment.has_nodes() {
            block.run.expect_remote(start.fetched_bytes_min);
        }
        if self.programs[key].plan.reduces && !start.reduction.is_some_and(|reduction| reduction.is_sound()) {
            fail!(
                Class::Intern,
                "a schedule that reduces was started with the operator {:?}",
                start.reduction
            );
        }
        let choice = self.choose(key, block, start);
        let readers = self.readers(block, start);
        block.address(choice.is_proxy(), readers, &mut parts!(self))?;
        if choice.is_proxy() {
            self.programs[key].publish(block, &mut self.version, &mut parts!(self))?;
        }
        Ok(choice)
    }

    fn count(&self, counter: Counter, n: u64) {
        self.reach.segment.rank(self.rank).counters.count(counter, n);
    }
}
