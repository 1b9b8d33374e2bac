// SPDX-License-Identifier: BSD-3-Clause
//! Sends to ranks of other hosts, and receives from there, that go as messages. Only the rank's own process
//! carries messages; a proxy fetches the bytes instead.
//!
//! The engine asks its caller for a message (`EdgeMessage`) once all steps on which the send or receive
//! depends are finished. The caller reports when the message has ended.
//!
//! Invariants: the sender and the receiver ask for one message of the same context, tag and length; the bytes
//! of a step do not change while its message is under way.
//!
//! Read next: `caller.rs` (`next_edge`, `edge_ended`).

use super::{Execution, StepProgress};
use crate::fault::{Corruption, Fault};
use crate::memory::{Reach, Region, Stop};
use crate::peer::Peer;
use schedule::{Action, Blocks};
use sys::{Block, Span};

/// What a driver remembers about the messages of an operation to and from other hosts.
pub(super) struct Remote {
    /// An edge (a send and its receive) of at least this many bytes is fetched. Shorter edges are messages.
    fetched_bytes_min: u64,
    /// For each step of the schedule, how far its message has got.
    messages: Vec<StepMessage>,
    /// The messages that steps need, until `next_wanted` takes them.
    wanted: Vec<WantedMessage>,
}

/// How far the message of one step has got.
#[derive(Default)]
enum StepMessage {
    #[default]
    None,
    /// The message is under way. The block holds the message's bytes. None if they are contiguous in the
    /// step's own buffer.
    UnderWay(Option<Block>),
    /// The message has ended. The block is as in `UnderWay`. The result is the number of bytes that came or
    /// were sent.
    Ended(Option<Block>, Result<u64, Fault>),
}

/// A message that a step needs. The executor's caller must send or receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedMessage {
    pub step: u32,
    pub peer: u32,
    pub is_send: bool,
    pub context: u64,
    pub tag: i32,
    pub span: Span,
}

/// Makes a context for the messages of an operation: a hash of the operation's context and number. It differs
/// from the job's other contexts unless 64-bit hashes collide.
fn context_of(context: u64, sequence: u32) -> u64 {
    // The finalizer of splitmix64 (Steele, Lea, Flood 2014).
    let mixed = context ^ u64::from(sequence) << 32 ^ 0xed9e;
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Execution {
    /// Prepares the operation for sends to and receives from other hosts. A send or receive of at least
    /// `fetched_bytes_min` bytes is fetched; a shorter one is a message.
    pub fn expect_remote(&mut self, fetched_bytes_min: u64) {
        let (mut has_fetches, mut has_messages) = (false, false);
        for (step, spot) in self.plan.schedule.steps.iter().zip(&self.buffers.spots) {
            let (Action::Send { to: peer, .. } | Action::Recv { from: peer, .. }) = step.action else {
                continue;
            };
            if matches!(self.peers[peer as usize], Peer::Remote(_)) {
                let is_message = spot.bytes < fetched_bytes_min;
                (has_fetches, has_messages) = (has_fetches || !is_message, has_messages || is_message);
            }
        }
        let steps = self.states.len();
        self.fetches = has_fetches.then(|| Box::new(super::fetch::Fetches::new(steps)));
        self.remote = has_messages.then(|| {
            let messages = (0..steps).map(|_| StepMessage::None).collect();
            Box::new(Remote { fetched_bytes_min, messages, wanted: Vec::new() })
        });
    }

    /// Whether the send or receive `step` is so short that it is a message, if its peer is on another host.
    pub(crate) fn is_message(&self, step: u32) -> bool {
        let bytes = self.buffers.spots[step as usize].bytes;
        self.remote.as_ref().is_some_and(|remote| bytes < remote.fetched_bytes_min)
    }

    /// Whether any send or receive of this operation to or from another host is carried as a message.
    pub(crate) fn has_messages(&self) -> bool {
        self.remote.is_some()
    }

    /// Takes a message that a step needs, to be sent or received. None if no step needs one now.
    pub(crate) fn next_wanted(&mut self) -> Option<WantedMessage> {
        self.remote.as_mut()?.wanted.pop()
    }

    /// Records that the message of the step `step` has ended. `outcome` is the number of bytes that came or
    /// were sent.
    pub(crate) fn message_ended(&mut self, step: u32, outcome: Result<u64, Fault>) {
        let Some(remote) = &mut self.remote else { return };
        if let StepMessage::UnderWay(block) = &mut remote.messages[step as usize] {
            remote.messages[step as usize] = StepMessage::Ended(block.take(), outcome);
        }
    }

    /// Whether the message of the step `step` has ended, and the step has not been driven since.
    pub(super) fn has_ended(&self, step: u32) -> bool {
        let message = self.remote.as_ref().map(|remote| &remote.messages[step as usize]);
        matches!(message, Some(StepMessage::Ended(..)))
    }

    /// Drives a send to or receive from another host that is carried as a message.
    pub(super) fn drive_message(
        &mut self,
        step: u32,
        peer: u32,
        edge: u32,
        blocks: Blocks,
        is_send: bool,
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        let may_start = self.limit(step).1;
        let Some(remote) = &mut self.remote else { return Ok(StepProgress::Idle) };
        let bytes = self.buffers.spots[step as usize].bytes;
        match std::mem::take(&mut remote.messages[step as usize]) {
            StepMessage::None if may_start => {
                let (span, block) = match self.contiguous(step, blocks, is_send, reach) {
                    // The receiver gets a message without bytes, so that it fails, too, instead of waiting.
                    Err(fault) if is_send => {
                        self.record.set_fault(fault);
                        (Span::EMPTY, None)
                    }
                    found => found?,
                };
                let wanted = WantedMessage {
                    step,
                    peer,
                    is_send,
                    context: context_of(self.context, self.sequence),
                    tag: (edge & i32::MAX as u32) as i32,
                    span,
                };
                if let Some(remote) = &mut self.remote {
                    remote.messages[step as usize] = StepMessage::UnderWay(block);
                    remote.wanted.push(wanted);
                }
                Ok(StepProgress::Moved)
            }
            StepMessage::Ended(block, outcome) => {
                let moved = outcome?;
                if moved != bytes {
                    return Err(Fault::Truncated { peer, sent: moved, expected: bytes }.into());
                }
                if let Some(block) = block.filter(|_| !is_send) {
                    self.each_region(step, blocks, |region, offset, at, bytes| {
                        reach.put(region, offset, block.span().slice(at, bytes))
                    })?;
                }
                self.advance(step, bytes, true, reach)
            }
            message => {
                remote.messages[step as usize] = message;
                Ok(StepProgress::Idle)
            }
        }
    }

    /// Returns a span that holds a step's bytes contiguously: their place in the buffer or, if they are
    /// scattered there, a new block. The block is None in the first case.
    fn contiguous(
        &self,
        step: u32,
        blocks: Blocks,
        is_send: bool,
        reach: &Reach,
    ) -> Result<(Span, Option<Block>), Fault> {
        let spot = self.buffers.spots[step as usize];
        if spot.bytes == 0 {
            return Ok((Span::EMPTY, None));
        }
        if let Ok((Region::Local(span), offset, here)) = self.buffers.region(blocks.buffer, spot.at[0])
            && here >= spot.bytes
        {
            return Ok((span.slice(offset as usize, spot.bytes as usize), None));
        }
        let block = Block::new(spot.bytes as usize);
        if is_send {
            self.each_region(step, blocks, |region, offset, at, bytes| {
                reach.fetch_into(region, offset, block.span().slice(at, bytes))
            })?;
        }
        Ok((block.span(), Some(block)))
    }

    /// Calls `each` for each contiguous part of a step's bytes: with the region, the offset in the region,
    /// the offset among the step's bytes, and the length in bytes.
    fn each_region(
        &self,
        step: u32,
        blocks: Blocks,
        mut each: impl FnMut(&Region, u64, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let spot = self.buffers.spots[step as usize];
        let mut at = 0;
        while at < spot.bytes {
            let (region, offset, here) = self.buffers.region(blocks.buffer, spot.at[0] + at)?;
            if here == 0 {
                return Err(Fault::Corrupt { peer: self.rank.peer(), what: Corruption::Parameters });
            }
            let bytes = here.min(spot.bytes - at);
            each(region, offset, at as usize, bytes as usize)?;
            at += bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Progress, fixture};
    use crate::record::Head;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_send_without_its_bytes_sends_none_and_fails() {
        let (mut run, reach) = fixture::broadcast(0, 8, u64::MAX);
        assert_eq!(run.poll(&reach), Ok(Progress::Moved));
        let wanted = run.next_wanted().expect("the receiver waits for a message");
        assert!(wanted.is_send && wanted.span.bytes() == 0 && wanted.peer == 1, "{wanted:?}");
        run.message_ended(wanted.step, Ok(0));
        assert_eq!(run.poll(&reach), Ok(Progress::Finished));
        let fault = run.record.fault();
        assert!(matches!(fault, Some(Fault::Corrupt { .. })), "{fault:?}");
        assert_ne!(run.record.head(Head::State).load(Ordering::Relaxed), 0);
    }
}
