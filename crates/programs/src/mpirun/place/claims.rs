// SPDX-License-Identifier: BSD-3-Clause
//! The cores that running jobs have claimed, so that the next job takes others.
//!
//! To claim a core, `mpirun` binds an abstract socket, on which nothing is ever sent. The kernel lets one
//! process have a name, whatever its user, frees the name when the process ends in any way, and leaves no
//! file. Jobs see each other's claims within a network namespace.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::cpus::Core;

/// The cores that this job has claimed. `take` claims all cores that no other job has; `keep` frees those
/// that this job will not use.
pub struct Claims {
    /// The socket whose name only one job can hold, from `take` to `keep`; None before and after. Other jobs
    /// wait a little for it, because this job has claimed more cores than it will use.
    choosing: Option<UnixDatagram>,
    /// The cores that no other job has, each with the socket by which this job claims it. The socket is None
    /// if claims are off or not possible.
    cores: Vec<(Core, Option<UnixDatagram>)>,
}

impl Claims {
    /// Claims all of `cores` that no other job has claimed. `keep` later frees the ones that this job does
    /// not use.
    pub fn take(cores: &[Core]) -> Claims {
        let mut choosing = bind("choosing");
        // Choosing takes microseconds; a launcher that was stopped meanwhile is not waited for.
        for _ in 0..50 {
            if choosing.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            choosing = bind("choosing");
        }
        let free = |core: &Core| Some((core.clone(), bind(&format!("core-{}", core[0])).ok()?));
        Claims { choosing: choosing.ok().flatten(), cores: cores.iter().filter_map(free).collect() }
    }

    /// Returns `Claims` without any claim, in which all of `cores` count as free (OUTBOARD_CLAIM_CORES=0).
    pub fn none(cores: &[Core]) -> Claims {
        Claims { choosing: None, cores: cores.iter().map(|core| (core.clone(), None)).collect() }
    }

    /// Returns the cores that no other job has claimed.
    pub fn free(&self) -> Vec<Core> {
        self.cores.iter().map(|(core, _)| core.clone()).collect()
    }

    /// Keeps the claims of the cores that have a cpu in `used` and of `others` further cores. Frees all other
    /// cores for the next job.
    pub fn keep(&mut self, used: &[usize], mut others: usize) {
        self.cores.retain(|(core, _)| {
            let is_used = core.iter().any(|cpu| used.contains(cpu));
            let is_other = !is_used && others > 0;
            others -= usize::from(is_other);
            is_used || is_other
        });
        self.choosing = None;
    }
}

/// Binds a socket to the abstract name `outboard-NAME`. Fails if another socket has the name. Returns None
/// where such sockets are forbidden: then every core counts as free.
fn bind(name: &str) -> Result<Option<UnixDatagram>, ()> {
    let address = SocketAddr::from_abstract_name(format!("outboard-{name}"));
    match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(()),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_taken_once_and_freed_with_its_job() {
        // No machine has such cpus.
        let cores: Vec<Core> = vec![vec![900_001], vec![900_002], vec![900_003, 900_004]];
        let mut first = Claims::take(&cores);
        assert_eq!(first.free(), cores);
        first.keep(&[900_004], 1);
        let mut second = Claims::take(&cores);
        assert_eq!(second.free(), [[900_002]]);
        second.keep(&[], 0);
        assert_eq!(second.free().len(), 0);
        assert_eq!(Claims::none(&cores).free(), cores);
        drop(first);
        assert_eq!(Claims::take(&cores).free(), cores);
    }
}
