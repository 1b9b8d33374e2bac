// SPDX-License-Identifier: BSD-3-Clause
//! Measures a pair of rings, the queues of packets between two ranks of a host: `cargo run --release -p
//! outboard-transport --example ring [rounds]`.
//!
//! Latency: half of a round trip, for packets whose payload is in the ring's slot (inline) and for packets
//! with a cell. Rate: packets in one direction, consumed as they come. Bandwidth: full cells between buffers
//! of 1 MiB, by `ptr::copy` and by `rep movsb`. Each figure is measured in many rounds of under a
//! millisecond, in turn with the other figures, because a shared host changes its speed.

use outboard_transport::shm::ring::{Header, Receiver, Sender, Sent};
use outboard_transport::shm::{Segment, Shape};
use std::hint::spin_loop;
use sys::Span;

const CELL: usize = outboard_transport::shm::ring::CELL_BYTES;

#[derive(Clone, Copy)]
enum Copier {
    Library,
    Movsb,
}

impl Copier {
    fn copy(self, from: Span, to: Span) {
        match self {
            Copier::Library => from.copy_to(to),
            Copier::Movsb => {
                assert_eq!(from.bytes(), to.bytes());
                // SAFETY: equally long, mapped (contract of `Span::claim`), and they do not overlap here.
                unsafe {
                    std::arch::asm!("rep movsb", inout("rcx") from.bytes() => _, inout("rsi") from.address() => _,
                        inout("rdi") to.address() => _, options(nostack, preserves_flags))
                }
            }
        }
    }
}

struct Peer {
    to: Sender,
    from: Receiver,
    buffer: Vec<u8>,
}

impl Peer {
    fn new(segment: &Segment, me: u32, cpu: usize) -> Peer {
        let cpus = sys::cpu::allowed().unwrap();
        sys::cpu::pin(&[cpus[cpu % cpus.len()]]).unwrap();
        let [mine, theirs] = [me, 1 - me].map(|rank| segment.local(rank).unwrap());
        let (to, from) =
            (segment.ring_sender(mine, theirs).unwrap(), segment.ring_receiver(theirs, mine).unwrap());
        Peer { to, from, buffer: vec![1; 1 << 20] }
    }

    fn piece(&mut self, number: usize, bytes: usize) -> Span {
        let pieces = self.buffer.len() / bytes.max(1);
        // SAFETY: the buffer lives as long as the peer, and the span is used before the call that made it
        // returns.
        let all = unsafe { Span::claim(self.buffer.as_mut_ptr() as usize, self.buffer.len()) };
        all.slice(number % pieces * bytes, bytes)
    }

    fn send(&mut self, number: usize, bytes: usize, copier: Copier) {
        let from = self.piece(number, bytes);
        let inline = bytes <= 40;
        let header = Header {
            kind: 1,
            inline_bytes: if inline { bytes as u8 } else { 0 },
            cell_bytes: if inline { 0 } else { bytes as u16 },
            ..Header::default()
        };
        while self.to.send(&header, |a, b| copier.copy(from, if inline { a } else { b })) == Sent::Full {
            spin_loop();
        }
    }

    fn receive(&mut self, number: usize, bytes: usize, copier: Copier) {
        let to = self.piece(number, bytes);
        let inline = bytes <= 40;
        while self.from.poll(|_, a, b| copier.copy(if inline { a } else { b }, to)).unwrap().is_none() {
            spin_loop();
        }
    }

    /// Sends packets of `bytes` bytes to and fro, `times` round trips. Returns half the time of one round
    /// trip, in nanoseconds.
    fn ping_pong(&mut self, first: bool, bytes: usize, times: usize, copier: Copier) -> f64 {
        let start = sys::clock::now();
        for number in 0..times {
            if first {
                self.send(number, bytes, copier);
                self.receive(number, bytes, copier);
            } else {
                self.receive(number, bytes, copier);
                self.send(number, bytes, copier);
            }
        }
        (sys::clock::now() - start) as f64 / (2 * times) as f64
    }

    /// Sends `times` packets of `bytes` bytes in one direction. Returns the time for each packet, in
    /// nanoseconds.
    fn stream(&mut self, first: bool, bytes: usize, times: usize, copier: Copier) -> f64 {
        let start = sys::clock::now();
        for number in 0..times {
            if first { self.send(number, bytes, copier) } else { self.receive(number, bytes, copier) }
        }
        if first {
            self.receive(0, 1, Copier::Library)
        } else {
            self.send(0, 1, Copier::Library)
        }
        (sys::clock::now() - start) as f64 / times as f64
    }
}

type Case = (&'static str, bool, usize, usize, Copier);
const CASES: [Case; 14] = [
    ("latency", true, 8, 1_000, Copier::Library),
    ("latency", true, 1 << 10, 500, Copier::Library),
    ("latency", true, 1 << 10, 500, Copier::Movsb),
    ("latency", true, 4 << 10, 500, Copier::Library),
    ("latency", true, 4 << 10, 500, Copier::Movsb),
    ("latency", true, CELL, 100, Copier::Library),
    ("latency", true, CELL, 100, Copier::Movsb),
    ("stream", false, 8, 5_000, Copier::Library),
    ("stream", false, 1 << 10, 2_500, Copier::Library),
    ("stream", false, 1 << 10, 2_500, Copier::Movsb),
    ("stream", false, 4 << 10, 1_000, Copier::Library),
    ("stream", false, 4 << 10, 1_000, Copier::Movsb),
    ("stream", false, CELL, 200, Copier::Library),
    ("stream", false, CELL, 200, Copier::Movsb),
];

fn run(mut peer: Peer, first: bool, rounds: usize) -> Vec<Vec<f64>> {
    let mut figures = vec![vec![]; CASES.len()];
    for _ in 0..rounds {
        for (index, &(_, latency, bytes, times, copier)) in CASES.iter().enumerate() {
            peer.ping_pong(first, 8, 20, Copier::Library);
            let figure = if latency {
                peer.ping_pong(first, bytes, times, copier)
            } else {
                peer.stream(first, bytes, times, copier)
            };
            figures[index].push(figure);
        }
    }
    figures
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(200, |text| text.parse().expect("rounds: a number"));
    let (made, fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
    let joined = Segment::attach(fd).unwrap();
    let other = std::thread::spawn(move || run(Peer::new(&joined, 1, 1), false, rounds));
    let mut figures = run(Peer::new(&made, 0, 0), true, rounds);
    other.join().unwrap();
    println!(
        "{:8} {:>6} {:>8} {:>10} {:>10} {:>10} {:>8}",
        "what", "bytes", "copy", "best ns", "best 10%", "median", "GB/s"
    );
    for (&(what, _, bytes, _, copier), list) in CASES.iter().zip(&mut figures) {
        list.sort_by(f64::total_cmp);
        let copier = if matches!(copier, Copier::Movsb) { "movsb" } else { "library" };
        let (best, tenth, median) = (list[0], list[list.len() / 10], list[list.len() / 2]);
        let rate = bytes as f64 / tenth;
        println!("{what:8} {bytes:6} {copier:>8} {best:10.0} {tenth:10.0} {median:10.0} {rate:8.1}");
    }
}
