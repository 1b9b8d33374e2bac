// SPDX-License-Identifier: BSD-3-Clause
//! MPI_T's performance variables: the counters of this process (MPI 5.0, section 15.3.7). The value of a
//! handle grows while the handle is started.

use super::tool::{
    HANDLE_OFFSET, find, handle_in, index_by_name, store_handle, store_text, store_unless_null, wrong,
};
use crate::args::{Address, Handle, Out, Text, TextOut};
use crate::process::{Guard, Pvar};
use error::Result;
use objects::constants as c;
use slab::Slab;
use telemetry::{Counter, Unit};

/// Returns the MPI_T class of a counter, which follows from the counter's unit. A counter that can also fall
/// has the class "level": it always runs, and a tool cannot set it.
fn class_of(counter: Counter) -> i32 {
    match (counter, counter.unit()) {
        (Counter::InstancesLive, _) => c::T_PVAR_CLASS_LEVEL,
        (_, Unit::Count) => c::T_PVAR_CLASS_COUNTER,
        (_, Unit::Bytes) => c::T_PVAR_CLASS_AGGREGATE,
        (_, Unit::Nanoseconds) => c::T_PVAR_CLASS_TIMER,
    }
}

fn is_level(counter: Counter) -> bool {
    class_of(counter) == c::T_PVAR_CLASS_LEVEL
}

impl Pvar {
    fn value(&self) -> u64 {
        match self.since {
            _ if is_level(self.counter) => telemetry::value(self.counter),
            Some(since) => self.counted + telemetry::value(self.counter).saturating_sub(since),
            None => self.counted,
        }
    }

    fn set(&mut self, value: u64) {
        self.counted = value;
        self.since = self.since.map(|_| telemetry::value(self.counter));
    }
}

/// MPI_T_pvar_get_num
pub fn t_pvar_get_num(_: &mut Guard, num_pvar: Out<i32>) -> Result<()> {
    store_unless_null(num_pvar, Counter::ALL.len() as i32)
}

/// MPI_T_pvar_get_info
#[rustfmt::skip]
pub fn t_pvar_get_info(
    _: &mut Guard, pvar_index: i32, name: TextOut, name_len: Out<i32>, verbosity: Out<i32>,
    var_class: Out<i32>, datatype: Out<Handle>, enumtype: Address, desc: TextOut, desc_len: Out<i32>,
    bind: Out<i32>, readonly: Out<i32>, continuous: Out<i32>, atomic: Out<i32>,
) -> Result<()> {
    let counter = *find(Counter::ALL, pvar_index)?;
    store_text(counter.name(), name, name_len)?;
    store_text(counter.doc(), desc, desc_len)?;
    store_unless_null(verbosity, c::T_VERBOSITY_USER_DETAIL)?;
    store_unless_null(var_class, class_of(counter))?;
    store_unless_null(datatype, c::UNSIGNED_LONG_LONG)?;
    store_handle(enumtype, c::T_ENUM_NULL)?;
    store_unless_null(bind, c::T_BIND_NO_OBJECT)?;
    let level = i32::from(is_level(counter));
    store_unless_null(readonly, level)?;
    store_unless_null(continuous, level)?;
    store_unless_null(atomic, 1 - level)
}

/// MPI_T_pvar_get_index
pub fn t_pvar_get_index(_: &mut Guard, name: Text, var_class: i32, pvar_index: Out<i32>) -> Result<()> {
    index_by_name(Counter::ALL, name, pvar_index, |counter| {
        if class_of(*counter) == var_class { counter.name() } else { "" }
    })
}

/// MPI_T_pvar_session_create
pub fn t_pvar_session_create(guard: &mut Guard, session: Address) -> Result<()> {
    let at = guard.tool.sessions.insert(Slab::new());
    store_handle(session, HANDLE_OFFSET + at)
}

/// MPI_T_pvar_session_free
pub fn t_pvar_session_free(guard: &mut Guard, session: Address) -> Result<()> {
    pvars(guard, handle_in(session)?)?;
    guard.tool.sessions.remove(handle_in(session)?.0 - HANDLE_OFFSET);
    store_handle(session, c::T_PVAR_SESSION_NULL)
}

/// MPI_T_pvar_handle_alloc
#[rustfmt::skip]
pub fn t_pvar_handle_alloc(
    guard: &mut Guard, session: Address, pvar_index: i32, _obj_handle: Address, handle: Address,
    count: Out<i32>,
) -> Result<()> {
    let counter = *find(Counter::ALL, pvar_index)?;
    let at = pvars(guard, session)?.insert(Pvar { counter, counted: 0, since: None });
    store_unless_null(count, 1)?;
    store_handle(handle, HANDLE_OFFSET + at)
}

/// MPI_T_pvar_handle_free
pub fn t_pvar_handle_free(guard: &mut Guard, session: Address, handle: Address) -> Result<()> {
    pvar(guard, session, handle_in(handle)?)?;
    pvars(guard, session)?.remove(handle_in(handle)?.0 - HANDLE_OFFSET);
    store_handle(handle, c::T_PVAR_HANDLE_NULL)
}

/// MPI_T_pvar_start
pub fn t_pvar_start(guard: &mut Guard, session: Address, handle: Address) -> Result<()> {
    each(guard, session, handle, c::T_ERR_PVAR_NO_STARTSTOP, |pvar| {
        pvar.since = pvar.since.or(Some(telemetry::value(pvar.counter)));
    })
}

/// MPI_T_pvar_stop
pub fn t_pvar_stop(guard: &mut Guard, session: Address, handle: Address) -> Result<()> {
    each(guard, session, handle, c::T_ERR_PVAR_NO_STARTSTOP, |pvar| {
        pvar.counted = pvar.value();
        pvar.since = None;
    })
}

/// MPI_T_pvar_reset
pub fn t_pvar_reset(guard: &mut Guard, session: Address, handle: Address) -> Result<()> {
    each(guard, session, handle, c::T_ERR_PVAR_NO_WRITE, |pvar| pvar.set(0))
}

/// MPI_T_pvar_read
pub fn t_pvar_read(guard: &mut Guard, session: Address, handle: Address, buf: Address) -> Result<()> {
    Out::new(buf.0, "buf").set(pvar(guard, session, handle)?.value())
}

/// MPI_T_pvar_readreset
pub fn t_pvar_readreset(guard: &mut Guard, session: Address, handle: Address, buf: Address) -> Result<()> {
    let pvar = pvar(guard, session, handle)?;
    if is_level(pvar.counter) {
        return wrong(c::T_ERR_PVAR_NO_ATOMIC, "the variable cannot be reset");
    }
    Out::new(buf.0, "buf").set(pvar.value())?;
    pvar.set(0);
    Ok(())
}

/// MPI_T_pvar_write
pub fn t_pvar_write(guard: &mut Guard, session: Address, handle: Address, buf: Address) -> Result<()> {
    let pvar = pvar(guard, session, handle)?;
    if is_level(pvar.counter) {
        return wrong(c::T_ERR_PVAR_NO_WRITE, "the variable cannot be written");
    }
    pvar.set(Out::<u64>::new(buf.0, "buf").get()?);
    Ok(())
}

fn pvars(guard: &mut Guard, session: Address) -> Result<&mut Slab<Pvar>> {
    match session.0.checked_sub(HANDLE_OFFSET).and_then(|at| guard.tool.sessions.get_mut(at)) {
        Some(pvars) => Ok(pvars),
        None => wrong(c::T_ERR_INVALID_SESSION, "this is not a session of performance variables"),
    }
}

fn pvar(guard: &mut Guard, session: Address, handle: Address) -> Result<&mut Pvar> {
    let pvars = pvars(guard, session)?;
    match handle.0.checked_sub(HANDLE_OFFSET).and_then(|at| pvars.get_mut(at)) {
        Some(pvar) => Ok(pvar),
        None => wrong(c::T_ERR_INVALID_HANDLE, "this is not a handle of a performance variable"),
    }
}

/// Calls `change` for the variable `handle`. For MPI_T_PVAR_ALL_HANDLES calls it for all variables of the
/// session except levels. Fails with the code `refusal` if `handle` is a level, a variable that a tool cannot
/// set.
#[rustfmt::skip]
fn each(
    guard: &mut Guard, session: Address, handle: Address, refusal: i32, change: impl Fn(&mut Pvar),
) -> Result<()> {
    if handle.0 == c::T_PVAR_ALL_HANDLES {
        let all = pvars(guard, session)?.iter_mut().map(|(_, pvar)| pvar);
        all.filter(|pvar| !is_level(pvar.counter)).for_each(change);
        return Ok(());
    }
    let pvar = pvar(guard, session, handle)?;
    if is_level(pvar.counter) {
        return wrong(refusal, "the variable always runs, and cannot be set");
    }
    change(pvar);
    Ok(())
}
