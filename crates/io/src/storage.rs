//! An open file of the file system: where bytes go at offsets, and which locks keep others from them.

use crate::failure::failure;
use error::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::Span;
use sys::file::Lock;

/// An open file, shared by the handle and by the operations under way.
#[derive(Debug)]
pub struct Storage {
    file: File,
    path: PathBuf,
    readable: bool,
    /// Whether anything was written since the last sync.
    dirty: AtomicBool,
    /// Held beside a byte-range lock, which does not keep this process's own threads apart.
    within: Mutex<()>,
}

/// Bytes from one offset up to another that others are kept from.
pub struct Locked<'a> {
    storage: &'a Storage,
    from: u64,
    to: u64,
    _within: MutexGuard<'a, ()>,
}

impl Storage {
    /// Takes over an open file.
    pub fn new(file: File, path: PathBuf, readable: bool) -> Storage {
        Storage { file, path, readable, dirty: AtomicBool::new(false), within: Mutex::new(()) }
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the system lets it be read.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Fills `to` from `offset` on; how many bytes there were before the end of the file.
    pub fn read(&self, to: Span, offset: u64) -> Result<usize> {
        let doing = || format!("read {} bytes at offset {offset} of", to.bytes());
        sys::file::read_at(&self.file, to, offset).map_err(|error| self.failure(&doing(), &error))
    }

    /// Writes all of `from` at `offset`.
    pub fn write(&self, from: Span, offset: u64) -> Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        let doing = || format!("write {} bytes at offset {offset} of", from.bytes());
        sys::file::write_at(&self.file, from, offset).map_err(|error| self.failure(&doing(), &error))
    }

    /// Keeps others from `[from, to)` until the answer is dropped.
    pub fn lock(&self, lock: Lock, from: u64, to: u64) -> Result<Locked<'_>> {
        let within = self.within.lock().unwrap_or_else(PoisonError::into_inner);
        sys::file::lock(&self.file, lock, from, to - from)
            .map_err(|error| self.failure(&format!("lock bytes {from} to {to} of"), &error))?;
        Ok(Locked { storage: self, from, to, _within: within })
    }

    /// Bytes in the file.
    pub fn size(&self) -> Result<u64> {
        let facts = self.file.metadata().map_err(|error| self.failure("ask for the size of", &error))?;
        Ok(facts.len())
    }

    /// Device and number.
    pub fn identity(&self) -> Result<(u64, u64)> {
        sys::file::identity(&self.file).map_err(|error| self.failure("identify", &error))
    }

    /// Cuts the file, or lengthens it with zeroes.
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        self.file.set_len(bytes).map_err(|error| self.failure(&format!("set the size {bytes} of"), &error))
    }

    /// Makes sure that there is room for the first `bytes` bytes.
    pub fn allocate(&self, bytes: u64) -> Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        sys::file::allocate(&self.file, bytes)
            .map_err(|error| self.failure(&format!("allocate {bytes} bytes for"), &error))
    }

    /// Moves what was written to the device.
    pub fn sync(&self) -> Result<()> {
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.file.sync_data() {
            // What is no regular file (a terminal, /dev/null) has nothing to sync.
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(self.failure("sync", &error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, doing: &str, error: &std::io::Error) -> Error {
        failure(&self.path, doing, error)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It fails only if the descriptor is bad, and then the lock is gone.
        let _ = sys::file::unlock(&self.storage.file, self.from, self.to - self.from);
    }
}
