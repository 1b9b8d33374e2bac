// SPDX-License-Identifier: BSD-3-Clause
//! Finds the file of a program that the command line or MPI_Comm_spawn names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the path of the program `name`. Looks in the folders of the info key `path`; then, if `name` has a
/// slash, in `directory` (where the program starts) and in `stand` (the parent's folder). Else returns
/// `name`.
pub fn found(name: &OsString, path: Option<&str>, stand: &Path, directory: &Path) -> OsString {
    let is_program = |path: &PathBuf| path.is_file();
    let folders =
        path.into_iter().flat_map(|path| path.split([':', ' '])).filter(|folder| !folder.is_empty());
    if let Some(path) = folders.map(|folder| stand.join(folder).join(name)).find(is_program) {
        return path.into();
    }
    let has_folder = name.as_encoded_bytes().contains(&b'/');
    let near = [directory.join(name), stand.join(name)];
    match near.into_iter().find(|path| has_folder && is_program(path)) {
        Some(path) => path.into(),
        None => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_the_info_says() {
        let (bin, root) = (Path::new("/bin"), Path::new("/"));
        assert_eq!(found(&"sh".into(), Some("/nowhere:bin"), root, root), "/bin/sh");
        assert_eq!(found(&"./sh".into(), None, bin, root), "/bin/./sh");
        assert_eq!(found(&"sh".into(), None, bin, root), "sh");
    }
}
