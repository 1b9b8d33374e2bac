// SPDX-License-Identifier: BSD-3-Clause
//! MVAPICH's environment variables (MVAPICH2 2.3.7 user guide, chapters 6 to 11). Outboard obeys each that
//! has a counterpart here, and one warning names all others. docs/migration.md has the table for users.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// What Outboard does when an environment variable of MVAPICH has a certain value.
pub(super) enum Meaning {
    /// Gives a setting of Outboard a value: its environment variable, and the value. A value from the user
    /// wins.
    Setting(&'static str, &'static str),
    /// Leaves the ranks unbound, as `--bind-to none` does.
    Unbound,
    /// Prints where each rank is bound, as `--report-bindings` does.
    ReportBindings,
}

const OBEYED: [(&str, &str, Meaning); 6] = [
    ("MV2_ENABLE_GPU", "1", Meaning::Setting("OUTBOARD_DEVICE", "auto")),
    ("MV2_USE_CUDA", "1", Meaning::Setting("OUTBOARD_DEVICE", "auto")),
    ("MV2_USE_ROCM", "1", Meaning::Setting("OUTBOARD_DEVICE", "auto")),
    ("MV2_SMP_USE_CMA", "0", Meaning::Setting("OUTBOARD_CMA", "off")),
    ("MV2_ENABLE_AFFINITY", "0", Meaning::Unbound),
    ("MV2_SHOW_CPU_BINDING", "1", Meaning::ReportBindings),
];

/// Returns what MVAPICH's variables among `variables` (names and values) mean here, and a sentence that names
/// the ones without effect. The sentence is None if all have an effect.
pub(super) fn meanings(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> (Vec<&'static Meaning>, Option<String>) {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let theirs: BTreeMap<_, _> =
        variables.filter_map(text).filter(|(name, _)| name.starts_with("MV2_")).collect();
    let (mut all, mut idle) = (Vec::new(), Vec::new());
    for (name, value) in &theirs {
        match OBEYED.iter().find(|(known, wanted, _)| known == name && wanted == value) {
            Some((_, _, meaning)) => all.push(meaning),
            // Another value asks for what is always so.
            None if OBEYED.iter().any(|(known, ..)| known == name) => {}
            None => idle.push(name.as_str()),
        }
    }
    let verb = if idle.len() == 1 { "has" } else { "have" };
    let sentence = format!(
        "{} {verb} no effect, being for MVAPICH; docs/migration.md says what to set instead",
        idle.join(", ")
    );
    (all, (!idle.is_empty()).then_some(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_obeyed_or_named() {
        let told = |words: &str| {
            let pairs = words.split(' ').filter_map(|word| word.split_once('='));
            let (all, sentence) = meanings(pairs.map(|(name, value)| (name.into(), value.into())));
            (all.len(), sentence.unwrap_or_default())
        };
        assert_eq!(told("MV2_ENABLE_GPU=1 HOME=/ MV2_ENABLE_AFFINITY=0"), (2, String::new()));
        assert_eq!(told("MV2_ENABLE_AFFINITY=1"), (0, String::new()));
        let (count, sentence) = told("MV2_IBA_HCA=mlx5_0 MV2_USE_RDMA_CM=0 MV2_USE_CUDA=1");
        assert_eq!(count, 1);
        assert!(sentence.starts_with("MV2_IBA_HCA, MV2_USE_RDMA_CM have no effect"), "{sentence}");
    }
}
