// SPDX-License-Identifier: BSD-3-Clause
//! What `mpirun` says for itself: its lines, and why it does not do what it was told.

use std::io::Write;

/// Prints a line of our own, in one piece, because ranks' lines go to the same place from another thread.
pub fn say(sentence: &str) {
    // Without anybody to read it there is nothing to do about it.
    let _ = std::io::stderr().write_all(format!("mpirun: {sentence}\n").as_bytes());
}

/// Why a program could not be started, with the exit code that a shell would give.
#[derive(Debug)]
pub struct Refusal {
    /// 127: not found; 126: found, but not to be executed; 1: anything else.
    pub code: u8,
    /// The sentence.
    pub message: String,
}

impl Refusal {
    /// A refusal with exit code 1.
    pub fn other(message: impl Into<String>) -> Refusal {
        Refusal { code: 1, message: message.into() }
    }
}
