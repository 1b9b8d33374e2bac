//! The command line, as users of MPICH and Open MPI type it: options of one or two dashes, programs parted by `:`.
//!
//! clap knows options of several letters with two dashes only, and cannot tell an option of ours behind the program's name
//! from one of the program. So the words before each program are brought into clap's form first, with clap's own table of
//! our options, and everything from the program on is left alone.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueRange;
use clap::{Arg, Args, Parser, ValueEnum};

/// Run an MPI program on this machine.
///
/// Starts COUNT processes of PROGRAM, and of further programs after a `:`, as the ranks of one MPI_COMM_WORLD.
/// Options of several letters may be written with one dash. Options before the first program hold for all.
#[derive(Parser, Debug)]
#[command(name = "mpirun", version = concat!("(Outboard) ", env!("CARGO_PKG_VERSION")), arg_required_else_help = true, max_term_width = 110)]
#[command(override_usage = "mpirun [OPTIONS] PROGRAM [ARGUMENT]... [: [OPTIONS] PROGRAM [ARGUMENT]...]...")]
#[command(
    after_help = "Exit code: that of the first rank that failed, 128 + N if signal N ended it; 124 after --timeout; \
    126 or 127 if a program could not be started.\nWhen a program hangs: kill -USR1 PID, with the pid of this mpirun, prints what every rank waits for; \
    `outboard top` shows it too.\nSettings are environment variables: see `outboard info --settings`."
)]
pub struct First {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    local: Local,
}

/// Options for the whole job.
#[derive(Args, Debug, Clone)]
pub struct Global {
    /// Set an environment variable for all ranks and proxies.
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    genv: Vec<OsString>,
    /// Run each rank on a core of its own, or wherever the kernel likes. Default: core if there are enough.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub bind_to: Option<Bind>,
    /// Start N proxies: processes that carry out collectives while the ranks compute. They take the last cores.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub proxies: u32,
    /// The cores of the proxies, as 3 or 2,6-7; ranks keep off them.
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub proxy_cores: Option<Cores>,
    /// Begin every line of output with the rank: `[3] `.
    #[arg(short, long)]
    pub label: bool,
    /// End the job after so many seconds, with exit code 124, and say what its ranks waited for.
    #[arg(long, value_name = "SECONDS", env = "MPIEXEC_TIMEOUT", hide_env_values = true)]
    pub timeout: Option<f64>,
    /// Say what is started where.
    #[arg(short, long)]
    pub verbose: bool,
    /// Accepted for scripts written for Open MPI; more ranks than cores are always allowed.
    #[arg(long, hide = true)]
    oversubscribe: bool,
    /// Accepted for scripts written for Open MPI.
    #[arg(long, hide = true)]
    allow_run_as_root: bool,
}

/// Options for one program.
#[derive(Args, Debug)]
struct Local {
    /// How many processes.
    #[arg(short = 'n', long = "np", short_alias = 'c', value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    count: u32,
    /// Set an environment variable for this program.
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    env: Vec<OsString>,
    /// Set an environment variable for this program, or pass it on as it is.
    #[arg(short = 'x', value_name = "NAME[=VALUE]", action = clap::ArgAction::Append)]
    export: Vec<OsString>,
    /// Start the program in this directory.
    #[arg(short = 'C', long, alias = "wd", value_name = "DIRECTORY")]
    wdir: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, value_names = ["PROGRAM", "ARGUMENT"])]
    program: Vec<OsString>,
}

/// A program after a `:`.
#[derive(Parser, Debug)]
#[command(name = "mpirun", override_usage = "mpirun ... : [OPTIONS] PROGRAM [ARGUMENT]...")]
#[command(after_help = "Options for the whole job stand before the first program.")]
struct Further {
    #[command(flatten)]
    local: Local,
}

/// Where ranks may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// Each on a core of its own, as far as there are enough.
    Core,
    /// Anywhere.
    None,
}

/// A list of cores, in one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

fn cores(text: &str) -> Result<Cores, String> {
    let list = settings::list(text)?;
    if list.is_empty() {
        Err("no core".into())
    } else {
        Ok(Cores(list.iter().map(|&core| core as usize).collect()))
    }
}

/// What is to be run.
#[derive(Debug)]
pub struct Arguments {
    /// What holds for the whole job.
    pub global: Global,
    /// The programs, in the order of their ranks.
    pub programs: Vec<Program>,
}

/// One program of the job.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Number of ranks.
    pub count: u32,
    /// Variables to set, `-genv` before `-env` before `-x`.
    pub environment: Vec<(OsString, OsString)>,
    /// Where to start, if not here.
    pub directory: Option<PathBuf>,
    /// Program and arguments, at least one.
    pub words: Vec<OsString>,
}

impl Arguments {
    /// Understands a command line, without the name of `mpirun` itself. The error prints itself; `--help` is one too.
    pub fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
        let mut parts = words.split(|word| word == ":");
        let first: First = parse(parts.next().unwrap_or_default())?;
        let genv = pairs(&first.global.genv);
        let mut programs = vec![program(&genv, first.local)];
        for part in parts {
            programs.push(program(&genv, parse::<Further>(part)?.local));
        }
        Ok(Arguments { global: first.global, programs })
    }

    /// The variables set for all (`-genv`), which the job's own settings obey too.
    pub fn genv(&self) -> Vec<(OsString, OsString)> {
        pairs(&self.global.genv)
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.programs.iter().fold(0, |sum, program| sum.saturating_add(program.count))
    }
}

fn program(genv: &[(OsString, OsString)], local: Local) -> Program {
    let exports = local.export.iter().filter_map(|word| {
        // A bare name passes the variable on, which all are anyway.
        let (name, value) = word.to_str()?.split_once('=')?;
        Some((name.into(), value.into()))
    });
    let environment = genv.iter().cloned().chain(pairs(&local.env)).chain(exports).collect();
    Program { count: local.count, environment, directory: local.wdir, words: local.program }
}

fn pairs(words: &[OsString]) -> Vec<(OsString, OsString)> {
    words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn parse<T: Parser>(words: &[OsString]) -> Result<T, clap::Error> {
    let name = OsString::from("mpirun");
    let mut command = T::command();
    // Only a built command knows how many values its options take.
    command.build();
    T::try_parse_from(std::iter::once(name).chain(in_two_dashes(words, &command)))
}

/// The words with our options in clap's form and `--` before the program.
fn in_two_dashes(words: &[OsString], command: &clap::Command) -> Vec<OsString> {
    let mut all = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.clone().next() {
        let text = word.to_str().unwrap_or("");
        if !text.starts_with('-') || text.len() < 2 {
            break;
        }
        rest.next();
        if text == "--" {
            break;
        }
        let (name, glued) = match text.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.trim_start_matches('-'), None),
        };
        let Some((option, arg)) = find(command, name, !text.starts_with("--")) else {
            all.push(word.clone());
            continue;
        };
        all.push(option.into());
        let mut wanted = arg.get_num_args().unwrap_or(ValueRange::EMPTY).min_values();
        if let Some(value) = glued {
            all.push(value.into());
            wanted = wanted.saturating_sub(1);
        }
        while wanted > 0 {
            let Some(value) = rest.next() else { break };
            wanted -= 1;
            match value.to_str().and_then(|text| text.split_once('=')) {
                // `-env NAME=VALUE` for `-env NAME VALUE`.
                Some((name, value)) if wanted == 1 => {
                    all.extend([name.into(), value.into()]);
                    break;
                }
                _ => all.push(value.clone()),
            }
        }
    }
    if rest.len() > 0 {
        all.push("--".into());
        all.extend(rest.cloned());
    }
    all
}

/// The option of that name, long or (where `short` may be) of one letter, as clap wants it written.
fn find<'a>(command: &'a clap::Command, name: &str, short: bool) -> Option<(String, &'a Arg)> {
    let letter = name.chars().next().filter(|_| short && name.chars().count() == 1);
    command.get_arguments().find_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let shorts = arg.get_all_short_aliases().unwrap_or_default();
        if arg.get_long() == Some(name) || aliases.contains(&name) {
            Some((format!("--{name}"), arg))
        } else if letter.is_some()
            && (arg.get_short() == letter || shorts.iter().any(|&short| Some(short) == letter))
        {
            Some((format!("-{name}"), arg))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
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
            assert_eq!(arguments.global.bind_to, Some(Bind::None), "{line}");
            let program = Program {
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
        assert_eq!(arguments.ranks(), 7);
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
            ("--bind-to socket a", "core"),
        ] {
            let error = parsed(line).expect_err(line).to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert_eq!(parsed("").unwrap_err().exit_code(), 2);
        assert_eq!(parsed("--version").unwrap_err().exit_code(), 0);
    }

    #[test]
    fn proxies_and_cores() {
        let global = parsed("-proxies 2 -proxy-cores 1,3-4 a").unwrap().global;
        assert_eq!((global.proxies, global.proxy_cores), (2, Some(Cores(vec![1, 3, 4]))));
    }
}
