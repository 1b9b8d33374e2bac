//! Runs schedules: in the calling thread (`caller`) or in another process (`proxy`), by one engine.
#![forbid(unsafe_code)]
