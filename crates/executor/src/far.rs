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
use sys::Span;
use transport::route::Sent;

/// An executor's or a proxy's part in the edges between hosts.
#[derive(Default)]
pub(crate) struct FarEdges {
    /// Notes to leave, with where they go.
    pub outbox: VecDeque<(u32, Note)>,
    pub server: Server,
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
        let FarEdges { outbox, server } = self;
        while port.take(|from, header, payload| match Note::read(header, payload) {
            None => telemetry::count(telemetry::Counter::NetRefused, 1),
            Some((note, data)) => match note.kind {
                Kind::Fetch => server.ask(from, note),
                Kind::Done => outbox.extend(server.done(note, reach).map(|answer| (from, answer))),
                Kind::Data | Kind::Failed | Kind::Known => arrived(from, &note, data),
            },
        }) {
            moved = true;
        }
        // One that cannot be reached now keeps no other waiting.
        for _ in 0..outbox.len() {
            let Some((to, note)) = outbox.pop_front() else { break };
            // Whoever waits for an answer of a process that is gone asks another.
            if reach.segment.is_gone(to) {
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

    /// Whether there is work for which no bell rings. What the network had no room for is none.
    pub fn has_work(&self, reach: &Reach) -> bool {
        self.server.has_work(reach)
    }
}
