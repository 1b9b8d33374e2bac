// SPDX-License-Identifier: BSD-3-Clause
//! Calls functions of the program: operators, error handlers, callbacks of attributes and generalized
//! requests.
//!
//! Invariants: during such a call the lock is free and nothing is borrowed. All numbers that go in and out
//! are those of the program's ABI. A handle is passed as a value as wide as a pointer, or by a pointer to
//! such a value; narrower handles fit into it, too (`shim.rs`).
//!
//! The program guarantees (MPI 5.0, sections 6.9.5, 7.7, 9.3 and 13.2): each function that it passes to the
//! library has the type that the standard demands, and may be called until the object with this function is
//! freed and no longer used.

use crate::args::{Out, Status};
use crate::process::Guard;
use crate::request::{Generalized, UserOp};
use crate::shim;
use executor::UserCall;
use objects::{Attribute, AttributeValue, Handle, HandleKind};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use sys::Span;

type Reducer = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut usize);
type LargeReducer = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut usize);
type CopyAttribute =
    unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type DeleteAttribute = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;
/// A function of a language's binding through which the library calls a keyval's copy callback. Gets the
/// address of the callback as an argument.
type CopyWrapper = unsafe extern "C" fn(
    usize,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
    *mut c_int,
) -> c_int;
type DeleteWrapper = unsafe extern "C" fn(usize, c_int, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
type QueryRequest = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// The Fortran form of `QueryRequest`. It stores its error code at the address that is its last argument.
type QueryFortran = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int);
type FreeFortran = unsafe extern "C" fn(*mut c_void, *mut c_int);
type CancelFortran = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int);
type FreeRequest = unsafe extern "C" fn(*mut c_void) -> c_int;
type CancelRequest = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type FileExtent = unsafe extern "C" fn(usize, *mut isize, *mut c_void) -> c_int;
type Convert = unsafe extern "C" fn(*mut c_void, usize, c_int, *mut c_void, i64, *mut c_void) -> c_int;
type LargeConvert = unsafe extern "C" fn(*mut c_void, usize, i64, *mut c_void, i64, *mut c_void) -> c_int;
type ErrorFunction = unsafe extern "C" fn(*mut usize, *mut c_int, ...);

/// Computes `into[i] = left[i] op into[i]` for `elements` elements, by a call of the program's operator `op`.
pub fn apply(guard: &mut Guard, op: &UserOp, left: usize, into: usize, elements: u64) {
    // The program may have freed the datatype since the call started, and may have reused its handle (MPI
    // 5.0, section 5.1.9).
    let objects = &mut guard.objects;
    let lives = objects.datatype(op.handle).is_ok_and(|found| Arc::ptr_eq(found, &op.datatype));
    let made = if lives { None } else { objects.enter_datatype(op.datatype.clone()).ok() };
    let datatype = (shim::get().handle)(made.unwrap_or(op.handle));
    guard.unlocked(|| {
        if op.large {
            // SAFETY: the program registered it as an MPI_User_function_c (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, LargeReducer>(op.function) };
            let (mut count, mut datatype) = (elements as i64, datatype);
            // SAFETY: both buffers hold `elements` elements (the caller's promise); the others are ours.
            unsafe { function(left as *mut c_void, into as *mut c_void, &mut count, &mut datatype) };
            return;
        }
        // SAFETY: the program registered it as an MPI_User_function (contract of this file).
        let function = unsafe { std::mem::transmute::<usize, Reducer>(op.function) };
        let mut done = 0;
        // An int may be too narrow for the count.
        while done < elements {
            let part = (elements - done).min(i32::MAX as u64);
            let (mut count, mut datatype) = (part as c_int, datatype);
            let by = (done as i64).wrapping_mul(op.extent) as usize;
            let (left, into) = (left.wrapping_add(by), into.wrapping_add(by));
            // SAFETY: as above.
            unsafe { function(left as *mut c_void, into as *mut c_void, &mut count, &mut datatype) };
            done += part;
        }
    });
    if let Some(made) = made {
        // The program may have freed this handle, too.
        let _ = guard.objects.datatypes.remove(made);
    }
}

/// Calls the program's operator for a step of a collective, and reports the end of the call to `coll`.
pub fn reduce(guard: &mut Guard, due: UserCall) {
    let mut done = 0;
    // A single block may be the whole output, which is not divided by the counts.
    let several = due.blocks.end - due.blocks.start > 1;
    for block in due.blocks.clone() {
        let operator = guard.job().operators.get(due.token as usize);
        let operator = operator.expect("an operator stays entered while a schedule uses it");
        let (bytes, origin, elements) = operator.vector(several.then_some(block), due.into.bytes() - done);
        let at = |span: Span| (span.address() + done).wrapping_add_signed(origin as isize);
        let op = operator.op.clone();
        if elements > 0 {
            apply(guard, &op, at(due.left), at(due.into), elements as u64);
        }
        done += bytes;
        if done == due.into.bytes() {
            break;
        }
    }
    guard.job().coll.called(due);
}

/// Calls the program's error handler `function` for an object. Returns the error code, which it may have
/// changed.
pub fn errhandler(guard: &mut Guard, function: usize, object: Handle, code: c_int) -> c_int {
    guard.unlocked(|| {
        // SAFETY: the program registered it as an errhandler function, which is variadic in C (contract of
        // this file).
        let function = unsafe { std::mem::transmute::<usize, ErrorFunction>(function) };
        let shim = shim::get();
        let (mut object, mut code) = ((shim.handle)(object), (shim.code)(code));
        // SAFETY: both pointers are to our own variables; no further arguments are promised.
        unsafe { function(&mut object, &mut code) };
        (shim.code_from)(code)
    })
}

/// Calls the copy callback of an attribute (MPI 5.0, section 7.7.2). Returns the copy's value, or None if the
/// attribute is not to be copied. The error is the code that the callback returns.
pub fn copy_attribute(
    guard: &mut Guard,
    object: Handle,
    attribute: &Attribute,
) -> Result<Option<AttributeValue>, c_int> {
    let (keyval, number, value) = (&attribute.keyval, attribute.number, &attribute.value);
    match keyval.copy {
        // MPI_COMM_NULL_COPY_FN and MPI_COMM_DUP_FN; datatypes and windows have the same numbers.
        0 => return Ok(None),
        1 => return Ok(Some(value.clone())),
        _ => {}
    }
    if let Some((wrapper, _)) = keyval.wrappers {
        return guard.unlocked(|| {
            // SAFETY: the binding registered it as its wrapper for copies (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, CopyWrapper>(wrapper) };
            let (mut out, mut flag) = (std::ptr::null_mut(), 0);
            let shim = shim::get();
            let (object, number) = ((shim.handle)(object) as c_int, (shim.keyval)(number));
            let (extra, bits) = (keyval.extra_state as *mut c_void, value.integer() as *mut c_void);
            // SAFETY: `out` and `flag` are our own variables; the others are the program's own values.
            let code = unsafe {
                function(keyval.copy, object, number, extra, language(value), bits, &mut out, &mut flag)
            };
            if code != 0 {
                Err((shim.code_from)(code))
            } else {
                Ok((flag != 0).then(|| value.with(out as i64)))
            }
        });
    }
    let value = value.pointer();
    guard.unlocked(|| {
        // SAFETY: the program registered it as a copy function; the types for all kinds of objects are alike
        // (contract of this file).
        let function = unsafe { std::mem::transmute::<usize, CopyAttribute>(keyval.copy) };
        let (mut out, mut flag) = (0usize, 0);
        let extra = keyval.extra_state as *mut c_void;
        let to = &raw mut out as *mut c_void;
        let shim = shim::get();
        let (object, number) = ((shim.handle)(object), (shim.keyval)(number));
        // SAFETY: `to` and `flag` are our own variables; the others are the program's own values.
        let code = unsafe { function(object, number, extra, value as *mut c_void, to, &mut flag) };
        if code != 0 {
            Err((shim.code_from)(code))
        } else {
            Ok((flag != 0).then_some(AttributeValue::Pointer(out)))
        }
    })
}

/// Returns the number by which MPICH's bindings name the language in which an attribute's value was set.
fn language(value: &AttributeValue) -> c_int {
    match value {
        AttributeValue::Pointer(_) => 0,
        AttributeValue::Address(_) => 1,
        AttributeValue::Integer(_) => 3,
    }
}

/// Calls the delete callback of an attribute. Returns the callback's code.
pub fn delete_attribute(guard: &mut Guard, object: Handle, attribute: &Attribute) -> c_int {
    let keyval = &attribute.keyval;
    debug_assert!(matches!(keyval.on, HandleKind::Comm | HandleKind::Datatype | HandleKind::Win));
    // MPI_COMM_NULL_DELETE_FN is 0; the number 1 is no function either.
    if keyval.delete <= 1 {
        return 0;
    }
    if let Some((_, wrapper)) = keyval.wrappers {
        return guard.unlocked(|| {
            // SAFETY: the binding registered it as its wrapper for deletions (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, DeleteWrapper>(wrapper) };
            let shim = shim::get();
            let (object, number) = ((shim.handle)(object) as c_int, (shim.keyval)(attribute.number));
            let (kind, bits) = (language(&attribute.value), attribute.value.integer() as *mut c_void);
            // SAFETY: all arguments are the program's own values.
            let code = unsafe {
                function(keyval.delete, object, number, kind, bits, keyval.extra_state as *mut c_void)
            };
            (shim.code_from)(code)
        });
    }
    let (number, value) = (attribute.number, attribute.value.pointer() as *mut c_void);
    guard.unlocked(|| {
        // SAFETY: the program registered it as a delete function (contract of this file).
        let function = unsafe { std::mem::transmute::<usize, DeleteAttribute>(keyval.delete) };
        let shim = shim::get();
        let (object, number) = ((shim.handle)(object), (shim.keyval)(number));
        // SAFETY: all arguments are the program's own values.
        let code = unsafe { function(object, number, value, keyval.extra_state as *mut c_void) };
        (shim.code_from)(code)
    })
}

/// Calls the query function of a generalized request, which fills in `status`. Returns the function's code.
pub fn query_request(guard: &mut Guard, functions: Generalized, status: &mut Status) -> c_int {
    guard.unlocked(|| {
        // This variable is as large as the status of any shim.
        let mut memory = *status;
        let to = &raw mut memory;
        let status_out = match shim::get().status {
            Some(form) => Out::in_form(to as usize, "status", form),
            None => Out::new(to as usize, "status"),
        };
        status_out.set(*status).expect("not null");
        let extra = functions.extra_state as *mut c_void;
        let mut code = 0;
        if functions.is_fortran {
            // SAFETY: the program registered it as a query function of Fortran (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, QueryFortran>(functions.query) };
            // SAFETY: the status and the code are our own variables, the other is the program's own value.
            unsafe { function(extra, to.cast(), &mut code) };
        } else {
            // SAFETY: the program registered it as a query function (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, QueryRequest>(functions.query) };
            // SAFETY: as above.
            code = unsafe { function(extra, to.cast()) };
        }
        *status = status_out.get().expect("not null");
        (shim::get().code_from)(code)
    })
}

/// Calls the free function of a generalized request. Returns the function's code.
pub fn free_request(guard: &mut Guard, functions: Generalized) -> c_int {
    guard.unlocked(|| {
        let extra = functions.extra_state as *mut c_void;
        let mut code = 0;
        if functions.is_fortran {
            // SAFETY: the program registered it as a free function of Fortran (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, FreeFortran>(functions.free) };
            // SAFETY: the code is our own variable, the other the program's own value.
            unsafe { function(extra, &mut code) };
        } else {
            // SAFETY: the program registered it as a free function (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, FreeRequest>(functions.free) };
            // SAFETY: as above.
            code = unsafe { function(extra) };
        }
        (shim::get().code_from)(code)
    })
}

/// Calls the cancel function of a generalized request. Returns the function's code.
pub fn cancel_request(guard: &mut Guard, functions: Generalized, complete: bool) -> c_int {
    guard.unlocked(|| {
        let extra = functions.extra_state as *mut c_void;
        let (mut code, mut complete) = (0, c_int::from(complete));
        if functions.is_fortran {
            // SAFETY: the program registered it as a cancel function of Fortran (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, CancelFortran>(functions.cancel) };
            // SAFETY: the code and the logical are our own variables, the other is the program's own value.
            unsafe { function(extra, &mut complete, &mut code) };
        } else {
            // SAFETY: the program registered it as a cancel function (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, CancelRequest>(functions.cancel) };
            // SAFETY: as above.
            code = unsafe { function(extra, complete) };
        }
        (shim::get().code_from)(code)
    })
}

/// Calls the program's function that returns how many bytes a basic type has in the data representation
/// `representation` of files. The error is the code that the function returns.
pub fn file_extent(
    guard: &mut Guard,
    user: &io::UserRepresentation,
    datatype: Handle,
) -> Result<isize, c_int> {
    guard.unlocked(|| {
        // SAFETY: the program registered it as an extent function (contract of this file).
        let function = unsafe { std::mem::transmute::<usize, FileExtent>(user.extent) };
        let mut extent = 0;
        // SAFETY: `extent` is our own variable, the others are the program's own values.
        let code =
            unsafe { function((shim::get().handle)(datatype), &mut extent, user.extra_state as *mut c_void) };
        if code == 0 { Ok(extent) } else { Err((shim::get().code_from)(code)) }
    })
}

/// Calls the program's function that converts `count` elements in the program's memory at `memory` from or to
/// the file's form at `file`. Returns the function's code.
pub fn convert(
    guard: &mut Guard,
    user: &io::UserRepresentation,
    function: usize,
    memory: usize,
    datatype: Handle,
    count: i64,
    file: usize,
) -> c_int {
    let extra_state = user.extra_state as *mut c_void;
    let (memory, file) = (memory as *mut c_void, file as *mut c_void);
    let datatype = (shim::get().handle)(datatype);
    let code = guard.unlocked(|| {
        if user.large {
            // SAFETY: the program registered it as a large conversion function (contract of this file).
            let function = unsafe { std::mem::transmute::<usize, LargeConvert>(function) };
            // SAFETY: both buffers hold `count` elements (the caller's promise); the others are the program's
            // own values.
            return unsafe { function(memory, datatype, count, file, 0, extra_state) };
        }
        // SAFETY: the program registered it as a conversion function (contract of this file).
        let function = unsafe { std::mem::transmute::<usize, Convert>(function) };
        // SAFETY: as above; the caller has seen that the count fits.
        unsafe { function(memory, datatype, count as c_int, file, 0, extra_state) }
    });
    (shim::get().code_from)(code)
}
