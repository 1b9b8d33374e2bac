// SPDX-License-Identifier: BSD-3-Clause
//! The site's map file: each line has a GUID, a name in quotes, and the name of a rack if there is one.
//!
//! ```text
//! # comment
//! 0x0002c902004a1b2c "leaf-01" "rack A1"
//! ```
//!
//! The format is that of OpenSM's node name map. Blank lines, comments and unknown nodes are allowed. Any
//! other line is reported by its number, and the remaining lines are used.

use std::collections::HashMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub name: String,
    pub rack: String,
}

/// The most characters that are kept of a node's or a rack's name.
const NAME_CHARS_MAX: usize = 128;
const LINES_MAX: usize = 200_000;

/// Reads a map file. Returns the names of nodes by GUID, and a sentence for each line that cannot be read.
pub fn read(text: &str) -> (HashMap<u64, Name>, Vec<String>) {
    let (mut names, mut wrong) = (HashMap::new(), Vec::new());
    for (at, line) in text.lines().enumerate().take(LINES_MAX) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match entry(line) {
            Ok((guid, name)) => {
                names.insert(guid, name);
            }
            Err(why) => wrong.push(format!("line {}: {why}", at + 1)),
        }
    }
    (names, wrong)
}

fn entry(line: &str) -> Result<(u64, Name), &'static str> {
    let (guid, rest) = line.split_once(char::is_whitespace).ok_or("no name behind the GUID")?;
    let digits = guid.trim_start_matches("0x");
    let guid = u64::from_str_radix(digits, 16).map_err(|_| "the first word is no GUID in hexadecimal")?;
    let (name, rest) = quoted(rest).ok_or("the name does not stand in quotes")?;
    let rack = quoted(rest).map_or(String::new(), |(rack, _)| rack);
    Ok((guid, Name { name, rack }))
}

/// Returns the text between quotes with which `text` begins, and the rest behind it. Returns None if `text`
/// does not begin with a quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (text, rest) = text.trim_start().strip_prefix('"')?.split_once('"')?;
    Some((text.chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_map_file_may_be_partial_and_partly_wrong() {
        let (names, wrong) = read(
            "\n# ours\n0x1f \"leaf-01\" \"rack A1\"\n  20 \"leaf 2\"\t# of Bob\nleaf3 \"x\"\n0x21 leaf4\n0x22\n",
        );
        assert_eq!(names[&0x1f], Name { name: "leaf-01".into(), rack: "rack A1".into() });
        assert_eq!(names[&0x20], Name { name: "leaf 2".into(), rack: String::new() });
        assert_eq!(names.len(), 2);
        let lines: Vec<_> = wrong.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(lines, ["line 5", "line 6", "line 7"]);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC*|([0-9a-fx \"#\n]*)") {
            let (names, wrong) = read(&text);
            prop_assert!(names.len() + wrong.len() <= text.lines().count());
        }
    }
}
