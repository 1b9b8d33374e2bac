// SPDX-License-Identifier: BSD-3-Clause
//! How ranks start proxies if a launcher other than `mpirun` started the job: the lowest rank of each host
//! starts the proxies of its host.
//!
//! A rank is the MPI program's process, which may wait for any of its children, so a proxy must not be its
//! child. The rank starts a process that forks and ends at once; the forked child is the proxy. It ends when
//! the rank ends.

use std::os::fd::RawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use error::{Class, Result, fail};
use settings::Settings;
use transport::shm::Segment;

/// Starts the proxies of this host. When it returns, their pids are in their pages. `fd` is this process's
/// descriptor of the segment, and `ranks` the number of ranks on this host.
pub(crate) fn start(segment: &Segment, fd: RawFd, settings: &Settings, ranks: u32) -> Result<()> {
    let proxies = segment.shape().proxies;
    let cpus = sys::cpu::allowed().unwrap_or_default().len();
    if proxies > 0 && settings.proxy_cores.is_none() && cpus < (ranks + proxies) as usize {
        eprintln!(
            "outboard: proxies on {} share their {cpus} cpus with ranks: they compute while those cannot. Leave them a core: fewer ranks, \
             or OUTBOARD_PROXY_CORES",
            sys::host::name()
        );
    }
    (0..proxies).try_for_each(|proxy| start_one(segment, proxy, fd))
}

fn start_one(segment: &Segment, proxy: u32, fd: RawFd) -> Result<()> {
    let path = sys::tree::folder().join("bin/outboard-proxy");
    let mut command = Command::new(&path);
    // Tools that look into a program are not for proxies.
    command.env_remove("LD_PRELOAD");
    command.env("OUTBOARD_PROXY", proxy.to_string());
    command.env("OUTBOARD_JOB_FD", fd.to_string());
    command.env("OUTBOARD_LAUNCHER_PID", sys::process::id().to_string());
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().and_then(|mut child| child.wait());
    let why = match ended {
        // A program that ignores SIGCHLD, or whose handler waits, gets the exit code instead; the pid says as
        // much.
        _ if segment.proxy(proxy).pid.load(Ordering::Acquire) != 0 => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    fail!(
        Class::Other,
        "OUTBOARD_PROXIES={}, but {} cannot be started: {why}",
        segment.shape().proxies,
        path.display()
    )
}
