//! What `make tidy` checks beyond rustfmt and clippy: floors between rooms, where `unsafe` and the environment may be used,
//! names in ARCHITECTURE.md, words that must not land. Every finding is one line: `file:line: what is wrong`.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks the repository at `root`; no finding means tidy.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let floors: Floors =
        toml::from_str(&read(&root.join("tables/floors.toml"))?).map_err(|e| format!("floors.toml: {e}"))?;
    let sources = Source::all(root)?;
    let mut findings = Vec::new();
    floors.check_table(&mut findings);
    for (room, rules) in &floors.rooms {
        let manifest = root.join("crates").join(folder(room)).join("Cargo.toml");
        floors.check_manifest(room, rules, &read(&manifest)?, &mut findings)?;
        check_forbids_unsafe(room, rules, &sources, &mut findings);
    }
    for source in &sources {
        check_known_room(&floors, source, &mut findings);
        check_environment(&floors, source, &mut findings);
        check_words(source, &mut findings);
    }
    check_names(&read(&root.join("ARCHITECTURE.md"))?, &sources, &mut findings);
    check_counters(&sources, &mut findings);
    Ok(findings)
}

/// `tables/floors.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Floors {
    everywhere: Vec<String>,
    rooms: BTreeMap<String, Rules>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    floor: u32,
    uses: Vec<String>,
    #[serde(default, rename = "unsafe")]
    may_use_unsafe: bool,
    #[serde(default, rename = "environment")]
    may_read_environment: bool,
}

impl Floors {
    /// The table itself must go downwards only.
    fn check_table(&self, findings: &mut Vec<String>) {
        for (room, rules) in &self.rooms {
            for used in &rules.uses {
                match self.rooms.get(used) {
                    None => {
                        findings.push(format!("tables/floors.toml: {room} uses {used}, which is no room"))
                    }
                    Some(below) if below.floor >= rules.floor => findings.push(format!(
                        "tables/floors.toml: {room} (floor {}) uses {used} (floor {}): not lower",
                        rules.floor, below.floor
                    )),
                    Some(_) => {}
                }
            }
        }
    }

    /// Every dependency on a room must stand in the table. What tests alone use is free.
    fn check_manifest(
        &self,
        room: &str,
        rules: &Rules,
        manifest: &str,
        findings: &mut Vec<String>,
    ) -> Result<(), String> {
        let parsed: toml::Table = toml::from_str(manifest).map_err(|e| format!("manifest of {room}: {e}"))?;
        for section in ["dependencies", "build-dependencies"] {
            let names =
                parsed.get(section).and_then(|table| table.as_table()).into_iter().flat_map(|t| t.keys());
            for name in names.filter(|name| self.rooms.contains_key(*name)) {
                if !rules.uses.contains(name) && !self.everywhere.contains(name) {
                    findings.push(format!(
                        "crates/{}/Cargo.toml: {room} may not use {name} (tables/floors.toml)",
                        folder(room)
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The crate of the room `objects` lies in `core`, whose name Rust's own library has taken.
fn folder(room: &str) -> &str {
    if room == "objects" { "core" } else { room }
}

/// One file that git knows, with its path from the repository's root.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn all(root: &Path) -> Result<Vec<Source>, String> {
        let listing = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git ls-files: {e}"))?;
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let wanted = |path: &&str| {
            ["rs", "c", "h", "py", "sh"].iter().any(|end| path.ends_with(&format!(".{end}")))
                || path.starts_with("tools/")
                || *path == "Makefile"
        };
        let mut sources = Vec::new();
        for path in listing.lines().filter(wanted) {
            // A file may be deleted here and not yet in the index.
            if let Ok(text) = fs::read_to_string(root.join(path)) {
                sources.push(Source { path: path.into(), text });
            }
        }
        Ok(sources)
    }

    /// The room whose library or programs this file is part of; None for tests and everything beside the crates.
    fn room(&self) -> Option<&str> {
        let mut parts = self.path.to_str()?.split('/');
        match (parts.next()?, parts.next()?, parts.next()?) {
            ("crates", "core", "src") => Some("objects"),
            ("crates", room, "src") => Some(room),
            _ => None,
        }
    }

    /// Lines with their numbers, up to the tests at the foot of the file.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line))
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
    }
}

fn check_known_room(floors: &Floors, source: &Source, findings: &mut Vec<String>) {
    if let Some(room) = source.room()
        && !floors.rooms.contains_key(room)
    {
        findings.push(format!("{}: room {room} is not in tables/floors.toml", source.path.display()));
    }
}

/// A room without leave for `unsafe` forbids it at the head of its library and of each of its programs.
fn check_forbids_unsafe(room: &str, rules: &Rules, sources: &[Source], findings: &mut Vec<String>) {
    let is_root = |source: &&Source| {
        let path = source.path.to_string_lossy();
        source.room() == Some(room)
            && (path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/"))
    };
    if rules.may_use_unsafe {
        return;
    }
    for source in sources.iter().filter(is_root) {
        let is_module = source.path.components().count() > 5;
        if !is_module && !source.text.contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{}: lacks #![forbid(unsafe_code)]", source.path.display()));
        }
    }
}

fn check_environment(floors: &Floors, source: &Source, findings: &mut Vec<String>) {
    let Some(rules) = source.room().and_then(|room| floors.rooms.get(room)) else { return };
    if rules.may_read_environment || source.room() == Some("xtask") {
        return;
    }
    for (number, line) in source.lines() {
        if ["env::var", "getenv", "env::vars"].iter().any(|call| line.contains(call)) {
            findings.push(format!(
                "{}:{number}: reads the environment; ask settings instead",
                source.path.display()
            ));
        }
    }
}

/// Words for unfinished work, joined here so that this file does not find itself.
fn check_words(source: &Source, findings: &mut Vec<String>) {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
    ];
    for (number, line) in source.text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(**word)) {
            findings.push(format!("{}:{}: {word}", source.path.display(), number + 1));
        }
    }
}

/// In ARCHITECTURE.md, `name()` in backticks must be a function of ours, and `path.rs` a file.
fn check_names(text: &str, sources: &[Source], findings: &mut Vec<String>) {
    let mut functions = BTreeSet::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates")) {
        functions.extend(source.text.split("fn ").skip(1).map(|rest| leading_name(rest).to_string()));
    }
    for (number, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            if let Some((path, _)) = quoted.split_once('(') {
                let name = path.rsplit([':', '.']).next().unwrap_or(path);
                if name.starts_with(char::is_lowercase)
                    && leading_name(name) == name
                    && !functions.contains(name)
                {
                    findings.push(format!("ARCHITECTURE.md:{}: no function {name}", number + 1));
                }
            } else if quoted.ends_with(".rs") && !sources.iter().any(|source| is_named(&source.path, quoted))
            {
                findings.push(format!("ARCHITECTURE.md:{}: no file {quoted}", number + 1));
            }
        }
    }
}

/// Every counter must be counted somewhere: one that is not would be shown as 0 for ever.
fn check_counters(sources: &[Source], findings: &mut Vec<String>) {
    let is_table = |source: &&Source| source.path.ends_with("telemetry/src/counter.rs");
    let counts = |source: &&Source| source.room().is_some() && !is_table(source) && !is_viewer(source);
    let named =
        |line: &str, name: &str| line.split("Counter::").skip(1).any(|rest| leading_name(rest) == name);
    for (number, line) in sources.iter().filter(is_table).flat_map(Source::lines) {
        let name = leading_name(line.trim_start());
        let is_row = line.ends_with("\";") && line.trim_start()[name.len()..].starts_with(" \"");
        if is_row && !sources.iter().filter(counts).flat_map(Source::lines).any(|(_, line)| named(line, name))
        {
            findings.push(format!("crates/telemetry/src/counter.rs:{number}: nothing counts {name}"));
        }
    }
}

/// Whether it only shows what others have counted.
fn is_viewer(source: &Source) -> bool {
    source.path.starts_with("crates/programs/src/outboard")
}

/// `executor/memory.rs` names `crates/executor/src/memory.rs`.
fn is_named(path: &Path, quoted: &str) -> bool {
    let path = path.to_string_lossy().replace("/src/", "/").replace("crates/", "");
    path == quoted.replace("/src/", "/") || path.ends_with(&format!("/{quoted}"))
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        everywhere = ["sys"]
        [rooms]
        top = { floor = 2, uses = ["leaf"] }
        leaf = { floor = 0, uses = [] }
        sys = { floor = 0, uses = [], unsafe = true }
    "#;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn an_edge_upwards_is_found() {
        let floors: Floors = toml::from_str(TABLE).unwrap();
        let mut findings = Vec::new();
        let manifest = "[dependencies]\ntop.workspace = true\nsys.workspace = true\nserde = '1'\n";
        floors.check_manifest("leaf", &floors.rooms["leaf"], manifest, &mut findings).unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        let upwards: Floors = toml::from_str(&TABLE.replace("floor = 2", "floor = 0")).unwrap();
        findings.clear();
        upwards.check_table(&mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn environment_and_unsafe_are_found_in_rooms_without_leave() {
        let floors: Floors = toml::from_str(TABLE).unwrap();
        let bad = source("crates/leaf/src/lib.rs", "fn f() { std::env::var(\"A\"); }");
        let mut findings = Vec::new();
        check_environment(&floors, &bad, &mut findings);
        check_forbids_unsafe("leaf", &floors.rooms["leaf"], &[bad], &mut findings);
        assert_eq!(findings.len(), 2, "{findings:?}");
        let test = source("crates/leaf/src/lib.rs", "#[cfg(test)]\nmod tests { env::var }");
        findings.clear();
        check_environment(&floors, &test, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn names_in_the_architecture_must_exist() {
        let sources = [source("crates/executor/src/memory.rs", "pub fn reach(span: Span) {}")];
        let mut findings = Vec::new();
        check_names("`memory::reach()` `executor/memory.rs` `MPI_X`", &sources, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        check_names("`gone()`\n`executor/gone.rs`", &sources, &mut findings);
        assert_eq!(
            findings,
            ["ARCHITECTURE.md:1: no function gone", "ARCHITECTURE.md:2: no file executor/gone.rs"]
        );
    }

    #[test]
    fn a_counter_that_nobody_counts_is_found() {
        let table = source("crates/telemetry/src/counter.rs", "    Sends \"sends\" Count \"sends\";");
        let top = source("crates/programs/src/outboard/top.rs", "sum(Counter::Sends)");
        let tests = source("crates/leaf/src/lib.rs", "#[cfg(test)]\nmod tests { count(Counter::Sends) }");
        let mut findings = Vec::new();
        check_counters(&[table, top, tests], &mut findings);
        assert_eq!(findings, ["crates/telemetry/src/counter.rs:1: nothing counts Sends"]);
        let table = source("crates/telemetry/src/counter.rs", "    Sends \"sends\" Count \"sends\";");
        let p2p = source("crates/leaf/src/lib.rs", "count(Counter::Sends, 1);");
        findings.clear();
        check_counters(&[table, p2p], &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
    }
}
