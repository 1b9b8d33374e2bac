// SPDX-License-Identifier: BSD-3-Clause
//! The shm route: the two rings between this rank and a peer on the same host, and the peer's memory.

use crate::packet::{Header, PACKET_BYTES_MAX, PacketSink, Sent};
use crate::shm::ring::{self, CELL_BYTES, INLINE_BYTES, RECYCLED_BYTES, Receiver, Sender};
use crate::shm::{LocalRank, Segment, cma};
use error::Result;
use std::cell::OnceCell;
use std::sync::atomic::Ordering;
use sys::Span;

/// The longest message, in bytes, that goes through recycled buffers (which two ranks exchange). A longer
/// message would need more of them, which would take too much of the processor's caches.
const RECYCLED_MESSAGE_BYTES_MAX: usize = 512 << 10;

/// A rank's access to the rings between it and the other ranks of its host.
pub struct Port {
    segment: Segment,
    rank: LocalRank,
    /// The ranks that `arrivals` has reported: a bit for each, 64 ranks a word.
    reported: Box<[u64]>,
}

/// The route to one peer on the same host: the two rings between the ranks, and the peer's memory.
pub struct Link {
    sender: Sender,
    receiver: Receiver,
    segment: Segment,
    peer: LocalRank,
    /// How many packets from the peer had come when this rank last sent the peer a packet.
    received_before: u64,
    /// Whether this process can read the peer's private memory (cross-memory attach). The first call of
    /// `read` tests this; empty before that.
    readable: OnceCell<bool>,
}

impl Port {
    /// Makes the port through which rank `rank` of this host reaches the others.
    pub fn new(segment: Segment, rank: LocalRank) -> Port {
        let words = (segment.shape().ranks as usize).div_ceil(64);
        Port { segment, rank, reported: vec![0; words].into() }
    }

    /// Returns the number of the rank that uses this port.
    pub fn rank(&self) -> u32 {
        self.rank.peer()
    }

    /// Moves the port out of `self`, which no one may use afterwards.
    pub(crate) fn take(&mut self) -> Port {
        Port { segment: self.segment.clone(), rank: self.rank, reported: std::mem::take(&mut self.reported) }
    }

    /// Returns the segment (the job's shared memory on this host).
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns how many process numbers the segment has, including numbers for ranks that may be spawned.
    pub fn ranks(&self) -> u32 {
        self.segment.shape().ranks
    }

    /// Rings this rank's own doorbell, so that its threads that sleep on the doorbell wake.
    pub fn ring_own(&self) {
        self.segment.rank(self.rank).bell.ring();
    }

    /// Whether a long message arrives sooner if its receiver reads it from the sender's memory. Through the
    /// ring it is copied twice, which is faster only if every rank has its own core, since the two copies
    /// then overlap.
    pub fn prefers_read(&self) -> bool {
        !self.segment.job().may_spin()
    }

    /// Makes the link to a peer. Errors: another user has an end of the rings, or there is no such process.
    pub fn link(&self, peer: u32) -> Result<Link> {
        let peer = self.segment.require(peer)?;
        Ok(Link {
            sender: self.segment.ring_sender(self.rank, peer)?,
            receiver: self.segment.ring_receiver(peer, self.rank)?,
            segment: self.segment.clone(),
            peer,
            received_before: 0,
            readable: OnceCell::new(),
        })
    }

    /// Makes `arrivals` report every peer again that has ever sent to this rank.
    pub fn reset_arrivals(&mut self) {
        self.reported.fill(0);
    }

    /// Whether a peer that `arrivals` has not reported yet has sent to this rank.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        let senders = &self.segment.rank(self.rank).senders;
        self.reported.iter().enumerate().any(|(index, reported)| senders.word(index) & !reported != 0)
    }

    /// Calls `each` with each peer that has sent to this rank for the first time since `reset_arrivals`.
    #[inline]
    pub fn arrivals(&mut self, mut each: impl FnMut(u32)) {
        let senders = &self.segment.rank(self.rank).senders;
        for (index, reported) in self.reported.iter_mut().enumerate() {
            let mut news = senders.word(index) & !*reported;
            *reported |= news;
            while news != 0 {
                let peer = index as u32 * 64 + news.trailing_zeros();
                news &= news - 1;
                // Bits beyond the job's ranks, or of this rank, name no peer.
                if peer < self.segment.shape().ranks && peer != self.rank.peer() {
                    each(peer);
                }
            }
        }
    }
}

/// Makes the header of a packet in a ring from three things: the header that all routes use, the length of
/// the payload in the ring's slot, and the length of the payload in a cell.
#[inline]
fn packet(&Header { kind, tag, context }: &Header, inline_bytes: u8, cell_bytes: u16) -> ring::Header {
    ring::Header { kind, inline_bytes, cell_bytes, context, tag }
}

impl Link {
    #[inline]
    pub(crate) fn send(&mut self, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        let answer = if bytes <= INLINE_BYTES {
            let header = packet(header, bytes as u8, 0);
            self.sender.send(&header, move |inline, _| fill(inline))
        } else {
            let Header { kind, tag, context } = *header;
            self.send_cell(kind, tag, context, bytes, fill)
        };
        // A rank that has received nothing since its last packet is likely to send more; otherwise the two
        // ranks take turns.
        let received_before = self.receiver.received();
        if received_before == self.received_before {
            self.sender.expect_more();
        }
        self.received_before = received_before;
        match answer {
            ring::Sent::Done => Sent::Done,
            ring::Sent::Full => Sent::Full,
        }
    }

    /// Sends a packet whose payload goes into a cell, beside the ring's slot. The header comes as separate
    /// values, so that `send` keeps them in registers for packets without a cell.
    #[inline(never)]
    fn send_cell(
        &mut self,
        kind: u8,
        tag: i32,
        context: u64,
        bytes: usize,
        fill: impl FnOnce(Span),
    ) -> ring::Sent {
        assert!(bytes <= CELL_BYTES, "{bytes} bytes in one packet");
        let header = packet(&Header { kind, tag, context }, 0, bytes as u16);
        self.sender.send_back(&header, &mut self.receiver, move |_, cell| fill(cell))
    }

    pub(crate) fn has_room(&mut self, bytes: usize, chunk_bytes: usize) -> bool {
        self.sender.has_room(bytes as u64, chunk_bytes as u64)
    }

    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.receiver.ready()
    }

    #[inline(always)]
    pub(crate) fn poll_while(&mut self, sink: &mut impl PacketSink) -> Result<()> {
        self.receiver.poll_while(move |&ring::Header { kind, tag, context, cell_bytes, .. }, inline, cell| {
            sink.packet(&Header { kind, tag, context }, if cell_bytes == 0 { inline } else { cell })
        })
    }

    #[inline]
    pub(crate) fn poll(&mut self, each: impl FnOnce(&Header, Span)) -> Result<bool> {
        let taken =
            self.receiver.poll(|&ring::Header { kind, tag, context, cell_bytes, .. }, inline, cell| {
                each(&Header { kind, tag, context }, if cell_bytes == 0 { inline } else { cell })
            })?;
        Ok(taken.is_some())
    }

    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.sender.consumed()
    }

    #[inline]
    pub(crate) fn consume(&mut self, amount: u64) {
        self.receiver.consume(amount);
    }

    /// Returns how many bytes of a longer message the next packet carries. Packets are short while recycled
    /// buffers show that messages go to and fro, so that both ranks copy at once. They are longer if this
    /// rank only sends, since it does not wait for the peer.
    pub(crate) fn chunk_for(&self, message_bytes: usize) -> usize {
        if message_bytes <= RECYCLED_MESSAGE_BYTES_MAX && self.receiver.has_recycled() {
            return RECYCLED_BYTES;
        }
        (message_bytes / 2).clamp(PACKET_BYTES_MAX, CELL_BYTES)
    }

    pub(crate) fn read(&self, address: usize, to: Span) -> bool {
        let pid = self.segment.rank(self.peer).pid.load(Ordering::Acquire);
        let readable = *self.readable.get_or_init(|| cma::reaches(&self.segment, self.peer));
        readable && cma::read(pid, &[(address, to.bytes())], to).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::Shape;

    #[test]
    fn chunks_are_longer_where_nothing_comes_back() {
        let segment = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap().0;
        let mut link = Port::new(segment.clone(), segment.require(0).unwrap()).link(1).unwrap();
        let chunks = |link: &Link| {
            [100, 16 << 10, 40 << 10, 64 << 10, 1 << 20].map(|bytes| link.chunk_for(bytes) >> 10)
        };
        assert_eq!(chunks(&link), [16, 16, 16, 16, 32], "while there are recycled buffers");
        for _ in 0..100 {
            assert_eq!(link.send(&Header { kind: 1, ..Header::default() }, 300, |_| ()), Sent::Done);
        }
        assert_eq!(chunks(&link), [16, 16, 20, 32, 32]);
    }
}
