// SPDX-License-Identifier: BSD-3-Clause
//! Energy of processors by powercap (`/sys/class/powercap`: Intel's and AMD's RAPL). Since Linux 5.10 only
//! root may read powercap's counters, because they reveal secrets. If another user runs this program, the
//! host's report has an error in place of the energy, and all its other figures.

use std::collections::BTreeMap;
use std::path::Path;

use super::links::{entries, file_name, text};
use super::report::Figures;

/// For each powercap zone (a processor package or a part of one), by the name of its folder: the last value
/// of the zone's counter, and the microjoules that the zone has used since this program's start.
#[derive(Default)]
pub struct Energy(BTreeMap<String, (u64, u64)>);

impl Energy {
    /// Reads the energy of all powercap zones. `root` is `/`, or in tests a folder with a copy of `/sys`. A
    /// zone's counter starts again at 0 after `max_energy_range_uj`.
    pub fn read(&mut self, root: &Path) -> Result<Figures, String> {
        let mut part = Figures::default();
        let mut refused = String::new();
        for zone in entries(&root.join("sys/class/powercap")) {
            let (folder, Some(name)) = (file_name(&zone), text(&zone.join("name"))) else { continue };
            let value = match std::fs::read_to_string(zone.join("energy_uj")) {
                Ok(value) => value.trim().parse::<u64>().ok(),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    refused = format!("{}: {error}", zone.join("energy_uj").display());
                    None
                }
                // A control type (`intel-rapl`) has no counter.
                Err(_) => None,
            };
            let Some(value) = value else { continue };
            let range =
                text(&zone.join("max_energy_range_uj")).and_then(|text| text.parse().ok()).unwrap_or(0);
            let (last, sum) = self.0.entry(folder.clone()).or_insert((value, 0));
            let more = if value >= *last {
                value - *last
            } else {
                value.saturating_add(range).saturating_sub(*last)
            };
            (*last, *sum) = (value, sum.saturating_add(more));
            // `intel-rapl:0` is a package. `intel-rapl:0:1` is a part of it, and each package has parts of
            // the same names.
            let of = folder.split(':').nth(1).filter(|_| folder.matches(':').count() > 1);
            let name = of.map_or(name.clone(), |package| format!("package-{package}/{name}"));
            part.counters.insert(format!("energy.{name}_uj"), *sum);
        }
        if part.counters.is_empty() && !refused.is_empty() { Err(refused) } else { Ok(part) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let write = |zone: &str, name: &str, value: u64| {
            let folder = root.path().join("sys/class/powercap").join(zone);
            std::fs::create_dir_all(&folder).unwrap();
            for (file, words) in [
                ("name", name.into()),
                ("energy_uj", value.to_string()),
                ("max_energy_range_uj", "1000".into()),
            ] {
                std::fs::write(folder.join(file), words).unwrap();
            }
        };
        let mut energy = Energy::default();
        let mut energy_of = |package, dram| {
            write("intel-rapl:0", "package-0", package);
            write("intel-rapl:0:0", "dram", dram);
            energy.read(root.path()).unwrap().counters.into_iter().collect::<Vec<_>>()
        };
        let both = |package, dram| {
            vec![("energy.package-0/dram_uj".to_string(), dram), ("energy.package-0_uj".into(), package)]
        };
        assert_eq!(energy_of(900, 5), both(0, 0));
        assert_eq!(energy_of(950, 5), both(50, 0));
        assert_eq!(energy_of(30, 6), both(130, 1), "80 more behind its end");
        assert_eq!(Energy::default().read(Path::new("/nowhere")), Ok(Figures::default()));
    }
}
