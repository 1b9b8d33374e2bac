//! The ring's protocol under every interleaving and every stale read that the memory model allows, with two slots and an
//! area of two cells, so that both wrap.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const PACKETS: u64 = 3;
/// Cells of 40 bytes, 64 with their alignment.
const CELL: u16 = 40;

#[derive(Debug)]
struct Model {
    ends: Ends,
    slots: [Slot; 2],
    /// The area: loom complains when a read of one of these is not ordered after its write, or the other way round.
    cells: [UnsafeCell<u64>; 2],
}

fn line<T>(value: T) -> Line<T> {
    Line(value)
}

impl Model {
    fn new() -> Arc<Model> {
        let slot = || Slot {
            turn: AtomicU32::new(0),
            sizes: AtomicU32::new(0),
            context: AtomicU64::new(0),
            tag: AtomicU32::new(0),
            extra: AtomicU32::new(0),
        };
        let zero = || AtomicU64::new(0);
        let ends = Ends {
            sender: line(SenderEnd { claimed: AtomicU32::new(0), tail: zero(), area_tail: zero() }),
            receiver: line(ReceiverEnd { head: zero(), area_head: zero(), consumed: zero() }),
            receiver_claimed: line(AtomicU32::new(0)),
        };
        let cells = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Model { ends, slots: [slot(), slot()], cells })
    }
}

impl Memory for Arc<Model> {
    fn slots(&self) -> u64 {
        2
    }
    fn area_bytes(&self) -> u64 {
        128
    }
    fn ends(&self) -> &Ends {
        &self.ends
    }
    fn slot(&self, index: u64) -> &Slot {
        &self.slots[index as usize]
    }
    fn inline(&self, _index: u64, _bytes: u64) -> Span {
        Span::EMPTY
    }
    fn area(&self, offset: u64, bytes: u64) -> Span {
        // SAFETY: never read or written: the tests use the address as an offset into `cells`.
        unsafe { Span::claim(offset as usize, bytes as usize) }
    }
    fn introduce(&self) {}
    fn announce(&self) {}
}

fn header(number: u64, cell_bytes: u16) -> Header {
    Header {
        kind: 1,
        inline_bytes: 0,
        cell_bytes,
        context: number + 100,
        tag: number as i32,
        extra: number as u32,
    }
}

fn send_all(memory: Arc<Model>, cell_bytes: impl Fn(u64) -> u16) {
    let cells = memory.clone();
    let mut to = Tail::new(memory).unwrap();
    for number in 0..PACKETS {
        let header = header(number, cell_bytes(number));
        while to.send(&header, |_, cell| {
            if cell.bytes() > 0 {
                // SAFETY: loom checks that nobody else uses the cell.
                cells.cells[cell.address() / 64].with_mut(|place| unsafe { *place = number });
            }
        }) == Sent::Full
        {
            thread::yield_now();
        }
    }
}

fn receive_all(memory: Arc<Model>, cell_bytes: impl Fn(u64) -> u16) {
    let cells = memory.clone();
    let mut from = Head::new(memory).unwrap();
    for number in 0..PACKETS {
        loop {
            let got = from.poll(|seen, _, cell| {
                assert_eq!(*seen, header(number, cell_bytes(number)));
                if cell.bytes() > 0 {
                    // SAFETY: loom checks that nobody else uses the cell.
                    cells.cells[cell.address() / 64].with(|place| assert_eq!(unsafe { *place }, number));
                }
            });
            if got.unwrap().is_some() {
                break;
            }
            thread::yield_now();
        }
    }
}

fn check(cell_bytes: fn(u64) -> u16) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let memory = Model::new();
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
    check(|_| 0);
}

#[test]
fn loom_cells_are_reused_only_after_being_read() {
    check(|_| CELL);
}

#[test]
fn loom_mixed_packets() {
    check(|number| if number == 1 { 0 } else { CELL });
}
