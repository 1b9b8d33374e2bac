//! The fast path of the most frequent calls: data without gaps, to or from one rank of a comm or window, and
//! short allreduces.
//!
//! Invariants: a call that returns `None` has done nothing; it takes the general path. That is also the path
//! of every call whose arguments may be wrong. Nothing that needs a drop is made between the arguments and
//! the ring, the slots or the window's memory, so all values stay in registers. A structure that is moved is
//! read in wider words than it was written in. Such a read stalls until all earlier stores have left the
//! core, also that into the previous message's slot, whose cache line the peer holds.

use crate::args::{Address, Handle, Out};
use crate::buffer::lent;
use crate::collective::Reduced;
use crate::process::{Guard, Job, Process};
use crate::request::{Completion, Request, Source, Work};
use crate::short;
use datatype::Buffer;
use objects::constants;
use p2p::Indirect;
use rma::Way;
use sys::Span;

/// MPI_Send
#[inline(always)]
#[rustfmt::skip]
pub fn send(
    process: &mut Process, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32, comm: Handle,
) -> Option<()> {
    let message = process.plain(buf, count, datatype, dest, comm)?;
    message.send(process, tag).then_some(())
}

/// MPI_Isend
#[inline(always)]
#[rustfmt::skip]
pub fn isend(
    process: &mut Process, buf: Address, count: i64, datatype: Handle, dest: i32, tag: i32, comm: Handle,
    request: Out<Handle>,
) -> Option<()> {
    request.check().ok()?;
    let sent = process.job().sent?;
    let message = process.plain(buf, count, datatype, dest, comm)?;
    if !message.send(process, tag) {
        return None;
    }
    request.set(sent).ok()
}

/// MPI_Irecv
#[inline(always)]
#[rustfmt::skip]
pub fn irecv(
    process: &mut Process, buf: Address, count: i64, datatype: Handle, source: i32, tag: i32, comm: Handle,
    request: Out<Handle>,
) -> Option<()> {
    request.check().ok()?;
    let tag = tag_of(tag)?;
    let started = process.plain(buf, count, datatype, source, comm)?.irecv(process, tag, comm)?;
    request.set(started).ok()
}

/// MPI_Put
#[inline(always)]
#[rustfmt::skip]
pub fn put(
    process: &mut Process, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Option<()> {
    let here = same(process, origin_addr, (origin_count, origin_datatype), (target_count, target_datatype))?;
    process.job().windows.get_mut(win).ok()?.window.copy_now(target_rank, target_disp, here, Way::Put)
}

/// MPI_Get
#[inline(always)]
#[rustfmt::skip]
pub fn get(
    process: &mut Process, origin_addr: Address, origin_count: i64, origin_datatype: Handle, target_rank: i32,
    target_disp: i64, target_count: i64, target_datatype: Handle, win: Handle,
) -> Option<()> {
    let here = same(process, origin_addr, (origin_count, origin_datatype), (target_count, target_datatype))?;
    process.job().windows.get_mut(win).ok()?.window.copy_now(target_rank, target_disp, here, Way::Fetch)
}

/// MPI_Win_flush
#[inline(always)]
pub fn win_flush(process: &mut Process, rank: i32, win: Handle) -> Option<()> {
    let job = process.job();
    if job.polls_window() || !job.shared.may_spin() { None } else { job.flush(rank, win).ok() }
}

/// MPI_Allreduce
#[inline(always)]
#[rustfmt::skip]
pub fn allreduce(
    process: &mut Process, sendbuf: Address, recvbuf: Address, count: i64, datatype: Handle, op: Handle,
    comm: Handle,
) -> Option<()> {
    short::flat_now(process, comm, count, &Reduced { sendbuf, recvbuf, datatype, op })
}

/// The origin's buffer, if the target has the same count and datatype.
#[inline(always)]
fn same(process: &Process, address: Address, origin: (i64, Handle), target: (i64, Handle)) -> Option<Span> {
    if origin == target { process.span(address, origin.0, origin.1) } else { None }
}

/// What is remembered of so many peers.
const FOUND: usize = 8;

/// What the arguments of the latest plain messages came to, by the peer's rank: those of the next are often
/// the same.
pub struct Latest([Found; FOUND]);

/// Arguments of a message but for its buffer and tag, and how many comms and datatypes had been freed before.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    count: i64,
    datatype: Handle,
    rank: i32,
    comm: Handle,
    removals: u64,
}

#[derive(Clone, Copy)]
struct Found {
    asked: Asked,
    context: u64,
    peer: u32,
    bytes: usize,
}

impl Latest {
    /// Nothing: no comm has this handle.
    pub const NONE: Latest = {
        let asked = Asked { count: 0, datatype: Handle(0), rank: 0, comm: Handle(0), removals: 0 };
        Latest([Found { asked, context: 0, peer: 0, bytes: 0 }; FOUND])
    };
}

/// A message's arguments, checked.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    context: u64,
    peer: u32,
    rank: i32,
    span: Span,
}

impl Process {
    /// A buffer without gaps.
    #[inline(always)]
    fn span(&self, address: Address, count: i64, datatype: Handle) -> Option<Span> {
        let layout = self.objects.committed(datatype).ok()?.layout();
        let elements = usize::try_from(count).ok()?;
        let bytes = Buffer::bytes_of(elements, layout)?;
        lent(address, elements, bytes, layout).ok()?.contiguous()
    }

    /// The arguments of a message with the process `rank` of a comm; nothing where they are not plain.
    #[inline(always)]
    pub(super) fn plain(
        &mut self,
        buf: Address,
        count: i64,
        datatype: Handle,
        rank: i32,
        comm: Handle,
    ) -> Option<Plain> {
        let asked = Asked { count, datatype, rank, comm, removals: self.removals() };
        let Found { asked: before, context, peer, bytes } = self.found.0[rank as usize % FOUND];
        if asked == before
            && let Some(span) = buf.plain(bytes)
        {
            return Some(Plain { context, peer, rank, span });
        }
        self.find(buf, count, datatype, rank, comm)
    }

    #[inline(never)] // With what was asked in registers: the fast path has no place for it.
    fn find(&mut self, buf: Address, count: i64, datatype: Handle, rank: i32, comm: Handle) -> Option<Plain> {
        let span = self.span(buf, count, datatype)?;
        let known = self.objects.comm(comm).ok()?;
        if rank < 0 {
            return None;
        }
        let (context, peer) = (known.context, known.peer(rank).ok()?);
        // Of a datatype that begins elsewhere than at its buffer nothing is kept.
        if span.address() == buf.0 {
            let asked = Asked { count, datatype, rank, comm, removals: self.removals() };
            self.found.0[rank as usize % FOUND] = Found { asked, context, peer, bytes: span.bytes() };
        }
        Some(Plain { context, peer, rank, span })
    }

    /// How many comms and datatypes have been freed.
    #[inline(always)]
    pub(crate) fn removals(&self) -> u64 {
        self.objects.comms.removals() + self.objects.datatypes.removals()
    }
}

impl Plain {
    /// Sends it, if it can leave at once.
    #[inline(always)]
    fn send(self, process: &mut Process, tag: i32) -> bool {
        tag >= 0 && process.job().p2p.send_now(self.context, self.peer, tag, self.span)
    }

    /// Receives it.
    #[inline(always)]
    pub(super) fn recv(self, guard: &mut Guard, tag: Option<i32>) -> Completion {
        let Plain { context, peer, rank, span } = self;
        let next = |process: &mut Process| process.job().p2p.recv_now(context, peer, tag, span).transpose();
        match guard.look_for_message(peer, next) {
            Some(Ok(outcome)) => Completion::of(outcome, &Source::Peer { peer, rank }),
            next => {
                let ticket = match next {
                    Some(Err(Indirect::Started(ticket))) => ticket,
                    _ => guard.job().p2p.irecv(context, Some(peer), tag, span.into()),
                };
                guard.finish(Work::Recv(ticket, Source::Peer { peer, rank }))
            }
        }
    }

    /// As a request; nothing where there is no room for one more.
    #[inline(always)]
    fn irecv(self, process: &mut Process, tag: Option<i32>, comm: Handle) -> Option<Handle> {
        let Plain { context, peer, rank, span } = self;
        let Job { p2p, deferred, requests, .. } = process.job();
        if let Some(number) = p2p.defer(context, peer, tag, span) {
            return Some(deferred.enter(number, comm, peer, rank));
        }
        requests.reserve().ok()?;
        let ticket = p2p.irecv_posted(context, Some(peer), tag, span.into());
        let work = Some(Work::Recv(ticket, Source::Peer { peer, rank }));
        Some(requests.put(Request { comm, work, recipe: None }))
    }
}

/// The tag of a plain receive; nothing where it is wrong.
#[inline(always)]
pub(super) fn tag_of(tag: i32) -> Option<Option<i32>> {
    match tag {
        constants::ANY_TAG => Some(None),
        0.. => Some(Some(tag)),
        _ => None,
    }
}
