// SPDX-License-Identifier: BSD-3-Clause
//! Computes a number that names this build of the library, from the sources of all crates that keep records
//! in the job's shared memory.
use std::path::{Path, PathBuf};

/// The crates whose records in shared memory all processes of a job must read in the same way.
const CRATES: [&str; 13] = [
    "abi",
    "boot",
    "coll",
    "objects",
    "datatype",
    "executor",
    "io",
    "p2p",
    "rma",
    "schedule",
    "telemetry",
    "transport",
    "tuning",
];

fn main() {
    let mut files = Vec::new();
    for crate_name in CRATES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src");
        println!("cargo::rerun-if-changed={}", folder.display());
        sources(&folder, &mut files);
    }
    files.sort();
    // The hash is FNV-1a, since names need not be secrets.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in &files {
        let text = std::fs::read(file).expect("a source that was just listed");
        hash = text.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
    println!("cargo::rustc-env=OUTBOARD_BUILD={hash}");
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a crate's folder").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, files),
            path => files.push(path),
        }
    }
}
