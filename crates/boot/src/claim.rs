// SPDX-License-Identifier: BSD-3-Clause
//! How a process finds the job's segment, and becomes a rank or a proxy of the job.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use error::{Class, Error, Result, fail};
use settings::Settings;
use sys::process::ProcessHandle;
use telemetry::ProcessName;
use transport::shm::{LocalRank, Segment};

/// What this process is, according to its environment variables.
pub(crate) enum Claim {
    /// The process is this rank of a job that `mpirun` started.
    Rank(&'static Segment, LocalRank),
    /// The process is a job of its own: no launcher started it, or a rank started it and still holds the rank
    /// number in OUTBOARD_RANK.
    Alone,
}

/// Returns what this process is. Makes it the rank that OUTBOARD_RANK names if no process is that rank yet:
/// enters its pid into the rank's page. A process whose ancestor is that rank is `Alone`. Fails if another
/// process is that rank.
pub(crate) fn rank(settings: &Settings) -> Result<Claim> {
    let (Some(fd), Some(rank)) = (settings.job_fd, settings.rank) else { return Ok(Claim::Alone) };
    let Some(segment) = segment(settings, fd)? else { return Ok(Claim::Alone) };
    let Some(rank) = u32::try_from(rank).ok().and_then(|rank| segment.local(rank)) else {
        fail!(Class::Other, "OUTBOARD_RANK={rank}, but the job has {} ranks", segment.shape().ranks);
    };
    let pid = &segment.rank(rank).pid;
    match pid.compare_exchange(0, sys::process::id(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(Claim::Rank(keep(segment), rank)),
        Err(owner) if is_ancestor(owner) => Ok(Claim::Alone),
        Err(owner) => fail!(
            Class::Other,
            "rank {rank} of this job is process {owner} already; a script under mpirun can start only one MPI program"
        ),
    }
}

/// What a proxy knows after it has joined its job.
pub struct ProxyMembership {
    /// The job's segment on this host.
    pub segment: &'static Segment,
    /// The number of this proxy on its host.
    pub proxy: u32,
    /// The process that started this proxy: `mpirun` or a rank. The proxy ends when that process ends.
    pub parent: ProcessHandle,
    /// The tuning of this process: the values of the job's table, except where a setting overrides a value.
    pub tuning: &'static tuning::Tuning,
}

/// Joins the job as the proxy that OUTBOARD_PROXY names: enters the pid into the proxy's page, and starts to
/// count there and to record events if a setting asks for that. Fails if neither `mpirun` nor a rank has
/// started this process.
pub fn join_proxy() -> Result<ProxyMembership> {
    let settings = settings::load()?;
    simulate(settings);
    let (Some(fd), Some(proxy), Some(parent)) = (settings.job_fd, settings.proxy, settings.launcher_pid)
    else {
        fail!(
            Class::Other,
            "outboard-proxy is not started by hand: mpirun does that (option --proxies), and under srun and Hydra a rank (OUTBOARD_PROXIES)"
        );
    };
    let gone = || Error::new(Class::Other, format!("process {parent}, which started this proxy, is gone"));
    let parent = ProcessHandle::open(parent as u32).map_err(|_| gone())?;
    let segment = segment(settings, fd)?.ok_or_else(gone)?;
    let shape = segment.shape();
    if proxy >= u64::from(shape.proxies) {
        fail!(Class::Other, "OUTBOARD_PROXY={proxy}, but the job has {} proxies", shape.proxies);
    }
    let (segment, proxy) = (keep(segment), proxy as u32);
    let page = segment.proxy(proxy);
    if segment.job().launcher.load(Ordering::Relaxed) == 0 {
        leave_rank(settings, proxy, |pid| page.pid.store(pid, Ordering::Release))?;
    }
    page.pid.store(sys::process::id(), Ordering::Release);
    let cpus = sys::cpu::allowed().unwrap_or_default();
    page.cpus.store(cpus.len() as u32, Ordering::Relaxed);
    page.cpu.store(cpus.first().map_or(0, |cpu| *cpu as u32), Ordering::Relaxed);
    telemetry::attach(&page.counters);
    time(settings, ProcessName::Proxy(proxy), false);
    Ok(ProxyMembership { segment, proxy, parent, tuning: crate::tuning::of_process(segment, settings) })
}

/// Separates a proxy from the rank that started it: binds the process to the proxy's cpu, and forks, so that
/// the proxy is not the rank's child. `announce` gets the pid of the forked child.
fn leave_rank(settings: &Settings, proxy: u32, announce: impl FnOnce(u32)) -> Result<()> {
    if let Some(cpus) = &settings.proxy_cores
        && let Some(cpu) = cpus.iter().cycle().nth(proxy as usize)
        && let Err(error) = sys::cpu::pin(&[*cpu as usize])
    {
        fail!(Class::Other, "OUTBOARD_PROXY_CORES: cpu {cpu} cannot be had: {error}");
    }
    sys::child::detach(announce).map_err(|error| Error::new(Class::Other, format!("cannot fork: {error}")))
}

/// Makes reads of other processes' memory fail from a certain length on, if a test's setting asks for that.
pub(crate) fn simulate(settings: &Settings) {
    if let Some(bytes) = settings.cma_refused_bytes_min {
        sys::remote::refuse_from(bytes as usize);
    }
}

/// Starts to record events for a trace, and to measure durations, if the settings ask for that. `alone`:
/// whether the process is a job of its own.
pub(crate) fn time(settings: &Settings, who: ProcessName, alone: bool) {
    if let Some(file) = &settings.trace
        && let Err(error) = telemetry::event::trace(who, file, alone, settings.trace_events_max as usize)
    {
        eprintln!(
            "outboard: {who}: no trace: {} cannot be written as mapped memory: {error}",
            file.display()
        );
    }
    if settings.stats || telemetry::tracing() {
        telemetry::time();
    }
}

/// Keeps the segment mapped until the process ends, because counters and doorbells are used to the very end.
pub(crate) fn keep(segment: Segment) -> &'static Segment {
    Box::leak(Box::new(segment))
}

/// Opens the job's segment by the inherited descriptor `fd`. If a program between `mpirun` and this process
/// has closed this descriptor, opens the segment by `mpirun`'s descriptor with the same number. Returns None
/// if neither is open, as in a program that a rank started.
fn segment(settings: &Settings, fd: u64) -> Result<Option<Segment>> {
    let own = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    if own.is_ok_and(|path| path.to_string_lossy().contains("outboard-job")) {
        // SAFETY: the descriptor is open and is the job's memfd, which only we use; `Segment` sets
        // close-on-exec below.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        sys::memory::inheritable(&fd, false).map_err(|error| {
            Error::new(Class::Other, format!("cannot keep the job's descriptor from children: {error}"))
        })?;
        return crate::attach(fd).map(Some);
    }
    let Some(launcher) = settings.launcher_pid else { return Ok(None) };
    let theirs = format!("/proc/{launcher}/fd/{fd}");
    match std::fs::File::options().read(true).write(true).open(theirs) {
        Ok(file) => crate::attach(file.into()).map(Some),
        Err(_) => Ok(None),
    }
}

/// Whether process `pid` is an ancestor of this one.
fn is_ancestor(pid: u32) -> bool {
    sys::process::ancestors().any(|ancestor| ancestor == pid)
}

/// Whether some ancestor of this process is a rank. A process of another user does not count as one, because
/// this process cannot see its descriptors.
pub(crate) fn has_rank_ancestor() -> bool {
    let holds_job = |pid: u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|path| path.to_string_lossy().starts_with("/memfd:outboard-job"))
    };
    sys::process::ancestors().any(holds_job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors() {
        assert!(is_ancestor(sys::process::parent()));
        assert!(!is_ancestor(sys::process::id()));
    }
}
