// SPDX-License-Identifier: BSD-3-Clause
//! A relay is an `mpirun` on another host. It starts the agents of several hosts, its own among them, or
//! further relays, and passes frames (messages) on between them and the job's root (`mpirun`). So no process
//! starts more than OUTBOARD_LAUNCH_FANOUT commands.
//!
//! A relay does not look into frames: it only adds or removes the number of a node. It has no buffer of its
//! own: if no one reads its output, the agents behind it stall, too.
//!
//! Invariants: when its standard input ends, a relay closes the standard input of all commands that it has
//! started, as `mpirun` does. It kills the commands that have not greeted by then, because they would not
//! notice.
//!
//! Read next: `link.rs`.

use std::io::{BufReader, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use super::frame::{self, ToAgent};
use super::launch::{AGENT, AgentCommand, AgentHost, RELAY, Relay};
use super::link::{AgentEvent, AgentLink, Listener};
use super::uplink::input;
use crate::mpirun::command::say::{Refusal, say};

/// Runs a relay if the first word of the command line asks for one, and returns its exit code. Otherwise
/// returns None at once.
pub fn serve(words: &[std::ffi::OsString]) -> Option<u8> {
    if words.first()? != RELAY {
        return None;
    }
    sys::child::name_myself("mpirun-relay");
    match run() {
        Ok(()) => Some(0),
        Err(refusal) => {
            say(&refusal.message);
            Some(refusal.code)
        }
    }
}

fn run() -> Result<(), Refusal> {
    let wrong =
        |error: std::io::Error| Refusal::other(format!("what a relay is to do cannot be read: {error}"));
    let mut output = std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned().map_err(wrong)?);
    output.write_all(&frame::greeting()).map_err(wrong)?;
    let mut input = BufReader::new(input()?);
    let relay: Option<Relay> = frame::read(&mut input).map_err(wrong)?;
    // An input that ends at once asks for nothing.
    let Some(relay) = relay else { return Ok(()) };
    let links = start(&relay, &Listener::Upward(Arc::new(Mutex::new(output))));
    while let Ok(Some((node, frame))) = frame::read::<(u32, ToAgent)>(&mut input) {
        if let Some(link) = links.iter().find(|link| link.nodes.contains(&node)) {
            link.send(node, frame);
        }
    }
    links.iter().filter(|link| !link.has_greeted()).for_each(AgentLink::kill);
    links.into_iter().for_each(AgentLink::close);
    Ok(())
}

/// Starts an agent on the relay's own host, and the commands that reach all other hosts. Returns the links to
/// these commands. Reports to the job's root (`mpirun`) why a command could not be started.
fn start(relay: &Relay, listener: &Listener) -> Vec<AgentLink> {
    let mut links = Vec::new();
    let Some((own, others)) = relay.members.split_first() else { return links };
    let own = std::slice::from_ref(own);
    let mut keep = |members: &[AgentHost], link: Result<AgentLink, Refusal>| match link {
        Ok(link) => links.push(link),
        Err(refusal) => {
            for member in members {
                listener.report(member.node, AgentEvent::LinesEnded);
                listener.report(
                    member.node,
                    AgentEvent::Closed(format!("cannot be started: {}", refusal.message)),
                );
            }
        }
    };
    keep(own, AgentLink::start(AgentCommand::here(AGENT), own, None, listener));
    for members in relay.launch.groups(others) {
        keep(members, AgentLink::to(&relay.launch, members, listener));
    }
    links
}
