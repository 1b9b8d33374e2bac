// SPDX-License-Identifier: BSD-3-Clause
//! Facts: which of two methods (`Method`) moves long messages faster, as trials of earlier jobs on this
//! machine have found. A job begins with these facts, and tries both methods again later.
//!
//! Invariants: a fact is provisional until a second job has found the same; a job that finds the opposite
//! removes it. Only trials find facts, so messages that are short enough to be sent eagerly have none.

use crate::{CLASSES, Sizes};
use std::fmt;
use std::str::FromStr;

/// The first class of message lengths for which there are facts: messages of more than 64 KiB. Shorter
/// messages are eager by default, so a receiver has no choice of method.
pub(crate) const FIRST: usize = 3;

/// The ways in which a long message gets from the sender's memory to the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The sender copies the message into cells of shared memory, and the receiver copies it out.
    Cells = 0,
    /// The kernel copies the message from one process to the other, as the receiver requests.
    Read = 1,
}

/// What earlier jobs have found about long messages of one class of lengths: which method is faster. A fact
/// holds for one `Distance` of the two cores and one `Load` of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The method that took less time.
    pub method: Method,
    /// Whether at least two jobs have found that this method is faster.
    pub is_confirmed: bool,
}

/// What the trial of one job has found about long messages of one class of lengths, for one `Distance` of the
/// two cores and one `Load` of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The method to use from now on.
    pub method: Method,
    /// Whether all samples of this method took clearly less time than all samples of the other one.
    pub is_clear: bool,
}

impl Fact {
    /// Returns the fact to keep after a job, or None if no fact is to be kept. `before` is the fact with
    /// which the job began, `kept` the fact that the machine's file has now, and `verdict` what the job has
    /// found.
    pub fn after(before: Option<Fact>, kept: Option<Fact>, verdict: Verdict) -> Option<Fact> {
        let Verdict { method, is_clear } = verdict;
        let agrees = |fact: Fact| fact.method == method;
        match kept {
            Some(fact) if !agrees(fact) => None,
            // The ranks of other hosts may have written `kept` at the end of the same job.
            _ if is_clear && (kept.is_some() || before.is_none()) => {
                let is_confirmed = before.is_some_and(agrees) || kept.is_some_and(|fact| fact.is_confirmed);
                Some(Fact { method, is_confirmed })
            }
            _ => kept,
        }
    }
}

/// The four sets into which a row of facts divides the message lengths: the faster method, and whether the
/// fact is provisional. The row's value has 16 bits for each set, and the first set has the lowest bits.
const NAMES: [&str; 4] = ["read", "cells", "read, provisional", "cells, provisional"];
const SET_BITS: usize = 16;

/// The facts for one distance of two cores and one load of the receiver: at most one fact for each class of
/// message lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts([Option<Fact>; CLASSES]);

impl Facts {
    /// Reads the facts from a row's value (`ValueKind::Facts`). Ignores the bits that stand for no class of
    /// lengths.
    pub fn of_bits(bits: u64) -> Facts {
        let has = |class: usize, set: usize| bits >> (SET_BITS * set + class) & 1 != 0;
        let fact = |class| (0..NAMES.len()).find(|set| has(class, *set)).map(of_set);
        Facts(std::array::from_fn(|class| fact(class).filter(|_| class >= FIRST)))
    }

    /// Returns the facts as one number, the value of a row, which `of_bits` reads.
    pub fn bits(self) -> u64 {
        let facts = self.0.into_iter().enumerate().filter_map(|(class, fact)| Some((class, set_of(fact?))));
        facts.fold(0, |bits, (class, set)| bits | 1 << (SET_BITS * set + class))
    }

    /// Returns the fact about messages of a class. Returns None if no job has found one.
    pub fn get(&self, class: usize) -> Option<Fact> {
        self.0[class]
    }

    /// Sets the fact about messages of a class, or removes it if `fact` is None.
    pub fn set(&mut self, class: usize, fact: Option<Fact>) {
        self.0[class] = fact.filter(|_| class >= FIRST);
    }

    /// Returns one of the sets of message lengths that `NAMES` lists; `set` is its index there.
    fn sizes(self, set: usize) -> Sizes {
        Sizes::of_bits(self.bits() >> (SET_BITS * set))
    }
}

fn of_set(set: usize) -> Fact {
    Fact { method: [Method::Read, Method::Cells][set % 2], is_confirmed: set < 2 }
}

fn set_of(fact: Fact) -> usize {
    usize::from(fact.method == Method::Cells) + if fact.is_confirmed { 0 } else { 2 }
}

impl fmt::Display for Facts {
    /// Writes the lengths for which each method is faster: `read: 256KiB-1MiB; cells, provisional: 4MiB-`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let sets = (0..NAMES.len()).map(|set| (NAMES[set], self.sizes(set)));
        let used = sets.filter(|(_, sizes)| *sizes != Sizes::default());
        let text: Vec<String> = used.map(|(name, sizes)| format!("{name}: {sizes}")).collect();
        f.write_str(&if text.is_empty() { "none".into() } else { text.join("; ") })
    }
}

impl FromStr for Facts {
    type Err = String;
    fn from_str(text: &str) -> Result<Facts, String> {
        let mut facts = Facts::default();
        for part in text.split(';').map(str::trim).filter(|part| *part != "none") {
            let known = part
                .split_once(": ")
                .and_then(|(name, sizes)| Some((NAMES.iter().position(|known| *known == name)?, sizes)));
            let Some((set, sizes)) = known else {
                return Err(format!(
                    "{part:?} is no set of lengths, as read: 1MiB- or cells, provisional: 4MiB-"
                ));
            };
            let sizes: Sizes = sizes.parse()?;
            for class in (0..CLASSES).filter(|class| sizes.bits() >> class & 1 != 0) {
                if class < FIRST || facts.get(class).is_some() {
                    return Err(format!("{part:?} has a length that is eager, or that is there twice"));
                }
                facts.set(class, Some(of_set(set)));
            }
        }
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class_of;

    const READ: Option<Fact> = Some(Fact { method: Method::Read, is_confirmed: false });
    const CONFIRMED: Option<Fact> = Some(Fact { method: Method::Read, is_confirmed: true });
    const CELLS: Option<Fact> = Some(Fact { method: Method::Cells, is_confirmed: false });

    // Goal: a clear result is kept, a second job confirms it, one that disagrees removes it, and the hosts of
    // one job do not confirm each other.
    #[test]
    fn facts_are_found_confirmed_and_removed() {
        let clear = Verdict { method: Method::Read, is_clear: true };
        let tie = Verdict { is_clear: false, ..clear };
        for (before, kept, verdict, after) in [
            (None, None, clear, READ),
            (None, None, tie, None),
            (None, READ, clear, READ),
            (None, READ, tie, READ),
            (READ, READ, clear, CONFIRMED),
            (READ, READ, tie, READ),
            (None, CONFIRMED, clear, CONFIRMED),
            (CONFIRMED, CONFIRMED, tie, CONFIRMED),
            (CELLS, CELLS, clear, None),
            (CELLS, CELLS, tie, None),
            (None, CELLS, clear, None),
            // Another host of this job has removed it.
            (CELLS, None, clear, None),
            (READ, None, clear, None),
        ] {
            assert_eq!(Fact::after(before, kept, verdict), after, "{before:?} {kept:?} {verdict:?}");
        }
    }

    #[test]
    fn text_and_back() {
        assert_eq!(FIRST, class_of(64 << 10) + 1);
        let text = "read: 256KiB-512KiB; cells: 128KiB-128KiB; read, provisional: 1MiB-1MiB; cells, provisional: 4MiB-";
        let facts: Facts = text.parse().unwrap();
        assert_eq!(facts.to_string(), text);
        assert_eq!(Facts::of_bits(facts.bits()), facts);
        let ways = [128 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20].map(|bytes| facts.get(class_of(bytes)));
        let cells = Some(Fact { method: Method::Cells, is_confirmed: true });
        assert_eq!(ways, [cells, CONFIRMED, READ, None, CELLS]);
        assert_eq!(Facts::default().to_string().parse(), Ok(Facts::default()));
        for wrong in [
            "",
            "read",
            "read 1MiB-",
            "maybe: 1MiB-",
            "read: 64KiB-",
            "read: 1MiB-; cells: 4MiB-",
            "read: 1MiB-1MiB; read: 1MiB-1MiB",
            "read: ",
        ] {
            assert!(wrong.parse::<Facts>().is_err(), "{wrong}");
        }
        // Whatever a broken process has written, each class has one fact at most, and eager lengths none.
        let wild = Facts::of_bits(u64::MAX);
        assert_eq!(wild.to_string(), "read: 128KiB-");
    }
}
