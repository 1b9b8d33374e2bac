// SPDX-License-Identifier: BSD-3-Clause
//! Call sites: the places where the program calls MPI. A site is a file of machine code and an offset in it,
//! which does not depend on the address at which the file is loaded. Used only while tracing. The stack is
//! unwound up to the first frame outside MPI's libraries.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use crate::event;
use crate::record::Event;

/// The most stack frames that are unwound from an MPI function to find the program's frame.
const FRAMES_MAX: usize = 48;

#[derive(Default)]
struct Sites {
    /// The addresses at which the code of this MPI library lies.
    own: Range<usize>,
    /// The number of the call site for each return address. None for an address in an MPI library, such as
    /// the Fortran one.
    numbers: HashMap<usize, Option<u32>>,
    count: u32,
}

static SITES: Mutex<Option<Sites>> = Mutex::new(None);

/// Finds the place from which the program called the present MPI function. Returns the number of the place,
/// or 0 if it is not known.
#[cold]
pub(crate) fn caller() -> u32 {
    let mut sites = SITES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sites = sites.get_or_insert_with(|| {
        let own = place(caller as fn() -> u32 as usize).map_or(0..0, |place| place.range);
        Sites { own, ..Sites::default() }
    });
    let (mut number, mut frames) = (0, 0);
    backtrace::trace(|frame| {
        frames += 1;
        number = sites.number(frame.ip() as usize).unwrap_or(0);
        number == 0 && frames < FRAMES_MAX
    });
    number
}

impl Sites {
    fn number(&mut self, address: usize) -> Option<u32> {
        if self.own.contains(&address) {
            return None;
        }
        let Sites { numbers, count, .. } = self;
        *numbers.entry(address).or_insert_with(|| {
            let place = place(address)?;
            let name = Path::new(&place.file).file_name()?.to_string_lossy();
            if name.starts_with("libmpi") || name.starts_with("liboshmem") {
                return None;
            }
            *count += 1;
            let text = format!("{}+{:#x}", place.file, place.offset);
            event::record_text(&text, |text| Event::Site { number: *count, text });
            Some(*count)
        })
    }
}

/// A place in a file of machine code (the program or a library), as the file and the offset in it.
struct CodePlace {
    file: String,
    offset: usize,
    /// The addresses at which a mapped part of this file of machine code lies in memory.
    range: Range<usize>,
}

/// Finds the file that is mapped at an address, and the offset there (proc(5), /proc/PID/maps). Returns None
/// if no file is mapped there.
fn place(address: usize) -> Option<CodePlace> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let range = hex(from)?..hex(to)?;
        let at = words.nth(1).and_then(hex)?;
        let file = line.find('/').filter(|_| range.contains(&address)).map(|at| line[at..].to_string())?;
        Some(CodePlace { file, offset: address - range.start + at, range })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_file_and_an_offset() {
        let address = an_address_is_a_file_and_an_offset as fn() as usize;
        let found = place(address).unwrap();
        assert_eq!(Path::new(&found.file), std::env::current_exe().unwrap());
        assert!(found.range.contains(&address));
        assert!(place(8).is_none());
    }
}
