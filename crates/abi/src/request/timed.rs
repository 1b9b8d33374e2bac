// SPDX-License-Identifier: BSD-3-Clause
//! Sends and receives with a record for OUTBOARD_STATS and OUTBOARD_TRACE.

use super::{Completion, Operator, ReceiveSource, Work};
use coll::Coll;
use p2p::P2p;
use slab::Slab;
use std::sync::Arc;
use telemetry::{ANY_PEER, Carried, Choice, TimedOperation};

/// The facts about a message that its sender or its receiver has when the send or receive starts.
#[derive(Clone)]
pub struct MessageEnd {
    pub(crate) sends: bool,
    pub(crate) context: u64,
    pub(crate) source: ReceiveSource,
    pub(crate) tag: i32,
    pub(crate) bytes: u64,
}

impl MessageEnd {
    /// Describes a message that MPI_Mprobe or MPI_Improbe has matched. The receive of the message uses the
    /// description. The sender is in `group`.
    pub(crate) fn matched(context: u64, group: &Arc<objects::Group>, probe: p2p::Probe) -> MessageEnd {
        let source = ReceiveSource::Any(group.clone());
        MessageEnd { sends: false, context, source, tag: probe.tag, bytes: probe.bytes }
    }
}

/// A send or a receive under way, with its record for the statistics and the trace.
pub struct Timed {
    pub(crate) work: Work,
    end: MessageEnd,
    /// The message's record for the statistics and the trace. None once the message is over, or if it is not
    /// recorded.
    operation: Option<Box<TimedOperation>>,
}

impl Timed {
    /// Joins a send or receive under way with its record for the statistics and the trace. The record ends
    /// when `work` is over.
    pub(crate) fn new(work: Work, end: MessageEnd, operation: Option<Box<TimedOperation>>) -> Timed {
        Timed { work, end, operation }
    }

    /// Advances the send or receive. When it is over, ends its record for statistics and trace, and returns
    /// how it ended. Returns None before.
    pub(crate) fn poll(
        &mut self,
        p2p: &mut P2p,
        coll: &mut Coll,
        operators: &mut Slab<Operator>,
    ) -> Option<Completion> {
        if let Some(operation) = &mut self.operation {
            operation.note_progress();
        }
        let completion = self.work.poll(p2p, coll, operators)?;
        self.over(p2p, &completion);
        Some(completion)
    }

    /// Ends the message's record for statistics and trace. The message has ended as `completion` says.
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
        operation.end_message(peer, tag, bytes, by_proxy.unwrap_or(by_rank));
    }
}

/// Returns what the record of a message says about its protocol: whether `p2p` sends `bytes` bytes to `peer`
/// eagerly or by rendezvous.
pub(crate) fn choice(p2p: &mut P2p, peer: u32, bytes: u64) -> Choice {
    if p2p.is_long(peer, bytes as usize).is_ok_and(|is_long| is_long) {
        Choice::Rendezvous
    } else {
        Choice::Eager
    }
}
