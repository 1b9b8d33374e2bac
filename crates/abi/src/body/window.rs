// SPDX-License-Identifier: BSD-3-Clause
//! The calls that make and free RMA windows, and inquire about them (MPI 5.0, section 12.2).

use super::coll;
use super::comm::{intracomm, object_name};
use super::environment::{ALIGNMENT, allocate, free_mem};
use super::info::enter_info;
use crate::args::{Address, Handle, Out, OutCount, Text, TextOut};
use crate::attribute;
use crate::collective::detach;
use crate::process::{Guard, On};
use crate::process::{Win, WindowAttributes};
use error::{Class, Result, fail};
use objects::errhandler::release;
use objects::{Attributes, Comm, HandleKind, Info, constants as c};
use rma::{Exposure, Flavor, Window};

/// MPI_Win_create
pub fn win_create(
    guard: &mut Guard,
    base: Address,
    size: i64,
    disp_unit: i64,
    info: Handle,
    comm: Handle,
    win: Out<Handle>,
) -> Result<()> {
    let arguments = check(guard, Flavor::Create, (size, disp_unit), info, win).and_then(|arguments| {
        if base.is_null() && size > 0 {
            fail!(Class::Base, "the base is a null pointer, but size is {size}");
        }
        Ok(NewWindow { base: base.0, ..arguments })
    });
    create(guard, comm, arguments, win).map(drop)
}

/// MPI_Win_allocate
pub fn win_allocate(
    guard: &mut Guard,
    size: i64,
    disp_unit: i64,
    info: Handle,
    comm: Handle,
    baseptr: Address,
    win: Out<Handle>,
) -> Result<()> {
    let arguments = check(guard, Flavor::Allocate, (size, disp_unit), info, win);
    let base = create(guard, comm, arguments, win)?;
    baseptr.store(base)
}

/// MPI_Win_allocate_shared
pub fn win_allocate_shared(
    guard: &mut Guard,
    size: i64,
    disp_unit: i64,
    info: Handle,
    comm: Handle,
    baseptr: Address,
    win: Out<Handle>,
) -> Result<()> {
    let arguments = check(guard, Flavor::Shared, (size, disp_unit), info, win);
    let base = create(guard, comm, arguments, win)?;
    baseptr.store(base)
}

/// MPI_Win_create_dynamic
pub fn win_create_dynamic(guard: &mut Guard, info: Handle, comm: Handle, win: Out<Handle>) -> Result<()> {
    let arguments = check(guard, Flavor::Dynamic, (0, 1), info, win);
    create(guard, comm, arguments, win).map(drop)
}

/// The arguments that one member passes to a call that makes a window.
struct NewWindow {
    flavor: Flavor,
    base: usize,
    bytes: u64,
    disp_unit: i64,
    info: Info,
}

fn check(
    guard: &Guard,
    flavor: Flavor,
    (size, disp_unit): (i64, i64),
    info: Handle,
    win: Out<Handle>,
) -> Result<NewWindow> {
    win.check()?;
    let Ok(bytes) = u64::try_from(size) else { fail!(Class::Size, "size is {size}, which is negative") };
    if disp_unit <= 0 {
        fail!(Class::Disp, "disp_unit is {disp_unit}, which is not positive");
    }
    let info = hints(flavor, &guard.objects.info_or_empty(info)?)?;
    Ok(NewWindow { flavor, base: 0, bytes, disp_unit, info })
}

/// The keys of the hints for windows, with their default values (MPI 5.0, sections 12.2.1 and 12.2.3).
const HINTS: [(&str, &str); 6] = [
    ("no_locks", "false"),
    ("accumulate_ordering", "rar,raw,war,waw"),
    ("accumulate_ops", "same_op_no_op"),
    ("same_size", "false"),
    ("same_disp_unit", "false"),
    ("alloc_shared_noncontig", "false"),
];

/// Returns the hints of a new window. They are those that the standard defines, each with the program's value
/// or the default.
fn hints(flavor: Flavor, given: &Info) -> Result<Info> {
    let mut info = Info::default();
    for (key, value) in HINTS {
        if key != "alloc_shared_noncontig" || flavor == Flavor::Shared {
            info.set(key, given.get(key).unwrap_or(value))?;
        }
    }
    if let Some(align) = given.get(ALIGNMENT).filter(|_| matches!(flavor, Flavor::Allocate | Flavor::Shared))
    {
        info.set(ALIGNMENT, align)?;
    }
    Ok(info)
}

/// Makes a window, stores its handle, and returns the address of this rank's memory in the window.
/// Collective.
fn create(guard: &mut Guard, comm: Handle, arguments: Result<NewWindow>, win: Out<Handle>) -> Result<usize> {
    let (handle, base) = make(guard, comm, arguments)?;
    win.set(handle)?;
    Ok(base)
}

/// Makes a window of the `bytes` bytes at `base` in each member's memory. Displacements in it count bytes.
/// Collective.
pub(crate) fn make_over(guard: &mut Guard, comm: Handle, base: usize, bytes: u64) -> Result<Handle> {
    let info = hints(Flavor::Create, &Info::default())?;
    let arguments = NewWindow { flavor: Flavor::Create, base, bytes, disp_unit: 1, info };
    Ok(make(guard, comm, Ok(arguments))?.0)
}

/// Makes a window. Returns its handle, and the address of this rank's memory in it. If the arguments or the
/// memory of one member are refused, the call fails on all members. Collective.
fn make(guard: &mut Guard, comm: Handle, arguments: Result<NewWindow>) -> Result<(Handle, usize)> {
    let members = intracomm(guard, comm)?.all_peers.clone();
    let arguments = arguments.and_then(|arguments| match arguments.flavor {
        Flavor::Shared => same_host(guard, &members).map(|()| arguments),
        _ => Ok(arguments),
    });
    // The program may free its comm, so the window has a comm of its own for fences (MPI 5.0, section
    // 12.2.1).
    let parent = guard.objects.comms.get_mut(comm)?;
    let (context, group) = (parent.child_context(0), parent.group.clone());
    let hidden = guard.objects.enter_comm(Comm::new(context, group, ""))?;
    let made = build(guard, hidden, arguments).and_then(|made| {
        let (base, spans, key) = (made.facts.base, made.window.spans_hosts(), made.window.key);
        let job = guard.job();
        let handle = job.windows.insert(made)?;
        if spans {
            job.mail.windows.insert(key, handle);
            // No member sends a request before all members know the window.
            coll::barrier(guard, hidden)?;
        }
        Ok((handle, base))
    });
    if made.is_err() {
        let hidden = guard.objects.comms.remove(hidden)?;
        detach(guard.job(), &hidden);
    }
    made
}

/// Returns MPI_ERR_RMA_SHARED if a member of the new shared window is on another host (MPI 5.0, section
/// 12.2.3).
fn same_host(guard: &mut Guard, members: &[u32]) -> Result<()> {
    let segment = guard.job().membership.segment;
    match members.iter().find(|peer| segment.local(**peer).is_none()) {
        Some(far) => fail!(
            Class::RmaShared,
            "{} is on another host than this process, so they share no memory: split the communicator with MPI_COMM_TYPE_SHARED",
            segment.name(*far)
        ),
        None => Ok(()),
    }
}

/// Makes a window for the members of `comm`. The window's fences will be barriers on `comm`. The members tell
/// each other what memory each exposes, and map the others' memory. Collective.
fn build(guard: &mut Guard, comm: Handle, arguments: Result<NewWindow>) -> Result<Win> {
    let (bytes, scattered) = match &arguments {
        Ok(arguments) => (arguments.bytes, arguments.info.get("alloc_shared_noncontig") == Some("true")),
        Err(_) => (0, false),
    };
    let (arguments, all) = all_take_part(guard, comm, arguments, |_| [bytes, u64::from(scattered)])?;
    let sizes: Vec<u64> = all.iter().map(|words| words[0]).collect();
    // The memory is contiguous unless all members allow the opposite.
    let scattered = all.iter().all(|words| words[1] != 0);
    let share = expose(guard, comm, arguments, &sizes, scattered);
    let to_free = share.as_ref().ok().map(|share| (share.exposure.record, share.allocated));
    let agreed = all_take_part(guard, comm, share, |share| share.exposure.to_words());
    if let (Err(_), Some((record, allocated))) = (&agreed, to_free) {
        guard.job().coll.memory().free(record);
        allocated.map(|address| free_mem(guard, Address(address)));
    }
    let (WindowShare { arguments, mut exposure, allocated }, all) = agreed?;
    let mut exposures: Vec<Exposure> = all.iter().map(|words| Exposure::from_words(words)).collect();
    if arguments.flavor == Flavor::Shared && !scattered {
        // The memory is one range in the order of ranks, which rank 0 has allocated (MPI 5.0, section
        // 12.2.3).
        let mut next = exposures[0].mapped;
        for exposure in &mut exposures {
            exposure.mapped = next;
            next = next.map(|(owner, offset)| (owner, offset + exposure.bytes));
        }
    }
    let opened = make_reachable(guard, comm, arguments.flavor, &exposures)
        .and_then(|()| open(guard, comm, arguments.flavor, &exposures, &mut exposure));
    // One member may have no room to map what the others can map.
    let agreed = all_take_part(guard, comm, opened.as_ref().map(drop).map_err(Clone::clone), |()| []);
    let window = match (opened, agreed) {
        (Ok(window), Ok(_)) => window,
        (opened, agreed) => {
            let job = guard.job();
            match opened {
                Ok(window) => window.free(&mut job.rma, job.coll.memory()),
                Err(_) => drop(job.coll.memory().free(exposure.record)),
            }
            allocated.map(|address| free_mem(guard, Address(address)));
            return Err(agreed.expect_err("a member that failed has said so"));
        }
    };
    Ok(Win {
        window,
        comm,
        name: String::new(),
        errhandler: c::ERRORS_ARE_FATAL,
        attributes: Attributes::default(),
        info: arguments.info,
        allocated,
        facts: Box::new(WindowAttributes::new(
            arguments.flavor,
            exposure.base,
            exposure.bytes,
            exposure.disp_unit,
        )),
        epochs: None,
    })
}

/// Maps the memory that each member exposes, and its record (the shared memory with the window's locks and
/// counters), as far as this member can reach them.
fn open(
    guard: &mut Guard,
    comm: Handle,
    flavor: Flavor,
    exposures: &[Exposure],
    mine: &mut Exposure,
) -> Result<Window> {
    let (objects, job) = guard.parts();
    let Comm { group, context, rank, .. } = objects.comm(comm)?;
    if flavor == Flavor::Shared {
        let (owner, offset) = exposures[*rank as usize].mapped.expect("shared windows lie in arenas");
        mine.base = job.rma.span(owner, offset, mine.bytes)?.address();
    }
    let memory = (mine.bytes > 0).then(|| Address(mine.base).exposed(mine.bytes));
    Window::new(&mut job.rma, (flavor, *context), (*rank, &group.peers[..]), exposures, memory)
}

/// Does what `Guard::all_succeed` does, but returns MPI_ERR_OTHER if only other members have failed, whatever
/// their errors are.
fn all_take_part<const WORDS: usize, T>(
    guard: &mut Guard,
    comm: Handle,
    mine: Result<T>,
    words: impl FnOnce(&T) -> [u64; WORDS],
) -> Result<(T, Vec<[u64; WORDS]>)> {
    let failed_here = mine.is_err();
    guard.all_succeed(comm, mine, words).map_err(|mut error| {
        if !failed_here {
            error.class = Class::Other;
        }
        error
    })
}

/// What one member contributes to a new window: its arguments, a description of the memory that it exposes,
/// and the address of the memory that it allocated.
struct WindowShare {
    arguments: NewWindow,
    exposure: Exposure,
    allocated: Option<usize>,
}

/// Allocates this member's record of the window (its locks and counters), and also the exposed memory where
/// MPI_Win_allocate or MPI_Win_allocate_shared needs it.
fn expose(
    guard: &mut Guard,
    comm: Handle,
    mut arguments: NewWindow,
    sizes: &[u64],
    scattered: bool,
) -> Result<WindowShare> {
    let rank = guard.objects.comm(comm)?.rank;
    let is_shared = arguments.flavor == Flavor::Shared;
    let bytes = match arguments.flavor {
        Flavor::Create | Flavor::Dynamic => None,
        Flavor::Shared if !scattered => {
            let Some(total) = sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size)) else {
                fail!(Class::Size, "the sizes of the members add up to more than 2^64");
            };
            (rank == 0).then_some(total)
        }
        Flavor::Allocate | Flavor::Shared => Some(arguments.bytes),
    };
    let job = guard.job();
    let mut allocated = None;
    if let Some(bytes) = bytes {
        let address = allocate(job, bytes, &arguments.info)?;
        allocated = Some(address);
        arguments.base = address;
    }
    let mut exposure = || -> Result<Exposure> {
        let job = guard.job();
        if device::on() && arguments.bytes > 0 {
            device::holds(arguments.base, arguments.bytes as usize)?;
        }
        // The program's memory may be in an arena, too.
        let mapped = (arguments.base != 0)
            .then(|| job.rma.locate(Address(arguments.base).exposed(arguments.bytes)))
            .flatten();
        if is_shared && allocated.is_some() && mapped.is_none() {
            fail!(Class::NoMem, "the arena has no space for the memory of a shared window");
        }
        let record = job.rma.record(job.coll.memory(), sizes.len())?;
        let &NewWindow { base, bytes, disp_unit, .. } = &arguments;
        Ok(Exposure { record, base, bytes, disp_unit, mapped })
    };
    match exposure() {
        Ok(exposure) => Ok(WindowShare { arguments, exposure, allocated }),
        Err(error) => {
            allocated.map(|address| free_mem(guard, Address(address)));
            Err(error)
        }
    }
}

/// Makes the memory of each member reachable for all members. A member starts a thread that serves its memory
/// if others cannot attach it, as with a device's memory. All members start such a thread if any member
/// cannot reach another one's private memory. Collective.
fn make_reachable(guard: &mut Guard, comm: Handle, flavor: Flavor, exposures: &[Exposure]) -> Result<()> {
    if flavor != Flavor::Dynamic && !exposures.iter().any(Exposure::is_private) {
        return Ok(());
    }
    let Comm { rank, group, .. } = guard.objects.comm(comm)?;
    let (mine, peers) = (&exposures[*rank as usize], group.peers.clone());
    let hides = flavor != Flavor::Dynamic
        && mine.is_private()
        && !datatype::Buffer::from(Address(mine.base).exposed(mine.bytes)).is_attachable();
    let job = guard.job();
    let mut ready = job.rma.make_mailbox(job.coll.memory());
    if hides {
        ready = ready.and_then(|()| job.rma.start_server(job.coll.memory()));
    }
    let (rma, segment) = (&job.rma, job.membership.segment);
    // Members on other hosts carry out themselves what others request of them.
    let reaches = |peer: u32| segment.local(peer).is_none_or(|peer| rma.reaches(peer));
    let hidden = |(exposure, peer): (&Exposure, &u32)| {
        (flavor == Flavor::Dynamic || exposure.is_private()) && !reaches(*peer)
    };
    let unreached = exposures.iter().zip(peers.iter()).any(hidden);
    let ((), all) = all_take_part(guard, comm, ready, |()| [u64::from(unreached)])?;
    if all.iter().all(|words| words[0] == 0) {
        return Ok(());
    }
    let job = guard.job();
    let served = job.rma.start_server(job.coll.memory());
    all_take_part(guard, comm, served, |()| []).map(drop)
}

/// MPI_Win_free: no member returns before all members have ended their epochs (MPI 5.0, section 12.2.5).
pub fn win_free(guard: &mut Guard, win: Out<Handle>) -> Result<()> {
    let handle = win.get()?;
    guard.job().windows.get(handle)?;
    guard.blame(On::Win(handle));
    free(guard, handle)?;
    win.set(c::WIN_NULL)
}

/// Frees a window, whether the program or the library made it. Collective.
pub(crate) fn free(guard: &mut Guard, handle: Handle) -> Result<()> {
    let comm = guard.job().windows.get(handle)?.comm;
    guard.job().window(handle)?.0.may_free()?;
    attribute::delete_all(guard, HandleKind::Win, handle)?;
    guard.wait_for_answers(handle, None)?;
    coll::barrier(guard, comm)?;
    let (objects, job) = guard.parts();
    let Win { window, errhandler, allocated, .. } = job.windows.remove(handle)?;
    job.mail.windows.remove(&window.key);
    window.free(&mut job.rma, job.coll.memory());
    release(&mut objects.errhandlers, errhandler)?;
    detach(job, &objects.comms.remove(comm)?);
    if let Some(address) = allocated {
        free_mem(guard, Address(address))?;
    }
    Ok(())
}

/// MPI_Win_attach
pub fn win_attach(guard: &mut Guard, win: Handle, base: Address, size: i64) -> Result<()> {
    let Ok(bytes) = u64::try_from(size) else { fail!(Class::Size, "size is {size}, which is negative") };
    if base.is_null() && size > 0 {
        fail!(Class::Base, "the base is a null pointer, but size is {size}");
    }
    let job = guard.job();
    let window = &mut job.windows.get_mut(win)?.window;
    only_dynamic(window)?;
    if device::on() && bytes > 0 && device::holds(base.0, bytes as usize)? {
        // Other processes reach this memory only through this process's thread.
        job.rma.make_mailbox(job.coll.memory())?;
        job.rma.start_server(job.coll.memory())?;
    }
    window.attach(&mut job.rma, job.coll.memory(), base.exposed(bytes))
}

/// MPI_Win_detach
pub fn win_detach(guard: &mut Guard, win: Handle, base: Address) -> Result<()> {
    let job = guard.job();
    let window = &mut job.windows.get_mut(win)?.window;
    only_dynamic(window)?;
    window.detach(&job.rma, job.coll.memory(), base.0)
}

fn only_dynamic(window: &Window) -> Result<()> {
    if window.flavor != Flavor::Dynamic {
        fail!(Class::RmaFlavor, "only a window of MPI_Win_create_dynamic has attached memory");
    }
    Ok(())
}

/// MPI_Win_shared_query: also reports memory in windows of other flavors, if this process has mapped that
/// memory (MPI 5.0, section 12.2.3).
pub fn win_shared_query(
    guard: &mut Guard,
    win: Handle,
    rank: i32,
    size: Out<i64>,
    disp_unit: OutCount,
    baseptr: Address,
) -> Result<()> {
    let window = guard.job().window(win)?.0;
    if window.flavor == Flavor::Dynamic {
        fail!(Class::RmaFlavor, "a window of MPI_Win_create_dynamic has no memory to show");
    }
    // The lowest rank with memory may be on another host: then nothing is shown, as for any rank there.
    let shown = if rank == c::PROC_NULL { window.first_with_memory().unwrap_or(0) } else { rank };
    let found = window.mapped(shown)?;
    let (bytes, unit, address) = found.unwrap_or((0, 1, 0));
    // Memory of no bytes has no address.
    let address = if bytes > 0 || rank == c::PROC_NULL { address } else { 0 };
    size.set(bytes as i64)?;
    disp_unit.set(unit)?;
    baseptr.store(address)
}

/// MPI_Win_get_group
pub fn win_get_group(guard: &mut Guard, win: Handle, group: Out<Handle>) -> Result<()> {
    group.check()?;
    let comm = guard.job().windows.get(win)?.comm;
    let shared = guard.objects.comm(comm)?.group.clone();
    group.set(guard.objects.enter_group(shared)?)
}

/// MPI_Win_set_name
pub fn win_set_name(guard: &mut Guard, win: Handle, win_name: Text) -> Result<()> {
    let name = object_name(win_name)?;
    guard.job().windows.get_mut(win)?.name = name;
    Ok(())
}

/// MPI_Win_get_name
pub fn win_get_name(guard: &mut Guard, win: Handle, win_name: TextOut, resultlen: Out<i32>) -> Result<()> {
    // The null handle has a name, too (MPI 5.0, section 7.8).
    let name = if win == c::WIN_NULL { "MPI_WIN_NULL" } else { &guard.job().windows.get(win)?.name };
    resultlen.set(win_name.set(name, c::MAX_OBJECT_NAME as usize)? as i32)
}

/// MPI_Win_set_info: ignores hints that the standard does not define for windows.
pub fn win_set_info(guard: &mut Guard, win: Handle, info: Handle) -> Result<()> {
    let given = guard.objects.info_or_empty(info)?;
    let kept = &mut guard.job().windows.get_mut(win)?.info;
    let known =
        given.entries().iter().filter(|(key, _)| kept.get(key).is_some()).cloned().collect::<Vec<_>>();
    known.iter().try_for_each(|(key, value)| kept.set(key, value))
}

/// MPI_Win_get_info: stores a new info with the hints in use.
pub fn win_get_info(guard: &mut Guard, win: Handle, info_used: Out<Handle>) -> Result<()> {
    let info = guard.job().windows.get(win)?.info.clone();
    enter_info(guard, info, info_used)
}
