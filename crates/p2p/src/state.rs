// SPDX-License-Identifier: BSD-3-Clause
//! All point-to-point state of one process, and simple questions about it. The other modules change this
//! state: `send.rs`, `receive.rs`, `poll.rs`.

use crate::buffered::BufferedSends;
use crate::channel::Handoff;
use crate::choice::Chooser;
use crate::config::{Config, LargeProtocol};
use crate::data::MessageData;
use crate::deferred::DeferredReceives;
use crate::lane::Lane;
use crate::message::{EarlyPieces, UnexpectedMessage};
use crate::outcome::{Outcome, Ticket};
use crate::request::{ReadFallback, Request, RequestStage};
use crate::spares::Spares;
use crate::tickets::Tickets;
use error::{Class, Result, fail};
use matching::{Posted, Unexpected};
use std::collections::{HashMap, VecDeque};
use telemetry::{Counter, CounterPage};
use transport::owned::Memory;
use transport::route::{Reach, Route};
use transport::route_fabric::Port;

/// The state of all point-to-point messages of one process. Any thread may use it, one at a time.
pub struct P2p {
    pub(crate) rank: u32,
    pub(crate) reach: Reach,
    pub(crate) config: Config,
    /// The connection to each process of the job, by its number; None until it is first used.
    pub(crate) peers: Vec<Option<Box<Connection>>>,
    /// The peers that have ever written to this process, so that it must poll their rings.
    pub(crate) writers: Vec<u32>,
    /// The peers for which packets of this process wait until there is room in the ring to the peer.
    pub(crate) blocked: Vec<u32>,
    pub(crate) deferred: DeferredReceives,
    pub(crate) matcher: Matcher,
    /// How executors have moved the messages of operations, each by the operation's ticket. `P2p::carried`
    /// takes an entry. Empty unless messages are timed.
    pub(crate) carried: HashMap<Ticket, telemetry::Carried>,
}

/// The route to a peer, and the lane with the packets that wait for the peer.
pub(crate) struct Connection {
    pub(crate) route: Route,
    pub(crate) lane: Lane,
}

/// All point-to-point state of this process that does not belong to one peer.
pub(crate) struct Matcher {
    pub(crate) requests: Tickets<Request>,
    /// The unexpected messages that a matched probe has taken and no `imrecv` has received.
    pub(crate) messages: Tickets<(matching::Envelope, UnexpectedMessage)>,
    /// The posted queue: the tickets of the receives that no message has matched, each with the context,
    /// source and tag that it accepts.
    pub(crate) posted: Posted<u64>,
    pub(crate) unexpected: Unexpected<UnexpectedMessage>,
    /// For each message in pieces that no receive has matched yet, the pieces that have come. The message is
    /// in the unexpected queue, or a matched probe has taken it.
    pub(crate) early: Tickets<EarlyPieces>,
    pub(crate) spares: Spares,
    /// The tickets of receives that read their message in the peer's memory by cross-memory attach.
    pub(crate) reading: VecDeque<u64>,
    /// The tickets of receives for which the network reads the message in the peer's memory, and which have
    /// bytes left for another read.
    pub(crate) pulling: VecDeque<u64>,
    /// The number of all receives for which the network reads the message in the peer's memory.
    pub(crate) pulls_open: usize,
    pub(crate) pull_bytes_min: usize,
    /// Receives that wait for DATA packets, and that read the peer's memory if none comes for too long.
    pub(crate) fallbacks: Vec<ReadFallback>,
    /// The block into which a peer's memory is read if the receive's buffer has gaps; None until one is
    /// needed.
    pub(crate) bounce: Option<Memory>,
    pub(crate) buffered: BufferedSends,
    /// The number of sends that have not ended. MPI_Finalize waits until it is 0.
    pub(crate) sends_open: usize,
    pub(crate) large_protocol: LargeProtocol,
    pub(crate) patience_polls: u32,
    pub(crate) chooser: Chooser,
    pub(crate) read_piece_bytes: usize,
    pub(crate) pull_piece_bytes: usize,
    /// The tasks for executors, oldest first. `next_handoff` takes them.
    pub(crate) handoffs: VecDeque<Handoff>,
    /// How many channels to peers (numbered messages of one context and tag) were made so far. The next
    /// channel's number follows from it.
    pub(crate) channels: u32,
    pub(crate) counters: &'static CounterPage,
}

impl P2p {
    /// Makes the state of a process that has started no operation. Its counters are in the telemetry page
    /// that is attached now.
    pub fn new(reach: Reach, config: Config) -> P2p {
        let large_protocol = match config.large_protocol {
            LargeProtocol::Auto if reach.prefers_read() => LargeProtocol::Cma,
            chosen => chosen,
        };
        P2p {
            rank: reach.rank(),
            config,
            peers: (0..reach.ranks()).map(|_| None).collect(),
            writers: Vec::new(),
            blocked: Vec::new(),
            deferred: DeferredReceives::new(),
            carried: HashMap::new(),
            matcher: Matcher {
                requests: Tickets::new(),
                messages: Tickets::new(),
                posted: Posted::new(),
                unexpected: Unexpected::new(),
                early: Tickets::new(),
                spares: Spares::new(),
                reading: VecDeque::new(),
                pulling: VecDeque::new(),
                pulls_open: 0,
                pull_bytes_min: config.pull_bytes_min,
                fallbacks: Vec::new(),
                bounce: None,
                buffered: BufferedSends::new(),
                sends_open: 0,
                large_protocol,
                patience_polls: config.patience_polls.max(1),
                chooser: Chooser::new(&reach, config.tuning),
                read_piece_bytes: config.read_piece_bytes.max(1),
                pull_piece_bytes: config.pull_piece_bytes.max(1),
                handoffs: VecDeque::new(),
                channels: 0,
                counters: telemetry::page(),
            },
            reach,
        }
    }

    /// Returns this process's number in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the port to other hosts, by which executors send and take packets about edges of collectives.
    /// Returns None if this process has opened no network.
    pub fn network(&mut self) -> Option<&mut Port> {
        self.reach.network()
    }

    /// Whether the operation with this ticket has ended. The ticket must not have been freed before; this
    /// holds for the functions below, too.
    #[inline]
    pub fn is_done(&self, ticket: Ticket) -> bool {
        let is_done = |posted| self.matcher.requests.get(posted).is_some_and(Request::is_done);
        ticket == Ticket::DONE
            || self.deferred.arrived(ticket).is_some()
            || self.request_ticket(ticket).is_some_and(is_done)
    }

    /// Returns how an operation has ended; None if it has not ended.
    pub fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        if ticket == Ticket::DONE {
            return Some(Outcome::default());
        }
        if let Some(arrived) = self.deferred.arrived(ticket) {
            return Some(arrived);
        }
        let request =
            self.matcher.requests.get(self.request_ticket(ticket)?).expect("the ticket has not been freed");
        request.is_done().then(|| request.outcome.clone())
    }

    /// Returns how an operation has ended, and frees its ticket; None if it has not ended.
    #[inline(always)] // So that the outcome is not copied.
    pub fn take(&mut self, ticket: Ticket) -> Option<Outcome> {
        if ticket == Ticket::DONE {
            return Some(Outcome::default());
        }
        if ticket.is_deferred() { self.take_deferred(ticket) } else { self.take_posted(ticket.0) }
    }

    #[inline(always)]
    pub(crate) fn take_posted(&mut self, ticket: u64) -> Option<Outcome> {
        // An ended operation has given its buffer up: the request holds only the outcome.
        let outcome = |request: &mut Request| request.is_done().then(|| std::mem::take(&mut request.outcome));
        self.matcher.requests.remove_if(ticket, outcome)
    }

    /// Frees a ticket. The operation continues to its end (MPI 5.0, section 3.7.3, MPI_Request_free).
    pub fn free(&mut self, ticket: Ticket) {
        if let Some(posted) = self.detach_ticket(ticket)
            && let Some(request) = self.matcher.requests.get_mut(posted)
        {
            request.detached = true;
            if request.is_done() {
                self.matcher.requests.remove(posted);
            }
        }
    }

    /// Whether every send has ended and no packet waits. MPI_Finalize waits for this.
    pub fn is_quiet(&self) -> bool {
        self.matcher.sends_open == 0 && self.blocked.is_empty()
    }

    /// Whether no send or receive is under way, and no message waits for its receive.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        let Matcher { posted, unexpected, sends_open, .. } = &self.matcher;
        let is_empty = posted.is_empty() && unexpected.is_empty() && !self.deferred.is_waiting();
        is_empty && !self.must_poll() && *sends_open == 0
    }

    /// Whether `poll` has work that no doorbell announces: packets or reads of this process wait. The process
    /// must then not sleep.
    #[inline]
    pub fn must_poll(&self) -> bool {
        let Matcher { reading, pulling, fallbacks, .. } = &self.matcher;
        !(self.blocked.is_empty() && reading.is_empty() && pulling.is_empty() && fallbacks.is_empty())
    }

    /// Whether `poll` would find nothing to do: no packet has come, and no packet or read of this process
    /// waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let route = |number: &u32| self.peers[*number as usize].as_deref().map(|peer| &peer.route);
        !self.must_poll()
            && !self.reach.has_arrivals()
            && !self.writers.iter().filter_map(route).any(Route::ready)
    }

    /// Whether this process may sleep. The caller has armed the process's doorbell, so that every later
    /// packet wakes the process.
    pub fn may_sleep(&self) -> bool {
        self.is_idle() && self.reach.may_sleep()
    }

    /// Whether no send of this process in the comm with this context is under way. MPI_Comm_disconnect waits
    /// for this.
    pub fn is_quiet_on(&self, context: u64) -> bool {
        let sends = |request: &Request| match &request.stage {
            RequestStage::Send(send) => send.envelope.context == context,
            _ => false,
        };
        self.matcher.sends_open == 0 || !self.matcher.requests.values().any(sends)
    }

    /// Drops the connections to all peers. No operation may be under way. Later operations connect again.
    pub fn release(&mut self) {
        self.peers.iter_mut().for_each(|peer| *peer = None);
        self.writers.clear();
        self.blocked.clear();
        self.reach.reset_arrivals();
    }

    /// Whether this process has opened a network, by which it reaches processes of other hosts.
    pub fn has_network(&self) -> bool {
        matches!(self.reach, Reach::Nodes(_))
    }

    /// Opens the network to other hosts by `open`, if this process has opened none yet. Errors: `open` has
    /// failed.
    pub fn add_network(
        &mut self,
        open: impl FnOnce() -> Result<transport::route_fabric::Port>,
    ) -> Result<()> {
        self.reach.add_network(open)
    }

    /// Forgets what concerns an earlier process with the number `number`, if another process has that number
    /// by now. The reading and writing of the rings goes on where it was.
    pub fn renew(&mut self, number: u32) {
        self.reach.renew(number);
        let generation = self.reach.generation(number);
        if let Some(Some(peer)) = self.peers.get_mut(number as usize)
            && peer.lane.generation != generation
        {
            peer.lane.start_anew(generation, peer.route.consumed());
        }
    }

    /// Connects to the peer with this number, unless it is connected. Errors: there is no such process, or
    /// this process cannot get a route to it.
    #[inline]
    pub(crate) fn connect(&mut self, number: u32) -> Result<()> {
        if let Some(Some(_)) = self.peers.get(number as usize) {
            Ok(())
        } else {
            self.make_connection(number)
        }
    }

    #[cold]
    fn make_connection(&mut self, number: u32) -> Result<()> {
        match self.peers.get(number as usize) {
            Some(_) => {
                let route = self.reach.route(number)?;
                let overlapped_most =
                    if route.is_carried_by_kernel() { self.config.overlapped_bytes_max } else { 0 };
                let mut lane = Lane::new(number, &self.config, route.packet_bytes_max(), overlapped_most);
                lane.limit_by_table(&self.matcher.chooser);
                lane.start_anew(self.reach.generation(number), route.consumed());
                self.peers[number as usize] = Some(Box::new(Connection { route, lane }));
                Ok(())
            }
            None => {
                fail!(Class::Rank, "peer {number} is not one of the job's {} processes", self.peers.len())
            }
        }
    }
}

impl Matcher {
    /// Counts a message of `length` bytes, in a counter of messages and in a counter of bytes.
    #[inline]
    pub(crate) fn count(&self, messages: Counter, bytes: Counter, length: usize) {
        self.counters.count(messages, 1);
        self.counters.count(bytes, length as u64);
    }

    /// Ends the operation with this ticket. Removes its request if the ticket was freed before.
    #[inline]
    pub(crate) fn complete(&mut self, ticket: u64) {
        let request = self.requests.get_mut(ticket).expect("an operation that completes is known");
        if request.is_send() {
            self.sends_open -= 1;
        }
        let detached = request.detached;
        match request.end() {
            MessageData::Attached(_, kept) | MessageData::Owned(_, kept) => self.buffered.give_back(kept),
            MessageData::User(_) | MessageData::None => (),
        }
        if detached {
            self.requests.remove(ticket);
        }
    }
}

/// Checks that a `P2p` may pass from one thread to another, as the lock around MPI calls lets it.
const _: fn() = || {
    fn may_change_threads<T: Send>() {}
    may_change_threads::<P2p>();
};

/// Returns the connection to a peer, which `connect` has made before.
pub(crate) fn connection(peers: &mut [Option<Box<Connection>>], number: u32) -> &mut Connection {
    peers[number as usize].as_deref_mut().expect("a peer in use was connected")
}
