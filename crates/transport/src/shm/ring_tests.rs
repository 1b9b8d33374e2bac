// SPDX-License-Identifier: BSD-3-Clause
use super::*;
use crate::shm::{RankPage, Shape};
use rand::{Rng, RngCore, SeedableRng, rngs::SmallRng};

fn segment() -> Segment {
    Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap().0
}

fn header(inline_bytes: u8, cell_bytes: u16, context: u64) -> Header {
    Header { kind: 3, inline_bytes, cell_bytes, context, tag: -7 }
}

#[test]
fn a_slot_is_one_cache_line_with_24_bytes_of_header() {
    assert_eq!(size_of::<Slot>(), 64);
    assert_eq!(std::mem::offset_of!(Slot, inline), 24);
    assert!(size_of::<SharedEnds>() <= SLOTS_OFFSET as usize);
    assert_eq!(BYTES % 4096, 0);
}

#[test]
fn header_and_bytes_arrive_as_sent() {
    let segment = segment();
    let (mut to, mut from) = (
        segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap(),
        segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap(),
    );
    assert!(!from.ready());
    assert_eq!(from.poll(|_, _, _| ()).unwrap(), None);
    let sent = to.send(&header(3, 5, 1 << 63), |inline, cell| {
        inline.write(b"abc");
        cell.write(b"defgh");
    });
    assert_eq!(sent, Sent::Done);
    assert!(from.ready());
    let seen = from.poll(|seen, inline, cell| {
        let (mut a, mut b) = ([0; 3], [0; 5]);
        inline.read(&mut a);
        cell.read(&mut b);
        assert_eq!((&a, &b), (b"abc", b"defgh"));
        *seen
    });
    assert_eq!(seen.unwrap(), Some(header(3, 5, 1 << 63)));
    let mut bits = vec![];
    let page: &RankPage = segment.rank(LocalRank(1));
    page.senders.each(2, |rank| bits.push(rank));
    assert_eq!(bits, [0]);
    assert_eq!(to.consumed(), 0);
    from.consume(10);
    from.consume(5);
    assert_eq!(to.consumed(), 15);
}

#[test]
fn packets_stay_that_are_not_wanted() {
    let segment = segment();
    let (mut to, mut from) = (
        segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap(),
        segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap(),
    );
    (0..5).for_each(|i| assert_eq!(to.send(&header(0, 1, i), |_, _| ()), Sent::Done));
    let mut seen = vec![];
    let mut look = |taken: [Taken; 5]| {
        let polled = from.poll_while(|header, _, _| {
            seen.push(header.context);
            taken[header.context as usize]
        });
        polled.unwrap();
        (from.received(), std::mem::take(&mut seen))
    };
    assert_eq!(look([Taken::No; 5]), (0, vec![0]));
    assert_eq!(look([Taken::More, Taken::More, Taken::No, Taken::No, Taken::No]), (2, vec![0, 1, 2]));
    assert_eq!(look([Taken::Last; 5]), (3, vec![2]));
    assert_eq!(look([Taken::More; 5]), (5, vec![3, 4]));
    assert_eq!(look([Taken::More; 5]), (5, vec![]));
}

#[test]
fn full_by_slots_and_by_cells() {
    let segment = segment();
    let (mut to, mut from) = (
        segment.ring_sender(LocalRank(1), LocalRank(0)).unwrap(),
        segment.ring_receiver(LocalRank(1), LocalRank(0)).unwrap(),
    );
    for i in 0..SLOTS {
        assert_eq!(to.send(&header(0, 0, i), |_, _| ()), Sent::Done);
    }
    assert_eq!(to.send(&header(0, 0, 0), |_, _| panic!("written although full")), Sent::Full);
    for i in 0..SLOTS {
        assert_eq!(from.poll(|seen, _, _| seen.context).unwrap(), Some(i));
    }
    for _ in 0..8 {
        assert_eq!(to.send(&header(0, CELL_BYTES as u16, 0), |_, _| ()), Sent::Done);
    }
    assert_eq!(to.send(&header(0, 1, 0), |_, _| panic!("written although full")), Sent::Full);
    assert_eq!(to.send(&header(40, 0, 0), |_, _| ()), Sent::Done);
    // The sender gets a cell back only once the reader publishes: after a quarter of the area, here two
    // cells.
    from.poll(|_, _, _| ()).unwrap().unwrap();
    from.poll(|_, _, _| ()).unwrap().unwrap();
    assert_eq!(to.send(&header(0, 1, 0), |_, _| ()), Sent::Done);
}

/// Goal: if `has_room` returns true, the sends for which it was asked succeed. In an empty ring it returns
/// true for messages that fill half a window of the ring's area. Method: random lengths of messages and
/// cells, in the first and in the last window, and a reader that takes some packets now and then.
#[test]
fn room_is_as_it_says() {
    for last_window in [false, true] {
        let segment = segment();
        let (mut to, mut from) = (
            segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap(),
            segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap(),
        );
        let mut random = SmallRng::seed_from_u64(3);
        if last_window {
            assert_eq!(to.send(&header(0, CELL_BYTES as u16, 0), |_, _| ()), Sent::Done);
        }
        let (mut granted, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let piece = [100, 4096, 8192][random.random_range(0..3)];
            let most =
                [5 * piece, 20_000, 64 << 10][random.random_range(0..if piece == 100 { 2 } else { 3 })];
            let bytes = random.random_range(1..=most);
            if to.has_room(bytes, piece) {
                granted += 1;
                assert_eq!(to.send(&header(8, 0, 0), |_, _| ()), Sent::Done);
                let mut left = bytes;
                while left > 0 {
                    let cell = left.min(piece);
                    assert_eq!(to.send(&header(0, cell as u16, 0), |_, _| ()), Sent::Done);
                    left -= cell;
                }
                assert_eq!(last_window, from.0.window.number == 1 || to.0.window.number == 1, "it moved on");
            } else {
                refused += 1;
                let is_empty = to.0.tail == from.received();
                assert!(!is_empty || bytes > 32 << 10, "{bytes} in pieces of {piece} fit into an empty ring");
            }
            for _ in 0..random.random_range(0..30) {
                from.poll(|_, _, _| ()).unwrap();
            }
        }
        assert!(granted > 1000 && refused > 1000, "{granted} {refused}");
    }
}

#[test]
fn an_end_is_made_once_and_its_heir_goes_on() {
    let segment = segment();
    let mut to = segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap();
    let mut from = segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap();
    assert!(segment.ring_sender(LocalRank(0), LocalRank(1)).is_err());
    assert!(segment.ring_receiver(LocalRank(0), LocalRank(1)).is_err());
    let cell = |i: u64| header(0, 1 + (i * 777 % 32768) as u16, i);
    for round in 0..100 {
        assert_eq!(to.send(&cell(2 * round), |_, _| ()), Sent::Done);
        drop(to);
        to = segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap();
        assert_eq!(to.send(&cell(2 * round + 1), |_, _| ()), Sent::Done);
        assert_eq!(from.poll(|seen, _, _| *seen).unwrap(), Some(cell(2 * round)));
        drop(from);
        from = segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap();
        assert_eq!(from.poll(|seen, _, _| *seen).unwrap(), Some(cell(2 * round + 1)));
    }
}

#[test]
fn nonsense_is_an_error() {
    for sizes in [41 << 8, 0x8001 << 16, u32::MAX] {
        let segment = segment();
        let mut to = segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap();
        let mut from = segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap();
        assert_eq!(to.send(&header(0, 0, 0), |_, _| ()), Sent::Done);
        to.0.memory.slot(0).sizes.store(sizes, Ordering::Relaxed);
        for _ in 0..2 {
            assert!(from.poll(|_, _, _| ()).unwrap_err().message.contains("corrupt"));
        }
    }
    // A window that does not exist, and one that both ends have left.
    for (bytes, window) in [(1, 2), (1, u32::MAX), (CELL_BYTES as u16, 0)] {
        let segment = segment();
        let mut to = segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap();
        let mut from = segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap();
        for number in 0..2 {
            assert_eq!(to.send(&header(0, bytes, number), |_, _| ()), Sent::Done);
        }
        from.poll(|_, _, _| ()).unwrap();
        to.0.memory.slot(1).window.store(window, Ordering::Relaxed);
        assert!(from.poll(|_, _, _| ()).unwrap_err().message.contains("corrupt"));
    }
    // A recycled buffer that does not exist, one that the receiver holds, a cell longer than such a buffer.
    let held = RECYCLED_BUFFERS / 2;
    for (bytes, number) in
        [(1, RECYCLED_BUFFERS), (1, held), (RECYCLED_BYTES as u16 + 1, 0), (1, u32::MAX - RECYCLED_WINDOWS)]
    {
        let segment = segment();
        let mut to = segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap();
        let mut from = segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap();
        assert_eq!(to.send(&header(0, bytes, 0), |_, _| ()), Sent::Done);
        to.0.memory.slot(0).window.store(RECYCLED_WINDOWS + number, Ordering::Relaxed);
        for _ in 0..2 {
            assert!(from.poll(|_, _, _| ()).unwrap_err().message.contains("corrupt"), "{bytes} {number}");
        }
    }
}

/// Takes the two ends that rank `own` (0 or 1) uses: the sending end of the ring to the other rank, and the
/// receiving end of the ring from the other rank.
fn ends(segment: &Segment, own: u32) -> (Sender, Receiver) {
    (
        segment.ring_sender(LocalRank(own), LocalRank(1 - own)).unwrap(),
        segment.ring_receiver(LocalRank(1 - own), LocalRank(own)).unwrap(),
    )
}

/// Sends a packet with a cell of `bytes` bytes by `to`, in a recycled buffer of `back` if there is one, and
/// receives the packet by `from`. Returns the cell's offset in the ring of `to`.
fn pass((to, back): &mut (Sender, Receiver), from: &mut Receiver, bytes: usize) -> usize {
    let mut sent_at = 0;
    let sent = to.send_back(&header(0, bytes as u16, 7), back, |_, cell| {
        sent_at = cell.address();
        cell.write(&vec![bytes as u8; bytes]);
    });
    assert_eq!(sent, Sent::Done);
    let mut seen = vec![0; bytes];
    from.poll(|_, _, cell| cell.read(&mut seen)).unwrap().unwrap();
    assert_eq!(seen, vec![bytes as u8; bytes]);
    sent_at.wrapping_sub(to.0.memory.map.span().address())
}

#[test]
fn a_recycled_buffer_goes_to_and_fro() {
    let segment = segment();
    let (mut zero, mut one) = (ends(&segment, 0), ends(&segment, 1));
    let half = (1 << (RECYCLED_BUFFERS / 2)) - 1;
    let held = |zero: &(Sender, Receiver), one: &(Sender, Receiver)| (zero.1.0.recycled, one.1.0.recycled);
    assert_eq!(held(&zero, &one), (half, half << (RECYCLED_BUFFERS / 2)));
    for i in 0..1000 {
        pass(&mut zero, &mut one.1, 257 + i * 16 % (RECYCLED_BYTES - 256));
        assert_eq!(
            held(&zero, &one),
            (half & !1, half << (RECYCLED_BUFFERS / 2) | 1),
            "the first has gone over"
        );
        pass(&mut one, &mut zero.1, RECYCLED_BYTES);
        assert_eq!(held(&zero, &one), (half, half << (RECYCLED_BUFFERS / 2)), "and back");
    }
    assert_eq!((zero.0.0.area_tail, one.0.0.area_tail), (0, 0), "no other cell was used");
    // If only one rank sends, the other holds all recycled buffers in the end, and cells lie in the ring.
    for _ in 0..RECYCLED_BUFFERS / 2 {
        assert!(zero.1.has_recycled());
        pass(&mut zero, &mut one.1, 257);
    }
    assert_eq!(held(&zero, &one), (0, u32::MAX >> (32 - RECYCLED_BUFFERS)));
    assert_eq!(pass(&mut zero, &mut one.1, 257), AREA_OFFSET as usize);
    // The area continues where it was, whatever passed through recycled buffers in between.
    pass(&mut one, &mut zero.1, 257);
    pass(&mut zero, &mut one.1, 258);
    assert_eq!(pass(&mut zero, &mut one.1, 259), AREA_OFFSET as usize + 512);
    // Too short for a recycled buffer, and too long.
    assert_eq!(pass(&mut one, &mut zero.1, 256), AREA_OFFSET as usize);
    assert_eq!(pass(&mut one, &mut zero.1, RECYCLED_BYTES + 1), AREA_OFFSET as usize + WINDOWS[1] as usize);
    // Later ends hold the recycled buffers that these ends held.
    drop((zero, one));
    let (zero, one) = (ends(&segment, 0), ends(&segment, 1));
    assert_eq!(held(&zero, &one), (0, u32::MAX >> (32 - RECYCLED_BUFFERS)));
}

#[test]
fn a_recycled_buffer_stays_where_the_packet_was_not_sent_or_not_taken() {
    let segment = segment();
    let (mut zero, mut one) = (ends(&segment, 0), ends(&segment, 1));
    for _ in 0..SLOTS {
        assert_eq!(zero.0.send(&header(0, 0, 0), |_, _| ()), Sent::Done);
    }
    let before = zero.1.0.recycled;
    assert_eq!(zero.0.send_back(&header(0, 300, 0), &mut zero.1, |_, _| panic!()), Sent::Full);
    assert_eq!(zero.1.0.recycled, before);
    assert_eq!(one.0.send_back(&header(0, 300, 0), &mut one.1, |_, _| ()), Sent::Done);
    for take in [Taken::No, Taken::No, Taken::Last] {
        assert_eq!(zero.1.0.recycled, before);
        zero.1.poll_while(|_, _, _| take).unwrap();
    }
    assert_eq!(zero.1.0.recycled, before | 1 << (RECYCLED_BUFFERS / 2));
}

#[test]
fn a_sender_moves_on_to_the_next_window_when_one_is_full() {
    let segment = segment();
    let (mut to, mut from) = (
        segment.ring_sender(LocalRank(0), LocalRank(1)).unwrap(),
        segment.ring_receiver(LocalRank(0), LocalRank(1)).unwrap(),
    );
    let mut offset_of = |to: &mut Sender, bytes| {
        let mut address = 0;
        assert_eq!(to.send(&header(0, bytes, 7), |_, cell| address = cell.address()), Sent::Done);
        from.poll(|_, _, cell| assert_eq!(cell.bytes(), usize::from(bytes))).unwrap().unwrap();
        address - to.0.memory.map.span().address() - AREA_OFFSET as usize
    };
    // Packets that are taken one at a time stay in the first window, round and round.
    for i in 0..1000 {
        assert_eq!(offset_of(&mut to, 4096), i * 4096 % WINDOWS[1] as usize);
    }
    assert_eq!(offset_of(&mut to, CELL_BYTES as u16), WINDOWS[1] as usize);
    assert_eq!(offset_of(&mut to, 1), WINDOWS[1] as usize + CELL_BYTES);
    // While nothing is received, the first window is full after 128 cells of 512 bytes each; the others lie
    // in the second.
    let mut to = segment.ring_sender(LocalRank(1), LocalRank(0)).unwrap();
    for _ in 0..SLOTS {
        assert_eq!(to.send(&header(0, 257, 7), |_, _| ()), Sent::Done);
    }
    assert_eq!(to.0.area_tail, (1 << WINDOW_SHIFT) + (SLOTS - 128) * 512);
    drop(to);
    assert_eq!(segment.ring_sender(LocalRank(1), LocalRank(0)).unwrap().0.window.number, 1);
}

/// Makes a random header whose lengths reach every path: no data, slot only, short, odd and full cells.
fn random_header(random: &mut SmallRng, number: u64) -> Header {
    let cell_bytes = match random.random_range(0..4) {
        0 | 1 => 0,
        2 => random.random_range(1..300),
        _ => random.random_range(1..=CELL_BYTES as u16),
    };
    header(random.random_range(0..=40), cell_bytes, number)
}

#[test]
fn a_million_bytes_by_seed_through_two_maps() {
    const PACKETS: u64 = 3000;
    for seed in 0..4 {
        let (made, fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
        let joined = Segment::attach(fd).unwrap();
        let sender = std::thread::spawn(move || {
            let mut to = made.ring_sender(LocalRank(0), LocalRank(1)).unwrap();
            let mut random = SmallRng::seed_from_u64(seed);
            let mut bytes = vec![0; CELL_BYTES + INLINE_BYTES];
            for number in 0..PACKETS {
                let header = random_header(&mut random, number);
                let (inline, cell) = (header.inline_bytes as usize, header.cell_bytes as usize);
                random.fill_bytes(&mut bytes[..inline + cell]);
                while to.send(&header, |a, b| {
                    a.write(&bytes[..inline]);
                    b.write(&bytes[inline..inline + cell]);
                }) == Sent::Full
                {
                    std::thread::yield_now();
                }
            }
        });
        let mut from = joined.ring_receiver(LocalRank(0), LocalRank(1)).unwrap();
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut wanted, mut seen) = (vec![0; CELL_BYTES + INLINE_BYTES], vec![0; CELL_BYTES + INLINE_BYTES]);
        for number in 0..PACKETS {
            let header = random_header(&mut random, number);
            let (inline, cell) = (header.inline_bytes as usize, header.cell_bytes as usize);
            random.fill_bytes(&mut wanted[..inline + cell]);
            loop {
                let got = from.poll(|got, a, b| {
                    assert_eq!(*got, header, "seed {seed}");
                    a.read(&mut seen[..inline]);
                    b.read(&mut seen[inline..inline + cell]);
                });
                if got.unwrap().is_some() {
                    break;
                }
                std::thread::yield_now();
            }
            assert!(seen[..inline + cell] == wanted[..inline + cell], "seed {seed} packet {number}");
        }
        sender.join().unwrap();
    }
}
