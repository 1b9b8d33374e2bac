// SPDX-License-Identifier: BSD-3-Clause
//! Atomics for the protocols that loom checks (`RUSTFLAGS="--cfg loom" cargo test -p outboard-transport -p
//! outboard-coll --lib loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The two fences between a store and a load (`sys::fence`).
#[cfg(not(loom))]
pub(crate) use sys::fence::{heavy, light};

/// The frequent side's fence for loom, which has no membarrier: both sides fence.
#[cfg(loom)]
pub(crate) fn light() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The fence of the rare side for loom. It always succeeds.
#[cfg(loom)]
pub(crate) fn heavy() -> bool {
    loom::sync::atomic::fence(Ordering::SeqCst);
    true
}

/// A value on cache lines of its own: 128 bytes, because processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct CacheLine<T>(pub(crate) T);

impl<T> std::ops::Deref for CacheLine<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
