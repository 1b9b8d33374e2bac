// SPDX-License-Identifier: BSD-3-Clause
//! What this process may use: its resource limits, and the memory limit of its cgroup.

use rustix::process::{Resource, Rlimit, getrlimit};
use std::path::{Path, PathBuf};

/// Returns how many bytes of memory this process may use: the machine's memory, or the limit of the cgroup if
/// that is less.
pub fn memory_bytes() -> u64 {
    cgroup_bytes().map_or(u64::MAX, |bytes| bytes).min(physical_bytes())
}

/// Returns the length of a page of memory in bytes.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: sysconf only reads its argument.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    bytes as usize
}

/// Returns how many bytes of physical memory the machine has.
pub fn physical_bytes() -> u64 {
    // SAFETY: sysconf only reads its argument.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    pages.max(0) as u64 * page_bytes() as u64
}

/// Returns how many bytes of address space this process may map (`ulimit -v`). None if there is no limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns how long this process may make a file, in bytes: the hard limit (`ulimit -H -f`). None if there is
/// no limit.
pub fn file_bytes() -> Option<u64> {
    getrlimit(Resource::Fsize).maximum
}

/// Returns how many descriptors this process may have open (`ulimit -n`). None if there is no limit.
pub fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Calls `what` and returns its result. Meanwhile the limit on file lengths is raised to the hard limit.
pub(crate) fn with_longest_files<T>(what: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Fsize);
    let raised = Rlimit { current: before.maximum, ..before };
    // If the limit cannot be raised, the kernel refuses the length, and `what` returns that error.
    let _ = rustix::process::setrlimit(Resource::Fsize, raised);
    let done = what();
    let _ = rustix::process::setrlimit(Resource::Fsize, before);
    done
}

/// Returns the least memory limit, in bytes, of this process's cgroup and the cgroups above it. None if there
/// is no limit.
pub fn cgroup_bytes() -> Option<u64> {
    let folders = folders();
    let all = folders.iter().flat_map(|folder| folder.ancestors().take(folder.components().count()));
    let limit = |folder: &Path| {
        ["memory.max", "memory.limit_in_bytes"].into_iter().find_map(|file| number(&folder.join(file)))
    };
    // In version 1 a number near 2^63 means that there is no limit.
    all.filter_map(limit).filter(|bytes| *bytes < 1 << 60).min()
}

/// Returns how many processes of this process's cgroup the kernel has killed because memory ran out. None if
/// the cgroup does not say.
pub fn oom_kills() -> Option<u64> {
    let count = |file: PathBuf| {
        let text = std::fs::read_to_string(file).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .and_then(|count| count.trim().parse().ok())
    };
    let files = ["memory.events", "memory.oom_control"];
    folders().iter().flat_map(|folder| files.map(|file| folder.join(file))).find_map(count)
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the folders below /sys/fs/cgroup in which the kernel shows the memory of this process's cgroup, of
/// version 2 and of version 1.
fn folders() -> Vec<PathBuf> {
    folders_of(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

fn folders_of(text: &str) -> Vec<PathBuf> {
    let folder = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some(Path::new("/sys/fs/cgroup").join(path)),
            _ if controllers.split(',').any(|one| one == "memory") => {
                Some(Path::new("/sys/fs/cgroup/memory").join(path))
            }
            _ => None,
        }
    };
    text.lines().filter_map(folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups_have_folders() {
        let folders = folders_of("9:name=systemd:/\n4:memory,hugetlb:/a/b\n3:cpuset:/\n0::/c\n");
        assert_eq!(folders, [Path::new("/sys/fs/cgroup/memory/a/b"), Path::new("/sys/fs/cgroup/c")]);
    }

    #[test]
    fn there_is_memory() {
        assert!((1 << 20..=physical_bytes()).contains(&memory_bytes()));
    }
}
