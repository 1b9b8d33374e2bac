// SPDX-License-Identifier: BSD-3-Clause
//! Shared memory without a name in the file system: a sealed memfd, and maps of parts of it.

use crate::Span;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Makes a memfd of `bytes` zero bytes, which take no memory before they are written. Its length can never
/// change, so no access to a map faults because the file was cut. `name` is shown in /proc/PID/maps. The
/// descriptor is closed on exec (see `inheritable`).
pub fn create(name: &str, bytes: u64) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // vm.memfd_noexec=2 requires the flag that the memory is no program; Linux before 6.3 refuses the flag.
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        other => other?,
    };
    // The kernel kills a process that exceeds `ulimit -f` (SIGXFSZ).
    if crate::limits::file_bytes().is_some_and(|most| bytes > most) {
        return Err(std::io::Error::from_raw_os_error(libc::EFBIG));
    }
    crate::limits::with_longest_files(|| rustix::fs::ftruncate(&fd, bytes))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Whether the length of the memfd `fd` is sealed. Only then it is safe to map `fd` if another process made
/// it.
pub fn is_sealed(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::GROW))
}

/// Returns the length of the file `fd` in bytes.
pub fn length(fd: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_size as u64)
}

/// Returns the inode number of the memfd `fd`, which no other memfd of this machine has.
pub fn inode(fd: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_ino)
}

/// Takes over the descriptor `number`, which this process has inherited, and sets it to be closed on exec.
pub fn inherited(number: i32) -> Result<OwnedFd> {
    if number < 0 || !std::fs::exists(format!("/proc/self/fd/{number}"))? {
        return Err(std::io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open, and the process that started this one left it to this function by its number.
    let fd = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
    inheritable(&fd, false)?;
    Ok(fd)
}

/// Sets whether programs that this process executes inherit the descriptor `fd`.
pub fn inheritable(fd: impl AsFd, inherit: bool) -> Result<()> {
    let flags = if inherit { rustix::io::FdFlags::empty() } else { rustix::io::FdFlags::CLOEXEC };
    Ok(rustix::io::fcntl_setfd(fd, flags)?)
}

/// The errno (EAGAIN) with which a map fails if the process locks all its memory (mlockall) and may not lock
/// more.
pub const LOCKED: i32 = libc::EAGAIN;

/// A memfd that this process keeps open. An MPI program may close descriptors that it does not know and then
/// open another file with the same number. So each use first compares the inode number.
#[derive(Debug)]
pub struct Memfd {
    /// The descriptor of the memfd. None only while this value is dropped.
    fd: Option<OwnedFd>,
    inode: u64,
}

impl Memfd {
    /// The errno (EBADF) with which `get` fails if the program has closed the memfd's descriptor.
    pub const GONE: i32 = libc::EBADF;

    /// Takes over the descriptor of a memfd, and keeps its inode number for later comparison.
    pub fn new(fd: OwnedFd) -> Result<Memfd> {
        Ok(Memfd { inode: inode(&fd)?, fd: Some(fd) })
    }

    /// Returns the memfd's descriptor. Fails with `GONE` if the program has closed it: its number may mean
    /// another file now.
    pub fn get(&self) -> Result<&OwnedFd> {
        let same = |fd: &&OwnedFd| inode(fd).is_ok_and(|inode| inode == self.inode);
        self.fd.as_ref().filter(same).ok_or(std::io::Error::from_raw_os_error(Memfd::GONE))
    }

    /// Returns the memfd's descriptor without checking whether its number still means this memfd.
    pub fn borrow(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("there until it is dropped").as_fd()
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        if self.get().is_err() {
            // The number belongs to the program by now, which closes it.
            std::mem::forget(self.fd.take());
        }
    }
}

/// Gives the memory of `bytes` bytes from `offset` on back to the kernel. All these bytes are zero
/// afterwards, also where they are only a part of a page.
pub fn punch_hole(fd: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(fd, flags, offset, bytes)?)
}

/// Returns for how many bytes of the memfd `fd` the kernel has allocated memory.
pub fn resident(fd: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_blocks as u64 * 512)
}

/// Replaces the shared map at `span` (of `fd`, from `offset` on) by a private one: other processes do not see
/// what this one writes from now on. For a forked child, whose writes would reach its parent. Makes one
/// system call.
pub fn make_private(span: Span, fd: impl AsFd, offset: u64) -> Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    let address = span.address() as *mut c_void;
    // SAFETY: the same bytes are found at the same addresses afterwards.
    unsafe { rustix::mm::mmap(address, span.bytes(), protection, flags, fd, offset) }?;
    Ok(())
}

/// A shared, writable map of a part of a memfd. Dropping it unmaps the part.
///
/// Invariant: its addresses stay reserved for ever, for later maps of the same length. So an access through a
/// span that outlives the map faults or reaches another map, but never memory of another kind.
#[derive(Debug)]
pub struct Map {
    span: Span,
}

/// The start addresses of dropped maps, by length in bytes. Later maps of the same length use these
/// addresses.
static RESERVED: Mutex<BTreeMap<usize, Vec<usize>>> = Mutex::new(BTreeMap::new());

impl Map {
    /// Maps `bytes` bytes of `fd` from `offset` on, a multiple of the page size. The map takes no memory
    /// before it is touched. Core dumps leave it out, because the kernel would allocate all of it for them.
    pub fn shared(fd: impl AsFd, offset: u64, bytes: usize) -> Result<Map> {
        let reserved = || RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = reserved().get_mut(&bytes).and_then(Vec::pop);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let fixed = if spare.is_some() { MapFlags::FIXED } else { MapFlags::empty() };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | fixed;
        let hint = spare.unwrap_or(0) as *mut c_void;
        // SAFETY: this replaces at most the reservation of a dropped map of this length, which was taken from
        // the list.
        let address = unsafe { rustix::mm::mmap(hint, bytes, protection, flags, fd, offset) };
        let address = address.inspect_err(|_| {
            reserved().entry(bytes).or_default().extend(spare);
        })?;
        // SAFETY: exactly the range that was mapped just now; the advice changes no byte. A kernel that
        // refuses the advice dumps more.
        let _ = unsafe { rustix::mm::madvise(address, bytes, Advice::LinuxDontDump) };
        // SAFETY: mapped just now, and the addresses stay reserved for ever.
        let span = unsafe { Span::claim(address as usize, bytes) };
        Ok(Map { span })
    }

    /// Returns the address and length of the whole map.
    #[inline]
    pub fn span(&self) -> Span {
        self.span
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let (address, bytes) = (self.span.address(), self.span.bytes());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: this replaces exactly the range that `shared` mapped; a span that outlives the map faults.
        let reserved =
            unsafe { rustix::mm::mmap_anonymous(address as *mut c_void, bytes, ProtFlags::empty(), flags) };
        debug_assert!(reserved.is_ok());
        if reserved.is_ok() {
            let mut spare = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
            spare.entry(bytes).or_default().push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{page_bytes, physical_bytes};

    #[test]
    fn two_maps_share_bytes_and_holes_read_zero() {
        let page = page_bytes();
        let fd = create("outboard-test", 64 * page as u64).unwrap();
        assert!(is_sealed(&fd));
        assert_eq!(length(&fd).unwrap(), 64 * page as u64);
        assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "a sealed memfd was cut");
        let (one, two) =
            (Map::shared(&fd, 0, 64 * page).unwrap(), Map::shared(&fd, page as u64, page).unwrap());
        one.span().slice(page + 8, 3).write(b"abc");
        let mut seen = [0; 3];
        two.span().slice(8, 3).read(&mut seen);
        assert_eq!(&seen, b"abc");
        assert_eq!(resident(&fd).unwrap(), page as u64);
        punch_hole(&fd, page as u64, page as u64).unwrap();
        two.span().slice(8, 3).read(&mut seen);
        assert_eq!(seen, [0; 3]);
    }

    #[test]
    fn sparse_memory_may_exceed_the_machine() {
        let bytes = physical_bytes() * 8;
        assert!(bytes > 0);
        let fd = create("outboard-test", bytes).unwrap();
        let map = Map::shared(&fd, 0, bytes as usize).unwrap();
        map.span().slice(bytes as usize - 1, 1).write(&[7]);
        assert_eq!(resident(&fd).unwrap(), page_bytes() as u64);
    }

    #[test]
    fn addresses_of_a_dropped_map_serve_the_next() {
        let bytes = 17 * page_bytes();
        let fd = create("outboard-test", bytes as u64).unwrap();
        let map = || Map::shared(&fd, 0, bytes).unwrap();
        let old = map();
        old.span().slice(0, 1).write(&[7]);
        let address = old.span().address();
        drop(old);
        let new = map();
        let mut seen = [0];
        new.span().slice(0, 1).read(&mut seen);
        assert_eq!((new.span().address(), seen), (address, [7]));
    }

    #[test]
    fn maps_are_left_out_of_core_dumps() {
        let fd = create("outboard-dump-test", 1 << 20).unwrap();
        let map = Map::shared(&fd, 0, 1 << 20).unwrap();
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = all.split_once(&format!("{:x}-", map.span().address())).unwrap().1;
        let flags = ours.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" dd"), "{flags}");
    }

    #[test]
    fn a_memfd_whose_number_is_another_file_is_left_alone() {
        let kept = Memfd::new(create("outboard-test", 4096).unwrap()).unwrap();
        assert!(kept.get().is_ok());
        let number = std::os::fd::AsRawFd::as_raw_fd(&kept.borrow());
        // A program may close all descriptors and open a file of its own.
        let other = create("outboard-other", 4096).unwrap();
        // SAFETY: `kept` is told of it only by its inode, as it would be in that program.
        let mut place =
            std::mem::ManuallyDrop::new(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
        rustix::io::dup2(&other, &mut place).unwrap();
        assert_eq!(kept.get().unwrap_err().raw_os_error(), Some(Memfd::GONE));
        drop(kept);
        assert_eq!(inode(&*place).unwrap(), inode(&other).unwrap(), "it was closed");
        drop(std::mem::ManuallyDrop::into_inner(place));
    }

    #[test]
    fn inheritable_sets_the_flag() {
        let fd = create("outboard-test", 4096).unwrap();
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        inheritable(&fd, true).unwrap();
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().is_empty());
    }
}
