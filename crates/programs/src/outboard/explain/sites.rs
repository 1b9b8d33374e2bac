// SPDX-License-Identifier: BSD-3-Clause
//! Finds the names of call sites: the function, and with debug information the file and line. The crates
//! `addr2line` and `object` read DWARF and ELF, formats too large to read by code of our own.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;

use addr2line::Loader;
use object::{Object, ObjectSegment, ReadCache};

/// A place at which a program called MPI, with its function's name and what debug information says of it.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The file with the code, and the offset in that file, as the trace has it: `file+0xOFFSET`.
    place: String,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_string();
        let place = match (&self.file, self.line) {
            _ if self.place.is_empty() => return f.write_str("somewhere"),
            (Some(file), Some(line)) => format!("{}:{line}", base(file)),
            _ => base(&self.place),
        };
        match &self.function {
            Some(function) => write!(f, "{function} ({place})"),
            None => f.write_str(&place),
        }
    }
}

/// The files with code that have been read so far, by path. None for a file that cannot be read.
#[derive(Default)]
pub struct Sites(HashMap<String, Option<Code>>);

struct Code {
    /// Each part of the file that is loaded into memory: its offset in the file, its length in bytes, and its
    /// address as linked.
    segments: Vec<(u64, u64, u64)>,
    loader: Loader,
}

impl Sites {
    /// Returns the function, file and line of the place `file+0xOFFSET`, as far as this host can find them.
    pub fn find(&mut self, place: &str) -> Site {
        let mut site = Site { place: place.to_string(), ..Site::default() };
        let split = place.rsplit_once("+0x");
        let parsed = split.and_then(|(file, offset)| Some((file, u64::from_str_radix(offset, 16).ok()?)));
        let Some((file, offset)) = parsed else { return site };
        let code = self.0.entry(file.to_string()).or_insert_with(|| Code::read(file));
        if let Some(code) = code
            && let Some(address) = code.address(offset)
        {
            code.name(address, &mut site);
        }
        site
    }
}

impl Code {
    fn read(path: &str) -> Option<Code> {
        // A trace may name any file; opening a pipe would block.
        std::fs::metadata(path).ok().filter(|it| it.is_file())?;
        let data = ReadCache::new(File::open(path).ok()?);
        let object = object::File::parse(&data).ok()?;
        let segments = object.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            (offset, bytes, segment.address())
        });
        Some(Code { segments: segments.collect(), loader: Loader::new(path).ok()? })
    }

    /// Returns the address, as linked, of the call instruction that returns to this offset in the file. None
    /// if the offset is in no loaded part.
    fn address(&self, offset: u64) -> Option<u64> {
        let offset = offset.checked_sub(1)?;
        let found = self.segments.iter().find(|(from, bytes, _)| (*from..from + bytes).contains(&offset));
        found.map(|(from, _, address)| address + (offset - from))
    }

    fn name(&self, address: u64, site: &mut Site) {
        if let Ok(mut frames) = self.loader.find_frames(address)
            && let Ok(Some(frame)) = frames.next()
        {
            let function = frame.function.as_ref();
            site.function = function.and_then(|name| Some(name.demangle().ok()?.into_owned()));
            if let Some(location) = frame.location {
                (site.file, site.line) = (location.file.map(String::from), location.line);
            }
        }
        if site.function.is_none() {
            let symbol = self.loader.find_symbol(address);
            site.function = symbol.map(|name| addr2line::demangle_auto(name.into(), None).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_this_program_has_a_name_and_what_is_nowhere_stays_as_it_is() {
        let path = std::env::current_exe().unwrap();
        let path = path.to_str().unwrap();
        let code = Code::read(path).unwrap();
        let symbols = std::fs::read(path).unwrap();
        let object = object::File::parse(&*symbols).unwrap();
        use object::ObjectSymbol;
        let this =
            object.symbols().find(|symbol| symbol.name().is_ok_and(|name| name.contains("5Sites4find")));
        let start = this.unwrap().address();
        let (offset, _, address) =
            *code.segments.iter().find(|(_, bytes, at)| (*at..at + bytes).contains(&start)).unwrap();
        let site = Sites::default().find(&format!("{path}+{:#x}", start - address + offset + 1));
        assert!(site.function.as_ref().unwrap().contains("find"), "{site}");

        let nowhere = Sites::default().find("/nowhere/program+0x123");
        assert_eq!(nowhere.to_string(), "program+0x123");
        assert_eq!(Sites::default().find("").to_string(), "somewhere");
    }
}
