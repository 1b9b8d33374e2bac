// SPDX-License-Identifier: BSD-3-Clause
//! The C functions of MPIX streams (include/mpi-ext.h), which the standard does not have.
//!
//! The program guarantees that the arguments of each function are what MPI requires (MPI 5.0, section 2.5).
#![allow(non_snake_case, clippy::missing_safety_doc)]

use abi::args::{Handle, In, Out, Text};
use abi::process::{On, anytime, call};
use abi::stream;
use std::convert::{identity, identity as code};
use std::ffi::c_int;
use std::sync::Arc;

abi::stream_functions! {
    handle: Handle, from: identity, to: identity, out: Out::<Handle>::new, shim: crate::shim
}
