// SPDX-License-Identifier: BSD-3-Clause
//! The report of what a program has not freed when it finalizes MPI, printed with OUTBOARD_CHECK=2: one line
//! for each object, request, and message.

use crate::process::{Guard, JobState};
use crate::request::{Recipe, Work};
use datatype::Buffer;
use objects::context::{CONNECT_CONTEXT, PORT_CONTEXT, WINDOW_CONTEXT};
use objects::{Handle, HandleTable};
use p2p::{PendingOperation, Probe};

/// A message that arrived and was never received.
pub(crate) struct Lost {
    context: u64,
    message: Probe,
}

/// Takes the messages that no receive can match any more, and adds them to `lost`. Called in MPI_Finalize. If
/// this process did not take these messages, their sends would never end.
pub(crate) fn drain(guard: &mut crate::process::Process, lost: &mut Vec<Lost>) {
    let job = guard.job();
    // Messages that matched probes took out of the queue.
    let probed: Vec<Handle> = job.messages.iter().map(|(handle, _)| handle).collect();
    for handle in probed {
        if let Ok(taken) = job.messages.remove(handle)
            && let Some(ticket) = job.p2p.imrecv(taken.message, Buffer::EMPTY)
        {
            lost.push(Lost { context: taken.context, message: taken.probe });
            job.p2p.free(ticket);
        }
    }
    // Requests of other ranks on this rank's windows are carried out until all ranks have left.
    let sent = job
        .p2p
        .drain(|context| context != WINDOW_CONTEXT)
        .into_iter()
        .filter(|(context, _)| !is_of_port(*context));
    lost.extend(sent.map(|(context, message)| Lost { context, message }));
}

/// Whether the library itself uses this context, for messages by which it connects groups. Such messages are
/// left only by a failed connection, of which the program knows by an error.
fn is_of_port(context: u64) -> bool {
    [PORT_CONTEXT, CONNECT_CONTEXT].contains(&context)
}

/// Prints a line for each object, request and message that this process has not freed or received. Called
/// when all processes are in MPI_Finalize.
pub(crate) fn report(guard: &mut Guard, lost: &[Lost]) {
    // The last messages may still be in the rings.
    guard.progress();
    let mut lines: Vec<String> = Vec::new();
    for Lost { context, message } in lost {
        lines.push(lost_in_words(guard, *context, *message));
    }
    for pending in guard.job().p2p.pending() {
        if !matches!(pending, PendingOperation::Message { context, .. } if is_of_port(context)) {
            lines.push(in_words(guard, pending));
        }
    }
    let JobState { requests, deferred, sent, .. } = guard.job();
    let requests = requests.iter().map(|(handle, _)| handle).chain(deferred.handles());
    let requests: Vec<Handle> = requests.filter(|handle| Some(*handle) != *sent).collect();
    lines.extend(requests.into_iter().filter_map(|handle| request_in_words(guard, handle)));
    let objects = &guard.objects;
    for (handle, comm) in objects.comms.iter() {
        let name = if comm.name.is_empty() { String::new() } else { format!(", named {}", comm.name) };
        lines.push(format!("communicator {handle}{name}, of {} processes, was never freed", comm.size()));
    }
    for (handle, entry) in objects.datatypes.iter() {
        let name = if entry.name.is_empty() { String::new() } else { format!(", named {}", entry.name) };
        lines.push(format!("datatype {handle}{name}, of {} bytes, was never freed", entry.datatype.size()));
    }
    unfreed(&mut lines, "group", &objects.groups);
    unfreed(&mut lines, "operation", &objects.ops);
    unfreed(&mut lines, "info", &objects.infos);
    let job = guard.job();
    unfreed(&mut lines, "window", &job.windows);
    let rank = job.membership.rank;
    lines.iter().for_each(|line| eprintln!("outboard: rank {rank}, MPI_Finalize: {line}"));
}

fn unfreed<T>(lines: &mut Vec<String>, noun: &str, table: &HandleTable<T>) {
    lines.extend(table.iter().map(|(handle, _)| format!("{noun} {handle} was never freed")));
}

/// Returns words that name the comm with the context id `context`, for a line about something not freed.
fn comm_of(guard: &Guard, context: u64) -> String {
    let comms = &guard.objects.comms;
    let named = [objects::constants::COMM_WORLD, objects::constants::COMM_SELF];
    let mut all = named.into_iter().chain(comms.iter().map(|(handle, _)| handle));
    match all.find(|handle| comms.get(*handle).is_ok_and(|comm| comm.context == context)) {
        Some(handle) => format!("on {handle}"),
        None => "on a communicator that is gone".to_owned(),
    }
}

fn lost_in_words(guard: &Guard, context: u64, Probe { source_peer, tag, bytes }: Probe) -> String {
    let comm = comm_of(guard, context);
    format!("message of {bytes} bytes from rank {source_peer}, tag {tag}, {comm}, was never received")
}

/// Returns the line by which MPI_Finalize reports a point-to-point operation that has not ended.
fn in_words(guard: &Guard, pending: PendingOperation) -> String {
    match pending {
        PendingOperation::Receive { pattern, capacity } => {
            let source = pattern.source.map_or("any rank".to_owned(), |rank| format!("rank {rank}"));
            let tag = pattern.tag.map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
            let comm = comm_of(guard, pattern.context);
            format!("receive of up to {capacity} bytes from {source}, {tag}, {comm}, was never matched")
        }
        PendingOperation::Send { dest_peer, envelope, bytes, .. } => {
            let comm = comm_of(guard, envelope.context);
            format!("send of {bytes} bytes to rank {dest_peer}, tag {}, {comm}, has not ended", envelope.tag)
        }
        PendingOperation::Transfer { source_peer, tag, left } => {
            format!("receive from rank {source_peer}, tag {tag}, lacks {left} bytes")
        }
        PendingOperation::Message { context, probe } => lost_in_words(guard, context, probe),
    }
}

/// Returns the line by which MPI_Finalize reports a request that the program has not completed or freed.
/// Returns None for a send or receive under way, of which another line tells.
fn request_in_words(guard: &mut Guard, handle: Handle) -> Option<String> {
    let over = guard.peek(handle).unwrap_or(true);
    // A deferred receive has no entry.
    let request = guard.job().requests.get(handle).ok();
    let recipe = request.and_then(|request| request.recipe.as_deref().map(Recipe::inner));
    let kind = match (recipe, request.and_then(|request| request.work.as_ref().map(Work::inner))) {
        (Some(Recipe::Send { .. }), _) => "a persistent send",
        (Some(Recipe::Recv { .. }), _) => "a persistent receive",
        (Some(Recipe::Partitioned(_)), _) => "a partitioned message",
        (Some(_), _) => "a persistent collective",
        (None, Some(Work::Done(completion))) if completion.generalized.is_some() => "a generalized request",
        (None, Some(Work::Generalized { .. })) => "a generalized request",
        (None, None | Some(Work::Send(_) | Work::Recv(..) | Work::Long(_))) if !over => return None,
        (None, _) if over => "an operation that has ended",
        (None, _) => "an operation that has not ended",
    };
    let active = if over { "" } else { ", still active" };
    let left = if recipe.is_none() { "completed" } else { "freed" };
    Some(format!("request {handle}, {kind}{active}, was never {left}"))
}
