// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of this crate, from settings and tuning.

use crate::Offload;
use tuning::{INLINE_BYTES_MAX, Tuning};

/// The bounds at which an executor or a proxy chooses another way: lengths in bytes, times, numbers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Overrides `Start::offload`: `Off` wins over everything, `On` over `Auto`.
    pub offload: Offload,
    /// The fewest bytes, of those that the rank's steps move, at which `Offload::Auto` takes a proxy.
    pub offload_bytes_min: u64,
    /// Whether `Offload::Auto` takes a proxy only if the rank computes while such operations are under way.
    pub measures: bool,
    /// The most bytes that a step moves before other steps and instances get their turn.
    pub chunk_bytes: u64,
    /// A send of private memory up to this length is staged in the arena, so that its receiver needs no
    /// system call.
    pub inline_bytes_max: u64,
    /// A send to another host up to this length is staged in the arena, so that its operation is complete
    /// before the receiver has the bytes.
    pub far_copy_bytes_max: u64,
    /// An operation whose datatypes have more runs than this is executed by the caller.
    pub layout_runs_max: usize,
    /// A proxy whose heartbeat stands still for so many milliseconds counts as stalled, and is killed.
    pub proxy_timeout_ms: u64,
    /// How many microseconds a proxy polls after its last work before it sleeps.
    pub proxy_poll_us: u64,
    /// The most schedules of which a rank keeps the programs in its arena.
    pub programs_max: usize,
    /// The most bytes of scratch and staging that idle instances keep.
    pub idle_bytes_max: u64,
}

impl Config {
    /// The configuration that the user's settings and the measured values give.
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
