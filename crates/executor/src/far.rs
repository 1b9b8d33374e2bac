//! Edges to ranks on other hosts in a job with proxies: what executors say to each other, and who answers.
//!
//! An edge is a fetch. The driver of the receiving instance asks the *server* of the sending rank: its proxy,
//! or the rank itself once the proxy is gone. The server reads what the send has published, as a receiver on
//! its host would, and sends it in packets. The receiver's driver stores the bytes, then its `done`, and then
//! says so; the server stores the send's `done`, and acknowledges that. An instance ends once all of that is
//! acknowledged.
//!
//! Invariants: who drives an instance does not matter to the other side; every note may come twice; a driver
//! or a server that dies at any instant leaves words from which another goes on.
//!
//! Read next: `note.rs`, `engine/fetch.rs` (the receiver), `server.rs` (the sender's side).

use crate::memory::Reach;
use crate::note::{EdgePort, Kind, NOTE_BYTES, Note};
use crate::server::Server;
use error::{Class, Result, fail};
use std::collections::VecDeque;
use sys::{Block, Span};
use transport::route::{Header, Sent};

/// Packets that a process may have on the way to itself.
const TO_ITSELF_MAX: usize = 16;

/// A note about a whole instance, with where it goes or comes from, and the words that follow.
pub(crate) type Order = (u32, Note, Vec<u64>);

/// An executor's or a proxy's part in the edges between hosts.
#[derive(Default)]
pub(crate) struct FarEdges {
    /// Notes to leave, with where they go.
    pub outbox: VecDeque<(u32, Note)>,
    /// Between a rank and a proxy on another computer (`lent.rs`): what is to leave, before the others, and
    /// what has come.
    pub orders: VecDeque<Order>,
    pub ordered: VecDeque<Order>,
    pub server: Server,
    /// The endpoint of a proxy that serves both ends of an edge, and packets on their way to itself.
    pub own: Option<u32>,
    to_itself: VecDeque<(Header, Block)>,
}

/// A port, and the way to oneself.
struct Ways<'a, P> {
    port: &'a mut P,
    own: Option<u32>,
    to_itself: &'a mut VecDeque<(Header, Block)>,
}

impl<P: EdgePort> EdgePort for Ways<'_, P> {
    fn send(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        if self.own != Some(to) {
            return self.port.send(to, header, bytes, fill);
        }
        if self.to_itself.len() >= TO_ITSELF_MAX {
            return Sent::Full;
        }
        let block = Block::new(bytes);
        fill(block.span());
        self.to_itself.push_back((*header, block));
        Sent::Done
    }

    fn has_room(&mut self, to: u32, bytes: usize) -> bool {
        match self.own == Some(to) {
            true => self.to_itself.len() < TO_ITSELF_MAX,
            false => self.port.has_room(to, bytes),
        }
    }

    fn take(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool {
        match (self.own, self.to_itself.pop_front()) {
            (Some(own), Some((header, block))) => {
                each(own, &header, block.span());
                true
            }
            _ => self.port.take(each),
        }
    }

    fn payload_bytes_max(&self) -> usize {
        self.port.payload_bytes_max()
    }

    fn broken(&self) -> Option<String> {
        self.port.broken()
    }
}

impl FarEdges {
    /// Takes notes and gives `arrived` those for instances; sends what is to be sent. Whether anything moved.
    /// Errors (MPI_ERR_PROC_ABORTED): a process is out of reach although it lives.
    pub fn exchange(
        &mut self,
        port: &mut impl EdgePort,
        reach: &Reach,
        mut arrived: impl FnMut(u32, &Note, Span),
    ) -> Result<bool> {
        let mut moved = false;
        let FarEdges { outbox, orders, ordered, server, own, to_itself } = self;
        let port = &mut Ways { port, own: *own, to_itself };
        while port.take(|from, header, payload| match Note::read(header, payload) {
            None => telemetry::count(telemetry::Counter::NetRefused, 1),
            Some((note, data)) => match note.kind {
                Kind::Fetch => server.ask(from, note),
                Kind::Leave => outbox.push_back((from, server.leave(note))),
                Kind::Done => outbox.extend(server.done(note, reach).map(|answer| (from, answer))),
                Kind::Data | Kind::Failed | Kind::Known | Kind::Elsewhere => arrived(from, &note, data),
                _ => ordered.push_back((from, note, words(data))),
            },
        }) {
            moved = true;
        }
        while let Some((to, note, words)) = orders.front() {
            if !reach.segment.is_gone(*to) && send_order(port, *to, note, words) == Sent::Full {
                break;
            }
            orders.pop_front();
            moved = true;
        }
        reach.settle(outbox);
        // One that cannot be reached now keeps no other waiting.
        for _ in 0..outbox.len() {
            let Some((to, note)) = outbox.pop_front() else { break };
            // Whoever waits for an answer of a process that is gone asks another.
            if reach.segment.is_gone(to) || reach.must_not_tell(&note) {
                continue;
            }
            match port.send(to, &note.header(), NOTE_BYTES, |span| note.write(span)) {
                Sent::Done => moved = true,
                Sent::Full => outbox.push_back((to, note)),
            }
        }
        moved |= server.serve(port, reach);
        if !moved
            && (!outbox.is_empty() || server.is_busy())
            && let Some(why) = port.broken()
        {
            fail!(Class::ProcAborted, "the connection to another host is lost: {why}");
        }
        Ok(moved)
    }

    /// Whether something is to leave that must not wait for the next MPI call.
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Whether there is work for which no bell rings. What the network had no room for is none.
    pub fn has_work(&self, reach: &Reach) -> bool {
        self.server.has_work(reach) || !self.to_itself.is_empty()
    }
}

fn send_order(port: &mut impl EdgePort, to: u32, note: &Note, words: &[u64]) -> Sent {
    port.send(to, &note.header(), NOTE_BYTES + 8 * words.len(), |span| {
        note.write(span.slice(0, NOTE_BYTES));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        span.slice(NOTE_BYTES, bytes.len()).write(&bytes);
    })
}

fn words(data: Span) -> Vec<u64> {
    let mut bytes = vec![0; data.bytes()];
    data.read(&mut bytes);
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}
