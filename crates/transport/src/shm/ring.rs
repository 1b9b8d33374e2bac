//! The ring of an ordered pair of ranks.

/// Slots of a ring.
pub(super) const SLOTS: u64 = 256;
/// Bytes of the area that holds payloads.
pub(super) const AREA_BYTES: u64 = 256 << 10;
/// Bytes of a whole ring: a page for both ends, the slots, the area.
pub(super) const BYTES: u64 = 4096 + SLOTS * 64 + AREA_BYTES;
