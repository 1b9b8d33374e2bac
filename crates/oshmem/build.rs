// SPDX-License-Identifier: BSD-3-Clause
//! Sets the library's name at run time, and says that it needs libmpi_abi.so.1 from its own folder. As in the
//! script of the crate `fortran`, the linker gets an empty library of that name.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = std::env::var("TARGET").expect("cargo sets it").replace('-', "_");
    let mut stand_in = Command::new(std::env::var(format!("CC_{target}")).unwrap_or("cc".into()));
    stand_in.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"]).arg(folder.join("libneeded.so"));
    let made = stand_in.arg("-Wl,-soname,libmpi_abi.so.1").status();
    assert!(made.is_ok_and(|status| status.success()), "the C compiler cannot make a shared library");
    for argument in ["-soname,liboshmem.so.1", "--no-as-needed", "-rpath,$ORIGIN", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-lneeded");
    println!("cargo::rustc-check-cfg=cfg(mpich)");
    println!("cargo::rerun-if-changed=build.rs");
}
