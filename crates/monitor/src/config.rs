//! The configuration file (TOML). Everything has a default, so that a bare machine needs none.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::fabric::exchange::Limits;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the page is served.
    pub listen: SocketAddr,
    /// The folder for everything that is kept.
    pub data: PathBuf,
    pub fabric: Fabric,
    pub store: Store,
    pub jobs: Jobs,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fabric {
    /// As `mlx5_0`; nothing: the first with an active port.
    pub device: Option<String>,
    /// 0: the first active port.
    pub port: u8,
    pub discover_s: u64,
    pub sweep_s: u64,
    /// The site's map file: names and racks by GUID.
    pub map: Option<PathBuf>,
    /// GUIDs (hexadecimal) of nodes that are not asked for counters.
    pub skip: Vec<String>,
    pub limits: Limits,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Of a ClickHouse server, as `http://db.site:8123`; nothing: chDB, in the data folder.
    pub url: Option<String>,
    pub user: Option<String>,
    /// A file with the user's password.
    pub key_file: Option<PathBuf>,
    /// Where chDB's Python environment is, or will be made; nothing: in the data folder.
    pub venv: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    pub interval_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 8270)),
            data: PathBuf::from("/var/lib/outboard-monitor"),
            fabric: Fabric::default(),
            store: Store::default(),
            jobs: Jobs::default(),
        }
    }
}

impl Default for Fabric {
    fn default() -> Fabric {
        Fabric {
            device: None,
            port: 0,
            discover_s: 60,
            sweep_s: 10,
            map: None,
            skip: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs { interval_s: 5 }
    }
}

impl Config {
    pub fn read(path: &Path) -> Result<Config, String> {
        let named = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        Config::parse(&text).map_err(named)
    }

    fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        let times = [
            ("fabric.discover_s", config.fabric.discover_s),
            ("fabric.sweep_s", config.fabric.sweep_s),
            ("jobs.interval_s", config.jobs.interval_s),
        ];
        for (name, seconds) in times {
            if !(1..=86_400).contains(&seconds) {
                return Err(format!("{name} = {seconds}: a time between 1 and 86400 seconds is needed"));
            }
        }
        if !(1..=4096).contains(&config.fabric.limits.in_flight) {
            return Err("fabric.limits.in_flight: a number between 1 and 4096 is needed".into());
        }
        config.fabric.skipped()?;
        Ok(config)
    }
}

impl Fabric {
    pub fn skipped(&self) -> Result<std::collections::BTreeSet<u64>, String> {
        let guid = |text: &String| {
            u64::from_str_radix(text.trim_start_matches("0x"), 16)
                .map_err(|_| format!("fabric.skip: {text:?} is no GUID in hexadecimal"))
        };
        self.skip.iter().map(guid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        assert!(Config::parse("[fabric]\nsweep_s = 1\nskip = ['0x1f', '20']").is_ok());
        let wrong = [
            ("[fabric]\nsweep_s = 0", "fabric.sweep_s"),
            ("[fabric]\nskip = ['leaf']", "\"leaf\""),
            ("[fabrik]\n", "fabrik"),
            ("listen = 'here'", "listen"),
            ("[fabric.limits]\nin_flight = 0", "in_flight"),
        ];
        for (text, name) in wrong {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(name), "{text}: {error}");
        }
    }
}
