//! Room coll.
