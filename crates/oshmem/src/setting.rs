// SPDX-License-Identifier: BSD-3-Clause
//! The environment variables of OpenSHMEM (section on environment variables): SHMEM_*, and the older SMA_*.

use crate::fault::fail;
use std::ffi::c_int;

/// The length of the symmetric heap in bytes, unless SHMEM_SYMMETRIC_SIZE is set.
const HEAP_BYTES: u64 = 256 << 20;

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SHMEM_{name}")).or_else(|_| std::env::var(format!("SMA_{name}"))).ok()
}

/// Returns the length of the symmetric heap in bytes (SHMEM_SYMMETRIC_SIZE).
pub fn heap_bytes() -> u64 {
    let Some(text) = variable("SYMMETRIC_SIZE") else { return HEAP_BYTES };
    match bytes(&text) {
        Some(bytes) => bytes.next_multiple_of(4096),
        None => fail(&format!(
            "SHMEM_SYMMETRIC_SIZE={text} is not a size; it must be a positive number with k, m, g or t behind it, or \
             nothing (bytes): 3.1m"
        )),
    }
}

/// Parses a size like `20m` or `3.1m`. Returns the bytes, rounded up, or None if the text is no size.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = match text.chars().last()?.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 10),
        'm' => (&text[..text.len() - 1], 20),
        'g' => (&text[..text.len() - 1], 30),
        't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    if !number.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let product = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (product > 0.0 && product < (1_u64 << 47) as f64).then_some(product.ceil() as u64)
}

/// Prints, on PE 0, what the user wants to see at the start (SHMEM_VERSION, SHMEM_INFO).
pub fn print_wanted(me: c_int) {
    if me != 0 {
        return;
    }
    if variable("VERSION").is_some() {
        println!("Outboard {}, OpenSHMEM 1.6", env!("CARGO_PKG_VERSION"));
    }
    if variable("INFO").is_some() {
        println!(
            "SHMEM_SYMMETRIC_SIZE  bytes of the symmetric heap, also as 3.1m (k, m, g, t); now {}\n\
             SHMEM_VERSION         print the library's version at the start\n\
             SHMEM_INFO            print this text at the start\n\
             SHMEM_DEBUG           check what collectives of the heap are called with\n\
             The same with SMA_ for SHMEM_ (deprecated).",
            heap_bytes()
        );
    }
}

/// Whether PEs check that they call collectives of the heap with the same values (SHMEM_DEBUG).
pub fn is_debugging() -> bool {
    variable("DEBUG").is_some()
}
