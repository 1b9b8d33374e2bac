// SPDX-License-Identifier: BSD-3-Clause
//! Converts the text of a setting to a typed value: units, bounds, choices.

use std::collections::HashMap;
use std::path::PathBuf;

use error::{Class, Error};

/// A setting: one row of `tables/settings.toml`.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of the setting's field in `Settings`.
    pub name: &'static str,
    /// The name of the setting's environment variable, OUTBOARD_...
    pub variable: &'static str,
    /// The type of the setting's value, and the values that are allowed.
    pub kind: SettingKind,
    /// The default, as a user would write it. Empty if the setting has no default.
    pub default: &'static str,
    /// Which processes read the setting, and which must agree on it.
    pub scope: Scope,
    /// Whether only `mpirun` sets the setting, for its children. A user never sets it.
    pub internal: bool,
    /// What the setting does, in one sentence.
    pub doc: &'static str,
    /// Why the setting exists, or why its default is what it is.
    pub why: &'static str,
}

/// Which processes read a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each process reads its own value, which may differ.
    Process,
    /// All ranks read the setting, and must have the same value.
    Job,
    /// Only the proxies read the setting.
    Proxy,
    /// Only `mpirun`, or a program that runs without it, reads the setting.
    Launch,
}

/// The type of a setting's value. Bounds are inclusive. They are in bytes, milliseconds or microseconds, as
/// the type's name says, or a count.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The table's head comment describes the types.
pub enum SettingKind {
    Bytes { min: u64, max: u64 },
    Count { min: u64, max: u64 },
    Milliseconds { min: u64, max: u64 },
    Microseconds { min: u64, max: u64 },
    Flag,
    Choice(&'static [&'static str]),
    List,
    Path,
    Text,
}

const BYTE_UNITS: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)];
const MILLISECOND_UNITS: &[(&str, u64)] = &[("s", 1000), ("ms", 1), ("", 1)];
const MICROSECOND_UNITS: &[(&str, u64)] = &[("s", 1_000_000), ("ms", 1000), ("us", 1), ("", 1)];
const NO_UNITS: &[(&str, u64)] = &[("", 1)];

impl SettingKind {
    /// Reads a number from the text of a setting: in bytes, milliseconds or microseconds, or a count, as this
    /// type says. Returns None if the text is not allowed, or the setting is not a number.
    pub fn number(&self, text: &str) -> Option<u64> {
        u64::from_text(self, text).ok()
    }

    /// Returns a text that says which values a user may write for the setting, for error sentences and
    /// `outboard info`.
    pub fn allowed(&self) -> String {
        match *self {
            SettingKind::Bytes { min, max } => bounds("bytes, as 4096 or 16KiB", BYTE_UNITS, min, max),
            SettingKind::Count { min, max } => bounds("a whole number", NO_UNITS, min, max),
            SettingKind::Milliseconds { min, max } => {
                bounds("milliseconds, as 500 or 2s", MILLISECOND_UNITS, min, max)
            }
            SettingKind::Microseconds { min, max } => {
                bounds("microseconds, as 50us or 1ms", MICROSECOND_UNITS, min, max)
            }
            SettingKind::Flag => "0, 1, off, on, no, yes, false, true".into(),
            SettingKind::Choice(choices) => choices.join(", "),
            SettingKind::List => "whole numbers and ranges, as 0,2-3".into(),
            SettingKind::Path => "a path".into(),
            SettingKind::Text => "text".into(),
        }
    }
}

fn bounds(what: &str, units: &[(&str, u64)], min: u64, max: u64) -> String {
    match (min, max) {
        (0, u64::MAX) => what.into(),
        (min, u64::MAX) => format!("{what}, at least {}", with_unit(min, units)),
        (min, max) => format!("{what}, from {} to {}", with_unit(min, units), with_unit(max, units)),
    }
}

/// Writes a number with the largest of the units `units` of which it is a multiple.
fn with_unit(value: u64, units: &[(&str, u64)]) -> String {
    let fits = |factor: u64| value >= factor && value.is_multiple_of(factor);
    let (unit, factor) = units.iter().find(|(_, factor)| fits(*factor)).unwrap_or(&("", 1));
    format!("{}{unit}", value / factor)
}

/// A type of a field in `Settings`. Its values are made from the text of a setting.
pub trait FromText: Sized {
    /// Makes a value from the text of a setting with the type `kind`. The error is a sentence about what is
    /// wrong with the text.
    fn from_text(kind: &SettingKind, text: &str) -> Result<Self, String>;
}

impl FromText for u64 {
    fn from_text(kind: &SettingKind, text: &str) -> Result<u64, String> {
        match *kind {
            SettingKind::Bytes { min, max } => number(text, BYTE_UNITS, min, max),
            SettingKind::Count { min, max } => number(text, NO_UNITS, min, max),
            SettingKind::Milliseconds { min, max } => number(text, MILLISECOND_UNITS, min, max),
            SettingKind::Microseconds { min, max } => number(text, MICROSECOND_UNITS, min, max),
            _ => Err("not a number".into()),
        }
    }
}

impl FromText for bool {
    fn from_text(_: &SettingKind, text: &str) -> Result<bool, String> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" | "" => Ok(false),
            _ => Err("not a flag".into()),
        }
    }
}

impl FromText for Vec<u64> {
    fn from_text(_: &SettingKind, text: &str) -> Result<Vec<u64>, String> {
        list(text)
    }
}

impl FromText for PathBuf {
    fn from_text(_: &SettingKind, text: &str) -> Result<PathBuf, String> {
        Ok(text.into())
    }
}

impl FromText for String {
    fn from_text(_: &SettingKind, text: &str) -> Result<String, String> {
        Ok(text.into())
    }
}

/// The most numbers of a list.
const NUMBERS_MAX: u64 = 65536;

/// Reads a list of at most `NUMBERS_MAX` whole numbers: `0,2-3` is `[0, 2, 3]`. The argument of
/// `mpirun --proxy-cores` is such a list, too.
pub fn list(text: &str) -> Result<Vec<u64>, String> {
    let one = |word: &str| word.trim().parse::<u64>().map_err(|_| format!("{word:?} is not a whole number"));
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (one(first)?, one(last)?);
        if last < first {
            return Err(format!("{part:?} is not a range"));
        }
        if last - first >= NUMBERS_MAX - all.len() as u64 {
            return Err(format!("{part:?} makes the list longer than {NUMBERS_MAX} numbers"));
        }
        all.extend(first..=last);
    }
    Ok(all)
}

/// Reads a number of bytes in the form that settings have: `8`, `64KiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    number(text, BYTE_UNITS, 0, u64::MAX)
        .map_err(|reason| format!("{text:?} is no number of bytes: {reason}"))
}

fn number(text: &str, units: &[(&str, u64)], min: u64, max: u64) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 {
        return Err("not a number".into());
    }
    let unit = text[digits..].trim();
    // MPI users write 16K and 16KB as often as 16KiB; all three mean the power of two.
    let alike = |name: &str| {
        let short = name.trim_end_matches("iB");
        unit.eq_ignore_ascii_case(name)
            || (short != name
                && (unit.eq_ignore_ascii_case(short) || unit.eq_ignore_ascii_case(&format!("{short}B"))))
    };
    let Some((_, factor)) = units.iter().find(|(name, _)| alike(name)) else {
        return Err(format!("{unit:?} is not a unit here"));
    };
    let value = text[..digits].parse::<u64>().ok().and_then(|value| value.checked_mul(*factor));
    match value {
        Some(value) if value < min => Err("too small".into()),
        Some(value) if value <= max => Ok(value),
        _ => Err("too large".into()),
    }
}

fn refused(setting: &Setting, text: &str, reason: &str) -> Error {
    Error::new(
        Class::Other,
        format!("{}={text}: {reason}; allowed: {}", setting.variable, setting.kind.allowed()),
    )
}

/// The table of settings, and the text that each setting has in an environment.
pub struct Values<'a> {
    table: &'a [Setting],
    texts: HashMap<&'a str, &'a str>,
}

impl<'a> Values<'a> {
    pub fn new(table: &'a [Setting], variables: &'a [(String, String)]) -> Values<'a> {
        let texts = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Values { table, texts }
    }

    /// Reads the setting in row `index` of the table. If the setting is not set, or set to an empty text,
    /// returns its default. Fails if the text is not allowed.
    pub fn required<T: FromText>(&self, index: usize) -> error::Result<T> {
        let setting = &self.table[index];
        let text = self.text(setting).unwrap_or(setting.default);
        T::from_text(&setting.kind, text).map_err(|reason| refused(setting, text, &reason))
    }

    /// Reads the setting in row `index` of the table. If the setting is not set, or set to an empty text,
    /// returns None. Fails if the text is not allowed.
    pub fn optional<T: FromText>(&self, index: usize) -> error::Result<Option<T>> {
        let setting = &self.table[index];
        self.text(setting)
            .map(|text| T::from_text(&setting.kind, text).map_err(|reason| refused(setting, text, &reason)))
            .transpose()
    }

    fn text(&self, setting: &Setting) -> Option<&str> {
        self.texts.get(setting.variable).copied().filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(list("0,2-4, 7"), Ok(vec![0, 2, 3, 4, 7]));
        assert_eq!(list(""), Ok(vec![]));
        assert!(list("3-1").is_err());
        assert!(list("0-99999999999").is_err());
        assert_eq!(list("0-65535").map(|all| all.len()), Ok(65536));
        assert!(list("0-65535,1").is_err() && list("1,0-65535").is_err());
        assert!(list("a").is_err());
    }

    #[test]
    fn bounds_are_told_with_units() {
        assert_eq!(
            SettingKind::Bytes { min: 4096, max: 1 << 30 }.allowed(),
            "bytes, as 4096 or 16KiB, from 4KiB to 1GiB"
        );
        assert_eq!(
            SettingKind::Microseconds { min: 0, max: 10_000_000 }.allowed(),
            "microseconds, as 50us or 1ms, from 0 to 10s"
        );
    }
}
