// SPDX-License-Identifier: BSD-3-Clause
//! When a collective library (such as NCCL) is faster than Outboard's own collectives: for each library and
//! collective a row, whose value says, for each measured number of ranks, from which message length on the
//! library is faster.

use crate::row::{ValueKind, ValueRow};
use crate::sizes::{bytes_of, bytes_text};

/// The collective libraries, by their names in OUTBOARD_CCL. `file` stands for every library that is named by
/// its path.
pub const LIBRARIES: [&str; 5] = ["nccl", "rccl", "mscclpp", "oneccl", "file"];

/// The collectives for which the length decides whether the library takes them. All ranks know the length, so
/// all choose the same.
pub const COLLECTIVES: [&str; 10] = [
    "allreduce",
    "reduce",
    "bcast",
    "allgather",
    "reduce-scatter",
    "reduce-scatter-block",
    "gather",
    "scatter",
    "alltoall",
    "allgatherv",
];

/// The number of rows that this file adds to the table of values.
pub(crate) const COUNT: usize = LIBRARIES.len() * COLLECTIVES.len();

macro_rules! rows {
    ($($library:literal),*) => {
        [$(rows!(@ $library: "allreduce", "reduce", "bcast", "allgather", "reduce-scatter", "reduce-scatter-block",
                 "gather", "scatter", "alltoall", "allgatherv")),*]
    };
    (@ $library:literal: $($collective:literal),*) => {
        [$(ValueRow {
            name: concat!("ccl.", $library, ".", $collective),
            kind: ValueKind::ByRanks,
            default: 0,
            doc: "by ranks: the least bytes of this collective for which the library is faster than the usual way",
        }),*]
    };
}

/// The rows that this file adds to the table of values. The indices are the positions of the library in
/// `LIBRARIES` and of the collective in `COLLECTIVES`.
pub(crate) const ROWS: [[ValueRow; COLLECTIVES.len()]; LIBRARIES.len()] =
    rows!("nccl", "rccl", "mscclpp", "oneccl", "file");

/// Finds the index, among the rows of this file, of the row of a library (a value of OUTBOARD_CCL) and a
/// collective. None if the collective is not in `COLLECTIVES`.
pub(crate) fn place(library: &str, collective: &str) -> Option<usize> {
    let library = LIBRARIES.iter().position(|known| *known == library).unwrap_or(LIBRARIES.len() - 1);
    let collective = COLLECTIVES.iter().position(|known| *known == collective)?;
    Some(library * COLLECTIVES.len() + collective)
}

/// The number of classes into which numbers of ranks fall: 2 and 3, 4 to 7, ..., 256 and more.
const CLASSES: usize = 8;

/// For each class of numbers of ranks (such as 4 to 7), the length from which on the library is faster. A
/// class has a byte `b`: 0 means not measured, 255 never; otherwise the length is 2 to the power of `b - 1`
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByRanks(u64);

const NEVER: u8 = 255;
/// The greatest byte of `ByRanks` that stands for a length. The length is 2^62 bytes.
const POWER_MOST: u8 = 63;

impl ByRanks {
    /// Reads the lengths from a row's value (`ValueKind::ByRanks`). Invalid bytes count as not measured.
    pub fn of_bits(bits: u64) -> ByRanks {
        let valid = |byte: u8| if byte <= POWER_MOST || byte == NEVER { byte } else { 0 };
        ByRanks(u64::from_le_bytes(bits.to_le_bytes().map(valid)))
    }

    /// Returns the lengths as one number, the value of a row, which `of_bits` reads.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Sets the length from which on the library is faster on `ranks` ranks. `bytes` is a power of two, or
    /// None for never.
    pub fn set(&mut self, ranks: u32, bytes: Option<u64>) {
        let mut each = self.0.to_le_bytes();
        each[class(ranks)] = bytes.map_or(NEVER, |bytes| (bytes.max(1).ilog2() as u8 + 1).min(POWER_MOST));
        self.0 = u64::from_le_bytes(each);
    }

    /// Returns the length from which on the library is faster on `ranks` ranks, or `u64::MAX` for never. The
    /// nearest smaller number of ranks that was measured decides, else the nearest larger one. Returns None
    /// if nothing was measured.
    pub fn bytes_min(self, ranks: u32) -> Option<u64> {
        let each = self.0.to_le_bytes();
        let nearest =
            (0..=class(ranks)).rev().chain(class(ranks)..CLASSES).find(|class| each[*class] != 0)?;
        Some(bound(each[nearest]))
    }
}

fn class(ranks: u32) -> usize {
    (ranks.max(2).ilog2() as usize - 1).min(CLASSES - 1)
}

fn bound(byte: u8) -> u64 {
    if byte == NEVER { u64::MAX } else { 1 << (byte - 1) }
}

impl std::fmt::Display for ByRanks {
    /// Writes a text like `2: 64KiB, 8: never`. The number before each colon is the least number of ranks in
    /// a class.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let each = self.0.to_le_bytes();
        let known = (0..CLASSES).filter(|class| each[*class] != 0);
        let text = |class: usize| match bound(each[class]) {
            u64::MAX => format!("{}: never", 2 << class),
            bytes => format!("{}: {}", 2 << class, bytes_text(bytes)),
        };
        let text: Vec<String> = known.map(text).collect();
        f.write_str(&if text.is_empty() { "not measured".into() } else { text.join(", ") })
    }
}

impl std::str::FromStr for ByRanks {
    type Err = String;
    fn from_str(text: &str) -> Result<ByRanks, String> {
        let mut all = ByRanks::default();
        for one in text.split(',').map(str::trim).filter(|one| *one != "not measured") {
            let Some((ranks, bytes)) = one.split_once(": ") else {
                return Err(format!("{one:?} is no bound of a number of ranks, as 2: 64KiB or 8: never"));
            };
            let ranks = ranks.parse().ok().filter(|ranks| *ranks == 2 << class(*ranks));
            let ranks = ranks.ok_or_else(|| format!("the ranks of {one:?} are none of 2, 4, 8, ..., 256"))?;
            let bytes = match bytes {
                "never" => None,
                bytes => Some(bytes_of(bytes)?),
            };
            if bytes.is_some_and(|bytes| !bytes.is_power_of_two() || bytes.ilog2() >= POWER_MOST.into()) {
                return Err(format!("the bytes of {one:?} are no power of two"));
            }
            all.set(ranks, bytes);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_agree() {
        for (at, library) in LIBRARIES.into_iter().enumerate() {
            for (collective, name) in COLLECTIVES.into_iter().enumerate() {
                assert_eq!(ROWS[at][collective].name, format!("ccl.{library}.{name}"));
                assert_eq!(place(library, name), Some(at * COLLECTIVES.len() + collective));
            }
        }
        assert_eq!(place("/lib/libmine.so", "reduce"), place("file", "reduce"));
        assert_eq!(place("nccl", "scan"), None);
    }

    #[test]
    fn the_nearest_number_of_ranks_counts() {
        let mut bounds = ByRanks::default();
        assert_eq!(bounds.bytes_min(2), None);
        bounds.set(4, Some(1 << 16));
        bounds.set(16, None);
        let asked = [2, 3, 4, 7, 8, 15, 16, 1 << 20].map(|ranks| bounds.bytes_min(ranks).unwrap());
        const K64: u64 = 1 << 16;
        assert_eq!(asked, [K64, K64, K64, K64, K64, K64, u64::MAX, u64::MAX]);
    }

    #[test]
    fn text_and_back() {
        for text in ["2: 64KiB, 8: never", "256: 1", "4: 4MiB", "not measured"] {
            assert_eq!(text.parse::<ByRanks>().unwrap().to_string(), text);
        }
        for wrong in ["", "2", "3: 64KiB", "2: 65KiB", "512: 1", "2: 0", "2: ", "never", "2: 8589934592GiB"] {
            assert!(wrong.parse::<ByRanks>().is_err(), "{wrong}");
        }
        assert_eq!(
            ByRanks::of_bits(u64::from_le_bytes([64, 200, 255, 0, 1, 63, 128, 0])).bits(),
            u64::from_le_bytes([0, 0, 255, 0, 1, 63, 0, 0])
        );
    }
}
