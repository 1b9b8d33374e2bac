//! Matching: the posted queue and the unexpected queue of one lane (MPI 5.0, section 3.5). Pure: no I/O, no clock.
#![forbid(unsafe_code)]
