// SPDX-License-Identifier: BSD-3-Clause
//! Cross-memory attach (process_vm_readv, process_vm_writev): copies bytes between two processes in one copy,
//! in which the other process takes no part.

use crate::Span;
use std::io::{Error, Result};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A range of another process's memory: its address there, and its length in bytes. The kernel checks that
/// the range is mapped.
pub type Piece = (usize, usize);

/// Copies the bytes of the ranges `remote` of process `pid` to the spans `local`, both in order; the sums of
/// lengths must be equal. Errors: EPERM (not allowed), ESRCH (no such process), EFAULT (not mapped), EINVAL
/// (other sum).
pub fn read(pid: u32, remote: &[Piece], local: &[Span]) -> Result<()> {
    transfer(pid, remote, local, Direction::Read)
}

/// Copies the bytes of the spans `local` to the ranges `remote` of process `pid`, both in order; the sums of
/// lengths must be equal. Errors: EPERM (not allowed), ESRCH (no such process), EFAULT (not mapped), EINVAL
/// (other sum).
pub fn write(pid: u32, remote: &[Piece], local: &[Span]) -> Result<()> {
    transfer(pid, remote, local, Direction::Write)
}

/// The number of bytes from which on a transfer fails with EFAULT, as it does for the memory of a GPU. Only
/// tests set it.
static REFUSED_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The buffers that `attachable` could read before: each entry is a hash of address and length, or 0.
static KNOWN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Makes each transfer of at least `bytes` bytes fail with EFAULT from now on, as it does for the memory of a
/// GPU. For tests only.
pub fn refuse_from(bytes: usize) {
    REFUSED_FROM.store(bytes, Ordering::Relaxed);
}

/// Whether other processes can read a buffer of this one, which begins with `first`, ends with `last`, and
/// has `bytes` bytes. They cannot read the memory of a GPU or of memfd_secret. Tries to read both ends (5
/// us), and remembers buffers that it could read.
pub fn attachable(first: Span, last: Span, bytes: usize) -> bool {
    if bytes == 0 || bytes >= REFUSED_FROM.load(Ordering::Relaxed) {
        return bytes == 0;
    }
    let key =
        (first.address() as u64 ^ (bytes as u64).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let known = &KNOWN[(key >> 56) as usize];
    if known.load(Ordering::Relaxed) == key {
        return true;
    }
    let end = last.address() + last.bytes() - 1;
    let mut bytes = [0; 2];
    // SAFETY: the array outlives the one call that uses the span.
    let into = unsafe { Span::claim(bytes.as_mut_ptr() as usize, 2) };
    // After any other error no memory can be reached at all; the transfer itself will report that.
    let refused = read(std::process::id(), &[(first.address(), 1), (end, 1)], &[into])
        .is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT));
    if !refused {
        known.store(key, Ordering::Relaxed);
    }
    !refused
}

/// The most ranges that one system call copies. The kernel takes up to 1024 (UIO_MAXIOV). 64 fit on the
/// stack, and more would save no time, which is spent per page.
const PIECES: usize = 64;

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

fn transfer(pid: u32, remote: &[Piece], local: &[Span], direction: Direction) -> Result<()> {
    let mut left = remote.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.1)).ok_or(invalid())?;
    if left != local.iter().map(|span| span.bytes()).sum() {
        return Err(invalid());
    }
    if left >= REFUSED_FROM.load(Ordering::Relaxed) {
        return Err(Error::from_raw_os_error(libc::EFAULT));
    }
    let pid = libc::pid_t::try_from(pid).map_err(|_| Error::from_raw_os_error(libc::ESRCH))?;
    let local_piece = |i: usize| local.get(i).map(|span| (span.address(), span.bytes()));
    let remote_piece = |i: usize| remote.get(i).copied();
    let (mut here, mut there) = (Cursor::default(), Cursor::default());
    while left > 0 {
        let (ours, ours_count) = here.pieces(local_piece);
        let (theirs, theirs_count) = there.pieces(remote_piece);
        let moved = match direction {
            // SAFETY: `ours` holds parts of spans, claimed mapped and writable; the kernel checks `theirs`.
            Direction::Read => unsafe {
                let (l, r) = (ours_count as libc::c_ulong, theirs_count as libc::c_ulong);
                libc::process_vm_readv(pid, ours.as_ptr(), l, theirs.as_ptr(), r, 0)
            },
            // SAFETY: `ours` holds parts of spans, claimed mapped; the kernel checks `theirs`.
            Direction::Write => unsafe {
                let (l, r) = (ours_count as libc::c_ulong, theirs_count as libc::c_ulong);
                libc::process_vm_writev(pid, ours.as_ptr(), l, theirs.as_ptr(), r, 0)
            },
        };
        match moved {
            1.. => {
                let moved = moved as usize;
                here.advance(moved, local_piece);
                there.advance(moved, remote_piece);
                left -= moved;
            }
            0 => return Err(Error::from_raw_os_error(libc::EFAULT)),
            _ => {
                let error = Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINTR) {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn invalid() -> Error {
    Error::from_raw_os_error(libc::EINVAL)
}

/// How far a transfer has come in a list of ranges.
#[derive(Default)]
struct Cursor {
    /// The index of the range at which the transfer goes on.
    index: usize,
    /// How many bytes of the range at `index` have been copied.
    done: usize,
}

impl Cursor {
    /// Returns the next ranges to copy, at most `PIECES`, in the kernel's form, and how many they are. Leaves
    /// out empty ranges.
    fn pieces(&self, piece: impl Fn(usize) -> Option<Piece>) -> ([libc::iovec; PIECES], usize) {
        let mut list = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
        let (mut index, mut done, mut count) = (self.index, self.done, 0);
        while count < PIECES
            && let Some((address, bytes)) = piece(index)
        {
            if bytes > done {
                let base = address.wrapping_add(done) as *mut libc::c_void;
                list[count] = libc::iovec { iov_base: base, iov_len: bytes - done };
                count += 1;
            }
            (index, done) = (index + 1, 0);
        }
        (list, count)
    }

    /// Moves this position on by `bytes` bytes. `piece` returns the range with a given index.
    fn advance(&mut self, bytes: usize, piece: impl Fn(usize) -> Option<Piece>) {
        self.done += bytes;
        while let Some((_, bytes)) = piece(self.index)
            && self.done >= bytes
        {
            self.done -= bytes;
            self.index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &mut [u8]) -> Span {
        // SAFETY: the tests keep the slice alive and use it only through the span while they do.
        unsafe { Span::claim(bytes.as_mut_ptr() as usize, bytes.len()) }
    }

    #[test]
    fn many_unequal_pieces_arrive_in_order() {
        let mut from: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut to = vec![0u8; from.len()];
        let base = from.as_mut_ptr() as usize;
        // 333 remote pieces of 600 bytes and a rest; local pieces of 1000 bytes, with empty ones between.
        let mut remote: Vec<Piece> =
            (0..200_000).step_by(600).map(|at| (base + at, 600.min(200_000 - at))).collect();
        remote.insert(100, (0, 0));
        let whole = span(&mut to);
        let mut local: Vec<Span> = (0..200).map(|i| whole.slice(i * 1000, 1000)).collect();
        local.insert(0, Span::EMPTY);
        local.insert(50, Span::EMPTY);
        read(std::process::id(), &remote, &local).unwrap();
        assert_eq!(from, to);
        to.fill(9);
        write(std::process::id(), &remote, &local).unwrap();
        assert!(from.iter().all(|&byte| byte == 9));
    }

    // Goal: memory that other processes cannot read is recognised before a peer is asked to read it.
    #[test]
    fn hidden_memory_is_found_out() {
        let mut bytes = vec![1u8; 1 << 16];
        let all = span(&mut bytes);
        assert!(attachable(all, all, 1 << 16) && attachable(all, all, 1 << 16));
        // SAFETY: no argument but a flag; a kernel without it says so.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
        if fd < 0 {
            return;
        }
        // SAFETY: open, and nobody else's.
        let fd = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as i32) };
        rustix::fs::ftruncate(&fd, 1 << 16).unwrap();
        let map = crate::memory::Map::shared(&fd, 0, 1 << 16).unwrap();
        let secret = map.span();
        secret.slice(0, 1).write(&[7]);
        assert!(!attachable(secret, secret, 1 << 16));
        assert!(!attachable(all, secret, 1 << 17), "one end of two");
    }

    #[test]
    fn errors_tell_what_is_wrong() {
        let mut to = [0u8; 8];
        let local = [span(&mut to)];
        let me = std::process::id();
        let code = |result: Result<()>| result.unwrap_err().raw_os_error().unwrap();
        assert_eq!(code(read(me, &[(16, 8)], &local)), libc::EFAULT);
        assert_eq!(code(read(me, &[(16, 9)], &local)), libc::EINVAL);
        assert_eq!(code(read(me, &[(16, usize::MAX), (16, 9)], &local)), libc::EINVAL);
        assert_eq!(code(read(i32::MAX as u32, &[(16, 8)], &local)), libc::ESRCH);
        assert_eq!(code(read(u32::MAX, &[(16, 8)], &local)), libc::ESRCH);
        read(me, &[], &[]).unwrap();
    }
}
