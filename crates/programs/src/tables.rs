// SPDX-License-Identifier: BSD-3-Clause
//! The tables of tuning: the folders that hold them, and the table of this machine. `mpirun` reads a table,
//! `outboard tune` writes it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tuning::{Machine, Tuning, TuningTable};

/// The folder with the tables of tuning for all users of a machine.
const SYSTEM: &str = "/var/cache/outboard/tuning";
/// The most bytes that are read of a file that should be a table of tuning.
const BYTES_MAX: u64 = 1 << 20;

/// The tuning with which a job starts, and where its values come from.
#[derive(Debug, Default)]
pub struct FoundTuning {
    pub tuning: Tuning,
    /// The file with the table whose values are used. None if the values are the built-in ones.
    pub path: Option<PathBuf>,
    /// What is wrong with a table of tuning that was found in a folder and ignored. None if nothing is wrong.
    pub complaint: Option<String>,
}

/// Returns the folder into which `outboard tune` writes a table: for all users, or for this user. None if
/// this user has no cache folder.
pub fn folder(for_all: bool) -> Option<PathBuf> {
    if for_all { Some(SYSTEM.into()) } else { settings::cache_folder().map(|cache| cache.join("tuning")) }
}

/// Returns the tuning that a value of OUTBOARD_TUNING asks for: `off`, `auto` or a file. Fails if the file is
/// no table.
pub fn find(setting: &str) -> Result<FoundTuning, String> {
    match setting {
        "off" => Ok(FoundTuning::default()),
        "auto" => Ok(find_in(&[folder(false), folder(true)].map(Option::unwrap_or_default))),
        path => {
            let path = PathBuf::from(path);
            let table = read(&path).map_err(|sentence| format!("OUTBOARD_TUNING: {sentence}"))?;
            Ok(FoundTuning { tuning: table.tuning(), path: Some(path), complaint: None })
        }
    }
}

/// Returns the tuning from the first of these folders that has a table of this machine. If no folder has one,
/// returns the built-in values.
fn find_in(folders: &[PathBuf]) -> FoundTuning {
    // The machine's name is needed only if there are tables.
    let mut folders = folders.iter().filter(|folder| folder.is_dir()).peekable();
    if folders.peek().is_none() {
        return FoundTuning::default();
    }
    let machine = Machine::this();
    for path in folders.map(|folder| folder.join(machine.file_name())).filter(|path| path.exists()) {
        match read(&path) {
            // A table of another machine with the same file name does not count.
            Ok(table) if table.machine != machine => continue,
            Ok(table) => return FoundTuning { tuning: table.tuning(), path: Some(path), complaint: None },
            Err(sentence) => return FoundTuning { complaint: Some(sentence), ..FoundTuning::default() },
        }
    }
    FoundTuning::default()
}

fn read(path: &Path) -> Result<TuningTable, String> {
    let shown = path.display();
    // Reading from a pipe would block.
    let is_file = fs::metadata(path)
        .map_err(|error| format!("cannot read the tuning table {shown}: {error}"))?
        .is_file();
    if !is_file {
        return Err(format!("the tuning table {shown} is no file"));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    file.map_err(|error| format!("cannot read the tuning table {shown}: {error}"))?;
    TuningTable::parse(&bytes, &shown.to_string()).map_err(|error| error.message.clone())
}

/// Returns the rows and values of this machine's table in a folder. Empty if the folder has no such table.
pub fn values_in(folder: &Path) -> Vec<(usize, u64)> {
    let machine = Machine::this();
    let table = read(&folder.join(machine.file_name())).ok().filter(|table| table.machine == machine);
    table.map_or(Vec::new(), |table| table.values)
}

/// Writes a table of tuning into a folder, and returns the file's path. The file appears as a whole or not at
/// all.
pub fn write(folder: &Path, table: &TuningTable) -> Result<PathBuf, String> {
    let path = folder.join(table.machine.file_name());
    let aside = path.with_extension(format!("{}", std::process::id()));
    let put = || {
        fs::create_dir_all(folder)?;
        fs::write(&aside, table.text())?;
        fs::rename(&aside, &path)
    };
    put().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuning::{FLAT_BYTES_MAX, ValueSource};

    #[test]
    fn the_table_of_this_machine_is_found_and_no_other() {
        let folder = std::env::temp_dir().join(format!("outboard-tables-{}", std::process::id()));
        let folders = [folder.join("none"), folder.clone()];
        assert!(find_in(&folders).path.is_none());
        let table = TuningTable { machine: Machine::this(), values: vec![(FLAT_BYTES_MAX, 4096)] };
        let path = write(&folder, &table).unwrap();
        let found = find_in(&folders);
        assert_eq!((found.path.as_deref(), found.complaint), (Some(&*path), None));
        assert_eq!(found.tuning.get(FLAT_BYTES_MAX), 4096);
        assert_eq!(values_in(&folder), table.values);
        assert_eq!(
            find(&path.display().to_string()).unwrap().tuning.source(FLAT_BYTES_MAX),
            ValueSource::Table
        );
        // The right file name, but the table of another machine.
        let other =
            TuningTable { machine: Machine { kernel: "0.1".into(), ..table.machine.clone() }, ..table };
        fs::write(&path, other.text()).unwrap();
        assert!(find_in(&folders).path.is_none());
        // A broken table is ignored with a warning, and refused if a setting names it.
        fs::write(&path, "boom").unwrap();
        let found = find_in(&folders);
        assert!(found.path.is_none() && found.complaint.unwrap().contains("line 1"));
        assert!(
            find(&path.display().to_string()).unwrap_err().starts_with("OUTBOARD_TUNING: the tuning table")
        );
        assert!(find(&folder.display().to_string()).unwrap_err().contains("is no file"));
        assert!(find("/nowhere/at/all").unwrap_err().contains("cannot read"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
