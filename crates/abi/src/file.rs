// SPDX-License-Identifier: BSD-3-Clause
//! Starts accesses of the crate `io` from the arguments of the MPI functions that read and write files. Deals
//! with positions, data representations, and shared file pointers.

use crate::args::{Address, Handle};
use crate::collective::queue_when_due;
use crate::process::callback;
use crate::process::raise;
use crate::process::{Guard, JobState, Process};
use crate::staging;
use datatype::{Buffer, Datatype, represented};
use error::{Class, Error, Result, fail};
use io::{
    AccessDirection, CollectiveAccess, OrderedPosition, Promise, Representation, Transfer, UserRepresentation,
};
use std::collections::HashMap;
use std::sync::Arc;
use sys::Block;

/// Where an access to a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The access begins at this offset, which the call passes, in etypes of the view.
    Offset(i64),
    /// The access begins at the individual file pointer of this rank.
    Pointer,
    /// The access begins at the shared file pointer of the file.
    Shared,
    /// The access begins at the shared file pointer, after the accesses of all lower ranks in the same
    /// collective call.
    Ordered,
}

/// The arguments of a call that reads or writes a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessArguments {
    pub fh: Handle,
    pub at: At,
    pub way: AccessDirection,
    /// Whether all ranks of the file's comm take part in the access.
    pub all: bool,
    pub buf: Address,
    pub count: i64,
    pub datatype: Handle,
}

impl Guard {
    /// Returns the datatype with which elements of `datatype` are stored in a file that has the data
    /// representation `representation`.
    pub(crate) fn in_file(
        &mut self,
        representation: &Representation,
        datatype: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>> {
        match representation {
            Representation::Native | Representation::Internal => Ok(datatype.clone()),
            Representation::External32 => represented(datatype, &mut io::representation::external_bytes),
            Representation::User(user) => {
                let mut lengths = HashMap::new();
                represented(datatype, &mut |basic| {
                    lengths.insert(handle_of(basic)?, 0);
                    Ok(basic.size() as u64)
                })?;
                for (handle, length) in &mut lengths {
                    *length = match callback::file_extent(self, user, *handle) {
                        Ok(extent) if extent > 0 => extent as u64,
                        Ok(extent) => {
                            fail!(Class::Conversion, "\"{}\" gives {handle} {extent} bytes", user.name)
                        }
                        Err(code) => return Err(refused(user, code)),
                    };
                }
                represented(datatype, &mut |basic| Ok(lengths[&handle_of(basic)?]))
            }
        }
    }

    /// Starts to read or write a file. Returns a promise: when the access has ended, it holds how many bytes
    /// of the program's memory were moved. `blocking` says whether the caller waits for the access at once.
    pub(crate) fn start_access(
        &mut self,
        arguments: AccessArguments,
        blocking: bool,
    ) -> Result<Promise<Result<u64>>> {
        let file = self.job().files.get(arguments.fh)?;
        file.check_way(arguments.way)?;
        if !matches!(arguments.at, At::Shared | At::Ordered) {
            file.check_random()?;
        }
        if let (true, Some(split)) = (arguments.all, &file.split) {
            fail!(
                Class::Other,
                "{}_begin has not been ended, so no other collective access may start",
                split.name
            );
        }
        if let At::Offset(offset @ ..0) = arguments.at {
            fail!(Class::Arg, "offset is {offset}, which is negative");
        }
        let view = file.view.clone();
        let user = self.buffer(arguments.buf, arguments.count, arguments.datatype)?;
        if arguments.way == AccessDirection::Write {
            staging::reads(&user);
        }
        let datatype = self.objects.datatype(arguments.datatype)?.clone();
        let count = arguments.count as usize;
        if let Representation::User(how) = &view.representation {
            return self.access_by_user(arguments, &how.clone(), &datatype);
        }
        let bytes = match view.representation.is_native() {
            true => user.bytes() as u64,
            false => io::representation::external_bytes(&datatype)?.saturating_mul(count as u64),
        };
        let (position, etypes) = self.position(arguments, bytes)?;
        let file = self.job().files.get_mut(arguments.fh)?;
        let access = file.access(position, user, bytes)?;
        let transfer = Transfer::new(arguments.way, access, &view.representation, &datatype, count)?;
        if !arguments.all {
            if blocking && bytes <= io::WAITING_BYTES_MAX {
                let slot = Promise::default();
                slot.put(self.unlocked(|| transfer.run()));
                return Ok(slot);
            }
            return Ok(self.job().io.start(transfer));
        }
        let file = self.job().files.get_mut(arguments.fh)?;
        let ordered = (arguments.at == At::Ordered).then(|| OrderedPosition {
            pointer: file.shared.clone(),
            etypes: etypes as u64,
            view: file.view.clone(),
        });
        let (members, known) = (file.members()?, file.known.clone());
        // Blocking accesses are made one after the other.
        let queue = if blocking && members.peers.len() > 1 { self.file_queue(arguments.fh)? } else { None };
        let collective = CollectiveAccess::new(transfer, ordered, members, queue, known);
        let job = self.job();
        Ok(job.io.start_collective(collective, &mut job.coll))
    }

    /// Counts one more blocking access to a file. Returns the number of the queue of collectives by which the
    /// file's ranks exchange data, or None if there have been too few accesses to open a queue.
    fn file_queue(&mut self, fh: Handle) -> Result<Option<usize>> {
        let JobState { files, coll, .. } = self.job();
        let file = files.get_mut(fh)?;
        let mut queue = file.comm.queue;
        let number = queue_when_due(&mut queue, coll, || file.members())?;
        file.comm.queue = queue;
        Ok(number)
    }

    /// Returns the offset at which an access of `bytes` bytes begins, and by how much it advances its file
    /// pointer, both in etypes. The offset of an ordered access is not known yet, and 0 is returned for it.
    fn position(&mut self, arguments: AccessArguments, bytes: u64) -> Result<(i64, i64)> {
        let file = self.job().files.get_mut(arguments.fh)?;
        let etypes = file.etypes(bytes)?;
        let position = match arguments.at {
            At::Offset(offset) => offset,
            At::Pointer => file.advance(etypes),
            At::Shared => self.advance_shared(arguments.fh, etypes)?,
            At::Ordered => 0,
        };
        Ok((position, etypes))
    }

    /// Accesses a file whose data representation the program defines. This rank makes the access now and
    /// alone, since the library may call the program's conversion functions only within this MPI call.
    fn access_by_user(
        &mut self,
        arguments: AccessArguments,
        user: &Arc<UserRepresentation>,
        datatype: &Arc<Datatype>,
    ) -> Result<Promise<Result<u64>>> {
        let representation = Representation::User(user.clone());
        let element = self.in_file(&representation, datatype)?.size() as u64;
        let bytes = element.saturating_mul(arguments.count as u64);
        if !user.large && arguments.count > i64::from(i32::MAX) {
            fail!(Class::Count, "\"{}\" converts at most 2^31 - 1 elements at once", user.name);
        }
        let (mut position, etypes) = self.position(arguments, bytes)?;
        if arguments.at == At::Ordered {
            position = self.ordered_position(arguments.fh, etypes)?;
        }
        let function = if arguments.way == AccessDirection::Read { user.read } else { user.write };
        let buffer = self.buffer(arguments.buf, arguments.count, arguments.datatype)?;
        if function != 0 && staging::any() {
            fail!(Class::Buffer, "\"{}\" converts host memory only", user.name);
        }
        if function == 0 && buffer.bytes() as u64 != bytes {
            fail!(
                Class::Conversion,
                "\"{}\" has no conversion function, but gives {} bytes of memory {bytes} bytes in the file",
                user.name,
                buffer.bytes()
            );
        }
        let block = Block::new(bytes as usize);
        let packed = Buffer::from(block.span());
        let memory = arguments.buf.0;
        let apply = |guard: &mut Guard, elements: i64| match function {
            0 => Ok(()),
            _ => {
                let at = block.span().address();
                match callback::convert(guard, user, function, memory, arguments.datatype, elements, at) {
                    0 => Ok(()),
                    code => Err(refused(user, code)),
                }
            }
        };
        if arguments.way == AccessDirection::Write {
            if function == 0 { packed.copy_from(&buffer) } else { apply(self, arguments.count)? }
        }
        let access = self.job().files.get(arguments.fh)?.access(position, packed.clone(), bytes)?;
        let moved = self.unlocked(|| access.run(arguments.way))?;
        let elements = moved.checked_div(element).unwrap_or(0);
        if arguments.way == AccessDirection::Read {
            let native = elements as usize * datatype.size();
            if function == 0 {
                buffer.slice(0, native).copy_from(&packed.slice(0, native));
            } else if elements > 0 {
                apply(self, elements as i64)?;
            }
        }
        let slot = Promise::default();
        slot.put(Ok(elements * datatype.size() as u64));
        Ok(slot)
    }

    fn ordered_position(&mut self, fh: Handle, etypes: i64) -> Result<i64> {
        let mut members = self.job().files.get_mut(fh)?.members()?;
        let amounts = self.gather_from_all(&mut members, &[etypes as u64])?;
        let total: u64 = amounts.iter().map(|amount| amount[0]).sum();
        let base = if members.rank == 0 { self.advance_shared(fh, total as i64)? as u64 } else { 0 };
        let base = self.gather_from_all(&mut members, &[base])?[0][0];
        let before: u64 = amounts[..members.rank as usize].iter().map(|amount| amount[0]).sum();
        Ok((base + before) as i64)
    }
}

impl Process {
    /// Makes a shared file pointer with the value `etypes`. It is a word in this rank's arena, the part of
    /// shared memory in which this rank allocates.
    pub(crate) fn new_pointer(&mut self, etypes: u64) -> Result<io::SharedPointer> {
        let job = self.job();
        let offset = job.coll.memory().alloc(8)?;
        let pointer = io::SharedPointer::new(job.coll.memory().arena().clone(), offset)?;
        pointer.set(etypes);
        Ok(pointer)
    }
}

fn handle_of(basic: &Arc<Datatype>) -> Result<Handle> {
    match basic.predefined() {
        Some(number) => Ok(Handle(number as usize)),
        None => {
            fail!(Class::Type, "a data representation of the program cannot be asked for a Fortran 90 type")
        }
    }
}

fn refused(user: &UserRepresentation, code: i32) -> Error {
    let what = format!("a function of the data representation \"{}\"", user.name);
    let sentence = raise::from_callback(&what, code).expect_err("it is no success").to_string();
    Error::new(Class::Conversion, sentence)
}
