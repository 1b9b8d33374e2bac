// SPDX-License-Identifier: BSD-3-Clause
//! Device memory that another process of the host copies from: no host memory lies between.
//!
//! A send of device memory has a stand-in in the host's memory (`abi/src/staging.rs`). `crate::lend` leaves
//! it unfilled, and writes a note into it that says where the bytes are. The receiver reads the note, opens
//! the memory (`crate::take_lent`, by the backend's IPC; what was opened is kept), and copies into its own:
//! if its buffer is a stand-in, too (`expect`), at once into the device memory for which that stands.
//! Invariant: a stand-in's entry is withdrawn before the stand-in is freed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::Span;

/// Words of a note: the backend, the bytes, and what the backend needs to open them.
pub const NOTE_WORDS: usize = 16;
pub(crate) type Words = [u64; NOTE_WORDS - 2];

/// What a stand-in stands for.
struct Entry {
    stand_in: Span,
    user: Span,
    /// Lent to whoever takes the message; not so for a receive.
    is_lent: bool,
    /// Bytes from the first on that went past the stand-in.
    past: usize,
}

/// By the stand-in's address.
static ENTRIES: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

fn entries() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a stand-in, for a send (`is_lent`) or a receive.
fn enter(stand_in: Span, user: Span, is_lent: bool) {
    entries().insert(stand_in.address(), Entry { stand_in, user, is_lent, past: 0 });
}

/// Writes the note into a stand-in. False if it is too short.
pub(crate) fn note(stand_in: Span, user: Span, backend: u64, words: &Words) -> bool {
    if stand_in.bytes() < NOTE_WORDS * 8 {
        return false;
    }
    for (at, word) in [backend, user.bytes() as u64].iter().chain(words).enumerate() {
        stand_in.slice(at * 8, 8).write(&word.to_ne_bytes());
    }
    enter(stand_in, user, true);
    true
}

/// Whether a note lies in the stand-in at `address`.
pub fn is_lent(address: usize) -> bool {
    entries().get(&address).is_some_and(|entry| entry.is_lent)
}

/// Whether a send under way has lent any of these bytes.
pub(crate) fn is_in_use(address: usize, bytes: usize) -> bool {
    let range = address..address + bytes;
    entries().values().any(|entry| entry.is_lent && range.contains(&entry.user.address()))
}

/// Takes the note back: the stand-in at `address`, and its device memory.
pub(crate) fn take_back(address: usize) -> Option<(Span, Span)> {
    entries().remove(&address).map(|entry| (entry.stand_in, entry.user))
}

/// What comes for this stand-in goes into `user` if it is lent, until `withdraw`.
pub fn expect(stand_in: Span, user: Span) {
    enter(stand_in, user, false);
}

/// How many bytes went past the stand-in at `address`, from its first on. The next message begins there.
pub fn went_past(address: usize) -> usize {
    entries().get_mut(&address).map_or(0, |entry| std::mem::take(&mut entry.past))
}

/// Ends `lend` or `expect`.
pub fn withdraw(address: usize) {
    entries().remove(&address);
}

/// The stand-in of which `to` is a part, and where its bytes belong. Not if `to` does not follow what went
/// past the stand-in: then that gets them, and is copied later.
pub(crate) fn past_stand_in(to: Span) -> Option<(usize, Span)> {
    let entries = entries();
    let (at, entry) = entries.range(..=to.address()).next_back()?;
    let follows = !entry.is_lent && to.address() - at == entry.past;
    let fits = follows && entry.past + to.bytes() <= entry.user.bytes();
    fits.then(|| (*at, entry.user.slice(entry.past, to.bytes())))
}

/// Notes that so many bytes more went past the stand-in at `address`.
pub(crate) fn went(address: usize, bytes: usize) {
    if let Some(entry) = entries().get_mut(&address) {
        entry.past += bytes;
    }
}
