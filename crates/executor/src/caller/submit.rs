// SPDX-License-Identifier: BSD-3-Clause
//! How the rank gives an instance to its proxy: it writes the offset of the instance's record into a ring if
//! the proxy runs on this host, else it sends a note and keys (`export.rs`). And how the rank takes an
//! instance back if the proxy cannot execute it, or has ended.

use super::Executor;
use crate::block::InstanceBlock;
use crate::engine::Execution;
use crate::peer::Peer;
use crate::record::{self, COMPLETE, Head, Lookup, RETURNED};
use crate::watch::Health;
use crate::{Binding, Start, proxy};
use std::sync::atomic::Ordering;
use telemetry::{Choice, Counter, Event};
use transport::export::ExportedRange;

/// The most members of an operation that a rank looks up to see whether all have started. In an operation
/// with more members the rank does not look, and assumes that some member has not started: a yield costs
/// less.
const PEERS_ASKED: usize = 8;

impl Executor {
    /// Whether some member of the operation may not have started it yet. True, without a check, if the
    /// operation has more than `PEERS_ASKED` members.
    fn is_early(&self, run: &Execution) -> bool {
        run.peers.len() > PEERS_ASKED || run.peers.iter().any(|&peer| self.is_absent(run, peer))
    }

    /// Whether a member of the operation on this host has not started it yet, or has already ended it. False
    /// for this rank and for ranks of other hosts.
    pub(super) fn is_absent(&self, run: &Execution, peer: Peer) -> bool {
        // This rank does not know what ranks of other hosts have started.
        let Peer::Local(peer) = peer else { return false };
        if peer == self.rank {
            return false;
        }
        let directory = &self.reach.segment.rank(peer).directory[..];
        let found =
            self.reach.arena(peer).map(|arena| record::find(directory, arena, 0, run.context, run.sequence));
        !matches!(found, Ok(Ok(Lookup::Here(..))))
    }

    /// Gives an operation to the rank's proxy, on this host or on another computer, and stores the memory
    /// ranges that the rank exports for it in `exported`. Returns false if the ring to the proxy is full, or
    /// the memory cannot be exported.
    pub(super) fn submit(
        &mut self,
        program: usize,
        block: &InstanceBlock,
        start: &Start,
        exported: &mut Vec<ExportedRange>,
    ) -> bool {
        let started = telemetry::start_time();
        let segment = &self.reach.segment;
        let Some(proxy) = segment.proxy_of(self.rank) else { return false };
        let pushed = match self.submit_exported(program, block) {
            Some(ranges) => {
                *exported = ranges;
                true
            }
            None if self.reach.segment.has_dpu() => false,
            None => self.reach.segment.rank(self.rank).submissions.push(block.run.record.at()),
        };
        let segment = &self.reach.segment;
        if !pushed {
            self.counters.refused += 1;
            self.count(Counter::OffloadRefused, 1);
            return false;
        }
        segment.proxy(proxy).bell.ring();
        // A rank that shares this core may still have to start its part of the operation. Without a yield it
        // would not do so before this rank's computation ends, and nothing would overlap. The receiver of a
        // message mostly starts a send next.
        let is_receive = start.message && matches!(start.input, Binding::None);
        if !segment.job().may_spin() && !is_receive && self.is_early(&block.run) {
            sys::cpu::yield_cpu();
        }
        if self.offloaded == 0
            && let Some(watch) = &mut self.watch
        {
            watch.start();
        }
        let (context, sequence) = (block.run.context, block.run.sequence);
        telemetry::end(started, Event::Offload { proxy, context, sequence });
        self.counters.offloaded += 1;
        self.count(Counter::Offloaded, 1);
        true
    }

    /// Checks whether the proxy lives. Takes back the operations that the proxy has returned, and, if the
    /// proxy has died, all that it had not completed. Returns whether the rank took any back.
    pub(super) fn check_proxy(&mut self) -> bool {
        let returns = self.scalar(proxy::RETURNS);
        let mut taken = 0;
        if std::mem::replace(&mut self.returns, returns) != returns {
            taken = self.take_back_instances(|state| state == RETURNED);
        }
        let Some(watch) = &mut self.watch else { return taken > 0 };
        let health = watch.look();
        if health == Health::Alive {
            return taken > 0;
        }
        self.fence();
        let lost = self.take_back_instances(|state| state != COMPLETE);
        // The proxy may have died before it reported the others.
        self.end_retired();
        if health == Health::Fenced && lost > 0 {
            let proxy = self.reach.segment.proxy_of(self.rank).unwrap_or(0);
            let act = if self.reach.segment.has_dpu() { "cut off" } else { "killed" };
            self.warnings.push_back(format!(
                "rank {} {act} proxy {proxy}, whose heartbeat stood still for {} ms, and goes on with its {lost} operations",
                self.rank, self.config.proxy_timeout_ms
            ));
        }
        taken + lost > 0
    }

    /// Takes back the operations that the proxy was given and whose state satisfies `wanted`. The proxy must
    /// not drive them any more. Returns the number of operations taken back.
    fn take_back_instances(&mut self, wanted: impl Fn(u64) -> bool) -> usize {
        let proxy = self.reach.segment.proxy_of(self.rank).unwrap_or(0);
        let mut all_exported = Vec::new();
        let mut taken = 0;
        for (index, instance) in &mut self.outstanding {
            let run = &mut instance.block.run;
            let state = run.record.head(Head::State);
            if !instance.choice.is_proxy() || !wanted(state.load(Ordering::Acquire)) {
                continue;
            }
            instance.choice = Choice::TakenBack;
            all_exported.append(&mut instance.exported);
            instance.is_owned = self.remote_proxy.is_some();
            state.store(0, Ordering::Relaxed);
            run.record.head(Head::Driver).store(0, Ordering::Relaxed);
            run.resume(run.context, run.sequence);
            instance.finished = false;
            // The rank may have driven its share already.
            if !self.driven.contains(&(index as u32)) {
                self.driven.push(index as u32);
            }
            telemetry::event(Event::Recover { proxy, context: run.context, sequence: run.sequence });
            taken += 1;
        }
        self.offloaded -= taken;
        self.counters.recovered += taken as u64;
        self.count(Counter::Recovered, taken as u64);
        self.revoke(&all_exported);
        taken
    }

    /// Reads word `index` of the counts that the proxy keeps in the rank's page: `proxy::ENDED` or
    /// `proxy::RETURNS`.
    pub(super) fn scalar(&self, index: usize) -> u64 {
        self.reach.segment.rank(self.rank).scalars[index].load(Ordering::Acquire)
    }
}
