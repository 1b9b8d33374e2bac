//! From the arguments of MPI's collectives to calls of `coll`: checks, MPI_IN_PLACE, blocks, operators.
//!
//! Read next: `image.rs`, for reductions of datatypes with gaps; `short.rs`, the way of short blocking calls.

use crate::args::{Address, Counts, Handle, In};
use crate::callback::UserOp;
use crate::image::{Image, Operator, Shape};
use crate::lenient::{self, Taken};
use crate::process::{Job, Process};
use crate::request::{Recipe, Work};
use coll::{CALLS_BEFORE, Call, Coll, CollTicket, Members, Part, check};
use datatype::{Basic, Buffer, check_op};
use error::{Class, Result, fail};
use executor::Reduction;
use objects::{Comm, Op, Queue, constants};
use schedule::algorithm::Collective;
use std::sync::Arc;

/// A collective ready to be started, any number of times.
#[derive(Clone)]
pub struct Planned {
    comm: Handle,
    call: Call,
    imaged: Option<Box<Imaged>>,
    /// Whether the groups of an intercommunicator are one for it.
    as_one: bool,
    /// Of a persistent one: the function that made it.
    function: &'static str,
}

/// What a reduction prepares at each start: its operator's place, and images of the buffers as they are then.
#[derive(Clone)]
struct Imaged {
    shape: Shape,
    counts: Vec<i64>,
    received: i64,
    input: Buffer,
    output: Option<Buffer>,
    operator: Option<UserOp>,
}

/// A buffer, its count and its datatype.
#[derive(Clone, Copy)]
pub(crate) struct Typed(pub Address, pub i64, pub Handle);

/// A buffer with a count and a displacement in elements for each rank.
pub(crate) struct Weighted(pub Address, pub Counts, pub Counts, pub Handle);

/// A buffer with a count, a displacement in bytes and a datatype for each rank.
pub(crate) struct TypedEach(pub Address, pub Counts, pub Counts, pub In<Handle>);

/// What all reductions have.
#[derive(Clone, Copy)]
pub(crate) struct Reduced {
    pub sendbuf: Address,
    pub recvbuf: Address,
    pub datatype: Handle,
    pub op: Handle,
}

impl Planned {
    pub(crate) fn new(comm: Handle, call: Call) -> Planned {
        Planned { comm, call, imaged: None, as_one: false, function: "" }
    }

    /// Whether the call's one buffer is both; if not, its two must lie apart (MPI 5.0, section 6.1).
    fn in_place(mut self, in_place: bool) -> Result<Planned> {
        if !in_place && self.call.input.overlaps(&self.call.output) {
            fail!(
                Class::Buffer,
                "the buffers for sending and receiving overlap; MPI_IN_PLACE is there for using one"
            );
        }
        self.call.in_place = in_place;
        Ok(self)
    }

    /// Makes one group of an intercommunicator's two, whose ranks are then those of `Members::peers`.
    fn in_one_group(mut self) -> Planned {
        self.as_one = true;
        self
    }

    fn root(mut self, root: u32) -> Planned {
        self.call.root = root;
        self
    }

    /// The comm, and the call if it is one among all members of it.
    pub(crate) fn among_all(&self) -> Option<(Handle, &Call)> {
        (self.call.neighbors.is_none() && !self.as_one).then_some((self.comm, &self.call))
    }

    /// The comm, and the bytes of the longer of its two buffers, for people.
    pub(crate) fn told(&self) -> (Handle, u64) {
        (self.comm, self.call.input.total().max(self.call.output.total()))
    }

    /// The function that made it persistent.
    pub(crate) fn function(&self) -> &'static str {
        self.function
    }

    /// Says that `function` makes it persistent.
    pub(crate) fn made_by(mut self, function: &'static str) -> Planned {
        self.function = function;
        self
    }

    /// Says that the calling rank only waits for it.
    pub(crate) fn blocking(mut self) -> Planned {
        self.call.blocking = true;
        self
    }

    /// Starts it as the comm's next collective. Returns the comm that failures are for, too.
    pub(crate) fn start(self, process: &mut Process) -> Result<(Handle, Work)> {
        // Members that compare what they pass count all collectives together, so that they are told of a wrong order.
        let blocking = self.call.blocking || settings::get().check != 0;
        let comm = self.comm;
        let mut members = next_members(process.objects.comms.get_mut(comm)?, blocking);
        if self.as_one {
            members = members.as_one();
        }
        if !blocking && let Some(ticket) = self.enqueue(&members, process)? {
            return Ok((comm, Work::Coll(ticket, None, None)));
        }
        let work = self.start_among(&mut members, process)?;
        // A comparison of statements has taken a number of its own.
        if settings::get().check != 0 {
            process.objects.comms.get_mut(comm)?.sequences[usize::from(!blocking)] = members.sequence;
        }
        Ok((comm, work))
    }

    /// Makes a nonblocking call in the comm's queue, if it is one for it.
    fn enqueue(&self, members: &Members, process: &mut Process) -> Result<Option<CollTicket>> {
        let (objects, job) = process.parts();
        let comm = objects.comms.get_mut(self.comm)?;
        let mut queue = comm.queue;
        let ticket = self.enqueue_in(&mut queue, &mut job.coll, members, || next_members(comm, false));
        comm.queue = queue;
        ticket
    }

    /// Makes a call in a queue, if it is one for it. `opening`: the members as for `opened`.
    fn enqueue_in(
        &self,
        queue: &mut Queue,
        coll: &mut Coll,
        members: &Members,
        opening: impl FnOnce() -> Members,
    ) -> Result<Option<CollTicket>> {
        if self.imaged.is_some() || !coll.is_for_queue(members, &self.call) {
            return Ok(None);
        }
        let Some(queue) = opened(queue, coll, || Ok(opening()))? else { return Ok(None) };
        Ok(coll.queue(queue, members, &self.call))
    }

    /// A persistent request's recipe. Requests may be started in another order on every member, so each has a context of
    /// its own, in which its starts are counted (MPI 5.0, section 6.13).
    pub(crate) fn persist(self, process: &mut Process) -> Result<(Handle, Recipe)> {
        let comm = process.objects.comms.get_mut(self.comm)?;
        let mut members = next_members(comm, false);
        members.context = comm.child_context(0).id;
        let claim = process.objects.contexts.claim(members.context)?;
        Ok((self.comm, Recipe::Coll { planned: self, members, queue: Queue::Counted(0), _claim: claim }))
    }

    /// Starts the recipe of `persist` once more.
    pub(crate) fn start_again(
        &self,
        members: &mut Members,
        queue: &mut Queue,
        process: &mut Process,
    ) -> Result<Work> {
        members.sequence = members.sequence.wrapping_add(1);
        let this = members.clone();
        let opening = || {
            members.sequence = members.sequence.wrapping_add(1);
            members.clone()
        };
        if let Some(ticket) = self.enqueue_in(queue, &mut process.job().coll, &this, opening)? {
            return Ok(Work::Coll(ticket, None, None));
        }
        self.clone().start_among(members, process)
    }

    /// Starts it with the number `members.sequence`, or the comparison that OUTBOARD_CHECK=1 puts before it and then takes that
    /// number. The numbers are taken now: other collectives may start before the comparison is over.
    fn start_among(self, members: &mut Members, process: &mut Process) -> Result<Work> {
        let size = members.peers.len() as u32;
        if settings::get().check == 0 || size == 1 {
            let (call, image) = self.prepared(process.job());
            return begin(process.job(), members, call, image);
        }
        let mut mine = to_bytes(&check::statement(&self.call, members));
        let mut all = vec![0u8; mine.len() * size as usize];
        let gather = Planned::gathering_bytes(self.comm, &mut mine, &mut all).call;
        let gather = process.job().coll.start(&members.as_one(), gather)?;
        members.sequence = members.sequence.wrapping_add(1);
        let (call, image) = self.prepared(process.job());
        let members = members.clone();
        Ok(Work::Checked(Box::new(Checked { gather, mine, all, members, call, image, operation: None })))
    }

    /// The call, with the operator in its place and images of the buffers as they are now.
    fn prepared(self, job: &mut Job) -> (Call, Option<Box<Image>>) {
        let Planned { mut call, imaged, .. } = self;
        let image = imaged.map(|imaged| Box::new(imaged.fill(&mut call, job)));
        (call, image)
    }

    /// An allgather of our own bytes, which must live until it is over.
    pub(crate) fn gathering_bytes(comm: Handle, mine: &mut [u8], all: &mut [u8]) -> Planned {
        let input = Part::bytes(Buffer::from(crate::buffer::memory(mine)));
        let output = Part::PerRank(Buffer::from(crate::buffer::memory(all)));
        Planned::new(comm, Call::new(Collective::Allgather, input, output)).in_one_group()
    }

    /// An all-to-all of our own bytes, which must live until it is over.
    pub(crate) fn exchanging_bytes(comm: Handle, send: &mut [Vec<u8>], recv: &mut [Vec<u8>]) -> Planned {
        let each = |parts: &mut [Vec<u8>]| {
            Part::Each(parts.iter_mut().map(|part| Buffer::from(crate::buffer::memory(part))).collect())
        };
        Planned::new(comm, Call::new(Collective::Alltoallv, each(send), each(recv)))
    }

    /// A broadcast of our own bytes, which must live until it is over.
    pub(crate) fn spreading_bytes(comm: Handle, root: u32, bytes: &mut [u8]) -> Planned {
        let output = Part::bytes(Buffer::from(crate::buffer::memory(bytes)));
        Planned::new(comm, Call::new(Collective::Bcast, Part::None, output)).root(root).in_one_group()
    }
}

impl Imaged {
    fn fill(self, call: &mut Call, job: &mut Job) -> Image {
        let Imaged { shape, counts, received, input, output, operator } = self;
        let mut image = Image::default();
        if !shape.is_plain() {
            image = Image::new(&shape, &counts, received, &input, output.as_ref());
            if output.is_some() {
                call.output = one(&shape, image.output());
            }
            // In place the vector lies in the output's image, which is filled as the input's is.
            match &mut call.input {
                Part::CutAt { buffer, .. } => *buffer = image.input(),
                Part::One { .. } => call.input = one(&shape, image.input()),
                _ => (),
            }
        }
        if let Some(op) = operator {
            let counts = if matches!(call.input, Part::CutAt { .. }) { counts } else { Vec::new() };
            let token = job.operators.insert(Operator { op, shape: shape.clone(), counts });
            image.operator = Some(token);
            let element_bytes = if shape.is_plain() { shape.unit(0) } else { 1 };
            call.reduction = Some(Reduction::User { token: token as u64, element_bytes });
        }
        image
    }
}

/// A vector that is cut between elements of the shape only.
fn one(shape: &Shape, buffer: Buffer) -> Part {
    Part::One { element_bytes: shape.unit(buffer.bytes()), buffer }
}

fn begin(job: &mut Job, members: &Members, call: Call, image: Option<Box<Image>>) -> Result<Work> {
    match job.coll.start(members, call) {
        Ok(ticket) => Ok(Work::Coll(ticket, image, None)),
        Err(error) => {
            image.and_then(|image| image.operator).map(|operator| job.operators.remove(operator));
            Err(error)
        }
    }
}

/// A collective whose members are comparing what they pass.
pub struct Checked {
    gather: CollTicket,
    /// Our statement; the schedule reads it.
    #[allow(dead_code)]
    mine: Vec<u8>,
    /// All statements; the schedule writes them.
    all: Vec<u8>,
    members: Members,
    call: Call,
    image: Option<Box<Image>>,
    /// Where operations are timed.
    pub(crate) operation: Option<Box<telemetry::Operation>>,
}

impl Checked {
    /// Once all statements are here: the collective, or the verdict against it.
    pub(crate) fn poll(&mut self, coll: &mut Coll) -> Option<Result<Work>> {
        if let Err(error) = coll.outcome(self.gather)? {
            return Some(Err(error));
        }
        let words: Vec<i64> = to_words(&self.all);
        let verdict = check::compare(&words, self.members.peers.len() as u32);
        let started = verdict.and_then(|()| coll.start(&self.members, self.call.clone()));
        Some(started.map(|ticket| {
            let mut work = Work::Coll(ticket, self.image.take(), None);
            work.follow(self.operation.take(), coll);
            work
        }))
    }

    /// The operator that the collective would use.
    pub(crate) fn operator(&self) -> Option<usize> {
        self.image.as_ref().and_then(|image| image.operator)
    }
}

/// Words as bytes that a schedule can send.
pub(crate) fn to_bytes(words: &[i64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The inverse of `to_bytes`.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
}

/// The queue for one more call. All members open it at the same call, as a collective of its own among `members`.
pub(crate) fn opened(
    queue: &mut Queue,
    coll: &mut Coll,
    members: impl FnOnce() -> Result<Members>,
) -> Result<Option<usize>> {
    let number = match *queue {
        Queue::Open(number) => number,
        Queue::Counted(calls) if calls + 1 < CALLS_BEFORE => {
            *queue = Queue::Counted(calls + 1);
            return Ok(None);
        }
        Queue::Counted(_) => coll.open_queue(&members()?)?,
    };
    *queue = Queue::Open(number);
    Ok(Some(number))
}

/// The members of a comm as the next collective sees them.
fn next_members(comm: &mut Comm, blocking: bool) -> Members {
    let (context, sequence) = comm.next_collective(blocking);
    let (rank, peers, first_group) = (comm.place(), comm.everybody.clone(), comm.first_group);
    Members { context, sequence, rank, peers, first_group }
}

/// My rank, and how many there are with me and as partners: the same ranks but on an intercommunicator.
struct Place {
    rank: usize,
    own: usize,
    partners: usize,
}

/// What a rank does in a rooted collective (MPI 5.0, section 6.2.3).
struct Role {
    /// The root as `Members::peers` counts.
    root: u32,
    is_root: bool,
    /// Exchanges data with the root; on an intracommunicator the root does so, too.
    serves: bool,
}

impl Role {
    /// In the group of an intercommunicator's root, and not the root: only `comm` and `root` are looked at.
    fn is_idle(&self) -> bool {
        !self.is_root && !self.serves
    }
}

#[rustfmt::skip]
impl Process {
    pub(crate) fn plan_barrier(&mut self, comm: Handle) -> Result<Planned> {
        self.place(comm)?;
        Ok(Planned::new(comm, Call::new(Collective::Barrier, Part::None, Part::None)))
    }

    pub(crate) fn plan_bcast(&mut self, comm: Handle, root: i32, data: Typed) -> Result<Planned> {
        let role = self.role(comm, root)?;
        let output = if role.is_idle() { Part::None } else { Part::bytes(self.typed(data)?) };
        Ok(Planned::new(comm, Call::new(Collective::Bcast, Part::None, output)).root(role.root))
    }

    pub(crate) fn plan_gather(&mut self, comm: Handle, root: i32, send: Typed, recv: Typed) -> Result<Planned> {
        let place = self.place(comm)?;
        let output = |process: &mut Process| process.per_rank(recv, place.partners).map(Part::PerRank);
        self.gathering(Collective::Gather, comm, root, send, output)
    }

    pub(crate) fn plan_gatherv(&mut self, comm: Handle, root: i32, send: Typed, recv: Weighted) -> Result<Planned> {
        let place = self.place(comm)?;
        self.gathering(Collective::Gatherv, comm, root, send, |process| process.weighted(recv, place.partners))
    }

    pub(crate) fn plan_scatter(&mut self, comm: Handle, root: i32, send: Typed, recv: Typed) -> Result<Planned> {
        let place = self.place(comm)?;
        let input = |process: &mut Process| process.per_rank(send, place.partners).map(Part::PerRank);
        self.scattering(Collective::Scatter, comm, root, input, recv)
    }

    pub(crate) fn plan_scatterv(&mut self, comm: Handle, root: i32, send: Weighted, recv: Typed) -> Result<Planned> {
        let place = self.place(comm)?;
        self.scattering(Collective::Scatterv, comm, root, |process| process.weighted(send, place.partners), recv)
    }

    pub(crate) fn plan_allgather(&mut self, comm: Handle, send: Typed, recv: Typed) -> Result<Planned> {
        let place = self.place(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { Part::None } else { Part::bytes(self.typed(send)?) };
        let output = Part::PerRank(self.per_rank(recv, place.partners)?);
        Planned::new(comm, Call::new(Collective::Allgather, input, output)).in_place(in_place)
    }

    pub(crate) fn plan_allgatherv(&mut self, comm: Handle, send: Typed, recv: Weighted) -> Result<Planned> {
        let place = self.place(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { Part::None } else { Part::bytes(self.typed(send)?) };
        let output = self.weighted(recv, place.partners)?;
        Planned::new(comm, Call::new(Collective::Allgatherv, input, output)).in_place(in_place)
    }

    pub(crate) fn plan_alltoall(&mut self, comm: Handle, send: Typed, recv: Typed) -> Result<Planned> {
        let place = self.place(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { Part::None } else { Part::PerRank(self.per_rank(send, place.partners)?) };
        let output = Part::PerRank(self.per_rank(recv, place.partners)?);
        Planned::new(comm, Call::new(Collective::Alltoall, input, output)).in_place(in_place)
    }

    pub(crate) fn plan_alltoallv(&mut self, comm: Handle, send: Weighted, recv: Weighted) -> Result<Planned> {
        let place = self.place(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { Part::None } else { self.weighted(send, place.partners)? };
        let output = self.weighted(recv, place.partners)?;
        Planned::new(comm, Call::new(Collective::Alltoallv, input, output)).in_place(in_place)
    }

    pub(crate) fn plan_alltoallw(&mut self, comm: Handle, send: TypedEach, recv: TypedEach) -> Result<Planned> {
        let place = self.place(comm)?;
        let in_place = self.in_place(comm, send.0)?;
        let input = if in_place { Part::None } else { self.typed_each(send, place.partners)? };
        let output = self.typed_each(recv, place.partners)?;
        Planned::new(comm, Call::new(Collective::Alltoallw, input, output)).in_place(in_place)
    }

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
    /// A gather or gatherv; `output` is asked for on the root only, the only rank where its arguments count.
    fn gathering(
        &mut self,
        collective: Collective,
        comm: Handle,
        root: i32,
        send: Typed,
        output: impl FnOnce(&mut Process) -> Result<Part>,
    ) -> Result<Planned> {
        let role = self.role(comm, root)?;
        let in_place = role.serves && self.in_place(comm, send.0)?;
        if in_place && !role.is_root {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as sendbuf, but only the root, rank {root}, may");
        }
        let input = if role.serves && !in_place { Part::bytes(self.typed(send)?) } else { Part::None };
        let output = if role.is_root { output(self)? } else { Part::None };
        Planned::new(comm, Call::new(collective, input, output)).root(role.root).in_place(in_place)
    }

    /// A scatter or scatterv; `input` is asked for on the root only.
    fn scattering(
        &mut self,
        collective: Collective,
        comm: Handle,
        root: i32,
        input: impl FnOnce(&mut Process) -> Result<Part>,
        recv: Typed,
    ) -> Result<Planned> {
        let role = self.role(comm, root)?;
        let in_place = role.serves && self.in_place(comm, recv.0)?;
        if in_place && !role.is_root {
            fail!(Class::Buffer, "MPI_IN_PLACE is given as recvbuf, but only the root, rank {root}, may");
        }
        let output = if role.serves && !in_place { Part::bytes(self.typed(recv)?) } else { Part::None };
        let input = if role.is_root { input(self)? } else { Part::None };
        Planned::new(comm, Call::new(collective, input, output)).root(role.root).in_place(in_place)
    }

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
        Planned { imaged, ..Planned::new(comm, call) }.in_place(in_place)
    }

    fn place(&self, comm: Handle) -> Result<Place> {
        let comm = self.objects.comm(comm)?;
        let partners = comm.partners().size() as usize;
        Ok(Place { rank: comm.rank as usize, own: comm.size() as usize, partners })
    }

    fn one_group(&self, comm: Handle) -> Result<()> {
        if self.objects.comm(comm)?.remote.is_some() {
            fail!(Class::Comm, "{comm} is an intercommunicator, on which there are no scans");
        }
        Ok(())
    }

    fn role(&self, handle: Handle, root: i32) -> Result<Role> {
        let comm = self.objects.comm(handle)?;
        let is_inter = comm.remote.is_some();
        let (own, partners) = comm.places();
        let place = comm.place();
        match u32::try_from(root) {
            Ok(rank) if (rank as usize) < partners.len() => {
                let root = partners.start as u32 + rank;
                Ok(Role { root, is_root: !is_inter && root == place, serves: true })
            }
            _ if is_inter && root == constants::ROOT => {
                Ok(Role { root: place, is_root: true, serves: false })
            }
            // Who of this group is the root, only the root and the other group know.
            _ if is_inter && root == constants::PROC_NULL => {
                match own.map(|rank| rank as u32).find(|rank| *rank != place) {
                    Some(other) => Ok(Role { root: other, is_root: false, serves: false }),
                    None => fail!(
                        Class::Root,
                        "root is MPI_PROC_NULL, but nobody else of this group can be the root"
                    ),
                }
            }
            _ if is_inter => fail!(
                Class::Root,
                "root {root} is neither in the remote group of {} processes nor MPI_ROOT or MPI_PROC_NULL",
                partners.len()
            ),
            _ => fail!(Class::Root, "root {root} is not in this comm of {} processes", partners.len()),
        }
    }

    /// Whether the buffer is MPI_IN_PLACE, which means nothing between groups (MPI 5.0, section 6.2.3).
    fn in_place(&self, comm: Handle, buffer: Address) -> Result<bool> {
        if buffer.is_in_place() && self.objects.comm(comm)?.remote.is_some() {
            fail!(Class::Buffer, "MPI_IN_PLACE is given, but {comm} is an intercommunicator");
        }
        Ok(buffer.is_in_place())
    }

    pub(crate) fn typed(&mut self, Typed(address, count, datatype): Typed) -> Result<Buffer> {
        self.buffer(address, count, datatype)
    }

    /// `count` elements for each of so many ranks or neighbours.
    pub(crate) fn per_rank(
        &mut self,
        Typed(address, count, datatype): Typed,
        blocks: usize,
    ) -> Result<Buffer> {
        if count < 0 {
            fail!(Class::Count, "the count, {count}, is negative");
        }
        let Some(all) = count.checked_mul(blocks as i64) else {
            fail!(Class::Count, "{count} elements for each of {} processes are more than 2^63", blocks);
        };
        self.buffer(address, all, datatype)
    }

    pub(crate) fn weighted(
        &mut self,
        Weighted(address, counts, displs, datatype): Weighted,
        blocks: usize,
    ) -> Result<Part> {
        let (counts, displs) = (counts.read(blocks)?, displs.read(blocks)?);
        let extent = self.objects.datatype(datatype)?.extent();
        let block = |process: &mut Process, at: usize| {
            let address = address.displaced(displs[at].wrapping_mul(extent), counts[at])?;
            process.buffer(address, counts[at], datatype)
        };
        let buffers: Result<Vec<_>> = (0..blocks).map(|at| block(self, at)).collect();
        Ok(Part::Each(Arc::from(buffers?)))
    }

    pub(crate) fn typed_each(
        &mut self,
        TypedEach(address, counts, displs, types): TypedEach,
        blocks: usize,
    ) -> Result<Part> {
        let (counts, displs, types) = (counts.read(blocks)?, displs.read(blocks)?, types.read(blocks)?);
        let buffers: Result<Vec<_>> = (0..blocks)
            .map(|at| self.buffer(address.displaced(displs[at], counts[at])?, counts[at], types[at]))
            .collect();
        Ok(Part::Each(Arc::from(buffers?)))
    }
}
