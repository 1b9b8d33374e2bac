// SPDX-License-Identifier: BSD-3-Clause
//! `outboard completion` prints the scripts with which shells complete command lines. They are made from the
//! same description as `--help`.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

/// Print what a shell needs to complete command lines of outboard and mpirun.
///
/// An installation has it where bash, zsh and fish look, below share/. To have it without installing:
/// `source <(outboard completion bash)`, the same in zsh after compinit, `outboard completion fish | source`.
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Completion {
    /// The shell that is to complete command lines.
    #[arg(required_unless_present = "to")]
    shell: Option<Known>,
    /// Write the files for all shells instead, below this folder, usually share.
    #[arg(long, value_name = "FOLDER", hide = true)]
    to: Option<PathBuf>,
}

/// A shell for which an installation has completions.
#[derive(Clone, Copy, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

impl Known {
    fn shell(self) -> Shell {
        match self {
            Known::Bash => Shell::Bash,
            Known::Zsh => Shell::Zsh,
            Known::Fish => Shell::Fish,
        }
    }

    /// Returns the folder below share/ in which this shell looks for completions.
    fn folder(self) -> &'static str {
        match self {
            Known::Bash => "bash-completion/completions",
            Known::Zsh => "zsh/site-functions",
            Known::Fish => "fish/vendor_completions.d",
        }
    }
}

impl Completion {
    /// Returns the script for one shell. Returns an empty text after writing the files for all shells
    /// (`--to`).
    pub fn run(&self, outboard: Command) -> Result<String, String> {
        let mut programs = programs(outboard);
        if let Some(to) = &self.to {
            write(&mut programs, to)
                .map_err(|error| format!("cannot write completions to {}: {error}", to.display()))?;
        }
        let mut text = Vec::new();
        if let Some(shell) = self.shell {
            for (name, command) in &mut programs {
                clap_complete::generate(shell.shell(), command, *name, &mut text);
            }
        }
        String::from_utf8(text).map_err(|error| error.to_string())
    }
}

/// Returns the programs whose command lines shells complete, each with its name and clap's description.
fn programs(outboard: Command) -> Vec<(&'static str, Command)> {
    let mut programs = vec![("outboard", outboard)];
    programs.extend(["mpirun", "mpiexec"].map(|name| (name, crate::mpirun::command())));
    programs
}

fn write(programs: &mut [(&'static str, Command)], to: &Path) -> io::Result<()> {
    for known in Known::value_variants() {
        let folder = to.join(known.folder());
        std::fs::create_dir_all(&folder)?;
        for (name, command) in programs.iter_mut() {
            let path = clap_complete::generate_to(known.shell(), command, *name, &folder)?;
            // bash-completion looks for a file with the program's own name.
            if matches!(known, Known::Bash) {
                std::fs::rename(path, folder.join(name))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_get_the_options_of_help() {
        let folder = std::env::temp_dir().join(format!("outboard-completion-{}", std::process::id()));
        let to = Completion { shell: None, to: Some(folder.clone()) };
        assert_eq!(to.run(crate::outboard::command()).unwrap(), "");
        for (path, words) in [
            ("bash-completion/completions/mpirun", ["--bind-to", "--proxies"]),
            ("bash-completion/completions/mpiexec", ["--bind-to", "mpiexec"]),
            ("bash-completion/completions/outboard", ["profile", "--output"]),
            ("zsh/site-functions/_mpirun", ["#compdef mpirun", "--bind-to"]),
            ("fish/vendor_completions.d/outboard.fish", ["simulate", "dpu"]),
        ] {
            let text = std::fs::read_to_string(folder.join(path)).expect(path);
            words.iter().for_each(|word| assert!(text.contains(word), "{path}: {word}"));
        }
        let zsh = Completion { shell: Some(Known::Zsh), to: None };
        let text = zsh.run(crate::outboard::command()).unwrap();
        assert!(text.contains("#compdef outboard") && text.contains("#compdef mpiexec"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
