// SPDX-License-Identifier: BSD-3-Clause
//! Checks the steps of schedules alone, without the lengths of blocks and without carrying the steps out:
//! bounds, waits, and that each send has its receive.
use super::operation::{CollectiveCase, Messages, accesses, messages};
use crate::{Action, Blocks, BufferId, Collective, Schedule};

pub fn check(operation: &CollectiveCase, schedules: &[Schedule]) -> Result<(), String> {
    if schedules.len() != operation.size as usize {
        return Err(format!("{} schedules for {} ranks", schedules.len(), operation.size));
    }
    for (rank, schedule) in (0..).zip(schedules) {
        let fail = |what: String| Err(format!("{operation:?}, rank {rank}: {what}"));
        if (schedule.rank, schedule.size) != (rank, operation.size) {
            return fail(format!("the schedule is for rank {} of {}", schedule.rank, schedule.size));
        }
        if let Err(what) = schedule.check().and_then(|()| Rank::new(operation, schedule).names()) {
            return fail(what);
        }
    }
    let messages = match_messages(schedules)?;
    if operation.collective == Collective::Barrier {
        barrier(schedules, &messages)?;
    }
    let mut everywhere = None;
    for (rank, schedule) in (0..).zip(schedules) {
        for (earlier, later) in Rank::new(operation, schedule).unordered()? {
            // This is seldom needed: these two steps are ordered by steps of other ranks only.
            let order = everywhere.get_or_insert_with(|| StepOrder::new(schedules, &messages));
            if !order.before((rank, earlier), (rank, later)) && !order.before((rank, later), (rank, earlier))
            {
                return Err(format!(
                    "{operation:?}, rank {rank}: steps {earlier} and {later} touch the same memory in no certain order\n{schedule}"
                ));
            }
        }
    }
    Ok(())
}

fn match_messages(schedules: &[Schedule]) -> Result<Messages, String> {
    let messages = messages(schedules);
    for (&(from, to, edge), ends) in &messages {
        if let (Some(_), Some(_)) = ends {
            continue;
        }
        let what = if ends.0.is_some() { "sent but not received" } else { "received but not sent" };
        return Err(format!("the message from rank {from} to rank {to} with edge {edge} is {what}"));
    }
    let steps = schedules.iter().flat_map(|schedule| &schedule.steps);
    let ends = steps.filter(|s| matches!(s.action, Action::Send { .. } | Action::Recv { .. })).count();
    if ends != 2 * messages.len() {
        return Err("two messages share sender, receiver and edge".into());
    }
    Ok(messages)
}

/// Checks that no rank leaves a barrier before all ranks have entered: from each rank's start, a chain of
/// waits leads to each rank's end.
fn barrier(schedules: &[Schedule], messages: &Messages) -> Result<(), String> {
    let size = schedules.len();
    let mut reached: Vec<Vec<Vec<bool>>> = Vec::new();
    for (rank, schedule) in schedules.iter().enumerate() {
        let itself: Vec<bool> = (0..size).map(|of| of == rank).collect();
        reached.push(vec![itself; schedule.steps.len()]);
    }
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for (rank, schedule) in (0..).zip(schedules) {
            for (index, step) in schedule.steps.iter().enumerate() {
                let mut sources: Vec<(u32, u32)> =
                    schedule.after_of(step).iter().map(|after| (rank, after.step)).collect();
                if let Action::Recv { from, edge, .. } = step.action {
                    sources.extend(messages[&(from, rank, edge)].0.map(|send| (from, send)));
                }
                for (source, send) in sources {
                    let known = reached[source as usize][send as usize].clone();
                    for (mine, theirs) in reached[rank as usize][index].iter_mut().zip(known) {
                        changed |= theirs && !std::mem::replace(mine, *mine || theirs);
                    }
                }
            }
        }
    }
    for (rank, steps) in reached.iter().enumerate() {
        if let Some(of) = (0..size).find(|&of| of != rank && !steps.iter().any(|step| step[of])) {
            return Err(format!("rank {rank} leaves the barrier without having heard of rank {of}"));
        }
    }
    Ok(())
}

/// One rank's schedule, and whether the user's buffers overlap.
struct Rank<'a> {
    schedule: &'a Schedule,
    in_place: bool,
    collective: Collective,
}

impl<'a> Rank<'a> {
    fn new(operation: &CollectiveCase, schedule: &'a Schedule) -> Rank<'a> {
        let in_place = operation.in_place_on(schedule.rank);
        Rank { schedule, in_place, collective: operation.collective }
    }

    /// Checks that with MPI_IN_PLACE a schedule names only one of the user's two buffers. Reduce-scatter is
    /// excepted: its two buffers overlap in unknown ways.
    fn names(&self) -> Result<(), String> {
        use Collective::*;
        let hidden = match self.collective {
            ReduceScatter | ReduceScatterBlock if self.schedule.size > 1 => return Ok(()),
            _ if !self.in_place => return Ok(()),
            Scatter | Scatterv => BufferId::Output,
            _ => BufferId::Input,
        };
        for (index, step) in self.schedule.steps.iter().enumerate() {
            let (reads, write) = accesses(&step.action);
            if reads
                .into_iter()
                .chain([write])
                .flatten()
                .any(|blocks| blocks.buffer == hidden && blocks.count > 0)
            {
                return Err(format!("step {index} names {hidden}, which in place has another name"));
            }
        }
        Ok(())
    }

    fn overlap(&self, a: Blocks, b: Blocks) -> bool {
        if a.count == 0 || b.count == 0 {
            return false;
        }
        let user = |buffer| matches!(buffer, BufferId::Input | BufferId::Output);
        let two_names = self.in_place && a.buffer != b.buffer && user(a.buffer) && user(b.buffer);
        two_names || (a.buffer == b.buffer && a.first < b.end() && b.first < a.end())
    }

    /// Returns the pairs of steps that touch the same memory, where one writes and the later step does not
    /// wait for the earlier one. A step that reads exactly what another writes may follow it byte by byte.
    fn unordered(&self) -> Result<Vec<(u32, u32)>, String> {
        let steps = &self.schedule.steps;
        let mut unordered = Vec::new();
        let done = Done::new(self.schedule);
        let touched: Vec<_> = steps.iter().map(|step| accesses(&step.action)).collect();
        for (later, (reads, write)) in touched.iter().enumerate() {
            if let Some(into) = *write
                && reads.iter().flatten().any(|&operand| self.overlap(operand, into))
            {
                return Err(format!("step {later} writes what it reads: {}", steps[later].action));
            }
            for (earlier, (earlier_reads, earlier_write)) in touched[..later].iter().enumerate() {
                let meet = |a: &Option<Blocks>, b: &Option<Blocks>| {
                    a.zip(*b).is_some_and(|(a, b)| self.overlap(a, b))
                };
                let overwrites =
                    meet(write, earlier_write) || earlier_reads.iter().any(|read| meet(read, write));
                let mut meets = reads.iter().filter(|read| meet(read, earlier_write)).peekable();
                let reads_it = meets.peek().is_some();
                if !(overwrites || reads_it) || done.before_start(earlier, later) {
                    continue;
                }
                let streams = self
                    .schedule
                    .after_of(&steps[later])
                    .iter()
                    .any(|after| after.streaming && after.step as usize == earlier);
                if overwrites || !streams || meets.any(|read| read != earlier_write) {
                    unordered.push((earlier as u32, later as u32));
                }
            }
        }
        Ok(unordered)
    }
}

/// For each step of a rank, which other steps of the rank have certainly ended when this step starts.
struct Done {
    words: usize,
    before_start: Vec<u64>,
}

impl Done {
    fn new(schedule: &Schedule) -> Done {
        let words = schedule.steps.len().div_ceil(64);
        let mut before_start = vec![0u64; words * schedule.steps.len()];
        let mut before_done = before_start.clone();
        for (index, step) in schedule.steps.iter().enumerate() {
            let here = index * words;
            for after in schedule.after_of(step) {
                let there = after.step as usize * words;
                for word in 0..words {
                    let done = before_done[there + word];
                    before_start[here + word] |=
                        if after.streaming { before_start[there + word] } else { done };
                    before_done[here + word] |= done;
                }
                let (word, bit) = (after.step as usize / 64, 1 << (after.step % 64));
                before_done[here + word] |= bit;
                if !after.streaming {
                    before_start[here + word] |= bit;
                }
            }
            for word in 0..words {
                before_done[here + word] |= before_start[here + word];
            }
        }
        Done { words, before_start }
    }

    fn before_start(&self, earlier: usize, later: usize) -> bool {
        self.before_start[later * self.words + earlier / 64] & (1 << (earlier % 64)) != 0
    }
}

/// The order of all steps of all ranks as a graph. Each step has a node for its start and a node for its end.
struct StepOrder {
    first: Vec<usize>,
    next: Vec<Vec<usize>>,
}

impl StepOrder {
    fn new(schedules: &[Schedule], messages: &Messages) -> StepOrder {
        let mut first = vec![0];
        for schedule in schedules {
            first.push(first.last().expect("starts with 0") + schedule.steps.len());
        }
        let mut order = StepOrder { next: vec![Vec::new(); 2 * first[schedules.len()]], first };
        for (rank, schedule) in (0..).zip(schedules) {
            for (index, step) in (0..).zip(&schedule.steps) {
                let (start, end) = order.nodes((rank, index));
                order.next[start].push(end);
                // A receive ends only when the send has published all.
                let published = match step.action {
                    Action::Send { to, edge, .. } => messages[&(rank, to, edge)].1.map(|recv| (to, recv)),
                    _ => None,
                };
                for after in schedule.after_of(step) {
                    let (waited_start, waited_end) = order.nodes((rank, after.step));
                    order.next[waited_end].push(if after.streaming { end } else { start });
                    order.next[waited_start].push(start);
                    if let Some(recv) = published {
                        let recv_end = order.nodes(recv).1;
                        order.next[waited_end].push(recv_end);
                    }
                }
                if let Some(recv) = published {
                    let (recv_start, recv_end) = order.nodes(recv);
                    order.next[start].push(recv_start);
                    order.next[recv_end].push(end);
                }
            }
        }
        order
    }

    fn nodes(&self, (rank, step): (u32, u32)) -> (usize, usize) {
        let node = 2 * (self.first[rank as usize] + step as usize);
        (node, node + 1)
    }

    /// Whether step `b` can start only after step `a` has ended.
    fn before(&self, a: (u32, u32), b: (u32, u32)) -> bool {
        let (goal, mut seen) = (self.nodes(b).0, vec![false; self.next.len()]);
        let mut open = vec![self.nodes(a).1];
        while let Some(node) = open.pop() {
            if node == goal {
                return true;
            }
            open.extend(self.next[node].iter().filter(|&&next| !std::mem::replace(&mut seen[next], true)));
        }
        false
    }
}
