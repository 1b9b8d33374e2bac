// SPDX-License-Identifier: BSD-3-Clause
//! Finds the running jobs of this user, by the shared memory (memfd) that their processes hold open.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use sys::process::Stat;
use transport::shm::{LocalRank, Segment, State};

/// A running job of this user, with the job's shared memory.
pub struct RunningJob {
    /// The pid of the job's `mpirun`, or of the program if it runs without `mpirun`. 0 if no pid is known.
    pub pid: u32,
    pub segment: Segment,
}

/// Returns all running jobs. With `job`, returns only the job whose `mpirun` (or program, without `mpirun`)
/// has this pid, and fails if there is no such job.
pub fn running(job: Option<u32>) -> Result<Vec<RunningJob>, String> {
    let mut jobs = find()?;
    // The agent of a job on several hosts is a child of its `mpirun`, if that runs on this host.
    let is_meant =
        |job: &RunningJob, pid| job.pid == pid || Stat::of(job.pid).is_some_and(|stat| stat.parent == pid);
    jobs.retain(|it| job.is_none_or(|pid| is_meant(it, pid)));
    jobs.sort_by_key(|job| job.pid);
    match job {
        Some(pid) if jobs.is_empty() => Err(format!("no running job of mpirun {pid} can be seen")),
        _ => Ok(jobs),
    }
}

/// Returns the jobs whose shared memory some process of this user holds open.
fn find() -> Result<Vec<RunningJob>, String> {
    let mut found: HashMap<(u64, u64), RunningJob> = HashMap::new();
    let processes = std::fs::read_dir("/proc").map_err(|error| format!("cannot read /proc: {error}"))?;
    for process in processes.flatten() {
        let is_pid =
            process.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // Processes of other users refuse this; processes may end meanwhile.
        let Some(descriptors) = is_pid.then(|| std::fs::read_dir(process.path().join("fd")).ok()).flatten()
        else {
            continue;
        };
        for path in descriptors.flatten().map(|entry| entry.path()) {
            if let Some((key, segment)) = open(&path, &found) {
                let launcher = segment.job().launcher.load(Ordering::Relaxed);
                // Ranks on other hosts, and ranks that have not started, have no pid.
                let first = ranks(&segment)
                    .map(|rank| segment.rank(rank).pid.load(Ordering::Relaxed))
                    .find(|pid| *pid != 0);
                let pid = if launcher != 0 { launcher } else { first.unwrap_or(0) };
                found.insert(key, RunningJob { pid, segment });
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Opens a job's memory through a process's descriptor, `/proc/PID/fd/N`. Returns the segment and its device
/// and inode, the key of the job. None if the descriptor is of another file, or the job is in `known`.
fn open(path: &Path, known: &HashMap<(u64, u64), RunningJob>) -> Option<((u64, u64), Segment)> {
    std::fs::read_link(path).ok().filter(|to| to.to_string_lossy().contains("memfd:outboard-job"))?;
    let facts = std::fs::metadata(path).ok()?;
    let key = (facts.dev(), facts.ino());
    if known.contains_key(&key) {
        return None;
    }
    let file = std::fs::File::options().read(true).write(true).open(path).ok()?;
    Some((key, Segment::attach(file.into()).ok()?))
}

/// Returns the ranks of a job that are on this host: those of the first world, and the spawned ranks that
/// have started.
pub fn ranks(segment: &Segment) -> impl Iterator<Item = LocalRank> {
    let first = segment.world(0).size.load(Ordering::Relaxed) as usize;
    let is_here = |rank: &LocalRank| segment.local(rank.peer()).is_some();
    let is_there =
        move |rank: &LocalRank| rank.index() < first || segment.rank(*rank).state() != State::Unborn;
    segment.places().filter(is_here).filter(is_there)
}
