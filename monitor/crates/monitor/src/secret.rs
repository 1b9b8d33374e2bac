// SPDX-License-Identifier: BSD-3-Clause
//! Secrets: random texts that cannot be guessed.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Returns the secret in the file `path`, which only its owner can read. Makes the file if it is missing. A
/// file that cannot be read is not replaced, because all that was signed with the old secret would be
/// refused.
pub fn kept(path: &Path) -> Result<String, String> {
    let why = |error: std::io::Error| format!("{}: {error}", path.display());
    match std::fs::read_to_string(path) {
        Ok(secret) if secret.trim().len() == 32 => return Ok(secret.trim().into()),
        Ok(_) => {
            return Err(format!("{} holds no secret; without the file a new one is made", path.display()));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(why(error)),
    }
    let secret = random();
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(format!("{secret}\n").as_bytes())).map(|()| secret).map_err(why)
}

/// Returns a random number of 128 bits in hexadecimal.
pub fn random() -> String {
    let mut bytes = [0u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(16), "the kernel has random bytes");
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

/// Whether two secrets are equal. The time of the comparison does not depend on where they differ.
pub fn same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |sum, (one, other)| sum | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let secret = kept(&path).unwrap();
        assert_eq!(kept(&path), Ok(secret));
        std::fs::write(&path, "half").unwrap();
        assert!(kept(&path).unwrap_err().contains("holds no secret"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "half");
    }
}
