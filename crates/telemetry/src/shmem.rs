// SPDX-License-Identifier: BSD-3-Clause
//! The numbers of OpenSHMEM's calls and counters, by which `liboshmem.so` and the MPI library refer to them.
//! Both compile this file, so the numbers are the same.

/// Defines an enum and `ALL`, the list of its values. The position of a value in `ALL` is the value's number.
macro_rules! numbered {
    ($(#[$text:meta])* $name:ident: $($value:ident)*) => {
        $(#[$text])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name { $($value),* }

        impl $name {
            pub const ALL: [$name; [$($name::$value),*].len()] = [$($name::$value),*];
        }
    };
}

numbered! {
    /// The kinds of OpenSHMEM calls that are timed and traced.
    Call: Put Get Atomic WaitUntil SetLock ClearLock
}

numbered! {
    /// The quantities that are counted for OpenSHMEM calls.
    Counted: Puts Gets Atomics Waits Bytes WaitNs
}
