// SPDX-License-Identifier: BSD-3-Clause
//! Sets the library's name at run time (soname), and makes a dlclose leave the library loaded: its threads
//! and the job's shared memory outlive the dlclose.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi.so.12");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
