// SPDX-License-Identifier: BSD-3-Clause
//! The counters in a form for people: numbers with units, and the table and sentences that OUTBOARD_STATS=1
//! prints.

use std::fmt::Write;

use crate::{Counter, CounterPage, Operations, Sum, Unit};

/// Writes a value in at most seven characters: `1234`, `56.7K`, `1.2MiB`, `34.5ms`.
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
    // Multiples of the unit itself are whole; three digits are enough for the rest.
    let digits = if *factor == 1.0 || scaled >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$}{suffix}")
}

/// Makes the text that OUTBOARD_STATS=1 prints about a job that has run for `age_ns` nanoseconds.
pub fn all(
    age_ns: u64,
    ranks: &[&CounterPage],
    operations: &[&Operations],
    proxies: &[&CounterPage],
) -> String {
    let age = age_ns as f64 / 1e9;
    format!("after {age:.3} s of wall time:\n{}{}", table(ranks, proxies), sentences(operations))
}

/// Makes a table with a line for each counter that is not zero everywhere. The line has the sum over the
/// ranks, the least and the greatest value of a rank, and the sum over the proxies.
pub fn table(ranks: &[&CounterPage], proxies: &[&CounterPage]) -> String {
    let mut text = format!(
        "{:<30} {:>10} {:>10} {:>10} {:>10}\n",
        format!("counters of {} ranks", ranks.len()),
        "all ranks",
        "least",
        "most",
        "proxies"
    );
    for &counter in Counter::ALL {
        let of = |pages: &[&CounterPage]| pages.iter().map(|page| page.value(counter)).collect::<Vec<_>>();
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

/// The most sentences about functions and comms that are printed. They are about the functions in which the
/// ranks spent the most time.
const SENTENCES: usize = 24;

/// Makes the sentences that OUTBOARD_STATS=1 prints, one for each function and comm. Each has the sums of
/// bytes and of proxies' processor time, and mean times.
pub fn sentences(ranks: &[&Operations]) -> String {
    let mut all: Vec<(String, u64, [u64; Sum::ALL.len()])> = Vec::new();
    for (name, row) in ranks.iter().flat_map(|operations| operations.rows()) {
        let found = all.iter().position(|(known, ..)| *known == name);
        let at = found.unwrap_or_else(|| {
            all.push((name, 0, [0; Sum::ALL.len()]));
            all.len() - 1
        });
        let (_, ranks, sums) = &mut all[at];
        *ranks += 1;
        sums.iter_mut().zip(Sum::ALL).for_each(|(sum, which)| *sum += row.sum(*which));
    }
    all.sort_by_key(|(_, ranks, sums)| std::cmp::Reverse(sums[Sum::HostNs as usize] / ranks));
    let mut text = String::new();
    for (name, ranks, sums) in all.iter().take(SENTENCES) {
        writeln!(text, "{}", sentence(name, *ranks, sums)).expect("a String takes all");
    }
    if all.len() > SENTENCES {
        writeln!(text, "and {} more", all.len() - SENTENCES).expect("a String takes all");
    }
    text
}

fn sentence(name: &str, ranks: u64, sums: &[u64]) -> String {
    let of = |sum: Sum| sums[sum as usize];
    let each = |sum: Sum| spaced(of(sum) / ranks, Unit::Nanoseconds);
    let (calls, carried, over) = (of(Sum::Calls), of(Sum::Carried), of(Sum::Over));
    // All ranks of a comm make one call of a collective; a message has one call at each end.
    let mut text = match of(Sum::Messages) {
        0 => format!("{name}, {} calls", calls.div_ceil(ranks)),
        messages => format!("{name}, {messages} messages"),
    };
    if ranks > 1 {
        write!(text, " of {ranks} ranks").expect("a String takes all");
    }
    text += ": ";
    if carried > 0 {
        let share = 100.0 * of(Sum::BesideNs) as f64 / of(Sum::CarriedNs).max(1) as f64;
        let bytes = spaced(of(Sum::CarriedBytes), Unit::Bytes);
        write!(
            text,
            "proxy carried {bytes} in {}, {share:.0} % of it beside computation",
            each(Sum::CarriedNs)
        )
        .expect("a String takes all");
        if carried < over {
            write!(text, " ({} % of the calls; the ranks the others themselves)", 100 * carried / over)
                .expect("a String takes all");
        }
    } else {
        write!(text, "{} by the ranks themselves", spaced(of(Sum::Bytes), Unit::Bytes))
            .expect("a String takes all");
    }
    write!(text, "; host {} in MPI", each(Sum::HostNs)).expect("a String takes all");
    if carried > 0 {
        let cpu = spaced(of(Sum::ProxyCpuNs), Unit::Nanoseconds);
        write!(text, "; proxy CPU {cpu}").expect("a String takes all");
    }
    if over < calls {
        write!(text, "; {} not complete", calls - over).expect("a String takes all");
    }
    text
}

/// Writes a value as [`short`] does, with a space before the unit: `1.2 MiB`.
pub fn spaced(value: u64, unit: Unit) -> String {
    let text = short(value, unit);
    let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
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
        let (a, b, p) = (CounterPage::new(), CounterPage::new(), CounterPage::new());
        a.count(Counter::BarrierCalls, 3);
        b.count(Counter::BarrierCalls, 5);
        p.count(Counter::Steps, 7);
        let table = table(&[&a, &b], &[&p]);
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["barrier_calls", "8", "3", "5"]);
        assert_eq!(words[2], ["steps", "0", "0", "0", "7"]);
        assert_eq!(words.len(), 3);
    }

    #[test]
    fn a_sentence_says_whether_it_overlapped() {
        let (a, b) = (Operations::new(), Operations::new());
        for page in [&a, &b] {
            page.enter("MPI_Ialltoall on MPI_COMM_WORLD");
            let row = page.rows().next().unwrap().1;
            let sums =
                [100, 0, 100, 838860800, 400_000, 100, 858993459, 145_000_000, 134_850_000, 185_000_000];
            Sum::ALL.iter().zip(sums).for_each(|(sum, value)| row.add(*sum, value));
        }
        a.enter("MPI_Barrier on c");
        a.rows().nth(1).unwrap().1.add(Sum::Calls, 1);
        for (page, sends) in [(&a, 7), (&b, 5)] {
            let row = page.enter("MPI_Send on c");
            let sums = [sends, sends, sends, 1024 * sends];
            let (_, row) = page.rows().nth(row).unwrap();
            Sum::ALL.iter().zip(sums).for_each(|(sum, n)| row.add(*sum, n));
        }
        assert_eq!(
            sentences(&[&a, &b]),
            "MPI_Ialltoall on MPI_COMM_WORLD, 100 calls of 2 ranks: proxy carried 1.6 GiB in 145 ms, 93 % of it beside \
             computation; host 400 us in MPI; proxy CPU 370 ms\n\
             MPI_Barrier on c, 1 calls: 0 B by the ranks themselves; host 0 ns in MPI; 1 not complete\n\
             MPI_Send on c, 12 messages of 2 ranks: 12.0 KiB by the ranks themselves; host 0 ns in MPI\n"
        );
    }
}
