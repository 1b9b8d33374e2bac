//! From the arguments of MPI's reductions to calls of `coll`. Read next: `request/image.rs`, for datatypes with gaps.

use super::Reduced;
use crate::args::{Counts, Handle};
use crate::lenient::{self, Taken};
use crate::process::Process;
use crate::request::{Imaged, Planned, Shape, UserOp, one};
use coll::{Call, Part};
use datatype::{Basic, Buffer, check_op};
use error::{Class, Result, fail};
use executor::Reduction;
use objects::Op;
use schedule::algorithm::Collective;

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
        Ok(self.reducing(Collective::Reduce, comm, &[count], data, role.serves, role.is_root)?.root(role.root))
    }

    pub(crate) fn plan_allreduce(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.reducing(Collective::Allreduce, comm, &[count], data, true, true)
    }

    pub(crate) fn plan_scan(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.one_group(comm)?;
        self.reducing(Collective::Scan, comm, &[count], data, true, true)
    }

    pub(crate) fn plan_exscan(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        self.one_group(comm)?;
        self.reducing(Collective::Exscan, comm, &[count], data, true, true)
    }

    pub(crate) fn plan_reduce_scatter_block(&mut self, comm: Handle, count: i64, data: Reduced) -> Result<Planned> {
        let own = self.place(comm)?.own;
        self.reducing(Collective::ReduceScatterBlock, comm, &vec![count; own], data, true, true)
    }

    pub(crate) fn plan_reduce_scatter(&mut self, comm: Handle, counts: Counts, data: Reduced) -> Result<Planned> {
        let counts = counts.read(self.place(comm)?.own)?;
        self.reducing(Collective::ReduceScatter, comm, &counts, data, true, true)
    }
}

impl Process {
    /// A reduction of one vector of `counts[0]` elements, or of one block for each rank. `sends`: this rank contributes; `receives`: it
    /// gets a result.
    fn reducing(
        &mut self,
        collective: Collective,
        comm: Handle,
        counts: &[i64],
        data: Reduced,
        sends: bool,
        receives: bool,
    ) -> Result<Planned> {
        let place = self.place(comm)?;
        if let Some(count) = counts.iter().find(|count| **count < 0) {
            fail!(Class::Count, "the count, {count}, is negative");
        }
        let in_place = sends && self.in_place(comm, data.sendbuf)?;
        if data.recvbuf.is_in_place() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as recvbuf; a reduction takes it as sendbuf");
        }
        let scatters = matches!(collective, Collective::ReduceScatter | Collective::ReduceScatterBlock);
        let total = counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count));
        let Some(total) = total else { fail!(Class::Count, "the counts add up to more than 2^63") };
        let received = if scatters { counts[place.rank] } else { total };
        let op = self.objects.op(data.op)?;
        let datatype = self.objects.committed(data.datatype)?;
        let extent = datatype.extent();
        let shape = match op {
            Op::Predefined(op) => {
                let Some(basic) = datatype.basic() else {
                    fail!(Class::Op, "{} is not defined for a datatype that the program made", data.op);
                };
                check_op(op, basic)?;
                if basic == Basic::Char {
                    lenient::take(Taken::Characters);
                }
                Shape::packed(datatype)
            }
            Op::User { .. } => Shape::of(datatype),
        };
        let source = if in_place { data.recvbuf } else { data.sendbuf };
        let input = if sends { self.buffer(source, total, data.datatype)? } else { Buffer::EMPTY };
        let output = if receives { Some(self.buffer(data.recvbuf, received, data.datatype)?) } else { None };
        let (reduction, operator) = match op {
            Op::Predefined(op) => {
                let basic = shape.basic().expect("checked above");
                (Reduction::Predefined { op, basic, element_bytes: basic.size() as u64 }, None)
            }
            Op::User { function, large, .. } => {
                let op =
                    UserOp { function, large, handle: data.datatype, datatype: datatype.clone(), extent };
                (Reduction::User { token: 0, element_bytes: 1 }, Some(op))
            }
        };
        let part = match scatters {
            true => Part::CutAt { buffer: input.clone(), at: shape.cuts(counts) },
            // Where the vector is one, plans of calls in place name only the output.
            false if in_place || !sends => Part::None,
            false => one(&shape, input.clone()),
        };
        let mut call =
            Call::new(collective, part, output.clone().map_or(Part::None, |output| one(&shape, output)));
        call.reduction = Some(reduction);
        call.commutative = op.is_commutative();
        let needed = operator.is_some() || !shape.is_plain();
        let imaged = needed.then(|| {
            let counts = if sends { counts.to_vec() } else { Vec::new() };
            Box::new(Imaged { shape, counts, received, input, output, operator })
        });
        let mut planned = Planned::new(comm, call);
        planned.imaged = imaged;
        planned.in_place(in_place)
    }

    fn one_group(&self, comm: Handle) -> Result<()> {
        if self.objects.comm(comm)?.remote.is_some() {
            fail!(Class::Comm, "{comm} is an intercommunicator, on which there are no scans");
        }
        Ok(())
    }
}
