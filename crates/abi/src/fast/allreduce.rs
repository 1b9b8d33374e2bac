// SPDX-License-Identifier: BSD-3-Clause
//! The fast path of MPI_Allreduce: contiguous vectors of a predefined type, by slots (the shared memory into
//! which members write their bytes). The vectors are so short that each member reduces all of them.

use crate::args::Handle;
use crate::collective::Reduced;
use crate::process::{FoundAllreduce, LOOKS, MemoKey, Process};
use coll::FlatAllreduce;
use datatype::check_op;
use objects::{FlatState, Op};
use schedule::algorithm::Collective;

/// Carries out the call if the other members' vectors arrive within a few looks. Otherwise returns None, and
/// the general path makes the call. If this member's vector is published already, that path continues the
/// round.
#[inline(always)]
pub(crate) fn try_now(process: &mut Process, comm: Handle, count: i64, data: &Reduced) -> Option<()> {
    let (set, call) = process.flat_allreduce(comm, count, data)?;
    let looks = if process.job().shared.may_spin() { LOOKS } else { 1 };
    process.job().coll.try_now(set, call, looks)?;
    coll::count(Collective::Allreduce);
    Some(())
}

impl Process {
    #[inline(always)]
    fn flat_allreduce(&mut self, comm: Handle, count: i64, data: &Reduced) -> Option<(usize, FlatAllreduce)> {
        if telemetry::timed() {
            return None;
        }
        let removals = self.removals();
        let key = MemoKey { count, datatype: data.datatype, with: data.op, comm, removals };
        let found = match self.allreduces.get(0, &key) {
            Some(found) => found,
            None => self.find_allreduce(key)?,
        };
        let FoundAllreduce { set, operator, bytes } = found;
        let output = data.recvbuf.contiguous(bytes)?;
        let input = if data.sendbuf.is_in_place() {
            output
        } else {
            data.sendbuf.contiguous(bytes).filter(|input| !input.meets(output))?
        };
        Some((set, FlatAllreduce { operator, input, output }))
    }

    #[inline(never)] // Rarely asked.
    fn find_allreduce(&mut self, key: MemoKey<Handle>) -> Option<FoundAllreduce> {
        if device::on() {
            return None;
        }
        let comm = self.objects.comm(key.comm).ok()?;
        let FlatState::Attached(set) = comm.flat else { return None };
        let members = comm.size() as usize;
        let Op::Predefined(op) = self.objects.op(key.with).ok()? else { return None };
        let datatype = self.objects.committed(key.datatype).ok()?;
        let basic = datatype.basic().filter(|_| datatype.layout().is_contiguous())?;
        check_op(op, basic).ok()?;
        let count = usize::try_from(key.count).ok()?;
        let bytes = count.checked_mul(datatype.size()).filter(|bytes| *bytes > 0)?;
        if !self.job().coll.takes_flat(set, bytes, members) {
            return None;
        }
        let found = FoundAllreduce { set, operator: (op, basic), bytes };
        self.allreduces.set(0, key, found);
        Some(found)
    }
}
