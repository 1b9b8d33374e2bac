// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make, free, inquire about and apply operators of reductions (MPI 5.0, section 6.9).

use crate::args::{Address, Callback, Handle, Out};
use crate::lenient::{self, Accepted};
use crate::process::Guard;
use crate::process::callback;
use crate::request::UserOp;
use crate::staging;
use datatype::{Basic, Buffer, check_op, reduce_buffers};
use error::{Class, Result, fail};
use objects::{Op, constants as c};

/// MPI_Op_create
pub fn op_create(guard: &mut Guard, user_fn: Callback, commute: i32, op: Out<Handle>) -> Result<()> {
    create(guard, user_fn, false, commute, op)
}

/// MPI_Op_create_c
pub fn op_create_c(guard: &mut Guard, user_fn: Callback, commute: i32, op: Out<Handle>) -> Result<()> {
    create(guard, user_fn, true, commute, op)
}

fn create(guard: &mut Guard, user_fn: Callback, large: bool, commute: i32, op: Out<Handle>) -> Result<()> {
    op.check()?;
    if user_fn.0 == 0 {
        fail!(Class::Arg, "user_fn is a null pointer");
    }
    op.set(guard.objects.ops.insert(Op::User { function: user_fn.0, large, commutative: commute != 0 })?)
}

/// MPI_Op_free
pub fn op_free(guard: &mut Guard, op: Out<Handle>) -> Result<()> {
    guard.objects.ops.remove(op.get()?)?;
    op.set(c::OP_NULL)
}

/// MPI_Op_commutative
pub fn op_commutative(guard: &mut Guard, op: Handle, commute: Out<i32>) -> Result<()> {
    commute.set(i32::from(guard.objects.op(op)?.is_commutative()))
}

/// MPI_Reduce_local
pub fn reduce_local(
    guard: &mut Guard,
    inbuf: Address,
    inoutbuf: Address,
    count: i64,
    datatype: Handle,
    op: Handle,
) -> Result<()> {
    if inbuf.is_in_place() || inoutbuf.is_in_place() {
        fail!(Class::Buffer, "MPI_IN_PLACE has no meaning for MPI_Reduce_local");
    }
    let described = guard.objects.committed(datatype)?.clone();
    let left = guard.collective_buffer(inbuf, count, datatype)?;
    staging::reads(&left);
    let into = guard.collective_buffer(inoutbuf, count, datatype)?;
    if inbuf == inoutbuf && count > 0 {
        fail!(Class::Buffer, "inbuf and inoutbuf are the same");
    }
    match guard.objects.op(op)? {
        Op::User { function, large, .. } => {
            let extent = described.extent();
            let op = UserOp { function, large, handle: datatype, datatype: described, extent };
            if staging::any() && !op.datatype.layout().is_contiguous() {
                fail!(
                    Class::Buffer,
                    "the program's operator on {datatype}, which has gaps, needs host memory"
                );
            }
            staging::fill()?;
            if count > 0 {
                let at =
                    |buffer: &Buffer, given: Address| if staging::any() { buffer.base() } else { given.0 };
                let (left, into) = (at(&left, inbuf), at(&into, inoutbuf));
                callback::apply(guard, &op, left, into, count as u64);
            }
            Ok(())
        }
        Op::Predefined(predefined) => {
            let Some(basic) = described.basic() else {
                fail!(Class::Op, "{op} works on predefined datatypes only, not on {datatype}");
            };
            check_op(predefined, basic)?;
            if basic == Basic::Char {
                lenient::accept(Accepted::Characters);
            }
            if !staging::reduce(predefined, basic, described.extent() as usize, &left, &into)? {
                staging::fill()?;
                reduce_buffers(predefined, basic, &left, &into);
            }
            Ok(())
        }
    }
}
