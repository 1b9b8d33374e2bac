// SPDX-License-Identifier: BSD-3-Clause
//! `outboard tune` measures which protocols and thresholds are fast on this machine, and writes the table
//! from which jobs choose (`tuning`).
//!
//! The programs of bench/ run with the installed library. For each choice they run with one of the two values
//! forced, then with the other, and so on in turns. So the comparison shows what programs get. `libraries.rs`
//! does the same for collective libraries.

mod jobs;
mod libraries;
mod times;

use clap::Args;
use tuning::{
    Distance, FLAT_BYTES_MAX, INLINE_BYTES_MAX, Load, Machine, Sizes, TuningTable, VECTOR_COPIES, class_of,
    is_faster, read_row,
};

use crate::outboard::bench::peers;
use crate::{mpirun::place::cpus, tables};
use times::{CELLS, READ, Times, beside, measured, thousandths};

/// Measure which protocols and thresholds are fast on this machine, and write the table from which jobs
/// choose. Takes less than a minute. Values of other measures stay in the table.
#[derive(Args)]
pub struct Tune {
    /// Write the table for all users of this machine (/var/cache/outboard/tuning). Default: for this user
    /// (~/.cache/outboard/tuning).
    #[arg(long)]
    system: bool,
    /// Write no table. Compare jobs that choose as they do now with jobs that are forced to either choice.
    /// Also count the jobs without a table whose first messages show the faster way.
    #[arg(long)]
    compare: bool,
    /// With --compare: only run this many jobs, and print how many of them use the faster way. Default: 20,
    /// after the comparison.
    #[arg(long, value_name = "COUNT", requires = "compare", conflicts_with_all = ["rounds", "device"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    jobs: Option<u32>,
    /// How often each choice is measured, alternating. Default: 3, with --compare 9.
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Measure only the length from which on the collective library of OUTBOARD_CCL is faster than Outboard
    /// without it, with buffers in the memory of OUTBOARD_DEVICE. Takes minutes.
    #[arg(long)]
    device: bool,
    /// With --device: for these numbers of ranks, powers of two. Default: 2, 4, ... up to the cores.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', requires = "device", value_parser = power)]
    ranks: Vec<u32>,
    /// With --device: only collectives whose names contain this text; may be given several times.
    #[arg(long, value_name = "TEXT", requires = "device")]
    only: Vec<String>,
}

/// Returns a number of ranks for which the table of tuning has values: 2, 4, 8, ... Fails for any other
/// number.
fn power(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number: &u32| number.is_power_of_two() && *number >= 2);
    number.ok_or_else(|| format!("{text} is none of 2, 4, 8, ..."))
}

/// How often each choice is measured to make a table of tuning, which takes half a minute.
const ROUNDS: u32 = 3;
/// How many jobs are run to see what they choose by themselves.
const JOBS: u32 = 20;
/// How often each choice is measured for a comparison. With three rounds, noise alone puts a third of the
/// ratios beyond 1.05 (docs/measured/choices.md).
const ROUNDS_COMPARED: u32 = 9;

/// The setting that makes an alltoall use a schedule. `CELLS` and `READ` have an effect only on the messages
/// of a schedule.
const SCHEDULE: (&str, &str) = ("OUTBOARD_ALLTOALL", "linear");

const LATENCY: (&str, &str) = ("latency", "p2p latency -m 16384:4194304 -i 1000:200");
const BANDWIDTH: (&str, &str) = ("bandwidth", "p2p bw -m 16384:4194304 -i 20:20 --reuse");
const EXCHANGE: (&str, &str) = ("exchange", "p2p bibw -m 16384:4194304 -i 100:100 -W 4 --reuse");
const ALLTOALL: (&str, &str) = ("alltoall", "coll alltoall -m 16384:1048576 -i 500:100");
const ALLREDUCE: (&str, &str) = ("allreduce", "coll allreduce -m 16384:4194304 -i 500:100");

impl Tune {
    /// Measures, and writes the table of tuning or compares choices (--compare). Returns the text to print.
    pub fn run(self) -> Result<String, String> {
        let cache = settings::cache_folder().ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
        let ourselves = || peers::ourselves(&cache);
        if self.compare {
            let rounds = self.rounds.unwrap_or(ROUNDS_COMPARED);
            if let Some(jobs) = self.jobs {
                return jobs::check(&ourselves, jobs);
            }
            return match self.device {
                true => libraries::compare(&ourselves, (&self.ranks()?, &self.only), rounds),
                false => Ok(compare(&ourselves, rounds)? + "\n" + &jobs::check(&ourselves, JOBS)?),
            };
        }
        let folder = tables::folder(self.system).ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
        let rounds = self.rounds.unwrap_or(ROUNDS);
        let mut values = tables::values_in(&folder);
        let found = if self.device {
            libraries::rows(&ourselves, &values, (&self.ranks()?, &self.only), rounds)?
        } else {
            messages(&ourselves, rounds)?
        };
        values.retain(|(row, _)| found.iter().all(|(other, _)| other != row));
        values.extend(found);
        values.sort_unstable();
        let table = TuningTable { machine: Machine::this(), values };
        let path = folder.join(table.machine.file_name());
        tables::write(&path, &table)?;
        Ok(format!("{}\nwritten to {}\n", table.text(), path.display()))
    }

    /// Returns the numbers of ranks that `--ranks` names. Without it, returns all powers of two up to the
    /// number of cores.
    fn ranks(&self) -> Result<Vec<u32>, String> {
        let cores = cpus::cores()?.len().max(2) as u32;
        let all = (1..).map(|power| 1 << power).take_while(|ranks| *ranks <= cores);
        Ok(if self.ranks.is_empty() { all.collect() } else { self.ranks.clone() })
    }
}

/// Measures messages, and collectives that ranks carry out themselves. Returns the measured rows of the table
/// of tuning, with their values.
fn messages(
    ourselves: &dyn Fn() -> Result<peers::Player, String>,
    rounds: u32,
) -> Result<Vec<(usize, u64)>, String> {
    let pairs = pairs()?;
    let mut values = Vec::new();
    for (distance, pair) in &pairs {
        eprintln!("outboard: messages between cpus {} and {} ({})", pair[0], pair[1], distance.name());
        let found = on(pair, || {
            measured(ourselves, &[CELLS, READ], &[], &[LATENCY, BANDWIDTH, EXCHANGE], (2, rounds))
        })?;
        for (load, (name, _)) in Load::ALL.into_iter().zip([LATENCY, BANDWIDTH, EXCHANGE]) {
            values.push((read_row(*distance, load), faster(&found, name).bits()));
        }
    }
    eprintln!("outboard: collectives");
    let pair = &pairs[0].1;
    for (row, more) in [(FLAT_BYTES_MAX, &[][..]), (INLINE_BYTES_MAX, &[SCHEDULE][..])] {
        let found = on(pair, || measured(ourselves, &[CELLS, READ], more, &[ALLTOALL], (2, rounds)))?;
        values.push((row, bound(row, faster(&found, ALLTOALL.0))));
    }
    if let Some((vectors, library)) = sys::copy::measure() {
        values.push((VECTOR_COPIES, u64::from(vectors * 10 < library * 9)));
    }
    Ok(values)
}

/// Returns the longest block that a receiver should not read from the sender's memory. `read`: the lengths at
/// which reading is faster. Returns the default of `row` if reading is never faster.
fn bound(row: usize, read: Sizes) -> u64 {
    const MOST: u64 = 1 << 20;
    match read.length_below_run(MOST) {
        MOST => tuning::ROWS[row].default,
        bytes => bytes,
    }
}

/// Returns two cpus for each distance (such as a common cache) that exists on this machine. Fails if there is
/// only one cpu.
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

/// Calls `what` and returns its result. Meanwhile this process, and each process that it starts, runs on
/// these cpus.
fn on<T>(cpus: &[usize], what: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let cannot_run = |error| format!("cannot run on cpus {cpus:?}: {error}");
    let before = sys::cpu::allowed().map_err(cannot_run)?;
    sys::cpu::pin(cpus).map_err(cannot_run)?;
    let done = what();
    sys::cpu::pin(&before).map_err(cannot_run)?;
    done
}

/// Returns the message lengths at which, in the measure `name`, the second of two forced choices was clearly
/// faster than the first.
fn faster(times: &Times, name: &str) -> Sizes {
    let is_read = |both: &[f64]| is_faster(thousandths(both[1]), thousandths(both[0]));
    let bits = times.iter().filter(|((measure, _), both)| *measure == name && is_read(both));
    Sizes::of_bits(bits.fold(0, |all, ((_, bytes), _)| all | 1 << class_of(*bytes)))
}

/// Returns a table of the times of jobs that choose by the present tuning, and of jobs with either choice
/// forced.
fn compare(ourselves: &dyn Fn() -> Result<peers::Player, String>, rounds: u32) -> Result<String, String> {
    let measures = [LATENCY, BANDWIDTH, EXCHANGE, ALLTOALL, ALLREDUCE];
    let times = measured(ourselves, &[&[], CELLS, READ], &[], &measures, (2, rounds))?;
    Ok(beside(&times, ["cells", "read"]))
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
