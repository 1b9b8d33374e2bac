//! Rendezvous: bytes that move after the receive is known.
//!
//! The sender offers {bytes, its ticket, its address if the bytes lie in one stretch}. The process of the receive then either
//! reads the sender's memory, a piece per poll, and answers TAKEN; or it asks for the bytes, which the sender streams as
//! DATA, and no answer is needed. A read that fails turns into an ASK for what is left. A receive of no bytes is TAKEN at once.

use crate::lane::{Lane, Outgoing};
use crate::receive::begin;
use crate::request::{Data, Request, SendProgress, Stage};
use crate::{P2p, State, known, packet};
use error::{Class, Result, fail};
use matching::Envelope;
use sys::Span;
use telemetry::Counter;
use transport::own::Memory;
use transport::route::Route;

/// What a peer offers; nothing of it is trusted beyond naming things back to that peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) bytes: u64,
    /// The sender's ticket.
    pub(crate) theirs: u64,
    /// Where the bytes lie in the sender, 0 if they cannot be read there.
    pub(crate) address: u64,
}

/// Bytes that a receive buffer with gaps takes at a time: they stay in the cache between the two copies.
const BOUNCE_BYTES: usize = 256 << 10;

impl State {
    /// Starts to fetch an offered message into its receive.
    pub(crate) fn accept(&mut self, lane: &mut Lane, ours: u64, envelope: Envelope, offer: Offer) {
        let Offer { theirs, address, .. } = offer;
        let request = self.requests.get_mut(ours).expect("a posted receive is known");
        let end = begin(request, envelope, offer.bytes) as u64;
        let counters = (Counter::RendezvousMessagesReceived, Counter::RendezvousBytesReceived);
        self.counters.count(counters.0, 1);
        self.counters.count(counters.1, end);
        if end == 0 {
            lane.push(Outgoing::Taken { theirs });
            self.complete(ours);
        } else if self.prefers_read && !lane.unreadable && address != 0 {
            request.stage = Stage::Reading { peer: lane.number, theirs, address, next: 0, end };
            self.reading.push_back(ours);
        } else {
            request.stage = Stage::Filling { peer: lane.number, next: 0, end };
            lane.push(Outgoing::Ask { theirs, ours, next: 0, end });
        }
    }

    /// DATA: the next bytes of a receive.
    pub(crate) fn fill(&mut self, lane: &Lane, ours: u64, payload: Span) -> Result<()> {
        let bytes = payload.bytes() as u64;
        if let Some(request) = self.requests.get_mut(ours)
            && let Stage::Filling { peer, next, end } = request.stage
            && peer == lane.number
            && (1..=end - next).contains(&bytes)
        {
            request.buffer().unpack(next as usize, payload);
            request.stage = Stage::Filling { peer, next: next + bytes, end };
            if next + bytes == end {
                self.complete(ours);
            }
            return Ok(());
        }
        fail!(
            Class::Intern,
            "peer {} sent {bytes} bytes that no receive asked for (ticket {ours:#x})",
            lane.number
        )
    }

    /// ASK: the peer wants bytes of our send.
    pub(crate) fn asked(&mut self, lane: &mut Lane, ours: u64, payload: Span) -> Result<()> {
        let Some([theirs, next, end]) = packet::read(payload) else {
            fail!(Class::Intern, "peer {} sent a request of {} bytes", lane.number, payload.bytes())
        };
        if let Some(request) = self.offered(ours, lane.number)
            && next < end
            && end <= request.data.bytes() as u64
        {
            request.sending().progress = SendProgress::Streaming { theirs, next, end };
            lane.push_stream(ours);
            return Ok(());
        }
        let peer = lane.number;
        fail!(
            Class::Intern,
            "peer {peer} asked for bytes {next} to {end} of no send of ours (ticket {ours:#x})"
        )
    }

    /// TAKEN: the peer has what it needs of our send.
    pub(crate) fn taken(&mut self, lane: &Lane, ours: u64) -> Result<()> {
        if self.offered(ours, lane.number).is_none() {
            fail!(
                Class::Intern,
                "peer {} took a message that we did not offer (ticket {ours:#x})",
                lane.number
            )
        }
        self.complete(ours);
        Ok(())
    }

    /// The send that a peer's packet speaks of, if that peer may.
    fn offered(&mut self, ours: u64, peer: u32) -> Option<&mut Request> {
        let request = self.requests.get_mut(ours)?;
        match &request.stage {
            Stage::Send(send) if send.peer == peer && send.progress == SendProgress::Offered => Some(request),
            _ => None,
        }
    }

    /// Reads the next piece of a receive; false where the peer's memory cannot be read.
    fn read_piece(&mut self, route: &Route, ours: u64) -> bool {
        let request = self.requests.get_mut(ours).expect("a receive that reads is known");
        let Stage::Reading { address, next, end, .. } = &mut request.stage else {
            unreachable!("only receives that read are in the list of readers")
        };
        let left = (*end - *next).min(self.read_piece_bytes as u64) as usize;
        let from = address.wrapping_add(*next) as usize;
        let at = *next as usize;
        let Data::User(buffer) = &request.data else {
            unreachable!("a receive has the user's buffer until it ends")
        };
        let (bytes, done) = match buffer.contiguous() {
            Some(all) => (left, route.read(from, all.slice(at, left))),
            None => {
                let bytes = left.min(BOUNCE_BYTES);
                let bounce = self.bounce.get_or_insert_with(|| Memory::new(BOUNCE_BYTES));
                let done = bounce.lend(|all| {
                    let piece = all.slice(0, bytes);
                    let done = route.read(from, piece);
                    if done {
                        buffer.unpack(at, piece);
                    }
                    done
                });
                (bytes, done)
            }
        };
        if done {
            *next += bytes as u64;
            self.counters.count(Counter::CmaBytes, bytes as u64);
        }
        done
    }
}

impl P2p {
    /// Reads one piece for the receive whose turn it is; returns whether there was one.
    pub(crate) fn advance_read(&mut self) -> bool {
        let Some(ours) = self.state.reading.pop_front() else { return false };
        let Some(&Request { stage: Stage::Reading { peer: number, .. }, .. }) = self.state.requests.get(ours)
        else {
            unreachable!("only receives that read are in the list of readers")
        };
        let peer = known(&mut self.peers, number);
        let done = self.state.read_piece(&peer.route, ours);
        let request = self.state.requests.get_mut(ours).expect("it was just found");
        let Stage::Reading { theirs, next, end, .. } = request.stage else { unreachable!("as above") };
        if !done {
            peer.lane.unreadable = true;
            request.stage = Stage::Filling { peer: number, next, end };
            peer.lane.push(Outgoing::Ask { theirs, ours, next, end });
        } else if next == end {
            peer.lane.push(Outgoing::Taken { theirs });
            self.state.complete(ours);
        } else {
            self.state.reading.push_back(ours);
            return true;
        }
        self.flush(number);
        true
    }
}
