// SPDX-License-Identifier: BSD-3-Clause
//! Point-to-point communication (MPI 5.0, chapter 3): sends, receives, persistent requests. Probes are in
//! `probe.rs`.

use crate::args::{Address, Handle, Out, StatusOut};
use crate::fast::message::tag_of;
use crate::process::message::start_partitioned;
use crate::process::{Guard, JobState, Process};
use crate::request::{Completion, Receive, ReceiveSource, Recipe, Send, SendReceive, Work};
use crate::staging::{self, Unfilled};
use datatype::Buffer;
use error::{Class, Result, fail};
use objects::{Comm, constants};
use p2p::{Mode, NeedsRequest, Ticket};
use sys::Span;

/// Makes three functions for each mode of a send: the blocking, the nonblocking and the persistent one.
macro_rules! sends {
    ($($(#[$doc:meta])* pub fn $blocking:ident, $nonblocking:ident, $persistent:ident($mode:expr);)*) => {
        $(
            $(#[$doc])*
            pub fn $blocking(
                guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32,
                comm: Handle,
            ) -> Result<()> {
                let send = guard.outgoing($mode, buf, count, datatype, dest, tag, comm)?;
                if telemetry::timed() {
                    return finish_timed(guard, send);
                }
                match send.start(guard)? {
                    Ticket::DONE => Ok(()),
                    ticket => guard.finish(Work::Send(ticket)).error.map_or(Ok(()), Err),
                }
            }

            $(#[$doc])*
            pub fn $nonblocking(
                guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32,
                comm: Handle, request: Out<Handle>,
            ) -> Result<()> {
                request.check()?;
                guard.job().requests.reserve()?;
                let work = guard
                    .outgoing($mode, buf, count, datatype, dest, tag, comm)?
                    .start_nonblocking(guard)?;
                request.set(match (&work, guard.job().sent) {
                    (Work::Send(Ticket::DONE), Some(sent)) => sent,
                    _ => guard.request(comm, work)?,
                })
            }

            $(#[$doc])*
            pub fn $persistent(
                guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32,
                comm: Handle, request: Out<Handle>,
            ) -> Result<()> {
                request.check()?;
                let recipe = Recipe::Send(guard.outgoing($mode, buf, count, datatype, dest, tag, comm)?);
                guard.enter_persistent(comm, recipe, request)
            }
        )*
    };
}

/// The buffered mode of a send. `Process::outgoing` replaces the 0 by the session of the comm.
const BUFFERED: Mode = Mode::Buffered { session: 0 };

sends! {
    /// MPI_Send, MPI_Isend, MPI_Send_init
    pub fn send, isend, send_init(Mode::Standard);
    /// MPI_Bsend, MPI_Ibsend, MPI_Bsend_init
    pub fn bsend, ibsend, bsend_init(BUFFERED);
    /// MPI_Ssend, MPI_Issend, MPI_Ssend_init
    pub fn ssend, issend, ssend_init(Mode::Synchronous);
    /// MPI_Rsend, MPI_Irsend, MPI_Rsend_init
    pub fn rsend, irsend, rsend_init(Mode::Standard);
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
    let completion = match (guard.fast_message(buf, count, datatype, source, comm), tag_of(tag)) {
        (Some(message), Some(tag)) => message.recv(guard, tag),
        _ => guard.incoming(buf, count, datatype, source, tag, comm)?.finish(guard)?,
    };
    received(completion, status)
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
    let work = receive.start_nonblocking(guard)?;
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
    guard.enter_persistent(comm, recipe, request)
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
    received(exchange(guard, send, recv)?, status)
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
    let work = start_send_receive(guard, send, recv, None)?;
    request.set(guard.request(comm, work)?)
}

/// MPI_Sendrecv_replace
#[rustfmt::skip]
pub fn sendrecv_replace(
    guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, sendtag: i32, source: i32,
    recvtag: i32, comm: Handle, status: StatusOut,
) -> Result<()> {
    let work = replace(guard, buf, count, datatype, dest, sendtag, source, recvtag, comm)?;
    received(guard.finish(work), status)
}

/// Stores the status of a blocking receive, and returns the receive's error.
#[inline(always)]
fn received(completion: Completion, status: StatusOut) -> Result<()> {
    if device::on() {
        staging::received(completion.status.bytes() as usize);
    }
    completion.store(status)
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

/// Carries out a blocking send, and records its duration. Called if OUTBOARD_STATS or OUTBOARD_TRACE is set.
#[cold]
fn finish_timed(guard: &mut Guard, send: Send) -> Result<()> {
    let work = send.time(guard, |send, process| Ok(Work::Send(send.start(process)?)))?;
    guard.finish(work).error.map_or(Ok(()), Err)
}

/// Sends and receives, and waits for both. Returns the receive's status. If both fail, the error is the
/// send's.
fn exchange(guard: &mut Guard, send: Send, recv: Receive) -> Result<Completion> {
    if telemetry::timed() {
        let both = start_send_receive(guard, send, recv, None)?;
        return Ok(guard.finish(both));
    }
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

/// Starts a send and a receive, which make one request. `packed` is a copy of the data to send, if the
/// receive overwrites the send's buffer. It is None if the two buffers differ.
fn start_send_receive(
    guard: &mut Guard,
    send: Send,
    recv: Receive,
    packed: Option<Box<[u8]>>,
) -> Result<Work> {
    let recv = recv.start_nonblocking(guard)?;
    let send = send.start_nonblocking(guard)?;
    let completion = Completion::EMPTY;
    Ok(Work::SendReceive(Box::new(SendReceive { send: Some(send), recv: Some(recv), packed, completion })))
}

/// Starts MPI_Sendrecv_replace. Sends a packed copy of the message, so that the receive may overwrite the
/// program's buffer at once.
#[allow(clippy::too_many_arguments)] // MPI_Sendrecv_replace's.
#[rustfmt::skip]
fn replace(
    guard: &mut Guard, buf: Address, count: i64, datatype: Handle, dest: i32, sendtag: i32, source: i32,
    recvtag: i32, comm: Handle,
) -> Result<Work> {
    let recv = guard.incoming(buf, count, datatype, source, recvtag, comm)?;
    let mut send = guard.outgoing(Mode::Standard, buf, count, datatype, dest, sendtag, comm)?;
    let whole = send.buffer.filled()?;
    let (mut packed, bytes) = (Vec::new(), whole.bytes());
    if packed.try_reserve_exact(bytes).is_err() {
        fail!(Class::NoMem, "cannot allocate {bytes} bytes to hold the message while the receive overwrites it");
    }
    packed.resize(bytes, 0u8);
    let mut packed = packed.into_boxed_slice();
    // SAFETY: the work that `start_send_receive` returns owns the box until the send is over.
    let aside = unsafe { Span::claim(packed.as_mut_ptr().expose_provenance(), packed.len()) };
    whole.pack(0, aside);
    send.buffer = Unfilled::new(Buffer::from(aside));
    start_send_receive(guard, send, recv, Some(packed))
}

impl Process {
    /// Checks the arguments of a send, and converts them to the library's own types.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // MPI_Send's, and the mode.
    #[rustfmt::skip]
    pub(crate) fn outgoing(
        &mut self, mode: Mode, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32, comm: Handle,
    ) -> Result<Send> {
        let buffer = self.message_buffer(buf, count, datatype, dest)?;
        if device::on() {
            staging::reads(&buffer);
        }
        if tag < 0 {
            fail!(Class::Tag, "tag {tag} is negative; a send takes 0 to {}", i32::MAX);
        }
        let comm = self.objects.comm(comm)?;
        let peer = if dest == constants::PROC_NULL { None } else { Some(comm.peer(dest)?) };
        let mode = if mode == BUFFERED { Mode::Buffered { session: comm.session } } else { mode };
        Ok(Send { mode, context: comm.context, peer, tag, buffer: Unfilled::new(buffer) })
    }

    /// Checks the arguments of a receive, and converts them to the library's own types.
    #[inline(always)]
    #[rustfmt::skip]
    pub(crate) fn incoming(
        &mut self, buf: Address, count: i64, datatype: Handle, source: i32, tag: i32, comm: Handle,
    ) -> Result<Receive> {
        let buffer = self.message_buffer(buf, count, datatype, source)?;
        if device::on() {
            staging::receives(&buffer);
        }
        let comm = self.objects.comm(comm)?;
        let (source, tag) = envelope(comm, source, tag)?;
        Ok(Receive { context: comm.context, source, tag, buffer })
    }
}

/// Checks the source and the tag of a receive or a probe, and converts them. MPI_ANY_TAG becomes None.
#[inline(always)]
pub(super) fn envelope(comm: &Comm, source: i32, tag: i32) -> Result<(ReceiveSource, Option<i32>)> {
    let source = match source {
        constants::PROC_NULL => ReceiveSource::Nobody,
        constants::ANY_SOURCE => ReceiveSource::Any(comm.partners().clone()),
        rank => ReceiveSource::Peer { peer: comm.peer(rank)?, rank },
    };
    let tag = match tag {
        constants::ANY_TAG => None,
        0.. => Some(tag),
        _ => fail!(Class::Tag, "tag {tag} is negative and not MPI_ANY_TAG"),
    };
    Ok((source, tag))
}

impl Send {
    /// Starts the send. Returns its ticket, the number by which `p2p` knows it, or `DONE` if it is complete
    /// already.
    #[inline(always)] // So that its fields are not copied.
    pub(crate) fn start(self, process: &mut Process) -> Result<Ticket> {
        let Send { mode, context, peer, tag, buffer } = self;
        let bytes = buffer.bytes();
        let buffer = buffer.filled_or_exported(|| exports(process.job(), mode, peer, bytes))?;
        let Some(peer) = peer else { return Ok(Ticket::DONE) };
        process.job().p2p.isend(mode, context, peer, tag, buffer)
    }
}

/// Whether the receiver may read a message from the sender's device memory itself: the receiver is on this
/// host, the message is long, and the send's mode is standard or synchronous.
#[cold]
fn exports(job: &mut JobState, mode: Mode, peer: Option<u32>, bytes: usize) -> Result<bool> {
    match (peer, mode) {
        (Some(peer), Mode::Standard | Mode::Synchronous) => {
            Ok(job.membership.segment.local(peer).is_some() && job.p2p.is_long(peer, bytes)?)
        }
        _ => Ok(false),
    }
}

impl Receive {
    /// Carries out a blocking receive: waits for its message. If this message is the next packet from its
    /// source, receives it without a request.
    #[inline]
    fn finish(self, guard: &mut Guard) -> Result<Completion> {
        if telemetry::timed() {
            let work = self.time(guard, Receive::start)?;
            return Ok(guard.finish(work));
        }
        if let ReceiveSource::Peer { peer, .. } = self.source {
            let next = |process: &mut Process| {
                process.job().p2p.recv_next(self.context, peer, self.tag, &self.buffer).transpose()
            };
            match guard.look_for_message(peer, next) {
                Some(Ok(outcome)) => return Ok(Completion::of(outcome, &self.source)),
                Some(Err(NeedsRequest::Started(ticket))) => {
                    return Ok(guard.finish(Work::Recv(ticket, self.source)));
                }
                Some(Err(NeedsRequest::Unstarted)) | None => (),
            }
        }
        let work = self.start(guard)?;
        Ok(guard.finish(work))
    }

    /// Starts the receive, and returns it as work for which a request or the caller waits.
    #[inline(always)] // So that its fields are not copied.
    pub(crate) fn start(self, process: &mut Process) -> Result<Work> {
        let Receive { context, source, tag, buffer } = self;
        if let ReceiveSource::Nobody = source {
            return Ok(Work::Done(Completion::NO_PROCESS));
        }
        Ok(Work::Recv(process.job().p2p.irecv(context, source.peer(), tag, buffer), source))
    }
}

impl Recipe {
    /// Starts the operation of a persistent request, for MPI_Start.
    pub(crate) fn start(&mut self, process: &mut Process) -> Result<Work> {
        match self {
            Recipe::Send(send) => send.clone().start_nonblocking(process),
            Recipe::Recv(receive) => receive.clone().start_nonblocking(process),
            Recipe::Coll { library: Some(steps), members, .. } => {
                Ok(process.start_by_library(members.context, steps.clone()))
            }
            Recipe::Coll { planned, members, queue, .. } => planned.start_again(members, queue, process),
            Recipe::Partitioned(made) => start_partitioned(made, process),
            Recipe::Staged(recipe, staged) => {
                staged.fetch()?;
                Ok(Work::Staged(Box::new(recipe.start(process)?), staged.clone()))
            }
        }
    }
}
