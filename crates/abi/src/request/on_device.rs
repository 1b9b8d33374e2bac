// SPDX-License-Identifier: BSD-3-Clause
//! Reductions of device memory among ranks of one host. The bytes never pass through host memory.
//!
//! Each rank exports its input (lets the other ranks' devices read it). Each rank reduces one part of the
//! vector by kernels, which read all ranks' memory in the order of ranks. In an allreduce each rank then
//! copies the other parts from the ranks that reduced them. Between these steps the ranks exchange words:
//! what each rank exports; whether all parts are reduced; whether all ranks have read what they need. If some
//! rank's buffers are not device memory, or no kernel can reduce them, the first exchange shows this, and all
//! ranks start a schedule in `coll` instead.
//!
//! Read next: `collective/on_device.rs`, which starts a reduction; `device/src/export.rs`.

use super::{Planned, Work, to_bytes, to_words};
use crate::args::Handle;
use crate::staging::{Staged, StandInMemory, StandIns};
use coll::{Call, Coll, CollTicket, Members};
use device::export::{self, DESCRIPTION_WORDS};
use device::kernel::KernelReduction;
use error::{Class, Error, Result, fail};
use schedule::algorithm::Collective;
use std::sync::Arc;
use sys::{Block, Span};
use telemetry::{Carried, Choice, Counter, TimedOperation};

type MemoryDescription = [u64; DESCRIPTION_WORDS];

/// A reduction on devices as this rank takes part in it: its operator, its memory, and the part of the vector
/// that each rank reduces. All memory here is device memory.
pub(crate) struct DeviceShare {
    pub reduction: KernelReduction,
    pub rank: usize,
    /// The offset and the length, in bytes, of the part of the vector that each rank reduces, by rank.
    pub pieces: Vec<(usize, usize)>,
    pub input: Span,
    /// The memory into which this rank reduces its part of the vector.
    pub sum: Span,
    /// The memory for the whole result of an allreduce, of which `sum` is a part. None in other reductions.
    pub whole: Option<Span>,
    /// Memory for a copy of this rank's operand. If the reduction is in place, the sum of the lower ranks'
    /// operands overwrites the operand before the reduction reads it. None unless it is in place.
    pub aside: Option<StandInMemory>,
}

impl DeviceShare {
    /// Whether a kernel can reduce this rank's part of the vector. Runs a kernel with no elements to find
    /// out.
    pub(crate) fn is_ready(&self) -> bool {
        let (offset, bytes) = self.pieces[self.rank];
        let none = KernelReduction { count: 0, ..self.reduction };
        bytes == 0 || device::reduce(none, self.input.address() + offset, self.sum.address()).unwrap_or(false)
    }

    /// Reduces this rank's part of the vector in the order of ranks (`schedule::order`). `inputs` describe
    /// the device memory of each rank's input. Kernels swap the two operands of each operation, which changes
    /// no result, because their operators commute.
    fn reduce(&self, inputs: &[MemoryDescription]) -> Result<()> {
        let (offset, bytes) = self.pieces[self.rank];
        if bytes == 0 {
            return Ok(());
        }
        let mut mine = self.input.slice(offset, bytes);
        if let Some(aside) = &self.aside {
            device::copy(aside.span(), mine)?;
            mine = aside.span();
        }
        let reduction = KernelReduction { count: bytes / self.reduction.stride, ..self.reduction };
        for (rank, input) in inputs.iter().enumerate() {
            let operand = if rank == self.rank { mine } else { device::open_exported(input, offset, bytes)? };
            if rank == 0 && operand.address() != self.sum.address() {
                device::copy(self.sum, operand)?;
            }
            if rank == 0 {
                continue;
            }
            if !device::reduce(reduction, operand.address(), self.sum.address())? {
                fail!(Class::Intern, "no kernel reduced what one was found for");
            }
            telemetry::count(Counter::DeviceReductions, 1);
        }
        Ok(())
    }

    /// Copies the parts of the vector that other ranks have reduced, if this is an allreduce. `sums` describe
    /// the device memory in which each rank has reduced its part.
    fn collect(&self, sums: &[MemoryDescription]) -> Result<()> {
        let Some(whole) = self.whole else { return Ok(()) };
        for other in self.others().filter(|other| self.pieces[*other].1 > 0) {
            let (offset, bytes) = self.pieces[other];
            device::copy_exported(&sums[other], 0, whole.slice(offset, bytes))?;
            telemetry::count(Counter::DeviceBytes, bytes as u64);
        }
        Ok(())
    }

    /// Returns the other ranks, from the next rank on. In this order not all ranks read the memory of one
    /// rank at the same time.
    fn others(&self) -> impl Iterator<Item = usize> {
        let (rank, size) = (self.rank, self.pieces.len());
        (1..size).map(move |step| (rank + step) % size)
    }
}

/// A reduction on devices that is under way.
pub struct OnDevice {
    comm: Handle,
    share: Option<DeviceShare>,
    /// The comm's members with the number of a collective, for each collective that the reduction may start:
    /// the three exchanges, and the call that `coll` carries out if devices cannot.
    members: [Members; 4],
    /// The call that goes through `coll` if some rank cannot reduce on a device, and the stand-ins (host
    /// memory) of its buffers. None once this call has started.
    fallback: Option<(Call, Vec<Staged>)>,
    /// The ticket (the number in `coll`) of the allgather by which the ranks now exchange words.
    ticket: CollTicket,
    /// The words that this rank sends in the allgather `ticket`.
    mine: Block,
    /// The words of all ranks, which this rank receives in the allgather `ticket`.
    all: Block,
    /// The words that this rank sent in the reduction's first exchange. They contain descriptions of the
    /// device memory that this rank exports. None while the first exchange is under way.
    first_words: Option<Block>,
    sums: Vec<MemoryDescription>,
    /// How many of the three exchanges of words among the ranks are over.
    over: usize,
    error: Option<Error>,
    /// The record of the reduction for statistics and trace. None unless operations are timed.
    pub(crate) operation: Option<Box<TimedOperation>>,
}

/// How many words each rank sends in the first exchange: whether it can take part, a description of its input
/// (device memory that it lets others read), and a description of the memory into which it reduces its part
/// of the vector.
const WORDS: usize = 1 + 2 * DESCRIPTION_WORDS;

impl OnDevice {
    /// Starts the first exchange of a reduction, and returns the reduction. `share` is None if this rank
    /// cannot take part. `usual` is the call for `coll` to carry out if some rank cannot.
    ///
    /// Errors: the exchange cannot be started.
    pub(crate) fn start(
        comm: Handle,
        share: Option<DeviceShare>,
        members: [Members; 4],
        fallback: (Call, Vec<Staged>),
        coll: &mut Coll,
    ) -> Result<OnDevice> {
        let mine = Block::of(&[0; 8 * WORDS]);
        let exports = share.as_ref().is_some_and(|share| {
            let descriptions = descriptions(&mine).into_iter().zip([share.input, share.sum]);
            let mut exported = descriptions.filter(|(_, span)| span.bytes() > 0);
            exported.all(|(description, span)| device::export(description, span).unwrap_or(false))
        });
        mine.span().slice(0, 8).write(&u64::from(exports).to_ne_bytes());
        let (ticket, all) = exchange(coll, comm, &members[0], &mine)?;
        let (fallback, first_words, sums) = (Some(fallback), None, Vec::new());
        let (over, error, operation) = (0, None, None);
        Ok(OnDevice {
            comm,
            share,
            members,
            fallback,
            ticket,
            mine,
            all,
            first_words,
            sums,
            over,
            error,
            operation,
        })
    }

    /// Does the next step when an exchange is over. Returns None while the reduction goes on, and
    /// `Some(Ok(None))` when it is complete. If some rank cannot take part, returns the operation that
    /// replaces it. Fails if a device failed, here or at another rank.
    pub(crate) fn poll(&mut self, coll: &mut Coll) -> Option<Result<Option<Work>>> {
        let outcome = coll.outcome(self.ticket)?;
        self.over += 1;
        outcome.and_then(|()| self.advance(coll)).transpose()
    }

    fn advance(&mut self, coll: &mut Coll) -> Result<Option<Option<Work>>> {
        let words: Vec<u64> = to_words(&self.all.to_vec()).into_iter().map(|word| word as u64).collect();
        let Some(share) =
            self.share.as_ref().filter(|_| self.over > 1 || words.chunks(WORDS).all(|word| word[0] == 1))
        else {
            return self.start_fallback(coll).map(|work| Some(Some(work)));
        };
        if self.over == 1 {
            let descriptions = |at: usize| {
                let description =
                    move |words: &[u64]| words[at..at + DESCRIPTION_WORDS].try_into().expect("a description");
                words.chunks(WORDS).map(description).collect::<Vec<MemoryDescription>>()
            };
            self.sums = descriptions(1 + DESCRIPTION_WORDS);
            let reduced = share.reduce(&descriptions(1));
            return self.start_next_exchange(coll, reduced);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if let Some(rank) = words.iter().position(|word| *word != 0) {
            fail!(Class::Other, "the device of rank {rank} of the comm failed in this reduction");
        }
        if self.over == 3 || !self.is_collected() {
            self.record();
            return Ok(Some(None));
        }
        let collected = share.collect(&self.sums);
        self.start_next_exchange(coll, collected)
    }

    /// Whether this is an allreduce, in which each rank copies the parts that other ranks have reduced.
    fn is_collected(&self) -> bool {
        self.fallback.as_ref().is_some_and(|(call, _)| call.collective == Collective::Allreduce)
    }

    /// Starts the next exchange, in which each rank reports whether its latest step succeeded; `outcome` is
    /// this rank's. Returns `Ok(None)`: the reduction goes on.
    fn start_next_exchange(&mut self, coll: &mut Coll, outcome: Result<()>) -> Result<Option<Option<Work>>> {
        let mine = Block::of(&to_bytes(&[i64::from(outcome.is_err())]));
        self.error = outcome.err();
        (self.ticket, self.all) = exchange(coll, self.comm, &self.members[self.over], &mine)?;
        let before = std::mem::replace(&mut self.mine, mine);
        self.first_words.get_or_insert(before);
        Ok(None)
    }

    /// Ends the record of the reduction for statistics and trace, which says that devices have carried it
    /// out.
    fn record(&mut self) {
        if let Some(mut operation) = self.operation.take() {
            operation.note_carried(Some(Carried { choice: Choice::Device, ..Carried::default() }));
            operation.end();
        }
    }

    fn start_fallback(&mut self, coll: &mut Coll) -> Result<Work> {
        let (call, mut staged) = self.fallback.take().expect("it begins once");
        staged.iter_mut().try_for_each(Staged::fill)?;
        let mut work = Work::Coll(coll.start(&self.members[3], call)?, None, None);
        work.follow(self.operation.take(), coll);
        Ok(Work::Staged(Box::new(work), Arc::new(StandIns::Device(staged))))
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        let first_words = self.first_words.as_ref().unwrap_or(&self.mine);
        descriptions(first_words).iter().for_each(|description| export::withdraw(description.address()));
    }
}

/// Returns where two descriptions lie in the words that a rank sends in the first exchange: the description
/// of its input, and the description of the memory into which it reduces its part of the vector.
fn descriptions(words: &Block) -> [Span; 2] {
    [1, 1 + DESCRIPTION_WORDS].map(|at| words.span().slice(8 * at, 8 * DESCRIPTION_WORDS))
}

/// Starts an exchange, an allgather of the words `mine`. Returns its ticket, and the memory for all ranks'
/// words.
fn exchange(coll: &mut Coll, comm: Handle, members: &Members, mine: &Block) -> Result<(CollTicket, Block)> {
    let all = Block::new(mine.span().bytes() * members.peers.len());
    let gather = Planned::gathering_bytes(comm, mine, &all).call;
    Ok((coll.start(members, gather)?, all))
}
