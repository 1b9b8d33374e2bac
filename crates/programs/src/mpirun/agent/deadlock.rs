// SPDX-License-Identifier: BSD-3-Clause
//! On SIGUSR1 `mpirun` prints what every rank waits for: the user's first question when a program hangs.
//!
//! The agent (the `mpirun` process on each host) asks each rank that waits in an MPI call, and the rank
//! answers in full. A rank that computes or is stopped cannot answer; its page in shared memory says what it
//! last waited for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use telemetry::Unit;
use telemetry::summary::short;
use transport::shm::{RankPage, State};

use super::job::AgentJob;

/// How long `explain` waits until the ranks have said what they wait for. A rank that sleeps in an MPI call
/// must wake up first.
const PATIENCE: Duration = Duration::from_millis(500);

impl AgentJob {
    /// Asks all ranks of this host what they wait for, and has the root, the part of `mpirun` that decides,
    /// print the answers.
    pub(super) fn explain(&self) {
        let ranks = self.living_ranks();
        for (rank, _) in &ranks {
            self.page(*rank).report.ask();
            self.page(*rank).bell.ring();
        }
        let asked = Instant::now();
        let unanswered = |rank: u32| {
            let page = self.page(rank);
            page.state() == State::Running && page.wait.since().is_some() && page.report.answered().is_none()
        };
        while asked.elapsed() < PATIENCE && ranks.iter().any(|(rank, _)| unanswered(*rank)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut text = format!("what the {} ranks of this job wait for:", ranks.len());
        let mut collective = false;
        for (rank, pid) in ranks {
            text += &format!("\n  {} (pid {pid}): {}", self.segment.name(rank), standing(self.page(rank)));
            let answer = self.page(rank).report.answered();
            collective |= answer.as_ref().is_some_and(|answer| answer.contains("collective"));
            answer
                .iter()
                .flat_map(|answer| answer.lines())
                .for_each(|line| text += &format!("\n      {line}"));
        }
        if collective && settings::get().check == 0 {
            text +=
                "\n  if members of a comm call different collectives, OUTBOARD_CHECK=1 says which and where";
        }
        self.say(&text);
    }
}

/// Returns a clause about the rank that owns this page: what it waits for and since when, or that it has left
/// or ended.
pub fn standing(page: &RankPage) -> String {
    let now = sys::clock::now();
    let for_long = |since: u64| short(now.saturating_sub(since), Unit::Nanoseconds);
    match (page.state(), page.wait.since(), page.wait.ended()) {
        (State::Unborn, _, _) if page.pid.load(Ordering::Relaxed) == 0 => "has not called MPI_Init".into(),
        (State::Unborn, _, _) => "is in MPI_Init".into(),
        (State::Finalized, _, _) => "has left by MPI_Finalize".into(),
        (State::Dead, _, _) => "has ended".into(),
        (State::Running, Some(since), _) => {
            let silent =
                if page.report.answered().is_none() { " (it does not answer: is it stopped?)" } else { "" };
            format!("waits for {} in {}{silent}", for_long(since), page.wait.text())
        }
        (State::Running, None, Some(ended)) => {
            format!(
                "does not wait; its latest long wait ended {} ago, in {}",
                for_long(ended),
                page.wait.text()
            )
        }
        (State::Running, None, None) => "does not wait, and never did for long".into(),
    }
}
