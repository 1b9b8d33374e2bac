// SPDX-License-Identifier: BSD-3-Clause
//! Prepares a host before the first process of the job starts there: plans the cores, and makes the job's
//! shared memory.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use settings::{Settings, agree};
use sys::signal::Signals;
use transport::shm::Segment;

use super::facts::FactsKeeper;
use super::job::AgentJob;
use super::start::Setup;
use super::upstream::Upstream;
use crate::mpirun::command::arguments::Universe;
use crate::mpirun::command::say::Refusal;
use crate::mpirun::command::variables;
use crate::mpirun::place::claims::Claims;
use crate::mpirun::place::cpus::{self, Core, CorePlan, Want};
use crate::mpirun::wire::frame::Start;
use crate::tables::{self, FoundTuning};

impl AgentJob {
    /// Makes the job's memory on this host, and plans which process gets which cores. Returns the job, of
    /// which no process runs yet, and the plan.
    pub fn prepare(
        start: &Start,
        upstream: Upstream,
        signals: Arc<Signals>,
    ) -> Result<(AgentJob, CorePlan), Refusal> {
        let global = &start.global;
        let settings = variables::settings(global)?;
        let cores = cpus::cores().map_err(Refusal::other)?;
        let mut claims = if settings.claim_cores { Claims::take(&cores) } else { Claims::none(&cores) };
        let ranks = (0..).zip(&start.node_of).filter(|(_, node)| **node == start.node);
        let here: Vec<u32> = ranks.map(|(rank, _)| rank).collect();
        let by_setting: Option<Vec<usize>> =
            settings.proxy_cores.as_ref().map(|cores| cores.iter().map(|core| *core as usize).collect());
        // Without proxies the setting has no effect: it may be meant for jobs that have them.
        let by_setting = by_setting.as_ref().filter(|_| global.proxies > 0);
        let proxy_cores = global.proxy_cores.as_ref().map(|cores| &cores.0).or(by_setting);
        let mut want = Want {
            ranks: here.len() as u32,
            proxies: if start.is_served() { 0 } else { global.proxies },
            bind: global.bind_to,
            map: global.map_by,
            threads: global.use_hwthread_cpus,
            proxy_cores: proxy_cores.map(Vec::as_slice),
            given: cores.len(),
            crowded: false,
        };
        let plan = plan_cores(&cores, &mut want, &mut claims)?;
        if let Some(warning) = cpus::shared_with_proxies(&plan, cores.iter().map(Vec::len).sum()) {
            upstream.uplink.say(&warning);
        }
        let (segment, fd, found) = memory(start, &settings, &plan)?;
        found.complaint.iter().for_each(|sentence| upstream.uplink.say(sentence));
        let universe = match global.usize {
            Some(Universe::Size(size)) => Some(size),
            Some(Universe::System) => Some(cores.len() as u32),
            Some(Universe::Infinite) => Some(segment.shape().ranks),
            None => start.universe,
        };
        let setup = Setup {
            fd,
            id: Setup::new_id(),
            global: global.clone(),
            reads_ours: upstream.is_here(),
            universe,
            trace: Setup::trace_path(&settings, (!upstream.is_here()).then_some(start.node)),
        };
        let mut job = AgentJob::new(segment, signals, setup, here, upstream);
        job.is_dpu = start.serves().is_some();
        job.claims = Some(claims);
        let keeps_facts = tables::keeps_facts(&settings) && !job.is_dpu;
        job.facts = keeps_facts.then(|| FactsKeeper::new(found.tuning)).flatten();
        Ok((job, plan))
    }
}

/// Makes the job's memory on this host. Returns the segment, its descriptor for child processes, and the
/// tuning that is written into the segment.
fn memory(
    start: &Start,
    settings: &Settings,
    plan: &CorePlan,
) -> Result<(Segment, OwnedFd, FoundTuning), Refusal> {
    let (global, ranks) = (&start.global, start.node_of.len() as u32);
    let shape = boot::shape(settings, ranks, settings.spawn_ranks_max as u32, global.proxies);
    let (segment, fd) =
        boot::create(shape, &agree::text_of_variables(&variables::all(global), agree::LAUNCHER))
            .map_err(|error| Refusal::other(error.to_string()))?;
    let (node, job) = (start.serves().unwrap_or(start.node), segment.job());
    segment.set_nodes(node, start.nodes.len() as u32, &start.node_of, start.secret);
    let has_dpu = start.is_served() || start.serves().is_some();
    job.dpu.store(u32::from(has_dpu), Ordering::Relaxed);
    start.job.iter().for_each(|number| job.id.store(*number, Ordering::Relaxed));
    // So no two hosts make the same number.
    job.connections.store(u64::from(start.node) << 40, Ordering::Relaxed);
    job.address.set(&address(start));
    segment.world(0).size.store(ranks, Ordering::Relaxed);
    job.launcher.store(std::process::id(), Ordering::Relaxed);
    job.spin_allowed.store(u32::from(plan.spin), Ordering::Relaxed);
    // Proxies, and ranks that share cores, sleep too often for a costly fence.
    let sleepers_fence = plan.spin && global.proxies == 0;
    job.sleepers_fence.store(u32::from(sleepers_fence), Ordering::Relaxed);
    job.cma_forbidden.store(u32::from(settings.cma == settings::Cma::Off), Ordering::Relaxed);
    let mut found = tables::find(settings).map_err(Refusal::other)?;
    start.libraries.iter().for_each(|libraries| found.tuning.set_libraries(libraries));
    boot::set_tuning(job, &found.tuning);
    sys::memory::inheritable(&fd, false)
        .map_err(|error| Refusal::other(format!("cannot keep the job's memory: {error}")))?;
    Ok((segment, fd, found))
}

/// Returns this host's address for other hosts: the address that `mpirun` found, else the one at which ssh
/// reached us. Empty if neither is known: then libfabric chooses the interface.
fn address(start: &Start) -> String {
    let by_ssh = || {
        // The variable holds the address and port of the client, then those of this host.
        let variable = settings::launcher_variables::variable("SSH_CONNECTION")?.into_string().ok()?;
        let address: IpAddr = variable.split_whitespace().nth(2)?.parse().ok()?;
        (!address.is_loopback()).then(|| address.to_string())
    };
    start.nodes[start.node as usize].address.clone().or_else(by_ssh).unwrap_or_default()
}

/// Decides which process runs on which cores, on cores that no other job has claimed if there are enough.
/// Claims the chosen cores, and returns the plan.
fn plan_cores(cores: &[Core], want: &mut Want, claims: &mut Claims) -> Result<CorePlan, Refusal> {
    let free = claims.free();
    let is_free = |cpu: &usize| free.iter().flatten().any(|free| free == cpu);
    let proxies_find_theirs = want.proxy_cores.is_none_or(|list| list.iter().all(is_free));
    // An agent without ranks needs no core, but a plan needs at least one.
    let enough = free.len() == cores.len()
        || (!free.is_empty() && want.processes() <= free.len() && proxies_find_theirs);
    want.crowded = !enough;
    // The cores of other jobs come last.
    let others = cores.iter().filter(|core| !enough && !free.contains(core)).cloned();
    let from: Vec<Core> = free.iter().cloned().chain(others).collect();
    let plan = cpus::plan(&from, want).map_err(Refusal::other)?;
    claims.keep(&plan.taken, plan.anywhere);
    Ok(plan)
}
