// SPDX-License-Identifier: BSD-3-Clause
//! Finds uses of one crate by another that no manifest shows as a dependency. A crate contains a file of
//! another crate by `#[path]`, `include!`, `include_str!` or `include_bytes!`, or as a target's `path` in its
//! manifest.

use super::rust::Rust;
use super::source::SourceFile;
use std::path::{Component, Path, PathBuf};

/// The texts by which a Rust file includes another file.
const WAYS: [&str; 4] = ["#[path = ", "include!(", "include_str!(", "include_bytes!("];

/// A file that a crate includes, and the place where it does so. Both paths begin at the repository's root.
pub struct Edge {
    /// The line that includes the file, as `file:line`.
    pub place: String,
    /// The file that is included.
    pub file: PathBuf,
}

/// Returns the files that a source file includes, except in its tests.
pub fn of_source(source: &SourceFile) -> Vec<Edge> {
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let rust = Rust::read(&source.text);
    let raw: Vec<&str> = source.text.lines().collect();
    let mut edges = Vec::new();
    for (number, code) in rust.lines() {
        if !WAYS.iter().any(|way| code.contains(way)) {
            continue;
        }
        // rustfmt may break a line before the name.
        let said = raw[number - 1..].iter().take(3).copied().collect::<Vec<_>>().join("\n");
        let place = format!("{}:{number}", source.path.display());
        match literals(&said)[..] {
            ["CARGO_MANIFEST_DIR", name, ..] => {
                // A crate's sources lie in crates/NAME/src.
                let depth = source.workspace.matches('/').count() + 2;
                let crate_folder: PathBuf = source.path.components().take(depth).collect();
                edges.push(Edge { place, file: plain(&crate_folder.join(name.trim_start_matches('/'))) });
            }
            [name, ..] => edges.push(Edge { place, file: plain(&folder.join(name)) }),
            [] => {}
        }
    }
    edges
}

/// Returns the files that a source file declares as modules by `#[path]`, each with the module's name. Test
/// modules are included.
pub fn modules(source: &SourceFile) -> Vec<(PathBuf, String)> {
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let rust = Rust::read(&source.text);
    let lines: Vec<(&str, &str)> = source.text.lines().zip(rust.code.iter().map(String::as_str)).collect();
    let mut modules = Vec::new();
    let by_path = lines.iter().enumerate().filter(|(_, (_, code))| code.contains("#[path = "));
    for (at, (said, _)) in by_path {
        let name = lines[at..].iter().find_map(|(_, code)| code.split("mod ").nth(1)?.strip_suffix(';'));
        if let (Some(path), Some(name)) = (literals(said).first(), name) {
            modules.push((plain(&folder.join(path)), name.trim().to_owned()));
        }
    }
    modules
}

/// Returns the source files that a Cargo manifest names as `path` of a library, program, example or test.
pub fn of_manifest(folder: &Path, manifest: &toml::Table) -> Vec<Edge> {
    let library = manifest.get("lib").into_iter();
    let others =
        ["bin", "example", "test"].into_iter().filter_map(|kind| manifest.get(kind)?.as_array()).flatten();
    let paths = library.chain(others).filter_map(|target| target.get("path")?.as_str());
    let place = folder.join("Cargo.toml").display().to_string();
    paths.map(|path| Edge { place: place.clone(), file: plain(&folder.join(path)) }).collect()
}

impl Edge {
    /// Returns the name of the crate to which the included file belongs. Returns None if it belongs to no
    /// crate of `workspace`.
    pub fn crate_name(&self, workspace: &str) -> Option<&str> {
        self.file.to_str()?.strip_prefix(workspace)?.strip_prefix("crates/")?.split('/').next()
    }
}

/// Returns the string literals in a text from the first place on at which one of `WAYS` (such as `include!(`)
/// stands.
fn literals(text: &str) -> Vec<&str> {
    let at = WAYS.iter().filter_map(|way| text.find(way)).min().unwrap_or(text.len());
    text[at..].split('"').skip(1).step_by(2).collect()
}

/// Returns the path without any `..` and without the folder before each `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str, text: &str) -> Vec<String> {
        let edges = of_source(&SourceFile::new(path, text.into()));
        edges.iter().map(|edge| format!("{} {}", edge.place, edge.file.display())).collect()
    }

    #[test]
    fn files_that_are_taken_in_are_found() {
        let path = "crates/leaf/src/a/b.rs";
        let text = "#[path = \"../../../top/src/c.rs\"]\nmod c;\nconst D: &str =\n    include_str!(\n    \"d.txt\");\n";
        assert_eq!(
            files(path, text),
            [format!("{path}:1 crates/top/src/c.rs"), format!("{path}:4 crates/leaf/src/a/d.txt")]
        );
        let from_manifest = "include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../top/e\"))";
        assert_eq!(files(path, from_manifest), [format!("{path}:1 crates/top/e")]);
        assert_eq!(
            files(&format!("monitor/{path}"), from_manifest),
            [format!("monitor/{path}:1 monitor/crates/top/e")]
        );
        assert!(
            files(path, "// include!(\"x\")\n#[cfg(test)]\nmod t { include!(\"../../../top/f\") }")
                .is_empty()
        );
    }

    #[test]
    fn a_target_of_a_manifest_is_found() {
        let manifest = toml::from_str("[lib]\npath = '../top/src/lib.rs'\n[[bin]]\nname = 'a'\n").unwrap();
        let edges = of_manifest(Path::new("crates/leaf"), &manifest);
        assert_eq!(edges.len(), 1);
        assert_eq!((edges[0].crate_name(""), edges[0].crate_name("monitor/")), (Some("top"), None));
    }
}
