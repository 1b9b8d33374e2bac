// SPDX-License-Identifier: BSD-3-Clause
//! Checks the names and the picture of layers in ARCHITECTURE.md and the pages of docs/internals against the
//! source code. Checks that ARCHITECTURE.md is short enough to be read in a quarter of an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::{SourceFile, leading_name, read};

/// The most words that ARCHITECTURE.md may have, so that it can be read in a quarter of an hour.
const WORDS_MAX: usize = 3000;
/// The most columns that a line of prose in ARCHITECTURE.md may have.
const COLUMNS_MAX: usize = 120;

/// Checks ARCHITECTURE.md and the pages of docs/internals of the repository at `root`. `layers` has the
/// number of each crate's layer.
pub fn check(
    root: &Path,
    layers: &BTreeMap<String, u32>,
    sources: &[SourceFile],
    findings: &mut Vec<String>,
) -> Result<(), String> {
    let text = read(&root.join("ARCHITECTURE.md"))?;
    check_length(&text, findings);
    check_picture(&text, layers, findings);
    check_names("ARCHITECTURE.md", &text, sources, findings);
    let folder = root.join("docs/internals");
    let pages = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut pages: Vec<_> = pages.filter_map(|page| page.ok()?.file_name().into_string().ok()).collect();
    pages.sort();
    for page in pages {
        check_names(&format!("docs/internals/{page}"), &read(&folder.join(&page))?, sources, findings);
    }
    Ok(())
}

/// Checks that ARCHITECTURE.md has few enough words (the bars of tables do not count), and that its lines are
/// short enough, except in tables and examples.
fn check_length(text: &str, findings: &mut Vec<String>) {
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    if words > WORDS_MAX {
        findings
            .push(format!("ARCHITECTURE.md: {words} words; it has {WORDS_MAX} at most, so that it is read"));
    }
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.starts_with(['|', ' ']) {
            findings.push(format!("ARCHITECTURE.md:{}: {columns} columns, of {COLUMNS_MAX}", number + 1));
        }
    }
}

/// Checks that the picture of layers in ARCHITECTURE.md agrees with `layers`. Each line of the picture begins
/// with a layer's number, and then names all crates of that layer.
fn check_picture(text: &str, layers: &BTreeMap<String, u32>, findings: &mut Vec<String>) {
    let mut drawn = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("    ")) {
        let mut words = line.split_whitespace();
        let Some(layer) = words.next().and_then(|word| word.parse::<u32>().ok()) else { continue };
        drawn
            .extend(words.take_while(|word| layers.contains_key(*word)).map(|name| (layer, name.to_owned())));
    }
    let known: BTreeSet<_> = layers.iter().map(|(name, layer)| (*layer, name.clone())).collect();
    for (layer, name) in known.symmetric_difference(&drawn) {
        let (here, there) = if drawn.contains(&(*layer, name.clone())) {
            ("ARCHITECTURE.md's picture", "tables/layers.toml")
        } else {
            ("tables/layers.toml", "ARCHITECTURE.md's picture")
        };
        findings.push(format!("{here} has {name} in layer {layer}, {there} has not"));
    }
}

/// Checks a page of documentation: each `name()` in backticks is a function of this repository, and each
/// `path.rs` is a file of it.
fn check_names(page: &str, text: &str, sources: &[SourceFile], findings: &mut Vec<String>) {
    let mut functions = BTreeSet::new();
    for source in sources.iter().filter(|source| source.place().starts_with("crates/")) {
        for rest in source.text.split("fn ").skip(1) {
            // A row of a table defines several functions, as in `pub fn send, isend(`.
            let names = rest.split(['(', '<']).next().unwrap_or_default();
            functions.extend(names.split(", ").map(|name| leading_name(name).to_string()));
        }
    }
    for (number, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            if let Some((path, _)) = quoted.split_once('(') {
                let name = path.rsplit([':', '.']).next().unwrap_or(path);
                if name.starts_with(char::is_lowercase)
                    && leading_name(name) == name
                    && !functions.contains(name)
                {
                    findings.push(format!("{page}:{}: no function {name}", number + 1));
                }
            } else if quoted.ends_with(".rs") && !sources.iter().any(|source| is_named(&source.path, quoted))
            {
                findings.push(format!("{page}:{}: no file {quoted}", number + 1));
            }
        }
    }
}

/// Whether a path in backticks means the file at `path`: `executor/memory.rs` means
/// `crates/executor/src/memory.rs`.
fn is_named(path: &Path, quoted: &str) -> bool {
    let path = path.to_string_lossy().replace("/src/", "/").replace("crates/", "");
    path == quoted.replace("/src/", "/") || path.ends_with(&format!("/{quoted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_architecture_must_exist() {
        let source = |path: &str, text: &str| SourceFile::new(path, text.into());
        let sources = [source("crates/executor/src/memory.rs", "pub fn reach(span: Span) {}")];
        let mut findings = Vec::new();
        check_names("A.md", "`memory::reach()` `executor/memory.rs` `MPI_X`", &sources, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        check_names("A.md", "`gone()`\n`executor/gone.rs`", &sources, &mut findings);
        assert_eq!(findings, ["A.md:1: no function gone", "A.md:2: no file executor/gone.rs"]);
    }

    #[test]
    fn the_picture_has_all_crates_in_their_layers() {
        let layers = BTreeMap::from([("top".to_owned(), 1), ("leaf".to_owned(), 0)]);
        let mut findings = Vec::new();
        check_picture(
            "    1    top    what stands above leaf\n         |\n    0    leaf\n",
            &layers,
            &mut findings,
        );
        assert!(findings.is_empty(), "{findings:?}");
        check_picture("    1    leaf   below\n", &layers, &mut findings);
        assert_eq!(findings.len(), 3, "{findings:?}");
    }

    #[test]
    fn a_page_that_is_too_long_is_found() {
        let mut findings = Vec::new();
        check_length(&"word\n".repeat(WORDS_MAX), &mut findings);
        check_length(&format!("| {}\n    {0}", "long ".repeat(40)), &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        check_length(&format!("{}\n{}", "word ".repeat(WORDS_MAX), "long".repeat(40)), &mut findings);
        assert_eq!(findings.len(), 3, "{findings:?}");
    }
}
