// SPDX-License-Identifier: BSD-3-Clause
//! Reads a Rust file without a parser: its lines without comments and strings, and which lines belong to
//! tests.

/// The lines of a Rust file: the code of each, and whether it belongs to tests.
pub struct Rust {
    /// The lines of the file, with spaces in place of the text of comments, strings and characters. Quotes
    /// and slashes stay.
    pub code: Vec<String>,
    /// For each line, whether it belongs to an item under `#[cfg(test)]`.
    pub is_test: Vec<bool>,
}

impl Rust {
    pub fn read(text: &str) -> Rust {
        let code: Vec<String> = blanked(text).lines().map(str::to_owned).collect();
        let is_test = tests(&code);
        Rust { code, is_test }
    }

    /// Returns the lines of `code` outside tests, with their numbers from 1 on.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.iter().zip(&self.is_test).enumerate();
        lines.filter(|(_, (_, is_test))| !**is_test).map(|(at, (line, _))| (at + 1, line.as_str()))
    }

    /// Returns the last line of the item that begins on line `first`: the line of the brace that closes its
    /// first brace, or of its `;`. Lines count from 0.
    pub fn end(&self, first: usize) -> usize {
        end(&self.code, first)
    }
}

/// Returns `text` with spaces in place of the text of comments, strings and characters, for `Rust::code`.
fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = comment(rest).or_else(|| literal(rest, at > 0 && is_word(bytes[at - 1])));
        if let Some(bytes) = skipped {
            let kept = if rest.starts_with("//") { '/' } else { '"' };
            let blank = |letter| if letter == '\n' || letter == kept { letter } else { ' ' };
            code.extend(rest[..bytes].chars().map(blank));
            at += bytes;
        } else {
            let next = rest.chars().next().expect("bytes are left");
            code.push(next);
            at += next.len_utf8();
        }
    }
    code
}

/// Returns the length of the comment with which `text` begins, or None if it begins with no comment.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

/// Returns the length of the string or character literal with which `text` begins, or None if it begins with
/// none. `in_word` says whether a name ends right before `text`.
fn literal(text: &str, in_word: bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let hashes = bytes.iter().skip(1).take_while(|byte| **byte == b'#').count();
    if bytes[0] == b'r' && !in_word && bytes.get(1 + hashes) == Some(&b'"') {
        let close = format!("\"{}", "#".repeat(hashes));
        let start = 2 + hashes;
        return Some(text[start..].find(&close).map_or(text.len(), |found| start + found + close.len()));
    }
    let quote = bytes[0];
    let is_character = || bytes.get(1) == Some(&b'\\') || text.chars().nth(2) == Some('\'');
    if quote != b'"' && !(quote == b'\'' && is_character()) {
        return None; // A lifetime has no second quote.
    }
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some((at + 1).min(bytes.len()))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns for each line whether it belongs to an item under `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn tests(code: &[String]) -> Vec<bool> {
    let mut is_test = vec![false; code.len()];
    let mut at = 0;
    while at < code.len() {
        let line = code[at].trim_start();
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
            // An attribute contains no brace, so the end is that of the item.
            let last = end(code, at);
            is_test[at..=last].fill(true);
            at = last;
        }
        at += 1;
    }
    is_test
}

fn end(code: &[String], first: usize) -> usize {
    let mut open = 0usize;
    let mut brackets = 0usize;
    for (at, line) in code.iter().enumerate().skip(first) {
        for byte in line.bytes() {
            match byte {
                b'(' | b'[' => brackets += 1,
                b')' | b']' => brackets = brackets.saturating_sub(1),
                b'{' => open += 1,
                b'}' => {
                    open = open.saturating_sub(1);
                    if open == 0 && brackets == 0 {
                        return at;
                    }
                }
                b';' if open == 0 && brackets == 0 => return at,
                _ => {}
            }
        }
    }
    code.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blank() {
        let rust =
            Rust::read("let a = \"x { \\\" //\"; // {\nlet b = r#\"\"{\"#; /* { /* */ { */ 'a' '{' <'a>\n");
        assert!(rust.code.iter().all(|line| !line.contains('{')), "{:?}", rust.code);
        assert!(rust.code[0].ends_with("; //  ") && rust.code[1].contains("<'a>"), "{:?}", rust.code);
    }

    #[test]
    fn items_under_test_are_known() {
        let rust = Rust::read(
            "#[cfg(test)]\nmod a;\nfn b() {}\n#[cfg(test)]\nmod tests {\n fn c() {}\n}\nfn d() {}\n",
        );
        assert_eq!(rust.lines().map(|(number, _)| number).collect::<Vec<_>>(), [3, 8]);
    }

    #[test]
    fn an_item_ends_at_its_brace_or_semicolon() {
        let rust = Rust::read("fn a(\n  b: [u8; 3],\n) -> u8 {\n  { 1 }\n}\nfn c();\n");
        assert_eq!((rust.end(0), rust.end(5)), (4, 5));
    }
}
