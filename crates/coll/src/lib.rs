// SPDX-License-Identifier: BSD-3-Clause
//! Collectives: chooses what carries a call out and by which algorithm, and starts it.
//!
//! Short calls need no schedule: they go over slots in shared memory, and nonblocking ones form queues.
//!
//! Invariants: the choice of an algorithm depends only on what MPI makes equal on all ranks, and on settings
//! that all ranks share; starting never blocks; blocking, nonblocking and persistent calls start the same
//! schedules.
//!
//! Read next: `choose.rs` (the table of choices), `call.rs` (what a call is), `flat.rs` (calls over slots).
#![forbid(unsafe_code)]

mod attach;
mod cache;
mod call;
pub mod carrier;
pub mod check;
mod choose;
mod count;
mod flat;
mod message;
mod nodes;
mod pull;
mod queue;
mod round;
mod set;
mod short;
mod with_counts;
mod word;

pub use attach::FlatForm;
pub use call::{Call, CollBuffer, Members, buffers_overlap};
pub use choose::{AlgorithmChoice, RULES, Rule, Spans};
pub use count::{count, count_wait};
pub use executor::Offload;
pub use flat::{CALLS_BEFORE, FlatCalls};
pub use message::{MeasuredMessage, MessageInstance};
pub use nodes::Placement;
pub use set::{ActiveRound, Round};
pub use short::{FlatAllreduce, SHORT_MAX, Short};
pub use with_counts::CallWithCounts;

use attach::Bounds;
use cache::{CacheKey, ScheduleCache};
use carrier::{CallFacts, CallMode, Carrier, CarrierFacts, Moved, Policy, Slots, choose};
use datatype::Buffer;
use error::{Class, Result, fail};
use executor::{EdgeMessage, EdgeOutcome, EdgePort, Executor, InstanceTicket, Poll, Start, UserCall};
use flat::FlatSets;
use message::MessageSchedules;
use nodes::NodeMaps;
use queue::{Attaching, QueueState, QueueTicket, QueuedCall, Remainder, ScheduleCall};
use schedule::Schedule;
use schedule::algorithm::{Collective, Params};
use short::MEMBERS_MAX;
use std::sync::Arc;
use sys::Block;
use telemetry::Counter;
use transport::shm::Allocator;
use tuning::{FLAT_BYTES_MAX, NEAR_BYTES_MAX, Tuning, ValueSource};
use with_counts::LongBlock;

/// A bit that the context of no comm has. Schedules carry the blocks of a gatherv that are too long for
/// slots. These schedules have the comm's context with this bit set (`with_counts.rs`).
const LONG_BLOCKS: u64 = 1 << 62;

/// Names a collective that has been started, until `Coll::outcome` has returned its outcome.
#[derive(Clone, Copy, Debug)]
pub enum CollTicket {
    /// A collective that a schedule carries out.
    Schedule(InstanceTicket),
    /// A collective that is in a comm's queue, over slots.
    Queued(QueueTicket),
}

/// All that one process needs to carry out collectives: the executor, the sets of slots, the cached
/// schedules, and what decides the carrier and the algorithm of a call.
pub struct Coll {
    executor: Executor,
    choice: AlgorithmChoice,
    schedules: ScheduleCache,
    nodes: NodeMaps,
    messages: MessageSchedules,
    sets: FlatSets,
    policy: Policy,
    /// Whether `stop_offloading` was called. Proxies then get no more work from this rank.
    offload_stopped: bool,
}

impl Coll {
    /// Makes all that this process needs to carry out collectives. `executor` carries out the schedules;
    /// `settings` and `tuning` decide the choices. Errors: a setting has a value that is not the name of an
    /// algorithm.
    pub fn new(executor: Executor, settings: &settings::Settings, tuning: &Tuning) -> Result<Coll> {
        let choice = AlgorithmChoice::from_settings(settings)?;
        let schedules = ScheduleCache::new(settings.schedule_cache_entries as usize);
        let (nodes, messages) = (NodeMaps::default(), MessageSchedules::new());
        let served = settings.offload != settings::Offload::Off && executor.is_served();
        // Where ranks share cores, a rank that pulls keeps the others from their cores
        // (docs/measured/choices.md).
        let may_spin = executor.segment().job().may_spin();
        let bounds = Bounds {
            inline_bytes_max: match tuning.source(FLAT_BYTES_MAX) {
                ValueSource::Default if may_spin => Bounds::PROBED,
                ValueSource::Default => u64::MAX,
                ValueSource::Table if !may_spin => u64::MAX,
                ValueSource::Table | ValueSource::Setting => tuning.get(FLAT_BYTES_MAX),
            },
            near_bytes_max: tuning.get(NEAR_BYTES_MAX) as usize,
            is_probed: may_spin && !tuning.is_known(FLAT_BYTES_MAX),
        };
        let sets = FlatSets::new(executor.segment().clone(), served, bounds);
        let policy = Policy::new(settings, &choice);
        let offload_stopped = false;
        Ok(Coll { executor, choice, schedules, nodes, messages, sets, policy, offload_stopped })
    }

    /// Notes that other hosts can be reached now, and whether the kernel moves messages to them while ranks
    /// compute.
    pub fn reaches_hosts(&mut self, is_carried_by_kernel: bool) {
        self.policy.is_carried_by_kernel = is_carried_by_kernel && !self.executor.segment().has_dpu();
    }

    /// Starts a collective by a schedule, without asking whether slots would take it. Returns the
    /// collective's ticket.
    pub fn start(&mut self, members: &Members, call: Call) -> Result<CollTicket> {
        self.start_schedule(members, call).map(CollTicket::Schedule)
    }

    /// Whether a proxy would carry a message of `bytes` bytes to `peer`.
    pub fn takes_message(&self, peer: u32, bytes: u64) -> bool {
        !self.offload_stopped && self.executor.takes_message(peer, bytes)
    }

    /// Returns the fewest bytes of a message that a proxy may carry, or None if no proxy carries messages.
    pub fn message_bytes_min(&self) -> Option<u64> {
        self.executor.message_bytes_min()
    }

    /// Decides whether a proxy is to carry a message of `bytes` bytes that the rank starts in the comm of
    /// this context. Returns true if so, and the measurement that `message_ended` ends; None if this message
    /// is not measured.
    pub fn decide_message(&mut self, context: u64, bytes: u64) -> (bool, Option<MeasuredMessage>) {
        let group = message::group(context, bytes);
        let (pays, start) = self.executor.start_measured_message(group);
        (pays, start.map(|start| MeasuredMessage { group, start }))
    }

    /// Whether measurements so far say that a proxy should carry messages of about this length in the comm of
    /// this context.
    pub fn message_pays(&self, context: u64, bytes: u64) -> bool {
        self.executor.message_pays(message::group(context, bytes))
    }

    /// Ends the measurement that `decide_message` started, since the message is over.
    pub fn message_ended(&mut self, MeasuredMessage { group, start }: MeasuredMessage) {
        self.executor.end_measured_message(group, start);
    }

    /// Starts this rank's send or receive of a message, as a schedule of one step. Returns its ticket.
    pub fn start_message(&mut self, mut message: MessageInstance) -> Result<CollTicket> {
        if self.offload_stopped {
            message.offload = Offload::Off;
        }
        self.executor.start(self.messages.start(message)).map(CollTicket::Schedule)
    }

    /// Withdraws the receive of a message. Returns whether it was withdrawn. None: a proxy on another
    /// computer has not answered yet, so the caller asks again (`Executor::withdraw`).
    pub fn withdraw(&mut self, ticket: CollTicket) -> Option<bool> {
        let CollTicket::Schedule(ticket) = ticket else { return Some(false) };
        self.executor.withdraw(ticket)
    }

    /// Ends the send of a message for which no receive will come.
    pub fn abandon(&mut self, ticket: CollTicket) {
        if let CollTicket::Schedule(ticket) = ticket {
            self.executor.abandon(ticket);
        }
    }

    /// Whether a message has ended. The ticket stays valid until `outcome` has returned the outcome.
    pub fn is_over(&self, ticket: CollTicket) -> bool {
        match ticket {
            CollTicket::Schedule(ticket) => self.executor.is_over(ticket),
            CollTicket::Queued(_) => false,
        }
    }

    fn start_schedule(&mut self, members: &Members, call: Call) -> Result<InstanceTicket> {
        let schedule = self.schedule(members, &call)?;
        let mode = if call.blocking { CallMode::Blocking } else { CallMode::Nonblocking };
        let offload =
            if self.offload_stopped { Offload::Off } else { carrier::schedule::offload(&self.policy, mode) };
        let (size, one_group) = (members.peers.len() as u32, members.first_group == 0);
        let has_nodes = self.executor.segment().has_nodes();
        let fetched_bytes_min = carrier::schedule::fetched_bytes_min(&self.policy, mode, has_nodes, || {
            CallFacts::of(&call, size, one_group, mode, false)
        });
        self.executor.start(Start {
            context: members.context,
            sequence: members.sequence,
            peers: members.peers.clone(),
            input: call.input.bind(schedule.input_blocks),
            output: call.output.bind(schedule.output_blocks),
            schedule,
            reduction: call.reduction,
            offload,
            fetched_bytes_min,
            message: false,
        })
    }

    /// Collects the facts that decide the carrier of a call, apart from the call's own (`CallFacts`). `slots`
    /// is the state of the slots that the call would use.
    #[inline(always)]
    pub fn facts(&self, slots: Slots) -> CarrierFacts<'_> {
        CarrierFacts { policy: &self.policy, library: None, on_devices: false, slots }
    }

    /// Returns whether this set of slots carries a blocking call with these facts, and how the call's bytes
    /// move.
    #[inline(always)]
    pub fn slots(&self, set: usize, call_facts: &CallFacts) -> Slots {
        Slots::Attached(call_facts.moves(self.sets.blocking(set).space))
    }

    /// Returns whether the slots of a queue carry a nonblocking call with these facts, and how the call's
    /// bytes move.
    #[inline(always)]
    pub fn slots_of_queue(&self, queue: usize, call_facts: &CallFacts) -> Slots {
        match &self.sets.queues.queues[queue].state {
            QueueState::Refused => Slots::Refused,
            QueueState::Attaching(_) | QueueState::Broken(_) => Slots::Unattached,
            QueueState::Attached(attached) => Slots::Attached(call_facts.moves(attached.space)),
        }
    }

    /// Whether the fast path (`FlatAllreduce`) takes an allreduce with vectors of `bytes` bytes on this set
    /// of slots.
    #[inline]
    pub fn takes_flat(&self, set: usize, bytes: usize, members: usize) -> bool {
        self.policy.may_use_slots(Collective::Allreduce)
            && (bytes as u64).saturating_mul(members as u64) <= self.sets.blocking(set).flat_max
    }

    /// Prepares a blocking call with counts (gatherv and the like) for the slots of this set. Returns None if
    /// a schedule is to carry the call out.
    pub fn prepare_with_counts(&mut self, set: usize, call: &Call) -> Option<CallWithCounts> {
        self.sets.prepare_with_counts(set, call)
    }

    /// Whether a schedule must carry out the call `vector`, because its round has shown that some
    /// contribution is too long for slots. If so, the set's next calls with counts go to schedules at once.
    pub fn leaves_to_schedule(&mut self, set: usize, with_counts: &CallWithCounts) -> bool {
        let is_scheduled = with_counts.is_scheduled();
        if is_scheduled {
            self.sets.back_off(set);
        }
        is_scheduled
    }

    /// Starts a schedule for each block that this rank sends or receives and that was too long for the slots
    /// in the last blocking call on this set. `context` is that of the set's comm. Returns the schedules'
    /// tickets.
    pub fn start_long_blocks(
        &mut self,
        set: usize,
        context: u64,
        peers: &[u32],
        with_counts: &CallWithCounts,
    ) -> Vec<Result<CollTicket>> {
        let set = &self.sets.blocking(set).set;
        let (round, rank) = (set.round(), set.rank());
        let started = self.start_blocks(round, context, peers, rank, with_counts);
        started.into_iter().map(|start| start.map(CollTicket::Schedule)).collect()
    }

    fn start_blocks(
        &mut self,
        round: u64,
        context: u64,
        peers: &[u32],
        rank: usize,
        with_counts: &CallWithCounts,
    ) -> Vec<Result<InstanceTicket>> {
        let context = context ^ LONG_BLOCKS;
        let mut start = |LongBlock { from, to, block }| {
            // All members count the rounds alike, and in each a member sends one block.
            let sequence = (round as u32).wrapping_mul(MEMBERS_MAX as u32) + from as u32;
            let (rank, peers) = (u32::from(rank == to), Arc::from([peers[from], peers[to]]));
            let call = Call {
                blocking: true,
                ..Call::new(Collective::Bcast, CollBuffer::None, CollBuffer::bytes(block))
            };
            self.start_schedule(&Members { context, sequence, rank, peers, first_group: 0 }, call)
        };
        with_counts.long_blocks(rank).map(&mut start).collect()
    }

    /// Returns how a set carries out a short call that fits: through slots, or by reading the senders'
    /// memory. Also sets the number of the call's rounds.
    #[inline]
    pub fn form(&self, set: usize, short: &mut Short, moved: Moved) -> FlatForm {
        self.sets.blocking(set).form(short, moved)
    }

    /// Allocates this rank's slots for a set among the ranks `peers`. Returns their location (the number in a
    /// `Location`), which all members then exchange.
    pub fn alloc_slots(&mut self, peers: &[u32]) -> u64 {
        self.sets.memory.alloc(self.executor.memory(), peers).0
    }

    /// Maps the slots at the locations that all members have exchanged. Returns the number of the set, or
    /// None if some member has no slots. Errors: slots outside their arena.
    pub fn attach_flat(&mut self, rank: usize, peers: &[u32], locations: &[i64]) -> Result<Option<usize>> {
        self.sets.attach(rank, peers, locations)
    }

    /// Opens a queue of calls that all members make in the same order, without waiting for the other members.
    /// Returns the queue's number. The caller gives `members` a sequence number that no other call has.
    pub fn open_queue(&mut self, members: &Members) -> Result<usize> {
        let location = self.sets.memory.alloc(self.executor.memory(), &members.peers);
        let input = Block::of(&location.0.to_ne_bytes());
        let output = Block::new(8 * members.peers.len());
        let (send, recv) = (Buffer::from(input.span()), Buffer::from(output.span()));
        let call = Call::new(Collective::Allgather, CollBuffer::bytes(send), CollBuffer::PerRank(recv));
        let exchange = self.start_schedule(members, call)?;
        let (rank, peers) = (members.rank as usize, members.peers.clone());
        Ok(self.sets.queues.open(Attaching { exchange, location, _input: input, output, rank, peers }))
    }

    /// Starts a nonblocking call: in the queue if the queue's slots take the call, otherwise by a schedule.
    /// Returns the call's ticket.
    pub fn start_in(&mut self, queue: usize, members: &Members, call: Call) -> Result<CollTicket> {
        let (size, one_group) = (members.peers.len() as u32, members.first_group == 0);
        let call_facts = CallFacts::of(&call, size, one_group, CallMode::Nonblocking, false);
        let queued = match choose(&call_facts, &self.facts(self.slots_of_queue(queue, &call_facts))) {
            (Carrier::Queue, _) => self.queue(queue, members, &call),
            _ => None,
        };
        queued.map_or_else(|| self.start(members, call), Ok)
    }

    /// Adds a call that `choose` has given to the queue, behind the queue's earlier calls. Returns the call's
    /// ticket; None if the slots cannot take the call. Clones `call` only where a schedule may have to carry
    /// it out.
    pub fn queue(&mut self, queue: usize, members: &Members, call: &Call) -> Option<CollTicket> {
        let whole = || ScheduleCall { call: call.clone(), members: members.clone() };
        let queued = match &self.sets.queues.queues[queue].state {
            QueueState::Refused => return None,
            QueueState::Attaching(_) | QueueState::Broken(_) => QueuedCall::undecided(whole()),
            QueueState::Attached(attached) => QueuedCall::flat(attached.flat_call(call)?, whole),
        };
        Some(self.enqueue(queue, queued))
    }

    #[inline(always)]
    fn enqueue(&mut self, queue: usize, queued: QueuedCall) -> CollTicket {
        let Coll { executor, sets, .. } = self;
        let mut ended = |ticket| executor.outcome(ticket);
        let ticket = sets.queues.push(queue, queued, &mut sets.memory, &mut ended);
        self.start_remainders();
        CollTicket::Queued(ticket)
    }

    /// Closes the queue with this number, since its comm or persistent request is freed. Calls that are
    /// already in it still end; then the queue is removed.
    pub fn close_queue(&mut self, queue: usize) {
        self.sets.queues.close(queue, &mut self.sets.memory);
    }

    /// Starts schedules for the parts of queued calls that did not fit the slots.
    #[inline]
    fn start_remainders(&mut self) {
        if !self.sets.queues.remainders.is_empty() {
            self.start_all_remainders();
        }
    }

    #[cold]
    fn start_all_remainders(&mut self) {
        for Remainder { queued, tried, whole } in std::mem::take(&mut self.sets.queues.remainders) {
            let ScheduleCall { call, members } = whole;
            let started = match tried {
                Some((with_counts, round)) if !with_counts.is_scheduled() => {
                    count(call.collective);
                    let rank = members.rank as usize;
                    self.start_blocks(round, members.context, &members.peers, rank, &with_counts)
                }
                _ => vec![self.start_schedule(&members, call)],
            };
            let queued = &mut self.sets.queues.calls[queued];
            for start in started {
                match start {
                    Ok(ticket) => queued.schedules.push(ticket),
                    Err(error) => {
                        queued.outcome = queued.outcome.take().map(|outcome| outcome.and(Err(error)))
                    }
                }
            }
        }
    }

    /// Starts an allreduce that `takes_flat` allows, and looks `looks` times whether it is over. Returns None
    /// if it is not over by then. The caller must then continue it: by `start_round`, with the same call as a
    /// `Short`.
    #[inline(always)]
    pub fn try_now(&mut self, set: usize, mut call: FlatAllreduce, looks: u32) -> Option<()> {
        self.sets.try_now(set, &mut call, looks)
    }

    /// Starts a round of a call on a set of slots, or continues the round that `try_now` has started.
    #[inline]
    pub fn start_round(&mut self, set: usize, call: &impl Round) -> ActiveRound {
        self.sets.start_round(set, call)
    }

    /// Advances a round as far as possible. Returns the round's outcome, or None before the round has ended.
    #[inline]
    pub fn advance(
        &mut self,
        set: usize,
        active: &mut ActiveRound,
        call: &mut impl Round,
    ) -> Option<Result<()>> {
        self.sets.advance(set, active, call)
    }

    /// Whether the last blocking call on this set of slots waits for a member that may need this cpu, so that
    /// the rank should yield.
    #[inline]
    pub fn waits_for_one_on(&self, set: usize, cpu: usize) -> bool {
        self.sets.blocking(set).set.may_need_cpu(cpu)
    }

    /// Notes that a thread begins (`begins`) or ends a long wait in a blocking call over slots.
    #[cold]
    pub fn wait(&mut self, set: usize, begins: bool) {
        self.sets.wait(set, begins);
    }

    /// Notes that the rank begins (`begins`) or ends a long wait in any MPI call, at the time `at` in
    /// nanoseconds.
    pub fn rank_waits(&mut self, begins: bool, at: u64) {
        self.executor.wait(begins, at);
    }

    /// Whether some call over slots can go on: the member for which it waited has begun the round. A thread
    /// that waits for such a call asks before it sleeps.
    #[inline]
    pub fn flat_has_events(&self) -> bool {
        self.sets.has_events()
    }

    /// Leaves the set of slots for the blocking calls of a comm that the program frees.
    pub fn leave(&mut self, set: usize) {
        self.sets.leave(set);
    }

    /// Makes this rank carry out everything itself from now on. A rank that leaves its job calls this, since
    /// proxies forget the rank.
    pub fn stop_offloading(&mut self) {
        self.offload_stopped = true;
    }

    fn schedule(&mut self, members: &Members, call: &Call) -> Result<Arc<Schedule>> {
        if let Some(neighbors) = &call.neighbors {
            telemetry::count(Counter::NeighborCalls, 1);
            let same = matches!(call.collective, Collective::Allgather | Collective::Allgatherv);
            return Ok(self.schedules.get(CacheKey::Neighbors(neighbors.clone(), same)));
        }
        let size = members.peers.len() as u32;
        let (rank, first_group) = (members.rank, members.first_group);
        let placement = self.nodes.of(&members.peers, self.executor.segment());
        let algorithm = match (first_group > 0).then(|| call.collective.between()) {
            None => self.choice.of(call.collective, call.bytes(size), size, call.commutative, &placement),
            Some(Some(algorithm)) => algorithm,
            Some(None) => fail!(Class::Comm, "{} needs an intracommunicator", call.collective.name()),
        };
        count(call.collective);
        let &Call { root, in_place, commutative, .. } = call;
        let nodes = placement.map().filter(|_| first_group == 0).cloned();
        let params = Params { rank, size, root, in_place, commutative, first_group, nodes };
        Ok(self.schedules.get(CacheKey::All(algorithm, params)))
    }

    /// Advances all collectives that this rank has started and executes itself. Returns whether any has
    /// advanced, or that an operator of the program must be called first.
    #[inline]
    pub fn poll(&mut self) -> Poll {
        let Coll { executor, sets, .. } = self;
        let moved = sets.queues.poll(&mut sets.memory, &mut |ticket| executor.outcome(ticket));
        self.start_remainders();
        match (moved, self.executor.poll()) {
            (true, Poll::Idle) => Poll::Progressed,
            (_, poll) => poll,
        }
    }

    /// Continues after the caller has called the program's operator, for which `poll` had asked.
    pub fn called(&mut self, call: UserCall) {
        self.executor.called(call);
    }

    /// Returns the rank's executor, through which the rank joins a proxy on another computer.
    pub fn executor(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Whether a note (a message between executors) to a proxy on another computer must be sent before the
    /// next MPI call.
    #[inline]
    pub fn has_urgent_notes(&self) -> bool {
        self.executor.has_urgent_notes()
    }

    /// Sends and receives notes (messages between executors) about transfers between hosts
    /// (`Executor::exchange`). Returns whether any note moved.
    pub fn exchange(&mut self, port: &mut impl EdgePort) -> Result<bool> {
        self.executor.exchange(port)
    }

    /// Takes a message that a collective's schedule needs. The caller sends it to a rank of another host, or
    /// receives it from there, and then calls `edge_ended`. None if no message is needed now.
    pub fn next_edge(&mut self) -> Option<EdgeMessage> {
        self.executor.next_edge()
    }

    /// Reports to a collective that the message `edge`, which `next_edge` returned for it, has ended.
    pub fn edge_ended(&mut self, edge: &EdgeMessage, outcome: EdgeOutcome) {
        self.executor.edge_ended(edge, outcome);
    }

    /// Returns the outcome of a collective, or None before it has ended. The ticket is not valid after that.
    pub fn outcome(&mut self, ticket: CollTicket) -> Option<Result<()>> {
        match ticket {
            CollTicket::Schedule(ticket) => self.executor.outcome(ticket),
            CollTicket::Queued(ticket) => {
                self.sets.queues.outcome(ticket, &mut |schedule| self.executor.outcome(schedule))
            }
        }
    }

    /// Returns how a schedule carries out a collective, for traces; None if slots carry it out.
    #[cold]
    pub fn carried(&self, ticket: CollTicket) -> Option<telemetry::Carried> {
        let schedule = match ticket {
            CollTicket::Schedule(schedule) => schedule,
            CollTicket::Queued(call) => self.sets.queues.schedule_of(call)?,
        };
        let algorithm = self.executor.schedule(schedule).map_or("", |made| self.schedules.algorithm(made));
        self.executor.carried(schedule).map(|carried| telemetry::Carried { algorithm, ..carried })
    }

    /// Whether shared memory has changed since the last `poll`. The rank asks before it goes to sleep.
    pub fn has_events(&self) -> bool {
        self.executor.has_events() || self.sets.has_events()
    }

    /// Whether no peer needs anything more from collectives that have ended at this rank, so that the rank
    /// may leave.
    pub fn is_quiet(&self) -> bool {
        self.executor.is_quiet()
    }

    /// Whether any collective is under way.
    pub fn is_busy(&self) -> bool {
        self.executor.is_busy()
    }

    /// Returns the allocator of the rank's arena. MPI_Alloc_mem takes memory from it, too.
    pub fn memory(&mut self) -> &mut Allocator {
        self.executor.memory()
    }

    /// Returns all collectives that schedules carry out at present, for messages to the user.
    pub fn pending(&self) -> Vec<executor::PendingOperation> {
        self.executor.pending()
    }

    /// Returns the sets of slots on which a call waits. Each comes with the rank of a member that has not
    /// begun the round for which the call waits.
    pub fn pending_on_flat(&self) -> impl Iterator<Item = (FlatCalls, usize)> {
        self.sets.pending()
    }

    /// Returns the next warning to show to the user, such as that memory cannot be read; None if there is
    /// none.
    pub fn warning(&mut self) -> Option<String> {
        self.executor.warning()
    }
}
