// SPDX-License-Identifier: BSD-3-Clause
//! The requests of deferred receives (`p2p/deferred.rs`): receives that have started, but are not in the
//! queue of posted receives yet. Most receives are deferred. The number in such a request's handle is the
//! receive's number in `p2p`. The comm and the source are in the table of this file, so the request needs no
//! entry in the table of requests.
//!
//! Invariant: a receive keeps its entry until its request is completed or freed. Until then `p2p` gives the
//! entry's number to no other receive.

use super::ReceiveSource;
use crate::args::Handle;
use objects::{HandleKind, constants};
use p2p::Ticket;

/// The deferred receives whose requests are not completed or freed, each at its number in `p2p`.
pub struct DeferredReceives([DeferredReceive; p2p::DEFERRED_MAX]);

// Handles and tickets have the same range of numbers.
const _: () = assert!(objects::handle::NUMBERS as u64 == p2p::NUMBERS);

/// A receive that has started, but is not in the queue of posted receives yet. Its source is one rank of a
/// comm.
#[derive(Clone, Copy)]
pub struct DeferredReceive {
    handle: Handle,
    /// The comm whose error handler gets the error of this receive.
    pub comm: Handle,
    peer: u32,
    /// The rank of the receive's source in `comm`.
    pub rank: i32,
}

impl DeferredReceive {
    /// Returns the receive's ticket, its number in `p2p`.
    #[inline]
    pub fn ticket(&self) -> Ticket {
        Ticket::deferred(self.number().into())
    }

    #[inline]
    fn number(&self) -> u32 {
        self.handle.number(HandleKind::Request).expect("a deferred receive has a number")
    }

    /// Returns the receive's source (the peer, and its rank in the comm) as a `ReceiveSource`.
    pub fn source(&self) -> ReceiveSource {
        ReceiveSource::Peer { peer: self.peer, rank: self.rank }
    }
}

impl DeferredReceives {
    /// Makes an empty table.
    pub const fn new() -> DeferredReceives {
        DeferredReceives(
            [DeferredReceive {
                handle: constants::REQUEST_NULL,
                comm: constants::COMM_NULL,
                peer: 0,
                rank: 0,
            }; _],
        )
    }

    /// Adds a receive that `p2p` has deferred under the number `number`. Returns the handle of the receive's
    /// request.
    #[inline(always)]
    pub fn enter(&mut self, number: u64, comm: Handle, peer: u32, rank: i32) -> Handle {
        let handle = Handle::numbered(HandleKind::Request, number as u32);
        self.0[number as usize % p2p::DEFERRED_MAX] = DeferredReceive { handle, comm, peer, rank };
        handle
    }

    /// Returns the deferred receive of the request `handle`, or None if this is not the request of a deferred
    /// receive.
    #[inline(always)]
    pub fn get(&self, handle: Handle) -> Option<&DeferredReceive> {
        let receive = &self.0[handle.number(HandleKind::Request)? as usize % p2p::DEFERRED_MAX];
        (receive.handle == handle).then_some(receive)
    }

    /// Removes a receive from the table because its request is completed or freed.
    #[inline(always)]
    pub fn remove(&mut self, receive: DeferredReceive) {
        self.0[receive.number() as usize % p2p::DEFERRED_MAX].handle = constants::REQUEST_NULL;
    }

    /// Returns the handles of the requests of all deferred receives.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        self.0.iter().map(|receive| receive.handle).filter(|handle| *handle != constants::REQUEST_NULL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_receive_only() {
        let mut receives = DeferredReceives::new();
        let places = p2p::DEFERRED_MAX as u64;
        let [early, late] = [p2p::NUMBERS - 1, p2p::NUMBERS]
            .map(|number| receives.enter(number, constants::COMM_SELF, number as u32, 7));
        for (handle, number) in [(early, p2p::NUMBERS - 1), (late, 0)] {
            let receive = receives.get(handle).unwrap();
            assert_eq!((receive.ticket(), receive.rank), (Ticket::deferred(number), 7));
        }
        assert_eq!(receives.handles().collect::<Vec<_>>(), [late, early]);
        let receive = *receives.get(early).unwrap();
        receives.remove(receive);
        let again = receives.enter(p2p::NUMBERS + places, constants::COMM_SELF, 0, 3);
        assert!(receives.get(early).is_none() && receives.get(late).is_none());
        assert_eq!(receives.get(again).map(|receive| receive.rank), Some(3));
        assert!(
            [constants::REQUEST_NULL, constants::COMM_SELF, Handle(again.0 | 1 << 32)]
                .into_iter()
                .all(|other| receives.get(other).is_none())
        );
    }
}
