// SPDX-License-Identifier: BSD-3-Clause
//! Tests of pulls (network reads of a sender's memory) on simulated networks: they end in any order, or fail,
//! or the memory is not exposed.

mod job;

use job::{Bytes, CALM, Job, moods, seeds::seeds, small};
use outboard_p2p::{LargeProtocol, Mode, Outcome};
use transport::sim::Conditions;

const CONTEXT: u64 = 0xc0;

/// Goal: every message arrives whole, whatever happens to its pulls (network reads), and no memory stays
/// exposed. Method: several messages both ways at once, some longer than their receives, some with gaps. The
/// simulator fails if a pull reads memory that is no longer exposed.
#[test]
fn messages_are_pulled_whole_whatever_fails() {
    let (mut pulled, mut failed) = (0, 0);
    seeds(500, |seed| {
        let mood = Conditions { unexposed_percent: [0, 0, 30][seed as usize % 3], ..moods(seed) };
        let mood = Conditions { unreadable_percent: [0, 10, 50][seed as usize / 3 % 3], ..mood };
        let mut job = Job::new(2, seed, mood, small());
        let mut waits = vec![];
        for id in 0..8 {
            let (from, to) = (id as usize % 2, 1 - id as usize % 2);
            let bytes = [129, 300, 301, 2000][job.network.below(4) as usize];
            let capacity = [bytes, bytes, 250][job.network.below(3) as usize];
            let message = Bytes::new(bytes).holding(id);
            let into = match job.network.below(4) {
                0 => Bytes::with_gaps(capacity, 1, 2),
                _ => Bytes::new(capacity),
            };
            let tag = id as i32;
            let receive = job.ranks[to].irecv(CONTEXT, Some(from as u32), Some(tag), into.buffer());
            let send =
                job.ranks[from].isend(Mode::Standard, CONTEXT, to as u32, tag, message.buffer()).unwrap();
            waits.push((id, from, to, send, receive, message, into));
            for _ in 0..job.network.below(6) {
                job.step();
            }
        }
        for (id, from, to, send, receive, message, into) in &waits {
            let outcome = job.wait(*to, *receive);
            assert_eq!(outcome.bytes, message.bytes.min(into.bytes));
            assert_eq!(outcome.error.is_some(), message.bytes > into.bytes);
            into.assert_holds(*id, outcome.bytes);
            assert_eq!(job.wait(*from, *send), Outcome::default());
        }
        job.settle();
        assert!(job.ranks.iter().all(|rank| rank.is_quiet() && rank.is_idle() && rank.pending().is_empty()));
        let (exposures, pulls) = job.network.exposures_and_pulls();
        assert_eq!(exposures, 0, "memory stays exposed");
        pulled += u32::from(pulls > 0);
        failed += u32::from(pulls > 0 && mood.unreadable_percent > 0);
    });
    if std::env::var("SEED").is_err() {
        assert!(pulled > 200 && failed > 50, "{pulled} jobs pulled, {failed} of them with failures");
    }
}

/// Goal: no pull (network read) starts if the user wants packets, and a message of few bytes is not exposed.
#[test]
fn nothing_is_exposed_without_need() {
    for (protocol, bytes, pulls) in
        [(LargeProtocol::Auto, 2000, 7), (LargeProtocol::Cells, 2000, 0), (LargeProtocol::Auto, 59, 0)]
    {
        let config = outboard_p2p::Config { large_protocol: protocol, ..small() };
        let mut job = Job::new(2, 1, Conditions { unexposed_percent: 0, ..CALM }, config);
        let (message, into) = (Bytes::new(bytes).holding(1), Bytes::new(bytes));
        let send = job.ranks[0].isend(Mode::Synchronous, CONTEXT, 1, 5, message.buffer()).unwrap();
        job.settle();
        let exposures = usize::from(bytes > 59);
        assert_eq!(job.network.exposures_and_pulls(), (exposures, 0), "{protocol:?} {bytes}");
        let receive = job.ranks[1].irecv(CONTEXT, Some(0), Some(5), into.buffer());
        assert_eq!(job.wait(1, receive).bytes, bytes);
        job.wait(0, send);
        into.assert_holds(1, bytes);
        assert_eq!(job.network.exposures_and_pulls(), (0, pulls), "{protocol:?} {bytes}");
    }
}
