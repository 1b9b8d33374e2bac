// SPDX-License-Identifier: BSD-3-Clause
//! How the root (the `mpirun` process that decides) reaches the hosts of a job: it finds their addresses, and
//! starts an agent on each.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::Duration;

use error::{Class, fail};

use super::Root;
use super::agents::Agent;
use crate::mpirun::command::say::say;
use crate::mpirun::place::hosts::{self, Placement};
use crate::mpirun::wire::frame::{JobNode, Start, ToAgent};
use crate::mpirun::wire::launch::{AGENT, AgentHost};
use crate::mpirun::wire::link::AgentLink;

/// How long the look-up of a host's address may take. After this time `mpirun` goes on without the address.
const LOOKUP: Duration = Duration::from_secs(10);

impl Root {
    /// Starts an agent (`mpirun` on a host) on each node of the placement that has none yet.
    pub(super) fn start_agents(&mut self) -> error::Result<()> {
        let before = self.agents.len();
        let started = self.find_addresses(before).and_then(|()| self.start_links(before));
        if let Err(sentence) = started {
            // A spawn that fails leaves nothing behind.
            self.placement.nodes.truncate(self.agents.len());
            self.start.nodes.truncate(self.agents.len());
            fail!(Class::Spawn, "{sentence}");
        }
        if self.job_has_started {
            for index in before..self.agents.len() {
                self.send_start(index);
                self.catch_up(index);
            }
        }
        Ok(())
    }

    fn find_addresses(&mut self, before: usize) -> Result<(), String> {
        for name in &self.placement.nodes[before..] {
            let address = address(name, &self.placement)?;
            if let Err(why) = &address
                && self.start.global.verbose
            {
                say(&format!(
                    "the address of host {name} is not known here ({why}): it is left to the launcher"
                ));
            }
            let address = address.ok();
            self.reachable(name, address.as_deref())?;
            self.start.nodes.push(JobNode { name: name.clone(), address });
        }
        Ok(())
    }

    fn start_links(&mut self, before: usize) -> Result<(), String> {
        let names = (0..).zip(&self.placement.nodes).skip(before);
        let members: Vec<AgentHost> =
            names.map(|(node, name)| AgentHost { node, name: self.launch.name(name) }).collect();
        for group in self.launch.groups(&members) {
            let link =
                AgentLink::to(&self.launch, group, &self.listener).map_err(|refusal| refusal.message)?;
            for member in group {
                let name = &self.placement.nodes[member.node as usize];
                let command = self.launch.command(&member.name, AGENT);
                let mut shown = format!("{command:?}").replace('"', "");
                if member.node != group[0].node {
                    shown = format!("{shown} (by host {})", group[0].name);
                }
                if self.start.global.verbose {
                    say(&format!("node {} is host {name}: {shown}", member.node));
                }
                let mut agent = Agent::new(name.clone(), member.node, shown, link.queue.clone());
                agent.link = Some(self.links.len());
                self.agents.push(agent);
            }
            self.links.push(link);
        }
        Ok(())
    }

    /// Fails if the host `name` is another machine, and all nodes so far have loopback addresses only, at
    /// which the new host could not reach them.
    fn reachable(&self, name: &str, address: Option<&str>) -> Result<(), String> {
        let is_within = |address: Option<&str>| {
            address.is_some_and(|address| address.is_empty() || address == Ipv4Addr::LOCALHOST.to_string())
        };
        if !is_within(address) && self.start.nodes.iter().any(|node| is_within(node.address.as_deref())) {
            return Err(format!(
                "host {name} is another machine than this, to which alone mpirun was given: name it by mpirun -hosts"
            ));
        }
        Ok(())
    }

    pub(super) fn send_start(&mut self, index: usize) {
        let start = Start { node: index as u32, ..self.start.clone() };
        self.agents[index].send(ToAgent::Start(Box::new(start)));
    }
}

/// Returns the address at which other hosts reach the host `name`. The inner error says why this machine does
/// not know the address: a name may exist in the configuration of ssh only. The outer error ends the job.
fn address(name: &str, placement: &Placement) -> Result<Result<String, String>, String> {
    let own = sys::host::name();
    if placement.nodes.iter().all(|name| hosts::is_here(name, &own))
        && placement.dealt.iter().all(|(hosts, _)| hosts.are_here())
    {
        let alone = placement.nodes.len() == 1;
        return Ok(Ok(if alone { String::new() } else { Ipv4Addr::LOCALHOST.to_string() }));
    }
    // The name under which others may know this machine.
    let name = if name == "localhost" { own.as_str() } else { name };
    let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let found = match lookup(host) {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let outside = found.iter().find(|address| !address.is_loopback());
    let Some(address) = outside.or(found.first()) else { return Err(format!("host {name} has no address")) };
    if address.is_loopback() {
        return Err(format!(
            "host {name} has the address {address}, where no other host reaches it: name it by another address"
        ));
    }
    Ok(Ok(address.to_string()))
}

/// Returns the addresses of a host. Fails if the look-up takes longer than [`LOOKUP`]. During a look-up the
/// job's root (`mpirun`) sends no frames (messages), so in a long one its agents would take it for dead.
fn lookup(host: &str) -> Result<Vec<IpAddr>, String> {
    let (sender, found) = channel();
    let host = host.to_owned();
    let look = move || {
        let addresses = (host.as_str(), 0).to_socket_addrs();
        let addresses = addresses.map(|all| all.map(|address| address.ip()).collect());
        // The receiver may have given up.
        let _ = sender.send(addresses.map_err(|error| error.to_string()));
    };
    std::thread::Builder::new().name("lookup".into()).spawn(look).map_err(|error| error.to_string())?;
    let late = |_| Err(format!("no answer within {} s", LOOKUP.as_secs()));
    found.recv_timeout(LOOKUP).unwrap_or_else(late)
}
