// SPDX-License-Identifier: BSD-3-Clause
//! Chooses between proxy and caller: by what is asked for, what pays, and what is possible. Each rank decides
//! for itself.

use crate::Offload;
use telemetry::Choice;

/// The facts of an operation on which the choice of its executor depends.
#[derive(Clone, Copy, Debug)]
pub struct OffloadTerms {
    /// What the setting OUTBOARD_OFFLOAD asks for.
    pub setting: Offload,
    /// What the start of the operation asks for (`Start::offload`).
    pub start: Offload,
    /// The bytes that the rank's steps move.
    pub bytes: u64,
    /// The fewest bytes at which `Offload::Auto` asks for a proxy.
    pub bytes_min: u64,
    /// Whether the rank's schedule has any step. A proxy gets no empty schedule.
    pub has_steps: bool,
    /// Whether no edge to another host is a message. A proxy carries no messages.
    pub is_reached: bool,
}

impl OffloadTerms {
    /// Says whether the setting and the start ask for a proxy, and why (`Choice::is_proxy`).
    pub fn asks(&self) -> Choice {
        match (self.setting, self.start) {
            (Offload::Off, _) => Choice::Off,
            (_, Offload::Off) => Choice::Blocking,
            (Offload::On, _) | (_, Offload::On) => Choice::ProxyAlways,
            _ if self.bytes >= self.bytes_min => Choice::ProxyLong,
            _ => Choice::Short,
        }
    }
}

/// Decides who executes an operation, the rank or its proxy, and why. `refuses` is called only where a proxy
/// is wanted. It returns why the proxy does not get the operation, or None.
pub fn execute(terms: &OffloadTerms, refuses: impl FnOnce() -> Option<Choice>) -> Choice {
    match terms.asks() {
        asked if !asked.is_proxy() => asked,
        _ if !terms.has_steps => Choice::Empty,
        _ if !terms.is_reached => Choice::OtherHosts,
        asked => refuses().unwrap_or(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Choice::*;

    #[test]
    fn a_proxy_gets_what_is_asked_pays_and_is_possible() {
        let terms = OffloadTerms {
            setting: Offload::Auto,
            start: Offload::Auto,
            bytes: 100,
            bytes_min: 100,
            has_steps: true,
            is_reached: true,
        };
        let with = |terms: OffloadTerms| execute(&terms, || None);
        for (terms, choice) in [
            (terms, ProxyLong),
            (OffloadTerms { bytes: 99, ..terms }, Short),
            (OffloadTerms { bytes: 99, setting: Offload::On, ..terms }, ProxyAlways),
            (OffloadTerms { bytes: 99, start: Offload::On, ..terms }, ProxyAlways),
            (OffloadTerms { start: Offload::Off, setting: Offload::On, ..terms }, Blocking),
            (OffloadTerms { setting: Offload::Off, start: Offload::On, ..terms }, Off),
            (OffloadTerms { has_steps: false, ..terms }, Empty),
            (OffloadTerms { is_reached: false, ..terms }, OtherHosts),
        ] {
            assert_eq!(with(terms), choice, "{terms:?}");
        }
        assert_eq!(execute(&terms, || Some(NoProxy)), NoProxy);
        assert_eq!(execute(&OffloadTerms { bytes: 0, ..terms }, || unreachable!("it is not asked")), Short);
    }
}
