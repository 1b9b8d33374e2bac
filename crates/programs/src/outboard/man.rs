// SPDX-License-Identifier: BSD-3-Clause
//! `outboard man`: writes the manual pages, for the installation.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

/// Write the manual pages.
#[derive(Args)]
#[command(hide = true)]
pub struct Man {
    /// The folder to write to, usually share/man/man1.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

impl Man {
    /// Writes them, those of `outboard` from its command line's description; prints nothing.
    pub fn run(&self, outboard: clap::Command) -> Result<String, String> {
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.to)?;
            clap_mangen::generate_to(outboard, &self.to)?;
            let mut page = Vec::new();
            clap_mangen::Man::new(crate::mpirun::command()).render(&mut page)?;
            page.extend_from_slice(environment().as_bytes());
            std::fs::write(self.to.join("mpirun.1"), page)?;
            for name in ["mpiexec.1", "mpirun_rsh.1"] {
                std::fs::write(self.to.join(name), ".so man1/mpirun.1\n")?;
            }
            Ok(())
        };
        write().map_err(|error| format!("cannot write manual pages to {}: {error}", self.to.display()))?;
        Ok(String::new())
    }
}

/// The section on settings, in roff.
fn environment() -> String {
    let mut text = String::from(".SH ENVIRONMENT\n");
    for row in settings::TABLE.iter().filter(|row| !row.internal) {
        let default = if row.default.is_empty() { "not set" } else { row.default };
        let lines = [row.variable, row.doc, row.why, &row.kind.allowed(), default].map(escaped);
        let [variable, doc, why, allowed, default] = lines;
        writeln!(text, ".TP\n\\fB{variable}\\fR\n{doc}\n{why}\nAllowed: {allowed}. Default: {default}.")
            .expect("a String takes all");
    }
    text
}

/// The text, escaped so that roff prints it unchanged.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with a full stop or a quote would be a command of roff.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_written() {
        let folder = std::env::temp_dir().join(format!("outboard-man-{}", std::process::id()));
        Man { to: folder.clone() }.run(crate::outboard::command()).unwrap();
        let page = std::fs::read_to_string(folder.join("mpirun.1")).unwrap();
        for word in ["genv", "proxy\\-cores", "OUTBOARD_OFFLOAD", "Exit code"] {
            assert!(page.contains(word), "{word}");
        }
        for name in ["mpiexec.1", "mpirun_rsh.1", "outboard.1", "outboard-top.1", "outboard-info.1"] {
            assert!(folder.join(name).exists(), "{name}");
        }
        assert_eq!(escaped(".a\\b-c"), "\\&.a\\eb\\-c");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
