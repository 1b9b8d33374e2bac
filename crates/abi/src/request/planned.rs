// SPDX-License-Identifier: BSD-3-Clause
//! A collective as data: its checked arguments, ready to be started any number of times.

use super::{Image, ImageShape, Operator, UserOp, Work};
use crate::args::Handle;
use crate::staging;
use coll::{Call, CallBuffer, Coll, CollTicket, Members, check};
use datatype::Buffer;
use error::{Class, Result, fail};
use executor::Reduction;
use objects::Comm;
use schedule::algorithm::Collective;
use slab::Slab;
use sys::Block;
use telemetry::Needs;

/// What the trace and the statistics record of a collective.
#[derive(Clone, Copy)]
pub(crate) struct TracedCollective {
    pub(crate) comm: Handle,
    /// The number of bytes in the longer of the two buffers.
    pub(crate) bytes: u64,
    pub(crate) collective: Collective,
    /// The root in the comm, where there is one.
    pub(crate) root: u32,
    pub(crate) has_neighbors: bool,
    /// For a persistent request, which members may start in any order: its context, and how often it was
    /// started.
    pub(crate) started: Option<(u64, u32)>,
}

impl TracedCollective {
    /// The ranks that the collective needs. On an intercommunicator not all ranks know the root.
    pub(crate) fn needs(&self, comm: &Comm) -> Needs {
        use Collective::*;
        match self.collective {
            _ if comm.remote.is_some() => Needs::Unknown,
            Bcast | Gather | Gatherv | Scatter | Scatterv | Reduce => {
                comm.group.peers.get(self.root as usize).map_or(Needs::Unknown, |peer| Needs::Root(*peer))
            }
            Scan | Exscan => Needs::Below(comm.rank),
            _ => Needs::Unknown,
        }
    }
}

/// A collective ready to be started, any number of times.
#[derive(Clone)]
pub struct Planned {
    pub comm: Handle,
    pub call: Call,
    pub imaged: Option<Box<Imaged>>,
    /// Whether the two groups of an intercommunicator count as one group, as in exchanges of the library's
    /// own.
    pub as_one: bool,
    /// The MPI function that made the collective persistent. Empty if it is not persistent.
    function: &'static str,
}

/// What a reduction prepares at each start: its operator, and images of the buffers as they are then.
#[derive(Clone)]
pub struct Imaged {
    pub shape: ImageShape,
    pub counts: Vec<i64>,
    pub received: i64,
    pub input: Buffer,
    pub output: Option<Buffer>,
    pub operator: Option<UserOp>,
}

impl Planned {
    #[inline(always)] // So it is made where it is used: a move takes long beside a short call.
    pub(crate) fn new(comm: Handle, call: Call) -> Planned {
        Planned { comm, call, imaged: None, as_one: false, function: "" }
    }

    /// Checks the buffers. Returns whether stand-ins are possible, so that a carrier for devices may take the
    /// call.
    ///
    /// Errors: the program's buffers overlap (MPI 5.0, section 6.1). The buffers of neighborhood collectives
    /// are not compared.
    #[inline]
    pub(crate) fn check(&self) -> Result<bool> {
        let Call { in_place, input, output, neighbors, .. } = &self.call;
        if device::on() {
            return self.check_stand_ins().map(|()| true);
        }
        if !*in_place && neighbors.is_none() && input.overlaps(output) {
            overlap()?
        }
        Ok(false)
    }

    /// Checks the program's buffers where host memory may stand in for them. Also notes which stand-ins are
    /// only read.
    #[cold]
    fn check_stand_ins(&self) -> Result<()> {
        let Call { in_place, input, output, neighbors, .. } = &self.call;
        let inputs = self.imaged.as_deref().map(|imaged| &imaged.input);
        input.buffers().iter().chain(inputs).for_each(staging::reads);
        let mut user = (input.clone(), output.clone());
        user.0.map(staging::user_of);
        user.1.map(staging::user_of);
        if !*in_place && neighbors.is_none() && user.0.overlaps(&user.1) { overlap() } else { Ok(()) }
    }

    /// Makes the two groups of an intercommunicator count as one, with the ranks of `Members::peers`.
    pub(crate) fn in_one_group(mut self) -> Planned {
        self.as_one = true;
        self
    }

    /// What OUTBOARD_STATS and OUTBOARD_TRACE record of the collective.
    pub(crate) fn traced(&self) -> TracedCollective {
        let Call { collective, root, ref input, ref output, ref neighbors, .. } = self.call;
        let (bytes, has_neighbors) = (input.total().max(output.total()), neighbors.is_some());
        TracedCollective { comm: self.comm, bytes, collective, root, has_neighbors, started: None }
    }

    /// The MPI function that made the collective persistent.
    pub(crate) fn function(&self) -> &'static str {
        self.function
    }

    /// Notes that `function` makes the collective persistent.
    pub(crate) fn made_by(mut self, function: &'static str) -> Planned {
        self.function = function;
        self
    }

    /// Notes that the caller only waits for the collective.
    pub(crate) fn blocking(mut self) -> Planned {
        self.call.blocking = true;
        self
    }

    /// Returns the call in the form in which it can be started: its operator is in `operators`, and images
    /// hold what the buffers hold now.
    pub(crate) fn prepared(self, operators: &mut Slab<Operator>) -> (Call, Option<Box<Image>>) {
        let Planned { mut call, imaged, .. } = self;
        let image = imaged.map(|imaged| Box::new(imaged.fill(&mut call, operators)));
        (call, image)
    }

    /// Plans an allgather of the library's own bytes: each member sends `mine`, and `all` receives the bytes
    /// of all. The blocks must live until the collective is over.
    pub(crate) fn gathering_bytes(comm: Handle, mine: &Block, all: &Block) -> Planned {
        let input = CallBuffer::bytes(Buffer::from(mine.span()));
        let output = CallBuffer::PerRank(Buffer::from(all.span()));
        Planned::new(comm, Call::new(Collective::Allgather, input, output)).in_one_group()
    }

    /// Plans an all-to-all of the library's own bytes, with a block of `send` and of `recv` for each rank.
    /// The blocks must live until the collective is over.
    pub(crate) fn exchanging_bytes(comm: Handle, send: &[Block], recv: &[Block]) -> Planned {
        let each =
            |parts: &[Block]| CallBuffer::Each(parts.iter().map(|part| Buffer::from(part.span())).collect());
        Planned::new(comm, Call::new(Collective::Alltoallv, each(send), each(recv)))
    }

    /// Plans a broadcast of the library's own bytes. The block must live until the collective is over.
    pub(crate) fn spreading_bytes(comm: Handle, root: u32, bytes: &Block) -> Planned {
        let output = CallBuffer::bytes(Buffer::from(bytes.span()));
        let call = Call { root, ..Call::new(Collective::Bcast, CallBuffer::None, output) };
        Planned::new(comm, call).in_one_group()
    }
}

#[cold]
fn overlap() -> Result<()> {
    fail!(Class::Buffer, "the buffers for sending and receiving overlap; MPI_IN_PLACE is there for using one")
}

impl Imaged {
    fn fill(self, call: &mut Call, operators: &mut Slab<Operator>) -> Image {
        let Imaged { shape, counts, received, input, output, operator } = self;
        let mut image = Image::default();
        if !shape.is_contiguous() {
            image = Image::new(&shape, &counts, received, &input, output.as_ref());
            if output.is_some() {
                call.output = one(&shape, image.output());
            }
            // For a reduction in place the output's image holds the vector.
            match &mut call.input {
                CallBuffer::CutAt { buffer, .. } => *buffer = image.input(),
                CallBuffer::One { .. } => call.input = one(&shape, image.input()),
                _ => (),
            }
        }
        if let Some(op) = operator {
            let counts = if matches!(call.input, CallBuffer::CutAt { .. }) { counts } else { Vec::new() };
            let token = operators.insert(Operator { op, shape: shape.clone(), counts });
            image.operator = Some(token);
            let element_bytes = if shape.is_contiguous() { shape.unit(0) } else { 1 };
            call.reduction = Some(Reduction::User { token: token as u64, element_bytes });
        }
        image
    }
}
/// Makes the buffer of a call from a vector, which algorithms divide only between elements of `shape`.
pub(crate) fn one(shape: &ImageShape, buffer: Buffer) -> CallBuffer {
    CallBuffer::One { element_bytes: shape.unit(buffer.bytes()), buffer }
}

/// A collective whose members compare their arguments (OUTBOARD_CHECK=1).
pub struct Checked {
    pub gather: CollTicket,
    /// This rank's statement: its arguments as words, which the allgather sends.
    #[allow(dead_code)]
    pub mine: Block,
    /// The statements of all ranks, which the allgather receives.
    pub all: Block,
    pub members: Members,
    pub call: Call,
    pub image: Option<Box<Image>>,
    /// The record of the collective, if operations are timed.
    pub operation: Option<Box<telemetry::TimedOperation>>,
}

impl Checked {
    /// Starts the collective once the statements of all ranks have arrived.
    ///
    /// Errors: the statements disagree.
    pub(crate) fn poll(&mut self, coll: &mut Coll) -> Option<Result<Work>> {
        if let Err(error) = coll.outcome(self.gather)? {
            return Some(Err(error));
        }
        let words: Vec<i64> = to_words(&self.all.to_vec());
        let verdict = check::compare(&words, self.members.peers.len() as u32);
        let started = verdict.and_then(|()| coll.start(&self.members, self.call.clone()));
        Some(started.map(|ticket| {
            let mut work = Work::Coll(ticket, self.image.take(), None);
            work.follow(self.operation.take(), coll);
            work
        }))
    }

    /// The token of the operator that the collective would use.
    pub(crate) fn operator(&self) -> Option<usize> {
        self.image.as_ref().and_then(|image| image.operator)
    }
}
/// Converts words to bytes that a schedule can send.
pub(crate) fn to_bytes(words: &[i64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Converts the bytes of `to_bytes` back to words.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
}
