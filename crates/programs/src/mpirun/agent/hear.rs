//! What an agent does for `mpirun`, and what it tells it.
//!
//! Read next: `wire/frame.rs`.

use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;
use std::time::Instant;

use transport::shm::State;

use super::job::Job;
use super::upstream::Upstream;
use crate::mpirun::wire::frame::{Arrivals, Down, Up};
use crate::mpirun::wire::statistics::Counted;
use crate::mpirun::wire::upward::{PULSE, SILENCE, STANDSTILL, tell};

impl Job {
    /// Obeys `mpirun`, and tells it what is new here.
    pub(super) fn hear(&mut self) {
        let Some(mut upstream) = self.upstream.take() else { return };
        let mut bytes = [0; 64];
        while rustix::io::read(&upstream.woken, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
        let now = Instant::now();
        let gap = now.duration_since(std::mem::replace(&mut upstream.looked, now));
        if gap > STANDSTILL {
            upstream.heard += gap;
        }
        loop {
            match upstream.inbox.try_recv() {
                Ok(frame) => {
                    upstream.heard = now;
                    self.obey_frame(&mut upstream, frame);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.lose(&mut upstream);
                    break;
                }
            }
        }
        // A stopped `mpirun` says nothing.
        if !upstream.is_stopped && now.duration_since(upstream.heard) > SILENCE {
            self.lose(&mut upstream);
        }
        if now.duration_since(upstream.pulse) > PULSE {
            upstream.pulse = now;
            tell(&Up::Alive);
        }
        self.tell_news(&mut upstream);
        self.upstream = Some(upstream);
    }

    fn obey_frame(&mut self, upstream: &mut Upstream, frame: Down) {
        match frame {
            Down::Names(names) => {
                names.iter().for_each(|(rank, name)| self.segment.set_endpoint(*rank, name));
                self.ring_all();
            }
            Down::Arrived { first, arrivals } => {
                let world = self.segment.world(first);
                let elsewhere = &mut upstream.worlds.entry(first).or_default().elsewhere;
                world.born.add(arrivals.born.saturating_sub(elsewhere.born));
                world.leaving.add(arrivals.leaving.saturating_sub(elsewhere.leaving));
                *elsewhere = arrivals;
                self.ring_all();
            }
            Down::Begin(begin) => {
                let places = begin.first..begin.first + begin.node_of.len() as u32;
                upstream.named.retain(|rank| !places.contains(rank));
                upstream.worlds.retain(|first, _| !places.contains(first));
                if let Err(error) = self.begin(&begin, None) {
                    tell(&Up::Stillborn { first: begin.first, sentence: error.message.clone() });
                }
            }
            Down::Answer { rank, bytes } => self.reply(rank, &bytes),
            Down::Undo { first } => self.undo(first),
            Down::Connected { first, to } => {
                let set = &self.segment.world(first).connected_elsewhere;
                set.each(self.segment.shape().ranks, |world| {
                    if !to.contains(&world) {
                        set.remove(world)
                    }
                });
                to.iter().for_each(|world| set.add(*world));
                self.ring_all();
            }
            Down::Closed(ports) => {
                ports.iter().for_each(|port| self.segment.job().note_closed(*port));
                self.ring_all();
            }
            Down::Over { first } => {
                self.segment.world(first).over.store(1, Ordering::Release);
                self.ring_all();
            }
            Down::Input(bytes) if bytes.is_empty() => upstream.input = None,
            Down::Input(bytes) => {
                // Ranks that do not read any more need nothing.
                let sent = upstream.input.as_ref().is_some_and(|input| input.send(bytes.clone()).is_ok());
                if !sent {
                    tell(&Up::Taken(bytes.len() as u32));
                }
            }
            Down::Signal(signal) => self.obey(signal),
            Down::Stop => {
                upstream.is_stopped = true;
                self.stop();
                tell(&Up::Stopped);
            }
            Down::Continue => {
                upstream.is_stopped = false;
                self.go_on();
            }
            Down::End { worlds, signal, code } => self.end(&worlds, code, signal),
            Down::Close { signal, code } => {
                upstream.is_closed = true;
                if code != 0 {
                    self.end_all(code, signal);
                }
            }
            Down::Start(_) | Down::Alive => {}
        }
    }

    /// `mpirun`, or the way to it, is gone.
    fn lose(&mut self, upstream: &mut Upstream) {
        if !std::mem::replace(&mut upstream.is_lost, true) {
            upstream.is_closed = true;
            self.end_all(1, libc::SIGKILL);
        }
    }

    fn tell_news(&mut self, upstream: &mut Upstream) {
        let living: Vec<u32> = self.living_ranks().into_iter().map(|(rank, _)| rank).collect();
        let ranks = living.iter().filter(|rank| self.page(**rank).state() == State::Running);
        let proxies = (0..self.segment.shape().proxies).map(|proxy| self.segment.proxy_endpoint(proxy));
        // Those that run elsewhere are told from there; their end also from here, if ranks gave them up.
        let is_elsewhere = self.segment.has_dpu() && !self.is_dpu;
        let gone = proxies.clone().filter(|it| is_elsewhere && self.segment.is_gone(*it));
        for proxy in gone.filter(|it| upstream.given_up.insert(*it)).collect::<Vec<_>>() {
            tell(&Up::Names(vec![(proxy, Vec::new())]));
        }
        let names: Vec<_> = ranks
            .copied()
            .chain(proxies.filter(|_| !is_elsewhere))
            .filter(|endpoint| !upstream.named.contains(endpoint))
            .filter_map(|endpoint| Some((endpoint, self.segment.endpoint(endpoint)?)))
            .collect();
        if !names.is_empty() {
            upstream.named.extend(names.iter().map(|(endpoint, _)| *endpoint));
            tell(&Up::Names(names));
        }
        if self.is_dpu {
            return;
        }
        let is_ours = |port: &u64| self.segment.local(((port >> 32) as u32).wrapping_sub(1)).is_some();
        let mut closed = self.segment.job().closed_since(&mut upstream.closings);
        closed.retain(is_ours);
        if !closed.is_empty() {
            tell(&Up::Closed(closed));
        }
        for world in &self.worlds {
            let (first, places) = (world.first, world.first..world.first + world.size);
            let told = upstream.worlds.entry(first).or_default();
            let shared = self.segment.world(first);
            let arrived = Arrivals {
                born: shared.born.count() - told.elsewhere.born,
                leaving: shared.leaving.count() - told.elsewhere.leaving,
            };
            if arrived != told.arrived {
                told.arrived = arrived;
                tell(&Up::Arrived { first, arrivals: arrived });
            }
            let connected = self.segment.connected_here(first);
            if connected != told.connected {
                told.connected.clone_from(&connected);
                tell(&Up::Connected { first, to: connected });
            }
            let is_here = self.segment.members(first).next().is_some();
            if is_here && !told.is_over && !living.iter().any(|rank| places.contains(rank)) {
                told.is_over = true;
                if shared.statistics.swap(0, Ordering::Relaxed) != 0 {
                    tell(&Up::Counted { first, counted: Counted::here(&self.segment, first) });
                }
                tell(&Up::Over { first, is_broken: world.broken });
            }
        }
    }

    fn ring_all(&self) {
        self.living_ranks().iter().for_each(|(rank, _)| self.page(*rank).bell.ring());
        (0..self.segment.shape().proxies).for_each(|proxy| self.segment.proxy(proxy).bell.ring());
    }
}
