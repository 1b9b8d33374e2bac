// SPDX-License-Identifier: BSD-3-Clause
//! Which collectives a collective library gets: one decision for calls of programs and for `outboard plan`.
//!
//! Invariant: it depends on what all members know alike.

use schedule::algorithm::Collective;
use settings::Settings;
use telemetry::Choice;

/// The least bytes for a library where nothing was measured.
const BYTES_MIN: u64 = 64 << 10;

/// A call of an intracommunicator, as far as the decision depends on it.
#[derive(Clone, Copy, Debug)]
pub struct ForLibrary {
    /// Which.
    pub collective: Collective,
    /// As `Call::bytes`.
    pub bytes: u64,
    /// The ranks of the comm.
    pub ranks: u32,
    /// Of a reduction: whether the library has its type and operator.
    pub is_known: bool,
}

impl ForLibrary {
    /// Why the library that OUTBOARD_CCL names gets the call; nothing if it does not. `measured`: from which
    /// length on it is faster, if that is known.
    pub fn choice(self, settings: &Settings, measured: impl FnOnce(&str) -> Option<u64>) -> Option<Choice> {
        use Collective::*;
        if self.ranks < 2 || settings.check != 0 {
            return None;
        }
        match self.collective {
            Barrier | Scan | Exscan => return None,
            Gatherv | Scatterv | Alltoallv | Alltoallw => return Some(Choice::LibraryUnequal),
            Reduce | Allreduce | ReduceScatter | ReduceScatterBlock if !self.is_known => return None,
            _ => {}
        }
        let (bytes_min, choice) = match settings.ccl_bytes_min {
            0 => match measured(self.collective.name()) {
                Some(bytes) => (bytes, Choice::LibraryFaster),
                None => (BYTES_MIN, Choice::LibraryLong),
            },
            bytes => (bytes, Choice::LibraryLong),
        };
        (self.bytes > 0 && self.bytes >= bytes_min).then_some(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_gets_what_it_can_and_what_is_long() {
        let choice = |collective, bytes, is_known, bytes_min, measured: Option<u64>| {
            let settings = Settings { ccl_bytes_min: bytes_min, ..Settings::default() };
            ForLibrary { collective, bytes, ranks: 4, is_known }.choice(&settings, |_| measured)
        };
        use Collective::*;
        assert_eq!(choice(Allreduce, 64 << 10, true, 0, None), Some(Choice::LibraryLong));
        assert_eq!(choice(Allreduce, (64 << 10) - 1, true, 0, None), None);
        assert_eq!(choice(Allreduce, 1 << 20, false, 0, None), None, "an operator that it lacks");
        assert_eq!(choice(Bcast, 1024, false, 0, Some(1024)), Some(Choice::LibraryFaster));
        assert_eq!(choice(Bcast, 1 << 20, false, 0, Some(u64::MAX)), None, "it is never faster");
        assert_eq!(choice(Bcast, 8, false, 8, Some(u64::MAX)), Some(Choice::LibraryLong), "the setting wins");
        assert_eq!(choice(Alltoallv, 0, false, 8, None), Some(Choice::LibraryUnequal));
        assert_eq!(choice(Scan, 1 << 20, true, 8, None), None);
        let alone = ForLibrary { collective: Bcast, bytes: 1 << 20, ranks: 1, is_known: true };
        assert_eq!(alone.choice(&Settings::default(), |_| None), None);
    }
}
