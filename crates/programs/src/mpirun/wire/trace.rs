// SPDX-License-Identifier: BSD-3-Clause
//! Joins the parts of a trace that ranks and proxies wrote into the one file that the user asked for.

use std::path::Path;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use telemetry::event::part;
use telemetry::{Who, chrome, decode};
use transport::shm::Segment;

use crate::mpirun::command::say::say;

/// What a process has kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    is_proxy: bool,
    number: u32,
    /// Nothing of a process that never came to MPI_Init.
    records: Option<Vec<u8>>,
    /// What must be added to its times to get the time of day, in nanoseconds.
    to_wall_ns: u64,
}

/// Takes the parts of `file` of the processes of a segment, of which the first `used` places were ever used,
/// and removes them. The proxies of a node are numbered after those of the nodes before it.
pub fn take(file: &Path, segment: &Segment, used: u32) -> impl Iterator<Item = Part> {
    let ranks = (0..used).filter(|rank| segment.local(*rank).is_some());
    let whos: Vec<Who> = ranks.map(Who::Rank).chain((0..segment.shape().proxies).map(Who::Proxy)).collect();
    let first_proxy = segment.job().node.load(Ordering::Relaxed) * segment.shape().proxies;
    whos.into_iter().map(move |who| {
        let part = part(file, who);
        let records = std::fs::read(&part).ok();
        // A part that was never written cannot be removed.
        let _ = std::fs::remove_file(&part);
        let (is_proxy, number) = match who {
            Who::Rank(rank) => (false, rank),
            Who::Proxy(proxy) => (true, first_proxy + proxy),
        };
        Part { is_proxy, number, records, to_wall_ns: sys::clock::to_wall() }
    })
}

/// Writes `file` from parts, with the times of other hosts brought to the clock of this one by the time of
/// day. Returns how many parts were missing; if all were missing, no file is written.
pub fn write(file: &Path, mut parts: Vec<Part>) -> std::io::Result<usize> {
    parts.sort_by_key(|part| (part.is_proxy, part.number));
    let (count, here) = (parts.len(), sys::clock::to_wall());
    let process = |part: Part| {
        let mut records = decode(&part.records?);
        let late_ns = part.to_wall_ns.wrapping_sub(here) as i64;
        // Below, it is the same clock, read twice.
        if late_ns.unsigned_abs() > 1_000_000 {
            records.iter_mut().for_each(|record| record.shift(late_ns));
        }
        Some((if part.is_proxy { Who::Proxy(part.number) } else { Who::Rank(part.number) }, records))
    };
    let processes: Vec<_> = parts.into_iter().filter_map(process).collect();
    if !processes.is_empty() {
        std::fs::write(file, chrome::file(&processes))?;
    }
    Ok(count - processes.len())
}

/// Writes the trace that the user asked for, from the parts of all processes.
pub fn write_all(file: &Path, parts: Vec<Part>) {
    match write(file, parts) {
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
        let whos = [Who::Rank(0), Who::Proxy(0)];
        whos.iter().for_each(|who| std::fs::write(part(&file, *who), []).unwrap());
        // Nothing was written behind a record that is not whole.
        std::fs::write(part(&file, Who::Rank(1)), [1; 7]).unwrap();
        let mut parts: Vec<Part> = take(&file, &segment, 4).collect();
        // One of another host.
        segment.set_nodes(1, 2, &[1; 4], 0);
        std::fs::write(part(&file, Who::Proxy(0)), []).unwrap();
        parts.extend(take(&file, &segment, 0));
        assert_eq!(write(&file, parts).unwrap(), 2);
        let text = std::fs::read_to_string(&file).unwrap();
        for who in ["rank 0", "rank 1", "proxy 0", "proxy 1"] {
            assert!(text.contains(who), "{who}: {text}");
        }
        let events = chrome::parse(&text).unwrap();
        chrome::check(&events).unwrap();
        assert_eq!(events.len(), 8);
        assert!(!part(&file, Who::Rank(0)).exists() && !part(&file, Who::Rank(1)).exists());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(write(&file, take(&file, &segment, 1).collect()).unwrap(), 2);
        assert!(!file.exists());
    }
}
