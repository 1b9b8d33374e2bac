// SPDX-License-Identifier: BSD-3-Clause
//! Requests that ranks make to `mpirun`: to start processes (MPI 5.0, section 11.8), and to publish, look up
//! or unpublish names of ports (section 11.9.4).
//!
//! A rank writes its request into its arena, its part of the segment, and sends SIGCHLD to wake the agent.
//! The agent passes the request on to the job's root (`mpirun`), which has all agents start the new world.
//! The root answers a spawn when all new processes have come to MPI_Init, or when one of them has ended
//! before that.
//!
//! Read next: `root/worlds.rs`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use error::{Class, Error, Result, fail};
use rustix::process::Signal;
use sys::Span;
use transport::shm::launcher::{self, Spawn};
use transport::shm::{Arena, LauncherRequest, State};

use super::job::{AgentJob, LocalWorld};
use super::start::RankPlacement;
use crate::mpirun::command::arguments::RankProgram;
use crate::mpirun::command::found::found;
use crate::mpirun::place::cpus;
use crate::mpirun::wire::frame::{NewWorld, ToRoot};

impl AgentJob {
    /// Takes the waiting requests of all living ranks here, and passes them on to the job's root (`mpirun`).
    /// Also reports spawned worlds that have started.
    pub(super) fn serve(&mut self) {
        for (rank, _) in self.living_ranks() {
            let state = &self.page(rank).launcher_request.state;
            if state.load(Ordering::Acquire) != LauncherRequest::ASKED {
                continue;
            }
            state.store(LauncherRequest::TAKEN, Ordering::Relaxed);
            match self.request(rank) {
                Ok(request) => self.send(ToRoot::Ask { rank, request }),
                Err(error) => self.reply(rank, &launcher::answer(&Err(error))),
            }
        }
        self.report_births();
    }

    /// Returns the memory that holds the request of rank `rank`, and later the answer: the rank's arena, and
    /// an address range in the arena.
    fn request_memory(&self, rank: u32) -> Result<(Arena, Span)> {
        let place = self.local(rank);
        let request = &self.segment.rank(place).launcher_request;
        let arena = self.segment.arena(place)?;
        let span =
            arena.span(request.at.load(Ordering::Relaxed), request.capacity.load(Ordering::Relaxed))?;
        Ok((arena, span))
    }

    fn request(&self, rank: u32) -> Result<Vec<u8>> {
        let (_arena, span) = self.request_memory(rank)?;
        let length = self.page(rank).launcher_request.bytes.load(Ordering::Relaxed);
        if length > span.bytes() as u64 {
            fail!(Class::Intern, "a request of {length} bytes in {} bytes", span.bytes());
        }
        let mut bytes = vec![0; length as usize];
        span.slice(0, bytes.len()).read(&mut bytes);
        Ok(bytes)
    }

    /// Writes the answer to a rank's request into the rank's arena, and wakes the rank. There is no answer
    /// for a rank that has ended, or whose shared memory holds impossible values.
    pub(super) fn reply(&self, rank: u32, answer: &[u8]) {
        let Some(place) = self.segment.local(rank) else { return };
        let page = self.segment.rank(place);
        if page.launcher_request.state.load(Ordering::Acquire) != LauncherRequest::TAKEN {
            return;
        }
        let Ok((_arena, span)) = self.request_memory(rank) else { return };
        let error = Error::new(Class::NoMem, "the answer of mpirun is longer than expected".to_owned());
        let short = launcher::answer(&Err(error));
        let answer = if answer.len() > span.bytes() { &short } else { answer };
        if answer.len() > span.bytes() {
            return;
        }
        span.slice(0, answer.len()).write(answer);
        page.launcher_request.bytes.store(answer.len() as u64, Ordering::Relaxed);
        page.launcher_request.state.store(LauncherRequest::ANSWERED, Ordering::Release);
        page.bell.ring();
    }

    /// Starts those processes of a spawned world that are to run on this host. If one cannot be started, ends
    /// all of them.
    pub(super) fn start_new_world(&mut self, new: &NewWorld) -> Result<()> {
        let spawn = Spawn::from_bytes(&new.spawn)?;
        let (first, size) = (new.first, new.node_of.len() as u32);
        // Worlds that had these ranks before are over.
        self.worlds.retain(|world| world.first + world.size <= first || first + size <= world.first);
        let segment = self.segment.clone();
        if first + size > segment.shape().ranks {
            fail!(
                Class::Spawn,
                "the memory that {} allows has room for {} processes",
                self.host,
                segment.shape().ranks
            );
        }
        segment.job().nodes.store(new.nodes, Ordering::Relaxed);
        segment.make_world(first, &new.node_of, new.id)?;
        segment.job().worlds.store(new.id, Ordering::Release);
        // The ranks of a mirror run on another computer.
        let here = segment.members(first).filter(|_| !self.is_dpu);
        let here: Vec<u32> = here.map(|rank| rank.peer()).collect();
        let programs = if here.is_empty() { Ok(Vec::new()) } else { self.programs(new.asker, &spawn) };
        let environment = programs.as_ref().ok().and_then(|programs| programs.first());
        let environment = environment.map(|program| program.environment.clone()).unwrap_or_default();
        self.worlds.push(LocalWorld { environment, ..LocalWorld::new(first, size) });
        if here.is_empty() {
            self.send(ToRoot::Born { first });
            return Ok(());
        }
        let parents = spawn.parents.iter().map(|parent| segment.first_of(*parent));
        match segment.local(first) {
            Some(first) => parents.for_each(|world| segment.rank(first).connected.add(world)),
            None => parents.for_each(|world| segment.world(first).connected_elsewhere.add(world)),
        }
        let cores = cpus::cores().map_or(1, |cores| cores.len());
        if self.living.len() + here.len() > cores {
            segment.job().spin_allowed.store(0, Ordering::Relaxed);
        }
        let started = programs.and_then(|programs| self.start_world_ranks(new, &spawn, &here, &programs));
        if let Err(error) = started {
            self.undo(first);
            return Err(error);
        }
        self.births.push(first);
        self.show_processes();
        Ok(())
    }

    fn start_world_ranks(
        &mut self,
        new: &NewWorld,
        spawn: &Spawn,
        here: &[u32],
        programs: &[RankProgram],
    ) -> Result<()> {
        let indices = (0..).zip(&new.counts).flat_map(|(index, count)| (0..*count).map(move |_| index));
        let indices: Vec<usize> = indices.collect();
        for (local_rank, &rank) in (0..).zip(here) {
            let number = rank - new.first;
            let Some(&index) = indices.get(number as usize) else {
                fail!(Class::Intern, "a world of another size")
            };
            self.page(rank).application.store(index as u32, Ordering::Relaxed);
            let local = (local_rank, here.len() as u32);
            let size = new.node_of.len() as u32;
            let placement = RankPlacement { rank, number, size, local, parents: &spawn.parents };
            self.start_rank(&programs[index], &placement, &[])
                .map_err(|refusal| Error::new(Class::Spawn, refusal.message))?;
        }
        Ok(())
    }

    /// Reports to the job's root (`mpirun`) each spawned world whose processes on this host have all come to
    /// MPI_Init.
    fn report_births(&mut self) {
        let segment = self.segment.clone();
        let has_come =
            |first: &mut u32| segment.members(*first).all(|rank| segment.rank(rank).state() != State::Unborn);
        let come: Vec<u32> = self.births.extract_if(.., has_come).collect();
        come.into_iter().for_each(|first| self.send(ToRoot::Born { first }));
    }

    /// Reports to the job's root (`mpirun`) that the spawned world whose first process number is `first` has
    /// failed, because one of its processes ended before MPI_Init. Ends the world's ranks on this host.
    pub(super) fn spawn_failed(&mut self, first: u32, sentence: String) {
        self.undo(first);
        if self.births.contains(&first) {
            self.births.retain(|birth| *birth != first);
            self.send(ToRoot::FailedToStart { first, sentence });
        }
    }

    /// Ends the ranks on this host of the spawned world whose first process number is `first`, because it has
    /// failed to start.
    pub(super) fn undo(&mut self, first: u32) {
        // No rank waits for this world in MPI_Finalize any more.
        self.segment.disconnect(first);
        if let Some(world) = self.worlds.iter_mut().find(|world| world.first == first) {
            world.failed_to_start = true;
        }
        self.signal_world(first, Signal::KILL);
    }

    /// Returns the programs that rank `asker` wants to spawn, changed by the keys of their infos: `wdir`
    /// (working folder), `path` (where to look), and `env`, which holds lines of NAME=VALUE (MPI 5.0, section
    /// 11.8.4).
    fn programs(&self, asker: u32, spawn: &Spawn) -> Result<Vec<RankProgram>> {
        let asker = self.segment.first_of(asker);
        let inherited = self.worlds.iter().find(|world| world.first == asker);
        let stand = PathBuf::from(OsString::from_vec(spawn.directory.clone()));
        let one = |program: &launcher::SpawnProgram| {
            let info = |key: &str| {
                program.info.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
            };
            let directory = info("wdir").map_or(stand.clone(), |wdir| stand.join(wdir));
            if !directory.is_dir() {
                fail!(
                    Class::Spawn,
                    "the info key wdir: {} is not a folder on {}",
                    directory.display(),
                    self.host
                );
            }
            let mut words: Vec<OsString> = program.words.iter().cloned().map(OsString::from_vec).collect();
            let Some(name) = words.first_mut().filter(|name| !name.is_empty()) else {
                fail!(Class::Spawn, "the command is empty");
            };
            *name = found(name, info("path"), &stand, &directory);
            let mut environment = inherited.map(|world| world.environment.clone()).unwrap_or_default();
            let lines = info("env").unwrap_or_default().lines();
            environment.extend(
                lines
                    .filter_map(|line| line.split_once('='))
                    .map(|(name, value)| (name.into(), value.into())),
            );
            Ok(RankProgram { count: program.count as u32, environment, directory: Some(directory), words })
        };
        spawn.programs.iter().map(one).collect()
    }
}
