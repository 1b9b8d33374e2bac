// SPDX-License-Identifier: BSD-3-Clause
//! What a rank does for a proxy on another computer (`imported.rs`). To give the proxy an instance, the rank
//! exports the instance's memory, and sends the proxy a note (a fixed-size message). A proxy on the same host
//! would get the offset of the instance's record by a ring.
//!
//! Invariant: once the rank drives an instance on by itself, no key gives the proxy access to its memory.

use super::{Executor, Instance, Withdrawal};
use crate::InstanceTicket;
use crate::block::InstanceBlock;
use crate::imported::{EXTENTS_MAX, Export, RANGES_MAX, RemoteProxy, join_words};
use crate::note::{Note, NoteKind};
use crate::record::Field;
use crate::remote_edges::InstanceNote;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use transport::export::ExportedRange;

impl Instance {
    /// Tells the proxy on another computer which steps of the rank's share have ended, so that the proxy can
    /// start the steps that depend on them.
    pub(super) fn send_steps(&mut self, proxy: u32, notes: &mut VecDeque<InstanceNote>) {
        let run = &mut self.block.run;
        while let Some(step) = run.next_ended() {
            let total = run.record.step(step, Field::Done).load(Ordering::Relaxed);
            let note = Note::of_instance(
                NoteKind::Step,
                run.rank.peer(),
                run.context,
                run.sequence,
                run.record.at(),
            );
            let (edge, words) = match run.record.fault() {
                Some(fault) => (1, fault.words().to_vec()),
                None => (0, run.short_scratch(step)),
            };
            notes.push_back((proxy, Note { step, total, edge, ..note }, words));
        }
    }
}

impl Executor {
    /// Announces this rank to its proxy on another computer, and keeps `exporter`, by which the rank exports
    /// its memory. The caller then calls `exchange` until `is_welcome` returns true.
    pub fn join_remote_proxy(&mut self, mut exporter: Box<dyn Export>) {
        let segment = &self.reach.segment;
        let Some(proxy) = segment.proxy_of(self.rank) else { return };
        let Some(heartbeat) = exporter.export(segment.heartbeat(proxy)) else { return };
        let words = join_words(exporter.name(), &heartbeat);
        let endpoint = segment.proxy_endpoint(proxy);
        self.send_note(endpoint, NoteKind::Join, (0, 0), 0, words);
        self.remote_proxy = Some(RemoteProxy { exporter, endpoint, is_welcome: false });
    }

    /// Whether the rank need not wait for an answer to `join_remote_proxy`: its proxy on another computer has
    /// answered or has ended, or the rank has no such proxy.
    pub fn is_welcome(&self) -> bool {
        let segment = &self.reach.segment;
        self.remote_proxy.as_ref().is_none_or(|remote| remote.is_welcome || segment.is_gone(remote.endpoint))
    }

    /// Tells this rank's proxy on another computer that the rank's process is about to end. The rank then
    /// calls `exchange` until `has_parted` returns true.
    pub fn part_from_remote_proxy(&mut self) {
        if let Some(proxy) = self.remote_proxy.as_ref().map(|remote| remote.endpoint) {
            self.send_note(proxy, NoteKind::Part, (0, 0), 0, Vec::new());
        }
    }

    /// Whether no proxy on another computer uses this rank's memory: it has answered
    /// `part_from_remote_proxy` or has ended, or the rank has no such proxy.
    pub fn has_parted(&self) -> bool {
        let segment = &self.reach.segment;
        self.remote_proxy.as_ref().is_none_or(|remote| segment.is_gone(remote.endpoint))
    }

    /// Whether a note (a fixed-size message) to the rank's proxy on another computer waits to be sent. The
    /// rank must send it before it returns to the MPI program.
    #[inline]
    pub fn has_urgent_notes(&self) -> bool {
        self.remote_proxy.is_some() && self.far.has_urgent_notes()
    }

    /// Gives an operation to a proxy on another computer: exports the operation's memory and sends a note (a
    /// message). Returns the exported ranges, or None if some memory cannot be exported.
    pub(super) fn submit_exported(
        &mut self,
        program: usize,
        block: &InstanceBlock,
    ) -> Option<Vec<ExportedRange>> {
        let remote = self.remote_proxy.as_mut()?;
        let program = &self.programs[program];
        let spans = program.spans(block, self.allocator.arena());
        let extents = self.allocator.arena().extents();
        let fits = spans.len() <= RANGES_MAX && extents.len() <= EXTENTS_MAX;
        let mut ranges = Vec::with_capacity(spans.len());
        for (address, span) in spans {
            match remote.exporter.export(span).filter(|_| fits) {
                Some(range) => ranges.push(ExportedRange { address, ..range }),
                None => {
                    ranges.iter().for_each(|range| remote.exporter.revoke(range));
                    return None;
                }
            }
        }
        let words = program.submission(block, extents, ranges.clone()).words();
        let proxy = remote.endpoint;
        self.send_note(
            proxy,
            NoteKind::Submit,
            (block.run.context, block.run.sequence),
            block.run.record.at(),
            words,
        );
        Some(ranges)
    }

    /// Tells a proxy on another computer that this rank drives the operation (context, sequence) by itself
    /// (`NoteKind::Own`), or that such an operation has ended (`OwnEnded`).
    pub(super) fn send_owned(&mut self, kind: NoteKind, instance: (u64, u32)) {
        if let Some(proxy) = self.remote_proxy.as_ref().map(|remote| remote.endpoint) {
            self.send_note(proxy, kind, instance, 0, Vec::new());
        }
    }

    /// Whether a proxy on another computer drives the operation of this ticket.
    pub(super) fn is_exported(&self, ticket: InstanceTicket) -> bool {
        let instance = self.outstanding.get(ticket.index as usize);
        self.remote_proxy.is_some()
            && instance.is_some_and(|it| it.ticket == ticket.generation && it.choice.is_proxy())
    }

    /// Asks a proxy on another computer to withdraw the receive of a message, unless the rank has asked
    /// before. Stores `withdrawal` in the rank's instance of that message.
    pub(super) fn send_withdrawn(&mut self, ticket: InstanceTicket, withdrawal: Withdrawal) {
        let Some(proxy) = self.remote_proxy.as_ref().map(|remote| remote.endpoint) else { return };
        let instance = &mut self.outstanding[ticket.index as usize];
        let run = &instance.block.run;
        let (context, sequence, at) = (run.context, run.sequence, run.record.at());
        if std::mem::replace(&mut instance.withdrawal, withdrawal) == Withdrawal::None {
            self.send_note(proxy, NoteKind::Withdraw, (context, sequence), at, Vec::new());
        }
    }

    /// Takes back the access that a proxy on another computer has to these ranges of memory.
    pub(super) fn revoke(&mut self, ranges: &[ExportedRange]) {
        if let Some(remote) = &mut self.remote_proxy {
            ranges.iter().for_each(|range| remote.exporter.revoke(range));
        }
    }

    /// Cuts off the proxy, which has ended or counts as dead. It can access this rank's memory no more, and
    /// other hosts ask the rank itself for bytes.
    pub fn fence(&mut self) {
        if let Some(mut remote) = self.remote_proxy.take() {
            remote.exporter.close();
            self.reach.segment.set_endpoint(remote.endpoint, &[]);
        }
    }

    /// Acts on the notes (messages) that have come from the proxy on another computer. `Welcome`: the rank
    /// has joined. `Parted`: the proxy uses this rank's memory no more.
    pub(super) fn take_proxy_notes(&mut self) {
        while let Some((from, note, _)) = self.far.notes_in.pop_front() {
            match (&mut self.remote_proxy, note.kind) {
                (Some(remote), NoteKind::Welcome) if from == remote.endpoint => remote.is_welcome = true,
                (Some(remote), NoteKind::Parted) if from == remote.endpoint => self.remote_proxy = None,
                _ => telemetry::count(telemetry::Counter::NetRefused, 1),
            }
        }
    }

    fn send_note(&mut self, to: u32, kind: NoteKind, instance: (u64, u32), at: u64, words: Vec<u64>) {
        let note = Note::of_instance(kind, self.rank.peer(), instance.0, instance.1, at);
        self.far.notes_out.push_back((to, note, words));
    }
}
