// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the job's segment.

use super::*;
use crate::shm::EndCause;
use std::sync::atomic::AtomicU64;

const SHAPE: Shape = Shape { ranks: 3, proxies: 2, arena_bytes: 5 << 20 };

#[test]
fn an_attached_segment_is_the_same_memory() {
    let (made, fd) = Segment::create(SHAPE).unwrap();
    let joined = Segment::attach(fd).unwrap();
    assert_eq!(joined.shape(), Shape { arena_bytes: 6 << 20, ..SHAPE });
    made.rank(LocalRank(2)).pid.store(77, Ordering::Relaxed);
    assert_eq!(joined.rank(LocalRank(2)).pid.load(Ordering::Relaxed), 77);
    joined.proxy(1).fenced.store(5, Ordering::Relaxed);
    assert_eq!(made.proxy(1).fenced.load(Ordering::Relaxed), 5);
    assert_eq!(joined.rank(LocalRank(1)).pid.load(Ordering::Relaxed), 0);
    let word = |segment: &Segment, rank: u32| -> u64 {
        let arena = segment.arena(LocalRank(rank)).unwrap();
        arena.word((8 << 20) - 8).unwrap().fetch_add(1 + u64::from(rank), Ordering::Relaxed)
    };
    assert_eq!((word(&made, 1), word(&joined, 1), word(&made, 2), word(&joined, 2)), (0, 2, 0, 3));
    assert!(made.arena(LocalRank(3)).is_err());
    let address = made.arena(LocalRank(1)).unwrap().span(4096, 1).unwrap().address();
    assert_eq!(made.locate(address, 64), Some((LocalRank(1), 4096)));
    assert_eq!(made.locate(address, 8 << 20), None, "sticks out");
    // The byte before it may lie in the extent of another rank.
    assert!(made.locate(address - 4097, 1).is_none_or(|(rank, _)| rank != LocalRank(1)));
    assert_eq!(
        (made.proxy_of(LocalRank(0)), made.proxy_of(LocalRank(1)), made.proxy_of(LocalRank(2))),
        (Some(0), Some(1), Some(0))
    );
}

#[test]
fn a_large_job_costs_only_what_it_touches() {
    let (segment, _fd) = Segment::create(Shape::sparse(256, 0, 8)).unwrap();
    segment.rank(LocalRank(255)).set_state(super::super::State::Running);
    segment.arena(LocalRank(200)).unwrap().word(1 << 20).unwrap().store(1, Ordering::Relaxed);
    assert!(segment.resident().unwrap() <= 80 << 10, "{}", segment.resident().unwrap());
}

#[test]
fn strange_descriptors_are_refused() {
    let sentence = |fd: OwnedFd| Segment::attach(fd).unwrap_err().to_string();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(sentence(file.into()).contains("no sealed memfd"));
    assert!(sentence(memory::create("test", 100).unwrap()).contains("100 bytes"));
    assert!(sentence(memory::create("test", 1 << 20).unwrap()).contains("not made by Outboard"));
    let spoil = |change: fn(&JobPage)| {
        let (segment, fd) = Segment::create(SHAPE).unwrap();
        change(segment.job());
        sentence(fd)
    };
    assert!(spoil(|job| job.version.store(99, Ordering::Relaxed)).contains("layout 99"));
    assert!(spoil(|job| job.ranks.store(2, Ordering::Relaxed)).contains("one build"));
    assert!(spoil(|job| job.ranks.store(u32::MAX, Ordering::Relaxed)).contains("4294967295 ranks"));
    assert!(spoil(|job| job.arena_bytes.store(u64::MAX, Ordering::Relaxed)).contains("arena of"));
}

#[test]
fn impossible_shapes_are_refused() {
    for (ranks, proxies, arena_bytes) in [(0, 0, 1), (4097, 0, 1), (1, 5000, 1), (1, 1, 0), (1, 1, u64::MAX)]
    {
        assert!(Segment::create(Shape { ranks, proxies, arena_bytes }).is_err());
    }
}

// Goal: a job starts within any limits; rings and pages get the bytes that they need.
#[test]
fn arenas_fit_the_limits() {
    let most = Shape { ranks: 258, proxies: 0, arena_bytes: 1 };
    let none = Shape::within(most, 2, (24 << 30, None));
    assert_eq!((none.ranks, none.arena_bytes), (258, 24 << 30));
    let file = Shape::within(most, 2, (24 << 30, Some(1 << 30)));
    assert_eq!(file.ranks, 2, "rings to spawned ranks alone would be longer");
    assert!(file.layout().unwrap().total <= 1 << 30 && file.arena_bytes > 100 << 20, "{file:?}");
    let tiny = Shape::within(most, 2, (24 << 30, Some(1 << 20)));
    assert_eq!((tiny.ranks, tiny.arena_bytes), (2, ARENA_ALIGN), "what then cannot be mapped is told");
}

#[test]
fn the_first_abort_counts() {
    let (segment, _fd) = Segment::create(SHAPE).unwrap();
    assert_eq!(segment.world(0).aborted(), None);
    segment.end(LocalRank(0), -3, EndCause::Error);
    segment.end(LocalRank(1), 4, EndCause::Abort);
    assert_eq!(
        (segment.world(0).aborted(), segment.world(0).cause()),
        (Some((0, -3)), Some(EndCause::Error))
    );
}

#[test]
fn an_exit_may_say_that_all_is_well_and_an_abort_may_not() {
    for (code, cause, says) in
        [(0, EndCause::Exit, 0), (256, EndCause::Abort, 1), (0, EndCause::Error, 1), (7, EndCause::Exit, 7)]
    {
        let (segment, _fd) = Segment::create(SHAPE).unwrap();
        assert_eq!(segment.world(0).exit_code(), None);
        segment.end(LocalRank(1), code, cause);
        assert_eq!(segment.world(0).exit_code(), Some(says));
    }
}

#[test]
fn gate_and_senders() {
    let (segment, _fd) = Segment::create(Shape { ranks: 200, proxies: 0, arena_bytes: 1 }).unwrap();
    let other = segment.clone();
    let waiter = std::thread::spawn(move || other.world(0).born.wait(2, || false));
    segment.world(0).born.arrive();
    segment.world(0).born.arrive();
    assert!(waiter.join().unwrap());
    assert!(!segment.world(0).born.wait(3, || true));
    let senders = &segment.rank(LocalRank(7)).senders;
    for rank in [199, 0, 64, 63, 4095, u32::MAX] {
        senders.add(rank);
    }
    let mut seen = vec![];
    senders.each(200, |rank| seen.push(rank));
    assert_eq!(seen, [0, 63, 64, 199]);
    assert!(segment.proxy_of(LocalRank(3)).is_none());
    let unused: &AtomicU64 = &segment.rank(LocalRank(6)).scalars[0];
    assert_eq!(unused.load(Ordering::Relaxed), 0);
}
