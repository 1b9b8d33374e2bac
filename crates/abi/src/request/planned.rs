// SPDX-License-Identifier: BSD-3-Clause
//! Planned collectives: the checked arguments of a call as data, from which it may be started any number of
//! times.

use super::{Image, ImageShape, Operator, UserOp, Work};
use crate::args::Handle;
use crate::staging;
use coll::{Call, Coll, CollBuffer, CollTicket, Members, check};
use datatype::Buffer;
use error::{Class, Result, fail};
use executor::Reduction;
use objects::Comm;
use schedule::algorithm::Collective;
use slab::Slab;
use sys::Block;
use telemetry::Needs;

/// What the trace and the statistics record about a collective.
#[derive(Clone, Copy)]
pub(crate) struct TracedCollective {
    pub(crate) comm: Handle,
    /// The length in bytes of the collective's longer buffer, the send or the receive buffer.
    pub(crate) bytes: u64,
    pub(crate) collective: Collective,
    /// The rank of the root in the comm. 0 for collectives without a root.
    pub(crate) root: u32,
    pub(crate) has_neighbors: bool,
    /// For a start of a persistent request: the request's context id and the start's number, by which the
    /// trace names the collective. None for other collectives.
    pub(crate) started: Option<(u64, u32)>,
}

impl TracedCollective {
    /// Returns from which ranks this rank needs data. Returns `Unknown` if no single root or lower ranks send
    /// the data, and on an intercommunicator, where not all ranks know the root.
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

/// A collective with checked arguments, which may be started any number of times.
#[derive(Clone)]
pub struct Planned {
    pub comm: Handle,
    pub call: Call,
    pub imaged: Option<Box<Imaged>>,
    /// Whether the two groups of an intercommunicator act as one group, as they do in the library's own
    /// exchanges.
    pub as_one: bool,
    /// The name of the MPI function that made the persistent request. Empty if the collective is not
    /// persistent.
    function: &'static str,
}

/// What each start of a reduction needs to make its operator, and its images (copies of the program's
/// buffers).
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

    /// Checks the buffers. Returns whether they may be device memory, so that devices or a collective library
    /// may take the call. Fails if the program's buffers overlap (MPI 5.0, section 6.1), except in
    /// neighborhood collectives.
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

    /// Checks that the program's buffers do not overlap, if host memory stands in for them. Also marks the
    /// host memory that the call only reads, so that this memory is not copied back.
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

    /// Makes the two groups of an intercommunicator act as one group, in the order of `Members::peers`.
    pub(crate) fn in_one_group(mut self) -> Planned {
        self.as_one = true;
        self
    }

    /// Returns what OUTBOARD_STATS and OUTBOARD_TRACE record about the collective.
    pub(crate) fn traced(&self) -> TracedCollective {
        let Call { collective, root, ref input, ref output, ref neighbors, .. } = self.call;
        let (bytes, has_neighbors) = (input.total().max(output.total()), neighbors.is_some());
        TracedCollective { comm: self.comm, bytes, collective, root, has_neighbors, started: None }
    }

    /// Returns the name of the MPI function that made the persistent request. Returns an empty text if the
    /// collective is not persistent.
    pub(crate) fn function(&self) -> &'static str {
        self.function
    }

    /// Returns this collective, marked as a persistent request that the MPI function `function` makes.
    pub(crate) fn made_by(mut self, function: &'static str) -> Planned {
        self.function = function;
        self
    }

    /// Returns this collective, marked as a call whose caller waits for the end at once.
    pub(crate) fn blocking(mut self) -> Planned {
        self.call.blocking = true;
        self
    }

    /// Returns the call in a form that can start now, and the reduction's images: copies of buffers with
    /// gaps, on which the reduction works. Adds the program's operator to `operators`. The images are None
    /// if the plan has no `imaged`.
    pub(crate) fn prepared(self, operators: &mut Slab<Operator>) -> (Call, Option<Box<Image>>) {
        let Planned { mut call, imaged, .. } = self;
        let image = imaged.map(|imaged| Box::new(imaged.fill(&mut call, operators)));
        (call, image)
    }

    /// Plans an allgather of bytes of the library's own. Each member sends `mine`, and gets the bytes of all
    /// members in `all`. Both blocks must live until the collective is over.
    pub(crate) fn gathering_bytes(comm: Handle, mine: &Block, all: &Block) -> Planned {
        let input = CollBuffer::bytes(Buffer::from(mine.span()));
        let output = CollBuffer::PerRank(Buffer::from(all.span()));
        Planned::new(comm, Call::new(Collective::Allgather, input, output)).in_one_group()
    }

    /// Plans an all-to-all of bytes of the library's own: `send[i]` goes to rank i, and `recv[i]` comes from
    /// it. The blocks must live until the collective is over.
    pub(crate) fn exchanging_bytes(comm: Handle, send: &[Block], recv: &[Block]) -> Planned {
        let each =
            |parts: &[Block]| CollBuffer::Each(parts.iter().map(|part| Buffer::from(part.span())).collect());
        Planned::new(comm, Call::new(Collective::Alltoallv, each(send), each(recv)))
    }

    /// Plans a broadcast of bytes of the library's own from `root`. The block must live until the collective
    /// is over.
    pub(crate) fn spreading_bytes(comm: Handle, root: u32, bytes: &Block) -> Planned {
        let output = CollBuffer::bytes(Buffer::from(bytes.span()));
        let call = Call { root, ..Call::new(Collective::Bcast, CollBuffer::None, output) };
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
                CollBuffer::CutAt { buffer, .. } => *buffer = image.input(),
                CollBuffer::One { .. } => call.input = one(&shape, image.input()),
                _ => (),
            }
        }
        if let Some(op) = operator {
            let counts = if matches!(call.input, CollBuffer::CutAt { .. }) { counts } else { Vec::new() };
            let token = operators.insert(Operator { op, shape: shape.clone(), counts });
            image.operator = Some(token);
            let element_bytes = if shape.is_contiguous() { shape.unit(0) } else { 1 };
            call.reduction = Some(Reduction::User { token: token as u64, element_bytes });
        }
        image
    }
}
/// Makes a call's buffer from a vector whose elements lie as `shape` says. Algorithms divide the buffer only
/// between elements.
pub(crate) fn one(shape: &ImageShape, buffer: Buffer) -> CollBuffer {
    CollBuffer::One { element_bytes: shape.unit(buffer.bytes()), buffer }
}

/// A collective whose members first compare their arguments, with OUTBOARD_CHECK=1.
pub struct Checked {
    pub gather: CollTicket,
    /// This rank's statement (the call's arguments as words), which it sends in an allgather before the
    /// collective.
    #[allow(dead_code)]
    pub mine: Block,
    /// The statements of all ranks (their calls' arguments as words), which this rank receives in the
    /// allgather.
    pub all: Block,
    pub members: Members,
    pub call: Call,
    pub image: Option<Box<Image>>,
    /// The record of the collective for statistics and trace. None unless operations are timed.
    pub operation: Option<Box<telemetry::TimedOperation>>,
}

impl Checked {
    /// Starts the collective when the arguments of all ranks have arrived. Returns None before. Fails if the
    /// arguments of two ranks do not fit together.
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

    /// Returns the index in `JobState::operators` of the program's operator, or None if there is none.
    pub(crate) fn operator(&self) -> Option<usize> {
        self.image.as_ref().and_then(|image| image.operator)
    }
}
/// Converts words to bytes, which a collective can send.
pub(crate) fn to_bytes(words: &[i64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Converts bytes that `to_bytes` has made back to words.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
}
