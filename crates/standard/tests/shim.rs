// SPDX-License-Identifier: BSD-3-Clause
//! Tests libmpi_abi.so.1 as C programs see it: its symbols, its header, and the objects of one process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the path of the library as programs load it. This is the path in OUTBOARD_TEST_LIBRARY, which
/// `make test` sets. Without it the library is built here: `cargo test` alone does not build it, since no
/// test links it.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(library) = std::env::var_os("OUTBOARD_TEST_LIBRARY") {
            return library.into();
        }
        let test = std::env::current_exe().expect("a test has a path");
        let profile = test.parent().and_then(Path::parent).expect("target/debug/deps");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "outboard-standard", "--target-dir"]);
        build.arg(profile.parent().expect("target/debug")).current_dir(root());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        run(&mut build);
        profile.join("libmpi_abi.so")
    })
}

/// Makes a folder in which the library has the names by which programs find it. Returns the folder's path.
fn library(folder: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libmpi_abi.so", "libmpi_abi.so.1"] {
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(built(), &link).unwrap();
    }
    folder
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn exactly_the_functions_of_the_table_are_exported() {
    let library = library("symbols").join("libmpi_abi.so");
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let names = listed.lines().filter_map(|line| line.split_whitespace().last());
    // The table of processes for debuggers (MPIR) has names of its own.
    let exported: BTreeSet<String> =
        names.filter(|name| !name.starts_with("MPIR_")).map(str::to_owned).collect();
    let names = abi::FUNCTIONS.lines().filter_map(|line| line.split_whitespace().next());
    let both = |name: &str| [name.to_owned(), format!("P{name}")];
    let mut expected: BTreeSet<String> = names.flat_map(both).collect();
    assert_eq!(expected.len(), 2 * 670);
    let header = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    // What only tests use is in no installed header.
    let extensions = header("include/mpi-ext.h") + &header("tests/programs/hooks.h");
    let words = extensions.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    expected.extend(words.filter(|word| word.starts_with("MPIX_") && !is_no_function(word)).flat_map(both));
    // What liboshmem.so takes from this library, without a header.
    let shmem = header("crates/oshmem/src/seen.rs") + &header("crates/oshmem/src/setup.rs");
    let words = shmem.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    expected.extend(words.filter(|word| word.starts_with("MPIX_Shmem_")).map(str::to_owned));
    let variables = ["F_STATUS_", "F_STATUSES_", "F08_STATUS_", "F08_STATUSES_"];
    expected.extend(variables.map(|name| format!("MPI_{name}IGNORE")));
    assert_eq!(exported.symmetric_difference(&expected).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn is_no_function(name: &str) -> bool {
    !name.contains(char::is_lowercase) || name == "MPIX_Stream"
}

#[test]
fn the_header_is_clean_c_and_cpp() {
    let folder = library("header");
    for (compiler, standard, name) in [("cc", "-std=c99", "h.c"), ("c++", "-std=c++11", "h.cc")] {
        let source = folder.join(name);
        std::fs::write(&source, "#include <mpi.h>\nMPI_Comm comm = MPI_COMM_WORLD;\n").unwrap();
        let flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", standard];
        run(Command::new(compiler).args(flags).arg("-I").arg(root().join("include")).arg(source));
    }
}

#[test]
fn c_programs_use_the_objects() {
    let folder = library("objects");
    for name in ["objects", "comms"] {
        let program = folder.join(name);
        let mut compile = Command::new("cc");
        compile.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root().join("include"));
        compile
            .arg(root().join("tests/abi").join(name).with_extension("c"))
            .arg("-L")
            .arg(&folder)
            .arg("-lmpi_abi");
        compile.arg(format!("-Wl,-rpath,{}", folder.display())).arg("-o").arg(&program);
        run(&mut compile);
        assert_eq!(run(&mut Command::new(program)), "ok\n");
    }
}

#[test]
fn an_error_before_init_names_the_call_and_ends_the_program() {
    let folder = library("early");
    let (source, program) = (folder.join("early.c"), folder.join("early"));
    std::fs::write(&source, "#include <mpi.h>\nint main(void) { return MPI_Barrier(MPI_COMM_WORLD), 0; }\n")
        .unwrap();
    let mut compile = Command::new("cc");
    compile.arg("-I").arg(root().join("include")).arg(source).arg("-L").arg(&folder).arg("-lmpi_abi");
    run(compile.arg(format!("-Wl,-rpath,{}", folder.display())).arg("-o").arg(&program));
    let output = Command::new(program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("MPI_Barrier on MPI_COMM_WORLD: called before MPI_Init"), "{said}");
}
