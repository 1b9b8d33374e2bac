// SPDX-License-Identifier: BSD-3-Clause
//! The translation between the MPICH ABI and the standard ABI, whose numbers the library uses. `x_from`
//! translates from the program to the library, `x_to` back; a `ShimForm` does both for the program's memory.
//!
//! MPICH's handles are ints, except files, which are pointers. A table translates predefined ones. Ours,
//! 0x0800_0000 to 0x67ff_ffff, move to 0xa000_0000 and above, where MPICH predefines nothing. Any other
//! number becomes one that is no handle of ours, and back.

use crate::numbers::{self, HANDLES, SPREAD};
use abi::args::{Handle, Status};
use abi::shim::Shim;

/// Our MPI_FILE_NULL, which in MPICH is a null pointer.
const FILE_NULL: usize = 280;
/// Our MPI_MESSAGE_NULL, which in MPICH has the number of MPI_REQUEST_NULL.
const MESSAGE_NULL: usize = 296;
/// Our MPI_REQUEST_NULL.
const REQUEST_NULL: usize = 384;
/// The upper bits of a dynamic handle that is a file (`objects::HandleKind::File`).
const FILE_KIND: usize = 10;
const KIND_SHIFT: u32 = 27;

/// The first of our dynamic handles, of objects that the program makes.
const DYNAMIC: u32 = 1 << KIND_SHIFT;
/// The number that is added to our dynamic handles in programs.
const MOVED: u32 = 0x9800_0000;
/// A bit that no handle of ours has; it marks a number from the program that is no handle of MPICH.
const UNKNOWN: usize = 1 << 32;

/// MPICH's predefined handles, by our number. 0 where we have no handle, since in MPICH only a file's handle
/// is 0.
static TO: [i32; 1024] = {
    let mut table = [0; 1024];
    let mut at = 0;
    while at < HANDLES.len() {
        table[HANDLES[at].0 as usize] = HANDLES[at].1;
        at += 1;
    }
    table
};

/// The predefined handles, MPICH's and ours, by `place` of MPICH's number.
static FROM: [(i32, u16); 1024] = {
    let mut table = [(0, 0); 1024];
    let mut at = 0;
    while at < HANDLES.len() {
        let (ours, theirs) = HANDLES[at];
        if ours as usize != MESSAGE_NULL {
            assert!(table[place(theirs)].0 == 0, "two handles have one place; generate numbers.rs anew");
            table[place(theirs)] = (theirs, ours);
        }
        at += 1;
    }
    table
};

const fn place(theirs: i32) -> usize {
    ((theirs as u32).wrapping_mul(SPREAD) >> 22) as usize
}

/// Translates a program's handle of any kind but a file or a message to ours.
#[inline]
pub fn handle_from(theirs: i32) -> Handle {
    let number = theirs as u32;
    if number >= MOVED + DYNAMIC {
        return Handle((number - MOVED) as usize);
    }
    let (found, ours) = FROM[place(theirs)];
    if found == theirs && found != 0 { Handle(ours as usize) } else { Handle(UNKNOWN | number as usize) }
}

/// Translates our handle of any kind but a file to the program's.
#[inline]
pub fn handle_to(handle: Handle) -> i32 {
    let number = handle.0 as u32;
    if handle.0 & UNKNOWN != 0 {
        return number as i32;
    }
    match TO.get(handle.0) {
        Some(0) => number as i32,
        Some(theirs) => *theirs,
        None => number.wrapping_add(MOVED) as i32,
    }
}

/// Translates a program's handle of a message to ours. MPICH's null message has the number of a null request.
#[inline]
pub fn message_from(theirs: i32) -> Handle {
    let handle = handle_from(theirs);
    if handle.0 == REQUEST_NULL { Handle(MESSAGE_NULL) } else { handle }
}

/// Translates a program's handle of a file, which is a pointer, to ours. Null is MPI_FILE_NULL.
#[inline]
pub fn file_from(theirs: usize) -> Handle {
    match theirs {
        0 => Handle(FILE_NULL),
        small if small < DYNAMIC as usize => Handle(UNKNOWN | small),
        theirs => Handle(theirs),
    }
}

/// Translates our handle of a file to the program's pointer.
#[inline]
pub fn file_to(handle: Handle) -> usize {
    match handle.0 {
        FILE_NULL => 0,
        number if number < UNKNOWN << 1 => number & !UNKNOWN,
        number => number,
    }
}

/// Translates our handle of any kind to the bits that a program's callback gets as an argument.
fn bits(handle: Handle) -> usize {
    if handle.0 == FILE_NULL || handle.0 >> KIND_SHIFT == FILE_KIND {
        file_to(handle)
    } else {
        handle_to(handle) as u32 as usize
    }
}

/// Defines a `ShimForm` that translates values which lie in the program's memory as `$theirs`.
macro_rules! foreign {
    ($name:ident: $of:ty as $theirs:ty, $from:expr, $to:expr) => {
        /// The `ShimForm` of these values, which translates them as it loads and stores them.
        #[allow(dead_code)] // Functions without a body do not use it.
        pub static $name: abi::args::ShimForm<$of> = abi::args::ShimForm {
            bytes: size_of::<$theirs>(),
            // SAFETY: the address is of one such element (contract of `ShimForm`).
            load: |at| $from(unsafe { (at as *const $theirs).read() }),
            // SAFETY: as above.
            store: |at, value| unsafe { (at as *mut $theirs).write($to(value)) },
        };
    };
}

foreign!(HANDLE: Handle as i32, handle_from, handle_to);
foreign!(MESSAGE: Handle as i32, message_from, handle_to);
foreign!(FILE: Handle as usize, file_from, file_to);
foreign!(CODE: i32 as i32, code_from, code_to);
foreign!(KEYVAL: i32 as i32, keyval_from, keyval_to);
foreign!(STATUS: Status as ForeignStatus, status_from, status_to);

/// Defines the two functions that translate the ints of a family, which a permutation swaps.
macro_rules! permutation {
    ($from:ident, $to:ident: $($ours:literal = $theirs:literal),*) => {
        /// The library's number for a number of the program.
        #[inline]
        pub fn $from(number: i32) -> i32 {
            match number { $($theirs => $ours,)* same => same }
        }
        /// The program's number for a number of the library.
        #[inline]
        pub fn $to(number: i32) -> i32 {
            match number { $($ours => $theirs,)* same => same }
        }
    };
}

/// Defines the translation of the ints of a family: two functions, and a `ShimForm` for ints in memory.
macro_rules! families {
    ($table:ident, $from:ident, $to:ident: $($pairs:tt)*) => {
        crate::translate::permutation! { $from, $to: $($pairs)* }
        crate::translate::foreign!($table: i32 as i32, $from, $to);
    };
}

/// Defines the translation of flags, as two functions and a `ShimForm`. Each flag is a bit that moves. Other
/// bits stay.
macro_rules! flags {
    ($table:ident, $from:ident, $to:ident: $($ours:literal = $theirs:literal),*) => {
        /// The library's flags for flags of the program.
        pub fn $from(flags: i32) -> i32 {
            crate::translate::move_bits(flags, &[$(($theirs, $ours)),*])
        }
        /// The program's flags for flags of the library.
        pub fn $to(flags: i32) -> i32 {
            crate::translate::move_bits(flags, &[$(($ours, $theirs)),*])
        }
        crate::translate::foreign!($table: i32 as i32, $from, $to);
    };
}

pub(crate) use {families, flags, foreign, permutation};

/// Moves each bit of `flags` from the first place of a pair to the second. Both sides of `pairs` must have
/// the same bits.
pub fn move_bits(flags: i32, pairs: &[(i32, i32)]) -> i32 {
    let named = pairs.iter().fold(0, |all, (from, _)| all | from);
    let moved = pairs.iter().filter(|(from, _)| flags & from != 0).fold(0, |all, (_, to)| all | to);
    flags & !named | moved
}

/// MPI_ERR_LASTCODE, ours and MPICH's. The classes and codes that the program adds follow it.
const LASTCODE: (i32, i32) = (0x3fff, 0x3fff_ffff);
/// The most classes and codes that a program adds.
const CODES_MAX: i32 = 1 << 20;

/// Translates a program's error class or code to ours.
pub fn code_from(theirs: i32) -> i32 {
    added(theirs).unwrap_or_else(|| numbers::code_from(theirs))
}

/// Translates our error class or code to the program's.
#[inline]
pub fn code_to(ours: i32) -> i32 {
    if ours == 0 { 0 } else { added(ours).unwrap_or_else(|| numbers::code_to(ours)) }
}

/// Translates a code that the program has added, in either direction: the two ranges are swapped. None for
/// other codes.
fn added(code: i32) -> Option<i32> {
    let within = |first: i32| (first..=first + CODES_MAX).contains(&code);
    if within(LASTCODE.0) {
        Some(code - LASTCODE.0 + LASTCODE.1)
    } else if within(LASTCODE.1) {
        Some(code - LASTCODE.1 + LASTCODE.0)
    } else {
        None
    }
}

/// Translates a program's keyval to ours, be it predefined or dynamic. An invalid one becomes -1.
pub fn keyval_from(theirs: i32) -> i32 {
    let ours = numbers::keyval_from(theirs);
    match ours {
        _ if ours != theirs && theirs >= DYNAMIC as i32 => ours,
        _ if theirs as u32 >= MOVED + DYNAMIC => (theirs as u32 - MOVED) as i32,
        // No keyval of ours is negative.
        _ => -1,
    }
}

/// Translates our keyval to the program's.
pub fn keyval_to(ours: i32) -> i32 {
    if ours >= DYNAMIC as i32 { (ours as u32).wrapping_add(MOVED) as i32 } else { numbers::keyval_to(ours) }
}

/// Translates a displacement in a file, which may be MPI_DISPLACEMENT_CURRENT, to ours.
pub fn displacement_from(theirs: i64) -> i64 {
    i32::try_from(theirs).map_or(theirs, |theirs| i64::from(numbers::displacement_from(theirs)))
}

/// Translates the address of a program's buffer, which may be MPI_IN_PLACE or MPI_BUFFER_AUTOMATIC, to ours.
#[inline]
pub fn buffer_from(theirs: usize) -> usize {
    match theirs as isize {
        -1 => 1,
        -2 => 2,
        _ => theirs,
    }
}

/// Translates for the program the address that MPI_Buffer_detach stored at `to`, if it is
/// MPI_BUFFER_AUTOMATIC.
pub fn attached(to: usize) {
    if to != 0 {
        let to = to as *mut usize;
        // SAFETY: not null, and the program gave it for one address (MPI 5.0, section 3.6).
        let address = unsafe { to.read() };
        if address == 2 {
            // SAFETY: as above.
            unsafe { to.write(-2isize as usize) };
        }
    }
}

/// Translates a program's pointer to statuses to ours. MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE are 1 in
/// MPICH, and null here.
#[inline]
pub fn ignorable(theirs: usize) -> usize {
    if theirs == 1 { 0 } else { theirs }
}

/// MPI_Status as programs of the MPICH ABI have it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ForeignStatus {
    count_lo: i32,
    /// The upper 31 bits of the count, and in the lowest bit whether the operation was cancelled.
    count_hi_and_cancelled: i32,
    source: i32,
    tag: i32,
    error: i32,
}

fn status_from(theirs: ForeignStatus) -> Status {
    let high = theirs.count_hi_and_cancelled as u32;
    let bytes = u64::from(theirs.count_lo as u32) | u64::from(high >> 1) << 32;
    let mut status = Status::new(numbers::rank_from(theirs.source), numbers::tag_from(theirs.tag), bytes);
    status.error = code_from(theirs.error);
    status.set_cancelled(high & 1 != 0);
    status
}

#[inline]
fn status_to(ours: Status) -> ForeignStatus {
    let high = (ours.bytes() >> 32) as i32;
    ForeignStatus {
        count_lo: ours.bytes() as u32 as i32,
        count_hi_and_cancelled: high << 1 | i32::from(ours.is_cancelled()),
        source: numbers::rank_to(ours.source),
        tag: numbers::tag_to(ours.tag),
        error: code_to(ours.error),
    }
}

/// Our MPI_COMBINER_SUBARRAY; its integers in MPI_Type_get_contents include constants.
const SUBARRAY: i32 = 111;
/// Our MPI_COMBINER_DARRAY; its integers in MPI_Type_get_contents include constants.
const DARRAY: i32 = 112;

/// Translates the constants among the integers of MPI_Type_get_contents (MPI 5.0, section 5.1.13).
fn contents(combiner: i32, large: bool, integers: &mut [i32]) {
    if ![SUBARRAY, DARRAY].contains(&combiner) {
        return;
    }
    let [.., order] = integers else { return };
    *order = numbers::order_to(*order);
    if combiner == DARRAY {
        // size, rank, ndims; the sizes, unless counts are large; distributions, their arguments, the grid;
        // the order.
        let dims = integers[2] as usize;
        let first = if large { 3 } else { 3 + dims };
        integers[first..first + dims].iter_mut().for_each(|each| *each = numbers::distribution_to(*each));
        let arguments = &mut integers[first + dims..first + 2 * dims];
        arguments.iter_mut().for_each(|each| *each = numbers::distribution_argument_to(*each));
    }
}

/// How the MPI library translates, for programs of this ABI, what callbacks, attributes and messages contain.
pub static SHIM: Shim = Shim {
    name: "MPICH ABI (libmpi.so.12)",
    version: (-1, -1),
    handle: bits,
    handle_from: |bits| handle_from(bits as i32),
    keyval: keyval_to,
    attribute,
    code: code_to,
    code_from,
    // MPICH's programs provide 96, Intel's 88.
    bsend_overhead_bytes: 88,
    contents,
    status: Some(&STATUS),
};

/// Our keyvals of predefined attributes whose values are numbers that must be translated.
const HOST: i32 = 503;
const IO: i32 = 502;
const LASTUSEDCODE: i32 = 506;
const WIN_CREATE_FLAVOR: i32 = 604;
const WIN_MODEL: i32 = 605;

fn attribute(keyval: i32, value: i32) -> i32 {
    match keyval {
        HOST | IO => numbers::rank_to(value),
        LASTUSEDCODE => code_to(value),
        WIN_CREATE_FLAVOR => numbers::win_flavor_to(value),
        WIN_MODEL => numbers::win_model_to(value),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_goes_both_ways() {
        for (name, ours, theirs, from, to) in numbers::FACTS {
            assert_eq!((from(*theirs), to(*ours)), (*ours, *theirs), "{name}");
        }
        for (ours, theirs) in HANDLES {
            let handle = Handle(*ours as usize);
            assert_eq!(handle_to(handle), *theirs, "{handle}");
            let from = if *ours as usize == MESSAGE_NULL { message_from } else { handle_from };
            assert_eq!(from(*theirs), handle);
        }
    }

    #[test]
    fn wrong_numbers_stay_wrong_and_come_back() {
        let ways: std::collections::BTreeMap<_, _> =
            numbers::FACTS.iter().map(|fact| (fact.3 as usize, (fact.3, fact.4))).collect();
        assert!(ways.len() >= 26);
        for (from, to) in ways.into_values() {
            for theirs in -100..20_000 {
                let ours = from(theirs);
                let keyval = from as usize == keyval_from as *const () as usize;
                assert!(
                    to(ours) == theirs || keyval && ours == -1,
                    "{theirs} becomes {ours}, then {}",
                    to(ours)
                );
            }
        }
        for theirs in [0, 1, 0x101, 0x4400_0002, 0x4c00_0400, i32::MIN, 0x0800_0001] {
            let handle = handle_from(theirs);
            assert!(handle.kind().is_none() || handle.0 >> 32 == 1, "{theirs:#x} becomes {handle}");
            assert_eq!(handle_to(handle), theirs);
        }
        assert_eq!(file_from(0), Handle(FILE_NULL));
        assert_eq!((file_to(Handle(FILE_NULL)), file_to(file_from(0x118))), (0, 0x118));
        assert_ne!(file_from(0x118), Handle(FILE_NULL));
    }

    #[test]
    fn dynamic_handles_meet_none_of_the_predefined() {
        for number in [DYNAMIC, 0x0c00_0000, 0x4400_0000, 0x5fff_ffff, 0x67ff_ffff] {
            let handle = Handle(number as usize);
            let theirs = handle_to(handle);
            assert!(HANDLES.iter().all(|(_, predefined)| *predefined != theirs));
            assert_eq!(handle_from(theirs), handle);
            assert_eq!(keyval_from(keyval_to(number as i32)), number as i32);
        }
    }

    #[test]
    fn a_status_keeps_everything() {
        assert_eq!(size_of::<ForeignStatus>(), 20);
        let mut status = Status::new(3, 4, (1 << 50) + 7);
        status.set_cancelled(true);
        status.error = 15;
        assert_eq!(status_from(status_to(status)), status);
        let foreign = status_to(Status::EMPTY);
        assert_eq!((foreign.source, foreign.tag, foreign.error), (-2, -1, 0));
        let foreign = status_to(Status::NO_PROCESS);
        assert_eq!((foreign.source, foreign.tag), (-1, -1));
    }

    #[test]
    fn flags_are_added_up() {
        // MPI_MODE_CREATE | MPI_MODE_RDWR, and a bit that means nothing.
        assert_eq!(numbers::access_from(1 | 8 | 1 << 20), 2 | 32 | 1 << 20);
        assert_eq!(numbers::access_to(2 | 32), 1 | 8);
        assert_eq!(code_from(0x4000_0000), 0x4000);
        assert_eq!(code_to(code_from(0x4000_0007)), 0x4000_0007);
    }
}
