// SPDX-License-Identifier: BSD-3-Clause
//! The translation between the MPICH ABI and the standard ABI, whose numbers the library uses ("our"
//! numbers). A function `x_from` translates from the program to the library, `x_to` back. A `ShimForm` does
//! both for values in the program's memory.
//!
//! MPICH's handles are ints, except files, which are pointers. A table translates predefined handles. Our
//! handles of objects that the program makes, 0x0800_0000 to 0x67ff_ffff, move to 0xa000_0000 and above,
//! where MPICH predefines nothing. Any other number becomes a number that is not a handle of ours, and back.

use crate::numbers::{self, HANDLES, SPREAD};
use abi::args::{Handle, Status};
use abi::shim::Shim;

/// The standard ABI's MPI_FILE_NULL. In MPICH it is a null pointer.
const FILE_NULL: usize = 280;
/// The standard ABI's MPI_MESSAGE_NULL. In MPICH it has the same number as MPI_REQUEST_NULL.
const MESSAGE_NULL: usize = 296;
/// The standard ABI's MPI_REQUEST_NULL.
const REQUEST_NULL: usize = 384;
/// The bits above `KIND_SHIFT` in the library's handle of a file that the program opened
/// (`HandleKind::File`).
const FILE_KIND: usize = 10;
const KIND_SHIFT: u32 = 27;

/// The lowest of the library's handles for objects that the program makes.
const DYNAMIC: u32 = 1 << KIND_SHIFT;
/// The number that is added to the library's handle of an object that the program makes. The sum is the
/// program's handle of the object.
const MOVED: u32 = 0x9800_0000;
/// A bit that no handle of the library has. It marks a number from the program that is not a handle of MPICH.
const UNKNOWN: usize = 1 << 32;

/// MPICH's predefined handles, by the standard ABI's number. 0 where the standard ABI has no handle; in MPICH
/// only the handle of a file can be 0.
static TO: [i32; 1024] = {
    let mut table = [0; 1024];
    let mut at = 0;
    while at < HANDLES.len() {
        table[HANDLES[at].0 as usize] = HANDLES[at].1;
        at += 1;
    }
    table
};

/// The predefined handles, as pairs of MPICH's and the standard ABI's number. Each pair has the index that
/// `place` computes from MPICH's number.
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

/// Translates a program's handle to the library's. Serves handles of all kinds except files and messages.
#[inline]
pub fn handle_from(theirs: i32) -> Handle {
    let number = theirs as u32;
    if number >= MOVED + DYNAMIC {
        return Handle((number - MOVED) as usize);
    }
    let (found, ours) = FROM[place(theirs)];
    if found == theirs && found != 0 { Handle(ours as usize) } else { Handle(UNKNOWN | number as usize) }
}

/// Translates a handle of the library to the program's. Serves handles of all kinds except files.
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

/// Translates a program's handle of a message to the library's. MPICH's null message has the number of a null
/// request.
#[inline]
pub fn message_from(theirs: i32) -> Handle {
    let handle = handle_from(theirs);
    if handle.0 == REQUEST_NULL { Handle(MESSAGE_NULL) } else { handle }
}

/// Translates a program's handle of a file, which is a pointer, to the library's. A null pointer is
/// MPI_FILE_NULL.
#[inline]
pub fn file_from(theirs: usize) -> Handle {
    match theirs {
        0 => Handle(FILE_NULL),
        small if small < DYNAMIC as usize => Handle(UNKNOWN | small),
        theirs => Handle(theirs),
    }
}

/// Translates the library's handle of a file to the program's, which is a pointer.
#[inline]
pub fn file_to(handle: Handle) -> usize {
    match handle.0 {
        FILE_NULL => 0,
        number if number < UNKNOWN << 1 => number & !UNKNOWN,
        number => number,
    }
}

/// Translates a handle of the library, of any kind, to the bits that a callback of the program gets as an
/// argument.
fn bits(handle: Handle) -> usize {
    if handle.0 == FILE_NULL || handle.0 >> KIND_SHIFT == FILE_KIND {
        file_to(handle)
    } else {
        handle_to(handle) as u32 as usize
    }
}

/// Defines a `ShimForm` for values of the type `$of`, which programs keep in memory as `$theirs`.
macro_rules! foreign {
    ($name:ident: $of:ty as $theirs:ty, $from:expr, $to:expr) => {
        /// How programs keep values of this type in memory: translates a value when it is loaded or stored.
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

/// Defines two functions that translate the constants of a family, such as the combiners. A constant becomes
/// the other ABI's; any other number stays.
macro_rules! permutation {
    ($from:ident, $to:ident: $($ours:literal = $theirs:literal),*) => {
        /// Translates a constant of this family from the program's number to the library's.
        #[inline]
        pub fn $from(number: i32) -> i32 {
            match number { $($theirs => $ours,)* same => same }
        }
        /// Translates a constant of this family from the library's number to the program's.
        #[inline]
        pub fn $to(number: i32) -> i32 {
            match number { $($ours => $theirs,)* same => same }
        }
    };
}

/// Defines two functions that translate the constants of a family, and a `ShimForm` for constants in the
/// program's memory.
macro_rules! families {
    ($table:ident, $from:ident, $to:ident: $($pairs:tt)*) => {
        crate::translate::permutation! { $from, $to: $($pairs)* }
        crate::translate::foreign!($table: i32 as i32, $from, $to);
    };
}

/// Defines two functions that translate flags, and a `ShimForm` for flags in the program's memory. A flag is
/// a bit that has another place in the other ABI. Other bits stay.
macro_rules! flags {
    ($table:ident, $from:ident, $to:ident: $($ours:literal = $theirs:literal),*) => {
        /// Translates flags of this family from the program's bits to the library's.
        pub fn $from(flags: i32) -> i32 {
            crate::translate::move_bits(flags, &[$(($theirs, $ours)),*])
        }
        /// Translates flags of this family from the library's bits to the program's.
        pub fn $to(flags: i32) -> i32 {
            crate::translate::move_bits(flags, &[$(($ours, $theirs)),*])
        }
        crate::translate::foreign!($table: i32 as i32, $from, $to);
    };
}

pub(crate) use {families, flags, foreign, permutation};

/// Returns `flags` with each bit that is the first of a pair replaced by the second of the pair. All first
/// bits together must be the same bits as all second bits.
pub fn move_bits(flags: i32, pairs: &[(i32, i32)]) -> i32 {
    let named = pairs.iter().fold(0, |all, (from, _)| all | from);
    let moved = pairs.iter().filter(|(from, _)| flags & from != 0).fold(0, |all, (_, to)| all | to);
    flags & !named | moved
}

/// The values of MPI_ERR_LASTCODE in the standard ABI and in MPICH. The classes and codes that a program adds
/// have the numbers after it.
const LASTCODE: (i32, i32) = (0x3fff, 0x3fff_ffff);
/// The most error classes and codes that a program adds.
const CODES_MAX: i32 = 1 << 20;

/// Translates a program's error class or code to the library's.
pub fn code_from(theirs: i32) -> i32 {
    added(theirs).unwrap_or_else(|| numbers::code_from(theirs))
}

/// Translates an error class or code of the library to the program's.
#[inline]
pub fn code_to(ours: i32) -> i32 {
    if ours == 0 { 0 } else { added(ours).unwrap_or_else(|| numbers::code_to(ours)) }
}

/// Translates a class or code that the program has added, from either ABI to the other: the two ranges of
/// numbers are swapped. Returns None for other codes.
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

/// Translates a program's keyval, predefined or not, to the library's. Returns -1 if it is not a valid
/// keyval.
pub fn keyval_from(theirs: i32) -> i32 {
    let ours = numbers::keyval_from(theirs);
    match ours {
        _ if ours != theirs && theirs >= DYNAMIC as i32 => ours,
        _ if theirs as u32 >= MOVED + DYNAMIC => (theirs as u32 - MOVED) as i32,
        // No keyval of ours is negative.
        _ => -1,
    }
}

/// Translates a keyval of the library to the program's.
pub fn keyval_to(ours: i32) -> i32 {
    if ours >= DYNAMIC as i32 { (ours as u32).wrapping_add(MOVED) as i32 } else { numbers::keyval_to(ours) }
}

/// Translates a program's displacement in a file to the library's. It may be MPI_DISPLACEMENT_CURRENT.
pub fn displacement_from(theirs: i64) -> i64 {
    i32::try_from(theirs).map_or(theirs, |theirs| i64::from(numbers::displacement_from(theirs)))
}

/// Translates the address of a program's buffer to the library's. It may be MPI_IN_PLACE or
/// MPI_BUFFER_AUTOMATIC.
#[inline]
pub fn buffer_from(theirs: usize) -> usize {
    match theirs as isize {
        -1 => 1,
        -2 => 2,
        _ => theirs,
    }
}

/// Translates the address that MPI_Buffer_detach has stored at `to`: the library's MPI_BUFFER_AUTOMATIC
/// becomes the program's. Any other address stays.
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

/// Translates a program's pointer to statuses to the library's. MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE are
/// 1 in MPICH, and null in the standard ABI.
#[inline]
pub fn ignorable(theirs: usize) -> usize {
    if theirs == 1 { 0 } else { theirs }
}

/// MPI_Status as programs of the MPICH ABI have it. The count is a number of bytes.
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

/// The standard ABI's MPI_COMBINER_SUBARRAY. Its integers in MPI_Type_get_contents include constants.
const SUBARRAY: i32 = 111;
/// The standard ABI's MPI_COMBINER_DARRAY. Its integers in MPI_Type_get_contents include constants.
const DARRAY: i32 = 112;

/// Translates the MPI constants among the integers of MPI_Type_get_contents to the program's (MPI 5.0,
/// section 5.1.13).
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

/// The description of the MPICH ABI for the crate `abi`: the functions that translate the numbers in
/// callbacks, attributes and texts.
pub static SHIM: Shim = Shim {
    name: "MPICH ABI (libmpi.so.12)",
    version: (-1, -1),
    handle: bits,
    handle_from: |bits| handle_from(bits as i32),
    keyval: keyval_to,
    attribute,
    code: code_to,
    code_from,
    contents,
    status: Some(&STATUS),
};

/// The keyval of MPI_HOST in the standard ABI. The values of this attribute, and of those with the four
/// keyvals below, are numbers that must be translated.
const KEYVAL_HOST: i32 = 503;
const KEYVAL_IO: i32 = 502;
const KEYVAL_LASTUSEDCODE: i32 = 506;
const KEYVAL_WIN_CREATE_FLAVOR: i32 = 604;
const KEYVAL_WIN_MODEL: i32 = 605;

fn attribute(keyval: i32, value: i32) -> i32 {
    match keyval {
        KEYVAL_HOST | KEYVAL_IO => numbers::rank_to(value),
        KEYVAL_LASTUSEDCODE => code_to(value),
        KEYVAL_WIN_CREATE_FLAVOR => numbers::win_flavor_to(value),
        KEYVAL_WIN_MODEL => numbers::win_model_to(value),
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
