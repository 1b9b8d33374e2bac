// SPDX-License-Identifier: BSD-3-Clause
//! The tuning that this process uses: the values of the job's table, except where a setting overrides a
//! value.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use settings::{LargeProtocol, Settings};
use transport::shm::{JobPage, Segment};
use tuning::{
    Distance, EAGER_BYTES_MAX, FLAT_BYTES_MAX, INLINE_BYTES_MAX, Load, Probes, Tuning, VECTOR_COPIES,
    ValueSource, read_row,
};

/// Writes the tuning of this machine, which includes the facts of earlier jobs, into a job's page. The
/// creator of the job calls it before any process attaches.
pub fn set_tuning(job: &JobPage, tuning: &Tuning) {
    let words = job.tuning.iter().zip(tuning.to_words());
    words.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    // Elsewhere no rank tries the ways, and none looks for facts.
    if job.may_spin() && job.cma_forbidden.load(Ordering::Relaxed) == 0 {
        Probes(&job.probes).begin_with(tuning);
    }
}

/// Returns the tuning of this process. The first call reads it from the job's page, when the process joins.
pub(crate) fn of_process(segment: &Segment, settings: &Settings) -> &'static Tuning {
    static TUNING: OnceLock<Tuning> = OnceLock::new();
    TUNING.get_or_init(|| {
        let words = std::array::from_fn(|at| segment.job().tuning[at].load(Ordering::Relaxed));
        let tuning = overruled(Tuning::of_words(words), settings);
        if tuning.is_known(VECTOR_COPIES) {
            sys::copy::set_vectors(tuning.get(VECTOR_COPIES) != 0);
        }
        tuning
    })
}

/// Returns `tuning` with the values that settings override.
pub fn overruled(mut tuning: Tuning, settings: &Settings) -> Tuning {
    let mut set = |row, value| tuning.set(row, value, ValueSource::Setting);
    if settings.inline_bytes_max > 0 {
        set(INLINE_BYTES_MAX, settings.inline_bytes_max);
        set(FLAT_BYTES_MAX, settings.inline_bytes_max);
    }
    if settings.eager_bytes_max != Tuning::default().get(EAGER_BYTES_MAX) {
        set(EAGER_BYTES_MAX, settings.eager_bytes_max);
    }
    let read = match settings.large_protocol {
        LargeProtocol::Auto => return tuning,
        LargeProtocol::Cma => u64::MAX,
        LargeProtocol::Cells => 0,
    };
    let rows = Distance::ALL.into_iter().flat_map(|distance| Load::ALL.map(|load| read_row(distance, load)));
    rows.for_each(|row| set(row, read));
    tuning
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a setting wins over the table, the table over what is built in, and each value knows its source.
    #[test]
    fn settings_overrule_the_table() {
        let given = |name: &str, value: &str| {
            let pairs = [(name.to_owned(), value.to_owned())];
            settings::parse(&pairs).unwrap()
        };
        let mut table = Tuning::default();
        table.set(FLAT_BYTES_MAX, 4096, ValueSource::Table);
        let row = read_row(Distance::L3, Load::Many);
        let told = |tuning: &Tuning, row| (tuning.get(row), tuning.source(row));
        let plain = overruled(table, &Settings::default());
        assert_eq!(plain, table);
        let inline = overruled(table, &given("OUTBOARD_INLINE_BYTES_MAX", "8KiB"));
        assert_eq!(told(&inline, FLAT_BYTES_MAX), (8192, ValueSource::Setting));
        assert_eq!(told(&inline, INLINE_BYTES_MAX), (8192, ValueSource::Setting));
        let eager = overruled(table, &given("OUTBOARD_EAGER_BYTES_MAX", "8KiB"));
        assert_eq!(told(&eager, EAGER_BYTES_MAX), (8192, ValueSource::Setting));
        assert_eq!(told(&eager, row), (0, ValueSource::Default));
        let cma = overruled(table, &given("OUTBOARD_LARGE_PROTOCOL", "cma"));
        assert!(cma.read(Distance::L3, Load::Many).unwrap().has(1 << 30));
    }
}
