// SPDX-License-Identifier: BSD-3-Clause
//! Sets of message lengths. Lengths fall into classes, and a set consists of whole classes.

use std::fmt;
use std::str::FromStr;

/// The number of classes into which message lengths fall: up to 16 KiB, up to 32 KiB, and so on; all above 2
/// MiB are one class.
pub const CLASSES: usize = 9;
/// The length in bytes of the longest message of the first class.
const FIRST_BYTES: u64 = 16 << 10;

/// Returns the class of a message of this many bytes.
pub fn class_of(bytes: u64) -> usize {
    let above = bytes.div_ceil(FIRST_BYTES).max(1);
    (above.next_power_of_two().ilog2() as usize).min(CLASSES - 1)
}

/// Returns the length in bytes of the longest message of a class. The last class has no longest message; its
/// length is 4 MiB here.
pub fn class_bytes(class: usize) -> u64 {
    FIRST_BYTES << class
}

/// A set of message lengths, with a bit for each class of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes(u16);

impl Sizes {
    /// Returns the set with the classes whose bits are set in `bits`. Bits that stand for no class are
    /// dropped.
    pub fn of_bits(bits: u64) -> Sizes {
        Sizes((bits & ((1 << CLASSES) - 1)) as u16)
    }

    /// Returns the set as a row's value, with a bit for each class of lengths.
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// Whether the set contains messages of this many bytes.
    pub fn has(self, bytes: u64) -> bool {
        self.0 >> class_of(bytes) & 1 != 0
    }

    /// Returns the length above which the set contains every length up to `bytes_max`. Returns `bytes_max`
    /// itself if the set does not contain it.
    pub fn length_below_run(self, bytes_max: u64) -> u64 {
        let mut least = bytes_max;
        for class in (0..=class_of(bytes_max)).rev() {
            if self.0 >> class & 1 == 0 {
                break;
            }
            least = class_bytes(class) / 2;
        }
        least.min(bytes_max)
    }
}

impl fmt::Display for Sizes {
    /// Writes the set as a text like `16KiB-64KiB, 1MiB-`. Adjacent classes are joined: the text has the
    /// longest message of the first class and that of the last class, and no end if the last class is
    /// unbounded.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let has = |class: usize| class < CLASSES && self.0 >> class & 1 != 0;
        let (mut class, mut runs) = (0, Vec::new());
        while class < CLASSES {
            let first = class;
            while has(class) {
                class += 1;
            }
            if class > first {
                let end = if class == CLASSES { String::new() } else { bytes_text(class_bytes(class - 1)) };
                runs.push(format!("{}-{end}", bytes_text(class_bytes(first))));
            }
            class += 1;
        }
        f.write_str(&if runs.is_empty() { "none".into() } else { runs.join(", ") })
    }
}

impl FromStr for Sizes {
    type Err = String;
    fn from_str(text: &str) -> Result<Sizes, String> {
        let mut bits = 0;
        for run in text.split(',').map(str::trim).filter(|run| *run != "none") {
            let Some((first, last)) = run.split_once('-') else {
                return Err(format!("{run:?} is no range of lengths, as 16KiB-64KiB or 1MiB-"));
            };
            let class = |text: &str| match bytes_of(text)? {
                bytes if bytes == class_bytes(class_of(bytes)) => Ok(class_of(bytes)),
                _ => Err(format!("{text} is none of 16KiB, 32KiB, 64KiB, ..., 4MiB")),
            };
            let (first, last) = (class(first)?, if last.is_empty() { CLASSES - 1 } else { class(last)? });
            if last < first {
                return Err(format!("the range {run} ends before it begins"));
            }
            (first..=last).for_each(|class| bits |= 1 << class);
        }
        Ok(Sizes(bits))
    }
}

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

/// Returns a number of bytes as the text that settings use, such as `64KiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let fits = |factor: &u64| bytes >= *factor && bytes.is_multiple_of(*factor);
    let (unit, factor) = UNITS.iter().find(|(_, factor)| fits(factor)).unwrap_or(&("", 1));
    format!("{}{unit}", bytes / factor)
}

/// Parses a number of bytes like `64KiB`. The error says what is wrong with the text.
pub(crate) fn bytes_of(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = UNITS.iter().find(|(unit, _)| *unit == &text[digits..]).map(|(_, factor)| *factor);
    let number = text[..digits].parse::<u64>().ok();
    let bytes = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| format!("{text:?} is no number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        for (bytes, class) in [(0, 0), (1, 0), (16384, 0), (16385, 1), (65536, 2), (65537, 3), (4 << 20, 8)] {
            assert_eq!(class_of(bytes), class, "{bytes}");
        }
        assert_eq!((class_of(u64::MAX), class_bytes(8)), (8, 4 << 20));
    }

    #[test]
    fn text_and_back() {
        for bits in 0..1 << CLASSES {
            let sizes = Sizes::of_bits(bits);
            assert_eq!(sizes.to_string().parse(), Ok(sizes));
        }
        assert_eq!(Sizes::of_bits(0b1_0100_0111).to_string(), "16KiB-64KiB, 1MiB-1MiB, 4MiB-");
        for wrong in ["", "16KiB", "5KiB-", "1MiB-16KiB", "-", "99999999999999999999-", "0-", "8MiB-"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_eager_bound_lies_below_what_is_read() {
        let length_below_run = |bits| Sizes::of_bits(bits).length_below_run(64 << 10) >> 10;
        assert_eq!([0b0, 0b111, 0b110, 0b100, 0b011, 0b1000].map(length_below_run), [64, 8, 16, 32, 64, 64]);
        assert_eq!(Sizes::of_bits(0x1ff).length_below_run(100), 100, "a user's lower bound stays");
    }
}
