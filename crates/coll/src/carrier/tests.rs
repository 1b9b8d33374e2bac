// SPDX-License-Identifier: BSD-3-Clause
//! Tests of which carrier takes a call, as tables from facts to carriers.

use super::*;
use crate::call::{CollBuffer, Members};
use ::schedule::algorithm::Neighbors;
use Collective::*;
use datatype::Buffer;
use settings::Settings;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn policy(settings: &Settings) -> Policy {
    Policy::new(settings, &crate::AlgorithmChoice::from_settings(settings).unwrap())
}

fn call(collective: Collective, bytes: u64, members: u32) -> CallFacts {
    CallFacts {
        collective,
        bytes,
        members,
        mode: CallMode::Blocking,
        all_of_one_group: true,
        on_images: false,
    }
}

/// Returns the carrier that `choose` picks for `call`, and why. The other facts have default values, which
/// `change` may change.
fn chosen(call: CallFacts, change: impl Fn(&mut CarrierFacts)) -> (Carrier, Why) {
    let policy = policy(&Settings { device: settings::Device::Auto, ..Settings::default() });
    let slots = Slots::Attached(call.moves(Space::FULL));
    let mut facts = CarrierFacts { policy: &policy, library: None, on_devices: false, slots };
    change(&mut facts);
    choose(&call, &facts)
}

const SCHEDULE: (Carrier, Why) = (Carrier::Schedule, Why::Scheduled);
const SLOTS: (Carrier, Why) = (Carrier::Slots, Why::Slots);
const QUEUE: (Carrier, Why) = (Carrier::Queue, Why::Slots);

#[test]
fn slots_take_blocking_calls_that_fit() {
    for (call, carrier) in [
        (call(Barrier, 0, 2), SLOTS),
        (call(Barrier, 0, 1), SCHEDULE),
        (call(Barrier, 0, 17), SCHEDULE),
        (call(Bcast, MIB, 16), SLOTS),
        (call(Bcast, MIB + 1, 2), SCHEDULE),
        (call(Gather, MIB / 2, 2), SLOTS),
        (call(Gather, MIB / 2, 3), SCHEDULE),
        (call(Allreduce, MIB, 16), SLOTS),
        (call(Allreduce, MIB + 8, 2), SCHEDULE),
        (call(Alltoall, u64::MAX / 2, 2), SCHEDULE),
        (call(Alltoall, MIB, 2), SCHEDULE),
        (call(Alltoallv, 0, 16), SLOTS),
        (CallFacts { on_images: true, ..call(Allreduce, 8, 2) }, SCHEDULE),
        (CallFacts { all_of_one_group: false, ..call(Allgather, 8, 2) }, SCHEDULE),
    ] {
        assert_eq!(chosen(call, |_| ()), carrier, "{call:?}");
    }
}

const LESS: u64 = 16 << 10;

/// A function that returns the state of a comm's slots for a call.
type SlotState = fn(&CallFacts) -> Slots;
const REFUSED: SlotState = |_| Slots::Refused;
const UNATTACHED: SlotState = |_| Slots::Unattached;
const FULL: SlotState = |call| Slots::Attached(call.moves(Space::FULL));
const SMALLER: SlotState = |call| Slots::Attached(call.moves(Space { bytes_max: LESS, ..Space::FULL }));
const PULLING: SlotState =
    |call| Slots::Attached(call.moves(Space { inline_bytes_max: 64 << 10, ..Space::FULL }));

#[test]
fn slots_take_what_their_state_allows() {
    for (call, state, carrier) in [
        (call(Barrier, 0, 2), REFUSED, SCHEDULE),
        (call(Alltoallv, 0, 2), REFUSED, SCHEDULE),
        (call(Bcast, MIB, 2), UNATTACHED, SLOTS),
        (call(Bcast, LESS, 2), SMALLER, SLOTS),
        (call(Bcast, LESS + 1, 2), SMALLER, SCHEDULE),
        (call(Scatter, LESS / 2, 2), SMALLER, SLOTS),
        (call(Scatter, LESS / 2 + 1, 2), SMALLER, SCHEDULE),
        (call(Alltoall, MIB, 4), PULLING, SLOTS),
        (call(Alltoall, MIB, 5), PULLING, SCHEDULE),
        (call(Gather, MIB, 2), PULLING, SCHEDULE),
    ] {
        assert_eq!(chosen(call, |facts| facts.slots = state(&call)), carrier, "{call:?}");
    }
}

#[test]
fn a_queue_takes_what_does_not_block() {
    for mode in [CallMode::Nonblocking, CallMode::Persistent] {
        let call = |collective, bytes, members| CallFacts { mode, ..call(collective, bytes, members) };
        for (call, state, carrier) in [
            (call(Barrier, 0, 2), FULL, QUEUE),
            (call(Barrier, 0, 2), REFUSED, SCHEDULE),
            (call(Bcast, MIB, 2), FULL, QUEUE),
            (call(Bcast, MIB + 1, 2), FULL, SCHEDULE),
            (call(Bcast, LESS + 1, 2), SMALLER, SCHEDULE),
            // The call waits until the space is known.
            (call(Bcast, MIB + 1, 2), UNATTACHED, QUEUE),
            (call(Alltoallv, 0, 2), FULL, QUEUE),
            (call(Barrier, 0, 1), UNATTACHED, SCHEDULE),
            (call(Barrier, 0, 17), UNATTACHED, SCHEDULE),
            (CallFacts { on_images: true, ..call(Allreduce, 8, 2) }, UNATTACHED, SCHEDULE),
            (CallFacts { all_of_one_group: false, ..call(Allreduce, 8, 2) }, UNATTACHED, SCHEDULE),
        ] {
            assert_eq!(chosen(call, |facts| facts.slots = state(&call)), carrier, "{call:?}");
        }
    }
}

#[test]
fn settings_keep_calls_from_slots() {
    let of = |settings: Settings| {
        let policy = policy(&settings);
        [call(Allreduce, 8, 2), call(Bcast, 8, 2)].map(|call| {
            let slots = Slots::Attached(call.moves(Space::FULL));
            choose(&call, &CarrierFacts { policy: &policy, library: None, on_devices: false, slots })
        })
    };
    let default = Settings::default;
    assert_eq!(of(default()), [SLOTS, SLOTS]);
    assert_eq!(of(Settings { allreduce: "ring".into(), ..default() }), [SCHEDULE, SLOTS]);
    assert_eq!(of(Settings { offload: settings::Offload::On, ..default() }), [SCHEDULE, SCHEDULE]);
    assert_eq!(of(Settings { offload: settings::Offload::Off, ..default() }), [SLOTS, SLOTS]);
    assert_eq!(of(Settings { check: 1, ..default() }), [SCHEDULE, SCHEDULE]);
}

#[test]
fn a_library_gets_what_it_can_and_what_is_long() {
    let of = |call, bytes_min, measured, has_operator| {
        let policy = policy(&Settings { ccl_bytes_min: bytes_min, ..Settings::default() });
        chosen_of(call, &policy, LibraryFacts { measured, has_operator, may_join: true })
    };
    let by = |why| (Carrier::Library, why);
    assert_eq!(of(call(Allreduce, 64 << 10, 4), 0, None, true), by(Why::LibraryLong));
    assert_eq!(of(call(Allreduce, (64 << 10) - 1, 4), 0, None, true), SLOTS);
    assert_eq!(of(call(Allreduce, MIB, 4), 0, None, false), SLOTS, "an operator that it lacks");
    assert_eq!(of(call(Bcast, 1024, 4), 0, Some(1024), false), by(Why::LibraryFaster));
    assert_eq!(of(call(Bcast, MIB, 4), 0, Some(u64::MAX), false), SLOTS, "it is never faster");
    assert_eq!(of(call(Bcast, 8, 4), 8, Some(u64::MAX), false), by(Why::LibraryLong), "the setting wins");
    assert_eq!(of(call(Alltoallv, 0, 4), 8, None, false), by(Why::LibraryUnequal));
    assert_eq!(of(call(Scan, 64 << 10, 4), 8, None, true), SLOTS);
    assert_eq!(of(call(Bcast, MIB, 1), 0, None, true), SCHEDULE, "alone");
    let others = CallFacts { all_of_one_group: false, ..call(Bcast, MIB, 4) };
    assert_eq!(of(others, 0, None, true), SCHEDULE);
    let policy = policy(&Settings::default());
    let apart = LibraryFacts { measured: None, has_operator: true, may_join: false };
    assert_eq!(chosen_of(call(Bcast, MIB, 4), &policy, apart), SLOTS, "a communicator in another order");
}

fn chosen_of(call: CallFacts, policy: &Policy, library: LibraryFacts) -> (Carrier, Why) {
    let (library, slots) = (Some(library), Slots::Attached(call.moves(Space::FULL)));
    choose(&call, &CarrierFacts { policy, library, on_devices: false, slots })
}

#[test]
fn devices_reduce_long_vectors_among_few() {
    let least = Settings::default().device_bytes_min;
    let of = |call| chosen(call, |facts| facts.on_devices = true);
    let devices = (Carrier::Device, Why::Device);
    assert_eq!(of(call(Allreduce, least, 2)), devices);
    assert_eq!(of(CallFacts { mode: CallMode::Nonblocking, ..call(ReduceScatter, least, 2) }), devices);
    assert_eq!(of(CallFacts { mode: CallMode::Persistent, ..call(Allreduce, least, 2) }).0, Carrier::Queue);
    assert_ne!(of(call(Allreduce, least - 1, 2)), devices);
    assert_ne!(of(call(Scan, least, 2)), devices);
    assert_eq!(of(call(Allreduce, 2 * MIB, ::schedule::order::IN_RANKS_MAX + 1)), SCHEDULE);
    let library = |facts: &mut CarrierFacts| {
        facts.on_devices = true;
        facts.library = Some(LibraryFacts { measured: None, has_operator: true, may_join: true });
    };
    assert_eq!(chosen(call(Allreduce, MIB, 2), library).0, Carrier::Library, "it is asked first");
}

/// Goal: all ranks of a call decide alike which edges between hosts proxies fetch.
#[test]
fn all_ranks_decide_alike_which_edges_are_fetched() {
    let block = sys::Block::new(400);
    let part = |bytes: usize| CollBuffer::bytes(Buffer::from(block.span().slice(0, bytes)));
    let members = Members { context: 1, sequence: 1, rank: 0, peers: [0, 1, 2, 3].into(), first_group: 0 };
    let least = |first_group, neighbors: bool, collective, input, output, bytes_min| {
        let none = || Neighbors { rank: 0, size: 4, to: Vec::new(), from: Vec::new(), paired: false };
        let neighbors = neighbors.then(|| Arc::new(none()));
        let call = Call { neighbors, ..Call::new(collective, input, output) };
        let size = members.peers.len() as u32;
        let call = CallFacts::of(&call, size, first_group == 0, CallMode::Nonblocking, false);
        let policy = policy(&Settings { offload_bytes_min: bytes_min, ..Settings::default() });
        schedule::fetched_bytes_min(&policy, CallMode::Nonblocking, true, || call)
    };
    // The least bytes with which no edge is fetched are one more than the bytes that a rank sends and
    // receives.
    let common = |first_group, neighbors, collective, input: CollBuffer, output: CollBuffer, bytes: u64| {
        let of = |bytes| least(first_group, neighbors, collective, input.clone(), output.clone(), bytes);
        assert_eq!([of(bytes), of(bytes + 1)], [0, u64::MAX], "{collective:?} {input:?} {output:?}");
    };
    common(0, false, Allreduce, part(100), part(100), 200);
    common(0, false, Allreduce, CollBuffer::None, part(100), 200);
    common(0, false, Barrier, CollBuffer::None, CollBuffer::None, 0);
    common(0, false, Alltoall, part(400), part(400), 800);
    common(0, false, Gather, part(100), CollBuffer::None, 800);
    common(0, false, Gather, part(100), part(400), 800);
    assert_eq!(least(0, false, Alltoallv, part(400), part(400), u64::MAX), 0, "lengths are not known");
    assert_eq!(least(0, true, Alltoall, part(400), part(400), u64::MAX), 0, "neighbours");
    assert_eq!(least(2, false, Allreduce, part(100), part(100), u64::MAX), 0, "an intercommunicator");
    let of = |mode, offload| {
        let policy = policy(&Settings { offload, ..Settings::default() });
        schedule::fetched_bytes_min(&policy, mode, true, || CallFacts { mode, ..call(Bcast, MIB, 4) })
    };
    use settings::Offload;
    assert_eq!([of(CallMode::Nonblocking, Offload::Auto), of(CallMode::Blocking, Offload::On)], [0, 0]);
    assert_eq!(of(CallMode::Blocking, Offload::Auto), u64::MAX, "nobody overlaps anything");
}

#[test]
fn short_edges_of_exchanges_are_messages_where_the_kernel_carries_these() {
    let mut policy = policy(&Settings::default());
    policy.is_carried_by_kernel = true;
    let least = |call: CallFacts| {
        let call = CallFacts { mode: CallMode::Nonblocking, ..call };
        schedule::fetched_bytes_min(&policy, call.mode, true, || call)
    };
    for collective in [Alltoall, Alltoallv, Alltoallw] {
        assert_eq!(least(call(collective, MIB, 4)), schedule::EXCHANGED_BYTES_MIN, "{collective:?}");
    }
    let neighbors = CallFacts { all_of_one_group: false, ..call(Alltoallw, MIB, 4) };
    assert_eq!(least(neighbors), schedule::EXCHANGED_BYTES_MIN);
    assert_eq!([Bcast, Allreduce, Allgatherv].map(|it| least(call(it, MIB, 4))), [0; 3], "some edges wait");
}
