// SPDX-License-Identifier: BSD-3-Clause
//! Which processors share which resources, as the kernel shows it under /sys/devices/system.

use std::fs;
use std::path::Path;

/// The kinds of resources that cpus share, by hwloc's names, the coarsest first.
pub const KINDS: [&str; 8] =
    ["Machine", "Package", "NUMANode", "L3Cache", "L2Cache", "L1Cache", "Core", "PU"];

/// Whether some cpus lie within one instance of a kind of resource, such as one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// All the cpus lie in one instance, whose lowest cpu is this.
    Within(usize),
    /// The cpus lie in more than one instance.
    Across,
}

/// Whether `cpus` lie within one instance of `kind`. Returns None if there are no cpus, or the kernel does
/// not know the kind.
pub fn locality(kind: &str, cpus: &[usize]) -> Option<Locality> {
    locality_under(Path::new("/sys/devices/system"), kind, cpus)
}

fn locality_under(system: &Path, kind: &str, cpus: &[usize]) -> Option<Locality> {
    let instance = instance(system, kind, *cpus.first()?)?;
    let within = cpus.iter().all(|cpu| instance.contains(cpu));
    Some(if within { Locality::Within(*instance.iter().min()?) } else { Locality::Across })
}

/// All cpus of the instance of `kind` to which `cpu` belongs, such as its package; only `cpu` if the kernel
/// does not say.
pub fn sharers(kind: &str, cpu: usize) -> Vec<usize> {
    instance(Path::new("/sys/devices/system"), kind, cpu).unwrap_or_else(|| vec![cpu])
}

/// All cpus of the instance of `kind` to which `cpu` belongs. Returns None if the kernel does not say.
fn instance(system: &Path, kind: &str, cpu: usize) -> Option<Vec<usize>> {
    let here = system.join(format!("cpu/cpu{cpu}"));
    match kind {
        "Machine" => list(&system.join("cpu/online")),
        "Package" => list(&here.join("topology/package_cpus_list"))
            .or_else(|| list(&here.join("topology/core_siblings_list"))),
        "NUMANode" => {
            let nodes = fs::read_dir(system.join("node")).ok()?.flatten();
            nodes.filter_map(|node| list(&node.path().join("cpulist"))).find(|cpus| cpus.contains(&cpu))
        }
        "L1Cache" | "L2Cache" | "L3Cache" => {
            let caches = fs::read_dir(here.join("cache")).ok()?.flatten();
            let word = |path: &Path, file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
            let is_meant = |path: &Path| {
                word(path, "level").trim() == &kind[1..2] && word(path, "type").trim() != "Instruction"
            };
            let mut meant = caches.map(|cache| cache.path()).filter(|path| is_meant(path));
            list(&meant.next()?.join("shared_cpu_list"))
        }
        "Core" => list(&here.join("topology/core_cpus_list"))
            .or_else(|| list(&here.join("topology/thread_siblings_list"))),
        "PU" => here.exists().then(|| vec![cpu]),
        _ => None,
    }
}

/// Reads a file with a list of cpus such as `0-3,8`. Returns None if there is no such file or list.
fn list(file: &Path) -> Option<Vec<usize>> {
    let text = fs::read_to_string(file).ok()?;
    let mut cpus = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what the kernel would show of a machine with two packages, of two cores with two hardware
    /// threads each. Each package is a NUMA node with its own L3.
    fn machine(root: &Path) {
        let write = |path: String, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        write("cpu/online".into(), "0-7");
        for cpu in 0..8 {
            let package = ["0-1,4-5", "2-3,6-7"][cpu % 4 / 2];
            let core = format!("{},{}", cpu % 4, cpu % 4 + 4);
            write(format!("cpu/cpu{cpu}/topology/package_cpus_list"), package);
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &core);
            for (index, level, sort, shared) in
                [(0, "1", "Instruction", "0-7"), (1, "1", "Data", &core[..]), (2, "3", "Unified", package)]
            {
                let cache = format!("cpu/cpu{cpu}/cache/index{index}");
                write(format!("{cache}/level"), level);
                write(format!("{cache}/type"), sort);
                write(format!("{cache}/shared_cpu_list"), shared);
            }
        }
        write("node/node0/cpulist".into(), "0-1,4-5");
        write("node/node1/cpulist".into(), "2-3,6-7");
        write("node/online".into(), "0-1");
    }

    #[test]
    fn places_by_kind() {
        let root = std::env::temp_dir().join(format!("outboard-topology-{}", std::process::id()));
        machine(&root);
        let of = |cpus: &[usize]| KINDS.map(|kind| locality_under(&root, kind, cpus));
        let (within, across) = (|cpu| Some(Locality::Within(cpu)), Some(Locality::Across));
        let one = of(&[6]);
        assert_eq!(one, [within(0), within(2), within(2), within(2), None, within(2), within(2), within(6)]);
        let package = of(&[2, 7]);
        assert_eq!(package, [within(0), within(2), within(2), within(2), None, across, across, across]);
        assert_eq!(of(&[1, 2])[..3], [within(0), across, across]);
        assert_eq!(of(&[9])[1..], [None; 7]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn this_machine() {
        let cpus = crate::cpu::allowed().unwrap();
        assert_eq!(locality("PU", &cpus[..1]), Some(Locality::Within(cpus[0])));
        assert_eq!(locality("Teapot", &cpus), None);
    }
}
