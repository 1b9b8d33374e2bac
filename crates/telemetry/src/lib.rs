//! Counters that are always on, and events while tracing.
