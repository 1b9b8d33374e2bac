// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the protocols over the rings of a real segment, and over tcp, with one thread for each rank.

mod job;

use job::{Bytes, seeds::seeds};
use outboard_p2p::{Config, LargeProtocol, Mode, Outcome, P2p, Ticket};
use transport::route::Reach;
use transport::route_fabric;
use transport::route_shm::Port;
use transport::shm::{EndpointOwner, Segment, Shape, cma};

/// How packets get from rank to rank in a test.
#[derive(Clone, Copy)]
enum Carrier {
    /// The rings of a segment (shared memory) carry the packets.
    Shm,
    /// libfabric's tcp provider carries the packets, on loopback.
    Tcp,
}

/// Makes what each rank needs to reach the others (`Reach`), in a job in which each rank is on a host of its
/// own and uses tcp.
fn fabric_ports(ranks: u32) -> Vec<Reach> {
    let node_of: Vec<u32> = (0..ranks).collect();
    let join = |rank| {
        let (segment, _fd) = Segment::create(Shape { ranks, proxies: 0, arena_bytes: 1 }).unwrap();
        segment.set_nodes(rank, ranks, &node_of, 0x5ec);
        segment.job().address.set("127.0.0.1");
        let place = segment.require(rank).unwrap();
        let network = route_fabric::Port::open(
            &segment,
            EndpointOwner::Rank(place),
            &route_fabric::ProviderChoice::provider("tcp"),
        )
        .unwrap();
        (segment, place, network)
    };
    let joined: Vec<_> = (0..ranks).map(join).collect();
    for (segment, ..) in &joined {
        for (rank, (other, ..)) in (0..).zip(&joined) {
            segment.set_endpoint(rank, &other.endpoint(rank).unwrap());
        }
    }
    let port = |(segment, place, network)| Reach::Nodes(Box::new((Port::new(segment, place), network)));
    joined.into_iter().map(port).collect()
}

/// Runs `body` as every rank of a job of `ranks` ranks, each in its own thread, until all have returned and
/// all their sends have ended.
fn run(carrier: Carrier, ranks: u32, config: Config, body: impl Fn(&mut P2p) + Sync) {
    let (segment, _fd) = Segment::create(Shape { ranks, proxies: 0, arena_bytes: 1 }).unwrap();
    for rank in 0..ranks {
        let place = segment.require(rank).unwrap();
        segment.rank(place).pid.store(std::process::id(), std::sync::atomic::Ordering::Relaxed);
        cma::publish(&segment, place);
    }
    let ports = match carrier {
        Carrier::Shm => segment.places().map(|place| Reach::Shm(Port::new(segment.clone(), place))).collect(),
        Carrier::Tcp => fabric_ports(ranks),
    };
    std::thread::scope(|scope| {
        for port in ports {
            let (segment, body) = (segment.clone(), &body);
            scope.spawn(move || {
                let mut p2p = P2p::new(port, config);
                body(&mut p2p);
                // MPI_Finalize does the same: a peer may still need an answer.
                while !p2p.is_quiet() {
                    turn(&mut p2p);
                }
                segment.world(0).leaving.arrive();
                while segment.world(0).leaving.count() < ranks {
                    turn(&mut p2p);
                }
                assert_eq!(p2p.pending(), []);
            });
        }
    });
}

fn turn(p2p: &mut P2p) {
    if !p2p.poll().expect("no peer is corrupt") {
        std::thread::yield_now();
    }
}

/// Goal: a sleeping rank is woken by everything that comes, and no rank sleeps while it has work. Method:
/// both ranks sleep on their doorbells whenever a poll finds nothing, for minutes; a lost wake-up hangs the
/// test.
#[test]
fn sleepers_are_woken() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
    for rank in 0..2 {
        let place = segment.require(rank).unwrap();
        segment.rank(place).pid.store(std::process::id(), std::sync::atomic::Ordering::Relaxed);
        cma::publish(&segment, place);
    }
    let body = |rank: u32, config: Config| {
        let mut p2p =
            P2p::new(Reach::Shm(Port::new(segment.clone(), segment.require(rank).unwrap())), config);
        for round in 0..60u64 {
            for bytes in [8, 5000, 600_000] {
                let (from, into) = (Bytes::new(bytes).holding(round), Bytes::new(bytes));
                let first = p2p.irecv(1, None, None, into.buffer());
                // One rank answers what the other starts, so one of them always sleeps.
                if rank == 1 {
                    sleep_until(&mut p2p, &segment, first);
                }
                let send = p2p.isend(Mode::Synchronous, 1, 1 - rank, 0, from.buffer()).unwrap();
                if rank == 0 {
                    sleep_until(&mut p2p, &segment, first);
                }
                sleep_until(&mut p2p, &segment, send);
                p2p.free(first);
                p2p.free(send);
                if bytes < 600_000 {
                    into.assert_holds(round, bytes);
                }
            }
        }
    };
    for config in configs() {
        std::thread::scope(|scope| {
            scope.spawn(|| body(1, config));
            body(0, config);
        });
    }
}

fn sleep_until(p2p: &mut P2p, segment: &Segment, ticket: Ticket) {
    while !p2p.is_done(ticket) {
        if !p2p.poll().expect("no peer is corrupt") {
            segment
                .rank(segment.require(p2p.rank()).unwrap())
                .bell
                .sleep(std::time::Duration::from_secs(300), || p2p.may_sleep());
        }
    }
}

fn wait(p2p: &mut P2p, ticket: Ticket) -> Outcome {
    loop {
        if let Some(outcome) = p2p.take(ticket) {
            return outcome;
        }
        turn(p2p);
    }
}

fn carriers_and_configs() -> Vec<(Carrier, Config)> {
    let all = |carrier| configs().map(move |config| (carrier, config));
    [Carrier::Shm, Carrier::Tcp].into_iter().flat_map(all).collect()
}

fn configs() -> [Config; 3] {
    [
        Config { large_protocol: LargeProtocol::Cma, ..Config::default() },
        Config { large_protocol: LargeProtocol::Cells, ..Config::default() },
        Config { eager_bytes_max: 1000, credit_bytes: 4000, ..Config::default() },
    ]
}

/// Goal: messages of every length and layout arrive whole, by every protocol. Method: messages in both
/// directions at once, with lengths around all limits.
#[test]
fn every_length() {
    for (carrier, config) in carriers_and_configs() {
        run(carrier, 2, config, |p2p| {
            let peer = 1 - p2p.rank();
            for bytes in [
                0,
                8,
                40,
                41,
                1000,
                1001,
                8192,
                8193,
                50_000,
                64 << 10,
                (64 << 10) + 1,
                300_000,
                301_000,
                3 << 20,
            ] {
                for (gap_there, gap_here) in [(0, 0), (16, 0), (0, 16), (16, 24)] {
                    let piece = if bytes == 301_000 {
                        1000
                    } else if bytes % 8 == 0 {
                        8
                    } else {
                        1
                    };
                    let piece = if gap_there + gap_here == 0 { bytes.max(1) } else { piece };
                    if bytes > 301_000 && gap_there + gap_here > 0 {
                        continue;
                    }
                    let from = Bytes::with_gaps(bytes, piece, gap_there).holding(u64::from(peer));
                    let into = Bytes::with_gaps(bytes, piece, gap_here);
                    let receive = p2p.irecv(1, Some(peer), None, into.buffer());
                    let send = p2p.isend(Mode::Standard, 1, peer, bytes as i32, from.buffer()).unwrap();
                    let outcome = wait(p2p, receive);
                    assert_eq!((outcome.tag, outcome.bytes), (bytes as i32, bytes));
                    wait(p2p, send);
                    into.assert_holds(u64::from(p2p.rank()), bytes);
                }
            }
        });
    }
}

/// Goal: many messages in every direction, far more than rings and credits allow at once, stay in order.
/// Method: four ranks send each other messages of random lengths before they receive any.
#[test]
fn floods_stay_in_order() {
    seeds(6, |seed| {
        let all = carriers_and_configs();
        let (carrier, config) = all[seed as usize % all.len()];
        let ranks = 4;
        let bytes_of = |from: u32, to: u32, i: u64| {
            let mixed = (seed + 1).wrapping_mul(u64::from(from * 4 + to) + 1).wrapping_mul(i * 2 + 1) >> 3;
            8 + [0, 8, 50, 3000, 30_000, 100_000][mixed as usize % 6]
        };
        run(carrier, ranks, config, |p2p| {
            let me = p2p.rank();
            let sent: Vec<(u32, Bytes)> = (0..60)
                .flat_map(|i| (0..ranks).map(move |to| (to, Bytes::new(bytes_of(me, to, i)).holding(i))))
                .collect();
            let sends: Vec<Ticket> = sent
                .iter()
                .map(|(to, message)| p2p.isend(Mode::Standard, 9, *to, 3, message.buffer()).unwrap())
                .collect();
            let mut next = vec![0; ranks as usize];
            for _ in 0..sent.len() {
                let into = Bytes::new(100_008);
                let receive = p2p.irecv(9, None, Some(3), into.buffer());
                let outcome = wait(p2p, receive);
                let i = &mut next[outcome.source_peer as usize];
                assert_eq!(outcome.bytes, bytes_of(outcome.source_peer, me, *i));
                into.assert_holds(*i, outcome.bytes);
                *i += 1;
            }
            for send in sends {
                wait(p2p, send);
            }
        });
    });
}

/// Goal: long messages arrive even where cross-memory attach is forbidden.
#[test]
fn without_cma() {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
    segment.job().cma_forbidden.store(1, std::sync::atomic::Ordering::Relaxed);
    let config = Config { large_protocol: LargeProtocol::Cma, ..Config::default() };
    let [mut a, mut b] = [0, 1]
        .map(|rank| P2p::new(Reach::Shm(Port::new(segment.clone(), segment.require(rank).unwrap())), config));
    let (from, into) = (Bytes::new(1 << 20).holding(4), Bytes::new(1 << 20));
    let send = a.isend(Mode::Standard, 1, 1, 0, from.buffer()).unwrap();
    let receive = b.irecv(1, None, None, into.buffer());
    while !(a.is_done(send) && b.is_done(receive)) {
        turn(&mut a);
        turn(&mut b);
    }
    into.assert_holds(4, 1 << 20);
}
