// SPDX-License-Identifier: BSD-3-Clause
//! Progress of a PE that makes no calls, as OpenSHMEM promises (section on progress). In a job on several
//! hosts each PE has a thread that waits in MPI, and so carries out the requests of PEs on other hosts. On
//! one host each PE reaches the others' memory itself, so there is no thread.

use crate::c::{MPI_Comm, MPI_Session};
use crate::fault::mpi;
use crate::numbers as n;
use crate::process::handle;
use std::ffi::c_int;
use std::thread::JoinHandle;

/// The tag of the message that ends the thread. No other message uses the communicator.
const END: c_int = 1;

pub struct Progress {
    thread: JoinHandle<()>,
    /// An MPI session that lets several threads call MPI at once, whatever the program has asked for.
    session: MPI_Session,
}

/// Starts the thread by which this PE answers the PEs of other hosts.
pub fn start(comm: MPI_Comm, me: c_int) -> Progress {
    let session = session(true);
    let wait = move || {
        let (nothing, ignored) = (std::ptr::null_mut(), std::ptr::null_mut());
        mpi!(MPI_Recv(nothing, 0, handle(n::BYTE), me, END, comm, ignored));
    };
    let thread = std::thread::Builder::new().name("outboard-shmem".into()).spawn(wait);
    match thread {
        Ok(thread) => Progress { thread, session },
        Err(error) => {
            crate::fault::fail(&format!("cannot start the thread that answers other hosts: {error}"))
        }
    }
}

/// Ends the thread that `start` has started.
pub fn stop(progress: Progress, comm: MPI_Comm, me: c_int) {
    mpi!(MPI_Send(std::ptr::null_mut(), 0, handle(n::BYTE), me, END, comm));
    // A thread that panicked has reported that itself.
    let _ = progress.thread.join();
    let mut session = progress.session;
    mpi!(MPI_Session_finalize(&raw mut session));
}

/// Makes a session of MPI in which one thread or, if `has_threads`, several may call MPI.
pub fn session(has_threads: bool) -> MPI_Session {
    let (mut session, mut info) = (0, handle(n::INFO_NULL));
    let level = if has_threads { c"MPI_THREAD_MULTIPLE" } else { c"MPI_THREAD_SINGLE" };
    mpi!(MPI_Info_create(&raw mut info));
    mpi!(MPI_Info_set(info, c"thread_level".as_ptr().cast_mut(), level.as_ptr().cast_mut()));
    mpi!(MPI_Session_init(info, handle(n::ERRORS_RETURN), &raw mut session));
    mpi!(MPI_Info_free(&raw mut info));
    session
}
