//! Collectives: picks an algorithm and starts its schedule. How an algorithm works is the business of `schedule`; who
//! carries it out, of `executor`.
//!
//! Invariants: the algorithm depends only on what MPI makes equal on all ranks and on settings of scope `job`; starting never blocks;
//! blocking, nonblocking and persistent calls start the same schedules.
//!
//! Short calls need no schedule: they go over slots (`flat.rs`), those that do not block in queues (`queue.rs`).
//!
//! Read next: `choose.rs` (the table of choices), `call.rs` (what a call is).
#![forbid(unsafe_code)]

mod cache;
mod call;
pub mod check;
mod choose;
mod flat;
mod pull;
mod queue;
mod round;
mod short;
mod vector;

pub use call::{Call, Members, Part, meet};
pub use choose::{Choice, RULES, Rule};
pub use flat::{CALLS_BEFORE, Calls, Rounds, Turn};
pub use pull::Pull;
pub use round::Round;
pub use short::{FlatAllreduce, SHORT_MAX, Short};
pub use vector::Vector;

use cache::{Key, Plans};
use call::passing_context;
use datatype::Buffer;
use error::{Class, Result, fail};
use executor::{Executor, Offload, Poll, Start, UserCall};
use flat::{Bounds, FlatSets};
use queue::{Attaching, Found, Leaving, Queue, Queued, State, Whole};
use schedule::Schedule;
use schedule::algorithm::{Collective, Params};
use short::MEMBERS_MAX;
use std::sync::Arc;
use sys::Block;
use telemetry::Counter;
use transport::shm::Allocator;
use tuning::{FLAT_BYTES_MAX, NEAR_BYTES_MAX, Source, Tuning};
use vector::Pass;

/// A collective under way, until `Coll::outcome` has said how it ended.
#[derive(Clone, Copy, Debug)]
pub enum Ticket {
    /// By a schedule.
    Schedule(executor::Ticket),
    /// In a queue.
    Queued(queue::Ticket),
}

/// The collectives of one process.
pub struct Coll {
    executor: Executor,
    choice: Choice,
    plans: Plans,
    sets: FlatSets,
    /// The collectives of which short calls go over slots: a bit for each.
    short: u32,
    /// OUTBOARD_OFFLOAD=on.
    offload_all: bool,
    /// No proxy serves this rank any more.
    home: bool,
}

impl Coll {
    /// Collectives by this executor; refuses settings that name no algorithm.
    pub fn new(executor: Executor, settings: &settings::Settings, tuning: &Tuning) -> Result<Coll> {
        let choice = Choice::from_settings(settings)?;
        let plans = Plans::new(settings.schedule_cache_entries as usize);
        let offload_all = settings.offload == settings::Offload::On;
        let served = settings.offload != settings::Offload::Off && executor.is_served();
        // Where ranks share cores, who pulls keeps the others from theirs: an allgather of 128 KiB took 150 us instead of 91, 4 ranks on 2 cores.
        let may_spin = executor.segment().job().may_spin();
        let bounds = Bounds {
            inline_bytes_max: match tuning.source(FLAT_BYTES_MAX) {
                Source::Default if may_spin => Bounds::PROBED,
                Source::Default => u64::MAX,
                Source::Table if !may_spin => u64::MAX,
                Source::Table | Source::Setting => tuning.get(FLAT_BYTES_MAX),
            },
            near_bytes_max: tuning.get(NEAR_BYTES_MAX) as usize,
            is_probed: may_spin && !tuning.is_known(FLAT_BYTES_MAX),
        };
        let sets = FlatSets::new(executor.segment().clone(), served, bounds);
        let is_short = |collective: &Collective| {
            settings.check == 0 && !offload_all && !choice.is_overruled(*collective)
        };
        let short = Collective::ALL.into_iter().filter(is_short).fold(0, |all, one| all | 1 << one as u32);
        Ok(Coll { executor, choice, plans, sets, short, offload_all, home: false })
    }

    /// Starts a collective.
    pub fn start(&mut self, members: &Members, call: Call) -> Result<Ticket> {
        self.start_schedule(members, call).map(Ticket::Schedule)
    }

    fn start_schedule(&mut self, members: &Members, call: Call) -> Result<executor::Ticket> {
        let schedule = self.schedule(members, &call)?;
        // Where the setting leaves the choice to us, a call that only waits is carried out by the waiting rank.
        let offload =
            if self.home || call.blocking && !self.offload_all { Offload::Off } else { Offload::Auto };
        self.executor.start(Start {
            context: members.context,
            sequence: members.sequence,
            peers: members.peers.clone(),
            input: call.input.bind(schedule.input_blocks),
            output: call.output.bind(schedule.output_blocks),
            schedule,
            reduction: call.reduction,
            offload,
        })
    }

    /// Whether a blocking call goes over slots, on a comm of so many members. Users who choose an algorithm, the proxy or
    /// OUTBOARD_CHECK get these.
    #[inline]
    pub fn takes(&self, short: &Short, members: usize) -> bool {
        self.short & 1 << short.name as u32 != 0 && short.fits(members)
    }

    /// As `takes`, of vectors of so many bytes that are to become a `FlatAllreduce` on these slots. There is room for them.
    #[inline]
    pub fn takes_flat(&self, sets: usize, bytes: usize, members: usize) -> bool {
        self.short & 1 << Collective::Allreduce as u32 != 0
            && (bytes as u64).saturating_mul(members as u64) <= self.sets.flat_max(sets)
    }

    /// Whether a blocking call with a count for each of so many members may be one for slots.
    pub fn takes_vector(&self, call: &Call, members: usize) -> bool {
        use Collective::*;
        members <= MEMBERS_MAX
            && matches!(call.collective, Gatherv | Scatterv | Allgatherv | Alltoallv | Alltoallw)
            && self.short & 1 << call.collective as u32 != 0
    }

    /// The blocking call that `takes_vector` allows, on these slots; nothing if it is none for them.
    pub fn vector(&mut self, sets: usize, call: &Call) -> Option<Vector> {
        if self.sets.skipping(sets).skips() { None } else { self.sets.vector(sets, call) }
    }

    /// Whether it turned out in its round, for all members, that a schedule must carry out a call. If so, the next ones try no slots.
    pub fn leaves_to_schedule(&mut self, sets: usize, vector: &Vector) -> bool {
        let is = vector.is_scheduled();
        if is {
            self.sets.skipping(sets).begin();
        }
        is
    }

    /// Starts to pass the blocks that the last blocking call on these slots left, a call of this context among `peers`.
    pub fn pass(&mut self, sets: usize, context: u64, peers: &[u32], vector: &Vector) -> Vec<Result<Ticket>> {
        let slots = self.sets.blocking(sets);
        let (round, rank) = (slots.round(), slots.rank());
        let passes = self.pass_all(round, context, peers, rank, vector);
        passes.into_iter().map(|pass| pass.map(Ticket::Schedule)).collect()
    }

    fn pass_all(
        &mut self,
        round: u64,
        context: u64,
        peers: &[u32],
        here: usize,
        vector: &Vector,
    ) -> Vec<Result<executor::Ticket>> {
        let context = passing_context(context);
        let mut pass = |Pass { from, to, block }| {
            // All members count the rounds alike, and in each a member passes one block.
            let sequence = (round as u32).wrapping_mul(MEMBERS_MAX as u32) + from as u32;
            let (rank, peers) = (u32::from(here == to), Arc::from([peers[from], peers[to]]));
            let call =
                Call { blocking: true, ..Call::new(Collective::Bcast, Part::None, Part::bytes(block)) };
            self.start_schedule(&Members { context, sequence, rank, peers, first_group: 0 }, call)
        };
        vector.passed(here).map(&mut pass).collect()
    }

    /// Whether a call that `takes` allows has room on these slots.
    #[inline]
    pub fn has_room(&self, sets: usize, short: &Short) -> bool {
        self.sets.has_room(sets, short)
    }

    /// The rounds of a call that has room.
    #[inline]
    pub fn rounds(&self, sets: usize, short: &Short) -> Rounds {
        self.sets.rounds(sets, short)
    }

    /// Makes room for this rank's slots among these members; all then tell each other what this returns.
    pub fn new_slots(&mut self, peers: &[u32]) -> u64 {
        self.sets.new_slots(self.executor.memory(), peers)
    }

    /// Hangs the slots of all members, which lie at `slots` of their arenas, and numbers them; nothing if somebody has none.
    /// Errors: a member's number makes no sense.
    pub fn attach_flat(&mut self, rank: usize, peers: &[u32], sets: &[i64]) -> Result<Option<usize>> {
        self.sets.attach(rank, peers, sets)
    }

    /// Opens a queue of calls that all members will make in the same order, beginning with the same one; nobody waits for it. `members` have a
    /// number that is only its own.
    pub fn open_queue(&mut self, members: &Members) -> Result<usize> {
        let room = self.new_slots(&members.peers);
        let mine = Block::of(&room.to_ne_bytes());
        let all = Block::new(8 * members.peers.len());
        let (input, output) = (Buffer::from(mine.span()), Buffer::from(all.span()));
        let call = Call::new(Collective::Allgather, Part::bytes(input), Part::PerRank(output));
        let exchange = self.start_schedule(members, call)?;
        let (rank, peers) = (members.rank as usize, members.peers.clone());
        let attaching = Attaching { exchange, room, _mine: mine, all, rank, peers };
        let queue = self.sets.queues.insert(Queue::new(State::Attaching(Box::new(attaching))));
        self.sets.busy.push(queue);
        Ok(queue)
    }

    /// Whether a call may be one for a queue.
    pub fn is_for_queue(&self, members: &Members, call: &Call) -> bool {
        self.short & 1 << call.collective as u32 != 0
            && members.first_group == 0
            && call.neighbors.is_none()
            && (2..=MEMBERS_MAX).contains(&members.peers.len())
    }

    /// Makes a call after all calls of the queue before; nothing if it is none for the queue. It is cloned only where a schedule may have to carry it
    /// out, with the members' number.
    pub fn queue(&mut self, queue: usize, members: &Members, call: &Call) -> Option<Ticket> {
        let whole = || Whole { call: call.clone(), members: members.clone() };
        let queued = match &self.sets.queues[queue].state {
            State::Refused => return None,
            _ if !self.is_for_queue(members, call) => return None,
            State::Attaching(_) | State::Broken(_) => Queued::unsure(whole()),
            State::Attached(attached) => Queued::sure(Found::on(attached, call)?, whole),
        };
        Some(self.enqueue(queue, queued))
    }

    /// The same of a short call among so many members; nothing, too, as long as no slots are attached.
    #[inline]
    pub fn queue_short(&mut self, queue: usize, short: Short, members: usize) -> Option<Ticket> {
        if !self.takes(&short, members) {
            return None;
        }
        let State::Attached(attached) = &self.sets.queues[queue].state else { return None };
        let queued =
            Queued::sure(Found::short(attached, short)?, || unreachable!("a short call leaves nothing"));
        Some(self.enqueue(queue, queued))
    }

    #[inline(always)]
    fn enqueue(&mut self, queue: usize, queued: Queued) -> Ticket {
        let executor = &mut self.executor;
        let ticket = self.sets.queue(queue, queued, &mut |ticket| executor.outcome(ticket));
        self.carry_on();
        Ticket::Queued(ticket)
    }

    /// No more calls are made in this queue.
    pub fn close_queue(&mut self, queue: usize) {
        self.sets.close(queue);
    }

    /// Starts schedules for what calls in queues have left.
    #[inline]
    fn carry_on(&mut self) {
        if !self.sets.leaving.is_empty() {
            self.start_remainders();
        }
    }

    #[cold]
    fn start_remainders(&mut self) {
        for Leaving { call, tried, whole: Whole { call: whole, members } } in
            std::mem::take(&mut self.sets.leaving)
        {
            let started = match tried {
                Some((vector, round)) if !vector.is_scheduled() => {
                    count(whole.collective);
                    self.pass_all(round, members.context, &members.peers, members.rank as usize, &vector)
                }
                _ => vec![self.start_schedule(&members, whole)],
            };
            let queued = &mut self.sets.queued[call];
            for start in started {
                match start {
                    Ok(ticket) => queued.left.push(ticket),
                    Err(error) => {
                        queued.outcome = queued.outcome.take().map(|outcome| outcome.and(Err(error)))
                    }
                }
            }
        }
    }

    /// Makes a call that `takes` allows on these slots if it is over after so many looks; otherwise `begin` goes on with it.
    #[inline(always)]
    pub fn try_now(&mut self, sets: usize, call: &impl Round, looks: u32) -> Option<()> {
        self.sets.try_now(sets, call, looks)
    }

    /// Begins a round of a call that `takes` allows on these slots.
    #[inline]
    pub fn begin(&mut self, sets: usize, call: &impl Round) -> Turn {
        self.sets.begin(sets, call)
    }

    /// Takes a call on slots, the one that `begin` got, as far as it goes. How it ended, once it has.
    #[inline]
    pub fn advance(&mut self, sets: usize, turn: &mut Turn, call: &impl Round) -> Option<Result<()>> {
        self.sets.advance(sets, turn, call)
    }

    /// Whether the last call on slots waits for a member that may need this cpu.
    #[inline]
    pub fn waits_for_one_on(&self, sets: usize, cpu: usize) -> bool {
        self.sets.waits_for_one_on(sets, cpu)
    }

    /// The thread that makes a blocking call on slots is going to wait for long, or has done so.
    #[cold]
    pub fn wait(&mut self, sets: usize, begins: bool) {
        self.sets.wait(sets, begins);
    }

    /// Whether a call on slots that has waited for long would get further.
    #[inline]
    pub fn flat_has_events(&self) -> bool {
        self.sets.has_events()
    }

    /// The comm of these slots is freed here.
    pub fn leave(&mut self, sets: usize) {
        self.sets.leave(sets);
    }

    /// From now on the rank carries out everything itself: proxies forget a rank that has left its job.
    pub fn stay_home(&mut self) {
        self.home = true;
    }

    fn schedule(&mut self, members: &Members, call: &Call) -> Result<Arc<Schedule>> {
        if let Some(neighbors) = &call.neighbors {
            telemetry::count(Counter::NeighborCalls, 1);
            let same = matches!(call.collective, Collective::Allgather | Collective::Allgatherv);
            return Ok(self.plans.get(Key::Neighbors(neighbors.clone(), same)));
        }
        let size = members.peers.len() as u32;
        let (rank, first_group) = (members.rank, members.first_group);
        let algorithm = match (first_group > 0).then(|| call.collective.between()) {
            None => self.choice.of(call.collective, call.bytes(size), size, call.commutative),
            Some(Some(algorithm)) => algorithm,
            Some(None) => fail!(Class::Comm, "{} needs an intracommunicator", call.collective.name()),
        };
        count(call.collective);
        let &Call { root, in_place, commutative, .. } = call;
        let params = Params { rank, size, root, in_place, commutative, first_group };
        Ok(self.plans.get(Key::All(algorithm, params)))
    }

    /// Advances all started collectives that this rank executes itself.
    #[inline]
    pub fn poll(&mut self) -> Poll {
        let executor = &mut self.executor;
        let moved = self.sets.poll(&mut |ticket| executor.outcome(ticket));
        self.carry_on();
        match (moved, self.executor.poll()) {
            (true, Poll::Idle) => Poll::Progressed,
            (_, poll) => poll,
        }
    }

    /// A user's operator that `poll` asked for has been called.
    pub fn called(&mut self, call: UserCall) {
        self.executor.called(call);
    }

    /// How a collective ended, once it has; the ticket is then spent.
    pub fn outcome(&mut self, ticket: Ticket) -> Option<Result<()>> {
        match ticket {
            Ticket::Schedule(ticket) => self.executor.outcome(ticket),
            Ticket::Queued(ticket) => self.sets.outcome(ticket, &mut |left| self.executor.outcome(left)),
        }
    }

    /// How a collective is carried out by a schedule, or has been if its outcome is there.
    #[cold]
    pub fn carried(&self, ticket: Ticket) -> Option<telemetry::Carried> {
        let schedule = match ticket {
            Ticket::Schedule(schedule) => schedule,
            Ticket::Queued(call) => self.sets.left_by(call)?,
        };
        self.executor.carried(schedule)
    }

    /// Whether anything has changed since the last `poll`: to be asked before sleeping on the rank's doorbell.
    pub fn has_events(&self) -> bool {
        self.executor.has_events() || self.sets.has_events()
    }

    /// Whether any collective is under way.
    pub fn is_busy(&self) -> bool {
        self.executor.is_busy()
    }

    /// The rank's arena, for whoever else allocates from it (MPI_Alloc_mem).
    pub fn memory(&mut self) -> &mut Allocator {
        self.executor.memory()
    }

    /// All collectives under way.
    pub fn pending(&self) -> Vec<executor::Pending> {
        self.executor.pending()
    }

    /// Calls on slots under way: whose they are, and a member that has not begun the first of them.
    pub fn pending_on_flat(&self) -> impl Iterator<Item = (Calls, usize)> {
        self.sets.pending()
    }

    /// A sentence that the user should read once, if there is one.
    pub fn warning(&mut self) -> Option<String> {
        self.executor.warning()
    }
}

/// Whether a call of so many bytes (of the vector, or of a member's block) among so many members goes over slots, once these are attached, where no proxy may
/// take it and nothing is pulled.
pub fn is_flat(collective: Collective, bytes: u64, members: usize) -> bool {
    use Collective::*;
    let short = Short { bytes, given: bytes, ..Short::new(collective) };
    let has_counts = matches!(collective, Gatherv | Scatterv | Allgatherv | Alltoallv | Alltoallw);
    !has_counts
        && short.fits(members)
        && (!Pull::takes(&short) || bytes.saturating_mul(members as u64) <= short::BYTES_MAX)
}

/// Counts a call.
#[inline]
pub fn count(collective: Collective) {
    telemetry::count(counter_of(collective), 1);
}

fn counter_of(collective: Collective) -> Counter {
    use Collective::*;
    match collective {
        Barrier => Counter::BarrierCalls,
        Bcast => Counter::BcastCalls,
        Gather | Gatherv => Counter::GatherCalls,
        Scatter | Scatterv => Counter::ScatterCalls,
        Allgather | Allgatherv => Counter::AllgatherCalls,
        Alltoall | Alltoallv | Alltoallw => Counter::AlltoallCalls,
        Reduce => Counter::ReduceCalls,
        Allreduce => Counter::AllreduceCalls,
        ReduceScatter | ReduceScatterBlock => Counter::ReduceScatterCalls,
        Scan | Exscan => Counter::ScanCalls,
    }
}
