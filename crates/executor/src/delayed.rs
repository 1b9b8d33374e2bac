// SPDX-License-Identifier: BSD-3-Clause
//! The notes (fixed-size messages to a proxy or a rank of another host) that a proxy sends later. A note for
//! which no process waits leaves together with the next bytes to its receiver. A question for bytes is
//! dropped if the server sends the bytes unasked. No note waits longer than `LATER`, since a sender keeps
//! copies of its bytes until the receiver's note confirms them.

use crate::memory::{Driver, Reach};
use crate::note::{Note, NoteKind, NoteOutcome};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// The longest time for which a note (a fixed-size message) waits for bytes to the same process: 1 ms, in
/// nanoseconds. In tests it is a number of calls of `take_due`.
const LATER: u64 = if cfg!(test) { 4 } else { 1_000_000 };
/// The most notes (fixed-size messages) that wait at a time. It is below 64: a rank with 64 ended but
/// unconfirmed operations ends no further one before notes confirm it.
const NOTES_MAX: usize = 16;

/// The notes (fixed-size messages to other hosts) that a process has not sent yet, in the order in which they
/// must leave.
#[derive(Default)]
pub(crate) struct DelayedNotes {
    notes: VecDeque<(u64, u32, Note)>,
    /// The numbers of ranks whose server (the process that sends a rank's bytes) has sent bytes unasked, and
    /// probably will do so again.
    unasked_senders: HashSet<u32>,
    #[cfg(test)]
    turns: u64,
}

impl DelayedNotes {
    /// Keeps back a note to the endpoint `to`, for at most the time `LATER`.
    pub fn delay(&mut self, to: u32, note: Note) {
        self.notes.push_back((self.now() + LATER, to, note));
    }

    /// Whether the server to which a question goes will probably send the bytes before it gets the question.
    pub fn comes_unasked(&self, question: &Note) -> bool {
        self.unasked_senders.contains(&question.sender)
    }

    /// Records that a server has sent bytes unasked and described them by `note`. Drops the waiting question
    /// for these bytes if the receiving step took them (`taken`).
    pub fn note_unasked(&mut self, note: &Note, taken: NoteOutcome) {
        self.unasked_senders.insert(note.sender);
        if taken == NoteOutcome::Accepted {
            self.notes.retain(|(.., one)| one.kind != NoteKind::Fetch || !one.is_edge_of(note));
        }
    }

    /// Moves to `outbox` the notes (messages) that must leave now: their time is over, or too many wait. In a
    /// rank, all leave.
    pub fn take_due(&mut self, outbox: &mut VecDeque<(u32, Note)>, reach: &Reach) {
        #[cfg(test)]
        {
            self.turns += 1;
        }
        let now = if self.notes.is_empty() { 0 } else { self.now() };
        let may_wait = matches!(reach.driver, Driver::Proxy(_));
        while let Some(&(due, to, note)) = self.notes.front()
            && (due <= now || self.notes.len() > NOTES_MAX || !may_wait)
        {
            self.notes.pop_front();
            if note.kind == NoteKind::Fetch {
                self.unasked_senders.remove(&note.sender);
            }
            outbox.push_back((to, note));
        }
    }

    /// Moves to `outbox` the notes (messages) for the endpoints `sent`, to which bytes have just left.
    /// Questions for bytes stay.
    pub fn take_following(&mut self, sent: &[u32], outbox: &mut VecDeque<(u32, Note)>) {
        self.notes.retain(|&(_, to, note)| {
            let follows = note.kind != NoteKind::Fetch && sent.contains(&to);
            if follows {
                outbox.push_back((to, note));
            }
            !follows
        });
    }

    /// Returns how long the process may sleep until the first note must leave; None if no note waits.
    pub fn nap_max(&self) -> Option<Duration> {
        self.notes.front().map(|(due, ..)| Duration::from_nanos(due.saturating_sub(self.now())))
    }

    #[cfg(not(test))]
    fn now(&self) -> u64 {
        sys::clock::now()
    }

    #[cfg(test)]
    fn now(&self) -> u64 {
        self.turns
    }
}
