// SPDX-License-Identifier: BSD-3-Clause
//! Checks the lengths of lines, functions, files and comments, with the bounds and exceptions in
//! `tables/sizes.toml`.
//!
//! Generated files are not checked. Tests have the same bounds as other code.

use super::rust::Rust;
use super::source::SourceFile;
use serde::Deserialize;
use std::collections::BTreeSet;

/// The contents of `tables/sizes.toml`: bounds for lengths in source files, and exceptions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    line_columns: usize,
    function_lines: usize,
    file_lines: usize,
    head_lines: usize,
    comment_lines: usize,
    generated: BTreeSet<String>,
    /// The crates whose lengths are not checked yet.
    #[serde(default)]
    unchecked: BTreeSet<String>,
    #[serde(default)]
    exception: Vec<Exception>,
}

/// A file or a function that may be longer than the bounds allow, and the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    path: String,
    /// The name of the function that may be longer. None if the whole file may be longer.
    function: Option<String>,
    why: String,
}

impl Sizes {
    pub fn check(&self, sources: &[SourceFile], findings: &mut Vec<String>) {
        let mut used = BTreeSet::new();
        for source in sources {
            let path = source.path.to_string_lossy().into_owned();
            let mut parts = source.place().split('/');
            if parts.next() != Some("crates") || !path.ends_with(".rs") || self.generated.contains(&path) {
                continue;
            }
            if parts.next().is_some_and(|name| self.unchecked.contains(name)) {
                continue;
            }
            let rust = Rust::read(&source.text);
            self.check_lengths(&path, &rust, &mut used, findings);
            self.check_comments(&path, &source.text, &rust, findings);
        }
        for (at, exception) in self.exception.iter().enumerate() {
            let what = exception.function.as_deref().unwrap_or("the file");
            if !used.contains(&at) {
                findings.push(format!("tables/sizes.toml: {}: {what} needs no exception", exception.path));
            }
            if exception.why.is_empty() {
                findings.push(format!("tables/sizes.toml: {}: {what} lacks a reason", exception.path));
            }
        }
    }

    /// Returns the files that people have written, which are the files that are not generated.
    pub fn written<'a>(&self, sources: &'a [SourceFile]) -> Vec<&'a SourceFile> {
        let is_generated = |source: &&SourceFile| self.generated.contains(&*source.path.to_string_lossy());
        sources.iter().filter(|source| !is_generated(source)).collect()
    }

    fn check_lengths(&self, path: &str, rust: &Rust, used: &mut BTreeSet<usize>, findings: &mut Vec<String>) {
        let mut excuse = |function: Option<&str>| {
            let found =
                self.exception.iter().position(|e| e.path == path && e.function.as_deref() == function);
            used.extend(found);
            found.is_some()
        };
        let lines = rust.code.len();
        if lines > self.file_lines && !excuse(None) {
            findings.push(format!("{path}: {lines} lines; a file has {} at most", self.file_lines));
        }
        for (first, name) in functions(rust) {
            let lines = rust.end(first) - first + 1;
            if lines > self.function_lines && !excuse(Some(name)) {
                findings.push(format!(
                    "{path}:{}: fn {name} has {lines} lines; a function has {} at most",
                    first + 1,
                    self.function_lines
                ));
            }
        }
    }

    fn check_comments(&self, path: &str, text: &str, rust: &Rust, findings: &mut Vec<String>) {
        let below_licence = text.lines().skip_while(|line| line.starts_with("// SPDX-"));
        let head = below_licence.take_while(|line| line.starts_with("//!")).count();
        if head > self.head_lines {
            findings.push(format!("{path}: a head of {head} lines; it has {} at most", self.head_lines));
        }
        let (mut run, mut is_contract) = (0, false);
        for (at, (line, code)) in text.lines().zip(&rust.code).enumerate() {
            // rustfmt keeps code to the width, except strings, which it may not break.
            let is_string = !code.contains("//") && (code.contains('"') || code.trim().is_empty());
            let columns = line.chars().count();
            if columns > self.line_columns && !is_string {
                findings.push(format!(
                    "{path}:{}: {columns} columns; a line has {} at most",
                    at + 1,
                    self.line_columns
                ));
            }
            // A SAFETY comment may be as long as its contract.
            let is_plain = code.trim_start().starts_with("//") && !is_doc(line) && line.starts_with(' ');
            is_contract = is_plain && (is_contract || line.contains("// SAFETY:"));
            run = if is_plain && !is_contract { run + 1 } else { 0 };
            if run == self.comment_lines + 1 {
                findings.push(format!(
                    "{path}:{}: a comment inside code has {} lines at most",
                    at + 1,
                    self.comment_lines
                ));
            }
        }
    }
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

/// Returns the functions that have a body: for each the number of its first line, from 0, and its name.
fn functions(rust: &Rust) -> impl Iterator<Item = (usize, &str)> {
    rust.code.iter().enumerate().filter_map(|(at, line)| {
        let (before, name) = line.split_once("fn ")?;
        let is_item = before.split_whitespace().all(is_qualifier);
        let name = &name[..name.find(|c: char| !c.is_alphanumeric() && c != '_')?];
        (is_item && !name.is_empty()).then_some((at, name))
    })
}

/// Whether the word may stand before `fn` or `struct` in a definition.
pub fn is_qualifier(word: &str) -> bool {
    ["pub", "const", "unsafe", "async", "extern", "\"", "in"].contains(&word)
        || word.starts_with("pub(")
        || word.starts_with('"')
        || word.ends_with(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        line_columns = 40
        function_lines = 3
        file_lines = 12
        head_lines = 1
        comment_lines = 1
        generated = ["crates/leaf/src/made.rs"]
        unchecked = ["other"]
    "#;

    fn found(table: &str, path: &str, text: &str) -> Vec<String> {
        let sizes: Sizes = toml::from_str(table).unwrap();
        let mut findings = Vec::new();
        sizes.check(&[SourceFile::new(path, text.into())], &mut findings);
        findings
    }

    #[test]
    fn lengths_are_bounded_but_for_exceptions_with_a_reason() {
        let long =
            "fn short() {}\npub(crate) extern \"C\" fn long() {\n\n\n}\nfn declared();\n\n\n\n\n\n\n\n";
        let path = "crates/leaf/src/a.rs";
        assert_eq!(
            found(TABLE, path, long),
            [
                "crates/leaf/src/a.rs: 13 lines; a file has 12 at most",
                "crates/leaf/src/a.rs:2: fn long has 4 lines; a function has 3 at most",
            ]
        );
        let row = |rest: &str| format!("[[exception]]\npath = {path:?}\n{rest}\n");
        let excused = [TABLE, &row("why = 'a'"), &row("function = 'long'\nwhy = 'a'")].concat();
        assert!(found(&excused, path, long).is_empty());
        assert_eq!(found(&excused, path, "").len(), 2, "exceptions that nothing needs");
        assert!(found(TABLE, "crates/leaf/src/made.rs", long).is_empty());
    }

    #[test]
    fn comments_are_bounded_where_they_are_checked() {
        let wide = format!("// {}\n{}\nlet a = \"{}\";\n", "x".repeat(40), "y".repeat(41), "z".repeat(41));
        let text = format!("//! a\n//! b\n{wide} // a\n // b\n // SAFETY: a\n // b\n // c\n");
        let findings = found(TABLE, "crates/leaf/src/a.rs", &text);
        let lines: Vec<&str> = findings.iter().map(|f| f.split(": ").next().unwrap()).collect();
        let expected = ["", ":3", ":4", ":7"].map(|line| format!("crates/leaf/src/a.rs{line}"));
        assert_eq!(lines, expected, "{findings:?}");
        assert!(found(TABLE, "crates/other/src/a.rs", &text).is_empty());
    }
}
