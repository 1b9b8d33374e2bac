// SPDX-License-Identifier: BSD-3-Clause
//! Receives from a rank of this host: finds the send in the sender's record, copies the bytes that it has
//! published, and stores `done` for the receive and the send.

use super::{Execution, SendSource, StepProgress, UNCLEAR_MAX};
use crate::fault::{Corruption, Fault};
use crate::memory::{Reach, Region, Stop};
use crate::record::{self, ASKS, COMPLETE, Field, Head, IN_ARENA, InstanceRecord, Lookup, MESSAGE};
use schedule::Blocks;
use std::sync::atomic::{Ordering, fence};
use transport::shm::LocalRank;

impl Execution {
    pub(super) fn recv(
        &mut self,
        step: u32,
        peer: LocalRank,
        edge: u32,
        into: Blocks,
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        if self.states[step as usize].source.is_none() {
            if self.record.is_withdrawn() {
                return self.end_withdrawn(step, reach);
            }
            if !self.seek_send(step, peer, edge, reach)? {
                return Ok(StepProgress::Idle);
            }
        }
        let (limit, all) = self.limit(step);
        let spot = self.buffers.spots[step as usize];
        let start = self.states[step as usize].done;
        let Some(source) = &mut self.states[step as usize].source else { return Ok(StepProgress::Idle) };
        // This comes before the look at `published`, which counts the bytes in the arena.
        let waits = source.asked && !source.is_staged(peer, reach)?;
        let (have, is_whole) = source.record.published(source.step, source.bytes, peer.peer())?;
        if waits {
            return Ok(StepProgress::Idle);
        }
        let end = have.min(limit).min(start + reach.chunk_bytes).max(start);
        let complete = end == source.bytes.min(spot.bytes) && is_whole && all;
        if end == start && !complete {
            return Ok(StepProgress::Idle);
        }
        let mut at = start;
        while at < end {
            let (region, offset, here) = self.buffers.region(into.buffer, spot.at[0] + at)?;
            let bytes = here.min(end - at);
            match reach.copy((&source.region, at), (region, offset), bytes) {
                Err(fault) if fault.refuses(peer.peer()) => {
                    source.asked = true;
                    let word = source.record.step(source.step, Field::Done);
                    word.store(start | ASKS, Ordering::Release);
                    reach.fault_point()?;
                    reach.mark_unread(self.rank, peer);
                    reach.wake(peer);
                    return Ok(StepProgress::Moved);
                }
                copied => copied?,
            }
            at += bytes;
        }
        reach.fault_point()?;
        if complete {
            // A sender that has given up in the meantime may have changed the bytes.
            fence(Ordering::Acquire);
            source.record.published(source.step, source.bytes, peer.peer())?;
        }
        if complete && source.bytes > spot.bytes {
            let peer = peer.peer();
            self.record.set_fault(Fault::Truncated { peer, sent: source.bytes, expected: spot.bytes });
        }
        let word = end | if complete { COMPLETE } else { 0 };
        self.record.step(step, Field::Done).store(word, Ordering::Release);
        reach.fault_point()?;
        source.record.step(source.step, Field::Done).store(word, Ordering::Release);
        reach.fault_point()?;
        self.states[step as usize].done = end;
        reach.wake(peer);
        Ok(if complete { StepProgress::Finished } else { StepProgress::Moved })
    }

    /// Ends a receive that the rank has withdrawn. The sender's record stays as it is: another receive may
    /// take the message.
    pub(super) fn end_withdrawn(&mut self, step: u32, reach: &Reach) -> Result<StepProgress, Stop> {
        self.record.step(step, Field::Done).store(COMPLETE, Ordering::Release);
        reach.fault_point()?;
        Ok(StepProgress::Finished)
    }

    /// Finds the send that belongs to a receive. Returns false if the sender has not started the operation
    /// yet, or this rank has withdrawn the receive.
    fn seek_send(&mut self, step: u32, peer: LocalRank, edge: u32, reach: &Reach) -> Result<bool, Stop> {
        let Some((record, _)) = self.find(step, peer, reach)? else { return Ok(false) };
        let theirs = self.edge_step(step, &record, edge, reach)?;
        let total = record.step(theirs, Field::Total).load(Ordering::Acquire);
        let (total, is_message) = (total & !MESSAGE, total & MESSAGE != 0);
        let address = record.step(theirs, Field::Address).load(Ordering::Acquire);
        let expected = self.buffers.spots[step as usize].bytes;
        let region = reach.region_of_send(peer, address, total);
        if is_message && !reach.claim(self.rank, &self.record) {
            return Ok(false);
        }
        reach.clear_unmapped(self.rank, peer);
        let (found, fault) =
            region.map_or_else(|fault| (Region::NOTHING, Some(fault)), |found| (found, None));
        self.states[step as usize].source =
            Some(SendSource { record, step: theirs, region: found, bytes: total, asked: false });
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        if total != expected && !is_message {
            return Err(Fault::Truncated { peer: peer.peer(), sent: total, expected }.into());
        }
        Ok(true)
    }

    /// Finds the sender's instance. Returns its record and the record's stamp. None if the sender has not
    /// started, or the sender's directory changed while it was read.
    fn find(
        &mut self,
        step: u32,
        peer: LocalRank,
        reach: &Reach,
    ) -> Result<Option<(InstanceRecord, u64)>, Stop> {
        let directory = &reach.segment.rank(peer).directory[..];
        let found = record::find(directory, reach.arena(peer)?, reach.me(), self.context, self.sequence);
        let unclear = &mut self.states[step as usize].unclear;
        match found {
            Ok(Lookup::Here(record, stamp)) => return Ok(Some((record, stamp))),
            Ok(Lookup::Absent) => *unclear = 0,
            Err(fault @ Fault::Unmapped { .. }) => return Err(fault.into()),
            // A stale link may lead anywhere; only one that stays wrong is corrupt.
            Ok(Lookup::Unclear) | Err(_) => *unclear += 1,
        }
        if *unclear > UNCLEAR_MAX {
            let chain = Fault::Corrupt { peer: peer.peer(), what: Corruption::Chain };
            return Err(found.err().unwrap_or(chain).into());
        }
        Ok(None)
    }

    fn edge_step(
        &mut self,
        step: u32,
        record: &InstanceRecord,
        edge: u32,
        reach: &Reach,
    ) -> Result<u32, Fault> {
        let program = record.head(Head::Program).load(Ordering::Acquire);
        let hint = &mut self.hints[step as usize];
        if hint.0 != program || program == 0 || u64::from(hint.1) >= u64::from(record.steps()) {
            *hint = (program, record::find_send(record, reach.me(), self.plan.schedule.rank, edge)?);
        }
        Ok(hint.1)
    }

    /// Stores the end of a finished receive in the sender's record, since the driver that should have stored
    /// it may have died before. If the sender's instance has ended, the sender knows already.
    pub(super) fn settle(
        &mut self,
        step: u32,
        peer: LocalRank,
        edge: u32,
        reach: &Reach,
    ) -> Result<StepProgress, Stop> {
        if self.record.is_withdrawn() {
            return Ok(StepProgress::Finished);
        }
        let before = self.states[step as usize].unclear;
        let Some((record, stamp)) = self.find(step, peer, reach)? else {
            let absent = self.states[step as usize].unclear <= before;
            return Ok(if absent { StepProgress::Finished } else { StepProgress::Idle });
        };
        let Ok(theirs) = self.edge_step(step, &record, edge, reach) else {
            return Ok(StepProgress::Idle);
        };
        let word = record.step(theirs, Field::Done);
        let done = word.load(Ordering::Acquire);
        if record.head(Head::Stamp).load(Ordering::Acquire) != stamp {
            return Ok(StepProgress::Idle);
        }
        if done & COMPLETE == 0 {
            word.store(self.buffers.spots[step as usize].bytes | COMPLETE, Ordering::Release);
            reach.fault_point()?;
            reach.wake(peer);
        }
        Ok(StepProgress::Finished)
    }
}

impl SendSource {
    /// Whether the sender has copied the bytes of its send to its arena, since the receiver could not read
    /// them elsewhere.
    fn is_staged(&mut self, peer: LocalRank, reach: &Reach) -> Result<bool, Fault> {
        let address = self.record.step(self.step, Field::Address).load(Ordering::Acquire);
        self.asked = address & IN_ARENA == 0;
        self.region = reach.region_of_send(peer, address, self.bytes)?;
        Ok(!self.asked)
    }
}
