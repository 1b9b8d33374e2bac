// SPDX-License-Identifier: BSD-3-Clause
//! Finds how each argument of a Fortran procedure is converted for C (its `DummyKind`), by its Fortran type,
//! its C type and its name.

use super::{Binding, Dummy};
use crate::table::Param;

/// How the shim (the generated functions that Fortran calls) converts an argument for C. A length is a Rust
/// expression.
pub enum DummyKind {
    /// A value: Fortran passes its address, and C takes the value itself.
    Value,
    /// An argument whose address Fortran passes and C takes unchanged.
    Address,
    /// A handle of the type that the text names. C takes its value.
    Handle(String),
    /// A handle whose address C takes. `written` says whether C stores a new handle there.
    HandleOut { handle: String, written: bool },
    /// An array of `length` handles. `written` says whether C stores new handles in it.
    Handles { handle: String, length: String, written: bool },
    /// A LOGICAL that C takes as an int.
    Logical,
    /// A LOGICAL in which C stores a value.
    LogicalOut,
    /// An array of `length` LOGICALs. `written` says whether C stores values in it.
    Logicals { length: String, written: bool },
    /// A CHARACTER(LEN=*) that C reads. `trimmed` says whether leading blanks are left out.
    Text { trimmed: bool },
    /// A CHARACTER in which C stores a text.
    TextOut,
    /// An array of `length` texts. With None a blank text ends the array.
    Texts { length: Option<String> },
    /// An array of `length` rows of texts. A blank text ends each row.
    TextRows { length: String },
    /// A status or an array of statuses, for which a program may pass MPI_STATUS_IGNORE.
    Status,
    /// A choice buffer (an argument of any type), and how the call uses it.
    Buffer(Access),
    /// An array for which a program may pass MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY or MPI_ERRCODES_IGNORE.
    Ignorable,
    /// A procedure of the program that MPI calls. The text names the function of `callback.rs` that makes a C
    /// function for it.
    Callback(String),
    /// The program's state for a callback (`extra_state`), which the shim stores in a `CallbackRecord`.
    State,
    /// The key of an attribute, which C reads. In some ABIs C numbers predefined keys differently.
    Key,
    /// The value of an attribute, which C reads.
    Attribute,
    /// The value of an attribute, which C stores.
    AttributeOut,
    /// An index that C stores. C counts from 0, and Fortran from 1.
    Index,
    /// An array of `length` indices that C stores. C counts from 0, and Fortran from 1.
    Indices { length: String },
    /// The length of a text, which C reads and stores. C counts the NUL at the end, and Fortran does not.
    LengthInOut,
    /// The place where C stores an address. Fortran declares it as TYPE(C_PTR) or as an integer.
    Pointer,
    /// The place where C stores the address of a detached buffer. That address may be MPI_BUFFER_AUTOMATIC.
    Detached,
}

/// How a call uses a choice buffer. Fortran may pass a section with gaps as buffer (MPI 5.0, section 19.1.2).
pub enum Access {
    /// The call uses `count` elements of `datatype`; both are positions of arguments. For a section with gaps
    /// the shim makes a datatype.
    Elements { count: usize, datatype: usize },
    /// The call uses the buffer in ways that no datatype describes, so the shim copies a section. With
    /// `written` it also copies the section back. The copy ends when the call returns, or with `lasting` when
    /// the call's request completes.
    Copy { written: bool, lasting: bool },
    /// The call uses parts of the buffer, or uses the buffer after the call has returned. The shim refuses a
    /// section with gaps.
    Whole,
    /// The call uses only the buffer's address.
    First,
}

/// Finds how the shim converts the argument at position `at` of a Fortran procedure.
pub fn of(binding: &Binding, at: usize) -> DummyKind {
    let pairs = binding.pairs();
    let (dummy, param) = pairs[at];
    let function = binding.function.name.as_str();
    let scalar = dummy.shape.is_empty();
    if let Some(handle) = dummy.handle() {
        let handle = handle.to_owned();
        return match (scalar, param.r#type.ends_with('*')) {
            (true, false) => DummyKind::Handle(handle),
            (true, true) => DummyKind::HandleOut { handle, written: dummy.intent != "in" },
            _ => DummyKind::Handles { handle, length: length(binding, dummy), written: dummy.intent != "in" },
        };
    }
    match (dummy.r#type.as_str(), dummy.name.as_str()) {
        ("TYPE(*), DIMENSION(..)", _) => DummyKind::Buffer(access(binding, at)),
        ("TYPE(MPI_Status)", _) => DummyKind::Status,
        ("TYPE(C_PTR)", "buffer_addr") => DummyKind::Detached,
        ("TYPE(C_PTR)", _) => DummyKind::Pointer,
        ("LOGICAL", _) if !scalar => {
            DummyKind::Logicals { length: length(binding, dummy), written: dummy.intent == "out" }
        }
        ("LOGICAL", _) if dummy.intent == "out" => DummyKind::LogicalOut,
        ("LOGICAL", _) => DummyKind::Logical,
        (text, name) if text.starts_with("CHARACTER") => match name {
            "argv" => DummyKind::Texts { length: None },
            "array_of_argv" => DummyKind::TextRows { length: "count".into() },
            "array_of_commands" => DummyKind::Texts { length: Some("count".into()) },
            _ if dummy.intent == "out" => DummyKind::TextOut,
            _ => DummyKind::Text { trimmed: function.starts_with("MPI_Info_") },
        },
        (procedure, name) if procedure.starts_with("PROCEDURE") => {
            DummyKind::Callback(callback(procedure, name))
        }
        (_, name) if name.ends_with("_keyval") && function.ends_with("_get_attr") => DummyKind::Key,
        (_, "extra_state") => DummyKind::State,
        (_, "attribute_val") if dummy.intent == "in" => DummyKind::Attribute,
        (_, "attribute_val") => DummyKind::AttributeOut,
        (_, "weights" | "sourceweights" | "destweights" | "array_of_errcodes") => DummyKind::Ignorable,
        (_, "buflen" | "pset_len") => DummyKind::LengthInOut,
        (_, "index") if dummy.intent == "out" && is_of_requests(function) => DummyKind::Index,
        (_, "array_of_indices") => DummyKind::Indices { length: "outcount".into() },
        _ if is_pointer(param) => DummyKind::Address,
        _ => DummyKind::Value,
    }
}

fn is_of_requests(function: &str) -> bool {
    ["Waitany", "Testany", "Request_get_status_any"].iter().any(|name| function.ends_with(name))
}

fn is_pointer(param: &Param) -> bool {
    !param.array.is_empty() || param.r#type.ends_with('*')
}

/// Returns a Rust expression for the number of elements of an array argument: another argument, or a function
/// of the comm.
fn length(binding: &Binding, dummy: &Dummy) -> String {
    let name = binding.function.name.as_str();
    match dummy.shape.trim_matches(['(', ')']) {
        "*" => match (dummy.name.as_str(), name.to_lowercase().contains("neighbor")) {
            ("sendtypes", true) => "peers::neighbors(*comm, peers::NeighborSide::Send)".into(),
            ("recvtypes", true) => "peers::neighbors(*comm, peers::NeighborSide::Receive)".into(),
            ("sendtypes" | "recvtypes", false) => "peers::of(*comm)".into(),
            ("remain_dims", _) => "peers::dimensions(*comm)".into(),
            ("array_of_info", _) => "*count".into(),
            (other, _) => panic!("{name}: how long is {other}?"),
        },
        argument => format!("*{argument}"),
    }
}

/// Returns the name of the function in `callback.rs` that makes a C function for a callback: `comm_copy_attr`
/// for `PROCEDURE(MPI_Comm_copy_attr_function)`.
fn callback(procedure: &str, name: &str) -> String {
    let kind = procedure.trim_start_matches("PROCEDURE(MPI_").trim_end_matches(')').to_lowercase();
    let kind = kind.replace("_function", "");
    // A procedure of this type may be one that reads or one that writes.
    if name.starts_with("write_") { format!("{kind}_write") } else { kind }
}

fn access(binding: &Binding, at: usize) -> Access {
    let pairs = binding.pairs();
    let name = pairs[at].0.name.as_str();
    let function = binding.function.name.as_str();
    let place = |wanted: &str| pairs.iter().position(|(dummy, _)| dummy.name == wanted);
    if name == "location" || function == "MPI_Free_mem" || function.ends_with("_end") {
        return Access::First;
    }
    // The argument's own count or datatype comes first, and then the only one of the call.
    let scalar = |end: &str| {
        let start = name.trim_end_matches("buf").trim_end_matches("addr");
        let found = place(&format!("{start}{end}")).or_else(|| place(end));
        found.filter(|at| pairs[*at].0.shape.is_empty())
    };
    let reduces = place("op").is_some() && place("win").is_none();
    let has_blocks = function.to_lowercase().contains("alltoall")
        || name == "recvbuf" && function.contains("gather")
        || name == "sendbuf" && function.contains("catter");
    let describable = !reduces && !has_blocks && place("partitions").is_none();
    match (scalar("count"), scalar("datatype").or_else(|| scalar("type"))) {
        (Some(count), Some(datatype)) if describable => Access::Elements { count, datatype },
        _ if ["partitions", "win"].iter().any(|name| place(name).is_some())
            || function.contains("attach") =>
        {
            Access::Whole
        }
        _ => Access::Copy { written: pairs[at].0.intent != "in", lasting: place("request").is_some() },
    }
}
