// SPDX-License-Identifier: BSD-3-Clause
//! How a process joins its job, at its first MPI_Init or MPI_Session_init.

use super::handoffs::Handoffs;
use super::poll::FailedPolls;
use super::{Departure, JobState, Phase, Process};
use crate::request::{DeferredReceives, Request, Work};
use crate::{malloc, staging};
use coll::Coll;
use error::Result;
use executor::Executor;
use objects::constants::COMM_NULL;
use objects::{HandleKind, HandleTable, Info};
use p2p::P2p;
use progress::Cpus;
use rma::Rma;
use settings::Settings;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transport::export::Exporter;
use transport::route::Reach;
use transport::shm::Allocator;
use transport::{route_fabric, route_shm};

/// The longest time for which a rank waits for its proxy on another computer to take it in.
const JOIN: Duration = Duration::from_secs(20);
/// The longest time for which a rank waits for its proxy on another computer to let it go. After this time
/// the proxy gives up what it cannot reach.
const PART: Duration = Duration::from_secs(5);

impl Process {
    /// Joins the job at the first MPI_Init or MPI_Session_init. At a later one, takes back the state of the
    /// job that the last finalize put aside.
    pub fn join(&mut self) -> Result<()> {
        if self.job.is_some() {
            return Ok(());
        }
        if let Some(mut job) = self.parked.take() {
            if self.departure == Departure::Left {
                job.coll.stop_offloading();
            }
            self.job = Some(job);
            return Ok(());
        }
        crate::shim::check_alone()?;
        let membership = boot::join()?;
        let (segment, settings) = (membership.segment, settings::get());
        staging::start(settings)?;
        let port = route_shm::Port::new(segment.clone(), membership.rank);
        let config = p2p::Config::of(settings, membership.tuning);
        let mut reach = Reach::Shm(port);
        if segment.has_nodes() {
            reach.add_network(|| network(&membership))?;
        }
        membership.wire_up()?;
        let p2p = P2p::new(reach, config);
        let allocator = allocator(&membership, settings)?;
        let config = executor::Config::of(settings, membership.tuning);
        let executor = Executor::new(segment.clone(), membership.rank, allocator, config);
        let coll = Coll::new(executor, settings, membership.tuning)?;
        let handoffs = Handoffs::new(&coll, &p2p);
        let world = membership.world().id.load(Ordering::Relaxed);
        self.objects.join(membership.rank.peer(), membership.members(), world);
        self.objects.infos.predefine(objects::constants::INFO_ENV, environment(membership.size));
        let mut requests = HandleTable::new(HandleKind::Request);
        let over = Work::Send(p2p::Ticket::DONE);
        let sent = if settings.check < 2 {
            Some(requests.insert(Request { comm: COMM_NULL, work: Some(over), recipe: None })?)
        } else {
            None
        };
        self.job = Some(Box::new(JobState {
            membership,
            shared: segment.job(),
            p2p,
            coll,
            communicators: Default::default(),
            streams: Default::default(),
            io: io::Io::new(move || segment.rank(membership.rank).bell.ring()),
            files: HandleTable::new(HandleKind::File),
            requests,
            deferred: DeferredReceives::new(),
            sent,
            rma: Rma::new(segment.clone(), membership.rank),
            windows: HandleTable::new(HandleKind::Win),
            messages: HandleTable::new(HandleKind::Message),
            detached: Vec::new(),
            operations: Default::default(),
            driven: Vec::new(),
            edges: Vec::new(),
            handoffs,
            mail: Default::default(),
            operators: slab::Slab::new(),
            memory: std::collections::HashMap::new(),
            launcher: None,
            cpus: Cpus::new(segment.clone(), membership.rank, segment.members(membership.first)),
            window_polls: 0,
            failed_polls: FailedPolls::default(),
        }));
        self.job().reaches_hosts();
        self.job().join_dpu()
    }

    /// Opens the network route if any of the processes `peers` are on another host.
    pub fn reach_hosts(&mut self, peers: &[u32]) -> Result<()> {
        let segment = self.job().membership.segment;
        if segment.has_nodes() && peers.iter().any(|peer| segment.local(*peer).is_none()) {
            self.open_network()?;
        }
        Ok(())
    }

    /// Opens the network route to other hosts, if there are other hosts and this process has no route yet. It
    /// has none if the job had one host when the process joined.
    pub fn open_network(&mut self) -> Result<()> {
        let job = self.job();
        let membership = job.membership;
        if membership.segment.has_nodes() && !job.p2p.has_network() {
            job.p2p.add_network(|| network(&membership))?;
            job.reaches_hosts();
            // Other hosts must learn the name of the new endpoint.
            membership.nudge_launcher(true);
        }
        Ok(())
    }

    /// Makes MPI_COMM_WORLD, and stores `level` as the thread level that MPI_Init_thread granted.
    pub fn init(&mut self, level: i32) -> Result<()> {
        self.objects.enter_world()?;
        let world = self.job().membership.world().id.load(Ordering::Relaxed);
        if let Some(parents) = settings::get().parents.as_ref().filter(|_| world != 0) {
            self.objects.join_parents(parents.iter().map(|parent| *parent as u32).collect(), world)?;
        }
        self.phase = Phase::Running;
        self.thread_level = level;
        self.main_thread = Some(std::thread::current().id());
        Ok(())
    }
}

impl JobState {
    /// Tells `coll` whether messages to other hosts go through the kernel (tcp). Without a network route,
    /// tells it that they do not.
    fn reaches_hosts(&mut self) {
        let is_carried = self.p2p.network().is_some_and(|port| port.is_carried_by_kernel());
        self.coll.reaches_hosts(is_carried);
    }

    /// Connects to the proxy of this rank if it runs on another computer. If the proxy does not answer, the
    /// rank goes on without it. Returns MPI_ERR_OTHER if this rank's memory cannot be exported (made readable
    /// by RDMA).
    fn join_dpu(&mut self) -> Result<()> {
        let (settings, segment) = (settings::get(), self.membership.segment);
        if !segment.has_dpu() {
            return Ok(());
        }
        let rank = self.membership.rank;
        let announced = move || executor::proxy::announced(segment.rank(rank));
        let exporter = Exporter::open(segment, &route_fabric::ProviderChoice::of(settings), announced)?;
        self.coll.executor().join_remote_proxy(Box::new(exporter));
        if !self.await_proxy(JOIN, Executor::is_welcome) {
            eprintln!(
                "Outboard: rank {} has had no answer of its proxy on another computer for {} s (--dpu-hostfile): it goes on without",
                self.membership.rank,
                JOIN.as_secs()
            );
            self.coll.executor().fence();
        }
        Ok(())
    }

    /// Has the proxy of this rank let it go, if the proxy runs on another computer. The process is about to
    /// end, and a proxy that still wrote to its memory would wait for an answer.
    pub(crate) fn part_from_dpu(&mut self) {
        self.coll.executor().part_from_remote_proxy();
        self.await_proxy(PART, Executor::has_parted);
    }

    /// Exchanges notes (fixed-size messages) with this rank's proxy on another computer until `done` returns
    /// true. Returns false if that has taken as long as `most`.
    fn await_proxy(&mut self, most: Duration, done: impl Fn(&Executor) -> bool) -> bool {
        let started = Instant::now();
        while !done(self.coll.executor()) {
            if started.elapsed() > most {
                return false;
            }
            self.exchange_proxy_notes();
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }
}

/// Makes the allocator of this rank's arena, its part of the shared memory. With OUTBOARD_MALLOC=arena, half
/// of the arena is for the program's malloc.
fn allocator(membership: &boot::Membership, settings: &Settings) -> Result<Allocator> {
    crate::forked::keep_writes_apart(membership.segment);
    let arena = membership.segment.arena(membership.rank)?;
    let bytes = arena.bytes();
    let pool_bytes = malloc::offer(settings, &arena, bytes / 2);
    Ok(Allocator::new(arena, bytes - pool_bytes))
}

/// Opens this process's libfabric endpoint, by which it reaches other hosts.
fn network(membership: &boot::Membership) -> Result<route_fabric::Port> {
    let settings = settings::get();
    let (segment, rank) = (membership.segment, membership.rank);
    let member = transport::shm::EndpointOwner::Rank(rank);
    let port = route_fabric::Port::open(segment, member, &route_fabric::ProviderChoice::of(settings))?;
    let is_here = |peer: &u32| segment.local(*peer).is_some();
    if settings.fabric_tell && (0..rank.peer()).find(is_here).is_none() {
        eprintln!("Outboard: {} goes to other hosts by {}", sys::host::name(), port.describe());
    }
    Ok(port)
}

/// Makes the info MPI_INFO_ENV in a job of `size` ranks (MPI 5.0, section 11.2.2). The keys are those of
/// MPI_Comm_spawn.
pub(crate) fn environment(size: u32) -> Info {
    let mut info = Info::default();
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let command = words.next().unwrap_or_default().into_owned();
    let arguments: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let wdir =
        std::fs::read_link("/proc/self/cwd").map(|path| path.display().to_string()).unwrap_or_default();
    let facts = [
        ("command", command),
        ("argv", arguments.join(" ")),
        ("maxprocs", size.to_string()),
        ("soft", size.to_string()),
        ("arch", std::env::consts::ARCH.to_owned()),
        ("wdir", wdir),
    ];
    for (key, value) in facts {
        // A value longer than MPI_MAX_INFO_VAL is left out; the standard lets every key be absent.
        let _ = info.set(key, &value);
    }
    info
}
