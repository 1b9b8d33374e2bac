// SPDX-License-Identifier: BSD-3-Clause
//! `mpirun` makes the job's memory, starts proxies and ranks, passes their output on, and ends what is left
//! of the job.
//!
//! A folder uses only the folders that follow it in this list (`tables/layers.toml`): `root/` (what happens
//! where), `agent/` (the processes of one host), `streams/` (their input and output), `wire/` (the frames
//! between root and agents), `command/` (the command line), `place/` (which rank gets which host, which cores
//! and which number in the job's memory).

mod agent;
mod command;
pub mod place;
mod root;
mod streams;
mod wire;

pub use command::others::{REFUSED, WITHOUT_EFFECT};

use std::ffi::{OsStr, OsString};
use std::path::Path;

use sys::signal::Signals;

use agent::{guardian, job};
use command::arguments::{self, CommandLine};
use command::rsh;
use command::say::{Refusal, say};
use root::adopt;
use wire::relay;

/// Runs `mpirun`, and returns its exit code. `name` is the name by which it was called: for `mpirun_rsh` the
/// arguments `words` are read as MVAPICH does.
pub fn run(name: &OsStr, mut words: Vec<OsString>) -> u8 {
    if Path::new(name).file_name().is_some_and(|name| name == "mpirun_rsh") {
        words = rsh::translated(&words);
    }
    if words.first().is_some_and(|word| word == guardian::WORD) {
        guardian::guard(&words.get(1).map(|word| word.to_string_lossy()).unwrap_or_default());
        return 0;
    }
    if let Some(code) = agent::serve(&words).or_else(|| relay::serve(&words)) {
        return code;
    }
    if let [word, pid] = &words[..]
        && let Some(code) = adopt::serve(&word.to_string_lossy(), &pid.to_string_lossy())
    {
        return code;
    }
    let arguments = match CommandLine::parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed terminal cannot be helped.
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    match launch(&arguments) {
        Ok(code) => code,
        Err(refusal) => {
            say(&refusal.message);
            refusal.code
        }
    }
}

fn launch(arguments: &CommandLine) -> Result<u8, Refusal> {
    // This comes before any thread starts, so that signals arrive nowhere else.
    let signals = Signals::take(job::SIGNALS)
        .map_err(|error| Refusal::other(format!("cannot take over signals: {error}")))?;
    let unknown = settings::unknown();
    if !arguments.global.quiet {
        unknown.iter().chain(&arguments.warning).for_each(|sentence| say(sentence));
    }
    if arguments.global.verbose {
        arguments.notes.iter().for_each(|note| say(note));
    }
    root::launch(arguments, signals)
}

/// Returns clap's description of the command line. The manual page and the shell completions are made from
/// it.
pub fn command() -> clap::Command {
    arguments::command::<arguments::First>()
}
