//! Point-to-point communication (MPI 5.0, chapter 3): sends, receives, probes, persistent requests.

use super::request::enter_persistent;
use crate::args::{Address, Handle, Out, Status, StatusOut};
use crate::fast::message::tag_of;
use crate::process::{Awaiting, Guard, On, Process};
use crate::request::{Both, Completion, Receive, Recipe, Send, Source, Taken, Work, status_of};
use datatype::Buffer;
use error::{Class, Result, fail};
use objects::{Comm, Group, constants};
use p2p::{Indirect, Mode, Ticket};
use std::sync::Arc;
use telemetry::Counter;

/// MPI_Send
pub fn send(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
) -> Result<()> {
    blocking_send(guard, Mode::Standard, buf, count, datatype, dest, tag, comm)
}

/// MPI_Bsend
pub fn bsend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
) -> Result<()> {
    blocking_send(guard, BUFFERED, buf, count, datatype, dest, tag, comm)
}

/// MPI_Ssend
pub fn ssend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
) -> Result<()> {
    blocking_send(guard, Mode::Synchronous, buf, count, datatype, dest, tag, comm)
}

/// MPI_Rsend
pub fn rsend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
) -> Result<()> {
    blocking_send(guard, Mode::Standard, buf, count, datatype, dest, tag, comm)
}

/// MPI_Isend
pub fn isend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    nonblocking_send(guard, Mode::Standard, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Ibsend
pub fn ibsend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    nonblocking_send(guard, BUFFERED, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Issend
pub fn issend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    nonblocking_send(guard, Mode::Synchronous, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Irsend
pub fn irsend(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    nonblocking_send(guard, Mode::Standard, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Send_init
pub fn send_init(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    persistent_send(guard, Mode::Standard, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Bsend_init
pub fn bsend_init(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    persistent_send(guard, BUFFERED, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Ssend_init
pub fn ssend_init(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    persistent_send(guard, Mode::Synchronous, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Rsend_init
pub fn rsend_init(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    dest: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    persistent_send(guard, Mode::Standard, buf, count, datatype, dest, tag, comm, request)
}

/// MPI_Recv
#[inline(always)]
pub fn recv(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    source: i32,
    tag: i32,
    comm: Handle,
    status: StatusOut,
) -> Result<()> {
    let completion = match (guard.plain(buf, count, datatype, source, comm), tag_of(tag)) {
        (Some(message), Some(tag)) => message.recv(guard, tag),
        _ => guard.incoming(buf, count, datatype, source, tag, comm)?.finish(guard)?,
    };
    completion.tell(status)
}

/// MPI_Irecv
#[rustfmt::skip]
pub fn irecv(
    guard: &mut Guard, buf: Address, count: i64, datatype: Handle, source: i32, tag: i32, comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    guard.job().requests.reserve()?;
    let receive = guard.incoming(buf, count, datatype, source, tag, comm)?;
    let work = receive.start(guard)?;
    request.set(guard.request(comm, work)?)
}

/// MPI_Recv_init
pub fn recv_init(
    guard: &mut Guard,
    buf: Address,
    count: i64,
    datatype: Handle,
    source: i32,
    tag: i32,
    comm: Handle,
    request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let recipe = Recipe::Recv(guard.incoming(buf, count, datatype, source, tag, comm)?);
    enter_persistent(guard, comm, recipe, request)
}

/// MPI_Sendrecv
#[rustfmt::skip]
pub fn sendrecv(
    guard: &mut Guard,
    sendbuf: Address, sendcount: i64, sendtype: Handle, dest: i32, sendtag: i32,
    recvbuf: Address, recvcount: i64, recvtype: Handle, source: i32, recvtag: i32,
    comm: Handle, status: StatusOut,
) -> Result<()> {
    let recv = guard.incoming(recvbuf, recvcount, recvtype, source, recvtag, comm)?;
    let send = guard.outgoing(Mode::Standard, sendbuf, sendcount, sendtype, dest, sendtag, comm)?;
    exchange(guard, send, recv)?.tell(status)
}

/// MPI_Isendrecv
#[rustfmt::skip]
pub fn isendrecv(
    guard: &mut Guard,
    sendbuf: Address, sendcount: i64, sendtype: Handle, dest: i32, sendtag: i32,
    recvbuf: Address, recvcount: i64, recvtype: Handle, source: i32, recvtag: i32,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let recv = guard.incoming(recvbuf, recvcount, recvtype, source, recvtag, comm)?;
    let send = guard.outgoing(Mode::Standard, sendbuf, sendcount, sendtype, dest, sendtag, comm)?;
    let work = start_both(guard, send, recv, None)?;
    request.set(guard.request(comm, work)?)
}

/// MPI_Sendrecv_replace
#[rustfmt::skip]
pub fn sendrecv_replace(
    guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, sendtag: i32, source: i32,
    recvtag: i32, comm: Handle, status: StatusOut,
) -> Result<()> {
    let work = replace(guard, buf, count, datatype, dest, sendtag, source, recvtag, comm)?;
    guard.finish(work).tell(status)
}

/// MPI_Isendrecv_replace
#[rustfmt::skip]
pub fn isendrecv_replace(
    guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, sendtag: i32, source: i32,
    recvtag: i32, comm: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let work = replace(guard, buf, count, datatype, dest, sendtag, source, recvtag, comm)?;
    request.set(guard.request(comm, work)?)
}

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
    guard.finish(work).tell(status)
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

/// The buffered mode. `Process::outgoing` fills in the comm's session.
const BUFFERED: Mode = Mode::Buffered { session: 0 };

#[allow(clippy::too_many_arguments)] // MPI_Send's, and the mode.
#[rustfmt::skip]
fn blocking_send(
    guard: &mut Guard, mode: Mode, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32,
    comm: Handle,
) -> Result<()> {
    match guard.outgoing(mode, buf, count, datatype, dest, tag, comm)?.start(guard)? {
        Ticket::DONE => Ok(()),
        ticket => guard.finish(Work::Send(ticket)).error.map_or(Ok(()), Err),
    }
}

#[allow(clippy::too_many_arguments)] // MPI_Isend's, and the mode.
#[rustfmt::skip]
fn nonblocking_send(
    guard: &mut Guard, mode: Mode, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    guard.job().requests.reserve()?;
    let ticket = guard.outgoing(mode, buf, count, datatype, dest, tag, comm)?.start(guard)?;
    request.set(match (ticket, guard.job().sent) {
        (Ticket::DONE, Some(sent)) => sent,
        _ => guard.request(comm, Work::Send(ticket))?,
    })
}

#[allow(clippy::too_many_arguments)] // MPI_Send_init's, and the mode.
#[rustfmt::skip]
fn persistent_send(
    guard: &mut Guard, mode: Mode, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32,
    comm: Handle, request: Out<Handle>,
) -> Result<()> {
    request.check()?;
    let recipe = Recipe::Send(guard.outgoing(mode, buf, count, datatype, dest, tag, comm)?);
    enter_persistent(guard, comm, recipe, request)
}

/// Sends and receives, and waits for both. The receive's status counts, and the send's error before the
/// receive's.
fn exchange(guard: &mut Guard, send: Send, recv: Receive) -> Result<Completion> {
    let send = send.start(guard)?;
    if send == Ticket::DONE {
        return recv.finish(guard);
    }
    let recv = recv.start(guard)?;
    let sent = guard.finish(Work::Send(send));
    let mut received = guard.finish(recv);
    received.error = sent.error.or(received.error);
    Ok(received)
}

/// Starts a send and a receive that end together. `packed` holds what is sent, if it was packed aside.
fn start_both(guard: &mut Guard, send: Send, recv: Receive, packed: Option<Box<[u8]>>) -> Result<Work> {
    let recv = recv.start(guard)?;
    let send = send.start(guard)?;
    let completion = Completion::EMPTY;
    Ok(Work::Both(Box::new(Both { send: Some(Work::Send(send)), recv: Some(recv), packed, completion })))
}

/// Starts MPI_Sendrecv_replace: packs the message aside, so the receive may overwrite the buffer at once.
#[allow(clippy::too_many_arguments)] // MPI_Sendrecv_replace's.
#[rustfmt::skip]
fn replace(
    guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, sendtag: i32, source: i32,
    recvtag: i32, comm: Handle,
) -> Result<Work> {
    let recv = guard.incoming(buf, count, datatype, source, recvtag, comm)?;
    let mut send = guard.outgoing(Mode::Standard, buf, count, datatype, dest, sendtag, comm)?;
    let (mut packed, bytes) = (Vec::new(), send.buffer.bytes());
    if packed.try_reserve_exact(bytes).is_err() {
        fail!(Class::NoMem, "cannot allocate {bytes} bytes to hold the message while the receive overwrites it");
    }
    packed.resize(bytes, 0u8);
    let mut packed = packed.into_boxed_slice();
    let aside = crate::args::memory(&mut packed);
    send.buffer.pack(0, aside);
    send.buffer = Buffer::from(aside);
    start_both(guard, send, recv, Some(packed))
}

/// Starts the receive of a message that a matched probe took out of the queue. Its handle becomes invalid.
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
    Ok((taken.comm, Work::Recv(ticket, Source::Any(taken.group))))
}

/// A probe's arguments, checked.
struct Probe {
    comm: Handle,
    context: u64,
    source: Source,
    tag: Option<i32>,
    group: Arc<Group>,
}

impl Probe {
    /// The same for a deadlock report.
    fn operation(&self) -> p2p::Operation {
        let (context, peer) = (Some(self.context), self.source.peer());
        p2p::Operation { what: p2p::What::Posted, context, peer, tag: self.tag, bytes: 0 }
    }

    fn probe(&self, process: &mut Process) -> Option<Status> {
        if let Source::Nobody = self.source {
            return Some(Status::NO_PROCESS);
        }
        let found = process.job().p2p.iprobe(self.context, self.source.peer(), self.tag)?;
        Some(status_of(found.source_peer, found.tag, found.bytes, &self.group))
    }

    fn extract(&self, process: &mut Process) -> Result<Option<(Handle, Status)>> {
        if let Source::Nobody = self.source {
            return Ok(Some((constants::MESSAGE_NO_PROC, Status::NO_PROCESS)));
        }
        let found = process.job().p2p.improbe(self.context, self.source.peer(), self.tag);
        let Some((message, found)) = found else { return Ok(None) };
        let status = status_of(found.source_peer, found.tag, found.bytes, &self.group);
        let (context, group) = (self.context, self.group.clone());
        let taken = Taken { comm: self.comm, context, group, message, probe: found };
        Ok(Some((process.job().messages.insert(taken)?, status)))
    }
}

impl Process {
    /// The arguments of a send, checked.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // MPI_Send's, and the mode.
    #[rustfmt::skip]
    pub(crate) fn outgoing(
        &mut self, mode: Mode, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32, comm: Handle,
    ) -> Result<Send> {
        let buffer = self.message_buffer(buf, count, datatype, dest)?;
        if tag < 0 {
            fail!(Class::Tag, "tag {tag} is negative; a send takes 0 to {}", i32::MAX);
        }
        let comm = self.objects.comm(comm)?;
        let peer = if dest == constants::PROC_NULL { None } else { Some(comm.peer(dest)?) };
        let mode = if mode == BUFFERED { Mode::Buffered { session: comm.session } } else { mode };
        Ok(Send { mode, context: comm.context, peer, tag, buffer })
    }

    /// The arguments of a receive, checked.
    #[inline(always)]
    #[rustfmt::skip]
    pub(crate) fn incoming(
        &mut self, buf: Address, count: i64, datatype: Handle, source: i32, tag: i32, comm: Handle,
    ) -> Result<Receive> {
        let buffer = self.message_buffer(buf, count, datatype, source)?;
        let comm = self.objects.comm(comm)?;
        let (source, tag) = envelope(comm, source, tag)?;
        Ok(Receive { context: comm.context, source, tag, buffer })
    }

    /// The arguments of a probe, checked.
    fn probe(&mut self, source: i32, tag: i32, handle: Handle) -> Result<Probe> {
        let comm = self.objects.comm(handle)?;
        let (source, tag) = envelope(comm, source, tag)?;
        Ok(Probe { comm: handle, context: comm.context, source, tag, group: comm.partners().clone() })
    }
}

/// Source and tag of a receive or a probe, checked.
#[inline(always)]
fn envelope(comm: &Comm, source: i32, tag: i32) -> Result<(Source, Option<i32>)> {
    let source = match source {
        constants::PROC_NULL => Source::Nobody,
        constants::ANY_SOURCE => Source::Any(comm.partners().clone()),
        rank => Source::Peer { peer: comm.peer(rank)?, rank },
    };
    let tag = match tag {
        constants::ANY_TAG => None,
        0.. => Some(tag),
        _ => fail!(Class::Tag, "tag {tag} is negative and not MPI_ANY_TAG"),
    };
    Ok((source, tag))
}

impl Send {
    /// Starts the send.
    #[inline(always)] // So that its fields are not copied.
    pub(crate) fn start(self, process: &mut Process) -> Result<Ticket> {
        let Send { mode, context, peer, tag, buffer } = self;
        let Some(peer) = peer else { return Ok(Ticket::DONE) };
        process.job().p2p.isend(mode, context, peer, tag, buffer)
    }
}

impl Receive {
    /// Receives the message. If it is the next packet of its source, this takes no request.
    #[inline]
    fn finish(self, guard: &mut Guard) -> Result<Completion> {
        if let Source::Peer { peer, .. } = self.source {
            let next = |process: &mut Process| {
                process.job().p2p.recv_next(self.context, peer, self.tag, &self.buffer).transpose()
            };
            match guard.look_for_message(peer, next) {
                Some(Ok(outcome)) => return Ok(Completion::of(outcome, &self.source)),
                Some(Err(Indirect::Started(ticket))) => {
                    return Ok(guard.finish(Work::Recv(ticket, self.source)));
                }
                Some(Err(Indirect::Unstarted)) | None => (),
            }
        }
        let work = self.start(guard)?;
        Ok(guard.finish(work))
    }

    /// Starts the receive.
    #[inline(always)] // So that its fields are not copied.
    pub(crate) fn start(self, process: &mut Process) -> Result<Work> {
        let Receive { context, source, tag, buffer } = self;
        if let Source::Nobody = source {
            return Ok(Work::Done(Completion::NO_PROCESS));
        }
        Ok(Work::Recv(process.job().p2p.irecv(context, source.peer(), tag, buffer), source))
    }
}

impl Recipe {
    /// Starts the persistent operation once.
    pub(crate) fn start(&mut self, process: &mut Process) -> Result<Work> {
        match self {
            Recipe::Send(send) => Ok(Work::Send(send.clone().start(process)?)),
            Recipe::Recv(receive) => receive.clone().start(process),
            Recipe::Coll { planned, members, queue, .. } => planned.start_again(members, queue, process),
            Recipe::Partitioned(made) => made.start(&mut process.job().p2p),
        }
    }
}
