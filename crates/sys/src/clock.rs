//! Clocks, in nanoseconds. By the C library and not by rustix, which reads the kernel's page of code itself: valgrind hides that.

/// Nanoseconds of a clock that never goes back and that all processes of the node share (CLOCK_MONOTONIC).
pub fn now() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970 (CLOCK_REALTIME): for people, never for differences.
pub fn wall() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME)
}

/// CPU nanoseconds that all threads of this process have used.
pub fn process_cpu() -> u64 {
    nanoseconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU nanoseconds that the calling thread has used.
pub fn thread_cpu() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The resolution of `now`, in nanoseconds (MPI_Wtick).
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
