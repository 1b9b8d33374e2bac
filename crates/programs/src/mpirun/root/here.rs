// SPDX-License-Identifier: BSD-3-Clause
//! The agent (`mpirun` on a host) in the same process as the job's root, for a job on this machine only. The
//! root's loop also runs the agent's steps.

use std::sync::Arc;
use std::sync::mpsc::channel;

use super::Root;
use super::agents::Agent;
use crate::mpirun::agent::job::AgentJob;
use crate::mpirun::agent::upstream::Upstream;
use crate::mpirun::command::say::Refusal;
use crate::mpirun::wire::frame::{JobNode, ToRoot};
use crate::mpirun::wire::uplink::QueueUplink;

impl Root {
    /// Starts a job on this machine only: its root and its agent (both parts of `mpirun`) are in this
    /// process.
    pub(super) fn start_here(&mut self) -> Result<(), Refusal> {
        let upstream = self.open_here();
        let prepared = AgentJob::prepare(&self.start, upstream, self.signals.clone());
        // Warnings come before what ranks print, and before a refusal.
        self.receive_all();
        let (mut job, plan) = prepared?;
        job.start(&self.start.programs, &plan)?;
        self.here = Some(job);
        Ok(())
    }

    /// Makes the two queues of frames (messages) between the job's root (`mpirun`) and the agent in the same
    /// process. Returns the agent's ends.
    pub(super) fn open_here(&mut self) -> Upstream {
        let (queue, inbox) = channel();
        let name = self.placement.nodes[0].clone();
        self.start.nodes.push(JobNode { name: name.clone(), address: Some(String::new()) });
        let mut agent = Agent::new(name, 0, String::new(), queue);
        agent.has_started = true;
        agent.open();
        self.agents.push(agent);
        self.job_has_started = true;
        Upstream::here(Arc::new(QueueUplink { listener: self.listener.clone(), node: 0 }), inbox)
    }

    /// Lets the agent in this process make a step and receives its frames (messages), until neither brings
    /// anything new. Removes the agent when it has ended.
    pub(super) fn step_here(&mut self) {
        while let Some(job) = &mut self.here {
            let has_obeyed = job.step();
            let has_received = self.receive_all();
            if let Some(job) = self.here.take_if(|job| job.is_over()) {
                let code = job.finish();
                self.receive_all();
                self.receive_frame(0, ToRoot::Done { code });
            }
            if !has_obeyed && !has_received {
                return;
            }
        }
    }
}
