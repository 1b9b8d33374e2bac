// SPDX-License-Identifier: BSD-3-Clause
//! Signals that a process reads from a stream, so that no handler interrupts it.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// A stream of chosen signals. They are blocked in the thread that makes the stream and in all threads that
/// it starts afterwards, so they arrive only in the stream.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Makes a stream of the signals with these numbers. Call it before other threads start. A signal that is
    /// ignored stays ignored, as `nohup` and a shell's `&` require. The exception is SIGCHLD: a process that
    /// ignores it never learns how a child ended.
    pub fn take(signals: &[i32]) -> Result<Signals> {
        if signals.contains(&libc::SIGCHLD) {
            // SAFETY: SIG_DFL runs no code of ours.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        }
        let heeded: Vec<i32> = signals.iter().copied().filter(|signal| !is_ignored(*signal)).collect();
        let set = set_of(&heeded);
        // SAFETY: `set` is a live, initialised set; the old mask is not asked for.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(std::io::Error::from_raw_os_error(error));
        }
        // SAFETY: `set` is a live, initialised set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now, and nothing else owns it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Takes the next signal that has arrived, and returns its number, or None if no signal has. Never waits:
    /// to wait, poll the stream's descriptor.
    pub fn next(&self) -> Option<i32> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut record) {
            // The record begins with the signal's number, 32 bits.
            Ok(bytes) if bytes == record.len() => {
                Some(i32::from_ne_bytes([record[0], record[1], record[2], record[3]]))
            }
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised just now.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is initialised; a number that is no signal is refused without effect.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

/// Calls `run`, which may install signal handlers, for instance by loading a library, and returns its result.
/// Then installs the earlier handlers again.
pub fn keeping_handlers<T>(run: impl FnOnce() -> T) -> T {
    let before: Vec<(i32, libc::sigaction)> = (1..32)
        .filter_map(|signal| {
            let mut action = std::mem::MaybeUninit::uninit();
            // SAFETY: no action is set; the current one is written into `action`.
            let code = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: the call has written it if it has succeeded.
            (code == 0).then(|| (signal, unsafe { action.assume_init() }))
        })
        .collect();
    let result = run();
    for (signal, action) in before {
        // SAFETY: the action that was there before. SIGKILL and SIGSTOP, which cannot be set, are refused.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
    result
}

/// Blocks all signals in the calling thread. For Outboard's threads in an MPI program: the program's signal
/// handlers must run in its own threads.
pub fn block_all() {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the whole set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: `set` is initialised; the old mask is not asked for. With a valid first argument it cannot
    // fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut()) };
}

/// Unblocks all signals in the calling thread. A new process calls it before its program starts, because it
/// inherits the blocked signals of its parent. Allocates no memory and takes no lock.
pub(crate) fn unblock_all() -> Result<()> {
    let set = set_of(&[]);
    // SAFETY: `set` is a live, initialised set; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Ignores a signal from now on, in this process and in programs that it executes.
pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; the kernel writes into `action`, which is ours.
    let error = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value, and so is what the call wrote.
    error == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Returns the name of a signal: `SIGSEGV` for 11, `signal 64` for a signal without a name here.
pub fn name(signal: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSTKFLT, "SIGSTKFLT"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGPWR, "SIGPWR"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    let named = NAMES.iter().find(|(number, _)| *number == signal);
    named.map_or_else(|| format!("signal {signal}"), |(_, name)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_signal_is_read_and_does_not_kill() {
        std::thread::spawn(|| {
            ignore(libc::SIGUSR2);
            let signals = Signals::take(&[libc::SIGUSR1, libc::SIGUSR2]).unwrap();
            assert_eq!(signals.next(), None);
            // SAFETY: takes no arguments and cannot fail.
            let thread = unsafe { libc::pthread_self() };
            // SAFETY: the calling thread exists, and the signal is ignored.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
            // SAFETY: the calling thread exists, and the signal is blocked in it.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            assert_eq!(signals.next(), Some(libc::SIGUSR1));
            assert_eq!(signals.next(), None);
        })
        .join()
        .unwrap();
        assert_eq!(name(11), "SIGSEGV");
        assert_eq!(name(64), "signal 64");
    }
}
