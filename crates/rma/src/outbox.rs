// SPDX-License-Identifier: BSD-3-Clause
//! Messages about windows to other hosts. They wait here until the crate `abi` sends them.

use std::collections::VecDeque;
use sys::Block;

/// Messages about windows that wait to be sent, each with the peer to which it goes. The messages to one peer
/// leave in order.
#[derive(Default)]
pub(crate) struct Outbox(VecDeque<(u32, Block)>);

impl Outbox {
    pub fn send(&mut self, peer: u32, message: Block) {
        self.0.push_back((peer, message));
    }

    pub fn next(&mut self) -> Option<(u32, Block)> {
        self.0.pop_front()
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
