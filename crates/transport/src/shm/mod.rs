//! Shared memory on one node.

pub mod segment;
