// SPDX-License-Identifier: BSD-3-Clause
//! The tables of the MPI API: `tables/functions.json`, `constants.json`, `callbacks.json`, `removed.toml`.

use serde::Deserialize;
use std::path::Path;

/// All of the API.
pub struct Table {
    /// In the order of the table, which is that of the standard's index.
    pub functions: Vec<Function>,
    /// In alphabetical order.
    pub constants: Vec<Constant>,
    /// C typedefs.
    pub callbacks: Vec<String>,
    /// Names that the standard no longer has.
    pub removed: Vec<Removed>,
}

/// `tables/removed.toml`.
#[derive(Deserialize)]
struct RemovedNames {
    removed: Vec<Removed>,
}

/// A name that MPI-3.0 removed.
#[derive(Deserialize)]
pub struct Removed {
    /// `MPI_Address`.
    pub name: String,
    /// Its declaration in C, with `{name}` for the name.
    pub declaration: String,
    /// What took its place.
    pub successor: String,
}

impl Removed {
    /// Whether it is a function: these the MPICH ABI still has.
    pub fn is_function(&self) -> bool {
        self.declaration.contains(" {name}(") && !self.declaration.starts_with("typedef")
    }
}

/// One function of the C binding.
#[derive(Deserialize)]
pub struct Function {
    /// `MPI_Send`.
    pub name: String,
    /// `int`, `double`, or a type of MPI.
    pub returns: String,
    /// In order.
    pub params: Vec<Param>,
}

/// One parameter.
#[derive(Deserialize)]
pub struct Param {
    /// The C type without what follows the name.
    pub r#type: String,
    /// The name in the standard.
    pub name: String,
    /// What follows the name in C: `[]` or `[][3]`.
    #[serde(default)]
    pub array: String,
}

/// One constant.
#[derive(Deserialize)]
pub struct Constant {
    /// `MPI_COMM_WORLD`.
    pub name: String,
    /// The C type, where it is not `int`.
    pub r#type: Option<String>,
    /// The value in the standard ABI.
    pub standard: i64,
    /// The value in MPICH's ABI, if it has the constant.
    pub mpich: Option<i64>,
    /// Whether it is a second name of a handle.
    #[serde(skip)]
    pub is_alias: bool,
}

impl Constant {
    /// Whether it is a handle of an object that has `fromint` and `toint`.
    pub fn is_handle(&self) -> bool {
        self.r#type.as_deref().is_some_and(|name| HANDLES.contains(&name))
    }

    /// Whether it is a pointer to something other than an object.
    pub fn is_address(&self) -> bool {
        self.r#type
            .as_deref()
            .is_some_and(|name| name.ends_with('*') || (name.starts_with("MPI_T_") && !self.is_handle()))
    }
}

/// The handle types, which the ABI makes pointers to incomplete structs.
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

/// Second names of datatypes, for which the table has no type.
const ALIASES: [&str; 2] = ["MPI_C_COMPLEX", "MPI_LONG_LONG_INT"];

impl Table {
    /// Reads the tables of the repository at `root`.
    pub fn read(root: &Path) -> Result<Table, String> {
        let mut constants: Vec<Constant> = parse(root, "constants.json")?;
        for constant in &mut constants {
            if ALIASES.contains(&constant.name.as_str()) {
                constant.r#type = Some("MPI_Datatype".into());
                constant.is_alias = true;
            }
        }
        Ok(Table {
            functions: parse(root, "functions.json")?,
            constants,
            callbacks: parse(root, "callbacks.json")?,
            removed: toml::<RemovedNames>(root, "removed.toml")?.removed,
        })
    }

    /// The value of a constant in the standard ABI.
    pub fn constant(&self, name: &str) -> Option<i64> {
        self.constants.iter().find(|constant| constant.name == name).map(|constant| constant.standard)
    }

    /// The function of a name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

/// A table in JSON of the repository at `root`.
pub fn parse<T: for<'a> Deserialize<'a>>(root: &Path, name: &str) -> Result<T, String> {
    serde_json::from_str(&read(root, name)?).map_err(|error| format!("tables/{name}: {error}"))
}

/// A table in TOML.
pub fn toml<T: for<'a> Deserialize<'a>>(root: &Path, name: &str) -> Result<T, String> {
    ::toml::from_str(&read(root, name)?).map_err(|error| format!("tables/{name}: {error}"))
}

fn read(root: &Path, name: &str) -> Result<String, String> {
    let path = root.join("tables").join(name);
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}
