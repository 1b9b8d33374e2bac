// SPDX-License-Identifier: BSD-3-Clause
//! Which cpus share which hardware (packages, NUMA nodes, caches, cores), as the kernel shows it under
//! /sys/devices/system.

use std::fs;
use std::path::Path;

/// The kinds of hardware that cpus share, with hwloc's names, from the largest to the smallest.
pub const KINDS: [&str; 8] =
    ["Machine", "Package", "NUMANode", "L3Cache", "L2Cache", "L1Cache", "Core", "PU"];

/// Whether some cpus share one unit of a kind of hardware, such as one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// All the cpus share one unit of the hardware, such as one NUMA node. The number is the unit's lowest
    /// cpu.
    Within(usize),
    /// The cpus belong to more than one unit of the hardware, such as two NUMA nodes.
    Across,
}

/// Returns whether `cpus` share one unit of the hardware `kind`, such as one package. None if `cpus` is
/// empty, or the kernel does not report this kind.
pub fn locality(kind: &str, cpus: &[usize]) -> Option<Locality> {
    locality_under(Path::new("/sys/devices/system"), kind, cpus)
}

fn locality_under(system: &Path, kind: &str, cpus: &[usize]) -> Option<Locality> {
    let instance = instance(system, kind, *cpus.first()?)?;
    let within = cpus.iter().all(|cpu| instance.contains(cpu));
    Some(if within { Locality::Within(*instance.iter().min()?) } else { Locality::Across })
}

/// Returns all cpus that share the unit of hardware `kind` with `cpu`, such as its package. Returns only
/// `cpu` if the kernel does not report this kind.
pub fn sharers(kind: &str, cpu: usize) -> Vec<usize> {
    instance(Path::new("/sys/devices/system"), kind, cpu).unwrap_or_else(|| vec![cpu])
}

/// Returns all cpus that share the unit of hardware `kind` with `cpu`. None if the kernel does not report
/// this kind.
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

/// Returns the cpus of a file that holds a list such as `0-3,8`. None if there is no such file, or it holds
/// no list.
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

    /// Writes the files that the kernel would show on a machine of two packages, each with two cores of two
    /// hardware threads. Each package is a NUMA node with its own L3 cache.
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
