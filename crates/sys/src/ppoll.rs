// SPDX-License-Identifier: BSD-3-Clause
//! Lets a thread wait in one system call (ppoll) for descriptors, for a wake-up by another process, and for a
//! timeout.
//!
//! The other process wakes the thread by a signal, which the thread blocks except while it waits. So a signal
//! that comes just before the wait ends the wait at once. By default a process ignores this signal (SIGURG),
//! so a signal that comes late does no harm. Only Outboard's own programs wait in this way: in a rank the
//! signals belong to the MPI program.

use std::io::Result;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

const SIGNAL: libc::c_int = libc::SIGURG;
/// The most descriptors for which one call of `wait` can wait.
const FDS_MAX: usize = 4;

/// What a thread needs to call `wait`: its signal mask, and the name by which others wake it. The value stays
/// in the thread that made it.
#[derive(Debug)]
pub struct Waiter {
    /// The signal mask that the thread has only while it waits. It does not block `SIGNAL`.
    open: libc::sigset_t,
    thread: Thread,
    /// Makes `Waiter` neither `Send` nor `Sync`, because a signal mask belongs to one thread.
    _here: PhantomData<*const ()>,
}

/// The name of a thread of any process on this host: the process id in the high 32 bits, the thread id in the
/// low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(pub u64);

/// Why `Waiter::wait` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Another thread or process called `wake`, or a signal came.
    Woken,
    /// A descriptor is readable, or has failed.
    Ready,
    /// The timeout has passed.
    TimedOut,
}

impl Waiter {
    /// Blocks `SIGNAL` in the calling thread, so that it arrives only in `wait`. Returns what the thread
    /// needs for waiting.
    pub fn new() -> Result<Waiter> {
        extern "C" fn nothing(_: libc::c_int) {}
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeroes are a valid value.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does nothing, which is safe at any time; the old action is not asked for.
        if unsafe { libc::sigaction(SIGNAL, action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised just now.
        let mut set = unsafe { set.assume_init() };
        // SAFETY: `set` is initialised, and the number is a signal's.
        unsafe { libc::sigaddset(&mut set, SIGNAL) };
        let mut open = MaybeUninit::zeroed();
        // SAFETY: both sets are live; the second gets the mask from before.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, open.as_mut_ptr()) };
        if error != 0 {
            return Err(std::io::Error::from_raw_os_error(error));
        }
        // SAFETY: the call has written the set.
        let mut open = unsafe { open.assume_init() };
        // SAFETY: `open` is initialised, and the number is a signal's.
        unsafe { libc::sigdelset(&mut open, SIGNAL) };
        // SAFETY: takes no arguments and cannot fail.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
        let thread = Thread(u64::from(crate::process::id()) << 32 | thread);
        Ok(Waiter { open, thread, _here: PhantomData })
    }

    /// Returns the name of this thread, by which other processes can `wake` it.
    pub fn thread(&self) -> Thread {
        self.thread
    }

    /// Waits until one of the descriptors is readable, `wake` is called for this thread, or `timeout` has
    /// passed. Takes at most `FDS_MAX` descriptors.
    pub fn wait(&self, fds: &[BorrowedFd], timeout: Duration) -> WaitEnd {
        let mut list = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; FDS_MAX];
        for (entry, fd) in list[..fds.len()].iter_mut().zip(fds) {
            entry.fd = fd.as_raw_fd();
        }
        let time = libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as _,
        };
        // SAFETY: the kernel reads and writes `fds.len()` entries of the list, and reads the time and the
        // mask.
        match unsafe { libc::ppoll(list.as_mut_ptr(), fds.len() as libc::nfds_t, &time, &self.open) } {
            0 => WaitEnd::TimedOut,
            // With open descriptors the only error is an interruption (EINTR).
            ready if ready < 0 => WaitEnd::Woken,
            _ => WaitEnd::Ready,
        }
    }
}

/// Ends the call of `wait` in which the thread is, or else its next call at once. Returns whether there is
/// such a thread.
pub fn wake(thread: Thread) -> bool {
    let (process, thread) = ((thread.0 >> 32) as libc::pid_t, thread.0 as u32 as libc::pid_t);
    // SAFETY: the call takes numbers and touches no memory of ours; the signal ends no process.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn a_descriptor_a_call_or_time_ends_a_wait() {
        let waiter = Waiter::new().unwrap();
        let (mut far, near) = UnixStream::pair().unwrap();
        assert_eq!(waiter.wait(&[near.as_fd()], Duration::from_millis(1)), WaitEnd::TimedOut);
        assert!(wake(waiter.thread()));
        assert_eq!(waiter.wait(&[near.as_fd()], LONG), WaitEnd::Woken, "a call before the wait counts");
        assert_eq!(waiter.wait(&[], Duration::ZERO), WaitEnd::TimedOut, "and counts once");
        far.write_all(&[1]).unwrap();
        assert_eq!(waiter.wait(&[near.as_fd()], LONG), WaitEnd::Ready);
        let thread = waiter.thread();
        let caller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            wake(thread)
        });
        assert_eq!(waiter.wait(&[], LONG), WaitEnd::Woken);
        assert!(caller.join().unwrap());
    }

    #[test]
    fn nobody_is_woken_where_nobody_is() {
        let thread = std::thread::spawn(|| Waiter::new().unwrap().thread()).join().unwrap();
        assert!(!wake(thread));
    }
}
