// SPDX-License-Identifier: BSD-3-Clause
//! Put with signal, and signals: 64-bit words that atomic operations change.

use crate::memory::Update;
use crate::process::get;
use crate::seen::Call;
use crate::{amo, context, fault, memory, order, rma, wait};
use std::ffi::c_int;

/// Returns the kind of update that `sig_op` means, which is SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD.
fn kind(sig_op: c_int) -> Update {
    match sig_op {
        0 => Update::Set,
        1 => Update::Add,
        _ => fault::fail(&format!("sig_op is {sig_op}; it must be SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD")),
    }
}

/// Puts elements, then changes the signal at `signal_at`. No PE sees the new signal before the elements.
#[allow(clippy::too_many_arguments)]
pub fn put_signal<T>(
    ctx: usize,
    dest: usize,
    source: usize,
    elements: usize,
    signal_at: usize,
    signal: u64,
    sig_op: c_int,
    pe: c_int,
) {
    let process = get();
    let pe = context::pe(process, ctx, pe);
    let bytes = elements.saturating_mul(size_of::<T>());
    if bytes > 0 {
        process.seen.call(Call::Put, pe, bytes, || {
            if let Some(win) = rma::start_put(process, dest, source, bytes, pe) {
                fault::mpi!(MPI_Win_flush(pe, win));
            }
        });
    }
    amo::change(signal_at, 8, kind(sig_op), signal, pe);
}

pub fn add(ctx: usize, signal_at: usize, signal: u64, pe: c_int) {
    amo::add(ctx, signal_at, signal, pe);
}

pub fn set(ctx: usize, signal_at: usize, signal: u64, pe: c_int) {
    amo::set(ctx, signal_at, signal, pe);
}

pub fn fetch(signal_at: usize) -> u64 {
    let signal = memory::load(signal_at);
    order::acquire();
    signal
}

pub fn wait_until(signal_at: usize, cmp: c_int, value: u64) -> u64 {
    wait::first(signal_at, cmp, value)
}
