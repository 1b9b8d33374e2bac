// SPDX-License-Identifier: BSD-3-Clause
//! Checks of the ring's protocol under every interleaving and every stale read that the memory model allows.
//! The rings have two or four slots, and windows of one and two cells, so that slots and windows wrap, alone
//! and together.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const PACKETS: u64 = 3;
const CELL: u16 = 40;
/// The length in bytes of a cell that is just long enough for a recycled buffer.
const LONG: u16 = RECYCLED_BYTES_MIN as u16;
/// How many bytes of a window of the ring's area a cell of `CELL` bytes takes.
const PLACE: u64 = CELL_ALIGN;

#[derive(Debug)]
struct Model {
    ends: SharedEnds,
    slots: Vec<Slot>,
    /// The data bytes in the slots. Loom reports a read that is not ordered after the write, or a write that
    /// is not ordered after the read.
    inline: Vec<UnsafeCell<u64>>,
    /// The cells of the area and, after them, the recycled buffers. Loom checks the order of their reads and
    /// writes, as in `inline`.
    cells: Arc<Vec<UnsafeCell<u64>>>,
    /// The recycled buffers that the receiving end holds at first: a bit for each.
    first_recycled: u32,
}

/// The index of the first recycled buffer in `Model::cells`.
const FIRST_RECYCLED: u64 = 3;

fn line<T>(value: T) -> CacheLine<T> {
    CacheLine(value)
}

impl Model {
    /// Makes a ring both of whose ends are at the start of window `window` of the ring's area.
    fn new(slots: usize, window: u64) -> Arc<Model> {
        Arc::new(Model::of(slots, window, Arc::new(places(3)), 0))
    }

    /// Makes the two rings between two ranks. There is one recycled buffer, which the receiving end of the
    /// second ring holds at first, and no other cell.
    fn pair(slots: usize) -> [Arc<Model>; 2] {
        let recycled = Arc::new(places(FIRST_RECYCLED as usize + 1));
        [0, 1].map(|first_recycled| Arc::new(Model::of(slots, 0, recycled.clone(), first_recycled)))
    }

    fn of(slots: usize, window: u64, cells: Arc<Vec<UnsafeCell<u64>>>, first_recycled: u32) -> Model {
        let slot = || Slot {
            turn: AtomicU32::new(0),
            sizes: AtomicU32::new(0),
            context: AtomicU64::new(0),
            tag: AtomicU32::new(0),
            window: AtomicU32::new(0),
        };
        let (zero, area) = (|| AtomicU64::new(0), || AtomicU64::new(window << WINDOW_SHIFT));
        let ends = SharedEnds {
            sender: line(SharedSenderEnd { claimed: AtomicU32::new(0), tail: zero(), area_tail: area() }),
            receiver: line(SharedReceiverEnd {
                head: zero(),
                area_head: area(),
                consumed: zero(),
                recycled: AtomicU32::new(0),
            }),
            receiver_claimed: line(AtomicU32::new(0)),
        };
        let slots = (0..slots).map(|_| slot()).collect::<Vec<_>>();
        Model { ends, inline: places(slots.len()), slots, cells, first_recycled }
    }
}

fn places(count: usize) -> Vec<UnsafeCell<u64>> {
    (0..count).map(|_| UnsafeCell::new(0)).collect()
}

impl RingMemory for Arc<Model> {
    fn slots(&self) -> u64 {
        self.slots.len() as u64
    }
    fn window(&self, number: u64) -> Option<Window> {
        (number < 2).then(|| Window {
            number,
            offset: number * PLACE,
            bytes: PLACE << number,
            cell_bytes_max: CELL.into(),
        })
    }
    fn ends(&self) -> &SharedEnds {
        &self.ends
    }
    fn slot(&self, index: u64) -> &Slot {
        &self.slots[index as usize]
    }
    fn inline(&self, index: u64, bytes: u64) -> Span {
        // SAFETY: never read or written: the tests use the address as an index into `inline`.
        unsafe { Span::claim(index as usize, bytes as usize) }
    }
    fn area(&self, offset: u64, bytes: u64) -> Span {
        // SAFETY: never read or written: the tests use the address as an offset into `cells`.
        unsafe { Span::claim(offset as usize, bytes as usize) }
    }
    fn recycled(&self, number: u32, bytes: u64) -> Span {
        // SAFETY: likewise.
        unsafe { Span::claim(((FIRST_RECYCLED + u64::from(number)) * PLACE) as usize, bytes as usize) }
    }
    fn first_recycled(&self) -> u32 {
        self.first_recycled
    }
    fn introduce(&self) {}
    fn announce(&self) {}
}

fn header(number: u64, cell_bytes: u16) -> Header {
    Header { kind: 1, inline_bytes: 8, cell_bytes, context: number + 100, tag: number as i32 }
}

fn send_all(memory: Arc<Model>, cell_bytes: impl Fn(u64) -> u16) {
    let model = memory.clone();
    let mut to = SendingEnd::new(memory).unwrap();
    for number in 0..PACKETS {
        let header = header(number, cell_bytes(number));
        while to.send(&header, None, |inline, cell| {
            // SAFETY: loom checks that nobody else uses the slot.
            model.inline[inline.address()].with_mut(|place| unsafe { *place = number });
            if cell.bytes() > 0 {
                // SAFETY: loom checks that nobody else uses the cell.
                model.cells[cell.address() / PLACE as usize].with_mut(|place| unsafe { *place = number });
            }
        }) == Sent::Full
        {
            thread::yield_now();
        }
    }
}

fn receive_all(memory: Arc<Model>, cell_bytes: impl Fn(u64) -> u16) {
    let model = memory.clone();
    let mut from = ReceivingEnd::new(memory).unwrap();
    for number in 0..PACKETS {
        loop {
            let got = from.poll(|seen, inline, cell| {
                assert_eq!(*seen, header(number, cell_bytes(number)));
                // SAFETY: loom checks that nobody else uses the slot.
                model.inline[inline.address()].with(|place| assert_eq!(unsafe { *place }, number));
                if cell.bytes() > 0 {
                    // SAFETY: loom checks that nobody else uses the cell.
                    model.cells[cell.address() / PLACE as usize]
                        .with(|place| assert_eq!(unsafe { *place }, number));
                }
            });
            if got.unwrap().is_some() {
                break;
            }
            thread::yield_now();
        }
    }
}

fn check(slots: usize, window: u64, cell_bytes: fn(u64) -> u16) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let memory = Model::new(slots, window);
        let sender = {
            let memory = memory.clone();
            thread::spawn(move || send_all(memory, cell_bytes))
        };
        receive_all(memory, cell_bytes);
        sender.join().unwrap();
    });
}

#[test]
fn loom_slots_are_reused_only_after_being_read() {
    check(2, 0, |_| 0);
}

#[test]
fn loom_cells_are_reused_only_after_being_read() {
    check(4, 1, |_| CELL);
}

#[test]
fn loom_windows_are_left_only_for_later_ones() {
    check(4, 0, |_| CELL);
}

#[test]
fn loom_mixed_packets() {
    check(2, 1, |number| if number == 1 { 0 } else { CELL });
}

/// Plays one of two ranks that send and receive `PACKETS` packets in turn. Each packet goes in the recycled
/// buffer in which the last one came. `begins` says whether this rank sends first.
fn talk([to, from]: [Arc<Model>; 2], begins: bool) {
    let cells = from.cells.clone();
    let (mut tail, mut head) = (SendingEnd::new(to).unwrap(), ReceivingEnd::new(from).unwrap());
    for turn in 0..2 * PACKETS {
        if (turn % 2 == 0) == begins {
            let recycled = head.recycled(LONG.into()).expect("it came back");
            let sent = tail.send(&header(turn, LONG), Some(recycled), |_, cell| {
                // SAFETY: loom checks that nobody else uses the cell.
                cells[cell.address() / PLACE as usize].with_mut(|place| unsafe { *place = turn });
            });
            assert_eq!(sent, Sent::Done);
            head.recycled = 0;
        } else {
            let read = |seen: &Header, _: Span, cell: Span| {
                assert_eq!(*seen, header(turn, LONG));
                // SAFETY: loom checks that nobody else uses the cell.
                cells[cell.address() / PLACE as usize].with(|place| assert_eq!(unsafe { *place }, turn));
            };
            while head.poll(read).unwrap().is_none() {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn loom_a_recycled_buffer_belongs_to_its_last_reader() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let [there, back] = Model::pair(4);
        let other = {
            let ends = [back.clone(), there.clone()];
            thread::spawn(move || talk(ends, false))
        };
        talk([there, back], true);
        other.join().unwrap();
    });
}
