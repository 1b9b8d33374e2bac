// SPDX-License-Identifier: BSD-3-Clause
//! The proxy: takes the instances (started schedules) that its ranks submit to it, and drives them, until the
//! ranks have gone.

mod mirror;

use crate::checked::CheckedSchedule;
use crate::engine::{self, Execution};
use crate::fault::{Corruption, Fault};
use crate::imported::{Import, ImportedMemory};
use crate::memory::{Driver, Reach, Stop};
use crate::note::{EdgePort, NoteOutcome};
use crate::parameters::Parameters;
use crate::record::{self, COMPLETE, Head, InstanceRecord, LOCAL, RETURNED};
use crate::remote_edges::RemoteEdges;
use crate::{Config, buffers};
use error::{Class, Error, Result};
use progress::{Idle, Pace, Turn};
use schedule::{Schedule, Side};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::ppoll::Waiter;
use sys::process::ProcessHandle;
use telemetry::Counter;
use transport::route_fabric::Port;
use transport::shm::{LocalRank, RankPage, Segment, State, cma};

/// The index in a rank's `scalars` of the word that says whether the rank's proxy can reach the rank's
/// private memory: `REACHED`, `REFUSED`, or 0 if the proxy has not tried.
pub const VERDICT: usize = 0;
/// The value of `VERDICT` if the proxy could reach the rank's private memory.
pub const REACHED: u64 = 1;
/// The value of `VERDICT` if the proxy could not reach the rank's private memory.
pub const REFUSED: u64 = 2;
/// The index in a rank's `scalars` of the number of the rank's operations that the proxy has ended or
/// returned. The proxy first stores the end in the operation's record, and then raises the number.
pub const ENDED: usize = 8;
/// The index in a rank's `scalars` of the number of the rank's operations that the proxy has returned,
/// because it could not drive them to the end.
pub const RETURNS: usize = 9;

/// The most schedules, and the most finished operations, that a proxy keeps for further starts. When one of
/// the two lists is full, the proxy empties that list.
const MEMORY_MAX: usize = 1024;
/// The most words that an encoded schedule, or an operation's parameters, may have. A rank that states more
/// is broken.
const WORDS_MAX: u64 = 1 << 24;

/// The time in nanoseconds between two checks of the proxy's ranks, parent and counters.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// The longest time for which a proxy sleeps. Its heartbeat must go on.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Runs a proxy: drives what its ranks submit, and sleeps when it has nothing to do. Returns when its ranks
/// have left, the job is ended, or its parent process has died.
///
/// `open` opens the endpoint to other hosts. `memory` accesses the memory of ranks on another computer; None
/// if the ranks are on this one. Errors: the network cannot be opened or is lost (MPI_ERR_PROC_ABORTED), or
/// an arena cannot be mapped.
pub fn run(
    segment: &Segment,
    index: u32,
    config: &Config,
    parent: &ProcessHandle,
    memory: Option<Box<dyn Import>>,
    open: impl Fn() -> Result<Port>,
) -> Result<()> {
    let mut network = segment.proxies_are_servers().then(&open).transpose()?;
    let mut proxy = Proxy::new(segment.clone(), index, config);
    memory.into_iter().for_each(|importer| proxy.import(importer));
    let page = segment.proxy(index);
    let waiter = Waiter::new()
        .map_err(|error| Error::new(Class::Other, format!("a proxy cannot wait for signals: {error}")))?;
    page.bell.signal_to(&waiter);
    // From here on the proxy gets work, and its heart beats: opening the network can take a second.
    page.set_state(State::Running);
    let mut idle = Idle::new(Pace {
        spin: segment.job().may_spin(),
        awake: Duration::from_micros(config.proxy_poll_us),
        nap_max: NAP_MAX.min(Duration::from_millis((config.proxy_timeout_ms / 8).max(1))),
        sleeps_if_shared: true,
    });
    let (mut looked, mut started) = (0, sys::clock::now());
    loop {
        let mut moved = proxy.poll();
        if let Some(error) = proxy.failed.take() {
            return Err(error);
        }
        if let Some(network) = &mut network {
            moved |= proxy.exchange(network)?;
        }
        let now = sys::clock::now();
        if moved {
            page.counters.count(Counter::ProxyBusyNs, now - started);
            idle.reset();
        }
        started = now;
        if now - looked > HOUSEKEEPING_NS {
            looked = now;
            page.counters.set(Counter::ProxyCpuNs, sys::clock::process_cpu());
            page.counters.set(Counter::InstancesLive, proxy.runs.len() as u64);
            let served = proxy.check_ranks();
            let ending = segment.job().ending.load(Ordering::Relaxed) != 0;
            proxy.beat();
            if !served || ending || proxy.is_fenced() || has_ended(parent) {
                page.set_state(State::Finalized);
                return Ok(());
            }
            // A job on one host may spawn processes on others.
            if network.is_none() && segment.proxies_are_servers() {
                network = Some(open()?);
            }
        }
        if moved {
            continue;
        }
        let may_sleep = |nap: Duration| proxy.nap_max(nap, network.as_ref());
        let descriptor = network.as_ref().and_then(Port::descriptor);
        let sleep = |nap| page.bell.sleep_on(&waiter, descriptor.as_slice(), || may_sleep(nap));
        if idle.wait_with(sleep) != Turn::Spun {
            started = sys::clock::now();
        }
    }
}

fn has_ended(process: &ProcessHandle) -> bool {
    process.ended(Some(Duration::ZERO)).unwrap_or(false)
}

/// A process that drives instances (started schedules) for the ranks that it serves. `run` is its main loop;
/// tests call `poll` themselves.
pub struct Proxy {
    index: u32,
    reach: Reach,
    /// The ranks that the proxy serves now.
    ranks: Vec<LocalRank>,
    /// The ranks that do not run now, but that may still be spawned. The proxy then serves them.
    absent: Vec<LocalRank>,
    runs: Vec<Execution>,
    /// The finished operations that are kept for further starts, by rank and by the offset of the record in
    /// the rank's arena. A rank mostly starts an operation again in the same memory.
    idle: HashMap<(LocalRank, u64), Execution>,
    /// The checked schedules, by rank and by the number of the rank's program (its stored schedule).
    plans: HashMap<(LocalRank, u64), Arc<CheckedSchedule>>,
    words: Vec<u64>,
    far: RemoteEdges,
    dead: bool,
    /// The error with which `run` is about to end, because the proxy cannot go on. None while it can.
    failed: Option<Error>,
}

impl Proxy {
    /// Makes the proxy with the number `index` on this host.
    pub fn new(segment: Segment, index: u32, config: &Config) -> Proxy {
        let shape = segment.shape();
        let first_world = segment.world(0).size.load(Ordering::Relaxed) as usize;
        let mine = segment.places().skip(index as usize).step_by(shape.proxies.max(1) as usize);
        let (ranks, absent) = mine.partition(|rank| rank.index() < first_world);
        Proxy {
            index,
            ranks,
            absent,
            reach: Reach::new(segment, Driver::Proxy(index), config.chunk_bytes),
            runs: Vec::new(),
            idle: HashMap::new(),
            plans: HashMap::new(),
            words: Vec::new(),
            far: RemoteEdges::default(),
            dead: false,
            failed: None,
        }
    }

    /// Makes this a proxy on another computer than its ranks, whose memory it reaches by RDMA.
    pub fn import(&mut self, importer: Box<dyn Import>) {
        self.reach.imported = Some(ImportedMemory::new(importer));
        // The ranks run once they have joined.
        self.absent.append(&mut self.ranks);
    }

    /// Shows the ranks that the proxy lives, if they are on another computer.
    pub fn beat(&self) {
        if let Some(imported) = &self.reach.imported {
            imported.beat();
        }
    }

    /// Whether the ranks are on another computer and have given this proxy up.
    pub fn is_fenced(&self) -> bool {
        let segment = &self.reach.segment;
        self.reach.imported.is_some() && segment.is_gone(segment.proxy_endpoint(self.index))
    }

    /// Takes newly submitted operations, and drives each operation once. Returns whether any operation was
    /// taken or has advanced.
    pub fn poll(&mut self) -> bool {
        if self.dead {
            return false;
        }
        let moved = self.take_submissions() | self.drive();
        let page = self.reach.segment.proxy(self.index);
        page.heartbeat.store(page.heartbeat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        moved
    }

    /// Sends and receives notes: fixed-size messages between hosts about the operations of the proxy's ranks.
    /// Returns whether any went or came. Errors (MPI_ERR_PROC_ABORTED): a process that still lives cannot be
    /// reached.
    pub fn exchange(&mut self, port: &mut impl EdgePort) -> Result<bool> {
        if self.dead {
            return Ok(false);
        }
        let Proxy { far, reach, runs, dead, .. } = self;
        let moved = far.exchange(port, reach, |event, reads| {
            let run = runs.iter_mut().find(|run| run.is_of(event.note()));
            let taken = run.map_or(Ok(NoteOutcome::Early), |run| run.take_event(event, reach, reads));
            *dead |= taken.is_err();
            taken.unwrap_or(NoteOutcome::Ignored)
        })?;
        while let Some((from, note, words)) = self.far.notes_in.pop_front() {
            if self.take_rank_note(from, &note, &words).is_none() {
                telemetry::count(Counter::NetRefused, 1);
            }
        }
        Ok(moved)
    }

    /// Whether a call of `poll` may find something new. The proxy asks this before it sleeps on its doorbell.
    pub fn has_events(&self) -> bool {
        self.ranks.iter().any(|&rank| !self.reach.segment.rank(rank).submissions.is_empty())
            || self.runs.iter().any(|run| run.has_events(&self.reach))
            || self.far.has_work(&self.reach)
    }

    /// Returns how long the proxy may sleep, at most `nap`. None if it must not sleep: there is work, or the
    /// network would not wake it.
    fn nap_max(&self, nap: Duration, network: Option<&Port>) -> Option<Duration> {
        if self.has_events() {
            return None;
        }
        let nap = self.far.nap_max().map_or(nap, |most| most.min(nap));
        network.map_or(Some(nap), |network| network.nap_max().map(|most| most.min(nap)))
    }

    /// Whether the proxy has operations to drive.
    pub fn is_busy(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Checks the proxy's ranks: tries to reach new ranks, and forgets ranks that have gone. Returns whether
    /// any rank is left or may still come.
    pub fn check_ranks(&mut self) -> bool {
        let Proxy { ranks, absent, reach, runs, idle, plans, far, .. } = self;
        ranks.extend(absent.extract_if(.., |rank| reach.segment.rank(*rank).state() == State::Running));
        ranks.retain(|&rank| {
            let page = reach.segment.rank(rank);
            match page.state() {
                State::Running
                    if reach.imported.is_none() && page.scalars[VERDICT].load(Ordering::Relaxed) == 0 =>
                {
                    let reached = cma::reaches(&reach.segment, rank);
                    page.scalars[VERDICT].store(if reached { REACHED } else { REFUSED }, Ordering::Relaxed);
                    true
                }
                State::Finalized | State::Dead => {
                    // These are receives whose messages never came.
                    runs.retain(|run| run.rank != rank);
                    idle.retain(|&(owner, _), _| owner != rank);
                    plans.retain(|&(owner, _), _| owner != rank);
                    far.unasked.forget(rank.peer(), None);
                    absent.push(rank);
                    false
                }
                _ => true,
            }
        });
        // Without a launcher no rank is spawned.
        !ranks.is_empty() || reach.segment.job().launcher.load(Ordering::Relaxed) != 0
    }

    /// Lets the proxy of a test die after `operations` memory operations.
    #[cfg(test)]
    pub fn light_fuse(&mut self, operations: u64) {
        self.reach.fuse.set(operations);
    }

    /// Makes memory inaccessible in a test. `private` and `arenas` have a bit for each rank: the kernel
    /// refuses access to the private memory of the ranks in `private`, and the arenas of the ranks in
    /// `arenas` cannot be mapped.
    #[cfg(test)]
    pub(crate) fn refuse(&self, private: u64, arenas: u64) {
        self.reach.test_refused.set(private);
        self.reach.test_unmapped.set(arenas);
    }

    /// Whether the proxy has an error with which its process would end now. Only tests ask this.
    #[cfg(test)]
    pub(crate) fn has_failed(&mut self) -> bool {
        self.dead |= self.failed.is_some();
        self.failed.is_some()
    }

    /// Whether the proxy of a test has died by `light_fuse`.
    #[cfg(test)]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    fn take_submissions(&mut self) -> bool {
        let mut taken = false;
        for at in 0..self.ranks.len() {
            let rank = self.ranks[at];
            while let Some(offset) = self.reach.segment.rank(rank).submissions.pop() {
                taken = true;
                if self.reach.fault_point().is_err() {
                    self.dead = true;
                    return true;
                }
                match self.adopt(rank, offset) {
                    Ok(run) => self.runs.push(run),
                    Err(_) => self.return_unstarted(rank, offset),
                }
            }
        }
        taken
    }

    /// Prepares to drive the operation whose record lies at `offset` of the rank's arena, and returns its
    /// execution. Errors: the words of the record, schedule or parameters are corrupt, or their memory cannot
    /// be mapped.
    fn adopt(&mut self, rank: LocalRank, offset: u64) -> std::result::Result<Execution, Fault> {
        let corrupt = |what| Fault::Corrupt { peer: rank.peer(), what };
        let arena = self.reach.arena(rank)?.clone();
        let head = self.reach.record(&arena, offset, 0)?;
        let word = |which: Head| head.head(which).load(Ordering::Acquire);
        let (context, sequence) = (word(Head::Context), word(Head::Stamp) as u32);
        let version = word(Head::ParametersVersion);
        if let Some(mut run) = self.idle.remove(&(rank, offset))
            && run.version == version
        {
            run.restart_share(context, sequence);
            return Ok(run);
        }
        let plan = self.plan(rank, &head)?;
        let (at, count) = (word(Head::ParametersAt), word(Head::ParametersWords));
        let parameters = corrupt(Corruption::Parameters);
        let sound = count <= WORDS_MAX && record::read_words(&arena, at, count, &mut self.words).is_some();
        let words = Parameters::from_words(&self.words).filter(|_| sound);
        let bound = words.and_then(|words| buffers::bind_remote(&words, &plan, &self.reach, rank));
        let (buffers, peers) = bound.ok_or(parameters)?;
        let steps = plan.schedule.steps.len() as u32;
        let record = self.reach.record(&arena, offset, steps)?;
        let mut run = Execution::new(plan, rank, record, peers, buffers);
        run.expect_remote(0);
        run.version = version;
        if self.reach.imported.is_some() {
            run.divide(Side::Dpu);
        }
        run.restart_share(context, sequence);
        Ok(run)
    }

    fn plan(
        &mut self,
        rank: LocalRank,
        head: &InstanceRecord,
    ) -> std::result::Result<Arc<CheckedSchedule>, Fault> {
        let word = |which: Head| head.head(which).load(Ordering::Acquire);
        let id = word(Head::Program);
        if let Some(plan) = self.plans.get(&(rank, id)) {
            return Ok(plan.clone());
        }
        let corrupt = Fault::Corrupt { peer: rank.peer(), what: Corruption::Program };
        let (at, count) = (word(Head::ProgramAt), word(Head::ProgramWords));
        if count > WORDS_MAX || record::read_words(head.arena(), at, count, &mut self.words).is_none() {
            return Err(corrupt);
        }
        let schedule = Schedule::from_words(&self.words).map_err(|_| corrupt)?;
        let plan = Arc::new(CheckedSchedule::new(Arc::new(schedule)).map_err(|_| corrupt)?);
        if plan.schedule.steps.len() as u64 != word(Head::Steps) {
            return Err(corrupt);
        }
        if self.plans.len() >= MEMORY_MAX {
            self.plans.clear();
        }
        self.plans.insert((rank, id), plan.clone());
        Ok(plan)
    }

    /// Returns an operation to its rank before the proxy has driven it. The rank then executes it itself.
    fn return_unstarted(&mut self, rank: LocalRank, offset: u64) {
        match self.reach.arena(rank).and_then(|arena| self.reach.record(arena, offset, 0)) {
            Ok(head) => {
                head.head(Head::State).store(RETURNED, Ordering::Release);
                report_state(self.reach.segment.rank(rank), RETURNED);
            }
            // The rank takes its work back when this process has ended.
            Err(fault @ Fault::Unmapped { .. }) => self.failed = Some(fault.error(rank.peer())),
            Err(_) => {}
        }
    }

    fn drive(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(run) = self.runs.get_mut(at) {
            if run.is_stopped() {
                if run.is_reading() {
                    at += 1;
                } else {
                    self.return_run(at);
                    moved = true;
                }
                continue;
            }
            let polled = run.poll(&self.reach);
            self.far.take_outgoing(std::iter::from_fn(|| run.next_outgoing()), &self.reach);
            while let Some(step) = run.next_ended() {
                self.reach.announce(run.awaiting_rank(step));
            }
            match polled {
                Ok(engine::Progress::Idle) => at += 1,
                Ok(engine::Progress::Moved) => {
                    moved = true;
                    at += 1;
                }
                Ok(engine::Progress::Local) => {
                    moved = true;
                    report_state(self.reach.segment.rank(run.rank), LOCAL);
                    if let Some(imported) = &self.reach.imported {
                        imported.forget_values(run.rank, run.record.at());
                        // If this write fails, the rank is lost, and all that follows fails.
                        let _ = imported.write_state(run.rank, run.record.at(), LOCAL);
                        imported.announce(run.rank);
                    }
                    at += 1;
                }
                Ok(engine::Progress::Finished) => {
                    moved = true;
                    if self.reach.fault_point().is_err() {
                        self.dead = true;
                        return true;
                    }
                    let run = self.runs.swap_remove(at);
                    report_state(self.reach.segment.rank(run.rank), COMPLETE);
                    self.reach.segment.proxy(self.index).counters.count(Counter::Instances, 1);
                    self.end_run(&run, COMPLETE);
                    self.store_idle(run);
                }
                // The rank goes on. Parameters cannot name a user's function, only the rank allocates in its
                // arena, and it may reach what the proxy is refused.
                Ok(engine::Progress::Call { .. } | engine::Progress::Stage { .. }) | Err(Stop::Fault(_)) => {
                    if matches!(polled, Err(Stop::Fault(fault)) if fault.refuses(run.rank.peer())) {
                        self.reach.segment.rank(run.rank).scalars[VERDICT].store(REFUSED, Ordering::Relaxed);
                    }
                    // Bytes that are still to come must not come when the rank goes on.
                    if run.is_reading() {
                        run.stop();
                    } else {
                        self.return_run(at);
                    }
                    moved = true;
                }
                #[cfg(test)]
                Err(Stop::Died) => {
                    self.dead = true;
                    return true;
                }
            }
        }
        moved
    }

    /// Returns an operation to its rank, which goes on where this proxy has stopped.
    fn return_run(&mut self, at: usize) {
        let run = self.runs.swap_remove(at);
        run.record.head(Head::State).store(RETURNED, Ordering::Release);
        report_state(self.reach.segment.rank(run.rank), RETURNED);
        self.end_run(&run, RETURNED);
    }

    fn end_run(&mut self, run: &Execution, state: u64) {
        let key = (run.rank.peer(), run.context, run.sequence);
        self.far.unasked.forget(key.0, Some((key.1, key.2)));
        self.end_exported(run.rank, run.record.at(), key, state);
    }

    fn store_idle(&mut self, run: Execution) {
        if self.idle.len() >= MEMORY_MAX {
            self.idle.clear();
        }
        self.idle.insert((run.rank, run.record.at()), run);
    }
}

/// Makes a rank look at all its instances. The rank's exporter calls this when the proxy, on another
/// computer, has announced that some of them have ended, have advanced or were returned.
pub fn announced(page: &RankPage) {
    report_state(page, RETURNED);
}

/// Tells a rank that one of its operations has reached the state `state`.
fn report_state(page: &RankPage, state: u64) {
    if state == RETURNED {
        page.scalars[RETURNS].fetch_add(1, Ordering::Release);
    }
    page.scalars[ENDED].fetch_add(1, Ordering::Release);
    page.bell.ring();
}
