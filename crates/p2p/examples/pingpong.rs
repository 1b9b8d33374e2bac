// SPDX-License-Identifier: BSD-3-Clause
//! Measures latency and bandwidth between two processes with this crate alone: the best that the layers above
//! can reach.
//!
//! `cargo run --release -p outboard-p2p --example pingpong [auto|cma|cells]` prints the time of half a round
//! trip, and the bandwidth with up to 64 messages under way.

use datatype::{Buffer, Layout};
use outboard_p2p::{Config, LargeProtocol, Mode, P2p, Ticket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use transport::route::Reach;
use transport::route_shm::Port;
use transport::shm::{Segment, Shape, cma};

fn wait(p2p: &mut P2p, ticket: Ticket) {
    while p2p.take(ticket).is_none() {
        p2p.poll().expect("no peer is corrupt");
    }
}

fn pingpong(p2p: &mut P2p, buffer: &Buffer, rounds: usize) {
    for _ in 0..rounds {
        for half in 0..2 {
            let ticket = if half == p2p.rank() {
                p2p.isend(Mode::Standard, 1, 1 - half, 0, buffer.clone()).expect("the peer exists")
            } else {
                p2p.irecv(1, Some(half), Some(0), buffer.clone())
            };
            wait(p2p, ticket);
        }
    }
}

fn stream(p2p: &mut P2p, buffer: &Buffer, windows: usize) {
    let peer = 1 - p2p.rank();
    let mut tickets = Vec::with_capacity(64);
    for _ in 0..windows {
        for _ in 0..64 {
            tickets.push(if peer == 1 {
                p2p.isend(Mode::Standard, 1, peer, 0, buffer.clone()).expect("the peer exists")
            } else {
                p2p.irecv(1, Some(peer), Some(0), buffer.clone())
            });
        }
        tickets.drain(..).for_each(|ticket| wait(p2p, ticket));
        // The receiver answers at the end of the window.
        let answer = if peer == 1 {
            p2p.irecv(1, Some(peer), Some(1), Buffer::EMPTY)
        } else {
            p2p.isend(Mode::Standard, 1, peer, 1, Buffer::EMPTY).expect("the peer exists")
        };
        wait(p2p, answer);
    }
}

fn rank(segment: Segment, rank: u32, config: Config) {
    let cpus = sys::cpu::allowed().expect("the kernel says which cpus we may use");
    sys::cpu::pin(&[cpus[rank as usize % cpus.len()]]).expect("one of them");
    let place = segment.require(rank).unwrap();
    segment.rank(place).pid.store(std::process::id(), Ordering::Relaxed);
    cma::publish(&segment, place);
    segment.world(0).born.arrive();
    assert!(segment.world(0).born.wait(2, || false));
    let mut p2p = P2p::new(Reach::Shm(Port::new(segment, place)), config);
    for bytes in [0, 8, 64, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let memory = vec![rank as u8; bytes];
        // SAFETY: the vector lives until the operations on it have ended.
        let buffer =
            unsafe { Buffer::claim(memory.as_ptr() as usize, bytes, Arc::new(Layout::contiguous(1))) };
        let rounds = (200_000_000 / (bytes + 2000)).clamp(50, 100_000);
        pingpong(&mut p2p, &buffer, rounds / 10);
        let mut best = (f64::MAX, f64::MAX);
        for _ in 0..5 {
            let start = Instant::now();
            pingpong(&mut p2p, &buffer, rounds / 5);
            let half = start.elapsed().as_secs_f64() / (rounds / 5) as f64 / 2.0;
            let windows = (rounds / 5 / 64).max(1);
            let start = Instant::now();
            stream(&mut p2p, &buffer, windows);
            let each = start.elapsed().as_secs_f64() / (windows * 64) as f64;
            best = (best.0.min(half), best.1.min(each));
        }
        if rank == 0 {
            let (half, each) = best;
            println!(
                "{bytes:>8} B {:>10.3} us {:>10.3} us each in a window {:>8.2} GB/s",
                half * 1e6,
                each * 1e6,
                bytes as f64 / each / 1e9
            );
        }
    }
}

/// Runs rank 0, and starts this program again as rank 1, which inherits the job's segment (shared memory).
fn main() {
    let mut arguments = std::env::args().skip(1);
    let protocol = arguments.next().unwrap_or("auto".into());
    let large_protocol = match protocol.as_str() {
        "cma" => LargeProtocol::Cma,
        "cells" => LargeProtocol::Cells,
        _ => LargeProtocol::Auto,
    };
    let config = Config { large_protocol, ..Config::default() };
    if let Some(descriptor) = arguments.next() {
        let descriptor: i32 = descriptor.parse().expect("the number of a descriptor");
        // SAFETY: our parent left it open for us, and no other code of this process knows of it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        return rank(Segment::attach(descriptor).expect("the parent's segment"), 1, config);
    }
    let shape = Shape { ranks: 2, proxies: 0, arena_bytes: 1 };
    let (segment, descriptor) = Segment::create(shape).expect("a segment");
    segment.job().spin_allowed.store(1, Ordering::Relaxed);
    sys::memory::inheritable(&descriptor, true).expect("a descriptor of ours");
    let program = std::env::current_exe().expect("this program");
    let mut child = std::process::Command::new(program)
        .args([protocol, descriptor.as_raw_fd().to_string()])
        .spawn()
        .expect("a second process");
    rank(segment, 0, config);
    child.wait().expect("the other rank ends well");
}
