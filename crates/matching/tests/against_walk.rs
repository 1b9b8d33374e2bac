// SPDX-License-Identifier: BSD-3-Clause
//! Compares both queues of matching with vectors that are searched from the front: for every short sequence
//! of moves, then for long random sequences.

use outboard_matching::{Envelope, Pattern, Posted, QueueEntry, Unexpected};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The rule of MPI 5.0, section 3.5, as it is written: search the queue from the front, and take the first
/// entry that fits.
#[derive(Default)]
struct Walk {
    posted: Vec<(Pattern, u32)>,
    unexpected: Vec<(Envelope, u32)>,
}

impl Walk {
    /// Returns what `Posted::exact` must return: how many receives name exactly this source and tag. None if
    /// a receive with a wildcard fits the message, too.
    fn exact(&self, envelope: &Envelope) -> Option<usize> {
        let fitting = || self.posted.iter().filter(|(pattern, _)| pattern.fits(envelope));
        let is_exact = |(pattern, _): &(Pattern, u32)| pattern.source.is_some() && pattern.tag.is_some();
        fitting().all(is_exact).then(|| fitting().count())
    }
}

#[derive(Default)]
struct Both {
    walk: Walk,
    posted: Posted<u32>,
    unexpected: Unexpected<u32>,
    entries: Vec<(u32, QueueEntry)>,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Receive(Pattern),
    Message(Envelope),
    /// Cancels a receive, if it still waits. The field is how many receives were posted before this receive.
    Cancel(usize),
    Probe(Pattern),
}

impl Both {
    fn step(&mut self, step: Move) {
        match step {
            Move::Receive(pattern) => {
                let wanted = self.walk.unexpected.iter().position(|(envelope, _)| pattern.fits(envelope));
                let wanted = wanted.map(|at| self.walk.unexpected.remove(at));
                assert_eq!(self.unexpected.take(&pattern), wanted);
                if wanted.is_none() {
                    let entry = self.posted.push(pattern, self.next);
                    self.walk.posted.push((pattern, self.next));
                    self.entries.push((self.next, entry));
                    self.next += 1;
                }
            }
            Move::Message(envelope) => {
                assert_eq!(self.posted.exact(&envelope), self.walk.exact(&envelope));
                let wanted = self.walk.posted.iter().position(|(pattern, _)| pattern.fits(&envelope));
                let wanted = wanted.map(|at| self.walk.posted.remove(at).1);
                assert_eq!(self.posted.take(&envelope), wanted);
                match wanted {
                    Some(receive) => self.entries.retain(|(id, _)| *id != receive),
                    None => {
                        self.unexpected.push(envelope, self.next);
                        self.walk.unexpected.push((envelope, self.next));
                        self.next += 1;
                    }
                }
            }
            Move::Cancel(nth) => {
                if nth < self.entries.len() {
                    let (id, entry) = self.entries.remove(nth);
                    assert_eq!(self.posted.remove(entry), id);
                    self.walk.posted.retain(|(_, other)| *other != id);
                }
            }
            Move::Probe(pattern) => {
                let wanted = self.walk.unexpected.iter().find(|(envelope, _)| pattern.fits(envelope));
                assert_eq!(self.unexpected.peek(&pattern), wanted.map(|(envelope, id)| (envelope, id)));
            }
        }
        assert_eq!(
            (self.posted.len(), self.unexpected.len()),
            (self.walk.posted.len(), self.walk.unexpected.len())
        );
    }

    fn same_order(&self) {
        assert!(self.posted.iter().eq(self.walk.posted.iter().map(|(pattern, id)| (pattern, id))));
        assert!(self.unexpected.iter().eq(self.walk.unexpected.iter().map(|(envelope, id)| (envelope, id))));
    }
}

fn patterns(contexts: u64, sources: u32, tags: i32) -> Vec<Pattern> {
    let mut all = Vec::new();
    for context in 0..contexts {
        for source in std::iter::once(None).chain((0..sources).map(Some)) {
            for tag in std::iter::once(None).chain((0..tags).map(Some)) {
                all.push(Pattern { context, source, tag });
            }
        }
    }
    all
}

fn envelopes(contexts: u64, sources: u32, tags: i32) -> Vec<Envelope> {
    let all = patterns(contexts, sources, tags).into_iter();
    all.filter_map(|p| Some(Envelope { context: p.context, source: p.source?, tag: p.tag? })).collect()
}

/// Goal: matching is right for every sequence of up to five moves. Method: receives with 9 patterns, messages
/// with 4 envelopes, and cancels of the oldest and second oldest receive: 15 moves to the power of five.
#[test]
fn every_short_sequence() {
    let mut moves: Vec<Move> = patterns(1, 2, 2).into_iter().map(Move::Receive).collect();
    moves.extend(envelopes(1, 2, 2).into_iter().map(Move::Message));
    moves.extend([Move::Cancel(0), Move::Cancel(1)]);
    // Miri takes a thousand times as long.
    let length = if cfg!(miri) { 2 } else { 5 };
    for number in 0..moves.len().pow(length) {
        let mut both = Both::default();
        let mut rest = number;
        for _ in 0..length {
            both.step(moves[rest % moves.len()]);
            rest /= moves.len();
        }
    }
}

/// Goal: matching is right where the table's chains are long, mix keys and grow. Method: random moves with
/// few and many keys, in bursts that make one queue or the other long. SEED=n repeats a run.
#[test]
fn long_random_sequences() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).expect("SEED is a number"),
        Err(_) => {
            if cfg!(miri) {
                0..4
            } else {
                0..60
            }
        }
    };
    for seed in seeds {
        println!("SEED={seed}");
        let mut random = SmallRng::seed_from_u64(seed);
        let (contexts, sources, tags) = [(1, 1, 1), (2, 3, 3), (5, 40, 100), (1, 2, 1000)][seed as usize % 4];
        let mut both = Both::default();
        let mut messages = 0.5;
        for turn in 0..if cfg!(miri) { 200 } else { 4000 } {
            if turn % 500 == 0 {
                messages = random.random_range(0.1..0.9);
                both.same_order();
            }
            let context = random.random_range(0..contexts);
            let source = random.random_range(0..sources);
            let tag = random.random_range(0..tags);
            let wild = Pattern {
                context,
                source: random.random_bool(0.7).then_some(source),
                tag: random.random_bool(0.7).then_some(tag),
            };
            both.step(match random.random_range(0..20) {
                0 => Move::Cancel(random.random_range(0..64)),
                1 => Move::Probe(wild),
                _ if random.random_bool(messages) => Move::Message(Envelope { context, source, tag }),
                _ => Move::Receive(wild),
            });
        }
    }
}

/// Goal: matching is right in a long queue. Method: 50,000 receives with other tags stand before the wanted
/// one. A search from the front would compare more than a billion times.
#[test]
fn a_long_queue() {
    let mut posted = Posted::new();
    for tag in 0..50_000 {
        posted.push(Pattern { context: 7, source: Some(3), tag: Some(tag) }, tag);
    }
    for tag in (0..50_000).rev() {
        assert_eq!(posted.take(&Envelope { context: 7, source: 3, tag }), Some(tag));
    }
    assert!(posted.is_empty());
}
