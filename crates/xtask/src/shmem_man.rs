// SPDX-License-Identifier: BSD-3-Clause
//! Writes the manual pages of OpenSHMEM's functions (section 3) from `tables/shmem.json` and
//! `tables/shmem_man.toml`. A page describes the forms of a function for all types. The page of the form for
//! one type is a link to it.

use crate::man::escaped;
use crate::shmem::{Api, Family, ShmemFunction};
use crate::table;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The contents of `tables/shmem_man.toml`: texts for the manual pages of OpenSHMEM's functions.
#[derive(Deserialize)]
struct ShmemManTable {
    parameters: BTreeMap<String, String>,
    pages: BTreeMap<String, String>,
    more: BTreeMap<String, String>,
}

/// Returns the name of the manual page that describes the functions of a row of `tables/shmem.json`.
fn page_of(family: &Family) -> String {
    family.name.replace('@', "").replace("__", "_").trim_end_matches('_').to_owned()
}

/// Makes the manual pages of all OpenSHMEM functions. Returns the name and the text of each file.
pub fn pages(root: &Path) -> Result<Vec<(String, String)>, String> {
    let api = Api::read(root)?;
    let words: ShmemManTable = table::toml(root, "shmem_man.toml")?;
    let mut families: BTreeMap<String, Vec<Vec<ShmemFunction>>> = BTreeMap::new();
    for family in &api.functions {
        families.entry(page_of(family)).or_default().push(api.of(family)?);
    }
    let unknown = words.pages.keys().chain(words.more.keys()).find(|name| !families.contains_key(*name));
    if let Some(name) = unknown {
        return Err(format!("tables/shmem_man.toml: no row of tables/shmem.json has the page {name}"));
    }
    let mut pages = BTreeMap::new();
    for (name, rows) in &families {
        for function in rows.iter().flatten() {
            pages.insert(format!("{}.3", function.name), format!(".so man3/{name}.3\n"));
        }
    }
    for (name, rows) in &families {
        pages.insert(format!("{name}.3"), page(name, rows, &words)?);
    }
    Ok(pages.into_iter().collect())
}

fn page(name: &str, rows: &[Vec<ShmemFunction>], words: &ShmemManTable) -> Result<String, String> {
    let summary = words.pages.get(name).ok_or_else(|| format!("tables/shmem_man.toml lacks {name}"))?;
    // The year is that of the specification, whose contents the page repeats.
    let mut text = format!(
        ".TH {name} 3 2024 Outboard \"OpenSHMEM 1.6\"\n.SH NAME\n{name} \\- {}\n\
         .SH SYNOPSIS\n.nf\n.B #include <shmem.h>\n\n",
        escaped(summary)
    );
    let (mut seen, mut parameters) = (BTreeSet::new(), Vec::new());
    for functions in rows {
        let Some(first) = functions.first() else { continue };
        text.push_str(&escaped(&synopsis(first.family, functions)));
        let own = first.family.arguments().map(|(_, name)| name).filter(|name| *name != "...");
        for name in first.family.ctx.then_some("ctx").into_iter().chain(own) {
            if seen.insert(name) {
                parameters.push(name);
            }
        }
    }
    text.push_str(".fi\n.SH DESCRIPTION\n");
    push!(text, "{}\n", escaped(&format!("{name} {summary}.")));
    if let Some(more) = words.more.get(name) {
        push!(text, "{}\n", escaped(more));
    }
    if !parameters.is_empty() {
        text.push_str(".SH PARAMETERS\n");
    }
    for name in parameters {
        let meaning = words.parameters.get(name);
        let meaning = meaning.ok_or_else(|| format!("tables/shmem_man.toml lacks the parameter {name}"))?;
        push!(text, ".TP\n.I {name}\n{}\n", escaped(meaning));
    }
    text.push_str(
        ".SH ERRORS\nA PE that does not exist, or an address that is not symmetric, ends the job with a sentence.\n\
         .SH NOTES\nEach function is there by its name with a p before it, too, for profiling tools.\n\
         .SH SEE ALSO\n.BR oshcc (1),\n.BR oshrun (1)\n.PP\nOpenSHMEM Application Programming Interface, version 1.6\n",
    );
    Ok(text)
}

/// Makes the SYNOPSIS of a row's functions: a declaration with TYPE in place of a type and TYPENAME in place
/// of the type's name, then the list of the types for which TYPENAME stands.
fn synopsis(family: &Family, functions: &[ShmemFunction]) -> String {
    let mut text = String::new();
    let declared = |name: &str, ctx: &str| {
        let line = format!("{} {name}({ctx}{})", family.returns, family.args);
        let typed = line.split_inclusive([' ', '(', ']']).map(|word| match word {
            "T " => {
                if family.is_by_size() {
                    "void "
                } else {
                    "TYPE "
                }
            }
            _ => word,
        });
        typed.collect::<String>().replace(", )", ")").replace("()", "(void)").replace("* ", "*") + ";\n"
    };
    if !family.c11.is_empty() {
        push!(text, "{}", declared(&family.c11, if family.ctx { "[shmem_ctx_t ctx, ]" } else { "" }));
    }
    let types: Vec<&str> = functions.iter().filter(|one| !one.has_ctx).map(|one| one.kind).collect();
    let word = match types[..] {
        [one] => one,
        _ if family.is_by_size() => "SIZE",
        _ => "TYPENAME",
    };
    let name = family.name.replace('@', word);
    push!(text, "{}", declared(&name, ""));
    if family.ctx {
        push!(text, "{}", declared(&name.replacen("shmem_", "shmem_ctx_", 1), "shmem_ctx_t ctx, "));
    }
    if word == "SIZE" {
        push!(text, "    SIZE: {}, the bits of an element\n", types.join(", "));
    } else if types.len() > 1 {
        let mut line = "    TYPENAME:".to_owned();
        for kind in types {
            if line.len() + kind.len() > 76 {
                push!(text, "{line}\n");
                line = "       ".to_owned();
            }
            push!(line, " {kind}");
        }
        push!(text, "{line}\n");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each function needs a page or a link, and a page needs the forms of its rows.
    #[test]
    fn every_function_has_a_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages: BTreeMap<String, String> = pages(&root).unwrap().into_iter().collect();
        let api = Api::read(&root).unwrap();
        for function in api.all().unwrap() {
            assert!(pages.contains_key(&format!("{}.3", function.name)), "{}", function.name);
        }
        assert_eq!(pages["shmem_ctx_long_p.3"], ".so man3/shmem_p.3\n");
        let put = &pages["shmem_put.3"];
        for line in [
            "shmem_put \\- copies elements to a PE",
            "void shmem_put([shmem_ctx_t ctx, ]TYPE *dest, const TYPE *source, size_t nelems, int pe);",
            "void shmem_ctx_TYPENAME_put(shmem_ctx_t ctx, TYPE *dest, const TYPE *source, size_t nelems, int pe);",
            "    SIZE: 8, 16, 32, 64, 128, the bits of an element",
            "void shmem_putmem(void *dest, const void *source, size_t nelems, int pe);",
        ] {
            assert!(put.lines().any(|known| known == line), "{line}\n{put}");
        }
        assert!(pages["shmem_my_pe.3"].contains("int shmem_my_pe(void);"));
    }
}
