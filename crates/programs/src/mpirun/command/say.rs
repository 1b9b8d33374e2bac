// SPDX-License-Identifier: BSD-3-Clause
//! Lines that `mpirun` itself prints, and reasons why it refuses a command.

use std::io::Write;

/// Prints a line in one write, because another thread writes ranks' lines to the same stream.
pub fn say(sentence: &str) {
    // A closed stream cannot be helped.
    let _ = std::io::stderr().write_all(format!("mpirun: {sentence}\n").as_bytes());
}

/// Why a program could not be started, with the exit code that a shell would give.
#[derive(Debug)]
pub struct Refusal {
    /// 127: not found; 126: found, but not executable; 1: anything else.
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
