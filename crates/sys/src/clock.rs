//! Clocks, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a clock that never goes back and that all processes of the node share (CLOCK_MONOTONIC).
pub fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds since 1970 (CLOCK_REALTIME): for people, never for differences.
pub fn wall() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// CPU nanoseconds that all threads of this process have used.
pub fn process_cpu() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// CPU nanoseconds that the calling thread has used.
pub fn thread_cpu() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// The resolution of `now`, in nanoseconds (MPI_Wtick).
pub fn resolution() -> u64 {
    to_nanoseconds(rustix::time::clock_getres(ClockId::Monotonic)).max(1)
}

fn nanoseconds(id: ClockId) -> u64 {
    to_nanoseconds(clock_gettime(id))
}

fn to_nanoseconds(time: rustix::time::Timespec) -> u64 {
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
