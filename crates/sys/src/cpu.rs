// SPDX-License-Identifier: BSD-3-Clause
//! Processors (cpus): which ones a thread may use, and how it yields its cpu.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::Result;

/// Returns the numbers of the cpus on which the calling thread may run, in ascending order.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Restricts the calling thread to `cpus`, and also every thread and process that it starts from now on.
pub fn pin(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the number of the cpu on which the calling thread runs now.
pub fn current() -> usize {
    // SAFETY: takes no arguments and changes nothing. By the C library for the same reason as clocks.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.max(0) as usize
}

/// Pauses between two loads of memory that another core writes. Without the pause the processor has many
/// loads under way at once, and discards all of them when the memory changes.
#[inline(always)]
pub fn pause_between_loads() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this architecture has the instruction, and it changes no memory.
    unsafe {
        std::arch::x86_64::_mm_lfence()
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::hint::spin_loop();
}

/// Yields the cpu to another thread that wants it, if there is one (sched_yield): 0.3-2 us.
pub fn yield_cpu() {
    // SAFETY: takes no arguments and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// Gives the calling thread, and all that it starts from now on, the kernel's shortest time slice (100 us):
/// it runs soon after it wakes, but not for long. For threads that mostly sleep while others compute. It
/// changes nothing before Linux 6.12.
pub fn take_short_slices() {
    // SAFETY: a struct of numbers, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let (this_thread, bytes, flags) = (0, size_of::<libc::sched_attr>(), 0);
    // SAFETY: the kernel writes at most `bytes` bytes, the size of the struct.
    let asked =
        unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, bytes, flags) };
    if asked == 0 && attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = SHORTEST_SLICE_NS;
        // SAFETY: the kernel reads the record.
        unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, flags) };
    }
}

/// The shortest time slice that the kernel accepts, in nanoseconds (sched(7)).
const SHORTEST_SLICE_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_to_one_cpu_and_back() {
        std::thread::spawn(|| {
            let all = allowed().unwrap();
            assert!(!all.is_empty());
            pin(&all[..1]).unwrap();
            assert_eq!(allowed().unwrap(), &all[..1]);
            yield_cpu();
            assert_eq!(current(), all[0]);
            pin(&all).unwrap();
            assert_eq!(allowed().unwrap(), all);
            assert!(pin(&[usize::MAX]).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn slices_become_short_where_the_kernel_has_them() {
        std::thread::spawn(|| {
            let slice = || {
                // SAFETY: a record of numbers, for which zero is allowed.
                let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
                let bytes = size_of::<libc::sched_attr>();
                // SAFETY: the kernel writes at most so many bytes to the record.
                let asked =
                    unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
                (asked == 0).then_some((attributes.sched_policy, attributes.sched_runtime))
            };
            let before = slice();
            take_short_slices();
            match before {
                Some((policy, slice_ns)) if slice_ns > 0 => {
                    assert_eq!(slice(), Some((policy, SHORTEST_SLICE_NS)));
                }
                _ => assert_eq!(slice(), before, "it has none"),
            }
        })
        .join()
        .unwrap();
    }
}
