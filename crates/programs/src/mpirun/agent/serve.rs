//! What ranks ask of `mpirun`: to start processes (MPI 5.0, section 11.8), and to keep names of ports
//! (section 11.9.4).
//!
//! A rank writes its request into its arena, and sends us SIGCHLD, for which we look anyway. An agent passes
//! requests on to `mpirun`, which has all its agents begin the new world. The answer to a spawn waits until
//! all the new processes have come, or one of them has ended before.
//!
//! Read next: `places.rs`, `worlds.rs` (the side of `mpirun` of several hosts).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use error::{Class, Error, Result, fail};
use rustix::process::Signal;
use sys::Span;
use transport::shm::launcher::{self, Request, Spawn, Spawned};
use transport::shm::{Arena, Ask, State};

use super::job::{Birth, Job, World};
use super::start::Place;
use crate::mpirun::command::arguments::Program;
use crate::mpirun::command::found::found;
use crate::mpirun::place::{cpus, hosts};
use crate::mpirun::wire::frame::{Begin, Up};
use crate::mpirun::wire::upward::tell;

impl Job {
    /// Takes all requests that are there, and answers those that can be answered.
    pub(super) fn serve(&mut self) {
        for (rank, _) in self.living_ranks() {
            let state = &self.page(rank).ask.state;
            if state.load(Ordering::Acquire) != Ask::ASKED {
                continue;
            }
            state.store(Ask::TAKEN, Ordering::Relaxed);
            let request = self.request(rank);
            if self.upstream.is_some()
                && let Ok(request) = request
            {
                tell(&Up::Ask { rank, request });
                continue;
            }
            let request = request.and_then(|bytes| Request::from_bytes(&bytes));
            match request.and_then(|request| self.fulfil(rank, request)) {
                Ok(None) => {}
                Ok(Some(answer)) => self.reply(rank, &launcher::answer(&Ok(answer))),
                Err(error) => self.reply(rank, &launcher::answer(&Err(error))),
            }
        }
        self.look_at_births();
    }

    /// Where a rank's request lies, and where the answer goes.
    fn letter(&self, rank: u32) -> Result<(Arena, Span)> {
        let place = self.local(rank);
        let ask = &self.segment.rank(place).ask;
        let arena = self.segment.arena(place)?;
        let span = arena.span(ask.at.load(Ordering::Relaxed), ask.capacity.load(Ordering::Relaxed));
        let Some(span) = span else { fail!(Class::Intern, "a request lies outside its rank's arena") };
        Ok((arena, span))
    }

    fn request(&self, rank: u32) -> Result<Vec<u8>> {
        let (_arena, span) = self.letter(rank)?;
        let length = self.page(rank).ask.bytes.load(Ordering::Relaxed);
        if length > span.bytes() as u64 {
            fail!(Class::Intern, "a request of {length} bytes in {} bytes", span.bytes());
        }
        let mut bytes = vec![0; length as usize];
        span.slice(0, bytes.len()).read(&mut bytes);
        Ok(bytes)
    }

    /// Answers a rank. One whose memory makes no sense, or that has ended, gets no answer.
    pub(super) fn reply(&self, rank: u32, answer: &[u8]) {
        let Some(place) = self.segment.local(rank) else { return };
        let page = self.segment.rank(place);
        if page.ask.state.load(Ordering::Acquire) != Ask::TAKEN {
            return;
        }
        let Ok((_arena, span)) = self.letter(rank) else { return };
        let error = Error::new(Class::NoMem, "the answer of mpirun is longer than expected".to_owned());
        let short = launcher::answer(&Err(error));
        let answer = if answer.len() > span.bytes() { &short } else { answer };
        if answer.len() > span.bytes() {
            return;
        }
        span.slice(0, answer.len()).write(answer);
        page.ask.bytes.store(answer.len() as u64, Ordering::Relaxed);
        page.ask.state.store(Ask::ANSWERED, Ordering::Release);
        page.bell.ring();
    }

    /// The answer, unless it comes later.
    fn fulfil(&mut self, rank: u32, request: Request) -> Result<Option<Vec<u8>>> {
        let Request::Spawn(spawn) = request else { return self.places.name(request).map(Some) };
        for (_, list) in
            spawn.programs.iter().flat_map(|program| &program.info).filter(|(key, _)| key == "host")
        {
            let hosts = hosts::list(list)
                .map_err(|why| Error::new(Class::Spawn, format!("the info key host: {why}")))?;
            if !hosts.are_here() {
                fail!(
                    Class::Spawn,
                    "the info key host: {list} is not this machine, {}, to which alone mpirun was given: name its hosts by mpirun -hosts",
                    self.host
                );
            }
        }
        self.forget_ended();
        let counts = self.places.counts(&spawn)?;
        let node_of = vec![0; counts.iter().sum::<u64>() as usize];
        let (first, id) = self.places.take(&node_of)?;
        let begin = Begin {
            id,
            first,
            node_of,
            counts: counts.clone(),
            asker: rank,
            spawn: spawn.to_bytes(),
            nodes: 1,
        };
        let spawned = Spawned { world: id, first, counts };
        self.begin(&begin, Some((rank, spawned)))?;
        Ok(None)
    }

    /// Starts the processes of a new world that are to run here: all of them, or none.
    pub(super) fn begin(&mut self, begin: &Begin, asker: Option<(u32, Spawned)>) -> Result<()> {
        let spawn = Spawn::from_bytes(&begin.spawn)?;
        let (first, size) = (begin.first, begin.node_of.len() as u32);
        // What had these places is over.
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
        segment.job().nodes.store(begin.nodes, Ordering::Relaxed);
        segment.begin_world(first, &begin.node_of, begin.id)?;
        segment.job().worlds.store(begin.id, Ordering::Release);
        // A mirror's ranks run elsewhere.
        let here = segment.members(first).filter(|_| !self.is_dpu);
        let here: Vec<u32> = here.map(|rank| rank.peer()).collect();
        let programs = if here.is_empty() { Ok(Vec::new()) } else { self.programs(begin.asker, &spawn) };
        let environment = programs.as_ref().ok().and_then(|programs| programs.first());
        let environment = environment.map(|program| program.environment.clone()).unwrap_or_default();
        self.worlds.push(World { environment, ..World::new(first, size) });
        if here.is_empty() {
            tell(&Up::Born { first });
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
        let started = programs.and_then(|programs| self.start_world(begin, &spawn, &here, &programs));
        if let Err(error) = started {
            self.undo(first);
            return Err(error);
        }
        self.births.push(Birth { first, asker });
        self.show_processes();
        Ok(())
    }

    fn start_world(
        &mut self,
        begin: &Begin,
        spawn: &Spawn,
        here: &[u32],
        programs: &[Program],
    ) -> Result<()> {
        let indices = (0..).zip(&begin.counts).flat_map(|(index, count)| (0..*count).map(move |_| index));
        let indices: Vec<usize> = indices.collect();
        for (local_rank, &rank) in (0..).zip(here) {
            let number = rank - begin.first;
            let Some(&index) = indices.get(number as usize) else {
                fail!(Class::Intern, "a world of another size")
            };
            self.page(rank).application.store(index as u32, Ordering::Relaxed);
            let local = (local_rank, here.len() as u32);
            let size = begin.node_of.len() as u32;
            let place = Place { rank, number, size, local, parents: &spawn.parents };
            self.start_rank(&programs[index], &place, &[])
                .map_err(|refusal| Error::new(Class::Spawn, refusal.message))?;
        }
        Ok(())
    }

    /// Answers spawns of which all processes have come.
    fn look_at_births(&mut self) {
        let segment = self.segment.clone();
        let has_come = |birth: &mut Birth| {
            segment.members(birth.first).all(|rank| segment.rank(rank).state() != State::Unborn)
        };
        let come: Vec<Birth> = self.births.extract_if(.., has_come).collect();
        for birth in come {
            match birth.asker {
                Some((rank, spawned)) => self.reply(rank, &launcher::answer(&Ok(spawned.to_bytes()))),
                None => tell(&Up::Born { first: birth.first }),
            }
        }
    }

    /// A process of a spawned world has ended before it came: so the spawn has failed.
    pub(super) fn stillborn(&mut self, first: u32, sentence: String) {
        self.undo(first);
        let Some(at) = self.births.iter().position(|birth| birth.first == first) else { return };
        match self.births.remove(at).asker {
            Some((rank, _)) => {
                self.reply(rank, &launcher::answer(&Err(Error::new(Class::Spawn, sentence))));
            }
            None => tell(&Up::Stillborn { first, sentence }),
        }
    }

    /// Ends a world of which not all have come so far as to be born.
    pub(super) fn undo(&mut self, first: u32) {
        // Nobody waits for it in MPI_Finalize.
        self.segment.disconnect(first);
        if let Some(world) = self.worlds.iter_mut().find(|world| world.first == first) {
            world.stillborn = true;
        }
        self.signal_world(first, Signal::KILL);
    }

    /// Gives back the places of spawned worlds that have ended in order, and to which nobody who lives is
    /// connected.
    fn forget_ended(&mut self) {
        let living: Vec<u32> = self.living_ranks().into_iter().map(|(rank, _)| rank).collect();
        let segment = &self.segment;
        let leads = |rank: u32, world: u32| {
            segment.local(rank).is_some_and(|rank| segment.rank(rank).connected.has(world))
        };
        self.worlds.retain(|world| {
            let mine = world.first..world.first + world.size;
            let used = |rank: &u32| mine.contains(rank) || leads(*rank, world.first);
            let stays = world.first == 0 || world.broken || living.iter().any(used);
            if !stays {
                self.places.free(world.first);
            }
            stays
        });
    }

    /// The programs with what their infos say: `wdir`, `path`, `host`, and `env`, lines of NAME=VALUE (MPI
    /// 5.0, section 11.8.4).
    fn programs(&self, asker: u32, spawn: &Spawn) -> Result<Vec<Program>> {
        let asker = self.segment.first_of(asker);
        let inherited = self.worlds.iter().find(|world| world.first == asker);
        let stand = PathBuf::from(OsString::from_vec(spawn.directory.clone()));
        let one = |program: &launcher::Program| {
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
            Ok(Program { count: program.count as u32, environment, directory: Some(directory), words })
        };
        spawn.programs.iter().map(one).collect()
    }
}
