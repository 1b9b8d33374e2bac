// SPDX-License-Identifier: BSD-3-Clause
//! The state of MPI in this process: who has initialised it, and the communicator from which groups are made.

use crate::c::MPI_Comm;
use crate::engine::{Engine, UnfinishedOperations};
use crate::fault::{ABORTED, Result, STATE, call, code, fail};
use crate::kind::{handle, make_operators};
use crate::numbers as n;
use crate::work::{Status, none};
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct MpiWorld {
    comm: MPI_Comm,
    rank: c_int,
    size: c_int,
    /// The lowest rank of `comm` on this process's node.
    node: c_int,
    /// Whether this library has initialised MPI, so that outboard_dl_finalize also finalizes it.
    is_ours: bool,
}

static WORLD: OnceLock<MpiWorld> = OnceLock::new();
/// Whether MPI may be called. It may from outboard_dl_init until outboard_dl_finalize.
static OPEN: Mutex<bool> = Mutex::new(false);

pub fn is_open() -> bool {
    Engine::get().is_ok() && *OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn world() -> Result<MPI_Comm> {
    match WORLD.get() {
        Some(world) if is_open() => Ok(world.comm),
        Some(_) => Engine::get().and_then(|_| fail(STATE, "outboard_dl_finalize has been called")),
        None => fail(STATE, "outboard_dl_init has not been called"),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_world_rank() -> c_int {
    WORLD.get().map_or(-1, |world| world.rank)
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_world_size() -> c_int {
    WORLD.get().map_or(-1, |world| world.size)
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_world_node() -> c_int {
    WORLD.get().map_or(-1, |world| world.node)
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_init() -> c_int {
    code(init())
}

fn init() -> Result<()> {
    if WORLD.get().is_some() {
        Engine::get()?;
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if *open {
        return Ok(());
    }
    if WORLD.get().is_some() {
        return fail(STATE, "outboard_dl_finalize has been called, and MPI cannot be initialised again");
    }
    let (mut is_initialised, mut level) = (0, 0);
    call!(MPI_Initialized(&raw mut is_initialised))?;
    if is_initialised == 0 {
        call!(MPI_Init_thread(std::ptr::null_mut(), 0, n::THREAD_MULTIPLE, &raw mut level))?;
    } else {
        call!(MPI_Query_thread(&raw mut level))?;
    }
    if level < n::THREAD_MULTIPLE {
        return fail(
            STATE,
            format!("MPI was initialised with thread level {level}, not MPI_THREAD_MULTIPLE"),
        );
    }
    let mut comm = 0;
    let (mut rank, mut size) = (0, 0);
    call!(MPI_Comm_dup(handle(n::COMM_WORLD), &raw mut comm))?;
    call!(MPI_Comm_set_errhandler(comm, handle(n::ERRORS_RETURN)))?;
    call!(MPI_Comm_rank(comm, &raw mut rank))?;
    call!(MPI_Comm_size(comm, &raw mut size))?;
    let node = node(comm, rank)?;
    make_operators()?;
    Engine::open()?;
    let _ = WORLD.set(MpiWorld { comm, rank, size, node, is_ours: is_initialised == 0 });
    *open = true;
    Ok(())
}

/// Returns the lowest of the ranks of `comm` that share memory with this rank, so all ranks of one node get
/// the same answer. All ranks of `comm` call this.
fn node(comm: MPI_Comm, rank: c_int) -> Result<c_int> {
    let (mut near, mut lowest) = (0, rank);
    let info = handle(n::INFO_NULL);
    call!(MPI_Comm_split_type(comm, n::COMM_TYPE_SHARED, rank, info, &raw mut near))?;
    call!(MPI_Bcast((&raw mut lowest).cast(), 1, handle(n::INT), 0, near))?;
    call!(MPI_Comm_free(&raw mut near))?;
    Ok(lowest)
}

/// Waits until all ranks have called finalize, and returns whether they have. A rank that has given up
/// operations waits only for a limited time, since a peer may never come. If all ranks have called finalize,
/// no peer can join the given-up operations any more.
fn all_come(comm: MPI_Comm, left: UnfinishedOperations) -> Result<bool> {
    let mut request = none();
    call!(MPI_Ibarrier(comm, &raw mut request))?;
    let mut status = Status::default();
    if left.operations == 0 {
        call!(MPI_Wait(&raw mut request, status.as_mut_ptr()))?;
        return Ok(true);
    }
    let started = Instant::now();
    loop {
        let mut done = 0;
        call!(MPI_Test(&raw mut request, &raw mut done, status.as_mut_ptr()))?;
        if done != 0 || started.elapsed() >= left.patience {
            return Ok(done != 0);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_finalize() -> c_int {
    code(finalize())
}

fn finalize() -> Result<()> {
    let Some(world) = WORLD.get().filter(|_| is_open()) else { return Ok(()) };
    let left = Engine::get()?.close();
    *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = false;
    if !all_come(world.comm, left)? {
        return fail(
            ABORTED,
            format!(
                "rank {}: {} operations that were given up have not ended, and within {} s not all ranks have come to the end, so MPI is not finalized",
                world.rank,
                left.operations,
                left.patience.as_secs_f64()
            ),
        );
    }
    let mut comm = world.comm;
    call!(MPI_Comm_free(&raw mut comm))?;
    if world.is_ours { call!(MPI_Finalize()) } else { Ok(()) }
}
