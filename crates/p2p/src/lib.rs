//! Point-to-point: eager and rendezvous.
#![forbid(unsafe_code)]
