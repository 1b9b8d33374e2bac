// SPDX-License-Identifier: BSD-3-Clause
//! The memory that the processes of a job share on one host.
//!
//! Invariants: shared memory holds only atomics and bytes, so no content of it is undefined behaviour; a
//! value from shared memory is copied out, checked, then used.
//!
//! Read next: `segment.rs` (the layout), `pages.rs` (what each process publishes), `ring.rs`, `doorbell.rs`,
//! `arena.rs`.

mod allocator;
mod arena;
mod atomic;
pub mod cma;
mod doorbell;
mod endpoints;
mod extents;
pub mod launcher;
mod pages;
pub mod ring;
mod segment;
mod submission;
mod wait;
mod worlds;

pub use allocator::Allocator;
pub use arena::{Arena, ArenaWords};
pub use atomic::CacheLine;
pub use doorbell::{Doorbell, SleepEnd};
pub(crate) use endpoints::PROXY;
pub use endpoints::{EndpointOwner, proxy_endpoint};
pub use extents::FIRST_BYTES as FIRST_EXTENT_BYTES;
pub use pages::{
    DIRECTORY_BUCKETS, ENDPOINT_BYTES_MAX, EndCause, Gate, JobPage, LauncherRequest, PORTS_MAX, ProxyPage,
    RANKS_MAX, RankPage, RankSet, State, World,
};
pub use segment::{LocalRank, RankPageRef, Segment, Shape, unmapped};
pub use submission::SubmissionRing;
pub use wait::{WaitRecord, WaitReport};
