// SPDX-License-Identifier: BSD-3-Clause
//! Channels: all messages with one context and tag from one peer to another. They are numbered, so that the
//! executors of both ranks know each message by the same key (`handoff.rs`).

use crate::outcome::Ticket;
use datatype::Buffer;
use error::Error;
use matching::QueueEntry;
use rustc_hash::FxHashMap;

/// The most channels from or to one peer. With more, all channels of this peer are forgotten.
const CHANNELS_MAX: usize = 256;
/// The number of low bits of `HandoffKey::context` that hold the channel's number. The bits above hold the
/// sender's number.
pub(crate) const CHANNEL_BITS: u32 = 30;

/// The key by which the executors of sender and receiver both know one message that they move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffKey {
    /// The sender's number and the channel's number, with the two highest bits set, so that no comm has this
    /// context.
    pub context: u64,
    /// The number of the message among all messages with its context and tag from its sender to its receiver.
    pub sequence: u32,
}

impl HandoffKey {
    /// Makes the key of message `sequence` in channel `channel` of the peer `sender`.
    pub(crate) fn new(sender: u32, channel: u32, sequence: u32) -> HandoffKey {
        HandoffKey { context: 3 << 62 | u64::from(sender) << CHANNEL_BITS | u64::from(channel), sequence }
    }

    /// Returns the word in an ANNOUNCE packet that holds this key: the channel's number, then the message's
    /// number.
    pub(crate) fn word(self) -> u64 {
        (self.context & ((1 << CHANNEL_BITS) - 1)) << 32 | u64::from(self.sequence)
    }
}

/// A task for an executor, about a send or a receive of this process. The caller of `next_handoff` gives the
/// executor this task.
#[derive(Clone, Debug)]
pub enum Handoff {
    /// The executor is to carry out a receive: it copies the message's bytes into the receive buffer.
    Receive {
        /// The ticket that names the receive.
        ticket: Ticket,
        /// The key by which the sender's executor knows the message.
        key: HandoffKey,
        /// The peer that sends the message, by its number in the job.
        peer: u32,
        /// The context of the comm to which the receive belongs.
        context: u64,
        /// The program's receive buffer. The executor drops those bytes of a longer message that do not fit.
        buffer: Buffer,
    },
    /// The executor is to end the send with this ticket: no receive will take its message.
    Abandon(Ticket),
}

/// The state of a posted receive if an executor already waits for its message.
pub(crate) struct ExpectingReceive {
    pub(crate) entry: QueueEntry,
    pub(crate) key: HandoffKey,
    /// How the executor's work ended, if it ended before the ANNOUNCE packet came: Some(None) is success, and
    /// Some(Some(error)) failure. None while the executor works.
    pub(crate) over: Option<Option<Error>>,
}

/// The channels to one peer or from one peer, each by the context and tag of its messages.
#[derive(Default)]
pub(crate) struct Channels(FxHashMap<(u64, i32), Channel>);

#[derive(Clone, Copy)]
pub(crate) struct Channel {
    pub(crate) name: u32,
    /// The number of messages in the channel so far, and so the number of the latest; wraps.
    pub(crate) count: u32,
}

impl Channels {
    pub(crate) fn has(&self, context: u64, tag: i32) -> bool {
        self.0.contains_key(&(context, tag))
    }

    /// Counts a message with this context and tag whose bytes no executor moves. Returns false if these
    /// messages have no channel.
    pub(crate) fn count(&mut self, context: u64, tag: i32) -> bool {
        let channel = self.0.get_mut(&(context, tag));
        channel.map(|channel| channel.count = channel.count.wrapping_add(1)).is_some()
    }

    pub(crate) fn get(&self, context: u64, tag: i32) -> Option<Channel> {
        self.0.get(&(context, tag)).copied()
    }

    /// Stores a channel from a peer, with the number and count in the ANNOUNCE packet from the peer.
    pub(crate) fn set(&mut self, context: u64, tag: i32, channel: Channel) {
        self.make_room((context, tag));
        self.0.insert((context, tag), channel);
    }

    /// Counts one more message with this context and tag, and returns its channel with the new count. If
    /// there is no such channel, makes one with the number that `name` returns.
    pub(crate) fn next(&mut self, context: u64, tag: i32, name: impl FnOnce() -> u32) -> Channel {
        self.make_room((context, tag));
        let channel = self.0.entry((context, tag)).or_insert_with(|| Channel { name: name(), count: 0 });
        channel.count = channel.count.wrapping_add(1);
        *channel
    }

    fn make_room(&mut self, channel: (u64, i32)) {
        if self.0.len() >= CHANNELS_MAX && !self.0.contains_key(&channel) {
            self.0.clear();
        }
    }
}
