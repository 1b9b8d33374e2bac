// SPDX-License-Identifier: BSD-3-Clause
//! Measures times for `outboard tune`. A player here is Outboard with environment variables that force a
//! choice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::outboard::bench::{Measure, peers, rounds};

/// The environment variables that force one choice, as names and values.
pub(super) type Forced = &'static [(&'static str, &'static str)];

/// The environment variables with which all messages go through cells, buffers in shared memory.
pub(super) const CELLS: Forced = &[
    ("OUTBOARD_TUNING", "off"),
    ("OUTBOARD_LARGE_PROTOCOL", "cells"),
    ("OUTBOARD_INLINE_BYTES_MAX", "1GiB"),
];
/// The environment variables with which receivers read all messages from the sender's memory.
pub(super) const READ: Forced = &[
    ("OUTBOARD_TUNING", "off"),
    ("OUTBOARD_LARGE_PROTOCOL", "cma"),
    ("OUTBOARD_EAGER_BYTES_MAX", "8KiB"),
    ("OUTBOARD_INLINE_BYTES_MAX", "8KiB"),
];
/// For each measure and length in bytes: each player's least time of all rounds, in us. A player is Outboard
/// with or without a forced choice. The least time counts, because other programs on the machine only add
/// time.
pub(super) type Times = BTreeMap<(&'static str, u64), Vec<f64>>;

/// How long a run may take. A longer run hangs, even on a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Measures each of `measures` with Outboard under each of the forced choices `players`. All runs also get
/// the environment variables `more`, and this number of ranks and of rounds. Returns the least times.
pub(super) fn measured(
    ourselves: &dyn Fn() -> Result<peers::Player, String>,
    players: &[Forced],
    more: &[(&str, &str)],
    measures: &[(&'static str, &str)],
    (ranks, rounds): (u32, u32),
) -> Result<Times, String> {
    let player = |forced: &Forced| -> Result<peers::Player, String> {
        let mut player = ourselves()?;
        let variables = forced.iter().chain(more);
        player.environment.extend(variables.map(|(name, value)| (name.to_string(), value.to_string())));
        Ok(player)
    };
    let players = players.iter().map(player).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<Measure> =
        measures.iter().map(|(name, run)| Measure { ranks, ..Measure::of(name, run) }).collect();
    let empty = rounds::BenchTable::new(&players, rounds);
    let table = rounds::play(empty, &players, &all, TIMEOUT, |_| Ok(()))?;
    if let Some((what, output)) = table.failures.first() {
        return Err(format!("{what}: {output}"));
    }
    let mut times = Times::new();
    for row in &table.rows {
        let (name, run) = *measures.iter().find(|(name, _)| *name == row.measure.name).expect("one of these");
        let is_rate = run.starts_with("p2p bw") || run.starts_with("p2p bibw");
        let time = |values: &Vec<Option<f64>>| {
            let times = values.iter().flatten().map(|value| if is_rate { 1e6 / value } else { *value });
            times.fold(f64::INFINITY, f64::min)
        };
        times.insert((name, row.bytes), row.values.iter().map(time).collect());
    }
    Ok(times)
}

/// Returns the median of some times. Returns infinity if `times` is empty.
pub(super) fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// Returns a time in thousandths of its unit, which `is_faster` compares.
pub(super) fn thousandths(time: f64) -> u64 {
    (time * 1e3) as u64
}

/// Returns a table of three times for each measure: of jobs that choose by themselves, and of jobs with
/// either choice forced. The last column divides the first time by the better of the other two.
pub(super) fn beside(times: &Times, forced: [&str; 2]) -> String {
    let mut text = format!(
        "{:<20} {:>8} {:>10} {:>10} {:>10}  auto/best\n",
        "us", "bytes", "auto", forced[0], forced[1]
    );
    for ((name, bytes), found) in times {
        let best = found[1].min(found[2]);
        let (auto, one, other) = (found[0], found[1], found[2]);
        writeln!(text, "{name:<20} {bytes:>8} {auto:>10.2} {one:>10.2} {other:>10.2}  {:.2}", auto / best)
            .expect("a String takes all");
    }
    text
}
