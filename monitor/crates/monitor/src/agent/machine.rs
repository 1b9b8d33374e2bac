// SPDX-License-Identifier: BSD-3-Clause
//! Reads how much of this host's processors, memory and GPUs is used.

use std::path::Path;
use std::process::Command;

use super::links::text;
use super::report::Figures;
use crate::command::output_of;

/// Reads how much of this host's processors and memory is used. `root` is `/`, or in tests a folder with a
/// copy of `/proc`.
pub fn read(root: &Path) -> Result<Figures, String> {
    let read = |file: &str| text(&root.join("proc").join(file)).ok_or(format!("/proc/{file} cannot be read"));
    let mut part = Figures::default();
    let stat = read("stat")?;
    let count = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    part.gauge("cpu.count".into(), count as f64);
    // The columns are user nice system idle iowait irq softirq steal; the time of guests is part of user.
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1).take(8))
        .map(|word| word.parse().unwrap_or(0))
        .collect();
    let tick_ms = 1000 / rustix::param::clock_ticks_per_second().max(1);
    let busy: u64 =
        ticks.iter().enumerate().filter(|(at, _)| *at != 3 && *at != 4).map(|(_, ticks)| ticks).sum();
    part.counters.insert("cpu.busy_ms".into(), busy.saturating_mul(tick_ms));
    part.counters.insert("cpu.iowait_ms".into(), ticks.get(4).unwrap_or(&0).saturating_mul(tick_ms));
    for line in read("meminfo")?.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let kept = match name {
            "MemTotal" => "memory.all_bytes",
            "MemAvailable" => "memory.free_bytes",
            "SwapTotal" => "swap.all_bytes",
            "SwapFree" => "swap.free_bytes",
            _ => continue,
        };
        let kilobytes = value.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN);
        part.gauge(kept.into(), kilobytes * 1024.0);
    }
    if let Some(load) = read("loadavg")?.split(' ').next().and_then(|first| first.parse().ok()) {
        part.gauge("cpu.load".into(), load);
    }
    Ok(part)
}

/// Reads how much of NVIDIA's GPUs is used, by `nvidia-smi`. A host without this program has no such GPUs.
pub fn gpus() -> Result<Figures, String> {
    const ASKED: &str =
        "--query-gpu=index,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu";
    match output_of(Command::new("nvidia-smi").args([ASKED, "--format=csv,noheader,nounits"]), b"") {
        Some(text) => Ok(of_smi(&String::from_utf8_lossy(&text?))),
        None => Ok(Figures::default()),
    }
}

/// Reads the output of `nvidia-smi`, which has one line for each GPU. It shows `[N/A]` for a value that a GPU
/// does not have.
fn of_smi(text: &str) -> Figures {
    const MIB: f64 = 1048576.0;
    let mut part = Figures::default();
    for line in text.lines().take(64) {
        let words: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, values @ ..] = &words[..] else { continue };
        if index.parse::<u32>().is_err() {
            continue;
        }
        let names = [
            ("use", 0.01),
            ("memory_bytes", MIB),
            ("memory_all_bytes", MIB),
            ("watts", 1.0),
            ("celsius", 1.0),
        ];
        for ((name, unit), value) in names.iter().zip(values) {
            part.gauge(format!("gpu{index}.{name}"), value.parse::<f64>().unwrap_or(f64::NAN) * unit);
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_read() {
        let part = read(Path::new("/")).unwrap();
        let (all, free) = (part.gauges["memory.all_bytes"], part.gauges["memory.free_bytes"]);
        assert!(
            all > free && free > 0.0 && part.gauges["cpu.count"] >= 1.0 && part.counters["cpu.busy_ms"] > 0,
            "{part:?}"
        );
        assert!(read(Path::new("/nowhere")).unwrap_err().contains("/proc/stat"));
    }

    #[test]
    fn gpus_are_read() {
        let part =
            of_smi("0, 97, 71234, 81559, 642.13, 61\n1, [N/A], 1, 81559, [N/A], 30\nno devices were found\n");
        assert_eq!((part.gauges["gpu0.use"], part.gauges["gpu0.watts"]), (0.97, 642.13));
        assert_eq!(part.gauges["gpu1.memory_bytes"], 1048576.0);
        assert_eq!(part.gauges.len(), 8);
    }
}
