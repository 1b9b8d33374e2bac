// SPDX-License-Identifier: BSD-3-Clause
//! The settings (OUTBOARD_... environment variables). One table, `tables/settings.toml`, lists all of them.
//! The environment is read once.
//!
//! `load` reads and checks the settings. MPI_Init and `mpirun` call it, and report its error. All other code
//! calls `get`. No other code of the library reads the environment, so `outboard info` shows all that
//! matters.
//!
//! Read next: `value.rs` (units and bounds), `agree.rs` (settings that must be equal in the processes of a
//! job), `launcher_variables.rs` (the few variables of other launchers that concern Outboard).
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::OnceLock;

use error::{Error, Result};

pub mod agree;
mod generated;
pub mod launcher_variables;
mod value;

pub use generated::*;
pub use value::{Scope, Setting, SettingKind, bytes, list};

/// Returns the settings of this process. If [`load`] has refused the environment, returns the defaults.
pub fn get() -> &'static Settings {
    static DEFAULTS: OnceLock<Settings> = OnceLock::new();
    load().unwrap_or_else(|_| DEFAULTS.get_or_init(Settings::default))
}

impl Default for Settings {
    /// Returns the settings in an environment without OUTBOARD_ variables.
    fn default() -> Settings {
        parse(&[]).expect("the defaults of tables/settings.toml are valid, as the tests check")
    }
}

/// Reads the settings from the environment, once per process. If a value is bad, the error names the variable
/// and what is allowed.
pub fn load() -> Result<&'static Settings> {
    static LOADED: OnceLock<Result<Settings>> = OnceLock::new();
    LOADED.get_or_init(|| parse(&environment())).as_ref().map_err(Error::clone)
}

/// Reads the settings from pairs (variable, value) in place of the environment. Ignores other variables.
pub fn parse(variables: &[(String, String)]) -> Result<Settings> {
    Settings::read(&value::Values::new(TABLE, variables))
}

/// Returns a sentence for each environment variable that begins with OUTBOARD_ but is not a setting. It names
/// the setting with the nearest name. `mpirun` prints these sentences once for the job.
pub fn unknown() -> Vec<String> {
    unknown_among(&environment())
}

/// Returns the value of a setting's environment variable as text, or None if the variable is not set.
pub fn text_in_environment(setting: &Setting) -> Option<String> {
    std::env::var_os(setting.variable).map(|value| value.to_string_lossy().into_owned())
}

/// Returns the folder in which Outboard keeps files of this user: $XDG_CACHE_HOME/outboard or
/// ~/.cache/outboard. Returns None if neither variable (XDG_CACHE_HOME, HOME) is set.
pub fn cache_folder() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base =
        std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from).or_else(home);
    base.map(|base| base.join("outboard"))
}

fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("OUTBOARD_"))?;
            Some((name, value.to_string_lossy().into_owned()))
        })
        .collect()
}

fn unknown_among(variables: &[(String, String)]) -> Vec<String> {
    let public = || TABLE.iter().filter(|setting| !setting.internal);
    let near = |name: &str| public().max_by(|a, b| likeness(name, a).total_cmp(&likeness(name, b)));
    variables
        .iter()
        .filter(|(name, _)| {
            name.starts_with("OUTBOARD_") && TABLE.iter().all(|setting| setting.variable != name)
        })
        .map(|(name, _)| match near(name).filter(|setting| likeness(name, setting) > 0.75) {
            Some(setting) => format!("{name} is not a setting; did you mean {}?", setting.variable),
            None => format!("{name} is not a setting; `outboard info --settings` lists all"),
        })
        .collect()
}

/// Returns how similar `name` is to a setting's name, both without the prefix OUTBOARD_: from 0 (not at all)
/// to 1.
fn likeness(name: &str, setting: &Setting) -> f64 {
    strsim::normalized_damerau_levenshtein(
        name.trim_start_matches("OUTBOARD_"),
        setting.variable.trim_start_matches("OUTBOARD_"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Settings> {
        parse(&pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_and_units() {
        let settings = Settings::default();
        assert_eq!(settings.offload, Offload::Auto);
        assert_eq!(settings.proxy_timeout_ms, 2000);
        assert_eq!(settings.trace, None);
        let settings = from(&[
            ("OUTBOARD_EAGER_BYTES_MAX", "16KiB"),
            ("OUTBOARD_PROXY_TIMEOUT_MS", "3s"),
            ("OUTBOARD_SPIN_US", "2ms"),
            ("OUTBOARD_STATS", "yes"),
            ("OUTBOARD_TRACE", "/tmp/a.json"),
            ("OUTBOARD_LARGE_PROTOCOL", "cells"),
            ("OUTBOARD_ALLREDUCE", "ring"),
            ("OUTBOARD_RANK", "3"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        assert_eq!(
            (settings.eager_bytes_max, settings.proxy_timeout_ms, settings.spin_us),
            (16384, 3000, 2000)
        );
        assert!(settings.stats);
        assert_eq!(settings.trace.as_deref(), Some(std::path::Path::new("/tmp/a.json")));
        assert_eq!(settings.large_protocol, LargeProtocol::Cells);
        assert_eq!((settings.allreduce.as_str(), settings.rank), ("ring", Some(3)));
    }

    #[test]
    fn a_bad_value_names_the_variable_and_what_is_allowed() {
        for (name, value, words) in [
            ("OUTBOARD_OFFLOAD", "maybe", &["OUTBOARD_OFFLOAD=maybe", "auto, on, off"][..]),
            ("OUTBOARD_CHUNK_BYTES", "1KiB", &["4KiB", "1GiB"]),
            ("OUTBOARD_CHUNK_BYTES", "fast", &["OUTBOARD_CHUNK_BYTES=fast", "KiB"]),
            ("OUTBOARD_ARENA_BYTES", "99999999999999999999GiB", &["64TiB"]),
            ("OUTBOARD_SPIN_US", "-1", &["OUTBOARD_SPIN_US=-1", "us"]),
            ("OUTBOARD_STATS", "perhaps", &["0", "1"]),
            ("OUTBOARD_CHECK", "3", &["2"]),
        ] {
            let message = from(&[(name, value)]).unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let unknown = |name: &str| unknown_among(&[(name.into(), "1".into())]);
        assert!(unknown("OUTBOARD_OFLOAD")[0].ends_with("did you mean OUTBOARD_OFFLOAD?"));
        assert!(unknown("OUTBOARD_EAGER_BYTE_MAX")[0].contains("OUTBOARD_EAGER_BYTES_MAX"));
        assert!(unknown("OUTBOARD_QUANTUM_MODE")[0].contains("lists all"));
        assert!(unknown("OUTBOARD_STATS").is_empty());
        assert!(unknown("PATH").is_empty());
    }
}
