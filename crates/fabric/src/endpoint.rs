// SPDX-License-Identifier: BSD-3-Clause
//! This process's endpoint: it sends packets to other endpoints, receives theirs, and accesses their memory.
//!
//! A packet is sent from a registered buffer; the provider copies a short packet during the send (fi_inject).
//! Packets from all peers arrive in a few long buffers (FI_MULTI_RECV), so memory does not grow with the
//! number of peers.
//!
//! Invariants: every operation under way owns one context of a fixed array; the context's index says which
//! operation it is. A context that the provider returns is checked: its operation must be under way. The
//! caller of `poll` gets a part of a receive buffer only after the provider has finished with that part.
//!
//! Read next: `region.rs`.

use crate::domain::{Domain, Object, check};
use crate::ffi;
use crate::library::Libfabric;
use crate::provider::{Compatibility, Provider};
use crate::region::{Region, RemoteMemory};
use error::{Class, Result, fail};
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use sys::{Block, Span};

/// Bytes of a context, in which the provider keeps state of an operation: struct fi_context2 (fabric.h).
const CONTEXT_BYTES: usize = 64;
/// The most completions that one call of `poll` takes from the completion queue.
const COMPLETIONS: usize = 16;

/// The longest packet through ofi_rxm, in bytes: one buffer of ofi_rxm holds it (FI_OFI_RXM_BUFFER_SIZE). A
/// longer packet takes another round trip, and arrives after shorter packets that were sent later.
const LAYERED_BYTES_MAX: usize = 16 << 10;

/// The longest packet, in bytes, that peers send to `target`, the endpoint by which they read memory here.
const TARGET_PACKET_BYTES_MAX: usize = 128;
/// The length, in bytes, of the receive buffer of `target`, the endpoint by which peers read memory here.
const TARGET_BUFFER_BYTES: usize = 4 << 10;

/// The sizes of an endpoint's packets and buffers, and how many operations may be under way at once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The longest packet, in bytes.
    pub packet_bytes_max: usize,
    /// The most sends that may be under way.
    pub sends_max: usize,
    /// The number of receive buffers, at least two.
    pub receive_buffers: usize,
    /// The length of each receive buffer, in bytes; at least that of two packets.
    pub receive_buffer_bytes: usize,
    /// The most reads and writes of peers' memory that may be under way.
    pub accesses_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            // An edge of 64 KiB with its headers fits.
            packet_bytes_max: (64 << 10) + 128,
            sends_max: 32,
            receive_buffers: 4,
            receive_buffer_bytes: 256 << 10,
            accesses_max: 64,
        }
    }
}

impl Config {
    /// Returns these sizes, with `packet_bytes_max` at most the longest packet that the provider sends
    /// without another round trip.
    fn fitted(self, provider: &Provider) -> Config {
        let is_layered = provider.name().ends_with(";ofi_rxm");
        let most = if is_layered { LAYERED_BYTES_MAX } else { usize::MAX };
        Config { packet_bytes_max: self.packet_bytes_max.min(most), ..self }
    }
}

/// The number by which this endpoint names another endpoint, to which it sends and whose memory it accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(u64);

/// Whether a send, read or write was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The operation is under way.
    Done,
    /// The provider has no room now, so no operation was started. `poll` makes room.
    Full,
}

/// An event that `poll` reports.
#[derive(Debug)]
pub enum Event {
    /// A packet has arrived. The peer may have written anything into it.
    Packet(Packet),
    /// The read or write with this token has ended without an error.
    Accessed(u64),
    /// A packet to this address was perhaps not delivered. The text is libfabric's reason.
    Undelivered(Address, String),
    /// The read or write with this token has failed. The text is libfabric's reason.
    Failed(u64, String),
}

/// A packet in a receive buffer. Its bytes do not change until `Endpoint::release` takes the packet back. A
/// buffer is used again only once all its packets are released.
#[derive(Debug)]
#[must_use]
pub struct Packet {
    bytes: Span,
    buffer: u32,
}

impl Packet {
    /// Returns the packet's bytes, which the sender wrote.
    pub fn bytes(&self) -> Span {
        self.bytes
    }
}

/// An open endpoint of this process.
pub struct Endpoint {
    // In the order in which the fields must be dropped.
    object: Object<ffi::FidEp>,
    /// A second endpoint, and its name. Peers read this process's exposed memory by it. It has its own
    /// connections, so that peers' reads delay neither packets nor this process's reads. None until memory is
    /// exposed.
    target: Option<(Object<ffi::FidEp>, Vec<u8>)>,
    /// The receive buffer of the endpoint `target`. Its number is `Config::receive_buffers`; all other
    /// receive buffers have smaller numbers.
    target_buffer: Block,
    completions: Object<ffi::FidCq>,
    addresses: Object<ffi::FidAv>,
    /// The registration of `memory` with the provider; None if the provider requires no registration.
    registered: Option<Region>,
    domain: Arc<Domain>,
    config: Config,
    /// The longest packet, in bytes, that the provider copies during the send, so that it frees its buffer.
    inject_bytes_max: usize,
    /// The descriptor that becomes readable when something arrives; None if the provider has no such
    /// descriptor.
    wait_fd: Option<RawFd>,
    /// The name by which peers reach this endpoint: `Compatibility`, then libfabric's name.
    name: Vec<u8>,
    /// One block of memory: the contexts of all operations, then the send buffers, then the receive buffers.
    memory: Block,
    /// The numbers of the send buffers that are not in use.
    free_sends: Vec<u32>,
    /// The numbers, below `Config::accesses_max`, that new reads or writes of peers' memory may take.
    free_accesses: Vec<u32>,
    /// For each send buffer, the destination of the packet under way in it; None if the buffer is not in use.
    destinations: Vec<Option<Address>>,
    /// The caller's token of each read or write under way, by its number; None if no read or write has the
    /// number.
    tokens: Vec<Option<u64>>,
    /// For each receive buffer: the number of packets that have not been released, and whether the provider
    /// has returned the buffer.
    held_packets: Vec<(u32, bool)>,
    /// The numbers of receive buffers that the provider has returned and whose packets are all released.
    unposted: Vec<u32>,
    regions_made: u64,
    keys: RandomState,
}

// SAFETY: FI_THREAD_DOMAIN allows any thread, one at a time, as the caller of `Endpoint::open` ensures.
unsafe impl Send for Endpoint {}

/// The operation that owns a context: a send, a receive buffer, or an access (a read or write of a peer's
/// memory). The number is that of the send, the receive buffer or the access.
enum Purpose {
    Send(u32),
    Receive(u32),
    Access(u32),
}

impl Endpoint {
    /// Opens an endpoint of a provider. Errors (MPI_ERR_OTHER, MPI_ERR_NO_MEM): the provider refuses; the
    /// sentence has its reason.
    ///
    /// # Safety
    /// Only one thread at a time may use the endpoint and its regions: the caller needs a lock around them.
    pub unsafe fn open(provider: Provider, config: Config) -> Result<Endpoint> {
        assert!(config.receive_buffers >= 2 && config.packet_bytes_max * 2 <= config.receive_buffer_bytes);
        let config = config.fitted(&provider);
        let domain = Arc::new(Domain::open(provider)?);
        let (completions, wait_fd) = completion_queue(&domain, &config)?;
        let addresses = domain.object("an address vector", |calls, made| {
            // SAFETY: a record of numbers and null pointers, for which zero means the default.
            let mut attributes: ffi::AvAttr = unsafe { std::mem::zeroed() };
            attributes.kind = ffi::FI_AV_TABLE;
            // SAFETY: the domain is open, and the record lives for the call.
            unsafe { (calls.av_open)(domain.object.get(), &mut attributes, made, ptr::null_mut()) }
        })?;
        let object = new_bound(&domain, &completions, &addresses)?;
        let library = domain.library();
        set_packet_bytes_max(&object, config.packet_bytes_max, library)?;
        enable(&object, &domain)?;
        let name = own_name(&object, &domain)?;
        // SAFETY: the record's attributes live as long as it does.
        let inject_bytes_max = unsafe { (*domain.provider.info().tx_attr).inject_size };
        let contexts = config.sends_max + config.receive_buffers + 1 + config.accesses_max;
        let buffers =
            config.sends_max * config.packet_bytes_max + config.receive_buffers * config.receive_buffer_bytes;
        let mut endpoint = Endpoint {
            object,
            target: None,
            target_buffer: Block::new(0),
            completions,
            addresses,
            registered: None,
            domain,
            config,
            inject_bytes_max,
            wait_fd,
            name,
            memory: Block::new((contexts + 1) * CONTEXT_BYTES + buffers),
            free_sends: (0..config.sends_max as u32).collect(),
            free_accesses: (0..config.accesses_max as u32).collect(),
            destinations: vec![None; config.sends_max],
            tokens: vec![None; config.accesses_max],
            held_packets: vec![(0, false); config.receive_buffers + 1],
            unposted: (0..config.receive_buffers as u32).collect(),
            regions_made: 0,
            keys: RandomState::new(),
        };
        if endpoint.domain.needs(ffi::FI_MR_LOCAL) {
            let span = endpoint.memory.span();
            let own = endpoint.object.fid();
            endpoint.registered = Some(endpoint.register_at(own, span, ffi::FI_SEND | ffi::FI_RECV)?);
        }
        endpoint.post_receives()?;
        Ok(endpoint)
    }

    /// Returns the name by which peers reach this endpoint: `Compatibility`, then bytes of the provider.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the name of the endpoint `target`, by which peers read what `expose` has registered. Opens
    /// that endpoint if it is not open yet. Errors (MPI_ERR_OTHER): the provider refuses.
    pub fn target(&mut self) -> Result<&[u8]> {
        if self.target.is_none() {
            let object = new_bound(&self.domain, &self.completions, &self.addresses)?;
            if self.has_target_packets() {
                set_packet_bytes_max(&object, TARGET_PACKET_BYTES_MAX, self.domain.library())?;
            }
            enable(&object, &self.domain)?;
            let name = own_name(&object, &self.domain)?;
            self.target = Some((object, name));
            if self.has_target_packets() {
                self.target_buffer = Block::new(TARGET_BUFFER_BYTES);
                self.unposted.push(self.config.receive_buffers as u32);
                self.post_receives()?;
            }
        }
        Ok(self.target.as_ref().map_or(&[], |(_, name)| name))
    }

    /// Whether peers send packets of up to `TARGET_PACKET_BYTES_MAX` bytes to `target`, the endpoint that
    /// serves their reads. Such a packet also makes TCP acknowledge at once what the peer has read, instead
    /// of up to 40 ms later.
    pub fn has_target_packets(&self) -> bool {
        self.is_carried_by_kernel() && !self.domain.needs(ffi::FI_MR_LOCAL)
    }

    /// Whether packets move on while the process computes, outside MPI (`provider::is_carried_by_kernel`).
    pub fn is_carried_by_kernel(&self) -> bool {
        crate::provider::is_carried_by_kernel(&self.provider().name())
    }

    /// Returns the length of the longest packet, in bytes.
    pub fn packet_bytes_max(&self) -> usize {
        self.config.packet_bytes_max
    }

    /// Returns the number of sends that may be started now.
    pub fn free_sends(&self) -> usize {
        self.free_sends.len()
    }

    /// Returns the provider of this endpoint.
    pub fn provider(&self) -> &Provider {
        &self.domain.provider
    }

    /// Returns a descriptor that becomes readable when something arrives, or None. A process may sleep on it
    /// only after `may_sleep`.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the completion queue keeps it open, and lives as long as `self`.
        self.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the process may now sleep on `wait_fd`. False if something has arrived: call `poll` first.
    pub fn may_sleep(&self) -> bool {
        let mut fids = [self.completions.fid()];
        let calls = self.domain.fabric.calls(|record| record.ops);
        // SAFETY: the object is open; the queue was opened with a wait object in this fabric.
        self.wait_fd.is_some()
            && unsafe { (calls.trywait)(self.domain.fabric.get(), fids.as_mut_ptr(), 1) } == 0
    }

    /// Makes the endpoint with the name `name` known to this endpoint. Returns the address for sends to it.
    /// Errors (MPI_ERR_OTHER): the name is not of a provider like this one.
    pub fn insert(&mut self, name: &[u8]) -> Result<Address> {
        let at = self.addresses.get();
        let mut address = ffi::FI_ADDR_UNSPEC;
        let own = self.provider().compatibility();
        if let Some((its, _)) = Compatibility::split(name).filter(|(its, _)| !its.suits(own)) {
            fail!(
                Class::Other,
                "it uses {its}, and this process {own}: all hosts of a job need the same (OUTBOARD_FABRIC_LIB names its file)"
            );
        }
        if name.len() != self.name.len() {
            fail!(
                Class::Other,
                "a peer's address has {} bytes where those of {} have {}: do both hosts use the same provider?",
                name.len(),
                self.domain.name(),
                self.name.len()
            );
        }
        let calls = self.addresses.calls(|record| record.ops);
        let bare = Compatibility::split(name).map_or(name, |(_, bare)| bare);
        // SAFETY: the object is open; `bare` has the length of this provider's names.
        let inserted =
            unsafe { (calls.insert)(at, bare.as_ptr().cast(), 1, &mut address, 0, ptr::null_mut()) };
        if inserted != 1 || address == ffi::FI_ADDR_UNSPEC {
            fail!(Class::Other, "{} refuses a peer's address", self.domain.name());
        }
        Ok(Address(address))
    }

    /// Starts to send a packet of `bytes` bytes, which `fill` writes, or returns `Sent::Full`. Packets to one
    /// address arrive in order. Errors (MPI_ERR_OTHER): the provider has failed.
    pub fn send(&mut self, to: Address, bytes: usize, fill: impl FnOnce(Span)) -> Result<Sent> {
        assert!(0 < bytes && bytes <= self.config.packet_bytes_max, "{bytes} bytes in one packet");
        let Some(&number) = self.free_sends.last() else { return Ok(Sent::Full) };
        let buffer = self.send_buffer(number).slice(0, bytes);
        fill(buffer);
        let at = self.object.get();
        let from = buffer.address() as *const c_void;
        let calls = self.object.calls(|record| record.msg);
        let is_short = bytes <= self.inject_bytes_max;
        let code = if is_short {
            // SAFETY: the object is open; the provider copies the bytes before it returns.
            unsafe { (calls.inject)(at, from, bytes, to.0) }
        } else {
            let context = self.context(number as usize);
            // SAFETY: the object is open; the buffer and the context stay as they are until the completion.
            unsafe { (calls.send)(at, from, bytes, self.descriptor(), to.0, context) }
        };
        if code == 0 && !is_short {
            self.free_sends.pop();
            self.destinations[number as usize] = Some(to);
        }
        self.answer(code, "a send")
    }

    /// Starts to read a peer's memory, from offset `at` of `from` on, into `to`, which lies in `region`.
    /// `poll` reports the end of the read by `token`. Errors (MPI_ERR_INTERN): the bytes lie outside of
    /// `from` or of `region`. (MPI_ERR_OTHER): the provider has failed.
    ///
    /// # Safety
    /// No one may use the bytes of `to` until `poll` has reported the token, and `region` must live until
    /// then.
    pub unsafe fn read(
        &mut self,
        peer: Address,
        from: RemoteMemory,
        at: u64,
        to: Span,
        region: &Region,
        token: u64,
    ) -> Result<Sent> {
        self.access(
            from.address(at, to.bytes())?,
            to,
            region,
            token,
            |calls, endpoint, [address, desc, context], remote| {
                // SAFETY: the endpoint is open; buffer and context are not used until the completion, by the
                // contract.
                unsafe {
                    (calls.read)(endpoint, address, to.bytes(), desc, peer.0, remote, from.key, context)
                }
            },
        )
    }

    /// Starts to write `from`, which lies in `region`, to a peer's memory, from offset `at` of `to` on.
    /// `poll` reports `token` when `from` may be used again. Errors (MPI_ERR_INTERN): the bytes lie outside
    /// of `to` or of `region`. (MPI_ERR_OTHER): the provider has failed.
    ///
    /// # Safety
    /// No one may write the bytes of `from` until `poll` has reported the token, and `region` must live until
    /// then.
    pub unsafe fn write(
        &mut self,
        peer: Address,
        to: RemoteMemory,
        at: u64,
        from: Span,
        region: &Region,
        token: u64,
    ) -> Result<Sent> {
        self.access(
            to.address(at, from.bytes())?,
            from,
            region,
            token,
            |calls, endpoint, [address, desc, context], remote| {
                // SAFETY: as in `read`.
                unsafe {
                    (calls.write)(endpoint, address, from.bytes(), desc, peer.0, remote, to.key, context)
                }
            },
        )
    }

    fn access(
        &mut self,
        remote: u64,
        span: Span,
        region: &Region,
        token: u64,
        start: impl FnOnce(&ffi::OpsRma, *mut ffi::FidEp, [*mut c_void; 3], u64) -> isize,
    ) -> Result<Sent> {
        let inside = span.address().checked_sub(region.span().address());
        if inside.is_none_or(|at| at + span.bytes() > region.span().bytes()) {
            fail!(Class::Intern, "{} bytes at {:#x} are not registered", span.bytes(), span.address());
        }
        let Some(&number) = self.free_accesses.last() else { return Ok(Sent::Full) };
        let at = self.object.get();
        let calls = self.object.calls(|record| record.rma);
        let context = self.context(self.config.sends_max + self.config.receive_buffers + 1 + number as usize);
        let code = start(calls, at, [span.address() as *mut c_void, region.descriptor(), context], remote);
        if code == 0 {
            self.free_accesses.pop();
            self.tokens[number as usize] = Some(token);
        }
        self.answer(code, "an access to a peer's memory")
    }

    fn answer(&self, code: isize, what: &str) -> Result<Sent> {
        match -code {
            0 => Ok(Sent::Done),
            ffi::FI_EAGAIN => Ok(Sent::Full),
            _ => fail!(
                Class::Other,
                "{} refuses {what}: {}",
                self.domain.name(),
                self.domain.library().error_text(code)
            ),
        }
    }

    /// Registers the memory `span`, and returns its region. Both this process and its peers may read and
    /// write the memory by RDMA. Errors (MPI_ERR_NO_MEM): the provider refuses.
    ///
    /// # Safety
    /// The memory must stay mapped as long as the region lives.
    pub unsafe fn register(&mut self, span: Span) -> Result<Region> {
        let access = ffi::FI_READ | ffi::FI_WRITE | ffi::FI_REMOTE_READ | ffi::FI_REMOTE_WRITE;
        self.register_at(self.object.fid(), span, access)
    }

    /// Registers the memory `span`, and returns its region. Peers may read it, but not write it. This process
    /// may read peers' memory into it. Errors (MPI_ERR_NO_MEM): the provider refuses.
    ///
    /// # Safety
    /// The contract of `register`.
    pub unsafe fn register_readable(&mut self, span: Span) -> Result<Region> {
        self.register_at(self.object.fid(), span, ffi::FI_READ | ffi::FI_REMOTE_READ)
    }

    /// Registers the memory `span`, and returns its region. Peers may read it through the second endpoint,
    /// `target`. Errors (MPI_ERR_NO_MEM, MPI_ERR_OTHER): the provider refuses the memory or the endpoint.
    ///
    /// # Safety
    /// The contract of `register`.
    pub unsafe fn expose(&mut self, span: Span) -> Result<Region> {
        self.target()?;
        let target = self.target.as_ref().map_or(self.object.fid(), |(object, _)| object.fid());
        self.register_at(target, span, ffi::FI_REMOTE_READ)
    }

    /// Registers the memory `span`, and returns its region. Its key is random, unless the provider chooses
    /// keys, so that a stranger who reaches the endpoint cannot guess it.
    fn register_at(&mut self, endpoint: *mut ffi::Fid, span: Span, access: u64) -> Result<Region> {
        self.regions_made += 1;
        let key = self.domain.key_of(self.keys.hash_one(self.regions_made));
        Region::new(&self.domain, endpoint, span, access, key)
    }

    /// Lets the provider make progress, and calls `each` with every event since the last call. Returns
    /// whether any operation completed. Errors (MPI_ERR_OTHER, MPI_ERR_INTERN): the provider has failed.
    pub fn poll(&mut self, mut each: impl FnMut(Event)) -> Result<bool> {
        // SAFETY: numbers and pointers, for which zero is allowed.
        let mut entries: [ffi::CqDataEntry; COMPLETIONS] = unsafe { std::mem::zeroed() };
        let at = self.completions.get();
        let calls = self.completions.calls(|record| record.ops);
        // SAFETY: the object is open; it was opened for entries of this format, and `entries` has room for so
        // many.
        let read = unsafe { (calls.read)(at, entries.as_mut_ptr().cast(), COMPLETIONS) };
        match -read {
            ffi::FI_EAGAIN => {
                if !self.unposted.is_empty() {
                    self.post_receives()?;
                }
                return Ok(false);
            }
            ffi::FI_EAVAIL => self.complete_with_error(&mut each)?,
            failure if failure > 0 => {
                fail!(
                    Class::Other,
                    "{} has failed: {}",
                    self.domain.name(),
                    self.domain.library().error_text(read)
                )
            }
            _ => {
                for entry in &entries[..read as usize] {
                    self.complete(entry, &mut each)?;
                }
            }
        }
        if !self.unposted.is_empty() {
            self.post_receives()?;
        }
        Ok(true)
    }

    fn complete(&mut self, entry: &ffi::CqDataEntry, each: &mut impl FnMut(Event)) -> Result<()> {
        match self.purpose(entry.op_context)? {
            Purpose::Send(number) => drop(self.end_send(number)?),
            Purpose::Access(number) => each(Event::Accessed(self.end_access(number)?)),
            Purpose::Receive(number) => {
                // The provider may report that a buffer is full without a packet.
                if entry.flags & ffi::FI_RECV != 0 && entry.len > 0 {
                    let bytes = self.arrived(number, entry.buf as usize, entry.len)?;
                    self.held_packets[number as usize].0 += 1;
                    each(Event::Packet(Packet { bytes, buffer: number }));
                }
                if entry.flags & ffi::FI_MULTI_RECV != 0 {
                    self.note_returned(number);
                }
            }
        }
        Ok(())
    }

    fn complete_with_error(&mut self, each: &mut impl FnMut(Event)) -> Result<()> {
        // SAFETY: numbers and pointers, for which zero is allowed; zero bytes of error data are asked for.
        let mut entry: ffi::CqErrEntry = unsafe { std::mem::zeroed() };
        let at = self.completions.get();
        let calls = self.completions.calls(|record| record.ops);
        // SAFETY: the object is open; the record is at least as long as the provider's.
        let read = unsafe { (calls.readerr)(at, &mut entry, 0) };
        if read < 1 {
            return Ok(());
        }
        let said = self.domain.library().error_text(entry.err as isize);
        match self.purpose(entry.op_context)? {
            Purpose::Send(number) => each(Event::Undelivered(self.end_send(number)?, said)),
            Purpose::Access(number) => each(Event::Failed(self.end_access(number)?, said)),
            // The provider does not use the buffer any more. The loss of a peer that wrote there is reported
            // by other events.
            Purpose::Receive(number) if entry.err != ffi::FI_ECANCELED => self.note_returned(number),
            Purpose::Receive(_) => (),
        }
        Ok(())
    }

    /// Releases a packet, so that its buffer can be used again.
    pub fn release(&mut self, packet: Packet) {
        let (packets, is_returned) = &mut self.held_packets[packet.buffer as usize];
        *packets -= 1;
        if *packets == 0 && std::mem::take(is_returned) {
            self.unposted.push(packet.buffer);
        }
    }

    /// Records that the provider does not write to receive buffer `number` any more.
    fn note_returned(&mut self, number: u32) {
        let (packets, is_returned) = &mut self.held_packets[number as usize];
        if *packets == 0 { self.unposted.push(number) } else { *is_returned = true }
    }

    fn end_send(&mut self, number: u32) -> Result<Address> {
        let Some(to) = self.destinations[number as usize].take() else {
            fail!(Class::Intern, "{} ended a send twice", self.domain.name());
        };
        self.free_sends.push(number);
        Ok(to)
    }

    fn end_access(&mut self, number: u32) -> Result<u64> {
        let Some(token) = self.tokens[number as usize].take() else {
            fail!(Class::Intern, "{} ended an access twice", self.domain.name());
        };
        self.free_accesses.push(number);
        Ok(token)
    }

    /// Returns the operation to which a context belongs, by the context's position among all contexts. Errors
    /// (MPI_ERR_INTERN): the provider has returned a context that is not this endpoint's.
    fn purpose(&self, context: *mut c_void) -> Result<Purpose> {
        let Config { sends_max, receive_buffers, accesses_max, .. } = self.config;
        let offset = (context as usize).wrapping_sub(self.context(0) as usize);
        let number = offset / CONTEXT_BYTES;
        let receive_buffers = receive_buffers + 1;
        if !offset.is_multiple_of(CONTEXT_BYTES) || number >= sends_max + receive_buffers + accesses_max {
            fail!(Class::Intern, "{} ended an operation that nobody started", self.domain.name());
        }
        Ok(match number.checked_sub(sends_max) {
            None => Purpose::Send(number as u32),
            Some(number) if number < receive_buffers => Purpose::Receive(number as u32),
            Some(number) => Purpose::Access((number - receive_buffers) as u32),
        })
    }

    /// Returns the bytes of a packet at `address` in receive buffer `number`. Errors (MPI_ERR_INTERN): the
    /// provider names bytes outside the buffer.
    fn arrived(&self, number: u32, address: usize, bytes: usize) -> Result<Span> {
        let buffer = self.receive_buffer(number);
        let from = address.wrapping_sub(buffer.address());
        if from > buffer.bytes() || bytes > buffer.bytes() - from {
            fail!(Class::Intern, "{} put a packet of {bytes} bytes beside its buffer", self.domain.name());
        }
        Ok(buffer.slice(from, bytes))
    }

    /// Gives the provider the receive buffers of `unposted`, to receive packets in.
    fn post_receives(&mut self) -> Result<()> {
        while let Some(&number) = self.unposted.last() {
            let buffer = self.receive_buffer(number);
            let iov = libc::iovec { iov_base: buffer.address() as *mut c_void, iov_len: buffer.bytes() };
            let (mut descriptor, mut object) = (self.descriptor(), &self.object);
            if let Some((target, _)) = self.target.as_ref().filter(|_| self.is_of_target(number)) {
                (descriptor, object) = (ptr::null_mut(), target);
            }
            let message = ffi::Msg {
                msg_iov: &iov,
                desc: &mut descriptor,
                iov_count: 1,
                addr: ffi::FI_ADDR_UNSPEC,
                context: self.context(self.config.sends_max + number as usize),
                data: 0,
            };
            let at = object.get();
            let calls = object.calls(|record| record.msg);
            // SAFETY: the object is open; buffer and context belong to the provider until it returns them.
            let code = unsafe { (calls.recvmsg)(at, &message, ffi::FI_MULTI_RECV) };
            match self.answer(code, "a buffer for packets")? {
                Sent::Done => self.unposted.pop(),
                Sent::Full => return Ok(()),
            };
        }
        Ok(())
    }

    fn descriptor(&self) -> *mut c_void {
        self.registered.as_ref().map_or(ptr::null_mut(), Region::descriptor)
    }

    fn contexts_bytes(&self) -> usize {
        let Config { sends_max, receive_buffers, accesses_max, .. } = self.config;
        (sends_max + receive_buffers + 1 + accesses_max) * CONTEXT_BYTES
    }

    /// Returns `memory` from its first aligned address on: the contexts, then the send buffers, then the
    /// receive buffers.
    fn aligned(&self) -> Span {
        let memory = self.memory.span();
        let skipped = memory.address().next_multiple_of(CONTEXT_BYTES) - memory.address();
        memory.slice(skipped, memory.bytes() - skipped)
    }

    fn context(&self, number: usize) -> *mut c_void {
        self.aligned().slice(number * CONTEXT_BYTES, CONTEXT_BYTES).address() as *mut c_void
    }

    fn send_buffer(&self, number: u32) -> Span {
        let bytes = self.config.packet_bytes_max;
        self.aligned().slice(self.contexts_bytes() + number as usize * bytes, bytes)
    }

    /// Whether `number` is the number of the receive buffer of `target`, the endpoint for reads by peers.
    fn is_of_target(&self, number: u32) -> bool {
        number as usize == self.config.receive_buffers
    }

    fn receive_buffer(&self, number: u32) -> Span {
        if self.is_of_target(number) {
            return self.target_buffer.span();
        }
        let Config { sends_max, packet_bytes_max, receive_buffer_bytes, .. } = self.config;
        let first = self.contexts_bytes() + sends_max * packet_bytes_max;
        self.aligned().slice(first + number as usize * receive_buffer_bytes, receive_buffer_bytes)
    }
}

/// Opens an endpoint in `domain`, and binds it to the completion queue `completions` and the address vector
/// `addresses`. The caller enables it.
fn new_bound(
    domain: &Domain,
    completions: &Object<ffi::FidCq>,
    addresses: &Object<ffi::FidAv>,
) -> Result<Object<ffi::FidEp>> {
    let object = domain.object("an endpoint", |calls, made| {
        // SAFETY: the domain is open, and was opened with this record.
        unsafe { (calls.endpoint)(domain.object.get(), domain.provider.info.as_ptr(), made, ptr::null_mut()) }
    })?;
    let failed = || format!("{} cannot start an endpoint", domain.name());
    check(domain.library(), object.bind(completions.fid(), ffi::FI_SEND | ffi::FI_RECV), failed)?;
    check(domain.library(), object.bind(addresses.fid(), 0), failed)?;
    Ok(object)
}

fn enable(endpoint: &Object<ffi::FidEp>, domain: &Domain) -> Result<()> {
    let failed = || format!("{} cannot start an endpoint", domain.name());
    check(domain.library(), endpoint.control(ffi::FI_ENABLE, ptr::null_mut()), failed)
}

/// Opens the completion queue. Returns it with a descriptor to sleep on, or None if the provider has no
/// descriptor.
fn completion_queue(domain: &Domain, config: &Config) -> Result<(Object<ffi::FidCq>, Option<RawFd>)> {
    // SAFETY: a record of numbers and null pointers, for which zero means the default.
    let mut attributes: ffi::CqAttr = unsafe { std::mem::zeroed() };
    attributes.format = ffi::FI_CQ_FORMAT_DATA;
    // Besides sends and accesses, each packet in a receive buffer has a completion, and packets may be short.
    attributes.size = config.sends_max + config.accesses_max + 1024;
    let mut open = |wait| {
        attributes.wait_obj = wait;
        domain.object("a completion queue", |calls, made| {
            // SAFETY: the domain is open, and the record lives for the call.
            unsafe { (calls.cq_open)(domain.object.get(), &mut attributes, made, ptr::null_mut()) }
        })
    };
    let Ok(queue) = open(ffi::FI_WAIT_FD) else { return Ok((open(ffi::FI_WAIT_NONE)?, None)) };
    let mut fd: RawFd = -1;
    let code = queue.control(ffi::FI_GETWAIT, (&raw mut fd).cast());
    Ok((queue, (code == 0 && fd >= 0).then_some(fd)))
}

/// Tells the provider the length of the longest packet. The provider returns a receive buffer when the buffer
/// has no room for one more such packet.
fn set_packet_bytes_max(endpoint: &Object<ffi::FidEp>, bytes: usize, library: &Libfabric) -> Result<()> {
    let calls = endpoint.calls(|record| record.ops);
    // SAFETY: the object is open; the option is a size_t.
    let code = unsafe {
        (calls.setopt)(
            endpoint.fid(),
            ffi::FI_OPT_ENDPOINT,
            ffi::FI_OPT_MIN_MULTI_RECV,
            (&raw const bytes).cast(),
            size_of::<usize>(),
        )
    };
    check(library, code, || format!("packets of {bytes} bytes are refused"))
}

/// Returns the name of an enabled endpoint, as peers get it: `Compatibility`, then libfabric's name.
fn own_name(endpoint: &Object<ffi::FidEp>, domain: &Domain) -> Result<Vec<u8>> {
    let mut name = vec![0; 256];
    let mut bytes = name.len();
    let calls = endpoint.calls(|record| record.cm);
    // SAFETY: the object is open; there is room for `bytes` bytes.
    let code = unsafe { (calls.getname)(endpoint.fid(), name.as_mut_ptr().cast(), &mut bytes) };
    check(domain.library(), code, || format!("{} does not say its address", domain.name()))?;
    name.truncate(bytes);
    Ok(domain.provider.compatibility().prefix_to(&name))
}
