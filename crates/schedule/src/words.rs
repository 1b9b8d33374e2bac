// SPDX-License-Identifier: BSD-3-Clause
//! Encodes a schedule as words, by which it is copied to another process, and decodes and checks them there,
//! since they may be corrupt.
//!
//! `[magic and version][rank, size][input_blocks, output_blocks][scratch, steps][after, words]`, then
//! scratch, steps and waits, and last a hash of all words before it.
use crate::random::mix;
use crate::{Action, After, Blocks, BufferId, Partition, Schedule, Scratch, Step};

/// The first word of an encoded schedule: "outboard" in ASCII, with the format's version as the last byte.
const MAGIC: u64 = 0x6f75_7462_6f61_7201;
const HEADER_WORDS: usize = 5;

impl Schedule {
    /// Checks a schedule by itself: blocks are in bounds, peers exist, a step waits only for earlier steps, a
    /// reduction or copy does not write what it reads, no message is received twice. Errors say what is
    /// wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.rank >= self.size {
            return Err(format!("rank {} of {}", self.rank, self.size));
        }
        if self.scratch.len() > 256 {
            return Err(format!("{} scratch buffers", self.scratch.len()));
        }
        for (index, scratch) in self.scratch.iter().enumerate() {
            let blocks = self.partition_blocks(scratch.like);
            if scratch.blocks > 0 && scratch.first >= blocks {
                return Err(format!("scratch {index} is like block {} of {blocks}", scratch.first));
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            self.check_step(index, step).map_err(|what| format!("step {index}: {what}"))?;
        }
        Ok(())
    }

    /// Returns into how many blocks the user's buffer is cut that `partition` names.
    pub fn partition_blocks(&self, partition: Partition) -> u32 {
        match partition {
            Partition::Input => self.input_blocks,
            Partition::Output => self.output_blocks,
        }
    }

    /// Returns into how many blocks a buffer is cut. None for a scratch buffer that the schedule does not
    /// have.
    pub fn buffer_blocks(&self, buffer: BufferId) -> Option<u32> {
        match buffer {
            BufferId::Input => Some(self.input_blocks),
            BufferId::Output => Some(self.output_blocks),
            BufferId::Scratch(index) => self.scratch.get(index as usize).map(|scratch| scratch.blocks),
        }
    }

    fn check_step(&self, index: usize, step: &Step) -> Result<(), String> {
        let (first, count) = (step.after_first as usize, step.after_count as usize);
        let after = self.after.get(first..).and_then(|rest| rest.get(..count));
        for after in after.ok_or("its waits are out of bounds")? {
            if after.step as usize >= index {
                return Err(format!("waits for step {}", after.step));
            }
        }
        let peer = |peer: u32| match peer < self.size && peer != self.rank {
            true => Ok(()),
            false => Err(format!("peer {peer} of {}", self.size)),
        };
        let apart =
            |a: Blocks, b: Blocks| match a.buffer != b.buffer || a.first >= b.end() || b.first >= a.end() {
                true => Ok(()),
                false => Err(format!("{a} and {b} overlap")),
            };
        match step.action {
            Action::Send { to, from, .. } => peer(to).and(self.check_blocks(from)),
            Action::Recv { from, into, .. } => peer(from).and(self.check_blocks(into)),
            Action::Copy { from, into } => {
                self.check_blocks(from).and(self.check_blocks(into)).and_then(|()| apart(from, into))
            }
            Action::Reduce { left, right, into } => {
                [left, right, into].into_iter().try_for_each(|blocks| self.check_blocks(blocks))?;
                apart(left, into).and(apart(right, into))
            }
        }
    }

    fn check_blocks(&self, blocks: Blocks) -> Result<(), String> {
        let all =
            self.buffer_blocks(blocks.buffer).ok_or_else(|| format!("there is no {}", blocks.buffer))?;
        match blocks.first.checked_add(blocks.count) {
            Some(end) if end <= all => Ok(()),
            _ => Err(format!("blocks {}+{} of {all} in {}", blocks.first, blocks.count, blocks.buffer)),
        }
    }

    /// Encodes the schedule as words, which `from_words` decodes in another process.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![
            MAGIC,
            pair(self.rank, self.size),
            pair(self.input_blocks, self.output_blocks),
            pair(self.scratch.len() as u32, self.steps.len() as u32),
            0,
        ];
        for scratch in &self.scratch {
            words.push(pair(scratch.first, scratch.blocks));
            words.push(u64::from(scratch.like == Partition::Output));
        }
        let mut waits = Vec::new();
        for step in &self.steps {
            push_step(&mut words, step);
            waits
                .extend(self.after_of(step).iter().map(|after| after.step << 1 | u32::from(after.streaming)));
        }
        for two in waits.chunks(2) {
            words.push(pair(two[0], two.get(1).copied().unwrap_or(0)));
        }
        words[4] = pair(waits.len() as u32, words.len() as u32 + 1);
        words.push(hash(&words));
        words
    }

    /// Returns how many words `to_words` makes.
    pub fn words(&self) -> usize {
        let of_step = |step: &Step| match step.action {
            Action::Reduce { .. } => 4,
            _ => 3,
        };
        let waits: usize = self.steps.iter().map(|step| step.after_count as usize).sum();
        let steps: usize = self.steps.iter().map(of_step).sum();
        HEADER_WORDS + 2 * self.scratch.len() + steps + waits.div_ceil(2) + 1
    }

    /// Decodes words that `to_words` has made, and checks the schedule. Errors: the words encode no schedule,
    /// or a wrong one.
    pub fn from_words(words: &[u64]) -> Result<Schedule, String> {
        let Some((&end, body)) = words.split_last().filter(|(_, body)| body.len() >= HEADER_WORDS) else {
            return Err(format!("{} words are too few for a schedule", words.len()));
        };
        if words[0] != MAGIC {
            return Err(format!("{:#x} does not start a schedule of this version", words[0]));
        }
        let (waits, all) = unpair(words[4]);
        if all as usize != words.len() || end != hash(body) {
            return Err(format!("a schedule of {all} words is corrupt ({} words)", words.len()));
        }
        let ((rank, size), (input_blocks, output_blocks)) = (unpair(words[1]), unpair(words[2]));
        let (scratch_count, step_count) = unpair(words[3]);
        let mut reader = Reader(&body[HEADER_WORDS..]);
        // Every entry takes at least half a word, so a wild count cannot allocate more than the words that
        // are given.
        if [scratch_count, step_count, waits / 2].iter().any(|&count| count as usize > words.len()) {
            return Err("more entries than words".into());
        }
        let mut scratch = Vec::with_capacity(scratch_count as usize);
        for _ in 0..scratch_count {
            let (first, blocks) = unpair(reader.word()?);
            let like = if reader.word()? == 0 { Partition::Input } else { Partition::Output };
            scratch.push(Scratch { like, first, blocks });
        }
        let mut steps = Vec::with_capacity(step_count as usize);
        let mut after_first = 0u32;
        for _ in 0..step_count {
            let step = reader.step(after_first)?;
            after_first = after_first.checked_add(step.after_count).ok_or("too many waits")?;
            steps.push(step);
        }
        let mut after = Vec::with_capacity(waits as usize + 1);
        for _ in 0..waits.div_ceil(2) {
            let (one, two) = unpair(reader.word()?);
            after.extend([one, two].map(|word| After { step: word >> 1, streaming: word & 1 == 1 }));
        }
        after.truncate(waits as usize);
        let schedule = Schedule { rank, size, input_blocks, output_blocks, scratch, steps, after };
        schedule.check()?;
        Ok(schedule)
    }

    /// Hashes the whole schedule. Equal schedules have equal hashes on every machine.
    pub fn hash64(&self) -> u64 {
        *self.to_words().last().expect("ends with its hash")
    }
}

/// Appends an encoded step: a word `[kind: 2 bits, waits: 28, three buffers: 10 each]`, a word for peer and
/// edge if it is a message, and a word for each operand.
fn push_step(words: &mut Vec<u64>, step: &Step) {
    assert!(step.after_count < 1 << 28, "a step waits for fewer than 2^28 others");
    let (kind, message, blocks) = match step.action {
        Action::Send { to, edge, from } => (0, Some((to, edge)), [Some(from), None, None]),
        Action::Recv { from, edge, into } => (1, Some((from, edge)), [Some(into), None, None]),
        Action::Copy { from, into } => (2, None, [Some(from), Some(into), None]),
        Action::Reduce { left, right, into } => (3, None, [Some(left), Some(right), Some(into)]),
    };
    let mut head = kind | u64::from(step.after_count) << 2;
    for (place, blocks) in blocks.iter().enumerate() {
        head |= blocks.map_or(0, |blocks| buffer_number(blocks.buffer)) << (30 + 10 * place);
    }
    words.push(head);
    words.extend(message.map(|(peer, edge)| pair(peer, edge)));
    words.extend(blocks.iter().flatten().map(|blocks| pair(blocks.first, blocks.count)));
}

fn buffer_number(buffer: BufferId) -> u64 {
    match buffer {
        BufferId::Input => 0,
        BufferId::Output => 1,
        BufferId::Scratch(index) => 2 + u64::from(index),
    }
}

struct Reader<'a>(&'a [u64]);

impl Reader<'_> {
    fn word(&mut self) -> Result<u64, String> {
        let (&word, rest) = self.0.split_first().ok_or("the words end too early")?;
        self.0 = rest;
        Ok(word)
    }

    fn blocks(&mut self, head: u64, place: u32) -> Result<Blocks, String> {
        let buffer = match head >> (30 + 10 * place) & 0x3ff {
            0 => BufferId::Input,
            1 => BufferId::Output,
            number => BufferId::Scratch(u8::try_from(number - 2).map_err(|_| format!("buffer {number}"))?),
        };
        let (first, count) = unpair(self.word()?);
        Ok(Blocks { buffer, first, count })
    }

    fn step(&mut self, after_first: u32) -> Result<Step, String> {
        let head = self.word()?;
        let action = match head & 3 {
            kind @ (0 | 1) => {
                let (peer, edge) = unpair(self.word()?);
                let blocks = self.blocks(head, 0)?;
                match kind {
                    0 => Action::Send { to: peer, edge, from: blocks },
                    _ => Action::Recv { from: peer, edge, into: blocks },
                }
            }
            2 => Action::Copy { from: self.blocks(head, 0)?, into: self.blocks(head, 1)? },
            _ => Action::Reduce {
                left: self.blocks(head, 0)?,
                right: self.blocks(head, 1)?,
                into: self.blocks(head, 2)?,
            },
        };
        Ok(Step { action, after_first, after_count: (head >> 2) as u32 & 0x0fff_ffff })
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn unpair(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn hash(words: &[u64]) -> u64 {
    words.iter().fold(MAGIC, |hash, &word| mix(hash.rotate_left(5) ^ word).wrapping_add(hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALGORITHMS, Params};
    use proptest::prelude::*;

    fn plans() -> impl Strategy<Value = Schedule> {
        (0..ALGORITHMS.len(), 1u32..20, any::<[u32; 2]>(), any::<bool>()).prop_map(
            |(at, size, [a, b], in_place)| {
                let facts = &ALGORITHMS[at];
                let size = size + u32::from(facts.inter);
                let first_group = if facts.inter { 1 + b % (size - 1) } else { 0 };
                let (rank, root) = (a % size, b % size);
                let nodes = None;
                let params = Params { rank, size, root, in_place, commutative: true, first_group, nodes };
                facts.algorithm.plan(&params)
            },
        )
    }

    proptest! {
        #[test]
        fn words_come_back(plan in plans()) {
            prop_assert_eq!(plan.to_words().len(), plan.words());
            prop_assert_eq!(Schedule::from_words(&plan.to_words()), Ok(plan));
        }

        #[test]
        fn corrupt_words_are_refused(
            plan in plans(), at: prop::sample::Index, flip in 1u64.., cut: prop::sample::Index
        ) {
            let words = plan.to_words();
            let mut corrupt = words.clone();
            corrupt[at.index(words.len())] ^= flip;
            prop_assert!(Schedule::from_words(&corrupt).is_err());
            prop_assert!(Schedule::from_words(&words[..cut.index(words.len())]).is_err());
        }

        /// Goal: the decoder never panics on forged words, even with a right hash, and every schedule that it
        /// accepts passes `check`.
        #[test]
        fn forged_words_are_checked(
            plan in plans(), at: prop::sample::Index, flip in any::<u64>(), bit in 0..64u32
        ) {
            for change in [flip, 1 << bit] {
                let mut words = plan.to_words();
                words.pop();
                let at = at.index(words.len());
                words[at] ^= change;
                words.push(hash(&words));
                if let Ok(plan) = Schedule::from_words(&words) {
                    prop_assert_eq!(plan.check(), Ok(()));
                }
            }
        }
    }

    #[test]
    fn hashes_differ() {
        let plan = |rank| ALGORITHMS[0].algorithm.plan(&Params::new(rank, 8));
        assert_eq!(plan(1).hash64(), plan(1).hash64());
        assert_ne!(plan(1).hash64(), plan(2).hash64());
    }
}
