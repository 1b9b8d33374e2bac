// SPDX-License-Identifier: BSD-3-Clause
//! Compiles the C code for arithmetic on `long double`, for which stable Rust has no type.
fn main() {
    println!("cargo::rerun-if-changed=src/long_double.c");
    cc::Build::new()
        .file("src/long_double.c")
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .compile("outboard_long_double");
}
