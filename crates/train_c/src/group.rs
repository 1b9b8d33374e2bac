// SPDX-License-Identifier: BSD-3-Clause
//! Groups of ranks for collectives. Each has a communicator of its own, and starts its operations one after
//! the other.

use crate::c::{MPI_Comm, MPI_Group};
use crate::engine::Engine;
use crate::fault::{ABORTED, ARGUMENT, Fault, Result, call, code, fail};
use crate::kind::handle;
use crate::numbers as n;
use crate::process;
use crate::turn::Turns;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub struct Group {
    pub comm: MPI_Comm,
    pub name: String,
    pub rank: c_int,
    pub size: c_int,
    pub timeout: Option<Duration>,
    /// The number of the latest operation. It is locked while an operation starts, so that operations start
    /// in the order of their numbers.
    order: Mutex<u64>,
    /// The order in which ended operations are reported to their callers.
    pub turns: Turns,
    /// Why the group has failed. After that no operation of the group can succeed. Empty if the group has not
    /// failed.
    failed: OnceLock<Fault>,
}

impl Group {
    /// Calls `start` with the number of the next operation, and returns what `start` returns. Fails if the
    /// group has failed.
    pub fn in_order<T>(&self, start: impl FnOnce(u64) -> Result<T>) -> Result<T> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        *order += 1;
        start(*order)
    }

    /// Checks that the group has not failed. The error says why it has.
    pub fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Makes the group fail with this message. If it has failed already, the first message stays.
    pub fn fail(&self, message: String) {
        let _ = self.failed.set(Fault { code: ABORTED, message });
    }
}

impl Drop for Group {
    /// Frees the communicator, unless the group has failed. A group is dropped when its operations have
    /// ended; only operations of a failed group may still use the communicator.
    fn drop(&mut self) {
        if self.check().is_ok() && process::is_open() {
            let mut comm = self.comm;
            let _ = call!(MPI_Comm_free(&raw mut comm));
        }
    }
}

/// Returns the group to which a C handle points. Fails if the handle is null.
pub fn of_handle<'a>(group: *const Group) -> Result<&'a Group> {
    if group.is_null() {
        return fail(ARGUMENT, "the group is a null pointer");
    }
    // SAFETY: not null, and by the crate's contract it comes from outboard_dl_group_create and is not freed.
    Ok(unsafe { &*group })
}

/// Returns the group of a C handle as an `Arc`, which keeps the group alive even if the program frees the
/// handle.
pub fn shared(group: *const Group) -> Result<Arc<Group>> {
    of_handle(group)?;
    // SAFETY: outboard_dl_group_create made the handle from an Arc, and it has not been freed.
    unsafe { Arc::increment_strong_count(group) };
    // SAFETY: as above; the count that was added is this one's.
    Ok(unsafe { Arc::from_raw(group) })
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_group_create(
    ranks: *const c_int,
    size: c_int,
    name: *const c_char,
    timeout: f64,
    group: *mut *const Group,
) -> c_int {
    if group.is_null() {
        return code(fail(ARGUMENT, "group is a null pointer"));
    }
    code(create(ranks, size, name, timeout).map(|made| {
        // SAFETY: not null; the crate's contract.
        unsafe { *group = Arc::into_raw(Arc::new(made)) };
    }))
}

fn create(ranks: *const c_int, size: c_int, name: *const c_char, timeout: f64) -> Result<Group> {
    Engine::get()?;
    if ranks.is_null() || name.is_null() || size < 1 {
        return fail(ARGUMENT, format!("a group needs a list of ranks, not {size} ranks, and a name"));
    }
    // SAFETY: not null; a string by the crate's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mut world: MPI_Group = 0;
    let mut chosen: MPI_Group = 0;
    call!(MPI_Comm_group(process::world()?, &raw mut world))?;
    let included = call!(MPI_Group_incl(world, size, ranks.cast_mut(), &raw mut chosen));
    call!(MPI_Group_free(&raw mut world))?;
    included?;
    let mut comm = handle(n::COMM_NULL);
    let made = call!(MPI_Comm_create_group(process::world()?, chosen, tag(&name), &raw mut comm));
    call!(MPI_Group_free(&raw mut chosen))?;
    made?;
    if comm == handle(n::COMM_NULL) {
        return fail(ARGUMENT, format!("this process is not in the list of ranks of group {name}"));
    }
    let mut rank = 0;
    call!(MPI_Comm_set_errhandler(comm, handle(n::ERRORS_RETURN)))?;
    call!(MPI_Comm_rank(comm, &raw mut rank))?;
    let timeout = (timeout > 0.0).then(|| Duration::from_secs_f64(timeout.min(1e9)));
    Ok(Group {
        comm,
        name,
        rank,
        size,
        timeout,
        order: Mutex::new(0),
        turns: Turns::default(),
        failed: OnceLock::new(),
    })
}

/// Returns a tag for making the group `name`. Groups that different threads make at the same time need
/// different tags (MPI 5.0, section 7.4.2).
fn tag(name: &str) -> c_int {
    let hash =
        name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash % 32_000) as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_group_free(group: *const Group) -> c_int {
    code(of_handle(group).map(|_| {
        // SAFETY: the handle holds one count, which ends here.
        drop(unsafe { Arc::from_raw(group) });
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn outboard_dl_group_abort(group: *const Group, reason: *const c_char) -> c_int {
    code(of_handle(group).and_then(|group| {
        let reason = if reason.is_null() {
            String::new()
        } else {
            // SAFETY: not null; a string by the crate's contract.
            unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
        };
        group
            .fail(format!("group {} was aborted by this process, rank {}: {reason}", group.name, group.rank));
        Engine::get()?.wake();
        Ok(())
    }))
}
