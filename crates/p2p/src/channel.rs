// SPDX-License-Identifier: BSD-3-Clause
//! Channels: the messages of one context and tag from one peer to another, numbered so that the executors of
//! both sides know each message by the same key (`handoff.rs`).

use crate::outcome::Ticket;
use datatype::Buffer;
use error::Error;
use matching::QueueEntry;
use rustc_hash::FxHashMap;

/// The most channels to one peer. When there are more, all channels to this peer are forgotten.
const CHANNELS_MAX: usize = 256;
/// The number of low bits of `HandoffKey::context` that have the channel's number. Those above them have the
/// sender's.
pub(crate) const CHANNEL_BITS: u32 = 30;

/// The key by which the executors of the sender and of the receiver know one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffKey {
    /// The sender's number and that of its channel, with two marks that no comm's context has.
    pub context: u64,
    /// The message's number among those of its channel.
    pub sequence: u32,
}

impl HandoffKey {
    /// Makes the key of message number `sequence` in channel number `channel` of the peer `sender`.
    pub(crate) fn new(sender: u32, channel: u32, sequence: u32) -> HandoffKey {
        HandoffKey { context: 3 << 62 | u64::from(sender) << CHANNEL_BITS | u64::from(channel), sequence }
    }

    /// Returns the word that holds this key in an ANNOUNCE: the channel's number, then the message's number
    /// in it.
    pub(crate) fn word(self) -> u64 {
        (self.context & ((1 << CHANNEL_BITS) - 1)) << 32 | u64::from(self.sequence)
    }
}

/// What the caller lets an executor do for a send or a receive of this process.
#[derive(Clone, Debug)]
pub enum Handoff {
    /// Start the receiving side of a message.
    Receive {
        /// The ticket of the receive.
        ticket: Ticket,
        /// The key by which the sender's executor knows the message.
        key: HandoffKey,
        /// The peer that sends the message.
        peer: u32,
        /// The context of the comm in which the receive was started.
        context: u64,
        /// The program's buffer; a longer message is cut off at its end.
        buffer: Buffer,
    },
    /// End the send: no receive will take its message.
    Abandon(Ticket),
}

/// The state of a posted receive for whose message an executor already waits.
pub(crate) struct ExpectingReceive {
    pub(crate) entry: QueueEntry,
    pub(crate) key: HandoffKey,
    /// Set if the executor has ended before the announcement came: to its error, or to Some(None) if it
    /// succeeded.
    pub(crate) over: Option<Option<Error>>,
}

/// The channels to a peer, or from it, by the context and tag of their messages.
#[derive(Default)]
pub(crate) struct Channels(FxHashMap<(u64, i32), Channel>);

#[derive(Clone, Copy)]
pub(crate) struct Channel {
    pub(crate) name: u32,
    /// The number of messages in the channel so far, which is the number of the latest; wraps.
    pub(crate) count: u32,
}

impl Channels {
    pub(crate) fn has(&self, context: u64, tag: i32) -> bool {
        self.0.contains_key(&(context, tag))
    }

    /// Counts a message with this context and tag that no executor moves. Returns false if there is no such
    /// channel.
    pub(crate) fn count(&mut self, context: u64, tag: i32) -> bool {
        let channel = self.0.get_mut(&(context, tag));
        channel.map(|channel| channel.count = channel.count.wrapping_add(1)).is_some()
    }

    pub(crate) fn get(&self, context: u64, tag: i32) -> Option<Channel> {
        self.0.get(&(context, tag)).copied()
    }

    /// Stores a channel from a peer, with the name and count that the peer's announcement has.
    pub(crate) fn set(&mut self, context: u64, tag: i32, channel: Channel) {
        self.make_room((context, tag));
        self.0.insert((context, tag), channel);
    }

    /// Counts one more message with this context and tag, and returns its channel with the new count. `name`
    /// gives a new channel its number.
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
