// SPDX-License-Identifier: BSD-3-Clause
//! Cross-memory attach: reads and writes a peer's private memory with one copy and without the peer's help.
//!
//! Settings do not show whether it works (Yama, containers, seccomp, pid namespaces), so a process tries it
//! at first contact with each peer. The pid that a peer has published could name another process in this
//! process's pid namespace. So the try compares a number that only the right process has.

use super::{LocalRank, Segment};
use error::{Class, Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::Span;

pub use sys::remote::Piece;

/// Reads the memory ranges `remote` (address and length) of process `pid`, in order, into `local`, which is
/// as long as all these ranges together.
pub fn read(pid: u32, remote: &[Piece], local: Span) -> Result<()> {
    gather(pid, remote, &[local])
}

/// Writes the bytes of `local` to the memory ranges `remote` (address and length) of process `pid`, in order.
/// `local` is as long as all these ranges together.
pub fn write(pid: u32, remote: &[Piece], local: Span) -> Result<()> {
    scatter(pid, remote, &[local])
}

/// Reads the memory ranges `remote` (address and length) of process `pid`, in order, into the spans `local`
/// of this process, in order.
pub fn gather(pid: u32, remote: &[Piece], local: &[Span]) -> Result<()> {
    sys::remote::read(pid, remote, local).map_err(|error| explain(pid, remote, "read", error))
}

/// Writes the spans `local` of this process, in order, to the memory ranges `remote` (address and length) of
/// process `pid`, in order.
pub fn scatter(pid: u32, remote: &[Piece], local: &[Span]) -> Result<()> {
    sys::remote::write(pid, remote, local).map_err(|error| explain(pid, remote, "write", error))
}

#[cold]
fn explain(pid: u32, remote: &[Piece], verb: &str, error: std::io::Error) -> Error {
    let bytes: usize = remote.iter().fold(0, |sum, piece| sum.saturating_add(piece.1));
    let address = remote.first().map_or(0, |piece| piece.0);
    let class = match error.raw_os_error() {
        Some(3) => Class::ProcAborted, // ESRCH
        _ => Class::Other,
    };
    let sentence = format!("cannot {verb} {bytes} bytes at {address:#x} of process {pid}: {error}");
    Error::new(class, sentence)
}

/// Two private words of this process, by which peers test whether they can reach its memory. A peer reads the
/// first word and writes the second, at any time.
static PROBE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Permits peers to reach this process's memory where Yama (a kernel setting) would refuse it, and publishes
/// the address of `PROBE`. The process of `rank` calls it once, before its state becomes Running.
pub fn publish(segment: &Segment, rank: LocalRank) {
    let job = segment.job();
    // If this fails, the probe shows it. If the job has no common ancestor, all processes of this user may.
    let _ = match (job.launcher.load(Ordering::Relaxed), job.adopted.load(Ordering::Relaxed)) {
        (0, 0) => Ok(()),
        (launcher, 0) => sys::process::allow_access_by(launcher),
        _ => sys::process::allow_access_by_all(),
    };
    PROBE[0].store(secret(segment), Ordering::Release);
    segment.rank(rank).probe.store(PROBE.as_ptr() as u64, Ordering::Release);
}

/// Tests whether this process, a rank or a proxy, can read and write the private memory of `rank`. Takes 5 to
/// 10 us, so the caller keeps the answer. Returns false if a setting forbids it, or `rank` has not attached
/// to the segment yet.
pub fn reaches(segment: &Segment, rank: LocalRank) -> bool {
    let page = segment.rank(rank);
    let (pid, probe) = (page.pid.load(Ordering::Acquire), page.probe.load(Ordering::Acquire));
    let forbidden = segment.job().cma_forbidden.load(Ordering::Relaxed) != 0;
    // The page is shared memory: the address must not overflow in the sum below.
    if forbidden || pid == 0 || probe == 0 || probe > u64::MAX - 16 {
        return false;
    }
    let mine = secret(segment);
    read_word(pid, probe) == Some(mine)
        && write_word(pid, probe + 8, !mine)
        // Other peers may try at the same time, but they write the same word.
        && read_word(pid, probe + 8) == Some(!mine)
}

fn read_word(pid: u32, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(pid, &[(address as usize, 8)], claim(&mut bytes)).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

fn write_word(pid: u32, address: u64, word: u64) -> bool {
    write(pid, &[(address as usize, 8)], claim(&mut word.to_ne_bytes())).is_ok()
}

/// Returns the number that the first word of every `PROBE` of this job holds. Other memory does not hold it
/// by chance.
fn secret(segment: &Segment) -> u64 {
    segment.job().id.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn claim(bytes: &mut [u8; 8]) -> Span {
    // SAFETY: the array lives on the caller's stack until after the one call that uses the span.
    unsafe { Span::claim(bytes.as_mut_ptr() as usize, 8) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::Shape;

    #[test]
    fn reaches_itself_but_no_stranger() {
        let (segment, _fd) = Segment::create(Shape { ranks: 3, proxies: 0, arena_bytes: 1 }).unwrap();
        assert!(!reaches(&segment, LocalRank(1)), "not born");
        PROBE[1].store(0, Ordering::Relaxed);
        segment.rank(LocalRank(0)).pid.store(sys::process::id(), Ordering::Relaxed);
        publish(&segment, LocalRank(0));
        assert!(reaches(&segment, LocalRank(0)));
        assert_eq!(PROBE[1].load(Ordering::Relaxed), !secret(&segment));
        // A process that lives and is of this user, but has not published the words.
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        segment.rank(LocalRank(1)).pid.store(child.id(), Ordering::Relaxed);
        segment.rank(LocalRank(1)).probe.store(PROBE.as_ptr() as u64, Ordering::Relaxed);
        assert!(!reaches(&segment, LocalRank(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        segment.job().cma_forbidden.store(1, Ordering::Relaxed);
        assert!(!reaches(&segment, LocalRank(0)));
    }

    #[test]
    fn errors_have_facts() {
        let mut bytes = [0; 8];
        let error = read(sys::process::id(), &[(4096, 8)], claim(&mut bytes)).unwrap_err();
        assert!(error.message.contains("8 bytes at 0x1000"), "{error}");
        let error = write(i32::MAX as u32, &[(4096, 8)], claim(&mut bytes)).unwrap_err();
        assert_eq!(error.class, Class::ProcAborted);
    }
}
