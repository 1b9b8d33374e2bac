// SPDX-License-Identifier: BSD-3-Clause
//! Tests of messages over a network that loses, repeats and reorders packets, while a rank does nothing for a
//! time. The sequence numbers of `transport/src/sequence.rs` hide all that.

mod job;

use job::{Bytes, CALM, Job, drawn, seeds::seeds, weather};
use outboard_p2p::Mode;
use transport::sim::Conditions;

const CONTEXT: u64 = 7;
const RANKS: u32 = 3;
const MESSAGES: u64 = 12;

/// Goal: each message arrives once and in order, even if a rank does nothing for a long time. Method: every
/// rank sends to every rank; the seed draws the faults, which rank stops, and for how long.
#[test]
fn everything_arrives_whatever_the_network_does() {
    seeds(500, |seed| {
        let network = Conditions {
            ring_packets: 8,
            payload_bytes_max: 128,
            delay_max: [0, 5, 60][seed as usize % 3],
            ..weather(seed)
        };
        let mut job = Job::new(RANKS, seed, network, drawn(seed));
        let pairs = |from: u32| (0..RANKS).filter(move |to| *to != from);
        let bytes_of = |id: u64| [8, 100, 700][id as usize % 3];
        let (mut sends, mut receives, mut sent) = (vec![], vec![], vec![]);
        for id in 0..MESSAGES {
            for from in 0..RANKS {
                for to in pairs(from) {
                    let message = Bytes::new(bytes_of(id)).holding(id);
                    let rank = &mut job.ranks[from as usize];
                    sends.push((from, rank.isend(Mode::Standard, CONTEXT, to, 5, message.buffer()).unwrap()));
                    sent.push(message);
                }
            }
        }
        let (stopped, mut steps_left) = (seed as usize % 3, job.network.below(3000));
        for id in 0..MESSAGES {
            for to in 0..RANKS {
                for from in pairs(to) {
                    let into = Bytes::new(bytes_of(id));
                    let rank = &mut job.ranks[to as usize];
                    receives.push((to, id, rank.irecv(CONTEXT, Some(from), Some(5), into.buffer()), into));
                }
            }
        }
        while steps_left > 0 {
            let rank = job.network.below(RANKS.into()) as usize;
            if rank != stopped {
                job.ranks[rank].poll().unwrap();
            }
            steps_left -= 1;
        }
        for (rank, send) in sends {
            job.wait(rank as usize, send);
        }
        for (rank, id, receive, into) in receives {
            assert_eq!(job.wait(rank as usize, receive).bytes, bytes_of(id));
            into.assert_holds(id, bytes_of(id));
        }
        job.settle();
        assert_eq!(job.network.packets(), 0);
    });
}

/// Goal: two ranks that write to each other for the first time lose no message if their first packets are
/// lost. libfabric's tcp loses them when it chooses one of two connections.
#[test]
fn first_packets_that_are_lost_come_again() {
    seeds(100, |seed| {
        let mut job = Job::new(2, seed, Conditions { lost_percent: 70, ..CALM }, drawn(seed));
        let (from, into) = ([0, 1].map(|id| Bytes::new(8).holding(id)), [0, 1].map(|_| Bytes::new(8)));
        let receives = [0, 1].map(|rank| {
            let other = 1 - rank as u32;
            job.ranks[rank].isend(Mode::Standard, CONTEXT, other, 5, from[rank].buffer()).unwrap();
            job.ranks[rank].irecv(CONTEXT, Some(other), Some(5), into[rank].buffer())
        });
        for (rank, receive) in receives.into_iter().enumerate() {
            job.wait(rank, receive);
            into[rank].assert_holds(1 - rank as u64, 8);
        }
    });
}
