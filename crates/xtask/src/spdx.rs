// SPDX-License-Identifier: BSD-3-Clause
//! The line in a source file that names its licence (<https://spdx.dev/learn/>).
//!
//! In a Rust file it is the first line. In other files it follows the comment at the beginning of the file,
//! because programs read directives there and scripts print it as their help.

use std::path::Path;

const LINE: &str = "SPDX-License-Identifier: BSD-3-Clause";

/// Returns the beginning and the end of a comment in the file's language. Returns None if the file needs no
/// licence line.
fn comment(path: &Path, text: &str) -> Option<(&'static str, &'static str)> {
    let name = path.file_name()?.to_str()?;
    // These are parts of the generated modules, which have a line of their own.
    if path.starts_with("crates/xtask/src/fortran") && name.ends_with(".f90") {
        return None;
    }
    match name.rsplit_once('.') {
        Some((_, "rs" | "ts" | "cpp" | "cu")) => Some(("// ", "")),
        Some((_, "f90" | "f")) | Some(("mpif", "h")) => Some(("! ", "")),
        Some((_, "c" | "h" | "css")) => Some(("/* ", " */")),
        Some((_, "py" | "sh")) => Some(("# ", "")),
        _ if text.starts_with("#!") || name == "Makefile" => Some(("# ", "")),
        _ => None,
    }
}

/// Whether the file at `path` (from the repository's root) needs the licence line and lacks it.
pub fn is_missing(path: &Path, text: &str) -> bool {
    comment(path, text)
        .is_some_and(|(begin, end)| !text.lines().any(|line| line == format!("{begin}{LINE}{end}")))
}

/// Returns the text of the file at `path` with the licence line added.
pub fn with_line(path: &Path, text: &str) -> String {
    let Some((begin, end)) = comment(path, text).filter(|_| is_missing(path, text)) else {
        return text.to_owned();
    };
    let is_rust = path.extension().is_some_and(|end| end == "rs");
    let (before, after) =
        text.split_at(if is_rust { 0 } else { first_comment(text, begin.trim_end(), end.trim_start()) });
    format!("{before}{begin}{LINE}{end}\n{after}")
}

/// Returns the length in bytes of the comment with which a text begins, in whole lines. It is 0 without such
/// a comment.
fn first_comment(text: &str, begin: &str, end: &str) -> usize {
    let mut lines = text.split_inclusive('\n').peekable();
    if end.is_empty() {
        return lines.take_while(|line| line.starts_with(begin)).map(str::len).sum();
    }
    if !text.starts_with(begin) {
        return 0;
    }
    let mut length = 0;
    for line in lines.by_ref() {
        length += line.len();
        if line.trim_end().ends_with(end) {
            return length;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_its_comment_once() {
        for (path, text, wanted) in [
            ("a.rs", "//! A.\n", "// SPDX-License-Identifier: BSD-3-Clause\n//! A.\n"),
            ("a.h", "int a;\n", "/* SPDX-License-Identifier: BSD-3-Clause */\nint a;\n"),
            (
                "a.c",
                "/* What it is.\n * ranks: 2 */\nint a; /* a */\n",
                "/* What it is.\n * ranks: 2 */\n/* SPDX-License-Identifier: BSD-3-Clause */\nint a; /* a */\n",
            ),
            (
                "include/mpif.h",
                "      integer a\n",
                "! SPDX-License-Identifier: BSD-3-Clause\n      integer a\n",
            ),
            (
                "run",
                "#!/bin/sh\n# Help.\nset -u\n",
                "#!/bin/sh\n# Help.\n# SPDX-License-Identifier: BSD-3-Clause\nset -u\n",
            ),
            ("a.py", "\"\"\"A.\"\"\"\n", "# SPDX-License-Identifier: BSD-3-Clause\n\"\"\"A.\"\"\"\n"),
            ("a.json", "{}\n", "{}\n"),
            ("crates/xtask/src/fortran/newer.f90", "       INTERFACE\n", "       INTERFACE\n"),
        ] {
            let path = Path::new(path);
            let written = with_line(path, text);
            assert_eq!(written, wanted);
            assert!(!is_missing(path, &written));
            assert_eq!(with_line(path, &written), written);
        }
    }
}
