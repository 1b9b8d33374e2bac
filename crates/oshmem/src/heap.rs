// SPDX-License-Identifier: BSD-3-Clause
//! The symmetric heap. All PEs make the same calls in the same order, so each divides its own heap in the
//! same way.

use crate::coll::barrier_all;
use crate::fault::fail;
use crate::process::{self, extremes, get};
use crate::{memory, setting};
use std::collections::BTreeMap;
use std::ffi::c_long;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The least alignment of an allocation, in bytes: a cache line.
const ALIGN: usize = 64;

/// The free and the used parts of the heap. Each map has a part's offset in the heap as the key, and the
/// part's length in bytes as the value. Two free parts never touch.
#[derive(Default)]
struct HeapParts {
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
}

static PARTS: Mutex<Option<HeapParts>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<HeapParts>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the heap up as one free part of `bytes` bytes.
pub fn open(bytes: usize) {
    *lock() = Some(HeapParts { free: BTreeMap::from([(0, bytes)]), used: BTreeMap::new() });
}

impl HeapParts {
    /// Takes `bytes` bytes, aligned to `align`, from the first free part that is long enough. Returns their
    /// offset in the heap, or None if no free part is long enough.
    fn take(&mut self, align: usize, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(ALIGN)?;
        let (at, length, offset) = self.free.iter().find_map(|(&at, &length)| {
            let offset = at.checked_next_multiple_of(align)?;
            (offset.checked_add(bytes)? <= at + length).then_some((at, length, offset))
        })?;
        self.free.remove(&at);
        for (from, to) in [(at, offset), (offset + bytes, at + length)] {
            if from < to {
                self.free.insert(from, to - from);
            }
        }
        self.used.insert(offset, bytes);
        Some(offset)
    }

    /// Makes the used part at `offset` longer or shorter in place. Returns false if too little is free behind
    /// it.
    fn resize(&mut self, offset: usize, bytes: usize) -> bool {
        let Some(&old) = self.used.get(&offset) else { return false };
        let room = old + self.free.get(&(offset + old)).copied().unwrap_or(0);
        let Some(bytes) = bytes.checked_next_multiple_of(ALIGN).filter(|&bytes| bytes <= room) else {
            return false;
        };
        self.free.remove(&(offset + old));
        if bytes < room {
            self.free.insert(offset + bytes, room - bytes);
        }
        self.used.insert(offset, bytes);
        true
    }

    fn give(&mut self, offset: usize) -> bool {
        let Some(mut bytes) = self.used.remove(&offset) else { return false };
        let mut at = offset;
        if let Some(next) = self.free.remove(&(offset + bytes)) {
            bytes += next;
        }
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            (at, bytes) = (before, bytes + length);
        }
        self.free.insert(at, bytes);
        true
    }
}

/// Checks that all PEs call `function` with the same `value`, if the user has set SHMEM_DEBUG. Ends the job
/// if not.
fn agree(function: &str, value: usize) {
    if !setting::is_debugging() {
        return;
    }
    let (least, most) = extremes(value, get().comm);
    if least != most {
        fail(&format!("{function}: this PE passes {value}, others from {least} to {most}"));
    }
}

/// Allocates memory of the heap for `function`. Returns its address. Returns 0 if `bytes` is 0, if no free
/// part is long enough, or if `align` is no power of two or exceeds `process::ALIGN`.
fn take(function: &str, align: usize, bytes: usize) -> usize {
    agree(function, bytes);
    if bytes == 0 || !align.is_power_of_two() || align > process::ALIGN {
        return 0;
    }
    let heap = &get().heap;
    let offset = lock().as_mut().and_then(|parts| parts.take(align.max(ALIGN), bytes));
    if offset.is_none() && setting::is_debugging() {
        eprintln!(
            "oshmem: {function}: no {bytes} bytes are free of {}; SHMEM_SYMMETRIC_SIZE sets how many there are",
            heap.bytes
        );
    }
    barrier_all();
    offset.map_or(0, |offset| heap.base + offset)
}

fn give(function: &str, address: usize) {
    let heap = &get().heap;
    let offset = address.wrapping_sub(heap.base);
    if !lock().as_mut().is_some_and(|parts| parts.give(offset)) {
        fail(&format!("{function}: {address:#x} was not allocated in the symmetric heap, or has been freed"));
    }
}

pub fn malloc(bytes: usize) -> usize {
    take("shmem_malloc", ALIGN, bytes)
}

/// Allocates as `malloc` does. OpenSHMEM allows a library to ignore the hints.
pub fn malloc_with_hints(bytes: usize, _hints: c_long) -> usize {
    malloc(bytes)
}

pub fn calloc(count: usize, bytes: usize) -> usize {
    let all = count.saturating_mul(bytes);
    let address = take("shmem_calloc", ALIGN, all);
    if address != 0 {
        memory::fill(address, all);
        barrier_all();
    }
    address
}

pub fn align(align: usize, bytes: usize) -> usize {
    take("shmem_align", align, bytes)
}

pub fn realloc(address: usize, bytes: usize) -> usize {
    if address == 0 {
        return malloc(bytes);
    }
    if bytes == 0 {
        free(address);
        return 0;
    }
    let offset = address.wrapping_sub(get().heap.base);
    let old = lock().as_ref().and_then(|parts| parts.used.get(&offset).copied());
    let Some(old) = old else {
        fail(&format!(
            "shmem_realloc: {address:#x} was not allocated in the symmetric heap, or has been freed"
        ));
    };
    agree("shmem_realloc", bytes);
    barrier_all();
    if lock().as_mut().is_some_and(|parts| parts.resize(offset, bytes)) {
        barrier_all();
        return address;
    }
    let new = take("shmem_realloc", ALIGN, bytes);
    if new != 0 {
        memory::copy(new, address, old.min(bytes));
        give("shmem_realloc", address);
        barrier_all();
    }
    new
}

/// Frees an allocation. NULL is allowed, and then the call does nothing, not even a barrier.
pub fn free(address: usize) {
    if address != 0 {
        agree("shmem_free", address.wrapping_sub(get().heap.base));
        barrier_all();
        give("shmem_free", address);
    }
}
