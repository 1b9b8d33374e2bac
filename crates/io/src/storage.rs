// SPDX-License-Identifier: BSD-3-Clause
//! An open file of the file system: transfers at offsets, and locks.

use crate::failure::failure;
use error::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::Span;
use sys::file::Lock;

/// An open file. The MPI file's handle and the operations under way share this value.
#[derive(Debug)]
pub struct Storage {
    file: File,
    path: PathBuf,
    readable: bool,
    /// Whether this process has written to the file or set its size since its last `sync`.
    dirty: AtomicBool,
    /// A mutex that a thread holds together with each byte-range lock. The mutex excludes the threads of this
    /// process; the byte-range lock excludes only other processes.
    within: Mutex<()>,
}

/// A held lock of bytes `[from, to)` of a file. Dropping this value releases the lock.
pub struct RangeLock<'a> {
    storage: &'a Storage,
    from: u64,
    to: u64,
    _within: MutexGuard<'a, ()>,
}

impl Storage {
    pub fn new(file: File, path: PathBuf, readable: bool) -> Storage {
        Storage { file, path, readable, dirty: AtomicBool::new(false), within: Mutex::new(()) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was opened for reading.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Reads the file's bytes from `offset` on into `to`. Returns how many bytes were read; these are fewer
    /// than `to` has only at the end of the file.
    pub fn read(&self, to: Span, offset: u64) -> Result<usize> {
        let doing = || format!("read {} bytes at offset {offset} of", to.bytes());
        sys::file::read_at(&self.file, to, offset).map_err(|error| self.failure(&doing(), &error))
    }

    /// Writes the bytes of `from` to the file, from `offset` on.
    pub fn write(&self, from: Span, offset: u64) -> Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        let doing = || format!("write {} bytes at offset {offset} of", from.bytes());
        sys::file::write_at(&self.file, from, offset).map_err(|error| self.failure(&doing(), &error))
    }

    /// Waits until this process has a lock of the file's bytes `[from, to)`. Returns a guard; dropping it
    /// releases the lock.
    pub fn lock(&self, lock: Lock, from: u64, to: u64) -> Result<RangeLock<'_>> {
        let within = self.within.lock().unwrap_or_else(PoisonError::into_inner);
        sys::file::lock(&self.file, lock, from, to - from)
            .map_err(|error| self.failure(&format!("lock bytes {from} to {to} of"), &error))?;
        Ok(RangeLock { storage: self, from, to, _within: within })
    }

    pub fn size(&self) -> Result<u64> {
        let facts = self.file.metadata().map_err(|error| self.failure("ask for the size of", &error))?;
        Ok(facts.len())
    }

    /// Returns the numbers of the file's device and of its inode. By these, processes know that they have
    /// opened the same file.
    pub fn identity(&self) -> Result<(u64, u64)> {
        sys::file::identity(&self.file).map_err(|error| self.failure("identify", &error))
    }

    /// Sets the file's length to `bytes` bytes: cuts the file, or extends it with zeroes.
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        self.file.set_len(bytes).map_err(|error| self.failure(&format!("set the size {bytes} of"), &error))
    }

    /// Allocates room on the storage device for the file's first `bytes` bytes (MPI_File_preallocate).
    pub fn allocate(&self, bytes: u64) -> Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        sys::file::allocate(&self.file, bytes)
            .map_err(|error| self.failure(&format!("allocate {bytes} bytes for"), &error))
    }

    /// Waits until the storage device has everything that this process has written to the file
    /// (MPI_File_sync).
    pub fn sync(&self) -> Result<()> {
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.file.sync_data() {
            // Only regular files can be synced, not a terminal or /dev/null.
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(self.failure("sync", &error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, doing: &str, error: &std::io::Error) -> Error {
        failure(&self.path, doing, error)
    }
}

impl Drop for RangeLock<'_> {
    fn drop(&mut self) {
        // Unlocking fails only if the descriptor is closed, and then the lock is gone.
        let _ = sys::file::unlock(&self.storage.file, self.from, self.to - self.from);
    }
}
