// SPDX-License-Identifier: BSD-3-Clause
//! Makes the catalogue of errors, docs/errors.md and outboard-errors(7), from `tables/errors.toml`.

use crate::man::escaped;
use crate::table::{self, ApiTable};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The contents of `tables/errors.toml`. Each pair of texts says what an error means, and what users can do
/// about it.
#[derive(Deserialize)]
pub struct Errors {
    /// The two texts about each error class, by the name of the class.
    classes: BTreeMap<String, [String; 2]>,
    /// The two texts about each exit code of `mpirun`, by the code.
    exits: BTreeMap<String, [String; 2]>,
    sentence: Vec<Sentence>,
}

/// A message that users are likely to see, with its cause and a remedy.
#[derive(Deserialize)]
struct Sentence {
    /// The part of the message by which it is found in the source code, exactly as it stands there.
    says: String,
    cause: String,
    remedy: String,
}

/// A table of the catalogue: its title, the heads of its columns, and its rows. A row has an error's number
/// or text, the error's meaning, and what to do about it.
type Section = (&'static str, [&'static str; 3], Vec<[String; 3]>);

impl Errors {
    pub fn read(root: &Path) -> Result<Errors, String> {
        table::toml(root, "errors.toml")
    }

    /// Makes the text of docs/errors.md, the catalogue of errors.
    pub fn page(&self, table: &ApiTable) -> Result<String, String> {
        let mut text = String::from(INTRODUCTION);
        for (title, [first, second, third], rows) in self.tables(table)? {
            push!(text, "\n## {title}\n\n| {first} | {second} | {third} |\n|---|---|---|\n");
            for [what, means, remedy] in rows {
                push!(text, "| {what} | {means} | {remedy} |\n");
            }
        }
        Ok(text)
    }

    /// Makes the text of the man page outboard-errors(7), the catalogue of errors.
    pub fn man(&self, table: &ApiTable) -> Result<String, String> {
        let mut text = String::from(
            ".TH outboard-errors 7 \"\" Outboard\n.SH NAME\noutboard-errors \\- error classes, exit codes and messages of Outboard\n\
             .SH DESCRIPTION\n",
        );
        text.push_str(&escaped(INTRODUCTION.split_once("\n\n").map_or("", |(_, rest)| rest)));
        for (title, _, rows) in self.tables(table)? {
            push!(text, ".SH {}\n", title.to_uppercase());
            for [what, means, remedy] in rows {
                let end = if remedy.is_empty() { String::new() } else { format!(" What to do: {remedy}.") };
                let what = what.replace('`', "");
                push!(text, ".TP\n.B \"{}\"\n{}\n", escaped(&what), escaped(&format!("{means}.{end}")));
            }
        }
        text.push_str(".SH SEE ALSO\n.BR mpirun (1),\n.BR outboard-settings (7)\n");
        Ok(text)
    }

    /// Makes the three tables of the catalogue: exit codes, error classes and messages.
    fn tables(&self, table: &ApiTable) -> Result<[Section; 3], String> {
        let mut classes = Vec::new();
        for (name, [means, remedy]) in &self.classes {
            let name = format!("MPI_ERR_{name}");
            let number =
                table.constant(&name).ok_or_else(|| format!("tables/errors.toml: there is no {name}"))?;
            classes.push((number, [format!("{name} ({number})"), means.clone(), remedy.clone()]));
        }
        classes.sort();
        let exits =
            self.exits.iter().map(|(code, [means, remedy])| [code.clone(), means.clone(), remedy.clone()]);
        let sentences = self.sentence.iter().map(|sentence| {
            [format!("`... {} ...`", sentence.says), sentence.cause.clone(), sentence.remedy.clone()]
        });
        Ok([
            ("Exit codes of mpirun", ["code", "cause", "what to do"], exits.collect()),
            (
                "Error classes",
                ["class", "it means", "what to do"],
                classes.into_iter().map(|(_, row)| row).collect(),
            ),
            ("Likely messages", ["it says", "cause", "what to do"], sentences.collect()),
        ])
    }
}

const INTRODUCTION: &str = "# Errors

An MPI error ends the job with a sentence that states rank, call, communicator, peer, tag and bytes, and with the number of its class as exit code. A
program that sets MPI_ERRORS_RETURN gets the class from MPI_Error_class, and the sentence from MPI_Error_string.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::SourceFile;

    #[test]
    fn likely_messages_stand_in_the_source() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let sources =
            SourceFile::listed(&root, |path| path.ends_with(".rs") && !path.contains("xtask")).unwrap();
        // A backslash at the end of a line joins it with the text of the next.
        let whole = |text: &str| {
            let mut lines = text.split("\\\n");
            let first = lines.next().unwrap_or_default().to_owned();
            lines.fold(first, |all, line| all + line.trim_start())
        };
        let sources: Vec<_> = sources.iter().map(|source| whole(&source.text)).collect();
        let errors = Errors::read(&root).unwrap();
        for Sentence { says, .. } in &errors.sentence {
            assert!(sources.iter().any(|text| text.contains(says.as_str())), "no source says {says}");
        }
        assert!(errors.sentence.len() >= 50);
        let table = ApiTable::read(&root).unwrap();
        assert!(errors.page(&table).unwrap().contains("| MPI_ERR_TRUNCATE (15) |"));
    }
}
