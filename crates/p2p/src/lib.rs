//! Point-to-point: every send mode, receives, probes and cancelling, over eager and rendezvous (MPI 5.0, chapter 3).
//!
//! `P2p` is all state of one process. Nothing here waits: an operation is started, `poll` moves everything on that can move,
//! and `outcome` says how an operation ended. The process itself owns its two match queues.
//!
//! How a message travels. Up to `eager_bytes_max` it goes at once, as one packet or in pieces (`pieces.rs`), as long as the peer's credit
//! lasts: what it has not yet matched is bounded by `credit_bytes`, whatever we send. Otherwise only an offer goes (`rendezvous.rs`); once
//! the receive is known, its process reads our memory, or asks for the bytes, which then stream in packets.
//!
//! Invariants: packets to a peer that carry an envelope leave in the order in which their sends were started, so a
//! short message never overtakes a long or a waiting one; a number that a peer sent is checked before it is used.
//!
//! Read next: `send.rs`, `receive.rs`, `deferred.rs`, `pieces.rs`, `rendezvous.rs`; `packet.rs` for what goes over the wire; `tests/sim.rs`.
#![forbid(unsafe_code)]

mod buffered;
mod cancel;
mod choice;
mod deferred;
mod describe;
mod lane;
mod loopback;
mod packet;
mod pending;
mod pieces;
mod poll;
mod probe;
mod protocol;
mod receive;
mod rendezvous;
mod request;
mod send;
mod spares;
mod tickets;

pub use buffered::{AttachedBuffer, Owner};
pub use deferred::{DEFERRED_MAX, NUMBERS};
pub use describe::{Operation, What};
pub use pending::Pending;
pub use probe::{MessageTicket, Probe};
pub use protocol::{Record, table as protocols};

use buffered::Buffered;
use choice::Chooser;
use deferred::Deferred;
use error::{Class, Error, Result, fail};
use lane::Lane;
use matching::{Posted, Unexpected};
use pieces::Early;
pub use receive::Indirect;
use receive::Message;
use rendezvous::ReadFallback;
use request::{Data, Request, Stage};
use spares::Spares;
use std::collections::VecDeque;
use telemetry::{Counter, Page};
use tickets::Tickets;
use transport::owned::Memory;
use transport::route::{Reach, Route};
use tuning::{EAGER_BYTES_MAX, Tuning};

/// What the sender is told, and when (MPI 5.0, section 3.4). The ready mode is `Standard`: a receive that is already posted
/// is matched just as fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Complete once the buffer may be used again.
    Standard,
    /// Complete once the receive has started, too.
    Synchronous,
    /// Complete at once: what cannot leave is copied to the attached buffer, perhaps that of the session (0: of none).
    Buffered { session: u64 },
}

/// Names an operation from its start until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// An operation that was complete when it started, and successful, with nothing to report: most short sends, and a send to
    /// MPI_PROC_NULL. It need not be freed.
    pub const DONE: Ticket = Ticket(u64::MAX);
}

/// How an operation ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For a receive: the peer that sent the message.
    pub source_peer: u32,
    /// For a receive: the message's tag.
    pub tag: i32,
    /// For a receive: data bytes now in the buffer.
    pub bytes: usize,
    /// What went wrong.
    pub error: Option<Error>,
    /// Whether it was cancelled before it matched.
    pub cancelled: bool,
}

/// How long messages travel once the receive is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeProtocol {
    /// Where each process has a core, as was measured (`choice.rs`), and the receiver reads if the sender is long away from MPI; otherwise as `Cma`.
    #[default]
    Auto,
    /// The receiver reads the sender's memory where it can.
    Cma,
    /// The sender streams packets.
    Cells,
}

/// The knobs of this crate; `Config::of` reads them from the settings.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Longest message sent before its receive is known.
    pub eager_bytes_max: usize,
    /// What a peer may hold of our eager messages before it has matched them. A message costs its bytes and 64.
    pub credit_bytes: usize,
    /// How long messages travel.
    pub large_protocol: LargeProtocol,
    /// Bytes read from a peer's memory in one poll.
    pub read_piece_bytes: usize,
    /// With `LargeProtocol::Auto`: polls without a packet of a long message until it is read instead. At 20 to 50 ns each the
    /// default lasts about as long as a short long message takes.
    pub patience_polls: u32,
    /// With `LargeProtocol::Auto`: which messages are read, as far as somebody has measured.
    pub tuning: Tuning,
    /// What a buffered send takes of an attached buffer beside its bytes: MPI_BSEND_OVERHEAD of the ABI.
    pub bsend_overhead_bytes: usize,
}

impl Config {
    /// The knobs as the user set them, and what was measured.
    pub fn of(settings: &settings::Settings, tuning: &Tuning) -> Config {
        Config {
            eager_bytes_max: tuning.get(EAGER_BYTES_MAX).min(EAGER_MOST) as usize,
            credit_bytes: settings.eager_credit_bytes as usize,
            large_protocol: match settings.large_protocol {
                settings::LargeProtocol::Auto => LargeProtocol::Auto,
                settings::LargeProtocol::Cma => LargeProtocol::Cma,
                settings::LargeProtocol::Cells => LargeProtocol::Cells,
            },
            tuning: *tuning,
            ..Config::default()
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            eager_bytes_max: 64 << 10,
            credit_bytes: 1 << 20,
            large_protocol: LargeProtocol::Auto,
            read_piece_bytes: 1 << 20,
            patience_polls: 1000,
            tuning: Tuning::default(),
            bsend_overhead_bytes: 512,
        }
    }
}

/// No peer may begin a longer message in pieces: the setting's greatest value.
pub(crate) const EAGER_MOST: u64 = 1 << 30;

/// Point-to-point of one process. Any thread may use it, one at a time.
pub struct P2p {
    rank: u32,
    reach: Reach,
    config: Config,
    /// By number; made on first use.
    peers: Vec<Option<Box<Connection>>>,
    /// Peers that have ever written to us: the rings to look at.
    writers: Vec<u32>,
    /// Peers for which packets wait.
    blocked: Vec<u32>,
    deferred: Deferred,
    matcher: Matcher,
}

/// What we know of a peer: the way to it, and what waits to go that way.
struct Connection {
    route: Route,
    lane: Lane,
}

/// Everything that does not belong to one peer.
struct Matcher {
    requests: Tickets<Request>,
    /// Messages that a matched probe has taken out of the queue.
    messages: Tickets<(matching::Envelope, Message)>,
    /// Receives, by ticket.
    posted: Posted<u64>,
    unexpected: Unexpected<Message>,
    /// Messages in pieces that are in that queue, or that a matched probe has taken.
    early: Tickets<Early>,
    spares: Spares,
    /// Receives that read their peer's memory, by ticket.
    reading: VecDeque<u64>,
    /// Receives that will read it if the peer sends nothing for too long.
    fallbacks: Vec<ReadFallback>,
    /// Where bytes land that a receive buffer with gaps cannot take directly.
    bounce: Option<Memory>,
    buffered: Buffered,
    /// Sends that have not ended: MPI_Finalize waits for them.
    sends_open: usize,
    large_protocol: LargeProtocol,
    patience_polls: u32,
    chooser: Chooser,
    read_piece_bytes: usize,
    counters: &'static Page,
}

impl P2p {
    /// The state of a process that has done nothing yet. It counts in the telemetry page that is attached by now.
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
            deferred: Deferred::new(),
            matcher: Matcher {
                requests: Tickets::new(),
                messages: Tickets::new(),
                posted: Posted::new(),
                unexpected: Unexpected::new(),
                early: Tickets::new(),
                spares: Spares::new(),
                reading: VecDeque::new(),
                fallbacks: Vec::new(),
                bounce: None,
                buffered: Buffered::new(config.bsend_overhead_bytes),
                sends_open: 0,
                large_protocol,
                patience_polls: config.patience_polls.max(1),
                chooser: Chooser::new(&reach, config.tuning),
                read_piece_bytes: config.read_piece_bytes.max(1),
                counters: telemetry::page(),
            },
            reach,
        }
    }

    /// This process's number.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether an operation has ended. The ticket must not have been freed, here and below.
    #[inline]
    pub fn is_done(&self, ticket: Ticket) -> bool {
        let is_done = |posted| self.matcher.requests.get(posted).is_some_and(Request::is_done);
        ticket == Ticket::DONE
            || self.deferred.arrived(ticket).is_some()
            || self.posted_ticket(ticket).is_some_and(is_done)
    }

    /// How an operation ended, once it has.
    pub fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        if ticket == Ticket::DONE {
            return Some(Outcome::default());
        }
        if let Some(arrived) = self.deferred.arrived(ticket) {
            return Some(arrived);
        }
        let request =
            self.matcher.requests.get(self.posted_ticket(ticket)?).expect("the ticket has not been freed");
        request.is_done().then(|| request.outcome.clone())
    }

    /// How an operation ended, once it has; the ticket is then freed.
    #[inline(always)] // So that the outcome is not copied.
    pub fn take(&mut self, ticket: Ticket) -> Option<Outcome> {
        if ticket == Ticket::DONE {
            return Some(Outcome::default());
        }
        if ticket.is_deferred() { self.take_deferred(ticket) } else { self.take_posted(ticket.0) }
    }

    #[inline(always)]
    fn take_posted(&mut self, ticket: u64) -> Option<Outcome> {
        // What has ended has given its buffer up, so that the outcome is all it holds.
        let outcome = |request: &mut Request| request.is_done().then(|| std::mem::take(&mut request.outcome));
        self.matcher.requests.remove_if(ticket, outcome)
    }

    /// Gives up a ticket. An operation that has not ended goes on to its end (MPI 5.0, section 3.7.3, MPI_Request_free).
    pub fn free(&mut self, ticket: Ticket) {
        if let Some(posted) = self.give_up_ticket(ticket)
            && let Some(request) = self.matcher.requests.get_mut(posted)
        {
            request.detached = true;
            if request.is_done() {
                self.matcher.requests.remove(posted);
            }
        }
    }

    /// Whether every send has ended and nothing waits to leave: what MPI_Finalize waits for.
    pub fn is_quiet(&self) -> bool {
        self.matcher.sends_open == 0 && self.blocked.is_empty()
    }

    /// Whether no operation is under way, and no message waits for its receive.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        let Matcher { posted, unexpected, sends_open, .. } = &self.matcher;
        let is_empty = posted.is_empty() && unexpected.is_empty() && !self.deferred.is_waiting();
        is_empty && !self.must_poll() && *sends_open == 0
    }

    /// Whether `poll` has work that no peer will ring the doorbell for, so that the process must not sleep.
    #[inline]
    pub fn must_poll(&self) -> bool {
        !(self.blocked.is_empty() && self.matcher.reading.is_empty() && self.matcher.fallbacks.is_empty())
    }

    /// Whether nothing has come and nothing waits: what a process asks, with its doorbell armed, before it sleeps.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let route = |number: &u32| self.peers[*number as usize].as_deref().map(|peer| &peer.route);
        !self.must_poll()
            && !self.reach.has_arrivals()
            && !self.writers.iter().filter_map(route).any(Route::ready)
    }

    /// Whether no message of ours in a context waits for its receive to begin: what MPI_Comm_disconnect waits for.
    pub fn is_quiet_on(&self, context: u64) -> bool {
        let sends = |request: &Request| matches!(&request.stage, Stage::Send(send) if send.envelope.context == context);
        self.matcher.sends_open == 0 || !self.matcher.requests.values().any(sends)
    }

    /// Lets all peers go, once nothing is under way; what comes later finds them again.
    pub fn release(&mut self) {
        self.peers.iter_mut().for_each(|peer| *peer = None);
        self.writers.clear();
        self.blocked.clear();
        self.reach.forget_arrivals();
    }

    /// Begins anew with a peer in whose place there may be another process than before. The rings go on where they are.
    pub fn renew(&mut self, number: u32) {
        let generation = self.reach.generation(number);
        if let Some(Some(peer)) = self.peers.get_mut(number as usize)
            && peer.lane.generation != generation
        {
            peer.lane.begin_anew(generation, peer.route.consumed());
        }
    }

    /// Makes the way to a peer, where there is none yet.
    #[inline]
    fn connect(&mut self, number: u32) -> Result<()> {
        if let Some(Some(_)) = self.peers.get(number as usize) { Ok(()) } else { self.make_way(number) }
    }

    #[cold]
    fn make_way(&mut self, number: u32) -> Result<()> {
        match self.peers.get(number as usize) {
            Some(_) => {
                let route = self.reach.route(number)?;
                let mut lane = Lane::new(number, &self.config, route.packet_bytes_max());
                lane.choose(&self.matcher.chooser);
                lane.begin_anew(self.reach.generation(number), route.consumed());
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
    /// Counts a message.
    #[inline]
    fn count(&self, messages: Counter, bytes: Counter, length: usize) {
        self.counters.count(messages, 1);
        self.counters.count(bytes, length as u64);
    }

    /// Ends an operation, and forgets it if nobody will ask.
    #[inline]
    fn complete(&mut self, ticket: u64) {
        let request = self.requests.get_mut(ticket).expect("an operation that completes is known");
        if request.is_send() {
            self.sends_open -= 1;
        }
        let detached = request.detached;
        match request.end() {
            Data::Attached(_, kept) | Data::Owned(_, kept) => self.buffered.give_back(kept),
            Data::User(_) | Data::None => (),
        }
        if detached {
            self.requests.remove(ticket);
        }
    }
}

/// The process's lock gives it to one thread after another.
const _: fn() = || {
    fn may_change_threads<T: Send>() {}
    may_change_threads::<P2p>();
};

/// The peer, which `connect` has made.
fn known(peers: &mut [Option<Box<Connection>>], number: u32) -> &mut Connection {
    peers[number as usize].as_deref_mut().expect("a peer in use was connected")
}
