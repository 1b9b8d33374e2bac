// SPDX-License-Identifier: BSD-3-Clause
//! What the root (the `mpirun` process that decides) does as time passes: it sends the frame `Alive` to its
//! agents, one on each host, ends the job if an agent is silent for too long, and ends the job after
//! --timeout.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Root;
use super::agents::Agent;
use crate::mpirun::command::say::say;
use crate::mpirun::wire::frame::ToAgent;
use crate::mpirun::wire::uplink::{PULSE, STANDSTILL};

/// How long after the start of its command an agent (`mpirun` on a host) may take to greet. After this time
/// the job fails.
const START: Duration = Duration::from_secs(60);
/// How long an agent (`mpirun` on a host) may take to greet before the user is told which host the job waits
/// for.
const SLOW: Duration = Duration::from_secs(10);

impl Root {
    pub(super) fn check_time(&mut self) {
        let now = Instant::now();
        if let Some((seconds, _)) = self.timeout.take_if(|(_, at)| now >= *at) {
            say(&format!("the time of {seconds} s (--timeout) is over; ending the job"));
            self.send_all(&ToAgent::Signal(libc::SIGUSR1));
            self.end(libc::SIGTERM, 124);
        }
        if !self.is_here {
            self.check_hosts(now);
        }
    }

    /// Asks all agents (`mpirun` on each host) what time their clocks have, if the user wants a trace: the
    /// times in a trace must fit together.
    pub(super) fn ask_clocks(&mut self) {
        if self.trace.is_some() && self.job_has_started {
            self.agents.iter_mut().for_each(Agent::ask_clock);
        }
    }

    /// Sends the frame `Alive` to all agents when it is due, and ends the job if an agent has been silent for
    /// too long or has not started in time.
    fn check_hosts(&mut self, now: Instant) {
        let gap = now.duration_since(std::mem::replace(&mut self.looked, now));
        if gap > STANDSTILL {
            self.agents.iter_mut().for_each(|agent| agent.received += gap);
        }
        if now.duration_since(self.pulse) > PULSE {
            self.pulse = now;
            self.send_all(&ToAgent::Alive);
            self.ask_clocks();
        }
        if self.end_at.is_some() {
            return;
        }
        self.print_slow_hosts(now);
        let late = |agent: &&Agent| !agent.has_started && now.duration_since(agent.started) > START;
        let silent = |agent: &&Agent| {
            let is_printing =
                agent.link.is_some_and(|link| self.links[link].is_printing.load(Ordering::Relaxed));
            !agent.is_over() && !is_printing && now.duration_since(agent.received) > self.silence
        };
        let sentence = if let Some(agent) = self.agents.iter().find(late) {
            Some(format!(
                "no agent has started on host {} within {} s by {}",
                agent.name,
                START.as_secs(),
                agent.command
            ))
        } else {
            let is_silent = |agent: &Agent| self.job_has_started && agent.has_started && silent(&agent);
            let index = self.agents.iter().position(is_silent);
            if let Some(index) = index.filter(|index| self.is_dpu(*index)) {
                self.agents[index].is_closed = true;
                return self.lose_dpu(index, &format!("silent for {} s", self.silence.as_secs()));
            }
            index.map(|index| &self.agents[index]).map(|agent| {
                let seconds = self.silence.as_secs();
                format!("host {} has been silent for {seconds} s; ending the job", agent.name)
            })
        };
        if let Some(sentence) = sentence {
            self.fail(&sentence, 1);
        }
    }

    /// Tells the user, once for each host, that no agent has started there [`SLOW`] after its command was
    /// started.
    fn print_slow_hosts(&mut self, now: Instant) {
        let slow = |agent: &&mut Agent| {
            !agent.has_started && !agent.is_called_slow && now.duration_since(agent.started) > SLOW
        };
        let mut slow: Vec<&mut Agent> = self.agents.iter_mut().filter(slow).collect();
        let Some(first) = slow.first() else { return };
        let said = first.lines.last().map_or(String::new(), |line| format!(", which says: {line}"));
        let names: Vec<&str> = slow.iter().map(|agent| agent.name.as_str()).collect();
        say(&format!(
            "still waiting for an agent on {}, by {}{said}; giving up after {} s",
            names.join(", "),
            first.command,
            START.as_secs()
        ));
        slow.iter_mut().for_each(|agent| agent.is_called_slow = true);
    }
}
