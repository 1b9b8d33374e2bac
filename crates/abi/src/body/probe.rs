// SPDX-License-Identifier: BSD-3-Clause
//! Probes, and receives of messages that a probe has matched (MPI 5.0, section 3.8).

use super::p2p::envelope;
use crate::args::{Address, Handle, Out, Status, StatusOut};
use crate::process::{Awaiting, Guard, On, Process};
use crate::request::{Completion, MatchedMessage, MessageEnd, ReceiveSource, Timed, Work, status_of};
use error::Result;
use objects::{Group, constants};
use std::sync::Arc;
use telemetry::Counter;

/// MPI_Probe
pub fn probe(guard: &mut Guard, source: i32, tag: i32, comm: Handle, status: StatusOut) -> Result<()> {
    let probe = guard.probe(source, tag, comm)?;
    guard.awaiting = Awaiting::Operation(probe.operation());
    let found = guard.wait(|process| probe.probe(process));
    status.set(found);
    Ok(())
}

/// MPI_Iprobe
pub fn iprobe(
    guard: &mut Guard,
    source: i32,
    tag: i32,
    comm: Handle,
    flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    flag.check()?;
    let probe = guard.probe(source, tag, comm)?;
    let awaiting = || Awaiting::Operation(probe.operation());
    let found = guard.poll(Counter::VainIprobe, awaiting, |process| Ok(probe.probe(process)))?;
    flag.set(i32::from(found.is_some()))?;
    found.into_iter().for_each(|found| status.set(found));
    Ok(())
}

/// MPI_Mprobe
pub fn mprobe(
    guard: &mut Guard,
    source: i32,
    tag: i32,
    comm: Handle,
    message: Out<Handle>,
    status: StatusOut,
) -> Result<()> {
    message.check()?;
    let probe = guard.probe(source, tag, comm)?;
    guard.awaiting = Awaiting::Operation(probe.operation());
    let (handle, found) = guard.wait(|process| probe.extract(process).transpose())?;
    status.set(found);
    message.set(handle)
}

/// MPI_Improbe
#[rustfmt::skip]
pub fn improbe(
    guard: &mut Guard, source: i32, tag: i32, comm: Handle, flag: Out<i32>, message: Out<Handle>,
    status: StatusOut,
) -> Result<()> {
    flag.check()?;
    message.check()?;
    let probe = guard.probe(source, tag, comm)?;
    let awaiting = || Awaiting::Operation(probe.operation());
    let found = guard.poll(Counter::VainImprobe, awaiting, |process| probe.extract(process))?;
    flag.set(i32::from(found.is_some()))?;
    let Some((handle, found)) = found else { return Ok(()) };
    status.set(found);
    message.set(handle)
}

/// MPI_Mrecv
pub fn mrecv(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    message: Out<Handle>,
    status: StatusOut,
) -> Result<()> {
    let (_, work) = start_matched(guard, buf, count, datatype, message)?;
    guard.finish(work).store(status)
}

/// MPI_Imrecv
pub fn imrecv(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    message: Out<Handle>,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let (comm, work) = start_matched(guard, buf, count, datatype, message)?;
    request.set(guard.request(comm, work)?)
}

/// Starts the receive of a message that MPI_Mprobe or MPI_Improbe took out of the queue of arrived messages.
/// Sets the program's handle of the message to MPI_MESSAGE_NULL.
fn start_matched(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    message: Out<Handle>,
) -> Result<(Handle, Work)> {
    let handle = message.get()?;
    // Errors go to the error handler of the message's comm.
    if let Ok(taken) = guard.job().messages.get(handle) {
        let comm = taken.comm;
        guard.blame(On::Comm(comm));
    }
    let buffer = guard.buffer(buf, count, datatype)?;
    if handle == constants::MESSAGE_NO_PROC {
        message.set(constants::MESSAGE_NULL)?;
        return Ok((constants::COMM_NULL, Work::Done(Completion::NO_PROCESS)));
    }
    let taken = guard.job().messages.remove(handle)?;
    message.set(constants::MESSAGE_NULL)?;
    let ticket =
        guard.job().p2p.imrecv(taken.message, buffer).expect("a message in the table has not been received");
    let end =
        taken.operation.is_some().then(|| MessageEnd::matched(taken.context, &taken.group, taken.probe));
    let work = Work::Recv(ticket, ReceiveSource::Any(taken.group));
    Ok((
        taken.comm,
        match end {
            Some(end) => Work::Timed(Box::new(Timed::new(work, end, taken.operation))),
            None => work,
        },
    ))
}

/// The checked arguments of a probe.
struct ProbeArguments {
    comm: Handle,
    context: u64,
    source: ReceiveSource,
    tag: Option<i32>,
    group: Arc<Group>,
}

impl ProbeArguments {
    /// Describes the probe, for the report that a process prints about what it waits for.
    fn operation(&self) -> p2p::OperationReport {
        let (context, peer) = (Some(self.context), self.source.peer());
        p2p::OperationReport { what: p2p::OperationState::Posted, context, peer, tag: self.tag, bytes: 0 }
    }

    fn probe(&self, process: &mut Process) -> Option<Status> {
        if let ReceiveSource::Nobody = self.source {
            return Some(Status::NO_PROCESS);
        }
        let found = process.job().p2p.iprobe(self.context, self.source.peer(), self.tag)?;
        Some(status_of(found.source_peer, found.tag, found.bytes, &self.group))
    }

    fn extract(&self, process: &mut Process) -> Result<Option<(Handle, Status)>> {
        if let ReceiveSource::Nobody = self.source {
            return Ok(Some((constants::MESSAGE_NO_PROC, Status::NO_PROCESS)));
        }
        let found = process.job().p2p.improbe(self.context, self.source.peer(), self.tag);
        let Some((message, found)) = found else { return Ok(None) };
        let status = status_of(found.source_peer, found.tag, found.bytes, &self.group);
        let (context, group) = (self.context, self.group.clone());
        let operation = match telemetry::timed() {
            true => process.message(&MessageEnd::matched(context, &group, found), Some(found.source_peer)),
            false => None,
        };
        let taken = MatchedMessage { comm: self.comm, context, group, message, probe: found, operation };
        Ok(Some((process.job().messages.insert(taken)?, status)))
    }
}

impl Process {
    /// Checks the arguments of a probe, and converts them to the library's own types.
    fn probe(&mut self, source: i32, tag: i32, handle: Handle) -> Result<ProbeArguments> {
        let comm = self.objects.comm(handle)?;
        let (source, tag) = envelope(comm, source, tag)?;
        Ok(ProbeArguments {
            comm: handle,
            context: comm.context,
            source,
            tag,
            group: comm.partners().clone(),
        })
    }
}
