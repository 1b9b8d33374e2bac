//! How an instance gets to the rank's proxy: by its place in a ring, if that runs on this host, else by a
//! note and keys (`lending.rs`).

use super::Executor;
use crate::block::InstanceBlock;
use crate::engine::Execution;
use crate::peer::Peer;
use crate::record::{self, Lookup};
use crate::{Binding, Start};
use telemetry::{Counter, Event};
use transport::lend::Lent;

/// Among more peers, one certainly has not started yet: a look at each would cost more than a yield.
const PEERS_ASKED: usize = 8;

impl Executor {
    /// Whether some peer has not started the operation yet.
    fn is_early(&self, run: &Execution) -> bool {
        run.peers.len() > PEERS_ASKED || run.peers.iter().any(|&peer| self.is_absent(run, peer))
    }

    /// Whether a peer has not started the operation yet, or has already ended it.
    pub(super) fn is_absent(&self, run: &Execution, peer: Peer) -> bool {
        // What ranks on other nodes have started is not known.
        let Peer::Local(peer) = peer else { return false };
        if peer == self.rank {
            return false;
        }
        let directory = &self.reach.segment.rank(peer).directory[..];
        let found =
            self.reach.arena(peer).map(|arena| record::find(directory, arena, 0, run.context, run.sequence));
        !matches!(found, Ok(Ok(Lookup::Here(..))))
    }

    /// Hands an instance to the proxy; false if the ring is full.
    pub(super) fn launch(
        &mut self,
        program: usize,
        block: &InstanceBlock,
        start: &Start,
        lent: &mut Vec<Lent>,
    ) -> bool {
        let segment = &self.reach.segment;
        let Some(proxy) = segment.proxy_of(self.rank) else { return false };
        let pushed = match self.launch_lent(program, block) {
            Some(ranges) => {
                *lent = ranges;
                true
            }
            None if self.reach.segment.has_dpu() => false,
            None => self.reach.segment.rank(self.rank).launches.push(block.run.record.at()),
        };
        let segment = &self.reach.segment;
        if !pushed {
            self.counters.refused += 1;
            self.count(Counter::OffloadRefused, 1);
            return false;
        }
        segment.proxy(proxy).bell.ring();
        // A rank that shares this core may still have to start its part of the operation. Without a yield it
        // would not do so before this rank's computation ends, and nothing would overlap.
        // The receiver of a message mostly starts a send next.
        let is_receive = start.message && matches!(start.input, Binding::None);
        if !segment.job().may_spin() && !is_receive && self.is_early(&block.run) {
            sys::cpu::give_way();
        }
        if self.away.is_empty()
            && let Some(watch) = &mut self.watch
        {
            watch.begin();
        }
        let (context, sequence) = (block.run.context, block.run.sequence);
        telemetry::event(Event::HandOver { proxy, context, sequence });
        self.counters.offloaded += 1;
        self.count(Counter::Offloaded, 1);
        true
    }
}
