//! Reductions. Read next: `request/image.rs`, for datatypes with gaps.

use super::Reduced;
use crate::args::{Counts, Handle};
use crate::lenient::{self, Taken};
use crate::process::Process;
use crate::request::{Imaged, Planned, Shape, UserOp, one};
use coll::{Call, Part};
use datatype::{Basic, Buffer, Datatype, PredefinedOp, check_op};
use error::{Class, Result, fail};
use executor::Reduction;
use objects::Op;
use schedule::algorithm::Collective;
use std::sync::Arc;

#[rustfmt::skip]
impl Process {
    pub(crate) fn plan_reduce(&mut self, comm: Handle, root: i32, count: i64, data: Reduced) -> Result<Planned> {
        let role = self.role(comm, root)?;
        if role.is_idle() {
            return Ok(Planned::new(comm, Call::new(Collective::Reduce, Part::None, Part::None)).root(role.root));
        }
        if role.serves && !role.is_root && data.sendbuf.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as sendbuf, but only the root, rank {root}, may");
        }
        let (count, [sends, receives]) = (Elements::Whole(count), [role.serves, role.is_root]);
        Ok(self.reducing(Collective::Reduce, comm, count, data, sends, receives)?.root(role.root))
    }

    pub(crate) fn plan_allreduce(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.reducing(Collective::Allreduce, comm, Elements::Whole(count), data, true, true)
    }

    pub(crate) fn plan_scan(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.one_group(comm)?;
        self.reducing(Collective::Scan, comm, Elements::Whole(count), data, true, true)
    }

    pub(crate) fn plan_exscan(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.one_group(comm)?;
        self.reducing(Collective::Exscan, comm, Elements::Whole(count), data, true, true)
    }

    pub(crate) fn plan_reduce_scatter_block(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        let blocks = self.place(comm)?.size;
        self.reducing(Collective::ReduceScatterBlock, comm, Elements::Equal(count, blocks), data, true, true)
    }

    pub(crate) fn plan_reduce_scatter(&mut self, comm: Handle, counts: Counts, data: Reduced) -> Result<Planned> {
        let counts = counts.read(self.place(comm)?.size)?;
        self.reducing(Collective::ReduceScatter, comm, Elements::Blocks(&counts), data, true, true)
    }
}

/// The elements of a reduction's vector, and how it is cut into blocks for the ranks.
#[derive(Clone, Copy)]
enum Elements<'a> {
    /// All ranks that receive get all of it.
    Whole(i64),
    /// So many elements for each of so many ranks.
    Equal(i64, usize),
    /// So many for each rank.
    Blocks(&'a [i64]),
}

impl Elements<'_> {
    /// The elements of the whole vector, and those that this rank receives.
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

    /// The elements of each block; one block if the vector is not cut.
    fn counts(self) -> Vec<i64> {
        match self {
            Elements::Whole(count) => vec![count],
            Elements::Equal(count, blocks) => vec![count; blocks],
            Elements::Blocks(counts) => counts.to_vec(),
        }
    }
}

/// What this rank gives and gets.
struct Operands<'a> {
    elements: Elements<'a>,
    received: i64,
    input: Buffer,
    output: Option<Buffer>,
    sends: bool,
    in_place: bool,
}

impl Process {
    /// A reduction. `sends`: this rank contributes; `receives`: it gets a result.
    fn reducing(
        &mut self,
        collective: Collective,
        comm: Handle,
        elements: Elements,
        data: Reduced,
        sends: bool,
        receives: bool,
    ) -> Result<Planned> {
        let place = self.place(comm)?;
        let in_place = sends && self.in_place(comm, data.sendbuf)?;
        if data.recvbuf.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as recvbuf; a reduction takes it as sendbuf");
        }
        let (total, received) = elements.totals(place.rank)?;
        let op = self.objects.op(data.op)?;
        let datatype = self.objects.committed(data.datatype)?;
        let predefined = match op {
            Op::Predefined(op) => Some((op, basic_for(op, data.op, datatype)?)),
            Op::User { .. } => None,
        };
        let source = if in_place { data.recvbuf } else { data.sendbuf };
        let input = if sends { self.buffer(source, total, data.datatype)? } else { Buffer::EMPTY };
        let output = if receives { Some(self.buffer(data.recvbuf, received, data.datatype)?) } else { None };
        let operands = Operands { elements, received, input, output, sends, in_place };
        let mut planned = match predefined {
            Some((op, basic)) if datatype.layout().is_contiguous() => {
                Planned::new(comm, in_buffers(collective, operands, op, basic, !place.is_inter))
            }
            _ => {
                let (call, imaged) = in_images(collective, operands, op, predefined, data.datatype, datatype);
                let mut planned = Planned::new(comm, call);
                planned.imaged = Some(Box::new(imaged));
                planned
            }
        };
        planned.call.commutative = op.is_commutative();
        planned.in_place(in_place)
    }

    fn one_group(&self, comm: Handle) -> Result<()> {
        if self.objects.comm(comm)?.remote.is_some() {
            fail!(Class::Comm, "{comm} is an intercommunicator, on which there are no scans");
        }
        Ok(())
    }
}

/// The type on which a predefined operator works.
fn basic_for(op: PredefinedOp, handle: Handle, datatype: &Datatype) -> Result<Basic> {
    let Some(basic) = datatype.basic() else {
        fail!(Class::Op, "{handle} is not defined for a datatype that the program made");
    };
    check_op(op, basic)?;
    if basic == Basic::Char {
        lenient::take(Taken::Characters);
    }
    Ok(basic)
}

/// A reduction by a predefined operator in the program's buffers, which have no gaps.
fn in_buffers(
    collective: Collective,
    Operands { elements, input, output, sends, in_place, .. }: Operands,
    op: PredefinedOp,
    basic: Basic,
    is_among_one_group: bool,
) -> Call {
    let element_bytes = basic.size() as u64;
    let whole = |buffer| Part::One { buffer, element_bytes };
    let part = match elements {
        // The schedule of a call in place names only the output.
        Elements::Whole(_) if in_place || !sends => Part::None,
        Elements::Whole(_) => whole(input),
        Elements::Equal(..) if is_among_one_group => Part::PerRank(input),
        _ => {
            let ends = elements.counts().into_iter().scan(0, |end, count| {
                *end += count as u64 * element_bytes;
                Some(*end)
            });
            Part::CutAt { buffer: input, at: std::iter::once(0).chain(ends).collect() }
        }
    };
    let mut call = Call::new(collective, part, output.map_or(Part::None, whole));
    call.reduction = Some(Reduction::Predefined { op, basic, element_bytes });
    call
}

/// A reduction of elements with gaps, or by an operator of the program.
fn in_images(
    collective: Collective,
    Operands { elements, received, input, output, sends, in_place }: Operands,
    op: Op,
    predefined: Option<(PredefinedOp, Basic)>,
    handle: Handle,
    datatype: &Arc<Datatype>,
) -> (Call, Imaged) {
    let shape = if predefined.is_some() { Shape::packed(datatype) } else { Shape::of(datatype) };
    let (reduction, operator) = match (predefined, op) {
        (None, Op::User { function, large, .. }) => {
            let (datatype, extent) = (datatype.clone(), datatype.extent());
            let op = UserOp { function, large, handle, datatype, extent };
            (Reduction::User { token: 0, element_bytes: 1 }, Some(op))
        }
        (predefined, _) => {
            let (op, basic) = predefined.expect("an operator of the program has no basic type");
            (Reduction::Predefined { op, basic, element_bytes: basic.size() as u64 }, None)
        }
    };
    let counts = elements.counts();
    let part = match elements {
        Elements::Whole(_) if in_place || !sends => Part::None,
        Elements::Whole(_) => one(&shape, input.clone()),
        _ => Part::CutAt { buffer: input.clone(), at: shape.cuts(&counts) },
    };
    let mut call =
        Call::new(collective, part, output.clone().map_or(Part::None, |output| one(&shape, output)));
    call.reduction = Some(reduction);
    let counts = if sends { counts } else { Vec::new() };
    (call, Imaged { shape, counts, received, input, output, operator })
}
