//! The only wait loop: spin, yield, sleep.
#![forbid(unsafe_code)]
