//! Device memory that another process of the host copies from: no host memory lies between.
//!
//! A send of device memory has a stand-in in the host's memory (`abi/src/staging.rs`). `lend` leaves it unfilled,
//! and writes a note into it that says where the bytes are. The receiver reads the note, opens the memory
//! (`take`, by the backend's IPC; what was opened is kept), and copies into its own memory: if its buffer is
//! a stand-in, too (`expect`), at once into the device memory for which that stands.
//! Invariant: a stand-in's entry is withdrawn before the stand-in is freed.

use crate::{BACKEND, Backend};
use error::{Class, Result, fail};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::Span;

/// Words of a note: the backend, the bytes, and what the backend needs to open them.
pub const NOTE_WORDS: usize = 16;
pub(crate) type Words = [u64; NOTE_WORDS - 2];

const SENTINEL: u64 = 1;
const CUDA: u64 = 2;

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

/// Lends device memory until `withdraw`, with the note in its stand-in. False if it cannot be lent.
///
/// Errors: those of `holds`.
pub fn lend(stand_in: Span, user: Span) -> Result<bool> {
    let (backend, words) = match BACKEND.get() {
        Some(Backend::Cuda(cuda)) => (CUDA, cuda.export(user)),
        Some(Backend::Sentinel(sentinel)) => (SENTINEL, sentinel.export(user)?),
        None => return Ok(false),
    };
    let (Some(words), true) = (words, stand_in.bytes() >= NOTE_WORDS * 8) else { return Ok(false) };
    for (at, word) in [backend, user.bytes() as u64].iter().chain(&words).enumerate() {
        stand_in.slice(at * 8, 8).write(&word.to_ne_bytes());
    }
    entries().insert(stand_in.address(), Entry { stand_in, user, is_lent: true, past: 0 });
    Ok(true)
}

/// Whether a note lies in the stand-in at `address`.
pub fn is_lent(address: usize) -> bool {
    entries().get(&address).is_some_and(|entry| entry.is_lent)
}

/// Whether a send under way has lent any of these bytes.
pub(crate) fn is_in_use(address: usize, bytes: usize) -> bool {
    entries()
        .values()
        .any(|entry| entry.is_lent && (address..address + bytes).contains(&entry.user.address()))
}

/// Gives the stand-in at `address` the bytes instead of the note: somebody cannot open the memory.
///
/// Errors: those of `copy`.
pub fn fill(address: usize) -> Result<()> {
    let Some(entry) = entries().remove(&address) else { return Ok(()) };
    crate::copy(entry.stand_in, entry.user)
}

/// What is copied into this stand-in by `take` goes into `user`, until `withdraw`.
pub fn expect(stand_in: Span, user: Span) {
    entries().insert(stand_in.address(), Entry { stand_in, user, is_lent: false, past: 0 });
}

/// How many bytes went past the stand-in at `address`, from its first on. The next message begins there again.
pub fn went_past(address: usize) -> usize {
    entries().get_mut(&address).map_or(0, |entry| std::mem::take(&mut entry.past))
}

/// Ends `lend` or `expect`.
pub fn withdraw(address: usize) {
    entries().remove(&address);
}

/// Copies lent bytes from `at` on to `to`, which may be a part of a stand-in.
///
/// Errors: the note is none; the memory cannot be opened; those of `copy`.
pub fn take(note: &[u64; NOTE_WORDS], at: usize, to: Span) -> Result<()> {
    let [backend, bytes, words @ ..] = note;
    if at.checked_add(to.bytes()).is_none_or(|end| end as u64 > *bytes) {
        fail!(Class::Intern, "bytes {at} to {at} + {} of {bytes} lent bytes", to.bytes());
    }
    let from = match (BACKEND.get(), *backend) {
        (Some(Backend::Cuda(cuda)), CUDA) => cuda.import(words, *bytes as usize)?,
        (Some(Backend::Sentinel(sentinel)), SENTINEL) => sentinel.import(words, *bytes as usize)?,
        _ => fail!(Class::Other, "memory of another kind of device was lent"),
    };
    let from = from.slice(at, to.bytes());
    let Some((stand_in, user)) = past_stand_in(to) else { return crate::copy(to, from) };
    crate::copy(user, from)?;
    if let Some(entry) = entries().get_mut(&stand_in) {
        entry.past += user.bytes();
    }
    Ok(())
}

/// The stand-in of which `to` is a part, and where its bytes belong. Not if `to` does not follow what went past
/// the stand-in: then it is filled, and copied later.
fn past_stand_in(to: Span) -> Option<(usize, Span)> {
    let entries = entries();
    let (at, entry) = entries.range(..=to.address()).next_back()?;
    let follows = !entry.is_lent && to.address() - at == entry.past;
    (follows && entry.past + to.bytes() <= entry.user.bytes())
        .then(|| (*at, entry.user.slice(entry.past, to.bytes())))
}
