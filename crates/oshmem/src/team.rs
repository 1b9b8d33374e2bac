// SPDX-License-Identifier: BSD-3-Clause
//! Teams: communicators, each with the list of its PEs by their numbers in the world. A team's handle is an
//! address, or one of three numbers.

use crate::c::MPI_Comm;
use crate::fault::{fail, mpi};
use crate::memory::{at, load, store};
use crate::numbers as n;
use crate::process::{PeState, get, handle};
use std::collections::HashMap;
use std::ffi::{c_int, c_long};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const INVALID: usize = 0;
pub const WORLD: usize = 1;
const SHARED: usize = 2;
/// SHMEM_TEAM_NUM_CONTEXTS: the bit of a mask that says that a team's configuration has `num_contexts`.
const NUM_CONTEXTS: c_long = 1;

pub struct Team {
    pub comm: MPI_Comm,
    /// The PEs of the team by their numbers in the world, in the order of their numbers in the team.
    pub members: Vec<c_int>,
    pub me: c_int,
    num_contexts: c_int,
}

impl Team {
    pub fn new(comm: MPI_Comm, members: Vec<c_int>, me: c_int) -> Team {
        Team { comm, members, me, num_contexts: 0 }
    }
}

/// The handles of the teams that the program has made and not destroyed, in the order in which it made them.
static MADE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn made() -> MutexGuard<'static, Vec<usize>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
pub fn of(process: &'static PeState, team: usize) -> &'static Team {
    match team {
        WORLD => &process.world,
        SHARED => &process.shared,
        INVALID => fail("the team is SHMEM_TEAM_INVALID"),
        // SAFETY: the handle is an address from `split`, not destroyed, as OpenSHMEM asks.
        _ => unsafe { &*at::<Team>(team) },
    }
}

pub fn my_pe(team: usize) -> c_int {
    if team == INVALID { -1 } else { of(get(), team).me }
}

pub fn n_pes(team: usize) -> c_int {
    if team == INVALID { -1 } else { of(get(), team).members.len() as c_int }
}

pub fn get_config(team: usize, mask: c_long, config: usize) -> c_int {
    if team == INVALID || mask & NUM_CONTEXTS != 0 && config == 0 {
        return -1;
    }
    if mask & NUM_CONTEXTS != 0 {
        store(config, of(get(), team).num_contexts);
    }
    0
}

pub fn translate_pe(from: usize, pe: c_int, to: usize) -> c_int {
    if from == INVALID || to == INVALID {
        return -1;
    }
    let process = get();
    let world = usize::try_from(pe).ok().and_then(|pe| of(process, from).members.get(pe));
    let found = world.and_then(|&world| of(process, to).members.iter().position(|&pe| pe == world));
    found.map_or(-1, |pe| pe as c_int)
}

pub fn ptr(team: usize, dest: usize, pe: c_int) -> usize {
    if team == INVALID {
        return 0;
    }
    let found = usize::try_from(pe).ok().and_then(|pe| of(get(), team).members.get(pe));
    found.map_or(0, |&pe| crate::setup::ptr(dest, pe))
}

/// Makes a team of the PEs that pass the same colour, in the order of their keys. Returns the team's handle,
/// or `INVALID` on a PE without a colour. All PEs of `parent` call it together.
fn split(parent: &Team, color: Option<c_int>, key: c_int, config: usize, mask: c_long) -> usize {
    let mut comm = 0;
    mpi!(MPI_Comm_split(parent.comm, color.unwrap_or(n::UNDEFINED), key, &raw mut comm));
    if color.is_none() {
        return INVALID;
    }
    let (mut me, mut size) = (0, 0);
    mpi!(MPI_Comm_rank(comm, &raw mut me));
    mpi!(MPI_Comm_size(comm, &raw mut size));
    let mut members = vec![0; size as usize];
    let (mut mine, int) = (get().me, handle(n::INT));
    mpi!(MPI_Allgather((&raw mut mine).cast(), 1, int, members.as_mut_ptr().cast(), 1, int, comm));
    let mut team = Team::new(comm, members, me);
    if mask & NUM_CONTEXTS != 0 && config != 0 {
        team.num_contexts = load(config);
    }
    let team = Box::into_raw(Box::new(team)).expose_provenance();
    made().push(team);
    team
}

#[allow(clippy::too_many_arguments)]
pub fn split_strided(
    parent: usize,
    start: c_int,
    stride: c_int,
    size: c_int,
    config: usize,
    mask: c_long,
    new: usize,
) -> c_int {
    store(new, INVALID);
    if parent == INVALID {
        return -1;
    }
    let parent = of(get(), parent);
    let all = parent.members.len() as i64;
    let last = i64::from(start) + (i64::from(size) - 1) * i64::from(stride);
    // All pass the same values, so all return here.
    if size < 1
        || !(0..all).contains(&i64::from(start))
        || !(0..all).contains(&last)
        || stride == 0 && size > 1
    {
        return -1;
    }
    let mine = (0..size).find(|index| start + index * stride == parent.me);
    store(new, split(parent, mine.map(|_| 0), mine.unwrap_or(0), config, mask));
    0
}

#[allow(clippy::too_many_arguments)]
pub fn split_2d(
    parent: usize,
    xrange: c_int,
    xconfig: usize,
    xmask: c_long,
    xteam: usize,
    yconfig: usize,
    ymask: c_long,
    yteam: usize,
) -> c_int {
    store(xteam, INVALID);
    store(yteam, INVALID);
    if parent == INVALID || xrange < 1 {
        return -1;
    }
    let parent = of(get(), parent);
    let xrange = xrange.min(parent.members.len() as c_int);
    let (x, y) = (parent.me % xrange, parent.me / xrange);
    store(xteam, split(parent, Some(y), x, xconfig, xmask));
    store(yteam, split(parent, Some(x), y, yconfig, ymask));
    0
}

pub fn destroy(team: usize) {
    match team {
        INVALID => {}
        WORLD | SHARED => fail("shmem_team_destroy: a predefined team cannot be destroyed"),
        _ => {
            made().retain(|&other| other != team);
            free(team);
        }
    }
}

/// The teams of the old active sets, each made at its first use. The key is the first PE, the logarithm of
/// the stride, and the size.
static ACTIVE: Mutex<Option<HashMap<[c_int; 3], &'static Team>>> = Mutex::new(None);

/// Returns the team of an active set. The first call for a set makes its team, and all members of the set
/// make that call together.
pub fn active(start: c_int, log_stride: c_int, size: c_int) -> &'static Team {
    let process = get();
    let last = i64::from(start) + (i64::from(size) - 1) * (1_i64 << log_stride.clamp(0, 31));
    if start < 0 || !(0..31).contains(&log_stride) || size < 1 || last >= i64::from(process.n) {
        fail(&format!(
            "an active set of {size} PEs from PE {start} on, 2^{log_stride} apart, is not among the {} PEs there are",
            process.n
        ));
    }
    if (start, log_stride, size) == (0, 0, process.n) {
        return &process.world;
    }
    let key = [start, log_stride, size];
    let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    active.get_or_insert_default().entry(key).or_insert_with(|| {
        let members: Vec<c_int> = (0..size).map(|index| start + (index << log_stride)).collect();
        let Some(me) = members.iter().position(|&pe| pe == process.me) else {
            fail(&format!(
                "this PE is not in the active set of {size} PEs from PE {start} on, 2^{log_stride} apart"
            ));
        };
        let (mut world, mut group, mut comm) = (0, 0, 0);
        mpi!(MPI_Comm_group(process.comm, &raw mut world));
        mpi!(MPI_Group_incl(world, size, members.as_ptr().cast_mut(), &raw mut group));
        mpi!(MPI_Comm_create_group(process.comm, group, start, &raw mut comm));
        mpi!(MPI_Group_free(&raw mut group));
        mpi!(MPI_Group_free(&raw mut world));
        Box::leak(Box::new(Team::new(comm, members, me as c_int)))
    })
}

fn free(team: usize) {
    // SAFETY: as in `of`; nobody uses the handle any more.
    let mut team = unsafe { Box::from_raw(at::<Team>(team)) };
    mpi!(MPI_Comm_free(&raw mut team.comm));
}

/// Destroys all teams that the program has made, and the teams of active sets.
pub fn close() {
    std::mem::take(&mut *made()).into_iter().for_each(free);
    let active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner).take();
    for team in active.into_iter().flatten().map(|(_, team)| team) {
        let mut comm = team.comm;
        mpi!(MPI_Comm_free(&raw mut comm));
    }
}
