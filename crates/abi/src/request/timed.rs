// SPDX-License-Identifier: BSD-3-Clause
//! A send or a receive that is timed, for OUTBOARD_STATS and OUTBOARD_TRACE.

use super::{Completion, Operator, ReceiveSource, Work};
use coll::Coll;
use p2p::P2p;
use slab::Slab;
use std::sync::Arc;
use telemetry::{ANY_PEER, Carried, Choice, TimedOperation};

/// One end of a message, as far as it is known when the message starts.
#[derive(Clone)]
pub struct MessageEnd {
    pub(crate) sends: bool,
    pub(crate) context: u64,
    pub(crate) source: ReceiveSource,
    pub(crate) tag: i32,
    pub(crate) bytes: u64,
}

impl MessageEnd {
    /// Returns the receiver's end of a message that a matched probe took. The sender is in `group`.
    pub(crate) fn matched(context: u64, group: &Arc<objects::Group>, probe: p2p::Probe) -> MessageEnd {
        let source = ReceiveSource::Any(group.clone());
        MessageEnd { sends: false, context, source, tag: probe.tag, bytes: probe.bytes }
    }
}

/// A send or a receive that is timed.
pub struct Timed {
    pub(crate) work: Work,
    end: MessageEnd,
    /// The record, until the message is over.
    operation: Option<Box<TimedOperation>>,
}

impl Timed {
    /// Makes work under way timed: `operation` is its record, which ends with the work.
    pub(crate) fn new(work: Work, end: MessageEnd, operation: Option<Box<TimedOperation>>) -> Timed {
        Timed { work, end, operation }
    }

    /// Advances the send or receive. Returns its completion once it is over, and ends its record.
    pub(crate) fn poll(
        &mut self,
        p2p: &mut P2p,
        coll: &mut Coll,
        operators: &mut Slab<Operator>,
    ) -> Option<Completion> {
        if let Some(operation) = &mut self.operation {
            operation.look();
        }
        let completion = self.work.poll(p2p, coll, operators)?;
        self.over(p2p, &completion);
        Some(completion)
    }

    /// Ends the record of the message, which is over with this completion.
    pub(crate) fn over(&mut self, p2p: &mut P2p, completion: &Completion) {
        let Some(operation) = self.operation.take() else { return };
        let status = &completion.status;
        if status.is_cancelled() {
            return operation.cancelled();
        }
        let MessageEnd { sends, source, tag, bytes, .. } = &self.end;
        let (peer, tag, bytes) = match (sends, source) {
            (false, ReceiveSource::Any(group)) => {
                let peer = usize::try_from(status.source).ok().and_then(|rank| group.peers.get(rank));
                (peer.copied().unwrap_or(ANY_PEER), status.tag, status.bytes())
            }
            (false, source) => (source.peer().unwrap_or(ANY_PEER), status.tag, status.bytes()),
            (true, source) => (source.peer().unwrap_or(ANY_PEER), *tag, *bytes),
        };
        let by_proxy = match &self.work {
            Work::Long(long) => p2p.carried(long.ticket).filter(|carried| carried.choice.is_proxy()),
            Work::Partitioned(parts) => parts.carried(),
            _ => None,
        };
        let piece = if let Work::Partitioned(parts) = &self.work { parts.piece_bytes() } else { bytes };
        let by_rank = Carried { choice: choice(p2p, peer, piece), ..Carried::default() };
        operation.passed(peer, tag, bytes, by_proxy.unwrap_or(by_rank));
    }
}

/// Returns the protocol that p2p uses for a message of so many bytes.
pub(crate) fn choice(p2p: &mut P2p, peer: u32, bytes: u64) -> Choice {
    if p2p.is_long(peer, bytes as usize).is_ok_and(|is_long| is_long) {
        Choice::Rendezvous
    } else {
        Choice::Eager
    }
}
