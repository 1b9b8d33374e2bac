// SPDX-License-Identifier: BSD-3-Clause
//! Lets large allocations of the program come from the rank's arena (OUTBOARD_MALLOC=arena), the part of
//! shared memory in which the rank allocates. Peers and proxies reach such memory without the kernel.
//! `mpirun` loads `liboutboard_malloc.so` before the program's libraries. The pool, the memory that serves
//! the program's allocations, consists of extents (ranges) of the arena.
//!
//! Invariants: the pool has a lock of its own, because a program allocates at any time, and this library
//! allocates inside MPI calls. glibc allocates the pool's own tables. The pool stays mapped after
//! MPI_Finalize. A forked child writes into a private copy (`forked.rs`), and frees nothing in the pool. Read
//! next: `crates/malloc/src/lib.rs`.

use settings::{Malloc, Settings};
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use sys::pool::Pool;
use transport::shm::{Allocator, Arena};

/// The allocator that divides the pool, memory for the program's allocations. None until `offer` has offered
/// a pool.
static ALLOCATOR: Mutex<Option<Allocator>> = Mutex::new(None);
static POOL: OnceLock<Pool> = OnceLock::new();
/// Whether this process is a child that a rank has forked, so that it is not a rank itself.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Offers up to `bytes_max` bytes of the rank's arena (its shared memory) to the malloc library as a pool, if
/// OUTBOARD_MALLOC is "arena". Returns how many bytes the pool may take. If that fails, prints why and
/// returns 0.
pub(crate) fn offer(settings: &Settings, arena: &Arena, bytes_max: u64) -> u64 {
    if settings.malloc != Malloc::Arena {
        return 0;
    }
    if POOL.get().is_some() {
        return bytes_max;
    }
    match try_to_offer(settings, arena, bytes_max) {
        Ok(()) => bytes_max,
        Err(why) => {
            eprintln!("outboard: OUTBOARD_MALLOC=arena has no effect: {why}");
            0
        }
    }
}

fn try_to_offer(settings: &Settings, arena: &Arena, bytes_max: u64) -> Result<(), &'static str> {
    // SAFETY: a C string, looked up among all libraries of the process.
    let taker = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"outboard_malloc_offer".as_ptr()) };
    if taker.is_null() {
        return Err(
            "liboutboard_malloc.so is not loaded; start the program by mpirun, or set LD_PRELOAD to it",
        );
    }
    *lock() = Some(Allocator::new(arena.clone(), bytes_max));
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    if unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) } != 0 {
        return Err("pthread_atfork failed");
    }
    let pool = POOL.get_or_init(|| Pool {
        ranges: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; Pool::RANGES_MAX],
        count: AtomicUsize::new(0),
        bytes_min: settings.malloc_bytes_min.max(Pool::ALIGN as u64) as usize,
        alloc,
        free,
        usable,
    });
    // SAFETY: the function of this name has this form (`crates/malloc`).
    let taker: extern "C" fn(&'static Pool) = unsafe { std::mem::transmute(taker) };
    taker(pool);
    Ok(())
}

type PoolGuard = MutexGuard<'static, Option<Allocator>>;

fn lock() -> PoolGuard {
    ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The lock of `ALLOCATOR` while this thread forks; None otherwise. While this thread allocates from the
    /// pool, the cell is borrowed, by which `with_allocator` notices that it calls itself. The value has no
    /// destructor, because a thread's last destructor may free memory.
    static HELD: RefCell<Option<ManuallyDrop<PoolGuard>>> = const { RefCell::new(None) };
}

/// Calls `divide` with the allocator. Returns None if there is no allocator, or if `divide` itself causes
/// this call: the allocator's tables grow by allocations.
fn with_allocator<T>(divide: impl FnOnce(&mut Allocator) -> T) -> Option<T> {
    HELD.with(|held| match held.try_borrow_mut().ok()?.as_mut() {
        Some(allocator) => allocator.as_mut().map(divide),
        None => lock().as_mut().map(divide),
    })
}

/// Allocates `bytes` bytes of the pool, shared memory for the program's allocations. Returns null if that is
/// impossible, and always in a forked child.
extern "C" fn alloc(bytes: usize) -> *mut c_void {
    if IS_CHILD.load(Ordering::Relaxed) {
        return std::ptr::null_mut();
    }
    let address = with_allocator(|allocator| {
        let offset = allocator.alloc(bytes as u64).ok()?;
        note_extents(allocator)?;
        Some(allocator.arena().span(offset, bytes as u64).ok()?.address())
    });
    std::ptr::with_exposed_provenance_mut(address.flatten().unwrap_or(0))
}

/// Tells the malloc library which extents (ranges) of the arena the pool has taken since the last allocation.
fn note_extents(allocator: &Allocator) -> Option<()> {
    let pool = POOL.get()?;
    for extent in allocator.extents().skip(pool.count.load(Ordering::Relaxed)) {
        let span = allocator.arena().span(extent.start, extent.end - extent.start).ok()?;
        pool.add(span.address(), span.bytes()).then_some(())?;
    }
    Some(())
}

extern "C" fn free(memory: *mut c_void) {
    if IS_CHILD.load(Ordering::Relaxed) {
        return;
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    let freed = with_allocator(|allocator| {
        allocator.arena().offset_of(memory.addr(), 1).is_some_and(|offset| allocator.free(offset))
    });
    if freed == Some(false) {
        eprintln!("outboard: free: {memory:p} was not allocated, or has been freed");
        std::process::abort();
    }
    // SAFETY: it may be called at any time.
    let errno_at = unsafe { libc::__errno_location() };
    // SAFETY: the address is this thread's errno.
    unsafe { errno_at.write(errno.unwrap_or(0)) };
}

extern "C" fn usable(memory: *mut c_void) -> usize {
    let bytes =
        with_allocator(|allocator| allocator.bytes_at(allocator.arena().offset_of(memory.addr(), 1)?));
    bytes.flatten().unwrap_or(0) as usize
}

unsafe extern "C" fn before_fork() {
    HELD.set(Some(ManuallyDrop::new(lock())));
}

/// Releases the lock of `ALLOCATOR` in the parent after a fork. The forking thread holds the lock during the
/// fork, because a lock that another thread held would never become free in the child.
unsafe extern "C" fn after_fork() {
    HELD.take().map(ManuallyDrop::into_inner);
}

unsafe extern "C" fn after_fork_in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    HELD.take().map(ManuallyDrop::into_inner);
}
