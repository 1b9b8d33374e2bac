// SPDX-License-Identifier: BSD-3-Clause
//! How a process finds the segment, and becomes a rank or a proxy of it.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use error::{Class, Error, Result, fail};
use settings::Settings;
use sys::process::ProcessHandle;
use telemetry::ProcessName;
use transport::shm::{LocalRank, Segment};

/// What this process turns out to be, by the environment variables that it has.
pub(crate) enum Claim {
    /// The process is a rank of a job that `mpirun` started.
    Rank(&'static Segment, LocalRank),
    /// The process belongs to no job, or a rank of the job started it, so that the rank's number is taken.
    Alone,
}

/// Enters this process's pid in the page of the rank that OUTBOARD_RANK names, if no other process has done
/// so.
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

/// A proxy's membership in its job.
pub struct ProxyMembership {
    /// The job's memory.
    pub segment: &'static Segment,
    /// The number of the proxy that this process is.
    pub proxy: u32,
    /// The process that started the proxy, `mpirun` or a rank. The proxy ends with it.
    pub parent: ProcessHandle,
    /// The tuning values of this process: those of the job's table, unless a setting overrides them.
    pub tuning: &'static tuning::Tuning,
}

/// Enters the job as the proxy that the environment names: publishes the process, counts into the proxy's
/// page, and records events if a setting says so. Errors: neither `mpirun` nor a rank has started this
/// process.
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

/// Makes a proxy that a rank started as if `mpirun` had: pins the process to the proxy's cpu and forks, so
/// that it is not the rank's child. `announce` gets the pid of the fork.
fn leave_rank(settings: &Settings, proxy: u32, announce: impl FnOnce(u32)) -> Result<()> {
    if let Some(cpus) = &settings.proxy_cores
        && let Some(cpu) = cpus.iter().cycle().nth(proxy as usize)
        && let Err(error) = sys::cpu::pin(&[*cpu as usize])
    {
        fail!(Class::Other, "OUTBOARD_PROXY_CORES: cpu {cpu} cannot be had: {error}");
    }
    sys::child::detach(announce).map_err(|error| Error::new(Class::Other, format!("cannot fork: {error}")))
}

/// Makes large reads of another process's memory fail from a length on, if a test's setting says so.
pub(crate) fn simulate(settings: &Settings) {
    if let Some(bytes) = settings.cma_refused_bytes_min {
        sys::remote::refuse_from(bytes as usize);
    }
}

/// Starts to record events in a trace and to measure durations, if the settings ask for that.
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

/// Keeps the segment mapped as long as the process lives, since counters and doorbells are used until the
/// very end.
pub(crate) fn keep(segment: Segment) -> &'static Segment {
    Box::leak(Box::new(segment))
}

/// Opens the job's segment by the inherited descriptor `fd`, or, if a program in between has closed that, by
/// the same descriptor of the launcher. Returns None if neither exists, as in a program that a rank started.
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

/// Whether an ancestor of this process is a rank. Processes of other users count as no ranks, since this
/// process cannot look into them.
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
