// SPDX-License-Identifier: BSD-3-Clause
//! A rank's connection to a launcher other than `mpirun` (Hydra, Slurm, PRRTE, Flux). The launcher tells the
//! rank's number, how many ranks there are, and which ranks share a host. It keeps a store of keys and values
//! with a fence, through which ranks find each other.
//!
//! Two protocols provide this. PMI-1 is a protocol of lines over an inherited socket (`PMI_FD`). It is
//! written here, because it is small and no library of it is available everywhere. Hydra, Flux and `srun
//! --mpi=pmi2` all speak it, so PMI-2 is not needed. PMIx is libpmix, loaded at run time.
//!
//! Invariants: data from a launcher is checked before it is used; a value of the store may have any length
//! and any bytes, even where the protocol carries only short text.
//!
//! Read next: `pmi1.rs`, `mapping.rs`, `pmix.rs`.

mod mapping;
mod pmi1;
mod pmix;
mod wire;

use error::Result;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// Calls the function `$name` of the client's connection to the launcher, by PMI-1 or by PMIx.
macro_rules! ask {
    ($client:ident.$name:ident($($argument:expr),*)) => {
        match &$client.protocol {
            Protocol::Pmi1(connection) => connection.$name($($argument),*),
            Protocol::Pmix(connection) => connection.$name($($argument),*),
        }
    };
}

/// Whether environment variables name a launcher that speaks PMI-1 or PMIx.
pub fn is_offered() -> bool {
    pmi1::Connection::is_offered() || pmix::Connection::is_offered()
}

/// This process's connection to the launcher that started it.
#[derive(Debug)]
pub struct Client {
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Pmi1(pmi1::Connection),
    Pmix(Box<pmix::Connection>),
}

impl Client {
    /// Registers with the launcher, and returns the connection. None if environment variables name no
    /// launcher. Called once per process. Errors (MPI_ERR_OTHER): the launcher cannot be reached, or its data
    /// make no sense.
    pub fn connect() -> Result<Option<Client>> {
        let protocol = match pmi1::Connection::open()? {
            Some(connection) => Some(Protocol::Pmi1(connection)),
            None => pmix::Connection::open()?.map(Box::new).map(Protocol::Pmix),
        };
        Ok(protocol.map(|protocol| Client { protocol }))
    }

    /// Returns this process's rank in the launcher's job.
    pub fn rank(&self) -> u32 {
        ask!(self.rank())
    }

    /// Returns how many ranks the launcher's job has, at least 1.
    pub fn size(&self) -> u32 {
        ask!(self.size())
    }

    /// Returns the number of this process's program among the programs that the launcher started together
    /// (MPI_APPNUM).
    pub fn application(&self) -> Result<u32> {
        ask!(self.application())
    }

    /// Returns the host of each rank; hosts are numbered in the order of their lowest ranks. `own` is a text
    /// that is different on each host, used if the launcher does not say which ranks share a host. All ranks
    /// must call this.
    pub fn nodes(&self, own: &str) -> Result<Vec<u32>> {
        let hosts = match ask!(self.mapping())? {
            Some(nodes) => nodes,
            None => {
                self.put("host", own.as_bytes())?;
                self.fence()?;
                (0..self.size())
                    .map(|rank| self.get(rank, "host"))
                    .collect::<Result<Vec<_>>>()
                    .map(renumber)?
            }
        };
        Ok(renumber(hosts))
    }

    /// Stores a value under a key of this rank. Other ranks can get it after the next fence.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        ask!(self.put(key, value))
    }

    /// Waits until all ranks have called this.
    pub fn fence(&self) -> Result<()> {
        ask!(self.fence())
    }

    /// Returns the value that `rank` has stored under a key before the last fence. Errors (MPI_ERR_OTHER):
    /// `rank` has stored no such value.
    pub fn get(&self, rank: u32, key: &str) -> Result<Vec<u8>> {
        ask!(self.get(rank, key))
    }

    /// Makes the launcher end the whole job with this exit code. Waits for no answer, and may be called
    /// during a fence.
    pub fn abort(&self, code: i32) {
        ask!(self.abort(code));
    }

    /// Tells the launcher that this process may end from now on. Waits for fences of other threads of this
    /// process.
    pub fn finalize(&self) {
        ask!(self.finalize());
    }

    /// Returns a descriptor that hangs up when the launcher has ended.
    pub fn lifeline(&self) -> BorrowedFd<'_> {
        ask!(self.lifeline())
    }
}

/// Returns a number for each of `things`. Equal things get the same number; new ones get 0, 1, 2, ... in
/// turn.
fn renumber<T: std::hash::Hash + Eq>(things: Vec<T>) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let mut number = |thing| {
        let next = numbers.len() as u32;
        *numbers.entry(thing).or_insert(next)
    };
    things.into_iter().map(&mut number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_in_the_order_of_their_first_ranks() {
        assert_eq!(renumber(vec!["b", "a", "b", "c", "a"]), [0, 1, 0, 2, 1]);
        assert_eq!(renumber(vec![7, 3, 3]), [0, 1, 1]);
    }
}
