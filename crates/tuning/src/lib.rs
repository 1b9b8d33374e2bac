// SPDX-License-Identifier: BSD-3-Clause
//! Values chosen by measurement: one `Tuning` for a process, with the source of each value.
//!
//! Later sources win: built-in defaults; a table that `outboard tune` measured on this machine (`table.rs`);
//! settings. A method for long messages that neither table nor setting gives comes first from the facts of
//! earlier jobs (`fact.rs`), then from this job's first long messages (`probe.rs`). `mpirun` reads table and
//! facts once and writes them into the job's header, so all processes start with the same values. A
//! processor's name is only the key of a table (`machine.rs`).
//!
//! Read next: `ccl.rs`, the lengths from which on a collective library is faster.
//!
//! Invariants: a value that came from a file or from shared memory is checked before it is used.
#![forbid(unsafe_code)]

mod ccl;
mod fact;
mod machine;
mod probe;
mod row;
mod sizes;
mod table;

pub use ccl::{ByRanks, COLLECTIVES, LIBRARIES};
pub use fact::{Fact, Facts, Method, Verdict};
pub use machine::Machine;
pub use probe::{Fetched, MethodTrial, PATTERNS, PROBE_WORDS, Probes, SETTLING, is_faster};
pub use row::{ValueKind, ValueRow};
pub use sizes::{CLASSES, Sizes, class_bytes, class_of};
pub use table::TuningTable;

/// How far apart the cores of two ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The cores share a second-level cache, or are the same core.
    L2 = 0,
    /// The cores share a third-level cache.
    L3 = 1,
    /// The cores share neither a second-level nor a third-level cache, or the distance is not known.
    Far = 2,
}

impl Distance {
    /// All distances, the shortest first.
    pub const ALL: [Distance; 3] = [Distance::L2, Distance::L3, Distance::Far];

    /// Returns the greatest distance between any two of the processors `cpus`, by the caches that the kernel
    /// reports.
    pub fn of(cpus: &[usize]) -> Distance {
        let is_within =
            |kind| matches!(sys::topology::locality(kind, cpus), Some(sys::topology::Locality::Within(_)));
        match (is_within("L2Cache"), is_within("L3Cache")) {
            (true, _) => Distance::L2,
            (false, true) => Distance::L3,
            (false, false) => Distance::Far,
        }
    }

    /// Returns the part of a row's name that stands for the distance: `l2` in `read.l2.alone`.
    pub fn name(self) -> &'static str {
        ["l2", "l3", "far"][self as usize]
    }
}

/// What else a receiver does while it fetches a long message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The receiver does nothing else, as in a ping-pong.
    Alone = 0,
    /// The receiver fetches other messages, as in a stream of messages.
    Many = 1,
    /// The receiver sends, as in an exchange.
    Exchange = 2,
}

impl Load {
    /// All loads, in the order in which the table of values has rows for them.
    pub const ALL: [Load; 3] = [Load::Alone, Load::Many, Load::Exchange];

    /// Returns the part of a row's name that stands for the load: `alone` in `read.l2.alone`.
    pub fn name(self) -> &'static str {
        ["alone", "many", "exchange"][self as usize]
    }
}

/// The sources from which a value can come. A value from a later source replaces one from an earlier source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueSource {
    /// The value is the built-in default.
    Default,
    /// The value is from the table that was measured on this machine.
    Table,
    /// The user has set the value by a setting.
    Setting,
}

const fn read(name: &'static str) -> ValueRow {
    let doc = "lengths of messages that the receiver reads in the sender's memory (cross-memory attach), not through cells";
    ValueRow { name, kind: ValueKind::Sizes, default: 0, doc }
}

const fn facts(name: &'static str) -> ValueRow {
    let doc = "which way messages take first, by length, as earlier jobs have found it; provisional: only one job has";
    ValueRow { name, kind: ValueKind::Facts, default: 0, doc }
}

/// The index of the row that says up to how many bytes a schedule's sender copies a block into shared memory.
pub const INLINE_BYTES_MAX: usize = 9;
/// The index of the row that says how long a block of an all-to-all or allgather may be, in bytes, to use
/// shared slots.
pub const FLAT_BYTES_MAX: usize = 10;
/// The index of the row that says whether copies of some kilobytes are made by vector instructions.
pub const VECTOR_COPIES: usize = 11;
/// The index of the row that says how many bytes of buffers stay in a core's cache during a collective.
pub const NEAR_BYTES_MAX: usize = 12;

/// The index of the row with the length of the longest message that is sent before the receiver asks.
pub const EAGER_BYTES_MAX: usize = 13;

/// The index of the first row of facts in the table of values.
const FACTS: usize = 14;

/// The index of the first row that `ccl.rs` adds to the table of values.
const CCL: usize = FACTS + 9;

/// All rows of the table of values: first the rows in `SINGLE`, then the rows for collective libraries
/// (`ccl.rs`).
pub const ROWS: &[ValueRow] = &{
    let mut rows = [SINGLE[0]; CCL + ccl::COUNT];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = match at.checked_sub(CCL) {
            None => SINGLE[at],
            Some(place) => ccl::ROWS[place / COLLECTIVES.len()][place % COLLECTIVES.len()],
        };
        at += 1;
    }
    rows
};

/// The rows that do not belong to collective libraries. The first nine have the lengths of messages that a
/// receiver reads, by distance and load; the last nine have facts, in the same order.
const SINGLE: [ValueRow; CCL] = [
    read("read.l2.alone"),
    read("read.l2.many"),
    read("read.l2.exchange"),
    read("read.l3.alone"),
    read("read.l3.many"),
    read("read.l3.exchange"),
    read("read.far.alone"),
    read("read.far.many"),
    read("read.far.exchange"),
    ValueRow {
        name: "inline_bytes_max",
        kind: ValueKind::Bytes,
        default: 1 << 20,
        doc: "the longest block that a schedule's sender copies into shared memory for its receivers",
    },
    ValueRow {
        name: "flat_bytes_max",
        kind: ValueKind::Bytes,
        default: u64::MAX,
        doc: "the longest block of an all-to-all or allgather that goes over shared slots; longer ones are read in the sender's memory",
    },
    ValueRow {
        name: "vector_copies",
        kind: ValueKind::Flag,
        default: 0,
        doc: "whether copies of 4 to 32 KiB are made by vector instructions, not by the C library",
    },
    ValueRow {
        name: "near_bytes_max",
        kind: ValueKind::Bytes,
        default: 512 << 10,
        doc: "with vector_copies: what the buffers of a collective may have in all to be copied by pieces that stay in the cache",
    },
    ValueRow {
        name: "eager_bytes_max",
        kind: ValueKind::Bytes,
        default: 64 << 10,
        doc: "the longest message that is sent without asking; less where the receiver reads shorter ones (read.*.alone)",
    },
    facts("facts.l2.alone"),
    facts("facts.l2.many"),
    facts("facts.l2.exchange"),
    facts("facts.l3.alone"),
    facts("facts.l3.many"),
    facts("facts.l3.exchange"),
    facts("facts.far.alone"),
    facts("facts.far.many"),
    facts("facts.far.exchange"),
];

/// How many words of the job's header hold a `Tuning`: a value for each row, and a bit for each row whose
/// value is not the default.
pub const WORDS: usize = ROWS.len() + ROWS.len().div_ceil(64);

/// The values by which a process decides, one for each row of `ROWS`: measured, set by the user, or built in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    values: [u64; ROWS.len()],
    sources: [ValueSource; ROWS.len()],
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            values: std::array::from_fn(|row| ROWS[row].default),
            sources: [ValueSource::Default; ROWS.len()],
        }
    }
}

impl Tuning {
    /// Returns the value in row `row` of the table of values (`ROWS`).
    pub fn get(&self, row: usize) -> u64 {
        self.values[row]
    }

    /// Returns where the value in row `row` comes from, such as a setting.
    pub fn source(&self, row: usize) -> ValueSource {
        self.sources[row]
    }

    /// Whether the row's value was measured or set, and is not the default.
    pub fn is_known(&self, row: usize) -> bool {
        self.sources[row] != ValueSource::Default
    }

    /// Sets a row's value, unless its present value comes from a source that wins over `source`.
    pub fn set(&mut self, row: usize, value: u64, source: ValueSource) {
        if source >= self.sources[row] {
            (self.values[row], self.sources[row]) = (checked(row, value), source);
        }
    }

    /// Returns the lengths of messages that a receiver reads directly in the sender's memory, for a distance
    /// of the two cores and a load of the receiver. None if they are neither measured nor set.
    pub fn read(&self, distance: Distance, load: Load) -> Option<Sizes> {
        let row = read_row(distance, load);
        self.is_known(row).then(|| Sizes::of_bits(self.values[row]))
    }

    /// Whether a table or a setting says which long messages a receiver reads directly in the sender's
    /// memory, so that no messages need be timed to find it out.
    pub fn knows_ways(&self) -> bool {
        Distance::ALL.iter().any(|at| self.read(*at, Load::Alone).is_some())
    }

    /// Returns what earlier jobs have found about messages, for a distance of the two cores and a load of the
    /// receiver.
    pub fn facts(&self, distance: Distance, load: Load) -> Facts {
        Facts::of_bits(self.values[facts_row(distance, load)])
    }

    /// Returns the rows that hold at least one fact (what earlier jobs have found), each as its index and its
    /// value.
    pub fn all_facts(&self) -> Vec<(usize, u64)> {
        (FACTS..CCL).map(|row| (row, self.values[row])).filter(|(_, value)| *value != 0).collect()
    }

    /// Replaces all facts (what earlier jobs have found) by the facts in `other`.
    pub fn set_facts(&mut self, other: &Tuning) {
        self.values[FACTS..CCL].copy_from_slice(&other.values[FACTS..CCL]);
        self.sources[FACTS..CCL].copy_from_slice(&other.sources[FACTS..CCL]);
    }

    /// Returns the facts to keep after a job that began with these values, as indices and values of rows.
    /// `kept` has the facts that the machine's file has now. `verdict` returns what the job has found for a
    /// distance, load and class of lengths.
    pub fn facts_after(
        &self,
        kept: &Tuning,
        verdict: impl Fn((Distance, Load, usize)) -> Option<Verdict>,
    ) -> Vec<(usize, u64)> {
        let mut new = *kept;
        for (distance, load) in PATTERNS {
            let (before, mut facts) = (self.facts(distance, load), kept.facts(distance, load));
            for class in 0..CLASSES {
                if let Some(verdict) = verdict((distance, load, class)) {
                    facts.set(class, Fact::after(before.get(class), facts.get(class), verdict));
                }
            }
            new.values[facts_row(distance, load)] = facts.bits();
        }
        new.all_facts()
    }

    /// Returns the message length from which on a library (a value of OUTBOARD_CCL) is faster on `ranks`
    /// ranks. Returns None if that was not measured.
    pub fn library_bytes_min(&self, library: &str, collective: &str, ranks: u32) -> Option<u64> {
        let row = library_row(library, collective)?;
        ByRanks::of_bits(self.values[row]).bytes_min(ranks)
    }

    /// Returns the values of the rows for collective libraries, which must be the same on all hosts of a job.
    pub fn libraries(&self) -> Vec<u64> {
        self.values[CCL..].to_vec()
    }

    /// Replaces the values of the rows for collective libraries by `values`, which `libraries` returned on
    /// another host.
    pub fn set_libraries(&mut self, values: &[u64]) {
        self.values[CCL..].fill(0);
        self.sources[CCL..].fill(ValueSource::Default);
        let given = (CCL..ROWS.len()).zip(values).filter(|(_, value)| **value != 0);
        given.for_each(|(row, value)| self.set(row, *value, ValueSource::Table));
    }

    /// Returns the values in the form in which the job's header stores them and `of_words` reads them.
    pub fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..ROWS.len()].copy_from_slice(&self.values);
        (0..ROWS.len())
            .filter(|row| self.is_known(*row))
            .for_each(|row| words[ROWS.len() + row / 64] |= 1 << (row % 64));
        words
    }

    /// Reads the values from words that `to_words` has made. A row without a stored value gets the default.
    pub fn of_words(words: [u64; WORDS]) -> Tuning {
        let mut tuning = Tuning::default();
        (0..ROWS.len())
            .filter(|row| words[ROWS.len() + row / 64] >> (row % 64) & 1 != 0)
            .for_each(|row| tuning.set(row, words[row], ValueSource::Table));
        tuning
    }
}

/// Returns the index of the row for a library (a value of OUTBOARD_CCL) and a collective. None if the
/// collective is not chosen by length.
pub fn library_row(library: &str, collective: &str) -> Option<usize> {
    ccl::place(library, collective).map(|place| CCL + place)
}

/// Returns the index of the row with the lengths of messages that a receiver reads directly in the sender's
/// memory.
pub fn read_row(distance: Distance, load: Load) -> usize {
    distance as usize * Load::ALL.len() + load as usize
}

/// Returns the index of the row that has the facts about messages of a distance and load (`Tuning::facts`).
pub fn facts_row(distance: Distance, load: Load) -> usize {
    FACTS + read_row(distance, load)
}

/// Makes `value` valid for its row: a flag becomes 0 or 1, bits that stand for no class are cleared.
fn checked(row: usize, value: u64) -> u64 {
    match ROWS[row].kind {
        ValueKind::Sizes => Sizes::of_bits(value).bits(),
        ValueKind::Bytes => value,
        ValueKind::Flag => u64::from(value != 0),
        ValueKind::ByRanks => ByRanks::of_bits(value).bits(),
        ValueKind::Facts => Facts::of_bits(value).bits(),
    }
}

/// Returns a row's value as the text that a table's file has. `read_text` parses this text.
pub fn shown(row: usize, value: u64) -> String {
    match ROWS[row].kind {
        ValueKind::Sizes => Sizes::of_bits(value).to_string(),
        ValueKind::Bytes if value == u64::MAX => "unlimited".into(),
        ValueKind::Bytes => sizes::bytes_text(value),
        ValueKind::Flag => ["no", "yes"][usize::from(value != 0)].into(),
        ValueKind::ByRanks => ByRanks::of_bits(value).to_string(),
        ValueKind::Facts => Facts::of_bits(value).to_string(),
    }
}

/// Parses the text that a table's file has for a row's value. The error says what is wrong with the text.
pub fn read_text(row: usize, text: &str) -> std::result::Result<u64, String> {
    match (ROWS[row].kind, text) {
        (ValueKind::Sizes, text) => text.parse::<Sizes>().map(Sizes::bits),
        (ValueKind::Bytes, "unlimited") => Ok(u64::MAX),
        (ValueKind::Bytes, text) => sizes::bytes_of(text),
        (ValueKind::ByRanks, text) => text.parse::<ByRanks>().map(ByRanks::bits),
        (ValueKind::Facts, text) => text.parse::<Facts>().map(Facts::bits),
        (ValueKind::Flag, "yes") => Ok(1),
        (ValueKind::Flag, "no") => Ok(0),
        (ValueKind::Flag, other) => Err(format!("{other:?} is neither yes nor no")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_rows_agree() {
        for distance in Distance::ALL {
            for load in Load::ALL {
                let name = format!("read.{}.{}", distance.name(), load.name());
                assert_eq!(ROWS[read_row(distance, load)].name, name);
                assert_eq!(ROWS[facts_row(distance, load)].name, name.replace("read", "facts"));
            }
        }
        let rows = [INLINE_BYTES_MAX, FLAT_BYTES_MAX, VECTOR_COPIES, NEAR_BYTES_MAX, EAGER_BYTES_MAX];
        let names =
            ["inline_bytes_max", "flat_bytes_max", "vector_copies", "near_bytes_max", "eager_bytes_max"];
        assert_eq!(rows.map(|row| ROWS[row].name), names);
        for (row, ValueRow { default, .. }) in ROWS.iter().enumerate() {
            assert_eq!(read_text(row, &shown(row, *default)), Ok(*default));
        }
    }

    // Goal: each verdict changes the fact of its distance, load and class, and no other.
    #[test]
    fn facts_follow_verdicts() {
        let row = facts_row(Distance::L2, Load::Many);
        let other = facts_row(Distance::Far, Load::Alone);
        let with = |texts: &[(usize, &str)]| {
            let mut tuning = Tuning::default();
            let values = texts.iter().map(|(row, text)| (*row, read_text(*row, text).unwrap()));
            values.for_each(|(row, value)| tuning.set(row, value, ValueSource::Table));
            tuning
        };
        let kept = with(&[(row, "read, provisional: 128KiB-256KiB"), (other, "cells: 4MiB-")]);
        let verdict = |(distance, load, class)| {
            let method = match (distance, load, class) {
                (Distance::L2, Load::Many, 3 | 5) => Method::Read,
                (Distance::L2, Load::Many, 2 | 4) => Method::Cells,
                _ => return None,
            };
            Some(Verdict { method, is_clear: true })
        };
        let after = kept.facts_after(&kept, verdict);
        let expected = "read: 128KiB-128KiB; read, provisional: 512KiB-512KiB";
        assert_eq!(after, with(&[(row, expected), (other, "cells: 4MiB-")]).all_facts());
        assert_eq!(kept.facts_after(&kept, |_| None), kept.all_facts());
        let mut set = with(&[(row, "read: 128KiB-")]);
        set.set_facts(&kept);
        assert_eq!(set, kept);
    }

    #[test]
    fn later_sources_win_and_words_carry_what_a_table_gave() {
        let mut tuning = Tuning::default();
        assert_eq!(tuning.read(Distance::L3, Load::Many), None);
        let row = read_row(Distance::L3, Load::Many);
        tuning.set(row, 0b110, ValueSource::Table);
        tuning.set(VECTOR_COPIES, 7, ValueSource::Table);
        assert_eq!(tuning.read(Distance::L3, Load::Many), Some(Sizes::of_bits(0b110)));
        let mut other = Tuning::of_words(tuning.to_words());
        assert_eq!(other, tuning);
        other.set(FLAT_BYTES_MAX, 4096, ValueSource::Setting);
        other.set(FLAT_BYTES_MAX, 8192, ValueSource::Table);
        assert_eq!((other.get(FLAT_BYTES_MAX), other.source(FLAT_BYTES_MAX)), (4096, ValueSource::Setting));
        assert_eq!(Tuning::of_words([0; WORDS]), Tuning::default());
        let row = library_row("file", "bcast").unwrap();
        tuning.set(row, read_text(row, "2: 1KiB").unwrap(), ValueSource::Table);
        let mut other = Tuning::of_words(tuning.to_words());
        assert_eq!(other.library_bytes_min("file", "bcast", 3), Some(1024));
        assert_eq!(other.library_bytes_min("file", "reduce", 3), None);
        other.set_libraries(&Tuning::default().libraries());
        assert_eq!(other.library_bytes_min("file", "bcast", 3), None, "those of another host only");
        other.set_libraries(&tuning.libraries());
        assert_eq!(other, tuning);
        // Even the words of a broken process make valid values.
        let wild = Tuning::of_words([u64::MAX; WORDS]);
        assert_eq!((wild.get(0), wild.get(VECTOR_COPIES)), ((1 << CLASSES) - 1, 1));
    }
}
