// SPDX-License-Identifier: BSD-3-Clause
//! How an agent (the `mpirun` process on one host) carries out the frames (messages) from the root (the
//! `mpirun` process that decides), and which changes on its host it reports to the root.
//!
//! Read next: `wire/frame.rs`.

use std::sync::atomic::Ordering;

use rustix::process::Signal;
use transport::shm::State;

use super::job::AgentJob;
use crate::mpirun::wire::frame::{Arrivals, NewWorld, ToAgent, ToRoot};
use crate::mpirun::wire::statistics::Counted;

impl AgentJob {
    /// Takes all frames (messages) that have come from the job's root (`mpirun`), and carries them out.
    /// Returns whether there were any.
    pub(super) fn receive_frames(&mut self) -> bool {
        let (frames, is_lost) = self.upstream.receive();
        let has_received = !frames.is_empty();
        frames.into_iter().for_each(|frame| self.obey_frame(frame));
        if is_lost {
            self.end_all(1, libc::SIGKILL);
        }
        has_received
    }

    fn obey_frame(&mut self, frame: ToAgent) {
        match frame {
            ToAgent::Names(names) => {
                names.iter().for_each(|(rank, name)| self.segment.set_endpoint(*rank, name));
                self.ring_all();
            }
            ToAgent::Arrived { first, arrivals } => self.obey_arrived(first, arrivals),
            ToAgent::StartWorld(new) => self.obey_start_world(&new),
            ToAgent::Answer { rank, bytes } => self.reply(rank, &bytes),
            ToAgent::UndoWorld { first } => self.undo(first),
            ToAgent::Connected { first, to } => self.obey_connected(first, &to),
            ToAgent::PortsClosed(ports) => {
                ports.iter().for_each(|port| self.segment.job().note_closed(*port));
                self.ring_all();
            }
            ToAgent::Over { first } => {
                self.segment.world(first).over.store(1, Ordering::Release);
                self.ring_all();
            }
            ToAgent::Input(bytes) => self.obey_input(bytes),
            ToAgent::Signal(signal) => self.obey(signal),
            ToAgent::Stop => {
                self.upstream.is_stopped = true;
                self.stop();
                self.send(ToRoot::Stopped);
            }
            ToAgent::Continue => {
                self.upstream.is_stopped = false;
                self.go_on();
            }
            ToAgent::EndWorlds { worlds, signal, code } => self.end(&worlds, code, signal),
            ToAgent::EndJob { signal, code } => self.obey_end_job(signal, code),
            ToAgent::Start(_) | ToAgent::Clock { .. } | ToAgent::Alive => {}
        }
    }

    /// Adds the ranks that have come to MPI_Init and to MPI_Finalize on other hosts to the counts of a world
    /// in shared memory, and wakes all ranks and proxies here.
    fn obey_arrived(&mut self, first: u32, arrivals: Arrivals) {
        let world = self.segment.world(first);
        let elsewhere = &mut self.upstream.worlds.entry(first).or_default().elsewhere;
        world.born.add(arrivals.born.saturating_sub(elsewhere.born));
        world.leaving.add(arrivals.leaving.saturating_sub(elsewhere.leaving));
        *elsewhere = arrivals;
        self.ring_all();
    }

    /// Records in shared memory that ranks on other hosts have connected the world `first` with the worlds
    /// `to`, and with no others. Wakes all ranks and proxies here. Worlds are named by their first number.
    fn obey_connected(&mut self, first: u32, to: &[u32]) {
        let set = &self.segment.world(first).connected_elsewhere;
        set.each(self.segment.shape().ranks, |world| {
            if !to.contains(&world) {
                set.remove(world)
            }
        });
        to.iter().for_each(|world| set.add(*world));
        self.ring_all();
    }

    /// Passes bytes of `mpirun`'s standard input on to the ranks that read this input. If `bytes` is empty,
    /// the input has ended.
    fn obey_input(&mut self, bytes: Vec<u8>) {
        let taken = bytes.len() as u32;
        if taken == 0 {
            self.upstream.input = None;
            return;
        }
        // Ranks that do not read any more need nothing.
        let sent = self.upstream.input.as_ref().is_some_and(|input| input.send(bytes).is_ok());
        if !sent {
            self.send(ToRoot::Taken(taken));
        }
    }

    fn obey_end_job(&mut self, signal: i32, code: u8) {
        self.upstream.is_closed = true;
        if signal != 0 {
            self.end_all(code, signal);
        }
        // The second request to end does not wait.
        if signal == libc::SIGKILL {
            self.signal_ranks(Signal::KILL);
        }
    }

    fn obey_start_world(&mut self, new: &NewWorld) {
        let first = new.first;
        let places = first..first + new.node_of.len() as u32;
        self.upstream.named.retain(|rank| !places.contains(rank));
        self.upstream.worlds.retain(|first, _| !places.contains(first));
        if let Err(error) = self.start_new_world(new) {
            self.send(ToRoot::FailedToStart { first, sentence: error.message.clone() });
            if !self.worlds.iter().any(|world| world.first == first) {
                self.send(ToRoot::Over { first, is_broken: false });
            }
        }
    }

    /// Reports to the job's root (`mpirun`) what has changed on this host since the last call: names of
    /// network endpoints, ports of MPI_Open_port that were closed, and how many ranks of each world have
    /// arrived or ended.
    pub(super) fn report_changes(&mut self) {
        let living: Vec<u32> = self.living_ranks().into_iter().map(|(rank, _)| rank).collect();
        let proxies = (0..self.segment.shape().proxies).map(|proxy| self.segment.proxy_endpoint(proxy));
        // Proxies on another computer are reported from there; their end also from here, if ranks gave them
        // up.
        let is_elsewhere = self.segment.has_dpu() && !self.is_dpu;
        let gone = proxies.clone().filter(|it| is_elsewhere && self.segment.is_gone(*it));
        for proxy in gone.filter(|it| self.upstream.given_up.insert(*it)).collect::<Vec<_>>() {
            self.send(ToRoot::Names(vec![(proxy, Vec::new())]));
        }
        let ranks = living.iter().filter(|rank| self.page(**rank).state() == State::Running);
        let names: Vec<_> = ranks
            .copied()
            .chain(proxies.filter(|_| !is_elsewhere))
            .filter(|endpoint| !self.upstream.named.contains(endpoint))
            .filter_map(|endpoint| Some((endpoint, self.segment.endpoint(endpoint)?)))
            .collect();
        if !names.is_empty() {
            self.upstream.named.extend(names.iter().map(|(endpoint, _)| *endpoint));
            self.send(ToRoot::Names(names));
        }
        if self.is_dpu {
            return;
        }
        let is_ours = |port: &u64| self.segment.local(((port >> 32) as u32).wrapping_sub(1)).is_some();
        let mut closed = self.segment.job().closed_since(&mut self.upstream.closings);
        closed.retain(is_ours);
        if !closed.is_empty() {
            self.send(ToRoot::PortsClosed(closed));
        }
        let uplink = self.upstream.uplink.clone();
        for world in &self.worlds {
            let (first, places) = (world.first, world.first..world.first + world.size);
            let reported = self.upstream.worlds.entry(first).or_default();
            let shared = self.segment.world(first);
            let arrived = Arrivals {
                born: shared.born.count() - reported.elsewhere.born,
                leaving: shared.leaving.count() - reported.elsewhere.leaving,
            };
            if arrived != reported.arrived {
                reported.arrived = arrived;
                uplink.send(ToRoot::Arrived { first, arrivals: arrived });
            }
            let connected = self.segment.connected_here(first);
            if connected != reported.connected {
                reported.connected.clone_from(&connected);
                uplink.send(ToRoot::Connected { first, to: connected });
            }
            let is_here = self.segment.members(first).next().is_some();
            if is_here && !reported.is_over && !living.iter().any(|rank| places.contains(rank)) {
                reported.is_over = true;
                if shared.statistics.swap(0, Ordering::Relaxed) != 0 {
                    uplink.send(ToRoot::Counted { first, counted: Counted::here(&self.segment, first) });
                }
                uplink.send(ToRoot::Over { first, is_broken: world.broken });
            }
        }
    }

    fn ring_all(&self) {
        self.living_ranks().iter().for_each(|(rank, _)| self.page(*rank).bell.ring());
        (0..self.segment.shape().proxies).for_each(|proxy| self.segment.proxy(proxy).bell.ring());
    }
}
