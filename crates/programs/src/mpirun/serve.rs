//! What ranks ask of `mpirun`: to start processes (MPI 5.0, section 11.8), and to keep names of ports
//! (section 11.9.4).
//!
//! A rank writes its request into its arena, and sends us SIGCHLD, for which we look anyway. A new world gets
//! a run of ranks of the segment that nobody uses: never used, or left in order by a world with which nobody
//! is connected any more.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use error::{Class, Error, Result, fail};
use rustix::process::Signal;
use sys::Span;
use transport::shm::Ask;
use transport::shm::launcher::{self, Request, Spawn, Spawned};

use super::arguments::Program;
use super::cpus;
use super::hosts;
use super::job::{Job, World};
use super::start::Place;

impl Job {
    /// Answers all requests that are there.
    pub(super) fn serve(&mut self) {
        for (rank, _) in self.living_ranks() {
            if self.page(rank).ask.state.load(Ordering::Acquire) == Ask::ASKED {
                // A rank whose memory makes no sense gets no answer.
                let _ = self.answer(rank);
            }
        }
    }

    fn answer(&mut self, rank: u32) -> Result<()> {
        let segment = self.segment.clone();
        let place = self.local(rank);
        let ask = &segment.rank(place).ask;
        let (at, bytes) = (ask.at.load(Ordering::Relaxed), ask.bytes.load(Ordering::Relaxed));
        let arena = segment.arena(place)?;
        let outside = || Error::new(Class::Intern, "a request lies outside its rank's arena".to_owned());
        let read = |span: Span| {
            let mut bytes = vec![0; span.bytes()];
            span.read(&mut bytes);
            bytes
        };
        let request = Request::from_bytes(&read(arena.span(at, bytes).ok_or_else(outside)?));
        let mut answer = launcher::answer(&request.and_then(|request| self.fulfil(rank, request)));
        let room = arena.span(at, ask.capacity.load(Ordering::Relaxed)).ok_or_else(outside)?;
        if answer.len() > room.bytes() {
            let error = Error::new(Class::NoMem, "the answer of mpirun is longer than expected".to_owned());
            answer = launcher::answer(&Err(error));
        }
        room.slice(0, answer.len()).write(&answer);
        ask.bytes.store(answer.len() as u64, Ordering::Relaxed);
        ask.state.store(Ask::ANSWERED, Ordering::Release);
        segment.rank(place).bell.ring();
        Ok(())
    }

    fn fulfil(&mut self, rank: u32, request: Request) -> Result<Vec<u8>> {
        if self.upstream.is_some() {
            fail!(
                Class::Spawn,
                "processes cannot be spawned, nor names published, in a job that runs on several hosts"
            );
        }
        match request {
            Request::Spawn(spawn) => Ok(self.spawn(rank, &spawn)?.to_bytes()),
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
        }
    }

    /// Starts a world, all of it or nothing.
    fn spawn(&mut self, asker: u32, spawn: &Spawn) -> Result<Spawned> {
        let counts = self.counts(spawn)?;
        let size = counts.iter().sum::<u64>() as u32;
        let programs = self.programs(asker, spawn)?;
        let Some(first) = self.room(size) else { return self.no_room(size) };
        let segment = self.segment.clone();
        let id = segment.job().worlds.fetch_add(1, Ordering::AcqRel) + 1;
        segment.begin_world(first, size, id)?;
        let environment = programs[0].environment.clone();
        self.worlds.push(World { environment, ..World::new(first, size) });
        for parent in spawn.parents.iter().filter_map(|parent| segment.local(*parent)) {
            self.page(first).connected.add(segment.rank(parent).first.load(Ordering::Relaxed));
        }
        let cores = cpus::cores().map_or(1, |cores| cores.len());
        if self.living.len() + size as usize > cores {
            segment.job().spin_allowed.store(0, Ordering::Relaxed);
        }
        let indices = (0..).zip(&counts).flat_map(|(index, count)| (0..*count).map(move |_| index));
        for (number, index) in (0..size).zip(indices) {
            let rank = first + number;
            self.page(rank).application.store(index as u32, Ordering::Relaxed);
            let place = Place { rank, number, size, local: (number, size), parents: &spawn.parents };
            if let Err(refusal) = self.start_rank(&programs[index], &place, &[]) {
                self.undo(first);
                fail!(Class::Spawn, "{}", refusal.message);
            }
        }
        self.show_processes();
        Ok(Spawned { world: id, first, counts })
    }

    /// Ends a world of which not all have come so far as to be born.
    pub(super) fn undo(&mut self, first: u32) {
        // Nobody waits for it in MPI_Finalize.
        let connected = &self.page(first).connected;
        connected.each(self.segment.shape().ranks, |world| connected.remove(world));
        if let Some(world) = self.worlds.iter_mut().find(|world| world.first == first) {
            world.stillborn = true;
        }
        self.signal_world(first, Signal::KILL);
    }

    /// How many processes each program gets: what was asked for, or with the info key `soft` (MPI 5.0,
    /// section 11.8.4) the most that it allows and that find room.
    fn counts(&mut self, spawn: &Spawn) -> Result<Vec<u64>> {
        let mut room = self.places_free();
        let mut counts = Vec::new();
        for program in &spawn.programs {
            let mut count = program.count;
            if let Some((_, soft)) = program.info.iter().find(|(key, _)| key == "soft") {
                let allowed = soft_counts(soft)?;
                let best = allowed.into_iter().filter(|soft| *soft <= count.min(room)).max();
                count = best.unwrap_or(count);
            }
            room = room.saturating_sub(count);
            counts.push(count);
        }
        let ranks = u64::from(self.segment.shape().ranks);
        match counts.iter().try_fold(0, |sum: u64, count| sum.checked_add(*count)) {
            None => fail!(Class::Spawn, "more processes than can be counted"),
            Some(0) => fail!(Class::Spawn, "there is nothing to start"),
            Some(sum) if sum > ranks => self.no_room(sum),
            Some(_) => Ok(counts),
        }
    }

    fn no_room<T>(&self, size: impl std::fmt::Display) -> Result<T> {
        let (places, first) = (self.segment.shape().ranks, self.segment.members(0).count() as u32);
        let taken: u32 = self.worlds.iter().skip(1).map(|world| world.size).sum();
        fail!(
            Class::Spawn,
            "there is no room for {size} more processes: of {} places for spawned ones {taken} are taken (OUTBOARD_SPAWN_RANKS_MAX sets how many there are)",
            places - first
        );
    }

    fn places_free(&mut self) -> u64 {
        self.forget_ended();
        let taken: u32 = self.worlds.iter().map(|world| world.size).sum();
        u64::from(self.segment.shape().ranks.saturating_sub(taken))
    }

    /// The first run of so many free ranks.
    fn room(&mut self, size: u32) -> Option<u32> {
        self.forget_ended();
        let free =
            |at: u32| !self.worlds.iter().any(|world| (world.first..world.first + world.size).contains(&at));
        (0..(self.segment.shape().ranks + 1).saturating_sub(size))
            .find(|first| (*first..first + size).all(free))
    }

    /// Gives back the ranks of spawned worlds that have ended in order, and to which nobody who lives is
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
            world.first == 0 || world.broken || living.iter().any(used)
        });
    }

    /// The programs with what their infos say: `wdir`, `path`, `host`, and `env`, lines of NAME=VALUE (MPI
    /// 5.0, section 11.8.4).
    fn programs(&self, asker: u32, spawn: &Spawn) -> Result<Vec<Program>> {
        let asker = self.page(asker).first.load(Ordering::Relaxed);
        let inherited = self.worlds.iter().find(|world| world.first == asker);
        let stand = PathBuf::from(OsString::from_vec(spawn.directory.clone()));
        let one = |program: &launcher::Program| {
            let info = |key: &str| {
                program.info.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
            };
            if let Some(host) = info("host") {
                let list = hosts::list(host)
                    .map_err(|why| Error::new(Class::Spawn, format!("the info key host: {why}")))?;
                if !list.are_here() {
                    fail!(
                        Class::Spawn,
                        "the info key host: {host} is not this machine, {}, where alone processes are spawned",
                        self.host
                    );
                }
            }
            let directory = info("wdir").map_or(stand.clone(), |wdir| stand.join(wdir));
            if !directory.is_dir() {
                fail!(Class::Spawn, "the info key wdir: {} is not a folder", directory.display());
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

/// The program that a name means: in one of the folders of the info key `path`, in the folder where it
/// starts, where the parent stands, or else as a shell would find it.
pub(super) fn found(name: &OsString, path: Option<&str>, stand: &Path, directory: &Path) -> OsString {
    let is_program = |path: &PathBuf| path.is_file();
    let folders =
        path.into_iter().flat_map(|path| path.split([':', ' '])).filter(|folder| !folder.is_empty());
    if let Some(path) = folders.map(|folder| stand.join(folder).join(name)).find(is_program) {
        return path.into();
    }
    let has_folder = name.as_encoded_bytes().contains(&b'/');
    let near = [directory.join(name), stand.join(name)];
    match near.into_iter().find(|path| has_folder && is_program(path)) {
        Some(path) => path.into(),
        None => name.clone(),
    }
}

/// The numbers that `soft` allows: a list of numbers and of ranges first:last or first:last:stride, as for
/// MPI_Group_range_incl.
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

    #[test]
    fn programs_are_found_where_the_info_says() {
        let (bin, root) = (Path::new("/bin"), Path::new("/"));
        assert_eq!(found(&"sh".into(), Some("/nowhere:bin"), root, root), "/bin/sh");
        assert_eq!(found(&"./sh".into(), None, bin, root), "/bin/./sh");
        assert_eq!(found(&"sh".into(), None, bin, root), "sh");
    }
}
