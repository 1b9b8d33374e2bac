// SPDX-License-Identifier: BSD-3-Clause
//! Tests of two endpoints of this process over the tcp provider on loopback: packets, reads and writes of
//! memory, and errors.

use outboard_fabric::{
    Config, Endpoint, Event, Libfabric, Packet, ProviderChoice, Region, RemoteMemory, Sent, choose,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use sys::{Block, Span};

/// How long a test may take before it counts as hanging.
const HANGS: Duration = Duration::from_secs(60);

fn open(config: Config) -> Endpoint {
    open_by("tcp", config)
}

fn open_by(provider: &str, config: Config) -> Endpoint {
    let library = Libfabric::load(None).unwrap();
    let provider =
        choose(&library, &ProviderChoice::provider(provider), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
            .unwrap()
            .remove(0);
    // SAFETY: each test uses its endpoints from one thread.
    unsafe { Endpoint::open(provider, config) }.unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < HANGS, "no {what} after {HANGS:?}");
    }
}

fn quiet(event: Event) {
    panic!("nothing was expected, but {event:?}");
}

fn keep(event: Event, packets: &mut VecDeque<Packet>) {
    match event {
        Event::Packet(packet) => packets.push_back(packet),
        other => quiet(other),
    }
}

fn bytes_of(span: Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes()];
    span.read(&mut bytes);
    bytes
}

/// Makes packet `number`: its length and every byte follow from the number.
fn packet(number: u64, bytes_max: usize) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(number);
    let bytes =
        [random.random_range(1..=64), random.random_range(1..=bytes_max), bytes_max][number as usize % 3];
    (0..bytes).map(|_| random.random()).collect()
}

#[test]
fn packets_of_all_lengths_arrive_in_order_however_late_they_are_taken_and_however_long_they_are_kept() {
    let config = Config {
        packet_bytes_max: 4096,
        sends_max: 8,
        receive_buffers: 2,
        receive_buffer_bytes: 8192,
        accesses_max: 1,
    };
    let (mut a, mut b) = (open(config), open(config));
    let (to_b, to_a) = (a.insert(b.name()).unwrap(), b.insert(a.name()).unwrap());
    let mut random = SmallRng::seed_from_u64(1);
    let (mut sent, mut taken) = ([0u64; 2], [0u64; 2]);
    let mut kept = [VecDeque::new(), VecDeque::new()];
    until("end of the exchange", || {
        // For long times one end does not poll: the other end then finds no room and waits.
        let turn = random.random_range(0..2);
        let (end, to) = if turn == 0 { (&mut a, to_b) } else { (&mut b, to_a) };
        for _ in 0..random.random_range(1..40) {
            let next = packet((sent[turn] << 1) | turn as u64, config.packet_bytes_max);
            if sent[turn] < 1000 && end.send(to, next.len(), |span| span.write(&next)).unwrap() == Sent::Done
            {
                sent[turn] += 1;
            }
            let kept = &mut kept[turn];
            end.poll(|event| keep(event, kept)).unwrap();
            for _ in 0..random.random_range(0..4) {
                let Some(first) = kept.pop_front() else { break };
                let expected = packet((taken[turn] << 1) | (1 - turn as u64), config.packet_bytes_max);
                assert!(bytes_of(first.bytes()) == expected, "packet {} of end {}", taken[turn], 1 - turn);
                end.release(first);
                taken[turn] += 1;
            }
        }
        sent == [1000; 2] && taken == [1000; 2]
    });
}

#[test]
fn a_sender_finds_no_room_while_its_peer_takes_nothing() {
    let config = Config {
        packet_bytes_max: 4096,
        sends_max: 8,
        receive_buffers: 2,
        receive_buffer_bytes: 8192,
        accesses_max: 1,
    };
    let (mut a, mut b) = (open(config), open(config));
    let to = a.insert(b.name()).unwrap();
    let mut sent = 0u64;
    let mut full = 0;
    let mut kept = VecDeque::new();
    until("full endpoint", || {
        match a.send(to, 4096, |span| span.write(&sent.to_ne_bytes().repeat(512))).unwrap() {
            Sent::Done => (sent, full) = (sent + 1, 0),
            Sent::Full => full += 1,
        }
        a.poll(quiet).unwrap();
        // The connection needs both ends for a moment.
        if sent < 3 {
            b.poll(|event| keep(event, &mut kept)).unwrap();
        }
        // Sockets buffer a few megabytes, not more.
        assert!(sent < 100_000);
        full > 100_000
    });
}

#[test]
fn memory_is_read_and_written_where_it_was_registered_and_nowhere_else() {
    let config = Config::default();
    let (mut a, mut b) = (open(config), open(config));
    let to_b = a.insert(b.name()).unwrap();
    let (ours, theirs) = (Block::new(1 << 20), Block::new(1 << 20));
    let mut random = SmallRng::seed_from_u64(2);
    // SAFETY: the blocks outlive the endpoints' use of them.
    let mine = unsafe { a.register(ours.span()) }.unwrap();
    // SAFETY: as above.
    let exposed = unsafe { b.register(theirs.span()) }.unwrap();
    for token in 0..60 {
        let bytes = [random.random_range(1..100), random.random_range(1..1 << 20)][token as usize % 2];
        let (here, there) =
            (random.random_range(0..=(1 << 20) - bytes), random.random_range(0..=(1 << 20) - bytes));
        let fresh: Vec<u8> = (0..bytes).map(|_| random.random()).collect();
        let (near, far) = (ours.span().slice(here, bytes), theirs.span().slice(there, bytes));
        let reads = random.random();
        if reads {
            far.write(&fresh)
        } else {
            near.write(&fresh)
        }
        let (mut started, mut ended) = (false, false);
        until("end of an access", || {
            if !started {
                let answer = if reads {
                    // SAFETY: nobody else uses the blocks.
                    unsafe { a.read(to_b, exposed.remote(), there as u64, near, &mine, token) }
                } else {
                    // SAFETY: as above.
                    unsafe { a.write(to_b, exposed.remote(), there as u64, near, &mine, token) }
                };
                started = answer.unwrap() == Sent::Done;
            }
            a.poll(|event| match event {
                Event::Accessed(number) => (ended, _) = (true, assert_eq!(number, token)),
                other => quiet(other),
            })
            .unwrap();
            b.poll(quiet).unwrap();
            ended
        });
        // A write is complete for its origin before it must have been placed.
        until("the bytes", || {
            b.poll(quiet).unwrap();
            bytes_of(near) == fresh && bytes_of(far) == fresh
        });
    }
    let outside = |at, bytes| {
        let near = ours.span().slice(0, bytes);
        move |a: &mut Endpoint, mine: &Region| {
            // SAFETY: refused before anything is touched.
            unsafe { a.read(to_b, exposed.remote(), at, near, mine, 0) }
                .err()
                .map(|error| error.message.clone())
        }
    };
    assert!(outside(1 << 20, 1)(&mut a, &mine).unwrap().contains("not in a region"));
}

/// Goal: peers read exposed memory by the second endpoint (`target`), while packets use other connections.
/// They cannot read it once its region is dropped. Method: both ends read at once, more bytes than sockets
/// hold.
#[test]
fn both_ends_read_what_the_other_offers_until_it_is_offered_no_more() {
    const BYTES: usize = 8 << 20;
    let mut ends = [open(Config::default()), open(Config::default())];
    let blocks: [_; 2] = std::array::from_fn(|i| (Block::new(BYTES), Block::new(BYTES), i));
    // SAFETY: the blocks outlive the endpoints' use of them.
    let mut offers = [0, 1].map(|i| Some(unsafe { ends[i].expose(blocks[i].0.span()) }.unwrap()));
    // SAFETY: as above.
    let into = [0, 1].map(|i| unsafe { ends[i].register_readable(blocks[i].1.span()) }.unwrap());
    let names = [0, 1].map(|i| ends[i].target().unwrap().to_vec());
    assert_ne!(names[0], ends[0].name());
    let targets = [0, 1].map(|i| ends[i].insert(&names[1 - i]).unwrap());
    let remotes = [0, 1].map(|i| offers[1 - i].as_ref().unwrap().remote());
    for (own, _, i) in &blocks {
        own.span().write(&vec![*i as u8 + 1; BYTES]);
    }
    let (mut begun, mut ended) = ([false; 2], [0; 2]);
    until("reads both ways", || {
        for i in [0, 1] {
            if !begun[i] {
                // SAFETY: nobody else uses the blocks.
                let answer = unsafe {
                    ends[i].read(targets[i], remotes[i], 0, blocks[i].1.span(), &into[i], i as u64)
                };
                begun[i] = answer.unwrap() == Sent::Done;
            }
            ends[i]
                .poll(|event| match event {
                    Event::Accessed(token) => ended[token as usize] += 1,
                    other => quiet(other),
                })
                .unwrap();
        }
        ended == [1, 1]
    });
    for i in [0, 1] {
        assert!(bytes_of(blocks[i].1.span()) == vec![2 - i as u8; BYTES]);
    }
    offers[1] = None;
    let mut failed = false;
    // SAFETY: as above.
    let answer = unsafe { ends[0].read(targets[0], remotes[0], 0, blocks[0].1.span(), &into[0], 7) };
    assert_eq!(answer.unwrap(), Sent::Done);
    until("a refusal", || {
        ends[0].poll(|event| failed |= matches!(event, Event::Failed(7, _))).unwrap();
        ends[1].poll(|_| ()).unwrap();
        failed
    });
}

/// Goal: a target (the endpoint by which peers read exposed memory) takes short packets, many more than its
/// buffer holds, and reads between them succeed.
#[test]
fn a_target_takes_packets_between_reads() {
    const PACKETS: u64 = 500;
    for provider in ["tcp", "tcp;ofi_rxm"] {
        let (mut a, mut b) = (open_by(provider, Config::default()), open_by(provider, Config::default()));
        assert!(a.has_target_packets());
        let (theirs, ours) = (Block::new(4096), Block::new(4096));
        theirs.span().write(&packet(2, 4096));
        // SAFETY: the blocks outlive the endpoints' use of them.
        let offer = unsafe { b.expose(theirs.span()) }.unwrap();
        // SAFETY: as above.
        let into = unsafe { a.register_readable(ours.span()) }.unwrap();
        let target = a.insert(b.target().unwrap()).unwrap();
        let (mut sent, mut taken, mut reads) = (0, 0, (0, 0));
        until("packets and reads", || {
            if sent < PACKETS {
                let answer = a.send(target, 64, |to| to.write(&[sent as u8; 64])).unwrap();
                sent += u64::from(answer == Sent::Done);
            }
            if reads.0 == reads.1 && reads.0 < sent {
                // SAFETY: nobody else uses the block.
                let answer = unsafe { a.read(target, offer.remote(), 0, ours.span(), &into, 0) };
                reads.0 += u64::from(answer.unwrap() == Sent::Done);
            }
            a.poll(|event| reads.1 += u64::from(matches!(event, Event::Accessed(0)))).unwrap();
            let mut packets = VecDeque::new();
            b.poll(|event| keep(event, &mut packets)).unwrap();
            for packet in packets {
                assert_eq!(bytes_of(packet.bytes()), vec![taken as u8; 64]);
                taken += 1;
                b.release(packet);
            }
            taken == PACKETS && reads.1 > 9
        });
        assert_eq!(bytes_of(ours.span()), bytes_of(theirs.span()));
    }
}

#[test]
fn a_key_that_nobody_gave_out_fails() {
    let config = Config::default();
    let (mut a, mut b) = (open(config), open(config));
    let to_b = a.insert(b.name()).unwrap();
    let ours = Block::new(1 << 16);
    // SAFETY: the block outlives the endpoint.
    let mine = unsafe { a.register(ours.span()) }.unwrap();
    let forged = RemoteMemory { key: 0x1234_5678, base: 0, bytes: 1 << 16 };
    until("start of the read", || {
        a.poll(quiet).unwrap();
        b.poll(quiet).unwrap();
        // SAFETY: nobody else uses the block.
        unsafe { a.read(to_b, forged, 0, ours.span(), &mine, 77) }.unwrap() == Sent::Done
    });
    let mut failed = false;
    until("refusal", || {
        b.poll(|_| ()).unwrap();
        a.poll(|event| match event {
            Event::Failed(77, said) => (failed, _) = (true, assert!(!said.is_empty())),
            other => quiet(other),
        })
        .unwrap();
        failed
    });
}

/// Goal: a process that sends to an endpoint that has ended gets an event. The test uses the layer ofi_rxm:
/// tcp without this layer tries to connect for ever, and only reports that it has no room.
#[test]
fn who_sends_to_an_endpoint_that_is_gone_is_told() {
    let config = Config::default();
    let (mut a, mut b) = (open_by("tcp;ofi_rxm", config), open_by("tcp;ofi_rxm", config));
    let to_b = a.insert(b.name()).unwrap();
    let long = vec![7; a.packet_bytes_max()];
    let mut arrived = false;
    until("the first packet", || {
        if !arrived {
            let _ = a.send(to_b, 1, |span| span.write(&[1])).unwrap();
        }
        a.poll(quiet).unwrap();
        b.poll(|_| arrived = true).unwrap();
        arrived
    });
    drop(b);
    let mut told = false;
    until("news of the death", || {
        told |= a.send(to_b, long.len(), |span| span.write(&long)).is_err();
        a.poll(|event| match event {
            Event::Undelivered(to, said) => (told, _) = (true, assert!(to == to_b && !said.is_empty())),
            other => quiet(other),
        })
        .unwrap();
        told
    });
}

#[test]
fn who_sleeps_is_woken_by_a_packet() {
    let config = Config::default();
    let (mut a, mut b) = (open(config), open(config));
    let to_b = a.insert(b.name()).unwrap();
    let (mut sent, mut arrived, mut slept) = (false, false, false);
    until("packet for one that sleeps", || {
        if b.may_sleep() {
            let mut waits = [libc::pollfd {
                fd: std::os::fd::AsRawFd::as_raw_fd(&b.wait_fd().unwrap()),
                events: libc::POLLIN,
                revents: 0,
            }];
            // SAFETY: one live record.
            slept |= unsafe { libc::poll(waits.as_mut_ptr(), 1, 1) } == 1;
        }
        b.poll(|_| arrived = true).unwrap();
        if !sent {
            sent = a.send(to_b, 3, |span| span.write(b"abc")).unwrap() == Sent::Done;
        }
        a.poll(quiet).unwrap();
        arrived
    });
    assert!(slept, "the descriptor never became readable");
}

#[test]
fn names_of_other_lengths_are_refused() {
    let mut a = open(Config::default());
    let long = [a.name(), &[0]].concat();
    let other = [&[9, 3], &a.name()[2..]].concat();
    let sentence = a.insert(&other).err().unwrap().message.clone();
    assert!(sentence.contains("it uses libfabric 9.3, and this process libfabric "), "{sentence}");
    for name in [&[][..], &a.name().to_vec()[..5], &long] {
        assert!(a.insert(name).err().unwrap().message.contains("same provider"), "{name:?}");
    }
}
