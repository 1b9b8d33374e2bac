// SPDX-License-Identifier: BSD-3-Clause
//! Sets the library's name at run time (soname). Makes the loader load the C library of the same ABI, from
//! the same folder, together with this library. All libraries that call MPI by its C functions have this
//! script.
//!
//! Cargo does not build one shared library before another. So the linker gets an empty library with the C
//! library's name, and the loader finds the C functions when the program starts.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let package = std::env::var("CARGO_PKG_NAME").expect("cargo sets it");
    let mpich = package.ends_with("-mpich");
    let name = match package.as_str() {
        "outboard-train-c" => "liboutboard_dl.so.1",
        "outboard-oshmem" => "liboshmem.so.1",
        _ if mpich => "libmpifort.so.12",
        _ => "libmpifort_abi.so.1",
    };
    let needed = if mpich { "libmpi.so.12" } else { "libmpi_abi.so.1" };
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    // The compiler of the target, if that is another machine: cargo-zigbuild sets the variable.
    let target = std::env::var("TARGET").expect("cargo sets it").replace('-', "_");
    let mut stand_in = Command::new(std::env::var(format!("CC_{target}")).unwrap_or("cc".into()));
    stand_in.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"]).arg(folder.join("libneeded.so"));
    let made = stand_in.arg(format!("-Wl,-soname,{needed}")).status();
    assert!(made.is_ok_and(|status| status.success()), "the C compiler cannot make a shared library");
    for argument in [&format!("-soname,{name}"), "--no-as-needed", "-rpath,$ORIGIN", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-lneeded");
    println!("cargo::rustc-check-cfg=cfg(mpich)");
    if mpich {
        println!("cargo::rustc-cfg=mpich");
    }
    println!("cargo::rerun-if-changed=../fortran/build.rs");
}
