// SPDX-License-Identifier: BSD-3-Clause
//! Checks that the modules of a crate do not use each other in a ring. Checks the same for the modules of
//! each folder in a crate.
//!
//! Module `x` is `x.rs` or the folder `x`, or the file of a `#[path]`. The folder's own file (`lib.rs`,
//! `main.rs`, `mod.rs`, or `x.rs` beside the folder `x`) is a module, too. A module uses another module if
//! its code names that module by `crate::` or `super::`, uses a name of that module that the folder's own
//! file exports again, or uses a macro of that module. Tests and the programs in `src/bin` are not checked.

use super::edges;
use super::rust::Rust;
use super::source::SourceFile;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

/// A row of tables/layers.toml that excuses a folder whose modules use each other in a ring, with the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingExcuse {
    folder: String,
    why: String,
}

/// A row of tables/layers.toml: a folder in which each subfolder may use only the subfolders that follow it
/// in `order`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderOrder {
    folder: String,
    order: Vec<String>,
}

impl FolderOrder {
    /// Adds a finding for each subfolder that uses a subfolder before it in `order`, and for each name that
    /// is only in `order` or only in `folders`.
    fn check(&self, folders: &BTreeSet<String>, uses: &Uses, findings: &mut Vec<String>) {
        let place = |name: &String| self.order.iter().position(|listed| listed == name);
        let listed: BTreeSet<String> = self.order.iter().cloned().collect();
        for name in listed.symmetric_difference(folders) {
            findings.push(format!(
                "tables/layers.toml: {name} stands only in the [[order]] of {0}, or only in the folder",
                self.folder
            ));
        }
        for (from, used) in uses {
            for (to, at) in used {
                if place(from).zip(place(to)).is_some_and(|(from, to)| to < from) {
                    findings
                        .push(format!("{}: {from} uses {to} ({at}), which stands before it", self.folder));
                }
            }
        }
    }
}

/// For each module of a folder: the other modules that it uses, each with the place of the first use
/// (`file:line`).
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// The name that stands in `Uses` for a folder's own file (such as `mod.rs`).
const OWN: &str = "mod";

/// Checks the modules of each crate. For every set of modules that use each other in a ring, adds a finding
/// with the shortest ring in the set.
pub fn check<'a>(
    workspace: &str,
    crates: impl Iterator<Item = &'a String>,
    excuses: &[RingExcuse],
    orders: &[FolderOrder],
    sources: &[&SourceFile],
    findings: &mut Vec<String>,
) {
    let mut needed = BTreeSet::new();
    for crate_name in crates {
        let files = without_tests(files(crate_name, sources));
        for folder in folders(&files) {
            let below = folder.iter().map(|part| format!("/{part}")).collect::<String>();
            let path = format!("{workspace}crates/{crate_name}/src{below}");
            let uses = uses(&folder, &files);
            if let Some(order) = orders.iter().find(|order| order.folder == path) {
                let subfolders = files.iter().filter(|file| file.module.starts_with(&folder));
                let subfolders = subfolders.filter(|file| file.has_folder_in(&folder));
                let names = subfolders.map(|file| file.module_in(&folder).to_owned()).collect();
                order.check(&names, &uses, findings);
            }
            let rings = rings(&uses);
            if excuses.iter().any(|excuse| excuse.folder == path) {
                needed.extend((!rings.is_empty()).then_some(path));
            } else {
                findings.extend(rings.iter().map(|ring| format!("{path}: ring of modules: {ring}")));
            }
        }
    }
    for RingExcuse { folder, why } in excuses {
        if !needed.contains(folder) {
            findings.push(format!(
                "{workspace}tables/layers.toml: {folder} has no ring of modules: take out its [[cycle]]"
            ));
        }
        if why.is_empty() {
            findings.push(format!("{workspace}tables/layers.toml: the [[cycle]] of {folder} lacks a reason"));
        }
    }
}

/// Returns the source files of a crate, and the files of other crates that it declares as its modules.
fn files(crate_name: &str, sources: &[&SourceFile]) -> Vec<ModuleFile> {
    let mut files: Vec<ModuleFile> =
        sources.iter().filter_map(|source| ModuleFile::of(crate_name, source)).collect();
    // A file that is placed by `#[path]` may place others.
    for _ in 0..4 {
        let placed: Vec<(PathBuf, Vec<String>)> = files.iter().flat_map(ModuleFile::placed).collect();
        for (path, module) in placed {
            if let Some(file) = files.iter_mut().find(|file| file.source == path) {
                file.module = module;
            } else if let Some(source) = sources.iter().find(|source| source.path == path) {
                files.push(ModuleFile::new(source, source.path.to_string_lossy().into_owned(), module));
            }
        }
    }
    files
}

/// Returns the files that do not belong to test modules.
fn without_tests(files: Vec<ModuleFile>) -> Vec<ModuleFile> {
    let tests: Vec<Vec<String>> = files.iter().flat_map(ModuleFile::test_modules).collect();
    let is_test = |file: &ModuleFile| tests.iter().any(|test| file.module.starts_with(test));
    files.into_iter().filter(|file| !is_test(file)).collect()
}

/// Returns the paths of the modules that contain modules. The path of the crate itself is empty.
fn folders(files: &[ModuleFile]) -> BTreeSet<Vec<String>> {
    files.iter().flat_map(|file| (0..file.module.len()).map(|depth| file.module[..depth].to_vec())).collect()
}

/// Finds for each module of a folder which other modules of the same folder it uses.
fn uses(folder: &[String], files: &[ModuleFile]) -> Uses {
    let ours = || files.iter().filter(|file| file.module.starts_with(folder));
    let mut homes: BTreeMap<String, String> = BTreeMap::new();
    for file in ours() {
        homes.extend(file.macros().map(|name| (name, file.module_in(folder).to_owned())));
    }
    for file in ours().filter(|file| file.module == folder) {
        homes.extend(file.exports());
    }
    let names = ours().map(|file| file.module_in(folder).to_owned());
    homes.extend(names.map(|name| (name.clone(), name)));
    let mut uses = Uses::new();
    for file in ours() {
        let module = file.module_in(folder);
        for (line, name) in file.names(folder, &homes) {
            let home = homes.get(&name).map_or(OWN, String::as_str);
            if home != module {
                let used = uses.entry(module.to_owned()).or_default();
                used.entry(home.to_owned()).or_insert_with(|| format!("{}:{line}", file.path));
            }
        }
    }
    uses
}

/// A source file of a crate, with the module that it defines.
struct ModuleFile {
    /// The path of the file from the repository's root.
    source: PathBuf,
    /// The path of the file after `src/`. For a file of another crate, the path from the repository's root.
    path: String,
    /// The path of the module in its crate. For `lib.rs` it is empty.
    module: Vec<String>,
    rust: Rust,
    /// The files that this file declares as modules by `#[path]`, each with the module's name.
    modules: Vec<(PathBuf, String)>,
}

impl ModuleFile {
    fn of(crate_name: &str, source: &SourceFile) -> Option<ModuleFile> {
        let path = source.place().strip_prefix(&format!("crates/{crate_name}/src/"))?;
        let mut module: Vec<String> = path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
        if module[0] == "bin" {
            return None;
        }
        let last = module.last().map(String::as_str);
        if last == Some("mod") || matches!(path, "lib.rs" | "main.rs") {
            module.pop();
        }
        Some(ModuleFile::new(source, path.to_owned(), module))
    }

    fn new(source: &SourceFile, path: String, module: Vec<String>) -> ModuleFile {
        let rust = Rust::read(&source.text);
        ModuleFile { source: source.path.clone(), path, module, rust, modules: edges::modules(source) }
    }

    /// Returns the files that this file declares as modules by `#[path]`, each with the module's path in the
    /// crate.
    fn placed(&self) -> impl Iterator<Item = (PathBuf, Vec<String>)> {
        let below = |name: &String| [self.module.as_slice(), std::slice::from_ref(name)].concat();
        self.modules.iter().map(move |(file, name)| (file.clone(), below(name)))
    }

    /// Returns the name of the module in `folder` to which the file belongs. It is `OWN` for the folder's own
    /// file.
    fn module_in(&self, folder: &[String]) -> &str {
        self.module.get(folder.len()).map_or(OWN, String::as_str)
    }

    /// Whether the file lies in a subfolder of `folder`.
    fn has_folder_in(&self, folder: &[String]) -> bool {
        self.path.split('/').count() > folder.len() + 1
    }

    /// Returns the paths of the modules that the file declares for tests only.
    fn test_modules(&self) -> impl Iterator<Item = Vec<String>> {
        let lines = self.rust.code.iter().zip(&self.rust.is_test).filter(|(_, is_test)| **is_test);
        lines.filter_map(|(line, _)| {
            let name = line.trim().trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?;
            Some([self.module.as_slice(), &[name.to_owned()]].concat())
        })
    }

    /// Returns the names of the macros that the file defines.
    fn macros(&self) -> impl Iterator<Item = String> {
        self.rust
            .lines()
            .filter_map(|(_, line)| Some(leading(line.split("macro_rules! ").nth(1)?).to_owned()))
    }

    /// Returns the names that this file exports again, each with the name of the module that defines it. The
    /// file is one that stands for a whole folder, such as `mod.rs`.
    fn exports(&self) -> Vec<(String, String)> {
        let text: String = self.rust.lines().map(|(_, line)| format!("{line}\n")).collect();
        let mut exports = Vec::new();
        for (at, _) in text.match_indices(" use ").filter(|(at, _)| is_export(&text[..*at])) {
            let path = text[at + 5..].split(';').next().unwrap_or_default();
            let path = path.trim_start_matches("crate::").trim_start_matches("self::");
            let module = leading(path);
            let leaves = path[module.len()..].split([',', '{', '}']).map(|leaf| leaf.trim());
            for leaf in
                leaves.filter_map(|leaf| leaf.rsplit([':', ' ']).next()).filter(|leaf| !leaf.is_empty())
            {
                exports.push((leaf.to_owned(), module.to_owned()));
            }
        }
        exports
    }

    /// Returns the names of items or modules of `folder` that the file uses, each with the number of its
    /// line.
    fn names(&self, folder: &[String], homes: &BTreeMap<String, String>) -> Vec<(usize, String)> {
        let (mut text, mut starts) = (String::new(), Vec::new());
        for (number, line) in self.rust.lines() {
            starts.push((text.len(), number));
            text.push_str(line);
            text.push('\n');
        }
        let number = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at) - 1].1;
        let mut names = Vec::new();
        for (at, path) in paths(&text) {
            names.extend(self.name_in(folder, &path).map(|name| (number(at), name)));
        }
        if self.module == folder {
            // Here a module may be named without `crate::`. An export is not a use.
            for (at, _) in text.match_indices("::") {
                let start = text[..at].rfind(|c| !is_word(c)).map_or(0, |found| found + 1);
                let statement = text[..start].rsplit([';', '}']).next().unwrap_or_default();
                if homes.contains_key(&text[start..at])
                    && !text[..start].ends_with(':')
                    && !exports(statement)
                {
                    names.push((number(at), text[start..at].to_owned()));
                }
            }
        }
        names
    }

    /// Returns the name that follows `folder` in a path that begins with `crate` or `super`. Returns None if
    /// the path does not lead through `folder`.
    fn name_in(&self, folder: &[String], path: &[&str]) -> Option<String> {
        let supers = path.iter().take_while(|part| **part == "super").count();
        let is_absolute = path[0] == "crate";
        let base = if is_absolute { 0 } else { self.module.len().checked_sub(supers)? };
        let rest = &path[if is_absolute { 1 } else { supers }..];
        let mut whole = self.module[..base].iter().map(String::as_str).chain(rest.iter().copied());
        let leads_there = folder.iter().all(|part| whole.next() == Some(part));
        // A path of several `super` may end in a folder above this one.
        let name = whole.next()?;
        (leads_there && base <= folder.len()).then(|| name.to_owned())
    }
}

/// Returns the Rust paths in a text that begin with `crate` or `super`, and the position of each. A group
/// `{a, b}` becomes several paths.
fn paths(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("crate::").chain(text.match_indices("super::")) {
        let before = &text[..at];
        let is_longer = before.ends_with("::") || before.ends_with(is_word);
        if !is_longer && !before.ends_with("in ") {
            walk(text, at, &mut Vec::new(), &mut paths);
        }
    }
    paths
}

/// Reads the Rust path or the group of paths that begins at `at`, and adds what it has read to `paths`.
/// Returns the position behind that path or group.
fn walk<'a>(
    text: &'a str,
    mut at: usize,
    before: &mut Vec<&'a str>,
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let known = before.len();
    let start = at;
    loop {
        if text[at..].starts_with('{') {
            at += 1;
            loop {
                at += text[at..].find(|c: char| !c.is_whitespace() && c != ',').unwrap_or(text.len() - at);
                match text[at..].chars().next() {
                    Some('}') => break at += 1,
                    Some(letter) if is_word(letter) => at = walk(text, at, before, paths),
                    Some(letter) => at += letter.len_utf8(),
                    None => break,
                }
            }
            break;
        }
        let name = leading(&text[at..]);
        at += name.len();
        if !name.is_empty() && name != "self" {
            before.push(name);
        }
        if !text[at..].starts_with("::") {
            paths.push((start, before.clone()));
            break;
        }
        at += 2;
    }
    before.truncate(known);
    at
}

/// Whether a `use` statement that follows the text `before` exports its names, as `pub use` does.
fn is_export(before: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
    word.starts_with("pub")
}

fn exports(statement: &str) -> bool {
    statement.split(" use ").next().is_some_and(is_export) && statement.contains(" use ")
}

/// Returns the shortest ring of each set of modules that use each other directly or indirectly, as text.
fn rings(uses: &Uses) -> Vec<String> {
    let mut rings: Vec<String> = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut found: Vec<Vec<&str>> = uses.keys().filter_map(|module| ring(uses, module)).collect();
    found.sort_by_key(Vec::len);
    for ring in found {
        if ring.iter().any(|module| done.contains(module)) {
            continue;
        }
        let members: Vec<&str> =
            uses.keys().map(String::as_str).filter(|m| together(uses, ring[0], m)).collect();
        done.extend(&members);
        let steps: Vec<String> = (0..ring.len())
            .map(|at| (ring[at], ring[(at + 1) % ring.len()]))
            .map(|(from, to)| format!("{from} -> {to} ({})", uses[from][to]))
            .collect();
        rings.push(format!("{} (of {} modules)", steps.join(", "), members.len()));
    }
    rings
}

/// Whether modules `a` and `b` use each other directly or indirectly, so that they lie on a common ring.
fn together(uses: &Uses, a: &str, b: &str) -> bool {
    a == b || (path(uses, a, b).is_some() && path(uses, b, a).is_some())
}

/// Returns a shortest ring of uses through a module, or None if the module lies on no ring.
fn ring<'a>(uses: &'a Uses, module: &'a str) -> Option<Vec<&'a str>> {
    path(uses, module, module)
}

/// Returns a shortest chain of uses from one module to another, without the last module. Returns None if
/// there is no chain.
fn path<'a>(uses: &'a Uses, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(module) = queue.pop_front() {
        for next in uses.get(module).into_iter().flat_map(|used| used.keys()) {
            if next == to {
                let mut way = vec![module];
                while way[way.len() - 1] != from {
                    way.push(came_from[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            if next != from && !came_from.contains_key(next.as_str()) {
                came_from.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}

fn leading(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        found_but(&[], files)
    }

    fn found_but(excuses: &[RingExcuse], files: &[(&str, &str)]) -> Vec<String> {
        let source = |(path, text): &(&str, &str)| {
            let path = match path.strip_prefix("../../") {
                Some(elsewhere) => format!("crates/{elsewhere}"),
                None => format!("crates/leaf/src/{path}"),
            };
            SourceFile::new(path, (*text).into())
        };
        let sources: Vec<SourceFile> = files.iter().map(source).collect();
        let sources: Vec<&SourceFile> = sources.iter().collect();
        let mut findings = Vec::new();
        check("", [String::from("leaf")].iter(), excuses, &[], &sources, &mut findings);
        findings
    }

    #[test]
    fn a_ring_is_printed() {
        let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
        let ring = found(&[
            lib,
            ("a.rs", "use crate::{b::B, std::X};"),
            ("b/mod.rs", ""),
            ("b/d.rs", "\nfn f() { super::super::c::g() }"),
            ("c.rs", "use super::a;"),
        ]);
        assert_eq!(
            ring,
            [
                "crates/leaf/src: ring of modules: a -> b (a.rs:1), b -> c (b/d.rs:2), c -> a (c.rs:1) (of 3 modules)"
            ]
        );
        let way =
            [lib, ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C; use super::c;"), ("c.rs", "")];
        assert!(found(&way).is_empty());
    }

    #[test]
    fn what_lies_in_the_library_is_a_module_and_what_it_exports_is_not() {
        let exports = [("lib.rs", "mod a;\npub use a::{A, x::Y};\n"), ("a.rs", "use crate::Y;")];
        assert!(found(&exports).is_empty(), "{:?}", found(&exports));
        let owns = [("lib.rs", "mod a;\nuse a::A;\npub struct Y(A);\n"), ("a.rs", "use crate::Y;")];
        assert_eq!(found(&owns).len(), 1);
        let macros = [
            ("lib.rs", "#[macro_use]\nmod a;\nmod b;\n"),
            ("a.rs", "macro_rules! m {}\nuse crate::b;"),
            ("b.rs", "crate::m!()"),
        ];
        assert_eq!(found(&macros).len(), 1);
    }

    #[test]
    fn a_use_against_the_order_of_folders_is_found() {
        let files = [
            ("lib.rs", "mod top;\nmod low;\nmod own;\n"),
            ("top/mod.rs", "use crate::low::f;"),
            ("low/mod.rs", "mod g;"),
            ("low/g.rs", "use crate::own;"),
            ("own.rs", ""),
        ];
        let source =
            |(path, text): &(&str, &str)| SourceFile::new(format!("crates/leaf/src/{path}"), (*text).into());
        let sources: Vec<SourceFile> = files.iter().map(source).collect();
        let sources: Vec<&SourceFile> = sources.iter().collect();
        let found = |order: &[&str]| {
            let order = order.iter().map(|name| (*name).to_owned()).collect();
            let orders = [FolderOrder { folder: "crates/leaf/src".into(), order }];
            let mut findings = Vec::new();
            check("", [String::from("leaf")].iter(), &[], &orders, &sources, &mut findings);
            findings
        };
        assert!(found(&["top", "low"]).is_empty());
        let against = found(&["low", "top"]);
        assert_eq!(against, ["crates/leaf/src: top uses low (top/mod.rs:1), which stands before it"]);
        assert_eq!(found(&["top", "low", "gone"]).len(), 1);
        assert_eq!(found(&["top"]).len(), 1);
    }

    #[test]
    fn a_ring_inside_a_folder_is_found() {
        let lib = ("lib.rs", "mod a;\nmod b;\n");
        let files = [
            lib,
            ("a/mod.rs", "mod x;\nmod y;\npub use y::Y;\n"),
            ("a/x.rs", "use crate::{a::y::Y, b};"),
            ("a/y.rs", "fn f() { super::{z::g, x::h}() }"),
            ("b.rs", ""),
        ];
        let ring = "crates/leaf/src/a: ring of modules: x -> y (a/x.rs:1), y -> x (a/y.rs:1) (of 2 modules)";
        assert_eq!(found(&files), [ring]);
        let exported = [lib, files[1], ("a/x.rs", "use super::Y;"), ("a/y.rs", "use crate::a::x;")];
        assert_eq!(found(&exported), [ring]);
        let own = [lib, ("a/mod.rs", "mod x;\nfn f() { x::g() }"), ("a/x.rs", "use super::f;")];
        assert_eq!(found(&own).len(), 1);
        let way = [lib, files[1], ("a/x.rs", "use super::y; use super::super::b;"), ("a/y.rs", ""), files[4]];
        assert!(found(&way).is_empty(), "{:?}", found(&way));
        let excuse = |why: &str| [RingExcuse { folder: "crates/leaf/src/a".into(), why: why.into() }];
        assert!(found_but(&excuse("a"), &files).is_empty());
        assert_eq!(found_but(&excuse(""), &files).len(), 1, "without a reason");
        assert_eq!(found_but(&excuse("a"), &way).len(), 1, "needed no more");
    }

    #[test]
    fn a_module_is_where_its_path_says() {
        let lib = ("lib.rs", "mod a;\n#[path = \"x/y.rs\"]\nmod b;\n");
        let files = [lib, ("a.rs", "use crate::b::B;"), ("x/y.rs", "use super::a;")];
        let ring = "crates/leaf/src: ring of modules: a -> b (a.rs:1), b -> a (x/y.rs:1) (of 2 modules)";
        assert_eq!(found(&files), [ring]);
        let elsewhere = ("lib.rs", "mod a;\n#[path = \"../../top/src/c.rs\"]\nmod c;\n");
        let files = [elsewhere, ("a.rs", "use crate::c::C;"), ("../../top/src/c.rs", "use crate::a;")];
        let ring = "crates/leaf/src: ring of modules: a -> c (a.rs:1), c -> a (crates/top/src/c.rs:1) (of 2 modules)";
        assert_eq!(found(&files), [ring]);
    }

    #[test]
    fn tests_are_free() {
        let files = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod bench;\n"),
            ("a.rs", "#[cfg(test)]\nmod tests { use crate::bench; }"),
            ("bench.rs", "use crate::a;"),
        ];
        assert!(found(&files).is_empty());
        let elsewhere = ("a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;");
        let placed = [
            ("lib.rs", "mod a;\nmod b;\n"),
            elsewhere,
            ("a_tests.rs", "use crate::b;"),
            ("b.rs", "use crate::a;"),
        ];
        assert!(found(&placed).is_empty());
    }
}
