// SPDX-License-Identifier: BSD-3-Clause
//! What is seen of OpenSHMEM: calls and counters, which `liboshmem.so` and the MPI library tell each other by
//! number. Both compile this file, so the numbers are the same.

/// An enum and the list of its values, in order.
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
    /// Calls that are seen.
    Call: Put Get Atomic WaitUntil SetLock ClearLock
}

numbered! {
    /// What is counted.
    Counted: Puts Gets Atomics Waits Bytes WaitNs
}
