// SPDX-License-Identifier: BSD-3-Clause
//! Attaches and detaches the buffers of buffered sends (MPI 5.0, section 3.6).

use crate::buffered::{AttachedBuffer, BufferPool};
use crate::data::BufferOwner;
use crate::state::P2p;
use error::{Class, Result, fail};

impl P2p {
    /// Attaches a buffer for buffered sends to the process, session or comm `owner`. The buffer's memory must
    /// stay mapped until the buffer is detached. Errors: `owner` already has a buffer.
    pub fn attach_buffer(&mut self, owner: BufferOwner, attached: AttachedBuffer) -> Result<()> {
        if self.has_buffer(owner) {
            fail!(Class::Buffer, "a buffer for buffered sends is already attached to {owner}");
        }
        self.matcher.buffered.pools.push(BufferPool { owner, attached, used: Vec::new() });
        Ok(())
    }

    /// Whether a buffer for buffered sends is attached to the process, session or comm `owner`.
    pub fn has_buffer(&self, owner: BufferOwner) -> bool {
        self.matcher.buffered.pools.iter().any(|pool| pool.owner == owner)
    }

    /// Detaches and returns the buffer for buffered sends of `owner`. Returns None while messages are still
    /// in the buffer: the caller polls, and calls again. Errors: no buffer is attached.
    pub fn detach_buffer(&mut self, owner: BufferOwner) -> Result<Option<AttachedBuffer>> {
        let pools = &mut self.matcher.buffered.pools;
        match pools.iter().position(|pool| pool.owner == owner) {
            None => fail!(Class::Buffer, "no buffer for buffered sends is attached to {owner}"),
            Some(at) if pools[at].used.is_empty() => Ok(Some(pools.swap_remove(at).attached)),
            Some(_) => Ok(None),
        }
    }

    /// Returns how many messages buffered sends have copied to any attached buffer so far. A flush
    /// (MPI_Comm_flush_buffer) that starts now waits for these.
    pub fn buffered(&self) -> u64 {
        self.matcher.buffered.copied
    }

    /// Whether all messages with numbers below `messages` have left the buffer of `owner`. The caller got
    /// `messages` from an earlier call of `buffered`.
    pub fn is_flushed(&self, owner: BufferOwner, messages: u64) -> bool {
        let pool = self.matcher.buffered.pools.iter().find(|pool| pool.owner == owner);
        pool.is_none_or(|pool| pool.used.iter().all(|part| part.number >= messages))
    }
}
