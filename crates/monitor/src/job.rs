//! A job and its ranks, as their source last told of them.

use std::collections::BTreeMap;

use serde::Serialize;

/// A job, as its source last told of it. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub struct Job {
    pub id: String,
    /// `mpirun` or `slurm`.
    pub source: &'static str,
    pub user: String,
    /// What it is accounted to; empty: nothing tells.
    pub project: String,
    pub name: String,
    pub nodes: Vec<String>,
    pub ranks: Vec<Rank>,
    pub ranks_count: u32,
    pub state: String,
    pub start: u64,
    /// Nothing: it runs.
    pub end: Option<u64>,
}

/// A rank of an Outboard job, by its page of counters.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub struct Rank {
    pub rank: u32,
    pub host: String,
    pub pid: u32,
    pub state: String,
    pub waiting_for: String,
    pub counters: BTreeMap<String, u64>,
}

impl Job {
    /// What stands out in its counters, in words.
    pub fn verdicts(&self) -> Vec<String> {
        let value = |rank: &Rank, name: &str| rank.counters.get(name).copied().unwrap_or(0);
        let mut verdicts = Vec::new();
        let waits: Vec<u64> = self.ranks.iter().map(|rank| value(rank, "wait_ns")).collect();
        let (Some(least), Some(most)) = (waits.iter().min(), waits.iter().max()) else { return verdicts };
        // Who waits least while all others wait is the one they wait for.
        if waits.len() > 1 && *most > 1_000_000_000 && *most > least.saturating_mul(2) {
            let at = waits.iter().position(|wait| wait == least).expect("it is one of them");
            let rank = &self.ranks[at];
            verdicts.push(format!(
                "rank {} on {} has waited {:.1} s in MPI, the others up to {:.1} s: they wait for it",
                rank.rank,
                rank.host,
                *least as f64 / 1e9,
                *most as f64 / 1e9
            ));
        }
        verdicts
    }
}
