// SPDX-License-Identifier: BSD-3-Clause
//! A rank of a job that a launcher other than `mpirun` started (Hydra, Slurm, PRRTE, Flux). Such ranks do
//! themselves what `mpirun` does for its ranks, through that launcher's store (crate `pmi`).
//!
//! The lowest rank of each host makes the memory of its host, and stores its pid and the descriptor's number;
//! the other ranks open the memory under /proc. The lowest rank also starts the proxies. Threads pass the
//! names of endpoints, and arrivals at MPI_Init and MPI_Finalize, between hosts by PMI fences. Each rank
//! watches the launcher and the lowest rank of its host, which watches all ranks and proxies there.
//!
//! Invariants: all ranks make the same fences in the same order: one in [`Site::enter`], and, if there are
//! several hosts, one in [`Site::wire_up`] and one after [`Site::arrive`].
//!
//! Read next: `proxies.rs`, crate `pmi`.

use std::fs::File;
use std::net::{IpAddr, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use error::{Class, Error, Result, fail};
use settings::agree::{LAUNCHER, RANKS, difference, text_of_settings};
use settings::{Cma, Settings};
use sys::process::ProcessHandle;
use transport::shm::{EndCause, LocalRank, Segment, State, proxy_endpoint};

use crate::{claim, proxies};

/// The key in the launcher's store under which rank 0 stores the job's secret (8 bytes), followed by the
/// settings on which all ranks must agree.
const JOB: &str = "job";
/// The key in the launcher's store under which the lowest rank of a host stores where the host's memory is:
/// the rank's pid, the number of its descriptor, and the job's id.
const MEMORY: &str = "memory";
/// The key in the launcher's store under which the lowest rank of a host stores the network names of the
/// host's endpoints.
const NAMES: &str = "names";
/// How long a thread sleeps before it looks again whether shared memory has changed, where no process wakes
/// it.
const TICK: Duration = Duration::from_millis(2);
/// How long a rank waits before it ends the job, so that the launcher can read the rank's last lines.
const FLUSH: Duration = Duration::from_millis(50);
/// How long a process that has asked the launcher to end the job waits to be ended. Then it exits by itself.
const GRACE: Duration = Duration::from_secs(2);

/// A process of this host that a rank watches, to learn when it ends.
#[derive(Clone, Copy)]
enum Watched {
    Rank(u32),
    Proxy(u32),
}

/// What a rank keeps until the process ends if a launcher other than `mpirun` started the job: the connection
/// to that launcher, and the job's segment.
#[derive(Debug)]
pub(crate) struct Site {
    client: &'static pmi::Client,
    pub segment: &'static Segment,
    pub rank: LocalRank,
    /// For each rank of the job, the number of its host.
    nodes: Vec<u32>,
    /// Whether this process has told the launcher, by `leave`, that it has finished and may exit.
    has_left: AtomicBool,
}

/// The connection to the launcher, if this process could not enter its job. Unset otherwise.
static FAILED: OnceLock<&pmi::Client> = OnceLock::new();

/// Makes the launcher end the job if this process could not enter it, because the other ranks wait for this
/// one. Sleeps for `FLUSH` first, so that the launcher can read what this process printed.
pub fn give_up_entering(code: i32) {
    if let Some(client) = FAILED.get() {
        std::thread::sleep(FLUSH);
        client.abort(code);
    }
}

impl Site {
    /// Enters the job of a launcher other than `mpirun`, if such a launcher has made this process one rank of
    /// several. Otherwise returns None.
    pub fn find(settings: &Settings) -> Result<Option<&'static Site>> {
        let launcher = settings::launcher_variables::launcher();
        // A program that a rank starts has the rank's variables, too.
        if (launcher.is_none() && !pmi::is_offered()) || claim::has_rank_ancestor() {
            return Ok(None);
        }
        let Some(client) = pmi::Client::connect()? else {
            let Some(other) = launcher else { return Ok(None) };
            fail!(
                Class::Other,
                "this program is one of several tasks of {} ({}), which offers no PMI by which they could find each other: {}",
                other.name,
                other.evidence,
                other.remedy
            );
        };
        if client.size() == 1 {
            client.finalize();
            return Ok(None);
        }
        // The connection stays open whatever fails: Hydra kills a process that closes it early, before the
        // process has printed why.
        let client = Box::leak(Box::new(client));
        let entered = Site::enter(client, settings).inspect_err(|_| _ = FAILED.set(client));
        let site: &'static Site = Box::leak(Box::new(entered?));
        spawn("outboard-watch", move || site.watch())?;
        Ok(Some(site))
    }

    fn enter(client: &'static pmi::Client, settings: &Settings) -> Result<Site> {
        let (rank, size) = (client.rank(), client.size());
        let nodes = client.nodes(&format!("{} {}", sys::host::name(), identity()))?;
        let leader = leader(&nodes, nodes[rank as usize]);
        if rank == 0 {
            let mut job = secret()?.to_ne_bytes().to_vec();
            job.extend(text_of_settings(RANKS).bytes());
            client.put(JOB, &job)?;
        }
        let made = if rank == leader { Some(make(client, &nodes, settings)?) } else { None };
        client.fence()?;
        let job = client.get(0, JOB)?;
        let Some((secret, agreed)) = job.split_first_chunk::<8>() else {
            fail!(
                Class::Other,
                "rank 0 has stored {} bytes with the launcher in place of the job's secret",
                job.len()
            );
        };
        if let Some(found) = difference(&String::from_utf8_lossy(agreed), &text_of_settings(RANKS), RANKS) {
            fail!(
                Class::Other,
                "{} is {} at rank {rank} and {} at rank 0, but must be the same at all ranks",
                found.setting.variable,
                found.ours,
                found.theirs
            );
        }
        let fd = made.as_ref().map(AsRawFd::as_raw_fd);
        let segment = claim::keep(match made {
            Some(fd) => crate::attach(fd)?,
            None => open(client, leader)?,
        });
        // All ranks store the same value.
        segment.job().secret.store(u64::from_ne_bytes(*secret), Ordering::Relaxed);
        if let Some(fd) = fd {
            let here = ranks_of(&nodes, nodes[rank as usize]).count();
            proxies::start(segment, fd, settings, here as u32)?;
        }
        let local = segment.require(rank)?;
        segment.rank(local).application.store(client.application()?, Ordering::Relaxed);
        segment.rank(local).pid.store(sys::process::id(), Ordering::Release);
        debug_assert_eq!(nodes.len(), size as usize);
        Ok(Site { client, segment, rank: local, nodes, has_left: AtomicBool::new(false) })
    }

    /// Starts a thread that stores the names of this host's endpoints and learns those of all other hosts.
    /// The thread then counts the ranks of other hosts as arrived at MPI_Init. This function does not wait
    /// for the thread.
    pub fn wire_up(&'static self) -> Result<()> {
        let spin = self.has_cpu_for_each();
        self.segment.job().spin_allowed.store(u32::from(spin), Ordering::Relaxed);
        if self.segment.has_nodes() {
            spawn("outboard-wire", move || self.fence(Site::exchange_endpoints))
        } else {
            Ok(())
        }
    }

    /// Starts a thread that waits until all hosts have arrived at MPI_Finalize. The thread then counts the
    /// ranks of other hosts as arrived there. This function does not wait for the thread.
    pub fn arrive(&'static self) -> Result<()> {
        if self.segment.has_nodes() {
            spawn("outboard-leave", move || self.fence(Site::fence_at_finalize))
        } else {
            Ok(())
        }
    }

    /// Takes part in a fence of all ranks (a barrier of PMI). The lowest rank of a host calls `of_leader`,
    /// which makes the fence, and stores and reads facts for all ranks of the host. The others only make it.
    fn fence(&self, of_leader: fn(&Site) -> Result<()>) {
        let done = if self.is_leader() { of_leader(self) } else { self.client.fence() };
        if let Err(error) = done {
            self.give_up(&error.message);
        }
    }

    fn exchange_endpoints(&self) -> Result<()> {
        let mut names = Vec::new();
        for rank in self.here() {
            let name = self.await_endpoint(rank);
            names.push(name.len() as u8);
            names.extend(name);
        }
        for proxy in self.proxies() {
            let name = self.await_proxy(proxy);
            names.push(name.len() as u8);
            names.extend(name);
        }
        self.client.put(NAMES, &names)?;
        self.client.fence()?;
        for node in (0..=self.nodes.iter().copied().max().unwrap_or(0)).filter(|node| *node != self.node()) {
            let names = self.client.get(leader(&self.nodes, node), NAMES)?;
            let mut names = &names[..];
            let of_proxies = self.proxies().map(|proxy| proxy_endpoint(node, self.proxies().end, proxy));
            for endpoint in ranks_of(&self.nodes, node).chain(of_proxies) {
                let name = names
                    .split_first()
                    .and_then(|(length, rest)| rest.split_at_checked(usize::from(*length)));
                let Some((name, rest)) = name else {
                    fail!(
                        Class::Other,
                        "the launcher's store lacks names of endpoints of host number {node}"
                    );
                };
                self.segment.set_endpoint(endpoint, name);
                names = rest;
            }
        }
        let world = self.segment.world(0);
        world.born.add(self.elsewhere());
        self.ring_all();
        Ok(())
    }

    fn fence_at_finalize(&self) -> Result<()> {
        let world = self.segment.world(0);
        let here = self.nodes.len() as u32 - self.elsewhere();
        if !world.leaving.wait(here, || world.aborted().is_some()) {
            return Ok(());
        }
        self.client.fence()?;
        world.leaving.add(self.elsewhere());
        self.ring_all();
        Ok(())
    }

    /// Waits until rank `rank` of this host has an endpoint, and returns the endpoint's network name. If the
    /// rank ends before, `watch` ends the job.
    fn await_endpoint(&self, rank: u32) -> Vec<u8> {
        loop {
            match self.segment.endpoint(rank) {
                Some(name) => return name,
                None => std::thread::sleep(TICK),
            }
        }
    }

    /// Waits until proxy `proxy` of this host has an endpoint, and returns the endpoint's network name.
    /// Returns an empty name if the proxy has ended.
    fn await_proxy(&self, proxy: u32) -> Vec<u8> {
        let endpoint = self.segment.proxy_endpoint(proxy);
        loop {
            match self.segment.endpoint(endpoint) {
                _ if self.segment.is_gone(endpoint) => return Vec::new(),
                Some(name) => return name,
                None => std::thread::sleep(TICK),
            }
        }
    }

    /// Tells the launcher that this process may end. The lowest rank of the host also lets the host's proxies
    /// end.
    pub fn leave(&self) {
        if self.is_leader() {
            self.segment.job().ending.store(1, Ordering::Relaxed);
            self.proxies().for_each(|proxy| self.segment.proxy(proxy).bell.ring());
        }
        self.has_left.store(true, Ordering::Release);
        self.client.finalize();
    }

    /// Makes the launcher end the job. Sleeps for `FLUSH` first, because a launcher that ends a job may not
    /// read what is still in the pipes of its ranks.
    pub fn abort(&self, code: i32) {
        std::thread::sleep(FLUSH);
        self.client.abort(code);
    }

    /// Watches the launcher, and the processes of this host that this one depends on, in a thread that lasts
    /// as long as the process. Ends the job if the launcher or a rank has ended.
    fn watch(&self) {
        let others = self.here().filter(|rank| *rank != self.rank.peer()).map(Watched::Rank);
        let mut not_started: Vec<Watched> = match self.is_leader() {
            true => others.chain(self.proxies().map(Watched::Proxy)).collect(),
            false => vec![Watched::Rank(leader(&self.nodes, self.node()))],
        };
        let mut held: Vec<(Watched, u32)> = Vec::new();
        let mut processes: Vec<ProcessHandle> = Vec::new();
        loop {
            not_started.retain(|one| {
                let pid = self.pid(*one);
                match (ProcessHandle::open(pid), one) {
                    _ if pid == 0 => return true,
                    (Ok(process), _) => {
                        processes.push(process);
                        held.push((*one, pid));
                    }
                    // A process that has ended and was reaped already: for a rank, its parent notices.
                    (Err(_), Watched::Rank(_)) => {}
                    (Err(_), Watched::Proxy(proxy)) => self.proxy_ended(*proxy, pid),
                }
                false
            });
            let patience = if not_started.is_empty() { None } else { Some(5 * TICK) };
            let Ok(ends) = sys::process::first_ends(&processes, self.client.lifeline(), patience) else {
                return;
            };
            if self.has_left.load(Ordering::Acquire) {
                return;
            }
            if ends.stream {
                self.give_up("the launcher has ended");
            }
            for place in ends.processes.into_iter().rev() {
                let (one, pid) = held.swap_remove(place);
                processes.swap_remove(place);
                match one {
                    Watched::Rank(rank) => self.rank_ended(rank, pid),
                    Watched::Proxy(proxy) => self.proxy_ended(proxy, pid),
                }
            }
        }
    }

    /// Ends the job if rank `rank` of this host, with the pid `pid`, has ended without MPI_Finalize.
    fn rank_ended(&self, rank: u32, pid: u32) {
        let Some(page) = self.page(rank).filter(|page| page.state() != State::Finalized) else { return };
        page.set_state(State::Dead);
        if self.segment.world(0).aborted().is_none() {
            let name = self.segment.name(rank);
            self.give_up(&format!("{name} (pid {pid} on {}) ended without MPI_Finalize", sys::host::name()));
        }
    }

    /// Marks a proxy of this host, which has ended, as dead, and wakes the ranks: they continue the proxy's
    /// collectives themselves, only slower.
    fn proxy_ended(&self, proxy: u32, pid: u32) {
        let page = self.segment.proxy(proxy);
        self.segment.set_endpoint(self.segment.proxy_endpoint(proxy), &[]);
        if page.state() == State::Finalized {
            return;
        }
        page.set_state(State::Dead);
        self.ring_all();
        // A rank that kills a stalled proxy prints that itself.
        let is_fenced = page.fenced.load(Ordering::Relaxed) != 0;
        if !is_fenced && self.segment.world(0).aborted().is_none() {
            eprintln!(
                "outboard: proxy {proxy} (pid {pid} on {}) has ended; its ranks go on without it",
                sys::host::name()
            );
        }
    }

    /// Prints `sentence` as the reason, ends the job, and exits.
    fn give_up(&self, sentence: &str) -> ! {
        eprintln!("outboard: {}: {sentence}; ending the job", self.segment.name(self.rank.peer()));
        // This comes before this rank's other threads learn of it, which end the process.
        self.abort(1);
        self.segment.end(self.rank, 1, EndCause::Error);
        std::thread::sleep(GRACE);
        // SAFETY: ends the process; nothing runs after it. Its streams may be locked by another thread.
        unsafe { libc::_exit(1) }
    }

    /// Whether each rank and proxy of this host can have a cpu of its own. False as long as some rank of the
    /// host has not published its cpus; so the last rank that asks gets the final answer.
    fn has_cpu_for_each(&self) -> bool {
        let here: Vec<_> = self.here().filter_map(|rank| self.page(rank)).collect();
        let mut first: Vec<u32> = here.iter().map(|page| page.cpu.load(Ordering::Relaxed)).collect();
        first.sort_unstable();
        first.dedup();
        let all = here.len() + self.proxies().len();
        here.iter().all(|page| page.state() == State::Running)
            && (first.len() == all
                || here.iter().all(|page| page.cpus.load(Ordering::Relaxed) as usize >= all))
    }

    /// Returns the pid of a watched rank or proxy. Returns 0 before that process has published its pid.
    fn pid(&self, one: Watched) -> u32 {
        match one {
            Watched::Rank(rank) => self.page(rank).map_or(0, |page| page.pid.load(Ordering::Acquire)),
            Watched::Proxy(proxy) => self.segment.proxy(proxy).pid.load(Ordering::Acquire),
        }
    }

    /// Returns the numbers of the proxies of a host, which are the same on every host.
    fn proxies(&self) -> Range<u32> {
        0..self.segment.shape().proxies
    }

    fn page(&self, rank: u32) -> Option<&'static transport::shm::RankPage> {
        self.segment.local(rank).map(|rank| self.segment.rank(rank))
    }

    fn node(&self) -> u32 {
        self.nodes[self.rank.index()]
    }

    fn here(&self) -> impl Iterator<Item = u32> {
        ranks_of(&self.nodes, self.node())
    }

    fn is_leader(&self) -> bool {
        leader(&self.nodes, self.node()) == self.rank.peer()
    }

    /// Returns how many of the job's ranks are on other hosts.
    fn elsewhere(&self) -> u32 {
        self.nodes.iter().filter(|node| **node != self.node()).count() as u32
    }

    fn ring_all(&self) {
        self.here().filter_map(|rank| self.page(rank)).for_each(|page| page.bell.ring());
    }
}

/// Returns the ranks on host number `node`, in ascending order. `nodes` has the host of each rank.
fn ranks_of(nodes: &[u32], node: u32) -> impl Iterator<Item = u32> {
    (0..).zip(nodes).filter(move |(_, of)| **of == node).map(|(rank, _)| rank)
}

/// Returns the lowest rank on host number `node`. `nodes` has the host of each rank.
fn leader(nodes: &[u32], node: u32) -> u32 {
    ranks_of(nodes, node).next().unwrap_or(0)
}

/// Makes the memory that the ranks of this host share, and stores with the launcher how they can open it. The
/// lowest rank of the host calls it. Returns the memory's descriptor.
fn make(client: &pmi::Client, nodes: &[u32], settings: &Settings) -> Result<OwnedFd> {
    let node = nodes[client.rank() as usize];
    let (here, ranks) = (ranks_of(nodes, node).count(), nodes.len() as u32);
    let shape = crate::shape(settings, ranks, 0, settings.proxies as u32);
    let (segment, fd) = crate::create(shape, &text_of_settings(LAUNCHER))?;
    segment.set_nodes(node, nodes.iter().max().map_or(1, |most| most + 1), nodes, 0);
    segment.world(0).size.store(ranks, Ordering::Relaxed);
    let job = segment.job();
    job.address.set(&address());
    // The ranks descend from no launcher of ours, so each lets all processes of its user read its memory.
    job.adopted.store(1, Ordering::Relaxed);
    // All cpus of the machine count, since the launcher may have bound this rank to one of them.
    let is_roomy = here <= sys::topology::sharers("Machine", 0).len();
    job.sleepers_fence.store(u32::from(is_roomy && shape.proxies == 0), Ordering::Relaxed);
    job.cma_forbidden.store(u32::from(settings.cma == Cma::Off), Ordering::Relaxed);
    let place = [u64::from(sys::process::id()), fd.as_raw_fd() as u64, job.id.load(Ordering::Relaxed)];
    client.put(MEMORY, &place.map(u64::to_ne_bytes).concat())?;
    Ok(fd)
}

/// Opens the memory of this host, which `leader`, the host's lowest rank, has made.
fn open(client: &pmi::Client, leader: u32) -> Result<Segment> {
    let place = client.get(leader, MEMORY)?;
    let mut words = place.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    let (Some(pid), Some(fd), Some(id)) = (words.next(), words.next(), words.next()) else {
        fail!(
            Class::Other,
            "rank {leader} has stored {} bytes with the launcher in place of its memory",
            place.len()
        );
    };
    let opened = File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"));
    let segment = opened.map_err(|error| Error::new(Class::Other, error.to_string()));
    match segment.and_then(|file| crate::attach(file.into())) {
        Ok(segment) if segment.job().id.load(Ordering::Relaxed) == id => Ok(segment),
        Ok(_) => fail!(
            Class::Other,
            "process {pid} has the memory of another job than rank {leader}, which it should be"
        ),
        Err(error) => fail!(
            Class::Other,
            "the memory of rank {leader} (process {pid}), which shares this host as the launcher says, cannot be opened: {}; ranks in containers need one pid namespace on each host",
            error.message
        ),
    }
}

/// Returns a text that is different on each host, and in each pid namespace of a host.
fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), pids.display())
}

/// Returns the address at which other hosts reach this one: the address of the launcher's name for this host,
/// else of the host's own name. Empty if neither name has an address other than loopback.
fn address() -> String {
    let named = ["PMI_HOSTNAME", "PMIX_HOSTNAME", "SLURMD_NODENAME"];
    let names =
        named.iter().filter_map(|name| settings::launcher_variables::variable(name)?.into_string().ok());
    let addresses = names.chain([sys::host::name()]).flat_map(|name| {
        let found = (name.as_str(), 0).to_socket_addrs();
        found.into_iter().flatten().map(|address| address.ip()).collect::<Vec<IpAddr>>()
    });
    addresses
        .filter(|address| !address.is_loopback())
        .map(|address| address.to_string())
        .next()
        .unwrap_or_default()
}

fn secret() -> Result<u64> {
    sys::host::random_number()
        .map_err(|error| Error::new(Class::Other, format!("cannot make the job's secret: {error}")))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let run = || {
        sys::signal::block_all();
        run();
    };
    match std::thread::Builder::new().name(name.into()).spawn(run) {
        Ok(_) => Ok(()),
        Err(error) => fail!(Class::Other, "cannot start a thread: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rank_of_a_host_leads_it() {
        let nodes = [0, 1, 0, 2, 1];
        assert_eq!([0, 1, 2].map(|node| leader(&nodes, node)), [0, 1, 3]);
        assert_eq!(ranks_of(&nodes, 1).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn no_address_is_a_loopback() {
        assert!(address().parse::<IpAddr>().map_or(true, |address| !address.is_loopback()));
        assert!(identity().contains("pid:"));
    }
}
