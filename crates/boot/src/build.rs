// SPDX-License-Identifier: BSD-3-Clause
//! The build of the library, checked when a process attaches the job's memory: processes of different builds
//! would misread each other's records.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use error::{Class, Result, fail};
use settings::Settings;
use transport::shm::{Segment, Shape};

/// The number that names this build. `build.rs`, beside the folder `src`, computes it from the sources of the
/// crates that keep records in shared memory.
pub const BUILD: u64 = {
    match u64::from_str_radix(env!("OUTBOARD_BUILD"), 10) {
        Ok(build) => build,
        Err(_) => panic!("OUTBOARD_BUILD is no number"),
    }
};

/// Returns the sizes of a new job's memory on this host. Prints a warning if `ulimit -f` leaves ranks less
/// memory than the machine has, unless OUTBOARD_ARENA_BYTES sets the size. `spawned`: how many ranks may be
/// spawned.
pub fn shape(settings: &Settings, ranks: u32, spawned: u32, proxies: u32) -> Shape {
    let sparse = Shape::sparse(ranks, spawned, proxies);
    if let Some(arena_bytes) = settings.arena_bytes {
        return Shape { arena_bytes, ..sparse };
    }
    if sparse.is_cut() {
        eprintln!(
            "outboard: `ulimit -f` leaves each rank an arena of {} bytes; raise it if MPI_Win_allocate or long collectives need more",
            sparse.arena_bytes
        );
    }
    sparse
}

/// Makes the memory of a new job, and writes the number of this build and the text `settings` into it. The
/// text has the settings that only `mpirun` and the proxies read (`settings::agree::LAUNCHER`).
pub fn create(shape: Shape, settings: &str) -> Result<(Segment, OwnedFd)> {
    let (segment, fd) = Segment::create(shape)?;
    segment.job().build.store(BUILD, Ordering::Relaxed);
    segment.job().launched.set(settings);
    Ok((segment, fd))
}

/// Attaches the memory of a job that another process has made. Fails if that process is of another build.
pub fn attach(fd: OwnedFd) -> Result<Segment> {
    let segment = Segment::attach(fd)?;
    let theirs = segment.job().build.load(Ordering::Relaxed);
    if theirs != BUILD {
        fail!(
            Class::Other,
            "the job's memory was made by build {theirs:016x} of Outboard, and this is build {BUILD:016x}: mpirun, library and proxy must be of one build"
        );
    }
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a job of another build is refused in a sentence that says so.
    #[test]
    fn other_builds_are_refused() {
        let shape = Shape { ranks: 1, proxies: 0, arena_bytes: 1 << 20 };
        assert!(attach(create(shape, "").unwrap().1).is_ok());
        let (other, fd) = create(shape, "").unwrap();
        other.job().build.store(0x77, Ordering::Relaxed);
        let sentence = attach(fd).unwrap_err().to_string();
        assert!(
            sentence.contains("build 0000000000000077") && sentence.contains("must be of one build"),
            "{sentence}"
        );
    }
}
