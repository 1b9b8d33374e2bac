// SPDX-License-Identifier: BSD-3-Clause
//! Checks prose: the first words of doc comments, the width of pages, and long sentences in pages.
//!
//! A doc comment that begins with one of `FIRST_WORDS` has no subject, so a stranger reads it twice.

use super::names::folder;
use super::rust::Rust;
use super::source::SourceFile;

/// The words with which no doc comment may begin.
const FIRST_WORDS: [&str; 11] =
    ["Of", "By", "As", "Those", "Nothing", "None", "If", "To the", "From the", "Whoever", "So many"];
/// The most columns that a line of prose in a page of documentation may have.
const COLUMNS_MAX: usize = 160;
/// The most words that a sentence may have. The task `prose` lists longer sentences.
const SENTENCE_WORDS_MAX: usize = 40;
/// Abbreviations, whose full stop does not end a sentence.
const ABBREVIATIONS: [&str; 5] = ["e.g.", "i.e.", "vs.", "cf.", "etc."];

/// Adds a finding for each doc comment that begins with one of `FIRST_WORDS`.
pub fn check_comments(sources: &[&SourceFile], findings: &mut Vec<String>) {
    for source in sources.iter().filter(|source| folder(source).is_some()) {
        let rust = Rust::read(&source.text);
        let mut in_block = false;
        for (at, (line, code)) in source.text.lines().zip(&rust.code).enumerate() {
            // Slashes stay in `code` only where they begin a comment.
            let text = code.trim_start().starts_with("//").then(|| doc_text(line)).flatten();
            if let Some(word) = text.filter(|_| !in_block).and_then(opening) {
                findings.push(format!(
                    "{}:{}: a doc comment begins with \"{word}\"; name the subject first",
                    source.path.display(),
                    at + 1
                ));
            }
            in_block = text.is_some();
        }
    }
}

/// Returns the text of a line of a doc comment, or None if the line is no doc comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start)
}

/// Returns the entry of `FIRST_WORDS` with which a text begins, if there is one.
fn opening(text: &str) -> Option<&'static str> {
    let ends = |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    FIRST_WORDS.into_iter().find(|word| text.strip_prefix(word).is_some_and(ends))
}

/// Adds a finding for each line of prose in a page of documentation that is too wide and could be broken.
pub fn check_width(page: &SourceFile, findings: &mut Vec<String>) {
    for (number, line) in prose_lines(&page.text).filter(|(_, line)| !line.starts_with('|')) {
        let columns = line.chars().count();
        let fitting: String = line.chars().take(COLUMNS_MAX + 1).collect();
        if columns > COLUMNS_MAX && fitting.trim_start().contains(' ') {
            findings.push(format!("{}:{number}: {columns} columns, of {COLUMNS_MAX}", page.path.display()));
        }
    }
}

/// Returns a line for each sentence that has too many words in a page of documentation.
pub fn long_sentences(page: &SourceFile) -> Vec<String> {
    let mut long = Vec::new();
    for words in paragraphs(&page.text) {
        for sentence in words.split_inclusive(|(_, word)| ends_sentence(word)) {
            if sentence.len() > SENTENCE_WORDS_MAX {
                let first: Vec<&str> = sentence.iter().take(8).map(|(_, word)| *word).collect();
                let (path, number) = (page.path.display(), sentence[0].0);
                long.push(format!("{path}:{number}: {} words: {} ...", sentence.len(), first.join(" ")));
            }
        }
    }
    long
}

/// Returns the lines of a page outside code blocks, with their numbers.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_code = is_fenced || is_fence || (line.starts_with("    ") && !begins_item(line));
        (!is_code).then_some((at + 1, line))
    })
}

/// Returns the words of each paragraph, list item and table cell in a page. Each word has the number of its
/// line.
fn paragraphs(text: &str) -> Vec<Vec<(usize, &str)>> {
    let mut paragraphs = vec![Vec::new()];
    let mut last = 0;
    for (number, line) in prose_lines(text) {
        let stands_alone = line.starts_with(['|', '#']);
        if stands_alone || begins_item(line) || line.trim().is_empty() || number != last + 1 {
            paragraphs.push(Vec::new());
        }
        last = if stands_alone { 0 } else { number };
        for (at, cell) in line.split('|').enumerate() {
            if at > 0 && line.starts_with('|') {
                paragraphs.push(Vec::new());
            }
            let paragraph = paragraphs.last_mut().expect("one is pushed above");
            paragraph.extend(cell.split_whitespace().map(|word| (number, word)));
        }
    }
    paragraphs
}

/// Whether the line begins an item of a list.
fn begins_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    ["- ", "* ", "> "].iter().any(|mark| line.starts_with(mark))
        || (digits.len() < line.len() && digits.starts_with(". "))
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches([')', '"', '*', '_', '`']);
    word.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<String> {
        let source = SourceFile::new("crates/a/src/lib.rs", text.into());
        let mut findings = Vec::new();
        check_comments(&[&source], &mut findings);
        findings
    }

    #[test]
    fn a_comment_without_a_subject_is_found() {
        for word in FIRST_WORDS {
            let findings = comments(&format!("//! {word} it.\n"));
            let text = format!("a doc comment begins with \"{word}\"; name the subject first");
            assert_eq!(findings, [format!("crates/a/src/lib.rs:1: {text}")]);
        }
        assert_eq!(comments("    /// None.\n    f: u8,\n").len(), 1);
    }

    #[test]
    fn other_comments_are_free() {
        let text = "//! Offsets.\n//! By two.\n/// Asks.\n// If so.\nfn f() {}\n/// A\n/// None.\n/// `Of`\n\
                    const A: &str = \"\n/// Of\";\n";
        assert_eq!(comments(text), Vec::<String>::new());
    }

    fn page(text: &str) -> SourceFile {
        SourceFile::new("docs/a.md", text.into())
    }

    #[test]
    fn wide_prose_is_found() {
        let wide = "word ".repeat(33);
        let link = "x".repeat(200);
        let text = format!("{wide}\n| {wide}\n    {wide}\n```\n{wide}\n```\n{link}\n- {wide}\n");
        let mut findings = Vec::new();
        check_width(&page(&text), &mut findings);
        assert_eq!(findings, ["docs/a.md:1: 165 columns, of 160", "docs/a.md:8: 167 columns, of 160"]);
    }

    #[test]
    fn long_sentences_are_listed() {
        let words = |count: usize| "word ".repeat(count);
        let long = format!("Short, i.e. {}\n{}end. Short.\n", words(20), words(20));
        assert_eq!(long_sentences(&page(&format!("# A\n{long}"))).len(), 1);
        assert!(
            long_sentences(&page(&format!("# A\n{long}")))[0]
                .starts_with("docs/a.md:2: 43 words: Short, i.e. ")
        );
        let cells = format!("| {0} | {0} |\n| {0} |\n", words(30));
        assert!(long_sentences(&page(&cells)).is_empty());
        assert_eq!(long_sentences(&page(&format!("| {} |", words(41)))).len(), 1);
        let apart = format!("- {0}\n- {0}\n1. {0}\n\n{0}\n```\n{0}\n{0}\n```\n", words(30));
        assert!(long_sentences(&page(&apart)).is_empty());
    }
}
