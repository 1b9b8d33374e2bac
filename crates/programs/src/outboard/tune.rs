//! `outboard tune`: measures which protocols and thresholds are fast on this machine, and writes the table by
//! which jobs choose (`tuning`).
//!
//! Both values of each choice are forced in turns, with the programs of bench/ over the installed library. So
//! the comparison shows what programs get.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use tuning::{
    Distance, FLAT_BYTES_MAX, INLINE_BYTES_MAX, Load, Machine, Sizes, Table, VECTOR_COPIES, class_of,
    is_faster, read_row,
};

use super::bench::{Measure, peers, rounds};
use crate::{mpirun::cpus, tables};

/// Measure which protocols and thresholds are fast on this machine, and write the table by which jobs choose.
/// Takes less than a minute.
#[derive(Args)]
pub struct Tune {
    /// Write the table for all users of this machine (/var/cache/outboard/tuning). Default: for this user
    /// (~/.cache/outboard/tuning).
    #[arg(long)]
    system: bool,
    /// Write nothing. Measure what jobs choose now beside both forced choices.
    #[arg(long)]
    compare: bool,
    /// How often each choice is measured, in turns. Default: 3, with --compare 9.
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
}

/// Rounds of a table, which takes half a minute.
const ROUNDS: u32 = 3;
/// Rounds of a comparison: with three, noise alone puts a third of the ratios beyond 1.05 (docs/tuning.md).
const ROUNDS_COMPARED: u32 = 9;

/// Variables for a player.
type Forced = &'static [(&'static str, &'static str)];

const CELLS: Forced = &[
    ("OUTBOARD_TUNING", "off"),
    ("OUTBOARD_LARGE_PROTOCOL", "cells"),
    ("OUTBOARD_INLINE_BYTES_MAX", "1GiB"),
];
const READ: Forced = &[
    ("OUTBOARD_TUNING", "off"),
    ("OUTBOARD_LARGE_PROTOCOL", "cma"),
    ("OUTBOARD_EAGER_BYTES_MAX", "8KiB"),
    ("OUTBOARD_INLINE_BYTES_MAX", "8KiB"),
];
/// As `CELLS` and `READ`, where a schedule carries out the call.
const SCHEDULE: (&str, &str) = ("OUTBOARD_ALLTOALL", "linear");

const LATENCY: (&str, &str) = ("latency", "p2p latency -m 16384:4194304 -i 1000:200");
const BANDWIDTH: (&str, &str) = ("bandwidth", "p2p bw -m 16384:4194304 -i 20:20 --reuse");
const EXCHANGE: (&str, &str) = ("exchange", "p2p bibw -m 16384:4194304 -i 100:100 -W 4 --reuse");
const ALLTOALL: (&str, &str) = ("alltoall", "coll alltoall -m 16384:1048576 -i 500:100");
const ALLREDUCE: (&str, &str) = ("allreduce", "coll allreduce -m 16384:4194304 -i 500:100");

impl Tune {
    /// The text to print.
    pub fn run(self) -> Result<String, String> {
        let cache = settings::cache_folder().ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
        let ourselves = || peers::ourselves(&cache);
        if self.compare {
            return compare(&ourselves, self.rounds.unwrap_or(ROUNDS_COMPARED));
        }
        let folder = tables::folder(self.system).ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
        let rounds = self.rounds.unwrap_or(ROUNDS);
        let pairs = pairs()?;
        let mut values = Vec::new();
        for (distance, pair) in &pairs {
            eprintln!("outboard: messages between cpus {} and {} ({})", pair[0], pair[1], distance.name());
            let found = on(pair, || {
                measured(&ourselves, &[CELLS, READ], &[], &[LATENCY, BANDWIDTH, EXCHANGE], rounds)
            })?;
            for (load, (name, _)) in Load::ALL.into_iter().zip([LATENCY, BANDWIDTH, EXCHANGE]) {
                values.push((read_row(*distance, load), faster(&found, name).bits()));
            }
        }
        eprintln!("outboard: collectives");
        let pair = &pairs[0].1;
        for (row, more) in [(FLAT_BYTES_MAX, &[][..]), (INLINE_BYTES_MAX, &[SCHEDULE][..])] {
            let found = on(pair, || measured(&ourselves, &[CELLS, READ], more, &[ALLTOALL], rounds))?;
            values.push((row, bound(row, faster(&found, ALLTOALL.0))));
        }
        if let Some((vectors, library)) = sys::copy::measure() {
            values.push((VECTOR_COPIES, u64::from(vectors * 10 < library * 9)));
        }
        values.sort_unstable();
        let table = Table { machine: Machine::this(), values };
        let path = tables::write(&folder, &table)?;
        Ok(format!("{}\nwritten to {}\n", table.text(), path.display()))
    }
}

/// The longest block that is not read by the receiver, where reading is faster for longer blocks.
fn bound(row: usize, read: Sizes) -> u64 {
    const MOST: u64 = 1 << 20;
    match read.below(MOST) {
        MOST => tuning::ROWS[row].default,
        bytes => bytes,
    }
}

/// Two cpus of different cores for each distance that exists on this machine.
fn pairs() -> Result<Vec<(Distance, [usize; 2])>, String> {
    let cores = cpus::cores()?;
    let first = cores[0][0];
    let others: Vec<usize> =
        cores.iter().skip(1).map(|core| core[0]).chain(cores[0].iter().copied().skip(1)).collect();
    let at = |distance: Distance| {
        let found = others.iter().copied().find(|cpu| Distance::of(&[first, *cpu]) == distance);
        found.map(|cpu| (distance, [first, cpu]))
    };
    let pairs: Vec<_> = Distance::ALL.into_iter().filter_map(at).collect();
    if pairs.is_empty() {
        return Err("there is one cpu only: nothing is to be chosen where ranks share it".into());
    }
    Ok(pairs)
}

/// Calls a function; the processes that it starts run on these cpus.
fn on<T>(cpus: &[usize], what: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let told = |error| format!("cannot run on cpus {cpus:?}: {error}");
    let before = sys::cpu::allowed().map_err(told)?;
    sys::cpu::pin(cpus).map_err(told)?;
    let done = what();
    sys::cpu::pin(&before).map_err(told)?;
    done
}

/// The best round of each player, by measure and bytes: other programs of the machine only add time.
type Times = BTreeMap<(&'static str, u64), Vec<f64>>;

fn measured(
    ourselves: &dyn Fn() -> Result<peers::Player, String>,
    players: &[Forced],
    more: &[(&str, &str)],
    measures: &[(&'static str, &str)],
    rounds: u32,
) -> Result<Times, String> {
    let player = |forced: &Forced| -> Result<peers::Player, String> {
        let mut player = ourselves()?;
        let variables = forced.iter().chain(more);
        player.environment.extend(variables.map(|(name, value)| (name.to_string(), value.to_string())));
        Ok(player)
    };
    let players = players.iter().map(player).collect::<Result<Vec<_>, _>>()?;
    let is_rate = |name: &str| [BANDWIDTH.0, EXCHANGE.0].contains(&name);
    let all: Vec<Measure> = measures.iter().map(|(name, run)| Measure::of(name, run)).collect();
    let table =
        rounds::play(&players, &all, rounds, 60, Vec::new(), rounds::Conditions::default(), |_| Ok(()))?;
    if let Some((what, output)) = table.failures.first() {
        return Err(format!("{what}: {output}"));
    }
    let mut times = Times::new();
    for row in &table.rows {
        let (name, _) = *measures.iter().find(|(name, _)| *name == row.measure.name).expect("one of these");
        let time = |values: &Vec<Option<f64>>| {
            let times = values.iter().flatten().map(|value| if is_rate(name) { 1e6 / value } else { *value });
            times.fold(f64::INFINITY, f64::min)
        };
        times.insert((name, row.bytes), row.values.iter().map(time).collect());
    }
    Ok(times)
}

/// The lengths at which the second player was clearly faster than the first.
fn faster(times: &Times, name: &str) -> Sizes {
    let thousandths = |time: f64| (time * 1e3) as u64;
    let is_read = |both: &[f64]| is_faster(thousandths(both[1]), thousandths(both[0]));
    let bits = times.iter().filter(|((measure, _), both)| *measure == name && is_read(both));
    Sizes::of_bits(bits.fold(0, |all, ((_, bytes), _)| all | 1 << class_of(*bytes)))
}

/// The present choice beside both forced choices.
fn compare(ourselves: &dyn Fn() -> Result<peers::Player, String>, rounds: u32) -> Result<String, String> {
    let measures = [LATENCY, BANDWIDTH, EXCHANGE, ALLTOALL, ALLREDUCE];
    let times = measured(ourselves, &[&[], CELLS, READ], &[], &measures, rounds)?;
    let mut text =
        format!("{:<10} {:>8} {:>10} {:>10} {:>10}  auto/best\n", "us", "bytes", "auto", "cells", "read");
    for (name, _) in measures {
        for ((_, bytes), found) in times.iter().filter(|((measure, _), _)| *measure == name) {
            let best = found[1].min(found[2]);
            writeln!(
                text,
                "{name:<10} {bytes:>8} {:>10.2} {:>10.2} {:>10.2}  {:.2}",
                found[0],
                found[1],
                found[2],
                found[0] / best
            )
            .expect("a String takes all");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: measurements become the table's values, for both winners, ties, and several lengths.
    #[test]
    fn invented_times_become_values() {
        let mut times = Times::new();
        let ratios = [1.0, 1.5, 0.99, 0.5, 0.9, 2.0, 0.8, 0.7, 0.2];
        for (class, ratio) in ratios.into_iter().enumerate() {
            times.insert(("latency", 16384 << class), vec![10.0, 10.0 * ratio]);
            times.insert(("alltoall", 16384 << class), vec![10.0, if class >= 4 { 5.0 } else { 20.0 }]);
        }
        assert_eq!(faster(&times, "latency").to_string(), "128KiB-256KiB, 1MiB-");
        assert_eq!(bound(FLAT_BYTES_MAX, faster(&times, "alltoall")), 128 << 10);
        assert_eq!(bound(FLAT_BYTES_MAX, Sizes::default()), u64::MAX);
        assert_eq!(bound(INLINE_BYTES_MAX, Sizes::default()), 1 << 20);
    }

    #[test]
    fn pairs_are_two_cpus() {
        for (distance, pair) in pairs().unwrap_or_default() {
            assert!(pair[0] != pair[1] && Distance::of(&pair) == distance);
        }
    }
}
