// SPDX-License-Identifier: BSD-3-Clause
//! The facts by which this rank chooses whether it or its proxy executes an operation (`choice.rs`).

use super::Executor;
use crate::block::InstanceBlock;
use crate::habit::{MeasuredStart, MessageHabit};
use crate::staging::Readers;
use crate::{Offload, OffloadTerms, Reduction, Start};
use std::sync::atomic::Ordering;
use telemetry::{Choice, Counter};

/// The most kinds of messages for which `habits` has an entry. When there are more, all entries are dropped.
const HABITS_MAX: usize = 1024;

impl Executor {
    /// Returns the length in bytes of the shortest message that a proxy may carry. None if the rank has no
    /// proxy, or the setting `offload` forbids it.
    pub fn message_bytes_min(&self) -> Option<u64> {
        match self.config.offload {
            Offload::Off => None,
            Offload::On => Some(0),
            Offload::Auto => Some(self.config.offload_bytes_min),
        }
        .filter(|_| self.is_served())
    }

    /// Whether a proxy would carry one message of `bytes` bytes to or from `peer`, as far as is known before
    /// the message starts.
    pub fn takes_message(&self, peer: u32, bytes: u64) -> bool {
        let segment = &self.reach.segment;
        let possible = match segment.local(peer) {
            Some(_) => !segment.has_dpu(),
            None => segment.proxies_are_servers(),
        };
        let asked = self.message_bytes_min().is_some_and(|least| bytes >= least);
        asked && possible && peer != self.rank.peer()
    }

    /// Records that a message of the kind `kind` (the MPI layer's group of similar messages) starts. Returns
    /// whether a proxy should carry the message, and the start of a measurement; None if the message is not
    /// measured.
    pub fn start_measured_message(&mut self, kind: (u64, u32)) -> (bool, Option<MeasuredStart>) {
        if !self.config.measures || self.config.offload != Offload::Auto {
            return (true, None);
        }
        if self.habits.len() >= HABITS_MAX {
            self.habits.clear();
        }
        (self.habits.entry(kind).or_default().start(sys::clock::now()), Some(self.waits.start()))
    }

    /// Whether measurements say that a proxy should carry the messages of the kind `kind`. True if none was
    /// measured.
    pub fn message_pays(&self, kind: (u64, u32)) -> bool {
        self.habits.get(&kind).is_none_or(MessageHabit::pays)
    }

    /// Ends the measurement of a message, which has just ended, and records whether the rank computed
    /// meanwhile. `started` is what `start_measured_message` returned.
    pub fn end_measured_message(&mut self, kind: (u64, u32), started: MeasuredStart) {
        let waits = &mut self.waits;
        self.habits.entry(kind).or_default().end(|habit| waits.measure(started, habit));
    }

    /// Decides whether the rank or its proxy executes an operation: by what the settings ask for, what pays,
    /// and what is possible.
    pub(super) fn choose(&mut self, key: usize, block: &mut InstanceBlock, start: &Start) -> Choice {
        let terms = OffloadTerms {
            setting: self.config.offload,
            start: start.offload,
            bytes: block.moved_bytes,
            bytes_min: self.config.offload_bytes_min,
            has_steps: block.run.steps() > 0,
            has_messages: block.run.has_messages(),
        };
        let choice = crate::execute(&terms, || self.refuses(key, block, start));
        // The proxy also answers other hosts, and is then watched.
        if block.run.has_fetches()
            && !choice.is_proxy()
            && let Some(watch) = &mut self.watch
        {
            watch.takes_work();
        }
        choice
    }

    /// Returns why the proxy does not get an operation that is meant for it: the rank would be as fast, or
    /// the proxy cannot do it. None if the proxy gets the operation.
    fn refuses(&mut self, key: usize, block: &mut InstanceBlock, start: &Start) -> Option<Choice> {
        if self.is_measured(block, start) {
            let (is_here, program) = (self.is_on_one_host(block), &mut self.programs[key]);
            let computes = program.habit.computes();
            let spared = match is_here {
                true => (!computes).then_some(Choice::Waits),
                // The proxy is as fast as the rank even if the rank only waits, since the proxy serves the
                // other hosts anyway.
                false => program.trial.next(sys::clock::now(), computes).then_some(Choice::Slower),
            };
            if spared.is_some() {
                self.count(Counter::OffloadSpared, 1);
                return spared;
            }
        }
        let Some(watch) = &mut self.watch else { return Some(Choice::NoProxy) };
        let takes_work = watch.takes_work();
        let hindrance = self.hindrance(block, start, takes_work)?;
        self.counters.refused += 1;
        self.count(Counter::OffloadRefused, 1);
        Some(hindrance)
    }

    /// Returns why the proxy cannot execute an operation, or None if it can. `takes_work` says whether the
    /// proxy lives and accepts work now.
    fn hindrance(&mut self, block: &mut InstanceBlock, start: &Start, takes_work: bool) -> Option<Choice> {
        let has_dpu = self.reach.segment.has_dpu();
        if !takes_work {
            return Some(Choice::ProxyGone);
        }
        if matches!(start.reduction, Some(Reduction::User { .. })) {
            return Some(Choice::UserOperator);
        }
        if block.runs > self.config.layout_runs_max {
            return Some(Choice::Layout);
        }
        if has_dpu && !block.run.has_fetches() {
            return Some(Choice::Within);
        }
        // A proxy on another computer takes part in the edges that are fetched.
        if has_dpu
            && !(start.fetched_bytes_min == 0 && self.remote_proxy.as_ref().is_some_and(|it| it.is_welcome))
        {
            return Some(Choice::NotExported);
        }
        let private = block.private_bytes > 0 && !has_dpu;
        if private && (self.proxy_is_refused() || !block.attachable()) {
            if !self.warned_unreachable {
                self.warned_unreachable = true;
                self.warnings.push_back(format!(
                    "rank {} executes operations itself: its proxy cannot use cross-memory attach for buffers that are not from MPI_Alloc_mem",
                    self.rank
                ));
            }
            return Some(Choice::Unreachable);
        }
        None
    }

    /// Whether this executor measures how long the rank computes during the operation. It does so only if
    /// some of the operation's data goes to other hosts in messages. `EdgeMessage::is_overlapped` then holds
    /// the result.
    pub(super) fn measures_messages(&self, block: &InstanceBlock, start: &Start) -> bool {
        self.config.measures && block.run.has_messages() && start.offload != Offload::Off
    }

    /// Whether measurements decide if the rank or its proxy executes the operation. On one host the executor
    /// measures whether the rank computes meanwhile; between hosts, whether rank or proxy is faster.
    pub(super) fn is_measured(&self, block: &InstanceBlock, start: &Start) -> bool {
        let auto = [self.config.offload, start.offload] == [Offload::Auto, Offload::Auto];
        let pays = match self.is_on_one_host(block) {
            true => block.moved_bytes >= self.config.offload_bytes_min && block.run.steps() > 0,
            false => !start.message,
        };
        self.config.measures && auto && self.is_served() && pays
    }

    /// Finds out which processes can read the private memory from which this rank sends. The answer decides
    /// which sends are copied to the arena.
    pub(super) fn readers(&self, block: &InstanceBlock, start: &Start) -> Readers {
        let job = self.reach.segment.job();
        let ranks_read = job.cma_forbidden.load(Ordering::Relaxed) == 0;
        let verdict = &self.reach.segment.rank(self.rank).scalars[crate::proxy::VERDICT];
        // A proxy on another computer reads by keys, and if it does not, the rank itself does.
        let has_fetches = block.run.has_fetches();
        let server_reads = match self.reach.segment.has_dpu() || !has_fetches {
            true => ranks_read,
            false => ranks_read && verdict.load(Ordering::Relaxed) == crate::proxy::REACHED,
        };
        let buffered = has_fetches && !start.message && !self.reach.segment.has_dpu();
        let (refusals, fetched_bytes_min) = (job.unreadable.load(Ordering::Acquire), start.fetched_bytes_min);
        Readers { ranks_read, server_reads, refusals, fetched_bytes_min, buffered }
    }

    /// Whether the proxy cannot read this rank's private memory, or cross-memory attach is forbidden in the
    /// job.
    fn proxy_is_refused(&self) -> bool {
        let segment = &self.reach.segment;
        let verdict = segment.rank(self.rank).scalars[crate::proxy::VERDICT].load(Ordering::Relaxed);
        segment.job().cma_forbidden.load(Ordering::Relaxed) != 0 || verdict == crate::proxy::REFUSED
    }

    /// Whether all ranks that take part in the operation are on this host.
    fn is_on_one_host(&self, block: &InstanceBlock) -> bool {
        !self.reach.segment.has_nodes() || block.run.peers.iter().all(|peer| peer.local().is_some())
    }
}
