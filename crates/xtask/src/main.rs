// SPDX-License-Identifier: BSD-3-Clause
//! Tasks of the repository: `cargo run -p outboard-xtask -- TASK`.
#![forbid(unsafe_code)]

/// Appends formatted text to a `String`.
macro_rules! push {
    ($text:expr, $($format:tt)*) => {
        $text.push_str(&format!($($format)*))
    };
}

mod errors;
mod fortran;
mod gen_constants;
mod gen_header;
mod gen_mpich;
mod gen_numbers;
mod gen_settings;
mod gen_shim;
mod man;
mod shmem;
mod shmem_man;
mod spdx;
mod table;
mod tidy;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use tidy::source::SourceFile;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: RepositoryTask,
}

#[derive(Subcommand)]
enum RepositoryTask {
    /// Write every generated file anew.
    Gen {
        /// Write nothing; fail if a file is not up to date.
        #[arg(long)]
        check: bool,
    },
    /// Write the manual pages of MPI's functions and errors.
    Man {
        /// The folder to write to, usually share/man.
        #[arg(long)]
        to: PathBuf,
    },
    /// List the sentences of pages with more than 40 words.
    Prose {
        /// Print only lines that contain this text, such as docs/offload.md.
        word: Option<String>,
    },
    /// Write the line of the licence into each source file that lacks it.
    Spdx,
    /// Check what rustfmt and clippy do not: layers, rings of modules, lengths, unsafe, environment,
    /// generated files, names in ARCHITECTURE.md, names of types, first words of doc comments.
    Tidy,
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let findings = match Arguments::parse().task {
        RepositoryTask::Gen { check: false } => write(&root).map(|()| Vec::new()),
        RepositoryTask::Gen { check: true } => stale(&root),
        RepositoryTask::Man { to } => man(&root, &to).map(|()| Vec::new()),
        RepositoryTask::Prose { word } => prose(&root, &word.unwrap_or_default()).map(|()| Vec::new()),
        RepositoryTask::Spdx => spdx(&root).map(|()| Vec::new()),
        RepositoryTask::Tidy => tidy(&root),
    };
    let findings = findings.unwrap_or_else(|error| vec![error]);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes every generated file: its path and its text. `gen` and `tidy` both use this list.
fn generated(root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let table = table::ApiTable::read(root)?;
    let bindings = fortran::Bindings::read(root)?;
    let shmem = shmem::Api::read(root)?;
    let (shim, list) = gen_shim::shim(root, &table)?;
    let mut files = vec![
        gen_settings::generate(root)?,
        (root.join("crates/objects/src/constants.rs"), gen_constants::constants(&table)),
        (root.join("crates/standard/src/shim.rs"), shim),
        (root.join("crates/mpich/src/shim.rs"), gen_mpich::shim(root, &table)?),
        (root.join("crates/mpich/src/numbers.rs"), gen_numbers::numbers(&table)?),
        (root.join("crates/abi/src/generated/functions.txt"), list),
        (root.join("include/mpi.h"), gen_header::header(&table)),
        (root.join("crates/fortran/src/shim.rs"), fortran::shim::shim(&bindings, &table)),
        (root.join("crates/fortran/src/c.rs"), fortran::shim::declarations(&bindings, &table)),
        (root.join("crates/fortran/src/numbers.rs"), fortran::constants::numbers(&table)),
        (root.join("crates/oshmem/src/faces.rs"), shmem::faces(&shmem)?),
        (root.join("include/shmem.h"), shmem::header(&shmem)?),
        (root.join("include/mpif.h"), fortran::modules::header(&bindings, &table)),
        (root.join("include/mpi.f90"), fortran::modules::older(&bindings, &table)),
        (root.join("include/mpi_f08.f90"), fortran::modules::newer(&bindings, &table)),
        (root.join("docs/errors.md"), errors::Errors::read(root)?.page(&table)?),
    ];
    for (path, text) in &mut files {
        if path.extension().is_some_and(|end| end == "rs") {
            *text = rustfmt(root, text)?;
        }
        *text = spdx::with_line(path.strip_prefix(root).unwrap_or(path), text);
    }
    Ok(files)
}

fn write(root: &Path) -> Result<(), String> {
    generated(root)?.iter().try_for_each(|(path, text)| write_file(path, text))
}

fn man(root: &Path, to: &Path) -> Result<(), String> {
    let errors = errors::Errors::read(root)?.man(&table::ApiTable::read(root)?)?;
    write_file(&to.join("man7/outboard-errors.7"), &errors)?;
    let pages = man::pages(root)?.into_iter().chain(shmem_man::pages(root)?);
    pages.into_iter().try_for_each(|(name, text)| write_file(&to.join("man3").join(name), &text))
}

fn spdx(root: &Path) -> Result<(), String> {
    for file in SourceFile::listed(root, |_| true)? {
        if spdx::is_missing(&file.path, &file.text) {
            write_file(&root.join(&file.path), &spdx::with_line(&file.path, &file.text))?;
        }
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::create_dir_all(path.parent().expect("a file has a folder"))
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn prose(root: &Path, word: &str) -> Result<(), String> {
    let lines = tidy::prose(root)?.into_iter().filter(|line| line.contains(word));
    lines.into_iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn tidy(root: &Path) -> Result<Vec<String>, String> {
    let mut findings = tidy::check(root)?;
    let unlicensed = SourceFile::listed(root, |_| true)?
        .into_iter()
        .filter(|file| spdx::is_missing(&file.path, &file.text));
    findings.extend(unlicensed.map(|file| {
        format!("{}: no line of the licence; run `cargo run -p outboard-xtask -- spdx`", file.path.display())
    }));
    findings.extend(stale(root)?);
    findings.extend(man::pages(root).err());
    findings.extend(shmem_man::pages(root).err());
    Ok(findings)
}

/// Returns a line for every generated file whose text differs from what would be generated now.
fn stale(root: &Path) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    for (path, text) in generated(root)? {
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            findings.push(format!(
                "{}: not up to date; run `cargo run -p outboard-xtask -- gen`",
                path.display()
            ));
        }
    }
    Ok(findings)
}

fn rustfmt(root: &Path, text: &str) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("rustfmt: {error}");
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e))?;
    let mut input = child.stdin.take().expect("piped above");
    // rustfmt reads all of its input before it writes, so one thread is enough.
    input.write_all(text.as_bytes()).map_err(|e| failed(&e))?;
    drop(input);
    let output = child.wait_with_output().map_err(|e| failed(&e))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| failed(&e))
}
