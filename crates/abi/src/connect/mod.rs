// SPDX-License-Identifier: BSD-3-Clause
//! Connects groups of processes that share no comm, by ports and by sockets (MPI 5.0, sections 11.9 and
//! 11.10.5).
//!
//! A port is an entry in the table of ports of its host, and a tag. To connect, the root rank of a group (the
//! argument `root` of MPI_Comm_connect) sends its group and a number, the mark, to the rank that opened the
//! port. This rank, the accepting root rank, answers with its own group. The connecting root rank confirms,
//! or says that it has given up. So both know whether they are connected.

pub(crate) mod launcher;

use crate::process::Guard;
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use objects::Group;
use objects::context::{CONNECT_CONTEXT, PORT_CONTEXT};
use p2p::Mode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::Block;
use transport::shm::launcher::{Reader, Writer};
use transport::shm::{Segment, State};

/// What the name of a port says about the port.
struct Port {
    /// The port's index in its host's table of ports.
    index: usize,
    /// The value of entry `index` of the host's table of ports while this port is open: the opener's rank
    /// plus 1 in the upper half, and a number of this port only in the lower half.
    entry: u64,
}

impl Port {
    /// Returns the rank in the job that opened the port.
    fn rank(&self) -> u32 {
        (self.entry >> 32) as u32 - 1
    }

    /// Returns the tag of the messages that ask for a connection to the port.
    fn tag(&self) -> i32 {
        (self.entry & 0x7fff_ffff) as i32
    }

    fn is_open(&self, segment: &Segment) -> bool {
        let job = segment.job();
        let is_open = match segment.local(self.rank()) {
            Some(_) => job.ports[self.index].load(Ordering::Acquire) == self.entry,
            // The close of a port on another host is reported a moment later.
            None => !job.was_closed(self.entry),
        };
        is_open && !is_gone(segment, self.rank())
    }
}

/// Whether this process knows that the process `peer` has ended.
fn is_gone(segment: &Segment, peer: u32) -> bool {
    match segment.local(peer) {
        Some(rank) => matches!(segment.rank(rank).state(), State::Dead | State::Finalized),
        None => segment.world(segment.first_of(peer)).over.load(Ordering::Acquire) != 0,
    }
}

/// The number in the connecting root rank's last message that confirms the connection.
const CONFIRMED: u64 = 1;
/// The number in the connecting root rank's last message that gives the connection up.
const GIVEN_UP: u64 = 0;

/// Returns two tags for the connection with the mark `mark`: the tag of the accepting root rank's answer, and
/// the tag of the connecting root rank's last message.
fn tags(mark: u64) -> [i32; 2] {
    let half = (mark & 0x3fff_ffff) as i32;
    [2 * half, 2 * half + 1]
}

/// Opens a port. Returns its name.
pub(crate) fn open(guard: &mut Guard) -> Result<String> {
    let membership = guard.job().membership;
    let job = membership.segment.job();
    let number = job.connections.fetch_add(1, Ordering::AcqRel) & 0x7fff_ffff;
    let entry = u64::from(membership.rank.peer() + 1) << 32 | number;
    let free = |port: &std::sync::atomic::AtomicU64| {
        port.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    match job.ports.iter().position(free) {
        Some(index) => Ok(format!("outboard:{:x}:{index}:{entry:x}", job.id.load(Ordering::Relaxed))),
        None => fail!(Class::Port, "{} ports are open in this job, more are not possible", job.ports.len()),
    }
}

/// Closes a port of this process.
pub(crate) fn close(guard: &mut Guard, name: &str) -> Result<()> {
    let port = own_port(guard, name)?;
    let membership = guard.job().membership;
    let job = membership.segment.job();
    match job.ports[port.index].compare_exchange(port.entry, 0, Ordering::AcqRel, Ordering::Relaxed) {
        Ok(_) => {
            job.note_closed(port.entry);
            membership.nudge_launcher(false);
            Ok(())
        }
        Err(_) => fail!(Class::Port, "the port {name:?} has been closed already"),
    }
}

/// Reads the name of a port. Fails if no port of this job can have this name.
fn port(guard: &mut Guard, name: &str) -> Result<Port> {
    let segment = guard.job().membership.segment;
    let mut words = name.split(':');
    let (maker, job) = (words.next(), words.next().and_then(|word| u64::from_str_radix(word, 16).ok()));
    let index = words.next().and_then(|word| word.parse().ok());
    let entry = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
    let (Some("outboard"), Some(job), Some(index), Some(entry)) = (maker, job, index, entry) else {
        fail!(Class::Port, "{name:?} is no name of a port");
    };
    let ours = segment.job().id.load(Ordering::Relaxed);
    if job != ours {
        fail!(
            Class::Port,
            "the port {name:?} belongs to the job {job:x}, this process to the job {ours:x}; only processes of one job can be connected"
        );
    }
    let ranks = u64::from(segment.shape().ranks);
    if index >= segment.job().ports.len() || entry >> 32 == 0 || entry >> 32 > ranks {
        fail!(Class::Port, "{name:?} is no name of a port");
    }
    Ok(Port { index, entry })
}

fn own_port(guard: &mut Guard, name: &str) -> Result<Port> {
    let port = port(guard, name)?;
    let membership = guard.job().membership;
    if port.rank() != membership.rank.peer() {
        let opener = membership.segment.name(port.rank());
        fail!(
            Class::Port,
            "the port {name:?} was opened by {opener}, and only that process can accept on it or close it"
        );
    }
    Ok(port)
}

/// Waits until a group connects to the port `name`. The root of the accepting group calls this. Returns the
/// number of the connection, and the processes of the other group.
pub(crate) fn accept(guard: &mut Guard, name: &str, group: &Group) -> Result<(u64, Vec<u32>)> {
    let port = own_port(guard, name)?;
    let segment = guard.job().membership.segment;
    if !port.is_open(segment) {
        fail!(Class::Port, "the port {name:?} is closed");
    }
    // The connecting group may be on a host to which the job has spread since.
    guard.open_network()?;
    loop {
        let (peer, message) = receive(guard, PORT_CONTEXT, None, port.tag(), || None)?;
        let (mark, peers) = from_bytes(&message)?;
        let id = segment.job().connections.fetch_add(1, Ordering::AcqRel) + 1;
        guard.job().p2p.renew(peer);
        let [answer, verdict] = tags(mark);
        send(guard, CONNECT_CONTEXT, peer, answer, &to_bytes(id, &group.peers))?;
        let is_over = || is_gone(segment, peer).then(|| Error::new(Class::Port, "it has ended".to_owned()));
        // A connecting root that has given up or ended is forgotten, and the wait continues.
        if let Ok((_, word)) = receive(guard, CONNECT_CONTEXT, Some(peer), verdict, is_over)
            && from_bytes(&word)?.0 == CONFIRMED
        {
            return Ok((id, peers));
        }
    }
}

/// Connects to the group that accepts on the port `name`, or fails after `timeout`. The root of the
/// connecting group calls this. Returns the number of the connection, and the processes of the other group.
pub(crate) fn connect(
    guard: &mut Guard,
    name: &str,
    group: &Group,
    timeout: Duration,
) -> Result<(u64, Vec<u32>)> {
    let port = port(guard, name)?;
    let membership = guard.job().membership;
    let segment = membership.segment;
    if !port.is_open(segment) {
        fail!(Class::Port, "the port {name:?} is closed");
    }
    if port.rank() == membership.rank.peer() {
        fail!(Class::Port, "the port {name:?} is this process's own, to which it cannot connect");
    }
    guard.reach_hosts(&[port.rank()])?;
    let mark = segment.job().connections.fetch_add(1, Ordering::AcqRel) + 1;
    let [answer, verdict] = tags(mark);
    guard.job().p2p.renew(port.rank());
    send(guard, PORT_CONTEXT, port.rank(), port.tag(), &to_bytes(mark, &group.peers))?;
    let started = Instant::now();
    let given_up = || {
        if !port.is_open(segment) {
            return Some(Error::new(
                Class::Port,
                format!("the port {name:?} was closed before anybody accepted"),
            ));
        }
        let sentence = || format!("nobody accepted on the port {name:?} within {} s", timeout.as_secs_f64());
        (started.elapsed() >= timeout).then(|| Error::new(Class::Port, sentence()))
    };
    match receive(guard, CONNECT_CONTEXT, Some(port.rank()), answer, given_up) {
        Ok((_, message)) => {
            send(guard, CONNECT_CONTEXT, port.rank(), verdict, &to_bytes(CONFIRMED, &[]))?;
            from_bytes(&message)
        }
        Err(error) => {
            if !is_gone(segment, port.rank()) {
                send(guard, CONNECT_CONTEXT, port.rank(), verdict, &to_bytes(GIVEN_UP, &[]))?;
            }
            Err(error)
        }
    }
}

/// Exchanges process numbers with another process over the connected socket `fd`. Returns the number of the
/// connection, and the other process's number in the job.
pub(crate) fn join(guard: &mut Guard, fd: i32) -> Result<(u64, u32)> {
    let membership = guard.job().membership;
    let job = membership.segment.job();
    let mine = job.id.load(Ordering::Relaxed);
    let proposed = job.connections.fetch_add(1, Ordering::AcqRel) + 1;
    let mut words = Vec::new();
    for word in [mine, u64::from(membership.rank.peer()), proposed] {
        words.extend(word.to_ne_bytes());
    }
    let broken = |error| Error::new(Class::Arg, format!("the socket {fd} of MPI_Comm_join: {error}"));
    let mut written = 0;
    while written < words.len() {
        written += guard.wait(|_| sys::socket::write(fd, &words[written..]).transpose()).map_err(broken)?;
    }
    let mut theirs = Vec::new();
    while theirs.len() < words.len() {
        let more = words.len() - theirs.len();
        let bytes = guard.wait(|_| sys::socket::read(fd, more).transpose()).map_err(broken)?;
        if bytes.is_empty() {
            fail!(Class::Arg, "the socket {fd} of MPI_Comm_join was closed by the other process");
        }
        theirs.extend(bytes);
    }
    let mut theirs = Reader::new(&theirs);
    let (job, peer, their_number) = (theirs.number()?, theirs.number()?, theirs.number()?);
    if job != mine {
        fail!(
            Class::Other,
            "the other process belongs to the job {job:x}, this one to the job {mine:x}; only processes of one job can be joined"
        );
    }
    if peer == u64::from(membership.rank.peer()) || peer >= u64::from(membership.segment.shape().ranks) {
        fail!(
            Class::Arg,
            "the socket {fd} of MPI_Comm_join leads to rank {peer}, which is this process or none"
        );
    }
    // Both sides know both numbers, and each number is unique.
    Ok((proposed.min(their_number), peer as u32))
}

/// Publishes, in this rank's page of shared memory, the other worlds (sets of processes with their own
/// MPI_COMM_WORLD) to which processes in this rank's comms belong.
pub(crate) fn publish(guard: &mut Guard) {
    let membership = guard.job().membership;
    let segment = membership.segment;
    if segment.job().worlds.load(Ordering::Acquire) == 0 {
        return;
    }
    let peers = guard.objects.comms.iter().flat_map(|(_, comm)| comm.all_peers.iter());
    let mut worlds: Vec<u32> =
        peers.map(|peer| segment.first_of(*peer)).filter(|world| *world != membership.first).collect();
    worlds.sort_unstable();
    worlds.dedup();
    let connected = &segment.rank(membership.rank).connected;
    let mut before = Vec::new();
    connected.each(segment.shape().ranks, |world| before.push(world));
    worlds.iter().for_each(|world| connected.add(*world));
    connected.each(segment.shape().ranks, |world| {
        if worlds.binary_search(&world).is_err() {
            connected.remove(world);
        }
    });
    if before != worlds {
        membership.nudge_launcher(false);
    }
}

/// Makes a message of a number (of a connection, or a mark) and the processes of a group.
pub(crate) fn to_bytes(number: u64, peers: &[u32]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(number).number(peers.len() as u64);
    peers.iter().for_each(|peer| {
        writer.number(u64::from(*peer));
    });
    writer.bytes()
}

/// Returns the number and the processes in a message that `to_bytes` made.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<(u64, Vec<u32>)> {
    let mut reader = Reader::new(bytes);
    let number = reader.number()?;
    let peers: Result<Vec<u32>> = (0..reader.number()?).map(|_| Ok(reader.number()? as u32)).collect();
    Ok((number, peers?))
}

fn send(guard: &mut Guard, context: u64, peer: u32, tag: i32, bytes: &[u8]) -> Result<()> {
    let bytes = Block::of(bytes);
    let buffer = Buffer::from(bytes.span());
    let ticket = guard.job().p2p.isend(Mode::Standard, context, peer, tag, buffer)?;
    guard.wait(|process| process.job().p2p.take(ticket)).error.map_or(Ok(()), Err)
}

/// Receives a message of unknown length. Returns the sender's process number and the message's bytes. Until a
/// message has arrived, calls `stop` again and again, and fails if `stop` returns an error.
fn receive(
    guard: &mut Guard,
    context: u64,
    source: Option<u32>,
    tag: i32,
    stop: impl Fn() -> Option<Error>,
) -> Result<(u32, Vec<u8>)> {
    let (message, probe) =
        guard.wait(|process| match process.job().p2p.improbe(context, source, Some(tag)) {
            Some(found) => Some(Ok(found)),
            None => stop().map(Err),
        })?;
    let bytes = Block::new(probe.bytes as usize);
    let buffer = Buffer::from(bytes.span());
    let ticket = guard.job().p2p.imrecv(message, buffer);
    let ticket = ticket.expect("the message was just taken from the queue");
    let outcome = guard.wait(|process| process.job().p2p.take(ticket));
    outcome.error.map_or(Ok(()), Err)?;
    Ok((probe.source_peer, bytes.to_vec()))
}
