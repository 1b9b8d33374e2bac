// SPDX-License-Identifier: BSD-3-Clause
//! Checks the names of types in both workspaces. A name says little if types in many crates have it, so such
//! a name needs a row with a reason in `tables/names.toml`. Types of tests and of generated files are not
//! checked.

use super::rust::Rust;
use super::sizes::is_qualifier;
use super::source::{SourceFile, leading_name};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The contents of `tables/names.toml`: how many crates may have a type of the same name, and the exceptions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// The most crates that may have a type of the same name. If more crates have one, the name needs a
    /// reason.
    crates_max: usize,
    /// The names that types of more than `crates_max` crates may have, each with the reason.
    types: BTreeMap<String, String>,
}

/// For each name of a type: the folders of the crates that define a type of this name.
type Homes = BTreeMap<String, BTreeSet<String>>;

impl Names {
    /// Adds findings about the names of types in `sources`, and about wrong rows of `tables/names.toml`.
    pub fn check(&self, sources: &[&SourceFile], findings: &mut Vec<String>) {
        let homes = homes(sources);
        self.check_types(&homes, findings);
        self.check_table(&homes, findings);
    }

    fn check_types(&self, homes: &Homes, findings: &mut Vec<String>) {
        for (name, folders) in homes {
            if folders.len() > self.crates_max && !self.types.contains_key(name) {
                let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
                findings.push(format!(
                    "type {name} is in {} crates, of {}: {} (rename some, or give a reason in tables/names.toml)",
                    folders.len(),
                    self.crates_max,
                    folders.join(", ")
                ));
            }
        }
    }

    /// Adds a finding for each row of `tables/names.toml` that lacks a reason or is not needed.
    fn check_table(&self, homes: &Homes, findings: &mut Vec<String>) {
        for (name, why) in &self.types {
            if homes.get(name).is_none_or(|folders| folders.len() <= self.crates_max) {
                findings.push(format!(
                    "tables/names.toml: {name} is in no more than {} crates and needs no row",
                    self.crates_max
                ));
            }
            if why.is_empty() {
                findings.push(format!("tables/names.toml: {name} lacks a reason"));
            }
        }
    }
}

/// Returns the folder of the crate to which a Rust file (source or test) belongs, from the repository's root.
/// Returns None for other files.
pub fn folder(source: &SourceFile) -> Option<String> {
    let mut parts = source.place().split('/');
    let is_crate = parts.next() == Some("crates") && source.path.extension().is_some_and(|end| end == "rs");
    is_crate.then(|| parts.next().map(|name| format!("{}crates/{name}", source.workspace)))?
}

fn homes(sources: &[&SourceFile]) -> Homes {
    let mut homes = Homes::new();
    for source in sources.iter().filter(|source| source.crate_name().is_some()) {
        let Some(folder) = folder(source) else { continue };
        for name in types(&Rust::read(&source.text)) {
            homes.entry(name).or_default().insert(folder.clone());
        }
    }
    homes
}

/// Returns the names of the types that a file defines, without the associated types of an `impl` or a trait.
fn types(rust: &Rust) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut block_end = 0;
    for (number, line) in rust.lines() {
        let mut words = line.split_whitespace().skip_while(|word| is_qualifier(word));
        let Some(word) = words.next() else { continue };
        let is_new = match word {
            "struct" | "enum" | "union" | "trait" => true,
            "type" => number > block_end,
            _ => false,
        };
        let name = leading_name(words.next().unwrap_or_default());
        if is_new && name.starts_with(char::is_uppercase) {
            names.insert(name.to_owned());
        }
        if word == "trait" || leading_name(word) == "impl" {
            block_end = block_end.max(rust.end(number - 1) + 1);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &str) -> Names {
        toml::from_str(&format!("crates_max = 1\n{table}")).unwrap()
    }

    fn sources() -> Vec<SourceFile> {
        let of = |path: &str| SourceFile::new(path, "pub(crate) struct Kind<T>(T);\n".into());
        vec![of("crates/a/src/lib.rs"), of("monitor/crates/a/src/lib.rs"), of("crates/c/tests/t.rs")]
    }

    fn found(table: &str) -> Vec<String> {
        let mut findings = Vec::new();
        names(table).check(&sources().iter().collect::<Vec<_>>(), &mut findings);
        findings
    }

    #[test]
    fn a_name_in_many_crates_needs_a_row_with_a_reason() {
        let findings = found("[types]\n");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("type Kind is in 2 crates, of 1: crates/a, monitor/crates/a ("));
        assert!(found("[types]\nKind = 'it has one meaning'\n").is_empty());
        assert_eq!(found("[types]\nKind = ''\n"), ["tables/names.toml: Kind lacks a reason"]);
    }

    #[test]
    fn a_row_that_is_not_needed_is_found() {
        let findings = found("[types]\nKind = 'a'\nOther = 'a'\n");
        assert_eq!(findings, ["tables/names.toml: Other is in no more than 1 crates and needs no row"]);
    }

    #[test]
    fn types_of_all_kinds_are_known() {
        let text = "pub(in crate::x) enum A {}\nunsafe trait B {\n    type Item;\n}\npub type C = u8;\nunion D {}\n\
                    impl<T> B for A {\n    type Item = u8;\n    fn f() {\n        struct E;\n    }\n}\n\
                    type F = u8;\n// struct G;\nstruct $name;\nstruct lower;\n#[cfg(test)]\nmod tests {\n    struct H;\n}\n";
        let names = types(&Rust::read(text));
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["A", "B", "C", "D", "E", "F"]);
    }
}
