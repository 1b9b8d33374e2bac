// SPDX-License-Identifier: BSD-3-Clause
//! The word of a slot, by which a member publishes its round and the *facts* of its call.
//!
//! | bits | field | use by the other members |
//! |---|---|---|
//! | 30 to 63 | the number of the round | they wait until it is theirs |
//! | 25 to 29 | facts: the collective | they compare it with their own |
//! | 21 to 24 | facts: the root, or 0 | they compare it with their own |
//! | 0 to 20 | facts: the bytes | they compare them; in calls with counts, the length that they read |
//!
//! Invariants: all members of a round publish equal facts, except for the bits that `Round::MINE` allows. If
//! they differ, each member gets an error that names both calls.

use crate::short::{BYTES_MAX, MEMBERS_MAX, is_pullable};
use error::{Class, Error};
use schedule::algorithm::Collective;

/// How many of the lowest bits of a slot's word hold the facts of a call: five for the collective, four for
/// the root, and `LENGTH_BITS` for the bytes. The bits above hold the round.
pub(crate) const FACTS_BITS: u32 = 30;
pub(crate) const LENGTH_BITS: u32 = 21;
pub(crate) const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(Collective::ALL.len() <= 32 && MEMBERS_MAX <= 16 && BYTES_MAX < LENGTH_MAX);

/// Returns the facts of a call for the low bits of a slot's word: collective, root and length. Members
/// compare them, to notice if their calls differ.
#[inline]
pub(crate) fn facts(collective: Collective, root: usize, bytes: u64) -> u64 {
    (collective as u64) << (LENGTH_BITS + 4) | (root as u64) << LENGTH_BITS | bytes.min(LENGTH_MAX)
}

/// Returns `word` with its length replaced by `bytes`.
pub(crate) fn with_length(word: u64, bytes: u64) -> u64 {
    word & !LENGTH_MAX | bytes.min(LENGTH_MAX)
}

/// Returns the collective of the call whose facts a member has published as `facts`.
#[cold]
pub(crate) fn collective_of(facts: u64) -> Collective {
    Collective::ALL[(facts >> (LENGTH_BITS + 4) & 31) as usize]
}

/// Whether the facts that a member has published belong to a call of this collective.
#[inline]
pub(crate) fn is_of(facts: u64, collective: Collective) -> bool {
    facts >> (LENGTH_BITS + 4) & 31 == collective as u64
}

/// Makes the error that rank `me` gets if `rank` has published `word`, the word of another call, in the same
/// round. Collective, root and bytes are those of the call that `me` makes.
#[cold]
pub(crate) fn disagree(
    collective: Collective,
    root: usize,
    bytes: u64,
    (me, rank): (usize, usize),
    word: u64,
) -> Error {
    let theirs = word % (1 << FACTS_BITS);
    let length = theirs & LENGTH_MAX;
    // Whether a call is pulled follows from its length, so the error names the lengths.
    let by_length = length != bytes && is_of(theirs, collective) && is_pullable(collective);
    if theirs >> LENGTH_BITS != facts(collective, root, bytes) >> LENGTH_BITS && !by_length {
        return differ(collective, root, me, rank, theirs);
    }
    let least = if length == LENGTH_MAX { "at least " } else { "" };
    let sentence =
        format!("in {} rank {rank} has {least}{length} bytes, but rank {me} has {bytes}", collective.name());
    Error::new(Class::Truncate, sentence)
}

/// Makes the error for two members of a round whose collectives or roots differ. `theirs` are the facts that
/// `rank` has published, the other arguments describe the call of `me`.
#[cold]
pub(crate) fn differ(collective: Collective, root: usize, me: usize, rank: usize, theirs: u64) -> Error {
    let theirs_root = theirs >> LENGTH_BITS & 15;
    let name = collective.name();
    if is_of(theirs, collective) {
        if is_pullable(collective) {
            let sentence = format!(
                "in {name} one of the ranks {me} and {rank} reads the other's memory, the other does not"
            );
            return Error::new(Class::Other, sentence + ": do they differ in OUTBOARD_INLINE_BYTES_MAX?");
        }
        let sentence = format!("in {name} rank {rank} has root {theirs_root}, but rank {me} has root {root}");
        return Error::new(Class::Root, sentence);
    }
    let sentence = format!("rank {me} is in {name}, but rank {rank} is in another collective");
    Error::new(Class::Other, sentence)
}
