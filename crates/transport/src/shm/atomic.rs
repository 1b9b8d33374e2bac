//! The atomics of the protocols that loom checks (`RUSTFLAGS="--cfg loom" cargo test -p outboard-transport --lib loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A value on cache lines of its own. 128 bytes, because processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Line<T>(pub(crate) T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
