// SPDX-License-Identifier: BSD-3-Clause
//! A message as an instance (a started schedule). Sender and receiver both know that the message will come,
//! and the context and number that name it, so a proxy can carry it out. Nothing is matched here.

use datatype::Buffer;
use executor::{Binding, Cut, MeasuredStart, Offload, Start};
use schedule::Schedule;
use schedule::algorithm::Neighbors;
use std::sync::Arc;

/// A message that a schedule carries out. Sender and receiver give the same context and sequence number, so
/// the message need not be matched.
#[derive(Debug)]
pub struct MessageInstance {
    /// The context of the message, which no collective has. Together with `sequence` it names the message to
    /// sender and receiver alike.
    pub context: u64,
    /// The number of the message among those of its context, the same at sender and receiver.
    pub sequence: u32,
    /// The processes that send and receive, by their numbers in the job: first the sender, then the receiver.
    pub peers: Arc<[u32]>,
    /// Whether this rank is the sender of the message.
    pub sends: bool,
    /// The memory that is sent or received into. The receiver takes the bytes that fit; if the message is
    /// longer, the receive ends with MPI_ERR_TRUNCATE.
    pub buffer: Buffer,
    /// Whether a proxy or the rank itself is to carry the message.
    pub offload: Offload,
    /// Whether sender and receiver each know that the other starts the message, too, with the same number of
    /// bytes.
    pub matched: bool,
}

/// A message that is being measured, to learn whether the rank computes while such messages are under way.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredMessage {
    pub(crate) group: (u64, u32),
    pub(crate) start: MeasuredStart,
}

/// Returns the key under which a message is measured. Messages of one comm and of about the same length have
/// the same key.
pub(crate) fn group(context: u64, bytes: u64) -> (u64, u32) {
    (context, bytes.checked_ilog2().unwrap_or(0))
}

/// The schedules of a message: first the receiver's, then the sender's.
pub(crate) struct MessageSchedules([Arc<Schedule>; 2]);

impl MessageSchedules {
    pub(crate) fn new() -> MessageSchedules {
        let side =
            |rank, to, from| Arc::new(Neighbors { rank, size: 2, to, from, paired: false }.plan(false));
        MessageSchedules([side(1, Vec::new(), vec![Some(0)]), side(0, vec![Some(1)], Vec::new())])
    }

    /// Returns what the executor needs to start this rank's send or receive of the message.
    pub(crate) fn start(&self, message: MessageInstance) -> Start {
        let MessageInstance { context, sequence, peers, sends, buffer, offload, matched } = message;
        let cut = Cut::Even { block_bytes: buffer.bytes() as u64 };
        let bound = Binding::Whole { buffer, cut };
        let (input, output) = if sends { (bound, Binding::None) } else { (Binding::None, bound) };
        let schedule = self.0[usize::from(sends)].clone();
        Start {
            context,
            sequence,
            peers,
            schedule,
            input,
            output,
            reduction: None,
            offload,
            fetched_bytes_min: 0,
            message: !matched,
        }
    }
}
