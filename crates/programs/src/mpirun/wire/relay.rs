// SPDX-License-Identifier: BSD-3-Clause
//! A relay: it starts the agents of some hosts for `mpirun`, its own host among them, or further relays, and
//! passes on what goes between them. So nobody starts more than OUTBOARD_LAUNCH_FANOUT commands.
//!
//! It understands no frame: it adds or takes away the number of a node. A reader of the output that stalls
//! stalls the relay's threads, and so the agents behind it; a relay keeps nothing for them.
//!
//! Invariants: a relay whose standard input ends closes that of all that it has started, as `mpirun` does;
//! what has not greeted by then is killed, because nobody there would notice.
//!
//! Read next: `link.rs`.

use std::io::{BufReader, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use super::frame::{self, Down};
use super::launch::{AGENT, Launch, Member, RELAY, Relay};
use super::link::{Event, Link, Listener};
use super::way::input;
use crate::mpirun::command::say::{Refusal, say};

/// Whether this is our business, and then the exit code.
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
    // Whoever takes leave at once wants nothing.
    let Some(relay) = relay else { return Ok(()) };
    let links = start(&relay, &Listener::Upward(Arc::new(Mutex::new(output))));
    while let Ok(Some((node, frame))) = frame::read::<(u32, Down)>(&mut input) {
        if let Some(link) = links.iter().find(|link| link.nodes.contains(&node)) {
            link.send(node, frame);
        }
    }
    links.iter().filter(|link| !link.has_greeted()).for_each(Link::kill);
    links.into_iter().for_each(Link::close);
    Ok(())
}

/// Starts what can be started; of the others it tells why not.
fn start(relay: &Relay, listener: &Listener) -> Vec<Link> {
    let mut links = Vec::new();
    let Some((own, others)) = relay.members.split_first() else { return links };
    let own = std::slice::from_ref(own);
    let mut keep = |members: &[Member], link: Result<Link, Refusal>| match link {
        Ok(link) => links.push(link),
        Err(refusal) => {
            for member in members {
                listener.tell(member.node, Event::SaidAll);
                listener.tell(member.node, Event::Closed(format!("cannot be started: {}", refusal.message)));
            }
        }
    };
    keep(own, Link::start(Launch::here(AGENT), own, None, listener));
    for members in relay.launch.groups(others) {
        keep(members, Link::to(&relay.launch, members, listener));
    }
    links
}
