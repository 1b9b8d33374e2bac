// SPDX-License-Identifier: BSD-3-Clause
//! Who carried an operation out (proxy, rank, device or library), and why: what `outboard explain` prints.

/// The reason why a proxy, the rank, a device or a library carries an operation out. The reasons for a proxy
/// come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // `why` says it.
pub enum Choice {
    ProxyAlways,
    ProxyLong,
    Off,
    Blocking,
    Short,
    Empty,
    OtherHosts,
    Waits,
    Slower,
    NoProxy,
    ProxyGone,
    UserOperator,
    Layout,
    Within,
    NotExported,
    Unreachable,
    Full,
    TakenBack,
    #[default]
    Slots,
    Scheduled,
    Device,
    LibraryLong,
    LibraryFaster,
    LibraryUnequal,
    Eager,
    Rendezvous,
}

use Choice::*;

/// Each choice with its reason, as the end of the sentence "the rank did it: ...", in the order of `Choice`.
const WHY: [(Choice, &str); 26] = [
    (ProxyAlways, "OUTBOARD_OFFLOAD=on"),
    (ProxyLong, "it moves at least OUTBOARD_OFFLOAD_BYTES_MIN"),
    (Off, "OUTBOARD_OFFLOAD=off"),
    (Blocking, "it is a blocking call, which the rank carries out itself"),
    (Short, "it moves less than OUTBOARD_OFFLOAD_BYTES_MIN"),
    (Empty, "this rank has nothing to move"),
    (OtherHosts, "its blocks go to other hosts as messages of the ranks"),
    (Waits, "the program only waited in the calls before it, so nothing would overlap"),
    (Slower, "the program's steps took longer while the proxy carried such calls out"),
    (NoProxy, "this rank has no proxy (mpirun --proxies)"),
    (ProxyGone, "the proxy was not running yet, or has died or stalled"),
    (UserOperator, "the operator is a function of the program"),
    (Layout, "the datatype has too many runs"),
    (Within, "it stays within this host, which the proxy on another computer leaves to the ranks"),
    (NotExported, "the proxy on another computer does not take it"),
    (Unreachable, "the proxy cannot reach the buffers (take them from MPI_Alloc_mem)"),
    (Full, "the proxy had no room for one more"),
    (TakenBack, "the proxy died, stalled or gave it back"),
    (Slots, "it went through the slots that the ranks share, without a schedule"),
    (Scheduled, "it went by a schedule, as slots, devices and libraries do not take it"),
    (Device, "the devices reduced it (OUTBOARD_DEVICE_BYTES_MIN)"),
    (LibraryLong, "OUTBOARD_CCL takes from OUTBOARD_CCL_BYTES_MIN on, or 64 KiB"),
    (LibraryFaster, "OUTBOARD_CCL is faster from this length on (outboard tune --device)"),
    (LibraryUnequal, "OUTBOARD_CCL takes it at any length, as ranks do not know each other's"),
    (Eager, "it was sent before the receiver asked"),
    (Rendezvous, "it moved once the receiver's buffer was known"),
];

impl Choice {
    /// Whether a proxy carries the operation out, and not the rank, a device or a library.
    #[inline]
    pub fn is_proxy(self) -> bool {
        self <= ProxyLong
    }

    /// Returns who carries the operation out: `proxy`, `rank`, `device` or `library`.
    pub fn by(self) -> &'static str {
        match self {
            _ if self.is_proxy() => "proxy",
            Device => "device",
            LibraryLong | LibraryFaster | LibraryUnequal => "library",
            _ => "rank",
        }
    }

    /// Returns the reason of the choice, as the end of a sentence.
    pub fn why(self) -> &'static str {
        WHY[self as usize].1
    }

    /// Returns the choice that a trace stores as `number`, or None if there is no such choice.
    pub(crate) fn of(number: u64) -> Option<Choice> {
        WHY.get(usize::try_from(number).ok()?).map(|(choice, _)| *choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for (number, (choice, why)) in WHY.into_iter().enumerate() {
            assert_eq!((choice as usize, Choice::of(number as u64)), (number, Some(choice)));
            assert_eq!(choice.by() == "proxy", why == "OUTBOARD_OFFLOAD=on" || why.contains("at least"));
            assert_eq!(choice.by() == "library", why.starts_with("OUTBOARD_CCL"));
        }
        assert_eq!(Choice::of(WHY.len() as u64), None);
    }
}
