// SPDX-License-Identifier: BSD-3-Clause
//! The ring of an ordered pair of ranks: packets from one sender to one receiver, in order, without locks.
//!
//! A packet is a slot of 64 bytes (header, turn, up to 40 bytes of data) and perhaps a *cell* of up to 32 KiB
//! in the ring's area, which both ends use in order. The sender writes the turn last, and the receiver knows
//! which turn it waits for, so a packet costs the transfer of one cache line. The receiver publishes how far
//! it has read at every quarter of the ring, or when it finds nothing more. The area is made of *windows*:
//! the sender moves on to the next, for good, when its cells leave no room. *Recycled buffers* are cells that
//! belong to both ranks: the rank that has received in one sends its next packet in it, from its own cache.
//!
//! The protocol is generic in where the ring lies (`Memory`), so loom checks the code that runs.

use super::atomic::{AtomicU32, AtomicU64, Line, Ordering};
use super::segment::{KeptPage, LocalRank, Segment, Shared, view};
use error::{Class, Result, fail};
use sys::Span;
use sys::memory::Map;

/// Data bytes that fit into a packet's slot.
pub const INLINE_BYTES: usize = 40;
/// Data bytes that fit into a packet's cell.
pub const CELL_BYTES: usize = 32 << 10;

/// Slots of a ring.
const SLOTS: u64 = 256;
/// Where the windows of the area begin and the last ends. Lengths are powers of two; the last is two cells at
/// least.
const WINDOWS: [u64; 3] = [0, 64 << 10, 320 << 10];
/// Positions in the area count bytes; those of window `n` begin at `n << WINDOW_SHIFT`.
const WINDOW_SHIFT: u32 = 60;
/// Cells begin at multiples of this. Not of the cache line: the receiver's prefetcher would take the next
/// line from the sender.
const CELL_ALIGN: u64 = 256;
/// The longest cell that a receiver prefetches before it knows what becomes of the packet.
const EARLY_BYTES_MAX: u64 = 1 << 10;
/// The slot that a sender prefetches, counted from the next. The receiver looks at the ones before.
const SLOTS_AHEAD: u64 = 3;
/// Data bytes that fit into a recycled buffer.
pub const RECYCLED_BYTES: usize = 16 << 10;
/// Shorter packets take a cell of the area, where the receiver expects it.
const RECYCLED_BYTES_MIN: u64 = CELL_ALIGN + 1;
/// Recycled buffers of a pair. Either end has half of them at first.
const RECYCLED_BUFFERS: u32 = 16;
/// `Slot::window` from here on names a recycled buffer: this plus its number.
const RECYCLED_WINDOWS: u32 = 1 << 16;
/// In `ReceiverEnd::recycled`: an end has been there before.
const RECYCLED_KNOWN: u32 = 1 << 31;
const SLOTS_OFFSET: u64 = 4096;
const AREA_OFFSET: u64 = SLOTS_OFFSET + SLOTS * size_of::<Slot>() as u64;
/// Where a pair's recycled buffers lie, in the ring from the lower rank to the higher.
const RECYCLED_OFFSET: u64 = AREA_OFFSET + WINDOWS[WINDOWS.len() - 1];
/// Bytes of a whole ring: a page for both ends, the slots, the area, the recycled buffers.
pub(super) const BYTES: u64 = RECYCLED_OFFSET + RECYCLED_BUFFERS as u64 * RECYCLED_BYTES as u64;

/// What a packet says of itself. `kind` means what the `p2p` crate makes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What sort of packet it is.
    pub kind: u8,
    /// Data bytes in the slot, up to `INLINE_BYTES`.
    pub inline_bytes: u8,
    /// Data bytes in the cell, up to `CELL_BYTES`; 0 if it has none.
    pub cell_bytes: u16,
    /// The envelope's context.
    pub context: u64,
    /// The envelope's tag.
    pub tag: i32,
}

/// What becomes of a packet that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// It stays.
    Not,
    /// It was taken; the next is looked at.
    More,
    /// It was taken, and no other is looked at.
    Last,
}

/// Whether a packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It is on its way.
    Done,
    /// No slot or no cell is free: try again later.
    Full,
}

/// One packet's place. Only the sender writes it, and only while it is its turn.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Slot {
    /// How often the ring had gone round, plus 1, when the packet was written. Zero: never.
    turn: AtomicU32,
    /// kind, inline_bytes, cell_bytes: 8, 8 and 16 bits, from the low end.
    sizes: AtomicU32,
    context: AtomicU64,
    tag: AtomicU32,
    /// Where there is a cell: the window in which it lies, or which recycled buffer it is.
    window: AtomicU32,
    #[cfg(not(loom))]
    inline: std::cell::UnsafeCell<[u8; INLINE_BYTES]>,
}

/// What the two ends tell each other, and keep for the next process in their place.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Ends {
    sender: Line<SenderEnd>,
    receiver: Line<ReceiverEnd>,
    receiver_claimed: Line<AtomicU32>,
}

/// Kept for the next sender of this ring.
#[repr(C)]
#[derive(Debug)]
struct SenderEnd {
    claimed: AtomicU32,
    tail: AtomicU64,
    area_tail: AtomicU64,
}

/// Published for the sender.
#[repr(C)]
#[derive(Debug)]
struct ReceiverEnd {
    head: AtomicU64,
    area_head: AtomicU64,
    consumed: AtomicU64,
    /// Kept for the next receiver: the recycled buffers that the last one held.
    recycled: AtomicU32,
}

/// A recycled buffer that an end holds, and the bytes of it that a packet takes.
#[derive(Clone, Copy, Debug)]
struct Recycled {
    number: u32,
    cell: Span,
}

/// Where a ring lies, and how the receiver is told of packets.
pub(super) trait Memory {
    /// A power of two.
    fn slots(&self) -> u64;
    /// Window `number` of the area; none if there are not so many.
    fn window(&self, number: u64) -> Option<Window>;
    fn ends(&self) -> &Ends;
    /// `index` is below `slots`.
    fn slot(&self, index: u64) -> &Slot;
    /// The first `bytes` data bytes of a slot.
    fn inline(&self, index: u64, bytes: u64) -> Span;
    /// `offset + bytes` is at most where the last window ends.
    fn area(&self, offset: u64, bytes: u64) -> Span;
    /// The first `bytes` bytes of a recycled buffer.
    fn recycled(&self, number: u32, bytes: u64) -> Span;
    /// The recycled buffers that the receiver has at first, a bit for each.
    fn first_recycled(&self) -> u32;
    /// Enters the sender into the receiver's list.
    fn introduce(&self);
    /// Tells the receiver that there is a packet.
    fn announce(&self);
}

/// The turn of the packet number `position`. Numbers wrap after 2^32 rounds, when the turn they meet is long
/// gone.
#[inline(always)] // The number of slots is a constant, and dividing by it then a shift.
fn turn(position: u64, slots: u64) -> u32 {
    (position / slots).wrapping_add(1) as u32
}

/// A part of the area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    number: u64,
    /// From the start of the area.
    offset: u64,
    /// A power of two; of the last window at least twice the largest cell.
    bytes: u64,
    /// Longer cells lie in a later window.
    cell_bytes_max: u64,
}

impl Window {
    /// The position at which it begins.
    fn begin(self) -> u64 {
        self.number << WINDOW_SHIFT
    }

    /// Where a cell of `bytes` begins and ends if the window is used up to `position`: there, or at the start
    /// of the window if it would not fit in one piece. Both ends compute it.
    #[inline]
    fn place(self, position: u64, bytes: u64) -> (u64, u64) {
        let offset = position & (self.bytes - 1);
        let start = if offset + bytes > self.bytes { position + (self.bytes - offset) } else { position };
        (start, (start + bytes).next_multiple_of(CELL_ALIGN))
    }

    /// Where in the area a position lies.
    #[inline]
    fn offset(self, position: u64) -> u64 {
        self.offset + (position & (self.bytes - 1))
    }
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Tail<M: Memory> {
    memory: M,
    /// Packets sent.
    tail: u64,
    /// How far the area is used, wrapped ends included.
    area_tail: u64,
    /// Where cells lie now.
    window: Window,
    /// The receiver's positions as last seen, in the area at least the window's first.
    head_seen: u64,
    area_head_seen: u64,
    introduced: bool,
}

impl<M: Memory> Tail<M> {
    /// None if this ring's sending end is in use.
    fn new(memory: M) -> Option<Tail<M>> {
        let end = &memory.ends().sender;
        if end.claimed.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        let tail = end.tail.load(Ordering::Relaxed);
        let area_tail = end.area_tail.load(Ordering::Relaxed);
        let receiver = &memory.ends().receiver;
        let head_seen = receiver.head.load(Ordering::Acquire);
        let window = memory.window(area_tail >> WINDOW_SHIFT)?;
        let area_head_seen = receiver.area_head.load(Ordering::Acquire).max(window.begin());
        Some(Tail { memory, tail, area_tail, window, head_seen, area_head_seen, introduced: false })
    }

    /// Sends a packet. Its cell is this recycled buffer, if there is one, which then is the receiver's.
    #[inline]
    fn send(&mut self, header: &Header, recycled: Option<Recycled>, write: impl FnOnce(Span, Span)) -> Sent {
        assert!(header.inline_bytes as usize <= INLINE_BYTES && header.cell_bytes as usize <= CELL_BYTES);
        let slots = self.memory.slots();
        if self.tail.wrapping_sub(self.head_seen) >= slots {
            self.head_seen = self.memory.ends().receiver.head.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head_seen) >= slots {
                return Sent::Full;
            }
        }
        let cell_bytes = u64::from(header.cell_bytes);
        let (mut cell, mut window) = (Span::EMPTY, 0);
        if let Some(recycled) = recycled {
            (cell, window) = (recycled.cell, RECYCLED_WINDOWS + recycled.number);
        } else if cell_bytes > 0 {
            let Some(offset) = self.cell(cell_bytes) else {
                return Sent::Full;
            };
            (cell, window) = (self.memory.area(offset, cell_bytes), self.window.number as u32);
        }
        let index = self.tail % slots;
        let slot = self.memory.slot(index);
        write(self.memory.inline(index, header.inline_bytes.into()), cell);
        let sizes =
            u32::from(header.kind) | u32::from(header.inline_bytes) << 8 | u32::from(header.cell_bytes) << 16;
        slot.sizes.store(sizes, Ordering::Relaxed);
        slot.context.store(header.context, Ordering::Relaxed);
        slot.tag.store(header.tag as u32, Ordering::Relaxed);
        if cell_bytes > 0 {
            slot.window.store(window, Ordering::Relaxed);
        }
        slot.turn.store(turn(self.tail, slots), Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        if !self.introduced {
            self.introduced = true;
            self.memory.introduce();
        }
        self.memory.announce();
        Sent::Done
    }

    /// Whether there is room now for a packet without a cell, and for `bytes` bytes in cells of at most
    /// `cell_bytes`.
    fn has_room(&mut self, bytes: u64, cell_bytes: u64) -> bool {
        if cell_bytes > self.window.cell_bytes_max {
            return false;
        }
        let (mut end, mut left) = (self.area_tail, bytes);
        while left > 0 {
            let cell = left.min(cell_bytes);
            end = self.window.place(end, cell).1;
            left -= cell;
        }
        let tail = self.tail.wrapping_add(1 + bytes.div_ceil(cell_bytes));
        let fits = |head, area_head| {
            tail.wrapping_sub(head) <= self.memory.slots() && end.wrapping_sub(area_head) <= self.window.bytes
        };
        if fits(self.head_seen, self.area_head_seen) {
            return true;
        }
        let receiver = &self.memory.ends().receiver;
        let head = receiver.head.load(Ordering::Acquire);
        let area_head = receiver.area_head.load(Ordering::Acquire).max(self.window.begin());
        (self.head_seen, self.area_head_seen) = (head, area_head);
        fits(head, area_head)
    }

    #[inline]
    fn expect_more(&self) {
        let index = self.tail.wrapping_add(SLOTS_AHEAD) % self.memory.slots();
        self.memory.inline(index, 1).prefetch_write();
    }

    /// Takes `bytes` of the area. Returns where they begin in it.
    #[inline]
    fn cell(&mut self, bytes: u64) -> Option<u64> {
        loop {
            let (start, end) = self.window.place(self.area_tail, bytes);
            let fits = bytes <= self.window.cell_bytes_max
                && end.wrapping_sub(self.area_head_seen) <= self.window.bytes;
            if fits {
                self.area_tail = end;
                return Some(self.window.offset(start));
            }
            self.make_room(bytes, end)?;
        }
    }

    /// Looks how far the receiver is by now. Moves on to the next window if that does not help; `None` after
    /// the last.
    #[cold]
    fn make_room(&mut self, bytes: u64, end: u64) -> Option<()> {
        let head = self.memory.ends().receiver.area_head.load(Ordering::Acquire);
        self.area_head_seen = head.max(self.window.begin());
        if bytes > self.window.cell_bytes_max || end.wrapping_sub(self.area_head_seen) > self.window.bytes {
            self.window = self.memory.window(self.window.number + 1)?;
            self.area_tail = self.window.begin();
            self.area_head_seen = self.area_tail;
        }
        Some(())
    }
}

impl<M: Memory> Drop for Tail<M> {
    /// Leaves the position to the next sender.
    fn drop(&mut self) {
        let end = &self.memory.ends().sender;
        end.tail.store(self.tail, Ordering::Relaxed);
        end.area_tail.store(self.area_tail, Ordering::Relaxed);
        end.claimed.store(0, Ordering::Release);
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Head<M: Memory> {
    memory: M,
    /// Packets received.
    head: u64,
    /// How far the area has been read, wrapped ends included.
    area_head: u64,
    /// Where the last cell lay.
    window: Window,
    /// Our positions as last published.
    head_published: u64,
    area_head_published: u64,
    /// The recycled buffers that this end holds, a bit for each.
    recycled: u32,
    /// Bytes of the last cell if it was short. While this end waits it prefetches as many of the next. A long
    /// cell would be torn from a sender that still writes it.
    awaited_bytes: u64,
}

impl<M: Memory> Head<M> {
    /// None if this ring's receiving end is in use.
    fn new(memory: M) -> Option<Head<M>> {
        if memory.ends().receiver_claimed.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        let end = &memory.ends().receiver;
        let head = end.head.load(Ordering::Acquire);
        let area_head = end.area_head.load(Ordering::Acquire);
        let window = memory.window(area_head >> WINDOW_SHIFT)?;
        let recycled = match end.recycled.load(Ordering::Acquire) {
            0 => memory.first_recycled(),
            known => known & !RECYCLED_KNOWN,
        };
        let (head_published, area_head_published) = (head, area_head);
        let awaited_bytes = 0;
        Some(Head {
            memory,
            head,
            area_head,
            window,
            head_published,
            area_head_published,
            recycled,
            awaited_bytes,
        })
    }

    #[inline]
    fn ready(&self) -> bool {
        let slots = self.memory.slots();
        let ready =
            self.memory.slot(self.head % slots).turn.load(Ordering::Acquire) == turn(self.head, slots);
        if !ready && self.awaited_bytes > 0 {
            self.memory.area(self.window.offset(self.area_head), self.awaited_bytes).prefetch();
        }
        ready
    }

    #[inline]
    fn poll<R>(&mut self, read: impl FnOnce(&Header, Span, Span) -> R) -> Result<Option<R>> {
        let (mut read, mut result) = (Some(read), None);
        self.poll_while(|header, inline, cell| {
            result = read.take().map(|read| read(header, inline, cell));
            Take::Last
        })?;
        if result.is_none() {
            self.publish();
        }
        Ok(result)
    }

    #[inline(always)]
    fn poll_while(&mut self, mut read: impl FnMut(&Header, Span, Span) -> Take) -> Result<()> {
        let slots = self.memory.slots();
        // Kept out of memory, into which `read` writes.
        let mut head = self.head;
        loop {
            let index = head % slots;
            let slot = self.memory.slot(index);
            if slot.turn.load(Ordering::Acquire) != turn(head, slots) {
                break;
            }
            let sizes = slot.sizes.load(Ordering::Relaxed);
            let header = Header {
                kind: sizes as u8,
                inline_bytes: (sizes >> 8) as u8,
                cell_bytes: (sizes >> 16) as u16,
                context: slot.context.load(Ordering::Relaxed),
                tag: slot.tag.load(Ordering::Relaxed) as i32,
            };
            if header.inline_bytes as usize > INLINE_BYTES || header.cell_bytes as usize > CELL_BYTES {
                return self.corrupt();
            }
            let cell_bytes = u64::from(header.cell_bytes);
            let (mut cell, mut end, mut recycled) = (Span::EMPTY, 0, 0);
            if cell_bytes > 0 {
                let window = slot.window.load(Ordering::Relaxed);
                if window >= RECYCLED_WINDOWS {
                    let number = window - RECYCLED_WINDOWS;
                    // It cannot be one that we hold.
                    let is_long = header.cell_bytes as usize > RECYCLED_BYTES;
                    if number >= RECYCLED_BUFFERS || self.recycled & 1 << number != 0 || is_long {
                        return self.corrupt();
                    }
                    (cell, recycled) = (self.memory.recycled(number, cell_bytes), 1 << number);
                    (end, self.awaited_bytes) = (self.area_head, 0);
                } else {
                    let number = u64::from(window);
                    if number != self.window.number && !self.move_on(number) {
                        return self.corrupt();
                    }
                    let start;
                    (start, end) = self.window.place(self.area_head, cell_bytes);
                    cell = self.memory.area(self.window.offset(start), cell_bytes);
                    self.awaited_bytes = if cell_bytes <= CELL_ALIGN { cell_bytes } else { 0 };
                }
                // It travels while the message is matched.
                if cell_bytes <= EARLY_BYTES_MAX {
                    cell.prefetch();
                }
            }
            let taken = read(&header, self.memory.inline(index, header.inline_bytes.into()), cell);
            if taken == Take::Not {
                return Ok(());
            }
            head = head.wrapping_add(1);
            self.head = head;
            let mut due = head.is_multiple_of((slots / 4).max(1));
            if cell_bytes > 0 {
                self.area_head = end;
                self.recycled |= recycled;
                due |= end.wrapping_sub(self.area_head_published) * 4 >= self.window.bytes;
            }
            if due {
                self.publish();
            }
            if taken == Take::Last {
                break;
            }
        }
        Ok(())
    }

    /// Follows the sender to a later window. False if there is none of this number.
    #[cold]
    fn move_on(&mut self, number: u64) -> bool {
        match self.memory.window(number) {
            Some(window) if number > self.window.number => {
                self.window = window;
                self.area_head = window.begin();
                true
            }
            _ => false,
        }
    }

    /// Says what is wrong with the next packet.
    #[cold]
    fn corrupt<R>(&self) -> Result<R> {
        let slot = self.memory.slot(self.head % self.memory.slots());
        let (sizes, window) = (slot.sizes.load(Ordering::Relaxed), slot.window.load(Ordering::Relaxed));
        fail!(
            Class::Intern,
            "packet {} of a ring says it has {} inline bytes and {} in window {window}; {INLINE_BYTES} and {CELL_BYTES} are possible, from window {} on, or {RECYCLED_BYTES} in a recycled buffer of the sender's (from {RECYCLED_WINDOWS} on): its sender's memory is corrupt",
            self.head,
            sizes >> 8 & 0xff,
            sizes >> 16,
            self.window.number
        );
    }

    /// A recycled buffer for a cell of `bytes`, if this end holds one. The least number, so that few are in
    /// use.
    #[inline]
    fn recycled(&self, bytes: u64) -> Option<Recycled> {
        let number = self.recycled.trailing_zeros();
        let suits =
            number < RECYCLED_BUFFERS && (RECYCLED_BYTES_MIN..=RECYCLED_BYTES as u64).contains(&bytes);
        suits.then(|| Recycled { number, cell: self.memory.recycled(number, bytes) })
    }

    /// Tells the sender how far this end has read.
    #[inline]
    fn publish(&mut self) {
        let end = &self.memory.ends().receiver;
        if self.area_head != self.area_head_published {
            end.area_head.store(self.area_head, Ordering::Release);
            self.area_head_published = self.area_head;
        }
        if self.head != self.head_published {
            end.head.store(self.head, Ordering::Release);
            self.head_published = self.head;
        }
    }
}

impl<M: Memory> Drop for Head<M> {
    fn drop(&mut self) {
        self.publish();
        self.memory.ends().receiver.recycled.store(self.recycled | RECYCLED_KNOWN, Ordering::Release);
        self.memory.ends().receiver_claimed.store(0, Ordering::Release);
    }
}

/// A ring of the segment.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Keeps the memory mapped to which the two after it refer.
    map: Map,
    ends: &'static Ends,
    slots: &'static [Slot; SLOTS as usize],
    receiver: KeptPage,
    from: LocalRank,
    to: LocalRank,
    /// Only at the receiving end.
    recycled: Option<Map>,
}

// SAFETY: atomics, and plain bytes that are only reached by `Span`.
unsafe impl Sync for Slot {}
// SAFETY: likewise.
unsafe impl Shared for Slot {}
// SAFETY: an array of them.
unsafe impl Shared for [Slot; SLOTS as usize] {}
// SAFETY: atomics only.
unsafe impl Shared for Ends {}

impl Memory for Mapped {
    #[inline]
    fn slots(&self) -> u64 {
        SLOTS
    }
    fn window(&self, number: u64) -> Option<Window> {
        let (offset, end) = (*WINDOWS.get(number as usize)?, *WINDOWS.get(number as usize + 1)?);
        Some(Window { number, offset, bytes: end - offset, cell_bytes_max: (end - offset) / 8 })
    }
    #[inline]
    fn ends(&self) -> &Ends {
        self.ends
    }
    #[inline]
    fn slot(&self, index: u64) -> &Slot {
        &self.slots[(index % SLOTS) as usize]
    }
    #[cfg(not(loom))]
    #[inline]
    fn inline(&self, index: u64, bytes: u64) -> Span {
        assert!(bytes <= INLINE_BYTES as u64);
        // SAFETY: part of a slot, which stays mapped as long as we live; nobody has a reference to these
        // bytes.
        unsafe { Span::claim(self.slot(index).inline.get() as usize, bytes as usize) }
    }
    #[cfg(loom)]
    fn inline(&self, _index: u64, _bytes: u64) -> Span {
        Span::EMPTY
    }
    #[inline]
    fn area(&self, offset: u64, bytes: u64) -> Span {
        self.map.span().slice((AREA_OFFSET + offset) as usize, bytes as usize)
    }
    #[inline]
    fn recycled(&self, number: u32, bytes: u64) -> Span {
        assert!(bytes <= RECYCLED_BYTES as u64);
        let all = self.recycled.as_ref().map_or(Span::EMPTY, Map::span);
        all.slice(number as usize * RECYCLED_BYTES, bytes as usize)
    }
    fn first_recycled(&self) -> u32 {
        let half = (1 << (RECYCLED_BUFFERS / 2)) - 1;
        if self.to < self.from { half } else { half << (RECYCLED_BUFFERS / 2) }
    }
    fn introduce(&self) {
        self.receiver.senders.add(self.from.peer());
    }
    #[inline]
    fn announce(&self) {
        self.receiver.bell.ring();
    }
}

/// The sending end of a ring: packets to one peer.
#[derive(Debug)]
pub struct Sender(Tail<Mapped>);

impl Sender {
    /// Sends a packet, if there is room: `write` is called with the place of its inline bytes and that of its
    /// cell, as long as the header says, and must fill both. Then wakes the receiver if it sleeps.
    #[inline]
    pub fn send(&mut self, header: &Header, write: impl FnOnce(Span, Span)) -> Sent {
        self.0.send(header, None, write)
    }

    /// The same, of a packet whose cell is a recycled buffer that the receiving end of the other direction
    /// holds, if it has one.
    #[inline]
    pub fn send_back(
        &mut self,
        header: &Header,
        receiver: &mut Receiver,
        write: impl FnOnce(Span, Span),
    ) -> Sent {
        let recycled = receiver.0.recycled(header.cell_bytes.into());
        let sent = self.0.send(header, recycled, write);
        if let (Some(recycled), Sent::Done) = (recycled, sent) {
            receiver.0.recycled &= !(1 << recycled.number);
        }
        sent
    }

    /// Whether there is room now for a packet with inline bytes, and for `bytes` bytes in cells of at most
    /// `cell_bytes`: so many sends succeed.
    pub fn has_room(&mut self, bytes: u64, cell_bytes: u64) -> bool {
        self.0.has_room(bytes, cell_bytes)
    }

    /// Prefetches a later packet's slot, which the receiver has read a round ago; otherwise each message's
    /// stores wait for its line. For a single packet it costs more than it gains.
    #[inline]
    pub fn expect_more(&self) {
        self.0.expect_more();
    }

    /// Eager bytes that the receiver has ever given back by `Receiver::consume`.
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.0.memory.ends().receiver.consumed.load(Ordering::Acquire)
    }
}

/// The receiving end of a ring: packets from one peer.
#[derive(Debug)]
pub struct Receiver(Head<Mapped>);

impl Receiver {
    /// Receives the next packet: `read` gets its header, inline bytes and cell, which are the sender's again
    /// afterwards. Errors: the sender wrote nonsense; every later poll repeats it. All room is given back
    /// once nothing is left.
    #[inline]
    pub fn poll<R>(&mut self, read: impl FnOnce(&Header, Span, Span) -> R) -> Result<Option<R>> {
        self.0.poll(read)
    }

    /// Whether `poll` would find a packet.
    #[inline]
    pub fn ready(&self) -> bool {
        self.0.ready()
    }

    /// As `poll`, of packets as long as `read` wants more. Room is given back only by quarters of the ring.
    #[inline(always)]
    pub fn poll_while(&mut self, read: impl FnMut(&Header, Span, Span) -> Take) -> Result<()> {
        self.0.poll_while(read)
    }

    /// Whether this end holds a recycled buffer.
    #[inline]
    pub fn has_recycled(&self) -> bool {
        self.0.recycled != 0
    }

    /// Packets received so far.
    #[inline]
    pub fn received(&self) -> u64 {
        self.0.head
    }

    /// Gives `bytes` of eager credit back to the sender.
    #[inline]
    pub fn consume(&mut self, bytes: u64) {
        let consumed = &self.0.memory.ends().receiver.consumed;
        // We are the only writer.
        consumed.store(consumed.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Release);
    }
}

impl Segment {
    fn ring(&self, from: LocalRank, to: LocalRank) -> Result<Mapped> {
        let map = self.ring_map(from, to, 0..RECYCLED_OFFSET)?;
        let (ends, slots) = (view(map.span(), 0), view(map.span(), SLOTS_OFFSET));
        Ok(Mapped { map, ends, slots, receiver: self.keep_rank(to), from, to, recycled: None })
    }

    /// The sending end of the ring `from -> to`. An error if it is in use; when it is dropped, a later one
    /// goes on.
    pub fn ring_sender(&self, from: LocalRank, to: LocalRank) -> Result<Sender> {
        match Tail::new(self.ring(from, to)?) {
            Some(tail) => Ok(Sender(tail)),
            None => fail!(Class::Intern, "the sending end of the ring {from} -> {to} is in use already"),
        }
    }

    /// The receiving end of the ring `from -> to`. An error if it is in use; when it is dropped, a later one
    /// goes on.
    pub fn ring_receiver(&self, from: LocalRank, to: LocalRank) -> Result<Receiver> {
        let recycled = self.ring_map(from.min(to), from.max(to), RECYCLED_OFFSET..BYTES)?;
        match Head::new(Mapped { recycled: Some(recycled), ..self.ring(from, to)? }) {
            Some(head) => Ok(Receiver(head)),
            None => fail!(Class::Intern, "the receiving end of the ring {from} -> {to} is in use already"),
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "ring_loom.rs"]
mod loom_tests;
