//! Sets the library's name at run time, and says that it needs `libmpi_abi.so.1` from its own folder.
//!
//! Cargo does not build one shared library before another, so the linker gets an empty library of that
//! name; the C functions are found when the program starts.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut stand_in = Command::new("cc");
    stand_in.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname,libmpi_abi.so.1", "-o"]);
    let made = stand_in.arg(folder.join("libmpi_abi.so")).status();
    assert!(made.is_ok_and(|status| status.success()), "cc cannot make a shared library");
    for argument in ["-soname,libmpifort_abi.so.1", "--no-as-needed", "-rpath,$ORIGIN", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-lmpi_abi");
    println!("cargo::rustc-check-cfg=cfg(mpich)");
    println!("cargo::rerun-if-changed=build.rs");
}
