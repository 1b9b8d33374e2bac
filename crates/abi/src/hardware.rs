// SPDX-License-Identifier: BSD-3-Clause
//! Kinds of hardware: values of the info key `mpi_hw_resource_type` (MPI 5.0, sections 7.4.2 and 11.2.2).
//!
//! A process is restricted to an instance of a kind if it may run only on the cpus of that instance.

use objects::{Info, constants as c};
use sys::topology::{KINDS, Locality, locality};

/// The prefix of hwloc's names.
const SCHEME: &str = "hwloc://";

/// Returns the names of all kinds of hardware, the coarsest first.
pub fn kinds() -> impl Iterator<Item = String> {
    KINDS.iter().map(|kind| format!("{SCHEME}{kind}"))
}

/// Returns a number for the instance of the kind `kind` to which this process is restricted. All processes
/// restricted to the instance get the same number. A process that is not restricted to one gets
/// MPI_UNDEFINED.
pub fn color(kind: &str) -> i32 {
    if kind == "mpi_shared_memory" {
        return 0;
    }
    match kind.strip_prefix(SCHEME).and_then(locality_of_this) {
        Some(Locality::Within(first)) => first as i32,
        Some(Locality::Across) | None => c::UNDEFINED,
    }
}

/// Returns an info with the kinds of hardware of this machine, and whether this process is restricted to one
/// instance of each kind.
pub fn facts() -> error::Result<Info> {
    let mut facts = Info::default();
    for (name, kind) in kinds().zip(KINDS) {
        if let Some(locality) = locality_of_this(kind) {
            facts.set(&name, if locality == Locality::Across { "false" } else { "true" })?;
        }
    }
    Ok(facts)
}

fn locality_of_this(kind: &str) -> Option<Locality> {
    locality(kind, &sys::cpu::allowed().unwrap_or_default())
}
