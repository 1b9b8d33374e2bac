//! Settings: every knob of the library, from one table (`tables/settings.toml`), read from the environment once.
#![forbid(unsafe_code)]
