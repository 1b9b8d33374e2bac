// SPDX-License-Identifier: BSD-3-Clause
//! Times of a job's first long messages, if no table says how to move them. They are kept for each method,
//! distance of cores, load of the receiver, and class of lengths. They lie in the job's header: all pairs of
//! ranks at the same distance share them, and sender and receiver see the same times.

use crate::{CLASSES, Distance, Fact, Load, Method, Tuning, Verdict};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of words of `Probes` in the job's header.
pub const PROBE_WORDS: usize = 3 * 3 * CLASSES * 2;
/// How many messages are moved by each method before the faster method is chosen.
const SAMPLES: u64 = 4;
/// A method counts as faster if it takes less than this many percent of the other's time.
const CLEAR_PERCENT: u64 = 97;
/// The position of the bits that count messages in a word of `Probes`. The lower bits hold the least time.
const COUNT_SHIFT: u32 = 48;
const TIME_MAX: u64 = (1 << COUNT_SHIFT) - 1;
/// The bit of a word of `Probes` that says that a trial of this job has chosen the method.
const JUDGED: u64 = 1 << 62;
/// The bit of a word of `Probes` that says that the result of the trial was clear (`Verdict::is_clear`).
const CLEAR: u64 = 1 << 63;

/// Whether the time `read` of `Method::Read` is clearly less than the time `cells` of `Method::Cells`.
pub fn is_faster(read: u64, cells: u64) -> bool {
    is_less(read, cells, CLEAR_PERCENT)
}

/// Whether `time` is less than `percent` of `other`.
fn is_less(time: u64, other: u64, percent: u64) -> bool {
    u128::from(time) * 100 < u128::from(other) * u128::from(percent)
}

/// The words of a job's header in which all ranks record how long messages took by each method; all 0 at
/// first.
#[derive(Clone, Copy, Debug)]
pub struct Probes<'a>(pub &'a [AtomicU64; PROBE_WORDS]);

impl Probes<'_> {
    fn word(&self, at: (Distance, Load, usize), method: Method) -> &AtomicU64 {
        let (distance, load, class) = at;
        &self.0[((distance as usize * 3 + load as usize) * CLASSES + class) * 2 + method as usize]
    }

    /// Records that messages of the distance, load and class `at` took `time` picoseconds per byte by method
    /// `method`.
    pub fn record(&self, at: (Distance, Load, usize), method: Method, time: u64) {
        let add = |word: u64| {
            let least = if word == 0 { TIME_MAX } else { word & TIME_MAX };
            let count = ((word >> COUNT_SHIFT) + 1).min(SAMPLES);
            Some(count << COUNT_SHIFT | time.min(least))
        };
        // The function always returns a value.
        let _ = self.word(at, method).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Records that the kernel refuses `method` for messages of the distance, load and class `at`, so that it
    /// is never chosen.
    pub fn refuse(&self, at: (Distance, Load, usize), method: Method) {
        self.word(at, method).store(SAMPLES << COUNT_SHIFT | TIME_MAX, Ordering::Relaxed);
    }

    /// Chooses the method that a trial of this job has found faster for messages of the distance, load and
    /// class `at`.
    pub fn decide(&self, at: (Distance, Load, usize), verdict: Verdict) {
        self.store(at, verdict.method, JUDGED | if verdict.is_clear { CLEAR } else { 0 });
    }

    /// Chooses the methods that earlier jobs have found faster. `mpirun` calls it before the first process
    /// starts.
    pub fn begin_with(&self, tuning: &Tuning) {
        for (distance, load) in PATTERNS {
            let facts = tuning.facts(distance, load);
            for (class, fact) in (0..CLASSES).filter_map(|class| Some((class, facts.get(class)?))) {
                self.store((distance, load, class), fact.method, 0);
            }
        }
    }

    fn store(&self, at: (Distance, Load, usize), method: Method, bits: u64) {
        let [cells, read] = if method == Method::Read { [TIME_MAX - 1, 1] } else { [1, TIME_MAX - 1] };
        self.word(at, Method::Cells).store(SAMPLES << COUNT_SHIFT | cells | bits, Ordering::Relaxed);
        self.word(at, Method::Read).store(SAMPLES << COUNT_SHIFT | read | bits, Ordering::Relaxed);
    }

    /// Returns what the last trial of this job has found for messages of the distance, load and class `at`.
    /// Returns None if no trial has ended.
    pub fn verdict(&self, at: (Distance, Load, usize)) -> Option<Verdict> {
        let words = [Method::Cells, Method::Read].map(|method| self.word(at, method).load(Ordering::Relaxed));
        let all = words[0] & words[1];
        let method = self.choice(at).filter(|_| all & JUDGED != 0)?;
        Some(Verdict { method, is_clear: all & CLEAR != 0 })
    }

    /// Whether some trial of this job has ended.
    pub fn has_verdicts(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Relaxed) & JUDGED != 0)
    }

    /// Returns the chosen method for messages of the distance, load and class `at`. None until enough
    /// messages have been timed.
    pub fn choice(&self, at: (Distance, Load, usize)) -> Option<Method> {
        let [cells, read] =
            [Method::Cells, Method::Read].map(|method| self.word(at, method).load(Ordering::Relaxed));
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
        let count = |method| self.word(at, method).load(Ordering::Relaxed) >> COUNT_SHIFT;
        if count(Method::Read) < count(Method::Cells) { Method::Read } else { Method::Cells }
    }
}

/// All pairs of a distance and a load, in the order in which the table of values has rows for them.
pub const PATTERNS: [(Distance, Load); 9] = {
    let mut all = [(Distance::L2, Load::Alone); 9];
    let mut at = 0;
    while at < all.len() {
        all[at] = (Distance::ALL[at / 3], Load::ALL[at % 3]);
        at += 1;
    }
    all
};

/// A run is a series of messages by one method, after which the rank changes the method. The first messages
/// of a run, this many, are not timed: what the other method has left in the caches slows them down
/// (docs/measured/choice.md).
pub const SETTLING: u64 = 4;
/// The least number of messages that are timed together as one sample. A method's time is the least of its
/// samples.
const SAMPLE: u64 = 10;
/// The least number of messages in a run, which a rank fetches by one method before it tries the other. All
/// ranks use the same number, so that ranks that exchange messages change the method at the same time.
const RUN: u64 = 16;
/// After this many messages a trial decides by one sample of each method. It then changes the method only if
/// the other one takes less than `CLEARER_PERCENT` of the chosen method's time, since times still fall while
/// buffers are new. This favours `Method::Read`, which is tried second.
const DECIDED: u64 = 64;
const CLEARER_PERCENT: u64 = 90;
/// A result is clear if each sample of the chosen method is less than this many percent of each sample of the
/// other one.
const KEPT_PERCENT: u64 = 90;
/// How many messages go by the chosen method before both are compared again; then four times as many, and so
/// on.
const PAUSE: u64 = 512;

/// What one rank has measured about long messages of one class of lengths, from peers at one distance and
/// under one load of this rank.
#[derive(Clone, Debug)]
pub struct MethodTrial {
    messages: u64,
    method: Method,
    /// The number of messages since the method last changed.
    run: u64,
    /// How many messages of this run count: the messages after the first `SETTLING`.
    counted: u64,
    times: [Times; 2],
    /// The number of messages until both methods are compared again.
    until_comparison: u64,
    /// The number of messages of the next pause between comparisons.
    pause: u64,
}

/// The times of the messages that were fetched by one method.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// The number of messages in the sample that is being taken.
    messages: u64,
    /// The bytes of the messages in the sample that is being taken.
    bytes: u64,
    /// The time, in nanoseconds, that the messages of the current sample have taken so far.
    ns: u64,
    /// The number of samples that were taken.
    samples: u32,
    /// The least time of a sample, in picoseconds per byte.
    least: u64,
    /// The greatest time of a sample, in picoseconds per byte.
    most: u64,
}

/// Messages that were fetched at the same time or one after the other, all by one method.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    /// The method by which the messages were fetched.
    pub method: Method,
    /// The number of messages that were fetched.
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
        let (method, times) = (Method::Cells, Default::default());
        MethodTrial { messages: 0, method, run: 0, counted: 0, times, until_comparison: PAUSE, pause: PAUSE }
    }
}

impl MethodTrial {
    /// Makes the trial with which a job starts if earlier jobs have found `fact` (None: no fact). The job
    /// tests a provisional fact after `DECIDED` messages, and a confirmed one after `PAUSE` messages.
    pub fn of(fact: Option<Fact>) -> MethodTrial {
        let until_comparison = if fact.is_some_and(|fact| !fact.is_confirmed) { DECIDED } else { PAUSE };
        MethodTrial { until_comparison, ..MethodTrial::default() }
    }

    /// Whether it is time to compare the two methods again, although one method is chosen. Counts one message
    /// of the pause.
    pub fn looks_again(&mut self) -> bool {
        self.until_comparison = self.until_comparison.saturating_sub(1);
        self.until_comparison == 0
    }

    /// Returns the method by which the rank must fetch the next messages, whose times are compared.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Records the time of messages that were fetched by the method `method()`. Returns the method to choose
    /// from now on, once enough messages were timed; None until then. `chosen` is the method that is chosen
    /// now.
    pub fn end(&mut self, fetched: Fetched, chosen: Method) -> Option<Verdict> {
        if fetched.method != self.method {
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
        let times = &mut self.times[self.method as usize];
        times.add(if is_stream { fetched.settled() } else { fetched });
        if self.run >= RUN && self.counted >= SAMPLE {
            times.drop_sample();
            let other = if self.method == Method::Cells { Method::Read } else { Method::Cells };
            (self.method, self.run, self.counted) = (other, 0, 0);
        }
        self.verdict(chosen)
    }

    fn verdict(&mut self, chosen: Method) -> Option<Verdict> {
        let samples = self.times.iter().map(|times| times.samples).min().unwrap_or(0);
        if samples == 0 || samples == 1 && self.messages < DECIDED {
            return None;
        }
        let percent = if samples == 1 { CLEARER_PERCENT } else { CLEAR_PERCENT };
        let [cells, read] = self.times;
        let pause = self.pause;
        *self =
            MethodTrial { until_comparison: pause, pause: pause.saturating_mul(4), ..MethodTrial::default() };
        let method = match chosen {
            Method::Cells if is_less(read.least, cells.least, percent) => Method::Read,
            Method::Read if is_less(cells.least, read.least, percent) => Method::Cells,
            _ => chosen,
        };
        let (ours, other) = if method == Method::Read { (read, cells) } else { (cells, read) };
        Some(Verdict { method, is_clear: samples >= 2 && is_less(ours.most, other.least, KEPT_PERCENT) })
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
            self.most = self.most.max(time);
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

    /// Records the times `cells` and `read` for messages by the two methods in turn, until a method is
    /// chosen. Returns this method, and how many messages were recorded.
    fn tried(probes: &Probes, cells: [u64; 4], read: [u64; 4]) -> (Method, usize) {
        let (mut cells, mut read) = (cells.into_iter().cycle(), read.into_iter().cycle());
        for messages in 0.. {
            if let Some(method) = probes.choice(HERE) {
                return (method, messages);
            }
            let method = probes.next(HERE);
            let time = if method == Method::Read { read.next() } else { cells.next() };
            probes.record(HERE, method, time.unwrap());
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

    /// Plays messages that are fetched in bursts of `burst` until `judge` has a verdict, and returns this
    /// verdict. `time` returns a message's time by its method and its position in the run.
    fn judged(
        judge: &mut MethodTrial,
        burst: u64,
        chosen: Method,
        time: impl Fn(Method, u64) -> u64,
    ) -> Verdict {
        let (mut last, mut place) = (None, 0);
        for bursts in 1.. {
            let method = judge.method();
            place = if last.replace(method) == Some(method) { place } else { 0 };
            let ns = (place..place + burst).map(|place| time(method, place)).sum();
            place += burst;
            let settled_ns = Some((SETTLING..burst).map(|place| time(method, place)).sum());
            let fetched = Fetched { method, messages: burst, bytes: burst * 1000, ns, settled_ns };
            if let Some(verdict) = judge.end(fetched, chosen) {
                assert!((50..=64).contains(&(bursts * burst)), "after {bursts} bursts of {burst}");
                return verdict;
            }
        }
        unreachable!("some message decides")
    }

    // Goal: within 64 messages, single ones or streams, the faster method wins; what one method leaves to the
    // first messages by the other one does not count, nor does a slow message.
    #[test]
    fn runs_show_the_faster_way() {
        let settles = |method, place| match (method, place) {
            (Method::Read, 0..SETTLING) => 900,
            (Method::Read, _) => 80,
            (Method::Cells, _) => 110,
        };
        let cells = |method, _| if method == Method::Read { 110 } else { 80 };
        for burst in [1, 2, 4, 16] {
            let judged = |chosen, time| judged(&mut MethodTrial::default(), burst, chosen, time).method;
            assert_eq!(judged(Method::Cells, &settles as &dyn Fn(Method, u64) -> u64), Method::Read);
            assert_eq!(judged(Method::Cells, &|_, _| 100), Method::Cells, "a tie");
            assert_eq!(judged(Method::Read, &|_, _| 100), Method::Read, "a tie");
            assert_eq!(judged(Method::Read, &cells), Method::Cells);
        }
        let slow = std::cell::Cell::new(true);
        let once = |method, place| match method == Method::Read && place == SETTLING && slow.take() {
            true => 5000,
            false => settles(method, place),
        };
        assert_eq!(judged(&mut MethodTrial::default(), 1, Method::Cells, once).method, Method::Read);
    }

    // Goal: a result is clear only if both samples of one method are by a tenth below both of the other.
    #[test]
    fn what_is_clear_is_told_from_what_is_not() {
        // Messages of the first run of each method have place 0 to 15; `seen` counts them all.
        let clear = |first: u64, then: u64, cells: u64| {
            let seen = std::cell::Cell::new(0);
            let time = |method, _| match method {
                Method::Cells => cells,
                Method::Read => {
                    seen.set(seen.get() + 1);
                    if seen.get() <= RUN { first } else { then }
                }
            };
            judged(&mut MethodTrial::default(), 1, Method::Cells, time)
        };
        let verdict = |method, is_clear| Verdict { method, is_clear };
        assert_eq!(clear(80, 85, 100), verdict(Method::Read, true));
        assert_eq!(clear(80, 95, 100), verdict(Method::Read, false), "the samples disagree");
        assert_eq!(clear(93, 93, 100), verdict(Method::Read, false), "not by a tenth");
        assert_eq!(clear(120, 130, 100), verdict(Method::Cells, true));
        assert_eq!(clear(105, 130, 100), verdict(Method::Cells, false));
        assert_eq!(clear(100, 100, 100), verdict(Method::Cells, false));
    }

    // Goal: a fact is tried, a provisional one soon, and holds until then.
    #[test]
    fn facts_are_tried() {
        for (is_confirmed, messages) in [(false, DECIDED), (true, PAUSE)] {
            let mut trial = MethodTrial::of(Some(Fact { method: Method::Read, is_confirmed }));
            assert_eq!((1..).find(|_| trial.looks_again()), Some(messages));
            assert_eq!(judged(&mut trial, 1, Method::Read, |_, _| 100).method, Method::Read);
            assert_eq!((1..).find(|_| trial.looks_again()), Some(PAUSE));
        }
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
            for (method, is_clear) in [(Method::Read, true), (Method::Cells, false), (Method::Read, false)] {
                probes.decide(HERE, Verdict { method, is_clear });
                assert_eq!(probes.choice(HERE), Some(method));
                assert_eq!(probes.verdict(HERE), Some(Verdict { method, is_clear }));
            }
            probes.refuse(HERE, Method::Read);
            assert_eq!((probes.choice(HERE), probes.verdict(HERE)), (Some(Method::Cells), None));
        });
    }

    // Goal: what earlier jobs found is chosen, but is no finding of this job.
    #[test]
    fn a_job_begins_with_facts() {
        let (distance, load, class) = HERE;
        let mut tuning = Tuning::default();
        let row = crate::facts_row(distance, load);
        tuning.set(
            row,
            crate::read_text(row, "read, provisional: 512KiB-512KiB").unwrap(),
            crate::ValueSource::Table,
        );
        with(|probes| {
            probes.begin_with(&tuning);
            assert_eq!((probes.choice(HERE), probes.verdict(HERE)), (Some(Method::Read), None));
            assert_eq!(probes.choice((distance, load, class + 1)), None);
            assert_eq!(probes.choice((distance, Load::Many, class)), None);
        });
    }

    #[test]
    fn words_are_apart() {
        with(|probes| {
            for distance in Distance::ALL {
                for load in Load::ALL {
                    for class in 0..CLASSES {
                        for method in [Method::Cells, Method::Read] {
                            let word = probes.word((distance, load, class), method);
                            assert_eq!(word.swap(1, Ordering::Relaxed), 0);
                        }
                    }
                }
            }
            assert!(probes.0.iter().all(|word| word.load(Ordering::Relaxed) == 1));
        });
    }
}
