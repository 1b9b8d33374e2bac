// SPDX-License-Identifier: BSD-3-Clause
//! C functions that MPI calls as callbacks, and that call the program's Fortran procedures with converted
//! arguments.
//!
//! Most callbacks of C get a state from the program. Here this state is a `CallbackRecord`: the Fortran
//! procedures, and the program's state. Operators and error handlers get no state, so each procedure gets one
//! of `SLOTS` C functions, and keeps it. A procedure that is registered again gets the same record or C
//! function.

use crate::{attribute, c, logical};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The state that the callbacks in C get: the Fortran procedures to call, and the state that Fortran has
/// passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallbackRecord {
    procedures: [usize; 3],
    state: i64,
    /// Whether the procedures were passed to the deprecated MPI_KEYVAL_CREATE, whose attributes are INTEGERs.
    narrow: bool,
}

static RECORDS: LazyLock<Mutex<HashMap<CallbackRecord, Box<CallbackRecord>>>> = LazyLock::new(Mutex::default);

fn record(procedures: &[usize], state: i64, narrow: bool) -> *mut c_void {
    let mut record = CallbackRecord { procedures: [0; 3], state, narrow };
    record.procedures[..procedures.len()].copy_from_slice(procedures);
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = records.entry(record).or_insert_with(|| Box::new(record));
    (&raw mut **place).cast()
}

/// Makes the record for callbacks in C that are to call the Fortran procedures `procedures` and to pass them
/// `state`. Returns a pointer to the record, which C gets as the callbacks' state.
pub fn state(procedures: &[usize], state: i64) -> *mut c_void {
    record(procedures, state, false)
}

/// Returns the state for callbacks in C that are to call procedures of MPI_KEYVAL_CREATE, whose attributes
/// are INTEGERs.
pub fn narrow_state(procedures: &[usize], state: i32) -> *mut c_void {
    record(procedures, state.into(), true)
}

/// Returns the record to which a callback's `state` points.
///
/// # Safety
/// The function `record` has returned `state`.
unsafe fn recorded(state: *mut c_void) -> CallbackRecord {
    // SAFETY: the caller's promise; records stay.
    unsafe { *state.cast::<CallbackRecord>() }
}

type CopyProcedure =
    unsafe extern "C" fn(*const i32, *const c_int, *const i64, *const i64, *mut i64, *mut i32, *mut i32);
type DeleteProcedure = unsafe extern "C" fn(*const i32, *const c_int, *const i64, *const i64, *mut i32);

/// Defines, for each kind of object with attributes, the callbacks in C, and the predefined procedures of
/// Fortran.
macro_rules! attributes {
    ($($handle:ident $toint:ident: $copy:ident $copy_c:ident, $delete:ident $delete_c:ident,
       [$($null_copy:ident)*] [$($dup:ident)*] [$($null_delete:ident)*];)*) => { $(
        /// Returns the C function that calls Fortran copy procedures, or C's constant if `procedure` is a
        /// predefined one.
        pub fn $copy(procedure: usize) -> usize {
            if is(procedure, &[$($null_copy as *const () as usize),*]) {
                0
            } else if is(procedure, &[$($dup as *const () as usize),*]) {
                dup()
            } else {
                $copy_c as *const () as usize
            }
        }
        unsafe extern "C" fn $copy_c(
            handle: c::$handle,
            keyval: c_int,
            state: *mut c_void,
            value: *mut c_void,
            into: *mut *mut c_void,
            flag: *mut c_int,
        ) -> c_int {
            // SAFETY: the state is one of this file.
            let record = unsafe { recorded(state) };
            // SAFETY: C hands its own handle.
            let number = unsafe { c::$toint(handle) };
            // SAFETY: the program registered it as a copy procedure.
            let call = unsafe { transmute::<usize, CopyProcedure>(record.procedures[0]) };
            let copy = |old: *const i64, new: *mut i64, copied: *mut i32, code: *mut i32| {
                // SAFETY: the addresses of locals, as the interface wants them.
                unsafe { call(&number, &keyval, &record.state, old, new, copied, code) };
            };
            // SAFETY: C gives room for both.
            unsafe { copy_value(record, value, into, flag, copy) }
        }
        /// Returns the C function that calls Fortran delete procedures, or C's constant if `procedure` is a
        /// predefined one.
        pub fn $delete(procedure: usize) -> usize {
            let null = is(procedure, &[$($null_delete as *const () as usize),*]);
            if null { 0 } else { $delete_c as *const () as usize }
        }
        unsafe extern "C" fn $delete_c(
            handle: c::$handle,
            keyval: c_int,
            value: *mut c_void,
            state: *mut c_void,
        ) -> c_int {
            // SAFETY: the state is one of this file.
            let record = unsafe { recorded(state) };
            // SAFETY: C hands its own handle.
            let number = unsafe { c::$toint(handle) };
            // SAFETY: the program registered it as a delete procedure.
            let call = unsafe { transmute::<usize, DeleteProcedure>(record.procedures[1]) };
            let (value, mut code) = (attribute::unpack(value), 0);
            // SAFETY: the addresses of locals, as the interface wants them.
            unsafe { call(&number, &keyval, &value, &record.state, &mut code) };
            code
        }
        $( #[doc = "The predefined procedure that copies nothing."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $null_copy(
            _: &i32, _: &i32, _: &i64, _: &i64, _: *mut i64, flag: &mut i32, code: &mut i32,
        ) {
            *flag = 0;
            *code = c::SUCCESS;
        } )*
        $( #[doc = "The predefined procedure that copies the value."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $dup(
            _: &i32, _: &i32, _: &i64, old: &i64, new: &mut i64, flag: &mut i32, code: &mut i32,
        ) {
            *new = *old;
            *flag = 1;
            *code = c::SUCCESS;
        } )*
        $( #[doc = "The predefined procedure that deletes nothing."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $null_delete(_: &i32, _: &i32, _: &i64, _: &i64, code: &mut i32) {
            *code = c::SUCCESS;
        } )*
    )* };
}

/// Whether the address `procedure` is among the addresses `known`.
fn is(procedure: usize, known: &[usize]) -> bool {
    known.contains(&procedure)
}

/// Returns C's constant for MPI_COMM_DUP_FN, MPI_TYPE_DUP_FN and MPI_WIN_DUP_FN, which have one value.
pub fn dup() -> usize {
    #[cfg(mpich)]
    {
        unsafe extern "C" {
            fn MPIR_Dup_fn();
        }
        MPIR_Dup_fn as *const () as usize
    }
    #[cfg(not(mpich))]
    1
}

#[cfg(not(mpich))]
attributes! {
    MPI_Comm MPI_Comm_toint: comm_copy_attr comm_copy, comm_delete_attr comm_delete,
        [mpi_comm_null_copy_fn_] [mpi_comm_dup_fn_] [mpi_comm_null_delete_fn_];
    MPI_Datatype MPI_Type_toint: type_copy_attr type_copy, type_delete_attr type_delete,
        [mpi_type_null_copy_fn_] [mpi_type_dup_fn_] [mpi_type_null_delete_fn_];
    MPI_Win MPI_Win_toint: win_copy_attr win_copy, win_delete_attr win_delete,
        [mpi_win_null_copy_fn_] [mpi_win_dup_fn_] [mpi_win_null_delete_fn_];
}

// MPICH's mpi_f08 has procedures of its own.
#[cfg(mpich)]
attributes! {
    MPI_Comm MPI_Comm_toint: comm_copy_attr comm_copy, comm_delete_attr comm_delete,
        [mpi_comm_null_copy_fn_ __mpi_f08_callbacks_MOD_mpi_comm_null_copy_fn]
        [mpi_comm_dup_fn_ __mpi_f08_callbacks_MOD_mpi_comm_dup_fn]
        [mpi_comm_null_delete_fn_ __mpi_f08_callbacks_MOD_mpi_comm_null_delete_fn];
    MPI_Datatype MPI_Type_toint: type_copy_attr type_copy, type_delete_attr type_delete,
        [mpi_type_null_copy_fn_ __mpi_f08_callbacks_MOD_mpi_type_null_copy_fn]
        [mpi_type_dup_fn_ __mpi_f08_callbacks_MOD_mpi_type_dup_fn]
        [mpi_type_null_delete_fn_ __mpi_f08_callbacks_MOD_mpi_type_null_delete_fn];
    MPI_Win MPI_Win_toint: win_copy_attr win_copy, win_delete_attr win_delete,
        [mpi_win_null_copy_fn_ __mpi_f08_callbacks_MOD_mpi_win_null_copy_fn]
        [mpi_win_dup_fn_ __mpi_f08_callbacks_MOD_mpi_win_dup_fn]
        [mpi_win_null_delete_fn_ __mpi_f08_callbacks_MOD_mpi_win_null_delete_fn];
}

/// Calls a Fortran copy procedure through the closure `copy`, and stores the copied value at `into`. If the
/// procedure does not change the value, the value stays as it was: C's pointer or Fortran's integer.
///
/// # Safety
/// `into` and `flag` may be written.
unsafe fn copy_value(
    record: CallbackRecord,
    value: *mut c_void,
    into: *mut *mut c_void,
    flag: *mut c_int,
    copy: impl Fn(*const i64, *mut i64, *mut i32, *mut i32),
) -> c_int {
    let old = attribute::unpack(value);
    let (mut new, mut copied, mut code) = (0, 0, 0);
    copy(&old, &mut new, &mut copied, &mut code);
    if record.narrow {
        new = i64::from(new as i32);
    }
    let made = if new == old { value } else { attribute::store(new) };
    // SAFETY: the caller's promise.
    unsafe { into.write(made) };
    // SAFETY: as above.
    unsafe { flag.write(logical::to_c(copied)) };
    code
}

type Query = unsafe extern "C" fn(*const i64, *mut c_int, *mut i32);
type Free = unsafe extern "C" fn(*const i64, *mut i32);
type Cancel = unsafe extern "C" fn(*const i64, *const i32, *mut i32);

/// Returns the C function that calls query procedures of generalized requests (MPI_GREQUEST_START).
pub fn grequest_query(_: usize) -> usize {
    query as *const () as usize
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut c_int) -> c_int {
    // SAFETY: the state is one of this file.
    let record = unsafe { recorded(state) };
    // SAFETY: the program registered it as a query procedure.
    let call = unsafe { transmute::<usize, Query>(record.procedures[0]) };
    let mut code = 0;
    // SAFETY: a status has one form in both languages.
    unsafe { call(&record.state, status, &mut code) };
    code
}

/// Returns the C function that calls free procedures of generalized requests (MPI_GREQUEST_START).
pub fn grequest_free(_: usize) -> usize {
    free as *const () as usize
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the state is one of this file.
    let record = unsafe { recorded(state) };
    // SAFETY: the program registered it as a free procedure.
    let call = unsafe { transmute::<usize, Free>(record.procedures[1]) };
    let mut code = 0;
    // SAFETY: the addresses of locals.
    unsafe { call(&record.state, &mut code) };
    code
}

/// Returns the C function that calls cancel procedures of generalized requests (MPI_GREQUEST_START).
pub fn grequest_cancel(_: usize) -> usize {
    cancel as *const () as usize
}

unsafe extern "C" fn cancel(state: *mut c_void, complete: c_int) -> c_int {
    // SAFETY: the state is one of this file.
    let record = unsafe { recorded(state) };
    // SAFETY: the program registered it as a cancel procedure.
    let call = unsafe { transmute::<usize, Cancel>(record.procedures[2]) };
    let mut code = 0;
    // SAFETY: the addresses of locals.
    unsafe { call(&record.state, &logical::from_c(complete), &mut code) };
    code
}

type Convert<Count> = unsafe extern "C" fn(
    *mut c_void,
    *const i32,
    *const Count,
    *mut c_void,
    *const i64,
    *const i64,
    *mut i32,
);
type Extent = unsafe extern "C" fn(*const i32, *mut i64, *const i64, *mut i32);

/// Defines the C functions that call conversion procedures of MPI_REGISTER_DATAREP. `$place` is the index of
/// the procedure in the `CallbackRecord`, `$count` the type of the procedure's count.
macro_rules! conversions {
    ($($kind:ident $function:ident $place:literal $count:ty, $null:ident;)*) => { $(
        /// Returns the C function that calls conversion procedures, or C's MPI_CONVERSION_FN_NULL if
        /// `procedure` is Fortran's MPI_CONVERSION_FN_NULL.
        pub fn $kind(procedure: usize) -> usize {
            #[cfg(mpich)]
            if procedure == __mpi_f08_callbacks_MOD_mpi_conversion_fn_null as *const () as usize {
                return 0;
            }
            if procedure == $null as *const () as usize { 0 } else { $function as *const () as usize }
        }
        unsafe extern "C" fn $function(
            user: *mut c_void,
            datatype: c::MPI_Datatype,
            count: $count,
            file: *mut c_void,
            position: i64,
            state: *mut c_void,
        ) -> c_int {
            // SAFETY: the state is one of this file.
            let record = unsafe { recorded(state) };
            // SAFETY: C hands its own handle.
            let number = unsafe { c::MPI_Type_toint(datatype) };
            // SAFETY: the program registered it as a conversion procedure.
            let call = unsafe { transmute::<usize, Convert<$count>>(record.procedures[$place]) };
            let mut code = 0;
            // SAFETY: C's buffers, and the addresses of locals.
            unsafe { call(user, &number, &count, file, &position, &record.state, &mut code) };
            code
        }
    )* };
}

conversions! {
    datarep_conversion read 0 c_int, mpi_conversion_fn_null_;
    datarep_conversion_write write 1 c_int, mpi_conversion_fn_null_;
    datarep_conversion_c read_c 0 i64, mpi_conversion_fn_null_c_;
    datarep_conversion_c_write write_c 1 i64, mpi_conversion_fn_null_c_;
}

/// Fortran's MPI_CONVERSION_FN_NULL, which a program passes if no conversion is needed. MPI never calls it.
#[unsafe(no_mangle)]
pub extern "C" fn mpi_conversion_fn_null_() {}

/// The constant MPI_CONVERSION_FN_NULL of MPICH's module `mpi_f08`, where it has this other symbol name. MPI
/// never calls it.
#[cfg(mpich)]
#[unsafe(no_mangle)]
#[allow(non_snake_case)] // As gfortran writes a procedure of a module.
pub extern "C" fn __mpi_f08_callbacks_MOD_mpi_conversion_fn_null() {}

/// Fortran's MPI_CONVERSION_FN_NULL_C, for conversions with large counts. MPI never calls it.
#[unsafe(no_mangle)]
pub extern "C" fn mpi_conversion_fn_null_c_() {}

/// Returns the C function that calls extent procedures of MPI_REGISTER_DATAREP.
pub fn datarep_extent(_: usize) -> usize {
    extent as *const () as usize
}

unsafe extern "C" fn extent(datatype: c::MPI_Datatype, bytes: *mut i64, state: *mut c_void) -> c_int {
    // SAFETY: the state is one of this file.
    let record = unsafe { recorded(state) };
    // SAFETY: C hands its own handle.
    let number = unsafe { c::MPI_Type_toint(datatype) };
    // SAFETY: the program registered it as an extent procedure.
    let call = unsafe { transmute::<usize, Extent>(record.procedures[2]) };
    let mut code = 0;
    // SAFETY: C's room for the extent, and the addresses of locals.
    unsafe { call(&number, bytes, &record.state, &mut code) };
    code
}

/// How many procedures of one kind a program may register, if callbacks of this kind (operators, error
/// handlers) get no state.
const SLOTS: usize = 64;

type Operator<Count> = unsafe extern "C" fn(*mut c_void, *mut c_void, *const Count, *const i32);
type ErrorProcedure = unsafe extern "C" fn(*mut i32, *mut c_int);

/// Defines `SLOTS` C functions for callbacks of one kind that get no state. Function number i calls the
/// Fortran procedure in element i of the array `$slots`.
macro_rules! slots {
    ($kind:ident $slots:ident $function:ident($($argument:ident: $type:ty),*) $body:block) => {
        static $slots: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

        unsafe extern "C" fn $function<const SLOT: usize>($($argument: $type),*) {
            let body = |$function: usize| $body;
            body($slots[SLOT].load(Ordering::Acquire))
        }

        /// Puts `procedure` into a free element of the array, and returns the C function that calls the
        /// procedure in this element. Returns null, which MPI refuses, if no element is free.
        pub fn $kind(procedure: usize) -> usize {
            table!($function)[..].get(slot(&$slots, procedure)).copied().unwrap_or(0)
        }
    };
}

macro_rules! table {
    ($function:ident) => {
        table!($function:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
            35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    ($function:ident: $($slot:literal)*) => {
        [$($function::<$slot> as *const () as usize),*]
    };
}

/// Returns the index of the element of `slots` that holds `procedure`, or of a free element, into which it
/// puts the procedure. Returns `SLOTS` if no element is free.
fn slot(slots: &[AtomicUsize; SLOTS], procedure: usize) -> usize {
    let takes = |slot: &AtomicUsize| {
        let held = slot.compare_exchange(0, procedure, Ordering::AcqRel, Ordering::Acquire);
        held.is_ok() || held == Err(procedure)
    };
    slots.iter().position(takes).unwrap_or(SLOTS)
}

macro_rules! operators {
    ($($kind:ident $slots:ident $function:ident $count:ty;)*) => { $(
        slots!($kind $slots $function(
            left: *mut c_void, right: *mut c_void, length: *mut $count, datatype: *mut c::MPI_Datatype
        ) {
            // SAFETY: C gives the address of a handle.
            let handle = unsafe { datatype.read() };
            // SAFETY: C hands its own handle.
            let number = unsafe { c::MPI_Type_toint(handle) };
            // SAFETY: the program registered it as an operator.
            let call = unsafe { transmute::<usize, Operator<$count>>($function) };
            // SAFETY: C's operands, and the addresses that the interface wants.
            unsafe { call(left, right, length, &number) };
        });
    )* };
}

operators! {
    user OPERATORS operate c_int;
    user_c LARGE_OPERATORS operate_largely i64;
}

macro_rules! errhandlers {
    ($($kind:ident $slots:ident $function:ident $handle:ident $toint:ident;)*) => { $(
        slots!($kind $slots $function(handle: *mut c::$handle, code: *mut c_int) {
            // SAFETY: C gives the address of a handle.
            let handle = unsafe { handle.read() };
            // SAFETY: C hands its own handle.
            let mut number = unsafe { c::$toint(handle) };
            // SAFETY: the program registered it as an error handler.
            let call = unsafe { transmute::<usize, ErrorProcedure>($function) };
            // SAFETY: the addresses that the interface wants.
            unsafe { call(&mut number, code) };
        });
    )* };
}

errhandlers! {
    comm_errhandler COMM_HANDLERS comm_fails MPI_Comm MPI_Comm_toint;
    win_errhandler WIN_HANDLERS win_fails MPI_Win MPI_Win_toint;
    file_errhandler FILE_HANDLERS file_fails MPI_File MPI_File_toint;
    session_errhandler SESSION_HANDLERS session_fails MPI_Session MPI_Session_toint;
}
