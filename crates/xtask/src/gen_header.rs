//! Generates `include/mpi.h`: the C shim of the MPI-5.0 standard ABI (MPI 5.0, chapter 20), from the tables.

use crate::table::{Constant, Function, HANDLES, Table};
use std::fmt::Write as _;

/// The header's text.
pub fn header(table: &Table) -> String {
    let mut text = String::from(HEAD);
    for handle in HANDLES {
        let tag = handle.trim_start_matches("MPI_");
        writeln!(text, "typedef struct MPI_ABI_{tag} *{handle};").expect("a String takes all");
    }
    text.push_str(TYPES);
    for callback in &table.callbacks {
        text.push_str(callback);
        text.push('\n');
    }
    text.push_str(OLDER_NAMES);
    text.push_str("\n/* Constants. */\n");
    for constant in &table.constants {
        // These are enumerators of their types, above.
        if ["MPI_T_CB_REQUIRE_", "MPI_T_SOURCE_"].iter().any(|start| constant.name.starts_with(start)) {
            continue;
        }
        writeln!(text, "#define {} {}", constant.name, value(constant)).expect("a String takes all");
    }
    for prefix in ["", "P"] {
        writeln!(
            text,
            "\n/* {}. */",
            if prefix.is_empty() { "Functions" } else { "The same, for profiling libraries" }
        )
        .expect("a String takes all");
        for function in &table.functions {
            text.push_str(&prototype(function, prefix));
        }
    }
    text.push_str("\n/* The handles of Fortran are these integers; the conversions may be macros (MPI 5.0, 2.6.4). */\n");
    for object in table.functions.iter().filter_map(|function| function.name.strip_suffix("_toint")) {
        writeln!(text, "#define {object}_c2f(handle) {object}_toint(handle)").expect("a String takes all");
        writeln!(text, "#define {object}_f2c(handle) {object}_fromint(handle)").expect("a String takes all");
    }
    text.push_str(&removed());
    text.push_str(TAIL);
    text
}

/// What MPI-3.0 removed: a program that uses it is told at compile time what to write instead.
fn removed() -> String {
    let mut text = String::from(REMOVED);
    for (declaration, name, successor) in REMOVED_FUNCTIONS {
        writeln!(
            text,
            "{declaration} MPI_ABI_REMOVED(\"{name} was removed by MPI-3.0: write {successor}\");"
        )
        .expect("a String takes all");
    }
    text.push_str("#ifdef MPI_ABI_HAS_UNAVAILABLE\n");
    for (declaration, name, successor) in REMOVED_OTHERS {
        writeln!(
            text,
            "{declaration} MPI_ABI_REMOVED(\"{name} was removed by MPI-3.0: write {successor}\");"
        )
        .expect("a String takes all");
    }
    text.push_str("#endif\n#endif\n");
    text
}

const REMOVED: &str = "
/* Names that MPI-3.0 removed (MPI 5.0, 17.1): whoever uses one is told its successor. */
#if defined(__has_attribute)
#if __has_attribute(unavailable)
#define MPI_ABI_HAS_UNAVAILABLE 1
#define MPI_ABI_REMOVED(sentence) __attribute__((unavailable(sentence)))
#elif __has_attribute(error)
#define MPI_ABI_REMOVED(sentence) __attribute__((error(sentence)))
#endif
#endif
#ifdef MPI_ABI_REMOVED
";

/// The declaration, the name, and what took its place.
const REMOVED_FUNCTIONS: [(&str, &str, &str); 10] = [
    ("int MPI_Address(void *location, MPI_Aint *address)", "MPI_Address", "MPI_Get_address"),
    (
        "int MPI_Errhandler_create(MPI_Comm_errhandler_function *function, MPI_Errhandler *errhandler)",
        "MPI_Errhandler_create",
        "MPI_Comm_create_errhandler",
    ),
    (
        "int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *errhandler)",
        "MPI_Errhandler_get",
        "MPI_Comm_get_errhandler",
    ),
    (
        "int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler errhandler)",
        "MPI_Errhandler_set",
        "MPI_Comm_set_errhandler",
    ),
    (
        "int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent)",
        "MPI_Type_extent",
        "MPI_Type_get_extent",
    ),
    (
        "int MPI_Type_hindexed(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype)",
        "MPI_Type_hindexed",
        "MPI_Type_create_hindexed",
    ),
    (
        "int MPI_Type_hvector(int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype, MPI_Datatype *newtype)",
        "MPI_Type_hvector",
        "MPI_Type_create_hvector",
    ),
    ("int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint *displacement)", "MPI_Type_lb", "MPI_Type_get_extent"),
    (
        "int MPI_Type_struct(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype types[], MPI_Datatype *newtype)",
        "MPI_Type_struct",
        "MPI_Type_create_struct",
    ),
    ("int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement)", "MPI_Type_ub", "MPI_Type_get_extent"),
];

const REMOVED_OTHERS: [(&str, &str, &str); 6] = [
    (
        "typedef void MPI_Handler_function(MPI_Comm *, int *, ...)",
        "MPI_Handler_function",
        "MPI_Comm_errhandler_function",
    ),
    ("extern MPI_Datatype MPI_LB", "MPI_LB", "MPI_Type_create_resized"),
    ("extern MPI_Datatype MPI_UB", "MPI_UB", "MPI_Type_create_resized"),
    ("extern int MPI_COMBINER_HINDEXED_INTEGER", "MPI_COMBINER_HINDEXED_INTEGER", "MPI_COMBINER_HINDEXED"),
    ("extern int MPI_COMBINER_HVECTOR_INTEGER", "MPI_COMBINER_HVECTOR_INTEGER", "MPI_COMBINER_HVECTOR"),
    ("extern int MPI_COMBINER_STRUCT_INTEGER", "MPI_COMBINER_STRUCT_INTEGER", "MPI_COMBINER_STRUCT"),
];

const HEAD: &str = "/* mpi.h of the MPI-5.0 standard ABI (MPI 5.0, chapter 20), as provided by Outboard.
 * Programs compiled with it run on every MPI that has libmpi_abi.so.1.
 * Generated by `cargo run -p outboard-xtask -- gen` from tables/. */
#ifndef MPI_H_ABI
#define MPI_H_ABI

#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;
typedef int MPI_Fint;

typedef struct MPI_Status {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;

/* Handles: pointers to what the program never sees. */
";

const TYPES: &str = "
typedef struct MPI_ABI_T_enum *MPI_T_enum;
typedef struct MPI_ABI_T_cvar_handle *MPI_T_cvar_handle;
typedef struct MPI_ABI_T_pvar_handle *MPI_T_pvar_handle;
typedef struct MPI_ABI_T_pvar_session *MPI_T_pvar_session;
typedef struct MPI_ABI_T_event_registration *MPI_T_event_registration;
typedef struct MPI_ABI_T_event_instance *MPI_T_event_instance;
typedef enum MPI_T_cb_safety {
    MPI_T_CB_REQUIRE_NONE = 0,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED = 3,
    MPI_T_CB_REQUIRE_THREAD_SAFE = 15,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE = 63
} MPI_T_cb_safety;
typedef enum MPI_T_source_order {
    MPI_T_SOURCE_ORDERED = 1,
    MPI_T_SOURCE_UNORDERED = 2
} MPI_T_source_order;

/* Functions of the program that MPI calls. */
";

/// Deprecated since MPI 2.2; the configure script of PETSc 3.18 takes a library without them for one of MPI 1.
const OLDER_NAMES: &str = "
/* Older names of three of them. */
typedef MPI_Comm_errhandler_function MPI_Comm_errhandler_fn;
typedef MPI_File_errhandler_function MPI_File_errhandler_fn;
typedef MPI_Win_errhandler_function MPI_Win_errhandler_fn;
";

const TAIL: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

fn value(constant: &Constant) -> String {
    let value = constant.standard;
    match &constant.r#type {
        Some(kind) => format!("(({kind}){value})"),
        None if value < 0 => format!("({value})"),
        None => value.to_string(),
    }
}

fn prototype(function: &Function, prefix: &str) -> String {
    let mut params: Vec<String> = Vec::new();
    for param in &function.params {
        let space = if param.name.is_empty() || param.r#type.ends_with('*') { "" } else { " " };
        // MPI_UNWEIGHTED is no array, and gcc warns of one that lies at such an address.
        let weights = !param.array.is_empty() && param.name.ends_with("weights");
        let (star, array) = if weights { ("*", "") } else { ("", param.array.as_str()) };
        params.push(format!("{}{space}{star}{}{array}", param.r#type, param.name));
    }
    let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
    format!("{} {prefix}{}({params});\n", function.returns, function.name)
}
