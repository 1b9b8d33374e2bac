// SPDX-License-Identifier: BSD-3-Clause
//! Dynamic processes: spawning, ports and service names, joining, disconnecting (MPI 5.0, chapter 11).
//!
//! All processes of a job can reach each other, whatever their world (their MPI_COMM_WORLD) and host. So a
//! connection is only a new comm between two groups, with a context id that both groups know.
//!
//! Invariant: the call's root rank alone does the work of a call. It sends its result, or its error, to the
//! other members by `broadcast_result`. So all members of a comm return the same error.

use super::comm::{comm_free, enter, group_of, intracomm};
use crate::args::{Address, Array, Handle, In, Out, Text, TextOut};
use crate::connect;
use crate::connect::launcher::ask;
use crate::process::Guard;
use error::{Class, Result, fail};
use objects::{Comm, Context, Group, constants as c};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;
use transport::shm::launcher::{self, Reader, Request, Spawn, SpawnProgram, Spawned, Writer};

/// MPI_Comm_spawn
pub fn comm_spawn(
    guard: &mut Guard,
    command: Text,
    argv: Address,
    maxprocs: i32,
    info: Handle,
    root: i32,
    comm: Handle,
    intercomm: Out<Handle>,
    array_of_errcodes: Array<i32>,
) -> Result<()> {
    let programs = |guard: &mut Guard| Ok(vec![program(guard, command, argv, maxprocs, info)?]);
    spawn(guard, programs, root, comm, intercomm, array_of_errcodes)
}

/// MPI_Comm_spawn_multiple
pub fn comm_spawn_multiple(
    guard: &mut Guard,
    count: i32,
    array_of_commands: Address,
    array_of_argv: Address,
    array_of_maxprocs: In<i32>,
    array_of_info: In<Handle>,
    root: i32,
    comm: Handle,
    intercomm: Out<Handle>,
    array_of_errcodes: Array<i32>,
) -> Result<()> {
    let programs = |guard: &mut Guard| {
        let count = crate::args::length(count, "count")?;
        let commands = In::<usize>::new(array_of_commands.0, "array_of_commands");
        let argvs = In::<usize>::new(array_of_argv.0, "array_of_argv");
        (0..count)
            .map(|at| {
                let command = Text::new(commands.get(at)?, "array_of_commands");
                let argv =
                    Address(if array_of_argv.0 == c::ARGVS_NULL { c::ARGV_NULL } else { argvs.get(at)? });
                program(guard, command, argv, array_of_maxprocs.get(at)?, array_of_info.get(at)?)
            })
            .collect()
    };
    spawn(guard, programs, root, comm, intercomm, array_of_errcodes)
}

/// Checks a spawn call's arguments for one program, and returns them for the launcher. Only the call's root
/// rank runs this function, since only its arguments count.
fn program(
    guard: &mut Guard,
    command: Text,
    argv: Address,
    maxprocs: i32,
    info: Handle,
) -> Result<SpawnProgram> {
    let Some(count) = u64::try_from(maxprocs).ok().filter(|count| *count > 0) else {
        fail!(Class::Arg, "maxprocs is {maxprocs}; it must be positive");
    };
    let mut words = vec![command.bytes()?];
    if argv.0 != c::ARGV_NULL {
        let argv = In::<usize>::new(argv.0, "argv");
        for at in 0.. {
            match argv.get(at)? {
                0 => break,
                word => words.push(Text::new(word, "argv").bytes()?),
            }
        }
    }
    let info = guard.objects.info_or_empty(info)?.entries().to_vec();
    Ok(SpawnProgram { count, words, info })
}

fn spawn(
    guard: &mut Guard,
    programs: impl FnOnce(&mut Guard) -> Result<Vec<SpawnProgram>>,
    root: i32,
    comm: Handle,
    intercomm: Out<Handle>,
    codes: Array<i32>,
) -> Result<()> {
    intercomm.check()?;
    let group = intracomm(guard, comm)?.group.clone();
    let report = broadcast_result(guard, comm, root, |guard| {
        let programs = programs(guard)?;
        let wanted: Vec<u64> = programs.iter().map(|program| program.count).collect();
        let spawned = start(guard, &group, programs);
        let mut report = Writer::default();
        report
            .number(wanted.iter().sum())
            .text(launcher::answer(&spawned.as_ref().map(Spawned::to_bytes).map_err(Clone::clone)));
        let started = spawned.map(|spawned| spawned.counts).unwrap_or_default();
        wanted.iter().enumerate().for_each(|(at, wanted)| {
            report.number(*wanted).number(started.get(at).copied().unwrap_or(0));
        });
        Ok(report.bytes())
    })?;
    let mut report = Reader::new(&report);
    let total = report.number()?;
    let outcome = report.bytes()?;
    if !codes.is_null() {
        let mut at = 0;
        while at < total {
            let (wanted, started) = (report.number()?, report.number()?);
            for number in 0..wanted {
                let code = if number < started { c::SUCCESS } else { Class::Spawn as i32 };
                codes.set(at as usize, code)?;
                at += 1;
            }
        }
    }
    let spawned = Spawned::from_bytes(&launcher::answered(&outcome)?)?;
    let size = spawned.counts.iter().sum::<u64>() as u32;
    let children = (spawned.first..spawned.first + size).collect::<Vec<_>>();
    between(guard, comm, Context::of_spawn(spawned.world), children, intercomm)
}

/// Asks the launcher to start the programs, and returns its answer. The answer comes when all the new
/// processes are in MPI_Init. Only the call's root rank runs this function.
fn start(guard: &mut Guard, parents: &Group, programs: Vec<SpawnProgram>) -> Result<Spawned> {
    let directory = std::env::current_dir().map(|path| path.into_os_string().into_vec()).unwrap_or_default();
    let request = Request::Spawn(Spawn { parents: parents.peers.to_vec(), directory, programs });
    Spawned::from_bytes(&ask(guard, &request)?)
}

/// MPI_Comm_get_parent: stores the intercommunicator with the processes that spawned this world. Stores
/// MPI_COMM_NULL once the program has freed this intercommunicator.
pub fn comm_get_parent(guard: &mut Guard, parent: Out<Handle>) -> Result<()> {
    let handle = guard.objects.parent;
    parent.set(if guard.objects.comm(handle).is_ok() { handle } else { c::COMM_NULL })
}

/// MPI_Open_port
pub fn open_port(guard: &mut Guard, info: Handle, port_name: TextOut) -> Result<()> {
    guard.objects.info_or_empty(info)?;
    let name = connect::open(guard)?;
    port_name.set(&name, c::MAX_PORT_NAME as usize).map(|_| ())
}

/// MPI_Close_port
pub fn close_port(guard: &mut Guard, port_name: Text) -> Result<()> {
    connect::close(guard, &port_name.read()?)
}

/// MPI_Comm_accept
pub fn comm_accept(
    guard: &mut Guard,
    port_name: Text,
    info: Handle,
    root: i32,
    comm: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    connect_roots(guard, root, comm, newcomm, |guard, group| {
        guard.objects.info_or_empty(info)?;
        connect::accept(guard, &port_name.read()?, group)
    })
}

/// MPI_Comm_connect
pub fn comm_connect(
    guard: &mut Guard,
    port_name: Text,
    info: Handle,
    root: i32,
    comm: Handle,
    newcomm: Out<Handle>,
) -> Result<()> {
    connect_roots(guard, root, comm, newcomm, |guard, group| {
        let info = guard.objects.info_or_empty(info)?;
        let seconds = info.get("timeout").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        let timeout = seconds.unwrap_or(Duration::from_millis(settings::get().connect_timeout_ms));
        connect::connect(guard, &port_name.read()?, group, timeout)
    })
}

/// Makes an intercommunicator of two groups. The root rank of each group calls `find`, which connects to the
/// other group's root rank, and returns the connection's number and the other group's process numbers. The
/// root rank sends both to its own group.
fn connect_roots(
    guard: &mut Guard,
    root: i32,
    comm: Handle,
    newcomm: Out<Handle>,
    find: impl FnOnce(&mut Guard, &Group) -> Result<(u64, Vec<u32>)>,
) -> Result<()> {
    newcomm.check()?;
    let group = intracomm(guard, comm)?.group.clone();
    let found = broadcast_result(guard, comm, root, |guard| {
        let (id, peers) = find(guard, &group)?;
        Ok(connect::to_bytes(id, &peers))
    })?;
    let (id, peers) = connect::from_bytes(&found)?;
    between(guard, comm, Context::of_connection(id), peers, newcomm)
}

/// MPI_Publish_name: all processes of the job can look up the service name.
pub fn publish_name(guard: &mut Guard, service_name: Text, info: Handle, port_name: Text) -> Result<()> {
    guard.objects.info_or_empty(info)?;
    let (service, port) = (service_name.read()?, port_name.read()?);
    ask(guard, &Request::Publish { service, port }).map(|_| ())
}

/// MPI_Unpublish_name
pub fn unpublish_name(guard: &mut Guard, service_name: Text, info: Handle, port_name: Text) -> Result<()> {
    guard.objects.info_or_empty(info)?;
    let (service, _) = (service_name.read()?, port_name.read()?);
    ask(guard, &Request::Unpublish { service }).map(|_| ())
}

/// MPI_Lookup_name
pub fn lookup_name(guard: &mut Guard, service_name: Text, info: Handle, port_name: TextOut) -> Result<()> {
    guard.objects.info_or_empty(info)?;
    let service = service_name.read()?;
    let port = ask(guard, &Request::Lookup { service })?;
    port_name.set(&String::from_utf8_lossy(&port), c::MAX_PORT_NAME as usize).map(|_| ())
}

/// MPI_Comm_join
pub fn comm_join(guard: &mut Guard, fd: i32, intercomm: Out<Handle>) -> Result<()> {
    intercomm.check()?;
    let (id, peer) = connect::join(guard, fd)?;
    between(guard, c::COMM_SELF, Context::of_connection(id), vec![peer], intercomm)
}

/// MPI_Comm_disconnect: frees the comm once this rank's operations on it have ended and all members have made
/// this call.
pub fn comm_disconnect(guard: &mut Guard, comm: Out<Handle>) -> Result<()> {
    let handle = comm.get()?;
    let context = guard.objects.comm(handle)?.context;
    guard.blame(crate::process::On::Comm(handle));
    if guard.objects.comms.is_predefined(handle) {
        fail!(Class::Comm, "{handle} is predefined and cannot be disconnected");
    }
    let mut silence = crate::process::report::Silence::start();
    guard.wait(|process| {
        silence.check(process, "MPI_Comm_disconnect");
        process.job().p2p.is_quiet_on(context).then_some(())
    });
    super::coll::barrier(guard, handle)?;
    comm_free(guard, comm)
}

/// Returns, on all members, the bytes that `find` returns on the rank `root`. Only that rank calls `find`. If
/// `find` fails, this function returns the error on all members. Collective.
fn broadcast_result(
    guard: &mut Guard,
    comm: Handle,
    root: i32,
    find: impl FnOnce(&mut Guard) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let found = guard.objects.comm(comm)?;
    let (rank, size) = (found.rank as i32, found.size());
    if root < 0 || root as u32 >= size {
        fail!(Class::Root, "root is {root}, but the comm has {size} processes");
    }
    if size == 1 {
        return find(guard);
    }
    let found = (rank == root).then(|| find(guard));
    guard.broadcast_from_root(comm, root as u32, found)
}

/// Makes an intercommunicator between the group of `comm` and the processes `remote`.
fn between(
    guard: &mut Guard,
    comm: Handle,
    context: Context,
    remote: Vec<u32>,
    new: Out<Handle>,
) -> Result<()> {
    let local = guard.objects.comm(comm)?.group.clone();
    remote.iter().for_each(|peer| guard.job().p2p.renew(*peer));
    let remote = group_of(guard, remote);
    enter(guard, comm, Comm::between(context, local, remote, ""), new)?;
    connect::publish(guard);
    Ok(())
}
