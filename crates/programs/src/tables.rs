// SPDX-License-Identifier: BSD-3-Clause
//! The tables of tuning: the folders that hold them, and the table of this machine. `mpirun` reads a table,
//! `outboard tune` writes it. The same folder has a file of facts that jobs have found (`tuning::Facts`),
//! which `mpirun` reads and writes.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use settings::{LargeProtocol, Settings};
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
    /// The file with the facts of earlier jobs that `tuning` includes. None if it includes no facts.
    pub facts: Option<PathBuf>,
    /// What is wrong with a table or a file of facts that was found in a folder and ignored. None if nothing
    /// is wrong.
    pub complaint: Option<String>,
}

/// Returns the folder into which `outboard tune` writes a table: for all users, or for this user. None if
/// this user has no cache folder.
pub fn folder(for_all: bool) -> Option<PathBuf> {
    if for_all { Some(SYSTEM.into()) } else { settings::cache_folder().map(|cache| cache.join("tuning")) }
}

/// Returns the tuning that the settings ask for. Fails if OUTBOARD_TUNING names a file that is no table.
pub fn find(settings: &Settings) -> Result<FoundTuning, String> {
    match settings.tuning.as_str() {
        "off" => Ok(FoundTuning::default()),
        "auto" => {
            let mut found = find_in(&[folder(false), folder(true)].map(Option::unwrap_or_default));
            if let Some(own) = folder(false).filter(|_| keeps_facts(settings)) {
                found.add_facts(&own);
            }
            Ok(found)
        }
        path => {
            let path = PathBuf::from(path);
            let table = read(&path).map_err(|sentence| format!("OUTBOARD_TUNING: {sentence}"))?;
            Ok(FoundTuning { tuning: table.tuning(), path: Some(path), ..FoundTuning::default() })
        }
    }
}

/// Returns the file in which jobs of this user keep facts about this machine. None if this user has no folder
/// for caches.
pub fn facts_path() -> Option<PathBuf> {
    folder(false).map(|folder| folder.join(Machine::this().facts_name()))
}

/// Whether a job with these settings starts with the facts that earlier jobs have found about long messages,
/// and stores those that it finds itself.
pub fn keeps_facts(settings: &Settings) -> bool {
    settings.tuning_facts && settings.tuning == "auto" && settings.large_protocol == LargeProtocol::Auto
}

impl FoundTuning {
    /// Adds the facts that a folder has about this machine, unless a table decides already.
    fn add_facts(&mut self, folder: &Path) {
        if self.tuning.knows_ways() || !folder.is_dir() {
            return;
        }
        let machine = Machine::this();
        let path = folder.join(machine.facts_name());
        match read(&path) {
            Ok(table) if table.machine == machine => {
                self.tuning.set_facts(&table.tuning());
                self.facts = Some(path);
            }
            Ok(_) => {}
            Err(sentence) if path.exists() => self.complaint = self.complaint.take().or(Some(sentence)),
            Err(_) => {}
        }
    }
}

/// Stores facts, which a job has found about long messages, in `folder` for the next job. `found` gets the
/// facts that are there, and returns the rows that replace them. If nothing has changed, writes nothing.
/// Replaces a file that is no table.
pub fn keep_facts(folder: &Path, found: impl Fn(&Tuning) -> Vec<(usize, u64)>) -> Result<(), String> {
    let machine = Machine::this();
    let path = folder.join(machine.facts_name());
    let (kept, is_table) = match read(&path) {
        Ok(table) if table.machine != machine => return Ok(()),
        Ok(table) => (table.tuning(), true),
        Err(_) => (Tuning::default(), !path.exists()),
    };
    let values = found(&kept);
    if is_table && values == kept.all_facts() {
        return Ok(());
    }
    write(&path, &TuningTable { machine, values })
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
            Ok(table) => {
                return FoundTuning { tuning: table.tuning(), path: Some(path), ..FoundTuning::default() };
            }
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

/// Writes a table of tuning into a file, which appears as a whole or not at all.
pub fn write(path: &Path, table: &TuningTable) -> Result<(), String> {
    // Hosts may share the folder.
    let aside = path.with_extension(format!("{}.{}", sys::host::name(), std::process::id()));
    let put = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&aside, table.text())?;
        fs::rename(&aside, path)
    };
    put().map_err(|error| {
        // The folder may not even exist.
        let _ = fs::remove_file(&aside);
        format!("cannot write {}: {error}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuning::{Distance, FLAT_BYTES_MAX, Fact, Load, Method, ValueSource, facts_row, read_row};

    fn found_at(path: &Path) -> Result<FoundTuning, String> {
        find(&Settings { tuning: path.display().to_string(), ..Settings::default() })
    }

    #[test]
    fn the_table_of_this_machine_is_found_and_no_other() {
        let folder = std::env::temp_dir().join(format!("outboard-tables-{}", std::process::id()));
        let folders = [folder.join("none"), folder.clone()];
        assert!(find_in(&folders).path.is_none());
        let table = TuningTable { machine: Machine::this(), values: vec![(FLAT_BYTES_MAX, 4096)] };
        let path = folder.join(table.machine.file_name());
        write(&path, &table).unwrap();
        let found = find_in(&folders);
        assert_eq!((found.path.as_deref(), found.complaint), (Some(&*path), None));
        assert_eq!(found.tuning.get(FLAT_BYTES_MAX), 4096);
        assert_eq!(values_in(&folder), table.values);
        assert_eq!(found_at(&path).unwrap().tuning.source(FLAT_BYTES_MAX), ValueSource::Table);
        // The right file name, but the table of another machine.
        let other =
            TuningTable { machine: Machine { kernel: "0.1".into(), ..table.machine.clone() }, ..table };
        fs::write(&path, other.text()).unwrap();
        assert!(find_in(&folders).path.is_none());
        // A broken table is ignored with a warning, and refused if a setting names it.
        fs::write(&path, "boom").unwrap();
        let found = find_in(&folders);
        assert!(found.path.is_none() && found.complaint.unwrap().contains("line 1"));
        assert!(found_at(&path).unwrap_err().starts_with("OUTBOARD_TUNING: the tuning table"));
        assert!(found_at(&folder).unwrap_err().contains("is no file"));
        assert!(found_at(Path::new("/nowhere/at/all")).unwrap_err().contains("cannot read"));
        fs::remove_dir_all(&folder).unwrap();
    }

    // Goal: facts are kept for the next job, a table comes before them, and whatever else lies at their place
    // does no harm.
    #[test]
    fn facts_are_kept_beside_tables() {
        let folder = std::env::temp_dir().join(format!("outboard-facts-{}/deep", std::process::id()));
        let row = facts_row(Distance::L3, Load::Many);
        let values = vec![(row, tuning::read_text(row, "cells, provisional: 1MiB-").unwrap())];
        let keep = || keep_facts(&folder, |_| values.clone());
        let found = |mut found: FoundTuning| {
            found.add_facts(&folder);
            found
        };
        assert!(found(FoundTuning::default()).facts.is_none());
        keep().unwrap();
        let first = found(FoundTuning::default());
        let path = first.facts.unwrap();
        let fact = first.tuning.facts(Distance::L3, Load::Many).get(6);
        assert_eq!(fact, Some(Fact { method: Method::Cells, is_confirmed: false }));
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(names.iter().eq([&path]), "nothing else is left");
        // What is the same is not written again.
        let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        let before = written(&path);
        keep().unwrap();
        assert_eq!(written(&path), before);
        // A table that has the ways wins.
        let mut table = FoundTuning::default();
        table.tuning.set(read_row(Distance::L3, Load::Alone), 0, ValueSource::Table);
        assert!(found(table).facts.is_none());
        // A file for another machine counts as none, and stays.
        let other = fs::read_to_string(&path).unwrap().replace("kernel = ", "kernel = x");
        fs::write(&path, &other).unwrap();
        let unknown = found(FoundTuning::default());
        assert!(unknown.facts.is_none() && unknown.complaint.is_none());
        keep_facts(&folder, |_| Vec::new()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
        // A broken file is ignored with one sentence, and replaced.
        fs::write(&path, [0xff; 99]).unwrap();
        let broken = found(FoundTuning::default());
        assert!(broken.facts.is_none() && broken.complaint.unwrap().contains("is no text"));
        keep().unwrap();
        assert!(found(FoundTuning::default()).facts.is_some());
        // Neither a folder at its place nor a file at the folder's place can be replaced.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(found(FoundTuning::default()).complaint.unwrap().contains("is no file"));
        assert!(keep().unwrap_err().contains("cannot write"));
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        assert!(keep().unwrap_err().contains("cannot write"));
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
