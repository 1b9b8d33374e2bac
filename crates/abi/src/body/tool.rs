//! The tool information interface (MPI 5.0, section 15.3). Control variables are the settings; performance
//! variables are the counters of telemetry. There are no events. The one source of timestamps is the clock
//! that traces use.
//!
//! Tools may call before MPI_Init and after MPI_Finalize. Calls return their codes: no error handler is
//! called (section 15.3.10).

use crate::args::{Address, Array, Callback, Handle, Out, Text, TextOut};
use crate::process::{Guard, Pvar, Tool};
use error::{Class, Error, Result};
use objects::constants as c;
use settings::{Kind, Setting, TABLE};
use slab::Slab;
use telemetry::{Counter, Unit};

/// The handle of slab entry 0, so that no handle is null or MPI_T_PVAR_ALL_HANDLES.
const FIRST: usize = 16;

fn wrong<T>(code: i32, sentence: &str) -> Result<T> {
    Err(Error::new(Class::Other, sentence.to_owned()).with_code(code))
}

/// Stores a result, unless the program does not want it: most pointers here may be null.
fn give<T: Copy>(out: Out<T>, value: T) -> Result<()> {
    if out.is_null() { Ok(()) } else { out.set(value) }
}

fn give_at(out: Address, value: usize) -> Result<()> {
    give(Out::new(out.0, "a handle"), value)
}

/// Stores a string. `length` holds its buffer's length, and gets the length that is needed or used (MPI 5.0,
/// section 15.3.3).
fn tell(text: &str, buffer: TextOut, length: Out<i32>) -> Result<()> {
    if length.is_null() {
        return Ok(());
    }
    let capacity = length.get()?.max(0) as usize;
    let used = if buffer.is_null() || capacity == 0 { text.len() } else { buffer.set(text, capacity)? };
    length.set(used as i32 + 1)
}

fn find<T>(all: &[T], index: i32) -> Result<&T> {
    match usize::try_from(index).ok().and_then(|index| all.get(index)) {
        Some(found) => Ok(found),
        None => wrong(c::T_ERR_INVALID_INDEX, "there is no such index"),
    }
}

fn index_by_name<T>(all: &[T], name: Text, index: Out<i32>, of: impl Fn(&T) -> &str) -> Result<()> {
    if index.is_null() {
        return wrong(c::T_ERR_INVALID, "the index is a null pointer");
    }
    let Ok(name) = name.read() else { return wrong(c::T_ERR_INVALID, "the name is a null pointer") };
    match all.iter().position(|item| of(item) == name) {
        Some(at) => index.set(at as i32),
        None => wrong(c::T_ERR_INVALID_NAME, "there is nothing of this name"),
    }
}

/// MPI_T_init_thread: a tool above MPI_THREAD_SINGLE may call while the program does, so then every call
/// takes the lock.
pub fn t_init_thread(guard: &mut Guard, required: i32, provided: Out<i32>) -> Result<()> {
    let level = required.clamp(c::THREAD_SINGLE, c::THREAD_MULTIPLE);
    give(provided, level)?;
    guard.tool.uses += 1;
    guard.tool.thread_level = guard.tool.thread_level.max(level);
    guard.settle_lock();
    Ok(())
}

/// MPI_T_finalize
pub fn t_finalize(guard: &mut Guard) -> Result<()> {
    guard.tool.uses -= 1;
    if guard.tool.uses == 0 {
        guard.tool = Tool::default();
        guard.settle_lock();
    }
    Ok(())
}

// Enumerations: the settings that are a choice.

/// MPI_T_enum_get_info
pub fn t_enum_get_info(
    _: &mut Guard,
    enumtype: Address,
    num: Out<i32>,
    name: TextOut,
    name_len: Out<i32>,
) -> Result<()> {
    let (setting, choices) = choice(enumtype)?;
    give(num, choices.len() as i32)?;
    tell(setting.name, name, name_len)
}

/// MPI_T_enum_get_item
#[rustfmt::skip]
pub fn t_enum_get_item(
    _: &mut Guard, enumtype: Address, indx: i32, value: Out<i32>, name: TextOut, name_len: Out<i32>,
) -> Result<()> {
    let (_, choices) = choice(enumtype)?;
    let Ok(item) = find(choices, indx) else {
        return wrong(c::T_ERR_INVALID_ITEM, "the enumeration has no such item");
    };
    give(value, indx)?;
    tell(item, name, name_len)
}

fn choice(enumtype: Address) -> Result<(&'static Setting, &'static [&'static str])> {
    let setting = enumtype.0.checked_sub(FIRST).and_then(|at| cvars().into_iter().nth(at));
    match setting.map(|setting| (setting, setting.kind)) {
        Some((setting, Kind::Choice(choices))) => Ok((setting, choices)),
        _ => wrong(c::T_ERR_INVALID_HANDLE, "there is no such enumeration"),
    }
}

// Control variables: the settings that users may set. Settings are read once, so none can be written.

fn cvars() -> Vec<&'static Setting> {
    TABLE.iter().filter(|setting| !setting.internal).collect()
}

/// A setting's value, as a tool gets it.
enum Value {
    Number(u64),
    Choice(i32),
    Text(String),
}

fn value_of(setting: &Setting) -> Value {
    let text = settings::given(setting).unwrap_or_else(|| setting.default.to_owned());
    match setting.kind {
        Kind::Choice(choices) => {
            Value::Choice(choices.iter().position(|choice| *choice == text).map_or(-1, |at| at as i32))
        }
        // A setting whose default is nothing has no number for that.
        kind if !setting.default.is_empty() => kind.number(&text).map_or(Value::Text(text), Value::Number),
        _ => Value::Text(text),
    }
}

/// MPI_T_cvar_get_num
pub fn t_cvar_get_num(_: &mut Guard, num_cvar: Out<i32>) -> Result<()> {
    give(num_cvar, cvars().len() as i32)
}

/// MPI_T_cvar_get_info
#[rustfmt::skip]
pub fn t_cvar_get_info(
    _: &mut Guard, cvar_index: i32, name: TextOut, name_len: Out<i32>, verbosity: Out<i32>,
    datatype: Out<Handle>, enumtype: Address, desc: TextOut, desc_len: Out<i32>, bind: Out<i32>,
    scope: Out<i32>,
) -> Result<()> {
    let cvars = cvars();
    let setting = *find(&cvars, cvar_index)?;
    let (kind, number) = match value_of(setting) {
        Value::Number(_) => (c::UNSIGNED_LONG_LONG, c::T_ENUM_NULL),
        Value::Choice(_) => (c::INT, FIRST + cvar_index as usize),
        Value::Text(_) => (c::CHAR, c::T_ENUM_NULL),
    };
    tell(setting.name, name, name_len)?;
    tell(setting.doc, desc, desc_len)?;
    give(verbosity, c::T_VERBOSITY_USER_BASIC)?;
    give(datatype, kind)?;
    give_at(enumtype, number)?;
    give(bind, c::T_BIND_NO_OBJECT)?;
    give(scope, c::T_SCOPE_CONSTANT)
}

/// MPI_T_cvar_get_index
pub fn t_cvar_get_index(_: &mut Guard, name: Text, cvar_index: Out<i32>) -> Result<()> {
    index_by_name(&cvars(), name, cvar_index, |setting| setting.name)
}

/// MPI_T_cvar_handle_alloc
#[rustfmt::skip]
pub fn t_cvar_handle_alloc(
    guard: &mut Guard, cvar_index: i32, _obj_handle: Address, handle: Address, count: Out<i32>,
) -> Result<()> {
    let cvars = cvars();
    let setting = *find(&cvars, cvar_index)?;
    give(count, if let Value::Text(text) = value_of(setting) { text.len() as i32 + 1 } else { 1 })?;
    let at = guard.tool.cvars.insert(cvar_index as usize);
    give_at(handle, FIRST + at)
}

/// MPI_T_cvar_handle_free
pub fn t_cvar_handle_free(guard: &mut Guard, handle: Address) -> Result<()> {
    cvar(guard, held(handle)?)?;
    guard.tool.cvars.remove(held(handle)?.0 - FIRST);
    give_at(handle, c::T_CVAR_HANDLE_NULL)
}

/// MPI_T_cvar_read
pub fn t_cvar_read(guard: &mut Guard, handle: Address, buf: Address) -> Result<()> {
    match value_of(cvar(guard, handle)?) {
        Value::Number(number) => Out::new(buf.0, "buf").set(number),
        Value::Choice(at) => Out::new(buf.0, "buf").set(at),
        Value::Text(text) => TextOut::new(buf.0, "buf").set(&text, text.len() + 1).map(|_| ()),
    }
}

/// MPI_T_cvar_write
pub fn t_cvar_write(guard: &mut Guard, handle: Address, _buf: Address) -> Result<()> {
    cvar(guard, handle)?;
    wrong(c::T_ERR_CVAR_SET_NEVER, "settings are read from the environment once, and cannot be changed")
}

/// The handle in a program's variable.
fn held(variable: Address) -> Result<Address> {
    Ok(Address(Out::<usize>::new(variable.0, "handle").get()?))
}

fn cvar(guard: &Guard, handle: Address) -> Result<&'static Setting> {
    match handle.0.checked_sub(FIRST).and_then(|at| guard.tool.cvars.get(at)) {
        Some(index) => Ok(cvars()[*index]),
        None => wrong(c::T_ERR_INVALID_HANDLE, "this is not a handle of a control variable"),
    }
}

// Performance variables: the counters. Each handle counts from when it is started.

/// A counter's class, by its unit. What goes up and down is a level, which always runs and cannot be set.
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
    give(num_pvar, Counter::ALL.len() as i32)
}

/// MPI_T_pvar_get_info
#[rustfmt::skip]
pub fn t_pvar_get_info(
    _: &mut Guard, pvar_index: i32, name: TextOut, name_len: Out<i32>, verbosity: Out<i32>,
    var_class: Out<i32>, datatype: Out<Handle>, enumtype: Address, desc: TextOut, desc_len: Out<i32>,
    bind: Out<i32>, readonly: Out<i32>, continuous: Out<i32>, atomic: Out<i32>,
) -> Result<()> {
    let counter = *find(Counter::ALL, pvar_index)?;
    tell(counter.name(), name, name_len)?;
    tell(counter.doc(), desc, desc_len)?;
    give(verbosity, c::T_VERBOSITY_USER_DETAIL)?;
    give(var_class, class_of(counter))?;
    give(datatype, c::UNSIGNED_LONG_LONG)?;
    give_at(enumtype, c::T_ENUM_NULL)?;
    give(bind, c::T_BIND_NO_OBJECT)?;
    let level = i32::from(is_level(counter));
    give(readonly, level)?;
    give(continuous, level)?;
    give(atomic, 1 - level)
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
    give_at(session, FIRST + at)
}

/// MPI_T_pvar_session_free
pub fn t_pvar_session_free(guard: &mut Guard, session: Address) -> Result<()> {
    pvars(guard, held(session)?)?;
    guard.tool.sessions.remove(held(session)?.0 - FIRST);
    give_at(session, c::T_PVAR_SESSION_NULL)
}

/// MPI_T_pvar_handle_alloc
#[rustfmt::skip]
pub fn t_pvar_handle_alloc(
    guard: &mut Guard, session: Address, pvar_index: i32, _obj_handle: Address, handle: Address,
    count: Out<i32>,
) -> Result<()> {
    let counter = *find(Counter::ALL, pvar_index)?;
    let at = pvars(guard, session)?.insert(Pvar { counter, counted: 0, since: None });
    give(count, 1)?;
    give_at(handle, FIRST + at)
}

/// MPI_T_pvar_handle_free
pub fn t_pvar_handle_free(guard: &mut Guard, session: Address, handle: Address) -> Result<()> {
    pvar(guard, session, held(handle)?)?;
    pvars(guard, session)?.remove(held(handle)?.0 - FIRST);
    give_at(handle, c::T_PVAR_HANDLE_NULL)
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
    match session.0.checked_sub(FIRST).and_then(|at| guard.tool.sessions.get_mut(at)) {
        Some(pvars) => Ok(pvars),
        None => wrong(c::T_ERR_INVALID_SESSION, "this is not a session of performance variables"),
    }
}

fn pvar(guard: &mut Guard, session: Address, handle: Address) -> Result<&mut Pvar> {
    let pvars = pvars(guard, session)?;
    match handle.0.checked_sub(FIRST).and_then(|at| pvars.get_mut(at)) {
        Some(pvar) => Ok(pvar),
        None => wrong(c::T_ERR_INVALID_HANDLE, "this is not a handle of a performance variable"),
    }
}

/// Changes a variable, or all of the session that are no levels. A level fails with the code `refusal`.
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

// Categories. They never change.

/// A category: whether it has the control variables, which performance variables it has, and its
/// subcategories.
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
    give(num_cat, CATEGORIES.len() as i32)
}

/// MPI_T_category_get_info
#[rustfmt::skip]
pub fn t_category_get_info(
    _: &mut Guard, cat_index: i32, name: TextOut, name_len: Out<i32>, desc: TextOut, desc_len: Out<i32>,
    num_cvars: Out<i32>, num_pvars: Out<i32>, num_categories: Out<i32>,
) -> Result<()> {
    let category = find(&CATEGORIES, cat_index)?;
    tell(category.name, name, name_len)?;
    tell(category.doc, desc, desc_len)?;
    give(num_cvars, category.cvars().len() as i32)?;
    give(num_pvars, category.pvars().len() as i32)?;
    give(num_categories, category.within.len() as i32)
}

/// MPI_T_category_get_num_events
pub fn t_category_get_num_events(_: &mut Guard, cat_index: i32, num_events: Out<i32>) -> Result<()> {
    find(&CATEGORIES, cat_index)?;
    give(num_events, 0)
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
    give(update_number, 0)
}

/// Stores as many indices as the program's array holds.
fn list(all: &[i32], len: i32, indices: Array<i32>) -> Result<()> {
    indices.write(&all[..all.len().min(len.max(0) as usize)])
}

// Sources and events.

/// MPI_T_source_get_num
pub fn t_source_get_num(_: &mut Guard, num_sources: Out<i32>) -> Result<()> {
    give(num_sources, 1)
}

/// MPI_T_source_get_info
#[rustfmt::skip]
pub fn t_source_get_info(
    guard: &mut Guard, source_index: i32, name: TextOut, name_len: Out<i32>, desc: TextOut,
    desc_len: Out<i32>, ordering: Out<i32>, ticks_per_second: Out<i64>, max_ticks: Out<i64>,
    info: Out<Handle>,
) -> Result<()> {
    find(&[()], source_index)?;
    tell("clock", name, name_len)?;
    tell("the clock of traces, which all processes of the machine share", desc, desc_len)?;
    give(ordering, c::T_SOURCE_ORDERED)?;
    give(ticks_per_second, 1_000_000_000)?;
    give(max_ticks, i64::MAX)?;
    if info.is_null() { Ok(()) } else { info.set(guard.objects.infos.insert(objects::Info::default())?) }
}

/// MPI_T_source_get_timestamp
pub fn t_source_get_timestamp(_: &mut Guard, source_index: i32, timestamp: Out<i64>) -> Result<()> {
    find(&[()], source_index)?;
    give(timestamp, sys::clock::now() as i64)
}

/// MPI_T_event_get_num
pub fn t_event_get_num(_: &mut Guard, num_events: Out<i32>) -> Result<()> {
    give(num_events, 0)
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

/// The answer to every registration and every instance of an event: there is none.
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
