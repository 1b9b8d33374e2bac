// SPDX-License-Identifier: BSD-3-Clause
//! Sends requests and receives their answers, many at a time.
//!
//! A request that is not answered in time is sent again, a few times. After that its target counts as silent
//! for the rest of the run: all other requests to it fail at once. So a dead node costs one waiting time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use umad::{Class, Mad, MadAddress, Received};

use super::mad::{Data, Failure, MadRequest, MadTarget, number};

/// A carrier of MADs (management datagrams): a port of a fabric, or a simulated fabric in tests.
pub trait Wire {
    fn send(&mut self, class: Class, to: MadAddress, mad: &Mad, timeout: Duration) -> Result<(), String>;
    fn receive(&mut self, wait: Duration) -> Result<Option<Received>, String>;
}

impl Wire for umad::Port {
    fn send(&mut self, class: Class, to: MadAddress, mad: &Mad, timeout: Duration) -> Result<(), String> {
        umad::Port::send(self, class, to, mad, timeout)
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Received>, String> {
        umad::Port::receive(self, wait)
    }
}

/// Limits for requests: how many are under way at once, how long each waits for its answer, and how often
/// each is repeated.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct ExchangeLimits {
    /// The most requests that wait for their answers at once.
    pub in_flight: usize,
    /// The longest time for an answer, in milliseconds.
    pub answer_ms: u64,
    /// How often a request without an answer is sent again.
    pub retries: u32,
}

impl Default for ExchangeLimits {
    fn default() -> ExchangeLimits {
        ExchangeLimits { in_flight: 64, answer_ms: 200, retries: 2 }
    }
}

/// How many requests have ended in each way since the port was opened.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub answered: u64,
    pub sent_again: u64,
    /// Requests that got no answer, although they were sent `retries` times more.
    pub silent: u64,
    /// MADs (management datagrams) that arrived and answered no request.
    pub strangers: u64,
}

pub struct Exchange<W> {
    wire: W,
    limits: ExchangeLimits,
    next: u32,
    pub counts: Counts,
}

struct PendingRequest<K> {
    key: K,
    request: MadRequest,
    tries: u32,
}

/// The state of one run, which is a call of `Exchange::run`.
struct RunState<K> {
    waiting: VecDeque<PendingRequest<K>>,
    pending: HashMap<u32, PendingRequest<K>>,
    /// For each request, in the order of sending: the time from which on its answer is late, and the
    /// request's number.
    ends: VecDeque<(Instant, u32)>,
    silent: HashSet<MadTarget>,
}

impl<W: Wire> Exchange<W> {
    pub fn new(wire: W, limits: ExchangeLimits) -> Exchange<W> {
        // The first number comes from the clock, so that answers to an earlier monitor on this port are not
        // taken for answers to this one.
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Exchange {
            wire,
            limits,
            next: since.subsec_nanos() ^ since.as_secs() as u32,
            counts: Counts::default(),
        }
    }

    /// Sends all requests, and the further requests that `answered` returns. Calls `answered` once for each
    /// request, with its answer or with the reason why it has none.
    pub fn run<K>(
        &mut self,
        requests: impl IntoIterator<Item = (K, MadRequest)>,
        mut answered: impl FnMut(K, &MadRequest, Result<&Data, Failure>) -> Vec<(K, MadRequest)>,
    ) -> Result<(), String> {
        let start = |(key, request)| PendingRequest { key, request, tries: 0 };
        let mut run = RunState {
            waiting: requests.into_iter().map(start).collect(),
            pending: HashMap::new(),
            ends: VecDeque::new(),
            silent: HashSet::new(),
        };
        loop {
            while run.pending.len() < self.limits.in_flight.max(1)
                && let Some(next) = run.waiting.pop_front()
            {
                if run.silent.contains(&next.request.target) {
                    self.counts.silent += 1;
                    run.waiting.extend(
                        answered(next.key, &next.request, Err(Failure::Silent)).into_iter().map(start),
                    );
                } else {
                    self.send(&mut run, next)?;
                }
            }
            let Some((end, _)) = run.ends.front() else { return Ok(()) };
            let left = end.saturating_duration_since(Instant::now());
            match self.wire.receive(left)? {
                Some(Received::Mad(mad)) => {
                    if let Some((done, answer)) = self.take(&mut run, &mad) {
                        run.waiting.extend(answered(done.key, &done.request, answer).into_iter().map(start));
                    }
                }
                // The kernel's waiting time ends at the same moment as the one kept here, and only the latter
                // counts.
                Some(Received::Unanswered(_)) | None => {}
            }
            for late in self.late(&mut run)? {
                run.waiting
                    .extend(answered(late.key, &late.request, Err(Failure::Silent)).into_iter().map(start));
            }
        }
    }

    fn send<K>(&mut self, run: &mut RunState<K>, request: PendingRequest<K>) -> Result<(), String> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let patience = Duration::from_millis(self.limits.answer_ms.max(1));
        let mad = request.request.mad(number);
        self.wire.send(request.request.attribute.class(), request.request.to(), &mad, patience)?;
        self.counts.sent += 1;
        run.ends.push_back((Instant::now() + patience, number));
        run.pending.insert(number, request);
        Ok(())
    }

    /// Returns the pending request that `mad` answers, and the answer's data or failure. Returns None if
    /// `mad` answers no request.
    fn take<'m, K>(
        &mut self,
        run: &mut RunState<K>,
        mad: &'m Mad,
    ) -> Option<(PendingRequest<K>, Result<&'m Data, Failure>)> {
        let number = number(mad);
        let answer = run.pending.get(&number).and_then(|pending| pending.request.answer(mad));
        let Some(answer) = answer else {
            self.counts.strangers += 1;
            return None;
        };
        self.counts.answered += 1;
        run.pending.remove(&number).map(|done| (done, answer))
    }

    /// Drops answered requests at the beginning of `ends`.
    fn trim<K>(run: &mut RunState<K>) {
        while run.ends.front().is_some_and(|(_, number)| !run.pending.contains_key(number)) {
            run.ends.pop_front();
        }
    }

    /// Sends each request again whose answer is late. Returns the requests that are given up: they were sent
    /// often enough, or their target is silent.
    fn late<K>(&mut self, run: &mut RunState<K>) -> Result<Vec<PendingRequest<K>>, String> {
        let mut given_up = Vec::new();
        Self::trim(run);
        while run.ends.front().is_some_and(|(end, _)| *end <= Instant::now()) {
            let (_, number) = run.ends.pop_front().expect("it is there");
            let Some(mut late) = run.pending.remove(&number) else { continue };
            if late.tries < self.limits.retries && !run.silent.contains(&late.request.target) {
                late.tries += 1;
                self.counts.sent_again += 1;
                self.send(run, late)?;
            } else {
                self.counts.silent += 1;
                run.silent.insert(late.request.target.clone());
                given_up.push(late);
            }
        }
        Self::trim(run);
        Ok(given_up)
    }
}

#[cfg(test)]
impl<W> Exchange<W> {
    pub fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }
}
