//! Generates the MPICH ABI's shim: `crates/mpich/src/shim.rs`, and the numbers that differ: `crates/mpich/src/numbers.rs`.
//!
//! Each parameter is known by its type and name; `number` says which family of constants an int belongs to, and refuses names that it does not
//! know, so that no new function slips through untranslated. The families and their numbers in both ABIs come from `tables/constants.json`.

use crate::gen_shim::{Converted, Dialect, c_return, convert, identifier};
use crate::table::{Constant, Function, HANDLES, Param, Removed, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// A family of constants that ints are taken from: the name of its table in `numbers.rs`, and which constants belong to it.
struct Family {
    name: &'static str,
    /// How the names of the constants begin; whole names are given with a stop.
    starts: &'static [&'static str],
    /// Whether they are flags, which are added up.
    flags: bool,
}

const fn numbers(name: &'static str, starts: &'static [&'static str]) -> Family {
    Family { name, starts, flags: false }
}

const FAMILIES: &[Family] = &[
    numbers("RANK", &["MPI_ANY_SOURCE.", "MPI_PROC_NULL.", "MPI_ROOT."]),
    numbers("TAG", &["MPI_ANY_TAG."]),
    numbers("COMPARISON", &["MPI_IDENT.", "MPI_CONGRUENT.", "MPI_SIMILAR.", "MPI_UNEQUAL."]),
    numbers("THREAD", &["MPI_THREAD_"]),
    numbers("COMBINER", &["MPI_COMBINER_"]),
    numbers("TOPOLOGY", &["MPI_GRAPH.", "MPI_CART.", "MPI_DIST_GRAPH."]),
    numbers("SPLIT_TYPE", &["MPI_COMM_TYPE_"]),
    numbers("ORDER", &["MPI_ORDER_"]),
    numbers("DISTRIBUTION", &["MPI_DISTRIBUTE_BLOCK.", "MPI_DISTRIBUTE_CYCLIC.", "MPI_DISTRIBUTE_NONE."]),
    numbers("DISTRIBUTION_ARGUMENT", &["MPI_DISTRIBUTE_DFLT_DARG."]),
    numbers("LOCK", &["MPI_LOCK_"]),
    numbers("SEEK", &["MPI_SEEK_"]),
    numbers("TYPE_CLASS", &["MPI_TYPECLASS_"]),
    numbers("WIN_FLAVOR", &["MPI_WIN_FLAVOR_"]),
    numbers("WIN_MODEL", &["MPI_WIN_SEPARATE.", "MPI_WIN_UNIFIED."]),
    numbers("DISPLACEMENT", &["MPI_DISPLACEMENT_CURRENT."]),
    numbers(
        "KEYVAL",
        &[
            "MPI_KEYVAL_INVALID.",
            "MPI_APPNUM.",
            "MPI_HOST.",
            "MPI_IO.",
            "MPI_LASTUSEDCODE.",
            "MPI_TAG_UB.",
            "MPI_UNIVERSE_SIZE.",
            "MPI_WTIME_IS_GLOBAL.",
            "MPI_WIN_BASE.",
            "MPI_WIN_CREATE_FLAVOR.",
            "MPI_WIN_DISP_UNIT.",
            "MPI_WIN_MODEL.",
            "MPI_WIN_SIZE.",
        ],
    ),
    numbers("CODE", &["MPI_ERR_", "MPI_T_ERR_"]),
    numbers("BIND", &["MPI_T_BIND_"]),
    numbers("SCOPE", &["MPI_T_SCOPE_"]),
    numbers("VERBOSITY", &["MPI_T_VERBOSITY_"]),
    numbers("VARIABLE_CLASS", &["MPI_T_PVAR_CLASS_"]),
    numbers("SAFETY", &["MPI_T_CB_REQUIRE_"]),
    numbers("SOURCE_ORDER", &["MPI_T_SOURCE_"]),
    Family {
        name: "ACCESS",
        starts: &[
            "MPI_MODE_APPEND.",
            "MPI_MODE_CREATE.",
            "MPI_MODE_DELETE_ON_CLOSE.",
            "MPI_MODE_EXCL.",
            "MPI_MODE_RD",
            "MPI_MODE_SEQUENTIAL.",
            "MPI_MODE_UNIQUE_OPEN.",
            "MPI_MODE_WRONLY.",
        ],
        flags: true,
    },
    Family { name: "ASSERTION", starts: &["MPI_MODE_NO"], flags: true },
];

/// Constants that stay as they are or are no numbers of a parameter: sizes of the program's own arrays, versions, sentinels of pointers.
const APART: &[&str] = &[
    "MPI_ABI_",
    "MPI_BSEND_OVERHEAD.",
    "MPI_ERR_LASTCODE.",
    "MPI_F_",
    "MPI_MAX_",
    "MPI_SUBVERSION.",
    "MPI_SUCCESS.",
    "MPI_UNDEFINED.",
    "MPI_VERSION.",
];

/// The family that an int of a function belongs to, by the parameter's name; `None`: a plain number.
fn number(function: &str, param: &Param) -> Option<&'static str> {
    let family = match (function, param.name.as_str()) {
        // It becomes the exit code of the job.
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

/// Names of parameters that are numbers and nothing else: counts, indices, sizes, flags, or MPI_UNDEFINED, which both ABIs give one value.
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

/// The families that `translate.rs` knows more of than a list of numbers.
fn module_of(family: &str) -> &'static str {
    if ["CODE", "KEYVAL", "DISPLACEMENT"].contains(&family) { "translate" } else { "numbers" }
}

/// Whether ints in memory are of this family; the others are passed by value, or translated by `translate.rs` alone.
fn used(family: &str) -> bool {
    !["SPLIT_TYPE", "ORDER", "LOCK", "SEEK", "TYPE_CLASS", "WIN_FLAVOR", "WIN_MODEL", "SAFETY"]
        .contains(&family)
}

/// The MPICH ABI's shim, not yet formatted.
pub fn shim(root: &Path, table: &Table) -> Result<String, String> {
    check_removed(root, table)?;
    let dialect = Dialect {
        head: HEAD,
        convert: converted,
        returns,
        code: |call| format!("translate::code_to({call})"),
        inside,
    };
    Ok(crate::gen_shim::generate(root, table, &dialect)?.0)
}

/// The shim has the standard's functions; those that MPI-3.0 removed are written by hand.
fn check_removed(root: &Path, table: &Table) -> Result<(), String> {
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
//! As the standard's shim, with numbers, handles and pointers translated by `translate.rs` and `numbers.rs`.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]
#![allow(unused_variables, clippy::redundant_closure)] // Functions without a body; functions without parameters.
#![allow(clippy::undocumented_unsafe_blocks)] // One contract for all: the caller's C arguments are what MPI asks for.

use crate::{numbers, translate};
#[allow(unused_imports)] // As many as the functions with a body need.
use abi::args::{Address, Array, Callback, Counts, Handle, In, Out, OutCount, StatusIn, StatusOut, Statuses, Text, TextOut};
use abi::body;
use abi::call_plain;
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

/// Handles are C ints already; but for files, which are pointers that fit into an int.
fn inside(function: &Function) -> Option<String> {
    let param = || identifier(&function.params[0].name);
    match function.name.as_str() {
        "MPI_File_toint" => Some(format!("{} as c_int", param())),
        "MPI_File_fromint" => Some(format!("{} as u32 as usize", param())),
        name if name.ends_with("_toint") || name.ends_with("_fromint") => Some(param()),
        _ => None,
    }
}

/// What a parameter of the MPICH ABI becomes.
fn converted(function: &Function, param: &Param, wide: bool) -> Converted {
    let name = &param.name;
    let bound = identifier(name);
    let plain = param.r#type.strip_prefix("const ").unwrap_or(&param.r#type);
    let constant = plain.len() != param.r#type.len();
    let foreign = |wrapper: &str, table: &str| {
        Converted::new("usize", format!("{wrapper}::foreign({bound}, \"{name}\", &{table})"))
    };
    let array = !param.array.is_empty();
    if let Some(handle) = HANDLES.iter().find(|handle| plain.strip_suffix(" *").unwrap_or(plain) == **handle)
    {
        let kind = match *handle {
            "MPI_File" => "FILE",
            "MPI_Message" => "MESSAGE",
            _ => "HANDLE",
        };
        return match (array, plain == *handle) {
            (true, _) if constant => foreign("In::<Handle>", &format!("translate::{kind}")),
            (true, _) => foreign("Array::<Handle>", &format!("translate::{kind}")),
            (false, false) => foreign("Out::<Handle>", &format!("translate::{kind}")),
            (false, true) => {
                let c = if *handle == "MPI_File" { "usize" } else { "c_int" };
                Converted::new(c, bound.clone())
                    .shadowing(format!("translate::{}_from({bound})", kind.to_lowercase()))
            }
        };
    }
    let is_int = matches!(plain, "int" | "int *" | "MPI_T_cb_safety" | "MPI_T_source_order *");
    if is_int
        && !wide
        && let Some(family) = number(&function.name, param)
    {
        let table = format!("{}::{family}", module_of(family));
        return match (array, plain.ends_with('*')) {
            (true, _) if constant => foreign("In::<i32>", &table),
            (true, _) => foreign("Array::<i32>", &table),
            (false, true) => foreign("Out::<i32>", &table),
            (false, false) => Converted::new("c_int", bound.clone()).shadowing(format!(
                "{}::{}_from({bound})",
                module_of(family),
                family.to_lowercase()
            )),
        };
    }
    match (plain, name.as_str()) {
        ("MPI_Offset", "disp") => {
            Converted::new("i64", bound.clone()).shadowing(format!("translate::displacement_from({bound})"))
        }
        ("MPI_Status *", _) if constant => {
            foreign("StatusIn", "translate::STATUS").shadowing(format!("translate::ignorable({bound})"))
        }
        ("MPI_Status *", "array_of_statuses") => {
            foreign("Statuses", "translate::STATUS").shadowing(format!("translate::ignorable({bound})"))
        }
        ("MPI_Status *", _) => {
            foreign("StatusOut", "translate::STATUS").shadowing(format!("translate::ignorable({bound})"))
        }
        ("char *", _)
            if !array
                && !constant
                && let Some(bytes) = bytes_of(&function.name, name) =>
        {
            Converted::new("usize", format!("TextOut::at_most({bound}, \"{name}\", {bytes})"))
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

/// Bytes that MPICH's programs provide for a text, where they are fewer than the standard ABI's.
fn bytes_of(function: &str, param: &str) -> Option<u32> {
    match (function, param) {
        ("MPI_Get_processor_name", "name") => Some(128),
        ("MPI_Open_port" | "MPI_Lookup_name", "port_name") => Some(256),
        ("MPI_Info_get_nthkey", "key") => Some(255),
        _ => None,
    }
}

/// The text of `numbers.rs`, not yet formatted.
pub fn numbers_text(table: &Table) -> Result<String, String> {
    let mut text = String::from(
        "//! The numbers of the MPICH ABI and ours. Generated by `cargo run -p outboard-xtask -- gen` from `tables/constants.json`.\n\
         //!\n\
         //! In each family a number that only one side uses is swapped with one that only the other uses, so that every number goes through and\n\
         //! back unchanged, and a wrong one never becomes a right one.\n\
         #![allow(dead_code)] // Families have both ways; the functions with a body need some.\n\n\
         use crate::translate::{families, flags, permutation};\n\n",
    );
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut facts = String::new();
    for family in FAMILIES {
        let members: Vec<&Constant> = table
            .constants
            .iter()
            .filter(|c| {
                c.r#type.as_deref().unwrap_or("int") != "MPI_Datatype"
                    && belongs(&c.name, family.starts)
                    && !belongs(&c.name, APART)
            })
            .collect();
        known.extend(members.iter().map(|c| c.name.as_str()));
        let mut pairs = Vec::new();
        let lower = family.name.to_lowercase();
        let shim = if module_of(family.name) == "translate" && family.name != "DISPLACEMENT" {
            "crate::translate::"
        } else {
            ""
        };
        for member in &members {
            let theirs = member.mpich.ok_or_else(|| format!("{} has no value for MPICH", member.name))?;
            pairs.push((member.standard, theirs));
            writeln!(
                facts,
                "(\"{}\", {}, {}, {shim}{lower}_from, {shim}{lower}_to),",
                member.name, member.standard, theirs
            )
            .expect("a String takes all");
        }
        let list: Vec<String> = if family.flags { pairs.clone() } else { closed(&pairs) }
            .iter()
            .map(|(ours, theirs)| format!("{ours} = {theirs}"))
            .collect();
        let form = match family.name {
            name if family.flags => format!("flags! {{ {name}, "),
            // Only those of which there are tables, and which `translate.rs` does not make more of.
            name if module_of(name) == "numbers" && used(name) => format!("families! {{ {name}, "),
            _ => "permutation! { ".to_owned(),
        };
        writeln!(text, "{form}{lower}_from, {lower}_to: {} }}", list.join(", ")).expect("a String takes all");
    }
    let mut handles = BTreeMap::from(BESIDE.map(|(ours, theirs, name)| (ours, (theirs, name.to_owned()))));
    for constant in table.constants.iter().filter(|c| c.is_handle() && !c.is_alias) {
        // MPI_File is a pointer there, and its null handle a null pointer; MPI_MESSAGE_NULL has the number of MPI_REQUEST_NULL.
        if constant.r#type.as_deref() != Some("MPI_File") {
            let theirs = constant.mpich.ok_or_else(|| format!("{} has no value for MPICH", constant.name))?;
            handles.insert(constant.standard, (theirs as u32 as i32, constant.name.clone()));
        }
    }
    for constant in &table.constants {
        let apart = constant.is_address()
            || constant.is_handle()
            || belongs(&constant.name, APART)
            || constant.name.contains("_DUP_FN")
            || constant.name == "MPI_DUP_FN";
        if !apart
            && !known.contains(constant.name.as_str())
            && !constant.r#type.as_deref().is_some_and(|t| t.contains("_function"))
        {
            return Err(format!(
                "tables/constants.json: {} belongs to no family of gen_mpich.rs",
                constant.name
            ));
        }
    }
    let keys: Vec<u32> = handles
        .iter()
        .filter(|(ours, _)| **ours != MESSAGE_NULL)
        .map(|(_, (theirs, _))| *theirs as u32)
        .collect();
    writeln!(text, "\n/// A multiplier that sends each of MPICH's predefined handles to a place of its own in a table of {PLACES}.\npub const SPREAD: u32 = {};", spread(&keys)?).expect("a String takes all");
    text.push_str("\n/// The predefined handles, but for files: ours and MPICH's.\n#[rustfmt::skip]\npub const HANDLES: &[(u16, i32)] = &[\n");
    for (ours, (theirs, name)) in &handles {
        writeln!(text, "({ours}, {theirs}), // {name}").expect("a String takes all");
    }
    text.push_str("];\n");
    write!(text, "\n/// Every constant of a family, as the table has it: its name, our number, MPICH's, both ways of the family.\n#[cfg(test)]\n#[rustfmt::skip]\n#[allow(clippy::type_complexity)] // A row of a table.\npub const FACTS: &[(&str, i32, i32, fn(i32) -> i32, fn(i32) -> i32)] = &[\n{facts}];\n").expect("a String takes all");
    Ok(text)
}

/// The datatypes that MPICH has beside the standard's (`datatype::predefined`): our number, MPICH's, its name.
const BESIDE: [(i64, i32, &str); 3] =
    [(0x2fd, 0x4c00_0010, "MPI_LB"), (0x2fe, 0x4c00_0011, "MPI_UB"), (0x2ff, 0x4c00_0246, "MPIX_C_FLOAT16")];

/// MPI_MESSAGE_NULL of the standard ABI.
const MESSAGE_NULL: i64 = 296;
/// Places of the table of predefined handles.
const PLACES: u32 = 1024;

fn belongs(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| match start.strip_suffix('.') {
        Some(whole) => name == whole,
        None => name.starts_with(start),
    })
}

/// Pairs that make a permutation: to those given, the numbers that occur on one side only are added in order.
fn closed(pairs: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let ours: BTreeSet<i64> = pairs.iter().map(|pair| pair.0).collect();
    let theirs: BTreeSet<i64> = pairs.iter().map(|pair| pair.1).collect();
    let mut all = pairs.to_vec();
    all.extend(theirs.difference(&ours).copied().zip(ours.difference(&theirs).copied()));
    all.retain(|(ours, theirs)| ours != theirs);
    all.sort_unstable();
    all
}

/// Tries multipliers until all keys have places of their own.
fn spread(keys: &[u32]) -> Result<u32, String> {
    let mut multiplier = 0x9e37_79b1u32;
    for _ in 0..10_000_000 {
        let mut taken = [false; PLACES as usize];
        if keys
            .iter()
            .all(|key| !std::mem::replace(&mut taken[(key.wrapping_mul(multiplier) >> 22) as usize], true))
        {
            return Ok(multiplier);
        }
        multiplier = multiplier.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35e) | 1;
    }
    Err("no multiplier spreads MPICH's handles over the table".into())
}
