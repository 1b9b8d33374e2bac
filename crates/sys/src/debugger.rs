// SPDX-License-Identifier: BSD-3-Clause
//! The MPIR process acquisition interface: a parallel debugger finds the processes of a job by these symbols,
//! which it looks for in `mpirun`.

#![allow(non_upper_case_globals, non_snake_case)]

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// What a debugger reads about one process of the job (MPIR_PROCDESC).
#[repr(C)]
pub struct Description {
    host_name: *mut c_char,
    executable_name: *mut c_char,
    pid: i32,
}

/// The address of the table of the job's processes, in the order of their ranks. Null before
/// `show_processes`.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_proctable: AtomicPtr<Description> = AtomicPtr::new(std::ptr::null_mut());
/// How many processes the table at `MPIR_proctable` has.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_proctable_size: AtomicI32 = AtomicI32::new(0);
/// 1 if a debugger has started `mpirun` or attached to it, else 0. The debugger sets it.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_being_debugged: AtomicI32 = AtomicI32::new(0);
/// The state of the job: 0 before the processes have started, 1 after that, 2 while the job is being ended.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_debug_state: AtomicI32 = AtomicI32::new(0);
/// A debugger that finds this symbol in `mpirun` knows that it need not attach to all processes.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_partial_attach_ok: AtomicI32 = AtomicI32::new(1);

/// Does nothing. Debuggers set a breakpoint here, and read the table of processes when the breakpoint is hit.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn MPIR_Breakpoint() {
    std::hint::black_box(&MPIR_debug_state);
}

/// Writes a job's processes on `host` (program and pid of each) into the table for debuggers, and calls
/// `MPIR_Breakpoint`. An earlier table stays in memory, because a debugger may be reading it.
pub fn show_processes(host: &str, processes: &[(String, i32)]) {
    let text = |text: &str| CString::new(text).unwrap_or_default().into_raw();
    let table: Vec<Description> = processes
        .iter()
        .map(|(program, pid)| Description {
            host_name: text(host),
            executable_name: text(program),
            pid: *pid,
        })
        .collect();
    MPIR_proctable_size.store(0, Ordering::SeqCst);
    MPIR_proctable.store(Box::leak(table.into_boxed_slice()).as_mut_ptr(), Ordering::SeqCst);
    MPIR_proctable_size.store(processes.len() as i32, Ordering::SeqCst);
    MPIR_debug_state.store(1, Ordering::SeqCst);
    MPIR_Breakpoint();
}

/// Tells debuggers that the job is being ended, and calls `MPIR_Breakpoint`.
pub fn show_end() {
    MPIR_debug_state.store(2, Ordering::SeqCst);
    MPIR_Breakpoint();
}
