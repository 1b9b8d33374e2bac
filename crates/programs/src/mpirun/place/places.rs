// SPDX-License-Identifier: BSD-3-Clause
//! Which process numbers belong to which worlds, and the names of published ports (MPI 5.0, sections 11.8 and
//! 11.9.4).
//!
//! A process number means the same process in the segment of every host. A new world gets consecutive free
//! numbers: numbers that were never used, or numbers of a world that ended in order and with which no rank is
//! connected any more.
//!
//! Invariant: a process number is used again only on the host where it was used first. So processes may
//! remember on which host a number is.

use std::collections::HashMap;

use error::{Class, Error, Result, fail};
use transport::shm::launcher::{Request, Spawn};

/// The process numbers of a job, the worlds that have them, and the published names of ports.
pub struct ProcessNumbers {
    /// For each process number, the node (index of a host) on which the number was used first. None for a
    /// number that was never used.
    nodes: Vec<Option<u32>>,
    /// The worlds that have process numbers now: for each, its first number and how many it has.
    worlds: Vec<(u32, u32)>,
    /// The id of the world that was spawned last; 0 if there is only the first world. Ids count up.
    latest: u64,
    /// The port of each name that MPI_Publish_name has published.
    names: HashMap<String, String>,
}

impl ProcessNumbers {
    /// Returns the process numbers 0 to `places` - 1. The ranks of the first world get the first of them;
    /// `node_of` has the node of each of these ranks.
    pub fn new(places: u32, node_of: impl IntoIterator<Item = u32>) -> ProcessNumbers {
        let mut nodes: Vec<Option<u32>> = node_of.into_iter().map(Some).collect();
        let first = nodes.len() as u32;
        nodes.resize(places.max(first) as usize, None);
        ProcessNumbers { nodes, worlds: vec![(0, first)], latest: 0, names: HashMap::new() }
    }

    /// Returns how many processes of each program to start: as many as were asked for or, with the info key
    /// `soft` (MPI 5.0, section 11.8.4), the largest allowed number for which process numbers are free.
    pub fn counts(&self, spawn: &Spawn) -> Result<Vec<u64>> {
        let taken: u32 = self.worlds.iter().map(|(_, size)| size).sum();
        let mut free = (self.nodes.len() as u64).saturating_sub(u64::from(taken));
        let mut counts = Vec::new();
        for program in &spawn.programs {
            let mut count = program.count;
            if let Some((_, soft)) = program.info.iter().find(|(key, _)| key == "soft") {
                let allowed = soft_counts(soft)?;
                let best = allowed.into_iter().filter(|soft| *soft <= count.min(free)).max();
                count = best.unwrap_or(count);
            }
            free = free.saturating_sub(count);
            counts.push(count);
        }
        match counts.iter().try_fold(0, |sum: u64, count| sum.checked_add(*count)) {
            None => fail!(Class::Spawn, "more processes than can be counted"),
            Some(0) => fail!(Class::Spawn, "there is nothing to start"),
            Some(sum) if sum > self.nodes.len() as u64 => self.none_left(sum),
            Some(_) => Ok(counts),
        }
    }

    /// Gives process numbers to a new world; `node_of` is the node of each of its ranks. Returns the world's
    /// first process number and its id.
    pub fn take(&mut self, node_of: &[u32]) -> Result<(u32, u64)> {
        let size = node_of.len();
        let is_free = |at: usize| {
            !self.worlds.iter().any(|&(first, size)| (first..first + size).contains(&(at as u32)))
        };
        let fits = |first: usize| {
            (first..first + size)
                .all(|at| is_free(at) && self.nodes[at].is_none_or(|node| node == node_of[at - first]))
        };
        let Some(first) = (0..(self.nodes.len() + 1).saturating_sub(size)).find(|first| fits(*first)) else {
            return self.none_left(size);
        };
        for (place, node) in self.nodes[first..].iter_mut().zip(node_of) {
            *place = Some(*node);
        }
        self.worlds.push((first as u32, size as u32));
        self.latest += 1;
        Ok((first as u32, self.latest))
    }

    /// Frees the process numbers of the world whose first process number is `world`.
    pub fn free(&mut self, world: u32) {
        self.worlds.retain(|(first, _)| *first != world);
    }

    fn none_left<T>(&self, size: impl std::fmt::Display) -> Result<T> {
        let first = self.worlds.first().map_or(0, |(_, size)| *size);
        let taken: u32 = self.worlds.iter().skip(1).map(|(_, size)| size).sum();
        fail!(
            Class::Spawn,
            "there is no room for {size} more processes: of {} places for spawned ones {taken} are taken (OUTBOARD_SPAWN_RANKS_MAX sets how many there are)",
            self.nodes.len() as u32 - first
        );
    }

    /// Publishes, withdraws or looks up a name of a port, as `request` says. Returns the port of a looked-up
    /// name, else an empty answer.
    pub fn name(&mut self, request: Request) -> Result<Vec<u8>> {
        match request {
            Request::Publish { service, port } => {
                if let Some(port) = self.names.get(&service) {
                    fail!(Class::Service, "the name {service:?} is published already, for port {port:?}");
                }
                self.names.insert(service, port);
                Ok(Vec::new())
            }
            Request::Unpublish { service } => match self.names.remove(&service) {
                Some(_) => Ok(Vec::new()),
                None => fail!(Class::Service, "the name {service:?} is not published in this job"),
            },
            Request::Lookup { service } => match self.names.get(&service) {
                Some(port) => Ok(port.clone().into_bytes()),
                None => fail!(Class::Name, "the name {service:?} is not published in this job"),
            },
            Request::Spawn(_) => fail!(Class::Intern, "a spawn is no request about a name"),
        }
    }
}

/// Returns the numbers that a value of the info key `soft` allows: a list of numbers and of ranges first:last
/// or first:last:stride, as for MPI_Group_range_incl.
fn soft_counts(text: &str) -> Result<Vec<u64>> {
    let wrong =
        || Error::new(Class::Spawn, format!("the info key soft: {text:?} is no list of numbers and ranges"));
    let mut all = Vec::new();
    for part in text.split(',') {
        let numbers: Option<Vec<i64>> = part.split(':').map(|word| word.trim().parse().ok()).collect();
        let (first, last, stride) = match numbers.ok_or_else(wrong)?[..] {
            [one] => (one, one, 1),
            [first, last] => (first, last, 1),
            [first, last, stride] if stride != 0 => (first, last, stride),
            _ => return Err(wrong()),
        };
        let mut at = first;
        while if stride > 0 { at <= last } else { at >= last } {
            all.extend(u64::try_from(at).ok().filter(|count| *count <= 4096));
            at = at.saturating_add(stride);
            if !(-4096..=4096).contains(&at) {
                break;
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_lists() {
        assert_eq!(soft_counts("1, 3:5").unwrap(), [1, 3, 4, 5]);
        assert_eq!(soft_counts("2:8:3,0").unwrap(), [2, 5, 8, 0]);
        assert_eq!(soft_counts("8:2:-3").unwrap(), [8, 5, 2]);
        for wrong in ["", "x", "1:2:0", "1:2:3:4"] {
            assert_eq!(soft_counts(wrong).unwrap_err().class, Class::Spawn);
        }
    }

    fn wants(counts: &[u64]) -> Spawn {
        let program =
            |count: &u64| transport::shm::launcher::SpawnProgram { count: *count, ..Default::default() };
        Spawn { programs: counts.iter().map(program).collect(), ..Spawn::default() }
    }

    #[test]
    fn places_are_given_again_on_their_host_only() {
        let mut places = ProcessNumbers::new(8, [0, 1]);
        assert_eq!(places.take(&[0, 1]).unwrap(), (2, 1));
        assert_eq!(places.take(&[1]).unwrap(), (4, 2));
        places.free(2);
        assert_eq!(places.take(&[1]).unwrap(), (3, 3), "place 2 was on node 0");
        assert_eq!(places.take(&[0]).unwrap(), (2, 4));
        let sentence = places.take(&[0; 4]).unwrap_err().message.clone();
        assert!(sentence.contains("no room for 4 more") && sentence.contains("of 6 places"), "{sentence}");
        assert_eq!(places.take(&[7; 3]).unwrap(), (5, 5));
        assert_eq!(places.counts(&wants(&[3, 2])).unwrap(), [3, 2]);
        assert_eq!(places.counts(&wants(&[9])).unwrap_err().class, Class::Spawn);
    }

    #[test]
    fn a_name_is_published_once() {
        let mut places = ProcessNumbers::new(1, [0]);
        let publish = || Request::Publish { service: "s".into(), port: "p".into() };
        let lookup = || Request::Lookup { service: "s".into() };
        assert_eq!(places.name(lookup()).unwrap_err().class, Class::Name);
        places.name(publish()).unwrap();
        assert_eq!(places.name(publish()).unwrap_err().class, Class::Service);
        assert_eq!(places.name(lookup()).unwrap(), b"p");
        places.name(Request::Unpublish { service: "s".into() }).unwrap();
        assert_eq!(places.name(lookup()).unwrap_err().class, Class::Name);
    }
}
