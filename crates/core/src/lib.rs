//! Room core.
