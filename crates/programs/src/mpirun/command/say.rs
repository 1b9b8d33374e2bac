// SPDX-License-Identifier: BSD-3-Clause
//! How `mpirun` prints a line of its own, and how it says why it refuses a command.

use std::io::Write;

/// Prints a sentence from `mpirun` as a line of standard error. The line is one write, because another thread
/// writes the ranks' lines to the same stream.
pub fn say(sentence: &str) {
    // A closed stream cannot be helped.
    let _ = std::io::stderr().write_all(format!("mpirun: {sentence}\n").as_bytes());
}

/// Why `mpirun` refuses a command or cannot start a program, with the exit code to return.
#[derive(Debug)]
pub struct Refusal {
    /// The exit code: 127 if the program was not found, 126 if it is not executable, 1 for any other reason.
    pub code: u8,
    /// The reason as a sentence for the user.
    pub message: String,
}

impl Refusal {
    /// Returns a refusal with this message and exit code 1.
    pub fn other(message: impl Into<String>) -> Refusal {
        Refusal { code: 1, message: message.into() }
    }
}
