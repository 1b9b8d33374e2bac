// SPDX-License-Identifier: BSD-3-Clause
//! The functions that pass a long double by value, a type that Rust lacks. Each one stores the value in
//! memory, and calls OpenSHMEM's function that takes the value's address (`pshmem_longdouble_put`, for one).
//! A profiling tool sees only the outer call (`shmem_longdouble_p`).

use crate::faces::*;

/// Exports a function under its OpenSHMEM name and its profiling name. The function consists of the machine
/// instructions `$instructions`, which call the Rust function `$calls`.
#[cfg(not(target_arch = "powerpc64"))]
macro_rules! exported {
    ($($name:ident $twin:ident: $calls:ident $instructions:tt;)*) => { $(
        exported! { one $name $calls $instructions }
        exported! { one $twin $calls $instructions }
    )* };
    (one $name:ident $calls:ident ($($line:literal),*)) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            std::arch::naked_asm!($($line,)* called = sym $calls)
        }
    };
}

// System V ABI: the value lies above the return address, a result on the stack of the x87.
#[cfg(target_arch = "x86_64")]
exported! {
    shmem_longdouble_p pshmem_longdouble_p: pshmem_longdouble_put(
        "mov ecx, esi", "lea rsi, [rsp + 8]", "mov edx, 1", "jmp {called}"
    );
    shmem_ctx_longdouble_p pshmem_ctx_longdouble_p: pshmem_ctx_longdouble_put(
        "mov r8d, edx", "lea rdx, [rsp + 8]", "mov ecx, 1", "jmp {called}"
    );
    shmem_longdouble_g pshmem_longdouble_g: pshmem_longdouble_get(
        "sub rsp, 24", "mov ecx, esi", "mov rsi, rdi", "mov rdi, rsp", "mov edx, 1", "call {called}",
        "fld tbyte ptr [rsp]", "add rsp, 24", "ret"
    );
    shmem_ctx_longdouble_g pshmem_ctx_longdouble_g: pshmem_ctx_longdouble_get(
        "sub rsp, 24", "mov r8d, edx", "mov rdx, rsi", "mov rsi, rsp", "mov ecx, 1", "call {called}",
        "fld tbyte ptr [rsp]", "add rsp, 24", "ret"
    );
}

// Value and result are in the vector register 0.
#[cfg(target_arch = "aarch64")]
exported! {
    shmem_longdouble_p pshmem_longdouble_p: pshmem_longdouble_put(
        "stp x29, x30, [sp, #-32]!", "str q0, [sp, #16]", "mov w3, w1", "mov x2, #1", "add x1, sp, #16",
        "bl {called}", "ldp x29, x30, [sp], #32", "ret"
    );
    shmem_ctx_longdouble_p pshmem_ctx_longdouble_p: pshmem_ctx_longdouble_put(
        "stp x29, x30, [sp, #-32]!", "str q0, [sp, #16]", "mov w4, w2", "mov x3, #1", "add x2, sp, #16",
        "bl {called}", "ldp x29, x30, [sp], #32", "ret"
    );
    shmem_longdouble_g pshmem_longdouble_g: pshmem_longdouble_get(
        "stp x29, x30, [sp, #-32]!", "mov w3, w1", "mov x2, #1", "mov x1, x0", "add x0, sp, #16",
        "bl {called}", "ldr q0, [sp, #16]", "ldp x29, x30, [sp], #32", "ret"
    );
    shmem_ctx_longdouble_g pshmem_ctx_longdouble_g: pshmem_ctx_longdouble_get(
        "stp x29, x30, [sp, #-32]!", "mov w4, w2", "mov x3, #1", "mov x2, x1", "add x1, sp, #16",
        "bl {called}", "ldr q0, [sp, #16]", "ldp x29, x30, [sp], #32", "ret"
    );
}

/// The pair of doubles of which a long double consists on powerpc64.
#[cfg(target_arch = "powerpc64")]
#[repr(C)]
pub struct Pair(f64, f64);

/// Exports a put and a get of one long double on powerpc64. There the pair of doubles is passed in two
/// registers, as two doubles are.
#[cfg(target_arch = "powerpc64")]
macro_rules! exported {
    ($($put:ident $get:ident: $put_calls:ident $get_calls:ident ($($ctx:ident)?);)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $put($($ctx: usize,)? dest: usize, high: f64, low: f64, pe: std::ffi::c_int) {
            let value = Pair(high, low);
            $put_calls($($ctx,)? dest, (&raw const value).expose_provenance(), 1, pe);
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $get($($ctx: usize,)? source: usize, pe: std::ffi::c_int) -> Pair {
            let mut value = Pair(0.0, 0.0);
            $get_calls($($ctx,)? (&raw mut value).expose_provenance(), source, 1, pe);
            value
        }
    )* };
}

#[cfg(target_arch = "powerpc64")]
exported! {
    shmem_longdouble_p shmem_longdouble_g: pshmem_longdouble_put pshmem_longdouble_get ();
    pshmem_longdouble_p pshmem_longdouble_g: pshmem_longdouble_put pshmem_longdouble_get ();
    shmem_ctx_longdouble_p shmem_ctx_longdouble_g:
        pshmem_ctx_longdouble_put pshmem_ctx_longdouble_get (ctx);
    pshmem_ctx_longdouble_p pshmem_ctx_longdouble_g:
        pshmem_ctx_longdouble_put pshmem_ctx_longdouble_get (ctx);
}
