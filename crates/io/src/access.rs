// SPDX-License-Identifier: BSD-3-Clause
//! An access to a file that one rank carries out alone: a read into memory, or a write from memory.
//!
//! A read includes short holes, the bytes of the file between the parts that the access wants (data sieving).
//! Invariant: a write does not touch holes, unless the user asks for it (romio_ds_write=enable). Writing a
//! hole back with its old content loses what another process wrote there meanwhile. A byte-range lock
//! excludes only processes that lock, too. With that hint every write of this library locks.

use crate::hints::{Hints, Switch};
use crate::representation::Representation;
use crate::storage::Storage;
use crate::view::Tiles;
use datatype::{Buffer, Datatype, pack_external32, unpack_external32};
use error::Result;
use std::sync::Arc;
use sys::file::Lock;
use sys::{Block, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDirection {
    Read,
    Write,
}

/// An access to a file: which of the file's bytes, and the memory to or from which they are copied.
#[derive(Clone, Debug)]
pub struct Access {
    pub storage: Arc<Storage>,
    pub hints: Arc<Hints>,
    /// The rank's view: where in the file each of its data bytes is.
    pub tiles: Tiles,
    /// Where the access begins: how many data bytes of the view `tiles` come before it. Holes do not count.
    pub from: u64,
    /// The memory to read into or to write from. It holds as many bytes as the access has in the file.
    pub memory: Buffer,
    /// Whether other processes must see all of the access or none of it (MPI_File_set_atomicity).
    pub atomic: bool,
}

/// An access to a file, its direction, and the conversion of its data between the file and memory.
#[derive(Debug)]
pub struct Transfer {
    pub way: AccessDirection,
    pub access: Access,
    /// The conversion to or from external32; None if the bytes in the file are the same as in
    /// `access.memory`.
    pub conversion: Option<Conversion>,
}

/// A copy of an access's data in external32. A write goes from this copy to the file. A read fills the copy,
/// which is then converted into the program's memory.
#[derive(Debug)]
pub struct Conversion {
    datatype: Arc<Datatype>,
    user: Buffer,
    /// The memory that holds the data in external32. It is the access's memory (`Access::memory`).
    external: Block,
    external_bytes: usize,
}

/// The longest hole, in bytes, that one read includes between two parts of the file. A longer hole costs more
/// to copy than a second system call.
const HOLE_BYTES_MAX: u64 = 4096;

impl Conversion {
    /// Makes a conversion with memory for `count` elements of `datatype` in external32. In a write, also
    /// converts the elements of `user` into this memory.
    pub fn new(
        way: AccessDirection,
        datatype: &Arc<Datatype>,
        count: usize,
        user: Buffer,
    ) -> Result<Conversion> {
        let external_bytes = crate::representation::external_bytes(datatype)? as usize;
        let external = Block::new(external_bytes.saturating_mul(count));
        if way == AccessDirection::Write {
            pack_external32(&user, datatype, count as u64, external.span())?;
        }
        Ok(Conversion { datatype: datatype.clone(), user, external, external_bytes })
    }

    /// Returns the memory with the data in external32, as they are in the file.
    pub fn memory(&self) -> Buffer {
        Buffer::from(self.external.span())
    }

    /// Ends an access that moved `moved` bytes of the file: after a read, converts the data into the
    /// program's memory. Returns how many bytes of that memory they are; an incomplete last element does not
    /// count.
    fn finish(self, way: AccessDirection, moved: u64) -> Result<u64> {
        let elements = (moved as usize).checked_div(self.external_bytes).unwrap_or(0);
        let bytes = elements * self.datatype.size();
        if way == AccessDirection::Read {
            let external = self.external.span().slice(0, elements * self.external_bytes);
            unpack_external32(external, &self.user.slice(0, bytes), &self.datatype, elements as u64)?;
        }
        Ok(bytes as u64)
    }
}

impl Transfer {
    /// Makes a transfer between the program's memory, `access.memory`, and a file in `representation`. For
    /// external32 it converts the data; for a representation that the user has registered, the caller has
    /// converted them.
    pub fn new(
        way: AccessDirection,
        mut access: Access,
        representation: &Representation,
        datatype: &Arc<Datatype>,
        count: usize,
    ) -> Result<Transfer> {
        let mut conversion = None;
        if matches!(representation, Representation::External32) {
            let made = Conversion::new(way, datatype, count, access.memory.clone())?;
            access.memory = made.memory();
            conversion = Some(made);
        }
        Ok(Transfer { way, access, conversion })
    }

    /// Carries out the transfer. Returns how many bytes of the program's memory were moved.
    pub fn run(self) -> Result<u64> {
        let moved = self.access.run(self.way)?;
        self.finish(moved)
    }

    pub fn finish(self, moved: u64) -> Result<u64> {
        match self.conversion {
            Some(conversion) => conversion.finish(self.way, moved),
            None => Ok(moved),
        }
    }
}

impl Access {
    pub fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    /// Returns the offset in the file of the access's first byte, and the offset after its last byte. The
    /// access must have at least one byte.
    pub fn extent(&self) -> (u64, u64) {
        if self.tiles.sorted() {
            let last = self.tiles.offset_of(self.from + self.bytes() - 1);
            return (self.tiles.offset_of(self.from), last + 1);
        }
        let (mut first, mut end) = (u64::MAX, 0);
        self.tiles.pieces(self.from, self.bytes(), |at, bytes| {
            first = first.min(at);
            end = end.max(at + bytes);
        });
        (first, end)
    }

    /// Carries out the access. Returns how many bytes were moved.
    pub fn run(&self, way: AccessDirection) -> Result<u64> {
        if self.bytes() == 0 {
            return Ok(0);
        }
        let _locked = if self.atomic {
            let (first, end) = self.extent();
            Some(self.storage.lock(
                if way == AccessDirection::Read { Lock::Shared } else { Lock::Exclusive },
                first,
                end,
            )?)
        } else {
            None
        };
        let mut run =
            ActiveAccess { access: self, way, group: Vec::new(), moved: 0, failed: Ok(()), ended: false };
        let mut packed = 0;
        self.tiles.pieces(self.from, self.bytes(), |at, bytes| {
            run.add(FilePiece { at, bytes, packed });
            packed += bytes;
        });
        run.flush();
        run.failed.map(|()| run.moved)
    }

    /// Returns the memory of `bytes` bytes of the access, from packed offset `packed` on (packed offsets
    /// count no holes). Returns None if the memory has gaps.
    fn span(&self, packed: u64, bytes: u64) -> Option<Span> {
        self.memory.contiguous().map(|span| span.slice(packed as usize, bytes as usize))
    }
}

/// A contiguous part of an access: `bytes` bytes at offset `at` in the file, and at packed offset `packed` in
/// the access's memory.
#[derive(Clone, Copy, Debug)]
struct FilePiece {
    at: u64,
    bytes: u64,
    packed: u64,
}

struct ActiveAccess<'a> {
    access: &'a Access,
    way: AccessDirection,
    /// The parts of the access that are collected so far. The next `flush` moves them all by one read or
    /// write of the file.
    group: Vec<FilePiece>,
    moved: u64,
    failed: Result<()>,
    /// Whether a read has reached the end of the file.
    ended: bool,
}

impl ActiveAccess<'_> {
    fn add(&mut self, piece: FilePiece) {
        if self.failed.is_err() || self.ended {
            return;
        }
        if !self.joins(piece) {
            self.flush();
        }
        self.group.push(piece);
    }

    fn joins(&self, piece: FilePiece) -> bool {
        let (Some(first), Some(last)) = (self.group.first(), self.group.last()) else { return false };
        let hints = &self.access.hints;
        let (hole_max, block_max) = match (self.way, hints.ds_read, hints.ds_write) {
            (AccessDirection::Read, Switch::Automatic, _) => (HOLE_BYTES_MAX, hints.read_buffer_bytes),
            (AccessDirection::Read, Switch::Enable, _) => (u64::MAX, hints.read_buffer_bytes),
            (AccessDirection::Write, _, Switch::Enable) if self.access.storage.is_readable() => {
                (u64::MAX, hints.write_buffer_bytes)
            }
            _ => return false,
        };
        let end = last.at + last.bytes;
        piece.at >= end && piece.at - end <= hole_max && piece.at + piece.bytes - first.at <= block_max
    }

    fn flush(&mut self) {
        let group = std::mem::take(&mut self.group);
        if self.failed.is_err() || self.ended || group.is_empty() {
            return;
        }
        self.failed = match (&group[..], self.way) {
            ([piece], AccessDirection::Read) => self.read(*piece),
            ([piece], AccessDirection::Write) => self.write(*piece),
            (_, AccessDirection::Read) => self.read_group(&group),
            (_, AccessDirection::Write) => self.write_group(&group),
        };
        self.group = group;
        self.group.clear();
    }

    fn read(&mut self, piece: FilePiece) -> Result<()> {
        let Access { storage, memory, hints, .. } = self.access;
        if let Some(span) = self.access.span(piece.packed, piece.bytes) {
            let got = storage.read(span, piece.at)? as u64;
            self.count(got, piece.bytes);
            return Ok(());
        }
        let block = Block::new(piece.bytes.min(hints.read_buffer_bytes) as usize);
        let mut done = 0;
        while done < piece.bytes && !self.ended {
            let part = block.span().slice(0, (piece.bytes - done).min(hints.read_buffer_bytes) as usize);
            let got = storage.read(part, piece.at + done)?;
            memory.unpack((piece.packed + done) as usize, part.slice(0, got));
            self.count(got as u64, part.bytes() as u64);
            done += part.bytes() as u64;
        }
        Ok(())
    }

    fn read_group(&mut self, group: &[FilePiece]) -> Result<()> {
        let (first, last) = (group[0], group[group.len() - 1]);
        let block = Block::new((last.at + last.bytes - first.at) as usize);
        let end = first.at + self.access.storage.read(block.span(), first.at)? as u64;
        for piece in group {
            let got = end.saturating_sub(piece.at).min(piece.bytes);
            let from = block.span().slice((piece.at - first.at) as usize, got as usize);
            self.access.memory.unpack(piece.packed as usize, from);
            self.count(got, piece.bytes);
        }
        Ok(())
    }

    fn count(&mut self, got: u64, wanted: u64) {
        self.moved += got;
        self.ended |= got < wanted;
    }

    fn write(&mut self, piece: FilePiece) -> Result<()> {
        let Access { storage, memory, hints, atomic, .. } = self.access;
        let locks = hints.ds_write == Switch::Enable && !atomic;
        let _locked = match locks {
            true => Some(storage.lock(Lock::Exclusive, piece.at, piece.at + piece.bytes)?),
            false => None,
        };
        if let Some(span) = self.access.span(piece.packed, piece.bytes) {
            storage.write(span, piece.at)?;
        } else {
            let block = Block::new(piece.bytes.min(hints.write_buffer_bytes) as usize);
            let mut done = 0;
            while done < piece.bytes {
                let part = block.span().slice(0, (piece.bytes - done).min(hints.write_buffer_bytes) as usize);
                memory.pack((piece.packed + done) as usize, part);
                storage.write(part, piece.at + done)?;
                done += part.bytes() as u64;
            }
        }
        self.moved += piece.bytes;
        Ok(())
    }

    fn write_group(&mut self, group: &[FilePiece]) -> Result<()> {
        let (first, last) = (group[0], group[group.len() - 1]);
        let overlay = |to: Span| {
            for piece in group {
                let into = to.slice((piece.at - first.at) as usize, piece.bytes as usize);
                self.access.memory.pack(piece.packed as usize, into);
            }
        };
        let (storage, end) = (&self.access.storage, last.at + last.bytes);
        rewrite(storage, first.at, end, !self.access.atomic, overlay)?;
        self.moved += group.iter().map(|piece| piece.bytes).sum::<u64>();
        Ok(())
    }
}

/// Reads bytes `[from, to)` of a file into a block, lets `overlay` overwrite parts of the block, and writes
/// the block back. With `lock`, an exclusive lock of these bytes is held meanwhile.
pub(crate) fn rewrite(
    storage: &Storage,
    from: u64,
    to: u64,
    lock: bool,
    overlay: impl FnOnce(Span),
) -> Result<()> {
    let _locked = if lock { Some(storage.lock(Lock::Exclusive, from, to)?) } else { None };
    let block = Block::new((to - from) as usize);
    storage.read(block.span(), from)?;
    overlay(block.span());
    storage.write(block.span(), from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatype::{Layout, Width, hindexed, predefined, predefined_handle, resized};
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn storage() -> Arc<Storage> {
        let fd = rustix::fs::memfd_create("outboard-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Arc::new(Storage::new(std::fs::File::from(fd), PathBuf::from("memfd"), true))
    }

    fn layout(blocks: &[(i64, i64)], extent: i64) -> Arc<Layout> {
        let byte = predefined(predefined_handle("MPI_BYTE").unwrap()).unwrap();
        let (at, lengths): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
        let datatype = hindexed(Width::Count, &lengths, &at, byte).unwrap();
        resized(Width::Count, 0, extent, &datatype).unwrap().layout().clone()
    }

    fn blocks() -> impl Strategy<Value = (Vec<(i64, i64)>, i64)> {
        (prop::collection::vec((0i64..9, 1i64..9), 1..5), 0i64..9).prop_map(|(gaps, tail)| {
            let mut at = 0;
            let blocks = gaps
                .iter()
                .map(|&(gap, length)| {
                    at += gap + length;
                    (at - length, length)
                })
                .collect();
            (blocks, at + tail)
        })
    }

    fn offsets(displacement: usize, blocks: &[(i64, i64)], extent: i64, bytes: usize) -> Vec<usize> {
        let tile: Vec<i64> = blocks.iter().flat_map(|&(at, length)| at..at + length).collect();
        let at = |k: usize| displacement + (tile[k % tile.len()] + (k / tile.len()) as i64 * extent) as usize;
        (0..bytes).map(at).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 400, failure_persistence: None, ..ProptestConfig::default()
        })]

        // Goal: every kind of write and read moves exactly the bytes of the view. Method: an array of bytes
        // is the model of the file.
        #[test]
        fn accesses_agree_with_an_array_of_bytes(
            (file, extent) in blocks(), (memory, step) in blocks(), displacement in 0usize..30,
            from in 0usize..20, count in 0usize..6, length in 0usize..200, gapless in any::<bool>(),
            switch in 0usize..3, block_bytes in 1u64..64, atomic in any::<bool>(),
        ) {
            let switch = [Switch::Automatic, Switch::Enable, Switch::Disable][switch];
            let hints = Arc::new(Hints {
                ds_read: switch, ds_write: switch,
                read_buffer_bytes: block_bytes, write_buffer_bytes: block_bytes,
                ..Hints::default()
            });
            let memory = if gapless { layout(&[(0, step)], step) } else { layout(&memory, step) };
            let bytes = count * memory.size;
            let storage = storage();
            let mut model: Vec<u8> = (0..length).map(|i| i as u8 ^ 0xa5).collect();
            let old = Block::of(&model);
            storage.write(old.span(), 0).unwrap();
            let tiles = Tiles::new(displacement as u64, layout(&file, extent)).unwrap();
            let places = offsets(displacement, &file, extent, from + bytes);
            let data: Vec<u8> = (0..memory.extent as usize * count + 16).map(|i| i as u8).collect();
            let user = Block::of(&data);
            let buffer = Buffer::within(user.span(), 0, count, &memory).unwrap();
            let access = Access {
                storage: storage.clone(), hints, tiles, from: from as u64, memory: buffer.clone(), atomic,
            };
            let expected = places[from..].iter().take_while(|at| **at < length).count();
            prop_assert_eq!(access.run(AccessDirection::Read).unwrap(), expected as u64);
            let read = Block::new(bytes);
            buffer.pack(0, read.span());
            let read = read.to_vec();
            for (k, at) in places[from..].iter().enumerate().take(expected) {
                prop_assert_eq!(read[k], model[*at]);
            }
            let new: Vec<u8> = (0..bytes).map(|i| i as u8 ^ 0x3c).collect();
            let block = Block::of(&new);
            buffer.unpack(0, block.span());
            prop_assert_eq!(access.run(AccessDirection::Write).unwrap(), bytes as u64);
            for (k, at) in places[from..].iter().enumerate() {
                if model.len() <= *at {
                    model.resize(*at + 1, 0);
                }
                model[*at] = new[k];
            }
            prop_assert_eq!(storage.size().unwrap(), model.len() as u64);
            let all = Block::new(model.len());
            storage.read(all.span(), 0).unwrap();
            prop_assert_eq!(all.to_vec(), model);
        }
    }

    #[test]
    fn external32_counts_whole_elements_of_memory() {
        let long = predefined(predefined_handle("MPI_LONG").unwrap()).unwrap();
        let storage = storage();
        let (values, back) = (Block::new(24), Block::new(24));
        values.span().write(&[1i64, -2, 3].map(i64::to_ne_bytes).concat());
        let transfer = |way, block: &Block| {
            let access = Access {
                storage: storage.clone(),
                hints: Arc::new(Hints::default()),
                tiles: Tiles::new(0, layout(&[(0, 1)], 1)).unwrap(),
                from: 0,
                memory: Buffer::from(block.span()),
                atomic: false,
            };
            Transfer::new(way, access, &Representation::External32, long, 3).unwrap().run().unwrap()
        };
        assert_eq!(transfer(AccessDirection::Write, &values), 24);
        assert_eq!(storage.size().unwrap(), 12);
        storage.set_size(10).unwrap();
        assert_eq!(transfer(AccessDirection::Read, &back), 16);
        assert_eq!(back.to_vec()[..16], values.to_vec()[..16]);
        assert_eq!(back.to_vec()[16..], [0; 8]);
    }
}
