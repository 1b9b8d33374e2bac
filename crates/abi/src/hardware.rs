// SPDX-License-Identifier: BSD-3-Clause
//! Kinds of hardware, such as a package or a cache: the values of the info key `mpi_hw_resource_type` (MPI
//! 5.0, sections 7.4.2 and 11.2.2).
//!
//! A process is restricted to one package, for example, if it may run only on the cpus of that package.

use objects::{Info, constants as c};
use sys::topology::{KINDS, Locality, locality};

/// The prefix of the names of kinds of hardware that hwloc defines.
const SCHEME: &str = "hwloc://";

/// Returns the names of all kinds of hardware, such as a package or a core, the coarsest kind first.
pub fn kinds() -> impl Iterator<Item = String> {
    KINDS.iter().map(|kind| format!("{SCHEME}{kind}"))
}

/// Returns a number for the unit of the kind `kind`, such as a cache, to which this process is restricted.
/// All processes restricted to this unit get the same number. A process that may run on several gets
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

/// Returns an info that has, for each kind of hardware of this machine, whether this process is restricted to
/// one unit of that kind.
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
