// SPDX-License-Identifier: BSD-3-Clause
//! The Fortran bindings, generated from `tables/fortran.json` and `tables/functions.json`.
//!
//! `kind.rs` finds what each argument is. `shim.rs` writes the Rust functions that Fortran calls,
//! `modules.rs` the interfaces of `mpi` and `mpi_f08`, `constants.rs` the constants of all three bindings.
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

/// `tables/fortran.json`.
#[derive(Deserialize)]
pub struct Bindings {
    /// The procedures, by the name of their C function.
    pub procedures: BTreeMap<String, Procedure>,
    /// The callbacks, by the name of their C type. Names that begin with `MPI_` have an interface in
    /// `mpi_f08`.
    pub callbacks: BTreeMap<String, Procedure>,
}

/// One procedure in its forms. Deprecated procedures have no form for `mpi_f08`.
#[derive(Deserialize)]
pub struct Procedure {
    /// The form in `mpi_f08`.
    pub f08: Option<Form>,
    /// The form with large counts.
    pub f08_large: Option<Form>,
    /// The form in `mpi` and `mpif.h`, in capitals and without shapes.
    pub f90: Form,
}

/// One form of a procedure.
#[derive(Deserialize)]
pub struct Form {
    /// The name by which programs call it.
    pub name: String,
    /// The arguments, in order.
    pub params: Vec<Dummy>,
    /// The type of a function's result.
    pub returns: Option<String>,
}

/// One dummy argument.
#[derive(Deserialize)]
pub struct Dummy {
    /// The name in lower case.
    pub name: String,
    /// The type, such as `INTEGER(KIND=MPI_COUNT_KIND)`.
    pub r#type: String,
    /// `in`, `out`, `inout`, or empty if none is declared.
    #[serde(default)]
    pub intent: String,
    /// The shape, such as `(count)`; empty for a scalar.
    #[serde(default)]
    pub shape: String,
    #[serde(default)]
    asynchronous: bool,
    #[serde(default)]
    optional: bool,
}

impl Dummy {
    /// Whether it is a choice buffer.
    pub fn is_buffer(&self) -> bool {
        self.r#type.starts_with("TYPE(*)")
    }
    /// The type of a handle: `MPI_Comm` for TYPE(MPI_Comm).
    pub fn handle(&self) -> Option<&str> {
        let name = self.r#type.strip_prefix("TYPE(")?.strip_suffix(')')?;
        (name.starts_with("MPI_") && name != "MPI_Status").then_some(name)
    }
}

impl Form {
    /// The arguments except `ierror`.
    pub fn arguments(&self) -> impl Iterator<Item = &Dummy> {
        self.params.iter().filter(|dummy| dummy.name != "ierror")
    }
    /// Whether an argument is a choice buffer.
    pub fn has_buffer(&self) -> bool {
        self.params.iter().any(Dummy::is_buffer)
    }
}

/// A form, with the C function that does its work.
pub struct Binding<'a> {
    pub form: &'a Form,
    pub function: &'a ApiFunction,
    /// Whether the form has large counts.
    pub large: bool,
}

impl Binding<'_> {
    /// The arguments, each with the C parameter to which it belongs.
    pub fn pairs(&self) -> Vec<(&Dummy, &Param)> {
        // The parameters of C that Fortran lacks come first: argc and argv.
        let extra = self.function.params.len() - self.form.arguments().count();
        self.form.arguments().zip(&self.function.params[self.without_varargs(extra)..]).collect()
    }
    fn without_varargs(&self, extra: usize) -> usize {
        if self.function.name == "MPI_Pcontrol" { 0 } else { extra }
    }
    /// The specific name of a procedure, such as `MPI_Send_c_f08ts` (MPI 5.0, section 19.1.5).
    pub fn specific(&self) -> String {
        format!("{}_f08{}", self.function.name, if self.form.has_buffer() { "ts" } else { "" })
    }
}

/// Procedures that call no C function; `crates/fortran` has them, written by hand.
const BY_HAND: [&str; 2] = ["MPI_Status_f082f", "MPI_Status_f2f08"];

impl Bindings {
    /// Reads the table of the repository at `root`.
    pub fn read(root: &Path) -> Result<Bindings, String> {
        crate::table::parse(root, "fortran.json")
    }

    /// Every form with its C function, in alphabetical order.
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

    /// The forms that have no C function.
    pub fn by_hand(&self) -> impl Iterator<Item = &Form> {
        BY_HAND.iter().filter_map(|name| self.procedures[*name].f08.as_ref())
    }
}
