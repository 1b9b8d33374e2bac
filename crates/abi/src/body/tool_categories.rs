// SPDX-License-Identifier: BSD-3-Clause
//! MPI_T's categories of variables, sources of timestamps, and events (MPI 5.0, sections 15.3.8 and 15.3.9).
//! The categories never change. The only source is the clock that traces use. There are no events.

use super::info::enter_info;
use super::tool::{cvars, find, index_by_name, store_text, store_unless_null, wrong};
use crate::args::{Address, Array, Callback, Handle, Out, Text, TextOut};
use crate::process::Guard;
use error::Result;
use objects::constants as c;
use telemetry::Counter;

/// A category of MPI_T variables. `settings` says whether all control variables belong to it, `counters`
/// returns whether a performance variable does, and `within` holds the indices of its subcategories.
struct Category {
    name: &'static str,
    doc: &'static str,
    settings: bool,
    counters: fn(&Counter) -> bool,
    within: &'static [i32],
}

fn is_call(counter: &Counter) -> bool {
    counter.name().ends_with("_calls")
}

const CATEGORIES: [Category; 3] = [
    Category {
        name: "settings",
        doc: "what users may set, with OUTBOARD_ variables",
        settings: true,
        counters: |_| false,
        within: &[],
    },
    Category {
        name: "counters",
        doc: "what this process has counted",
        settings: false,
        counters: |counter| !is_call(counter),
        within: &[2],
    },
    Category {
        name: "calls",
        doc: "operations that were started",
        settings: false,
        counters: is_call,
        within: &[],
    },
];

impl Category {
    fn cvars(&self) -> Vec<i32> {
        if self.settings { (0..cvars().len() as i32).collect() } else { Vec::new() }
    }

    fn pvars(&self) -> Vec<i32> {
        (0..).zip(Counter::ALL).filter(|(_, counter)| (self.counters)(counter)).map(|(at, _)| at).collect()
    }
}

/// MPI_T_category_get_num
pub fn t_category_get_num(_: &mut Guard, num_cat: Out<i32>) -> Result<()> {
    store_unless_null(num_cat, CATEGORIES.len() as i32)
}

/// MPI_T_category_get_info
#[rustfmt::skip]
pub fn t_category_get_info(
    _: &mut Guard, cat_index: i32, name: TextOut, name_len: Out<i32>, desc: TextOut, desc_len: Out<i32>,
    num_cvars: Out<i32>, num_pvars: Out<i32>, num_categories: Out<i32>,
) -> Result<()> {
    let category = find(&CATEGORIES, cat_index)?;
    store_text(category.name, name, name_len)?;
    store_text(category.doc, desc, desc_len)?;
    store_unless_null(num_cvars, category.cvars().len() as i32)?;
    store_unless_null(num_pvars, category.pvars().len() as i32)?;
    store_unless_null(num_categories, category.within.len() as i32)
}

/// MPI_T_category_get_num_events
pub fn t_category_get_num_events(_: &mut Guard, cat_index: i32, num_events: Out<i32>) -> Result<()> {
    find(&CATEGORIES, cat_index)?;
    store_unless_null(num_events, 0)
}

/// MPI_T_category_get_index
pub fn t_category_get_index(_: &mut Guard, name: Text, cat_index: Out<i32>) -> Result<()> {
    index_by_name(&CATEGORIES, name, cat_index, |category| category.name)
}

/// MPI_T_category_get_cvars
pub fn t_category_get_cvars(_: &mut Guard, cat_index: i32, len: i32, indices: Array<i32>) -> Result<()> {
    list(&find(&CATEGORIES, cat_index)?.cvars(), len, indices)
}

/// MPI_T_category_get_pvars
pub fn t_category_get_pvars(_: &mut Guard, cat_index: i32, len: i32, indices: Array<i32>) -> Result<()> {
    list(&find(&CATEGORIES, cat_index)?.pvars(), len, indices)
}

/// MPI_T_category_get_categories
pub fn t_category_get_categories(_: &mut Guard, cat_index: i32, len: i32, indices: Array<i32>) -> Result<()> {
    list(find(&CATEGORIES, cat_index)?.within, len, indices)
}

/// MPI_T_category_get_events
pub fn t_category_get_events(_: &mut Guard, cat_index: i32, _len: i32, _indices: Array<i32>) -> Result<()> {
    find(&CATEGORIES, cat_index).map(|_| ())
}

/// MPI_T_category_changed
pub fn t_category_changed(_: &mut Guard, update_number: Out<i32>) -> Result<()> {
    store_unless_null(update_number, 0)
}

/// Stores the first `len` of the indices `all` in the program's array.
fn list(all: &[i32], len: i32, indices: Array<i32>) -> Result<()> {
    indices.write(&all[..all.len().min(len.max(0) as usize)])
}

/// MPI_T_source_get_num
pub fn t_source_get_num(_: &mut Guard, num_sources: Out<i32>) -> Result<()> {
    store_unless_null(num_sources, 1)
}

/// MPI_T_source_get_info
#[rustfmt::skip]
pub fn t_source_get_info(
    guard: &mut Guard, source_index: i32, name: TextOut, name_len: Out<i32>, desc: TextOut,
    desc_len: Out<i32>, ordering: Out<i32>, ticks_per_second: Out<i64>, max_ticks: Out<i64>,
    info: Out<Handle>,
) -> Result<()> {
    find(&[()], source_index)?;
    store_text("clock", name, name_len)?;
    store_text("the clock of traces, which all processes of the machine share", desc, desc_len)?;
    store_unless_null(ordering, c::T_SOURCE_ORDERED)?;
    store_unless_null(ticks_per_second, 1_000_000_000)?;
    store_unless_null(max_ticks, i64::MAX)?;
    if info.is_null() { Ok(()) } else { enter_info(guard, objects::Info::default(), info) }
}

/// MPI_T_source_get_timestamp
pub fn t_source_get_timestamp(_: &mut Guard, source_index: i32, timestamp: Out<i64>) -> Result<()> {
    find(&[()], source_index)?;
    store_unless_null(timestamp, sys::clock::now() as i64)
}

/// MPI_T_event_get_num
pub fn t_event_get_num(_: &mut Guard, num_events: Out<i32>) -> Result<()> {
    store_unless_null(num_events, 0)
}

/// MPI_T_event_get_index
pub fn t_event_get_index(_: &mut Guard, name: Text, event_index: Out<i32>) -> Result<()> {
    index_by_name(&[], name, event_index, |name: &String| name)
}

/// MPI_T_event_get_info
#[rustfmt::skip]
pub fn t_event_get_info(
    _: &mut Guard, event_index: i32, _name: TextOut, _name_len: Out<i32>, _verbosity: Out<i32>,
    _array_of_datatypes: Array<Handle>, _array_of_displacements: Array<i64>, _num_elements: Out<i32>,
    _enumtype: Address, _info: Out<Handle>, _desc: TextOut, _desc_len: Out<i32>, _bind: Out<i32>,
) -> Result<()> {
    find::<()>(&[], event_index).map(|_| ())
}

/// MPI_T_event_handle_alloc
#[rustfmt::skip]
pub fn t_event_handle_alloc(
    _: &mut Guard, event_index: i32, _obj_handle: Address, _info: Handle, _event_registration: Address,
) -> Result<()> {
    find::<()>(&[], event_index).map(|_| ())
}

/// Returns the error of all calls that need an event, since Outboard has no events.
fn no_event() -> Result<()> {
    wrong(c::T_ERR_INVALID_HANDLE, "there are no events, so this is not a handle of one")
}

/// MPI_T_event_handle_free
pub fn t_event_handle_free(
    _: &mut Guard,
    _registration: Address,
    _user_data: Address,
    _free: Callback,
) -> Result<()> {
    no_event()
}

/// MPI_T_event_handle_get_info
pub fn t_event_handle_get_info(_: &mut Guard, _registration: Address, _info_used: Out<Handle>) -> Result<()> {
    no_event()
}

/// MPI_T_event_handle_set_info
pub fn t_event_handle_set_info(_: &mut Guard, _registration: Address, _info: Handle) -> Result<()> {
    no_event()
}

/// MPI_T_event_callback_get_info
pub fn t_event_callback_get_info(
    _: &mut Guard,
    _registration: Address,
    _safety: i32,
    _info_used: Out<Handle>,
) -> Result<()> {
    no_event()
}

/// MPI_T_event_callback_set_info
pub fn t_event_callback_set_info(
    _: &mut Guard,
    _registration: Address,
    _safety: i32,
    _info: Handle,
) -> Result<()> {
    no_event()
}

/// MPI_T_event_register_callback
#[rustfmt::skip]
pub fn t_event_register_callback(
    _: &mut Guard, _registration: Address, _safety: i32, _info: Handle, _user_data: Address,
    _callback: Callback,
) -> Result<()> {
    no_event()
}

/// MPI_T_event_set_dropped_handler
pub fn t_event_set_dropped_handler(_: &mut Guard, _registration: Address, _callback: Callback) -> Result<()> {
    no_event()
}

/// MPI_T_event_read
pub fn t_event_read(_: &mut Guard, _instance: Address, _element_index: i32, _buffer: Address) -> Result<()> {
    no_event()
}

/// MPI_T_event_copy
pub fn t_event_copy(_: &mut Guard, _instance: Address, _buffer: Address) -> Result<()> {
    no_event()
}

/// MPI_T_event_get_timestamp
pub fn t_event_get_timestamp(_: &mut Guard, _instance: Address, _event_timestamp: Out<i64>) -> Result<()> {
    no_event()
}

/// MPI_T_event_get_source
pub fn t_event_get_source(_: &mut Guard, _instance: Address, _source_index: Out<i32>) -> Result<()> {
    no_event()
}
