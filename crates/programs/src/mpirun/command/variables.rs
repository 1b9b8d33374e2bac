// SPDX-License-Identifier: BSD-3-Clause
//! The settings (environment variables of `tables/settings.toml`) that `mpirun` itself obeys for the whole
//! job.

use settings::Settings;

use super::arguments::Global;
use super::say::Refusal;

/// Returns the settings that `mpirun` itself obeys, from its own environment and from `-genv`.
pub fn settings(global: &Global) -> Result<Settings, Refusal> {
    settings::parse(&all(global)).map_err(|error| Refusal::other(error.to_string()))
}

/// Returns all settings that have a value, as names and values of environment variables: first those of our
/// own environment, then those of `-genv`, which win.
pub fn all(global: &Global) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = settings::TABLE
        .iter()
        .filter_map(|row| Some((row.variable.to_string(), settings::text_in_environment(row)?)))
        .collect();
    let genv = global.genv();
    variables.extend(
        genv.iter().filter_map(|(name, value)| Some((name.to_str()?.into(), value.to_str()?.into()))),
    );
    variables
}
