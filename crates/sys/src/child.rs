// SPDX-License-Identifier: BSD-3-Clause
//! What a child process must have before its program starts.

use std::io::Result;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arranges that what `command` starts leads a process group of its own, has no signal blocked, runs on
/// `cpus` (anywhere if empty), and is killed when the calling thread ends, however that happens.
pub fn tie(command: &mut Command, cpus: &[usize]) {
    let parent = std::process::id();
    let cpus = cpus.to_vec();
    command.process_group(0);
    let prepare = move || -> Result<()> {
        crate::process::die_with_parent()?;
        crate::signal::unblock_all()?;
        if crate::process::parent() != parent {
            // The parent ended before the kernel was told what to do then.
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        if cpus.is_empty() { Ok(()) } else { crate::cpu::pin(&cpus) }
    };
    // SAFETY: between fork and exec the closure makes system calls only, without locks or allocations.
    unsafe { command.pre_exec(prepare) };
}

/// Goes on in a child of this process, which ends with code 0 once `announce` has had the child's pid. So
/// whoever started this process soon has no child any more. For a process with one thread.
pub fn detach(announce: impl FnOnce(u32)) -> Result<()> {
    // SAFETY: it takes nothing; no other thread could hold a lock that the child wants.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => Ok(()),
        child => {
            announce(child as u32);
            // SAFETY: ends the process; nothing runs after it.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Names the calling process as `ps` and `top` show it; longer names than 15 bytes are cut.
pub fn name_myself(name: &str) {
    let mut bytes = [0u8; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    // SAFETY: the array is zero-terminated and lives during the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

/// Has the kernel make orphaned descendants children of this process, so that it can find and end them.
pub fn adopt_orphans() -> Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tied_child_dies_with_the_thread_that_started_it() {
        let cpus = crate::cpu::allowed().unwrap();
        let started = std::thread::spawn(move || {
            let mut command = Command::new("sleep");
            command.arg("100");
            tie(&mut command, &cpus[..1]);
            command.spawn().unwrap()
        });
        let mut child = started.join().unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
