// SPDX-License-Identifier: BSD-3-Clause
//! Other processes: learns of their end and kills them safely although the kernel reuses pids, and lets them
//! read this process's memory.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Returns the pid of this process.
pub fn id() -> u32 {
    std::process::id()
}

/// Returns the pid of this process's parent, or 0 if the parent is outside the pid namespace.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32)
}

/// Returns the pids of this process's parent, of the parent's parent, and so on.
pub fn ancestors() -> impl Iterator<Item = u32> {
    let above = |pid: &u32| Stat::of(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
    // Process trees are shallow; the bound ends the loop if /proc is wrong.
    std::iter::successors(Some(parent()), above).take(1000)
}

/// What the kernel says about a process in /proc/PID/stat (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Whether the process runs or waits for a core. False if it sleeps, is stopped or has ended.
    pub is_runnable: bool,
    /// The pid of the process's parent, which has started or adopted it.
    pub parent: u32,
    /// The processor time that all threads of the process have used so far, in ns. It grows by clock ticks of
    /// 10 ms.
    pub cpu_ns: u64,
}

impl Stat {
    /// Returns what the kernel says about the process that has this pid now. None if there is no such
    /// process.
    pub fn of(pid: u32) -> Option<Stat> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses, which may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = number(11)? + number(12)?;
        Some(Stat {
            is_runnable: *fields.first()? == "R",
            parent: number(1)?.try_into().ok()?,
            cpu_ns: ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second(),
        })
    }
}

/// A process, held by a descriptor (pidfd). Unlike a pid the descriptor never comes to mean another process.
#[derive(Debug)]
pub struct ProcessHandle {
    fd: OwnedFd,
}

/// Waits until a descriptor is readable, at most for `timeout`, and returns whether it is. `Some(ZERO)` does
/// not wait, `None` has no limit. A signal ends the wait.
pub fn readable(fd: impl AsFd, timeout: Option<Duration>) -> Result<bool> {
    let time = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Which processes and streams have ended, as [`first_ends`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndsFound {
    /// The processes that have ended, as indices into the list that `first_ends` was given.
    pub processes: Vec<usize>,
    /// Whether the other end of the stream that `first_ends` was given has been closed.
    pub stream: bool,
}

/// Waits until one of `processes` has ended, the other end of `stream` has been closed, or `timeout` has
/// passed (None: no limit). Reads no bytes from the stream. A signal ends the wait. Returns what has ended.
pub fn first_ends(
    processes: &[ProcessHandle],
    stream: impl AsFd,
    timeout: Option<Duration>,
) -> Result<EndsFound> {
    let time = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    let mut list = vec![PollFd::new(&stream, PollFlags::RDHUP)];
    list.extend(processes.iter().map(|process| PollFd::new(process, PollFlags::IN)));
    match poll(&mut list, time.as_ref()) {
        Err(rustix::io::Errno::INTR) => return Ok(EndsFound::default()),
        other => other?,
    };
    let ended = |entry: &PollFd| !entry.revents().is_empty();
    let indices = (0..processes.len()).filter(|index| ended(&list[index + 1]));
    Ok(EndsFound { processes: indices.collect(), stream: ended(&list[0]) })
}

impl ProcessHandle {
    /// Opens a handle to the process with this pid. The process may have ended, but must not have been
    /// reaped.
    pub fn open(pid: u32) -> Result<ProcessHandle> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(std::io::Error::from_raw_os_error(libc::ESRCH))?;
        Ok(ProcessHandle { fd: rustix::process::pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Waits until the process has ended, at most for `timeout`, and returns whether it has. `Some(ZERO)`
    /// does not wait, `None` has no limit.
    pub fn ended(&self, timeout: Option<Duration>) -> Result<bool> {
        readable(&self.fd, timeout)
    }

    /// Kills the process (SIGKILL). The error ESRCH means that the process has ended already.
    pub fn kill(&self) -> Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.fd, Signal::KILL)?)
    }

    /// Sends the signal with this number to the process. Fails with EINVAL if rustix knows no such signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let signal = Signal::from_named_raw(signal).ok_or(std::io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(rustix::process::pidfd_send_signal(&self.fd, signal)?)
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.fd, Signal::TERM)?)
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Lets process `pid` and its descendants read and write this process's memory, which the Yama security
/// module would refuse (ptrace_scope 1). Without Yama the call succeeds and changes nothing.
pub fn allow_access_by(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(std::io::Error::from_raw_os_error(libc::ESRCH))?;
    match rustix::process::set_ptracer(rustix::process::PTracer::ProcessID(pid)) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lets all processes of this user read and write this process's memory, which the Yama security module would
/// refuse (ptrace_scope 1).
pub fn allow_access_by_all() -> Result<()> {
    match rustix::process::set_ptracer(rustix::process::PTracer::Any) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends SIGCHLD to process `pid`. A process ignores that signal unless it handles it; `mpirun` then looks
/// for requests and ended ranks.
pub fn nudge(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(std::io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(rustix::process::kill_process(pid, Signal::CHILD)?)
}

/// Makes the kernel kill this process when the thread that started it ends. The caller must then compare
/// `parent()` with the expected parent, which may have ended before.
pub fn die_with_parent() -> Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_process() {
        assert_eq!(Stat::of(id()).unwrap().parent, parent());
        for (script, runs) in [("exec sleep 100", false), ("while :; do :; done", true)] {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let stat = || Stat::of(child.id()).unwrap();
            assert_eq!(stat().parent, id());
            while stat().is_runnable != runs || runs && stat().cpu_ns == 0 {}
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(Stat::of(child.id()).is_none());
        }
    }

    #[test]
    fn a_held_process_is_seen_to_end() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let held = ProcessHandle::open(child.id()).unwrap();
        assert!(!held.ended(Some(Duration::ZERO)).unwrap());
        held.kill().unwrap();
        assert!(held.ended(None).unwrap());
        child.wait().unwrap();
        assert!(held.ended(Some(Duration::ZERO)).unwrap());
        assert_eq!(held.kill().unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn the_first_end_is_told_and_what_comes_is_left() {
        use std::io::{Read, Write};
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let held = [ProcessHandle::open(child.id()).unwrap()];
        let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        let look = |stream: &_| first_ends(&held, stream, Some(Duration::ZERO)).unwrap();
        assert_eq!(look(&ours), EndsFound::default(), "a byte is no end");
        drop(theirs);
        assert_eq!(first_ends(&held, &ours, None).unwrap(), EndsFound { processes: vec![], stream: true });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(&ours), EndsFound { processes: vec![0], stream: true });
        assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
    }

    #[test]
    fn no_such_process() {
        assert!(ProcessHandle::open(0).is_err());
        assert!(ProcessHandle::open(u32::MAX).is_err());
        assert_ne!(parent(), 0);
        assert!(Stat::of(0).is_none());
        assert_eq!(ancestors().next(), Some(parent()));
        allow_access_by(parent()).unwrap();
    }
}
