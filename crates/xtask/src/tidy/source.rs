// SPDX-License-Identifier: BSD-3-Clause
//! The files of the repository that `make tidy` checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders of the two workspaces from the repository's root: first that of the MPI library, then that of
/// the monitor.
pub const WORKSPACES: [&str; 2] = ["", "monitor/"];

/// A text file that git tracks or would add, with its path from the repository's root.
pub struct SourceFile {
    pub path: PathBuf,
    pub text: String,
    /// The folder of the workspace to which the file belongs, one of `WORKSPACES`.
    pub workspace: &'static str,
}

impl SourceFile {
    pub fn new(path: impl Into<PathBuf>, text: String) -> SourceFile {
        let path = path.into();
        let belongs = |workspace: &&str| !workspace.is_empty() && path.starts_with(workspace);
        let workspace = WORKSPACES.into_iter().find(belongs).unwrap_or_default();
        SourceFile { path, text, workspace }
    }

    pub fn all(root: &Path) -> Result<Vec<SourceFile>, String> {
        let wanted = |path: &str| {
            ["rs", "c", "h", "py", "sh"].iter().any(|end| path.ends_with(&format!(".{end}")))
                || path.starts_with("tools/")
                || path == "Makefile"
        };
        SourceFile::listed(root, wanted)
    }

    /// Reads the text files of the repository for whose path `wanted` returns true.
    pub fn listed(root: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<SourceFile>, String> {
        let listing = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git ls-files: {e}"))?;
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let mut sources = Vec::new();
        for path in listing.lines().filter(|path| wanted(path)) {
            // A deleted file may still be in the index, and a picture is not text.
            if let Ok(text) = fs::read_to_string(root.join(path)) {
                sources.push(SourceFile::new(path, text));
            }
        }
        Ok(sources)
    }

    /// Returns the path of the file from the folder of its workspace.
    pub fn place(&self) -> &str {
        let path = self.path.to_str().unwrap_or_default();
        path.strip_prefix(self.workspace).unwrap_or(path)
    }

    /// Returns the name of the crate to whose sources the file belongs. None for a test, and for a file
    /// outside the crates.
    pub fn crate_name(&self) -> Option<&str> {
        let mut parts = self.place().split('/');
        match (parts.next()?, parts.next()?, parts.next()?) {
            ("crates", crate_name, "src") => Some(crate_name),
            _ => None,
        }
    }

    /// Returns the file's lines with their numbers from 1 on, up to the tests at its end.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line))
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
    }
}

/// Returns the identifier with which a text begins: its letters, digits and underscores.
pub fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Reads the text of a file. The error names the file.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
