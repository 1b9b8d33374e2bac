// SPDX-License-Identifier: BSD-3-Clause
//! A schedule (a collective's plan of steps) ready to be driven: checked, with lists of which step waits for
//! which, and with the table in which peers find its sends.
//!
//! A rank writes its schedule into its arena once, encoded as words (the *program*), and a proxy reads these
//! words. The proxy trusts none of them: the engine drives a schedule without further checks, but only one
//! that has passed `Schedule::check`.

use error::{Class, Result, fail};
use schedule::{Action, Blocks, BufferId, Schedule};
use std::sync::Arc;

/// A step that sends or receives, with the key by which its edge (a send and its receive) is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeStep {
    /// The key of the edge. The high half is the rank at its other end, numbered in the schedule's comm. The
    /// low half is the number that tells the edges with that rank apart.
    pub key: u64,
    /// The index of the step in the schedule.
    pub step: u32,
}

impl EdgeStep {
    /// Returns the key of an edge (a send and its receive): the rank at its other end, and its number.
    pub fn key(peer: u32, edge: u32) -> u64 {
        u64::from(peer) << 32 | u64::from(edge)
    }
}

/// A checked schedule, with the tables that the engine needs to drive it.
#[derive(Debug)]
pub struct CheckedSchedule {
    /// The schedule, which has passed `Schedule::check`.
    pub schedule: Arc<Schedule>,
    /// For each step, the number of other steps that must finish before it may start. A step whose bytes it
    /// may use while they still arrive does not count.
    pub waits: Vec<u32>,
    /// All steps that send, sorted by receiver, then by the edge's number. The rank writes this table into
    /// its arena, where peers search it.
    pub sends: Vec<EdgeStep>,
    /// All steps that receive, sorted by sender, then by the edge's number.
    receives: Vec<EdgeStep>,
    /// Whether the schedule has a `Reduce` step, and so needs an operator.
    pub reduces: bool,
    /// Whether any step writes the user's output buffer. If not, the steps only read it.
    pub writes_output: bool,
    followers: Vec<u32>,
    followers_from: Vec<u32>,
    streams: Vec<u32>,
    streams_from: Vec<u32>,
}

impl CheckedSchedule {
    /// Checks a schedule and makes the tables for the engine. Errors (class `Intern`) say what is wrong with
    /// the schedule.
    pub fn new(schedule: Arc<Schedule>) -> Result<CheckedSchedule> {
        if let Err(wrong) = schedule.check() {
            fail!(Class::Intern, "a schedule for rank {} of {}: {wrong}", schedule.rank, schedule.size);
        }
        let count = schedule.steps.len();
        let mut waits = vec![0u32; count];
        let mut followers_from = vec![0u32; count + 1];
        let (mut streams, mut streams_from) = (Vec::new(), vec![0u32]);
        for (index, step) in schedule.steps.iter().enumerate() {
            for after in schedule.after_of(step) {
                if after.streaming {
                    streams.push(after.step);
                } else {
                    waits[index] += 1;
                    followers_from[after.step as usize + 1] += 1;
                }
            }
            streams_from.push(streams.len() as u32);
        }
        for index in 0..count {
            followers_from[index + 1] += followers_from[index];
        }
        let mut followers = vec![0u32; followers_from[count] as usize];
        let mut at = followers_from.clone();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        let (mut reduces, mut writes_output) = (false, false);
        for (index, step) in schedule.steps.iter().enumerate() {
            for after in schedule.after_of(step).iter().filter(|after| !after.streaming) {
                followers[at[after.step as usize] as usize] = index as u32;
                at[after.step as usize] += 1;
            }
            writes_output |= written(&step.action).is_some_and(|(_, into)| into.buffer == BufferId::Output);
            match step.action {
                Action::Send { to, edge, .. } => {
                    sends.push(EdgeStep { key: EdgeStep::key(to, edge), step: index as u32 })
                }
                Action::Recv { from, edge, .. } => {
                    receives.push(EdgeStep { key: EdgeStep::key(from, edge), step: index as u32 })
                }
                Action::Reduce { .. } => reduces = true,
                Action::Copy { .. } => {}
            }
        }
        sends.sort_unstable();
        receives.sort_unstable();
        if let Some(pair) = sends.windows(2).find(|pair| pair[0].key == pair[1].key) {
            let (to, edge) = (pair[0].key >> 32, pair[0].key as u32);
            fail!(Class::Intern, "two sends of one schedule go to rank {to} with edge {edge}");
        }
        Ok(CheckedSchedule {
            schedule,
            waits,
            sends,
            receives,
            reduces,
            writes_output,
            followers,
            followers_from,
            streams,
            streams_from,
        })
    }

    /// Returns the step that receives from rank `from` of the schedule's comm with the edge number `edge`.
    /// None if there is no such step.
    pub fn receive_of(&self, from: u32, edge: u32) -> Option<u32> {
        let key = EdgeStep::key(from, edge);
        let at = self.receives.binary_search_by_key(&key, |receive| receive.key).ok()?;
        Some(self.receives[at].step)
    }

    /// Returns the steps that may not start before all of `step` is finished.
    pub fn followers(&self, step: u32) -> &[u32] {
        let index = step as usize;
        &self.followers[self.followers_from[index] as usize..self.followers_from[index + 1] as usize]
    }

    /// Returns the steps that `step` follows while they run: `step` may process its first n bytes once each
    /// of them has finished n bytes.
    pub fn streams(&self, step: u32) -> &[u32] {
        let index = step as usize;
        &self.streams[self.streams_from[index] as usize..self.streams_from[index + 1] as usize]
    }
}

/// Returns the index, among the operands of a step's action, of the blocks that the action writes, and these
/// blocks. None for a send, which writes no blocks.
pub fn written(action: &Action) -> Option<(usize, Blocks)> {
    match *action {
        Action::Send { .. } => None,
        Action::Recv { into, .. } => Some((0, into)),
        Action::Copy { into, .. } => Some((1, into)),
        Action::Reduce { into, .. } => Some((2, into)),
    }
}

/// Returns the blocks that a step's action reads or writes: for a reduction `left`, `right` and `into`, in
/// this order; for a copy `from` and `into`. A send or receive has only the first element.
pub fn operands(action: &Action) -> [Option<Blocks>; 3] {
    match *action {
        Action::Send { from, .. } => [Some(from), None, None],
        Action::Recv { into, .. } => [Some(into), None, None],
        Action::Copy { from, into } => [Some(from), Some(into), None],
        Action::Reduce { left, right, into } => [Some(left), Some(right), Some(into)],
    }
}

pub(crate) fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) fn low(word: u64) -> u32 {
    word as u32
}
