// SPDX-License-Identifier: BSD-3-Clause
//! Generates the MPICH ABI's shim (the C functions of that ABI): `crates/mpich/src/shim.rs`.
//!
//! The type and the name of a parameter decide how it is translated. `number` finds the family of constants
//! to which an int belongs. It refuses an unknown name, so that no new function stays untranslated. Read
//! next: `gen_numbers.rs` has the families.

use crate::gen_numbers::module_of;
use crate::gen_shim::{Converted, Dialect, c_return, convert, identifier};
use crate::table::{ApiFunction, ApiTable, HANDLES, Param, Removed};
use std::path::Path;

/// Finds the family of constants (such as RANK or TAG) to which a parameter of type int belongs, by its name.
/// Returns None if the number needs no translation.
fn number(function: &str, param: &Param) -> Option<&'static str> {
    let family = match (function, param.name.as_str()) {
        // The number becomes the exit code of the job.
        ("MPI_Abort", "errorcode") => return None,
        ("MPI_Comm_rank" | "MPI_Group_rank" | "MPI_Cart_rank", "rank") => return None,
        (name, _) if name.ends_with("_fromint") => return None,
        ("MPI_Topo_test", "status") => "TOPOLOGY",
        (_, "source" | "dest" | "root" | "rank" | "target_rank" | "local_leader" | "remote_leader") => "RANK",
        (_, "rank_source" | "rank_dest" | "ranks1" | "ranks2") => "RANK",
        (_, "tag" | "sendtag" | "recvtag") => "TAG",
        (_, "error" | "errorcode" | "errorclass" | "array_of_errcodes") => "CODE",
        (_, "comm_keyval" | "type_keyval" | "win_keyval" | "keyval") => "KEYVAL",
        (_, "result") => "COMPARISON",
        (_, "required" | "provided") => "THREAD",
        (_, "combiner") => "COMBINER",
        (_, "split_type") => "SPLIT_TYPE",
        (_, "order") => "ORDER",
        (_, "array_of_distribs") => "DISTRIBUTION",
        (_, "array_of_dargs") => "DISTRIBUTION_ARGUMENT",
        (_, "lock_type") => "LOCK",
        (_, "amode") => "ACCESS",
        (_, "assert") => "ASSERTION",
        (_, "whence") => "SEEK",
        (_, "typeclass") => "TYPE_CLASS",
        (_, "bind") => "BIND",
        (_, "scope") => "SCOPE",
        (_, "verbosity") => "VERBOSITY",
        (_, "var_class") => "VARIABLE_CLASS",
        (_, "cb_safety") => "SAFETY",
        (_, "ordering") => "SOURCE_ORDER",
        (_, name) if PLAIN.contains(&name) => return None,
        (_, name) => panic!("{function}: say in gen_mpich.rs what kind of number `{name}` is"),
    };
    Some(family)
}

/// The names of int parameters that need no translation: counts, indices, sizes and flags. Their only
/// constant, MPI_UNDEFINED, has the same value in both ABIs.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "abi_major", "abi_minor", "argc", "array_of_blocklengths", "array_of_displacements", "array_of_gsizes", "array_of_indices",
    "array_of_integers", "array_of_maxprocs", "array_of_partitions", "array_of_psizes", "array_of_sizes", "array_of_starts",
    "array_of_subsizes", "atomic", "blocklength", "buflen", "cat_index", "color", "commute", "continuous", "coords", "count",
    "cvar_index", "degrees", "desc_len", "destinations", "destweights", "dims", "direction", "disp", "disp_unit", "displs", "edges",
    "element_index", "event_index", "fd", "flag", "high", "incount", "indegree", "indices", "indx", "insize", "is_set", "key", "len",
    "length", "level", "logical_size", "max_addresses", "max_datatypes", "max_integers", "maxdims", "maxedges", "maxindegree", "maxindex",
    "maxneighbors", "maxoutdegree", "maxprocs", "n", "name_len", "ndims", "nedges", "neighbors", "newrank", "nkeys", "nneighbors",
    "nnodes", "npset_names", "num", "num_addresses", "num_cat", "num_categories", "num_cvar", "num_cvars", "num_datatypes",
    "num_elements", "num_events", "num_integers", "num_pvar", "num_pvars", "num_sources", "origin_count", "outcount", "outdegree", "outsize",
    "p", "partition", "partition_high", "partition_low", "partitions", "periods", "position", "pset_len", "pvar_index", "r", "ranges",
    "ranks", "rdispls", "readonly", "recvcount", "recvcounts", "remain_dims", "reorder", "result_count", "resultlen", "sdispls",
    "sendcount", "sendcounts", "size", "source_index", "sources", "sourceweights", "stride", "subversion", "target_count",
    "update_number", "value", "valuelen", "version", "weighted", "weights",
];

/// Makes the text of `crates/mpich/src/shim.rs`, not yet formatted: the C functions of the MPICH ABI.
pub fn shim(root: &Path, table: &ApiTable) -> Result<String, String> {
    check_removed(root, table)?;
    let dialect = Dialect {
        head: HEAD,
        convert: converted,
        returns,
        code: |call| format!("translate::code_to({call})"),
        code_without_body,
    };
    Ok(crate::gen_shim::generate(root, table, &dialect)?.0)
}

/// Checks that `crates/mpich` has each function that MPI-3.0 removed, written by hand. The generated shim
/// lacks these functions.
fn check_removed(root: &Path, table: &ApiTable) -> Result<(), String> {
    let path = root.join("crates/mpich/src/extra.rs");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let is_missing = |name: &str| !text.contains(&format!("{name} P{name}("));
    match table.removed.iter().find(|removed| removed.is_function() && is_missing(&removed.name)) {
        Some(Removed { name, .. }) => {
            Err(format!("crates/mpich/src/extra.rs: lacks {name} (tables/removed.toml)"))
        }
        None => Ok(()),
    }
}

const HEAD: &str = "//! The C entry points of the MPICH ABI. Generated by `cargo run -p outboard-xtask -- gen` from `tables/` and the bodies in `abi`.
//!
//! The functions of the standard's shim, with numbers, handles and pointers translated by `translate.rs` and `numbers.rs`.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]
#![allow(unused_variables, clippy::redundant_closure)] // In functions without a body, and in those without parameters.
#![allow(clippy::undocumented_unsafe_blocks)] // One contract for all: the caller's C arguments are what MPI asks for.

use crate::{numbers, translate};
#[allow(unused_imports)] // As many as the functions with a body need.
use abi::args::{Address, Array, Callback, Counts, Handle, In, Out, OutCount, StatusIn, StatusOut, Statuses, Text, TextOut};
use abi::body;
use abi::call_fast;
use abi::process::{On, anytime, call, tool};
use std::ffi::c_int;

";

fn returns(name: &str) -> &'static str {
    match name {
        "MPI_File" => "usize",
        handle if HANDLES.contains(&handle) => "c_int",
        other => c_return(other),
    }
}

/// Returns the code of a function that converts a handle to an int or back. MPICH's handles are ints already;
/// only a file is a pointer, which fits into an int. Returns None for other functions.
fn code_without_body(function: &ApiFunction) -> Option<String> {
    let param = || identifier(&function.params[0].name);
    match function.name.as_str() {
        "MPI_File_toint" => Some(format!("{} as c_int", param())),
        "MPI_File_fromint" => Some(format!("{} as u32 as usize", param())),
        name if name.ends_with("_toint") || name.ends_with("_fromint") => Some(param()),
        _ => None,
    }
}

/// Returns the code by which the shim of the MPICH ABI converts a parameter.
fn converted(function: &ApiFunction, param: &Param, wide: bool) -> Converted {
    let name = &param.name;
    let bound = identifier(name);
    let plain = param.r#type.strip_prefix("const ").unwrap_or(&param.r#type);
    let constant = plain.len() != param.r#type.len();
    let array = !param.array.is_empty();
    if let Some(handle) = HANDLES.iter().find(|handle| plain.strip_suffix(" *").unwrap_or(plain) == **handle)
    {
        return converted_handle(param, handle);
    }
    let is_int = matches!(plain, "int" | "int *" | "MPI_T_cb_safety" | "MPI_T_source_order *");
    if is_int
        && !wide
        && let Some(family) = number(&function.name, param)
    {
        return converted_int(param, family);
    }
    if plain == "char *"
        && !array
        && !constant
        && let Some(bytes) = bytes_of(&function.name, name)
    {
        return Converted::new("usize", format!("TextOut::at_most({bound}, \"{name}\", {bytes})"));
    }
    let status = |wrapper: &str| {
        in_form(param, wrapper, "translate::STATUS").shadowing(format!("translate::ignorable({bound})"))
    };
    match (plain, name.as_str()) {
        ("MPI_Offset", "disp") => {
            Converted::new("i64", bound.clone()).shadowing(format!("translate::displacement_from({bound})"))
        }
        ("MPI_Status *", "array_of_statuses") => status("Statuses"),
        ("MPI_Status *" | "MPI_Fint *" | "MPI_F08_status *", _) => {
            status(if constant { "StatusIn" } else { "StatusOut" })
        }
        ("void *", "buf" | "buffer" | "sendbuf" | "recvbuf" | "inbuf" | "inoutbuf" | "outbuf")
        | ("void *", "origin_addr" | "result_addr" | "compare_addr") => {
            Converted::new("usize", format!("Address(translate::buffer_from({bound}))"))
        }
        ("void *", "buffer_addr") => Converted {
            after: Some(format!("translate::attached({bound})")),
            ..Converted::new("usize", format!("Address({bound})"))
        },
        _ => {
            let (c, rust) = convert(param, wide);
            Converted::new(c, rust)
        }
    }
}

/// Returns the code that converts a parameter that is a handle, or the address of one or more handles.
fn converted_handle(param: &Param, handle: &str) -> Converted {
    let kind = match handle {
        "MPI_File" => "FILE",
        "MPI_Message" => "MESSAGE",
        _ => "HANDLE",
    };
    match wrapper(param) {
        Some(wrapper) => in_form(param, &format!("{wrapper}::<Handle>"), &format!("translate::{kind}")),
        None => {
            let bound = identifier(&param.name);
            let c = if handle == "MPI_File" { "usize" } else { "c_int" };
            let from = format!("translate::{}_from({bound})", kind.to_lowercase());
            Converted::new(c, bound).shadowing(from)
        }
    }
}

/// Returns the code that converts a parameter that is an int, or the address of ints. These ints may be
/// constants of the family `family`.
fn converted_int(param: &Param, family: &str) -> Converted {
    let module = module_of(family);
    match wrapper(param) {
        Some(wrapper) => in_form(param, &format!("{wrapper}::<i32>"), &format!("{module}::{family}")),
        None => {
            let bound = identifier(&param.name);
            let from = format!("{module}::{}_from({bound})", family.to_lowercase());
            Converted::new("c_int", bound).shadowing(from)
        }
    }
}

/// Returns the name of the wrapper (such as `In`) by which a function's body reaches the program's memory.
/// Returns None if the parameter is a value.
fn wrapper(param: &Param) -> Option<&'static str> {
    match (!param.array.is_empty(), param.r#type.ends_with('*')) {
        (true, _) if param.r#type.starts_with("const ") => Some("In"),
        (true, _) => Some("Array"),
        (false, true) => Some("Out"),
        (false, false) => None,
    }
}

/// Returns the code that converts a parameter that is the address of values. The `ShimForm` named `table`
/// translates these values.
fn in_form(param: &Param, wrapper: &str, table: &str) -> Converted {
    let (bound, name) = (identifier(&param.name), &param.name);
    Converted::new("usize", format!("{wrapper}::in_form({bound}, \"{name}\", &{table})"))
}

/// Returns the most bytes that may be stored in a text for which MPICH's programs provide less room than the
/// standard ABI demands. Returns None for other texts.
fn bytes_of(function: &str, param: &str) -> Option<u32> {
    match (function, param) {
        ("MPI_Get_processor_name", "name") => Some(128),
        ("MPI_Open_port" | "MPI_Lookup_name", "port_name") => Some(256),
        ("MPI_Info_get_nthkey", "key") => Some(255),
        _ => None,
    }
}
