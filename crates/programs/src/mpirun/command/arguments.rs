// SPDX-License-Identifier: BSD-3-Clause
//! The command line of `mpirun`, as users of MPICH and Open MPI type it: options with one or two dashes,
//! programs separated by `:`.
//!
//! clap accepts options of several letters with two dashes only, and cannot tell an option of ours behind the
//! program's name from an option of the program. So `words.rs` first brings the words before each program
//! into clap's form, by clap's own table of our options. The program's name and the words after it stay as
//! they are.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use super::allocation;
use super::found::found;
use super::mvapich::{self, Meaning};
use super::others::{REFUSED, WITHOUT_EFFECT};
use super::values::{cores, readers, universe};
use super::words::{Leading, leading};
use crate::mpirun::place::binding::{Bind, Map};
use crate::mpirun::place::cpus;
use crate::mpirun::place::hosts::{self, Deal, Hosts, Placement};

pub use super::values::{Cores, Readers, Universe};

/// Run an MPI program on this machine, or on several hosts.
///
/// Starts COUNT processes of PROGRAM, and of further programs after a `:`, as the ranks of one
/// MPI_COMM_WORLD. Options of several letters may be written with one dash. Options before the first program
/// hold for all.
#[derive(Parser, Debug)]
#[command(name = "mpirun", version = concat!("(Outboard) ", env!("CARGO_PKG_VERSION")), arg_required_else_help = true, max_term_width = 110)]
#[command(override_usage = "mpirun [OPTIONS] PROGRAM [ARGUMENT]... [: [OPTIONS] PROGRAM [ARGUMENT]...]...")]
pub struct First {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    local: Local,
}

const CLOSING: &str = "Exit code: that of the first rank that failed, 128 + N if signal N ended it; 124 after --timeout; \
    126 or 127 if a program could not be started.\nWhen a program hangs: kill -USR1 PID, with the pid of this mpirun, prints what every rank waits for; \
    `outboard top` shows it too.\nSettings are environment variables: see `outboard info --settings`.";

/// Options for the whole job.
#[derive(Args, Debug, Clone, Default, Serialize, Deserialize)]
pub struct Global {
    /// Set an environment variable for all ranks and proxies.
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    genv: Vec<OsString>,
    /// Read the options and programs from a file, a line for each program. Also: --app.
    #[arg(long, alias = "app", value_name = "FILE")]
    configfile: Option<PathBuf>,
    /// Bind each rank to a core of its own, to the socket, numa, l3cache, ... around that core, or not at all
    /// (none); core:2 binds it to two cores. Default: core if the ranks fill the cores that are given.
    #[arg(long, alias = "binding", value_name = "WHERE")]
    pub bind_to: Option<Bind>,
    /// Let ranks take turns among sockets, numa, l3cache, ...; :PE=4 gives every rank 4 cores, ppr:2:socket
    /// puts 2 ranks on each.
    #[arg(long, value_name = "BY", default_value = "core", hide_default_value = true)]
    pub map_by: Map,
    /// Accepted: slot, core, hwthread, node and fill. Ranks are numbered in the order of --map-by.
    #[arg(long, value_name = "BY", value_parser = ["slot", "core", "hwthread", "node", "fill"])]
    rank_by: Option<String>,
    /// Give ranks hardware threads instead of whole cores.
    #[arg(long)]
    pub use_hwthread_cpus: bool,
    /// Print where every rank runs. Also: --display-map.
    #[arg(long, aliases = ["display-map", "display-devel-map"])]
    pub report_bindings: bool,
    /// Start N proxies on each host: processes that carry out collectives while the ranks compute. Proxies
    /// take the last cores. Without this option N is the value of OUTBOARD_PROXIES, else 0.
    #[arg(long, value_name = "N", default_value_t = settings::get().proxies as u32, hide_default_value = true, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub proxies: u32,
    /// The cores of the proxies, as 3 or 2,6-7; ranks keep off them. Without this option the cores that
    /// OUTBOARD_PROXY_CORES names.
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub proxy_cores: Option<Cores>,
    /// Run the proxies of each host on another computer, such as a data processing unit (DPU). The file names
    /// one such computer a line, in the order of the hosts. Implies --proxies 1. Also: --dpufile.
    #[arg(long, alias = "dpufile", value_name = "FILE", value_parser = hosts::file)]
    pub dpu_hostfile: Option<Hosts>,
    /// Begin every line of output with the rank: `[3] `. Also: --prepend-rank.
    #[arg(short, long, alias = "prepend-rank")]
    pub label: bool,
    /// Begin every line of output as Open MPI does: `[1,3]<stdout>: `.
    #[arg(long)]
    pub tag_output: bool,
    /// Begin every line of output with the time.
    #[arg(long)]
    pub timestamp_output: bool,
    /// Give every rank a terminal to print to: programs then show at once what they would buffer in a pipe.
    #[arg(long)]
    pub pty: bool,
    /// Write the ranks' standard output to files instead; %r in FILE is the rank, %h the host, %g the world.
    #[arg(long, value_name = "FILE")]
    pub outfile_pattern: Option<String>,
    /// Write the ranks' standard error to files instead; %r in FILE is the rank, %h the host, %g the world.
    #[arg(long, value_name = "FILE")]
    pub errfile_pattern: Option<String>,
    /// Write the ranks' output to FILE.RANK.out and FILE.RANK.err.
    #[arg(long, value_name = "FILE")]
    pub output_filename: Option<String>,
    /// The ranks that read standard input: all, none, or ranks as 0 or 1,3-4. Default: 0.
    #[arg(short = 's', long, value_name = "RANKS", default_value = "0", hide_default_value = true, value_parser = readers)]
    pub stdin: Readers,
    /// The value of MPI_UNIVERSE_SIZE: a number, SYSTEM (the cores) or INFINITE. Default: the ranks, or the
    /// slots of the hosts.
    #[arg(long, value_name = "SIZE", value_parser = universe)]
    pub usize: Option<Universe>,
    /// End the job after SECONDS with exit code 124, and print what its ranks waited for.
    #[arg(long, value_name = "SECONDS", env = "MPIEXEC_TIMEOUT", hide_env_values = true)]
    pub timeout: Option<f64>,
    /// Print what is started where, and which options have no effect.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print no notes of mpirun, only errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Reach other hosts through this interface: eth0, or a network as 10.0.0.0/8, or several, of which each
    /// host has one. Also: --mca btl_tcp_if_include.
    #[arg(long, value_name = "NAME", env = "OMPI_MCA_btl_tcp_if_include", hide_env_values = true)]
    iface: Option<String>,
    /// The launcher that starts processes on other hosts. Default: srun inside an allocation of Slurm, else
    /// ssh. Also: --bootstrap.
    #[arg(long, alias = "bootstrap", value_name = "NAME")]
    pub launcher: Option<Launcher>,
    /// The command to use in place of ssh, called as `CMD [OPTIONS] HOST COMMAND`. Also: --bootstrap-exec.
    #[arg(long, alias = "bootstrap-exec", value_name = "CMD")]
    pub launcher_exec: Option<PathBuf>,
}

impl Global {
    /// Sets the options that MVAPICH's environment variables ask for. Returns a sentence that names the
    /// variables without effect, or None if all have an effect.
    fn obey_mvapich(&mut self) -> Option<String> {
        let given: Vec<_> = std::env::vars_os().chain(pairs(&self.genv)).collect();
        let (meanings, sentence) = mvapich::meanings(given.iter().cloned());
        for meaning in meanings {
            match meaning {
                Meaning::Setting(name, _) if given.iter().any(|(known, _)| known == name) => {}
                Meaning::Setting(name, value) => self.genv.extend([name.into(), value.into()]),
                Meaning::Unbound => {
                    self.bind_to.get_or_insert(Bind { to: None, cores: 1 });
                }
                Meaning::ReportBindings => self.report_bindings = true,
            }
        }
        sentence
    }

    /// Returns the environment variables that all ranks get: from `-genv`, and from `--iface` and
    /// `--verbose`, which set a variable for ranks. `mpirun` obeys these variables, too.
    pub fn genv(&self) -> Vec<(OsString, OsString)> {
        let interface = self.iface.iter().map(|name| ("OUTBOARD_FABRIC_INTERFACE".into(), name.into()));
        let tells = self.verbose.then(|| ("OUTBOARD_FABRIC_TELL".into(), "1".into()));
        interface.chain(tells).chain(pairs(&self.genv)).collect()
    }
}

/// The options of the command line that hold for one program.
#[derive(Args, Debug)]
struct Local {
    /// How many processes. Default: the slots of the hosts, -ppn, or 1.
    #[arg(short = 'n', long = "np", short_alias = 'c', value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    count: Option<u32>,
    /// How many processes per host. Also: -perhost, --npernode, -N.
    #[arg(long, aliases = ["perhost", "npernode"], short_alias = 'N', value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    ppn: Option<u32>,
    /// The hosts with their slots, as a,b:4 or n[01-16]; may be given several times. Also: --host, -H.
    /// Default: this machine.
    #[arg(long, aliases = ["host"], short_alias = 'H', value_name = "LIST", value_parser = hosts::list)]
    #[arg(action = clap::ArgAction::Append)]
    hosts: Vec<Hosts>,
    /// A file with the hosts, one a line: a:4, or a slots=4. Also: -machinefile.
    #[arg(short = 'f', long, aliases = ["machinefile", "machine"], value_name = "FILE", value_parser = hosts::file)]
    #[arg(action = clap::ArgAction::Append)]
    hostfile: Vec<Hosts>,
    /// Set an environment variable for this program.
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    env: Vec<OsString>,
    /// Set an environment variable for this program. A NAME alone is passed on as it is.
    #[arg(short = 'x', value_name = "NAME[=VALUE]", action = clap::ArgAction::Append)]
    export: Vec<OsString>,
    /// Start the program in this directory.
    #[arg(short = 'C', long, alias = "wd", value_name = "DIRECTORY")]
    wdir: Option<PathBuf>,
    /// Look for the program in these directories first, separated by `:`.
    #[arg(long, value_name = "DIRECTORIES")]
    path: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, value_names = ["PROGRAM", "ARGUMENT"])]
    program: Vec<OsString>,
}

/// The part of a command line behind a `:`: a further program with its options.
#[derive(Parser, Debug)]
#[command(name = "mpirun", override_usage = "mpirun ... : [OPTIONS] PROGRAM [ARGUMENT]...")]
#[command(after_help = "Options for the whole job stand before the first program.")]
struct Further {
    #[command(flatten)]
    local: Local,
}

/// The program by which `mpirun` starts its agents on other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Launcher {
    Ssh,
    Rsh,
    #[value(alias = "slurm")]
    Srun,
}

/// The whole command line of `mpirun`, with what the environment adds to it.
#[derive(Debug)]
pub struct CommandLine {
    /// The options that hold for the whole job.
    pub global: Global,
    /// The programs to start, in the order of their ranks.
    pub programs: Vec<RankProgram>,
    /// How many ranks there is room for on all hosts that were named, the sum of their slots. 0 if no host
    /// was named.
    pub slots: u32,
    /// The host on which each rank runs.
    pub placement: Placement,
    /// Whether the job runs on this machine only, and the user named no launcher such as ssh. The agent then
    /// runs in this process.
    pub is_here: bool,
    /// Sentences that say which options have no effect, and why. `--verbose` prints them.
    pub notes: Vec<String>,
    /// A sentence that names MVAPICH's environment variables without effect. None if there are no such
    /// variables.
    pub warning: Option<String>,
}

/// One program of the job, with how many ranks run it, and in which folder and environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProgram {
    /// How many ranks run the program.
    pub count: u32,
    /// The environment variables to set, as names and values. If a name comes twice, the later value counts:
    /// that of `-x` over `-env` over `-genv`.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder in which the program's ranks start, or None for the folder in which `mpirun` runs.
    pub directory: Option<PathBuf>,
    /// The program and its arguments: at least one word.
    pub words: Vec<OsString>,
}

impl CommandLine {
    /// Returns what a command line says; `words` starts after the name of `mpirun` itself. The error is a
    /// text for the user, which is the help text for `--help`.
    pub fn parse(words: &[OsString]) -> Result<CommandLine, clap::Error> {
        let words = with_file(words)?;
        let mut parts = words.split(|word| word == ":");
        let mut notes = Vec::new();
        let mut first: First = parse(parts.next().unwrap_or_default(), &mut notes)?;
        let warning = first.global.obey_mvapich();
        let genv = first.global.genv();
        // `ppr:2:socket` also decides how many ranks a host gets, as if all hosts were like this one.
        let map = &first.global.map_by;
        let instances = || cpus::cores().map_or(1, |cores| cpus::instances(map.by, &cores));
        let each = map.each.map(|each| each.saturating_mul(instances()));
        let mut locals = vec![first.local];
        for part in parts {
            locals.push(parse::<Further>(part, &mut notes)?.local);
        }
        let mut common = locals[0].hosts();
        if locals.iter().all(|local| local.hosts().is_none()) {
            let given = allocation::hosts();
            let wrong = |why| command::<First>().error(ErrorKind::ValueValidation, why);
            // An allocation of one host is this machine, whatever its name is there. Its tasks are ranks.
            common = given.map_err(wrong)?.and_then(|hosts| match hosts.slots() {
                _ if hosts.0.len() > 1 => Some(hosts),
                slots if slots > 1 && map.each.is_none() => Some(Hosts::own(slots)),
                _ => None,
            });
            if common.is_none() && first.global.dpu_hostfile.is_some() {
                common = Some(Hosts::own(1));
            }
            if let (Some(hosts), true) = (&common, locals.len() == 1) {
                locals[0].hosts = vec![hosts.clone()];
            }
        }
        let mut slots = 0;
        let has_hosts = common.is_some() || locals.iter().any(|local| local.hosts().is_some());
        let mut placement = Placement::default();
        let mut programs = Vec::new();
        for local in locals {
            slots += local.hosts().map_or(0, |hosts| hosts.slots());
            let hosts = local.hosts().or_else(|| common.clone());
            let how = match local.ppn.or(each) {
                Some(each) => Deal::Each(each),
                None if map.by == "Machine" => Deal::Turns,
                None => Deal::Slots,
            };
            let program = program(&genv, local, each);
            if let Some(hosts) = hosts.or_else(|| has_hosts.then(|| Hosts::own(1))) {
                placement.add(&hosts, program.count, how);
            }
            programs.push(program);
        }
        // A user who names a launcher wants nodes, even on this machine.
        let has_launcher = first.global.launcher.is_some() || first.global.launcher_exec.is_some();
        if let Some(dpus) = &first.global.dpu_hostfile {
            let wrong = |why| {
                let sentence = format!("--dpu-hostfile: {why}\n");
                command::<First>().error(ErrorKind::ValueValidation, sentence)
            };
            placement.add_dpus(dpus).map_err(wrong)?;
            first.global.proxies = first.global.proxies.max(1);
        }
        let is_here = !has_hosts
            || (!has_launcher
                && placement.dpus.is_empty()
                && placement.dealt.iter().all(|(hosts, _)| hosts.are_here()));
        if is_here {
            let ranks = programs.iter().fold(0, |sum: u32, program| sum.saturating_add(program.count));
            placement = Placement { how: placement.how, ..Placement::here(ranks, slots.max(ranks)) };
        }
        Ok(CommandLine { global: first.global, programs, slots, placement, is_here, notes, warning })
    }
}

impl Local {
    /// Returns the hosts that the options of this program name (`-hosts`, else `-hostfile`), or None if no
    /// option does.
    fn hosts(&self) -> Option<Hosts> {
        let lists = if self.hosts.is_empty() { &self.hostfile } else { &self.hosts };
        Hosts::joined(lists.iter().cloned().map(Ok)).ok()
    }
}

/// Returns the program that the options `local` describe. `each`: how many ranks it gets on each host if the
/// options do not say (`-n`, `-ppn`).
fn program(genv: &[(OsString, OsString)], local: Local, each: Option<u32>) -> RankProgram {
    let exports = local.export.iter().filter_map(|word| {
        // A bare name passes the variable on, as happens to all variables.
        let (name, value) = word.to_str()?.split_once('=')?;
        Some((name.into(), value.into()))
    });
    let environment = genv.iter().cloned().chain(pairs(&local.env)).chain(exports).collect();
    let all = match (local.hosts(), local.ppn.or(each)) {
        (Some(hosts), Some(each)) => Some(each.saturating_mul(hosts.0.len() as u32)),
        (Some(hosts), None) => Some(hosts.slots()),
        (None, each) => each,
    };
    let count = local.count.or(all).unwrap_or(1);
    let mut words = local.program;
    if let (Some(path), Some(name)) = (&local.path, words.first_mut()) {
        let here = std::env::current_dir().unwrap_or_default();
        *name = found(name, Some(path), &here, &here);
    }
    RankProgram { count, environment, directory: local.wdir, words }
}

fn pairs(words: &[OsString]) -> Vec<(OsString, OsString)> {
    words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Returns clap's description of the command line, with the texts for `--help`. The manual page is made from
/// it, too.
pub fn command<T: CommandFactory>() -> clap::Command {
    let names = |names: &[&str]| names.iter().map(|name| format!("-{name}")).collect::<Vec<_>>().join(", ");
    let idle: Vec<String> = WITHOUT_EFFECT.iter().map(|(all, ..)| names(all)).collect();
    let refused = REFUSED.iter().map(|(all, instead)| format!("\n  {}: {instead}", names(all)));
    let closing = format!(
        "{CLOSING}\n\nOptions of MPICH, Intel MPI and Open MPI that have no effect on one machine: {}.\n\
        Options of theirs that are refused, and what to do instead:{}",
        idle.join(", "),
        refused.collect::<String>()
    );
    let mut command = T::command().after_help(closing);
    // Only a built command knows how many values its options take.
    command.build();
    command
}

fn parse<T: Parser>(words: &[OsString], notes: &mut Vec<String>) -> Result<T, clap::Error> {
    let mut command = command::<T>();
    let (options, program) = leading(words, &command)?;
    let mut all = vec![OsString::from("mpirun")];
    for option in options {
        match option {
            Leading::Ours { name, values, .. } => {
                all.push(name.into());
                all.extend(values);
            }
            Leading::Idle(note) => notes.push(note),
        }
    }
    if program < words.len() {
        all.push("--".into());
        all.extend_from_slice(&words[program..]);
    }
    let matches = command.try_get_matches_from_mut(all)?;
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the words of a command line. If one is `-configfile`, the words of that file take its place; the
/// file has a line for each program.
fn with_file(words: &[OsString]) -> Result<Vec<OsString>, clap::Error> {
    let mut command = command::<First>();
    let first = words.split(|word| word == ":").next().unwrap_or_default();
    for option in leading(first, &command)?.0 {
        let Leading::Ours { name, values, at } = option else { continue };
        if !["--configfile", "--app"].contains(&name.as_str()) || values.is_empty() {
            continue;
        }
        let path = PathBuf::from(&values[0]);
        let mut wrong =
            |what: String| command.error(ErrorKind::Io, format!("{name} {}: {what}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let mut all = words[..at.start].to_vec();
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
        for (index, line) in lines.enumerate() {
            let line =
                shlex::split(line).ok_or_else(|| wrong(format!("a quote is not closed in: {line}")))?;
            all.extend((index > 0).then(|| ":".into()));
            all.extend(line.into_iter().map(OsString::from).filter(|word| word != ":"));
        }
        all.extend_from_slice(&words[at.end..]);
        return Ok(all);
    }
    Ok(words.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<CommandLine, clap::Error> {
        CommandLine::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn one_dash_or_two() {
        for line in [
            "-n 4 -genv A 1 -wdir /tmp -bind-to none ./a -n 3",
            "--np 4 --genv A=1 --wdir=/tmp --bind-to=none ./a -n 3",
            "-np 4 -genv A=1 -C /tmp -bind-to=none -- ./a -n 3",
            "-c 4 -genv A 1 -wd /tmp --bind-to none ./a -n 3",
        ] {
            let arguments = parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(arguments.global.bind_to, Some(Bind { to: None, cores: 1 }), "{line}");
            let program = RankProgram {
                count: 4,
                environment: vec![("A".into(), "1".into())],
                directory: Some("/tmp".into()),
                words: words("./a -n 3"),
            };
            assert_eq!(arguments.programs, [program], "{line}");
        }
    }

    #[test]
    fn several_programs_and_their_variables() {
        let arguments =
            parsed("-genv A 1 -l -n 2 -env B -2 -x C=3 -x PATH a : -n3 b -l : c : -np 1 d x=y").unwrap();
        assert!(arguments.global.label);
        assert_eq!(arguments.placement.node_of.len(), 7);
        let of = |index: usize| &arguments.programs[index];
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(of(0).environment, [pair("A", "1"), pair("B", "-2"), pair("C", "3")]);
        assert_eq!(
            (of(1).count, &of(1).words, &of(1).environment),
            (3, &words("b -l"), &vec![pair("A", "1")])
        );
        assert_eq!((of(2).count, of(3).count, &of(3).words), (1, 1, &words("d x=y")));
    }

    #[test]
    fn mistakes_are_told() {
        for (line, word) in [
            ("-n 0 a", "0"),
            ("-n x a", "x"),
            ("-n 2", "PROGRAM"),
            ("a :", "PROGRAM"),
            ("a : -l b", "-l"),
            ("--nonsense a", "nonsense"),
            ("-proxy-cores x a", "whole number"),
            ("--bind-to teapot a", "core"),
            ("--map-by core:fast a", "PE=N"),
            ("-hosts a;b a", "no name of a host"),
            ("--launcher teapot a", "teapot"),
            ("-H localhost:0 a", "slots"),
            ("-hostname a", "--hostname"),
            ("-gdb -n 2 a", "-gdb is not an option of Outboard: write mpirun"),
            ("-genvnone a", "env -u"),
            ("-configfile /no/such/file", "/no/such/file"),
            ("--rank-by socket a", "slot"),
        ] {
            let error = parsed(line).expect_err(line).to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert_eq!(parsed("").unwrap_err().exit_code(), 2);
        // Options of other launchers, known or not, never end with success and without the program.
        for line in
            ["-hosts", "-hosts localhost", "-hostlist a b", "-Vx a", "-help-me a", "-mca a b", "--launcher"]
        {
            assert_eq!(parsed(line).unwrap_err().exit_code(), 2, "{line}");
        }
        assert_eq!(parsed("--version").unwrap_err().exit_code(), 0);
    }

    #[test]
    fn options_of_other_launchers() {
        let of = |line: &str| parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        for (line, count) in [
            ("-ppn 3 a", 3),
            ("-N 3 -n 2 a", 2),
            ("-hosts localhost:3,127.0.0.1:2 a", 5),
            ("--host localhost -np 4 a", 4),
            ("-H localhost:2 a", 2),
            ("-lv -n4 a", 4),
            ("-map-by ppr:3:node a", 3),
            ("-H localhost:4 --map-by ppr:1:node a", 1),
            ("-genvall -genvlist A,B -launcher ssh -launcher-exec /bin/ssh -rmk user -n 2 a", 2),
            ("-host localhost:2 --host 127.0.0.1 -H localhost a", 4),
            ("--mca btl self,vader -mca=pml ob1 --oversubscribe --allow-run-as-root -np 2 a", 2),
        ] {
            let arguments = of(line);
            assert_eq!(
                (arguments.placement.node_of.len(), &arguments.programs[0].words),
                (count, &words("a")),
                "{line}"
            );
        }
        for line in ["-iface eth1,10.0.0.0/8", "--mca btl_tcp_if_include eth1,10.0.0.0/8"] {
            let pair = ("OUTBOARD_FABRIC_INTERFACE".into(), "eth1,10.0.0.0/8".into());
            let arguments = of(&format!("{line} -n 2 a"));
            assert_eq!(
                (&arguments.programs[0].environment, arguments.notes.len()),
                (&vec![pair], 0),
                "{line}"
            );
        }
        let notes = of("-rmk slurm -n 2 a : -envall -n 1 b").notes;
        assert!(notes.len() == 2 && notes[0].starts_with("-rmk slurm has no effect: "), "{notes:?}");
        let global = of("-prepend-rank -s all -usize SYSTEM --map-by socket:PE=2 -display-map a").global;
        assert!(global.label && global.report_bindings);
        assert_eq!((global.stdin, global.usize), (Readers::All, Some(Universe::System)));
        assert_eq!((global.map_by.by, global.map_by.cores), ("Package", 2));
        assert_eq!(of("-s 1,3-4 a").global.stdin, Readers::Only(vec![1, 3, 4]));
        assert_eq!(of("-path /nowhere:/bin sh -c x").programs[0].words[0], "/bin/sh");
    }

    #[test]
    fn ranks_on_hosts() {
        let of = |line: &str| {
            let arguments = parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            (arguments.placement.nodes.join(","), arguments.placement.node_of)
        };
        assert_eq!(of("-hosts h1:2,h2 a"), ("h1,h2".into(), vec![0, 0, 1]));
        assert_eq!(of("-hosts h[1-2]:2,x a"), ("h1,h2,x".into(), vec![0, 0, 1, 1, 2]));
        let each = "-host h1 -n 1 a : -host h2,h1 -n 2 b : -hosts h3 -host h4 c";
        assert_eq!(of(each), ("h1,h2,h3,h4".into(), vec![0, 1, 0, 2, 3]));
        assert_eq!(of("-hosts h1,h2 -ppn 2 a"), ("h1,h2".into(), vec![0, 0, 1, 1]));
        assert_eq!(of("-hosts h1:2,h2:2 -n 3 --map-by node a"), ("h1,h2".into(), vec![0, 1, 0]));
        let four = "-H h1:4,h2:4,h3:4,h4:4 --map-by ppr";
        assert_eq!(of(&format!("{four}:1:node a")).1, [0, 1, 2, 3]);
        assert_eq!(of(&format!("{four}:2:node -n 3 a")), ("h1,h2".into(), vec![0, 0, 1]));
        assert_eq!(of(&format!("{four}:2:node a : -n 1 b")).1, [0, 0, 1, 1, 2, 2, 3, 3, 0]);
        assert_eq!(of("-hosts h1,h2 -n 1 a : -n 1 b : -host h2 -n 1 c"), ("h1,h2".into(), vec![0, 1, 1]));
        assert_eq!(of("-n 3 a"), (sys::host::name(), vec![0; 3]));
        assert_eq!(of("-H localhost,127.0.0.1:2 a"), (sys::host::name(), vec![0; 3]));
    }

    #[test]
    fn a_file_of_programs() {
        let path = std::env::temp_dir().join(format!("outboard-config-{}", std::process::id()));
        std::fs::write(&path, "# ours\n-l -n 2 a 'b c'\n\n-n 3 -env A 1 d -l :\n").unwrap();
        let arguments = parsed(&format!("-v -configfile {}", path.display())).unwrap();
        std::fs::remove_file(&path).unwrap();
        let of = |index: usize| (arguments.programs[index].count, &arguments.programs[index].words);
        assert_eq!(of(0), (2, &vec!["a".into(), "b c".into()]));
        assert_eq!(of(1), (3, &words("d -l")));
        assert!(arguments.global.label && arguments.global.verbose);
    }

    #[test]
    fn proxies_and_cores() {
        let global = parsed("-proxies 2 -proxy-cores 1,3-4 a").unwrap().global;
        assert_eq!((global.proxies, global.proxy_cores), (2, Some(Cores(vec![1, 3, 4]))));
    }
}
