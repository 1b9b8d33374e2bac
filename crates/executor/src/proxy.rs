//! The proxy's side: takes the instances that its ranks launch, and drives them until the ranks have gone.

use crate::checked::CheckedSchedule;
use crate::engine::{self, Execution};
use crate::far::FarEdges;
use crate::fault::{Corruption, Fault};
use crate::memory::{Driver, Reach, Stop};
use crate::note::EdgePort;
use crate::record::{self, Head, InstanceRecord, RETURNED};
use crate::{Config, buffers};
use error::Result;
use progress::{Idle, Pace, Turn};
use schedule::Schedule;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::Counter;
use transport::route_fabric::Port;
use transport::shm::{LocalRank, Segment, State, cma};

/// Index into a rank's `scalars`: whether its proxy can reach its private memory (`REACHED`, `REFUSED`, 0:
/// untried).
pub const VERDICT: usize = 0;
/// It could.
pub const REACHED: u64 = 1;
/// It could not.
pub const REFUSED: u64 = 2;

/// So many programs or idle instances at most; then a proxy forgets all idle ones.
const MEMORY_MAX: usize = 1024;
/// The most words of a program or of parameters.
const WORDS_MAX: u64 = 1 << 24;

/// How often a proxy checks its ranks, its parent and its counters, in nanoseconds.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// The longest sleep: a sleeping proxy still shows a heartbeat.
const NAP_MAX: Duration = Duration::from_millis(50);

/// A proxy's life: drives what its ranks launch, sleeps on its doorbell after `proxy_poll_us` without work,
/// and returns when all its ranks have left, when `mpirun` ends the job, or when its parent has died.
/// `open` opens its way to other hosts, once the job has any. Errors: that cannot be had, or is lost
/// (MPI_ERR_PROC_ABORTED); its ranks had best go on without it.
pub fn run(segment: &Segment, index: u32, config: &Config, open: impl Fn() -> Result<Port>) -> Result<()> {
    let mut network = segment.has_far_proxies().then(&open).transpose()?;
    let mut proxy = Proxy::new(segment.clone(), index, config);
    let page = segment.proxy(index);
    // From here on it is given work, and its heart beats: opening the network can take a second.
    page.set_state(State::Running);
    let parent = sys::process::parent();
    let mut idle = Idle::new(Pace {
        spin: segment.job().may_spin(),
        awake: Duration::from_micros(config.proxy_poll_us),
        nap_max: NAP_MAX.min(Duration::from_millis((config.proxy_timeout_ms / 8).max(1))),
        gives_in: true,
    });
    let (mut looked, mut begun) = (0, sys::clock::now());
    loop {
        let mut moved = proxy.poll();
        if let Some(network) = &mut network {
            moved |= proxy.exchange(network)?;
        }
        let now = sys::clock::now();
        if moved {
            page.counters.count(Counter::ProxyBusyNs, now - begun);
            idle.reset();
        }
        begun = now;
        if now - looked > HOUSEKEEPING_NS {
            looked = now;
            page.counters.set(Counter::ProxyCpuNs, sys::clock::process_cpu());
            page.counters.set(Counter::InstancesLive, proxy.runs.len() as u64);
            let served = proxy.look_after_ranks();
            let ending = segment.job().ending.load(Ordering::Relaxed) != 0;
            if !served || ending || sys::process::parent() != parent {
                page.set_state(State::Finalized);
                return Ok(());
            }
            // A job on one host may spawn processes on others.
            if network.is_none() && segment.has_far_proxies() {
                network = Some(open()?);
            }
        }
        let may_sleep = || !proxy.has_events() && network.as_ref().is_none_or(Port::may_sleep);
        if !moved && idle.wait(&page.bell, may_sleep) != Turn::Spun {
            begun = sys::clock::now();
        }
    }
}

/// A proxy. `run` is its life; tests call `poll` themselves.
pub struct Proxy {
    index: u32,
    reach: Reach,
    /// The ranks it serves: those that have not finalized.
    ranks: Vec<LocalRank>,
    /// Ranks that do not run, but may be spawned.
    absent: Vec<LocalRank>,
    runs: Vec<Execution>,
    /// Finished instances, by rank and record.
    idle: HashMap<(LocalRank, u64), Execution>,
    /// Plans by rank and program number.
    plans: HashMap<(LocalRank, u64), Arc<CheckedSchedule>>,
    words: Vec<u64>,
    far: FarEdges,
    dead: bool,
}

impl Proxy {
    /// Proxy `index` of a job.
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
            far: FarEdges::default(),
            dead: false,
        }
    }

    /// Takes new instances and drives each once; whether anything moved.
    pub fn poll(&mut self) -> bool {
        if self.dead {
            return false;
        }
        let moved = self.take() | self.drive();
        let page = self.reach.segment.proxy(self.index);
        page.heartbeat.store(page.heartbeat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        moved
    }

    /// Says to other hosts what instances want and what the sends of its ranks have, and hears what they say.
    /// Whether anything moved. Errors (MPI_ERR_PROC_ABORTED): a process is out of reach although it lives.
    pub fn exchange(&mut self, port: &mut impl EdgePort) -> Result<bool> {
        if self.dead {
            return Ok(false);
        }
        let Proxy { far, reach, runs, dead, .. } = self;
        far.exchange(port, reach, |from, note, data| {
            if let Some(run) = runs.iter_mut().find(|run| run.is_of(note)) {
                *dead |= run.take_note(from, note, data, reach).is_err();
            }
        })
    }

    /// Whether anything has changed since the last `poll`: to be asked before sleeping on the proxy's
    /// doorbell.
    pub fn has_events(&self) -> bool {
        self.ranks.iter().any(|&rank| !self.reach.segment.rank(rank).launches.is_empty())
            || self.runs.iter().any(|run| run.has_events(&self.reach))
            || self.far.has_work(&self.reach)
    }

    /// Whether it has instances to drive.
    pub fn is_busy(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Checks its ranks: tries to reach new ones, forgets those that have gone; whether any is left or may
    /// come.
    pub fn look_after_ranks(&mut self) -> bool {
        let Proxy { ranks, absent, reach, idle, plans, .. } = self;
        ranks.extend(absent.extract_if(.., |rank| reach.segment.rank(*rank).state() == State::Running));
        ranks.retain(|&rank| {
            let page = reach.segment.rank(rank);
            match page.state() {
                State::Running if page.scalars[VERDICT].load(Ordering::Relaxed) == 0 => {
                    let reached = cma::reaches(&reach.segment, rank);
                    page.scalars[VERDICT].store(if reached { REACHED } else { REFUSED }, Ordering::Relaxed);
                    true
                }
                State::Finalized | State::Dead => {
                    idle.retain(|&(owner, _), _| owner != rank);
                    plans.retain(|&(owner, _), _| owner != rank);
                    absent.push(rank);
                    false
                }
                _ => true,
            }
        });
        // Without a launcher no rank is spawned.
        !ranks.is_empty() || reach.segment.job().launcher.load(Ordering::Relaxed) != 0
    }

    /// Tests: dies after so many memory operations.
    #[cfg(test)]
    pub fn light_fuse(&mut self, operations: u64) {
        self.reach.fuse.set(operations);
    }

    /// Tests: whether it has died.
    #[cfg(test)]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    fn take(&mut self) -> bool {
        let mut taken = false;
        for at in 0..self.ranks.len() {
            let rank = self.ranks[at];
            while let Some(offset) = self.reach.segment.rank(rank).launches.pop() {
                taken = true;
                if self.reach.fault_point().is_err() {
                    self.dead = true;
                    return true;
                }
                match self.adopt(rank, offset) {
                    Ok(run) => self.runs.push(run),
                    Err(_) => self.give_back(rank, offset),
                }
            }
        }
        taken
    }

    /// Prepares to drive the instance whose record lies at `offset` of the rank's arena.
    fn adopt(&mut self, rank: LocalRank, offset: u64) -> std::result::Result<Execution, Fault> {
        let corrupt = |what| Fault::Corrupt { peer: rank.peer(), what };
        let arena = self.reach.arena(rank)?.clone();
        let head = InstanceRecord::new(&arena, offset, 0).ok_or(corrupt(Corruption::Offset))?;
        let word = |which: Head| head.head(which).load(Ordering::Acquire);
        let (context, sequence) = (word(Head::Context), word(Head::Stamp) as u32);
        let version = word(Head::ParametersVersion);
        if let Some(mut run) = self.idle.remove(&(rank, offset))
            && run.version == version
        {
            run.restart(context, sequence);
            return Ok(run);
        }
        let plan = self.plan(rank, &head)?;
        let (at, count) = (word(Head::ParametersAt), word(Head::ParametersWords));
        let parameters = corrupt(Corruption::Parameters);
        let sound = count <= WORDS_MAX && record::read_words(&arena, at, count, &mut self.words).is_some();
        let decoded = buffers::decode(&self.words, &plan, &self.reach, rank).filter(|_| sound);
        let (buffers, peers) = decoded.ok_or(parameters)?;
        let steps = plan.schedule.steps.len() as u32;
        let record = InstanceRecord::new(&arena, offset, steps).ok_or(corrupt(Corruption::Offset))?;
        let mut run = Execution::new(plan, rank, record, peers, buffers);
        run.expect_remote(true);
        run.version = version;
        run.restart(context, sequence);
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

    /// Returns an instance, which the rank then executes itself.
    fn give_back(&self, rank: LocalRank, offset: u64) {
        if let Ok(arena) = self.reach.arena(rank)
            && let Some(head) = InstanceRecord::new(arena, offset, 0)
        {
            head.head(Head::State).store(RETURNED, Ordering::Release);
            self.reach.segment.rank(rank).bell.ring();
        }
    }

    fn drive(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(run) = self.runs.get_mut(at) {
            let polled = run.poll(&self.reach);
            self.far.outbox.extend(std::iter::from_fn(|| run.next_note()));
            match polled {
                Ok(engine::Progress::Idle) => at += 1,
                Ok(engine::Progress::Moved) => {
                    moved = true;
                    at += 1;
                }
                Ok(engine::Progress::Finished) => {
                    moved = true;
                    let run = self.runs.swap_remove(at);
                    self.reach.segment.rank(run.rank).bell.ring();
                    self.reach.segment.proxy(self.index).counters.count(Counter::Instances, 1);
                    self.keep(run);
                }
                // Parameters cannot name a user's function, and the rank may reach what the proxy is refused.
                Ok(engine::Progress::Call { .. }) | Err(Stop::Fault(_)) => {
                    let run = self.runs.swap_remove(at);
                    run.record.head(Head::State).store(RETURNED, Ordering::Release);
                    self.reach.segment.rank(run.rank).bell.ring();
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

    fn keep(&mut self, run: Execution) {
        if self.idle.len() >= MEMORY_MAX {
            self.idle.clear();
        }
        self.idle.insert((run.rank, run.record.at()), run);
    }
}
