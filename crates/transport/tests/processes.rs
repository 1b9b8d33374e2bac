// SPDX-License-Identifier: BSD-3-Clause
//! Tests that need two real processes: an inherited segment, wakes across address spaces, and cross-memory
//! attach. The program starts itself as its own peer (no harness: the child is told by its arguments).

use outboard_transport::shm::ring::{Header, Sent};
use outboard_transport::shm::{LocalRank, Segment, Shape, State, cma};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::Span;

const ROUNDS: u64 = 200;
const BYTES: usize = 300_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, fd] = &arguments[..]
        && role == "child"
    {
        return child(fd.parse().unwrap());
    }
    parent();
    println!("test two_processes ... ok");
}

fn at(segment: &Segment, rank: u32) -> LocalRank {
    segment.local(rank).unwrap()
}

/// Sleeps on the doorbell of `rank` while `idle` returns true. Fails if the doorbell is not rung for two
/// minutes, since the peer must have rung it by then.
fn rest(segment: &Segment, rank: LocalRank, idle: impl Fn() -> bool) {
    while idle() {
        let rest = segment.rank(rank).bell.sleep(Duration::from_secs(120), &idle);
        assert_ne!(rest, outboard_transport::shm::SleepEnd::TimedOut, "rank {rank} missed its bell");
    }
}

fn born(segment: &Segment, rank: LocalRank, alone: impl FnMut() -> bool) {
    let page = segment.rank(rank);
    page.pid.store(sys::process::id(), Ordering::Release);
    cma::publish(segment, rank);
    page.set_state(State::Running);
    segment.world(0).born.arrive();
    assert!(segment.world(0).born.wait(2, alone), "the other process ended before it was born");
}

/// Plays one of the two ranks of a ping-pong. Each rank sleeps before every packet.
fn play(segment: &Segment, me: u32) {
    let [mine, theirs] = [me, 1 - me].map(|rank| at(segment, rank));
    let mut to = segment.ring_sender(mine, theirs).unwrap();
    let mut from = segment.ring_receiver(theirs, mine).unwrap();
    for round in 0..ROUNDS {
        if me == 1 {
            rest(segment, mine, || !from.ready());
            assert_eq!(from.poll(|header, _, _| header.context).unwrap(), Some(round));
        }
        let header = Header { context: round, inline_bytes: 1, ..Header::default() };
        assert_eq!(to.send(&header, |inline, _| inline.write(&[1])), Sent::Done);
        if me == 0 {
            rest(segment, mine, || !from.ready());
            assert_eq!(from.poll(|header, _, _| header.context).unwrap(), Some(round));
        }
    }
}

fn child(fd: i32) {
    sys::process::die_with_parent().unwrap();
    // SAFETY: the parent passed us this descriptor, and nothing else here owns it.
    let segment = Segment::attach(unsafe { OwnedFd::from_raw_fd(fd) }).unwrap();
    // Private memory, with odd boundaries, which the parent reads and writes.
    let mut bytes: Vec<u8> = (0..BYTES).map(|i| (i * 31 + i / 4096) as u8).collect();
    let page = segment.rank(at(&segment, 1));
    page.scalars[0].store(bytes.as_mut_ptr() as u64, Ordering::Relaxed);
    born(&segment, at(&segment, 1), || false);
    assert!(cma::reaches(&segment, at(&segment, 0)), "the child cannot reach its parent");
    play(&segment, 1);
    segment.world(0).leaving.arrive();
    assert!(segment.world(0).leaving.wait(2, || false));
    assert!(
        std::hint::black_box(&bytes).iter().all(|&byte| byte == 0xA5),
        "the parent's write did not arrive"
    );
}

fn start(segment: &Segment) -> Child {
    let fd = segment.descriptor();
    sys::memory::inheritable(fd, true).unwrap();
    let me = std::env::current_exe().unwrap();
    Command::new(me).args(["child", &fd.as_raw_fd().to_string()]).spawn().unwrap()
}

fn parent() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 << 20 }).unwrap();
    segment.job().launcher.store(sys::process::id(), Ordering::Relaxed);
    let mut peer = start(&segment);
    born(&segment, at(&segment, 0), || peer.try_wait().unwrap().is_some());
    assert!(cma::reaches(&segment, at(&segment, 1)), "the parent cannot reach its child");
    play(&segment, 0);
    let (pid, address) =
        (peer.id(), segment.rank(at(&segment, 1)).scalars[0].load(Ordering::Relaxed) as usize);
    let mut seen = vec![0u8; BYTES - 7];
    // SAFETY: `seen` outlives the span, and is not touched otherwise while it is used.
    let span = unsafe { Span::claim(seen.as_mut_ptr() as usize, seen.len()) };
    cma::read(pid, &[(address + 7, 100), (address + 107, BYTES - 107)], span).unwrap();
    assert!(seen.iter().enumerate().all(|(i, &byte)| byte == ((i + 7) * 31 + (i + 7) / 4096) as u8));
    seen.fill(0xA5);
    cma::write(pid, &[(address + 7, BYTES - 7)], span).unwrap();
    cma::write(pid, &[(address, 7)], span.slice(0, 7)).unwrap();
    segment.world(0).leaving.arrive();
    assert!(peer.wait().unwrap().success());
    assert!(cma::read(pid, &[(address, 8)], span.slice(0, 8)).is_err(), "read a process that has ended");
    assert!(!cma::reaches(&segment, at(&segment, 1)));
}
