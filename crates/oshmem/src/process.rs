// SPDX-License-Identifier: BSD-3-Clause
//! What this PE knows: its number, its symmetric memory, and where its peers' memory lies.
//!
//! Invariant: `start()` makes this state, and it does not change until `stop()`, after which no function may
//! be called.

use crate::c::{MPI_Comm, MPI_Session, MPI_Win};
use crate::fault::{fail, mpi};
use crate::memory::{at, buffer};
use crate::progress::{self, Progress};
use crate::seen::Seen;
use crate::team::Team;
use crate::{bell, heap, numbers as n, setting, setup};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Symmetric memory (the heap, or the static variables): one range of each PE, all of the same length.
pub struct Region {
    /// The address of this PE's own range.
    pub base: usize,
    /// The length of the range in bytes.
    pub bytes: usize,
    /// The address of each PE's range in this process; 0 if it is not mapped here.
    pub mapped: Vec<usize>,
    /// The window that reaches the ranges that are not mapped here; MPI_WIN_NULL if all are mapped.
    pub win: MPI_Win,
}

impl Region {
    #[inline]
    fn holds(&self, address: usize, bytes: usize) -> Option<(&Region, usize)> {
        let offset = address.wrapping_sub(self.base);
        (offset <= self.bytes && bytes <= self.bytes - offset).then_some((self, offset))
    }
}

pub struct PeState {
    pub me: c_int,
    pub n: c_int,
    /// The id of this process. A fork of the process has another one, and so finds that it is no PE.
    pub pid: u32,
    pub comm: MPI_Comm,
    pub heap: Region,
    /// The region of the static variables: the writable segment of the executable.
    pub statics: Region,
    pub world: Team,
    pub shared: Team,
    /// The level of thread support that OpenSHMEM's initialisation has provided.
    pub threads: c_int,
    /// The thread that answers the PEs of other hosts. None if all PEs are on this host.
    pub progress: Option<Progress>,
    /// The number of operations that this PE has given to windows so far.
    pub given: AtomicU64,
    /// How many of the operations in `given` are known to be complete.
    pub complete: AtomicU64,
    pub seen: Seen,
    shared_win: MPI_Win,
    session: MPI_Session,
}

static PROCESS: AtomicPtr<PeState> = AtomicPtr::new(std::ptr::null_mut());

pub fn try_get() -> Option<&'static PeState> {
    // SAFETY: null, or a process that `start()` has leaked.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

#[inline]
pub fn get() -> &'static PeState {
    match try_get() {
        Some(process) => process,
        None => fail("shmem_init has not been called, or shmem_finalize has been"),
    }
}

/// Returns the predefined MPI handle with this number.
pub fn handle(number: c_int) -> usize {
    number as usize
}

/// Where an operation finds its object: at an address in this process, or in a window.
pub enum ObjectPlace {
    /// The object is at an address in this process.
    Mapped(usize),
    /// The object is in a window, at an offset.
    Window(MPI_Win, i64),
}

impl PeState {
    /// Returns the region (the heap or the static variables) that holds `bytes` bytes at `address`, and the
    /// offset there. None if the bytes are not symmetric memory.
    #[inline]
    fn region(&self, address: usize, bytes: usize) -> Option<(&Region, usize)> {
        self.heap.holds(address, bytes).or_else(|| self.statics.holds(address, bytes))
    }

    /// Returns where this PE finds an object that lies at a symmetric address on PE `pe`. Ends the job if the
    /// address is not symmetric, or if there is no such PE.
    #[inline]
    pub fn place(&self, address: usize, bytes: usize, pe: c_int) -> ObjectPlace {
        let Some(found) = self.find(address, bytes, pe) else { self.refuse(address, bytes, pe) };
        found
    }

    #[inline]
    pub fn find(&self, address: usize, bytes: usize, pe: c_int) -> Option<ObjectPlace> {
        let (region, offset) = self.region(address, bytes)?;
        Some(match *region.mapped.get(usize::try_from(pe).ok()?)? {
            0 => ObjectPlace::Window(region.win, offset as i64),
            base => ObjectPlace::Mapped(base + offset),
        })
    }

    /// Ends the job if there is no PE `pe`.
    pub fn check(&self, pe: c_int) {
        if pe < 0 || pe >= self.n {
            fail(&format!("PE {pe} does not exist; there are {}, from 0 on", self.n));
        }
    }

    #[cold]
    fn refuse(&self, address: usize, bytes: usize, pe: c_int) -> ! {
        self.check(pe);
        fail(&format!(
            "{bytes} bytes at {address:#x} are not symmetric: neither in the symmetric heap ({:#x}, {} bytes; \
             SHMEM_SYMMETRIC_SIZE) nor in static variables of the executable ({:#x}, {} bytes); statics of shared \
             libraries and the stack are not symmetric",
            self.heap.base, self.heap.bytes, self.statics.base, self.statics.bytes
        ))
    }
}

fn comm_size(comm: MPI_Comm) -> c_int {
    let mut size = 0;
    mpi!(MPI_Comm_size(comm, &raw mut size));
    size
}

/// Initialises the library and makes this PE's state. All processes of MPI_COMM_WORLD call it together.
pub fn start(threads: c_int) {
    refuse_other_mpi();
    let (session, comm) = world(threads != setup::SINGLE);
    let mut me = 0;
    mpi!(MPI_Comm_rank(comm, &raw mut me));
    let n = comm_size(comm);
    let mut near = 0;
    mpi!(MPI_Comm_split_type(comm, n::COMM_TYPE_SHARED, me, handle(n::INFO_NULL), &raw mut near));
    let world = Team::new(comm, (0..n).collect(), me);
    let members = gather_numbers(near, me);
    let rank = members.iter().position(|&pe| pe == me).unwrap_or(0) as c_int;
    let shared = Team::new(near, members, rank);
    let shared_members = shared.members.len();
    let (heap, shared_win) = heap(comm, &shared, n);
    let statics = statics(comm, n);
    heap::open(heap.bytes);
    let process = PeState {
        me,
        n,
        pid: std::process::id(),
        comm,
        heap,
        statics,
        world,
        shared,
        threads,
        progress: (shared_members < n as usize).then(|| progress::start(comm, me)),
        given: AtomicU64::new(0),
        complete: AtomicU64::new(0),
        seen: Seen::new(),
        shared_win,
        session,
    };
    PROCESS.store(Box::into_raw(Box::new(process)), Ordering::Release);
    mpi!(MPI_Barrier(comm));
    setting::print_wanted(me);
}

/// Collects the number `me` that each rank of a communicator passes, in the order of the ranks.
fn gather_numbers(comm: MPI_Comm, me: c_int) -> Vec<c_int> {
    let mut all = vec![0; comm_size(comm) as usize];
    let mine = me;
    let int = handle(n::INT);
    mpi!(MPI_Allgather((&raw const mine).cast_mut().cast(), 1, int, all.as_mut_ptr().cast(), 1, int, comm));
    all
}

/// Ends the job if the program uses the MPICH ABI, because then its process has another MPI library.
fn refuse_other_mpi() {
    // SAFETY: a C string; nothing is loaded that is not there.
    let other = unsafe { libc::dlopen(c"libmpi.so.12".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if !other.is_null() {
        fail(
            "this program is linked with libmpi.so.12 (the MPICH ABI), and liboshmem.so with libmpi_abi.so.1: a \
              process has one MPI. Compile the program with oshcc",
        );
    }
}

/// Makes a session and a communicator of all processes, which do not depend on MPI_Init and MPI_Finalize.
fn world(has_threads: bool) -> (MPI_Session, MPI_Comm) {
    let (mut group, mut comm) = (0, 0);
    let (info, errors) = (handle(n::INFO_NULL), handle(n::ERRORS_RETURN));
    let session = progress::session(has_threads);
    mpi!(MPI_Group_from_session_pset(session, c"mpi://WORLD".as_ptr(), &raw mut group));
    let tag = c"outboard.oshmem";
    mpi!(MPI_Comm_create_from_group(group, tag.as_ptr(), info, errors, &raw mut comm));
    mpi!(MPI_Group_free(&raw mut group));
    (session, comm)
}

/// The alignment of a heap's address, in bytes. So an object that is aligned in one heap is aligned at the
/// same offset in all heaps.
pub const ALIGN: usize = 2 << 20;

/// Allocates this PE's heap, which all PEs of this host map. Returns the heap, and the window of shared
/// memory that contains it.
fn heap(comm: MPI_Comm, shared: &Team, n: c_int) -> (Region, MPI_Win) {
    let mut bytes = setting::heap_bytes() as i64;
    mpi!(MPI_Allreduce(
        handle_in_place(),
        (&raw mut bytes).cast(),
        1,
        handle(n::INT64_T),
        handle(n::MAX),
        comm
    ));
    let (mut base, mut win, mut info) = (std::ptr::null_mut::<c_void>(), 0, 0);
    mpi!(MPI_Info_create(&raw mut info));
    mpi!(MPI_Info_set(info, c"alloc_shared_noncontig".as_ptr().cast_mut(), c"true".as_ptr().cast_mut()));
    let all = bytes + (ALIGN + bell::BYTES) as i64;
    mpi!(MPI_Win_allocate_shared_c(all, 1, info, shared.comm, (&raw mut base).cast(), &raw mut win));
    mpi!(MPI_Info_free(&raw mut info));
    let base = base.expose_provenance();
    let mut skipped = vec![0; shared.members.len()];
    let (mut mine, number) = (base.next_multiple_of(ALIGN) - base, handle(n::UINT64_T));
    let (to, from) = (skipped.as_mut_ptr().cast(), (&raw mut mine).cast());
    mpi!(MPI_Allgather(from, 1, number, to, 1, number, shared.comm));
    let mut mapped = vec![0; n as usize];
    for ((rank, &pe), skipped) in (0..).zip(&shared.members).zip(skipped) {
        let (mut size, mut unit, mut address) = (0, 0, std::ptr::null_mut::<c_void>());
        mpi!(MPI_Win_shared_query_c(win, rank, &raw mut size, &raw mut unit, (&raw mut address).cast()));
        mapped[pe as usize] = address.expose_provenance() + skipped;
    }
    let base = base + mine;
    let far = if shared.members.len() < n as usize {
        window(base, bytes as usize, comm)
    } else {
        handle(n::WIN_NULL)
    };
    (Region { base, bytes: bytes as usize, mapped, win: far }, win)
}

/// Returns MPI_IN_PLACE, which MPI takes in place of a buffer.
pub fn handle_in_place() -> *mut c_void {
    std::ptr::without_provenance_mut(n::IN_PLACE as usize)
}

/// Makes a window over a range of each PE, in an access epoch that lasts until the library ends.
fn window(base: usize, bytes: usize, comm: MPI_Comm) -> MPI_Win {
    let mut win = 0;
    mpi!(MPI_Win_create_c(buffer(base), bytes as i64, 1, handle(n::INFO_NULL), comm, &raw mut win));
    mpi!(MPI_Win_set_errhandler(win, handle(n::ERRORS_RETURN)));
    mpi!(MPI_Win_lock_all(n::MODE_NOCHECK, win));
    win
}

/// Returns the least and the greatest value that the PEs of a comm pass. All these PEs call it together.
pub fn extremes(value: usize, comm: MPI_Comm) -> (i64, i64) {
    // The least is the negative of the greatest negative.
    let mut ends = [value as i64, -(value as i64)];
    mpi!(MPI_Allreduce(
        handle_in_place(),
        ends.as_mut_ptr().cast(),
        2,
        handle(n::INT64_T),
        handle(n::MAX),
        comm
    ));
    (-ends[1], ends[0])
}

/// Makes the region of the executable's static variables. The region is empty if the PEs run different
/// executables.
fn statics(comm: MPI_Comm, n: c_int) -> Region {
    let mut found = (0, 0);
    // SAFETY: the function gets the pair, and only while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut found).cast()) };
    let (base, bytes): (usize, usize) = found;
    let (least, most) = extremes(bytes, comm);
    let bytes = if least == most { bytes } else { 0 };
    Region { base, bytes, mapped: vec![0; n as usize], win: window(base, bytes, comm) }
}

/// Stores at `found` the address and the length of the executable's writable segment. `dl_iterate_phdr` calls
/// this function for the executable first. The function returns 1, which ends the iteration.
unsafe extern "C" fn first_object(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a record that is valid during the call.
    let info = unsafe { info.read() };
    // SAFETY: the loader's array of so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0 {
            let range = ((info.dlpi_addr + header.p_vaddr) as usize, header.p_memsz as usize);
            // SAFETY: the pair that `statics()` passed.
            unsafe { at::<(usize, usize)>(found.expose_provenance()).write(range) };
        }
    }
    1
}

/// Ends the library and frees this PE's state. All PEs call it together.
pub fn stop() {
    crate::coll::barrier_all();
    let process = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: `start()` has leaked it, `barrier_all()` has seen it, and no other function is called any more.
    let mut process = unsafe { Box::from_raw(process) };
    if let Some(progress) = process.progress.take() {
        progress::stop(progress, process.comm, process.me);
    }
    for region in [&process.heap, &process.statics] {
        let mut win = region.win;
        if win != handle(n::WIN_NULL) {
            mpi!(MPI_Win_unlock_all(win));
            mpi!(MPI_Win_free(&raw mut win));
        }
    }
    let (mut win, mut session) = (process.shared_win, process.session);
    mpi!(MPI_Win_free(&raw mut win));
    crate::team::close();
    for mut comm in [process.shared.comm, process.comm] {
        mpi!(MPI_Comm_free(&raw mut comm));
    }
    mpi!(MPI_Session_finalize(&raw mut session));
}

/// The name that `shmem_info_get_name` returns.
pub const NAME: &CStr = c"Outboard";
