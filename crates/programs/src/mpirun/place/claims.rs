// SPDX-License-Identifier: BSD-3-Clause
//! The cores that living jobs have taken, so that the next job takes others.
//!
//! A taken core is an abstract socket that `mpirun` has bound and never uses: the kernel gives a name to one
//! process only, whoever its user is, frees it when that process ends, however it ends, and leaves no file.
//! Jobs see each other within a network namespace.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::cpus::Core;

/// The cores that this job has claimed: at first all that no other job has, after `keep` only those that it
/// uses.
pub struct Claims {
    /// A socket whose name only one job can hold: held while this job chooses, so that no other job sees
    /// cores as taken that are only looked at.
    choosing: Option<UnixDatagram>,
    /// The cores that no other job has, each with the socket that claims it; None where cores need no claim.
    cores: Vec<(Core, Option<UnixDatagram>)>,
}

impl Claims {
    /// Claims all of `cores` that no other job has claimed.
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

    /// Returns a list in which no core is claimed, and all of `cores` count as free (OUTBOARD_CLAIM_CORES=0).
    pub fn none(cores: &[Core]) -> Claims {
        Claims { choosing: None, cores: cores.iter().map(|core| (core.clone(), None)).collect() }
    }

    /// Returns the cores that no other job has.
    pub fn free(&self) -> Vec<Core> {
        self.cores.iter().map(|(core, _)| core.clone()).collect()
    }

    /// Keeps the claims of cores with a cpu in `used`, and of `others` more cores, and frees the rest.
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

/// Binds a socket to an abstract name. Fails if another process has the name; returns None where such sockets
/// are forbidden: then every name counts as free.
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
