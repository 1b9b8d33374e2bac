//! Counters for people: numbers with units, and the table that OUTBOARD_STATS=1 prints.

use std::fmt::Write;

use crate::{Counter, Page, Unit};

/// A value in at most seven characters: `1234`, `56.7K`, `1.2MiB`, `34.5ms`.
pub fn short(value: u64, unit: Unit) -> String {
    const COUNTS: &[(&str, f64)] = &[("", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)];
    const BYTES: &[(&str, f64)] = &[
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
        ("TiB", 1099511627776.0),
        ("PiB", 1125899906842624.0),
    ];
    const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let scale = match unit {
        Unit::Count if value < 100_000 => return value.to_string(),
        Unit::Count => COUNTS,
        Unit::Bytes => BYTES,
        Unit::Nanoseconds => TIMES,
    };
    let fits = |&&(_, factor): &&(&str, f64)| value as f64 >= factor;
    let (suffix, factor) = scale.iter().rev().find(fits).unwrap_or(&scale[0]);
    let scaled = value as f64 / factor;
    // A unit's own multiples are whole; three digits say enough of the rest.
    let digits = if *factor == 1.0 || scaled >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$}{suffix}")
}

/// One line per counter that is not zero everywhere: sum, least and greatest over the ranks, and the sum over the proxies.
pub fn table(ranks: &[&Page], proxies: &[&Page]) -> String {
    let mut text = format!(
        "{:<30} {:>10} {:>10} {:>10} {:>10}\n",
        format!("counters of {} ranks", ranks.len()),
        "all ranks",
        "least",
        "most",
        "proxies"
    );
    for &counter in Counter::ALL {
        let of = |pages: &[&Page]| pages.iter().map(|page| page.value(counter)).collect::<Vec<_>>();
        let sum = |values: &[u64]| values.iter().fold(0u64, |sum, value| sum.wrapping_add(*value));
        let (ranks, proxies) = (of(ranks), of(proxies));
        if sum(&ranks) == 0 && sum(&proxies) == 0 {
            continue;
        }
        let show = |value: u64| short(value, counter.unit());
        let (least, most) = (ranks.iter().min().copied(), ranks.iter().max().copied());
        let on_proxies = if sum(&proxies) == 0 { String::new() } else { show(sum(&proxies)) };
        let line = format!(
            "{:<30} {:>10} {:>10} {:>10} {:>10}",
            counter.name(),
            show(sum(&ranks)),
            show(least.unwrap_or(0)),
            show(most.unwrap_or(0)),
            on_proxies
        );
        writeln!(text, "{}", line.trim_end()).expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values() {
        assert_eq!(short(99_999, Unit::Count), "99999");
        assert_eq!(short(1_500_000, Unit::Count), "1.5M");
        assert_eq!(short(0, Unit::Bytes), "0B");
        assert_eq!(short(1536, Unit::Bytes), "1.5KiB");
        assert_eq!(short(34_500_000, Unit::Nanoseconds), "34.5ms");
        assert_eq!(short(200_000_000_000, Unit::Nanoseconds), "200s");
        assert_eq!(short(u64::MAX, Unit::Bytes), "16384PiB");
    }

    #[test]
    fn the_table_has_sums_and_extremes_and_no_empty_line() {
        let (a, b, p) = (Page::new(), Page::new(), Page::new());
        a.count(Counter::BarrierCalls, 3);
        b.count(Counter::BarrierCalls, 5);
        p.count(Counter::Steps, 7);
        let table = table(&[&a, &b], &[&p]);
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["barrier_calls", "8", "3", "5"]);
        assert_eq!(words[2], ["steps", "0", "0", "0", "7"]);
        assert_eq!(words.len(), 3);
    }
}
