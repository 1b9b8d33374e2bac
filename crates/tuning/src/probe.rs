// SPDX-License-Identifier: BSD-3-Clause
//! Times of a job's first long messages, where no table says how to move them: by way, the cores' distance,
//! the receiver's load and the message's length. They lie in the job's header, so all pairs of alike cores
//! share them, and sender and receiver see the same.

use crate::{CLASSES, Distance, Load};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a long message moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through shared memory, by two copies.
    Cells = 0,
    /// By one copy of the kernel.
    Read = 1,
}

/// Words of `Probes` in the job's header.
pub const PROBE_WORDS: usize = 3 * 3 * CLASSES * 2;
/// Messages by each way before one is chosen.
const SAMPLES: u64 = 4;
/// A read must take less than this part of the time through cells.
const CLEAR_PERCENT: u64 = 97;
/// A word holds the number of messages above the least time.
const COUNT_SHIFT: u32 = 48;
const TIME_MAX: u64 = (1 << COUNT_SHIFT) - 1;

/// Whether reading is clearly faster than cells.
pub fn is_faster(read: u64, cells: u64) -> bool {
    is_less(read, cells, CLEAR_PERCENT)
}

/// Whether a time is less than this part of another.
fn is_less(time: u64, other: u64, percent: u64) -> bool {
    u128::from(time) * 100 < u128::from(other) * u128::from(percent)
}

/// The words of a job's header, all 0 at first.
#[derive(Clone, Copy, Debug)]
pub struct Probes<'a>(pub &'a [AtomicU64; PROBE_WORDS]);

impl Probes<'_> {
    fn word(&self, at: (Distance, Load, usize), way: Way) -> &AtomicU64 {
        let (distance, load, class) = at;
        &self.0[((distance as usize * 3 + load as usize) * CLASSES + class) * 2 + way as usize]
    }

    /// Stores that messages took so many picoseconds a byte.
    pub fn record(&self, at: (Distance, Load, usize), way: Way, time: u64) {
        let add = |word: u64| {
            let least = if word == 0 { TIME_MAX } else { word & TIME_MAX };
            let count = ((word >> COUNT_SHIFT) + 1).min(SAMPLES);
            Some(count << COUNT_SHIFT | time.min(least))
        };
        // It always adds.
        let _ = self.word(at, way).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Excludes a way that the kernel refuses.
    pub fn refuse(&self, at: (Distance, Load, usize), way: Way) {
        self.word(at, way).store(SAMPLES << COUNT_SHIFT | TIME_MAX, Ordering::Relaxed);
    }

    /// Stores which way is chosen.
    pub fn decide(&self, at: (Distance, Load, usize), way: Way) {
        let [cells, read] = if way == Way::Read { [TIME_MAX - 1, 1] } else { [1, TIME_MAX - 1] };
        self.word(at, Way::Cells).store(SAMPLES << COUNT_SHIFT | cells, Ordering::Relaxed);
        self.word(at, Way::Read).store(SAMPLES << COUNT_SHIFT | read, Ordering::Relaxed);
    }

    /// The chosen way, once it is known.
    pub fn choice(&self, at: (Distance, Load, usize)) -> Option<Way> {
        let [cells, read] = [Way::Cells, Way::Read].map(|way| self.word(at, way).load(Ordering::Relaxed));
        let is_refused = read == SAMPLES << COUNT_SHIFT | TIME_MAX;
        if is_refused {
            return Some(Way::Cells);
        }
        let has_enough = |word: u64| word >> COUNT_SHIFT >= SAMPLES;
        let is_read = || is_faster(read & TIME_MAX, cells & TIME_MAX);
        (has_enough(cells) && has_enough(read)).then(|| if is_read() { Way::Read } else { Way::Cells })
    }

    /// The way of the next message: the one tried less often.
    pub fn next(&self, at: (Distance, Load, usize)) -> Way {
        let count = |way| self.word(at, way).load(Ordering::Relaxed) >> COUNT_SHIFT;
        if count(Way::Read) < count(Way::Cells) { Way::Read } else { Way::Cells }
    }
}

/// One rank takes one way for some messages and then the other, and the first of each run do not count: what
/// a way leaves in the caches slows down the first messages by the other one, so ways that alternate all look
/// alike (docs/measured/choice.md).
pub const SETTLING: u64 = 4;
/// The times of so many messages, or a few more, make one sample. The lesser of two samples of a way counts.
const SAMPLE: u64 = 10;
/// The least length of a run. Ranks that exchange messages so change their ways at the same time.
const RUN: u64 = 16;
/// After so many messages one sample is enough (a stream is timed as a whole), if it is clearer: times still
/// fall while buffers are new, and reads come last.
const JUDGED: u64 = 64;
const CLEARER_PERCENT: u64 = 90;
/// Messages by the chosen way before both are compared again; then four times as many, and so on.
const PAUSE: u64 = 512;

/// What one rank has seen of messages of one load and length from peers at one distance.
#[derive(Clone, Debug)]
pub struct Judge {
    messages: u64,
    way: Way,
    /// Messages since this way was taken, and those of them that count.
    run: u64,
    counted: u64,
    times: [Times; 2],
    /// Until both ways are compared again, and how long it is to be the next time.
    rest: u64,
    pause: u64,
}

/// Messages by one way.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// The sample that is being taken.
    messages: u64,
    bytes: u64,
    ns: u64,
    /// Those that were taken, and the least time of one, in picoseconds a byte.
    samples: u32,
    least: u64,
}

/// Messages that were fetched at the same time or one after the other, all by one way.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    /// The way.
    pub way: Way,
    /// How many they were.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took.
    pub ns: u64,
    /// How long those after the first `SETTLING` took, if they ended one after the other.
    pub settled_ns: Option<u64>,
}

impl Fetched {
    /// Those after the first ones, if they are known.
    fn settled(self) -> Fetched {
        let Some(ns) = self.settled_ns else { return self };
        let messages = self.messages - SETTLING;
        let bytes = self.bytes / self.messages * messages;
        Fetched { messages, bytes, ns, ..self }
    }
}

impl Default for Judge {
    fn default() -> Judge {
        let (way, times) = (Way::Cells, Default::default());
        Judge { messages: 0, way, run: 0, counted: 0, times, rest: PAUSE, pause: PAUSE }
    }
}

impl Judge {
    /// Whether the next messages are to show, with others, which way is faster, although one is chosen.
    pub fn looks_again(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    /// The way of the next messages that show which way is faster.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Such messages have ended. Returns the way to choose from now on, once that is clear; `chosen` holds
    /// until then.
    pub fn end(&mut self, fetched: Fetched, chosen: Way) -> Option<Way> {
        if fetched.way != self.way {
            return None;
        }
        // A stream settles while it lasts.
        let is_stream = fetched.messages >= SAMPLE + SETTLING;
        let counts = is_stream || self.run >= SETTLING;
        self.messages += fetched.messages;
        self.run += fetched.messages;
        if !counts {
            return None;
        }
        self.counted += fetched.messages;
        let times = &mut self.times[self.way as usize];
        times.add(if is_stream { fetched.settled() } else { fetched });
        if self.run >= RUN && self.counted >= SAMPLE {
            times.drop_sample();
            let other = if self.way == Way::Cells { Way::Read } else { Way::Cells };
            (self.way, self.run, self.counted) = (other, 0, 0);
        }
        self.verdict(chosen)
    }

    fn verdict(&mut self, chosen: Way) -> Option<Way> {
        let samples = self.times.iter().map(|times| times.samples).min().unwrap_or(0);
        if samples == 0 || samples == 1 && self.messages < JUDGED {
            return None;
        }
        let percent = if samples == 1 { CLEARER_PERCENT } else { CLEAR_PERCENT };
        let [cells, read] = self.times.map(|times| times.least);
        let pause = self.pause;
        *self = Judge { rest: pause, pause: pause.saturating_mul(4), ..Judge::default() };
        Some(match chosen {
            Way::Cells if is_less(read, cells, percent) => Way::Read,
            Way::Read if is_less(cells, read, percent) => Way::Cells,
            _ => chosen,
        })
    }
}

impl Times {
    fn add(&mut self, fetched: Fetched) {
        self.messages += fetched.messages;
        self.bytes += fetched.bytes;
        self.ns += fetched.ns;
        if self.messages >= SAMPLE {
            let time = self.ns.saturating_mul(1000) / self.bytes.max(1);
            self.least = if self.samples == 0 { time } else { self.least.min(time) };
            self.samples += 1;
            self.drop_sample();
        }
    }

    fn drop_sample(&mut self) {
        (self.messages, self.bytes, self.ns) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (Distance, Load, usize) = (Distance::L3, Load::Alone, 5);

    fn with(test: impl FnOnce(Probes)) {
        test(Probes(&[const { AtomicU64::new(0) }; PROBE_WORDS]));
    }

    /// Tries both ways in turn, as messages do, until one is chosen.
    fn tried(probes: &Probes, cells: [u64; 4], read: [u64; 4]) -> (Way, usize) {
        let (mut cells, mut read) = (cells.into_iter().cycle(), read.into_iter().cycle());
        for messages in 0.. {
            if let Some(way) = probes.choice(HERE) {
                return (way, messages);
            }
            let way = probes.next(HERE);
            let time = if way == Way::Read { read.next() } else { cells.next() };
            probes.record(HERE, way, time.unwrap());
        }
        unreachable!("some message decides")
    }

    #[test]
    fn the_faster_way_is_chosen_after_some_messages() {
        with(|probes| assert_eq!(tried(&probes, [90, 40, 41, 900], [100; 4]), (Way::Cells, 8)));
        with(|probes| assert_eq!(tried(&probes, [100; 4], [5000, 70, 90, 80]), (Way::Read, 8)));
        with(|probes| assert_eq!(tried(&probes, [100; 4], [100; 4]), (Way::Cells, 8), "a tie"));
        with(|probes| assert_eq!(tried(&probes, [100; 4], [98; 4]), (Way::Cells, 8), "not clearly faster"));
    }

    #[test]
    fn what_is_refused_is_not_tried_again() {
        with(|probes| {
            probes.record(HERE, Way::Cells, 1000);
            probes.refuse(HERE, Way::Read);
            assert_eq!(probes.choice(HERE), Some(Way::Cells));
            assert_eq!(probes.choice((Distance::L2, Load::Alone, 5)), None, "others are untouched");
        });
    }

    /// The way that messages show which are fetched in bursts and take so long, by way and place in a run.
    fn judged(judge: &mut Judge, burst: u64, chosen: Way, time: impl Fn(Way, u64) -> u64) -> Way {
        let (mut last, mut place) = (None, 0);
        for bursts in 1.. {
            let way = judge.way();
            place = if last.replace(way) == Some(way) { place } else { 0 };
            let ns = (place..place + burst).map(|place| time(way, place)).sum();
            place += burst;
            let settled_ns = Some((SETTLING..burst).map(|place| time(way, place)).sum());
            let fetched = Fetched { way, messages: burst, bytes: burst * 1000, ns, settled_ns };
            if let Some(way) = judge.end(fetched, chosen) {
                assert!((50..=64).contains(&(bursts * burst)), "after {bursts} bursts of {burst}");
                return way;
            }
        }
        unreachable!("some message decides")
    }

    // Goal: within 64 messages, single ones or streams; what one way leaves to the first messages by the
    // other one does not count, nor does a slow message.
    #[test]
    fn runs_show_the_faster_way() {
        let settles = |way, place| match (way, place) {
            (Way::Read, 0..SETTLING) => 900,
            (Way::Read, _) => 80,
            (Way::Cells, _) => 110,
        };
        let cells = |way, _| if way == Way::Read { 110 } else { 80 };
        for burst in [1, 2, 4, 16] {
            let judged = |chosen, time| judged(&mut Judge::default(), burst, chosen, time);
            assert_eq!(judged(Way::Cells, &settles as &dyn Fn(Way, u64) -> u64), Way::Read);
            assert_eq!(judged(Way::Cells, &|_, _| 100), Way::Cells, "a tie");
            assert_eq!(judged(Way::Read, &|_, _| 100), Way::Read, "a tie");
            assert_eq!(judged(Way::Read, &cells), Way::Cells);
        }
        let slow = std::cell::Cell::new(true);
        let once = |way, place| match way == Way::Read && place == SETTLING && slow.take() {
            true => 5000,
            false => settles(way, place),
        };
        assert_eq!(judged(&mut Judge::default(), 1, Way::Cells, once), Way::Read);
    }

    // Goal: a judgement is looked at again, and ever more rarely.
    #[test]
    fn a_judgement_is_looked_at_again() {
        let mut judge = Judge::default();
        for pause in [PAUSE, 4 * PAUSE] {
            judged(&mut judge, 1, Way::Cells, |_, _| 100);
            assert_eq!((1..).find(|_| judge.looks_again()), Some(pause));
        }
    }

    #[test]
    fn what_is_decided_is_chosen() {
        with(|probes| {
            for way in [Way::Read, Way::Cells, Way::Read] {
                probes.decide(HERE, way);
                assert_eq!(probes.choice(HERE), Some(way));
            }
        });
    }

    #[test]
    fn words_are_apart() {
        with(|probes| {
            for distance in Distance::ALL {
                for load in Load::ALL {
                    for class in 0..CLASSES {
                        for way in [Way::Cells, Way::Read] {
                            let word = probes.word((distance, load, class), way);
                            assert_eq!(word.swap(1, Ordering::Relaxed), 0);
                        }
                    }
                }
            }
            assert!(probes.0.iter().all(|word| word.load(Ordering::Relaxed) == 1));
        });
    }
}
