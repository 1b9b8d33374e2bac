// SPDX-License-Identifier: BSD-3-Clause
//! The name of this host, and random numbers from its kernel.

use std::io::{Read, Result};

/// Returns the name of this host. Empty if the kernel does not tell it.
pub fn name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns a random number that no other program can guess.
pub fn random_number() -> Result<u64> {
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
        assert_ne!(random_number().unwrap(), random_number().unwrap());
    }
}
