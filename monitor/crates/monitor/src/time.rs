// SPDX-License-Identifier: BSD-3-Clause
//! The present time, and times in the form that the store reads.

/// Returns the present time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

/// Returns a time (milliseconds since 1970) in the form that ClickHouse reads as seconds. ClickHouse takes a
/// number for seconds only if the number has ten digits.
pub fn seconds(ms: u64) -> String {
    format!("{:010}.{:03}", ms / 1000, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_digits_that_clickhouse_asks_for() {
        assert_eq!(
            (seconds(0), seconds(1_764_000_000_007)),
            ("0000000000.000".into(), "1764000000.007".into())
        );
    }
}
