// SPDX-License-Identifier: BSD-3-Clause
//! A message as an instance. Both sides know that the message will come, and by which numbers, so a proxy can
//! carry it out. Nothing is matched here.

use datatype::Buffer;
use executor::{Binding, Cut, MeasuredStart, Offload, Start};
use schedule::Schedule;
use schedule::algorithm::Neighbors;
use std::sync::Arc;

/// A message whose match has been made. Both sides pass the same numbers.
#[derive(Debug)]
pub struct MessageInstance {
    /// A context, which no collective has.
    pub context: u64,
    /// The message's number in the context.
    pub sequence: u32,
    /// The sender and the receiver.
    pub peers: Arc<[u32]>,
    /// Whether this rank sends.
    pub sends: bool,
    /// The bytes of the message. The receiver takes what fits; if the message is longer, the receive ends
    /// with MPI_ERR_TRUNCATE.
    pub buffer: Buffer,
    /// What may carry the message.
    pub offload: Offload,
    /// Whether both sides know that the other starts the message, with as many bytes.
    pub matched: bool,
}

/// The measurement of a message: whether the rank computes until it is over.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredMessage {
    pub(crate) group: (u64, u32),
    pub(crate) begun: MeasuredStart,
}

/// The group in which messages are measured together: those of the same comm and of about the same length.
pub(crate) fn group(context: u64, bytes: u64) -> (u64, u32) {
    (context, bytes.checked_ilog2().unwrap_or(0))
}

/// The schedules of the two sides of a single edge.
pub(crate) struct MessageSchedules([Arc<Schedule>; 2]);

impl MessageSchedules {
    pub(crate) fn new() -> MessageSchedules {
        let side =
            |rank, to, from| Arc::new(Neighbors { rank, size: 2, to, from, paired: false }.plan(false));
        MessageSchedules([side(1, Vec::new(), vec![Some(0)]), side(0, vec![Some(1)], Vec::new())])
    }

    /// The call of the executor that starts this side of the message.
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
