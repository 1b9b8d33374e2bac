// SPDX-License-Identifier: BSD-3-Clause
//! Joins what ranks and proxies have recorded for a trace (OUTBOARD_TRACE) into the one file that the user
//! asked for.

use std::path::Path;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use telemetry::event::part;
use telemetry::{ProcessName, TracedProcess, chrome, decode};
use transport::shm::Segment;

use super::clock::Clock;
use crate::mpirun::command::say::say;

/// The events that one process has recorded for the trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TracePart {
    is_proxy: bool,
    number: u32,
    /// The events of the process, in the form of the process's own file. None for a process that never came
    /// to MPI_Init.
    records: Option<Vec<u8>>,
}

/// Returns the events that each process of this host has recorded, and removes the processes' files, which
/// lie beside the trace `file`. `used` is one more than the highest process number of a rank. A proxy's
/// number counts the proxies of all nodes, from the first node on.
pub fn take(file: &Path, segment: &Segment, used: u32) -> impl Iterator<Item = TracePart> {
    let ranks = (0..used).filter(|rank| segment.local(*rank).is_some());
    let whos: Vec<ProcessName> =
        ranks.map(ProcessName::Rank).chain((0..segment.shape().proxies).map(ProcessName::Proxy)).collect();
    let first_proxy = segment.job().node.load(Ordering::Relaxed) * segment.shape().proxies;
    whos.into_iter().map(move |who| {
        let part = part(file, who);
        let records = std::fs::read(&part).ok();
        // A part that was never written cannot be removed.
        let _ = std::fs::remove_file(&part);
        let (is_proxy, number) = match who {
            ProcessName::Rank(rank) => (false, rank),
            ProcessName::Proxy(proxy) => (true, first_proxy + proxy),
        };
        TracePart { is_proxy, number, records }
    })
}

/// Writes the trace `file` from the events of all processes. `parts` has the events of each process, with its
/// node as an index into `clocks`, the nodes' clocks. Returns how many processes have no events. Writes no
/// file if no process has any.
pub fn write(file: &Path, mut parts: Vec<(usize, TracePart)>, clocks: &[Clock]) -> std::io::Result<usize> {
    parts.sort_by_key(|(_, part)| (part.is_proxy, part.number));
    let count = parts.len();
    let process = |(node, part): (usize, TracePart)| {
        let who =
            if part.is_proxy { ProcessName::Proxy(part.number) } else { ProcessName::Rank(part.number) };
        let mut records = decode(&part.records?);
        if let Some(clock) = clocks.get(node) {
            records.iter_mut().for_each(|record| record.shift(|time| clock.offset(time)));
        }
        Some(TracedProcess { who, clock: node as u32, records })
    };
    let processes: Vec<_> = parts.into_iter().filter_map(process).collect();
    let missing = count - processes.len();
    if !processes.is_empty() {
        chrome::save(file, processes)?;
    }
    Ok(missing)
}

/// Writes the trace `file`, and tells the user if processes are missing in it or the file cannot be written.
pub fn write_all(file: &Path, parts: Vec<(usize, TracePart)>, clocks: &[Clock]) {
    match write(file, parts, clocks) {
        Ok(0) => {}
        Ok(missing) => say(&format!("the trace lacks {missing} processes that never came to MPI_Init")),
        Err(error) => say(&format!("cannot write the trace {}: {error}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::shm::Shape;

    #[test]
    fn parts_become_one_valid_file() {
        let file = std::env::temp_dir().join(format!("outboard-merge-{}.json", std::process::id()));
        let (segment, _fd) = Segment::create(Shape { ranks: 4, proxies: 1, arena_bytes: 1 }).unwrap();
        let whos = [ProcessName::Rank(0), ProcessName::Proxy(0)];
        whos.iter().for_each(|who| std::fs::write(part(&file, *who), []).unwrap());
        // Rank 1 wrote an incomplete record only.
        std::fs::write(part(&file, ProcessName::Rank(1)), [1; 7]).unwrap();
        let mut parts: Vec<(usize, TracePart)> = take(&file, &segment, 4).map(|part| (0, part)).collect();
        // A proxy of another host.
        segment.set_nodes(1, 2, &[1; 4], 0);
        std::fs::write(part(&file, ProcessName::Proxy(0)), []).unwrap();
        parts.extend(take(&file, &segment, 0).map(|part| (1, part)));
        assert_eq!(write(&file, parts, &[]).unwrap(), 2);
        let text = std::fs::read_to_string(&file).unwrap();
        for who in ["rank 0", "rank 1", "proxy 0", "proxy 1"] {
            assert!(text.contains(who), "{who}: {text}");
        }
        let events = chrome::parse(&text).unwrap();
        chrome::check(&events).unwrap();
        assert_eq!(events.len(), 8);
        assert!(!part(&file, ProcessName::Rank(0)).exists() && !part(&file, ProcessName::Rank(1)).exists());
        std::fs::remove_file(&file).unwrap();
        let parts = take(&file, &segment, 1).map(|part| (0, part)).collect();
        assert_eq!(write(&file, parts, &[]).unwrap(), 2);
        assert!(!file.exists());
    }
}
