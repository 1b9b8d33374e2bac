// SPDX-License-Identifier: BSD-3-Clause
//! The constants of the three Fortran bindings (`mpif.h`, `mpi`, `mpi_f08`). This file also makes
//! `crates/fortran/src/numbers.rs`, with the constants that the Fortran library itself uses.

use crate::table::{ApiTable, Constant, HANDLES};

/// A constant that has a name in the Fortran bindings.
struct Named<'a> {
    name: &'a str,
    /// The type of handle, such as `MPI_Comm`, if the constant is a handle. None if it is a number.
    handle: Option<&'a str>,
    /// Whether the constant's type is INTEGER(KIND=MPI_OFFSET_KIND).
    long: bool,
    value: i64,
}

/// The variables whose addresses have a meaning in MPI, such as MPI_IN_PLACE. Each row has a name, a type and
/// a shape.
const VARIABLES: [(&str, &str, &str); 10] = [
    ("MPI_BOTTOM", "INTEGER", ""),
    ("MPI_IN_PLACE", "INTEGER", ""),
    ("MPI_BUFFER_AUTOMATIC", "INTEGER", ""),
    ("MPI_STATUS_IGNORE", "STATUS", ""),
    ("MPI_STATUSES_IGNORE", "STATUS", "1"),
    ("MPI_ERRCODES_IGNORE", "INTEGER", "1"),
    ("MPI_UNWEIGHTED", "INTEGER", "1"),
    ("MPI_WEIGHTS_EMPTY", "INTEGER", "1"),
    ("MPI_ARGV_NULL", "CHARACTER(LEN=1)", "1"),
    ("MPI_ARGVS_NULL", "CHARACTER(LEN=1)", "1,1"),
];

/// Returns the name of the common block that contains a variable of `VARIABLES`;
/// `crates/fortran/src/memory.rs` defines the block.
fn common(variable: &str) -> String {
    variable.replace("MPI_", "MPIFORT_")
}

fn named<'a>(table: &'a ApiTable) -> Vec<Named<'a>> {
    let mut all: Vec<Named> = table.constants.iter().filter_map(of).collect();
    all.push(Named { name: "MPI_STATUS_SIZE", handle: None, long: false, value: 8 });
    for (name, value) in [("MPI_SOURCE", 1), ("MPI_TAG", 2), ("MPI_ERROR", 3)] {
        all.push(Named { name, handle: None, long: false, value });
    }
    all
}

fn of(constant: &Constant) -> Option<Named<'_>> {
    let name = constant.name.as_str();
    // The tools interface and the C functions for statuses have no Fortran binding.
    if ["MPI_T_", "MPI_F_"].iter().any(|start| name.starts_with(start)) {
        return None;
    }
    let value = constant.standard;
    let (handle, long, value) = match constant.r#type.as_deref() {
        None if name.starts_with("MPI_MAX_") => (None, false, value - 1), // Without C's closing NUL.
        None => (None, false, value),
        Some("MPI_Offset") => (None, true, value),
        Some(kind) => (Some(*HANDLES.iter().find(|handle| **handle == kind)?), false, value),
    };
    Some(Named { name, handle, long, value })
}

/// The declarations of the kinds of integers (MPI_COUNT_KIND and others), which all three bindings have.
pub const KINDS: &str = "      INTEGER, PARAMETER :: MPI_ADDRESS_KIND = 8
      INTEGER, PARAMETER :: MPI_COUNT_KIND = 8
      INTEGER, PARAMETER :: MPI_OFFSET_KIND = 8
      INTEGER, PARAMETER :: MPI_INTEGER_KIND = 4
";

/// Makes the declarations of the constants for `mpif.h` and `mpi`, where handles are INTEGERs. Each line is
/// valid in fixed and in free form.
pub fn integers(table: &ApiTable) -> String {
    let mut text = String::from(KINDS);
    for named in named(table) {
        let kind = if named.long { "INTEGER(MPI_OFFSET_KIND)" } else { "INTEGER" };
        // The line has no blanks, since fixed form has only 72 columns.
        push!(text, "      {kind},PARAMETER::{}={}\n", named.name, named.value);
    }
    text.push_str(&logicals(false));
    for (name, kind, shape) in VARIABLES {
        let (kind, shape) = match kind {
            "STATUS" if shape.is_empty() => ("INTEGER", "(MPI_STATUS_SIZE)".into()),
            "STATUS" => ("INTEGER", format!("(MPI_STATUS_SIZE,{shape})")),
            kind if shape.is_empty() => (kind, String::new()),
            kind => (kind, format!("({shape})")),
        };
        push!(text, "      {kind} :: {name}{shape}\n      COMMON /{}/ {name}\n", common(name));
    }
    text
}

fn logicals(sections: bool) -> String {
    let mut text = String::new();
    let sections = if sections { ".TRUE." } else { ".FALSE." };
    for (name, value) in
        [("MPI_SUBARRAYS_SUPPORTED", sections), ("MPI_ASYNC_PROTECTS_NONBLOCKING", ".FALSE.")]
    {
        push!(text, "      LOGICAL, PARAMETER :: {name}={value}\n");
    }
    text
}

/// Makes the declarations of the constants for `mpi_f08`, where each kind of handle has a TYPE.
pub fn typed(table: &ApiTable) -> String {
    let mut text = String::new();
    for named in named(table) {
        let Named { name, handle, long, value } = named;
        match handle {
            Some(handle) => push!(text, "      TYPE({handle}), PARAMETER :: {name}={handle}({value})\n"),
            None if long => push!(text, "      INTEGER(KIND=MPI_OFFSET_KIND), PARAMETER :: {name}={value}\n"),
            None => push!(text, "      INTEGER, PARAMETER :: {name}={value}\n"),
        }
    }
    text.push_str(&logicals(true));
    for (name, kind, shape) in VARIABLES {
        let kind = if kind == "STATUS" { "TYPE(MPI_Status)" } else { kind };
        let shape = if shape.is_empty() { String::new() } else { format!("({shape})") };
        push!(text, "      {kind} :: {name}{shape}\n      COMMON /{}/ {name}\n", common(name));
    }
    text
}

/// Returns the predefined procedures, each as its name, such as MPI_COMM_DUP_FN, and the C type of such a
/// callback.
pub fn procedures(table: &ApiTable) -> Vec<(&str, &str)> {
    table
        .constants
        .iter()
        .filter_map(|constant| Some((constant.name.as_str(), constant.r#type.as_deref()?.strip_suffix('*')?)))
        .filter(|(_, kind)| kind.ends_with("_function") || kind.ends_with("_function_c"))
        .collect()
}

/// Makes the text of `crates/fortran/src/numbers.rs`, not yet formatted: the values of constants in the
/// standard ABI and in MPICH's.
pub fn numbers(table: &ApiTable) -> String {
    let mut text = String::from(
        "//! Constants as numbers of the standard ABI and of MPICH's. Generated by `cargo run -p outboard-xtask -- gen` from `tables/constants.json`.\n\
         #![allow(dead_code, clippy::unreadable_literal)] // All constants, whether the bindings need them or not.\n\n\
         const fn int(standard: i32, mpich: i32) -> i32 {\n    if cfg!(mpich) { mpich } else { standard }\n}\n\n\
         const fn address(standard: isize, mpich: isize) -> isize {\n    if cfg!(mpich) { mpich } else { standard }\n}\n\n",
    );
    for constant in &table.constants {
        let name = constant.name.trim_start_matches("MPI_");
        let (Some(mpich), false) = (constant.mpich, name.starts_with("T_")) else { continue };
        let (kind, of) = match &constant.r#type {
            None => ("i32", "int"),
            Some(kind) if HANDLES.contains(&kind.as_str()) => ("i32", "int"),
            Some(kind) if kind.ends_with('*') && !kind.contains("_function") => ("isize", "address"),
            _ => continue,
        };
        let name =
            if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name.to_owned() };
        push!(text, "pub const {name}: {kind} = {of}({}, {mpich});\n", constant.standard);
    }
    text
}
