// SPDX-License-Identifier: BSD-3-Clause
//! Where ranks run: the nodes of the ranks of MPI_COMM_WORLD and of other comms. Also returns the sizes of
//! datatypes.

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::sync::atomic::AtomicUsize;
use std::sync::{OnceLock, RwLock};

use watch_page::{FORM, Head};

use crate::page;
use crate::real::{NOT_THERE, pass, real};

/// The numbers of the handles MPI_COMM_WORLD and MPI_BYTE in one of the two ABIs.
struct Abi {
    comm_world: usize,
    byte: usize,
}

/// The handles of the standard ABI (MPI 5.0, appendix A).
const STANDARD: Abi = Abi { comm_world: 0x101, byte: 0x247 };
/// The handles in MPICH's mpi.h, which MPICH's ABI initiative has fixed.
const MPICH: Abi = Abi { comm_world: 0x4400_0000, byte: 0x4c00_010d };

struct KnownWorld {
    /// The number of the node of each rank of MPI_COMM_WORLD. Nodes are numbered in the order of the lowest
    /// rank on each node.
    nodes: Vec<u32>,
    group: usize,
}

static WORLD: OnceLock<KnownWorld> = OnceLock::new();
/// For each comm in which a call has named a rank, by the lower half of its handle: the nodes of the comm's
/// ranks.
static COMMS: RwLock<Option<HashMap<u32, Vec<u32>>>> = RwLock::new(None);

/// Returns how many bytes `count` elements of a datatype have.
pub fn bytes(count: u64, datatype: usize) -> u64 {
    let mut size: c_int = 0;
    let to = &raw mut size as usize;
    match pass!(c"PMPI_Type_size", (datatype, to)) {
        // MPI_UNDEFINED is negative.
        0 => count.saturating_mul(u64::try_from(size).unwrap_or(0)),
        _ => 0,
    }
}

/// Returns the ABI of the MPI library, which the name of the library's file shows.
fn abi() -> &'static Abi {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let address = real(c"PMPI_Comm_rank", &FOUND);
    // SAFETY: all zero is a valid Dl_info: null pointers.
    let mut facts: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call reads no memory at the address, and writes the record.
    let is_found = unsafe { libc::dladdr(address as *const _, &mut facts) } != 0;
    if !is_found || facts.dli_fname.is_null() {
        return &MPICH;
    }
    // SAFETY: the loader's own C string, which stays while the library does.
    let name = unsafe { CStr::from_ptr(facts.dli_fname) }.to_string_lossy();
    if name.rsplit('/').next().is_some_and(|name| name.starts_with("libmpi_abi")) {
        &STANDARD
    } else {
        &MPICH
    }
}

/// Learns on which nodes the ranks run, and makes the page of this process. Does nothing if `code`, the
/// result of MPI_Init, is an error.
pub fn begin(code: c_int) {
    if code != 0 || WORLD.get().is_some() {
        return;
    }
    let Abi { comm_world, byte } = *abi();
    let (mut rank, mut size): (c_int, c_int) = (0, 0);
    let (to_rank, to_size) = (&raw mut rank as usize, &raw mut size as usize);
    if pass!(c"PMPI_Comm_rank", (comm_world, to_rank)) != 0
        || pass!(c"PMPI_Comm_size", (comm_world, to_size)) != 0
    {
        return;
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut mine = [0u8; 64];
    let length = host.len().min(mine.len());
    mine[..length].copy_from_slice(&host.as_bytes()[..length]);
    let size = usize::try_from(size).unwrap_or(0);
    let mut hosts = vec![[0u8; 64]; size];
    let (from, to, count) = (mine.as_ptr() as usize, hosts.as_mut_ptr() as usize, mine.len());
    if pass!(c"PMPI_Allgather", (from, count, byte, to, count, byte, comm_world)) != 0 {
        return;
    }
    let mut nodes: Vec<u32> = Vec::with_capacity(size);
    let mut known: HashMap<[u8; 64], u32> = HashMap::new();
    for host in hosts {
        let next = known.len() as u32;
        nodes.push(*known.entry(host).or_insert(next));
    }
    // Rank 0 gives the world a number that no other has.
    let mut number = page::now_ns() << 20 ^ u64::from(std::process::id());
    let (at, bytes, root) = (&raw mut number as usize, size_of::<u64>(), 0);
    let is_told = pass!(c"PMPI_Bcast", (at, bytes, byte, root, comm_world)) == 0;
    let group = group_of(comm_world);
    let (true, Some(group)) = (is_told, group) else { return };
    let slurm = std::env::var("SLURM_JOB_ID").ok().and_then(|job| job.parse().ok()).unwrap_or(0);
    let rank = usize::try_from(rank).unwrap_or(0);
    let head = [
        (Head::Form, FORM),
        (Head::Rank, rank as u64),
        (Head::Size, size as u64),
        (Head::Node, nodes[rank].into()),
        (Head::Nodes, known.len() as u64),
        (Head::World, number),
        (Head::Slurm, slurm),
    ];
    page::begin(&head, &host);
    let _ = WORLD.set(KnownWorld { nodes, group });
}

/// Returns the handle of a comm's group, or None if MPI_Comm_group fails. That function stores a handle of 4
/// or 8 bytes, depending on the ABI.
fn group_of(comm: usize) -> Option<usize> {
    let mut group = 0usize;
    let to = &raw mut group as usize;
    (pass!(c"PMPI_Comm_group", (comm, to)) == 0).then_some(group)
}

/// Returns the node of the rank `peer` of a comm. Returns None for MPI_PROC_NULL, and if the nodes of the
/// comm are unknown. A process outside this MPI_COMM_WORLD has the node `u32::MAX`.
pub fn node(peer: usize, comm: usize) -> Option<usize> {
    let peer = usize::try_from(peer as u32 as i32).ok()?;
    let world = WORLD.get()?;
    if comm as u32 == abi_world() {
        return world.nodes.get(peer).map(|node| *node as usize);
    }
    let key = comm as u32;
    if let Some(nodes) = COMMS.read().ok()?.as_ref().and_then(|comms| comms.get(&key)) {
        return nodes.get(peer).map(|node| *node as usize);
    }
    let nodes = nodes_of(comm, world).unwrap_or_default();
    let node = nodes.get(peer).map(|node| *node as usize);
    COMMS.write().ok()?.get_or_insert_default().insert(key, nodes);
    node
}

fn abi_world() -> u32 {
    static FOUND: OnceLock<u32> = OnceLock::new();
    *FOUND.get_or_init(|| abi().comm_world as u32)
}

/// Forgets the nodes of a comm that is being freed, because another comm may get its handle.
pub fn forget(handle: u32) {
    if let Ok(mut comms) = COMMS.write()
        && let Some(comms) = comms.as_mut()
    {
        comms.remove(&handle);
    }
}

/// Returns the node of each rank of a comm. Returns None for an intercomm, and if a call to the MPI library
/// fails.
fn nodes_of(comm: usize, world: &KnownWorld) -> Option<Vec<u32>> {
    let mut is_inter: c_int = 0;
    let to = &raw mut is_inter as usize;
    if pass!(c"PMPI_Comm_test_inter", (comm, to)) != 0 || is_inter != 0 {
        return None;
    }
    let mut size: c_int = 0;
    let (to, group) = (&raw mut size as usize, group_of(comm)?);
    let is_sized = pass!(c"PMPI_Comm_size", (comm, to)) == 0;
    let ranks: Vec<c_int> = (0..size).collect();
    let mut found: Vec<c_int> = vec![-1; ranks.len()];
    let (count, from, into, whole) =
        (ranks.len(), ranks.as_ptr() as usize, found.as_mut_ptr() as usize, world.group);
    let is_known = is_sized && pass!(c"PMPI_Group_translate_ranks", (group, count, from, whole, into)) == 0;
    let mut own = group;
    let at = &raw mut own as usize;
    let _ = pass!(c"PMPI_Group_free", (at));
    // A process of another world has no node in this table.
    let node = |rank: &c_int| usize::try_from(*rank).ok().and_then(|rank| world.nodes.get(rank)).copied();
    is_known.then(|| found.iter().map(|rank| node(rank).unwrap_or(u32::MAX)).collect())
}
