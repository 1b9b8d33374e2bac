// SPDX-License-Identifier: BSD-3-Clause
//! Reads and writes of whole spans at offsets of a file, locks of byte ranges, and allocation on the device.
//!
//! A span is an address and a length. The functions repeat interrupted and short system calls. If a read
//! returns fewer bytes than asked, the file ends there; a write that succeeds has written all bytes. No
//! function uses the file position.

use crate::Span;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// The most bytes that one system call reads or writes. Linux moves at most 0x7ffff000; a round number keeps
/// the offsets of all calls aligned.
const CALL_BYTES: usize = 1 << 30;

/// Whether other locks may exist on the bytes that a lock covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Other shared locks may cover the same bytes.
    Shared,
    /// No other lock may cover the same bytes.
    Exclusive,
}

/// Reads from byte `offset` of a file on, until `to` is full or the file ends. Returns the number of bytes
/// read.
pub fn read_at(file: &File, to: Span, offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < to.bytes() {
        let piece = to.slice(done, (to.bytes() - done).min(CALL_BYTES));
        let at = position(offset, done)?;
        // SAFETY: the span was claimed mapped and writable (contract of `Span::claim`); the descriptor is
        // open while `file` lives.
        let moved = unsafe { libc::pread(file.as_raw_fd(), piece.address() as *mut _, piece.bytes(), at) };
        match moved {
            0 => break,
            1.. => done += moved as usize,
            _ => resume()?,
        }
    }
    Ok(done)
}

/// Writes all bytes of `from` into a file, from byte `offset` on.
pub fn write_at(file: &File, from: Span, offset: u64) -> Result<()> {
    let mut done = 0;
    while done < from.bytes() {
        let piece = from.slice(done, (from.bytes() - done).min(CALL_BYTES));
        let at = position(offset, done)?;
        // SAFETY: the span was claimed mapped (contract of `Span::claim`); the descriptor is open while
        // `file` lives.
        let moved = unsafe { libc::pwrite(file.as_raw_fd(), piece.address() as *const _, piece.bytes(), at) };
        match moved {
            0 => return Err(Error::from_raw_os_error(libc::ENOSPC)),
            1.. => done += moved as usize,
            _ => resume()?,
        }
    }
    Ok(())
}

/// Waits until no other lock conflicts, then locks `bytes` bytes from `offset` on. The lock belongs to the
/// open file: threads that share it do not exclude each other. `bytes` 0 locks nothing.
pub fn lock(file: &File, lock: Lock, offset: u64, bytes: u64) -> Result<()> {
    let kind = if lock == Lock::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    range_lock(file, kind, offset, bytes)
}

/// Releases the lock of `bytes` bytes from `offset` on, which `lock` made.
pub fn unlock(file: &File, offset: u64, bytes: u64) -> Result<()> {
    range_lock(file, libc::F_UNLCK, offset, bytes)
}

fn range_lock(file: &File, kind: libc::c_int, offset: u64, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: position(offset, 0)?,
        l_len: position(bytes, 0)?,
        l_pid: 0,
    };
    loop {
        // SAFETY: the descriptor is open while `file` lives, and `range` is a live flock, which the call only
        // reads.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &range) } {
            0 => return Ok(()),
            _ => resume()?,
        }
    }
}

/// Makes a file at least `bytes` bytes long, and reserves room on the device for them. A longer file keeps
/// its length.
pub fn allocate(file: &File, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    loop {
        // SAFETY: the descriptor is open while `file` lives.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, position(bytes, 0)?) } {
            0 => return Ok(()),
            libc::EINTR => {}
            code => return Err(Error::from_raw_os_error(code)),
        }
    }
}

/// Returns the device number and the inode number of a file, which are the same under all of the file's
/// names.
pub fn identity(file: &File) -> Result<(u64, u64)> {
    let facts = file.metadata()?;
    Ok((facts.dev(), facts.ino()))
}

/// Looks at the error of the system call that has just failed. Returns Ok if it was EINTR, so that the caller
/// repeats the call; otherwise returns the error.
fn resume() -> Result<()> {
    let error = Error::last_os_error();
    if error.raw_os_error() == Some(libc::EINTR) { Ok(()) } else { Err(error) }
}

fn position(offset: u64, done: usize) -> Result<libc::off_t> {
    let at = offset.checked_add(done as u64).and_then(|at| libc::off_t::try_from(at).ok());
    at.ok_or_else(|| Error::from_raw_os_error(libc::EOVERFLOW))
}

/// Whether descriptor `fd` of this process is a pipe. False if the descriptor is closed.
pub fn is_pipe(fd: i32) -> bool {
    let mut facts = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes into `facts`, which is ours.
    let error = unsafe { libc::fstat(fd, facts.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value, and so is what the call wrote.
    error == 0 && unsafe { facts.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFIFO
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    fn scratch() -> File {
        let fd = rustix::fs::memfd_create("outboard-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(fd)
    }

    #[test]
    fn a_read_stops_at_the_end_and_a_write_makes_holes() {
        let file = scratch();
        let block = Block::new(8);
        block.span().write(b"outboard");
        write_at(&file, block.span(), 100).unwrap();
        let back = Block::new(20);
        assert_eq!(read_at(&file, back.span(), 96).unwrap(), 12);
        let mut bytes = [1u8; 12];
        back.span().slice(0, 12).read(&mut bytes);
        assert_eq!(&bytes, b"\0\0\0\0outboard");
        assert_eq!(read_at(&file, back.span(), 108).unwrap(), 0);
        let beyond = write_at(&file, block.span(), u64::MAX - 3).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EOVERFLOW));
    }

    #[test]
    fn locks_of_two_opens_exclude_each_other() {
        let path = std::env::temp_dir().join(format!("outboard-lock-{}", std::process::id()));
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (one, other) = (open(), open());
        std::fs::remove_file(&path).unwrap();
        lock(&one, Lock::Exclusive, 10, 10).unwrap();
        lock(&other, Lock::Exclusive, 20, 5).unwrap();
        lock(&other, Lock::Shared, 0, 10).unwrap();
        let waiter = std::thread::spawn(move || {
            lock(&other, Lock::Shared, 15, 1).unwrap();
            let block = Block::new(1);
            assert_eq!(read_at(&other, block.span(), 0).unwrap(), 1, "written before the lock was given up");
        });
        let block = Block::new(1);
        write_at(&one, block.span(), 0).unwrap();
        unlock(&one, 10, 10).unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn allocation_only_lengthens() {
        let file = scratch();
        allocate(&file, 100).unwrap();
        allocate(&file, 10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100);
        assert_eq!(identity(&file).unwrap(), identity(&file.try_clone().unwrap()).unwrap());
    }
}
