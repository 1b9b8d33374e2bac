// SPDX-License-Identifier: BSD-3-Clause
//! Moves bytes through a socket of the MPI program without waiting. A descriptor that is not a socket is an
//! error. Writing after the peer has closed its end raises no signal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{Error, Result};
use std::os::fd::BorrowedFd;

/// Writes as many bytes as the socket takes now, and returns how many it took. None if it takes no byte now.
pub fn write(fd: i32, bytes: &[u8]) -> Result<Option<usize>> {
    match ready(fd, PollFlags::OUT)? {
        Some(fd) => Ok(Some(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?)),
        None => Ok(None),
    }
}

/// Reads at most `bytes_max` bytes that have arrived. Returns None if no byte has arrived yet, and an empty
/// vector at the end of the stream.
pub fn read(fd: i32, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let Some(fd) = ready(fd, PollFlags::IN)? else { return Ok(None) };
    let mut bytes = vec![0; bytes_max];
    let (length, _) = rustix::net::recv(fd, &mut bytes[..], RecvFlags::empty())?;
    bytes.truncate(length);
    Ok(Some(bytes))
}

fn ready<'a>(fd: i32, flags: PollFlags) -> Result<Option<BorrowedFd<'a>>> {
    if fd < 0 {
        return Err(Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1; the program keeps it open during the call, and the kernel refuses it if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut list = [PollFd::new(&fd, flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut list, Some(&now)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(None),
        Ok(_) if list[0].revents().contains(PollFlags::NVAL) => Err(Error::from_raw_os_error(libc::EBADF)),
        Ok(_) => Ok(Some(fd)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn nothing_waits() {
        let (one, other) = UnixStream::pair().unwrap();
        assert_eq!(read(other.as_raw_fd(), 8).unwrap(), None);
        assert_eq!(write(one.as_raw_fd(), b"abc").unwrap(), Some(3));
        assert_eq!(read(other.as_raw_fd(), 2).unwrap().unwrap(), b"ab");
        drop(one);
        assert_eq!(read(other.as_raw_fd(), 8).unwrap().unwrap(), b"c");
        assert_eq!(read(other.as_raw_fd(), 8).unwrap().unwrap(), b"");
        assert!(read(-1, 8).is_err() && read(1 << 20, 8).is_err());
        assert_eq!(write(other.as_raw_fd(), b"abc").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let (from, into) = std::io::pipe().unwrap();
        assert!(write(into.as_raw_fd(), b"abc").is_err());
        drop(into);
        assert!(read(from.as_raw_fd(), 8).is_err());
    }
}
