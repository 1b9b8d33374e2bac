// SPDX-License-Identifier: BSD-3-Clause
//! Values of options: lists of cores, the ranks that read standard input, the size of the universe.
//!
//! Read next: `arguments.rs`.

use serde::{Deserialize, Serialize};

/// The cpus that the option `--proxy-cores` names, by the kernel's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores(pub Vec<usize>);

/// Returns the cpus of a list such as `3` or `2,6-7`.
pub fn cores(text: &str) -> Result<Cores, String> {
    let list = settings::list(text)?;
    if list.is_empty() {
        Err("no core".into())
    } else {
        Ok(Cores(list.iter().map(|&core| core as usize).collect()))
    }
}

/// The ranks that read standard input, by their numbers in the first world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readers {
    All,
    Only(Vec<u64>),
}

impl Default for Readers {
    /// Returns the value with which no rank reads standard input.
    fn default() -> Readers {
        Readers::Only(Vec::new())
    }
}

impl Readers {
    /// Whether rank `rank` of the first world reads standard input.
    pub fn has(&self, rank: u32) -> bool {
        match self {
            Readers::All => true,
            Readers::Only(ranks) => ranks.contains(&rank.into()),
        }
    }
}

/// Returns which ranks the value of `--stdin` names: `all`, `none`, or a list such as `1,3-4`.
pub fn readers(text: &str) -> Result<Readers, String> {
    match text {
        "all" => Ok(Readers::All),
        "none" => Ok(Readers::Only(Vec::new())),
        list => Ok(Readers::Only(settings::list(list)?)),
    }
}

/// The value that `--usize` gives the attribute MPI_UNIVERSE_SIZE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Universe {
    /// The number of cores of this machine that the job may use.
    System,
    /// How many ranks the job's segment has room for: no more can ever be started.
    Infinite,
    Size(u32),
}

/// Returns what a value of `--usize` means: a number, SYSTEM or INFINITE.
pub fn universe(text: &str) -> Result<Universe, String> {
    match text.to_uppercase().as_str() {
        "SYSTEM" => Ok(Universe::System),
        "INFINITE" => Ok(Universe::Infinite),
        number => number.parse().map(Universe::Size).map_err(|_| "SYSTEM, INFINITE or a number".into()),
    }
}
