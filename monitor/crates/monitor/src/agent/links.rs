// SPDX-License-Identifier: BSD-3-Clause
//! Links of this host by sysfs: InfiniBand, RoCE and Omni-Path ports (`/sys/class/infiniband`, a stable
//! interface: Documentation/ABI/stable/sysfs-class-infiniband), and network interfaces (`/sys/class/net`).
//! Reading needs no privilege, and no other host is asked.

use std::path::{Path, PathBuf};

use super::report::Figures;

/// The most links that are read on one host.
const LINKS_MAX: usize = 128;
/// The most counters that are read of one link.
const COUNTERS_MAX: usize = 200;

/// Reads the counters and states of all links except those that `skip` names. `root` is `/`, or in tests a
/// folder with a copy of `/sys`.
pub fn read(root: &Path, skip: &[String]) -> Result<Figures, String> {
    let mut part = Figures::default();
    for device in entries(&root.join("sys/class/infiniband")).into_iter().take(LINKS_MAX) {
        for port in entries(&device.join("ports")).into_iter().take(LINKS_MAX) {
            let name = format!("{}/{}", file_name(&device), file_name(&port));
            if !skip.contains(&name) {
                rdma_port(&mut part, &name, &port);
            }
        }
    }
    let all = entries(&root.join("sys/class/net"));
    // Bridges and the ends of containers repeat what the cards carry. A host without a card has no other
    // links.
    let has_card = all.iter().any(|net| net.join("device").exists());
    let meant =
        all.into_iter().filter(|net| file_name(net) != "lo" && (!has_card || net.join("device").exists()));
    for net in meant.take(LINKS_MAX) {
        let name = file_name(&net);
        if !skip.contains(&name) {
            interface(&mut part, &name, &net);
        }
    }
    Ok(part)
}

fn rdma_port(part: &mut Figures, name: &str, port: &Path) {
    let kind = match text(&port.join("link_layer")).as_deref() {
        Some("Ethernet") => "RoCE",
        // Omni-Path's driver has the name hfi1, and gives InfiniBand as its link layer.
        _ if name.starts_with("hfi1_") => "Omni-Path",
        _ => "InfiniBand",
    };
    part.facts.insert(format!("{name}.kind"), kind.into());
    // The files hold texts such as `4: ACTIVE` and `100 Gb/sec (4X EDR)`.
    if let Some(state) = text(&port.join("state")) {
        part.facts.insert(
            format!("{name}.state"),
            state.split_once(": ").map_or(state.as_str(), |(_, word)| word).into(),
        );
    }
    if let Some(rate) = text(&port.join("rate")) {
        if let Some(gigabits) = rate.split(' ').next().and_then(|first| first.parse::<f64>().ok()) {
            part.gauge(format!("{name}.rate_bytes"), gigabits * 1e9 / 8.0);
        }
        part.facts.insert(format!("{name}.speed"), rate);
    }
    for folder in ["counters", "hw_counters"] {
        for (counter, value) in numbers(&port.join(folder)) {
            // Counters of data count words of four bytes.
            let (counter, value) = match counter.as_str() {
                "port_xmit_data" => ("sent_bytes".into(), value.saturating_mul(4)),
                "port_rcv_data" => ("received_bytes".into(), value.saturating_mul(4)),
                // A setting, not a count.
                "lifespan" => continue,
                _ => (counter, value),
            };
            part.counters.insert(format!("{name}.{counter}"), value);
        }
    }
}

fn interface(part: &mut Figures, name: &str, net: &Path) {
    part.facts.insert(format!("{name}.kind"), "Ethernet".into());
    if let Some(state) = text(&net.join("operstate")) {
        part.facts.insert(format!("{name}.state"), state);
    }
    // The speed in megabits a second; -1 or an error if it is unknown.
    if let Some(speed) =
        text(&net.join("speed")).and_then(|text| text.parse::<f64>().ok()).filter(|speed| *speed > 0.0)
    {
        part.gauge(format!("{name}.rate_bytes"), speed * 1e6 / 8.0);
    }
    for (counter, value) in numbers(&net.join("statistics")) {
        let counter = match counter.as_str() {
            "tx_bytes" => "sent_bytes".into(),
            "rx_bytes" => "received_bytes".into(),
            _ => counter,
        };
        part.counters.insert(format!("{name}.{counter}"), value);
    }
}

/// Returns the name and the number of each file in `folder` that contains a number. A file that the driver
/// does not let this program read is left out.
fn numbers(folder: &Path) -> Vec<(String, u64)> {
    let number = |path: PathBuf| Some((file_name(&path), text(&path)?.parse().ok()?));
    entries(folder).into_iter().take(COUNTERS_MAX).filter_map(number).collect()
}

/// Returns the entries of a folder in the order of their names. Returns no entries if there is no such
/// folder.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    all.sort();
    all
}

pub fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

pub fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_every_kind_are_read() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n"),
            ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n"),
            ("infiniband/mlx5_0/ports/1/counters/port_xmit_data", "250\n"),
            ("infiniband/mlx5_0/ports/1/counters/port_rcv_data", "18446744073709551615\n"),
            ("infiniband/mlx5_0/ports/1/counters/symbol_error", "3\n"),
            ("infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "7\n"),
            ("infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10\n"),
            ("infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            ("infiniband/hfi1_0/ports/1/link_layer", "InfiniBand\n"),
            ("net/lo/statistics/rx_bytes", "9\n"),
            ("net/eth0/device/vendor", "0x8086\n"),
            ("net/eth0/operstate", "up\n"),
            ("net/eth0/speed", "25000\n"),
            ("net/eth0/statistics/tx_bytes", "11\n"),
            ("net/eth0/statistics/collisions", "none\n"),
            ("net/veth1/statistics/tx_bytes", "12\n"),
        ];
        for (file, words) in files {
            let path = root.path().join("sys/class").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, words).unwrap();
        }
        let part = read(root.path(), &["hfi1_0/2".into()]).unwrap();
        let counters: Vec<_> = part.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let expected = [
            ("eth0.sent_bytes", 11),
            ("mlx5_0/1.out_of_sequence", 7),
            ("mlx5_0/1.received_bytes", u64::MAX),
            ("mlx5_0/1.sent_bytes", 1000),
            ("mlx5_0/1.symbol_error", 3),
        ];
        assert_eq!(counters, expected);
        let facts =
            ["hfi1_0/1.kind", "mlx5_0/1.kind", "mlx5_1/1.kind", "eth0.kind", "mlx5_0/1.state", "eth0.state"];
        let words = ["Omni-Path", "InfiniBand", "RoCE", "Ethernet", "ACTIVE", "up"];
        assert_eq!(facts.map(|name| part.facts[name].as_str()), words);
        assert_eq!((part.gauges["mlx5_0/1.rate_bytes"], part.gauges["eth0.rate_bytes"]), (25e9, 3.125e9));
        let part = read(root.path(), &["eth0".into(), "mlx5_0/1".into()]).unwrap();
        assert!(part.counters.is_empty(), "{:?}", part.counters);
        std::fs::remove_dir_all(root.path().join("sys/class/net/eth0/device")).unwrap();
        assert!(
            read(root.path(), &[]).unwrap().counters.contains_key("veth1.sent_bytes"),
            "no card: all but lo"
        );
    }
}
