// SPDX-License-Identifier: BSD-3-Clause
//! Contexts. Operations behave alike in all contexts: when a call returns, its operation is complete, or the
//! PE has given it to an MPI window. So a context has only a team, whose PE numbers it uses.

use crate::memory::{at, store};
use crate::process::PeState;
use crate::team::{self, Team};
use std::ffi::{c_int, c_long};

const INVALID: usize = 0;
pub const DEFAULT: usize = 1;

struct Context {
    /// The handle of the team whose PE numbers the context uses.
    team: usize,
}

fn of(ctx: usize) -> &'static Context {
    // SAFETY: the handle is an address from `create_of_team`, not destroyed, as OpenSHMEM asks.
    unsafe { &*at::<Context>(ctx) }
}

/// Returns the number in the world of PE `pe` of a context.
#[inline]
pub fn pe(process: &'static PeState, ctx: usize, pe: c_int) -> c_int {
    match ctx {
        DEFAULT => pe,
        INVALID => crate::fault::fail("the context is SHMEM_CTX_INVALID"),
        _ => member(team::of(process, of(ctx).team), pe),
    }
}

fn member(team: &Team, pe: c_int) -> c_int {
    let found = usize::try_from(pe).ok().and_then(|pe| team.members.get(pe));
    found.copied().unwrap_or_else(|| {
        crate::fault::fail(&format!("PE {pe} does not exist in the context's team of {}", team.members.len()))
    })
}

pub fn create(options: c_long, ctx: usize) -> c_int {
    create_of_team(team::WORLD, options, ctx)
}

pub fn create_of_team(team: usize, _options: c_long, ctx: usize) -> c_int {
    if team == team::INVALID {
        store(ctx, INVALID);
        return -1;
    }
    store(ctx, Box::into_raw(Box::new(Context { team })).expose_provenance());
    0
}

pub fn destroy(ctx: usize) {
    match ctx {
        INVALID => {}
        DEFAULT => crate::fault::fail("shmem_ctx_destroy: SHMEM_CTX_DEFAULT cannot be destroyed"),
        _ => {
            crate::order::quiet(ctx);
            // SAFETY: as in `of`; nobody uses the handle any more.
            drop(unsafe { Box::from_raw(at::<Context>(ctx)) });
        }
    }
}

pub fn get_team(ctx: usize, team: usize) -> c_int {
    let (found, code) = match ctx {
        INVALID => (team::INVALID, -1),
        DEFAULT => (team::WORLD, 0),
        _ => (of(ctx).team, 0),
    };
    store(team, found);
    code
}

/// Does nothing. `shmem_session_start` permits the library to delay operations, and this library delays none.
pub fn session_start(_ctx: usize, _options: c_long, _config: usize, _mask: c_long) {}

pub fn session_stop(_ctx: usize) {}
