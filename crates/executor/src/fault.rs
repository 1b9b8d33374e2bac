// SPDX-License-Identifier: BSD-3-Clause
//! What can go wrong while an instance (a started schedule) is driven. A fault is encoded as four words, by
//! which a proxy reports it to its rank.

use error::{Class, Error};
use std::io;
use transport::shm::unmapped;

/// Why an instance (a started schedule) or a step of it fails. Ranks are named by their numbers in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Rank `peer` sends `sent` bytes where the receive expects `expected` bytes: sender and receiver passed
    /// different counts to MPI.
    Truncated { peer: u32, sent: u64, expected: u64 },
    /// In a copy within the rank, the source has `from` bytes and the target `into` bytes, which are not
    /// equal.
    Unequal { from: u64, into: u64 },
    /// The words that `peer` wrote to shared memory are none that a working rank writes.
    Corrupt { peer: u32, what: Corruption },
    /// Rank `by`, or a proxy if `by` is `u32::MAX`, cannot map `bytes` bytes of `peer`'s memory. `code` is
    /// the system's error.
    Unmapped { by: u32, peer: u32, bytes: u64, code: i32 },
    /// The arena of `peer` has no room for a copy of `bytes` bytes, which a receiver cannot read in private
    /// memory.
    Full { peer: u32, bytes: u64 },
    /// The kernel refused access to the private memory of `peer`, with the error `code`.
    Unreachable { peer: u32, code: i32 },
    /// A message from `peer`, on another host, is longer than the receive.
    Longer { peer: u32, expected: u64 },
    /// The connection to `peer` is lost.
    Lost { peer: u32 },
}

/// What is wrong with the words that a rank wrote to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Corruption {
    /// An offset points outside the arena.
    Offset = 1,
    /// The words that should encode a schedule encode none.
    Program = 2,
    /// The parameters of a start do not fit its schedule.
    Parameters = 3,
    /// A chain of records in the rank's directory does not end.
    Chain = 4,
    /// The sender's table of sends has none that belongs to the receive.
    Edge = 5,
    /// The count of a step's done or published bytes does not fit the step's length.
    Progress = 6,
}

impl Fault {
    /// Encodes the fault as four words, of which the first is not 0.
    pub fn words(self) -> [u64; 4] {
        match self {
            Fault::Truncated { peer, sent, expected } => [1, peer.into(), sent, expected],
            Fault::Unequal { from, into } => [2, 0, from, into],
            Fault::Corrupt { peer, what } => [3, peer.into(), what as u64, 0],
            Fault::Unreachable { peer, code } => [4, peer.into(), code as u32 as u64, 0],
            Fault::Longer { peer, expected } => [5, peer.into(), expected, 0],
            Fault::Lost { peer } => [6, peer.into(), 0, 0],
            Fault::Unmapped { by, peer, bytes, code } => {
                [7, u64::from(by) << 32 | u64::from(peer), bytes, code as u32 as u64]
            }
            Fault::Full { peer, bytes } => [8, peer.into(), bytes, 0],
        }
    }

    /// Decodes four words that `words` has made. Returns None if the first word is 0: no fault.
    pub fn from_words(words: [u64; 4]) -> Option<Fault> {
        let [kind, ranks, a, b] = words;
        let (by, peer) = ((ranks >> 32) as u32, ranks as u32);
        Some(match kind {
            0 => return None,
            1 => Fault::Truncated { peer, sent: a, expected: b },
            2 => Fault::Unequal { from: a, into: b },
            4 => Fault::Unreachable { peer, code: a as i32 },
            5 => Fault::Longer { peer, expected: a },
            6 => Fault::Lost { peer },
            7 => Fault::Unmapped { by, peer, bytes: a, code: b as i32 },
            8 => Fault::Full { peer, bytes: a },
            _ => Fault::Corrupt { peer, what: Corruption::from_code(a) },
        })
    }

    /// Makes the fault for the case that `by` cannot get `bytes` bytes of `peer`'s arena: the system does not
    /// map them, or they do not exist.
    pub fn of_arena(by: u32, peer: u32, bytes: u64, error: &Error) -> Fault {
        match error.errno {
            Some(code) => Fault::Unmapped { by, peer, bytes, code },
            None => Fault::Corrupt { peer, what: Corruption::Offset },
        }
    }

    /// Whether the fault hinders only this driver, while another driver may carry the operation out. If a
    /// proxy has such a fault, the rank takes over the operation.
    pub fn is_of_driver(self) -> bool {
        matches!(self, Fault::Unreachable { .. } | Fault::Unmapped { .. })
    }

    /// Whether this fault spoils bytes that the rank would pass on, so that the rank's further sends fail,
    /// too.
    pub fn voids(self) -> bool {
        matches!(self, Fault::Unmapped { .. } | Fault::Full { .. })
    }

    /// Whether this fault says that the kernel refuses all private memory of `peer`. If so, `peer` can copy
    /// the bytes of its sends to its arena, where others can read them.
    pub fn refuses(self, peer: u32) -> bool {
        // EFAULT means memory of a device, or no memory.
        matches!(self, Fault::Unreachable { peer: whose, code } if whose == peer && code != 14)
    }

    /// Makes the MPI error that rank `me` of the job returns for this fault.
    pub fn error(self, me: u32) -> Error {
        match self {
            Fault::Truncated { peer, sent, expected } => Error::new(
                Class::Truncate,
                format!("rank {peer} contributes {sent} bytes where rank {me} expects {expected}"),
            ),
            Fault::Unequal { from, into } => Error::new(
                Class::Truncate,
                format!("rank {me} contributes {from} bytes to itself where it expects {into}"),
            ),
            Fault::Corrupt { peer, what } => Error::new(
                Class::Intern,
                format!("the shared record of rank {peer} is corrupt: {}", what.phrase()),
            ),
            Fault::Longer { peer, expected } => Error::new(
                Class::Truncate,
                format!("rank {peer} contributes more than the {expected} bytes that rank {me} expects"),
            ),
            Fault::Lost { peer } => {
                Error::new(Class::ProcAborted, format!("the connection of rank {me} to rank {peer} is lost"))
            }
            Fault::Unmapped { by, peer, bytes, code } => {
                let ((class, remedy), error) = (unmapped(code), io::Error::from_raw_os_error(code));
                let who = if by == u32::MAX { "a proxy".into() } else { format!("rank {by}") };
                let sentence =
                    format!("{who} cannot map {bytes} bytes of rank {peer}'s memory: {error}; {remedy}");
                Error::new(class, sentence).with_errno(Some(code))
            }
            Fault::Full { peer, bytes } => Error::new(
                Class::NoMem,
                format!(
                    "rank {peer} has no {bytes} bytes left in its arena for what another rank may not read in its memory (OUTBOARD_ARENA_BYTES)"
                ),
            ),
            Fault::Unreachable { peer, code } => Error::new(
                Class::Buffer,
                format!(
                    "memory of rank {peer} cannot be copied: {}; OUTBOARD_CMA=off moves everything through shared memory",
                    io::Error::from_raw_os_error(code)
                ),
            ),
        }
    }
}

impl Corruption {
    fn from_code(code: u64) -> Corruption {
        match code {
            2 => Corruption::Program,
            3 => Corruption::Parameters,
            4 => Corruption::Chain,
            5 => Corruption::Edge,
            6 => Corruption::Progress,
            _ => Corruption::Offset,
        }
    }

    fn phrase(self) -> &'static str {
        match self {
            Corruption::Offset => "an offset leads out of its arena",
            Corruption::Program => "its program is not one",
            Corruption::Parameters => "its parameters contradict its program",
            Corruption::Chain => "its directory has no end",
            Corruption::Edge => {
                "its operation has no such message; did the ranks call different collectives?"
            }
            Corruption::Progress => "the bytes it offers are not as many as it said; its own error tells why",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_as_words() {
        for fault in [
            Fault::Truncated { peer: 3, sent: 1 << 40, expected: 7 },
            Fault::Unequal { from: 1, into: 2 },
            Fault::Corrupt { peer: 9, what: Corruption::Edge },
            Fault::Unreachable { peer: 1, code: 14 },
            Fault::Longer { peer: 2, expected: 1 << 33 },
            Fault::Lost { peer: 4 },
            Fault::Unmapped { by: 7, peer: 5, bytes: 1 << 40, code: 12 },
            Fault::Full { peer: 4095, bytes: 1 << 40 },
        ] {
            assert_eq!(Fault::from_words(fault.words()), Some(fault));
        }
        assert_eq!(Fault::from_words([0; 4]), None);
        assert!(Fault::Truncated { peer: 3, sent: 80, expected: 64 }.error(1).message.contains("80 bytes"));
    }
}
