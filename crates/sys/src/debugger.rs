// SPDX-License-Identifier: BSD-3-Clause
//! The MPIR process acquisition interface: debuggers find a job's processes by these symbols in `mpirun`.

#![allow(non_upper_case_globals, non_snake_case)]

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// What debuggers read about one process of the job (MPIR_PROCDESC).
#[repr(C)]
pub struct Description {
    host_name: *mut c_char,
    executable_name: *mut c_char,
    pid: i32,
}

/// The processes of the job, in the order of their ranks.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_proctable: AtomicPtr<Description> = AtomicPtr::new(std::ptr::null_mut());
/// The number of processes in `MPIR_proctable`.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_proctable_size: AtomicI32 = AtomicI32::new(0);
/// A debugger sets this to 1 if it has started `mpirun` or attached to it.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_being_debugged: AtomicI32 = AtomicI32::new(0);
/// The state of the job: 1 once the processes have started, 2 while the job is being ended.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_debug_state: AtomicI32 = AtomicI32::new(0);
/// The presence of this symbol tells a debugger that it need not attach to all processes.
#[used]
#[unsafe(no_mangle)]
pub static MPIR_partial_attach_ok: AtomicI32 = AtomicI32::new(1);

/// The function at which debuggers set a breakpoint, to read the table when it is called.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn MPIR_Breakpoint() {
    std::hint::black_box(&MPIR_debug_state);
}

/// Publishes a job's processes (program, pid) on `host`, and calls `MPIR_Breakpoint`. An earlier table stays
/// in memory, since a debugger may be reading it.
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

/// Publishes that the job is being ended, and calls `MPIR_Breakpoint`.
pub fn show_end() {
    MPIR_debug_state.store(2, Ordering::SeqCst);
    MPIR_Breakpoint();
}
