// SPDX-License-Identifier: BSD-3-Clause
//! The program `outboard`: it shows settings, running jobs and schedules, and measures performance.

mod bench;
mod completion;
mod explain;
mod fabric;
mod info;
mod jobs;
mod man;
mod monitor;
mod page;
mod plan;
mod profile;
mod simulate;
mod top;
mod tune;

use std::ffi::OsString;
use std::io::Write;

use clap::{CommandFactory, Parser, Subcommand};

/// Show Outboard's settings, running jobs and schedules, and measure its performance.
#[derive(Parser)]
#[command(name = "outboard", version, arg_required_else_help = true, max_term_width = 110)]
pub struct OutboardCommand {
    #[command(subcommand)]
    task: OutboardTask,
}

#[derive(Subcommand)]
enum OutboardTask {
    Info(info::InfoCommand),
    Top(top::Top),
    Explain(explain::Explain),
    Profile(profile::Profile),
    Plan(plan::Plan),
    Simulate(simulate::Simulate),
    Bench(bench::Bench),
    Tune(tune::Tune),
    Monitor(monitor::Monitor),
    Completion(completion::Completion),
    Man(man::Man),
}

/// Runs `outboard` with these arguments, the first of which is the program's name. Returns the exit code.
pub fn run(words: Vec<OsString>) -> u8 {
    let arguments = match OutboardCommand::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed terminal cannot be helped.
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    let text = match arguments.task {
        OutboardTask::Info(info) => info.run(),
        OutboardTask::Top(top) => top.run(),
        OutboardTask::Explain(explain) => explain.run(),
        OutboardTask::Profile(profile) => profile.run(),
        OutboardTask::Plan(plan) => plan.run(),
        OutboardTask::Simulate(simulate) => simulate.run(),
        OutboardTask::Bench(bench) => bench.run(),
        OutboardTask::Tune(tune) => tune.run(),
        OutboardTask::Monitor(monitor) => monitor.run(),
        OutboardTask::Completion(completion) => completion.run(command()),
        OutboardTask::Man(man) => man.run(command()),
    };
    match text {
        // A reader that closes the pipe (`| head`) is no failure.
        Ok(text) => std::io::stdout().write_all(text.as_bytes()).map_or(0, |()| 0),
        Err(sentence) => {
            eprintln!("outboard: {sentence}");
            1
        }
    }
}

/// Returns clap's description of the command line. Manual pages and completions are made from it.
fn command() -> clap::Command {
    OutboardCommand::command()
}
