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
    u128::from(read) * 100 < u128::from(cells) * u128::from(CLEAR_PERCENT)
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
