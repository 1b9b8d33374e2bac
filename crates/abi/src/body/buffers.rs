// SPDX-License-Identifier: BSD-3-Clause
//! Attaches, detaches and flushes buffers for sends in buffered mode (MPI 5.0, section 3.6). A buffer belongs
//! to the process, to a comm, or to a session.

use crate::args::{Address, Handle, Out, OutCount};
use crate::process::Guard;
use crate::request::Work;
use error::Result;
use objects::constants;
use p2p::{AttachedBuffer, BufferOwner};

/// MPI_Buffer_attach
pub fn buffer_attach(guard: &mut Guard, buffer: Address, size: i64) -> Result<()> {
    attach(guard, BufferOwner::Process, buffer, size)
}

/// MPI_Comm_attach_buffer
pub fn comm_attach_buffer(guard: &mut Guard, comm: Handle, buffer: Address, size: i64) -> Result<()> {
    let owner = of_comm(guard, comm)?;
    attach(guard, owner, buffer, size)
}

/// MPI_Session_attach_buffer
pub fn session_attach_buffer(guard: &mut Guard, session: Handle, buffer: Address, size: i64) -> Result<()> {
    let owner = of_session(guard, session)?;
    attach(guard, owner, buffer, size)
}

/// MPI_Buffer_detach
pub fn buffer_detach(guard: &mut Guard, buffer_addr: Address, size: OutCount) -> Result<()> {
    detach(guard, BufferOwner::Process, buffer_addr, size)
}

/// MPI_Comm_detach_buffer
pub fn comm_detach_buffer(
    guard: &mut Guard,
    comm: Handle,
    buffer_addr: Address,
    size: OutCount,
) -> Result<()> {
    let owner = of_comm(guard, comm)?;
    detach(guard, owner, buffer_addr, size)
}

/// MPI_Session_detach_buffer
pub fn session_detach_buffer(
    guard: &mut Guard,
    session: Handle,
    buffer_addr: Address,
    size: OutCount,
) -> Result<()> {
    let owner = of_session(guard, session)?;
    detach(guard, owner, buffer_addr, size)
}

/// MPI_Buffer_flush
pub fn buffer_flush(guard: &mut Guard) -> Result<()> {
    flush(guard, BufferOwner::Process)
}

/// MPI_Comm_flush_buffer
pub fn comm_flush_buffer(guard: &mut Guard, comm: Handle) -> Result<()> {
    let owner = of_comm(guard, comm)?;
    flush(guard, owner)
}

/// MPI_Session_flush_buffer
pub fn session_flush_buffer(guard: &mut Guard, session: Handle) -> Result<()> {
    let owner = of_session(guard, session)?;
    flush(guard, owner)
}

/// MPI_Buffer_iflush
pub fn buffer_iflush(guard: &mut Guard, request: Out<Handle>) -> Result<()> {
    iflush(guard, constants::COMM_NULL, BufferOwner::Process, request)
}

/// MPI_Comm_iflush_buffer
pub fn comm_iflush_buffer(guard: &mut Guard, comm: Handle, request: Out<Handle>) -> Result<()> {
    let owner = of_comm(guard, comm)?;
    iflush(guard, comm, owner, request)
}

/// MPI_Session_iflush_buffer
pub fn session_iflush_buffer(guard: &mut Guard, session: Handle, request: Out<Handle>) -> Result<()> {
    let owner = of_session(guard, session)?;
    iflush(guard, constants::COMM_NULL, owner, request)
}

/// Detaches the send buffer of a comm or session that is about to be freed. Waits first until all messages
/// have left the buffer.
pub(crate) fn detach_before_free(guard: &mut Guard, owner: BufferOwner) -> Result<()> {
    if guard.job().p2p.has_buffer(owner) {
        guard.wait(|process| process.job().p2p.detach_buffer(owner).transpose())?;
    }
    Ok(())
}

fn of_comm(guard: &Guard, comm: Handle) -> Result<BufferOwner> {
    Ok(BufferOwner::Comm(guard.objects.comm(comm)?.context))
}

fn of_session(guard: &Guard, session: Handle) -> Result<BufferOwner> {
    guard.objects.sessions.get(session)?;
    Ok(BufferOwner::Session(session.0 as u64))
}

fn attach(guard: &mut Guard, owner: BufferOwner, buffer: Address, size: i64) -> Result<()> {
    let bytes = crate::args::count(size, "size")?;
    guard.job().p2p.attach_buffer(owner, buffer.attached(bytes)?)
}

fn detach(guard: &mut Guard, owner: BufferOwner, buffer_addr: Address, size: OutCount) -> Result<()> {
    size.check()?;
    let detached = guard.wait(|process| process.job().p2p.detach_buffer(owner).transpose())?;
    let (address, bytes) = match detached {
        AttachedBuffer::User(span) => (span.address(), span.bytes()),
        AttachedBuffer::Automatic => (constants::BUFFER_AUTOMATIC, 0),
    };
    buffer_addr.store(address)?;
    size.set(bytes as i64)
}

fn flush(guard: &mut Guard, owner: BufferOwner) -> Result<()> {
    let messages = guard.job().p2p.buffered();
    guard.wait(|process| process.job().p2p.is_flushed(owner, messages).then_some(()));
    Ok(())
}

fn iflush(guard: &mut Guard, comm: Handle, owner: BufferOwner, request: Out<Handle>) -> Result<()> {
    request.check()?;
    let messages = guard.job().p2p.buffered();
    request.set(guard.request(comm, Work::Flush { owner, messages })?)
}
