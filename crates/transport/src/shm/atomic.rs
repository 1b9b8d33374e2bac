// SPDX-License-Identifier: BSD-3-Clause
//! Atomics for the protocols that loom checks (`RUSTFLAGS="--cfg loom" cargo test -p outboard-transport -p
//! outboard-coll --lib loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The two fences between a store and a later load: `light` in the thread that does this often, `heavy` in
/// the thread that does it seldom (`sys::fence`).
#[cfg(not(loom))]
pub(crate) use sys::fence::{heavy, light};

/// The fence in the thread that often stores and then loads, for loom's model. Loom has no membarrier, so
/// this is the same fence as in `heavy`.
#[cfg(loom)]
pub(crate) fn light() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The fence in the thread that seldom stores and then loads, for loom's model. Always returns true: the
/// fence has reached the other thread.
#[cfg(loom)]
pub(crate) fn heavy() -> bool {
    loom::sync::atomic::fence(Ordering::SeqCst);
    true
}

/// A value that shares its cache lines with no other value. It takes 128 bytes, because processors fetch
/// lines in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct CacheLine<T>(pub(crate) T);

impl<T> std::ops::Deref for CacheLine<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
