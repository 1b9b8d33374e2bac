// SPDX-License-Identifier: BSD-3-Clause
//! An instance for tests: the part of one rank in a broadcast from rank 0 to rank 1, which is on another
//! host.

use super::Execution;
use crate::buffers::{Buffers, Spot};
use crate::checked::CheckedSchedule;
use crate::memory::{Driver, Reach};
use crate::peer::Peer;
use crate::record::{InstanceRecord, record_bytes};
use schedule::{Algorithm, Params};
use std::sync::Arc;
use transport::shm::{Allocator, Segment, Shape};

/// Returns rank `rank`'s part of a broadcast of `bytes` bytes, and that rank's access to the job's memory.
/// The broadcast's buffers have no memory. Sends of at least `fetched_bytes_min` bytes are fetched.
pub(super) fn broadcast(rank: u32, bytes: u64, fetched_bytes_min: u64) -> (Execution, Reach) {
    let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 << 20 }).unwrap();
    segment.set_nodes(rank, 2, &[0, 1], 1);
    let own = segment.local(rank).expect("it is on this host");
    let mut allocator = Allocator::new(segment.arena(own).unwrap(), 16 << 20);
    let plan = Algorithm::BcastBinomial.plan(&Params::new(rank, 2));
    let steps = plan.steps.len() as u32;
    let at = allocator.alloc(record_bytes(steps as usize)).unwrap();
    let record = InstanceRecord::new(allocator.arena(), at, steps).unwrap();
    record.clear();
    let mut buffers = Buffers::default();
    buffers.spots = vec![Spot { bytes, ..Spot::default() }; steps as usize];
    let plan = Arc::new(CheckedSchedule::new(Arc::new(plan)).unwrap());
    let peers = [0, 1].map(|peer| Peer::of(peer, &segment)).into();
    let mut run = Execution::new(plan, own, record, peers, buffers);
    run.restart(1, 1);
    run.expect_remote(fetched_bytes_min);
    (run, Reach::new(segment, Driver::Rank(own), 1 << 20))
}
