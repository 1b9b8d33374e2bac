//! A schedule made ready to be driven: checked, with successor lists, and with the table by which peers find its sends.
//!
//! A plan is also a *program*: the words that a rank writes into its arena once, and from which a proxy makes the same
//! plan again. A proxy trusts none of them: `Plan::new` accepts only what the engine can run without looking twice.

use error::{Class, Result, fail};
use schedule::{Action, After, Blocks, Partition, Schedule, Scratch, Slot, Step};
use std::sync::Arc;

/// Words of a program before its tables.
const HEAD_WORDS: usize = 6;
/// Words of a step in a program.
const STEP_WORDS: usize = 6;
/// First word of a program: a name and a version.
const MAGIC: u64 = 0x4f42_5052_4f47_0001;
/// Steps and dependencies that a program may have, so that a corrupt one cannot ask for all memory.
const TABLE_MAX: usize = 1 << 24;

/// A send as its receiver looks it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Export {
    /// Receiver (rank of the schedule's communicator) in the high half, edge in the low half.
    pub key: u64,
    /// The step.
    pub step: u32,
}

impl Export {
    /// The key of a message.
    pub fn key(to: u32, edge: u32) -> u64 {
        u64::from(to) << 32 | u64::from(edge)
    }
}

/// A checked schedule with what an engine looks up while driving it.
#[derive(Debug)]
pub struct Plan {
    /// The schedule itself.
    pub schedule: Arc<Schedule>,
    /// How many whole (not streaming) dependencies each step has.
    pub waits: Vec<u32>,
    /// Sends by receiver and edge, sorted.
    pub exports: Vec<Export>,
    /// Whether any step reduces.
    pub reduces: bool,
    followers: Vec<u32>,
    followers_from: Vec<u32>,
    streams: Vec<u32>,
    streams_from: Vec<u32>,
}

impl Plan {
    /// Checks a schedule and prepares it; an error of class `Intern` says what is wrong with it.
    pub fn new(schedule: Arc<Schedule>) -> Result<Plan> {
        check(&schedule)?;
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
        let mut exports = Vec::new();
        let mut reduces = false;
        for (index, step) in schedule.steps.iter().enumerate() {
            for after in schedule.after_of(step).iter().filter(|after| !after.streaming) {
                followers[at[after.step as usize] as usize] = index as u32;
                at[after.step as usize] += 1;
            }
            match step.action {
                Action::Send { to, edge, .. } => {
                    exports.push(Export { key: Export::key(to, edge), step: index as u32 })
                }
                Action::Reduce { .. } => reduces = true,
                _ => {}
            }
        }
        exports.sort_unstable();
        if let Some(pair) = exports.windows(2).find(|pair| pair[0].key == pair[1].key) {
            let (to, edge) = (pair[0].key >> 32, pair[0].key as u32);
            fail!(Class::Intern, "two sends of one schedule go to rank {to} with edge {edge}");
        }
        Ok(Plan { schedule, waits, exports, reduces, followers, followers_from, streams, streams_from })
    }

    /// The steps that wait for the whole of `step`.
    pub fn followers(&self, step: u32) -> &[u32] {
        let index = step as usize;
        &self.followers[self.followers_from[index] as usize..self.followers_from[index + 1] as usize]
    }

    /// The steps that `step` follows byte by byte.
    pub fn streams(&self, step: u32) -> &[u32] {
        let index = step as usize;
        &self.streams[self.streams_from[index] as usize..self.streams_from[index + 1] as usize]
    }

    /// The program, to be written into an arena.
    pub fn words(&self) -> Vec<u64> {
        let s = &*self.schedule;
        let mut words = vec![
            MAGIC,
            pair(s.rank, s.size),
            pair(s.input_blocks, s.output_blocks),
            s.scratch.len() as u64,
            s.steps.len() as u64,
            s.after.len() as u64,
        ];
        for scratch in &s.scratch {
            words.push(u64::from(scratch.like == Partition::Output));
            words.push(pair(scratch.first, scratch.blocks));
        }
        for step in &s.steps {
            words.extend(step_words(step));
        }
        words.extend(s.after.iter().map(|after| pair(after.step, u32::from(after.streaming))));
        words
    }

    /// Makes the plan of a program that somebody else wrote.
    pub fn from_words(words: &[u64]) -> Result<Plan> {
        let Some(head) = words.get(..HEAD_WORDS) else {
            fail!(Class::Intern, "a program of {} words has no head", words.len());
        };
        let counts = [head[3] as usize, head[4] as usize, head[5] as usize];
        if head[0] != MAGIC || counts.iter().any(|&count| count > TABLE_MAX) {
            fail!(Class::Intern, "these words are not a program: {:#x}, tables of {counts:?}", head[0]);
        }
        let expected = HEAD_WORDS + 2 * counts[0] + STEP_WORDS * counts[1] + counts[2];
        if words.len() != expected {
            fail!(Class::Intern, "a program has {} words where its head says {expected}", words.len());
        }
        let (scratch, rest) = words[HEAD_WORDS..].split_at(2 * counts[0]);
        let (steps, after) = rest.split_at(STEP_WORDS * counts[1]);
        let scratch = scratch.chunks_exact(2).map(|w| Scratch {
            like: if w[0] & 1 == 1 { Partition::Output } else { Partition::Input },
            first: high(w[1]),
            blocks: low(w[1]),
        });
        let mut decoded = Vec::with_capacity(counts[1]);
        for words in steps.chunks_exact(STEP_WORDS) {
            decoded.push(step_of(words)?);
        }
        Plan::new(Arc::new(Schedule {
            rank: high(head[1]),
            size: low(head[1]),
            input_blocks: high(head[2]),
            output_blocks: low(head[2]),
            scratch: scratch.collect(),
            steps: decoded,
            after: after.iter().map(|&w| After { step: high(w), streaming: low(w) == 1 }).collect(),
        }))
    }
}

/// The blocks that an action names, at most three, in the order left, right, into or from, into.
pub fn operands(action: &Action) -> [Option<Blocks>; 3] {
    match *action {
        Action::Send { from, .. } => [Some(from), None, None],
        Action::Recv { into, .. } => [Some(into), None, None],
        Action::Copy { from, into } => [Some(from), Some(into), None],
        Action::Reduce { left, right, into } => [Some(left), Some(right), Some(into)],
    }
}

fn check(schedule: &Schedule) -> Result<()> {
    let Schedule { rank, size, .. } = *schedule;
    if rank >= size {
        fail!(Class::Intern, "a schedule for rank {rank} of {size}");
    }
    for (index, scratch) in schedule.scratch.iter().enumerate() {
        let blocks = match scratch.like {
            Partition::Input => schedule.input_blocks,
            Partition::Output => schedule.output_blocks,
        };
        if scratch.blocks > 0 && scratch.first >= blocks {
            fail!(Class::Intern, "scratch {index} begins like block {} of {blocks}", scratch.first);
        }
    }
    for (index, step) in schedule.steps.iter().enumerate() {
        let range = step.after_first as usize..step.after_first as usize + step.after_count as usize;
        let Some(after) = schedule.after.get(range) else {
            fail!(
                Class::Intern,
                "step {index} waits for entries beyond the table of {}",
                schedule.after.len()
            );
        };
        if let Some(after) = after.iter().find(|after| after.step as usize >= index) {
            fail!(Class::Intern, "step {index} waits for step {}, which is not earlier", after.step);
        }
        if let Action::Send { to: peer, .. } | Action::Recv { from: peer, .. } = step.action
            && peer >= size
        {
            fail!(Class::Intern, "step {index} names rank {peer} of {size}");
        }
        for blocks in operands(&step.action).into_iter().flatten() {
            let have = match blocks.slot {
                Slot::Input => Some(schedule.input_blocks),
                Slot::Output => Some(schedule.output_blocks),
                Slot::Scratch(slot) => schedule.scratch.get(usize::from(slot)).map(|scratch| scratch.blocks),
            };
            let end = u64::from(blocks.first) + u64::from(blocks.count);
            if have.is_none_or(|have| end > u64::from(have)) && blocks.count > 0 {
                fail!(
                    Class::Intern,
                    "step {index} names blocks up to {end} of {:?}, which has {have:?}",
                    blocks.slot
                );
            }
        }
    }
    Ok(())
}

fn step_words(step: &Step) -> [u64; STEP_WORDS] {
    let (kind, peer, edge) = match step.action {
        Action::Send { to, edge, .. } => (0, to, edge),
        Action::Recv { from, edge, .. } => (1, from, edge),
        Action::Copy { .. } => (2, 0, 0),
        Action::Reduce { .. } => (3, 0, 0),
    };
    let mut words = [kind, pair(step.after_first, step.after_count), pair(peer, edge), 0, 0, 0];
    for (index, blocks) in operands(&step.action).into_iter().flatten().enumerate() {
        let slot = match blocks.slot {
            Slot::Input => 0,
            Slot::Output => 1,
            Slot::Scratch(slot) => 2 + u64::from(slot),
        };
        words[0] |= slot << (16 * (index + 1));
        words[3 + index] = pair(blocks.first, blocks.count);
    }
    words
}

fn step_of(words: &[u64]) -> Result<Step> {
    let blocks = |index: usize| {
        let slot = match (words[0] >> (16 * (index + 1))) & 0xffff {
            0 => Slot::Input,
            1 => Slot::Output,
            slot => Slot::Scratch((slot - 2).min(255) as u8),
        };
        Blocks { slot, first: high(words[3 + index]), count: low(words[3 + index]) }
    };
    let (peer, edge) = (high(words[2]), low(words[2]));
    let action = match words[0] & 0xffff {
        0 => Action::Send { to: peer, edge, from: blocks(0) },
        1 => Action::Recv { from: peer, edge, into: blocks(0) },
        2 => Action::Copy { from: blocks(0), into: blocks(1) },
        3 => Action::Reduce { left: blocks(0), right: blocks(1), into: blocks(2) },
        kind => fail!(Class::Intern, "a program has a step of the unknown kind {kind}"),
    };
    Ok(Step { action, after_first: high(words[1]), after_count: low(words[1]) })
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
