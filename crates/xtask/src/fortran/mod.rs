// SPDX-License-Identifier: BSD-3-Clause
//! The Fortran bindings, generated from `tables/fortran.json` and `tables/functions.json`.
//!
//! `kind.rs` finds how each argument is converted. `shim.rs` writes the shim (the Rust functions that Fortran
//! calls), `modules.rs` the interfaces of `mpi` and `mpi_f08`, `constants.rs` the constants of all three
//! bindings.
//!
//! Invariant: the library contains no compiled Fortran code. The modules have interfaces and constants only,
//! so one library serves every compiler; each compiler makes its own `.mod` files of them.

pub mod constants;
mod kind;
pub mod modules;
pub mod shim;

use crate::table::{ApiFunction, ApiTable, Param};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The contents of `tables/fortran.json`, the table of the Fortran bindings.
#[derive(Deserialize)]
pub struct Bindings {
    /// The procedures, by the name of their C function.
    pub procedures: BTreeMap<String, Procedure>,
    /// The callbacks, by the name of their C type. If the name begins with `MPI_`, the callback has an
    /// interface in `mpi_f08`.
    pub callbacks: BTreeMap<String, Procedure>,
}

/// A procedure of the Fortran bindings, in each of its forms.
#[derive(Deserialize)]
pub struct Procedure {
    /// The form in `mpi_f08`. None for deprecated procedures, which that module lacks.
    pub f08: Option<Form>,
    /// The form in `mpi_f08` with counts of kind MPI_COUNT_KIND. None if the procedure has no counts.
    pub f08_large: Option<Form>,
    /// The form in `mpi` and `mpif.h`, in capitals and without the shapes of arrays.
    pub f90: Form,
}

/// A form of a procedure: its name, its arguments and its result in one of the Fortran modules.
#[derive(Deserialize)]
pub struct Form {
    /// The name by which programs call the procedure.
    pub name: String,
    /// The dummy arguments, in their order.
    pub params: Vec<Dummy>,
    /// The type of the function's result. None for a subroutine.
    pub returns: Option<String>,
}

/// A dummy argument of a Fortran procedure: its name, type, INTENT and shape.
#[derive(Deserialize)]
pub struct Dummy {
    /// The name of the argument, in lower case.
    pub name: String,
    /// The Fortran type of the argument, such as `INTEGER(KIND=MPI_COUNT_KIND)`.
    pub r#type: String,
    /// The INTENT of the argument: `in`, `out` or `inout`. It is empty if none is declared.
    #[serde(default)]
    pub intent: String,
    /// The shape of an array argument, such as `(count)`. It is empty for a scalar.
    #[serde(default)]
    pub shape: String,
    #[serde(default)]
    asynchronous: bool,
    #[serde(default)]
    optional: bool,
}

impl Dummy {
    /// Whether the argument is a choice buffer, which may have any type.
    pub fn is_buffer(&self) -> bool {
        self.r#type.starts_with("TYPE(*)")
    }
    /// Returns the type of the handle, such as `MPI_Comm` for TYPE(MPI_Comm). Returns None if the argument is
    /// no handle.
    pub fn handle(&self) -> Option<&str> {
        let name = self.r#type.strip_prefix("TYPE(")?.strip_suffix(')')?;
        (name.starts_with("MPI_") && name != "MPI_Status").then_some(name)
    }
}

impl Form {
    /// Returns the arguments of the procedure except `ierror`.
    pub fn arguments(&self) -> impl Iterator<Item = &Dummy> {
        self.params.iter().filter(|dummy| dummy.name != "ierror")
    }
    /// Whether an argument of the procedure is a choice buffer.
    pub fn has_buffer(&self) -> bool {
        self.params.iter().any(Dummy::is_buffer)
    }
}

/// A form of a procedure for `mpi_f08`, and the C function that does its work.
pub struct Binding<'a> {
    pub form: &'a Form,
    pub function: &'a ApiFunction,
    /// Whether this form of the procedure has counts of kind MPI_COUNT_KIND.
    pub large: bool,
}

impl Binding<'_> {
    /// Returns the arguments of Fortran, except `ierror`, each with the C parameter to which it belongs.
    pub fn pairs(&self) -> Vec<(&Dummy, &Param)> {
        // The parameters of C that Fortran lacks come first: argc and argv.
        let extra = self.function.params.len() - self.form.arguments().count();
        self.form.arguments().zip(&self.function.params[self.without_varargs(extra)..]).collect()
    }
    fn without_varargs(&self, extra: usize) -> usize {
        if self.function.name == "MPI_Pcontrol" { 0 } else { extra }
    }
    /// Returns the name of this form as a symbol in libraries, such as `MPI_Send_c_f08ts` (MPI 5.0, section
    /// 19.1.5).
    pub fn specific(&self) -> String {
        format!("{}_f08{}", self.function.name, if self.form.has_buffer() { "ts" } else { "" })
    }
}

/// The C functions whose Fortran procedures are not generated. `crates/fortran` has these procedures, written
/// by hand.
const BY_HAND: [&str; 2] = ["MPI_Status_f082f", "MPI_Status_f2f08"];

impl Bindings {
    /// Reads `tables/fortran.json` of the repository at `root`.
    pub fn read(root: &Path) -> Result<Bindings, String> {
        crate::table::parse(root, "fortran.json")
    }

    /// Returns every form for `mpi_f08` with its C function, in alphabetical order, except the procedures of
    /// `BY_HAND`.
    pub fn all<'a>(&'a self, table: &'a ApiTable) -> Vec<Binding<'a>> {
        let mut all = Vec::new();
        for (name, procedure) in &self.procedures {
            if BY_HAND.contains(&name.as_str()) {
                continue;
            }
            let large = format!("{name}_c");
            for (form, name, large) in [(&procedure.f08, name, false), (&procedure.f08_large, &large, true)] {
                if let Some(form) = form {
                    let function =
                        table.function(name).unwrap_or_else(|| panic!("tables/functions.json lacks {name}"));
                    all.push(Binding { form, function, large });
                }
            }
        }
        all
    }

    /// Returns the forms of the procedures that are written by hand (`BY_HAND`).
    pub fn by_hand(&self) -> impl Iterator<Item = &Form> {
        BY_HAND.iter().filter_map(|name| self.procedures[*name].f08.as_ref())
    }
}
