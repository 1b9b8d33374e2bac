// SPDX-License-Identifier: BSD-3-Clause
//! The settings on which the choice of a carrier depends. All ranks of a job share them.

use crate::choose::AlgorithmChoice;
use executor::Offload;
use schedule::algorithm::Collective;
use settings::Settings;

/// The settings that decide which carrier takes a call, in the form in which the carriers use them.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The collectives that the settings allow to go over slots: bit c is set for collective number c.
    slots: u32,
    /// Whether the calling rank or a proxy is to execute schedules.
    pub offload: Offload,
    /// The fewest bytes of a collective that `Offload::Auto` gives to a proxy.
    pub offload_bytes_min: u64,
    /// Whether members compare the arguments of each collective first (OUTBOARD_CHECK).
    pub(super) is_checked: bool,
    /// The fewest bytes of a call that a collective library takes. With 0, the length that was measured for
    /// the library applies.
    pub(super) ccl_bytes_min: u64,
    /// The fewest bytes of a call that the kernels of devices take.
    pub(super) device_bytes_min: u64,
    /// Whether messages between hosts advance while their ranks compute, because the kernel moves them
    /// through sockets.
    pub is_carried_by_kernel: bool,
    /// Whether the settings let the kernels of devices carry out collectives (OUTBOARD_DEVICE).
    pub(super) has_devices: bool,
}

impl Policy {
    /// Makes the policy from the settings. `algorithms` holds the algorithms that the user has chosen.
    pub fn new(settings: &Settings, algorithms: &AlgorithmChoice) -> Policy {
        let offload = Offload::from(settings.offload);
        let is_checked = settings.check != 0;
        let may = |collective: &Collective| {
            !is_checked && offload != Offload::On && !algorithms.is_overruled(*collective)
        };
        Policy {
            slots: Collective::ALL.into_iter().filter(may).fold(0, |all, one| all | 1 << one as u32),
            offload,
            offload_bytes_min: settings.offload_bytes_min,
            is_checked,
            ccl_bytes_min: settings.ccl_bytes_min,
            device_bytes_min: settings.device_bytes_min,
            is_carried_by_kernel: false,
            has_devices: settings.device != settings::Device::Off,
        }
    }

    /// Whether a collective may go over slots. It may not if the user chooses an algorithm for it, has set
    /// OUTBOARD_CHECK, or wants all schedules on proxies (OUTBOARD_OFFLOAD=on).
    #[inline(always)]
    pub(crate) fn may_use_slots(&self, collective: Collective) -> bool {
        self.slots & 1 << collective as u32 != 0
    }
}
