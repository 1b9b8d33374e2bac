// SPDX-License-Identifier: BSD-3-Clause
//! Errors of the file system as MPI error classes (MPI 5.0, section 14.7).

use error::{Class, Error};
use std::path::Path;

/// Makes the MPI error for a system call that failed while `doing` something with the file `path`, such as
/// "read 8 bytes at offset 16 of".
pub fn failure(path: &Path, doing: &str, error: &std::io::Error) -> Error {
    let class = match error.raw_os_error().unwrap_or(0) {
        libc::ENOENT => Class::NoSuchFile,
        libc::EEXIST => Class::FileExists,
        libc::EACCES | libc::EPERM => Class::Access,
        libc::ENOSPC => Class::NoSpace,
        libc::EDQUOT => Class::Quota,
        libc::EROFS => Class::ReadOnly,
        libc::EBUSY | libc::ETXTBSY => Class::FileInUse,
        libc::ENAMETOOLONG | libc::EISDIR | libc::ENOTDIR | libc::ELOOP => Class::BadFile,
        libc::ENOMEM => Class::NoMem,
        _ => Class::Io,
    };
    let remedy = match error.raw_os_error() {
        Some(libc::EMFILE) => format!(
            "; this process may have {} open: raise `ulimit -n`",
            sys::limits::descriptors().unwrap_or(0)
        ),
        _ => String::new(),
    };
    Error::new(class, format!("cannot {doing} {}: {error}{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_the_file_and_the_reason() {
        let error = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let failed = failure(Path::new("/data/x"), "write 8 bytes at offset 16 of", &error);
        assert_eq!(failed.class, Class::NoSpace);
        let many = failure(Path::new("/data/x"), "open", &std::io::Error::from_raw_os_error(libc::EMFILE));
        assert!(many.message.ends_with("raise `ulimit -n`"), "{many}");
        assert!(
            failed.message.starts_with("cannot write 8 bytes at offset 16 of /data/x: No space left"),
            "{failed}"
        );
    }
}
