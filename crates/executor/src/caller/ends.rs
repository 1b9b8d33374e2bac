// SPDX-License-Identifier: BSD-3-Clause
//! How operations end. An operation that is locally complete (the user's buffers are free) has ended for the
//! MPI program. Its instance then retires: it stays in the rank's directory, and is driven on, until peers
//! need nothing more of it (docs/internals/edges.md).

use super::{Executor, Instance, Withdrawal};
use crate::InstanceTicket;
use crate::block::InstanceBlock;
use crate::fault::Fault;
use crate::note::NoteKind;
use crate::record::{COMPLETE, Head, LOCAL};
use error::Result;
use std::sync::atomic::Ordering;
use telemetry::Counter;

/// The most operations that may have ended for the MPI program while peers still need their instances
/// (started schedules).
const RETIRING_MAX: usize = 64;

impl Instance {
    /// Whether the rank and its proxy have both stopped driving the operation. False also while the rank
    /// waits for the proxy's answer to the withdrawal of a message.
    fn has_ended(&self) -> bool {
        let has_ended = match self.choice.is_proxy() {
            true => self.state() == COMPLETE && self.has_ended_share(),
            false => self.finished,
        };
        has_ended && self.withdrawal != Withdrawal::Asked
    }

    /// Whether this rank has driven all its own steps of an operation that it shares with its proxy. True if
    /// the rank shares no steps of the operation.
    fn has_ended_share(&self) -> bool {
        self.finished || !self.block.run.is_host_share()
    }

    /// Whether the instance (a started schedule) is locally complete: the user's buffers are free, although
    /// peers may still need bytes of it.
    fn is_local(&self) -> bool {
        self.state() == LOCAL && (!self.choice.is_proxy() || self.has_ended_share())
    }

    fn state(&self) -> u64 {
        self.block.run.record.head(Head::State).load(Ordering::Acquire)
    }
}

impl Executor {
    /// Returns the instance that has this ticket. None if the instance has ended, and the ticket is spent.
    pub(super) fn instance_of(&self, ticket: InstanceTicket) -> Option<&Instance> {
        self.outstanding.get(ticket.index as usize).filter(|instance| instance.ticket == ticket.generation)
    }

    /// Whether an operation has ended for the MPI program, so that `outcome` returns its outcome. The ticket
    /// must still be valid.
    pub fn is_over(&self, ticket: InstanceTicket) -> bool {
        let instance = self.instance_of(ticket).expect("a ticket is asked for until it is spent");
        instance.has_ended() || instance.is_local() && self.may_retire(instance)
    }

    /// Whether this instance (a started schedule) may stay in the directory after its operation has ended for
    /// the MPI program. False for a message, since a later receive can have the same key, and if too many
    /// instances stay already.
    fn may_retire(&self, instance: &Instance) -> bool {
        let bytes = self.retiring_bytes + instance.block.data_bytes();
        let has_room = self.retiring < RETIRING_MAX && bytes <= self.config.idle_bytes_max;
        !instance.block.message && (has_room || self.retiring == 0)
    }

    /// Returns the outcome of an operation, or None while it is under way. The ticket is not valid after an
    /// outcome.
    pub fn outcome(&mut self, ticket: InstanceTicket) -> Option<Result<()>> {
        if !self.is_over(ticket) {
            return None;
        }
        let index = ticket.index as usize;
        let instance = &mut self.outstanding[index];
        if let Some(started) = instance.started.take() {
            self.waits.measure(started, &mut self.programs[instance.program].habit);
        }
        if instance.has_ended() {
            return Some(self.end(index).map_or(Ok(()), |fault| Err(fault.error(self.rank.peer()))));
        }
        instance.is_retiring = true;
        self.retiring += 1;
        self.retiring_bytes += instance.block.data_bytes();
        // The ticket does not find the instance any more.
        self.tickets = self.tickets.wrapping_add(1);
        instance.ticket = self.tickets;
        Some(Ok(()))
    }

    /// Ends the retiring instances (started schedules) that the proxy has finished, even if the proxy's
    /// counter does not show that yet.
    pub(super) fn end_retired(&mut self) {
        if self.retiring == 0 {
            return;
        }
        let has_ended = |(index, instance): (usize, &Instance)| {
            (instance.is_retiring && instance.has_ended()).then_some(index)
        };
        let ended: Vec<usize> = self.outstanding.iter().filter_map(has_ended).collect();
        for index in ended {
            self.end(index);
        }
    }

    /// Ends the operation at index `index` of `outstanding`: forgets it, and frees its block (its memory) for
    /// another start. Returns why the operation failed; None if it succeeded.
    pub(super) fn end(&mut self, index: usize) -> Option<Fault> {
        let fault = self.outstanding[index].block.run.record.fault();
        let instance = self.outstanding.remove(index);
        if instance.is_retiring {
            self.retiring -= 1;
            self.retiring_bytes -= instance.block.data_bytes();
        }
        self.revoke(&instance.exported);
        let run = &instance.block.run;
        if run.has_fetches() {
            self.far.unasked.forget(self.rank.peer(), Some((run.context, run.sequence)));
        }
        if instance.is_owned {
            self.send_owned(NoteKind::OwnEnded, (run.context, run.sequence));
        }
        if instance.choice.is_proxy() {
            self.offloaded -= 1;
        } else {
            self.count(Counter::Instances, 1);
        }
        if fault.is_some() && instance.block.run.record.has_unseen_failure() {
            self.unseen_failures.push((instance.program, instance.block));
        } else {
            self.release(instance.program, instance.block);
        }
        fault
    }

    /// Removes an ended instance's record from the rank's directory, and keeps its block (its memory) for the
    /// next start of the schedule `programs[program]`. No peer may need the instance any more.
    pub(super) fn release(&mut self, program: usize, block: Box<InstanceBlock>) {
        block.run.record.unlink(&self.reach.segment.rank(self.rank).directory[..]);
        self.programs[program].running -= 1;
        self.keep_for_reuse(program, block);
    }

    /// Whether no peer needs any instance (a started schedule) of an operation that has ended for the MPI
    /// program.
    pub fn is_quiet(&self) -> bool {
        self.retiring == 0
    }

    /// Keeps an ended operation's block (its memory) for the next start of the schedule `programs[program]`.
    /// Frees the block's scratch memory if the unused blocks would hold too many bytes.
    pub(super) fn keep_for_reuse(&mut self, program: usize, mut block: Box<InstanceBlock>) {
        block.free_copies(&mut self.allocator);
        if self.idle_bytes + block.data_bytes() > self.config.idle_bytes_max {
            block.free_data(&mut self.allocator);
        }
        self.idle_bytes += block.data_bytes();
        self.programs[program].idle.push(block);
    }
}
