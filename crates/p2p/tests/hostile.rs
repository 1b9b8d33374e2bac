// SPDX-License-Identifier: BSD-3-Clause
//! Tests of peers that send what no honest peer would. The result is an error that names such a peer, and
//! nothing else.

mod job;

use error::Class;
use job::{Bytes, CALM, Job, drawn, element, seeds::seeds, small};
use outboard_p2p::{Config, LargeProtocol, Mode, NeedsRequest};
use std::sync::Arc;
use transport::route::Header;
use transport::sim::Conditions;

const CONTEXT: u64 = 0xc0;

/// Goal: whatever a peer sends, the result is at most an error that names this peer. Method: packets of every
/// kind that no honest peer would send now, and random ones; afterwards an honest message still comes
/// through.
#[test]
fn corrupt_packets_are_errors() {
    seeds(500, |seed| {
        let mut job = Job::new(3, seed, Conditions { payload_bytes_max: 100, ..CALM }, small());
        let (from, into) = (Bytes::new(600).holding(1), Bytes::new(600));
        // Rank 0 has a send and a receive with rank 2. Their tickets are small numbers, which a forger can
        // guess.
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 2, 5, from.buffer()).unwrap();
        let receive = job.ranks[0].irecv(CONTEXT, Some(2), Some(5), into.buffer());
        let network = job.network.clone();
        let mut faults = 0;
        for _ in 0..20 {
            // Kinds 1, 2 and 8 carry an envelope, which any peer may send, so they are forged for another
            // context.
            let kind = network.below(11) as u8;
            let ticket = if network.below(2) == 0 { network.below(3) } else { network.below(u64::MAX) };
            let payload = match network.below(4) {
                0 => vec![7; network.below(100) as usize],
                3 => network.below(u64::MAX).rotate_left(7).to_ne_bytes().to_vec(),
                1 => vec![0xff; 24],
                _ => (0..3).flat_map(|_| network.below(900).to_ne_bytes()).collect(),
            };
            network.forge(1, 0, Header { kind, tag: 5, context: ticket }, payload);
            if let Err(error) = job.ranks[0].poll() {
                assert_eq!(error.class, Class::Intern);
                assert!(error.message.starts_with("peer 1 "), "{error}");
                faults += 1;
            }
        }
        assert!(faults > 0, "the draw holds at least one packet that makes no sense");
        let (there, back) = (Bytes::new(600), Bytes::new(600).holding(2));
        let other = job.ranks[2].irecv(CONTEXT, Some(0), None, there.buffer());
        let answer = job.ranks[2].isend(Mode::Standard, CONTEXT, 0, 5, back.buffer()).unwrap();
        job.wait(0, send);
        job.wait(2, other);
        job.wait(0, receive);
        job.wait(2, answer);
        there.assert_holds(1, 600);
        into.assert_holds(2, 600);
    });
}

/// Goal: even the peer at the other end of a send or receive cannot make this process crash, or write to
/// memory outside the two buffers. Method: the peer sends random packets about a real send and a real
/// receive. Their bytes may become wrong, but nothing else.
#[test]
fn a_corrupt_partner_crashes_nobody() {
    seeds(2000, |seed| {
        // The send is offered, or has begun in pieces.
        let config = Config { large_protocol: LargeProtocol::Cells, ..drawn(seed << 6) };
        let mood = Conditions { payload_bytes_max: 100, ring_packets: 5, ..CALM };
        let mut job = Job::new(2, seed, mood, config);
        let (from, into) = (Bytes::new(600).holding(1), Bytes::with_gaps(600, 8, 8));
        let send = job.ranks[0].isend(Mode::Standard, CONTEXT, 1, 5, from.buffer()).unwrap();
        let receive = job.ranks[0].irecv(CONTEXT, Some(1), Some(5), into.buffer());
        let network = job.network.clone();
        for _ in 0..60 {
            let kind = [1, 2, 3, 4, 5, 8, 9][network.below(7) as usize];
            let has_envelope = [1, 2, 8].contains(&kind);
            let context = if has_envelope { CONTEXT } else { network.below(4) };
            let tag = if has_envelope { 5 } else { network.below(4) as i32 - 1 };
            let payload = match (kind, network.below(4)) {
                (_, 0) => vec![7; network.below(100) as usize],
                (4 | 9, _) => vec![7; 100],
                (8, _) => (100 + network.below(900)).to_ne_bytes().to_vec(),
                (_, 1) => vec![0xff; 24],
                _ => [network.below(4), network.below(300), 300 + network.below(310)]
                    .into_iter()
                    .flat_map(u64::to_ne_bytes)
                    .collect(),
            };
            network.forge(1, 0, Header { kind, tag, context }, payload);
            let _ = job.ranks[0].poll();
            if network.below(8) == 0 {
                let again = job.ranks[0].irecv(CONTEXT, Some(1), None, Bytes::new(0).buffer());
                job.ranks[0].cancel(again);
                job.ranks[0].free(again);
            }
        }
        from.assert_holds(1, 600);
        into.assert_gaps_untouched();
        let _ = (job.ranks[0].outcome(send), job.ranks[0].outcome(receive), job.ranks[0].pending());
    });
}

/// Goal: invalid pieces of a message write only to the receive's buffer, and the next poll reports an error.
/// This holds with and without a request. Method: a BEGIN packet (it announces the length), then random PIECE
/// packets.
#[test]
fn corrupt_pieces_are_errors() {
    let mut faults = 0;
    seeds(500, |seed| {
        let mut job = Job::new(2, seed, CALM, small());
        let (known, heard) = (Bytes::new(8).holding(0), Bytes::new(8));
        job.ranks[1].isend(Mode::Standard, CONTEXT, 0, 5, known.buffer()).unwrap();
        let receive = job.ranks[0].irecv(CONTEXT, Some(1), None, heard.buffer());
        job.wait(0, receive);
        let into = Bytes::new(300);
        let whole = into.span().slice(0, 200);
        let network = job.network.clone();
        let forge = |kind, payload| network.forge(1, 0, Header { kind, tag: 5, context: CONTEXT }, payload);
        let lengths = [0, 100, 250, 1 << 40, u64::MAX];
        forge(8, begin(lengths[network.below(5) as usize]));
        for _ in 0..1 + network.below(4) {
            match network.below(8) {
                0 => forge(8, begin(100)),
                1 => forge(9, vec![]),
                _ => forge(9, vec![7; network.below(200) as usize]),
            }
        }
        // SAFETY: part of memory that lives as long as the job is used.
        let buffer = unsafe { datatype::Buffer::claim(whole.address(), 200, Arc::new(element(1, 1))) };
        let is_direct = network.below(2) == 0;
        let waits = (!is_direct).then(|| job.ranks[0].irecv(CONTEXT, Some(1), None, buffer.clone()));
        for _ in 0..3 {
            match waits {
                Some(receive) => drop(job.ranks[0].take(receive)),
                None => drop(job.ranks[0].recv_next(CONTEXT, 1, None, &buffer)),
            }
        }
        for _ in 0..10 {
            if let Err(error) = job.ranks[0].poll() {
                assert_eq!(error.class, Class::Intern);
                assert!(error.message.starts_with("peer 1 "), "{error}");
                faults += 1;
            }
        }
        assert!(into.packed()[200..].iter().all(|&byte| byte == 0xee), "bytes behind the buffer");
        assert_eq!(network.packets(), 0, "what makes no sense was dropped");
    });
    assert!(faults > 300, "{faults}");

    let mut job = Job::new(2, 1, CALM, small());
    let network = job.network.clone();
    let forge = |kind, payload| network.forge(1, 0, Header { kind, tag: 5, context: CONTEXT }, payload);
    for length in [0, 1 << 40] {
        forge(8, begin(length));
        let error = job.ranks[0].poll().unwrap_err();
        assert!(error.message.contains("not with its length"), "{length}: {error}");
    }
    let (first, second) = (Bytes::new(100), Bytes::new(100));
    forge(8, begin(100));
    forge(9, vec![7; 50]);
    let started = job.ranks[0].recv_next(CONTEXT, 1, None, &first.buffer());
    assert!(matches!(started, Err(NeedsRequest::Started(_))), "{started:?}");
    forge(8, begin(100));
    let next = job.ranks[0].recv_next(CONTEXT, 1, None, &second.buffer());
    assert_eq!(next, Err(NeedsRequest::Unstarted), "the first has not ended");
    let error = job.ranks[0].poll().unwrap_err();
    assert!(error.message.contains("before 50 bytes of the last had come"), "{error}");
}

/// Makes the payload of a BEGIN packet for a message of `length` bytes.
fn begin(length: u64) -> Vec<u8> {
    [length, 0].map(u64::to_ne_bytes).as_flattened().to_vec()
}
