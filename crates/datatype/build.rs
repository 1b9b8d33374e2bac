// SPDX-License-Identifier: BSD-3-Clause
//! Compiles what stable Rust cannot say: arithmetic on `long double`.
fn main() {
    println!("cargo::rerun-if-changed=src/long_double.c");
    cc::Build::new()
        .file("src/long_double.c")
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .compile("outboard_long_double");
}
