// SPDX-License-Identifier: BSD-3-Clause
//! Times of a job's first long messages, if no table says how to move them. They are kept for each method,
//! distance of cores, load of the receiver, and class of lengths. They lie in the job's header: all pairs of
//! ranks at the same distance share them, and sender and receiver see the same times.

use crate::{CLASSES, Distance, Load};
use std::sync::atomic::{AtomicU64, Ordering};

/// The ways in which a long message gets from the sender's memory to the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The sender copies the message into cells of shared memory, and the receiver copies it out.
    Cells = 0,
    /// The kernel copies the message from one process to the other, as the receiver requests.
    Read = 1,
}

/// The number of words of `Probes` in the job's header.
pub const PROBE_WORDS: usize = 3 * 3 * CLASSES * 2;
/// How many messages are moved by each method before the faster method is chosen.
const SAMPLES: u64 = 4;
/// A method counts as faster if it takes less than this many percent of the other's time.
const CLEAR_PERCENT: u64 = 97;
/// The position of the bits that count messages in a word of `Probes`. The lower bits hold the least time.
const COUNT_SHIFT: u32 = 48;
const TIME_MAX: u64 = (1 << COUNT_SHIFT) - 1;

/// Whether the time `read` of `Method::Read` is clearly less than the time `cells` of `Method::Cells`.
pub fn is_faster(read: u64, cells: u64) -> bool {
    is_less(read, cells, CLEAR_PERCENT)
}

/// Whether `time` is less than `percent` of `other`.
fn is_less(time: u64, other: u64, percent: u64) -> bool {
    u128::from(time) * 100 < u128::from(other) * u128::from(percent)
}

/// The words of a job's header in which all ranks note how long messages took by each method; all 0 at first.
#[derive(Clone, Copy, Debug)]
pub struct Probes<'a>(pub &'a [AtomicU64; PROBE_WORDS]);

impl Probes<'_> {
    fn word(&self, at: (Distance, Load, usize), way: Method) -> &AtomicU64 {
        let (distance, load, class) = at;
        &self.0[((distance as usize * 3 + load as usize) * CLASSES + class) * 2 + way as usize]
    }

    /// Notes that messages of the distance, load and class `at` took `time` picoseconds per byte by method
    /// `way`.
    pub fn record(&self, at: (Distance, Load, usize), way: Method, time: u64) {
        let add = |word: u64| {
            let least = if word == 0 { TIME_MAX } else { word & TIME_MAX };
            let count = ((word >> COUNT_SHIFT) + 1).min(SAMPLES);
            Some(count << COUNT_SHIFT | time.min(least))
        };
        // The function always returns a value.
        let _ = self.word(at, way).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Notes that the kernel refuses the method `way` for messages of the distance, load and class `at`, so
    /// that it is never chosen.
    pub fn refuse(&self, at: (Distance, Load, usize), way: Method) {
        self.word(at, way).store(SAMPLES << COUNT_SHIFT | TIME_MAX, Ordering::Relaxed);
    }

    /// Makes `way` the chosen method for messages of the distance, load and class `at`.
    pub fn decide(&self, at: (Distance, Load, usize), way: Method) {
        let [cells, read] = if way == Method::Read { [TIME_MAX - 1, 1] } else { [1, TIME_MAX - 1] };
        self.word(at, Method::Cells).store(SAMPLES << COUNT_SHIFT | cells, Ordering::Relaxed);
        self.word(at, Method::Read).store(SAMPLES << COUNT_SHIFT | read, Ordering::Relaxed);
    }

    /// Returns the chosen method for messages of the distance, load and class `at`. None until enough
    /// messages have been timed.
    pub fn choice(&self, at: (Distance, Load, usize)) -> Option<Method> {
        let [cells, read] =
            [Method::Cells, Method::Read].map(|way| self.word(at, way).load(Ordering::Relaxed));
        let is_refused = read == SAMPLES << COUNT_SHIFT | TIME_MAX;
        if is_refused {
            return Some(Method::Cells);
        }
        let has_enough = |word: u64| word >> COUNT_SHIFT >= SAMPLES;
        let is_read = || is_faster(read & TIME_MAX, cells & TIME_MAX);
        (has_enough(cells) && has_enough(read)).then(|| if is_read() { Method::Read } else { Method::Cells })
    }

    /// Returns the method to try with the next message: the method by which fewer messages have been moved.
    pub fn next(&self, at: (Distance, Load, usize)) -> Method {
        let count = |way| self.word(at, way).load(Ordering::Relaxed) >> COUNT_SHIFT;
        if count(Method::Read) < count(Method::Cells) { Method::Read } else { Method::Cells }
    }
}

/// How many of the first messages of each run do not count. A rank uses one method for some messages and then
/// the other: what a method leaves in the caches slows down the first messages by the other one, so
/// alternating methods would all look alike (docs/measured/choice.md).
pub const SETTLING: u64 = 4;
/// The least number of messages that are timed together as one sample. A method's time is the least of its
/// samples.
const SAMPLE: u64 = 10;
/// The least number of messages in a run, after which a rank changes the method. So ranks that exchange
/// messages change it at the same time.
const RUN: u64 = 16;
/// After this many messages one sample of each method is enough to choose, if the faster one takes less than
/// `CLEARER_PERCENT` of the other. Times still fall while buffers are new, and reads come last.
const DECIDED: u64 = 64;
const CLEARER_PERCENT: u64 = 90;
/// How many messages go by the chosen method before both are compared again; then four times as many, and so
/// on.
const PAUSE: u64 = 512;

/// What one rank has measured of long messages of one load and one class of lengths, from peers at one
/// distance.
#[derive(Clone, Debug)]
pub struct MethodTrial {
    messages: u64,
    way: Method,
    /// The number of messages since the method last changed.
    run: u64,
    /// How many messages of this run count: the messages after the first `SETTLING`.
    counted: u64,
    times: [Times; 2],
    /// The number of messages until both methods are compared again.
    rest: u64,
    /// The number of messages of the next pause between comparisons.
    pause: u64,
}

/// The times of messages by one method.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// The number of messages in the sample that is being taken.
    messages: u64,
    /// The bytes of the messages in the sample that is being taken.
    bytes: u64,
    /// The time that the messages in the sample that is being taken took, in nanoseconds.
    ns: u64,
    /// The number of samples that were taken.
    samples: u32,
    /// The least time of a sample, in picoseconds per byte.
    least: u64,
}

/// Messages that were fetched at the same time or one after the other, all by one method.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    /// The method by which the messages were fetched.
    pub way: Method,
    /// The number of messages.
    pub messages: u64,
    /// The bytes of all the messages together.
    pub bytes: u64,
    /// The time that all the messages took together, in nanoseconds.
    pub ns: u64,
    /// The time that the messages after the first `SETTLING` took, in nanoseconds. None if the messages did
    /// not end one after the other.
    pub settled_ns: Option<u64>,
}

impl Fetched {
    /// Returns these messages without the first `SETTLING`, or all of them if `settled_ns` is None.
    fn settled(self) -> Fetched {
        let Some(ns) = self.settled_ns else { return self };
        let messages = self.messages - SETTLING;
        let bytes = self.bytes / self.messages * messages;
        Fetched { messages, bytes, ns, ..self }
    }
}

impl Default for MethodTrial {
    fn default() -> MethodTrial {
        let (way, times) = (Method::Cells, Default::default());
        MethodTrial { messages: 0, way, run: 0, counted: 0, times, rest: PAUSE, pause: PAUSE }
    }
}

impl MethodTrial {
    /// Whether it is time to compare the methods again, although one is chosen. Counts one message of the
    /// pause.
    pub fn looks_again(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    /// Returns the method by which the rank must fetch the next messages, whose times are compared.
    pub fn way(&self) -> Method {
        self.way
    }

    /// Notes messages that were compared. Returns the method to choose from now on, once that is clear;
    /// `chosen` holds until then.
    pub fn end(&mut self, fetched: Fetched, chosen: Method) -> Option<Method> {
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
            let other = if self.way == Method::Cells { Method::Read } else { Method::Cells };
            (self.way, self.run, self.counted) = (other, 0, 0);
        }
        self.verdict(chosen)
    }

    fn verdict(&mut self, chosen: Method) -> Option<Method> {
        let samples = self.times.iter().map(|times| times.samples).min().unwrap_or(0);
        if samples == 0 || samples == 1 && self.messages < DECIDED {
            return None;
        }
        let percent = if samples == 1 { CLEARER_PERCENT } else { CLEAR_PERCENT };
        let [cells, read] = self.times.map(|times| times.least);
        let pause = self.pause;
        *self = MethodTrial { rest: pause, pause: pause.saturating_mul(4), ..MethodTrial::default() };
        Some(match chosen {
            Method::Cells if is_less(read, cells, percent) => Method::Read,
            Method::Read if is_less(cells, read, percent) => Method::Cells,
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

    /// Tries both methods in turn, as messages do, until one is chosen.
    fn tried(probes: &Probes, cells: [u64; 4], read: [u64; 4]) -> (Method, usize) {
        let (mut cells, mut read) = (cells.into_iter().cycle(), read.into_iter().cycle());
        for messages in 0.. {
            if let Some(way) = probes.choice(HERE) {
                return (way, messages);
            }
            let way = probes.next(HERE);
            let time = if way == Method::Read { read.next() } else { cells.next() };
            probes.record(HERE, way, time.unwrap());
        }
        unreachable!("some message decides")
    }

    #[test]
    fn the_faster_way_is_chosen_after_some_messages() {
        with(|probes| assert_eq!(tried(&probes, [90, 40, 41, 900], [100; 4]), (Method::Cells, 8)));
        with(|probes| assert_eq!(tried(&probes, [100; 4], [5000, 70, 90, 80]), (Method::Read, 8)));
        with(|probes| assert_eq!(tried(&probes, [100; 4], [100; 4]), (Method::Cells, 8), "a tie"));
        with(|probes| {
            assert_eq!(tried(&probes, [100; 4], [98; 4]), (Method::Cells, 8), "not clearly faster")
        });
    }

    #[test]
    fn what_is_refused_is_not_tried_again() {
        with(|probes| {
            probes.record(HERE, Method::Cells, 1000);
            probes.refuse(HERE, Method::Read);
            assert_eq!(probes.choice(HERE), Some(Method::Cells));
            assert_eq!(probes.choice((Distance::L2, Load::Alone, 5)), None, "others are untouched");
        });
    }

    /// Returns the method that wins if messages are fetched in bursts and their times depend on the method
    /// and the position in a run.
    fn judged(
        judge: &mut MethodTrial,
        burst: u64,
        chosen: Method,
        time: impl Fn(Method, u64) -> u64,
    ) -> Method {
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

    // Goal: within 64 messages, single ones or streams, the faster method wins; what one method leaves to the
    // first messages by the other one does not count, nor does a slow message.
    #[test]
    fn runs_show_the_faster_way() {
        let settles = |way, place| match (way, place) {
            (Method::Read, 0..SETTLING) => 900,
            (Method::Read, _) => 80,
            (Method::Cells, _) => 110,
        };
        let cells = |way, _| if way == Method::Read { 110 } else { 80 };
        for burst in [1, 2, 4, 16] {
            let judged = |chosen, time| judged(&mut MethodTrial::default(), burst, chosen, time);
            assert_eq!(judged(Method::Cells, &settles as &dyn Fn(Method, u64) -> u64), Method::Read);
            assert_eq!(judged(Method::Cells, &|_, _| 100), Method::Cells, "a tie");
            assert_eq!(judged(Method::Read, &|_, _| 100), Method::Read, "a tie");
            assert_eq!(judged(Method::Read, &cells), Method::Cells);
        }
        let slow = std::cell::Cell::new(true);
        let once = |way, place| match way == Method::Read && place == SETTLING && slow.take() {
            true => 5000,
            false => settles(way, place),
        };
        assert_eq!(judged(&mut MethodTrial::default(), 1, Method::Cells, once), Method::Read);
    }

    // Goal: a decision is checked again, and ever more rarely.
    #[test]
    fn a_judgement_is_looked_at_again() {
        let mut judge = MethodTrial::default();
        for pause in [PAUSE, 4 * PAUSE] {
            judged(&mut judge, 1, Method::Cells, |_, _| 100);
            assert_eq!((1..).find(|_| judge.looks_again()), Some(pause));
        }
    }

    #[test]
    fn what_is_decided_is_chosen() {
        with(|probes| {
            for way in [Method::Read, Method::Cells, Method::Read] {
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
                        for way in [Method::Cells, Method::Read] {
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
