// SPDX-License-Identifier: BSD-3-Clause
//! The ring of an ordered pair of ranks: packets from one sender to one receiver, in order, without locks.
//!
//! A packet is a *slot* of 64 bytes (header, turn, up to 40 bytes of data) and perhaps a *cell* of up to 32
//! KiB in the ring's area. The turn counts the slot's packets; the sender writes it last, and the receiver
//! waits for it, so a packet costs the transfer of one cache line. The receiver publishes how far it has read
//! at every quarter of the ring, and when it finds no packet. The area consists of *windows*: when a window
//! has no room for another cell, the sender moves on to the next window for good. *Recycled buffers* are
//! cells that both ranks use: a rank that has read a packet from a recycled buffer sends its next packet in
//! the same buffer, whose bytes are in its cache.
//!
//! The protocol is generic over the memory of the ring (`RingMemory`), so loom checks the code that runs.

use super::atomic::{AtomicU32, AtomicU64, CacheLine, Ordering};
use super::segment::{InSharedMemory, LocalRank, RankPageRef, Segment, view};
use error::{Class, Result, fail};
use sys::Span;
use sys::memory::Map;

/// The most bytes of data in a packet's slot, beside its header.
pub const INLINE_BYTES: usize = 40;
/// The most bytes of data in a packet's cell.
pub const CELL_BYTES: usize = 32 << 10;

/// The number of slots of a ring, each for one packet.
const SLOTS: u64 = 256;
/// The offsets in a ring's area at which its windows (parts that cells fill) begin, and the area's end. Each
/// window's length is a power of two; the last window has room for at least two cells.
const WINDOWS: [u64; 3] = [0, 64 << 10, 320 << 10];
/// A position says where a cell lies. Its bits from this bit on are the number of a window (a part of the
/// ring's area). The bits below count the bytes of that window that earlier cells have taken.
const WINDOW_SHIFT: u32 = 60;
/// Cells begin at multiples of this number of bytes. With 64, a cache line, the receiver's prefetcher would
/// fetch the line after a cell while the sender is writing there.
const CELL_ALIGN: u64 = 256;
/// The longest cell, in bytes, that a receiver prefetches before the packet is matched with a receive.
const EARLY_BYTES_MAX: u64 = 1 << 10;
/// A sender prefetches the slot that lies this many slots after its next slot, since the receiver may still
/// be reading nearer slots.
const SLOTS_AHEAD: u64 = 3;
/// The most bytes of data in a recycled buffer, which two ranks use as a cell in turn.
pub const RECYCLED_BYTES: usize = 16 << 10;
/// The shortest cell that may be a recycled buffer, in bytes. Shorter cells lie in the ring's area, where the
/// receiver prefetches them.
const RECYCLED_BYTES_MIN: u64 = CELL_ALIGN + 1;
/// The number of recycled buffers that two ranks share. At first, each of the two ranks holds half of them,
/// to send in them.
const RECYCLED_BUFFERS: u32 = 16;
/// The value of `Slot::window` if the cell is recycled buffer 0. For buffer `n` the value is greater by `n`.
const RECYCLED_WINDOWS: u32 = 1 << 16;
/// A bit of `SharedReceiverEnd::recycled`: set once a receiver has stored its recycled buffers there.
const RECYCLED_KNOWN: u32 = 1 << 31;
const SLOTS_OFFSET: u64 = 4096;
const AREA_OFFSET: u64 = SLOTS_OFFSET + SLOTS * size_of::<Slot>() as u64;
/// The offset in a ring at which its recycled buffers begin. Two ranks share one set of buffers, for both
/// directions: those in the ring from the lower rank to the higher rank.
const RECYCLED_OFFSET: u64 = AREA_OFFSET + WINDOWS[WINDOWS.len() - 1];
/// The length of a ring in bytes: the state of both ends, the slots, the area, and the recycled buffers.
pub(super) const BYTES: u64 = RECYCLED_OFFSET + RECYCLED_BUFFERS as u64 * RECYCLED_BYTES as u64;

/// The header of a packet in a ring: the packet's kind, how many data bytes lie in its slot and in its cell,
/// and the message's context and tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The kind of the packet, a number that the `p2p` crate defines.
    pub kind: u8,
    /// The number of data bytes in the slot, up to `INLINE_BYTES`.
    pub inline_bytes: u8,
    /// The number of data bytes in the cell, up to `CELL_BYTES`; 0 if the packet has no cell.
    pub cell_bytes: u16,
    /// The context of the message, if the packet has an envelope; else a number that `p2p` defines.
    pub context: u64,
    /// The tag of the message, if the packet has an envelope; else a number that `p2p` defines.
    pub tag: i32,
}

/// The answer of a receiver to which a packet was shown: whether it takes the packet, and whether it wants
/// the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The receiver does not take the packet, which stays in the ring.
    No,
    /// The receiver has taken the packet, and wants the next.
    More,
    /// The receiver has taken the packet, and wants no other now.
    Last,
}

/// The answer of a send into a ring: whether the packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is in the ring.
    Done,
    /// No slot or no cell is free; the caller tries again later.
    Full,
}

/// The 64 bytes of a ring that hold one packet's header and short data. Only the sender writes them, and only
/// after the receiver has read the packet that they held before.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Slot {
    /// How many packets the sender has written into this slot so far. From this count the receiver knows
    /// whether its next packet is there.
    turn: AtomicU32,
    /// The fields `kind` (the low 8 bits), `inline_bytes` (8 bits) and `cell_bytes` (the high 16 bits) of
    /// `Header`.
    sizes: AtomicU32,
    context: AtomicU64,
    tag: AtomicU32,
    /// The number of the window (part of the ring's area) in which the cell lies. If the cell is a recycled
    /// buffer, the buffer's number plus `RECYCLED_WINDOWS`.
    window: AtomicU32,
    #[cfg(not(loom))]
    inline: std::cell::UnsafeCell<[u8; INLINE_BYTES]>,
}

/// The part of a ring that holds the counts of its two ends, and whether a process uses each end. A process
/// that takes over an end later continues with these counts.
#[repr(C)]
#[derive(Debug)]
pub(super) struct SharedEnds {
    sender: CacheLine<SharedSenderEnd>,
    receiver: CacheLine<SharedReceiverEnd>,
    receiver_claimed: CacheLine<AtomicU32>,
}

/// How many packets the sender has sent, and how much of the ring's area it has used. The sender stores both
/// when it leaves the sending end, for the next process that takes this end.
#[repr(C)]
#[derive(Debug)]
struct SharedSenderEnd {
    claimed: AtomicU32,
    tail: AtomicU64,
    area_tail: AtomicU64,
}

/// How many packets the receiver has read, how much of the ring's area it has read, and how many eager bytes
/// it has consumed. The receiver publishes these numbers for the sender.
#[repr(C)]
#[derive(Debug)]
struct SharedReceiverEnd {
    head: AtomicU64,
    area_head: AtomicU64,
    consumed: AtomicU64,
    /// The recycled buffers that the receiving end held when its last process left: a bit for each, and the
    /// bit `RECYCLED_KNOWN`.
    recycled: AtomicU32,
}

/// A recycled buffer that this rank holds, and the part of it that becomes the cell of the packet that this
/// rank sends next.
#[derive(Clone, Copy, Debug)]
struct Recycled {
    number: u32,
    cell: Span,
}

/// The memory of a ring, as its two ends use it: `SegmentRing` in the job's segment, or a model in loom's
/// tests.
pub(super) trait RingMemory {
    /// Returns the number of the ring's slots, each for one packet. It is a power of two.
    fn slots(&self) -> u64;
    /// Returns window `number`, a part of the ring's area that is divided into cells. None if there is no
    /// such window.
    fn window(&self, number: u64) -> Option<Window>;
    fn ends(&self) -> &SharedEnds;
    /// Returns the slot at `index`, which is less than `slots()`.
    fn slot(&self, index: u64) -> &Slot;
    /// Returns the first `bytes` data bytes of the slot at `index`.
    fn inline(&self, index: u64, bytes: u64) -> Span;
    /// Returns `bytes` bytes of the area from `offset` on, which must not reach beyond the end of the last
    /// window.
    fn area(&self, offset: u64, bytes: u64) -> Span;
    /// Returns the first `bytes` bytes of recycled buffer `number`.
    fn recycled(&self, number: u32, bytes: u64) -> Span;
    /// Returns the recycled buffers that the receiving end holds before the first packet: a bit for each.
    fn first_recycled(&self) -> u32;
    /// Adds the sender to the set of ranks whose rings the receiver polls.
    fn introduce(&self);
    /// Rings the receiver's doorbell, since there is a new packet.
    fn announce(&self);
}

/// Returns the value of `Slot::turn` for packet number `position`: how many packets its slot has held, this
/// one included. The value wraps after 2^32, when no slot has the old value any more.
#[inline(always)] // So that the number of slots is a constant, and the division by it a shift.
fn turn(position: u64, slots: u64) -> u32 {
    (position / slots).wrapping_add(1) as u32
}

/// A window of a ring: a part of its area, which cells fill in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    number: u64,
    /// The offset in the area at which the window begins.
    offset: u64,
    /// The length in bytes of the window (a part of the ring's area), a power of two. The last window is at
    /// least twice as long as the largest cell.
    bytes: u64,
    /// The longest cell, in bytes, that may lie in this window of the ring's area. Longer cells lie in a
    /// later window.
    cell_bytes_max: u64,
}

impl Window {
    /// Returns the first position in this window of the ring's area: the window's number in the high bits,
    /// and 0 bytes that cells have taken.
    fn begin(self) -> u64 {
        self.number << WINDOW_SHIFT
    }

    /// Returns the positions (counts of the bytes that cells have taken) at which the next cell of `bytes`
    /// bytes starts and ends, if the cell before it ends at `position`. A cell that does not fit before the
    /// window's end starts at the window's beginning. Sender and receiver compute this alike.
    #[inline]
    fn place(self, position: u64, bytes: u64) -> (u64, u64) {
        let offset = position & (self.bytes - 1);
        let start = if offset + bytes > self.bytes { position + (self.bytes - offset) } else { position };
        (start, (start + bytes).next_multiple_of(CELL_ALIGN))
    }

    /// Returns the offset in the ring's area of the byte at `position`. Positions only grow: the byte after
    /// the window's last byte is the window's first byte again.
    #[inline]
    fn offset(self, position: u64) -> u64 {
        self.offset + (position & (self.bytes - 1))
    }
}

/// The sending end of a ring: the sender's own counts, in its private memory.
#[derive(Debug)]
pub(super) struct SendingEnd<M: RingMemory> {
    memory: M,
    /// The number of packets that have been sent.
    tail: u64,
    /// The position at which the next cell may start: how many bytes of the window earlier cells have taken,
    /// counting unused bytes at the window's end, and the window's number (`WINDOW_SHIFT`).
    area_tail: u64,
    /// The window (part of the area) in which the next cell is to lie.
    window: Window,
    /// The number of packets that the receiver had received when this end last looked.
    head_seen: u64,
    /// The position (`WINDOW_SHIFT`) up to which the receiver had read the cells of the area when this end
    /// last looked. It is at least the first position in `window`.
    area_head_seen: u64,
    introduced: bool,
}

impl<M: RingMemory> SendingEnd<M> {
    /// Takes the sending end of a ring. Returns None if the end is in use already.
    fn new(memory: M) -> Option<SendingEnd<M>> {
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
        Some(SendingEnd { memory, tail, area_tail, window, head_seen, area_head_seen, introduced: false })
    }

    /// Sends a packet whose data `write` fills in, or returns `Sent::Full`. `recycled`, if given, becomes the
    /// packet's cell, and from then on the receiver holds this buffer.
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

    /// Whether the sender can now send packets with `bytes` bytes in all, whose cells have at most
    /// `cell_bytes` bytes each, and then one more packet without a cell.
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

    /// Takes `bytes` bytes of the area for a cell, and returns their offset in the area. Returns None if the
    /// area has no room for them.
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
            self.find_room(bytes, end)?;
        }
    }

    /// Looks how far the receiver has read by now. If there is still no room for a cell that ends at `end`,
    /// moves on to the next window of the ring's area. Returns None if there is no next window.
    #[cold]
    fn find_room(&mut self, bytes: u64, end: u64) -> Option<()> {
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

impl<M: RingMemory> Drop for SendingEnd<M> {
    /// Stores how many packets have been sent and how much of the area is used, for the next process that
    /// takes the sending end.
    fn drop(&mut self) {
        let end = &self.memory.ends().sender;
        end.tail.store(self.tail, Ordering::Relaxed);
        end.area_tail.store(self.area_tail, Ordering::Relaxed);
        end.claimed.store(0, Ordering::Release);
    }
}

/// The receiving end of a ring: the receiver's own counts, in its private memory.
#[derive(Debug)]
pub(super) struct ReceivingEnd<M: RingMemory> {
    memory: M,
    /// The number of packets that have been received.
    head: u64,
    /// The position (`WINDOW_SHIFT`) up to which this end has read the cells of the ring's area.
    area_head: u64,
    /// The window (part of the area) that held the latest cell that this end has read.
    window: Window,
    /// The value of `head` that this end last published for the sender.
    head_published: u64,
    /// The value of `area_head` that this end last published for the sender.
    area_head_published: u64,
    /// The recycled buffers that this end holds, for this rank's packets to the peer: a bit for each.
    recycled: u32,
    /// The length of the last cell in bytes if that cell was short, else 0. While this end waits, it
    /// prefetches this many bytes of the place of the next cell. It prefetches no long cell: the sender may
    /// still be writing those cache lines.
    awaited_bytes: u64,
}

impl<M: RingMemory> ReceivingEnd<M> {
    /// Takes the receiving end of a ring. Returns None if the end is in use already.
    fn new(memory: M) -> Option<ReceivingEnd<M>> {
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
        Some(ReceivingEnd {
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
            Taken::Last
        })?;
        if result.is_none() {
            self.publish();
        }
        Ok(result)
    }

    #[inline(always)]
    fn poll_while(&mut self, mut read: impl FnMut(&Header, Span, Span) -> Taken) -> Result<()> {
        let slots = self.memory.slots();
        // A local copy, which stays in a register although `read` writes to memory.
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
                    // A sender cannot use a buffer that this end holds.
                    let is_long = header.cell_bytes as usize > RECYCLED_BYTES;
                    if number >= RECYCLED_BUFFERS || self.recycled & 1 << number != 0 || is_long {
                        return self.corrupt();
                    }
                    (cell, recycled) = (self.memory.recycled(number, cell_bytes), 1 << number);
                    (end, self.awaited_bytes) = (self.area_head, 0);
                } else {
                    let number = u64::from(window);
                    if number != self.window.number && !self.follow_to_window(number) {
                        return self.corrupt();
                    }
                    let start;
                    (start, end) = self.window.place(self.area_head, cell_bytes);
                    cell = self.memory.area(self.window.offset(start), cell_bytes);
                    self.awaited_bytes = if cell_bytes <= CELL_ALIGN { cell_bytes } else { 0 };
                }
                // The bytes travel while the message is matched.
                if cell_bytes <= EARLY_BYTES_MAX {
                    cell.prefetch();
                }
            }
            let taken = read(&header, self.memory.inline(index, header.inline_bytes.into()), cell);
            if taken == Taken::No {
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
            if taken == Taken::Last {
                break;
            }
        }
        Ok(())
    }

    /// Moves on to window `number`, in which the sender has put a cell. Returns false if the ring has no such
    /// window, or if this end is in that window or a later one already.
    #[cold]
    fn follow_to_window(&mut self, number: u64) -> bool {
        match self.memory.window(number) {
            Some(window) if number > self.window.number => {
                self.window = window;
                self.area_head = window.begin();
                true
            }
            _ => false,
        }
    }

    /// Returns an error, since the slot of the next packet holds invalid values.
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

    /// Chooses a recycled buffer for a cell of `bytes` bytes: the lowest that this end holds, so that few are
    /// in use. Returns None if this end holds none, or the cell is too short or too long.
    #[inline]
    fn recycled(&self, bytes: u64) -> Option<Recycled> {
        let number = self.recycled.trailing_zeros();
        let suits =
            number < RECYCLED_BUFFERS && (RECYCLED_BYTES_MIN..=RECYCLED_BYTES as u64).contains(&bytes);
        suits.then(|| Recycled { number, cell: self.memory.recycled(number, bytes) })
    }

    /// Publishes how far this end has read, so that the sender can use that room again.
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

impl<M: RingMemory> Drop for ReceivingEnd<M> {
    fn drop(&mut self) {
        self.publish();
        self.memory.ends().receiver.recycled.store(self.recycled | RECYCLED_KNOWN, Ordering::Release);
        self.memory.ends().receiver_claimed.store(0, Ordering::Release);
    }
}

/// A ring in the job's segment, in the map of the process that has one of the ring's ends.
#[derive(Debug)]
pub(super) struct SegmentRing {
    /// The map of the ring's memory. While this value lives, `ends` and `slots` may be used.
    map: Map,
    ends: &'static SharedEnds,
    slots: &'static [Slot; SLOTS as usize],
    receiver: RankPageRef,
    from: LocalRank,
    to: LocalRank,
    /// The recycled buffers that the two ranks share, mapped by the receiving end; None in the sending end.
    recycled: Option<Map>,
}

// SAFETY: atomics, and bytes that are only reached by `Span`.
unsafe impl Sync for Slot {}
// SAFETY: likewise.
unsafe impl InSharedMemory for Slot {}
// SAFETY: an array of slots.
unsafe impl InSharedMemory for [Slot; SLOTS as usize] {}
// SAFETY: atomics only.
unsafe impl InSharedMemory for SharedEnds {}

impl RingMemory for SegmentRing {
    #[inline]
    fn slots(&self) -> u64 {
        SLOTS
    }
    fn window(&self, number: u64) -> Option<Window> {
        let (offset, end) = (*WINDOWS.get(number as usize)?, *WINDOWS.get(number as usize + 1)?);
        Some(Window { number, offset, bytes: end - offset, cell_bytes_max: (end - offset) / 8 })
    }
    #[inline]
    fn ends(&self) -> &SharedEnds {
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
        // SAFETY: part of a slot, which stays mapped as long as `self` lives; there is no reference to these
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

/// The sending end of a ring, by which this rank sends packets to one peer.
#[derive(Debug)]
pub struct Sender(SendingEnd<SegmentRing>);

impl Sender {
    /// Sends a packet, and wakes the receiver if it sleeps. Returns `Sent::Full` if there is no room. `write`
    /// gets the memory of the slot's data and of the cell, as long as `header` says, and must fill both.
    #[inline]
    pub fn send(&mut self, header: &Header, write: impl FnOnce(Span, Span)) -> Sent {
        self.0.send(header, None, write)
    }

    /// Sends a packet like `send`. If `receiver`, this rank's end of the ring in the other direction, holds a
    /// recycled buffer that suits the cell, that buffer becomes the cell.
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

    /// Whether the sender can now send packets with `bytes` bytes in all, whose cells have at most
    /// `cell_bytes` bytes each, and then one more packet without a cell. If so, these sends succeed.
    pub fn has_room(&mut self, bytes: u64, cell_bytes: u64) -> bool {
        self.0.has_room(bytes, cell_bytes)
    }

    /// Prefetches the slot of a later packet. Writing that packet then need not wait for the slot's cache
    /// line, which the receiver's core has. For a single packet this costs more time than it saves.
    #[inline]
    pub fn expect_more(&self) {
        self.0.expect_more();
    }

    /// Returns how many bytes of eager messages the receiver has reported as consumed (`Receiver::consume`).
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.0.memory.ends().receiver.consumed.load(Ordering::Acquire)
    }
}

/// The receiving end of a ring, by which this rank receives packets from one peer.
#[derive(Debug)]
pub struct Receiver(ReceivingEnd<SegmentRing>);

impl Receiver {
    /// Receives the next packet. `read` gets its header, slot data and cell, which the sender may overwrite
    /// afterwards. Returns None if there is no packet; the sender may then use all slots and cells again.
    /// Errors: the packet is invalid; every later poll returns the same error.
    #[inline]
    pub fn poll<R>(&mut self, read: impl FnOnce(&Header, Span, Span) -> R) -> Result<Option<R>> {
        self.0.poll(read)
    }

    /// Whether `poll` would find a packet.
    #[inline]
    pub fn ready(&self) -> bool {
        self.0.ready()
    }

    /// Passes packets to `read`, one after the other, until no packet is there or `read` wants no more. The
    /// sender learns only at every quarter of the ring which slots and cells it may use again.
    #[inline(always)]
    pub fn poll_while(&mut self, read: impl FnMut(&Header, Span, Span) -> Taken) -> Result<()> {
        self.0.poll_while(read)
    }

    /// Whether this end holds a recycled buffer, as it does while messages go to and fro.
    #[inline]
    pub fn has_recycled(&self) -> bool {
        self.0.recycled != 0
    }

    /// Returns how many packets have been received so far.
    #[inline]
    pub fn received(&self) -> u64 {
        self.0.head
    }

    /// Reports to the sender that this rank has consumed `bytes` more bytes of its eager messages.
    #[inline]
    pub fn consume(&mut self, bytes: u64) {
        let consumed = &self.0.memory.ends().receiver.consumed;
        // Only the receiver writes it.
        consumed.store(consumed.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Release);
    }
}

impl Segment {
    fn ring(&self, from: LocalRank, to: LocalRank) -> Result<SegmentRing> {
        let map = self.ring_map(from, to, 0..RECYCLED_OFFSET)?;
        let (ends, slots) = (view(map.span(), 0), view(map.span(), SLOTS_OFFSET));
        Ok(SegmentRing { map, ends, slots, receiver: self.rank_page_ref(to), from, to, recycled: None })
    }

    /// Takes the sending end of the ring `from -> to`, in the state in which its last user left it. Errors:
    /// the end is in use already.
    pub fn ring_sender(&self, from: LocalRank, to: LocalRank) -> Result<Sender> {
        match SendingEnd::new(self.ring(from, to)?) {
            Some(tail) => Ok(Sender(tail)),
            None => fail!(Class::Intern, "the sending end of the ring {from} -> {to} is in use already"),
        }
    }

    /// Takes the receiving end of the ring `from -> to`, in the state in which its last user left it. Errors:
    /// the end is in use already.
    pub fn ring_receiver(&self, from: LocalRank, to: LocalRank) -> Result<Receiver> {
        let recycled = self.ring_map(from.min(to), from.max(to), RECYCLED_OFFSET..BYTES)?;
        match ReceivingEnd::new(SegmentRing { recycled: Some(recycled), ..self.ring(from, to)? }) {
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
