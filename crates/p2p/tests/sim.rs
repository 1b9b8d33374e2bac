// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the protocols on simulated networks with faults: the order of messages, and their outcomes.

mod job;

use error::Class;
use job::{Bytes, CALM, Job, drawn, moods, seeds::seeds, small};
use outboard_p2p::{
    AttachedBuffer, BufferOwner, Config, LargeProtocol, Mode, NeedsRequest, Outcome, PendingOperation, Ticket,
};
use transport::sim::Conditions;

const CONTEXT: u64 = 0xc0;

/// Goal: messages with the same envelope arrive in the order sent, whatever their lengths and modes.
#[test]
fn order_survives_delay() {
    seeds(500, |seed| {
        let mut job = Job::new(2, seed, moods(seed), drawn(seed));
        let lengths: Vec<usize> =
            (0..24).map(|_| [8, 40, 41, 128, 129, 700][job.network.below(6) as usize]).collect();
        let sent: Vec<Bytes> =
            (0u64..).zip(&lengths).map(|(id, &bytes)| Bytes::new(bytes).holding(id)).collect();
        let mut sends = vec![];
        for message in &sent {
            let mode = [Mode::Standard, Mode::Synchronous, Mode::Overlapped][job.network.below(3) as usize];
            sends.push(job.ranks[0].isend(mode, CONTEXT, 1, 5, message.buffer()).unwrap());
            for _ in 0..job.network.below(5) {
                job.step();
            }
        }
        for (id, &bytes) in (0u64..).zip(&lengths) {
            let into = Bytes::new(700);
            let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into.buffer());
            let outcome = job.wait(1, receive);
            assert_eq!(outcome, Outcome { source_peer: 0, tag: 5, bytes, ..Outcome::default() });
            into.assert_holds(id, bytes);
        }
        for send in sends {
            assert_eq!(job.wait(0, send), Outcome::default());
        }
        job.settle();
        assert!(job.ranks.iter().all(|rank| rank.is_quiet() && rank.is_idle() && rank.pending().is_empty()));
    });
}

/// Goal: a call that receives without a request takes the message that is next in order. If it cannot, it
/// says so, and the caller waits for a receive with a request.
#[test]
fn the_next_message_needs_no_request() {
    let (mut without, mut begun) = (0, 0);
    seeds(500, |seed| {
        let mut job = Job::new(2, seed, moods(seed), drawn(seed));
        let mut sends = vec![];
        let mut sent = vec![];
        for id in 0..24 {
            while sent.len() <= id as usize || job.network.below(4) == 0 {
                let bytes = [8, 40, 41, 128, 129, 700][job.network.below(6) as usize];
                let message = Bytes::new(bytes).holding(sent.len() as u64);
                let tag = job.network.below(2) as i32;
                let mode =
                    [Mode::Standard, Mode::Overlapped, Mode::Synchronous][job.network.below(3) as usize];
                sends.push(job.ranks[0].isend(mode, CONTEXT, 1, tag, message.buffer()).unwrap());
                sent.push((tag, message));
            }
            let (tag, message) = &sent[id as usize];
            let into = Bytes::new([64, 700][job.network.below(2) as usize]);
            let wanted = [None, Some(*tag)][job.network.below(2) as usize];
            let (mut outcome, mut started) = (None, None);
            for _ in 0..job.network.below(40) {
                job.ranks[0].poll().unwrap();
                let other = job.ranks[1].recv_next(CONTEXT, 0, Some(1 - tag), &into.buffer());
                assert!(matches!(other, Err(NeedsRequest::Unstarted) | Ok(None)), "it has another tag");
                match job.ranks[1].recv_next(CONTEXT, 0, wanted, &into.buffer()) {
                    Ok(None) => continue,
                    Ok(received) => outcome = received,
                    Err(NeedsRequest::Started(receive)) => started = Some(receive),
                    Err(NeedsRequest::Unstarted) => {}
                }
                break;
            }
            without += u32::from(outcome.is_some());
            let outcome = outcome.unwrap_or_else(|| {
                let start = || job.ranks[1].irecv(CONTEXT, Some(0), wanted, into.buffer());
                let receive = started.unwrap_or_else(start);
                job.wait(1, receive)
            });
            begun += u32::from(started.is_some());
            assert_eq!((outcome.source_peer, outcome.tag), (0, *tag));
            assert_eq!(outcome.bytes, message.bytes.min(into.bytes));
            assert_eq!(outcome.error.is_some(), message.bytes > into.bytes);
            into.assert_holds(id, outcome.bytes);
        }
        for (id, (tag, message)) in (0u64..).zip(&sent).skip(24) {
            let into = Bytes::new(700);
            let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(*tag), into.buffer());
            assert_eq!(job.wait(1, receive).bytes, message.bytes);
            into.assert_holds(id, message.bytes);
        }
        for send in sends {
            assert_eq!(job.wait(0, send), Outcome::default());
        }
        job.settle();
        assert!(job.ranks.iter().all(|rank| rank.is_quiet() && rank.is_idle() && rank.pending().is_empty()));
    });
    assert!(without > 1000 && begun > 100, "{without} messages whole, {begun} in part");
}

/// Goal: a message that was received without a request gives its credit back. Method: more messages than the
/// credit lasts for.
#[test]
fn the_next_message_gives_credit_back() {
    let mut job = Job::new(2, 1, CALM, small());
    for id in 0..100 {
        let (from, into) = (Bytes::new(8).holding(id), Bytes::new(8));
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
        assert_eq!(send, Ticket::DONE, "message {id} left at once");
        if id == 0 {
            // The first message connects the peer.
            let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into.buffer());
            job.wait(1, receive);
        } else {
            let next = (0..100).find_map(|_| {
                job.ranks[1]
                    .recv_next(CONTEXT, 0, Some(5), &into.buffer())
                    .expect("nothing else is under way")
            });
            assert_eq!(next.map(|outcome| outcome.bytes), Some(8));
        }
        into.assert_holds(id, 8);
    }
}

/// Goal: a synchronous send ends only after its receive has started; a standard one need not wait.
#[test]
fn synchronous_waits_for_the_receive() {
    for (bytes, dest) in [(0, 1), (8, 1), (100, 1), (5000, 1), (0, 0), (8, 0), (5000, 0)] {
        let mut job = Job::new(2, 1, CALM, small());
        let from = Bytes::new(bytes).holding(3);
        let send = job.ranks[0].isend(Mode::Synchronous, CONTEXT, dest, 5, from.buffer()).unwrap();
        job.settle();
        assert_eq!(job.ranks[0].outcome(send), None, "{bytes} bytes to {dest}");
        let into = Bytes::new(bytes);
        let receive = job.ranks[dest as usize].irecv(CONTEXT, None, None, into.buffer());
        assert_eq!(job.wait(dest as usize, receive).bytes, bytes);
        assert_eq!(job.wait(0, send), Outcome::default());
        into.assert_holds(3, bytes);
    }
}

/// Goal: the memory that a peer needs for unmatched messages of one sender is bounded. Method: send far
/// beyond the credit, with no receives. Messages beyond it are offered, and the receiver copies nothing.
#[test]
fn credit_bounds_unexpected_bytes() {
    for (dest, bytes) in [(1, 100), (1, 0), (0, 100)] {
        let mut job = Job::new(2, 1, CALM, small());
        let messages: Vec<Bytes> = (0..100).map(|id| Bytes::new(bytes).holding(id)).collect();
        let sends: Vec<Ticket> = messages
            .iter()
            .map(|message| job.ranks[0].isend(Mode::Standard, CONTEXT, dest, 5, message.buffer()).unwrap())
            .collect();
        job.settle();
        let done = sends.iter().filter(|&&send| job.ranks[0].is_done(send)).count();
        assert_eq!(done, 4000 / (256 + bytes), "sends that left eagerly");
        let waiting = job.ranks[dest as usize].pending();
        let is_message = |pending: &&PendingOperation| matches!(pending, PendingOperation::Message { .. });
        assert_eq!(waiting.iter().filter(is_message).count(), 100);
        for id in 0..100 {
            let into = Bytes::new(bytes);
            let receive = job.ranks[dest as usize].irecv(CONTEXT, Some(0), Some(5), into.buffer());
            assert_eq!(job.wait(dest as usize, receive).error, None);
            into.assert_holds(id, bytes);
        }
        for send in sends {
            job.wait(0, send);
        }
        // All credit came back: as many messages leave at once again.
        let again: Vec<Ticket> = messages[..4000 / (256 + bytes)]
            .iter()
            .map(|message| job.ranks[0].isend(Mode::Standard, CONTEXT, dest, 5, message.buffer()).unwrap())
            .collect();
        job.settle();
        assert!(again.iter().all(|&send| job.ranks[0].is_done(send)));
    }
}

/// Goal: a message that matches on arrival gives its credit back, too: each of 100 sends leaves at once.
#[test]
fn credit_comes_back_at_once() {
    // To the sender itself; to a receive that waits, or is posted; whole, or in pieces.
    for (dest, is_posted, bytes) in [(0, false, 100), (1, false, 100), (1, false, 400), (1, true, 400)] {
        let mut job = Job::new(2, 1, CALM, Config { eager_bytes_max: 400, ..small() });
        let send = |job: &mut Job, from: &Bytes| {
            job.ranks[0].isend(Mode::Standard, CONTEXT, dest as u32, 5, from.buffer()).unwrap()
        };
        for id in 0..100 {
            let (from, into) = (Bytes::new(bytes).holding(id), Bytes::new(bytes));
            let receive = job.ranks[dest].irecv(CONTEXT, Some(0), Some(5), into.buffer());
            if is_posted {
                job.ranks[dest].poll().unwrap();
            }
            let sent = send(&mut job, &from);
            assert!(job.ranks[0].is_done(sent), "message {id}");
            job.wait(dest, receive);
            into.assert_holds(id, bytes);
        }
        let more: Vec<Bytes> = (0..20).map(|id| Bytes::new(bytes).holding(id)).collect();
        let sends: Vec<Ticket> = more.iter().map(|from| send(&mut job, from)).collect();
        job.settle();
        let left = sends.iter().filter(|&&send| job.ranks[0].is_done(send)).count();
        assert_eq!(left, 4000 / (256 + bytes), "no more came back than was spent");
    }
}

/// Goal: a message longer than its receive's buffer fails the receive only, and the error names both lengths.
#[test]
fn truncation_names_the_facts() {
    let ways = [
        ("inline", 80, 1, LargeProtocol::Auto),
        ("pieces", 600, 1, LargeProtocol::Auto),
        ("read", 800, 1, LargeProtocol::Cma),
        ("stream", 800, 1, LargeProtocol::Cells),
        ("own", 80, 0, LargeProtocol::Auto),
        ("own, long", 800, 0, LargeProtocol::Auto),
    ];
    for ((way, bytes, dest, large_protocol), receive_first, capacity) in
        ways.into_iter().flat_map(|way| [(way, false, 64), (way, true, 64), (way, false, 0)])
    {
        let config = Config { large_protocol, eager_bytes_max: 600, ..small() };
        let mut job = Job::new(2, 9, CALM, config);
        let (from, into) = (Bytes::new(bytes).holding(1), Bytes::new(capacity));
        let at = dest as usize;
        let early = receive_first.then(|| job.ranks[at].irecv(CONTEXT, Some(0), Some(7), into.buffer()));
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, dest, 7, from.buffer()).unwrap();
        job.settle();
        let receive = early.unwrap_or_else(|| job.ranks[at].irecv(CONTEXT, Some(0), Some(7), into.buffer()));
        let outcome = job.wait(at, receive);
        let error = outcome.error.expect(way);
        assert_eq!(error.class, Class::Truncate);
        let sentence =
            format!("message of {bytes} bytes from rank 0, tag 7, but the buffer holds {capacity}");
        assert_eq!(error.message, sentence, "{way}");
        assert_eq!((outcome.source_peer, outcome.tag, outcome.bytes), (0, 7, capacity));
        assert_eq!(job.wait(0, send), Outcome::default(), "{way}");
        into.assert_holds(1, capacity);
    }
}

/// Goal: a long message arrives while its sender computes, and the sender learns of that afterwards. Method:
/// only the receiver is polled, from the start, or after the sender has answered with some packets.
#[test]
fn an_absent_sender_is_read() {
    for polls_of_sender in [0, 1, 2] {
        let mut job = Job::new(2, 1, Conditions { ring_packets: 2, ..CALM }, small());
        let (from, into) = (Bytes::new(5000).holding(3), Bytes::new(5000));
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
        let receive = job.ranks[1].irecv(CONTEXT, None, None, into.buffer());
        for _ in 0..polls_of_sender {
            job.ranks[1].poll().unwrap();
            job.ranks[0].poll().unwrap();
        }
        for _ in 0..200 {
            job.ranks[1].poll().unwrap();
            let ended = job.ranks[1].is_done(receive);
            assert!(ended || job.ranks[1].must_poll(), "nobody would wake it");
        }
        assert_eq!(job.ranks[1].take(receive).unwrap().bytes, 5000);
        into.assert_holds(3, 5000);
        assert!(!job.ranks[0].is_done(send), "it does not know yet, and may not be written");
        job.wait(0, send);
        job.settle();
        assert!(job.ranks[0].is_quiet() && job.ranks[1].is_quiet());
    }
}

/// Goal: a cancelled receive takes no message. A receive or send that has matched cannot be cancelled.
#[test]
fn cancel() {
    let mut job = Job::new(2, 3, CALM, small());
    let (a, b, from) = (Bytes::new(500), Bytes::new(500), Bytes::new(500).holding(6));
    let first = job.ranks[1].irecv(CONTEXT, None, None, a.buffer());
    let second = job.ranks[1].irecv(CONTEXT, None, None, b.buffer());
    job.ranks[1].cancel(first);
    assert!(job.ranks[1].take(first).unwrap().cancelled);
    let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
    job.ranks[0].cancel(send);
    job.settle();
    job.ranks[1].cancel(second);
    let outcome = job.wait(1, second);
    assert_eq!((outcome.cancelled, outcome.bytes), (false, 500));
    assert!(!job.wait(0, send).cancelled);
    a.assert_holds(0, 0);
    b.assert_holds(6, 500);
}

/// Goal: deferred receives (not posted yet) behave like others: they are cancelled and freed at once, and
/// come before later receives. Method: fewer and more than their table holds. One is cancelled, one is freed,
/// and the outcomes of the others are taken from the last to the first.
#[test]
fn receives_that_are_not_posted() {
    let mut job = Job::new(2, 5, Conditions { ring_packets: 2000, ..CALM }, small());
    for (round, many) in [300, 20, 1000].into_iter().chain([20; 200]).enumerate() {
        let round = round as u64;
        let from: Vec<_> = (0..many).map(|id| Bytes::new(8).holding(round << 32 | id)).collect();
        let into: Vec<_> = (0..=many).map(|_| Bytes::new(8)).collect();
        let post = |job: &mut Job, at: u64| {
            job.ranks[1].irecv(CONTEXT, Some(0), Some(at as i32), into[at as usize].buffer())
        };
        let receives: Vec<_> = (0..many).map(|at| post(&mut job, at)).collect();
        for (tag, from) in from.iter().enumerate() {
            job.ranks[0].isend(Mode::Standard, CONTEXT, 1, tag as i32, from.buffer()).unwrap();
        }
        let next = job.ranks[1].recv_next(CONTEXT, 0, None, &into[many as usize].buffer());
        assert_eq!(next, Err(NeedsRequest::Unstarted), "the first message is the first receive's");
        job.ranks[1].cancel(receives[7]);
        assert!(job.ranks[1].take(receives[7]).unwrap().cancelled);
        job.ranks[1].free(receives[8]);
        for at in (0..many).rev().filter(|at| !(7..9).contains(at)) {
            let outcome = job.wait(1, receives[at as usize]);
            assert_eq!((outcome.tag, outcome.bytes), (at as i32, 8));
            into[at as usize].assert_holds(round << 32 | at, 8);
        }
        into[8].assert_holds(round << 32 | 8, 8);
        into[7].assert_holds(0, 0);
        let last = post(&mut job, many - 1);
        let seven = job.ranks[1].irecv(CONTEXT, Some(0), None, into[7].buffer());
        assert_eq!(job.wait(1, seven).tag, 7, "the one whose receive was cancelled");
        job.ranks[1].cancel(last);
        assert!(job.wait(1, last).cancelled);
        assert_eq!(job.ranks[1].pending(), []);
        let given_up = post(&mut job, 0);
        job.ranks[1].cancel(given_up);
        job.ranks[1].free(given_up);
        let receive = post(&mut job, 0);
        job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 0, from[0].buffer()).unwrap();
        assert!(job.ranks[1].take(receive).is_some(), "taken without a poll, so there is room for more");
    }
}

/// Goal: taking a deferred receive (not posted yet) also gives the deferred receives before it their
/// messages: each in its own buffer, in order for each peer. Each has ended once its message has come.
#[test]
fn messages_come_for_all_that_are_not_posted() {
    let mut job = Job::new(3, 5, CALM, small());
    let from: Vec<_> = (0..6).map(|id| Bytes::new(8).holding(id)).collect();
    let into: Vec<_> = [8, 8, 4, 8, 8, 8].map(Bytes::new).into();
    for peer in [0, 2] {
        let (known, heard) = (Bytes::new(8).holding(0), Bytes::new(8));
        job.ranks[peer].isend(Mode::Standard, CONTEXT, 1, 7, known.buffer()).unwrap();
        let receive = job.ranks[1].irecv(CONTEXT, Some(peer as u32), None, heard.buffer());
        job.wait(1, receive);
    }
    let [first, freed, short, last, others, behind] = [0, 1, 2, 3, 4, 5].map(|at: usize| {
        // Every message would fit the other peer's receive, except for its source.
        let (source, tag) = if at == 4 { (2, None) } else { (0, Some(at as i32)) };
        job.ranks[1].irecv(CONTEXT, Some(source), tag, into[at].buffer())
    });
    for at in [0, 1, 2, 3, 5] {
        job.ranks[0].isend(Mode::Standard, CONTEXT, 1, at as i32, from[at].buffer()).unwrap();
    }
    let one = &mut job.ranks[1];
    assert!(!one.is_done(first) && one.outcome(last).is_none(), "nobody has looked");
    assert_eq!(one.take_arrived(first), None);
    assert_eq!(one.take(last).map(|outcome| (outcome.tag, outcome.bytes)), Some((3, 8)));
    assert!([first, freed, short].into_iter().all(|ticket| one.is_done(ticket)));
    assert!(one.take(behind).is_none(), "it comes after one for which nothing has come");
    assert_eq!(one.outcome(first), Some(Outcome { tag: 0, bytes: 8, ..Outcome::default() }));
    assert_eq!(one.take_arrived(first), Some((0, 8)));
    one.cancel(freed);
    assert!(!one.outcome(freed).unwrap().cancelled);
    one.free(freed);
    assert_eq!(one.take_arrived(short), None, "it has failed");
    let outcome = one.take(short).unwrap();
    assert_eq!((outcome.error.unwrap().class, outcome.bytes), (Class::Truncate, 4));
    job.ranks[2].isend(Mode::Standard, CONTEXT, 1, 4, from[4].buffer()).unwrap();
    assert_eq!((job.wait(1, others).tag, job.wait(1, behind).tag), (4, 5));
    (0..6).for_each(|at| into[at].assert_holds(at as u64, into[at].bytes));
}

/// Goal: a send can be cancelled while its message waits at the sender or the receiver (which may be one
/// rank), but not once a matched probe has taken it. The message of a cancelled send is not received.
#[test]
fn cancel_sends() {
    for seed in 0..20 {
        let mood = if seed == 0 { CALM } else { moods(seed) };
        let mut job = Job::new(2, seed, mood, small());
        let (from, into) = (Bytes::new(500).holding(6), Bytes::new(500));
        let sends: Vec<_> = (0..20)
            .map(|tag| job.ranks[0].isend(Mode::Synchronous, CONTEXT, 1, tag, from.buffer()).unwrap())
            .collect();
        let own = job.ranks[1].isend(Mode::Synchronous, CONTEXT, 1, 30, from.buffer()).unwrap();
        job.ranks[1].cancel(own);
        assert!(job.ranks[1].take(own).unwrap().cancelled);
        job.settle();
        let (message, _) = job.ranks[1].improbe(CONTEXT, Some(0), Some(7)).unwrap();
        let late = job.ranks[0].isend(Mode::Synchronous, CONTEXT, 1, 31, from.buffer()).unwrap();
        sends.iter().for_each(|send| job.ranks[0].cancel(*send));
        job.ranks[0].cancel(late);
        job.settle();
        assert!(job.ranks[0].take(late).unwrap().cancelled);
        for (tag, send) in sends.iter().enumerate() {
            assert_eq!(job.ranks[0].is_done(*send), tag != 7, "tag {tag}");
            assert!(tag == 7 || job.ranks[0].take(*send).unwrap().cancelled);
        }
        assert_eq!(job.ranks[1].iprobe(CONTEXT, None, None), None);
        let receive = job.ranks[1].imrecv(message, into.buffer()).unwrap();
        assert_eq!(job.wait(1, receive).tag, 7);
        assert!(!job.wait(0, sends[7]).cancelled);
        into.assert_holds(6, 500);
        job.settle();
        assert!(job.ranks[0].is_quiet() && job.ranks[1].is_quiet());
    }
}

/// Goal: a message of which some pieces have come is probed, taken by a matched probe, received or dropped
/// like others, and its other pieces follow. Its send can no longer be cancelled, and messages behind it
/// wait. Method: a ring for three packets, so that the message stops between pieces.
#[test]
fn messages_of_which_a_part_has_come() {
    let config = Config { eager_bytes_max: 800, ..small() };
    let mood = Conditions { ring_packets: 3, payload_bytes_max: 100, ..CALM };
    for (polls, way) in (0..3).flat_map(|polls| (0..5).map(move |way| (polls, way))) {
        let mut job = Job::new(2, 3, mood, config);
        let (from, behind) = (Bytes::new(800).holding(1), Bytes::new(8).holding(2));
        let into = Bytes::with_gaps([800, 800, 800, 96, 800][way], 8, [0, 0, 4, 0, 0][way]);
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
        let last = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 6, behind.buffer()).unwrap();
        job.ranks[1].poll().unwrap();
        for _ in 0..polls {
            job.ranks[0].poll().unwrap();
            job.ranks[1].poll().unwrap();
        }
        job.ranks[0].cancel(send);
        let seen = job.ranks[1].iprobe(CONTEXT, Some(0), None).unwrap();
        assert_eq!((seen.tag, seen.bytes), (5, 800), "after {polls} polls");
        assert_eq!(job.ranks[0].is_done(send), polls == 2, "after {polls} polls");
        let receive = match way {
            0 => {
                let (message, _) = job.ranks[1].improbe(CONTEXT, Some(0), None).unwrap();
                assert_eq!(job.ranks[1].iprobe(CONTEXT, Some(0), Some(5)), None);
                Some(job.ranks[1].imrecv(message, into.buffer()).unwrap())
            }
            4 => {
                let drained = job.ranks[1].drain(|_| true);
                assert_eq!(drained[0], (CONTEXT, seen));
                None
            }
            _ => Some(job.ranks[1].irecv(CONTEXT, None, Some(5), into.buffer())),
        };
        if let Some(receive) = receive {
            let outcome = job.wait(1, receive);
            assert_eq!((outcome.tag, outcome.bytes), (5, into.bytes));
            assert_eq!(outcome.error.is_some(), way == 3);
            into.assert_holds(1, into.bytes);
        }
        assert_eq!(job.wait(0, send), Outcome::default());
        assert_eq!(job.wait(0, last), Outcome::default());
        let next = Bytes::new(8);
        let receive = job.ranks[1].irecv(CONTEXT, Some(0), None, next.buffer());
        assert_eq!(job.wait(1, receive).tag, 6);
        next.assert_holds(2, 8);
        job.settle();
        assert!(job.ranks.iter().all(|rank| rank.is_quiet() && rank.is_idle() && rank.pending().is_empty()));
        let again = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 7, from.buffer()).unwrap();
        job.settle();
        assert!(job.ranks[0].is_done(again), "all credit came back");
    }
}

/// Goal: a probe finds a message that MPI_Iprobe found before, but not one that a matched probe has taken.
#[test]
fn probes() {
    for (bytes, dest) in [(8, 1), (100, 1), (400, 1), (3000, 1), (8, 0), (3000, 0)] {
        let mut job = Job::new(2, 3, CALM, Config { eager_bytes_max: 400, ..small() });
        let (one, two) = (Bytes::new(bytes).holding(1), Bytes::new(bytes).holding(2));
        let at = dest as usize;
        assert_eq!(job.ranks[at].iprobe(CONTEXT, None, None), None);
        let sends = [&one, &two]
            .map(|message| job.ranks[0].isend(Mode::Standard, CONTEXT, dest, 5, message.buffer()).unwrap());
        job.settle();
        let seen = job.ranks[at].iprobe(CONTEXT, Some(0), None).unwrap();
        assert_eq!((seen.source_peer, seen.tag, seen.bytes), (0, 5, bytes as u64));
        assert_eq!(job.ranks[at].iprobe(CONTEXT, Some(0), Some(6)), None);
        assert_eq!(job.ranks[at].iprobe(CONTEXT + 1, None, None), None);
        let (message, taken) = job.ranks[at].improbe(CONTEXT, None, Some(5)).unwrap();
        assert_eq!(taken, seen);
        let (into_one, into_two) = (Bytes::new(bytes), Bytes::new(bytes));
        let later = job.ranks[at].irecv(CONTEXT, None, None, into_two.buffer());
        job.wait(at, later);
        into_two.assert_holds(2, bytes);
        let first = job.ranks[at].imrecv(message, into_one.buffer()).unwrap();
        assert_eq!(job.wait(at, first).bytes, bytes);
        into_one.assert_holds(1, bytes);
        assert!(job.ranks[at].imrecv(message, into_one.buffer()).is_none(), "a message is received once");
        for send in sends {
            job.wait(0, send);
        }
    }
}

/// Goal: buffered sends end at once. The attached buffer can be detached once all messages have left it.
#[test]
fn buffered() {
    for automatic in [false, true] {
        for dest in [0, 1] {
            let mut job = Job::new(2, 3, Conditions { ring_packets: 1, ..CALM }, small());
            let room = Bytes::new(2 * 600);
            let buffer =
                if automatic { AttachedBuffer::Automatic } else { AttachedBuffer::User(room.span()) };
            let send = |job: &mut Job, id| {
                // The message's own memory is freed when the send returns.
                let message = Bytes::new(600).holding(id);
                job.ranks[0].isend(Mode::Buffered { session: 0 }, CONTEXT, dest, 5, message.buffer())
            };
            assert_eq!(send(&mut job, 0).unwrap_err().class, Class::Buffer);
            job.ranks[0].attach_buffer(BufferOwner::Process, buffer).unwrap();
            let again = job.ranks[0].attach_buffer(BufferOwner::Process, buffer);
            assert_eq!(again.unwrap_err().class, Class::Buffer);
            for id in 0..2 {
                assert_eq!(send(&mut job, id).unwrap(), Ticket::DONE);
            }
            job.settle();
            if !automatic {
                let error = send(&mut job, 2).unwrap_err();
                assert_eq!(error.class, Class::Buffer);
                assert!(error.message.contains("2 messages"), "{error}");
            }
            assert_eq!(job.ranks[0].detach_buffer(BufferOwner::Process).unwrap(), None);
            for id in 0..2 {
                let into = Bytes::new(600);
                let receive = job.ranks[dest as usize].irecv(CONTEXT, None, None, into.buffer());
                job.wait(dest as usize, receive);
                into.assert_holds(id, 600);
            }
            job.settle();
            assert_eq!(job.ranks[0].detach_buffer(BufferOwner::Process).unwrap(), Some(buffer));
            assert_eq!(job.ranks[0].detach_buffer(BufferOwner::Process).unwrap_err().class, Class::Buffer);
        }
    }
}

/// Goal: an operation whose ticket was freed still completes, and leaves nothing behind.
#[test]
fn freed_operations_go_on() {
    let mut job = Job::new(2, 3, CALM, small());
    let (from, into) = (Bytes::new(900).holding(1), Bytes::new(900));
    let receive = job.ranks[1].irecv(CONTEXT, None, None, into.buffer());
    let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
    job.ranks[1].free(receive);
    job.ranks[0].free(send);
    job.settle();
    into.assert_holds(1, 900);
    assert!(
        job.ranks[0].is_quiet() && job.ranks[0].pending().is_empty() && job.ranks[1].pending().is_empty()
    );
}

/// Goal: a rank that is no process of the job is refused.
#[test]
fn a_stranger_is_refused() {
    let mut job = Job::new(2, 1, CALM, small());
    let error = job.ranks[0].isend(Mode::Standard, CONTEXT, 2, 5, Bytes::new(8).buffer()).unwrap_err();
    assert_eq!(error.class, Class::Rank);
}

/// Goal: a buffered send uses the comm's buffer, else the session's, else the process's. A flush waits only
/// for the messages before it.
#[test]
fn specific_buffers() {
    let mut job = Job::new(2, 3, Conditions { ring_packets: 1, ..CALM }, small());
    let room = Bytes::new(600 + 512);
    let owners = [BufferOwner::Process, BufferOwner::Session(7), BufferOwner::Comm(CONTEXT)];
    let send = |job: &mut Job, context, session| {
        let message = Bytes::new(600).holding(1);
        job.ranks[0].isend(Mode::Buffered { session }, context, 1, 5, message.buffer()).unwrap()
    };
    for owner in owners {
        let buffer = match owner {
            BufferOwner::Session(_) => AttachedBuffer::User(room.span()),
            _ => AttachedBuffer::Automatic,
        };
        job.ranks[0].attach_buffer(owner, buffer).unwrap();
    }
    for (context, session, owner) in [(CONTEXT, 7, owners[2]), (9, 7, owners[1]), (9, 8, owners[0])] {
        let before = job.ranks[0].buffered();
        send(&mut job, context, session);
        assert!(job.ranks[0].is_flushed(owner, before), "nothing came before it");
        for other in owners {
            assert_eq!(job.ranks[0].is_flushed(other, before + 1), other != owner, "{owner}, {other}");
        }
        let into = Bytes::new(600);
        let receive = job.ranks[1].irecv(context, None, None, into.buffer());
        job.wait(1, receive);
        job.settle();
        assert!(job.ranks[0].is_flushed(owner, before + 1));
    }
    for owner in owners {
        assert!(job.ranks[0].detach_buffer(owner).unwrap().is_some());
    }
}
