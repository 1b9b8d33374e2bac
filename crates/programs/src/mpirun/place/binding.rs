// SPDX-License-Identifier: BSD-3-Clause
//! Where ranks are to run, as the user says it in the syntax of MPICH (`-bind-to core:2`) or of Open MPI
//! (`--map-by ppr:2:socket:PE=4`).

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// What each rank is bound to (`--bind-to`), and how many cores it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Bind {
    /// The kind of hardware (core, socket, cache, ...), a name of [`sys::topology::KINDS`]. Each rank is
    /// bound to the unit of this kind that has the rank's cores. None if ranks are not bound.
    pub to: Option<&'static str>,
    /// How many cores of its own each rank gets.
    pub cores: u32,
}

/// The order in which ranks get cores, and how many each gets (`--map-by`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Map {
    /// The kind of hardware (socket, numa, ...) whose units the ranks take in turns, as a name of
    /// [`sys::topology::KINDS`]. Core, PU and Machine mean no turns.
    pub by: &'static str,
    /// How many ranks one unit of hardware (a socket, a cache, ...) gets before the next unit's turn (`ppr`).
    /// None means one.
    pub each: Option<u32>,
    /// How many cores of its own each rank gets (`PE`).
    pub cores: u32,
}

impl Default for Map {
    fn default() -> Map {
        Map { by: "Core", each: None, cores: 1 }
    }
}

/// The names that users write for a kind of hardware, each with its name in [`sys::topology::KINDS`].
const NAMES: [(&str, &str); 15] = [
    ("core", "Core"),
    ("hwthread", "PU"),
    ("socket", "Package"),
    ("package", "Package"),
    ("numa", "NUMANode"),
    ("l1cache", "L1Cache"),
    ("l2cache", "L2Cache"),
    ("l3cache", "L3Cache"),
    ("l1", "L1Cache"),
    ("l2", "L2Cache"),
    ("l3", "L3Cache"),
    ("slot", "Core"),
    ("node", "Machine"),
    ("board", "Machine"),
    ("machine", "Machine"),
];

/// Words that `--map-by` and `--bind-to` accept behind a `:` without effect, because Outboard always does
/// what they ask for.
const GRANTED: [&str; 5] = ["oversubscribe", "overload-allowed", "if-supported", "span", "inherit"];

fn resource(word: &str) -> Result<&'static str, String> {
    match NAMES.iter().find(|(name, _)| *name == word) {
        Some((_, kind)) => Ok(kind),
        None => {
            Err("there are none (to bind), hwthread, core, l1cache, l2cache, l3cache, numa, socket, node"
                .into())
        }
    }
}

/// Returns the first name in `NAMES` that users write for this kind of hardware.
fn name_of(kind: &str) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == kind).map_or("core", |(name, _)| name)
}

impl From<Bind> for String {
    fn from(bind: Bind) -> String {
        format!("{}:{}", bind.to.map_or("none", name_of), bind.cores)
    }
}

impl<'de> Deserialize<'de> for Bind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bind, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl From<Map> for String {
    fn from(map: Map) -> String {
        let each = map.each.map_or(String::new(), |each| format!("ppr:{each}:"));
        format!("{each}{}:PE={}", name_of(map.by), map.cores)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Map, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|number| (1..=4096).contains(number))
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Bind, String> {
        let lower = text.to_lowercase();
        let mut words = lower.split(':');
        let to = match words.next() {
            Some("none") => None,
            name => Some(resource(name.unwrap_or_default())?).filter(|kind| *kind != "Machine"),
        };
        let mut bind = Bind { to, cores: 1 };
        for word in words.filter(|word| !GRANTED.contains(word)) {
            bind.cores = number(word).ok_or(format!("{word} is no number of cores"))?;
        }
        Ok(bind)
    }
}

impl FromStr for Map {
    type Err = String;

    fn from_str(text: &str) -> Result<Map, String> {
        let lower = text.to_lowercase();
        let mut words = lower.split(':').peekable();
        let mut map = Map::default();
        if words.next_if_eq(&"ppr").is_some() {
            let each = words.next().and_then(number);
            map.each = Some(each.ok_or("a number and a resource follow ppr, as in ppr:2:socket")?);
        }
        let name = words.next().unwrap_or_default();
        // Modifiers alone are allowed, as in :PE=2.
        if map.each.is_some() || !name.is_empty() {
            map.by = resource(name)?;
        }
        for word in words.filter(|word| !GRANTED.contains(word)) {
            match word.strip_prefix("pe=").and_then(number) {
                Some(cores) => map.cores = cores,
                None if word == "hwtcpus" => map.by = "PU",
                None => return Err(format!("{word} is not known; PE=N gives every rank N cores")),
            }
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_launchers() {
        let bind = |text: &str| text.parse::<Bind>().unwrap();
        assert_eq!(bind("none").to, None);
        assert_eq!(bind("core:2"), Bind { to: Some("Core"), cores: 2 });
        assert_eq!(bind("Socket:overload-allowed"), Bind { to: Some("Package"), cores: 1 });
        let map = |text: &str| text.parse::<Map>().unwrap();
        assert_eq!(map("slot:OVERSUBSCRIBE"), Map::default());
        assert_eq!(map("ppr:2:socket:PE=4"), Map { by: "Package", each: Some(2), cores: 4 });
        assert_eq!(map(":PE=3"), Map { cores: 3, ..Map::default() });
        for text in ["none", "core:2", "numa"] {
            assert_eq!(String::from(bind(text)).parse(), Ok(bind(text)), "{text}");
        }
        for text in ["core", "ppr:2:socket:PE=4", "node", ":PE=3"] {
            assert_eq!(String::from(map(text)).parse(), Ok(map(text)), "{text}");
        }
        for wrong in ["", "teapot", "core:x", "core:0"] {
            assert!(wrong.parse::<Bind>().is_err(), "{wrong}");
        }
        for wrong in ["teapot", "ppr:x:socket", "ppr:2", "core:PE=0", "core:fast"] {
            assert!(wrong.parse::<Map>().is_err(), "{wrong}");
        }
    }
}
