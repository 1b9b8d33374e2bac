// SPDX-License-Identifier: BSD-3-Clause
//! Tests of long messages over a simulated network: exchanged, in pieces, and longer than 2 GiB.

mod job;

use job::{Bytes, CALM, Job, element, small};
use outboard_p2p::{Config, LargeProtocol, Mode, Ticket};
use std::sync::Arc;
use transport::sim::Conditions;

const CONTEXT: u64 = 3;

/// Makes a tuning table. If `reads`, a receiver that also sends reads its message in the sender's memory.
fn exchange(reads: bool) -> tuning::Tuning {
    let mut tuning = tuning::Tuning::default();
    let row = tuning::read_row(tuning::Distance::Far, tuning::Load::Exchange);
    tuning.set(row, u64::from(reads), tuning::ValueSource::Table);
    tuning
}

/// Goal: a rank that both sends and receives a long message reads it in the sender's memory, and needs only
/// the offer; a rank that only receives asks for the bytes. Method: only the receiver is polled once the
/// offers are there.
#[test]
fn an_exchange_is_read() {
    for (reads, sends, comes) in [(true, true, true), (false, true, false), (true, false, false)] {
        let config = Config { tuning: exchange(reads), patience_polls: 1000, ..small() };
        let mut job = Job::new(2, 4, CALM, config);
        let (from, back) = (Bytes::new(800).holding(1), Bytes::new(800).holding(2));
        let (into, there) = (Bytes::new(800), Bytes::new(800));
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
        let other = job.ranks[0].irecv(CONTEXT, Some(1), Some(6), there.buffer());
        let start = || job.ranks[1].isend(Mode::Standard, CONTEXT, 0, 6, back.buffer()).unwrap();
        let answer = sends.then(start);
        let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into.buffer());
        for _ in 0..100 {
            job.ranks[1].poll().unwrap();
        }
        assert_eq!(job.ranks[1].is_done(receive), comes, "{reads} {sends}");
        job.wait(0, send);
        job.wait(1, receive);
        into.assert_holds(1, 800);
        if let Some(answer) = answer {
            job.wait(0, other);
            job.wait(1, answer);
            there.assert_holds(2, 800);
        }
    }
}

/// Goal: a receive takes only its own message, and leaves the next one, although the first comes in pieces.
/// Method: so many rounds that each entry of the table of deferred receives is used again. An old receive in
/// an entry would match the second message.
#[test]
fn the_message_behind_one_in_pieces_stays() {
    let mut job = Job::new(2, 5, CALM, Config { eager_bytes_max: 400, ..small() });
    for id in 0..300 {
        let (one, two) = (Bytes::new(400).holding(id), Bytes::new(8).holding(id + 1000));
        let (into_one, into_two) = (Bytes::new(400), Bytes::new(8));
        let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into_one.buffer());
        for message in [&one, &two] {
            job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, message.buffer()).unwrap();
        }
        assert_eq!(job.wait(1, receive).bytes, 400);
        let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into_two.buffer());
        assert_eq!(job.wait(1, receive).bytes, 8);
        into_one.assert_holds(id, 400);
        into_two.assert_holds(id + 1000, 8);
    }
}

/// Goal: lengths beyond 32 bits work with every protocol. Method: a message of a little more than 2 GiB, sent
/// from a layout that repeats 1 MiB, to a layout that overwrites 1 MiB again and again.
#[test]
fn messages_beyond_two_gib() {
    let pieces = 2049;
    for (dest, large_protocol) in [(0, LargeProtocol::Auto), (1, LargeProtocol::Cells)] {
        let config = Config { large_protocol, ..Config::default() };
        let mut job = Job::new(2, 1, Conditions { payload_bytes_max: 4 << 20, ..CALM }, config);
        let (from, into) = (Bytes::new(1 << 20).holding(1), Bytes::new(1 << 20));
        let layout = Arc::new(element(1 << 20, 0));
        // SAFETY: both live to the end of the test, and the layout touches only their 1 MiB.
        let claim =
            |bytes: &Bytes| unsafe { datatype::Buffer::claim(bytes.span().address(), pieces, &layout) };
        let receive = job.ranks[dest].irecv(CONTEXT, None, None, claim(&into));
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, dest as u32, 5, claim(&from)).unwrap();
        assert_eq!(job.wait(dest, receive).bytes, pieces << 20);
        job.wait(0, send);
        into.assert_holds(1, 1 << 20);
    }
}

/// Goal: a long send during which the process computes leaves at once, although its receive is not known yet.
/// This holds while credit is left, for messages up to a length limit; a longer message waits.
#[test]
fn an_overlapped_send_does_not_wait_for_its_receive() {
    for (mode, bytes, leaves) in [
        (Mode::Overlapped, 600, true),
        (Mode::Overlapped, 601, false),
        (Mode::Standard, 600, false),
        (Mode::Synchronous, 600, false),
    ] {
        let mut job = Job::new(2, 1, CALM, small());
        let (from, into) = (Bytes::new(bytes).holding(7), Bytes::new(bytes));
        let sent = job.ranks[0].isend(mode, CONTEXT, 1, 5, from.buffer()).unwrap();
        job.settle();
        assert_eq!(job.ranks[0].is_done(sent), leaves, "{mode:?}, {bytes} bytes");
        let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into.buffer());
        job.wait(1, receive);
        job.wait(0, sent);
        into.assert_holds(7, bytes);
    }
    let mut job = Job::new(2, 1, CALM, small());
    let all: Vec<Bytes> = (0..20).map(|id| Bytes::new(600).holding(id)).collect();
    let sends: Vec<Ticket> = all
        .iter()
        .map(|from| job.ranks[0].isend(Mode::Overlapped, CONTEXT, 1, 5, from.buffer()).unwrap())
        .collect();
    job.settle();
    let left = sends.iter().filter(|&&send| job.ranks[0].is_done(send)).count();
    assert_eq!(left, 4000 / (256 + 600), "no more than the credit");
}
