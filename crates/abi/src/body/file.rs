// SPDX-License-Identifier: BSD-3-Clause
//! The calls that open and close files, and that deal with sizes, hints, views and file pointers (MPI 5.0,
//! sections 14.2, 14.3, 14.4.3, 14.4.4, 14.5 and 14.6).

use super::comm::intracomm;
use super::info::enter_info;
use super::{epoch, onesided, window};
use crate::args::{Address, Callback, Handle, Out, OutCount, Text, TextOut};
use crate::collective::detach;
use crate::lenient::{self, Accepted};
use crate::process::{Guard, On};
use error::{Class, Result, fail};
use io::file::{AMODES, check_amode, delete, open, path_of};
use io::{Hints, OpenFile, Representation, SharedPointer, Storage, UserRepresentation, View};
use objects::errhandler::{release, retain};
use objects::{Comm, HandleKind, constants as c};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Block;

/// MPI_File_open: rank 0 creates the file, then the other ranks open it. If one rank fails, all fail.
pub fn file_open(
    guard: &mut Guard,
    comm: Handle,
    filename: Text,
    amode: i32,
    info: Handle,
    fh: Out<Handle>,
) -> Result<()> {
    guard.blame(On::AnyFile);
    if amode & !AMODES != 0 {
        lenient::accept(Accepted::AccessMode);
    }
    let amode = amode & AMODES;
    intracomm(guard, comm)?;
    let parent = guard.objects.comms.get_mut(comm)?;
    let mut private = Comm::new(parent.child_context(0), parent.group.clone(), "");
    private.claim = Some(guard.objects.contexts.claim(private.context)?);
    let mut members = coll::Members {
        context: private.operation_context()?,
        sequence: 0,
        rank: private.rank,
        peers: private.group.peers.clone(),
        first_group: 0,
    };
    let checked = check_open(guard, filename, amode, info, fh);
    let (path, hints) = agree_on_open(guard, &mut members, amode, checked)?;
    let (storage, offset, start) = open_on_all(guard, &mut members, &path, amode, hints.permissions)?;
    let segment = guard.job().membership.segment;
    let first = segment.local(private.group.peers[0]);
    let shared = first.map(|first| SharedPointer::new(segment.arena(first)?, offset)).transpose()?;
    let is_away = |peer: &u32| segment.local(*peer).is_none();
    let counter = match private.group.peers.iter().any(is_away) {
        true => Some(open_counter(guard, comm, shared.as_ref().filter(|_| private.rank == 0))?),
        false => None,
    };
    let errhandler = guard.objects.file_errhandler;
    retain(&mut guard.objects.errhandlers, errhandler, HandleKind::File)?;
    let file = OpenFile {
        storage: Arc::new(storage),
        comm: private,
        amode,
        hints: Arc::new(hints),
        view: Arc::new(View::bytes()),
        known: Default::default(),
        position: start as i64,
        shared,
        counter,
        atomic: false,
        split: None,
        errhandler,
    };
    fh.set(guard.job().files.insert(file)?)
}

/// Returns a new window, through which ranks of other hosts reach the shared file pointer. Rank 0 passes the
/// pointer, which lies in its memory. The other ranks pass None. Collective.
fn open_counter(guard: &mut Guard, comm: Handle, pointer: Option<&SharedPointer>) -> Result<Handle> {
    let (base, bytes) = pointer.map_or((0, 0), |pointer| (pointer.address(), 8));
    let counter = window::make_over(guard, comm, base, bytes)?;
    epoch::win_lock_all(guard, c::MODE_NOCHECK, counter)?;
    Ok(counter)
}

/// Checks those arguments of MPI_File_open that a rank can check alone. Returns the path and the hints.
fn check_open(
    guard: &mut Guard,
    filename: Text,
    amode: i32,
    info: Handle,
    fh: Out<Handle>,
) -> Result<(PathBuf, Hints)> {
    fh.check()?;
    check_amode(amode)?;
    let mut hints = Hints::default();
    hints.take(&guard.objects.info_or_empty(info)?);
    Ok((path_of(filename.path()?), hints))
}

/// Fails unless all ranks pass the same amode. Hints that must be equal on all ranks get the values of rank
/// 0.
fn agree_on_open(
    guard: &mut Guard,
    members: &mut coll::Members,
    amode: i32,
    checked: Result<(PathBuf, Hints)>,
) -> Result<(PathBuf, Hints)> {
    let hosts = hosts(guard, &members.peers);
    let ((path, mut hints), all) = guard.all_succeed(&mut *members, checked, |(_, hints)| {
        let [nodes, bytes, switches, unit] = hints.shared_words(&hosts);
        [amode as u64, nodes, bytes, switches, unit]
    })?;
    if let Some(rank) = all.iter().position(|words| words[0] != all[0][0]) {
        fail!(Class::NotSame, "rank {rank} gives amode {:#x}, but rank 0 {:#x}", all[rank][0], all[0][0]);
    }
    hints.adopt([all[0][1], all[0][2], all[0][3], all[0][4]], &hosts);
    Ok((path, hints))
}

/// Opens the file on all ranks. Returns the open file, the offset of its shared file pointer in rank 0's
/// arena (the part of shared memory in which rank 0 allocates), and the pointer's first value.
fn open_on_all(
    guard: &mut Guard,
    members: &mut coll::Members,
    path: &Path,
    amode: i32,
    permissions: u32,
) -> Result<(Storage, u64, u64)> {
    // Rank 0 creates the file before the others open it.
    let first = if members.rank == 0 {
        open(path, amode, permissions, true).and_then(|storage| {
            let start = if amode & c::MODE_APPEND != 0 { storage.size()? } else { 0 };
            Ok(Some((storage, guard.new_pointer(start)?.offset(), start)))
        })
    } else {
        Ok(None)
    };
    let words =
        |first: &Option<(Storage, u64, u64)>| first.as_ref().map_or([0; 2], |first| [first.1, first.2]);
    let (first, all) = guard.all_succeed(&mut *members, first, words)?;
    let [offset, start] = all[0];
    let opened = match first {
        Some((storage, ..)) => Ok(storage),
        None => open(path, amode, permissions, false),
    };
    let identified = opened.and_then(|storage| Ok((storage.identity()?, storage)));
    let node = guard.job().shared.node.load(Ordering::Relaxed);
    let identity = |((device, number), _): &((u64, u64), Storage)| [*number, node.into(), *device];
    // Each host numbers the devices of network file systems in its own way.
    let one_file = |all: &[[u64; 3]]| {
        let mut devices = HashMap::new();
        let same = |[number, node, device]: &[u64; 3]| {
            *number == all[0][0] && devices.entry(*node).or_insert(*device) == device
        };
        all.iter().all(same)
    };
    match guard.all_succeed(&mut *members, identified, identity) {
        Ok(((_, storage), all)) if one_file(&all) => Ok((storage, offset, start)),
        other => {
            if members.rank == 0 {
                guard.job().coll.memory().free(offset);
            }
            other?;
            fail!(Class::NotSame, "{} is not the same file on all ranks", path.display());
        }
    }
}

/// MPI_File_close: writes the file's data to the device first. A file opened with MPI_MODE_DELETE_ON_CLOSE no
/// longer exists when the call returns.
pub fn file_close(guard: &mut Guard, fh: Out<Handle>) -> Result<()> {
    let handle = fh.get()?;
    guard.blame(On::File(handle));
    let file = guard.job().files.get_mut(handle)?;
    if let Some(split) = &file.split {
        fail!(Class::Other, "{}_begin has not been ended", split.name);
    }
    let mut members = file.members()?;
    let (storage, deletes) = (file.storage.clone(), file.amode & c::MODE_DELETE_ON_CLOSE != 0);
    let synced = if deletes { Ok(()) } else { guard.unlocked(|| storage.sync()) };
    let mut outcome = guard.all_succeed(&mut members, synced, |_| []).map(drop);
    let file = guard.job().files.remove(handle)?;
    detach(guard.job(), &file.comm);
    if let Some(counter) = file.counter {
        epoch::win_unlock_all(guard, counter)?;
        window::free(guard, counter)?;
    }
    if let Some(pointer) = file.shared.filter(|_| members.rank == 0) {
        guard.job().coll.memory().free(pointer.offset());
    }
    if deletes {
        let gone = if members.rank == 0 { delete(storage.path()) } else { Ok(()) };
        let gone = guard.all_succeed(&mut members, gone, |_| []).map(drop);
        outcome = outcome.and(gone);
    }
    release(&mut guard.objects.errhandlers, file.errhandler)?;
    fh.set(c::FILE_NULL)?;
    outcome
}

/// MPI_File_delete
pub fn file_delete(guard: &mut Guard, filename: Text, info: Handle) -> Result<()> {
    guard.objects.info_or_empty(info)?;
    delete(&path_of(filename.path()?))
}

/// MPI_File_set_size
pub fn file_set_size(guard: &mut Guard, fh: Handle, size: i64) -> Result<()> {
    resize(guard, fh, size, |storage, size| storage.set_size(size))
}

/// MPI_File_preallocate
pub fn file_preallocate(guard: &mut Guard, fh: Handle, size: i64) -> Result<()> {
    resize(guard, fh, size, |storage, size| storage.allocate(size))
}

/// Changes the file's size. Rank 0 makes the change once all ranks have called, and all ranks wait for rank
/// 0.
fn resize(
    guard: &mut Guard,
    fh: Handle,
    size: i64,
    change: impl FnOnce(&Storage, u64) -> Result<()>,
) -> Result<()> {
    let file = guard.job().files.get_mut(fh)?;
    let mut members = file.members()?;
    let storage = file.storage.clone();
    let checked = file.check_way(io::AccessDirection::Write).and_then(|()| file.check_random());
    let checked = checked.and_then(|()| match size {
        0.. => Ok(()),
        _ => fail!(Class::Arg, "size is {size}, which is negative"),
    });
    let (_, sizes) = guard.all_succeed(&mut members, checked, |_| [size as u64])?;
    check_same(&sizes, "size")?;
    let rank = members.rank;
    let changed = guard.unlocked(|| if rank == 0 { change(&storage, size as u64) } else { Ok(()) });
    guard.all_succeed(&mut members, changed, |_| []).map(drop)
}

/// Returns MPI_ERR_NOT_SAME if the ranks do not all pass the same value of the argument `name`.
fn check_same(all: &[impl AsRef<[u64]>], name: &str) -> Result<()> {
    let values: Vec<i64> = all.iter().map(|words| words.as_ref()[0] as i64).collect();
    match values.iter().position(|value| *value != values[0]) {
        Some(rank) => {
            fail!(Class::NotSame, "{name} is {} on rank {rank}, but {} on rank 0", values[rank], values[0])
        }
        None => Ok(()),
    }
}

/// MPI_File_get_size
pub fn file_get_size(guard: &mut Guard, fh: Handle, size: Out<i64>) -> Result<()> {
    guard.progress();
    size.set(guard.job().files.get(fh)?.storage.size()? as i64)
}

/// MPI_File_get_group
pub fn file_get_group(guard: &mut Guard, fh: Handle, group: Out<Handle>) -> Result<()> {
    group.check()?;
    let shared = guard.job().files.get(fh)?.comm.group.clone();
    group.set(guard.objects.enter_group(shared)?)
}

/// MPI_File_get_amode
pub fn file_get_amode(guard: &mut Guard, fh: Handle, amode: Out<i32>) -> Result<()> {
    amode.set(guard.job().files.get(fh)?.amode)
}

/// MPI_File_set_info
pub fn file_set_info(guard: &mut Guard, fh: Handle, info: Handle) -> Result<()> {
    let file = guard.job().files.get_mut(fh)?;
    let mut members = file.members()?;
    let hints = hints(guard, fh, info);
    let hosts = hosts(guard, &members.peers);
    let (hints, all) = guard.all_succeed(&mut members, hints, |hints| hints.shared_words(&hosts))?;
    adopt(guard, fh, hints, all[0])
}

/// Returns, for each of the processes `peers`, the number of its host in the job.
fn hosts(guard: &mut Guard, peers: &[u32]) -> Vec<u32> {
    let segment = guard.job().membership.segment;
    peers.iter().map(|peer| segment.node_of(*peer)).collect()
}

/// Returns the hints of the file `fh`, changed by the hints in `info`.
fn hints(guard: &mut Guard, fh: Handle, info: Handle) -> Result<Hints> {
    let info = guard.objects.info_or_empty(info)?;
    let mut hints = Hints::clone(&guard.job().files.get(fh)?.hints);
    hints.take(&info);
    Ok(hints)
}

/// Sets a file's hints. `shared` has rank 0's values of the hints that must be equal on all ranks.
fn adopt(guard: &mut Guard, fh: Handle, mut hints: Hints, shared: [u64; 4]) -> Result<()> {
    let peers = guard.job().files.get(fh)?.comm.group.peers.clone();
    hints.adopt(shared, &hosts(guard, &peers));
    let file = guard.job().files.get_mut(fh)?;
    file.hints = Arc::new(hints);
    // Other ranks may be aggregators now.
    file.known = Default::default();
    Ok(())
}

/// MPI_File_get_info: stores a new info with all hints in use.
pub fn file_get_info(guard: &mut Guard, fh: Handle, info_used: Out<Handle>) -> Result<()> {
    let file = guard.job().files.get(fh)?;
    let info = file.hints.to_info();
    enter_info(guard, info, info_used)
}

/// MPI_File_set_view: moves the individual and the shared file pointer to the beginning of the view.
pub fn file_set_view(
    guard: &mut Guard,
    fh: Handle,
    disp: i64,
    etype: Handle,
    filetype: Handle,
    datarep: Text,
    info: Handle,
) -> Result<()> {
    let mut members = guard.job().files.get_mut(fh)?.members()?;
    let view = view(guard, fh, disp, etype, filetype, datarep);
    let view = view.and_then(|view| Ok((view, hints(guard, fh, info)?)));
    let hosts = hosts(guard, &members.peers);
    let ((view, hints), all) = guard.all_succeed(&mut members, view, |(view, hints)| {
        let [nodes, bytes, switches, unit] = hints.shared_words(&hosts);
        let name = view.representation.name().bytes().map(u64::from).collect::<Vec<_>>();
        [view.etype_bytes, objects::context::mixed(0, &name), nodes, bytes, switches, unit]
    })?;
    if let Some(rank) = all.iter().position(|words| words[..2] != all[0][..2]) {
        fail!(
            Class::NotSame,
            "rank {rank} gives another data representation, or etypes of another size, than rank 0"
        );
    }
    let file = guard.job().files.get_mut(fh)?;
    file.view = Arc::new(view);
    file.position = 0;
    if let Some(pointer) = file.shared.as_ref().filter(|_| members.rank == 0) {
        pointer.set(0);
    }
    adopt(guard, fh, hints, [all[0][2], all[0][3], all[0][4], all[0][5]])?;
    // No rank moves the shared pointer before it is reset.
    guard.gather_from_all(&mut members, &[0]).map(drop)
}

fn view(
    guard: &mut Guard,
    fh: Handle,
    disp: i64,
    etype: Handle,
    filetype: Handle,
    datarep: Text,
) -> Result<View> {
    let (etype, filetype) =
        (guard.objects.committed(etype)?.clone(), guard.objects.committed(filetype)?.clone());
    let representation = Representation::named(&datarep.read()?, &guard.job().io.representations)?;
    let file = guard.job().files.get(fh)?;
    let sequential = file.amode & c::MODE_SEQUENTIAL != 0;
    let writable = file.amode & c::MODE_RDONLY == 0;
    let view = file.view.clone();
    let displacement = match (disp, sequential) {
        (c::DISPLACEMENT_CURRENT, true) => view.byte_offset(guard.position_shared(fh)?)?,
        (0.., false) => disp,
        (_, true) => fail!(Class::Arg, "MPI_MODE_SEQUENTIAL needs MPI_DISPLACEMENT_CURRENT, not {disp}"),
        (c::DISPLACEMENT_CURRENT, false) => {
            fail!(Class::Arg, "MPI_DISPLACEMENT_CURRENT needs a file opened with MPI_MODE_SEQUENTIAL")
        }
        _ => fail!(Class::Arg, "disp is {disp}, which is negative"),
    };
    let etype_in_file = guard.in_file(&representation, &etype)?;
    let filetype_in_file = guard.in_file(&representation, &filetype)?;
    View::new(
        displacement as u64,
        etype,
        filetype,
        representation,
        &etype_in_file,
        &filetype_in_file,
        writable,
    )
}

/// MPI_File_get_view: stores new handles of datatypes that the program made. The program frees these handles.
pub fn file_get_view(
    guard: &mut Guard,
    fh: Handle,
    disp: Out<i64>,
    etype: Out<Handle>,
    filetype: Out<Handle>,
    datarep: TextOut,
) -> Result<()> {
    etype.check()?;
    filetype.check()?;
    let view = guard.job().files.get(fh)?.view.clone();
    disp.set(view.displacement as i64)?;
    datarep.set(view.representation.name(), c::MAX_DATAREP_STRING as usize)?;
    etype.set(guard.objects.enter_datatype(view.etype.clone())?)?;
    filetype.set(guard.objects.enter_datatype(view.filetype.clone())?)
}

/// MPI_File_seek
pub fn file_seek(guard: &mut Guard, fh: Handle, offset: i64, whence: i32) -> Result<()> {
    let file = guard.job().files.get_mut(fh)?;
    file.check_random()?;
    file.position = file.target(file.position, offset, whence)?;
    Ok(())
}

/// MPI_File_get_position
pub fn file_get_position(guard: &mut Guard, fh: Handle, offset: Out<i64>) -> Result<()> {
    let file = guard.job().files.get(fh)?;
    file.check_random()?;
    offset.set(file.position)
}

/// MPI_File_get_byte_offset
pub fn file_get_byte_offset(guard: &mut Guard, fh: Handle, offset: i64, disp: Out<i64>) -> Result<()> {
    let file = guard.job().files.get(fh)?;
    file.check_random()?;
    disp.set(file.view.byte_offset(offset)?)
}

/// MPI_File_seek_shared: all ranks pass the same position. Rank 0 sets the pointer once all have called.
pub fn file_seek_shared(guard: &mut Guard, fh: Handle, offset: i64, whence: i32) -> Result<()> {
    let mut members = guard.job().files.get_mut(fh)?.members()?;
    let target = guard
        .position_shared(fh)
        .and_then(|position| guard.job().files.get(fh)?.target(position, offset, whence));
    let (target, all) = guard.all_succeed(&mut members, target, |_| [offset as u64, whence as u64])?;
    if let Some(rank) = all.iter().position(|words| *words != all[0]) {
        fail!(Class::NotSame, "rank {rank} gives another offset or whence than rank 0");
    }
    if let Some(pointer) = guard.job().files.get(fh)?.shared.as_ref().filter(|_| members.rank == 0) {
        pointer.set(target as u64);
    }
    guard.gather_from_all(&mut members, &[0]).map(drop)
}

/// MPI_File_get_position_shared
pub fn file_get_position_shared(guard: &mut Guard, fh: Handle, offset: Out<i64>) -> Result<()> {
    guard.progress();
    offset.set(guard.position_shared(fh)?)
}

impl Guard {
    /// Advances the shared file pointer by `etypes` elementary datatypes of the view, and returns its old
    /// value in this unit. If rank 0 is on another host, waits for the answer from that host.
    pub(crate) fn advance_shared(&mut self, fh: Handle, etypes: i64) -> Result<i64> {
        let file = self.job().files.get(fh)?;
        if let Some(pointer) = &file.shared {
            return Ok(pointer.advance(etypes as u64) as i64);
        }
        let Some(counter) = file.counter else {
            fail!(Class::Intern, "a file without a shared pointer");
        };
        let memory = Block::of(&etypes.to_ne_bytes());
        let (ours, old) = (Address(memory.span().address()), Block::new(8));
        let result = Address(old.span().address());
        onesided::fetch_and_op(self, ours, result, c::INT64_T, 0, 0, c::SUM, counter)?;
        epoch::win_flush(self, 0, counter)?;
        Ok(i64::from_ne_bytes(old.to_vec().try_into().expect("8 bytes")))
    }

    /// Returns the value of a file's shared file pointer, in elementary datatypes of the view. If rank 0 is
    /// on another host, waits for the answer from that host.
    pub(crate) fn position_shared(&mut self, fh: Handle) -> Result<i64> {
        self.advance_shared(fh, 0)
    }
}

/// MPI_File_get_type_extent
pub fn file_get_type_extent(guard: &mut Guard, fh: Handle, datatype: Handle, extent: OutCount) -> Result<()> {
    let representation = guard.job().files.get(fh)?.view.representation.clone();
    let datatype = guard.objects.datatype(datatype)?.clone();
    extent.set(guard.in_file(&representation, &datatype)?.extent())
}

/// MPI_File_set_atomicity
pub fn file_set_atomicity(guard: &mut Guard, fh: Handle, flag: i32) -> Result<()> {
    let mut members = guard.job().files.get_mut(fh)?.members()?;
    let flags = guard.gather_from_all(&mut members, &[u64::from(flag != 0)])?;
    check_same(&flags, "flag")?;
    guard.job().files.get_mut(fh)?.atomic = flag != 0;
    Ok(())
}

/// MPI_File_get_atomicity
pub fn file_get_atomicity(guard: &mut Guard, fh: Handle, flag: Out<i32>) -> Result<()> {
    flag.set(i32::from(guard.job().files.get(fh)?.atomic))
}

/// MPI_File_sync: returns once the data that this rank has written to the file is on the storage device.
pub fn file_sync(guard: &mut Guard, fh: Handle) -> Result<()> {
    let file = guard.job().files.get(fh)?;
    let storage = file.storage.clone();
    guard.unlocked(|| storage.sync())
}

/// MPI_Register_datarep
pub fn register_datarep(
    guard: &mut Guard,
    datarep: Text,
    read_conversion_fn: Callback,
    write_conversion_fn: Callback,
    dtype_file_extent_fn: Callback,
    extra_state: Address,
) -> Result<()> {
    let functions = [read_conversion_fn, write_conversion_fn, dtype_file_extent_fn];
    register(guard, datarep, functions, extra_state, false)
}

/// MPI_Register_datarep_c: the program's conversion functions have parameters for large counts.
pub fn register_datarep_c(
    guard: &mut Guard,
    datarep: Text,
    read_conversion_fn: Callback,
    write_conversion_fn: Callback,
    dtype_file_extent_fn: Callback,
    extra_state: Address,
) -> Result<()> {
    let functions = [read_conversion_fn, write_conversion_fn, dtype_file_extent_fn];
    register(guard, datarep, functions, extra_state, true)
}

fn register(
    guard: &mut Guard,
    datarep: Text,
    [read, write, extent]: [Callback; 3],
    extra_state: Address,
    large: bool,
) -> Result<()> {
    // Errors go to the default error handler of files (MPI 5.0, section 14.5.3).
    guard.blame(On::AnyFile);
    let name = datarep.read()?;
    if name.is_empty() || name.len() >= c::MAX_DATAREP_STRING as usize {
        fail!(
            Class::Arg,
            "a data representation's name has 1 to {} bytes, not {}",
            c::MAX_DATAREP_STRING - 1,
            name.len()
        );
    }
    if extent.0 == 0 {
        fail!(Class::Arg, "dtype_file_extent_fn is a null pointer");
    }
    let known = &mut guard.job().io.representations;
    if Representation::named(&name, known).is_ok() {
        fail!(Class::DupDatarep, "there is a data representation \"{name}\" already");
    }
    let (read, write, extent) = (read.0, write.0, extent.0);
    let extra_state = extra_state.0;
    known.push(Arc::new(UserRepresentation { name, read, write, large, extent, extra_state }));
    Ok(())
}
