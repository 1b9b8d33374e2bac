// SPDX-License-Identifier: BSD-3-Clause
//! `outboard info` prints version, paths, machine, settings, and which MPI functions are implemented.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use settings::{Setting, TABLE};
use telemetry::{Counter, Unit};
use tuning::{VECTOR_COPIES, ValueKind, ValueSource};

use crate::tables;

/// The functions of the standard ABI, one a line: the name, and 1 if the function is implemented, else 0.
/// Generated.
const FUNCTIONS: &str = include_str!("../../../abi/src/generated/functions.txt");

/// Print version, paths, machine, settings, counters and MPI functions.
#[derive(Args)]
pub struct InfoCommand {
    /// Only the settings, with their values, defaults, and what they are for.
    #[arg(long)]
    settings: bool,
    /// Only the MPI functions, and whether they are implemented.
    #[arg(long)]
    functions: bool,
    /// Only the counters, which OUTBOARD_STATS=1, `outboard top --json` and MPI_T show: name, unit, meaning.
    #[arg(long)]
    counters: bool,
    /// Only the values that are chosen by measurement, each with its source.
    #[arg(long)]
    tuning: bool,
    /// Only the network that a job on several hosts would use: what libfabric offers here, the rule by which
    /// one offer is chosen, and the choice. Exit code 1 if no offer is suitable.
    #[arg(long)]
    fabric: bool,
    /// With --fabric: the address by which a launcher would name this host.
    #[arg(long, value_name = "IP", requires = "fabric")]
    address: Option<std::net::IpAddr>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl InfoCommand {
    /// Returns the text to print: the part that an option asks for, or an overview.
    pub fn run(&self) -> Result<String, String> {
        let all = !self.settings && !self.counters && !self.functions && !self.tuning && !self.fabric;
        let network = self.fabric.then(|| super::fabric::find(self.address)).transpose()?;
        if self.json {
            let mut object = serde_json::Map::new();
            if all {
                object.insert("version".into(), env!("CARGO_PKG_VERSION").into());
                let facts = facts().into_iter().map(|(name, value)| (name.to_string(), value.into()));
                object.extend(facts);
            }
            if all || self.settings {
                object.insert(
                    "settings".into(),
                    TABLE.iter().filter(|row| !row.internal).map(described).collect(),
                );
            }
            if all || self.counters {
                let one = |counter: &Counter| json!({"name": counter.name(), "unit": unit(*counter), "doc": counter.doc()});
                object.insert("counters".into(), Counter::ALL.iter().map(one).collect());
            }
            if all || self.functions {
                let entries = functions().map(|(name, body)| json!({"name": name, "body": body}));
                object.insert("functions".into(), entries.collect());
            }
            if all || self.tuning {
                let values = tuned()?.into_iter().map(|Tuned { name, value, source, doc }| {
                    json!({"name": name, "value": value, "source": source, "doc": doc})
                });
                object.insert("tuning".into(), values.collect());
            }
            if let Some(found) = network {
                object.insert("fabric".into(), found.json());
            }
            return Ok(format!("{:#}\n", Value::Object(object)));
        }
        let mut text = String::new();
        let mut print = |line: std::fmt::Arguments| text.write_fmt(line).expect("a String takes all");
        if all {
            print(format_args!("Outboard {}\n", env!("CARGO_PKG_VERSION")));
            facts().iter().for_each(|(name, value)| print(format_args!("{name:<16} {value}\n")));
            print(format_args!("{}\n\nSettings (--settings explains them):\n", count()));
            TABLE.iter().filter(|row| !row.internal).for_each(|row| {
                print(format_args!("{:<34} {}\n", row.variable, value_of(row)));
            });
        }
        if self.settings {
            TABLE
                .iter()
                .filter(|row| !row.internal)
                .for_each(|row| print(format_args!("{}\n", explained(row))));
        }
        if self.counters {
            print(format_args!("{}", counters()));
        }
        if self.tuning {
            tuned()?.iter().for_each(|Tuned { name, value, source, .. }| {
                print(format_args!("{name:<20} {value:<24} {source}\n"));
            });
        }
        if let Some(found) = network {
            print(format_args!("{}", found.text()));
        }
        if self.functions {
            functions().for_each(|(name, body)| {
                print(format_args!("{name:<36} {}\n", if body { "yes" } else { "no body yet" }));
            });
            print(format_args!("{}\n", count()));
        }
        Ok(text)
    }
}

/// Returns the names, units and meanings of all counters, one counter a line.
fn counters() -> String {
    let line =
        |counter: &Counter| format!("{:<26} {:<12} {}\n", counter.name(), unit(*counter), counter.doc());
    Counter::ALL.iter().map(line).collect()
}

/// Returns the name of a counter's unit: count, bytes or nanoseconds.
pub(super) fn unit(counter: Counter) -> &'static str {
    match counter.unit() {
        Unit::Count => "count",
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "nanoseconds",
    }
}

/// A value that is chosen by measurement, with its source, as text for the user.
struct Tuned {
    name: &'static str,
    value: String,
    source: String,
    doc: &'static str,
}

/// Returns the tuned values that a job on this machine would use if it started now.
fn tuned() -> Result<Vec<Tuned>, String> {
    let settings = settings::load().map_err(|error| error.to_string())?;
    let found = tables::find(settings)?;
    let tuning = boot::overruled(found.tuning, settings);
    let shown = |path: Option<PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
    let (table, facts) = (shown(found.path), shown(found.facts));
    let one = |(row, about): (usize, &tuning::ValueRow)| {
        let (value, source) = (tuning::shown(row, tuning.get(row)), tuning.source(row));
        let name = about.name;
        let (value, source) = match (source, &found.complaint) {
            (ValueSource::Setting, _) => (value, "setting".into()),
            (ValueSource::Table, _) if about.kind == ValueKind::Facts && !facts.is_empty() => {
                (value, format!("jobs, {facts}"))
            }
            (ValueSource::Table, _) => (value, format!("table {table}")),
            (ValueSource::Default, Some(sentence)) => (value, format!("built in: {sentence}")),
            (ValueSource::Default, None) if name.starts_with("read.") => {
                ("not known".into(), "the first long messages of a job show it".into())
            }
            (ValueSource::Default, None) if row == VECTOR_COPIES => {
                (tuning::shown(row, u64::from(sys::copy::vectors_suit())), "measured now".into())
            }
            (ValueSource::Default, None) => (value, "built in".into()),
        };
        Tuned { name, value, source, doc: about.doc }
    };
    // Rows of libraries and of facts are left out while they have nothing.
    let is_shown = |row: &usize| {
        let is_plain = !matches!(tuning::ROWS[*row].kind, ValueKind::ByRanks | ValueKind::Facts);
        is_plain || tuning.is_known(*row)
    };
    let mut rows: Vec<_> =
        tuning::ROWS.iter().enumerate().filter(|(row, _)| is_shown(row)).map(one).collect();
    let are_missing = tables::keeps_facts(settings) && facts.is_empty() && !tuning.knows_ways();
    if let Some(path) = tables::facts_path().filter(|_| are_missing) {
        let source = format!("jobs keep them in {}", path.display());
        let doc = "what the long messages of jobs on this machine have shown";
        rows.push(Tuned { name: "facts", value: "none".into(), source, doc });
    }
    Ok(rows)
}

fn functions() -> impl Iterator<Item = (&'static str, bool)> {
    FUNCTIONS.lines().filter_map(|line| line.split_once(' ')).map(|(name, body)| (name, body.trim() == "1"))
}

fn count() -> String {
    let with = functions().filter(|(_, body)| *body).count();
    format!("functions with a body: {with} of {}", functions().count())
}

/// Returns facts about the installation and the machine, each with its name.
fn facts() -> Vec<(&'static str, String)> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let folder = own.parent().map(PathBuf::from).unwrap_or_default();
    let tree = folder.parent().map(PathBuf::from).unwrap_or_default();
    let present = |path: PathBuf| match path.exists() {
        true => path.display().to_string(),
        false => format!("{} (missing)", path.display()),
    };
    let cpus = sys::cpu::allowed().map_or("unknown".into(), |cpus| crate::mpirun::place::cpus::listed(&cpus));
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    vec![
        ("build", format!("{:016x}", boot::BUILD)),
        ("tree", tree.display().to_string()),
        ("library", present(tree.join("lib/libmpi_abi.so.1"))),
        ("mpirun", present(folder.join("mpirun"))),
        ("proxy", present(folder.join("outboard-proxy"))),
        ("cpus", cpus),
        ("arena", arena()),
        ("ptrace_scope", yama.map_or("no Yama".into(), |scope| scope.trim().to_string())),
    ]
}

/// Returns a sentence that says how much memory a rank may allocate in its arena, and how much address space
/// processes use for that.
fn arena() -> String {
    let shape = boot::shape(settings::get(), 1, 0, 0);
    format!(
        "{} bytes for each rank; address space: {} bytes of its own and of each peer it uses, more as they are used",
        shape.arena_bytes,
        transport::shm::FIRST_EXTENT_BYTES
    )
}

/// Returns the value of a setting in this environment as text. If it is set, the default follows in brackets.
fn value_of(row: &Setting) -> String {
    let default = if row.default.is_empty() { "(not set)" } else { row.default };
    match settings::text_in_environment(row).filter(|value| !value.is_empty()) {
        Some(value) => format!("{value}   (default {default})"),
        None => default.to_string(),
    }
}

fn explained(row: &Setting) -> String {
    let mut text = format!("{}={}\n", row.variable, value_of(row));
    let limits = format!("Allowed: {}. Scope: {}.", row.kind.allowed(), scope_of(row));
    for line in [row.doc, row.why, &limits] {
        writeln!(text, "    {line}").expect("a String takes all");
    }
    text
}

fn scope_of(row: &Setting) -> String {
    format!("{:?}", row.scope).to_lowercase()
}

fn described(row: &Setting) -> Value {
    json!({
        "name": row.name,
        "variable": row.variable,
        "value": settings::text_in_environment(row),
        "default": row.default,
        "allowed": row.kind.allowed(),
        "scope": scope_of(row),
        "doc": row.doc,
        "why": row.why,
    })
}
