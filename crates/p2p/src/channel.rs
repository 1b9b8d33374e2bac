// SPDX-License-Identifier: BSD-3-Clause
//! Channels: the messages of one context and tag from one peer to another, with numbers by which executors on
//! both sides know them. `handoff.rs` says what for.

use crate::outcome::Ticket;
use datatype::Buffer;
use error::Error;
use matching::Entry;
use rustc_hash::FxHashMap;

/// Tags of one peer whose messages are numbered. Beyond these all begin anew.
const CHANNELS_MAX: usize = 256;
/// Bits of a channel's number; those above name the sender.
pub(crate) const CHANNEL_BITS: u32 = 30;

/// By which both sides know a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffKey {
    /// The sender and its channel.
    pub context: u64,
    /// The message's number in the channel.
    pub sequence: u32,
}

impl HandoffKey {
    /// The two marks of a context, which no comm has, and the sender.
    pub(crate) fn new(sender: u32, channel: u32, sequence: u32) -> HandoffKey {
        HandoffKey { context: 3 << 62 | u64::from(sender) << CHANNEL_BITS | u64::from(channel), sequence }
    }

    /// As an announcement says it.
    pub(crate) fn word(self) -> u64 {
        (self.context & ((1 << CHANNEL_BITS) - 1)) << 32 | u64::from(self.sequence)
    }
}

/// What an executor is to do for a send or a receive.
#[derive(Clone, Debug)]
pub enum Handoff {
    /// Start this side of a message that is received.
    Receive {
        /// The receive.
        ticket: Ticket,
        /// The message.
        key: HandoffKey,
        /// The sender.
        peer: u32,
        /// The comm's context.
        context: u64,
        /// The program's buffer; it takes what fits.
        buffer: Buffer,
    },
    /// End the send, whose message no receive will take.
    Abandon(Ticket),
}

/// A posted receive for whose message an executor waits.
pub(crate) struct Expecting {
    pub(crate) entry: Entry,
    pub(crate) key: HandoffKey,
    /// How the executor's part ended, if it did before the announcement came.
    pub(crate) over: Option<Option<Error>>,
}

/// The numbered messages to or from a peer, by context and tag.
#[derive(Default)]
pub(crate) struct Channels(FxHashMap<(u64, i32), Channel>);

#[derive(Clone, Copy)]
pub(crate) struct Channel {
    pub(crate) name: u32,
    /// Messages so far.
    pub(crate) count: u32,
}

impl Channels {
    pub(crate) fn has(&self, context: u64, tag: i32) -> bool {
        self.0.contains_key(&(context, tag))
    }

    /// Counts a message that no executor moves, if its channel has numbers.
    pub(crate) fn count(&mut self, context: u64, tag: i32) -> bool {
        let channel = self.0.get_mut(&(context, tag));
        channel.map(|channel| channel.count = channel.count.wrapping_add(1)).is_some()
    }

    pub(crate) fn get(&self, context: u64, tag: i32) -> Option<Channel> {
        self.0.get(&(context, tag)).copied()
    }

    /// What a peer says of a channel.
    pub(crate) fn set(&mut self, context: u64, tag: i32, channel: Channel) {
        self.make_room((context, tag));
        self.0.insert((context, tag), channel);
    }

    /// The next message of a channel, which begins now if it is new.
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
