// SPDX-License-Identifier: BSD-3-Clause
//! What `make tidy` checks beyond rustfmt and clippy. Every finding is one line: `file:line: what is wrong`.
//!
//! This file checks the layers of crates, where `unsafe` and the environment are used, and words for
//! unfinished work. Read next: `architecture.rs` (what ARCHITECTURE.md says), `cycles.rs` (modules of a
//! crate), `sizes.rs` (lengths), `names.rs` (names of types), `prose.rs` (comments and pages).

mod architecture;
mod cycles;
mod edges;
mod names;
mod prose;
mod rust;
mod sizes;
pub mod source;

use serde::Deserialize;
use source::{SourceFile, WORKSPACES, leading_name, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Checks the repository at `root`. Returns the findings, a line each. There are none if all is in order.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let sources = SourceFile::all(root)?;
    let mut findings = Vec::new();
    for workspace in WORKSPACES {
        check_workspace(root, workspace, &sources, &mut findings)?;
    }
    check_packages(root, &mut findings)?;
    for source in &sources {
        check_words(source, &mut findings);
    }
    let library = Layers::read(root, WORKSPACES[0])?.crates;
    let layers = library.into_iter().map(|(name, rules)| (name, rules.layer)).collect();
    architecture::check(root, &layers, &sources, &mut findings)?;
    check_counters(&sources, &mut findings);
    let sizes: sizes::Sizes = table(root, "sizes.toml")?;
    sizes.check(&sources, &mut findings);
    let names: names::Names = table(root, "names.toml")?;
    let written = sizes.written(&sources);
    names.check(&written, &mut findings);
    prose::check_comments(&written, &mut findings);
    for page in pages(root)? {
        prose::check_width(&page, &mut findings);
    }
    Ok(findings)
}

/// Returns what the task `prose` prints: a line for each sentence with too many words in the pages.
pub fn prose(root: &Path) -> Result<Vec<String>, String> {
    Ok(pages(root)?.iter().flat_map(prose::long_sentences).collect())
}

/// Returns the pages of documentation in the repository.
fn pages(root: &Path) -> Result<Vec<SourceFile>, String> {
    SourceFile::listed(root, |path| path.ends_with(".md"))
}

/// Reads the TOML file `name` in the folder `tables` as one value.
fn table<T: serde::de::DeserializeOwned>(root: &Path, name: &str) -> Result<T, String> {
    toml::from_str(&read(&root.join("tables").join(name))?).map_err(|e| format!("{name}: {e}"))
}

/// Checks the crates of a workspace against the `tables/layers.toml` of that workspace.
fn check_workspace(
    root: &Path,
    workspace: &'static str,
    sources: &[SourceFile],
    findings: &mut Vec<String>,
) -> Result<(), String> {
    let folder = root.join(workspace);
    let layers = Layers::read(&folder, workspace)?;
    let sources: Vec<&SourceFile> = sources.iter().filter(|source| source.workspace == workspace).collect();
    layers.check_table(findings);
    for (crate_name, rules) in &layers.crates {
        let manifest = folder.join("crates").join(crate_name).join("Cargo.toml");
        layers.check_manifest(crate_name, rules, &read(&manifest)?, findings)?;
        layers.check_sources(crate_name, rules, &read(&manifest)?, &sources, findings)?;
        check_forbids_unsafe(crate_name, rules, &sources, findings);
    }
    cycles::check(workspace, layers.crates.keys(), &layers.cycle, &layers.order, &sources, findings);
    for source in sources {
        check_known_crate(&layers, source, findings);
        check_environment(&layers, source, findings);
    }
    Ok(())
}

/// Checks that both workspaces have the same version, edition, licence and lints.
fn check_packages(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let manifest = |workspace: &str| -> Result<toml::Table, String> {
        let path = root.join(workspace).join("Cargo.toml");
        toml::from_str(&read(&path)?).map_err(|e| format!("{}: {e}", path.display()))
    };
    let section = |table: &toml::Table, name| table.get("workspace").and_then(|w| w.get(name)).cloned();
    let first = manifest(WORKSPACES[0])?;
    for workspace in &WORKSPACES[1..] {
        let other = manifest(workspace)?;
        for name in ["package", "lints"] {
            if section(&first, name) != section(&other, name) {
                findings.push(format!("{workspace}Cargo.toml: [workspace.{name}] is not that of Cargo.toml"));
            }
        }
    }
    Ok(())
}

/// The contents of the `tables/layers.toml` of a workspace: the layers of its crates, and what each may use.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    #[serde(skip)]
    workspace: &'static str,
    everywhere: Vec<String>,
    crates: BTreeMap<String, Rules>,
    /// The folders whose modules may use each other in a ring.
    #[serde(default)]
    cycle: Vec<cycles::RingExcuse>,
    /// The folders whose subfolders have an order: each subfolder may use only the subfolders that come after
    /// it.
    #[serde(default)]
    order: Vec<cycles::FolderOrder>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    layer: u32,
    uses: Vec<String>,
    /// The other crates whose source files this crate may include.
    #[serde(default)]
    sources: Vec<String>,
    #[serde(default, rename = "unsafe")]
    may_use_unsafe: bool,
    #[serde(default, rename = "environment")]
    may_read_environment: bool,
}

impl Layers {
    fn read(folder: &Path, workspace: &'static str) -> Result<Layers, String> {
        let layers: Layers = toml::from_str(&read(&folder.join("tables/layers.toml"))?)
            .map_err(|e| format!("{workspace}tables/layers.toml: {e}"))?;
        Ok(Layers { workspace, ..layers })
    }

    /// Checks the rows of `tables/layers.toml` against each other: each crate uses only crates of lower
    /// layers, and includes no files of higher layers.
    fn check_table(&self, findings: &mut Vec<String>) {
        let place = format!("{}tables/layers.toml", self.workspace);
        for (crate_name, rules) in &self.crates {
            for used in &rules.uses {
                match self.crates.get(used) {
                    None => findings.push(format!("{place}: {crate_name} uses {used}, which is no crate")),
                    Some(below) if below.layer >= rules.layer => findings.push(format!(
                        "{place}: {crate_name} (layer {}) uses {used} (layer {}): not lower",
                        rules.layer, below.layer
                    )),
                    Some(_) => {}
                }
            }
            for used in &rules.sources {
                if self.crates.get(used).is_none_or(|other| other.layer > rules.layer) {
                    findings.push(format!("{place}: {crate_name} takes in files of {used}, which is no crate of its layer or a lower one"));
                }
            }
        }
    }

    /// Checks that the table of layers has every dependency that a crate's manifest names, except
    /// dependencies of tests.
    fn check_manifest(
        &self,
        crate_name: &str,
        rules: &Rules,
        manifest: &str,
        findings: &mut Vec<String>,
    ) -> Result<(), String> {
        let parsed: toml::Table =
            toml::from_str(manifest).map_err(|e| format!("manifest of {crate_name}: {e}"))?;
        for section in ["dependencies", "build-dependencies"] {
            let names =
                parsed.get(section).and_then(|table| table.as_table()).into_iter().flat_map(|t| t.keys());
            for name in names.filter(|name| self.crates.contains_key(*name)) {
                if !rules.uses.contains(name) && !self.everywhere.contains(name) {
                    findings.push(format!(
                        "{}crates/{crate_name}/Cargo.toml: {crate_name} may not use {name} (tables/layers.toml)",
                        self.workspace
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Layers {
    /// Checks that a crate includes only its own files, and files of those crates of this workspace that the
    /// table of layers allows.
    fn check_sources(
        &self,
        crate_name: &str,
        rules: &Rules,
        manifest: &str,
        sources: &[&SourceFile],
        findings: &mut Vec<String>,
    ) -> Result<(), String> {
        let manifest = toml::from_str(manifest).map_err(|e| format!("manifest of {crate_name}: {e}"))?;
        let folder = Path::new(self.workspace).join("crates").join(crate_name);
        let mut found = edges::of_manifest(&folder, &manifest);
        let ours = sources.iter().filter(|source| source.crate_name() == Some(crate_name));
        found.extend(ours.flat_map(|source| edges::of_source(source)));
        let mut needed = BTreeSet::new();
        for edge in found {
            let (place, file) = (&edge.place, edge.file.display());
            let others = WORKSPACES.iter().filter(|other| other.len() > self.workspace.len());
            if !edge.file.starts_with(self.workspace)
                || others.into_iter().any(|other| edge.file.starts_with(other))
            {
                findings.push(format!("{place}: takes in {file} of another workspace"));
            }
            if let Some(other) = edge.crate_name(self.workspace).filter(|other| *other != crate_name) {
                needed.insert(other.to_owned());
                if !rules.sources.iter().any(|name| name == other) {
                    findings.push(format!(
                        "{place}: {crate_name} may not take in {file} (sources in {}tables/layers.toml)",
                        self.workspace
                    ));
                }
            }
        }
        for name in rules.sources.iter().filter(|name| !needed.contains(*name)) {
            findings.push(format!(
                "{}tables/layers.toml: {crate_name} takes in no file of {name}",
                self.workspace
            ));
        }
        Ok(())
    }
}

fn check_known_crate(layers: &Layers, source: &SourceFile, findings: &mut Vec<String>) {
    if let Some(crate_name) = source.crate_name()
        && !layers.crates.contains_key(crate_name)
    {
        findings.push(format!(
            "{}: crate {crate_name} is not in {}tables/layers.toml",
            source.path.display(),
            layers.workspace
        ));
    }
}

/// Checks that a crate that may not use `unsafe` has `forbid(unsafe_code)` in its library and in each of its
/// programs.
fn check_forbids_unsafe(
    crate_name: &str,
    rules: &Rules,
    sources: &[&SourceFile],
    findings: &mut Vec<String>,
) {
    let is_root = |source: &&&SourceFile| {
        let path = source.place();
        source.crate_name() == Some(crate_name)
            && (path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/"))
    };
    if rules.may_use_unsafe {
        return;
    }
    for source in sources.iter().filter(is_root) {
        let is_module = source.place().split('/').count() > 5;
        if !is_module && !source.text.contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{}: lacks #![forbid(unsafe_code)]", source.path.display()));
        }
    }
}

fn check_environment(layers: &Layers, source: &SourceFile, findings: &mut Vec<String>) {
    let Some(rules) = source.crate_name().and_then(|crate_name| layers.crates.get(crate_name)) else {
        return;
    };
    if rules.may_read_environment || source.crate_name() == Some("xtask") {
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

/// Finds words for unfinished work. The source code here joins each word from two strings, so that this file
/// does not contain the words.
fn check_words(source: &SourceFile, findings: &mut Vec<String>) {
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

/// Finds counters of `telemetry/src/counter.rs` that no code counts, so that they would always be 0.
fn check_counters(sources: &[SourceFile], findings: &mut Vec<String>) {
    let is_table = |source: &&SourceFile| source.path.ends_with("telemetry/src/counter.rs");
    let counts =
        |source: &&SourceFile| source.crate_name().is_some() && !is_table(source) && !is_viewer(source);
    let named =
        |line: &str, name: &str| line.split("Counter::").skip(1).any(|rest| leading_name(rest) == name);
    for (number, line) in sources.iter().filter(is_table).flat_map(SourceFile::lines) {
        let name = leading_name(line.trim_start());
        let is_row = line.ends_with("\";") && line.trim_start()[name.len()..].starts_with(" \"");
        if is_row
            && !sources.iter().filter(counts).flat_map(SourceFile::lines).any(|(_, line)| named(line, name))
        {
            findings.push(format!("crates/telemetry/src/counter.rs:{number}: nothing counts {name}"));
        }
    }
}

/// Whether the file belongs to a program that only shows counters. Such a file may name a counter that no
/// code counts.
fn is_viewer(source: &SourceFile) -> bool {
    source.path.starts_with("crates/programs/src/outboard")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        everywhere = ["sys"]
        [crates]
        top = { layer = 2, uses = ["leaf"] }
        leaf = { layer = 0, uses = [] }
        sys = { layer = 0, uses = [], unsafe = true }
    "#;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile::new(path, text.into())
    }

    #[test]
    fn an_edge_upwards_is_found() {
        let layers: Layers = toml::from_str(TABLE).unwrap();
        let mut findings = Vec::new();
        let manifest = "[dependencies]\ntop.workspace = true\nsys.workspace = true\nserde = '1'\n";
        layers.check_manifest("leaf", &layers.crates["leaf"], manifest, &mut findings).unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        let upwards: Layers = toml::from_str(&TABLE.replace("layer = 2", "layer = 0")).unwrap();
        findings.clear();
        upwards.check_table(&mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn a_file_of_a_crate_that_the_table_does_not_name_is_found() {
        let layers: Layers = toml::from_str(TABLE).unwrap();
        let mut findings = Vec::new();
        let taken = source("crates/leaf/src/lib.rs", "#[path = \"../../sys/src/a.rs\"]\nmod a;\n");
        let check = |rules: &Rules, findings: &mut Vec<String>| {
            layers.check_sources("leaf", rules, "", &[&taken], findings).unwrap();
        };
        check(&layers.crates["leaf"], &mut findings);
        assert_eq!(
            findings,
            [
                "crates/leaf/src/lib.rs:1: leaf may not take in crates/sys/src/a.rs (sources in tables/layers.toml)"
            ]
        );
        findings.clear();
        let named: Layers = toml::from_str(
            &TABLE.replace("uses = [] }\n        sys", "uses = [], sources = ['sys'] }\n        sys"),
        )
        .unwrap();
        check(&named.crates["leaf"], &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        let unneeded: Layers = toml::from_str(
            &TABLE.replace("uses = [] }\n        sys", "uses = [], sources = ['sys', 'top'] }\n        sys"),
        )
        .unwrap();
        check(&unneeded.crates["leaf"], &mut findings);
        unneeded.check_table(&mut findings);
        assert_eq!(findings.len(), 2, "one is not needed, and of a higher layer: {findings:?}");
    }

    #[test]
    fn a_crate_belongs_to_the_workspace_of_its_folder() {
        let inner = source("monitor/crates/leaf/src/lib.rs", "");
        assert_eq!((inner.workspace, inner.place()), ("monitor/", "crates/leaf/src/lib.rs"));
        assert_eq!(inner.crate_name(), Some("leaf"));
        let outer = source("crates/monitor/src/lib.rs", "");
        assert_eq!((outer.workspace, outer.crate_name()), ("", Some("monitor")));
    }

    #[test]
    fn environment_and_unsafe_are_found_in_crates_without_leave() {
        let layers: Layers = toml::from_str(TABLE).unwrap();
        let bad = source("crates/leaf/src/lib.rs", "fn f() { std::env::var(\"A\"); }");
        let mut findings = Vec::new();
        check_environment(&layers, &bad, &mut findings);
        check_forbids_unsafe("leaf", &layers.crates["leaf"], &[&bad], &mut findings);
        assert_eq!(findings.len(), 2, "{findings:?}");
        let test = source("crates/leaf/src/lib.rs", "#[cfg(test)]\nmod tests { env::var }");
        findings.clear();
        check_environment(&layers, &test, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
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
