// SPDX-License-Identifier: BSD-3-Clause
//! Sessions, by which a program uses MPI without MPI_Init (MPI 5.0, section 11.3).

use crate::constants as c;
use crate::handle::Handle;
use crate::info::Info;
use error::{Class, Result, fail};
use std::sync::OnceLock;

#[derive(Debug)]
pub struct Session {
    /// The session's error handler. The session holds one reference to the handler, counted in the table of
    /// `Objects`.
    pub errhandler: Handle,
    /// The thread level of the session, an MPI_THREAD constant. All objects that derive from the session have
    /// it.
    pub thread_level: i32,
    /// The session's hints, each with the value in use, for MPI_Session_get_info.
    pub info: Info,
}

/// The names of the two process sets: all processes of the world (MPI_COMM_WORLD), and the process alone.
pub const PROCESS_SETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];

/// The memory kinds that every process supports, in the form of the info key `mpi_memory_alloc_kinds` (MPI
/// 5.0, section 11.4.3).
const MEMORY_KINDS: &str = "mpi,system";

/// The memory kinds of the device that is in use: the kind alone, then the kind with each restrictor
/// ("cuda:host"). Not set without a device.
static DEVICE_KINDS: OnceLock<&[&str]> = OnceLock::new();

/// Records that MPI calls accept memory of a device. `kinds` are its memory kinds: the kind alone, then the
/// kind with each restrictor ("cuda:host").
pub fn support_memory_kinds(kinds: &'static [&'static str]) {
    // Later calls name the same device.
    let _ = DEVICE_KINDS.set(kinds);
}

fn device_kinds() -> &'static [&'static str] {
    DEVICE_KINDS.get().copied().unwrap_or_default()
}

/// Lists the memory kinds that a program may use without asking for them, in the form of the info key
/// `mpi_memory_alloc_kinds`.
pub fn default_memory_kinds() -> String {
    [MEMORY_KINDS].into_iter().chain(device_kinds().first().copied()).collect::<Vec<_>>().join(",")
}

const LEVELS: [(&str, i32); 4] = [
    ("MPI_THREAD_SINGLE", c::THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", c::THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", c::THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", c::THREAD_MULTIPLE),
];

impl Session {
    /// Makes a session with the hints `hints`. Without the hint `thread_level`, any thread may call MPI at
    /// any time.
    pub fn new(errhandler: Handle, hints: &Info) -> Result<Session> {
        let wanted = hints.get("thread_level").unwrap_or("MPI_THREAD_MULTIPLE");
        let Some((name, thread_level)) = LEVELS.into_iter().find(|(name, _)| *name == wanted) else {
            fail!(Class::InfoValue, "thread_level is \"{wanted}\", which is no thread level of MPI");
        };
        let mut info = Info::default();
        info.set("thread_level", name)?;
        info.set("mpi_memory_alloc_kinds", &memory_kinds(hints))?;
        Ok(Session { errhandler, thread_level, info })
    }
}

/// Lists the memory kinds that a program may use if it asks with `hints`: the default kinds, and those kinds
/// in `hints` that are supported.
pub fn memory_kinds(hints: &Info) -> String {
    let mut kinds = default_memory_kinds();
    let wanted = hints.get("mpi_memory_alloc_kinds").unwrap_or("");
    for kind in wanted.split(',').map(str::trim) {
        let restrictors = ["mpi:alloc_mem", "mpi:win_allocate", "mpi:win_allocate_shared"];
        if (restrictors.contains(&kind) || device_kinds().contains(&kind))
            && !kinds.split(',').any(|known| known == kind)
        {
            kinds = format!("{kinds},{kind}");
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_in_use() {
        let mut hints = Info::default();
        let session = Session::new(c::ERRORS_RETURN, &hints).unwrap();
        assert_eq!(session.thread_level, c::THREAD_MULTIPLE);
        hints.set("thread_level", "MPI_THREAD_FUNNELED").unwrap();
        hints.set("mpi_memory_alloc_kinds", "mpi:alloc_mem,cuda:device, system").unwrap();
        let session = Session::new(c::ERRORS_RETURN, &hints).unwrap();
        assert_eq!(session.thread_level, c::THREAD_FUNNELED);
        assert_eq!(session.info.get("thread_level"), Some("MPI_THREAD_FUNNELED"));
        assert_eq!(session.info.get("mpi_memory_alloc_kinds"), Some("mpi,system,mpi:alloc_mem"));
        hints.set("thread_level", "many").unwrap();
        assert_eq!(Session::new(c::ERRORS_RETURN, &hints).unwrap_err().class, Class::InfoValue);
    }
}
