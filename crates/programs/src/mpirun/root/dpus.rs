// SPDX-License-Identifier: BSD-3-Clause
//! Computers that only run the proxies of another host (`--dpu-hostfile`), as the job's root (`mpirun`) sees
//! them. If one is lost, the ranks of its host go on, only slower.
//!
//! Read next: `mod.rs`; `place/hosts.rs` (`Placement::add_dpus`).

use transport::shm::proxy_endpoint;

use super::Root;
use crate::mpirun::command::say::say;
use crate::mpirun::wire::frame::ToAgent;

impl Root {
    /// Whether agent number `index` is on a computer that only runs proxies.
    pub(super) fn is_dpu(&self, index: usize) -> bool {
        self.placement.dpus.contains(&(index as u32))
    }

    /// Tells the user and all agents (`mpirun` on each host) that a computer that runs the proxies of a host
    /// is lost. `index`: the number of its agent. The ranks of that host go on without proxies.
    pub(super) fn lose_dpu(&mut self, index: usize, why: &str) {
        let host = index as u32 - self.placement.dpus.start;
        let (name, served) = (&self.placement.nodes[index], &self.placement.nodes[host as usize]);
        say(&format!(
            "the proxies of host {served} on {name} are lost ({why}); its ranks go on without them"
        ));
        let proxies = self.start.global.proxies;
        let names: Vec<_> =
            (0..proxies).map(|proxy| (proxy_endpoint(host, proxies, proxy), Vec::new())).collect();
        self.names.extend(names.iter().cloned());
        self.send_all(&ToAgent::Names(names));
    }
}
