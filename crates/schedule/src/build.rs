// SPDX-License-Identifier: BSD-3-Clause
//! How an algorithm writes a schedule: one call for each step, in an order in which one process could carry
//! them out.
//!
//! The builder finds out for which steps each step waits, from the blocks that earlier steps read and wrote.
//! A step that reads exactly the blocks that an earlier step writes follows it byte by byte. A step that
//! overwrites blocks waits for the whole of each step that reads them, since a step that is run again reads
//! these bytes again. An algorithm states any further order by `send_after` and `recv_after`. The k-th send
//! to a peer and the peer's k-th receive from this rank are edge k.
//!
//! MPI_IN_PLACE is an `Alias`: each byte gets one name, a copy onto itself is left out, and a reduction onto
//! an operand goes through scratch memory.
use crate::random::Mix;
use crate::{Action, After, Blocks, BufferId, Partition, Schedule, Scratch, Step};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// For each peer, the number of the next edge (a send and its receive) with it.
type Edges = HashMap<u32, u32, BuildHasherDefault<Mix>>;

/// Names a step of the schedule, so that later steps can wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(Option<u32>);

impl Token {
    /// A token that names no step. A step that is to wait for it waits for nothing.
    pub const NOTHING: Token = Token(None);
}

/// How the user's input and output buffers overlap, as with MPI_IN_PLACE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// The user's input and output buffers have no bytes in common.
    None,
    /// The user's input and output buffers are the same memory, cut into the same blocks. Schedules name it
    /// `Output`.
    Same,
    /// The buffer `Input` is the block of `Output` with this number. Schedules name only `Output`.
    InputIsOutputBlock(u32),
    /// The buffer `Output` is the block of `Input` with this number. Schedules name only `Input`.
    OutputIsInputBlock(u32),
    /// The buffer `Output` begins where `Input` begins and covers an unknown part of it (MPI_Reduce_scatter).
    /// Schedules name both.
    Overlap,
}

/// A schedule to which an algorithm is adding steps.
#[derive(Debug)]
pub struct Builder {
    plan: Schedule,
    alias: Alias,
    /// For each buffer, which steps have read and written its blocks last. The buffers are the input, the
    /// output, then the scratch buffers.
    touched: Vec<Touched>,
    sent: Edges,
    received: Edges,
    /// The steps for which the step that is being built must wait.
    waits: Vec<After>,
}

impl Builder {
    /// Starts a schedule for `rank` of `size` ranks. The user's buffers are cut into `input_blocks` and
    /// `output_blocks` blocks; 0 if the schedule does not use the buffer.
    pub fn new(rank: u32, size: u32, input_blocks: u32, output_blocks: u32) -> Builder {
        let (scratch, steps, after) = (Vec::new(), Vec::new(), Vec::new());
        Builder {
            plan: Schedule { rank, size, input_blocks, output_blocks, scratch, steps, after },
            alias: Alias::None,
            touched: vec![Touched::default(), Touched::default()],
            sent: Edges::default(),
            received: Edges::default(),
            waits: Vec::new(),
        }
    }

    /// States how the user's two buffers overlap. This must come before any step and any scratch buffer.
    pub fn alias(mut self, alias: Alias) -> Builder {
        assert!(self.plan.steps.is_empty() && self.plan.scratch.is_empty(), "alias comes first");
        self.alias = alias;
        self
    }

    /// Adds a scratch buffer of `blocks` blocks, and returns the buffer's name. Its blocks are as long as the
    /// blocks of the user's buffer `like` from `first` on; after the last block of `like`, its first follows.
    pub fn scratch(&mut self, like: BufferId, first: u32, blocks: u32) -> BufferId {
        let like = self.named(like.block(first));
        let partition = match like.buffer {
            BufferId::Input => Partition::Input,
            BufferId::Output => Partition::Output,
            BufferId::Scratch(_) => panic!("scratch is like a user buffer"),
        };
        let index = u8::try_from(self.plan.scratch.len()).expect("a plan has at most 256 scratch buffers");
        self.plan.scratch.push(Scratch { like: partition, first: like.first, blocks });
        self.touched.push(Touched::default());
        BufferId::Scratch(index)
    }

    /// Adds a step that sends the blocks `from` to rank `to`. Returns a token by which later steps can wait
    /// for it.
    pub fn send(&mut self, to: u32, from: Blocks) -> Token {
        self.send_after(to, from, &[])
    }

    /// Adds a step that sends the blocks `from` to rank `to`, but not before the steps in `after` are
    /// finished. Returns a token for the new step.
    pub fn send_after(&mut self, to: u32, from: Blocks, after: &[Token]) -> Token {
        let from = self.named(from);
        self.wait(after);
        self.touch(from, false);
        let edge = next(&mut self.sent, to);
        self.push(Action::Send { to, edge, from })
    }

    /// Adds a step that receives the blocks `into` from rank `from`. Returns a token by which later steps can
    /// wait for it.
    pub fn recv(&mut self, from: u32, into: Blocks) -> Token {
        self.recv_after(from, into, &[])
    }

    /// Adds a step that receives the blocks `into` from rank `from`, but not before the steps in `after` are
    /// finished. Returns a token for the new step.
    pub fn recv_after(&mut self, from: u32, into: Blocks, after: &[Token]) -> Token {
        let into = self.named(into);
        self.wait(after);
        self.touch(into, true);
        let edge = next(&mut self.received, from);
        self.push(Action::Recv { from, edge, into })
    }

    /// Adds a step that copies blocks, and returns a token for it. Adds no step, and returns
    /// `Token::NOTHING`, if source and target are the same memory.
    pub fn copy(&mut self, from: Blocks, into: Blocks) -> Token {
        let (from, into) = (self.named(from), self.named(into));
        if from == into || from.count == 0 {
            return Token::NOTHING;
        }
        self.touch(from, false);
        self.touch(into, true);
        self.push(Action::Copy { from, into })
    }

    /// Adds a step that computes `into = left op right`. If `into` is an operand, the result goes through
    /// scratch memory, so that the step can be run again. Returns a token for the last step added.
    pub fn reduce(&mut self, left: Blocks, right: Blocks, into: Blocks) -> Token {
        let (left, right, into) = (self.named(left), self.named(right), self.named(into));
        if self.overlap(into, left) || self.overlap(into, right) {
            let aside = self.scratch(into.buffer, into.first, into.count).blocks(0, into.count);
            self.reduce(left, right, aside);
            return self.copy(aside, into);
        }
        self.touch(left, false);
        self.touch(right, false);
        self.touch(into, true);
        self.push(Action::Reduce { left, right, into })
    }

    /// Returns the finished schedule. Each scratch buffer then ends with the last block that a step uses.
    pub fn finish(mut self) -> Schedule {
        match self.alias {
            Alias::Same | Alias::InputIsOutputBlock(_) => self.plan.input_blocks = 0,
            Alias::OutputIsInputBlock(_) => self.plan.output_blocks = 0,
            Alias::None | Alias::Overlap => {}
        }
        for (scratch, touched) in self.plan.scratch.iter_mut().zip(&self.touched[2..]) {
            scratch.blocks = touched.0.last_key_value().map_or(0, |(_, range)| range.end);
        }
        self.plan
    }

    /// Returns the name that schedules use for these blocks, where MPI_IN_PLACE gives the same memory two
    /// names.
    fn named(&self, blocks: Blocks) -> Blocks {
        match (self.alias, blocks.buffer) {
            (Alias::Same, BufferId::Input) => Blocks { buffer: BufferId::Output, ..blocks },
            (Alias::InputIsOutputBlock(block), BufferId::Input) => {
                BufferId::Output.blocks(block, blocks.count)
            }
            (Alias::OutputIsInputBlock(block), BufferId::Output) => {
                BufferId::Input.blocks(block, blocks.count)
            }
            _ => blocks,
        }
    }

    /// Returns where in `touched` these blocks are: the index of their buffer, the first block, and the block
    /// after the last.
    fn range_of(&self, blocks: Blocks) -> (usize, u32, u32) {
        match (self.alias, blocks.buffer) {
            (Alias::Overlap, BufferId::Output) => (0, 0, self.plan.input_blocks),
            (_, BufferId::Input) => (0, blocks.first, blocks.end()),
            (_, BufferId::Output) => (1, blocks.first, blocks.end()),
            (_, BufferId::Scratch(index)) => (2 + index as usize, blocks.first, blocks.end()),
        }
    }

    fn overlap(&self, a: Blocks, b: Blocks) -> bool {
        let ((a_slot, a_first, a_end), (b_slot, b_first, b_end)) = (self.range_of(a), self.range_of(b));
        a_slot == b_slot && a_first < b_end && b_first < a_end
    }

    fn wait(&mut self, after: &[Token]) {
        self.waits.extend(after.iter().filter_map(|t| t.0).map(|step| After { step, streaming: false }));
    }

    fn touch(&mut self, blocks: Blocks, write: bool) {
        if blocks.count > 0 {
            let (buffer, first, end) = self.range_of(blocks);
            let step = self.plan.steps.len() as u32;
            self.touched[buffer].touch(first, end, blocks, step, write, &mut self.waits);
        }
    }

    fn push(&mut self, action: Action) -> Token {
        let step = self.plan.steps.len() as u32;
        // A wait for the whole step wins over streaming: `false` sorts first.
        self.waits.retain(|after| after.step != step);
        self.waits.sort_unstable_by_key(|after| (after.step, after.streaming));
        self.waits.dedup_by_key(|after| after.step);
        let after_first = self.plan.after.len() as u32;
        let after_count = self.waits.len() as u32;
        self.plan.after.append(&mut self.waits);
        self.plan.steps.push(Step { action, after_first, after_count });
        Token(Some(step))
    }
}

fn next(edges: &mut Edges, peer: u32) -> u32 {
    let edge = edges.entry(peer).or_insert(0);
    *edge += 1;
    *edge - 1
}

/// Which steps have read and written the blocks of a buffer last. The map has ranges of blocks that do not
/// overlap; its keys are their first blocks.
#[derive(Debug, Default)]
struct Touched(BTreeMap<u32, TouchedRange>);

#[derive(Clone, Debug)]
struct TouchedRange {
    end: u32,
    /// The step that last wrote this range of blocks, and the blocks that it wrote. None if no step has
    /// written it.
    writer: Option<(u32, Blocks)>,
    /// The steps that have read this range of blocks since it was last written.
    readers: Vec<u32>,
}

impl TouchedRange {
    /// Adds to `waits` the steps that have used this range of blocks and for which a new step must wait. The
    /// new step reads the blocks `blocks`, which include this range, or writes them if `write` is true.
    fn add_waits(&self, blocks: Blocks, write: bool, waits: &mut Vec<After>) {
        if write && !self.readers.is_empty() {
            // The readers have waited for the writer.
            waits.extend(self.readers.iter().map(|&step| After { step, streaming: false }));
        } else if let Some((writer, written)) = self.writer {
            waits.push(After { step: writer, streaming: !write && written == blocks });
        }
    }
}

impl Touched {
    /// Notes that `step` reads or writes the blocks `first..end`. Adds to `waits` the earlier steps for which
    /// `step` must wait.
    fn touch(
        &mut self,
        first: u32,
        end: u32,
        blocks: Blocks,
        step: u32,
        write: bool,
        waits: &mut Vec<After>,
    ) {
        if let Some(range) = self.0.get_mut(&first)
            && range.end == end
        {
            // Nearly always an access covers one known range.
            range.add_waits(blocks, write, waits);
            if write {
                range.writer = Some((step, blocks));
                range.readers.clear();
            } else {
                range.readers.push(step);
            }
            return;
        }
        self.split(first);
        self.split(end);
        self.0.range(first..end).for_each(|(_, range)| range.add_waits(blocks, write, waits));
        if write {
            let inside: Vec<u32> = self.0.range(first..end).map(|(&at, _)| at).collect();
            inside.iter().for_each(|at| drop(self.0.remove(at)));
            self.0.insert(first, TouchedRange { end, writer: Some((step, blocks)), readers: Vec::new() });
        } else {
            self.fill(first, end);
            self.0.range_mut(first..end).for_each(|(_, range)| range.readers.push(step));
        }
    }

    /// Cuts the range of blocks that contains block `at` into two. The second begins at block `at`.
    fn split(&mut self, at: u32) {
        if let Some((_, range)) = self.0.range_mut(..at).next_back()
            && range.end > at
        {
            let right = range.clone();
            range.end = at;
            self.0.insert(at, right);
        }
    }

    /// Adds ranges for the blocks of `first..end` that no step has read or written yet.
    fn fill(&mut self, first: u32, end: u32) {
        let mut at = first;
        let mut gaps = Vec::new();
        for (&start, range) in self.0.range(first..end) {
            if start > at {
                gaps.push((at, start));
            }
            at = range.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (start, end) in gaps {
            self.0.insert(start, TouchedRange { end, writer: None, readers: Vec::new() });
        }
    }
}
