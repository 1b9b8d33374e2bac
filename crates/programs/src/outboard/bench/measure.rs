// SPDX-License-Identifier: BSD-3-Clause
//! What `outboard bench` measures: the entries of `measures.toml`, and commands that the user gives with
//! --program.

use serde::Deserialize;
use std::collections::BTreeMap;

/// One thing that is measured, as an entry of `measures.toml`: the command that runs, and which of its
/// results count.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    pub name: String,
    #[serde(default)]
    pub sets: Vec<String>,
    /// The command line: a program of bench/ with its arguments, or the user's command. Empty if only
    /// `limits` are measured.
    #[serde(default)]
    pub run: String,
    #[serde(default = "two")]
    pub ranks: u32,
    pub unit: String,
    #[serde(default = "value")]
    pub column: String,
    #[serde(default)]
    pub higher: bool,
    /// The goals by message size in bytes (as text): the value of Outboard divided by the value of the best
    /// peer (the best other MPI).
    #[serde(default)]
    pub goals: BTreeMap<String, f64>,
    /// Lower bounds for any MPI, by name: command lines of bench/limits.c, whose loops do without MPI what
    /// `run` does, and print values in the same unit. If `run` has its buffers in device memory, the bound is
    /// the same test with buffers in host memory.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
    /// The names of those `limits` (lower bounds) that are shown but do not count. They need buffers that
    /// both processes have mapped, and only one process has mapped the buffers of an MPI program.
    #[serde(default)]
    pub beside: Vec<String>,
    /// What differs between the rows of this measure's table, as a noun. Empty if it is the message size.
    #[serde(default)]
    pub by: String,
    /// The kind of device memory (`-d`) in which `run` has its buffers, or None for host memory.
    #[serde(skip)]
    pub device: Option<String>,
    /// Whether `run` is a command that the user gave with --program.
    #[serde(skip)]
    pub own: bool,
}

impl Measure {
    /// Returns a measure with this name and command line: for two ranks, in no set, without goals and limits.
    pub fn of(name: &str, run: &str) -> Measure {
        Measure {
            name: name.into(),
            sets: Vec::new(),
            run: run.into(),
            ranks: 2,
            unit: String::new(),
            column: value(),
            higher: false,
            goals: BTreeMap::new(),
            limits: BTreeMap::new(),
            beside: Vec::new(),
            by: String::new(),
            device: None,
            own: false,
        }
    }

    /// Returns the heading of the first column of this measure's table: "size", or a noun for what differs
    /// between the rows (`by`).
    pub fn varies(&self) -> &str {
        if self.by.is_empty() { "size" } else { &self.by }
    }

    /// Returns the names of the limits (lower bounds for any MPI) as headings of columns. A limit that does
    /// not count (`beside`) is in brackets.
    pub fn limit_names(&self) -> impl Iterator<Item = String> {
        self.limits
            .keys()
            .map(|name| if self.beside.contains(name) { format!("({name})") } else { name.clone() })
    }
}

/// The name of the column that holds the wall time of a command of the user (--program), in ms.
pub const WALL: &str = "wall_ms";

fn two() -> u32 {
    2
}

fn value() -> String {
    "value".into()
}

pub fn measures() -> Vec<Measure> {
    #[derive(Deserialize)]
    struct MeasureFile {
        measure: Vec<Measure>,
    }
    toml::from_str::<MeasureFile>(include_str!("measures.toml")).expect("checked by a test").measure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_measures_is_sound() {
        let all = measures();
        let mut names: Vec<_> = all.iter().map(|m| &m.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len(), "names are unique");
        for m in &all {
            assert!(m.sets.iter().all(|set| ["short", "full", "device"].contains(&&**set)), "{m:?}");
            let of_device = m.sets == ["device"];
            assert!(m.goals.keys().all(|bytes| bytes.parse::<u64>().is_ok()), "{m:?}");
            let program = |run: &str| run.split_whitespace().next().map(str::to_owned);
            let known = ["p2p", "coll", "rma", "overlap", "startup", "hello"];
            assert!(program(&m.run).is_none_or(|name| known.contains(&name.as_str())), "{m:?}");
            assert!(!m.run.is_empty() || !m.limits.is_empty(), "{m:?}");
            let beside = if of_device { program(&m.run) } else { Some("limits".into()) };
            assert!(m.limits.values().all(|run| program(run) == beside), "{m:?}");
            assert!(m.beside.iter().all(|name| m.limits.contains_key(name)), "{m:?}");
        }
    }
}
