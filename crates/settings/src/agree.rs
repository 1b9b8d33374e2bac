// SPDX-License-Identifier: BSD-3-Clause
//! Compares settings that must be equal in the processes of a job. Processes send them as text, and compare
//! the values ("1MiB" equals "1048576").

use crate::{Scope, Setting, Settings, TABLE, parse};

/// The scope of the settings that all ranks read, and that must be equal in all ranks.
pub const RANKS: &[Scope] = &[Scope::Job];
/// The scopes of the settings that only `mpirun` (or a program that runs alone) and the proxies read. A
/// rank's own value has no effect.
pub const LAUNCHER: &[Scope] = &[Scope::Launch, Scope::Proxy];

/// A setting that has different values in two processes.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The setting that has different values.
    pub setting: &'static Setting,
    /// The setting's value in the other process, as error sentences show it.
    pub theirs: String,
    /// The setting's value in this process, as error sentences show it.
    pub ours: String,
}

/// Returns a line `NAME=value` for each setting of the scopes `scopes` that the environment sets.
pub fn text_of_settings(scopes: &[Scope]) -> String {
    text_of_variables(&crate::environment(), scopes)
}

/// Returns a line `NAME=value` for each setting of the scopes `scopes` that `variables` (name, value) sets.
pub fn text_of_variables(variables: &[(String, String)], scopes: &[Scope]) -> String {
    let value = |row: &Setting| variables.iter().rev().find(|(name, _)| name == row.variable);
    rows(scopes)
        .filter_map(|(_, row)| value(row))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect()
}

/// Compares two texts that `text_of_settings` has made. Returns the first setting of the scopes `scopes` that
/// has different values. Returns None if there is none, or if one of the texts was cut.
pub fn difference(theirs: &str, ours: &str, scopes: &[Scope]) -> Option<Difference> {
    // A text without a line end at its end was cut, so it may lack settings: there is nothing to compare.
    if [theirs, ours].iter().any(|text| !text.is_empty() && !text.ends_with('\n')) {
        return None;
    }
    let (theirs, ours) = (pairs(theirs), pairs(ours));
    // Each process has checked its own values and reports a bad one itself.
    let (Ok(they), Ok(we)) = (parse(&theirs), parse(&ours)) else { return None };
    let (_, setting) = rows(scopes).find(|(index, _)| !Settings::agrees(&they, &we, *index))?;
    let shown = |pairs: &[(String, String)]| match pairs.iter().find(|(name, _)| name == setting.variable) {
        Some((_, value)) => value.clone(),
        None if setting.default.is_empty() => "not set".into(),
        None => format!("not set (which is {})", setting.default),
    };
    Some(Difference { setting, theirs: shown(&theirs), ours: shown(&ours) })
}

fn rows(scopes: &[Scope]) -> impl Iterator<Item = (usize, &'static Setting)> {
    TABLE.iter().enumerate().filter(move |(_, row)| !row.internal && scopes.contains(&row.scope))
}

fn pairs(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)], scopes: &[Scope]) -> String {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        text_of_variables(&pairs, scopes)
    }

    #[test]
    fn values_are_compared_not_texts() {
        let ranks = |pairs: &[(&str, &str)]| of(pairs, RANKS);
        let one = ranks(&[("OUTBOARD_INLINE_BYTES_MAX", "1MiB"), ("OUTBOARD_SPIN_US", "5us"), ("PATH", "/")]);
        assert_eq!(one, "OUTBOARD_INLINE_BYTES_MAX=1MiB\n", "only what ranks must agree on");
        let same = ranks(&[("OUTBOARD_INLINE_BYTES_MAX", "1048576"), ("OUTBOARD_OFFLOAD", "auto")]);
        assert!(difference(&one, &same, RANKS).is_none(), "the default may be said or not");
        let other = ranks(&[("OUTBOARD_INLINE_BYTES_MAX", "1MiB"), ("OUTBOARD_OFFLOAD", "on")]);
        let found = difference(&one, &other, RANKS).unwrap();
        assert_eq!(found.setting.variable, "OUTBOARD_OFFLOAD");
        assert_eq!((found.theirs.as_str(), found.ours.as_str()), ("not set (which is auto)", "on"));
        assert!(difference(&one, &other[..other.len() - 1], RANKS).is_none(), "a line that was cut");
    }

    #[test]
    fn what_mpirun_reads_is_not_a_matter_among_ranks() {
        let pairs = [("OUTBOARD_ARENA_BYTES", "1GiB"), ("OUTBOARD_CMA", "off"), ("OUTBOARD_RANK", "3")];
        assert_eq!(of(&pairs, RANKS), "");
        let launched = of(&pairs, LAUNCHER);
        assert!(!launched.contains("OUTBOARD_RANK"), "set by mpirun: {launched}");
        assert_eq!(difference(&launched, "", LAUNCHER).unwrap().ours, "not set (which is auto)");
    }
}
