// SPDX-License-Identifier: BSD-3-Clause
//! Where the blocks of a schedule's buffers lie, as the process sees them that drives the instance (one
//! started schedule). A buffer is cut into blocks, and each part of it lies in one region of memory.

use crate::checked::{CheckedSchedule, operands};
use crate::fault::{Corruption, Fault};
use crate::memory::{Reach, Region, RemoteLayout};
use crate::parameters::{Gaps, Parameters, PartLocation, PartParameters};
use crate::peer::Peer;
use crate::{Binding, Cut, Reduction};
use datatype::{Buffer, Layout};
use error::{Class, Result, fail};
use schedule::{Action, BufferId, Partition};
use std::sync::Arc;
use transport::shm::{Arena, LocalRank};

/// The lengths of the blocks into which a user's buffer is cut, and where each block begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    blocks: u64,
    cut: Cut,
    total: u64,
}

impl Lengths {
    /// Cuts a buffer into `blocks` blocks. Returns None if the cut is made for another number of blocks, or
    /// is too long.
    pub fn new(blocks: u32, cut: Cut) -> Option<Lengths> {
        let count = u64::from(blocks);
        let total = match &cut {
            Cut::Even { block_bytes } => block_bytes.checked_mul(count)?,
            Cut::NearEqual { elements, element_bytes } if blocks > 0 => {
                elements.checked_mul(*element_bytes)?
            }
            Cut::NearEqual { .. } => 0,
            Cut::Bounds(at) => {
                let rising = at.windows(2).all(|pair| pair[0] <= pair[1]);
                if at.len() != blocks as usize + 1 || at[0] != 0 || !rising {
                    return None;
                }
                at[blocks as usize]
            }
        };
        (total < 1 << 60).then_some(Lengths { blocks: count, cut, total })
    }

    /// Returns the number of packed bytes before block `index`. The index after the last block gives the
    /// length of the whole buffer.
    fn start(&self, index: u64) -> u64 {
        match &self.cut {
            Cut::Even { block_bytes } => index * block_bytes,
            Cut::NearEqual { elements, element_bytes } => {
                if self.blocks == 0 {
                    return 0;
                }
                let (each, more) = (elements / self.blocks, elements % self.blocks);
                (index * each + index.min(more)) * element_bytes
            }
            Cut::Bounds(at) => at[index as usize],
        }
    }

    /// Returns the number of packed bytes before block `index`. Blocks are numbered round and round: after
    /// the last block the first one follows again.
    fn start_cyclic(&self, index: u64) -> u64 {
        match self.blocks {
            0 => 0,
            blocks => (index / blocks).saturating_mul(self.total).saturating_add(self.start(index % blocks)),
        }
    }

    /// Returns the length of all blocks together, in packed bytes.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// A range of a buffer's packed bytes that lies in one region of memory.
#[derive(Clone, Debug)]
pub struct BufferPart {
    start: u64,
    end: u64,
    region: Region,
}

/// Where a step's operands (the blocks that it reads and writes) begin in their buffers, and how long they
/// are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spot {
    /// The length in bytes of every operand of the step. In a copy whose source and target differ in length
    /// it is the shorter length.
    pub bytes: u64,
    /// Where each operand begins in its buffer, in packed bytes: left, right and target of a reduction,
    /// source and target of a copy, or the one operand of a send or receive.
    pub at: [u64; 3],
    /// The lengths of source and target of a copy if they differ, which is an error. None if they are equal.
    pub unequal: Option<(u64, u64)>,
}

/// The buffers of an operation, as the process that drives it sees them.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// For each buffer, the parts of which it consists. Input comes first, then Output, then the scratch
    /// buffers.
    parts: Vec<Vec<BufferPart>>,
    /// For each step of the schedule, where its operands begin and how long they are.
    pub spots: Vec<Spot>,
    /// The operator of the schedule's `Reduce` steps; None if the schedule has none.
    pub reduction: Option<Reduction>,
}

/// Returns the index of a buffer in `Buffers::parts`.
fn buffer_index(buffer: BufferId) -> usize {
    match buffer {
        BufferId::Input => 0,
        BufferId::Output => 1,
        BufferId::Scratch(buffer) => 2 + usize::from(buffer),
    }
}

impl Buffers {
    /// Finds the byte at the packed offset `at` of a buffer. Returns its region, its offset in that region,
    /// and the number of bytes from this byte to the region's end. None if the buffer is shorter.
    pub fn locate(&self, buffer: BufferId, at: u64) -> Option<(&Region, u64, u64)> {
        let parts = self.parts.get(buffer_index(buffer))?;
        let index = match parts.len() {
            1 => 0,
            _ => parts.partition_point(|part| part.end <= at),
        };
        let part = parts.get(index).filter(|part| part.start <= at && at < part.end)?;
        Some((&part.region, at - part.start, part.end - at))
    }

    /// Finds a byte like `locate`. A byte that does not exist is a fault: the parameters are corrupt.
    pub fn region(&self, buffer: BufferId, at: u64) -> std::result::Result<(&Region, u64, u64), Fault> {
        self.locate(buffer, at).ok_or(Fault::Corrupt { peer: u32::MAX, what: Corruption::Parameters })
    }
}

/// The lengths of the blocks of the user's two buffers, Input and Output. The blocks of a scratch buffer have
/// the lengths of the blocks that the schedule names.
pub struct Partitions {
    input: Lengths,
    output: Lengths,
}

impl Partitions {
    /// Cuts both of the user's buffers as the schedule needs. Errors: a binding does not fit the schedule.
    pub fn new(plan: &CheckedSchedule, input: &Binding, output: &Binding) -> Result<Partitions> {
        Ok(Partitions {
            input: lengths(plan.schedule.input_blocks, input, "input")?,
            output: lengths(plan.schedule.output_blocks, output, "output")?,
        })
    }

    fn like(&self, partition: Partition) -> &Lengths {
        match partition {
            Partition::Input => &self.input,
            Partition::Output => &self.output,
        }
    }

    /// Returns the number of packed bytes before block `block` of a buffer.
    fn start(&self, plan: &CheckedSchedule, buffer: BufferId, block: u64) -> u64 {
        match buffer {
            BufferId::Input => self.input.start(block),
            BufferId::Output => self.output.start(block),
            BufferId::Scratch(index) => {
                let scratch = &plan.schedule.scratch[usize::from(index)];
                let (like, first) = (self.like(scratch.like), u64::from(scratch.first));
                like.start_cyclic(first + block) - like.start_cyclic(first)
            }
        }
    }

    /// Returns the length in bytes of the schedule's scratch buffer `index`.
    pub fn scratch_bytes(&self, plan: &CheckedSchedule, index: usize) -> u64 {
        self.start(plan, BufferId::Scratch(index as u8), u64::from(plan.schedule.scratch[index].blocks))
    }

    /// Stores in `spots` where the operands of each step begin and how long they are. Errors: the operands of
    /// a reduction differ in length, or end within an element.
    pub fn spots(&self, plan: &CheckedSchedule, element_bytes: u64, spots: &mut Vec<Spot>) -> Result<()> {
        spots.clear();
        for (index, step) in plan.schedule.steps.iter().enumerate() {
            let mut spot = Spot::default();
            let mut bytes = [0; 3];
            for (operand, blocks) in operands(&step.action).into_iter().enumerate() {
                let Some(blocks) = blocks.filter(|blocks| blocks.count > 0) else { continue };
                spot.at[operand] = self.start(plan, blocks.buffer, blocks.first.into());
                let end = self.start(plan, blocks.buffer, u64::from(blocks.first) + u64::from(blocks.count));
                bytes[operand] = end - spot.at[operand];
            }
            spot.bytes = bytes[0];
            match step.action {
                Action::Copy { .. } if bytes[0] != bytes[1] => {
                    spot.bytes = bytes[0].min(bytes[1]);
                    spot.unequal = Some((bytes[0], bytes[1]));
                }
                Action::Reduce { .. } => {
                    let whole = element_bytes > 0 && bytes[0] % element_bytes == 0;
                    if bytes[0] != bytes[1] || bytes[0] != bytes[2] || !whole {
                        fail!(
                            Class::Intern,
                            "step {index} reduces operands of {bytes:?} bytes, elements of {element_bytes}"
                        );
                    }
                }
                _ => {}
            }
            spots.push(spot);
        }
        Ok(())
    }
}

fn lengths(blocks: u32, binding: &Binding, buffer: &str) -> Result<Lengths> {
    let (cut, bytes) = match binding {
        Binding::None => (Cut::Even { block_bytes: 0 }, None),
        Binding::Whole { buffer, cut } => (cut.clone(), Some(buffer.bytes() as u64)),
        Binding::Blocks(buffers) => {
            let mut end = 0;
            let ends = buffers.iter().map(|buffer| {
                end += buffer.bytes() as u64;
                end
            });
            (Cut::Bounds(std::iter::once(0).chain(ends).collect()), None)
        }
    };
    match Lengths::new(blocks, cut) {
        Some(lengths) if bytes.is_none_or(|bytes| lengths.total() <= bytes) => Ok(lengths),
        _ => fail!(
            Class::Intern,
            "the {buffer} of {bytes:?} bytes cannot be cut into {blocks} blocks by {binding:?}"
        ),
    }
}

/// Fills in where the user's two buffers lie in the rank's own process. `bind_scratch` then adds the scratch
/// buffers.
pub fn bind_local(buffers: &mut Buffers, bindings: [&Binding; 2]) {
    buffers.parts.resize_with(buffers.parts.len().max(2), Vec::new);
    for (parts, binding) in buffers.parts.iter_mut().zip(bindings) {
        parts.clear();
        match binding {
            Binding::None => {}
            Binding::Whole { buffer, .. } => parts.push(local_part(0, buffer)),
            Binding::Blocks(buffers) => {
                let mut start = 0;
                for buffer in buffers.iter() {
                    parts.push(local_part(start, buffer));
                    start += buffer.bytes() as u64;
                }
            }
        }
    }
}

/// Fills in where the scratch buffers lie: at the offsets `scratch` in the arena of `rank`.
pub fn bind_scratch(
    buffers: &mut Buffers,
    plan: &CheckedSchedule,
    partitions: &Partitions,
    scratch: &[u64],
    reach: &Reach,
    rank: LocalRank,
) -> std::result::Result<(), Fault> {
    buffers.parts.resize_with(2 + scratch.len(), Vec::new);
    for (index, &at) in scratch.iter().enumerate() {
        let bytes = partitions.scratch_bytes(plan, index);
        let region = Region::Local(reach.span(rank, at, bytes)?);
        buffers.parts[2 + index].clear();
        buffers.parts[2 + index].push(BufferPart { start: 0, end: bytes, region });
    }
    Ok(())
}

fn local_part(start: u64, buffer: &Buffer) -> BufferPart {
    let region = match buffer.contiguous() {
        Some(span) => Region::Local(span),
        None => Region::LocalGaps(buffer.clone()),
    };
    BufferPart { start, end: start + buffer.bytes() as u64, region }
}

/// Describes an operation's buffers, operator and peers for a proxy. A proxy on another computer
/// (`for_remote_proxy`) gets the addresses of the user's buffers, never offsets in the arena.
pub fn parameters(
    buffers: &Buffers,
    partitions: &Partitions,
    scratch: &[u64],
    peers: &[Peer],
    for_remote_proxy: bool,
    arena: &Arena,
) -> Parameters {
    let mut layouts: Vec<Arc<Layout>> = Vec::new();
    let mut place = |region: &Region| match region {
        Region::Local(span) if span.bytes() > 0 => {
            match arena.offset_of(span.address(), span.bytes() as u64).filter(|_| !for_remote_proxy) {
                Some(offset) => PartLocation::Arena(offset),
                None => PartLocation::Private(span.address() as u64),
            }
        }
        Region::LocalGaps(buffer) => {
            let (layout, skip) = buffer.parts().expect("a buffer with gaps has a layout");
            let known = layouts.iter().position(|known| Arc::ptr_eq(known, layout));
            let number = known.unwrap_or_else(|| {
                layouts.push(layout.clone());
                layouts.len() - 1
            });
            let inside = base_inside(arena, buffer).filter(|_| !for_remote_proxy);
            let base = inside.unwrap_or(buffer.base()) as u64;
            PartLocation::Gaps(Gaps {
                mapped: inside.is_some(),
                base,
                layout: number as u64,
                skip: skip as u64,
            })
        }
        _ => PartLocation::Arena(0),
    };
    let mut of = |buffer: usize| -> Vec<PartParameters> {
        let parts = buffers.parts.get(buffer).into_iter().flatten();
        parts.map(|part| PartParameters { end: part.end, place: place(&part.region) }).collect()
    };
    let parts = [of(0), of(1)];
    Parameters {
        reduction: buffers.reduction.filter(|reduction| matches!(reduction, Reduction::Predefined { .. })),
        cuts: [&partitions.input, &partitions.output].map(|lengths| lengths.cut.clone()),
        parts,
        scratch: scratch.to_vec(),
        layouts,
        peers: peers.iter().map(|peer| peer.number()).collect(),
    }
}

/// Returns the base of a buffer with gaps as an offset in the arena. None unless all bytes of the buffer lie
/// in one extent of the arena. The base itself may lie outside; before the arena the offset wraps.
pub fn base_inside(arena: &Arena, buffer: &Buffer) -> Option<usize> {
    let (layout, skip) = buffer.parts()?;
    let elements = (skip + buffer.bytes()).div_ceil(layout.size.max(1)) as i64;
    let last = layout.extent.saturating_mul(elements - 1);
    let low = (buffer.base() as i64).wrapping_add(layout.true_lb).wrapping_add(last.min(0));
    let high = (buffer.base() as i64)
        .wrapping_add(layout.true_lb)
        .wrapping_add(layout.true_extent - 1)
        .wrapping_add(last.max(0));
    let bytes = u64::try_from(high.checked_sub(low)?).ok()? + 1;
    let first = arena.offset_of(low as usize, bytes)?;
    Some(buffer.base().wrapping_sub(low as usize).wrapping_add(first as usize))
}

/// Makes a proxy's view of a rank's buffers and peers, from the parameters that the rank wrote. Returns None
/// if the parameters do not fit the schedule or the arena.
pub fn bind_remote(
    parameters: &Parameters,
    plan: &CheckedSchedule,
    reach: &Reach,
    rank: LocalRank,
) -> Option<(Buffers, Arc<[Peer]>)> {
    let mut buffers = Buffers { reduction: parameters.reduction, ..Buffers::default() };
    let schedule = &plan.schedule;
    if plan.reduces && buffers.reduction.is_none() || parameters.scratch.len() != schedule.scratch.len() {
        return None;
    }
    let [input, output] = &parameters.cuts;
    let partitions = Partitions {
        input: Lengths::new(schedule.input_blocks, input.clone())?,
        output: Lengths::new(schedule.output_blocks, output.clone())?,
    };
    let element_bytes = buffers.reduction.map_or(0, |reduction| reduction.element_bytes());
    partitions.spots(plan, element_bytes, &mut buffers.spots).ok()?;
    let arena = reach.arena(rank).ok()?;
    for (parts, lengths) in parameters.parts.iter().zip([&partitions.input, &partitions.output]) {
        let mut start = 0;
        let mut bind = |part: &PartParameters| {
            let bytes = part.end.checked_sub(start)?;
            let region = match part.place {
                PartLocation::Arena(offset) => Region::Local(arena.span(offset, bytes).ok()?),
                PartLocation::Private(address) => Region::Remote { rank, address: address as usize },
                PartLocation::Gaps(gaps) => with_gaps(gaps, part.end, &parameters.layouts, rank)?,
            };
            Some(BufferPart { start: std::mem::replace(&mut start, part.end), end: part.end, region })
        };
        buffers.parts.push(parts.iter().map(&mut bind).collect::<Option<_>>()?);
        if start < lengths.total() {
            return None;
        }
    }
    for (index, &at) in parameters.scratch.iter().enumerate() {
        let bytes = partitions.scratch_bytes(plan, index);
        let region = reach.scratch(rank, at, bytes)?;
        buffers.parts.push(vec![BufferPart { start: 0, end: bytes, region }]);
    }
    Some((buffers, peers(&parameters.peers, schedule.size, reach)?))
}

/// Makes the region of a buffer's part with gaps. `end` is where the part ends in the buffer, in packed
/// bytes. None if `gaps` or `end`, which another process wrote, are invalid.
fn with_gaps(gaps: Gaps, end: u64, layouts: &[Arc<Layout>], rank: LocalRank) -> Option<Region> {
    let layout = layouts.get(usize::try_from(gaps.layout).ok()?)?.clone();
    let (base, skip) = (gaps.base as usize, gaps.skip as usize);
    if layout.size == 0 || skip >= layout.size || end > 1 << 60 {
        return None;
    }
    Some(Region::RemoteGaps(RemoteLayout { rank, mapped: gaps.mapped, base, layout, skip }))
}

fn peers(numbers: &[u32], size: u32, reach: &Reach) -> Option<Arc<[Peer]>> {
    let ranks = reach.segment.shape().ranks;
    let peer = |&peer: &u32| (peer < ranks).then(|| Peer::of(peer, &reach.segment));
    if numbers.len() != size as usize { None } else { numbers.iter().map(peer).collect() }
}
