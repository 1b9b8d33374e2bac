// SPDX-License-Identifier: BSD-3-Clause
//! Bytes that other hosts have sent to a receive before the receiving step has started. The server of a send
//! may send the bytes of an edge (a send and its receive) unasked: a note (a fixed-size message between
//! hosts), then the bytes.
//!
//! Invariants: the bytes of an edge are taken in the order in which they came. When a process has no room for
//! an edge's bytes, it drops them and tells the server, which sends them again when the receiver asks.

use crate::note::{Note, NoteKind};
use std::collections::VecDeque;
use sys::{Block, Span};

/// The most bytes that a process keeps for receives that have not started yet. Other hosts have sent these
/// bytes unasked. The limit is small in tests, so that they reach it.
const BYTES_MAX: usize = if cfg!(test) { 4000 } else { 16 << 20 };
/// The most sends whose data waits in a process for the receive to start. The limit is small in tests, so
/// that they reach it.
const EDGES_MAX: usize = if cfg!(test) { 4 } else { 1024 };

/// Names an edge (a send and its receive): the receiving rank, the operation's context and sequence, the
/// sending rank, and the edge's number.
type EdgeKey = (u32, u64, u32, u32, u32);

/// Data that waits for its step: the endpoint that sent it, the note that came with it, and the data.
pub(crate) type WaitingNote = (u32, Note, Block);

/// The data that has come before the receiving step asked for it, with one entry for each edge. The edge
/// whose data came first is at the front.
#[derive(Default)]
pub(crate) struct UnaskedNotes {
    edges: VecDeque<(EdgeKey, Vec<WaitingNote>)>,
    bytes: usize,
}

fn key(note: &Note) -> EdgeKey {
    (note.receiver, note.context, note.sequence, note.sender, note.edge)
}

impl UnaskedNotes {
    /// Whether data waits for the send and receive that `note` is about.
    pub fn has(&self, note: &Note) -> bool {
        self.edges.iter().any(|(one, _)| *one == key(note))
    }

    /// Keeps a note and its data, which came from the endpoint `from`. If there is no room, drops all data of
    /// the sends whose data came first. Returns for each of these sends its server's endpoint and the refusal
    /// to send there.
    pub fn keep(&mut self, from: u32, note: &Note, data: Span) -> Vec<(u32, Note)> {
        let block = Block::new(data.bytes());
        data.copy_to(block.span());
        self.bytes += block.span().bytes();
        let waiting = (from, *note, block);
        match self.edges.iter_mut().find(|(one, _)| *one == key(note)) {
            Some((_, all)) => all.push(waiting),
            None => self.edges.push_back((key(note), vec![waiting])),
        }
        let mut refused = Vec::new();
        while self.bytes > BYTES_MAX || self.edges.len() > EDGES_MAX {
            refused.extend(self.refuse(0));
        }
        refused
    }

    /// Drops the data of the send at index `at` of `edges`. Returns the refusal, and the endpoint that must
    /// get it.
    fn refuse(&mut self, at: usize) -> Option<(u32, Note)> {
        let (_, all) = self.edges.remove(at)?;
        self.release(&all);
        all.first().map(|&(from, note, _)| (from, Note { kind: NoteKind::Refused, ..note }))
    }

    /// Drops all data for the rank `receiver`, which may be that of an earlier process with its number.
    /// Returns for each send the refusal, and the endpoint that must get it.
    pub fn refuse_all(&mut self, receiver: u32) -> Vec<(u32, Note)> {
        let mut refused = Vec::new();
        while let Some(at) = self.edges.iter().position(|(key, _)| key.0 == receiver) {
            refused.extend(self.refuse(at));
        }
        refused
    }

    /// Removes and returns all data that waits for the send and receive that `note` is about, in the order in
    /// which the data came.
    pub fn take(&mut self, note: &Note) -> Vec<WaitingNote> {
        let at = self.edges.iter().position(|(one, _)| *one == key(note));
        let all = at.and_then(|at| self.edges.remove(at)).map_or(Vec::new(), |(_, all)| all);
        self.release(&all);
        all
    }

    /// Drops the data that waits for receives of the rank `receiver`: for those of the operation `instance`
    /// (context and sequence), or for all if `instance` is None.
    pub fn forget(&mut self, receiver: u32, instance: Option<(u64, u32)>) {
        let is_of = |key: &EdgeKey| key.0 == receiver && instance.is_none_or(|it| it == (key.1, key.2));
        while let Some(at) = self.edges.iter().position(|(key, _)| is_of(key)) {
            if let Some((_, all)) = self.edges.remove(at) {
                self.release(&all);
            }
        }
    }

    fn release(&mut self, all: &[WaitingNote]) {
        self.bytes -= all.iter().map(|(.., block)| block.span().bytes()).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_edges_make_room_and_their_servers_are_told() {
        let mut unasked = UnaskedNotes::default();
        let note =
            |edge| Note { kind: NoteKind::Data, edge, ..Note::of_instance(NoteKind::Data, 1, 2, 3, 0) };
        let block = Block::new(900);
        let refused = |unasked: &mut UnaskedNotes, from, edge| -> Vec<(u32, u32)> {
            let said = unasked.keep(from, &note(edge), block.span());
            assert!(said.iter().all(|(_, note)| note.kind == NoteKind::Refused));
            said.iter().map(|(to, note)| (*to, note.edge)).collect()
        };
        assert!((0..4).all(|edge| refused(&mut unasked, 7, edge).is_empty()));
        assert_eq!(refused(&mut unasked, 8, 4), [(7, 0)], "too many edges");
        assert_eq!(refused(&mut unasked, 8, 4), [(7, 1)], "too many bytes");
        assert!(!unasked.has(&note(0)) && !unasked.has(&note(1)) && unasked.has(&note(4)));
        assert_eq!((unasked.take(&note(4)).len(), unasked.take(&note(4)).len()), (2, 0));
        assert_eq!(unasked.bytes, 1800);
        unasked.forget(1, Some((2, 4)));
        assert!(unasked.has(&note(2)), "another instance");
        unasked.forget(1, Some((2, 3)));
        assert!((unasked.bytes, unasked.edges.len()) == (0, 0));
        // What came for a rank before it joined may be for it, so that its servers must answer questions.
        assert!((0..2).all(|edge| refused(&mut unasked, 9, edge).is_empty()));
        let said: Vec<_> =
            unasked.refuse_all(1).iter().map(|(to, note)| (*to, note.kind, note.edge)).collect();
        assert_eq!(said, [(9, NoteKind::Refused, 0), (9, NoteKind::Refused, 1)]);
        assert!((unasked.bytes, unasked.edges.len()) == (0, 0));
    }
}
