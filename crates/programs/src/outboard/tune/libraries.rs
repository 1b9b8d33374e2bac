// SPDX-License-Identifier: BSD-3-Clause
//! `outboard tune --device` measures, for each collective and number of ranks, the length from which on the
//! collective library of OUTBOARD_CCL is faster than Outboard without it.

use settings::Device;
use tuning::{ByRanks, COLLECTIVES, is_faster, library_row};

use super::times::{Forced, Times, beside, measured, thousandths};
use crate::outboard::bench::peers;

const USUAL: Forced = &[("OUTBOARD_CCL", "off")];
const LIBRARY: Forced = &[("OUTBOARD_CCL_BYTES_MIN", "1")];

/// The name of a collective, and the command line of the program of bench/ that measures it.
type MeasuredRun = (&'static str, String);

/// Measures the library that OUTBOARD_CCL names against Outboard without it. Returns the library's rows for
/// the table of tuning, with their values. For numbers of ranks that are not measured, a row keeps its value
/// in `known`.
pub(super) fn rows(
    ourselves: &dyn Fn() -> Result<peers::Player, String>,
    known: &[(usize, u64)],
    (ranks, only): (&[u32], &[String]),
    rounds: u32,
) -> Result<Vec<(usize, u64)>, String> {
    let (library, measures) = chosen(only)?;
    let mut rows = Vec::new();
    for (name, run) in &measures {
        let row = library_row(&library, name).expect("one of these");
        let old = known.iter().find(|(known, _)| *known == row).map_or(0, |(_, value)| *value);
        let mut bounds = ByRanks::of_bits(old);
        for ranks in ranks {
            eprintln!("outboard: {name} on {ranks} ranks, by {library} and the usual way");
            let times = measured(ourselves, &[USUAL, LIBRARY], &[], &[(name, run)], (*ranks, rounds))?;
            bounds.set(*ranks, bytes_min(&times, name, *ranks));
        }
        rows.push((row, bounds.bits()));
    }
    Ok(rows)
}

/// Returns a table for each number of ranks: the times of jobs that choose by the present tuning, that never
/// use the library, and that always use it.
pub(super) fn compare(
    ourselves: &dyn Fn() -> Result<peers::Player, String>,
    (ranks, only): (&[u32], &[String]),
    rounds: u32,
) -> Result<String, String> {
    let (library, measures) = chosen(only)?;
    let measures: Vec<(&'static str, &str)> =
        measures.iter().map(|(name, run)| (*name, run.as_str())).collect();
    let one = |ranks: &u32| {
        let times = measured(ourselves, &[&[], USUAL, LIBRARY], &[], &measures, (*ranks, rounds))?;
        Ok(format!("{ranks} ranks, {library}\n{}", beside(&times, ["usual", "library"])))
    };
    ranks.iter().map(one).collect()
}

/// Returns the library's name, and the runs that measure it: one for each collective whose name contains a
/// text of `only`, or for each collective if `only` is empty.
fn chosen(only: &[String]) -> Result<(String, Vec<MeasuredRun>), String> {
    let settings = settings::load().map_err(|error| error.to_string())?;
    if settings.ccl == "off" {
        return Err(
            "OUTBOARD_CCL names no library: set it to the one that is to be measured (docs/gpu.md)".into()
        );
    }
    let place = match settings.device {
        Device::Off => "host",
        Device::Cuda | Device::Auto => "cuda",
        Device::Hip => "rocm",
        Device::Sentinel => "sentinel",
    };
    let is_wanted = |name: &&str| only.is_empty() || only.iter().any(|text| name.contains(text.as_str()));
    let run =
        |name: &str| format!("coll {} -m 1024:4194304 -i 50:20 -x 5 -d {place}", name.replace('-', "_"));
    let measures = COLLECTIVES.into_iter().filter(is_wanted).map(|name| (name, run(name)));
    Ok((settings.ccl.clone(), measures.collect()))
}

/// Returns the shortest length from which on, at all measured lengths, Outboard with the library was clearly
/// faster than without. Returns None if it was not faster at the longest length. The length is the one that
/// `Call::bytes` returns, while bench/ prints the length of one rank's block.
fn bytes_min(times: &Times, name: &str, ranks: u32) -> Option<u64> {
    let lengths = times.iter().rev().filter(|((measure, _), _)| *measure == name);
    let faster = lengths.take_while(|(_, both)| is_faster(thousandths(both[1]), thousandths(both[0])));
    let block = faster.last().map(|((_, bytes), _)| *bytes)?;
    Some(if name.starts_with("reduce-scatter") { block * u64::from(ranks) } else { block })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a bound is a length from which on the library always won, in the bytes by which calls are chosen.
    #[test]
    fn invented_times_become_bounds() {
        let mut times = Times::new();
        for (class, library) in [5.0, 20.0, 9.9, 5.0, 5.0].into_iter().enumerate() {
            for name in ["bcast", "reduce-scatter-block"] {
                times.insert((name, 1024 << class), vec![10.0, library]);
            }
            times.insert(("gather", 1024 << class), vec![10.0, 10.0]);
        }
        assert_eq!(bytes_min(&times, "bcast", 4), Some(8192));
        assert_eq!(bytes_min(&times, "reduce-scatter-block", 4), Some(32768));
        assert_eq!(bytes_min(&times, "gather", 4), None);
    }
}
