// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of the crate `executor`, taken from the user's settings and from measured values.

use crate::Offload;
use tuning::{INLINE_BYTES_MAX, Tuning};

/// The settings and limits of a rank's or proxy's executor: lengths in bytes, times, and numbers of things
/// kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// The setting OUTBOARD_OFFLOAD. `Off` here or in `Start::offload` forbids a proxy. Otherwise `On` in
    /// either of the two asks for a proxy whatever the length.
    pub offload: Offload,
    /// The fewest bytes that the rank's steps of an operation must move for `Offload::Auto` to take a proxy.
    pub offload_bytes_min: u64,
    /// Whether `Offload::Auto` takes a proxy only for operations during which the rank was seen to compute.
    pub measures: bool,
    /// The most bytes that one step moves before other steps and other operations get their turn.
    pub chunk_bytes: u64,
    /// The length in bytes up to which the rank copies a send from private memory to its arena, where the
    /// receiver reads the bytes without a system call.
    pub inline_bytes_max: u64,
    /// The length in bytes up to which the rank copies a send to another host to its arena, so that the
    /// operation can end before the receiver has the bytes.
    pub far_copy_bytes_max: u64,
    /// The most contiguous runs in all of an operation's datatypes together. Operations with more runs stay
    /// with the rank, and do not go to its proxy.
    pub layout_runs_max: usize,
    /// The time in milliseconds after which a proxy whose heartbeat stands still counts as stalled, and is
    /// killed.
    pub proxy_timeout_ms: u64,
    /// The time in microseconds for which a proxy without work polls before it sleeps.
    pub proxy_poll_us: u64,
    /// The most schedules that a rank keeps in its arena for further starts.
    pub programs_max: usize,
    /// The most bytes of scratch buffers and copies of sends that a rank keeps for further starts.
    pub idle_bytes_max: u64,
}

impl Config {
    /// Makes the configuration from the user's settings and the values measured on this machine.
    pub fn of(settings: &settings::Settings, tuning: &Tuning) -> Config {
        Config {
            offload: settings.offload.into(),
            offload_bytes_min: settings.offload_bytes_min,
            measures: true,
            chunk_bytes: settings.chunk_bytes,
            inline_bytes_max: tuning.get(INLINE_BYTES_MAX),
            proxy_timeout_ms: settings.proxy_timeout_ms,
            proxy_poll_us: settings.proxy_poll_us,
            ..Config::default()
        }
    }
}

impl From<settings::Offload> for Offload {
    fn from(setting: settings::Offload) -> Offload {
        match setting {
            settings::Offload::Auto => Offload::Auto,
            settings::Offload::On => Offload::On,
            settings::Offload::Off => Offload::Off,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            offload: Offload::Auto,
            offload_bytes_min: 16 << 10,
            measures: false,
            chunk_bytes: 256 << 10,
            inline_bytes_max: 1 << 20,
            far_copy_bytes_max: 512 << 10,
            layout_runs_max: 512,
            proxy_timeout_ms: 2000,
            proxy_poll_us: 1000,
            programs_max: 64,
            idle_bytes_max: 16 << 20,
        }
    }
}
