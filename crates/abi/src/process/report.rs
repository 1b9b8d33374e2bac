// SPDX-License-Identifier: BSD-3-Clause
//! Says in words what this process waits for: a sentence in this rank's page of shared memory while a wait
//! lasts, and a report when `mpirun` asks for one.

use crate::process::{Awaiting, JobState, On, Process};
use crate::request::Recipe;
use executor::PendingOperation;
use objects::Objects;
use objects::constants::{COMM_SELF, COMM_WORLD};
use p2p::{OperationReport, OperationState};
use std::fmt::Write as _;

/// The most operations of one kind that a report names.
const NAMED_MAX: usize = 10;
/// The time in nanoseconds after which a wait for the matching operations of other ranks is reported.
const SILENCE_NS: u64 = 5_000_000_000;

/// Measures how long a call waits for the matching operations of other ranks, and reports a long wait.
pub(crate) struct Silence {
    /// The time of `sys::clock` (in nanoseconds) at which the call's wait is to be reported. It is `u64::MAX`
    /// once the wait has been reported.
    ends: u64,
}

impl Silence {
    pub(crate) fn start() -> Silence {
        Silence { ends: sys::clock::now() + SILENCE_NS }
    }

    /// Prints a report of all operations that are under way, once, when the MPI function `call` has waited
    /// for `SILENCE_NS`.
    pub(crate) fn check(&mut self, process: &Process, call: &str) {
        if !self.is_over(sys::clock::now()) {
            return;
        }
        let Some(job) = process.job.as_deref() else { return };
        let (who, seconds) =
            (job.membership.segment.name(job.membership.rank.peer()), SILENCE_NS / 1_000_000_000);
        eprint!(
            "outboard: {who}: {call} has waited {seconds} s for what others have not matched:\n{}",
            report(process)
        );
    }

    /// Whether the call has now waited so long that the wait is to be reported. Returns true only once.
    fn is_over(&mut self, now: u64) -> bool {
        let over = now >= self.ends;
        if over {
            self.ends = u64::MAX;
        }
        over
    }
}

/// Returns a sentence that says which MPI function waits, and for what.
pub(crate) fn sentence(process: &Process, name: &str, on: On, awaiting: &Awaiting) -> String {
    let mut text = name.to_owned();
    if let On::Comm(handle) | On::Win(handle) | On::File(handle) = on {
        let name = process.objects.comm(handle).map(|comm| comm.name.clone()).unwrap_or_default();
        let known = if name.is_empty() { handle.to_string() } else { name };
        write!(text, " on {known}").expect("a String takes all");
    }
    let operation = match awaiting {
        Awaiting::Nothing => None,
        Awaiting::Operation(operation) => Some(operation.clone()),
        Awaiting::Request(handle) => process.awaited(*handle),
    };
    if let Some(operation) = operation {
        write!(text, ": {}", describe(process, &operation, matches!(on, On::Comm(_))))
            .expect("a String takes all");
    }
    text
}

impl Process {
    /// Describes the message that the request `handle` sends or receives. Returns None if its operation is no
    /// single message.
    fn awaited(&self, handle: objects::Handle) -> Option<OperationReport> {
        let job = self.job.as_deref()?;
        if let Some(receive) = job.deferred.get(handle) {
            return job.p2p.describe(receive.ticket());
        }
        job.p2p.describe(job.requests.get(handle).ok()?.work.as_ref()?.inner().ticket()?)
    }
}

/// Returns a report of all operations that are under way: receives, sends, arrived messages, collectives.
pub(crate) fn report(process: &Process) -> String {
    let Some(job) = process.job.as_deref() else { return String::new() };
    let mut text = String::new();
    let operations = job.p2p.operations();
    for (title, all) in [
        ("posted receives", &[OperationState::Posted][..]),
        ("receives under way", &[OperationState::Receiving]),
        ("sends not matched", &[OperationState::Queued, OperationState::Offered]),
        ("sends under way", &[OperationState::Sending]),
        ("unexpected messages", &[OperationState::Unexpected]),
    ] {
        let these: Vec<&OperationReport> =
            operations.iter().filter(|operation| all.contains(&operation.what)).collect();
        if these.is_empty() {
            continue;
        }
        writeln!(text, "{title}: {}", these.len()).expect("a String takes all");
        these.iter().take(NAMED_MAX).for_each(|operation| {
            writeln!(text, "  {}", describe(process, operation, false)).expect("a String takes all");
        });
        if these.len() > NAMED_MAX {
            writeln!(text, "  and {} more", these.len() - NAMED_MAX).expect("a String takes all");
        }
    }
    for PendingOperation { context, sequence, steps, done, absent, is_offloaded } in job.coll.pending() {
        let comm = comm_of(process, Some(context));
        let by = if is_offloaded { ", carried out by a proxy" } else { "" };
        let noun = if is_partitioned(job, context) { "partition" } else { "collective" };
        write!(text, "{noun} number {sequence}{}: {done} of {steps} steps done{by}", named(comm))
            .expect("a String takes all");
        if !absent.is_empty() {
            let ranks: Vec<String> = absent.iter().take(NAMED_MAX).map(|peer| rank_in(comm, *peer)).collect();
            let more = if absent.len() > NAMED_MAX { ", ..." } else { "" };
            write!(text, "; not started by rank {}{more}", ranks.join(", ")).expect("a String takes all");
        }
        text.push('\n');
    }
    for (calls, rank) in job.coll.pending_on_flat() {
        let comm = comms(&process.objects).find(|(_, comm)| match calls {
            coll::FlatCalls::Blocking(set) => comm.flat == objects::FlatState::Attached(set),
            coll::FlatCalls::Queued(queue) => comm.queue == objects::QueueState::Open(queue),
        });
        writeln!(text, "short collective{}: not started by rank {rank}", named(comm))
            .expect("a String takes all");
    }
    text + &failed_polls()
}

/// Whether a partitioned send or receive of this process uses `context` as its context id.
fn is_partitioned(job: &JobState, context: u64) -> bool {
    let mut recipes = job.requests.iter().filter_map(|(_, request)| request.recipe.as_deref());
    recipes.any(|recipe| matches!(recipe, Recipe::Partitioned(made) if made.context == context))
}

/// Returns a line that says how many polls (MPI_Test, MPI_Iprobe, ...) have found nothing so far, by
/// function. Returns an empty text if there were none.
fn failed_polls() -> String {
    let counted = telemetry::page().values();
    let polls: Vec<String> = counted
        .filter_map(|(counter, polls)| {
            Some(format!("MPI_{} {polls}", capital(counter.name().strip_prefix("vain_")?)))
        })
        .collect();
    if polls.is_empty() { String::new() } else { format!("polls in vain so far: {}\n", polls.join(", ")) }
}

fn capital(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

/// Returns the comm that has the context id `context`, with its handle. Returns None if `context` is None or
/// no comm has it.
fn comm_of(process: &Process, context: Option<u64>) -> Option<(objects::Handle, &objects::Comm)> {
    let context = context?;
    comms(&process.objects).find(|(_, comm)| comm.has_context(context))
}

/// Returns MPI_COMM_WORLD, MPI_COMM_SELF and the comms that the program made, each with its handle.
pub(super) fn comms(objects: &Objects) -> impl Iterator<Item = (objects::Handle, &objects::Comm)> {
    let predefined = [COMM_WORLD, COMM_SELF].into_iter();
    let predefined = predefined.filter_map(|handle| Some((handle, objects.comm(handle).ok()?)));
    predefined.chain(objects.comms.iter())
}

fn named(comm: Option<(objects::Handle, &objects::Comm)>) -> String {
    match comm {
        Some((_, comm)) if !comm.name.is_empty() => format!(" on {}", comm.name),
        Some((handle, _)) => format!(" on {handle}"),
        None => String::new(),
    }
}

/// Returns the rank of the process `peer` in `comm` as text. Where `comm` is None or has no such member, the
/// text is the process's number in the job.
fn rank_in(comm: Option<(objects::Handle, &objects::Comm)>, peer: u32) -> String {
    let rank = comm.and_then(|(_, comm)| comm.partners().rank_of(peer).or_else(|| comm.group.rank_of(peer)));
    rank.unwrap_or(peer).to_string()
}

fn describe(process: &Process, operation: &OperationReport, comm_is_known: bool) -> String {
    let comm = comm_of(process, operation.context);
    let peer = operation.peer.map_or("any rank".to_owned(), |peer| format!("rank {}", rank_in(comm, peer)));
    let tag = operation.tag.map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
    let direction = if matches!(
        operation.what,
        OperationState::Queued | OperationState::Offered | OperationState::Sending
    ) {
        "to"
    } else {
        "from"
    };
    let of_comm = if comm_is_known { String::new() } else { named(comm) };
    let bytes = match (operation.what, operation.bytes) {
        // A probe.
        (OperationState::Posted, 0) => String::new(),
        (_, bytes) => format!(", {bytes} bytes"),
    };
    format!("{direction} {peer}, {tag}{bytes}{of_comm}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_over_once() {
        let before = sys::clock::now();
        let mut silence = Silence::start();
        let after = sys::clock::now();
        assert!((before + SILENCE_NS..=after + SILENCE_NS).contains(&silence.ends));
        let end = silence.ends;
        let asked = [after, end - 1, end, end, end + SILENCE_NS];
        assert_eq!(asked.map(|now| silence.is_over(now)), [false, false, true, false, false]);
    }
}
