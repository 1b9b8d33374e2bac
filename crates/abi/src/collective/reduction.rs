// SPDX-License-Identifier: BSD-3-Clause
//! Plans reductions. *In buffers* means that the schedule works on the program's memory. *In images* means
//! that it works on copies in the library's memory, which are filled when the reduction starts and copied
//! back when it ends. A *shape* says how the elements lie in an image.
//!
//! | operator | datatype | the schedule works |
//! |---|---|---|
//! | predefined | contiguous | in buffers (`in_buffers`) |
//! | predefined | with padding (a pair) | in images without the padding (`in_images`) |
//! | the program's | contiguous | in buffers; the operator gets the datatype (`in_images`) |
//! | the program's | with gaps | in images with all gaps (`in_images`) |
//!
//! Read next: `request/image.rs`.

use super::{Position, Reduced};
use crate::args::{Address, Counts, Handle};
use crate::lenient::{self, Accepted};
use crate::process::Process;
use crate::request::{ImageShape, Imaged, Planned, UserOp, one};
use coll::{Call, CollBuffer};
use datatype::{Basic, Buffer, Datatype, PredefinedOp, check_op};
use error::{Class, Result, fail};
use objects::Op;
use schedule::algorithm::Collective;

impl Process {
    #[inline(always)]
    pub(crate) fn plan_reduce(
        &mut self,
        comm: Handle,
        root: i32,
        count: i64,
        data: Reduced,
    ) -> Result<Planned> {
        let role = self.role(comm, root)?;
        if role.is_idle() {
            let call = Call::new(Collective::Reduce, CollBuffer::None, CollBuffer::None);
            return Ok(Planned::new(comm, Call { root: role.root, ..call }));
        }
        if role.serves && !role.is_root && data.sendbuf.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as sendbuf, but only the root, rank {root}, may");
        }
        let part = match (role.serves, role.is_root) {
            (true, true) => Participation::Both,
            (true, false) => Participation::Sends,
            (false, _) => Participation::Receives,
        };
        let whole = ReductionArguments::of(Collective::Reduce, comm, role.at, Elements::Whole(count), data);
        self.reducing(ReductionArguments { root: role.root, part, ..whole })
    }

    #[inline(always)]
    pub(crate) fn plan_allreduce(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        let at = self.position(comm)?;
        self.reducing(ReductionArguments::of(Collective::Allreduce, comm, at, Elements::Whole(count), data))
    }

    #[inline(always)]
    pub(crate) fn plan_scan(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.one_group(comm)?;
        let at = self.position(comm)?;
        self.reducing(ReductionArguments::of(Collective::Scan, comm, at, Elements::Whole(count), data))
    }

    #[inline(always)]
    pub(crate) fn plan_exscan(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.one_group(comm)?;
        let at = self.position(comm)?;
        self.reducing(ReductionArguments::of(Collective::Exscan, comm, at, Elements::Whole(count), data))
    }

    #[inline(always)]
    pub(crate) fn plan_reduce_scatter_block(
        &mut self,
        comm: Handle,
        count: i64,
        data: Reduced,
    ) -> Result<Planned> {
        let at = self.position(comm)?;
        let elements = Elements::Equal(count, at.size);
        self.reducing(ReductionArguments::of(Collective::ReduceScatterBlock, comm, at, elements, data))
    }

    pub(crate) fn plan_reduce_scatter(
        &mut self,
        comm: Handle,
        counts: Counts,
        data: Reduced,
    ) -> Result<Planned> {
        let at = self.position(comm)?;
        let counts = counts.read(at.size)?;
        self.reducing(ReductionArguments::of(
            Collective::ReduceScatter,
            comm,
            at,
            Elements::Blocks(&counts),
            data,
        ))
    }
}

/// How many elements the vector of a reduction has, and how it is divided into blocks for the ranks.
#[derive(Clone, Copy)]
enum Elements<'a> {
    /// The vector is not divided: each rank that gets a result gets all elements. Holds how many there are.
    Whole(i64),
    /// Each rank gets equally many elements. Holds how many elements a rank gets, and the number of ranks.
    Equal(i64, usize),
    /// Each rank gets a block of its own length. Holds how many elements each rank gets.
    Blocks(&'a [i64]),
}

impl Elements<'_> {
    /// Returns how many elements the whole vector has, and how many of them the rank `rank` gets as its
    /// result.
    fn totals(self, rank: usize) -> Result<(i64, i64)> {
        let (least, total, received) = match self {
            Elements::Whole(count) => (count, Some(count), count),
            Elements::Equal(count, blocks) => (count, count.checked_mul(blocks as i64), count),
            Elements::Blocks(counts) => {
                let total = counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count));
                (counts.iter().copied().find(|count| *count < 0).unwrap_or(0), total, counts[rank])
            }
        };
        if least < 0 {
            fail!(Class::Count, "the count, {least}, is negative");
        }
        let Some(total) = total else { fail!(Class::Count, "the counts add up to more than 2^63") };
        Ok((total, received))
    }

    /// Returns how many elements each block of the vector has. A vector that is not divided is one block.
    fn counts(self) -> Vec<i64> {
        match self {
            Elements::Whole(count) => vec![count],
            Elements::Equal(count, blocks) => vec![count; blocks],
            Elements::Blocks(counts) => counts.to_vec(),
        }
    }
}

/// Whether a rank contributes a vector to a reduction, gets a result, or both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Participation {
    /// The rank contributes a vector, and gets a result.
    Both,
    Sends,
    Receives,
}

/// The arguments of a reduction before they are checked.
#[derive(Clone, Copy)]
struct ReductionArguments<'a> {
    collective: Collective,
    comm: Handle,
    at: Position,
    root: u32,
    elements: Elements<'a>,
    data: Reduced,
    part: Participation,
}

impl<'a> ReductionArguments<'a> {
    /// Makes the arguments of a reduction without a root: each rank contributes a vector, and gets a result.
    #[inline(always)]
    fn of(
        collective: Collective,
        comm: Handle,
        at: Position,
        elements: Elements<'a>,
        data: Reduced,
    ) -> ReductionArguments<'a> {
        ReductionArguments { collective, comm, at, root: 0, elements, data, part: Participation::Both }
    }
}

/// The checked arguments of a reduction.
#[derive(Clone, Copy)]
struct CheckedReduction<'a> {
    collective: Collective,
    comm: Handle,
    root: u32,
    elements: Elements<'a>,
    data: Reduced,
    /// How many elements the whole vector has. None if this rank contributes no vector.
    sent: Option<i64>,
    /// How many elements of the result this rank gets. None if it gets no result.
    received: Option<i64>,
    in_place: bool,
    is_inter: bool,
}

impl Process {
    #[inline(always)] // Most arguments are constants.
    fn reducing(&mut self, arguments: ReductionArguments) -> Result<Planned> {
        let ReductionArguments { collective, comm, at, root, elements, data, part } = arguments;
        let (sends, receives) = (part != Participation::Receives, part != Participation::Sends);
        let in_place = sends && self.in_place(comm, data.sendbuf)?;
        if data.recvbuf.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as recvbuf; a reduction takes it as sendbuf");
        }
        let (total, received) = elements.totals(at.rank)?;
        let (sent, received) = (sends.then_some(total), receives.then_some(received));
        let is_inter = at.is_inter;
        // The value is made where it is used: only `in_images` needs it in memory.
        let reduction = || CheckedReduction {
            collective,
            comm,
            root,
            elements,
            data,
            sent,
            received,
            in_place,
            is_inter,
        };
        let op = self.objects.op(data.op)?;
        let datatype = self.objects.committed(data.datatype)?;
        match op {
            Op::Predefined(op) => {
                let basic = basic_for(op, data.op, datatype)?;
                if datatype.layout().is_contiguous() {
                    return self.in_buffers(reduction(), op, basic);
                }
                self.in_images(reduction(), Some((op, basic))).map(|planned| *planned)
            }
            Op::User { .. } => self.in_images(reduction(), None).map(|planned| *planned),
        }
    }

    /// Plans a reduction by a predefined operator in the program's buffers, which have no gaps.
    #[inline(always)]
    fn in_buffers(&self, reduction: CheckedReduction, op: PredefinedOp, basic: Basic) -> Result<Planned> {
        let CheckedReduction { collective, comm, root, elements, data, sent, received, in_place, is_inter } =
            reduction;
        let element_bytes = basic.size() as u64;
        let source = if in_place { data.recvbuf } else { data.sendbuf };
        let input = match sent {
            Some(count) => self.elements(source, count, data.datatype, basic.size())?,
            None => Buffer::EMPTY,
        };
        let output = match received {
            Some(count) => {
                let buffer = self.elements(data.recvbuf, count, data.datatype, basic.size())?;
                CollBuffer::One { buffer, element_bytes }
            }
            None => CollBuffer::None,
        };
        let part = match elements {
            // The schedule of a call in place names only the output.
            Elements::Whole(_) if in_place || sent.is_none() => CollBuffer::None,
            Elements::Whole(_) => CollBuffer::One { buffer: input, element_bytes },
            Elements::Equal(..) if !is_inter => CollBuffer::PerRank(input),
            _ => {
                let ends = elements.counts().into_iter().scan(0, |end, count| {
                    *end += count as u64 * element_bytes;
                    Some(*end)
                });
                CollBuffer::CutAt { buffer: input, at: std::iter::once(0).chain(ends).collect() }
            }
        };
        let reduction = Some(executor::Reduction::Predefined { op, basic, element_bytes });
        let commutative = Op::Predefined(op).is_commutative();
        let call = Call::new(collective, part, output);
        Ok(Planned::new(comm, Call { root, in_place, reduction, commutative, ..call }))
    }

    /// Makes a buffer of `count` elements of a predefined contiguous datatype, with `bytes` bytes each.
    #[inline(always)]
    fn elements(&self, address: Address, count: i64, datatype: Handle, bytes: usize) -> Result<Buffer> {
        let bytes = (count as usize).checked_mul(bytes);
        match bytes.and_then(|bytes| address.contiguous(bytes)) {
            Some(span) if !device::on() => Ok(Buffer::from(span)),
            // The general function finds the error, or device memory.
            _ => self.collective_buffer(address, count, datatype),
        }
    }

    /// Plans a reduction of elements with gaps, or by an operator of the program. Returns the plan in a box,
    /// which is quick to move.
    #[inline(never)]
    fn in_images(
        &self,
        reduction: CheckedReduction,
        predefined: Option<(PredefinedOp, Basic)>,
    ) -> Result<Box<Planned>> {
        let CheckedReduction { collective, comm, root, elements, data, sent, received, in_place, .. } =
            reduction;
        let op = self.objects.op(data.op)?;
        let datatype = self.objects.committed(data.datatype)?;
        let (shape, operation, operator) = match (predefined, op) {
            (None, Op::User { function, large, .. }) => {
                let (handle, datatype, extent) = (data.datatype, datatype.clone(), datatype.extent());
                let shape = ImageShape::of(&datatype);
                let op = UserOp { function, large, handle, datatype, extent };
                (shape, executor::Reduction::User { token: 0, element_bytes: 1 }, Some(op))
            }
            (predefined, _) => {
                let (op, basic) = predefined.expect("an operator of the program has no basic type");
                let element_bytes = basic.size() as u64;
                let operation = executor::Reduction::Predefined { op, basic, element_bytes };
                (ImageShape::packed(datatype), operation, None)
            }
        };
        let claim = |address, count| self.collective_buffer(address, count, data.datatype);
        let source = if in_place { data.recvbuf } else { data.sendbuf };
        let input = sent.map_or(Ok(Buffer::EMPTY), |count| claim(source, count))?;
        let output = received.map(|count| claim(data.recvbuf, count)).transpose()?;
        let counts = elements.counts();
        let part = match elements {
            Elements::Whole(_) if in_place || sent.is_none() => CollBuffer::None,
            Elements::Whole(_) => one(&shape, input.clone()),
            _ => CollBuffer::CutAt { buffer: input.clone(), at: shape.cuts(&counts) },
        };
        let counts = if sent.is_some() { counts } else { Vec::new() };
        let whole = output.clone().map_or(CollBuffer::None, |output| one(&shape, output));
        let (reduction, commutative) = (Some(operation), op.is_commutative());
        let call = Call::new(collective, part, whole);
        let mut planned = Planned::new(comm, Call { root, in_place, reduction, commutative, ..call });
        let received = received.unwrap_or(0);
        planned.imaged = Some(Box::new(Imaged { shape, counts, received, input, output, operator }));
        Ok(Box::new(planned))
    }

    fn one_group(&self, comm: Handle) -> Result<()> {
        if self.objects.comm(comm)?.remote.is_some() {
            fail!(Class::Comm, "{comm} is an intercommunicator, on which there are no scans");
        }
        Ok(())
    }
}

/// Returns the predefined type of the datatype's elements. Fails if the predefined operator `op` is not
/// defined for this type.
#[inline]
fn basic_for(op: PredefinedOp, handle: Handle, datatype: &Datatype) -> Result<Basic> {
    let Some(basic) = datatype.basic() else {
        fail!(Class::Op, "{handle} is not defined for a datatype that the program made");
    };
    check_op(op, basic)?;
    if basic == Basic::Char {
        lenient::accept(Accepted::Characters);
    }
    Ok(basic)
}
