// SPDX-License-Identifier: BSD-3-Clause
//! How a parent prepares child processes before their program starts, and how a process becomes their parent.

use std::io::Result;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Sets what the child of `command` does before its program starts: it leads a process group of its own,
/// blocks no signal, and runs on `cpus` (on any cpu if empty). The kernel kills it when the calling thread
/// ends in any way.
pub fn tie(command: &mut Command, cpus: &[usize]) {
    let parent = std::process::id();
    let cpus = cpus.to_vec();
    command.process_group(0);
    let prepare = move || -> Result<()> {
        crate::process::die_with_parent()?;
        crate::signal::unblock_all()?;
        if crate::process::parent() != parent {
            // The parent ended before the kernel knew that the child must die with it.
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        if cpus.is_empty() { Ok(()) } else { crate::cpu::pin(&cpus) }
    };
    // SAFETY: between fork and exec the closure makes system calls only, without locks or allocations.
    unsafe { command.pre_exec(prepare) };
}

/// Forks, and returns in the child only. The parent calls `announce` with the child's pid and exits with code
/// 0, so that the process that started the parent can go on. Only for a process with one thread.
pub fn detach(announce: impl FnOnce(u32)) -> Result<()> {
    // SAFETY: takes no arguments; there is no other thread that could hold a lock that the child wants.
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

/// Sets the name of this process that `ps` and `top` show. A name is cut after 15 bytes.
pub fn name_myself(name: &str) {
    let mut bytes = [0u8; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    // SAFETY: the array is zero-terminated and lives during the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

/// Makes this process the new parent of its descendants whose own parent ends, so that it can find and end
/// them.
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
