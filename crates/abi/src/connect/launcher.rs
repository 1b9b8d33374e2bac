// SPDX-License-Identifier: BSD-3-Clause
//! Requests to the launcher (`mpirun`), the only process that can start other processes. A program that was
//! started without a launcher starts a launcher first.

use crate::process::Guard;
use error::{Class, Error, Result, fail};
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use sys::process::ProcessHandle;
use transport::shm::LauncherRequest;
use transport::shm::launcher::{self, Request};

/// How many bytes are allocated behind a request to the launcher. The launcher's answer overwrites the
/// request and these bytes, so it has at least this much room.
const ANSWER_ROOM_BYTES: u64 = 8 << 10;
/// The longest time, in nanoseconds, for which this program waits for a launcher that it has started.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Sends a request to the launcher, makes progress until the answer arrives, and returns the answer's bytes.
pub(crate) fn ask(guard: &mut Guard, request: &Request) -> Result<Vec<u8>> {
    let membership = guard.job().membership;
    let segment = membership.segment;
    if segment.job().launcher.load(Ordering::Acquire) == 0 {
        if !membership.alone {
            fail!(
                Class::Spawn,
                "this job was not started by Outboard's mpirun, which alone starts processes and keeps published names for it"
            );
        }
        start(guard)?;
    }
    let ask = &segment.rank(membership.rank).launcher_request;
    // Only one thread at a time may send a request.
    let free = || {
        ask.state
            .compare_exchange(
                LauncherRequest::NOTHING,
                LauncherRequest::WRITING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    };
    guard.wait(|_| free().then_some(()));
    let bytes = request.to_bytes();
    let capacity = bytes.len() as u64 + ANSWER_ROOM_BYTES;
    let memory = guard.job().coll.memory();
    let at = memory.alloc(capacity).and_then(|at| Ok((at, memory.arena().span(at, capacity)?)));
    let (at, span) = at.inspect_err(|_| ask.state.store(LauncherRequest::NOTHING, Ordering::Release))?;
    span.slice(0, bytes.len()).write(&bytes);
    ask.at.store(at, Ordering::Relaxed);
    ask.capacity.store(capacity, Ordering::Relaxed);
    ask.bytes.store(bytes.len() as u64, Ordering::Relaxed);
    ask.state.store(LauncherRequest::ASKED, Ordering::Release);
    // Without the nudge the launcher would notice the request only later, such as when a child ends.
    let _ = sys::process::nudge(segment.job().launcher.load(Ordering::Relaxed));
    guard.wait(|_| (ask.state.load(Ordering::Acquire) == LauncherRequest::ANSWERED).then_some(()));
    let length = ask.bytes.load(Ordering::Relaxed).min(capacity) as usize;
    let mut answer = vec![0; length];
    span.slice(0, length).read(&mut answer);
    guard.job().coll.memory().free(at);
    ask.state.store(LauncherRequest::NOTHING, Ordering::Release);
    launcher::answered(&answer)
}

/// Starts a launcher for this program, which was started without `mpirun`.
fn start(guard: &mut Guard) -> Result<()> {
    let segment = guard.job().membership.segment;
    let path = beside_the_library().unwrap_or_else(|| "mpirun".into());
    let refused = |error: std::io::Error| {
        Error::new(Class::Spawn, format!("cannot start {}, which starts processes: {error}", path.display()))
    };
    let mut command = Command::new(&path);
    command.arg("--launch-for").arg(std::process::id().to_string());
    for name in ["OUTBOARD_RANK", "OUTBOARD_PROXY", "OUTBOARD_PARENTS", "OUTBOARD_LAUNCHER_PID"] {
        command.env_remove(name);
    }
    command.env("OUTBOARD_JOB_FD", segment.descriptor().as_raw_fd().to_string()).stdin(Stdio::null());
    sys::memory::inheritable(segment.descriptor(), true).map_err(refused)?;
    let child = command.spawn();
    sys::memory::inheritable(segment.descriptor(), false).map_err(refused)?;
    // This child ends at once, after it has started the launcher, or printed why not. If the program ignores
    // SIGCHLD, there is nothing to wait for.
    let ended = child.map_err(refused)?.wait();
    if let Ok(status) = ended
        && !status.success()
    {
        fail!(
            Class::Spawn,
            "{}, which starts processes, refused this program ({status}): what it says stands on stderr; it must be of one build with the library",
            path.display()
        );
    }
    let deadline = sys::clock::now() + PATIENCE_NS;
    let launcher = guard.wait(|_| match segment.job().launcher.load(Ordering::Acquire) {
        0 if sys::clock::now() < deadline => None,
        launcher => Some(launcher),
    });
    if launcher == 0 {
        fail!(Class::Spawn, "{}, which starts processes, did not start", path.display());
    }
    // The launcher's children may read our memory. If the kernel refuses that, the first attempt finds out.
    let _ = sys::process::allow_access_by(launcher);
    guard.job().launcher = ProcessHandle::open(launcher).ok();
    Ok(())
}

/// Returns the path of the `mpirun` that is installed with this library, or None if it cannot be found.
fn beside_the_library() -> Option<PathBuf> {
    let mut facts = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is that of a function, and the facts are ours.
    let found = unsafe { libc::dladdr(beside_the_library as *const libc::c_void, &mut facts) };
    if found == 0 || facts.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr has stored a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(facts.dli_fname) };
    let library = std::fs::canonicalize(Path::new(name.to_str().ok()?)).ok()?;
    let path = library.parent()?.parent()?.join("bin/mpirun");
    path.is_file().then_some(path)
}
