//! Random words that nobody guesses.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The secret in a file that nobody else can read; the first time it is made.
pub fn kept(path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(secret) if secret.trim().len() == 32 => return Ok(secret.trim().into()),
        _ => {}
    }
    let secret = random();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(format!("{secret}\n").as_bytes()));
    written.map(|()| secret).map_err(|error| format!("{}: {error}", path.display()))
}

/// 128 bits in hexadecimal.
pub fn random() -> String {
    let mut bytes = [0u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(16), "the kernel has random bytes");
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub fn same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |sum, (one, other)| sum | (one ^ other)) == 0
}
