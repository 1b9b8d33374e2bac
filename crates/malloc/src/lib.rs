// SPDX-License-Identifier: BSD-3-Clause
//! `liboutboard_malloc.so`: takes large allocations of a program from the rank's arena, the part of the job's
//! shared memory in which the rank allocates (OUTBOARD_MALLOC=arena).
//!
//! `LD_PRELOAD` puts the functions here before glibc's, as glibc's manual allows ("Replacing malloc"). The
//! MPI library offers a pool of memory in MPI_Init (`abi/malloc.rs`). glibc serves all allocations before
//! that, short ones, and those for which the pool has no room. An allocation's address shows whether it is
//! the pool's.
//!
//! Invariant: no function here allocates for itself, and glibc is called by names that no library replaces.
//! Read next: `sys/pool.rs`, the interface of the two libraries.

use libc::{c_int, size_t};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use sys::pool::Pool;

/// The pool: shared memory that the MPI library has offered for the program's allocations. Null before the
/// offer.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" {
    fn __libc_malloc(bytes: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, bytes: size_t) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, bytes: size_t) -> *mut c_void;
    fn __libc_memalign(align: size_t, bytes: size_t) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

/// Makes `pool` serve large allocations from now on. The MPI library calls this in MPI_Init. The pool must
/// stay until the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_malloc_offer(pool: &'static Pool) {
    POOL.store(std::ptr::from_ref(pool).cast_mut(), Ordering::Release);
}

fn pool() -> Option<&'static Pool> {
    // SAFETY: null, or what `outboard_malloc_offer` took, which lives for ever and is only read.
    unsafe { POOL.load(Ordering::Acquire).as_ref() }
}

/// Returns the pool (the rank's shared memory) if the allocation at `memory` came from it, or None if it came
/// from glibc.
fn owner(memory: *mut c_void) -> Option<&'static Pool> {
    pool().filter(|pool| pool.holds(memory.addr()))
}

/// Returns new memory of the pool (the rank's shared memory), aligned to `Pool::ALIGN`. Returns null if there
/// is no pool, if `bytes` is too short for the pool, or if the pool is full.
fn of_pool(bytes: usize) -> *mut c_void {
    match pool() {
        Some(pool) if bytes >= pool.bytes_min => (pool.alloc)(bytes),
        _ => std::ptr::null_mut(),
    }
}

/// C's malloc: returns memory from the pool if `bytes` is long, otherwise from glibc.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: size_t) -> *mut c_void {
    let memory = of_pool(bytes);
    if !memory.is_null() {
        return memory;
    }
    // SAFETY: glibc's malloc takes any length.
    unsafe { __libc_malloc(bytes) }
}

/// C's calloc: allocates `count` times `bytes` zero bytes, from the pool if they are many, otherwise from
/// glibc.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: size_t, bytes: size_t) -> *mut c_void {
    let memory = count.checked_mul(bytes).map_or(std::ptr::null_mut(), of_pool);
    if !memory.is_null() {
        // SAFETY: it has just been allocated with this length, whose product did not overflow.
        unsafe { memory.write_bytes(0, count * bytes) };
        return memory;
    }
    // SAFETY: glibc's calloc takes any count and length.
    unsafe { __libc_calloc(count, bytes) }
}

/// C's free: gives the memory back to where it came from, the pool or glibc.
///
/// # Safety
///
/// `memory` is null, or was allocated and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    match owner(memory) {
        Some(pool) => (pool.free)(memory),
        // SAFETY: it is not the pool's, so it is glibc's, by the caller's promise.
        None => unsafe { __libc_free(memory) },
    }
}

/// C's realloc: changes the length of an allocation, and returns its new address. It moves to the pool if it
/// becomes long.
///
/// # Safety
///
/// `memory` is null, or was allocated and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, bytes: size_t) -> *mut c_void {
    if memory.is_null() {
        return malloc(bytes);
    }
    let owner = owner(memory);
    if owner.is_none() && pool().is_none_or(|pool| bytes < pool.bytes_min) {
        // SAFETY: it is glibc's, as above.
        return unsafe { __libc_realloc(memory, bytes) };
    }
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { free(memory) };
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let usable = unsafe { malloc_usable_size(memory) };
    if owner.is_some() && (usable / 2..=usable).contains(&bytes) {
        return memory;
    }
    let moved = malloc(bytes);
    if !moved.is_null() {
        // SAFETY: both hold so many bytes, and the new allocation is apart from the old one.
        unsafe { std::ptr::copy_nonoverlapping(memory.cast::<u8>(), moved.cast(), bytes.min(usable)) };
        // SAFETY: the caller's promise; nobody has the old address any more.
        unsafe { free(memory) };
    }
    moved
}

/// glibc's memalign: returns memory from the pool if `bytes` is long and the pool's alignment suffices,
/// otherwise from glibc.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: size_t, bytes: size_t) -> *mut c_void {
    let memory = if align <= Pool::ALIGN { of_pool(bytes) } else { std::ptr::null_mut() };
    if !memory.is_null() {
        return memory;
    }
    // SAFETY: glibc's memalign takes any alignment and length.
    unsafe { __libc_memalign(align, bytes) }
}

/// C's aligned_alloc: allocates like `memalign`. Returns null if `align` is not a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: size_t, bytes: size_t) -> *mut c_void {
    if align.is_power_of_two() {
        return memalign(align, bytes);
    }
    // SAFETY: it may be called at any time.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is this thread's errno.
    unsafe { errno.write(libc::EINVAL) };
    std::ptr::null_mut()
}

/// POSIX's posix_memalign: allocates like `memalign`, and stores the address at `memory`. Returns 0 or an
/// errno.
///
/// # Safety
///
/// `memory` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(memory: *mut *mut c_void, align: size_t, bytes: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let found = memalign(align, bytes);
    if found.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { memory.write(found) };
    0
}

/// glibc's malloc_usable_size: returns how many bytes of an allocation the program may use.
///
/// # Safety
///
/// `memory` is null, or was allocated and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> size_t {
    static GLIBC: AtomicUsize = AtomicUsize::new(0);
    if let Some(pool) = owner(memory) {
        return (pool.usable)(memory);
    }
    if GLIBC.load(Ordering::Relaxed) == 0 {
        // SAFETY: the name is a C string; the call looks it up in the libraries behind this one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"malloc_usable_size".as_ptr()) };
        GLIBC.store(found as usize, Ordering::Relaxed);
    }
    match GLIBC.load(Ordering::Relaxed) {
        0 => 0,
        address => {
            // SAFETY: glibc's function of this name has this form.
            let usable: unsafe extern "C" fn(*mut c_void) -> size_t = unsafe { std::mem::transmute(address) };
            // SAFETY: the allocation is glibc's, by the caller's promise.
            unsafe { usable(memory) }
        }
    }
}
