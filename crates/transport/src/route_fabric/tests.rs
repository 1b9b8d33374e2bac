// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the fabric route over the tcp provider on loopback.

use super::*;
use crate::sequence::Stamp;
use crate::shm::Shape;
use crate::wire::{PROBE, Wire};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use telemetry::{Counter, value};

const SECRET: u64 = 0x5ec;
const LIMIT: Duration = Duration::from_secs(60);

/// Makes the segment of host `node`, in a job with one rank on each of two hosts.
fn host(node: u32) -> (Segment, OwnedFd) {
    let (segment, fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap();
    segment.set_nodes(node, 2, &[0, 1], SECRET);
    segment.job().address.set("127.0.0.1");
    (segment, fd)
}

fn port(segment: &Segment, rank: u32) -> Port {
    Port::open(segment, EndpointOwner::Rank(segment.require(rank).unwrap()), &ProviderChoice::provider("tcp"))
        .unwrap()
}

/// Makes the segments of two hosts, and the ports of their ranks.
fn pair() -> ([(Segment, OwnedFd); 2], [Port; 2]) {
    let hosts = [host(0), host(1)];
    let ports = [port(&hosts[0].0, 0), port(&hosts[1].0, 1)];
    for (from, to) in [(0, 1), (1, 0)] {
        hosts[to].0.set_endpoint(from as u32, &hosts[from].0.endpoint(from as u32).unwrap());
    }
    (hosts, ports)
}

/// Goal: packets without the job's secret, of another version, of a rank that does not exist, too short,
/// or with impossible numbers are counted and change nothing. Method: an endpoint that belongs to no rank
/// sends each of them to a rank's port, and a good packet at last.
#[test]
fn a_strangers_packets_are_counted_and_change_nothing() {
    let (segment, _fd) = host(0);
    let mut port = port(&segment, 0);
    let library = Libfabric::load(None).unwrap();
    let provider = fabric::choose(&library, &ProviderChoice::provider("tcp"), "127.0.0.1".parse().ok())
        .unwrap()
        .swap_remove(0);
    // SAFETY: one thread uses it.
    let mut stranger = unsafe { Endpoint::open(provider, fabric::Config::default()) }.unwrap();
    let to = stranger.insert(&segment.endpoint(0).unwrap()).unwrap();
    let good = Wire {
        source: 1,
        generation: 0,
        header: Header { kind: 1, tag: 3, context: 4 },
        secret: SECRET,
        consumed: 0,
        stamp: Stamp { number: 0, answered: 0, wants_answer: false },
    };
    let numbered = |number, answered, kind| Wire {
        stamp: Stamp { number, answered, wants_answer: false },
        header: Header { kind, ..good.header },
        ..good
    };
    let spoilt = [
        ("another secret", Wire { secret: SECRET + 1, ..good }, 0, WIRE_BYTES + 8),
        ("a rank that is not there", Wire { source: 2, ..good }, 0, WIRE_BYTES + 8),
        ("the port's own rank", Wire { source: 0, ..good }, 0, WIRE_BYTES + 8),
        ("another version", good, 1, WIRE_BYTES + 8),
        ("too short", good, 0, WIRE_BYTES - 1),
        ("an answer to what was not sent", numbered(0, 1, 1), 0, WIRE_BYTES + 8),
        ("a number far ahead", numbered(1 << 20, 0, 1), 0, WIRE_BYTES + 8),
        ("a number long past", numbered(1 << 31, 0, 1), 0, WIRE_BYTES + 8),
        ("a probe far ahead", numbered(1 << 20, 0, PROBE), 0, WIRE_BYTES),
        ("nothing wrong", good, 0, WIRE_BYTES + 8),
    ];
    let begin = Instant::now();
    for (i, (what, wire, mask, bytes)) in spoilt.into_iter().enumerate() {
        let before = value(Counter::NetRefused);
        let (mut is_sent, mut writers) = (false, Vec::new());
        let is_good = i == spoilt.len() - 1;
        while (value(Counter::NetRefused) == before) != is_good || is_good && writers.is_empty() {
            assert!(begin.elapsed() < LIMIT, "{what}: nothing came");
            stranger.poll(|_| ()).unwrap();
            is_sent = is_sent
                || stranger
                    .send(to, bytes, |to| {
                        let whole = sys::Block::new(WIRE_BYTES + 8);
                        wire.write(whole.span());
                        let mut copy = whole.to_vec();
                        copy[0] ^= mask as u8;
                        to.write(&copy[..bytes]);
                    })
                    .unwrap()
                    == fabric::Sent::Done;
            port.arrivals(|peer| writers.push(peer));
        }
        assert_eq!(writers, if is_good { vec![1] } else { vec![] }, "{what}");
    }
    assert_eq!(value(Counter::NetRefused), spoilt.len() as u64 - 1);
}

/// Sends `packets` packets to `peer`, takes as many from `peer`, and checks that those from `peer` come in
/// order.
fn exchange(port: &mut Port, peer: u32, packets: u64) {
    let mut link = port.link(peer);
    let (mut sent, mut taken) = (0, 0);
    let begin = Instant::now();
    while sent < packets || taken < packets {
        assert!(begin.elapsed() < LIMIT, "{sent} packets of {packets} sent, {taken} taken");
        let header = Header { kind: 1, tag: 0, context: sent };
        if sent < packets && link.send(&header, 8, |to| to.write(&sent.to_ne_bytes())) == Sent::Done {
            sent += 1;
        }
        port.arrivals(|_| ());
        let mut number = [0; 8];
        while link
            .poll(|header, payload| {
                payload.read(&mut number);
                assert_eq!((header.context, u64::from_ne_bytes(number)), (taken, taken));
            })
            .unwrap()
        {
            taken += 1;
        }
    }
}

/// Goal: packets that carry bytes of edges leave only while few packets lack an answer. Notes (short
/// messages) always leave.
#[test]
fn bytes_of_edges_wait_for_answers() {
    const LONG: usize = 300;
    let (_hosts, mut ports) = pair();
    let begin = Instant::now();
    while !ports[0].has_room_for_edge(1, LONG) {
        assert!(begin.elapsed() < LIMIT, "they do not meet");
        ports.iter().for_each(|port| _ = port.has_arrivals());
    }
    let header = Header { kind: crate::packet::EDGE, tag: 0, context: 0 };
    let send = |port: &mut Port, bytes| port.send_edge(1, &header, bytes, |_| ());
    let mut sent = 0;
    while ports[0].has_room_for_edge(1, LONG) {
        assert_eq!(send(&mut ports[0], LONG), Sent::Done);
        sent += 1;
        assert!(sent < 100, "nothing bounds them");
    }
    assert_eq!((sent, send(&mut ports[0], LONG)), (8, Sent::Full));
    assert_eq!(send(&mut ports[0], 40), Sent::Done);
    let mut taken = 0;
    while taken < 9 || !ports[0].has_room_for_edge(1, LONG) {
        assert!(begin.elapsed() < LIMIT, "{taken} taken");
        ports[0].has_arrivals();
        taken += u32::from(ports[1].take_edge(|_, _, _| ()));
    }
}

/// Makes the segments of two hosts with one proxy each, the proxies' ports, and the numbers of their
/// endpoints.
fn two_proxies() -> ([(Segment, OwnedFd); 2], [Port; 2], [u32; 2]) {
    let hosts = [0, 1].map(|node| {
        let (segment, fd) = Segment::create(Shape { ranks: 2, proxies: 1, arena_bytes: 1 }).unwrap();
        segment.set_nodes(node, 2, &[0, 1], SECRET);
        segment.job().address.set("127.0.0.1");
        (segment, fd)
    });
    let ports = [0, 1].map(|at| {
        Port::open(&hosts[at].0, EndpointOwner::Proxy(0), &ProviderChoice::provider("tcp")).unwrap()
    });
    let [here, there] = [0, 1].map(|at| hosts[at].0.proxy_endpoint(0));
    hosts[0].0.set_endpoint(there, &hosts[1].0.endpoint(there).unwrap());
    hosts[1].0.set_endpoint(here, &hosts[0].0.endpoint(here).unwrap());
    (hosts, ports, [here, there])
}

/// Goal: once a proxy has ended, reads of memory that it has exposed end, too, and no packet is sent to it
/// any more.
#[test]
fn a_proxy_that_has_ended_takes_no_reads_and_no_packets() {
    const BYTES: usize = 64;
    let (hosts, [mut near, mut far], [_, there]) = two_proxies();
    let [from, to] = [0; 2].map(|_| sys::Block::new(BYTES));
    let own = near.register(to.span()).unwrap();
    let begin = Instant::now();
    let header = Header { kind: crate::packet::EDGE, tag: 0, context: 0 };
    while near.send_edge(there, &header, 8, |_| ()) == Sent::Full {
        assert!(begin.elapsed() < LIMIT, "they do not meet");
        near.has_arrivals();
        far.has_arrivals();
    }
    let mut read = |far: Option<&mut Port>, (exposed, name): &(RemoteRange, Box<[u8]>)| {
        let mut far = far;
        loop {
            assert!(begin.elapsed() < LIMIT, "a read has no end");
            match near.pull_edge((there, name), (*exposed, 0), to.span(), &own, 1) {
                Pull::Full => _ = far.as_mut().map(|far| far.has_arrivals()),
                Pull::Never => return false,
                Pull::Started => break,
            }
            near.has_arrivals();
        }
        loop {
            assert!(begin.elapsed() < LIMIT, "a read has no end");
            near.has_arrivals();
            far.as_mut().map(|far| far.has_arrivals());
            if let Some((1, is_there)) = near.pulled_edge() {
                return is_there;
            }
        }
    };
    let (exposed, name) = far.expose(from.span()).unwrap();
    let place = (exposed.remote_range(), name);
    assert!(read(Some(&mut far), &place), "it lives");
    drop((exposed, far));
    hosts[0].0.set_endpoint(there, &[]);
    (0..3).for_each(|_| assert!(!read(None, &place), "it has ended"));
    assert_eq!(near.send_edge(there, &header, 8, |_| ()), Sent::Full);
    assert!(near.broken().is_none() && lock(&near.net).is_idle());
}

/// Goal: a packet wakes a proxy that sleeps on its descriptor, and a proxy does not sleep while a packet
/// waits. Method: the receiving proxy polls only when it may not sleep, when it was woken, or after a nap.
#[test]
fn a_proxy_sleeps_on_its_descriptor_until_a_packet_comes() {
    let (_hosts, [mut near, mut far], [here, there]) = two_proxies();
    let header = Header { kind: crate::packet::EDGE, tag: 0, context: 0 };
    let (begin, mut sent, mut taken, mut woken) = (Instant::now(), 0, 0, 0);
    while taken < 10 {
        assert!(begin.elapsed() < LIMIT, "{sent} sent, {taken} taken");
        if sent == taken && near.send_edge(there, &header, 8, |_| ()) == Sent::Done {
            sent += 1;
        }
        near.has_arrivals();
        if let Some(most) = far.nap_max() {
            let nap = most.min(Duration::from_millis(5));
            woken += u32::from(sys::process::readable(far.descriptor().unwrap(), Some(nap)).unwrap());
        }
        taken += u32::from(far.take_edge(|from, _, _| assert_eq!(from, here)));
    }
    assert!(woken > 0, "the descriptor never became readable");
    assert!(!far.may_sleep(), "that is for ranks");
}

/// Goal: a packet that was sent arrives although its sender does not drive the network any more. This
/// holds for the first packet, too.
#[test]
fn a_packet_that_was_sent_needs_its_sender_no_more() {
    let (_hosts, ports) = pair();
    let [mut here, mut there] = [ports[0].link(1), ports[1].link(0)];
    let begin = Instant::now();
    let header = Header { kind: 1, tag: 0, context: 0 };
    while here.send(&header, 8, |to| to.write(&[7; 8])) == Sent::Full {
        assert!(begin.elapsed() < LIMIT, "it is not sent");
        ports.iter().for_each(|port| _ = port.has_arrivals());
    }
    while !there.poll(|_, _| ()).unwrap() {
        assert!(begin.elapsed() < LIMIT, "it does not arrive");
        ports[1].has_arrivals();
    }
}

/// Goal: two processes that connect to each other at once lose no packet, whatever the provider then does.
/// Method: two threads start together, again and again.
#[test]
fn two_that_connect_at_once_lose_nothing() {
    const ROUNDS: usize = 6;
    for _ in 0..ROUNDS {
        let (_hosts, ports) = pair();
        let (start, done) = (Barrier::new(2), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for (rank, mut port) in (0..).zip(ports) {
                let (start, done) = (&start, &done);
                scope.spawn(move || {
                    start.wait();
                    exchange(&mut port, 1 - rank, 20);
                    done.fetch_add(1, Ordering::AcqRel);
                    // The peer may still need an answer.
                    while done.load(Ordering::Acquire) < 2 {
                        port.has_arrivals();
                    }
                });
            }
        });
    }
}
