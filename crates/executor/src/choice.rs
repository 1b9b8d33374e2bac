// SPDX-License-Identifier: BSD-3-Clause
//! Chooses whether the rank (the caller) or its proxy executes an operation: by what the settings ask for,
//! what pays, and what is possible. Each rank decides for itself.

use crate::Offload;
use telemetry::Choice;

/// The facts of an operation by which `execute` chooses the rank or its proxy.
#[derive(Clone, Copy, Debug)]
pub struct OffloadTerms {
    /// The value of the setting OUTBOARD_OFFLOAD.
    pub setting: Offload,
    /// What `Start::offload` of this operation asks for: a proxy, no proxy, or a choice by length.
    pub start: Offload,
    /// The number of bytes that the rank's steps of the operation move.
    pub bytes: u64,
    /// The fewest bytes at which `Offload::Auto` wants a proxy.
    pub bytes_min: u64,
    /// Whether the rank has any step in the schedule. A proxy gets no schedule without steps.
    pub has_steps: bool,
    /// Whether the operation sends a message to another host, or receives one from there. A proxy cannot
    /// drive an operation that has such messages.
    pub has_messages: bool,
}

impl OffloadTerms {
    /// Returns the reason why the setting and the operation's start ask for a proxy, or for the rank.
    /// `Choice::is_proxy` says which of the two.
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

/// Decides whether the rank or its proxy executes an operation, and why. Calls `refuses` only if a proxy is
/// wanted: `refuses` returns why the proxy cannot have the operation, or None if it can.
pub fn execute(terms: &OffloadTerms, refuses: impl FnOnce() -> Option<Choice>) -> Choice {
    match terms.asks() {
        asked if !asked.is_proxy() => asked,
        _ if !terms.has_steps => Choice::Empty,
        _ if terms.has_messages => Choice::OtherHosts,
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
            has_messages: false,
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
            (OffloadTerms { has_messages: true, ..terms }, OtherHosts),
        ] {
            assert_eq!(with(terms), choice, "{terms:?}");
        }
        assert_eq!(execute(&terms, || Some(NoProxy)), NoProxy);
        assert_eq!(execute(&OffloadTerms { bytes: 0, ..terms }, || unreachable!("it is not asked")), Short);
    }
}
