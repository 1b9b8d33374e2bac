// SPDX-License-Identifier: BSD-3-Clause
//! Finds ranks whose program uses the library of another MPI. Such a process never joins the job: it would
//! run as a job of one rank, without a message to the user.
//!
//! A thread looks into the memory map of the first process of each program, and of the process's descendants
//! (a script starts the program), until the process joins the job or ends. The thread looks often at first,
//! since an MPI library is loaded early.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use transport::shm::{Segment, State};

use super::start::beside_us;
use crate::mpirun::wire::uplink::Uplink;

/// The pause before `watch` reads the memory maps of ranks' processes for the first time.
const FIRST: Duration = Duration::from_millis(1);
/// The longest pause between two times at which `watch` reads the memory maps of ranks' processes.
const LONGEST: Duration = Duration::from_millis(500);
/// The factor by which `watch` makes each pause longer than the one before, up to `LONGEST`.
const GROWTH: f64 = 1.3;

/// A rank's process that has not joined the job yet, so that it may use the library of another MPI.
pub struct Suspect {
    /// The rank's process number in the segment.
    pub rank: u32,
    pub pid: i32,
    /// The program's name on the command line.
    pub program: String,
}

/// Starts a thread that reads the memory maps of `suspects` until each has joined the job or ended. If the
/// thread finds the library of another MPI, it tells the user and ends. `size`: how many ranks the world of
/// the suspects has.
pub fn watch(
    segment: Segment,
    mut suspects: Vec<Suspect>,
    size: u32,
    uplink: Arc<dyn Uplink>,
) -> std::io::Result<()> {
    // One process of any MPI is a job of one rank.
    if size < 2 {
        return Ok(());
    }
    let own = beside_us("../lib");
    let look = move || {
        let mut pause = FIRST;
        while !suspects.is_empty() {
            std::thread::sleep(pause);
            pause = pause.mul_f64(GROWTH).min(LONGEST);
            suspects.retain(|suspect| {
                segment.local(suspect.rank).map(|rank| segment.rank(rank).state()) == Some(State::Unborn)
                    && Path::new(&format!("/proc/{}", suspect.pid)).exists()
            });
            for suspect in &suspects {
                let found = with_descendants(suspect.pid).into_iter().find_map(|pid| library(pid, &own));
                // The process may have joined meanwhile, and have loaded the other library for a reason of
                // its own.
                if let Some(library) = found
                    && segment.local(suspect.rank).map(|rank| segment.rank(rank).state())
                        == Some(State::Unborn)
                {
                    return uplink.say(&sentence(&suspect.program, &library, &own, size));
                }
            }
        }
    };
    std::thread::Builder::new().name("foreign".into()).spawn(look).map(|_| ())
}

/// Returns `pid` and the pids of this process's descendants, about 64 at most.
fn with_descendants(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut at = 0;
    // The limit holds if a program makes processes as fast as they are counted.
    while at < all.len() && all.len() < 64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", all[at])).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let children: Vec<i32> = lists
            .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.extend(children);
        at += 1;
    }
    all
}

/// Returns the path of the first MPI library that a process has mapped into its memory. None if it has mapped
/// no MPI library, or if one of them lies in `own`, the folder of our library.
fn library(pid: i32, own: &Path) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let own = std::fs::canonicalize(own).unwrap_or_else(|_| own.to_path_buf());
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let mut libraries = paths.filter(|path| is_mpi(path)).peekable();
    // A process that has mapped ours, too, may use ours.
    let first = libraries.peek()?.to_path_buf();
    libraries.all(|path| path.parent() != Some(&own)).then_some(first)
}

/// Whether a file has the name of an MPI library, such as `libmpi.so.12`.
fn is_mpi(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_cray.so", "libmpi_ibm.so"]
        .iter()
        .any(|start| name.starts_with(start))
}

fn sentence(program: &str, library: &Path, own: &Path, size: u32) -> String {
    let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ours = match name {
        _ if name.starts_with("libmpi_abi.so") => Some("libmpi_abi.so.1"),
        _ if name.starts_with("libmpi.so.12") || name.starts_with("libmpich.so.12") => Some("libmpi.so.12"),
        _ => None,
    };
    let what_to_do = match ours {
        Some(ours) => format!(
            "It can run over ours: an RPATH or a full path chose that library, so write -genv LD_PRELOAD {path}, or, for \
             mpi4py, -genv MPI4PY_LIBMPI {path} (docs/running.md)",
            path = own.join(ours).display()
        ),
        None => format!(
            "Compile it with {}, or start it with the mpirun of that MPI",
            own.with_file_name("bin").join("mpicc").display()
        ),
    };
    format!(
        "{program} has loaded {}, the library of another MPI, which knows nothing of this job: its {size} processes are {size} \
         jobs of one rank each. {what_to_do}",
        library.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_advice() {
        assert!(
            is_mpi(Path::new("/usr/lib/libmpi.so.40.30.4")) && is_mpi(Path::new("/x/libmpich.so.12.2.2"))
        );
        assert!(
            !is_mpi(Path::new("/usr/lib/libmpichfort.so.12")) && !is_mpi(Path::new("/usr/lib/libm.so.6"))
        );
        let own = Path::new("/opt/outboard/lib");
        let open_mpi = sentence("./a.out", Path::new("/usr/lib/libmpi.so.40"), own, 4);
        assert!(
            open_mpi.contains("4 processes are 4 jobs") && open_mpi.contains("/opt/outboard/bin/mpicc"),
            "{open_mpi}"
        );
        let mpich = sentence("./a.out", Path::new("/usr/lib/libmpich.so.12"), own, 4);
        assert!(mpich.contains("LD_PRELOAD /opt/outboard/lib/libmpi.so.12"), "{mpich}");
    }

    #[test]
    fn this_process_has_no_mpi() {
        let pid = std::process::id() as i32;
        assert!(with_descendants(pid).contains(&pid));
        assert_eq!(library(pid, Path::new("/nowhere")), None);
    }
}
