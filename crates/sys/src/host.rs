// SPDX-License-Identifier: BSD-3-Clause
//! This machine: its name, and numbers that nobody guesses.

use std::io::{Read, Result};

/// Its name; empty where the kernel does not tell.
pub fn name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// A number that nobody guesses.
pub fn secret() -> Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_line_end_and_numbers_that_differ() {
        assert!(!name().is_empty() && !name().contains('\n'));
        assert_ne!(secret().unwrap(), secret().unwrap());
    }
}
