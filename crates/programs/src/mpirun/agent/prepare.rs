//! What is made before the first process starts: the plan of cores, and the job's memory.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use settings::{Settings, agree};
use sys::signal::Signals;
use transport::shm::{Segment, Shape};

use super::job::{Job, Options};
use super::start::Setup;
use super::upstream::Upstream;
use crate::mpirun::command::arguments::{Global, Program, Universe};
use crate::mpirun::command::refusal::Refusal;
use crate::mpirun::command::variables;
use crate::mpirun::place::claims::Claims;
use crate::mpirun::place::cpus::{self, Core, Plan, Want};
use crate::mpirun::streams::output::Style;
use crate::mpirun::wire::frame::Start;
use crate::mpirun::wire::upward::say;

/// What a launcher has to do on its host.
pub struct Share<'a> {
    /// The ranks that run here.
    pub local: Vec<u32>,
    /// MPI_UNIVERSE_SIZE, if the options do not say.
    pub universe: Option<u32>,
    /// What an agent was told of the job.
    pub start: Option<&'a Start>,
}

impl Share<'_> {
    /// An agent's.
    pub fn of(start: &Start) -> Share<'_> {
        let ranks = (0..).zip(&start.node_of).filter(|(_, node)| **node == start.node);
        Share { local: ranks.map(|(rank, _)| rank).collect(), universe: start.universe, start: Some(start) }
    }
}

/// Makes the job's memory on this host, and runs its share of the ranks.
pub fn prepare(
    global: &Global,
    programs: &[Program],
    share: &Share,
    upstream: Option<Upstream>,
    signals: Signals,
) -> Result<u8, Refusal> {
    let settings = variables::settings(global)?;
    let cores = cpus::cores().map_err(Refusal::other)?;
    let mut claims = if settings.claim_cores { Claims::take(&cores) } else { Claims::none(&cores) };
    let ranks = programs.iter().fold(0, |sum: u32, program| sum.saturating_add(program.count));
    let mut want = Want {
        ranks: share.local.len() as u32,
        proxies: if share.start.is_some_and(Start::is_served) { 0 } else { global.proxies },
        bind: global.bind_to,
        map: global.map_by,
        threads: global.use_hwthread_cpus,
        proxy_cores: global.proxy_cores.as_ref().map(|cores| cores.0.as_slice()),
        given: cores.len(),
        crowded: false,
    };
    let plan = place(&cores, &mut want, &mut claims)?;
    if let Some(warning) = cpus::shared_with_proxies(&plan, cores.iter().map(Vec::len).sum()) {
        say(&warning);
    }

    let (segment, fd) = memory(global, ranks, share, &settings, &plan)?;
    let universe = match global.usize {
        Some(Universe::Size(size)) => Some(size),
        Some(Universe::System) => Some(cores.len() as u32),
        Some(Universe::Infinite) => Some(segment.shape().ranks),
        None => share.universe,
    };
    let setup = Setup {
        fd,
        id: Setup::new_id(),
        genv: global.genv(),
        readers: global.stdin.clone(),
        pty: global.pty,
        universe,
        trace: Setup::trace_path(&settings, share.start.map(|start| start.node)),
    };
    let options = Options {
        // That of a job on several hosts is its `mpirun`'s.
        timeout: global.timeout.filter(|_| share.start.is_none()),
        style: style(global),
        verbose: global.verbose,
        report: global.report_bindings,
    };
    let mut job = Job::new(options, segment, signals, setup, share.local.clone());
    job.upstream = upstream;
    job.is_dpu = share.start.is_some_and(|start| start.serves().is_some());
    job.run(programs, &plan)
}

/// The job's memory on this host, and the descriptor for children.
fn memory(
    global: &Global,
    ranks: u32,
    share: &Share,
    settings: &Settings,
    plan: &Plan,
) -> Result<(Segment, OwnedFd), Refusal> {
    let sparse = Shape::sparse(ranks, settings.spawn_ranks_max as u32, global.proxies);
    let shape = Shape { arena_bytes: settings.arena_bytes.unwrap_or(sparse.arena_bytes), ..sparse };
    let (segment, fd) = boot::create(shape, &agree::told_of(&variables::all(global), agree::LAUNCHER))
        .map_err(|error| Refusal::other(error.to_string()))?;
    if let Some(start) = share.start {
        let node = start.serves().unwrap_or(start.node);
        segment.set_nodes(node, start.nodes.len() as u32, &start.node_of, start.secret);
        let has_dpu = start.is_served() || start.serves().is_some();
        segment.job().dpu.store(u32::from(has_dpu), Ordering::Relaxed);
        segment.job().id.store(start.job, Ordering::Relaxed);
        // So that no two hosts make one number.
        segment.job().connections.store(u64::from(start.node) << 40, Ordering::Relaxed);
        segment.job().address.set(&start.nodes[start.node as usize].address);
    }
    segment.world(0).size.store(ranks, Ordering::Relaxed);
    segment.job().launcher.store(std::process::id(), Ordering::Relaxed);
    segment.job().spin_allowed.store(u32::from(plan.spin), Ordering::Relaxed);
    // Proxies, and ranks without a core to themselves, sleep too often for a dear fence.
    let sleepers_fence = plan.spin && global.proxies == 0;
    segment.job().sleepers_fence.store(u32::from(sleepers_fence), Ordering::Relaxed);
    segment.job().cma_forbidden.store(u32::from(settings.cma == settings::Cma::Off), Ordering::Relaxed);
    let mut found = crate::tables::find(&settings.tuning).map_err(Refusal::other)?;
    share.start.iter().for_each(|start| found.tuning.set_libraries(&start.libraries));
    found.complaint.iter().for_each(|sentence| say(sentence));
    boot::set_tuning(segment.job(), &found.tuning);
    sys::memory::inheritable(&fd, false)
        .map_err(|error| Refusal::other(format!("cannot keep the job's memory: {error}")))?;
    Ok((segment, fd))
}

/// How lines of output are shown.
fn style(global: &Global) -> Style {
    let file = |pattern: &Option<String>, ending: &str| {
        let named =
            global.output_filename.as_ref().map(|name| format!("{}.%r.{ending}", name.replace('%', "%%")));
        pattern.clone().or(named)
    };
    Style {
        label: global.label,
        tag: global.tag_output,
        stamp: global.timestamp_output,
        files: [file(&global.outfile_pattern, "out"), file(&global.errfile_pattern, "err")],
    }
}

/// Who runs where: on cores that no other job has, if there are enough.
fn place(cores: &[Core], want: &mut Want, claims: &mut Claims) -> Result<Plan, Refusal> {
    let free = claims.free();
    let is_free = |cpu: &usize| free.iter().flatten().any(|free| free == cpu);
    let proxies_find_theirs = want.proxy_cores.is_none_or(|list| list.iter().all(is_free));
    // An agent without ranks needs none, but a plan needs some.
    let enough = free.len() == cores.len()
        || (!free.is_empty() && want.processes() <= free.len() && proxies_find_theirs);
    want.crowded = !enough;
    // Those of others come last.
    let others = cores.iter().filter(|core| !enough && !free.contains(core)).cloned();
    let from: Vec<Core> = free.iter().cloned().chain(others).collect();
    let plan = cpus::plan(&from, want).map_err(Refusal::other)?;
    claims.keep(&plan.taken, plan.anywhere);
    Ok(plan)
}
