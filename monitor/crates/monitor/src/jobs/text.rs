// SPDX-License-Identifier: BSD-3-Clause
//! What the readers of several batch systems share: limits, and the reading of texts and times.

use serde_json::Value;

/// The most jobs that are read of one batch system.
pub const JOBS_MAX: usize = 100_000;
/// The most nodes that a node list may name.
pub const NODES_MAX: usize = 65_536;

/// Returns the text in a JSON value without control characters, or an empty text if the value is no text.
pub fn words(value: &Value) -> String {
    value.as_str().unwrap_or_default().chars().filter(|char| !char.is_control()).take(4096).collect()
}

/// Returns a time in UTC as milliseconds since 1970. `clock` is written `10:00:01`. Returns None for an
/// impossible time or a time before 1970.
pub fn civil(year: u64, month: u64, day: u64, clock: &str) -> Option<u64> {
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = parts[..] else { return None };
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !is_time || !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    // Days of the same count at 1 January 1970.
    const EPOCH: u64 = 719_469;
    Some((days.checked_sub(EPOCH)? * 86_400 + hour * 3600 + minute * 60 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        assert_eq!(civil(1970, 1, 1, "00:00:00"), Some(0));
        assert_eq!(civil(2024, 2, 29, "23:59:59"), Some(1_709_251_199_000));
        assert_eq!(civil(2026, 11, 25, "14:12:00"), Some(1_795_615_920_000));
        assert_eq!(civil(2026, 13, 1, "00:00:00"), None);
        assert_eq!(civil(2026, 1, 1, "00:00"), None);
    }
}
