// SPDX-License-Identifier: BSD-3-Clause
//! A proxy on another computer than its ranks: acts on the ranks' notes, and keeps a copy (a mirror) of each
//! instance's record.

use super::{Proxy, WORDS_MAX};
use crate::engine::Execution;
use crate::fault::{Corruption, Fault};
use crate::imported::{self, Submission};
use crate::memory::Stop;
use crate::note::{Note, NoteKind};
use crate::record::{self, Head, RETURNED};
use std::sync::atomic::Ordering;
use transport::shm::{LocalRank, State};

impl Proxy {
    /// Does what a note (a message) of a rank on another computer asks for. Returns None if the note is
    /// invalid, or that rank may not ask for it.
    pub(super) fn take_rank_note(&mut self, from: u32, note: &Note, words: &[u64]) -> Option<()> {
        let Proxy { reach, far, .. } = self;
        let imported = reach.imported.as_ref()?;
        let rank =
            reach.segment.local(from).filter(|rank| reach.segment.proxy_of(*rank) == Some(self.index))?;
        if note.sender != from {
            return None;
        }
        let key = (from, note.context, note.sequence);
        match note.kind {
            NoteKind::Join => {
                let (name, heartbeat) = imported::read_join(words)?;
                if !imported.add_rank(rank, &name, heartbeat) {
                    return None;
                }
                self.renew(rank, State::Running, NoteKind::Welcome);
            }
            NoteKind::Part => {
                imported.remove_rank(rank);
                self.renew(rank, State::Finalized, NoteKind::Parted);
            }
            NoteKind::Submit => {
                let submission = Submission::read(words)?;
                if !imported.add_instance(rank, note.offset, &submission) {
                    return None;
                }
                if let Err(fault) = self.mirror(rank, note, &submission) {
                    self.end_exported(rank, note.offset, key, RETURNED);
                    return matches!(fault, Fault::Unreachable { .. }).then_some(());
                }
                match self.adopt(rank, note.offset) {
                    Ok(run) => self.runs.push(run),
                    Err(_) => self.end_exported(rank, note.offset, key, RETURNED),
                }
            }
            NoteKind::Step => {
                let is_it = |run: &&mut Execution| run.rank == rank && run.is_of(note);
                // The instance may have been returned in the meantime.
                let Some(run) = self.runs.iter_mut().find(is_it) else { return Some(()) };
                let words = match note.edge {
                    0 => words,
                    _ => {
                        run.record.set_fault(Fault::from_words(words.try_into().ok()?)?);
                        &[]
                    }
                };
                match run.step_ended(note.step, note.total, words, &self.reach) {
                    Ok(()) | Err(Stop::Fault(Fault::Unreachable { .. })) => {}
                    Err(Stop::Fault(_)) => return None,
                    #[cfg(test)]
                    Err(Stop::Died) => self.dead = true,
                }
            }
            NoteKind::Withdraw => {
                // Only messages have one step.
                let is_it = |run: &&mut Execution| run.rank == rank && run.is_of(note) && run.steps() == 1;
                // An instance that has ended or was returned reports that by its state.
                if let Some(run) = self.runs.iter_mut().find(is_it) {
                    run.withdraw(reach);
                    imported.announce(rank);
                }
            }
            NoteKind::Own => drop(far.server.owned.insert(key)),
            NoteKind::OwnEnded => drop(far.server.owned.remove(&key)),
            _ => return None,
        }
        Some(())
    }

    /// Forgets what a rank has started, sets its state, and answers it by a note of kind `answer`.
    fn renew(&mut self, rank: LocalRank, state: State, answer: NoteKind) {
        self.forget(rank);
        self.reach.segment.rank(rank).set_state(state);
        let note = Note::of_instance(answer, rank.peer(), 0, 0, 0);
        self.far.notes_out.push_back((rank.peer(), note, Vec::new()));
    }

    /// Forgets a rank's operations and schedules. Peers may have sent it bytes before it has joined, and
    /// earlier ones may have sent some to an earlier process with its number: they are to send them again if
    /// it asks.
    fn forget(&mut self, rank: LocalRank) {
        self.runs.retain(|run| run.rank != rank);
        self.idle.retain(|&(owner, _), _| owner != rank);
        self.plans.retain(|&(owner, _), _| owner != rank);
        self.far.server.owned.retain(|(owner, ..)| *owner != rank.peer());
        let refused = self.far.unasked.refuse_all(rank.peer());
        self.far.outbox.extend(refused);
        self.reach.segment.rank(rank).directory.iter().for_each(|head| head.store(0, Ordering::Relaxed));
    }

    /// Makes the proxy's copy of an operation's record equal to the rank's record. Fetches the schedule and
    /// the parameters if they are new.
    fn mirror(
        &mut self,
        rank: LocalRank,
        note: &Note,
        submission: &Submission,
    ) -> std::result::Result<(), Fault> {
        let corrupt = |what| Fault::Corrupt { peer: rank.peer(), what };
        let Submission { stamp, program, version, steps, .. } = *submission;
        let arena = self.reach.arena(rank)?.clone();
        let at = note.offset;
        if !arena.mirror_extents(&submission.extents) {
            return Err(corrupt(Corruption::Offset));
        }
        let record = self.reach.record(&arena, at, steps)?;
        let Some(imported) = &self.reach.imported else { return Err(corrupt(Corruption::Offset)) };
        let head = |which: Head| record.head(which).load(Ordering::Relaxed);
        let is_here = self.idle.contains_key(&(rank, at))
            && (head(Head::Program), head(Head::ParametersVersion)) == (program, version);
        if !is_here {
            imported.pull(rank, &arena, at, record::record_bytes(steps as usize))?;
            let said = (head(Head::Program), head(Head::ParametersVersion), head(Head::Steps));
            if said != (program, version, steps.into()) {
                return Err(corrupt(Corruption::Program));
            }
            let pull = |at: Head, words: u64| match words <= WORDS_MAX {
                true => imported.pull(rank, &arena, head(at), 8 * words),
                false => Err(corrupt(Corruption::Program)),
            };
            if !self.plans.contains_key(&(rank, program)) {
                pull(Head::ProgramAt, head(Head::ProgramWords))?;
                pull(Head::SendsAt, head(Head::SendCount).saturating_mul(2))?;
            }
            pull(Head::ParametersAt, head(Head::ParametersWords))?;
        }
        record.reset();
        record.head(Head::Driver).store(1 + u64::from(self.index), Ordering::Relaxed);
        record.link(&self.reach.segment.rank(rank).directory[..], stamp, note.context);
        Ok(())
    }

    /// Ends the operation `key` (rank, context, sequence) of a rank on another computer, and writes `state`
    /// to the rank: the operation is complete, or goes back to the rank. After that the proxy uses neither
    /// the record nor the buffers.
    pub(super) fn end_exported(&mut self, rank: LocalRank, at: u64, key: (u32, u64, u32), state: u64) {
        let Some(imported) = &self.reach.imported else { return };
        let arena = match self.reach.arena(rank) {
            Ok(arena) => arena,
            Err(fault) => {
                self.failed = Some(fault.error(rank.peer()));
                return;
            }
        };
        let directory = &self.reach.segment.rank(rank).directory[..];
        let written = match record::find(directory, arena, self.reach.me(), key.1, key.2) {
            Ok(record::Lookup::Here(record, _)) if record.at() == at => {
                record.unlink(directory);
                imported.write_report(rank, &record)
            }
            _ => Ok(()),
        };
        if state == RETURNED {
            self.far.server.owned.insert(key);
        }
        imported.finish_reads(rank, at);
        // If a write fails, the rank does not need it any more.
        if written.is_ok() && imported.write_state(rank, at, state).is_ok() {
            imported.announce(rank);
        }
        imported.remove_instance(rank, at);
    }
}
