// SPDX-License-Identifier: BSD-3-Clause
//! How the job's root (`mpirun`) passes the standard input of a job on several hosts on to the agents whose
//! ranks read it.

use super::Root;
use super::agents::FrameSender;
use crate::mpirun::command::say::Refusal;
use crate::mpirun::streams::input;
use crate::mpirun::wire::frame::ToAgent;

impl Root {
    /// Starts a thread that passes our standard input on to the agents (`mpirun` on each host) whose ranks
    /// read it. No other thread waits for the end of this thread.
    pub(super) fn read_input(&self) -> Result<(), Refusal> {
        let reads = |node: u32| {
            let mut ranks = (0..).zip(&self.start.node_of);
            ranks.any(|(rank, of)| *of == node && self.start.global.stdin.has(rank))
        };
        let readers = (0..).zip(&self.agents).filter(|(node, _)| reads(*node));
        let frames: Vec<FrameSender> = readers.map(|(_, agent)| agent.frames.clone()).collect();
        if frames.is_empty() {
            return Ok(());
        }
        let credit = self.credit.clone();
        let terminal =
            input::terminal().map_err(|error| Refusal::other(format!("cannot read input: {error}")))?;
        let copy = move || {
            // An agent that has ended needs no input.
            let send =
                |bytes: &[u8]| frames.iter().for_each(|frames| frames.send(ToAgent::Input(bytes.to_vec())));
            input::copy(terminal, |bytes| {
                credit.take(bytes.len() * frames.len(), || send(bytes));
                true
            });
            send(&[]);
        };
        let thread = std::thread::Builder::new().name("input".into()).spawn(copy);
        thread.map(drop).map_err(|error| Refusal::other(format!("cannot start a thread: {error}")))
    }
}
