// SPDX-License-Identifier: BSD-3-Clause
//! A stand-in for executors in tests. It moves the bytes of a message some time after the send and the
//! receive have both started.

use datatype::Buffer;
use outboard_p2p::{Handoff, HandoffKey, Mode, P2p, Ticket};
use sys::Block;

/// A stand-in for executors. It has the sends and receives that it carries out, until their messages' bytes
/// have been moved.
#[derive(Default)]
pub struct Engines {
    sides: Vec<Side>,
    /// Receives, each with its rank, that wait until an earlier receive with the same key is no longer in
    /// `sides`.
    later: Vec<(usize, Handoff)>,
    /// The number of messages whose receive started before their send.
    pub foreseen: u64,
    pub moved: u64,
    pub withdrawn: u64,
}

struct Side {
    rank: usize,
    ticket: Ticket,
    key: HandoffKey,
    sends: bool,
    buffer: Buffer,
    /// The receive was withdrawn, and keeps its key for this many more calls of `carry`. None for a send, and
    /// for a receive that was not withdrawn.
    lingers: Option<u64>,
    is_over: bool,
    /// Whether the receive took only a part of its message, since its buffer is shorter.
    is_short: bool,
}

impl Engines {
    fn start(&mut self, rank: usize, ticket: Ticket, key: HandoffKey, sends: bool, buffer: Buffer) {
        let is_it = |side: &&Side| (side.key, side.sends) == (key, sends);
        assert!(!self.sides.iter().any(|side| is_it(&side)), "two sides with one key");
        self.sides.push(Side {
            rank,
            ticket,
            key,
            sends,
            buffer,
            lingers: None,
            is_over: false,
            is_short: false,
        });
    }

    /// Starts a send whose message this stand-in for executors is to move. With `fails`, the start fails for
    /// lack of memory, and the message goes in packets like any other.
    pub fn send(
        &mut self,
        (rank, p2p): (usize, &mut P2p),
        mode: Mode,
        to: (u64, u32, i32),
        buffer: Buffer,
        fails: bool,
    ) -> Ticket {
        let start = |_, buffer: &Buffer| match fails {
            true => Err(error::Error::new(error::Class::NoMem, "")),
            false => Ok(buffer.clone()),
        };
        let (ticket, started) = p2p.isend_offloaded(mode, to, buffer, start).unwrap();
        if let Some((key, buffer)) = started {
            self.start(rank, ticket, key, true, buffer);
        }
        ticket
    }

    /// Starts the sends and receives of a rank that are tasks for executors, and tells the rank which of its
    /// messages were moved. A process does the same whenever it makes progress.
    pub fn carry(&mut self, rank: usize, p2p: &mut P2p, draw: impl Fn(u64) -> u64) {
        let mut due: Vec<_> = self.later.extract_if(.., |(owner, _)| *owner == rank).collect();
        due.extend(std::iter::from_fn(|| p2p.next_handoff()).map(|handoff| (rank, handoff)));
        for (_, handoff) in due {
            match handoff {
                Handoff::Abandon(ticket) => {
                    let is_it = |side: &&mut Side| side.sends && (side.rank, side.ticket) == (rank, ticket);
                    self.sides.iter_mut().find(is_it).expect("it was started").is_over = true;
                }
                Handoff::Receive { ticket, key, .. } if !p2p.awaits(ticket, key) => (),
                Handoff::Receive { key, .. } if self.sides.iter().any(|it| !it.sends && it.key == key) => {
                    self.later.push((rank, handoff));
                }
                Handoff::Receive { ticket, .. } if draw(20) == 0 && p2p.withdraw_executor(ticket) => (),
                Handoff::Receive { ticket, key, buffer, .. } => self.start(rank, ticket, key, false, buffer),
            }
        }
        self.sides.retain_mut(|side| {
            if side.rank != rank {
                return true;
            }
            match &mut side.lingers {
                Some(0) => return false,
                Some(left) => *left -= 1,
                None if side.is_over => {
                    let error = error::Error::new(error::Class::Truncate, "an executor's words");
                    p2p.offload_ended(side.ticket, side.key, None, side.is_short.then_some(error));
                    return false;
                }
                None if !side.sends && !p2p.awaits(side.ticket, side.key) => {
                    side.lingers = Some(draw(5));
                    self.withdrawn += 1;
                }
                None => (),
            }
            true
        });
    }

    /// Moves the bytes of one message, if there is one whose send and receive have both started.
    pub fn step(&mut self, draw: impl Fn(u64) -> u64) {
        if self.sides.is_empty() {
            return;
        }
        let at = draw(self.sides.len() as u64) as usize;
        let one = &self.sides[at];
        if one.is_over || one.lingers.is_some() {
            return;
        }
        let fits = |side: &Side| {
            side.key == one.key && side.sends != one.sends && !side.is_over && side.lingers.is_none()
        };
        let Some(other) = self.sides.iter().position(fits) else { return };
        let (from, into) = if one.sends { (at, other) } else { (other, at) };
        let (sent, taken) = (&self.sides[from].buffer, &self.sides[into].buffer);
        let bytes = sent.bytes().min(taken.bytes());
        let is_short = taken.bytes() < sent.bytes();
        let block = Block::new(bytes);
        sent.pack(0, block.span());
        taken.unpack(0, block.span());
        self.moved += 1;
        self.foreseen += u64::from(into < from);
        (self.sides[from].is_over, self.sides[into].is_over) = (true, true);
        self.sides[into].is_short = is_short;
    }

    /// Cancels a send or receive of a rank in two steps, as a process does. The first step withdraws the
    /// executors that wait for messages which the cancellation may give to other receives.
    pub fn cancel(&mut self, rank: usize, p2p: &mut P2p, ticket: Ticket) {
        let mut is_free = true;
        for other in p2p.receives_depending_on(ticket) {
            let is_it = |side: &&mut Side| !side.sends && (side.rank, side.ticket) == (rank, other);
            let side = self.sides.iter_mut().find(is_it).filter(|side| side.lingers.is_none());
            let begun = side.as_ref().is_some_and(|side| side.is_over);
            if begun {
                is_free = false;
                continue;
            }
            if let Some(side) = side {
                side.lingers = Some(3);
                self.withdrawn += 1;
            }
            is_free &= p2p.withdraw_executor(other);
        }
        if is_free {
            p2p.cancel(ticket);
        }
    }
}
