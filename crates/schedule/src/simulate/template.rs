// SPDX-License-Identifier: BSD-3-Clause
//! Schedules in the form that the simulation uses: lengths are in bytes, peers are numbered relative to the
//! rank, and ranks that do the same share one schedule.
use crate::random::mix;
use crate::{Action, Blocks, BufferId, Collective, Partition, Schedule};
use std::collections::HashMap;

/// How a rank numbers its peers, so that ranks that do the same have equal schedules.
#[derive(Clone, Copy, Debug)]
pub enum PeerNumbering {
    /// A peer's number is how many ranks after this rank it comes, modulo the number of ranks, which is
    /// given.
    Cyclic(u32),
    /// A peer's number is the exclusive or of the peer's rank and this rank.
    Xor,
}

impl PeerNumbering {
    fn relative(self, rank: u32, peer: u32) -> u32 {
        match self {
            PeerNumbering::Cyclic(ranks) => (peer + ranks - rank) % ranks,
            PeerNumbering::Xor => rank ^ peer,
        }
    }

    pub fn absolute(self, rank: u32, relative: u32) -> u32 {
        match self {
            PeerNumbering::Cyclic(ranks) => {
                ((u64::from(rank) + u64::from(relative)) % u64::from(ranks)) as u32
            }
            PeerNumbering::Xor => rank ^ relative,
        }
    }

    /// Returns the number that this rank has from the view of the peer whose number is `relative`.
    pub fn back(self, relative: u32) -> u32 {
        match self {
            PeerNumbering::Cyclic(ranks) => (ranks - relative) % ranks,
            PeerNumbering::Xor => relative,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Send,
    Recv,
    Copy,
    Reduce,
}

#[derive(Clone, Copy, Debug)]
pub struct TemplateStep {
    pub kind: StepKind,
    /// The peer's number relative to the rank; 0 for a copy or a reduction.
    pub peer: u32,
    pub edge: u32,
    pub bytes: u64,
    /// The number of steps for which this step waits.
    pub waits: u32,
}

/// The schedule of all ranks that do the same.
#[derive(Debug)]
pub struct Template {
    pub steps: Vec<TemplateStep>,
    /// For each step, the steps that wait for it, in one list. An entry is twice the waiting step's number,
    /// plus 1 if it follows byte by byte.
    waiting: Vec<u32>,
    /// For each step, the index in `waiting` at which the list of the steps that wait for it begins.
    waiting_first: Vec<u32>,
    /// The steps that receive, sorted by peer and edge number.
    recvs: Vec<u32>,
}

impl Template {
    /// Returns the steps that wait for `step`. The flag says whether a step follows it byte by byte.
    pub fn waiting(&self, step: u32) -> impl Iterator<Item = (u32, bool)> {
        let (first, end) = (self.waiting_first[step as usize], self.waiting_first[step as usize + 1]);
        self.waiting[first as usize..end as usize].iter().map(|&entry| (entry >> 1, entry & 1 == 1))
    }

    /// Returns the step that receives from the peer `peer` with the edge number `edge`.
    pub fn recv(&self, peer: u32, edge: u32) -> u32 {
        let key = |&step: &u32| (self.steps[step as usize].peer, self.steps[step as usize].edge);
        self.recvs[self.recvs.binary_search_by_key(&(peer, edge), key).expect("every send has its receive")]
    }
}

/// The schedules of all ranks; equal schedules are stored once. Also the numbers of messages, bytes and
/// steps, as sums or maxima over all ranks.
#[derive(Debug)]
pub struct Templates {
    pub peers: PeerNumbering,
    pub all: Vec<Template>,
    /// For each rank, the index of its schedule in `all`.
    pub template_of_rank: Vec<u32>,
    pub messages: u64,
    pub message_bytes: u64,
    pub steps_max: u64,
    pub schedule_bytes: u64,
    pub schedule_bytes_max: u64,
    pub scratch_bytes_max: u64,
}

impl Templates {
    /// Makes the schedules of the ranks 0 to `built - 1` by the function `plan`. `vector` says whether
    /// `bytes` is the length of a vector that is cut into blocks, or of one block.
    pub fn new(
        plan: &dyn Fn(u32) -> Schedule,
        (bytes, vector): (u64, bool),
        peers: PeerNumbering,
        built: u32,
    ) -> Templates {
        let mut templates = Templates {
            peers,
            all: Vec::new(),
            template_of_rank: Vec::with_capacity(built as usize),
            messages: 0,
            message_bytes: 0,
            steps_max: 0,
            schedule_bytes: 0,
            schedule_bytes_max: 0,
            scratch_bytes_max: 0,
        };
        let mut known: HashMap<u64, u32> = HashMap::new();
        for rank in 0..built {
            let schedule = plan(rank);
            let lengths = Lengths { schedule: &schedule, bytes, vector };
            let steps = lengths.steps(peers);
            templates.count(&lengths, &steps);
            let new = templates.all.len() as u32;
            let number = *known.entry(fingerprint(&schedule, &steps)).or_insert(new);
            if number == new {
                templates.all.push(template(&schedule, steps));
            }
            templates.template_of_rank.push(number);
        }
        templates
    }

    fn count(&mut self, lengths: &Lengths<'_>, steps: &[TemplateStep]) {
        for step in steps.iter().filter(|step| step.kind == StepKind::Send) {
            self.messages += 1;
            self.message_bytes += step.bytes;
        }
        let schedule_bytes = 8 * lengths.schedule.words() as u64;
        self.steps_max = self.steps_max.max(steps.len() as u64);
        self.schedule_bytes += schedule_bytes;
        self.schedule_bytes_max = self.schedule_bytes_max.max(schedule_bytes);
        self.scratch_bytes_max = self.scratch_bytes_max.max(lengths.scratch());
    }
}

/// Whether `simulate` takes `bytes` as the length of a whole vector. If not, it is the length of one block.
pub fn is_vector(collective: Collective) -> bool {
    use Collective::*;
    matches!(collective, Bcast | Reduce | Allreduce | Scan | Exscan)
}

struct Lengths<'a> {
    schedule: &'a Schedule,
    bytes: u64,
    vector: bool,
}

impl Lengths<'_> {
    fn of(&self, partition: Partition, count: u32) -> u64 {
        let blocks = self.schedule.partition_blocks(partition).max(1);
        let all = u128::from(count) * u128::from(self.bytes);
        (if self.vector { all / u128::from(blocks) } else { all }) as u64
    }

    fn blocks(&self, blocks: Blocks) -> u64 {
        let partition = match blocks.buffer {
            BufferId::Input => Partition::Input,
            BufferId::Output => Partition::Output,
            BufferId::Scratch(index) => self.schedule.scratch[index as usize].like,
        };
        self.of(partition, blocks.count)
    }

    fn scratch(&self) -> u64 {
        self.schedule.scratch.iter().map(|scratch| self.of(scratch.like, scratch.blocks)).sum()
    }

    fn steps(&self, peers: PeerNumbering) -> Vec<TemplateStep> {
        let relative = |peer| peers.relative(self.schedule.rank, peer);
        let step = |step: &crate::Step| {
            let (kind, peer, edge, blocks) = match step.action {
                Action::Send { to, edge, from } => (StepKind::Send, relative(to), edge, from),
                Action::Recv { from, edge, into } => (StepKind::Recv, relative(from), edge, into),
                Action::Copy { into, .. } => (StepKind::Copy, 0, 0, into),
                Action::Reduce { into, .. } => (StepKind::Reduce, 0, 0, into),
            };
            TemplateStep { kind, peer, edge, bytes: self.blocks(blocks), waits: step.after_count }
        };
        self.schedule.steps.iter().map(step).collect()
    }
}

/// Hashes a schedule. Ranks that do the same have the same hash.
fn fingerprint(schedule: &Schedule, steps: &[TemplateStep]) -> u64 {
    let steps = steps.iter().flat_map(|s| {
        [(s.kind as u64) << 32 | u64::from(s.peer), u64::from(s.edge) << 32 | u64::from(s.waits), s.bytes]
    });
    let after = schedule.after.iter().map(|after| u64::from(after.step) << 1 | u64::from(after.streaming));
    steps.chain(after).fold(1, |hash, word| mix(hash.rotate_left(5) ^ word).wrapping_add(hash))
}

fn template(schedule: &Schedule, steps: Vec<TemplateStep>) -> Template {
    let mut waiting_first = vec![0u32; steps.len() + 1];
    schedule.after.iter().for_each(|after| waiting_first[after.step as usize + 1] += 1);
    for step in 0..steps.len() {
        waiting_first[step + 1] += waiting_first[step];
    }
    let mut waiting = vec![0; schedule.after.len()];
    let mut next = waiting_first.clone();
    for (number, step) in (0u32..).zip(&schedule.steps) {
        for after in schedule.after_of(step) {
            let at = &mut next[after.step as usize];
            waiting[*at as usize] = number << 1 | u32::from(after.streaming);
            *at += 1;
        }
    }
    let is_recv = |step: &u32| steps[*step as usize].kind == StepKind::Recv;
    let mut recvs: Vec<u32> = (0..steps.len() as u32).filter(is_recv).collect();
    recvs.sort_unstable_by_key(|&step| (steps[step as usize].peer, steps[step as usize].edge));
    Template { steps, waiting, waiting_first, recvs }
}
