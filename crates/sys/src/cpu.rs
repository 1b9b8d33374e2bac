// SPDX-License-Identifier: BSD-3-Clause
//! Processors: which ones we may use, and giving ours up for a moment.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::Result;

/// The cpus on which the calling thread may run, ascending.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Lets the calling thread (and what it starts from now on) run only on `cpus`.
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

/// The cpu that the calling thread is on just now.
pub fn current() -> usize {
    // SAFETY: it only asks. By the C library, as clocks are.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.max(0) as usize
}

/// A pause between two loads of memory that another core writes. Without it many loads are under way at once,
/// and the processor takes all of them back when the memory changes.
#[inline(always)]
pub fn look_again() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this architecture knows it, and it changes nothing.
    unsafe {
        std::arch::x86_64::_mm_lfence()
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::hint::spin_loop();
}

/// Lets another process of this cpu run, if one wants to (sched_yield): 0.3-2 us.
pub fn give_way() {
    // SAFETY: takes no arguments and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// Has the calling thread (and what it starts from now on) run soon after it wakes, and for a short time: the
/// kernel's time slice for it becomes the shortest (100 us). For threads that mostly sleep, while others
/// compute. Kernels before 6.12 know no such slices, and change nothing.
pub fn take_short_slices() {
    // SAFETY: a record of numbers, for which zero is allowed.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let (this_thread, bytes, flags) = (0, size_of::<libc::sched_attr>(), 0);
    // SAFETY: the kernel writes at most so many bytes to the record.
    let asked =
        unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, bytes, flags) };
    if asked == 0 && attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = SHORTEST_SLICE_NS;
        // SAFETY: the kernel reads the record.
        unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, flags) };
    }
}

/// The shortest that the kernel takes (sched(7)).
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
            give_way();
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
