// SPDX-License-Identifier: BSD-3-Clause
//! Dynamic windows: the regions that a member has attached, and how the others learn of them (MPI 5.0,
//! section 12.2.4).

use crate::process::Rma;
use crate::record::ROW;
use crate::target::{AttachedRegions, LocalTarget, TargetMemory};
use crate::window::{AttachedRegion, MemberHost, Window};
use datatype::Buffer;
use error::{Class, Result, fail};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Span;
use transport::shm::Allocator;

impl Window {
    /// Attaches the memory `span` to this dynamic window, and publishes the new table of attached regions
    /// (MPI_Win_attach).
    pub fn attach(&mut self, rma: &mut Rma, allocator: &mut Allocator, span: Span) -> Result<()> {
        if let Some(other) = self.attached.iter().find(|other| other.span.meets(span)) {
            let (address, bytes) = (other.span.address(), other.span.bytes());
            fail!(
                Class::RmaAttach,
                "{} bytes at {:#x} overlap the {bytes} bytes at {address:#x} that are attached",
                span.bytes(),
                span.address()
            );
        }
        let mapped = rma.segment.locate(span.address(), span.bytes() as u64);
        if mapped.is_none() && !Buffer::from(span).is_attachable() {
            rma.start_server(allocator)?;
        }
        self.attached.push(AttachedRegion { span, mapped });
        if let Err(error) = self.publish(allocator) {
            self.attached.pop();
            return Err(error);
        }
        if mapped.is_none() {
            rma.server.expose(self.id, span);
        }
        Ok(())
    }

    /// Detaches the memory that was attached at `address`, and publishes the new table of attached regions
    /// (MPI_Win_detach).
    pub fn detach(&mut self, rma: &Rma, allocator: &mut Allocator, address: usize) -> Result<()> {
        let Some(at) = self.attached.iter().position(|attached| attached.span.address() == address) else {
            fail!(Class::RmaAttach, "nothing is attached at {address:#x}");
        };
        let gone = self.attached.remove(at);
        rma.server.conceal(self.id, Some(gone.span));
        self.publish(allocator)
    }

    /// Writes this member's table of attached regions, which other members on the host read, into its arena.
    fn publish(&mut self, allocator: &mut Allocator) -> Result<()> {
        let rows = self.attached.len();
        let (offset, old) = match self.table {
            Some((offset, capacity)) if capacity >= rows => (offset, None),
            old => {
                let capacity = (rows * 2).max(8);
                let offset = allocator.alloc((capacity * ROW * 8) as u64)?;
                self.table = Some((offset, capacity));
                (offset, old)
            }
        };
        let record = &self.mine().record;
        let words = record.arena().words(offset, rows * ROW).expect("allocated, so mapped");
        record.publish(offset, rows, || {
            for (row, AttachedRegion { span, mapped }) in words.chunks_exact(ROW).zip(&self.attached) {
                let (rank, offset) =
                    mapped.map_or((0, 0), |(rank, offset)| (u64::from(rank.peer()) + 1, offset));
                let values = [span.address() as u64, span.bytes() as u64, rank, offset];
                row.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
            }
        });
        // A member that still reads the old table sees by the version that the table has changed.
        old.map(|(offset, _)| allocator.free(offset));
        Ok(())
    }

    /// Reads the table of attached regions of a member on this host, if the table has changed since the last
    /// read. Regions in this process's own private memory count as addressable here.
    pub(crate) fn refresh(&mut self, rma: &Rma, member: usize) -> Result<()> {
        let is_own = member == self.rank;
        let MemberHost::Own(LocalTarget { record, memory, .. }) = &mut self.members[member].host else {
            return Ok(());
        };
        let TargetMemory::Dynamic(regions) = memory else { return Ok(()) };
        if regions.version == Some(record.version()) {
            return Ok(());
        }
        let (version, words) = record.table()?;
        let mut known = Vec::with_capacity(words.len() / ROW);
        for row in words.chunks_exact(ROW) {
            let (address, bytes) = (row[0] as usize, row[1] as usize);
            if bytes == 0 {
                continue;
            }
            let memory = match row[2].checked_sub(1) {
                Some(owner) => {
                    let arena = rma.segment.arena(rma.segment.require(owner as u32)?)?;
                    TargetMemory::Mapped(arena.span(row[3], row[1])?)
                }
                None => {
                    match self.attached.iter().find(|attached| is_own && attached.span.address() == address) {
                        Some(attached) => TargetMemory::own(attached.span)?,
                        None => TargetMemory::Private(address),
                    }
                }
            };
            known.push((address, bytes, memory));
        }
        known.sort_by_key(|region| region.0);
        *regions = AttachedRegions { version: Some(version), known: Arc::from(known) };
        Ok(())
    }
}
