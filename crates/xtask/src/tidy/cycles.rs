//! The top-level modules of a crate have no ring.
//!
//! Module `x` is `src/x.rs` or the folder `src/x`; module `lib` is `lib.rs` (or `main.rs`). A module uses
//! another where its code names `crate::other`, a name of it that `lib.rs` exports again, or a macro that it
//! defines. Tests and the programs in `src/bin` are free.

use super::Source;
use super::rust::Rust;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// From a module to those that it uses, each with the place of the first use.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// One finding for every set of modules that use each other: the shortest ring in it.
pub fn check(crate_name: &str, excused: bool, sources: &[Source], findings: &mut Vec<String>) {
    let rings = rings(&uses(crate_name, sources));
    if excused && rings.is_empty() {
        findings.push(format!(
            "tables/layers.toml: {crate_name} has no ring of modules any more: take out `cycles`"
        ));
    }
    if !excused {
        findings.extend(rings.iter().map(|ring| format!("crates/{crate_name}/src: ring of modules: {ring}")));
    }
}

/// Which module uses which.
fn uses(crate_name: &str, sources: &[Source]) -> Uses {
    let ours: Vec<File> = sources.iter().filter_map(|source| File::of(crate_name, source)).collect();
    let mut test_modules = BTreeSet::new();
    let mut homes: BTreeMap<String, String> = BTreeMap::new();
    for file in ours.iter().filter(|file| file.module == "lib") {
        test_modules.extend(file.test_modules());
    }
    let ours: Vec<File> = ours.into_iter().filter(|file| !test_modules.contains(&file.module)).collect();
    for file in &ours {
        homes.extend(file.macros().map(|name| (name, file.module.clone())));
    }
    for file in ours.iter().filter(|file| file.module == "lib") {
        homes.extend(file.exports());
    }
    homes.extend(ours.iter().map(|file| (file.module.clone(), file.module.clone())));
    let mut uses = Uses::new();
    for file in &ours {
        for (line, name) in file.names(&homes) {
            let home = homes.get(&name).map_or("lib", String::as_str);
            if home != file.module {
                let used = uses.entry(file.module.clone()).or_default();
                used.entry(home.to_owned()).or_insert_with(|| format!("{}:{line}", file.path));
            }
        }
    }
    uses
}

/// A file of the crate.
struct File {
    /// The path from `src/` on.
    path: String,
    module: String,
    /// How many `super` lead to the crate's root.
    depth: usize,
    rust: Rust,
}

impl File {
    fn of(crate_name: &str, source: &Source) -> Option<File> {
        let path = source.path.to_str()?.strip_prefix(&format!("crates/{crate_name}/src/"))?;
        let parts: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
        let module = match parts[0] {
            "bin" => return None,
            "lib" | "main" => "lib",
            name => name,
        };
        let is_folder = parts.last() == Some(&"mod") || module == "lib";
        Some(File {
            path: path.to_owned(),
            module: module.to_owned(),
            depth: parts.len() - usize::from(is_folder),
            rust: Rust::read(&source.text),
        })
    }

    /// The modules that `lib.rs` has for tests only.
    fn test_modules(&self) -> impl Iterator<Item = String> {
        let lines = self.rust.code.iter().zip(&self.rust.is_test).filter(|(_, is_test)| **is_test);
        lines.filter_map(|(line, _)| {
            Some(line.trim().trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
        })
    }

    /// The macros that the file defines.
    fn macros(&self) -> impl Iterator<Item = String> {
        self.rust
            .lines()
            .filter_map(|(_, line)| Some(leading(line.split("macro_rules! ").nth(1)?).to_owned()))
    }

    /// The names that `lib.rs` exports again, each with its module.
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

    /// The names that follow the crate's root in paths, with their lines.
    fn names(&self, homes: &BTreeMap<String, String>) -> Vec<(usize, String)> {
        let (mut text, mut starts) = (String::new(), Vec::new());
        for (number, line) in self.rust.lines() {
            starts.push((text.len(), number));
            text.push_str(line);
            text.push('\n');
        }
        let number = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at) - 1].1;
        let mut names = Vec::new();
        let supers = "super::".repeat(self.depth);
        let roots = ["crate::", &supers].into_iter().filter(|root| !root.is_empty());
        for (at, root) in roots.flat_map(|root| text.match_indices(root)) {
            let before = &text[..at];
            let is_longer = before.ends_with("super::") || before.ends_with(is_word);
            let rest = &text[at + root.len()..];
            if is_longer || before.ends_with("in ") || rest.starts_with("super::") {
                continue;
            }
            names.extend(heads(rest).into_iter().map(|name| (number(at), name)));
        }
        if self.module == "lib" {
            // Here a module may be named without `crate::`. An export is no use.
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
}

/// Whether what stands before `use` makes it an export.
fn is_export(before: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
    word.starts_with("pub")
}

fn exports(statement: &str) -> bool {
    statement.split(" use ").next().is_some_and(is_export) && statement.contains(" use ")
}

/// The first names of a path or of a group of paths: `a` and `c` of `{a::b, c::{d, e}}`.
fn heads(text: &str) -> Vec<String> {
    if !text.starts_with('{') {
        return vec![leading(text).to_owned()];
    }
    let (mut depth, mut heads, mut is_head) = (0, Vec::new(), false);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (letter == '{' || letter == ',') {
            is_head = true;
        } else if is_head && is_word(letter) {
            heads.push(leading(&text[at..]).to_owned());
            is_head = false;
        }
    }
    heads
}

/// For each set of modules that reach each other, the shortest ring, as text.
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

/// Whether two modules lie on a common ring.
fn together(uses: &Uses, a: &str, b: &str) -> bool {
    a == b || (path(uses, a, b).is_some() && path(uses, b, a).is_some())
}

/// A shortest ring through a module.
fn ring<'a>(uses: &'a Uses, module: &'a str) -> Option<Vec<&'a str>> {
    path(uses, module, module)
}

/// The shortest way from one module to another, without the last.
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
        let source = |(path, text): &(&str, &str)| Source {
            path: format!("crates/leaf/src/{path}").into(),
            text: (*text).into(),
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        let mut findings = Vec::new();
        check("leaf", false, &sources, &mut findings);
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
    fn tests_are_free() {
        let files = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod bench;\n"),
            ("a.rs", "#[cfg(test)]\nmod tests { use crate::bench; }"),
            ("bench.rs", "use crate::a;"),
        ];
        assert!(found(&files).is_empty());
    }
}
