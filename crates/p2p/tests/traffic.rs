// SPDX-License-Identifier: BSD-3-Clause
//! Tests of random traffic on simulated networks, checked against the rules of MPI 5.0, section 3.5.

mod job;

use job::engines::Engines;
use job::{Bytes, Job, drawn, moods, seeds::seeds};
use matching::{Envelope, Pattern};
use outboard_p2p::{AttachedBuffer, BufferOwner, LargeProtocol, Mode, NeedsRequest, Outcome, P2p, Ticket};
use std::collections::HashMap;

/// A message that the test's plan sends. Its index in the list of messages is its id.
struct Message {
    source: u32,
    dest: u32,
    context: u64,
    tag: i32,
    bytes: usize,
    memory: Bytes,
}

/// A receive, or a matched probe, of one rank. Its index in the rank's list is its order of posting.
struct Receive {
    pattern: Pattern,
    ticket: Ticket,
    memory: Bytes,
    /// The id of the message that the receive has got; None until it has ended.
    got: Option<u64>,
    cancelled: bool,
}

/// A send of the message with this id.
struct Sent {
    id: u64,
    ticket: Ticket,
    is_over: bool,
    cancelled: bool,
}

struct Traffic {
    job: Job,
    messages: Vec<Message>,
    /// For each rank, the ids of the messages that it still has to send, in order.
    outbox: Vec<Vec<u64>>,
    sends: Vec<Sent>,
    /// For each rank, its receives and matched probes, in the order of posting.
    receives: Vec<Vec<Receive>>,
    /// Whether ranks do almost nothing but send, receive and ask for outcomes, and each receive matches the
    /// first message of its source that has no receive yet. This tests deferred receives
    /// (`p2p/src/deferred.rs`).
    orderly: bool,
    /// The stand-in for executors, which moves the bytes of some messages; None if all go in packets.
    engines: Option<Engines>,
    /// Whether nearly all messages of two ranks have one context and tag (one channel), so that receives know
    /// their messages in advance.
    foreseen: bool,
    /// For each rank and source: the id of the first message from that source for which the rank has posted
    /// no receive yet.
    awaited: Vec<[u64; RANKS as usize]>,
}

const RANKS: u32 = 3;
const CONTEXTS: u64 = 2;
const TAGS: u64 = 3;

impl Traffic {
    fn new(seed: u64, engines: Option<Engines>) -> Traffic {
        let large_protocol =
            [LargeProtocol::Auto, LargeProtocol::Cma, LargeProtocol::Cells][seed as usize % 3];
        let config = outboard_p2p::Config { large_protocol, ..drawn(seed) };
        let mut job = Job::new(RANKS, seed, moods(seed), config);
        for rank in &mut job.ranks {
            rank.attach_buffer(BufferOwner::Process, AttachedBuffer::Automatic).unwrap();
        }
        let mut outbox = vec![vec![]; RANKS as usize];
        let foreseen = engines.is_some() && !seed.is_multiple_of(4);
        let orderly = seed % 2 == 1 && !foreseen;
        let draw = |end: u64| job.network.below(end);
        let messages: Vec<Message> = (0..40)
            .map(|id| {
                // Eight bytes hold the id, by which the check recognises the message.
                let pieces = [1, 2, 5, 16, 90, 17][draw(if orderly { 5 } else { 6 }) as usize];
                let source = draw(u64::from(RANKS)) as u32;
                outbox[source as usize].push(id);
                Message {
                    source,
                    dest: draw(u64::from(RANKS)) as u32,
                    context: draw(if foreseen { 1 } else { CONTEXTS }),
                    tag: draw(if foreseen { 1 } else { TAGS }) as i32,
                    bytes: pieces * 8,
                    memory: Bytes::with_gaps(pieces * 8, 8, [0, 3][draw(2) as usize]).holding(id),
                }
            })
            .collect();
        let receives = (0..RANKS).map(|_| vec![]).collect();
        outbox.iter_mut().for_each(|ids| ids.reverse());
        Traffic {
            job,
            messages,
            outbox,
            sends: vec![],
            receives,
            orderly,
            engines,
            foreseen,
            awaited: vec![[0; RANKS as usize]; RANKS as usize],
        }
    }

    fn draw(&self, end: usize) -> usize {
        self.job.network.below(end as u64) as usize
    }

    fn send_next(&mut self, rank: usize) {
        let Some(id) = self.outbox[rank].pop() else { return };
        let kinds = if self.orderly { 50 } else { 4 };
        let mode = match self.draw(kinds) {
            0 => Mode::Synchronous,
            1 => Mode::Buffered { session: 0 },
            kind if kind % 2 == 0 => Mode::Overlapped,
            _ => Mode::Standard,
        };
        let Message { dest, context, tag, memory, .. } = &self.messages[id as usize];
        let by_engine = mode != Mode::Buffered { session: 0 } && *dest as usize != rank && self.draw(3) > 0;
        let fails = self.draw(10) == 0;
        let p2p = &mut self.job.ranks[rank];
        let send = match &mut self.engines {
            Some(engines) if by_engine => {
                engines.send((rank, p2p), mode, (*context, *dest, *tag), memory.buffer(), fails)
            }
            _ => p2p.isend(mode, *context, *dest, *tag, memory.buffer()).unwrap(),
        };
        self.sends.push(Sent { id, ticket: send, is_over: false, cancelled: false });
    }

    fn draw_pattern(&self) -> Pattern {
        if self.foreseen && self.draw(10) > 0 {
            return Pattern { context: 0, source: Some(self.draw(RANKS as usize) as u32), tag: Some(0) };
        }
        Pattern {
            context: self.draw(CONTEXTS as usize) as u64,
            source: (self.draw(2) == 0).then(|| self.draw(RANKS as usize) as u32),
            tag: (self.draw(2) == 0).then(|| self.draw(TAGS as usize) as i32),
        }
    }

    /// Draws a source, and returns what a receive must match to get the source's first message that has no
    /// receive: its tag, or any tag. Returns None if every message of the source has a receive.
    fn next_pattern(&mut self, rank: usize) -> Option<Pattern> {
        // The source is another rank: a message of a rank to itself does not travel.
        let source = (rank + 1 + self.draw(RANKS as usize - 1)) as u32 % RANKS;
        let first = self.awaited[rank][source as usize];
        let is_next = |message: &Message| (message.source, message.dest) == (source, rank as u32);
        let id = (first..).zip(&self.messages[first as usize..]).find(|(_, message)| is_next(message))?.0;
        self.awaited[rank][source as usize] = id + 1;
        let Message { context, tag, .. } = self.messages[id as usize];
        Some(Pattern { context, source: Some(source), tag: (self.draw(2) == 0).then_some(tag) })
    }

    fn draw_memory(&self) -> Bytes {
        let pieces = [1, 5, 90, 90][self.draw(4)];
        let gap = if self.orderly { 0 } else { [0, 5][self.draw(2)] };
        Bytes::with_gaps(pieces * 8, 8, gap)
    }

    fn receive(&mut self, rank: usize, pattern: Pattern) {
        let memory = self.draw_memory();
        let Pattern { context, source, tag } = pattern;
        let foresees = self.engines.is_some() && self.draw(4) > 0;
        let p2p = &mut self.job.ranks[rank];
        let ticket = if let (true, Some(source), Some(tag)) = (foresees, source, tag) {
            let ticket = p2p.irecv_posted(context, Some(source), Some(tag), memory.buffer());
            p2p.expect_message(ticket, context, source, tag);
            ticket
        } else {
            p2p.irecv(context, source, tag, memory.buffer())
        };
        self.receives[rank].push(Receive { pattern, ticket, memory, got: None, cancelled: false });
    }

    /// Receives a message at once, without a ticket, as a blocking receive does.
    fn receive_next(&mut self, rank: usize, pattern: Pattern) {
        let Pattern { context, source: Some(source), tag } = pattern else { return };
        let memory = self.draw_memory();
        let (ticket, got) = match self.job.ranks[rank].recv_next(context, source, tag, &memory.buffer()) {
            Ok(Some(outcome)) => (Ticket::DONE, Some(came(&self.messages, rank, &outcome, &memory))),
            Err(NeedsRequest::Started(ticket)) => (ticket, None),
            Ok(None) | Err(NeedsRequest::Unstarted) => return,
        };
        self.receives[rank].push(Receive { pattern, ticket, memory, got, cancelled: false });
    }

    /// Tries a matched probe, and receives the message that it finds. `judge` treats this as a receive that
    /// was posted now. Returns whether the probe has found a message.
    fn probe(&mut self, rank: usize, pattern: Pattern) -> bool {
        let Pattern { context, source, tag } = pattern;
        let Some((message, _)) = self.job.ranks[rank].improbe(context, source, tag) else { return false };
        let memory = self.draw_memory();
        let ticket = self.job.ranks[rank].imrecv(message, memory.buffer()).unwrap();
        let held = Receive { pattern, ticket, memory, got: None, cancelled: false };
        self.receives[rank].push(held);
        true
    }

    fn cancel_one(&mut self, rank: usize) {
        if !self.receives[rank].is_empty() {
            let nth = self.draw(self.receives[rank].len());
            let receive = &self.receives[rank][nth];
            if receive.got.is_none() && !receive.cancelled {
                let ticket = receive.ticket;
                self.cancel(rank, ticket);
            }
        }
    }

    fn cancel_send(&mut self) {
        if !self.sends.is_empty() {
            let Sent { id, ticket, is_over, .. } = self.sends[self.draw(self.sends.len())];
            if !is_over {
                self.cancel(self.messages[id as usize].source as usize, ticket);
            }
        }
    }

    /// Takes the outcomes of sends that have ended, and records which sends were cancelled.
    fn collect_sends(&mut self) {
        for sent in self.sends.iter_mut().filter(|sent| !sent.is_over) {
            let rank = self.messages[sent.id as usize].source as usize;
            if let Some(outcome) = self.job.ranks[rank].take(sent.ticket) {
                (sent.is_over, sent.cancelled) = (true, outcome.cancelled);
            }
        }
    }

    fn cancel(&mut self, rank: usize, ticket: Ticket) {
        let p2p = &mut self.job.ranks[rank];
        match &mut self.engines {
            Some(engines) => engines.cancel(rank, p2p, ticket),
            None => p2p.cancel(ticket),
        }
    }

    /// Polls one rank, and lets the stand-in for executors continue, if there is one.
    fn step(&mut self) {
        self.job.step();
        let Some(engines) = &mut self.engines else { return };
        let Job { network, ranks, .. } = &mut self.job;
        let draw = |end| network.below(end);
        engines.step(draw);
        let rank = draw(u64::from(RANKS)) as usize;
        engines.carry(rank, &mut ranks[rank], draw);
    }

    /// Takes the outcomes of a rank's receives, and checks each against the message that the received bytes
    /// name.
    fn collect(&mut self, rank: usize) {
        let first = self.draw(self.receives[rank].len() + 1);
        let (early, late) = self.receives[rank].split_at_mut(first);
        for receive in late.iter_mut().chain(early) {
            if receive.got.is_some() || receive.cancelled {
                continue;
            }
            let Some(outcome) = self.job.ranks[rank].take(receive.ticket) else { continue };
            if outcome.cancelled {
                receive.cancelled = true;
                receive.memory.assert_holds(0, 0);
                continue;
            }
            receive.got = Some(came(&self.messages, rank, &outcome, &receive.memory));
        }
    }

    fn received(&self) -> usize {
        self.receives.iter().flatten().filter(|receive| receive.got.is_some()).count()
    }

    /// Ends the receives that are left: cancels those that no message fits. Then receives every message that
    /// no receive has taken.
    fn drain(&mut self) {
        for turn in 0..200_000 {
            self.collect_sends();
            let cancelled = self.sends.iter().filter(|sent| sent.cancelled).count();
            if self.received() + cancelled == self.messages.len() {
                return;
            }
            let rank = turn % RANKS as usize;
            self.send_next(rank);
            for _ in 0..20 {
                self.step();
            }
            self.collect(rank);
            let left = self.receives[rank].iter().filter(|r| r.got.is_none() && !r.cancelled);
            let left: Vec<Ticket> = left.map(|receive| receive.ticket).collect();
            left.into_iter().for_each(|ticket| self.cancel(rank, ticket));
            for context in 0..CONTEXTS {
                while self.probe(rank, Pattern { context, source: None, tag: None }) {}
            }
        }
        panic!("only {} of {} messages came", self.received(), self.messages.len());
    }

    /// Checks the order of messages (MPI 5.0, section 3.5). If a receive got a message, all earlier messages
    /// of the same sender that fit it went to receives posted before it. No receive stays empty if a receive
    /// posted after it got a message that fits both.
    fn judge(&self) {
        let order: HashMap<u64, usize> = (0..RANKS as usize)
            .flat_map(|rank| {
                let ids = self.receives[rank].iter().enumerate();
                ids.filter_map(|(place, receive)| Some((receive.got?, place)))
            })
            .collect();
        let cancelled: Vec<u64> =
            self.sends.iter().filter(|sent| sent.cancelled).map(|sent| sent.id).collect();
        assert_eq!(order.len() + cancelled.len(), self.messages.len(), "every message once");
        assert!(!cancelled.iter().any(|id| order.contains_key(id)), "a cancelled message came");
        for receives in &self.receives {
            for (place, receive) in receives.iter().enumerate() {
                let Some(got) = receive.got else { continue };
                let Message { source, dest, .. } = self.messages[got as usize];
                for (earlier, other) in (0..got).zip(&self.messages) {
                    let Message { context, tag, .. } = *other;
                    let fits = receive.pattern.fits(&Envelope { context, source: other.source, tag });
                    if (other.source, other.dest) == (source, dest) && fits && !cancelled.contains(&earlier) {
                        assert!(
                            order[&earlier] < place,
                            "receive {place} of rank {dest} got message {got}, but {earlier} was sent before it"
                        );
                    }
                }
                let message = &self.messages[got as usize];
                let envelope = Envelope { context: message.context, source, tag: message.tag };
                let passed_over = receives[..place]
                    .iter()
                    .position(|r| r.got.is_none() && !r.cancelled && r.pattern.fits(&envelope));
                assert_eq!(
                    passed_over, None,
                    "receive {place} of rank {dest} got what an earlier one was to get"
                );
            }
        }
    }
}

/// Returns the id of the message that has come into a rank's memory. Fails if the outcome or the bytes are
/// not those of this message.
fn came(messages: &[Message], rank: usize, outcome: &Outcome, memory: &Bytes) -> u64 {
    let id = u64::from_le_bytes(memory.packed()[..8].try_into().unwrap());
    let message = &messages[id as usize];
    assert_eq!((message.source, message.tag), (outcome.source_peer, outcome.tag));
    assert_eq!(message.dest as usize, rank);
    assert_eq!(outcome.bytes, message.bytes.min(memory.bytes));
    assert_eq!(outcome.error.is_some(), message.bytes > memory.bytes);
    // The matcher decides these, whoever moved the bytes.
    assert!(outcome.error.as_ref().is_none_or(|error| error.message.contains(&message.bytes.to_string())));
    memory.assert_holds(id, outcome.bytes);
    id
}

/// Goal: messages come whole and in MPI's order under any traffic. Method: 40 random messages of all modes,
/// with and without gaps, on a network with random faults. Ranks receive, probe and cancel at random. With
/// some seeds, nearly all receives fit a message. The bytes name the message; ids grow in the order of
/// sending.
#[test]
fn random_traffic() {
    seeds(1500, |seed| {
        run(seed, None);
    });
}

/// Goal: messages come whole and in MPI's order also where executors move the bytes of some messages, and
/// finish them in any order.
#[test]
fn random_traffic_by_executors() {
    let mut sums = [0; 3];
    seeds(500, |seed| {
        let engines = run(seed, Some(Engines::default())).expect("they were there");
        let Engines { foreseen, moved, withdrawn, .. } = engines;
        sums = [sums[0] + foreseen, sums[1] + moved, sums[2] + withdrawn];
    });
    eprintln!("{sums:?}");
    assert!(std::env::var("SEED").is_ok() || sums.iter().all(|many| *many > 50), "{sums:?}");
}

fn run(seed: u64, engines: Option<Engines>) -> Option<Engines> {
    let mut traffic = Traffic::new(seed, engines);
    for _ in 0..400 {
        let rank = traffic.draw(RANKS as usize);
        match traffic.draw(16) {
            _ if traffic.orderly && traffic.draw(200) > 0 => match traffic.draw(6) {
                0 => traffic.send_next(rank),
                1 => {
                    let pattern = traffic.next_pattern(rank);
                    pattern.into_iter().for_each(|pattern| traffic.receive(rank, pattern));
                }
                _ => traffic.collect(rank),
            },
            0..3 => traffic.send_next(rank),
            3..5 => traffic.receive(rank, traffic.draw_pattern()),
            5 => drop(traffic.probe(rank, traffic.draw_pattern())),
            6 => {
                traffic.collect(rank);
                traffic.cancel_one(rank);
                traffic.cancel_send();
            }
            7 => traffic.receive_next(rank, traffic.draw_pattern()),
            _ => traffic.step(),
        }
    }
    traffic.drain();
    let mut turns = 0;
    while traffic.sends.iter().any(|sent| !sent.is_over) {
        traffic.step();
        traffic.collect_sends();
        turns += 1;
        assert!(turns < 1_000_000, "a send does not end");
    }
    traffic.judge();
    traffic.job.settle();
    for (rank, p2p) in traffic.job.ranks.iter_mut().enumerate() {
        assert_eq!(
            p2p.detach_buffer(BufferOwner::Process).unwrap(),
            Some(AttachedBuffer::Automatic),
            "rank {rank}"
        );
        assert!(p2p.is_quiet() && p2p.is_idle(), "rank {rank}");
        for receive in traffic.receives[rank].iter().filter(|r| r.got.is_none() && !r.cancelled) {
            assert!(
                p2p.receives_depending_on(receive.ticket)
                    .into_iter()
                    .all(|ticket| p2p.withdraw_executor(ticket))
            );
            p2p.cancel(receive.ticket);
            assert!(p2p.take(receive.ticket).unwrap().cancelled);
        }
        assert_eq!(p2p.pending(), []);
    }
    traffic.engines
}

/// Goal: a sender that has forgotten a channel (the numbered messages of one tag), because it has used too
/// many tags, starts a new channel. The receiver, which waits for the next message of the old channel, takes
/// the first message of the new one.
#[test]
fn forgotten_channels() {
    let mut job = Job::new(2, 1, moods(1), drawn(1));
    let mut engines = Engines::default();
    let tags: Vec<i32> = (0..=256).chain([0, 0]).collect();
    let from: Vec<Bytes> = (0..tags.len() as u64).map(|id| Bytes::new(8).holding(id)).collect();
    let into: Vec<Bytes> = from.iter().map(|_| Bytes::new(8)).collect();
    let receive = |p2p: &mut P2p, turn: usize| {
        let ticket = p2p.irecv_posted(0, Some(0), Some(tags[turn]), into[turn].buffer());
        p2p.expect_message(ticket, 0, 0, tags[turn]);
        ticket
    };
    let (early, mut first_of_old) = (256, None);
    for (turn, &tag) in tags.iter().enumerate() {
        if turn == early {
            first_of_old = Some(receive(&mut job.ranks[1], early + 1));
        }
        let old = first_of_old.filter(|_| turn == early + 1);
        let receive = old.unwrap_or_else(|| receive(&mut job.ranks[1], turn));
        let Job { network, ranks, .. } = &mut job;
        engines.carry(1, &mut ranks[1], |end| network.below(end));
        let data = from[turn].buffer();
        let send = engines.send((0, &mut ranks[0]), Mode::Standard, (0, 1, tag), data, false);
        let (mut is_sent, mut is_received, mut turns) = (false, false, 0);
        while !(is_sent && is_received) {
            job.step();
            let Job { network, ranks, .. } = &mut job;
            engines.step(|end| network.below(end));
            for (rank, p2p) in ranks.iter_mut().enumerate() {
                engines.carry(rank, p2p, |end| network.below(end));
            }
            is_sent |= ranks[0].take(send).is_some();
            is_received |= ranks[1].take(receive).is_some();
            turns += 1;
            assert!(turns < 100_000, "message {turn} does not come");
        }
        into[turn].assert_holds(turn as u64, 8);
    }
    assert!(engines.withdrawn > 0 && engines.foreseen > 0);
}
