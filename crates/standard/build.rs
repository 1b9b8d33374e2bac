// SPDX-License-Identifier: BSD-3-Clause
//! Sets the library's name at run time, and keeps it loaded: its threads' state and the job's memory outlive
//! a dlclose.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
