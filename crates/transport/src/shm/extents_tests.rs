// SPDX-License-Identifier: BSD-3-Clause
//! Tests of extents.

use super::*;
use crate::shm::{Allocator, LocalRank, Segment, Shape};

const RANK: LocalRank = LocalRank(1);

fn segments(arena_bytes: u64) -> (Segment, Segment) {
    let (made, fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes }).unwrap();
    (made, Segment::attach(fd).unwrap())
}

fn allocator(segment: &Segment) -> Allocator {
    let arena = segment.arena(RANK).unwrap();
    let bytes = arena.bytes();
    Allocator::new(arena, bytes)
}

/// Returns how many bytes of the arena of `RANK` are mapped by way of `segment`.
fn mapped(segment: &Segment) -> u64 {
    let mut all = 0;
    segment.extents(RANK).each_mapped(|_, span| all += span.bytes() as u64);
    all
}

#[test]
fn a_peer_maps_what_it_uses() {
    let (ours, theirs) = segments(64 << 30);
    let mut allocator = allocator(&ours);
    let (short, long) = (allocator.alloc(64).unwrap(), allocator.alloc(3 << 30).unwrap());
    let last = allocator.alloc(64 << 20).unwrap();
    let peer = theirs.arena(RANK).unwrap();
    allocator.arena().word(long + (3 << 30) - 8).unwrap().store(7, Ordering::Relaxed);
    allocator.arena().word(last).unwrap().store(8, Ordering::Relaxed);
    peer.word(short).unwrap();
    assert_eq!(mapped(&theirs), FIRST_BYTES);
    assert_eq!(peer.word(last).unwrap().load(Ordering::Relaxed), 8);
    assert!(mapped(&theirs) < 3 << 30, "the long extent is not used yet");
    let span = peer.span(long, 3 << 30).unwrap();
    assert_eq!(peer.word(long + (3 << 30) - 8).unwrap().load(Ordering::Relaxed), 7);
    assert_eq!(theirs.locate(span.address() + 64, 64), Some((RANK, long + 64)));
    assert_eq!(peer.offset_of(span.address(), 3 << 30), Some(long));
    assert_eq!(mapped(&theirs), mapped(&ours));
}

// Goal: freed memory serves a later allocation that is a little longer, so offsets are not used up.
#[test]
fn allocations_that_come_and_go_do_not_use_up_the_offsets() {
    let (ours, _) = segments(24 << 30);
    let mut allocator = allocator(&ours);
    let mut small = Vec::new();
    for round in 0..2000u64 {
        let bytes = (1 << 30) + (round % 97) * (100 << 20);
        let large = allocator.alloc(bytes).unwrap_or_else(|why| panic!("round {round}: {why}"));
        small.push(allocator.alloc(1000).unwrap());
        assert!(allocator.free(large));
    }
    assert!(ours.extents(RANK).ends().len() < 40, "{:?}", ours.extents(RANK).ends());
}

#[test]
fn an_arena_of_many_extents_is_used_up_at_its_limit() {
    let (ours, _) = segments(1 << 30);
    let mut allocator = allocator(&ours);
    let mut all = 0;
    while allocator.alloc(3 << 20).is_ok() {
        all += 3 << 20;
    }
    assert!(all + (3 << 20) > 1 << 30, "{all} bytes");
}

#[test]
fn the_next_process_in_a_place_finds_its_extents() {
    let (ours, theirs) = segments(1 << 30);
    let mut before = allocator(&ours);
    let long = before.alloc(300 << 20).unwrap();
    theirs.arena(RANK).unwrap().span(long, 300 << 20).unwrap();
    let ends = ours.extents(RANK).ends();
    drop(before);
    ours.make_world(1, &[0], 5).unwrap();
    // A new process starts in the same way.
    let fd = ours.descriptor().try_clone_to_owned().unwrap();
    let next = Segment::attach(fd).unwrap();
    let mut after = allocator(&next);
    let again = after.alloc(300 << 20).unwrap();
    assert_eq!((again, next.extents(RANK).ends()), (long, ends));
    after.arena().word(again).unwrap().store(9, Ordering::Relaxed);
    assert_eq!(theirs.arena(RANK).unwrap().word(again).unwrap().load(Ordering::Relaxed), 9);
}

#[test]
fn two_allocators_have_extents_of_their_own() {
    let (ours, _) = segments(1 << 30);
    let (mut one, mut two) = (allocator(&ours), allocator(&ours));
    let mut all: Vec<(u64, u64)> = Vec::new();
    for bytes in [64, 5 << 20, 20 << 20, 64, 100 << 20] {
        all.push((one.alloc(bytes).unwrap(), bytes));
        all.push((two.alloc(bytes).unwrap(), bytes));
    }
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{all:?}");
}

#[test]
fn a_table_that_makes_no_sense_leads_nowhere() {
    let (ours, theirs) = segments(1 << 30);
    let peer = theirs.arena(RANK).unwrap();
    let table = &ours.rank(RANK).extents;
    for ends in [[4 << 20, 0], [(8 << 20) + 1, 0], [1 << 40, 0], [u64::MAX, 0], [16 << 20, 12 << 20]] {
        table.ends.iter().zip(ends).for_each(|(word, end)| word.store(end, Ordering::Relaxed));
        let why = peer.span(20 << 20, 8).unwrap_err();
        assert_eq!(why.class, Class::Intern, "{why}");
        assert!(peer.span(u64::MAX, 8).is_err() && peer.span(8 << 20, u64::MAX).is_err());
    }
}

#[test]
fn a_mirror_takes_the_extents_that_it_is_told() {
    let (ours, _) = segments(1 << 30);
    let (mirror, _fd) = Segment::create(ours.shape()).unwrap();
    let mut allocator = allocator(&ours);
    let long = allocator.alloc(300 << 20).unwrap();
    let there = mirror.arena(RANK).unwrap();
    assert!(there.span(long, 300 << 20).is_err());
    let ends = allocator.arena().extents();
    assert!(there.mirror_extents(&ends) && there.mirror_extents(&ends));
    there.span(long, 300 << 20).unwrap();
    assert!(!there.mirror_extents(&[ends[0] + ARENA_ALIGN]), "another end");
    assert!(!there.mirror_extents(&[ends[0], ends[0] - 1]) && !there.mirror_extents(&[0; LATER_MAX + 1]));
}

// Goal: the errors that a program gets if it limits its address space, or closes descriptors, after MPI_Init.
#[test]
fn what_cannot_be_mapped_is_told_and_can_be_tried_again() {
    struct Refusing;
    impl Mapper for Refusing {
        fn map(&self, part: Range<u64>) -> Result<Map> {
            fail!(Class::NoMem, "no {} bytes", part.end - part.start)
        }
        fn name(&self) -> String {
            "rank 1".into()
        }
    }
    let (ours, _) = segments(1 << 30);
    let extents = ours.extents(RANK);
    let refusing =
        Extents { table: extents.table, mapped: extents.mapped, mapper: Refusing, range: extents.range };
    assert!(refusing.first().is_err() && refusing.take(64).is_err());
    assert_eq!(extents.take(64).unwrap(), 0..FIRST_BYTES);
    let why = refusing.take(100 << 20).unwrap_err();
    assert_eq!(why.message, format!("no {} bytes", 100 << 20), "the least that would do is tried last");
    assert!(extents.ends().is_empty(), "an extent that cannot be mapped is none");
    assert_eq!(extents.take(100 << 20).unwrap().start, FIRST_BYTES);
}

#[test]
fn an_extent_grows_with_the_arena_and_fits_its_allocation() {
    let mib = 1 << 20;
    assert_eq!(growth(8 * mib, 64), 8 * mib);
    assert_eq!(growth(100 * mib, 64), 50 * mib);
    assert_eq!(growth(100 << 30, 64), GROWTH_MAX);
    assert_eq!(growth(8 * mib, 100 * mib), 112 * mib);
    assert_eq!(growth(8 * mib, 128 * mib), 128 * mib);
    assert_eq!(growth(8 * mib, (128 << 20) + 1), 160 * mib);
}
