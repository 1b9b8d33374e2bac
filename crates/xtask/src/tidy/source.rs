//! The files that are checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file that git knows, with its path from the repository's root.
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

impl Source {
    pub fn all(root: &Path) -> Result<Vec<Source>, String> {
        let listing = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git ls-files: {e}"))?;
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let wanted = |path: &&str| {
            ["rs", "c", "h", "py", "sh"].iter().any(|end| path.ends_with(&format!(".{end}")))
                || path.starts_with("tools/")
                || *path == "Makefile"
        };
        let mut sources = Vec::new();
        for path in listing.lines().filter(wanted) {
            // A deleted file may still be in the index.
            if let Ok(text) = fs::read_to_string(root.join(path)) {
                sources.push(Source { path: path.into(), text });
            }
        }
        Ok(sources)
    }

    /// The crate that the file is part of. None: the file is a test or lies beside the crates.
    pub fn crate_name(&self) -> Option<&str> {
        let mut parts = self.path.to_str()?.split('/');
        match (parts.next()?, parts.next()?, parts.next()?) {
            ("crates", crate_name, "src") => Some(crate_name),
            _ => None,
        }
    }

    /// Lines with their numbers, without the tests at the foot.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line))
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
    }
}
