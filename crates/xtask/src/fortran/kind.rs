// SPDX-License-Identifier: BSD-3-Clause
//! What an argument of a Fortran procedure is, by its Fortran type, its C type and its name.

use super::{Binding, Dummy};
use crate::table::Param;

/// What the shim does with an argument. Lengths are Rust expressions.
pub enum Kind {
    /// C takes the value.
    Value,
    /// C takes the address.
    Address,
    /// C takes a handle of this type.
    Handle(String),
    /// C takes the address of a handle. `written`: it may write it.
    HandleOut {
        handle: String,
        written: bool,
    },
    /// C takes an array of handles. `written`: it may write them.
    Handles {
        handle: String,
        length: String,
        written: bool,
    },
    /// A LOGICAL that C takes as int.
    Logical,
    /// A LOGICAL that C writes.
    LogicalOut,
    /// An array of LOGICAL.
    Logicals {
        length: String,
        written: bool,
    },
    /// CHARACTER(LEN=*), in; with or without its leading blanks.
    Text {
        trimmed: bool,
    },
    /// CHARACTER that C writes.
    TextOut,
    /// An array of `length` texts, or one that ends with a blank text.
    Texts {
        length: Option<String>,
    },
    /// An array of `length` rows of texts, each of which ends with a blank text.
    TextRows {
        length: String,
    },
    /// A status, or MPI_STATUS_IGNORE, or several.
    Status,
    /// A choice buffer.
    Buffer(Access),
    /// An array for which a program may pass MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY or MPI_ERRCODES_IGNORE.
    Ignorable,
    /// A procedure; the function of `callback.rs` that makes it one of C.
    Callback(String),
    /// The state of the callbacks among the arguments.
    State,
    /// The key of an attribute that is read.
    Key,
    /// The value of an attribute, in or out.
    Attribute,
    AttributeOut,
    /// An index, or indices, which count from 1.
    Index,
    Indices {
        length: String,
    },
    /// A length that C counts with the closing NUL.
    LengthInOut,
    /// C stores an address, which Fortran takes as TYPE(C_PTR) or as an integer.
    Pointer,
    /// The address of a buffer that was detached.
    Detached,
}

/// How a call uses a choice buffer, which may be a section with gaps (MPI 5.0, section 19.1.2).
pub enum Access {
    /// `count` elements of `datatype`, the arguments of these places: a section becomes a datatype.
    Elements { count: usize, datatype: usize },
    /// In ways that no datatype describes: a section is copied. `written`: and back. `lasting`: when the
    /// request is over that the call makes, not when it returns.
    Copy { written: bool, lasting: bool },
    /// Longer than the call, or in parts: a section is refused.
    Whole,
    /// Its address only.
    First,
}

/// What the argument at `at` is.
pub fn of(binding: &Binding, at: usize) -> Kind {
    let pairs = binding.pairs();
    let (dummy, param) = pairs[at];
    let function = binding.function.name.as_str();
    let scalar = dummy.shape.is_empty();
    if let Some(handle) = dummy.handle() {
        let handle = handle.to_owned();
        return match (scalar, param.r#type.ends_with('*')) {
            (true, false) => Kind::Handle(handle),
            (true, true) => Kind::HandleOut { handle, written: dummy.intent != "in" },
            _ => Kind::Handles { handle, length: length(binding, dummy), written: dummy.intent != "in" },
        };
    }
    match (dummy.r#type.as_str(), dummy.name.as_str()) {
        ("TYPE(*), DIMENSION(..)", _) => Kind::Buffer(access(binding, at)),
        ("TYPE(MPI_Status)", _) => Kind::Status,
        ("TYPE(C_PTR)", "buffer_addr") => Kind::Detached,
        ("TYPE(C_PTR)", _) => Kind::Pointer,
        ("LOGICAL", _) if !scalar => {
            Kind::Logicals { length: length(binding, dummy), written: dummy.intent == "out" }
        }
        ("LOGICAL", _) if dummy.intent == "out" => Kind::LogicalOut,
        ("LOGICAL", _) => Kind::Logical,
        (text, name) if text.starts_with("CHARACTER") => match name {
            "argv" => Kind::Texts { length: None },
            "array_of_argv" => Kind::TextRows { length: "count".into() },
            "array_of_commands" => Kind::Texts { length: Some("count".into()) },
            _ if dummy.intent == "out" => Kind::TextOut,
            _ => Kind::Text { trimmed: function.starts_with("MPI_Info_") },
        },
        (procedure, name) if procedure.starts_with("PROCEDURE") => Kind::Callback(callback(procedure, name)),
        (_, name) if name.ends_with("_keyval") && function.ends_with("_get_attr") => Kind::Key,
        (_, "extra_state") => Kind::State,
        (_, "attribute_val") if dummy.intent == "in" => Kind::Attribute,
        (_, "attribute_val") => Kind::AttributeOut,
        (_, "weights" | "sourceweights" | "destweights" | "array_of_errcodes") => Kind::Ignorable,
        (_, "buflen" | "pset_len") => Kind::LengthInOut,
        (_, "index") if dummy.intent == "out" && is_of_requests(function) => Kind::Index,
        (_, "array_of_indices") => Kind::Indices { length: "outcount".into() },
        _ if is_pointer(param) => Kind::Address,
        _ => Kind::Value,
    }
}

fn is_of_requests(function: &str) -> bool {
    ["Waitany", "Testany", "Request_get_status_any"].iter().any(|name| function.ends_with(name))
}

fn is_pointer(param: &Param) -> bool {
    !param.array.is_empty() || param.r#type.ends_with('*')
}

/// The elements of an array: an argument, or what the comm says.
fn length(binding: &Binding, dummy: &Dummy) -> String {
    let name = binding.function.name.as_str();
    match dummy.shape.trim_matches(['(', ')']) {
        "*" => match (dummy.name.as_str(), name.to_lowercase().contains("neighbor")) {
            ("sendtypes", true) => "peers::neighbors(*comm, peers::Side::Send)".into(),
            ("recvtypes", true) => "peers::neighbors(*comm, peers::Side::Receive)".into(),
            ("sendtypes" | "recvtypes", false) => "peers::of(*comm)".into(),
            ("remain_dims", _) => "peers::dimensions(*comm)".into(),
            ("array_of_info", _) => "*count".into(),
            (other, _) => panic!("{name}: how long is {other}?"),
        },
        argument => format!("*{argument}"),
    }
}

/// `PROCEDURE(MPI_Comm_copy_attr_function)`: `comm_copy_attr`.
fn callback(procedure: &str, name: &str) -> String {
    let kind = procedure.trim_start_matches("PROCEDURE(MPI_").trim_end_matches(')').to_lowercase();
    let kind = kind.replace("_function", "");
    // One of the two functions of one type.
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
    // A count or a datatype of its own, or the only one of the call.
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
