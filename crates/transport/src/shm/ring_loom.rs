//! The ring's protocol under every interleaving and every stale read that the memory model allows, with two or four slots
//! and windows of one and two cells, so that each wraps, alone and together.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const PACKETS: u64 = 3;
const CELL: u16 = 40;
/// What a cell takes of its window.
const PLACE: u64 = CELL_ALIGN;

#[derive(Debug)]
struct Model {
    ends: Ends,
    slots: Vec<Slot>,
    /// Inline bytes: loom complains when a read of one is not ordered after its write, or the other way round.
    inline: Vec<UnsafeCell<u64>>,
    /// The area, likewise.
    cells: Vec<UnsafeCell<u64>>,
}

fn line<T>(value: T) -> Line<T> {
    Line(value)
}

impl Model {
    /// With this window in use.
    fn new(slots: usize, window: u64) -> Arc<Model> {
        let slot = || Slot {
            turn: AtomicU32::new(0),
            sizes: AtomicU32::new(0),
            context: AtomicU64::new(0),
            tag: AtomicU32::new(0),
            window: AtomicU32::new(0),
        };
        let (zero, area) = (|| AtomicU64::new(0), || AtomicU64::new(window << WINDOW_SHIFT));
        let ends = Ends {
            sender: line(SenderEnd { claimed: AtomicU32::new(0), tail: zero(), area_tail: area() }),
            receiver: line(ReceiverEnd { head: zero(), area_head: area(), consumed: zero() }),
            receiver_claimed: line(AtomicU32::new(0)),
        };
        let places = |count| (0..count).map(|_| UnsafeCell::new(0)).collect();
        let slots = (0..slots).map(|_| slot()).collect::<Vec<_>>();
        Arc::new(Model { ends, inline: places(slots.len()), slots, cells: places(3) })
    }
}

impl Memory for Arc<Model> {
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
    fn ends(&self) -> &Ends {
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
    fn introduce(&self) {}
    fn announce(&self) {}
}

fn header(number: u64, cell_bytes: u16) -> Header {
    Header { kind: 1, inline_bytes: 8, cell_bytes, context: number + 100, tag: number as i32 }
}

fn send_all(memory: Arc<Model>, cell_bytes: impl Fn(u64) -> u16) {
    let model = memory.clone();
    let mut to = Tail::new(memory).unwrap();
    for number in 0..PACKETS {
        let header = header(number, cell_bytes(number));
        while to.send(&header, |inline, cell| {
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
    let mut from = Head::new(memory).unwrap();
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
