// SPDX-License-Identifier: BSD-3-Clause
//! Device memory that another process of the host copies directly, without host memory in between.
//!
//! A send of device memory has a stand-in in host memory (`abi/src/staging.rs`). `crate::export` does not
//! copy the bytes into it, but writes a record into it that says where the bytes are. The receiver reads the
//! record, opens the memory (`crate::copy_exported`, by the backend's IPC; opened memory stays open), and
//! copies the bytes to its buffer. If that buffer is a stand-in, too (`expect`), the bytes go to the device
//! memory that it stands for. Invariant: a stand-in's entry is withdrawn before the stand-in is freed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::Span;

/// The number of words of the record that describes exported memory. One names the backend, one is the number
/// of bytes, and the others are what the backend needs to open the memory.
pub const DESCRIPTION_WORDS: usize = 16;
pub(crate) type DescriptionWords = [u64; DESCRIPTION_WORDS - 2];

/// A stand-in of host memory, and the device memory of the user (`user`) for which it stands.
struct StandIn {
    stand_in: Span,
    user: Span,
    /// Whether the device memory is exported to the receiver of a message. It is false in a receive.
    is_exported: bool,
    /// How many bytes of the message, from its first on, were copied directly to the device memory.
    direct_bytes: usize,
}

/// The stand-ins in host memory of all sends and receives of device memory under way, by the stand-ins'
/// addresses.
static ENTRIES: Mutex<BTreeMap<usize, StandIn>> = Mutex::new(BTreeMap::new());

fn entries() -> MutexGuard<'static, BTreeMap<usize, StandIn>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a stand-in (host memory that stands for device memory) of a send (`is_exported`) or of a receive to
/// `ENTRIES`.
fn enter(stand_in: Span, user: Span, is_exported: bool) {
    entries().insert(stand_in.address(), StandIn { stand_in, user, is_exported, direct_bytes: 0 });
}

/// Writes into `stand_in` a record that says where the device memory `user` is, and adds the stand-in to
/// `ENTRIES`. Returns false if the stand-in is too short for the record.
pub(crate) fn write_description(stand_in: Span, user: Span, backend: u64, words: &DescriptionWords) -> bool {
    if stand_in.bytes() < DESCRIPTION_WORDS * 8 {
        return false;
    }
    for (at, word) in [backend, user.bytes() as u64].iter().chain(words).enumerate() {
        stand_in.slice(at * 8, 8).write(&word.to_ne_bytes());
    }
    enter(stand_in, user, true);
    true
}

/// Whether the stand-in at `address` (host memory that stands for device memory) holds the record of exported
/// memory in place of the bytes.
pub fn is_exported(address: usize) -> bool {
    entries().get(&address).is_some_and(|entry| entry.is_exported)
}

/// Whether a send under way has exported device memory that begins within the `bytes` bytes at `address`.
pub(crate) fn is_in_use(address: usize, bytes: usize) -> bool {
    let range = address..address + bytes;
    entries().values().any(|entry| entry.is_exported && range.contains(&entry.user.address()))
}

/// Revokes an export. Removes the entry of the stand-in at `address` from `ENTRIES`, and returns the stand-in
/// and its device memory; None if there is no such entry.
pub(crate) fn revoke(address: usize) -> Option<(Span, Span)> {
    entries().remove(&address).map(|entry| (entry.stand_in, entry.user))
}

/// Adds a stand-in of a receive. Until `withdraw`, exported bytes that arrive for the stand-in go directly to
/// the device memory `user`.
pub fn expect(stand_in: Span, user: Span) {
    enter(stand_in, user, false);
}

/// Returns how many bytes of a message, from its first on, went directly to the device memory of the stand-in
/// at `address`. Resets that count for the next message.
pub fn take_direct_bytes(address: usize) -> usize {
    entries().get_mut(&address).map_or(0, |entry| std::mem::take(&mut entry.direct_bytes))
}

/// Removes the entry of the stand-in at `address`, which `crate::export` or `expect` has added to `ENTRIES`.
pub fn withdraw(address: usize) {
    entries().remove(&address);
}

/// Finds out where bytes that arrive for `to`, a part of a stand-in, can go directly. Returns the stand-in's
/// address, and the device memory for these bytes. None if earlier bytes of the message did not go directly
/// to the device memory; then all later bytes go to the stand-in first.
pub(crate) fn direct_target(to: Span) -> Option<(usize, Span)> {
    let entries = entries();
    let (at, entry) = entries.range(..=to.address()).next_back()?;
    let follows = !entry.is_exported && to.address() - at == entry.direct_bytes;
    let fits = follows && entry.direct_bytes + to.bytes() <= entry.user.bytes();
    fits.then(|| (*at, entry.user.slice(entry.direct_bytes, to.bytes())))
}

/// Notes that `bytes` more bytes of a message went directly to the device memory of the stand-in at
/// `address`.
pub(crate) fn note_direct(address: usize, bytes: usize) {
    if let Some(entry) = entries().get_mut(&address) {
        entry.direct_bytes += bytes;
    }
}
