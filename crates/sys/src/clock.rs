// SPDX-License-Identifier: BSD-3-Clause
//! Clocks, in nanoseconds. They call the C library and not rustix: rustix itself reads the page of code that
//! the kernel provides (vDSO), and valgrind hides that page.

/// Returns the time in ns of a clock that never goes back and that all processes of a host share
/// (CLOCK_MONOTONIC).
pub fn now() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Returns the time in ns since 1970 (CLOCK_REALTIME). Use it only to show a time to people, never for
/// differences.
pub fn wall() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME)
}

/// Returns the date and time in the local time zone, to be shown to people: `2026-11-23 18:06:15.042`.
pub fn local() -> String {
    let nanoseconds = wall();
    let seconds = (nanoseconds / 1_000_000_000) as libc::time_t;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live variables of this function.
    unsafe { libc::localtime_r(&seconds, parts.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value, and so is what the call wrote.
    let t = unsafe { parts.assume_init() };
    let (year, month, milliseconds) = (t.tm_year + 1900, t.tm_mon + 1, nanoseconds / 1_000_000 % 1000);
    let (day, hour, minute, second) = (t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milliseconds:03}")
}

/// Returns the processor time that all threads of this process have used, in ns.
pub fn process_cpu() -> u64 {
    nanoseconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the processor time that the calling thread has used, in ns.
pub fn thread_cpu() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the resolution of the clock that `now` reads, in ns (for MPI_Wtick).
pub fn resolution() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &mut time) };
    to_nanoseconds(time).max(1)
}

#[inline]
fn nanoseconds(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours; the kernel has all of these clocks.
    unsafe { libc::clock_gettime(id, &mut time) };
    to_nanoseconds(time)
}

fn to_nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_agree() {
        let (start, cpu, thread) = (now(), process_cpu(), thread_cpu());
        let mut x = 1u64;
        while now() - start < 2_000_000 || thread_cpu() == thread {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_cpu() > cpu);
        assert!(wall() > 1_600_000_000 * 1_000_000_000);
        assert!(resolution() < 100_000_000);
    }
}
