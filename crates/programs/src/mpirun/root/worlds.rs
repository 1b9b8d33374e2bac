// SPDX-License-Identifier: BSD-3-Clause
//! The worlds of a job, as the job's root (`mpirun`) sees them: which nodes have ranks of a world, which rank
//! waits for its start, and with which other worlds it is connected (MPI 5.0, sections 11.8 and 11.10.4).
//!
//! All nodes learn of a spawned world at the same time, so that all give its ranks the same process numbers.
//! The nodes that are to run these ranks start them. The root answers the spawn when all nodes have reported
//! that the world has started. Then no node takes the new processes for earlier ones with the same numbers.
//!
//! Read next: `place/places.rs`, `agent/serve.rs` (what an agent does).

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use error::{Class, Error, Result};
use transport::shm::launcher::{self, Request, Spawn, Spawned};

use super::Root;
use super::world::SpreadWorld;
use crate::mpirun::command::say::say;
use crate::mpirun::place::hosts::{self, Deal, Hosts};
use crate::mpirun::wire::frame::{Arrivals, NewWorld, ToAgent};
use crate::mpirun::wire::statistics::Counted;

impl Root {
    fn world(&mut self, first: u32) -> Option<&mut SpreadWorld> {
        self.worlds.iter_mut().find(|world| world.first == first)
    }

    /// Carries out what rank `rank` on node `node` asks for: to spawn a world, or to publish, withdraw or
    /// look up the name of a port.
    pub(super) fn asked(&mut self, node: usize, rank: u32, request: &[u8]) {
        let answer = match Request::from_bytes(request) {
            Ok(Request::Spawn(spawn)) => match self.spawn(node, rank, &spawn) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ok(request) => self.numbers.name(request),
            Err(error) => Err(error),
        };
        self.agents[node].send(ToAgent::Answer { rank, bytes: launcher::answer(&answer) });
    }

    fn spawn(&mut self, node: usize, asker: u32, spawn: &Spawn) -> Result<()> {
        self.forget_ended();
        let counts = self.numbers.counts(spawn)?;
        let before = self.placement.node_of.len();
        let wanted: Result<Vec<_>> =
            spawn.programs.iter().map(|program| self.wanted(spawn, &program.info)).collect();
        for ((hosts, how), count) in wanted?.into_iter().zip(&counts) {
            self.placement.add(&hosts, *count as u32, how);
        }
        let node_of = self.placement.node_of.split_off(before);
        self.start_agents()?;
        let (first, id) = self.numbers.take(&node_of)?;
        let parents: BTreeSet<u32> = spawn.parents.iter().map(|parent| self.first_of(*parent)).collect();
        let nodes: HashSet<usize> = node_of.iter().map(|node| *node as usize).collect();
        let new = NewWorld {
            id,
            first,
            counts,
            asker,
            spawn: spawn.to_bytes(),
            nodes: self.agents.len() as u32,
            node_of,
        };
        // This entry stands for the new ranks until they report their connections themselves.
        let connected = [(new.node_of[0] as usize, parents.into_iter().collect())].into();
        self.send_all(&ToAgent::StartWorld(Box::new(new.clone())));
        self.askers.insert(asker, node);
        let places = first..first + new.node_of.len() as u32;
        self.names.retain(|rank, _| !places.contains(rank));
        self.worlds.push(SpreadWorld {
            first,
            spawned: Some(new),
            unborn: (0..self.agents.len()).collect(),
            living: nodes,
            asker: Some(asker),
            connected,
            ..SpreadWorld::default()
        });
        self.send_connected(first);
        Ok(())
    }

    fn first_of(&self, rank: u32) -> u32 {
        let firsts = self.worlds.iter().map(|world| world.first).filter(|first| *first <= rank);
        firsts.max().unwrap_or(0)
    }

    /// Returns the hosts that the info of a spawned program asks for, and in which order ranks are
    /// distributed over them. It obeys the keys `host`, `hosts`, `add-host`, `hostfile`, `add-hostfile`,
    /// `ppn`, `npernode` and `map_by`, as users of MPICH and Open MPI write them.
    fn wanted(&self, spawn: &Spawn, info: &[(String, String)]) -> Result<(Hosts, Deal)> {
        let of = |names: &[&str]| info.iter().find(|(key, _)| names.contains(&key.as_str()));
        let wrong = |key: &str, why: String| Error::new(Class::Spawn, format!("the info key {key}: {why}"));
        let named = match (of(&["host", "hosts", "add-host"]), of(&["hostfile", "add-hostfile"])) {
            (Some((key, list)), _) => Some((key, hosts::list(list).map_err(|why| wrong(key, why))?)),
            (None, Some((key, path))) => {
                let folder = String::from_utf8_lossy(&spawn.directory).into_owned();
                let path = Path::new(&folder).join(path);
                Some((key, hosts::file(&path.to_string_lossy()).map_err(|why| wrong(key, why))?))
            }
            (None, None) => None,
        };
        let how = match (of(&["ppn", "npernode"]), of(&["map_by"])) {
            (Some((key, each)), _) => match each.trim().parse() {
                Ok(each @ 1..=4096) => Deal::Each(each),
                _ => return Err(wrong(key, format!("{each:?} is no number from 1 to 4096"))),
            },
            (None, Some((_, by))) if by == "node" => Deal::Turns,
            _ => self.placement.how.unwrap_or(Deal::Slots),
        };
        let hosts = match named {
            None => self.placement.dealt[0].0.clone(),
            Some((_, hosts)) if !self.is_here => hosts,
            Some((_, hosts)) if hosts.are_here() => Hosts::own(hosts.slots()),
            Some((key, hosts)) => {
                let names: Vec<&str> = hosts.0.iter().map(|host| host.name.as_str()).collect();
                let sentence = format!(
                    "{} is another machine than this, to which alone mpirun was given: name it by mpirun -hosts",
                    names.join(",")
                );
                return Err(wrong(key, sentence));
            }
        };
        Ok((hosts, how))
    }

    /// Sends `answer` to the rank that waits in MPI_Comm_spawn for the world whose first process number is
    /// `first`.
    fn answer(&mut self, first: u32, answer: &Result<Vec<u8>>) {
        let Some(asker) = self.world(first).and_then(|world| world.asker.take()) else { return };
        if let Some(node) = self.askers.remove(&asker) {
            self.agents[node].send(ToAgent::Answer { rank: asker, bytes: launcher::answer(answer) });
        }
    }

    pub(super) fn born(&mut self, node: usize, first: u32) {
        let Some(world) = self.world(first) else { return };
        world.unborn.remove(&node);
        if !world.unborn.is_empty() {
            return;
        }
        let Some(new) = &world.spawned else { return };
        let spawned = Spawned { world: new.id, first, counts: new.counts.clone() };
        self.answer(first, &Ok(spawned.to_bytes()));
    }

    pub(super) fn spawn_failed(&mut self, first: u32, sentence: String) {
        if let Some(world) = self.world(first) {
            world.connected.clear();
        }
        self.send_all(&ToAgent::UndoWorld { first });
        self.answer(first, &Err(Error::new(Class::Spawn, sentence)));
    }

    /// Makes each MPI_Comm_spawn that needs the agent of node `node` fail, because this agent could not
    /// start. The job goes on. Returns whether a spawn failed.
    pub(super) fn fails_spawns(&mut self, node: usize, sentence: &str) -> bool {
        let waiting: Vec<(u32, bool)> = self
            .worlds
            .iter()
            .filter(|world| world.unborn.contains(&node))
            .map(|world| (world.first, world.living.contains(&node)))
            .collect();
        let (needed, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, is_needed)| *is_needed);
        others.iter().for_each(|(first, _)| self.born(node, *first));
        let firsts: Vec<u32> = needed.into_iter().map(|(first, _)| first).collect();
        for first in &firsts {
            self.spawn_failed(*first, sentence.to_owned());
            self.over(node, *first, false);
        }
        !firsts.is_empty()
    }

    pub(super) fn counted(&mut self, first: u32, counted: Counted) {
        // Proxies on other computers report last, and whether or not the user wants it.
        let is_wanted = |world: &SpreadWorld| world.counted.is_some() || !counted.is_of_proxies();
        if let Some(world) = self.world(first).filter(|world| is_wanted(world)) {
            world.counted.get_or_insert_default().add(counted);
        }
    }

    pub(super) fn arrived(&mut self, node: usize, first: u32, arrivals: Arrivals) {
        let Some(world) = self.world(first) else { return };
        world.arrived.insert(node, arrivals);
        let Some(world) = self.worlds.iter().find(|world| world.first == first) else { return };
        for (other, agent) in self.agents.iter_mut().enumerate().filter(|(other, _)| *other != node) {
            agent.send(ToAgent::Arrived { first, arrivals: world.arrivals_but(other) });
        }
    }

    pub(super) fn connected(&mut self, node: usize, first: u32, to: Vec<u32>) {
        let Some(world) = self.world(first) else { return };
        world.connected.insert(node, to);
        self.send_connected(first);
    }

    fn send_connected(&mut self, first: u32) {
        let Some(world) = self.worlds.iter().find(|world| world.first == first) else { return };
        for (node, agent) in self.agents.iter_mut().enumerate() {
            agent.send(ToAgent::Connected { first, to: world.connected_but(node) });
        }
    }

    /// Acts on a report that no rank of the world whose first process number is `first` lives on node `node`
    /// any more. When no rank of any world lives, ends the job.
    pub(super) fn over(&mut self, node: usize, first: u32, is_broken: bool) {
        let Some(world) = self.world(first) else { return };
        world.living.remove(&node);
        world.is_broken |= is_broken;
        if !world.is_over() {
            return;
        }
        world.print_counted();
        self.send_all(&ToAgent::Over { first });
        if self.worlds.iter().all(SpreadWorld::is_over) {
            self.send_all(&ToAgent::EndJob { signal: 0, code: 0 });
        }
    }

    /// Frees the process numbers of spawned worlds that have ended in order and with which no living world is
    /// connected.
    fn forget_ended(&mut self) {
        let stays = |world: &SpreadWorld| {
            let is_led_to = |other: &SpreadWorld| {
                !other.is_over() && other.connected.values().flatten().any(|to| *to == world.first)
            };
            world.first == 0 || world.is_broken || !world.is_over() || self.worlds.iter().any(is_led_to)
        };
        let gone: Vec<u32> =
            self.worlds.iter().filter(|world| !stays(world)).map(|world| world.first).collect();
        self.worlds.retain(|world| !gone.contains(&world.first));
        gone.into_iter().for_each(|first| self.numbers.free(first));
    }

    /// Ends the worlds whose first process numbers are `firsts`, if other worlds live. Prints `sentence`
    /// unless one of these worlds is being ended already. Returns whether other worlds live; if not, does
    /// nothing.
    pub(super) fn fail_some(&mut self, firsts: &[u32], sentence: &str, code: u8) -> bool {
        let is_meant = |world: &SpreadWorld| firsts.contains(&world.first);
        if self.worlds.iter().all(|world| is_meant(world) || world.is_over() || world.is_ending) {
            return false;
        }
        if !self.worlds.iter().any(|world| is_meant(world) && world.is_ending) {
            say(sentence);
        }
        self.worlds.iter_mut().filter(|world| is_meant(world)).for_each(|world| world.is_ending = true);
        self.failed.get_or_insert(code);
        self.send_all(&ToAgent::EndWorlds { worlds: firsts.to_vec(), signal: libc::SIGTERM, code });
        true
    }

    /// Sends the agent of node `node`, which has just started, the frames (messages) that tell it what the
    /// other agents know already.
    pub(super) fn catch_up(&mut self, node: usize) {
        let agent = &mut self.agents[node];
        for world in &self.worlds {
            let first = world.first;
            if let Some(new) = &world.spawned {
                agent.send(ToAgent::StartWorld(Box::new(new.clone())));
            }
            agent.send(ToAgent::Arrived { first, arrivals: world.arrivals_but(node) });
            agent.send(ToAgent::Connected { first, to: world.connected_but(node) });
            if world.is_over() {
                agent.send(ToAgent::Over { first });
            }
        }
        agent.send(ToAgent::Names(self.names.iter().map(|(rank, name)| (*rank, name.clone())).collect()));
    }
}
