// SPDX-License-Identifier: BSD-3-Clause
//! Reads the tables of the MPI API: `tables/functions.json`, `constants.json`, `callbacks.json`,
//! `removed.toml`.

use serde::Deserialize;
use std::path::Path;

/// The whole API of MPI, as the tables have it.
pub struct ApiTable {
    /// The functions of the C binding, in the order of the standard's index.
    pub functions: Vec<ApiFunction>,
    /// The constants of the C binding, in alphabetical order.
    pub constants: Vec<Constant>,
    /// The C typedefs of the functions that a program passes to MPI, such as MPI_User_function.
    pub callbacks: Vec<String>,
    /// The names that MPI-3.0 removed from the standard.
    pub removed: Vec<Removed>,
}

/// The contents of `tables/removed.toml`: the names that MPI-3.0 removed from the standard.
#[derive(Deserialize)]
struct RemovedNames {
    removed: Vec<Removed>,
}

/// A name (of a function, type or constant) that MPI-3.0 removed from the standard.
#[derive(Deserialize)]
pub struct Removed {
    /// The name that was removed, such as `MPI_Address`.
    pub name: String,
    /// The declaration of the name in C, with `{name}` where the name stands.
    pub declaration: String,
    /// The name that programs should use instead.
    pub successor: String,
}

impl Removed {
    /// Whether this is the name of a function. The MPICH ABI still has these functions.
    pub fn is_function(&self) -> bool {
        self.declaration.contains(" {name}(") && !self.declaration.starts_with("typedef")
    }
}

/// A function of MPI's C binding: its name, its result and its parameters.
#[derive(Deserialize)]
pub struct ApiFunction {
    /// The name of the function, such as `MPI_Send`.
    pub name: String,
    /// The C type of the result: `int`, `double`, or a type of MPI.
    pub returns: String,
    /// The parameters of the function, in order.
    pub params: Vec<Param>,
}

/// A parameter of a function of MPI's C binding: its type and its name.
#[derive(Deserialize)]
pub struct Param {
    /// The part of the C type that stands before the parameter's name.
    pub r#type: String,
    /// The name that the standard gives the parameter.
    pub name: String,
    /// The part of the C type that follows the parameter's name: `[]` or `[][3]`; empty if it is no array.
    #[serde(default)]
    pub array: String,
}

/// A constant of MPI's C binding: its name, its type, and its value in each ABI.
#[derive(Deserialize)]
pub struct Constant {
    /// The name of the constant, such as `MPI_COMM_WORLD`.
    pub name: String,
    /// The C type of the constant. None if it is an `int`.
    pub r#type: Option<String>,
    /// The constant's value in the standard ABI.
    pub standard: i64,
    /// The constant's value in MPICH's ABI. None if that ABI lacks the constant.
    pub mpich: Option<i64>,
    /// Whether the constant is a second name of a handle that another constant names, too.
    #[serde(skip)]
    pub is_alias: bool,
}

impl Constant {
    /// Whether the constant is a handle of an MPI object, such as a comm or a datatype.
    pub fn is_handle(&self) -> bool {
        self.r#type.as_deref().is_some_and(|name| HANDLES.contains(&name))
    }

    /// Whether the constant is a pointer, but not to an MPI object, such as MPI_IN_PLACE.
    pub fn is_address(&self) -> bool {
        self.r#type
            .as_deref()
            .is_some_and(|name| name.ends_with('*') || (name.starts_with("MPI_T_") && !self.is_handle()))
    }
}

/// The names of the handle types. In the standard ABI they are pointers to incomplete structs.
pub const HANDLES: [&str; 11] = [
    "MPI_Comm",
    "MPI_Datatype",
    "MPI_Errhandler",
    "MPI_File",
    "MPI_Group",
    "MPI_Info",
    "MPI_Message",
    "MPI_Op",
    "MPI_Request",
    "MPI_Session",
    "MPI_Win",
];

/// The constants that are second names of datatypes. In `constants.json` they have no type.
const ALIASES: [&str; 2] = ["MPI_C_COMPLEX", "MPI_LONG_LONG_INT"];

impl ApiTable {
    /// Reads the tables of the MPI API in the repository at `root`.
    pub fn read(root: &Path) -> Result<ApiTable, String> {
        let mut constants: Vec<Constant> = parse(root, "constants.json")?;
        for constant in &mut constants {
            if ALIASES.contains(&constant.name.as_str()) {
                constant.r#type = Some("MPI_Datatype".into());
                constant.is_alias = true;
            }
        }
        Ok(ApiTable {
            functions: parse(root, "functions.json")?,
            constants,
            callbacks: parse(root, "callbacks.json")?,
            removed: toml::<RemovedNames>(root, "removed.toml")?.removed,
        })
    }

    /// Finds the value of a constant in the standard ABI. Returns None if there is no such constant.
    pub fn constant(&self, name: &str) -> Option<i64> {
        self.constants.iter().find(|constant| constant.name == name).map(|constant| constant.standard)
    }

    /// Finds a function by its name. Returns None if there is no such function.
    pub fn function(&self, name: &str) -> Option<&ApiFunction> {
        self.functions.iter().find(|function| function.name == name)
    }
}

/// Reads the JSON file `name` in the folder `tables` of the repository at `root`.
pub fn parse<T: for<'a> Deserialize<'a>>(root: &Path, name: &str) -> Result<T, String> {
    serde_json::from_str(&read(root, name)?).map_err(|error| format!("tables/{name}: {error}"))
}

/// Reads the TOML file `name` in the folder `tables` of the repository at `root`.
pub fn toml<T: for<'a> Deserialize<'a>>(root: &Path, name: &str) -> Result<T, String> {
    ::toml::from_str(&read(root, name)?).map_err(|error| format!("tables/{name}: {error}"))
}

fn read(root: &Path, name: &str) -> Result<String, String> {
    let path = root.join("tables").join(name);
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}
