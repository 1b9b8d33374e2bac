// SPDX-License-Identifier: BSD-3-Clause
//! The rank's side of a proxy on another computer (`lent.rs`): it lends the memory of an instance, and says
//! so in a note, where it would hand a record over to a proxy of this host.
//!
//! Invariant: no key is valid once the rank drives an instance on by itself.

use super::{Executor, Instance, Withdrawal};
use crate::InstanceTicket;
use crate::block::InstanceBlock;
use crate::far::Order;
use crate::lent::{EXTENTS_MAX, LENT_MAX, Lend, Lending, join_words};
use crate::note::{Kind, Note};
use crate::proxy;
use crate::record::Field;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use transport::lend::Lent;

impl Instance {
    /// Says which steps of the rank's share the proxy may build on.
    pub(super) fn say_steps(&mut self, proxy: u32, orders: &mut VecDeque<Order>) {
        let run = &mut self.block.run;
        while let Some(step) = run.next_ended() {
            let total = run.record.step(step, Field::Done).load(Ordering::Relaxed);
            let order = Note::order(Kind::Step, run.rank.peer(), run.context, run.sequence, run.record.at());
            let (edge, words) = match run.record.fault() {
                Some(fault) => (1, fault.words().to_vec()),
                None => (0, run.short_scratch(step)),
            };
            orders.push_back((proxy, Note { step, total, edge, ..order }, words));
        }
    }
}

impl Executor {
    /// Joins the rank's proxy, which runs on another computer: `exchange` then takes part until `is_welcome`.
    pub fn join_lent(&mut self, mut way: Box<dyn Lend>) {
        let segment = &self.reach.segment;
        let Some(proxy) = segment.proxy_of(self.rank) else { return };
        let Some(heartbeat) = way.lend(segment.heartbeat(proxy)) else { return };
        let words = join_words(way.name(), &heartbeat);
        let proxy = segment.proxy_endpoint(proxy);
        self.order(proxy, Kind::Join, (0, 0), 0, words);
        self.lending = Some(Lending { way, proxy, is_welcome: false });
    }

    /// Whether the rank's proxy, on another computer, has answered, or none is waited for.
    pub fn is_welcome(&self) -> bool {
        self.lending.as_ref().is_none_or(|lending| lending.is_welcome)
    }

    /// Whether a note is to leave that must not wait for the next MPI call.
    #[inline]
    pub fn has_orders(&self) -> bool {
        self.lending.is_some() && self.far.has_orders()
    }

    /// Lends an instance's memory and has it driven; nothing if that is not possible.
    pub(super) fn launch_lent(&mut self, program: usize, block: &InstanceBlock) -> Option<Vec<Lent>> {
        let lending = self.lending.as_mut()?;
        let program = &self.programs[program];
        let spans = program.spans(block, self.allocator.arena());
        let extents = self.allocator.arena().extents();
        let fits = spans.len() <= LENT_MAX && extents.len() <= EXTENTS_MAX;
        let mut lent = Vec::with_capacity(spans.len());
        for (address, span) in spans {
            match lending.way.lend(span).filter(|_| fits) {
                Some(range) => lent.push(Lent { address, ..range }),
                None => {
                    lent.iter().for_each(|range| lending.way.take_back(range));
                    return None;
                }
            }
        }
        let words = program.launch(block, extents, lent.clone()).words();
        let proxy = lending.proxy;
        self.order(
            proxy,
            Kind::Launch,
            (block.run.context, block.run.sequence),
            block.run.record.at(),
            words,
        );
        Some(lent)
    }

    /// Says that this rank drives an instance by itself, or that such an instance has ended.
    pub(super) fn say_kept(&mut self, kind: Kind, instance: (u64, u32)) {
        if let Some(proxy) = self.lending.as_ref().map(|lending| lending.proxy) {
            self.order(proxy, kind, instance, 0, Vec::new());
        }
    }

    /// Whether a proxy on another computer drives an instance.
    pub(super) fn is_lent(&self, ticket: InstanceTicket) -> bool {
        let instance = self.outstanding.get(ticket.index as usize);
        self.lending.is_some()
            && instance.is_some_and(|it| it.ticket == ticket.generation && it.choice.is_proxy())
    }

    /// Says once to such a proxy that the rank does not want a message any more.
    pub(super) fn say_withdrawn(&mut self, ticket: InstanceTicket, withdrawal: Withdrawal) {
        let Some(proxy) = self.lending.as_ref().map(|lending| lending.proxy) else { return };
        let instance = &mut self.outstanding[ticket.index as usize];
        let run = &instance.block.run;
        let (context, sequence, at) = (run.context, run.sequence, run.record.at());
        if std::mem::replace(&mut instance.withdrawal, withdrawal) == Withdrawal::None {
            self.order(proxy, Kind::Withdraw, (context, sequence), at, Vec::new());
        }
    }

    /// Takes back what was lent for an instance.
    pub(super) fn take_back(&mut self, lent: &[Lent]) {
        if let Some(lending) = &mut self.lending {
            lent.iter().for_each(|range| lending.way.take_back(range));
        }
    }

    /// The proxy has ended, or is to be taken for dead: nothing that it does reaches this rank any more, and
    /// all hosts ask the rank itself.
    pub fn fence(&mut self) {
        if let Some(mut lending) = self.lending.take() {
            lending.way.close();
            self.reach.segment.set_endpoint(lending.proxy, &[]);
        }
    }

    /// What the proxy says about instances as a whole.
    pub(super) fn take_orders(&mut self) {
        while let Some((from, note, _)) = self.far.ordered.pop_front() {
            match (&mut self.lending, note.kind) {
                (Some(lending), Kind::Welcome) if from == lending.proxy => lending.is_welcome = true,
                // The proxy has written to the instance's word whether it is complete or returned.
                (_, Kind::Over) => {
                    let scalars = &self.reach.segment.rank(self.rank).scalars;
                    for index in [proxy::RETURNS, proxy::ENDED] {
                        scalars[index].fetch_add(1, Ordering::Relaxed);
                    }
                }
                _ => telemetry::count(telemetry::Counter::NetRefused, 1),
            }
        }
    }

    fn order(&mut self, to: u32, kind: Kind, instance: (u64, u32), at: u64, words: Vec<u64>) {
        let note = Note::order(kind, self.rank.peer(), instance.0, instance.1, at);
        self.far.orders.push_back((to, note, words));
    }
}
