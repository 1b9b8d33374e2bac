//! `mpirun`: makes the job's memory, starts proxies and ranks, passes their output on, and sees that all of
//! it ends.
//!
//! Read next: `arguments.rs` (the command line), `start.rs` (one child), `job.rs` (the watch over all of
//! them), `binding.rs` and `cpus.rs` (who runs where), `serve.rs` (what ranks ask for), `deadlock.rs` (what
//! they wait for), `foreign.rs` (programs of another MPI), `output.rs`, `guardian.rs`.

mod adopt;
mod agent;
mod allocation;
pub mod arguments;
pub mod binding;
mod claims;
mod connection;
pub mod cpus;
pub mod deadlock;
mod dpus;
mod end;
mod foreign;
mod frame;
mod guardian;
mod hosts;
mod input;
mod job;
mod nodes;
mod others;
mod output;
mod places;
mod relay;
mod rsh;
mod serve;
mod start;
mod statistics;
pub mod trace;
mod words;
mod worlds;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use settings::{Settings, agree};
use sys::signal::Signals;
use transport::shm::{Segment, Shape};

use agent::Upstream;
use arguments::{Arguments, Global, Program, Universe};
use claims::Claims;
use cpus::{Core, Plan, Want};
use frame::{Start, Up};
use job::{Job, Options};
use output::Style;
use start::{Refusal, Setup};

/// The program: runs what `words` say in the form that belongs to `name`, by which it was called, and returns
/// the exit code.
pub fn run(name: &OsStr, mut words: Vec<OsString>) -> u8 {
    if Path::new(name).file_name().is_some_and(|name| name == "mpirun_rsh") {
        words = rsh::translated(&words);
    }
    if words.first().is_some_and(|word| word == guardian::WORD) {
        guardian::guard(&words.get(1).map(|word| word.to_string_lossy()).unwrap_or_default());
        return 0;
    }
    if let Some(code) = agent::serve(&words).or_else(|| relay::serve(&words)) {
        return code;
    }
    if let [word, pid] = &words[..]
        && let Some(code) = adopt::serve(&word.to_string_lossy(), &pid.to_string_lossy())
    {
        return code;
    }
    let arguments = match Arguments::parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be done about a closed terminal.
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    match launch(&arguments) {
        Ok(code) => code,
        Err(refusal) => {
            say(&refusal.message);
            refusal.code
        }
    }
}

fn launch(arguments: &Arguments) -> Result<u8, Refusal> {
    // Before any thread starts, so that signals arrive nowhere else.
    let signals = Signals::take(job::SIGNALS)
        .map_err(|error| Refusal::other(format!("cannot take over signals: {error}")))?;
    settings::unknown().iter().for_each(|sentence| say(sentence));
    if arguments.global.verbose {
        arguments.notes.iter().for_each(|note| say(note));
    }
    if !arguments.placement.nodes.is_empty() {
        return nodes::launch(arguments, signals);
    }
    let share = Share {
        local: (0..arguments.ranks()).collect(),
        universe: Some(arguments.slots).filter(|slots| *slots > arguments.ranks()),
        start: None,
    };
    prepare(&arguments.global, &arguments.programs, &share, None, signals)
}

/// What a launcher has to do on its host.
struct Share<'a> {
    /// The ranks that run here.
    local: Vec<u32>,
    /// MPI_UNIVERSE_SIZE, if the options do not say.
    universe: Option<u32>,
    /// What an agent was told of the job.
    start: Option<&'a Start>,
}

impl Share<'_> {
    /// An agent's.
    fn of(start: &Start) -> Share<'_> {
        let ranks = (0..).zip(&start.node_of).filter(|(_, node)| **node == start.node);
        Share { local: ranks.map(|(rank, _)| rank).collect(), universe: start.universe, start: Some(start) }
    }
}

/// Makes the job's memory on this host, and runs its share of the ranks.
fn prepare(
    global: &Global,
    programs: &[Program],
    share: &Share,
    upstream: Option<Upstream>,
    signals: Signals,
) -> Result<u8, Refusal> {
    let settings = job_settings(global)?;
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
    let (segment, fd) = boot::create(shape, &agree::told_of(&job_variables(global), agree::LAUNCHER))
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

/// The settings that the whole job obeys.
fn job_settings(global: &Global) -> Result<Settings, Refusal> {
    settings::parse(&job_variables(global)).map_err(|error| Refusal::other(error.to_string()))
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

/// Prints a line of our own, in one piece, because ranks' lines go to the same place from another thread.
fn say(sentence: &str) {
    if agent::is_one() {
        return agent::tell(&Up::Said(sentence.to_owned()));
    }
    // Without anybody to read it there is nothing to do about it.
    let _ = std::io::stderr().write_all(format!("mpirun: {sentence}\n").as_bytes());
}

/// The variables that the whole job obeys: the environment's, and over them what `-genv` says.
fn job_variables(global: &Global) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = settings::TABLE
        .iter()
        .filter_map(|row| Some((row.variable.to_string(), settings::given(row)?)))
        .collect();
    let genv = global.genv();
    variables.extend(
        genv.iter().filter_map(|(name, value)| Some((name.to_str()?.into(), value.to_str()?.into()))),
    );
    variables
}

/// The command line's description, for its manual page.
pub fn command() -> clap::Command {
    arguments::command::<arguments::First>()
}
