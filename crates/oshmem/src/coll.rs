// SPDX-License-Identifier: BSD-3-Clause
//! Collectives over teams and active sets (OpenSHMEM's older way to name PEs), by MPI's collectives.

use crate::element::Element;
use crate::fault::mpi;
use crate::memory::{buffer, copy};
use crate::numbers as n;
use crate::process::{get, handle, handle_in_place};
use crate::team::{self, Team, active};
use crate::{context, order};
use std::ffi::{c_int, c_void};

pub fn barrier_all() {
    order::quiet(context::DEFAULT);
    sync_all();
}

pub fn sync_all() {
    sync_of(&get().world);
}

fn sync_of(team: &Team) {
    order::acquire();
    mpi!(MPI_Barrier(team.comm));
}

pub fn team_sync(team: usize) -> c_int {
    if team == team::INVALID {
        return -1;
    }
    sync_of(team::of(get(), team));
    0
}

pub fn barrier(start: c_int, log_stride: c_int, size: c_int, _sync: usize) {
    order::quiet(context::DEFAULT);
    sync_of(active(start, log_stride, size));
}

pub fn sync(start: c_int, log_stride: c_int, size: c_int, _sync: usize) {
    sync_of(active(start, log_stride, size));
}

/// Returns the length of `elements` elements in bytes, as the count of an MPI call.
fn bytes<T>(elements: usize) -> i64 {
    (elements * size_of::<T>()) as i64
}

/// Returns the send buffer for MPI: MPI_IN_PLACE if `source` equals `dest`, otherwise `source`.
fn operand(dest: usize, source: usize) -> *mut c_void {
    if dest == source { handle_in_place() } else { buffer(source) }
}

/// Broadcasts elements from the PE `root` of the team. If `writes_own`, as in broadcasts over teams, the root
/// also copies them to its own `dest`. In broadcasts over active sets it does not.
fn broadcast_of<T>(team: &Team, dest: usize, source: usize, elements: usize, root: c_int, writes_own: bool) {
    let is_root = team.me == root;
    let at = if is_root { source } else { dest };
    mpi!(MPI_Bcast_c(buffer(at), bytes::<T>(elements), handle(n::BYTE), root, team.comm));
    if is_root && writes_own && dest != source && elements > 0 {
        copy(dest, source, elements * size_of::<T>());
    }
}

fn fcollect_of<T>(team: &Team, dest: usize, source: usize, elements: usize) {
    let (count, byte) = (bytes::<T>(elements), handle(n::BYTE));
    mpi!(MPI_Allgather_c(buffer(source), count, byte, buffer(dest), count, byte, team.comm));
}

/// Collects the elements of all PEs at `dest` of each PE. Each PE may give a different number of elements.
fn collect_of<T>(team: &Team, dest: usize, source: usize, elements: usize) {
    let (mut mine, number, byte) = (bytes::<T>(elements), handle(n::INT64_T), handle(n::BYTE));
    let mut counts = vec![0_i64; team.members.len()];
    mpi!(MPI_Allgather((&raw mut mine).cast(), 1, number, counts.as_mut_ptr().cast(), 1, number, team.comm));
    let mut at = 0;
    let mut places: Vec<i64> = counts
        .iter()
        .map(|count| {
            let begin = at;
            at += count;
            begin
        })
        .collect();
    let (counts, places) = (counts.as_mut_ptr(), places.as_mut_ptr());
    mpi!(MPI_Allgatherv_c(buffer(source), mine, byte, buffer(dest), counts, places, byte, team.comm));
}

fn alltoall_of<T>(team: &Team, dest: usize, source: usize, elements: usize) {
    let (count, byte) = (bytes::<T>(elements), handle(n::BYTE));
    mpi!(MPI_Alltoall_c(operand(dest, source), count, byte, buffer(dest), count, byte, team.comm));
}

/// Exchanges elements between all PEs. The elements lie `strides.0` elements apart at `dest`, and `strides.1`
/// elements apart at `source`. So they are packed, exchanged and unpacked.
fn alltoalls_of<T>(team: &Team, dest: usize, source: usize, strides: (isize, isize), elements: usize) {
    let (one, count) = (size_of::<T>(), elements * team.members.len());
    let mut packed = vec![0_u8; count * one];
    let mut landed = vec![0_u8; count * one];
    let (packed_at, landed_at) =
        (packed.as_mut_ptr().expose_provenance(), landed.as_mut_ptr().expose_provenance());
    let apart = |index: usize, stride: isize| (index as isize * stride * one as isize) as usize;
    for index in 0..count {
        copy(packed_at + index * one, source.wrapping_add(apart(index, strides.1)), one);
    }
    alltoall_of::<T>(team, landed_at, packed_at, elements);
    for index in 0..count {
        copy(dest.wrapping_add(apart(index, strides.0)), landed_at + index * one, one);
    }
}

fn reduce_of<T: Element>(team: &Team, dest: usize, source: usize, elements: usize, op: c_int) {
    let (from, to, datatype) = (operand(dest, source), buffer(dest), handle(T::DATATYPE));
    mpi!(MPI_Allreduce_c(from, to, elements as i64, datatype, handle(op), team.comm));
}

/// Defines two functions for each collective: one over a team, which returns 0 or -1, and one over an active
/// set.
macro_rules! over {
    ($(
        $name:ident $old:ident $does:ident ($($argument:ident: $kind:ty),*) =
        ($($passed:expr),*) ($($older:expr),*);
    )*) => { $(
        #[allow(clippy::too_many_arguments)]
        pub fn $name<T>(team: usize, dest: usize, source: usize, $($argument: $kind),*) -> c_int {
            if team == team::INVALID {
                return -1;
            }
            $does::<T>(team::of(get(), team), dest, source, $($passed),*);
            0
        }

        #[allow(clippy::too_many_arguments)]
        pub fn $old<T>(
            dest: usize, source: usize, $($argument: $kind,)*
            start: c_int, log_stride: c_int, size: c_int, _sync: usize,
        ) {
            $does::<T>(active(start, log_stride, size), dest, source, $($older),*);
        }
    )* };
}

over! {
    broadcast broadcast_old broadcast_of(elements: usize, root: c_int) =
        (elements, root, true) (elements, root, false);
    collect collect_old collect_of(elements: usize) = (elements) (elements);
    fcollect fcollect_old fcollect_of(elements: usize) = (elements) (elements);
    alltoall alltoall_old alltoall_of(elements: usize) = (elements) (elements);
    alltoalls alltoalls_old alltoalls_of(dst: isize, sst: isize, elements: usize) =
        ((dst, sst), elements) ((dst, sst), elements);
}

macro_rules! reductions {
    ($($name:ident $old:ident $op:ident;)*) => { $(
        pub fn $name<T: Element>(team: usize, dest: usize, source: usize, elements: usize) -> c_int {
            if team == team::INVALID {
                return -1;
            }
            reduce_of::<T>(team::of(get(), team), dest, source, elements, n::$op);
            0
        }

        #[allow(clippy::too_many_arguments)]
        pub fn $old<T: Element>(
            dest: usize, source: usize, elements: c_int,
            start: c_int, log_stride: c_int, size: c_int, _work: usize, _sync: usize,
        ) {
            let elements = elements.max(0) as usize;
            reduce_of::<T>(active(start, log_stride, size), dest, source, elements, n::$op);
        }
    )* };
}

reductions! {
    and_reduce and_to_all BAND;
    or_reduce or_to_all BOR;
    xor_reduce xor_to_all BXOR;
    max_reduce max_to_all MAX;
    min_reduce min_to_all MIN;
    sum_reduce sum_to_all SUM;
    prod_reduce prod_to_all PROD;
}

pub fn sum_inscan<T: Element>(team: usize, dest: usize, source: usize, elements: usize) -> c_int {
    if team == team::INVALID {
        return -1;
    }
    let (team, datatype) = (team::of(get(), team), handle(T::DATATYPE));
    let (from, to, count) = (operand(dest, source), buffer(dest), elements as i64);
    mpi!(MPI_Scan_c(from, to, count, datatype, handle(n::SUM), team.comm));
    0
}

/// Stores at `dest` the sums of the elements of the PEs before this one in the team, and zeros on the first
/// PE. Returns 0, or -1 if the team is invalid.
pub fn sum_exscan<T: Element>(team: usize, dest: usize, source: usize, elements: usize) -> c_int {
    if team == team::INVALID {
        return -1;
    }
    let (team, datatype) = (team::of(get(), team), handle(T::DATATYPE));
    let (from, to, count) = (operand(dest, source), buffer(dest), elements as i64);
    mpi!(MPI_Exscan_c(from, to, count, datatype, handle(n::SUM), team.comm));
    if team.me == 0 && elements > 0 {
        crate::memory::fill(dest, elements * size_of::<T>());
    }
    0
}
