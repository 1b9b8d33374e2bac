// SPDX-License-Identifier: BSD-3-Clause
//! Collective accesses in two phases (MPI 5.0, section 14.4): ranks exchange data, and a few of them, the
//! *aggregators*, move long ranges between their collective buffers and the file.
//!
//! Each aggregator has a domain of the file, and moves cb_buffer_size bytes of it in a round. The ranks
//! exchange views once. A rank's view tells where its data of a round lie, so a round's one all-to-all
//! carries no offsets. A round is exchanged while another round is written or read.
//!
//! Invariants: holes are not touched (`access.rs`); all ranks return one outcome. Each access has its own
//! context, since the steps of several accesses have no common order. Blocking accesses have a common order,
//! and use the file's queue once it is open.

use crate::access::{AccessDirection, Transfer, rewrite};
use crate::collective_buffer::{CollectiveBuffer, part, slices};
use crate::hints::Switch;
use crate::pool::{Promise, ThreadPool};
use crate::shared_pointer::SharedPointer;
use crate::view::{KnownViews, Tiles, View};
use coll::{Call, Coll, CollBuffer, CollTicket, Members};
use datatype::Buffer;
use error::{Class, Error, Result};
use schedule::algorithm::Collective as Pattern;
use std::sync::Arc;
use sys::{Block, Span};

/// The values from which an access in rank order (such as MPI_File_read_ordered) computes where it begins.
#[derive(Debug)]
pub struct OrderedPosition {
    /// The shared file pointer, which only rank 0 advances; None if rank 0 is on another host than this rank.
    pub pointer: Option<SharedPointer>,
    pub etypes: u64,
    /// The rank's view of the file, which converts etypes to packed bytes.
    pub view: Arc<View>,
}

pub struct CollectiveAccess {
    transfer: Option<Transfer>,
    ordered: Option<OrderedPosition>,
    members: Members,
    /// The number in `coll` of the queue for the file's collectives; None if the file has not opened one.
    queue: Option<usize>,
    known: KnownViews,
    stage: Stage,
    /// The block that this rank sends in the current exchange. Unused when the file's data are exchanged.
    mine: Block,
    /// The blocks that this rank receives from all ranks in the current exchange, in rank order.
    all: Block,
    plan: TwoPhasePlan,
    /// The data that this rank moves as an aggregator in the current round; None at other ranks.
    buffer: Option<CollectiveBuffer>,
    /// This aggregator's transfer under way, if any: writes the last round's data, or reads the next round's.
    device: Option<Promise<Result<()>>>,
    /// In a read: the collective buffer of the next round, which the transfer `device` fills. Otherwise None.
    ahead: Option<CollectiveBuffer>,
    failed: Option<Error>,
    outcome: Promise<Result<u64>>,
}

enum Stage {
    Begin,
    Amounts(CollTicket),
    Base(CollTicket),
    Plan,
    Extents(CollTicket),
    Views(CollTicket),
    Round,
    Exchange(CollTicket),
    Assemble,
    Drain,
    Verdict(CollTicket),
    Alone(Promise<Result<u64>>),
    Over,
}

/// Domains and rounds of an access, which each rank computes from facts that all exchange (`extent_words`).
#[derive(Default)]
struct TwoPhasePlan {
    /// The ranks of the aggregators: `aggregators[d]` moves the bytes of the file in domain `d`.
    aggregators: Vec<u32>,
    /// The offset in the file at which the first domain (an aggregator's part of the file) begins.
    base: u64,
    /// The length in bytes of each domain (an aggregator's part of the file). The last may be shorter.
    share: u64,
    /// The offset in the file at which the last domain (an aggregator's part of the file) ends.
    end: u64,
    rounds: u64,
    round: u64,
    /// For each rank, the packed offsets of its view at which its access starts and ends, within the file.
    ranges: Vec<(u64, u64)>,
    /// At an aggregator: for each rank, how many words of its view arrive here, in rank order.
    view_words: Vec<usize>,
}

/// How many words each rank sends: packed start, bytes, file start and end, flags, view length, file size.
const EXTENT_WORDS: usize = 7;
const SORTED: u64 = 1;
const KNOWS_VIEWS: u64 = 2;
const FEW_PIECES: u64 = 4;
/// The flag `FEW_PIECES` is set for at most this many ranges. If all ranks set it, each moves its own data.
const PIECES_FEW: u64 = 8;
/// The bytes that a rank tells the others at the end: the class and the sentence of its error, or zeroes.
const VERDICT_BYTES: usize = 256;
/// Each rank moves its own data if all data are less than 1/`SPARSE` of the range of the file that they span.
const SPARSE: u64 = 16;
/// The longest transfer, in bytes, that the calling thread makes itself: handing it to a thread costs more.
pub(crate) const AT_ONCE_BYTES: u64 = 64 << 10;
/// The longest blocking transfer, in bytes, that the calling thread makes itself, which takes about 1 ms.
pub const WAITING_BYTES_MAX: u64 = 4 << 20;

impl CollectiveAccess {
    /// Makes an access of all `members`, which exchange data by `queue`, if there is one.
    pub fn new(
        transfer: Transfer,
        ordered: Option<OrderedPosition>,
        members: Members,
        queue: Option<usize>,
        known: KnownViews,
    ) -> CollectiveAccess {
        CollectiveAccess {
            transfer: Some(transfer),
            ordered,
            members,
            queue,
            known,
            stage: Stage::Begin,
            mine: Block::new(0),
            all: Block::new(0),
            plan: TwoPhasePlan::default(),
            buffer: None,
            device: None,
            ahead: None,
            failed: None,
            outcome: Promise::default(),
        }
    }

    /// Returns the promise of the outcome: how many bytes of the program's memory were moved.
    pub fn outcome(&self) -> Promise<Result<u64>> {
        self.outcome.clone()
    }

    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Advances the access through its stages as far as possible now. Returns whether it advanced.
    pub fn poll(&mut self, coll: &mut Coll, pool: &mut ThreadPool) -> bool {
        let mut moved = false;
        loop {
            match self.step(coll, pool) {
                Ok(Some(stage)) => {
                    self.stage = stage;
                    moved = true;
                }
                Ok(None) => return moved,
                Err(error) => self.end(Err(error)),
            }
            if self.is_over() {
                return true;
            }
        }
    }

    fn end(&mut self, outcome: Result<u64>) {
        self.stage = Stage::Over;
        self.outcome.put(outcome);
    }

    /// Does the current stage's work. Returns the next stage, or None if it must wait or the access is over.
    fn step(&mut self, coll: &mut Coll, pool: &mut ThreadPool) -> Result<Option<Stage>> {
        if !self.has_exchanged(coll)? {
            return Ok(None);
        }
        let next = match self.stage {
            Stage::Begin => match &self.ordered {
                Some(ordered) => {
                    let words = [ordered.etypes];
                    Stage::Amounts(self.gather_words(coll, &words)?)
                }
                None => Stage::Plan,
            },
            Stage::Amounts(_) => {
                let base = self.claim_position();
                let before =
                    self.gathered(1)[..self.members.rank as usize].iter().map(|words| words[0]).sum();
                self.ordered.as_mut().expect("an ordered access").etypes = before;
                Stage::Base(self.gather_words(coll, &[base])?)
            }
            Stage::Base(_) => {
                self.take_position()?;
                Stage::Plan
            }
            Stage::Plan if self.needs_no_exchange() => self.start_alone(pool),
            Stage::Plan => {
                let words = self.extent_words()?;
                Stage::Extents(self.gather_words(coll, &words)?)
            }
            Stage::Extents(_) => self.begin_rounds(coll, pool)?,
            Stage::Views(_) => {
                self.learn_views()?;
                self.first_round(pool)
            }
            Stage::Round if self.plan.round == self.plan.rounds => Stage::Drain,
            Stage::Round => match self.begin_round(coll, pool)? {
                Some(ticket) => Stage::Exchange(ticket),
                None => return Ok(None),
            },
            Stage::Exchange(_) => Stage::Assemble,
            Stage::Assemble => {
                if self.transfer().way == AccessDirection::Write && !self.device_is_free() {
                    return Ok(None);
                }
                self.end_round(pool);
                Stage::Round
            }
            Stage::Drain => {
                if !self.device_is_free() {
                    return Ok(None);
                }
                let verdict = self.verdict();
                Stage::Verdict(self.gather(coll, Block::of(&verdict))?)
            }
            Stage::Verdict(_) => {
                let outcome = self.agree();
                self.end(outcome);
                return Ok(None);
            }
            Stage::Alone(ref promise) => {
                let Some(outcome) = promise.take() else { return Ok(None) };
                self.end(outcome);
                return Ok(None);
            }
            Stage::Over => return Ok(None),
        };
        Ok(Some(next))
    }

    /// Whether the exchange of the current stage is complete; true for a stage without an exchange.
    fn has_exchanged(&mut self, coll: &mut Coll) -> Result<bool> {
        match self.stage {
            Stage::Amounts(ticket)
            | Stage::Base(ticket)
            | Stage::Extents(ticket)
            | Stage::Views(ticket)
            | Stage::Exchange(ticket)
            | Stage::Verdict(ticket) => {
                coll.outcome(ticket).map_or(Ok(false), |outcome| outcome.map(|()| true))
            }
            _ => Ok(true),
        }
    }

    /// Returns the stage after the exchange of `extent_words`: exchange of views, first round, or `Alone`.
    fn begin_rounds(&mut self, coll: &mut Coll, pool: &mut ThreadPool) -> Result<Stage> {
        let extents = self.gathered(EXTENT_WORDS);
        if !self.make_plan(&extents) {
            return Ok(self.start_alone(pool));
        }
        if extents.iter().all(|words| words[4] & KNOWS_VIEWS != 0) {
            return Ok(self.first_round(pool));
        }
        Ok(Stage::Views(self.send_views(coll, &extents)?))
    }

    fn transfer(&self) -> &Transfer {
        self.transfer.as_ref().expect("there until the access is over or goes alone")
    }

    fn size(&self) -> usize {
        self.members.peers.len()
    }

    /// Starts the collective `call`, through the file's queue if there is one. Returns its ticket.
    fn start(&mut self, coll: &mut Coll, call: Call) -> Result<CollTicket> {
        self.members.sequence += 1;
        let Some(queue) = self.queue else { return coll.start(&self.members, call) };
        coll.start_in(queue, &self.members, call)
    }

    /// Starts an allgather of `mine`, equally long at all ranks, into `self.all`. Returns its ticket.
    fn gather(&mut self, coll: &mut Coll, mine: Block) -> Result<CollTicket> {
        self.all = Block::new(mine.span().bytes() * self.size());
        self.mine = mine;
        let input = CollBuffer::bytes(Buffer::from(self.mine.span()));
        let output = CollBuffer::PerRank(Buffer::from(self.all.span()));
        self.start(coll, Call::new(Pattern::Allgather, input, output))
    }

    fn gather_words(&mut self, coll: &mut Coll, words: &[u64]) -> Result<CollTicket> {
        self.gather(coll, Block::of(&to_bytes(words)))
    }

    fn gathered(&self, words: usize) -> Vec<Vec<u64>> {
        to_words(&self.all.to_vec()).chunks_exact(words).map(<[u64]>::to_vec).collect()
    }

    /// At rank 0: advances the shared pointer by the sum of all ranks' etypes, and returns its old value.
    fn claim_position(&self) -> u64 {
        let total = self.gathered(1).iter().fold(0u64, |sum, words| sum.saturating_add(words[0]));
        let ordered = self.ordered.as_ref().expect("an ordered access");
        let pointer = ordered.pointer.as_ref().filter(|_| self.members.rank == 0);
        pointer.map_or(0, |pointer| pointer.advance(total))
    }

    fn take_position(&mut self) -> Result<()> {
        let base = self.gathered(1)[0][0];
        let ordered = self.ordered.take().expect("an ordered access");
        let etypes = base.checked_add(ordered.etypes).and_then(|etypes| i64::try_from(etypes).ok());
        let packed = ordered.view.packed(etypes.unwrap_or(i64::MAX))?;
        self.transfer.as_mut().expect("not begun").access.from = packed;
        Ok(())
    }

    /// Whether each rank moves its own data: there is one rank, the access is atomic, or a hint says so.
    fn needs_no_exchange(&self) -> bool {
        self.size() == 1 || self.transfer().access.atomic || self.switch() == Switch::Disable
    }

    fn switch(&self) -> Switch {
        let transfer = self.transfer();
        let hints = &transfer.access.hints;
        if transfer.way == AccessDirection::Read { hints.cb_read } else { hints.cb_write }
    }

    fn start_alone(&mut self, pool: &mut ThreadPool) -> Stage {
        let transfer = self.transfer.take().expect("there until it goes alone");
        Stage::Alone(carry_out(transfer, pool))
    }

    fn extent_words(&self) -> Result<[u64; EXTENT_WORDS]> {
        let access = &self.transfer().access;
        let (first, end) = if access.bytes() == 0 { (0, 0) } else { access.extent() };
        let knows = if self.known.get().is_some() { KNOWS_VIEWS } else { 0 };
        let few = access.tiles.pieces_max(access.from, access.bytes()) <= PIECES_FEW;
        let flags = if access.tiles.sorted() { SORTED } else { 0 } | knows | if few { FEW_PIECES } else { 0 };
        // With an unknown size the ranks read nothing together, and each finds the error when it reads.
        let size = access.storage.size().unwrap_or(0);
        Ok([access.from, access.bytes(), first, end, flags, access.tiles.words() as u64, size])
    }

    /// Computes `self.plan` from all ranks' `extent_words`. Returns false if each rank moves its own data.
    fn make_plan(&mut self, extents: &[Vec<u64>]) -> bool {
        let hints = self.transfer().access.hints.clone();
        let reads = self.transfer().way == AccessDirection::Read;
        let file_bytes = extents[0][6];
        let (mut total, mut start, mut end, mut interleaved) = (0u64, u64::MAX, 0u64, false);
        for words in extents.iter().filter(|words| words[1] > 0) {
            if words[4] & SORTED == 0 {
                return false;
            }
            interleaved |= words[2] < end;
            total = total.saturating_add(words[1]);
            start = start.min(words[2]);
            end = end.max(words[3]);
        }
        if reads {
            end = end.min(file_bytes);
        }
        let sparse = total.saturating_mul(SPARSE) < end.saturating_sub(start);
        let few = extents.iter().all(|words| words[4] & FEW_PIECES != 0);
        if self.switch() == Switch::Automatic && (!interleaved || sparse || few) {
            return false;
        }
        let many = hints.aggregators.len().max(1) as u64;
        let unit = hints.striping_bytes;
        let base = if start < end { start - start % unit } else { 0 };
        let share = end.saturating_sub(base).div_ceil(many).div_ceil(unit).saturating_mul(unit);
        self.plan = TwoPhasePlan {
            aggregators: hints.aggregators.clone(),
            base,
            share,
            end: end.max(base),
            rounds: share.min(end.saturating_sub(base)).div_ceil(hints.cb_buffer_bytes),
            round: 0,
            ranges: extents.iter().map(|words| (words[0], words[0] + words[1])).collect(),
            view_words: Vec::new(),
        };
        if reads {
            let access = &self.transfer().access;
            let (rank, end) = (self.members.rank as usize, file_bytes);
            let (from, to) = self.plan.ranges[rank];
            self.plan.ranges[rank].1 = from + access.tiles.below(end, from, to);
        }
        true
    }

    /// Returns the part of the file that the aggregator of `domain` moves in `round`: first offset and end.
    fn bounds(&self, domain: usize, round: u64) -> (u64, u64) {
        let plan = &self.plan;
        let bytes = self.transfer().access.hints.cb_buffer_bytes;
        let from = plan.base.saturating_add(plan.share.saturating_mul(domain as u64));
        let to = from.saturating_add(plan.share).min(plan.end);
        let from = from.saturating_add(bytes.saturating_mul(round)).min(to);
        (from, from.saturating_add(bytes).min(to))
    }

    /// Returns the index of the domain (part of the file) that this aggregator moves; None at other ranks.
    fn domain(&self) -> Option<usize> {
        self.plan.aggregators.iter().position(|rank| *rank == self.members.rank)
    }

    /// Starts the exchange by which every rank sends its view to the aggregators. Returns its ticket.
    fn send_views(&mut self, coll: &mut Coll, extents: &[Vec<u64>]) -> Result<CollTicket> {
        self.mine = Block::of(&to_bytes(&self.transfer().access.tiles.to_words()));
        let mine = Buffer::from(self.mine.span());
        let receives = self.domain().is_some();
        let lengths: Vec<usize> =
            extents.iter().map(|words| if receives { words[5] as usize * 8 } else { 0 }).collect();
        if receives {
            self.plan.view_words = extents.iter().map(|words| words[5] as usize).collect();
        }
        self.all = Block::new(lengths.iter().sum());
        let is_aggregator = |rank: usize| self.plan.aggregators.contains(&(rank as u32));
        let send =
            (0..self.size()).map(|rank| if is_aggregator(rank) { mine.clone() } else { Buffer::EMPTY });
        let call = exchange(send.collect(), slices(self.all.span(), &lengths));
        self.start(coll, call)
    }

    fn learn_views(&mut self) -> Result<()> {
        let words = to_words(&self.all.to_vec());
        let (mut views, mut rest) = (Vec::new(), &words[..]);
        for length in &self.plan.view_words {
            let (view, others) = rest.split_at(*length);
            views.push(Tiles::from_words(view)?);
            rest = others;
        }
        // Another access may have stored the same views meanwhile.
        let _ = self.known.set(views);
        Ok(())
    }

    /// Returns the stage of the first round. In a read, cuts accesses at the file's end and starts to read.
    fn first_round(&mut self, pool: &mut ThreadPool) -> Stage {
        if self.transfer().way == AccessDirection::Read {
            if let Some(views) = self.known.get().filter(|views| !views.is_empty()) {
                for (range, tiles) in self.plan.ranges.iter_mut().zip(views) {
                    range.1 = range.0 + tiles.below(self.plan.end, range.0, range.1);
                }
            }
            self.read_ahead(0, pool);
        }
        Stage::Round
    }

    /// Returns where this rank's data of `domain` and `round` are in its memory: offset and length.
    fn own_part(&self, domain: usize, round: u64) -> (usize, usize) {
        let access = &self.transfer().access;
        let (from, to) = self.plan.ranges[self.members.rank as usize];
        let (first, bytes) = part(&access.tiles, from, to, self.bounds(domain, round));
        ((first - access.from) as usize, bytes as usize)
    }

    /// Makes this rank's collective buffer for `round`; None unless this rank is an aggregator.
    fn buffer_of(&self, round: u64) -> Option<CollectiveBuffer> {
        let bounds = self.bounds(self.domain()?, round);
        let views = self.known.get().expect("aggregators have learnt the views");
        Some(CollectiveBuffer::new(bounds, &self.plan.ranges, views))
    }

    fn device_is_free(&mut self) -> bool {
        let Some(promise) = &self.device else { return true };
        let Some(outcome) = promise.take() else { return false };
        self.device = None;
        if let Err(error) = outcome {
            self.failed.get_or_insert(error);
        }
        true
    }

    fn read_ahead(&mut self, round: u64, pool: &mut ThreadPool) {
        if round == self.plan.rounds {
            return;
        }
        let Some(buffer) = self.buffer_of(round) else { return };
        let (storage, file, from) =
            (self.transfer().access.storage.clone(), buffer.file.clone(), buffer.from);
        let bytes = buffer.to - buffer.from;
        self.device = Some(perform(bytes, pool, move || storage.read(file.span(), from).map(drop)));
        self.ahead = Some(buffer);
    }

    /// Starts the exchange of the round's data. Returns its ticket; None while the file is being read.
    fn begin_round(&mut self, coll: &mut Coll, pool: &mut ThreadPool) -> Result<Option<CollTicket>> {
        let round = self.plan.round;
        let reads = self.transfer().way == AccessDirection::Read;
        if reads {
            if !self.device_is_free() {
                return Ok(None);
            }
            self.buffer = self.ahead.take();
            self.buffer.iter().for_each(|buffer| buffer.pick(self.known.get().expect("known by now")));
            self.read_ahead(round + 1, pool);
        } else {
            self.buffer = self.buffer_of(round);
        }
        let mut memory = vec![Buffer::EMPTY; self.size()];
        for (domain, rank) in self.plan.aggregators.iter().enumerate() {
            let (at, bytes) = self.own_part(domain, round);
            memory[*rank as usize] = self.transfer().access.memory.slice(at, bytes);
        }
        let buffers = match &self.buffer {
            Some(buffer) => {
                let lengths: Vec<usize> = buffer.parts.iter().map(|part| part.1 as usize).collect();
                slices(buffer.packed.span(), &lengths)
            }
            None => vec![Buffer::EMPTY; self.size()],
        };
        let call = if reads { exchange(buffers, memory) } else { exchange(memory, buffers) };
        self.start(coll, call).map(Some)
    }

    /// Ends the current round after the exchange of its data. In a write, an aggregator starts to write them.
    fn end_round(&mut self, pool: &mut ThreadPool) {
        self.plan.round += 1;
        let Some(buffer) = self.buffer.take() else { return };
        let access = &self.transfer().access;
        if self.transfer().way == AccessDirection::Read || buffer.to == buffer.from || self.failed.is_some() {
            return;
        }
        let storage = access.storage.clone();
        let fills_holes = access.hints.ds_write == Switch::Enable && storage.is_readable();
        let known = self.known.clone();
        let bytes = buffer.to - buffer.from;
        let write = move || {
            let runs = buffer.lay_out(known.get().expect("known by now"));
            if fills_holes {
                let overlay = |to: Span| {
                    for &(at, bytes) in &runs {
                        buffer.file.span().slice(at, bytes).copy_to(to.slice(at, bytes));
                    }
                };
                return rewrite(&storage, buffer.from, buffer.to, true, overlay);
            }
            runs.iter().try_for_each(|&(at, bytes)| {
                storage.write(buffer.file.span().slice(at, bytes), buffer.from + at as u64)
            })
        };
        self.device = Some(perform(bytes, pool, write));
    }

    /// Returns what this rank tells the others at the end: zeroes, or its error's class and sentence.
    fn verdict(&self) -> [u8; VERDICT_BYTES] {
        let mut bytes = [0; VERDICT_BYTES];
        if let Some(error) = &self.failed {
            bytes[0] = error.class as i32 as u8;
            let sentence = error.message.as_bytes();
            let length = sentence.len().min(VERDICT_BYTES - 1);
            bytes[1..1 + length].copy_from_slice(&sentence[..length]);
        }
        bytes
    }

    fn agree(&mut self) -> Result<u64> {
        let results = self.all.to_vec();
        let verdicts = results.chunks_exact(VERDICT_BYTES).enumerate();
        if let Some((rank, verdict)) = verdicts.into_iter().find(|(_, verdict)| verdict[0] != 0) {
            let length = verdict[1..].iter().position(|byte| *byte == 0).unwrap_or(VERDICT_BYTES - 1);
            let sentence = String::from_utf8_lossy(&verdict[1..1 + length]);
            let class = Class::numbered(verdict[0].into()).unwrap_or(Class::Io);
            return Err(Error::new(
                class,
                format!("rank {rank} of the file's comm, which moves data for others: {sentence}"),
            ));
        }
        let (from, to) = self.plan.ranges[self.members.rank as usize];
        self.transfer.take().expect("there until it is over").finish(to - from)
    }
}

fn exchange(send: Vec<Buffer>, recv: Vec<Buffer>) -> Call {
    Call::new(Pattern::Alltoallv, CollBuffer::Each(Arc::from(send)), CollBuffer::Each(Arc::from(recv)))
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
}

/// Starts a transfer that this rank makes alone. Returns the promise of the number of bytes moved.
pub(crate) fn carry_out(transfer: Transfer, pool: &mut ThreadPool) -> Promise<Result<u64>> {
    perform(transfer.access.bytes(), pool, move || transfer.run())
}

/// Runs `work` on `bytes` bytes of a file: at once up to `AT_ONCE_BYTES`, otherwise on a thread of `pool`.
fn perform<T: Send + 'static>(
    bytes: u64,
    pool: &mut ThreadPool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Promise<T> {
    if bytes > AT_ONCE_BYTES {
        return pool.submit(work);
    }
    let promise = Promise::default();
    promise.put(work());
    promise
}
