// SPDX-License-Identifier: BSD-3-Clause
//! Data representations: the forms of data in a file (MPI 5.0, section 14.5).

use datatype::{Datatype, external32_size};
use error::{Class, Result, fail};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Representation {
    Native,
    /// "internal": the same as in memory, since all processes have the same kind of machine.
    Internal,
    /// external32: the standard's portable form, big-endian and with the same lengths on every machine.
    External32,
    /// A representation that the program has registered: its functions convert the data.
    User(Arc<UserRepresentation>),
}

/// The arguments of MPI_Register_datarep. The `abi` crate calls the functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRepresentation {
    pub name: String,
    /// The address of the function that converts data of the file for memory; 0 for MPI_CONVERSION_FN_NULL.
    pub read: usize,
    /// The address of the function that converts data of memory for the file; 0 for MPI_CONVERSION_FN_NULL.
    pub write: usize,
    /// Whether `read` and `write` take an MPI_Count instead of an int (MPI_Register_datarep_c).
    pub large: bool,
    /// The address of the function that returns the extent of a datatype in the file.
    pub extent: usize,
    /// The pointer that the program registered, and that all three functions get as their last argument.
    pub extra_state: usize,
}

impl Representation {
    /// Returns the name by which MPI_File_set_view selects this representation.
    pub fn name(&self) -> &str {
        match self {
            Representation::Native => "native",
            Representation::Internal => "internal",
            Representation::External32 => "external32",
            Representation::User(user) => &user.name,
        }
    }

    /// Finds the data representation with this name, among the standard's and `registered`. Errors: there is
    /// none (MPI_ERR_UNSUPPORTED_DATAREP).
    pub fn named(name: &str, registered: &[Arc<UserRepresentation>]) -> Result<Representation> {
        match name {
            "native" => return Ok(Representation::Native),
            "internal" => return Ok(Representation::Internal),
            "external32" => return Ok(Representation::External32),
            _ => {}
        }
        match registered.iter().find(|user| user.name == name) {
            Some(user) => Ok(Representation::User(user.clone())),
            None => fail!(
                Class::UnsupportedDatarep,
                "\"{name}\" is no data representation; there are native, internal, external32 and what MPI_Register_datarep was given"
            ),
        }
    }

    /// Whether data have the same form in the file as in memory.
    pub fn is_native(&self) -> bool {
        matches!(self, Representation::Native | Representation::Internal)
    }
}

/// Returns the length in bytes of one element of `datatype` in external32.
pub fn external_bytes(datatype: &Arc<Datatype>) -> Result<u64> {
    match external32_size(datatype, 1) {
        Some(bytes) => Ok(bytes),
        None => fail!(Class::Type, "a datatype of more than 2^63 bytes in external32"),
    }
}
