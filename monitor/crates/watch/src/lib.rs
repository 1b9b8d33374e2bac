// SPDX-License-Identifier: BSD-3-Clause
//! `liboutboard_watch.so`: counts the MPI calls of programs of any MPI, for `outboard monitor`.
//!
//! `LD_PRELOAD` puts its functions `MPI_X` before the MPI library's. Each of them counts the call and calls
//! `PMPI_X` (MPI 5.0, section 15.2). One binary serves the standard ABI and MPICH's: it does not read most
//! arguments, and hands them over as words. A handle is a pointer in one ABI and an `int` in the other. Both
//! travel in one register or one slot of 8 bytes of the stack (System V on x86-64, AAPCS64).
//!
//! Invariant: the program's calls do what they did before; what cannot be counted is left out. Read next:
//! `page.rs`, `world.rs`; `crates/watch_page` has the format of the page.

mod page;
mod real;
mod world;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicUsize;

use page::CallTraffic;
use real::{NOT_THERE, pass, real};
use watch_page::Call;

/// Defines MPI functions that are counted. The words in brackets are a call's arguments. The expression
/// behind them returns how many bytes the call moves, and to whom.
macro_rules! counted {
    ($(fn $mpi:ident as $pmpi:literal, $call:ident ($($word:ident),*) => $about:expr;)*) => { $(
        /// Calls the MPI library's own function, and counts the call in the page of this process.
        ///
        /// # Safety
        ///
        /// The contract is MPI's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $mpi($($word: usize),*) -> c_int {
            let started = page::now_ns();
            let code = pass!($pmpi, ($($word),*));
            page::count(Call::$call, started, || $about);
            code
        }
    )* };
}

/// Reads a count that C passes as an `int`. The upper half of its register has no meaning. A negative count
/// is 0.
fn int(word: usize) -> u64 {
    u64::try_from(word as u32 as i32).unwrap_or(0)
}

/// Reads a count of type `MPI_Count`. A negative count is 0.
fn large(word: usize) -> u64 {
    u64::try_from(word as isize).unwrap_or(0)
}

fn send_to(count: u64, datatype: usize, peer: usize, comm: usize) -> CallTraffic {
    CallTraffic { bytes: world::bytes(count, datatype), node: world::node(peer, comm), sends: true }
}

fn receive_from(count: u64, datatype: usize, peer: usize, comm: usize) -> CallTraffic {
    CallTraffic { sends: false, ..send_to(count, datatype, peer, comm) }
}

fn collective(count: u64, datatype: usize) -> CallTraffic {
    CallTraffic { bytes: world::bytes(count, datatype), node: None, sends: false }
}

/// Returns no traffic. It is for calls that move no bytes, and for collectives whose counts are not read,
/// because the counts are arrays or not every member must pass them.
fn uncounted() -> CallTraffic {
    CallTraffic { bytes: 0, node: None, sends: false }
}

counted! {
    fn MPI_Send as c"PMPI_Send", Send (b, n, t, p, tag, c) => send_to(int(n), t, p, c);
    fn MPI_Bsend as c"PMPI_Bsend", Bsend (b, n, t, p, tag, c) => send_to(int(n), t, p, c);
    fn MPI_Ssend as c"PMPI_Ssend", Ssend (b, n, t, p, tag, c) => send_to(int(n), t, p, c);
    fn MPI_Rsend as c"PMPI_Rsend", Rsend (b, n, t, p, tag, c) => send_to(int(n), t, p, c);
    fn MPI_Isend as c"PMPI_Isend", Isend (b, n, t, p, tag, c, r) => send_to(int(n), t, p, c);
    fn MPI_Ibsend as c"PMPI_Ibsend", Ibsend (b, n, t, p, tag, c, r) => send_to(int(n), t, p, c);
    fn MPI_Issend as c"PMPI_Issend", Issend (b, n, t, p, tag, c, r) => send_to(int(n), t, p, c);
    fn MPI_Irsend as c"PMPI_Irsend", Irsend (b, n, t, p, tag, c, r) => send_to(int(n), t, p, c);
    fn MPI_Recv as c"PMPI_Recv", Recv (b, n, t, p, tag, c, s) => receive_from(int(n), t, p, c);
    fn MPI_Irecv as c"PMPI_Irecv", Irecv (b, n, t, p, tag, c, r) => receive_from(int(n), t, p, c);
    fn MPI_Sendrecv as c"PMPI_Sendrecv", Sendrecv (b, n, t, p, tag, ib, rn, it, ip, itag, c, s) => send_to(int(n), t, p, c);
    fn MPI_Sendrecv_replace as c"PMPI_Sendrecv_replace", Sendrecv_replace (b, n, t, p, tag, ip, itag, c, s) => send_to(int(n), t, p, c);
    fn MPI_Send_c as c"PMPI_Send_c", Send (b, n, t, p, tag, c) => send_to(large(n), t, p, c);
    fn MPI_Isend_c as c"PMPI_Isend_c", Isend (b, n, t, p, tag, c, r) => send_to(large(n), t, p, c);
    fn MPI_Recv_c as c"PMPI_Recv_c", Recv (b, n, t, p, tag, c, s) => receive_from(large(n), t, p, c);
    fn MPI_Irecv_c as c"PMPI_Irecv_c", Irecv (b, n, t, p, tag, c, r) => receive_from(large(n), t, p, c);
    fn MPI_Barrier as c"PMPI_Barrier", Barrier (c) => uncounted();
    fn MPI_Bcast as c"PMPI_Bcast", Bcast (b, n, t, root, c) => collective(int(n), t);
    fn MPI_Gather as c"PMPI_Gather", Gather (b, n, t, o, on, ot, root, c) => uncounted();
    fn MPI_Gatherv as c"PMPI_Gatherv", Gatherv (b, n, t, o, on, d, ot, root, c) => uncounted();
    fn MPI_Scatter as c"PMPI_Scatter", Scatter (b, n, t, o, on, ot, root, c) => uncounted();
    fn MPI_Scatterv as c"PMPI_Scatterv", Scatterv (b, n, d, t, o, on, ot, root, c) => uncounted();
    fn MPI_Allgather as c"PMPI_Allgather", Allgather (b, n, t, o, on, ot, c) => collective(int(on), ot);
    fn MPI_Allgatherv as c"PMPI_Allgatherv", Allgatherv (b, n, t, o, on, d, ot, c) => uncounted();
    fn MPI_Alltoall as c"PMPI_Alltoall", Alltoall (b, n, t, o, on, ot, c) => collective(int(on), ot);
    fn MPI_Alltoallv as c"PMPI_Alltoallv", Alltoallv (b, n, d, t, o, on, od, ot, c) => uncounted();
    fn MPI_Alltoallw as c"PMPI_Alltoallw", Alltoallw (b, n, d, t, o, on, od, ot, c) => uncounted();
    fn MPI_Reduce as c"PMPI_Reduce", Reduce (b, o, n, t, op, root, c) => collective(int(n), t);
    fn MPI_Allreduce as c"PMPI_Allreduce", Allreduce (b, o, n, t, op, c) => collective(int(n), t);
    fn MPI_Reduce_scatter as c"PMPI_Reduce_scatter", Reduce_scatter (b, o, n, t, op, c) => uncounted();
    fn MPI_Reduce_scatter_block as c"PMPI_Reduce_scatter_block", Reduce_scatter_block (b, o, n, t, op, c) => collective(int(n), t);
    fn MPI_Scan as c"PMPI_Scan", Scan (b, o, n, t, op, c) => collective(int(n), t);
    fn MPI_Exscan as c"PMPI_Exscan", Exscan (b, o, n, t, op, c) => collective(int(n), t);
    fn MPI_Ibarrier as c"PMPI_Ibarrier", Ibarrier (c, r) => uncounted();
    fn MPI_Ibcast as c"PMPI_Ibcast", Ibcast (b, n, t, root, c, r) => collective(int(n), t);
    fn MPI_Igather as c"PMPI_Igather", Igather (b, n, t, o, on, ot, root, c, r) => uncounted();
    fn MPI_Igatherv as c"PMPI_Igatherv", Igatherv (b, n, t, o, on, d, ot, root, c, r) => uncounted();
    fn MPI_Iscatter as c"PMPI_Iscatter", Iscatter (b, n, t, o, on, ot, root, c, r) => uncounted();
    fn MPI_Iscatterv as c"PMPI_Iscatterv", Iscatterv (b, n, d, t, o, on, ot, root, c, r) => uncounted();
    fn MPI_Iallgather as c"PMPI_Iallgather", Iallgather (b, n, t, o, on, ot, c, r) => collective(int(on), ot);
    fn MPI_Iallgatherv as c"PMPI_Iallgatherv", Iallgatherv (b, n, t, o, on, d, ot, c, r) => uncounted();
    fn MPI_Ialltoall as c"PMPI_Ialltoall", Ialltoall (b, n, t, o, on, ot, c, r) => collective(int(on), ot);
    fn MPI_Ialltoallv as c"PMPI_Ialltoallv", Ialltoallv (b, n, d, t, o, on, od, ot, c, r) => uncounted();
    fn MPI_Ialltoallw as c"PMPI_Ialltoallw", Ialltoallw (b, n, d, t, o, on, od, ot, c, r) => uncounted();
    fn MPI_Ireduce as c"PMPI_Ireduce", Ireduce (b, o, n, t, op, root, c, r) => collective(int(n), t);
    fn MPI_Iallreduce as c"PMPI_Iallreduce", Iallreduce (b, o, n, t, op, c, r) => collective(int(n), t);
    fn MPI_Ireduce_scatter as c"PMPI_Ireduce_scatter", Ireduce_scatter (b, o, n, t, op, c, r) => uncounted();
    fn MPI_Ireduce_scatter_block as c"PMPI_Ireduce_scatter_block", Ireduce_scatter_block (b, o, n, t, op, c, r) => collective(int(n), t);
    fn MPI_Iscan as c"PMPI_Iscan", Iscan (b, o, n, t, op, c, r) => collective(int(n), t);
    fn MPI_Iexscan as c"PMPI_Iexscan", Iexscan (b, o, n, t, op, c, r) => collective(int(n), t);
    fn MPI_Put as c"PMPI_Put", Put (b, n, t, p, d, on, ot, w) => collective(int(n), t);
    fn MPI_Get as c"PMPI_Get", Get (b, n, t, p, d, on, ot, w) => collective(int(n), t);
    fn MPI_Accumulate as c"PMPI_Accumulate", Accumulate (b, n, t, p, d, on, ot, op, w) => collective(int(n), t);
    fn MPI_Wait as c"PMPI_Wait", Wait (r, s) => uncounted();
    fn MPI_Waitall as c"PMPI_Waitall", Waitall (n, r, s) => uncounted();
    fn MPI_Waitany as c"PMPI_Waitany", Waitany (n, r, i, s) => uncounted();
    fn MPI_Waitsome as c"PMPI_Waitsome", Waitsome (n, r, on, i, s) => uncounted();
}

/// Calls the MPI library's MPI_Init, and makes the page in which this process counts its calls.
///
/// # Safety
///
/// The contract is MPI's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    let (argc, argv) = (argc as usize, argv as usize);
    let code = pass!(c"PMPI_Init", (argc, argv));
    world::begin(code);
    code
}

/// Calls the MPI library's MPI_Init_thread, and makes the page in which this process counts its calls.
///
/// # Safety
///
/// The contract is MPI's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init_thread(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    let (argc, argv, required, provided) =
        (argc as usize, argv as usize, required as usize, provided as usize);
    let code = pass!(c"PMPI_Init_thread", (argc, argv, required, provided));
    world::begin(code);
    code
}

/// Defines the MPI functions that free or disconnect a comm. Their argument is the address of the comm's
/// handle.
macro_rules! ends_comm {
    ($($mpi:ident as $pmpi:literal;)*) => { $(
        /// Forgets on which nodes the comm's ranks run, and calls the MPI library's own function.
        ///
        /// # Safety
        ///
        /// The contract is MPI's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $mpi(comm: *mut c_void) -> c_int {
            // SAFETY: MPI's contract: the program gives the address of a handle; 4 bytes of it are read.
            let handle = unsafe { comm.cast::<u32>().read_unaligned() };
            world::forget(handle);
            let comm = comm as usize;
            pass!($pmpi, (comm))
        }
    )* };
}

ends_comm! {
    MPI_Comm_free as c"PMPI_Comm_free";
    MPI_Comm_disconnect as c"PMPI_Comm_disconnect";
}

/// Marks the page of this process as ended, and calls the MPI library's MPI_Finalize.
///
/// # Safety
///
/// The contract is MPI's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    page::end();
    pass!(c"PMPI_Finalize", ())
}
