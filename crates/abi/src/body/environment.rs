// SPDX-License-Identifier: BSD-3-Clause
//! Starting and ending MPI, versions, clocks, error codes, and memory allocation (MPI 5.0, chapters 9 and 11,
//! sections 19.3 and 20.2).

use super::info::enter_info;
use crate::args::{Address, Array, Handle, Out, Text, TextOut};
use crate::leaks;
use crate::process::report;
use crate::process::{Allocation, Departure, Guard, JobState, Phase};
use error::{Class, Result, fail};
use objects::{HandleKind, Info, constants as c};

/// MPI_Init
pub fn init(guard: &mut Guard, argc: Out<i32>, argv: Address) -> Result<()> {
    let _ = (argc, argv);
    start(guard, c::THREAD_SINGLE)
}

/// MPI_Init_thread: grants the level of thread support that the program asks for.
pub fn init_thread(
    guard: &mut Guard,
    argc: Out<i32>,
    argv: Address,
    required: i32,
    provided: Out<i32>,
) -> Result<()> {
    let _ = (argc, argv);
    let levels = [c::THREAD_SINGLE, c::THREAD_FUNNELED, c::THREAD_SERIALIZED, c::THREAD_MULTIPLE];
    // Levels are ordered. A value between two levels means the higher one (MPI 5.0, section 11.6.3).
    let level = levels.into_iter().find(|level| *level >= required).unwrap_or(c::THREAD_MULTIPLE);
    provided.check()?;
    start(guard, level)?;
    provided.set(level)
}

fn start(guard: &mut Guard, level: i32) -> Result<()> {
    match guard.phase {
        Phase::Before => {
            // A process that has a session may have traffic under way, so it makes progress while it waits.
            let is_busy = guard.job.is_some();
            guard.join()?;
            let membership = guard.job().membership;
            membership.arrive_at_init();
            if is_busy {
                guard.wait(|_| membership.all_have_arrived().then_some(()));
            } else {
                membership.wait_for_all()?;
            }
            guard.init(level)?;
            guard.decide_locking();
            Ok(())
        }
        Phase::Running => fail!(Class::Other, "called a second time"),
        Phase::Finalized => fail!(Class::Other, "called after MPI_Finalize"),
    }
}

/// MPI_Finalize: deletes the attributes of MPI_COMM_SELF first (MPI 5.0, section 11.2.2). Then, if no session
/// is open, waits until all other processes have called MPI_Finalize. While it waits, it receives and drops
/// messages that the program will never receive, so that no sender waits for this process.
pub fn finalize(guard: &mut Guard) -> Result<()> {
    if guard.phase != Phase::Running {
        fail!(Class::Other, "called without MPI_Init, or a second time");
    }
    crate::attribute::delete_all(guard, HandleKind::Comm, c::COMM_SELF)?;
    let departs = guard.objects.sessions.is_empty();
    // If this process said goodbye at the end of an earlier session, others no longer wait for it: arriving
    // messages may belong to a session that they have started since.
    let drains = departs && guard.departure == Departure::Needed;
    let mut lost = Vec::new();
    let mut silence = report::Silence::start();
    guard.wait(|process| {
        if drains {
            leaks::drain(process, &mut lost);
        }
        silence.check(process, "MPI_Finalize");
        let job = process.job();
        let is_quiet = job.p2p.is_quiet() && job.coll.is_quiet() && job.io.is_quiet();
        (is_quiet && job.streams.are_idle(None)).then_some(())
    });
    if departs {
        super::session::report_finalized(guard);
        let membership = guard.job().membership;
        guard.wait(|process| {
            // This is asked before draining: a process that has left may start a session, whose messages must
            // be kept.
            let over = membership.may_leave() && process.job().communicators.have_left();
            if !over && drains {
                leaks::drain(process, &mut lost);
            }
            over.then_some(())
        });
        if settings::get().check >= 2 {
            leaks::report(guard, &lost);
        }
        super::session::leave_job(guard);
    }
    guard.phase = Phase::Finalized;
    guard.objects.leave_world();
    if departs {
        guard.parked = guard.job.take();
    }
    guard.decide_locking();
    Ok(())
}

/// MPI_Initialized
pub fn initialized(guard: &mut Guard, flag: Out<i32>) -> Result<()> {
    flag.set(i32::from(guard.phase != Phase::Before))
}

/// MPI_Finalized
pub fn finalized(guard: &mut Guard, flag: Out<i32>) -> Result<()> {
    flag.set(i32::from(guard.phase == Phase::Finalized))
}

/// MPI_Abort: ends the whole job, whatever `comm` is.
pub fn abort(guard: &mut Guard, comm: Handle, errorcode: i32) -> Result<()> {
    guard.objects.comm(comm)?;
    guard.job().membership.abort(errorcode)
}

/// MPI_Query_thread
pub fn query_thread(guard: &mut Guard, provided: Out<i32>) -> Result<()> {
    provided.set(guard.thread_level)
}

/// MPI_Is_thread_main
pub fn is_thread_main(guard: &mut Guard, flag: Out<i32>) -> Result<()> {
    flag.set(i32::from(guard.main_thread == Some(std::thread::current().id())))
}

/// MPI_Get_version
pub fn get_version(_: &mut Guard, version: Out<i32>, subversion: Out<i32>) -> Result<()> {
    version.set(c::VERSION)?;
    subversion.set(c::SUBVERSION)
}

/// MPI_Get_library_version
pub fn get_library_version(_: &mut Guard, version: TextOut, resultlen: Out<i32>) -> Result<()> {
    let text = format!("Outboard {}, MPI 5.0, {}", env!("CARGO_PKG_VERSION"), crate::shim::get().name);
    resultlen.set(version.set(&text, c::MAX_LIBRARY_VERSION_STRING as usize)? as i32)
}

/// MPI_Get_processor_name: stores the name of the host.
pub fn get_processor_name(_: &mut Guard, name: TextOut, resultlen: Out<i32>) -> Result<()> {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer lives in this frame and has the length that is passed.
    unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let bytes = buffer.iter().position(|byte| *byte == 0).unwrap_or(0);
    let host = String::from_utf8_lossy(&buffer[..bytes]);
    resultlen.set(name.set(&host, c::MAX_PROCESSOR_NAME as usize)? as i32)
}

/// MPI_Wtime: returns seconds of the machine's monotonic clock, which all ranks of a host share
/// (MPI_WTIME_IS_GLOBAL).
pub fn wtime() -> f64 {
    sys::clock::now() as f64 * 1e-9
}

/// MPI_Wtick
pub fn wtick() -> f64 {
    sys::clock::resolution() as f64 * 1e-9
}

/// MPI_Pcontrol: accepts any level, and has no effect. In C it is variadic, but only the named argument is
/// read. On x86-64 and AArch64 (System V) a caller passes the named arguments of a variadic function as to
/// any function, and removes the other arguments itself. So an entry point that is not variadic works.
pub fn pcontrol(_: &mut Guard, level: i32) -> Result<()> {
    let _ = level;
    Ok(())
}

/// MPI_Error_class
pub fn error_class(guard: &mut Guard, errorcode: i32, errorclass: Out<i32>) -> Result<()> {
    errorclass.set(guard.objects.errors.class_of(errorcode)?)
}

/// MPI_Error_string: stores the text for an error code. If the latest error of this process had the same
/// code, the text also says what happened then.
pub fn error_string(guard: &mut Guard, errorcode: i32, string: TextOut, resultlen: Out<i32>) -> Result<()> {
    let mut text = guard.objects.errors.text_of(errorcode)?;
    // An error code of the program has only the program's text (MPI 5.0, section 9.5).
    if let Some((code, sentence)) = &guard.latest_error
        && *code == errorcode
        && errorcode <= c::ERR_LASTCODE
    {
        text = format!("{text} ({sentence})");
    }
    resultlen.set(string.set(&text, c::MAX_ERROR_STRING as usize)? as i32)
}

/// MPI_Add_error_class
pub fn add_error_class(guard: &mut Guard, errorclass: Out<i32>) -> Result<()> {
    errorclass.check()?;
    errorclass.set(guard.objects.errors.add_class())
}

/// MPI_Add_error_code
pub fn add_error_code(guard: &mut Guard, errorclass: i32, errorcode: Out<i32>) -> Result<()> {
    errorcode.check()?;
    errorcode.set(guard.objects.errors.add_code(errorclass)?)
}

/// MPI_Add_error_string
pub fn add_error_string(guard: &mut Guard, errorcode: i32, string: Text) -> Result<()> {
    let text = string.read()?;
    guard.objects.errors.add_text(errorcode, &text)
}

/// MPI_Remove_error_class
pub fn remove_error_class(guard: &mut Guard, errorclass: i32) -> Result<()> {
    guard.objects.errors.remove_class(errorclass)
}

/// MPI_Remove_error_code
pub fn remove_error_code(guard: &mut Guard, errorcode: i32) -> Result<()> {
    guard.objects.errors.remove_code(errorcode)
}

/// MPI_Remove_error_string
pub fn remove_error_string(guard: &mut Guard, errorcode: i32) -> Result<()> {
    guard.objects.errors.remove_text(errorcode)
}

/// MPI_Alloc_mem: allocates in this rank's arena, the part of the job's shared memory in which only this rank
/// allocates. Peers and proxies reach it without the kernel. If the arena is full, allocates on the heap.
pub fn alloc_mem(guard: &mut Guard, size: i64, info: Handle, baseptr: Address) -> Result<()> {
    let info = guard.objects.info_or_empty(info)?;
    let Ok(bytes) = u64::try_from(size) else { fail!(Class::Arg, "size is {size}, which is negative") };
    let base = Out::<usize>::new(baseptr.0, "baseptr");
    base.check()?;
    base.set(allocate(guard.job(), bytes, &info)?)
}

/// The info key for the alignment of memory that MPI_Alloc_mem and windows allocate (MPI 5.0, sections 9.2
/// and 12.2.2).
pub(crate) const ALIGNMENT: &str = "mpi_minimum_memory_alignment";

/// Allocates `bytes` bytes for MPI_Alloc_mem or a window, with the alignment that the key `ALIGNMENT` in
/// `info` demands. Returns the address, which `free_mem` takes.
pub(crate) fn allocate(job: &mut JobState, bytes: u64, info: &Info) -> Result<usize> {
    let align: u64 = info.get(ALIGNMENT).and_then(|align| align.parse().ok()).unwrap_or(1);
    let align = if align.is_power_of_two() { align } else { 1 };
    // Allocations begin at multiples of 64 in the arena, and of 16 on the heap.
    let spare = if align > 16 { align } else { 0 };
    let Some(total) = bytes.max(1).checked_add(spare) else {
        fail!(Class::NoMem, "cannot allocate {bytes} bytes");
    };
    let memory = job.coll.memory();
    let in_arena = memory.alloc(total).and_then(|offset| Ok((offset, memory.arena().span(offset, total)?)));
    let (address, allocation) = match in_arena {
        Ok((offset, span)) => (span.address(), Allocation::Arena(offset)),
        Err(_) => {
            // SAFETY: malloc may be called with any size.
            let address = unsafe { libc::malloc(usize::try_from(total).unwrap_or(usize::MAX)) } as usize;
            (address, Allocation::Heap(address))
        }
    };
    if address == 0 {
        fail!(Class::NoMem, "cannot allocate {bytes} bytes");
    }
    let base = address.next_multiple_of(align as usize);
    job.memory.insert(base, allocation);
    Ok(base)
}

/// MPI_Free_mem
pub fn free_mem(guard: &mut Guard, base: Address) -> Result<()> {
    let job = guard.job();
    match job.memory.remove(&base.0) {
        Some(Allocation::Arena(offset)) => {
            job.coll.memory().free(offset);
        }
        // SAFETY: the address came from malloc in `allocate`, and is freed once, as it has just left the
        // table.
        Some(Allocation::Heap(address)) => unsafe { libc::free(address as *mut _) },
        None if base.is_null() => {}
        None => fail!(Class::Base, "{:#x} was not allocated by MPI_Alloc_mem, or has been freed", base.0),
    }
    Ok(())
}

/// MPI_Abi_get_version: stores -1 if the program does not use the standard ABI (MPI 5.0, section 20.2).
pub fn abi_get_version(_: &mut Guard, abi_major: Out<i32>, abi_minor: Out<i32>) -> Result<()> {
    let (major, minor) = crate::shim::get().version;
    abi_major.set(major)?;
    abi_minor.set(minor)
}

/// MPI_Abi_get_info: stores an info with the sizes that the ABI leaves to the library (MPI 5.0, section
/// 20.2).
pub fn abi_get_info(guard: &mut Guard, info: Out<Handle>) -> Result<()> {
    let mut facts = objects::Info::default();
    for (key, bytes) in [("mpi_aint_size", size_of::<isize>()), ("mpi_count_size", 8), ("mpi_offset_size", 8)]
    {
        facts.set(key, &bytes.to_string())?;
    }
    enter_info(guard, facts, info)
}

/// MPI_Abi_set_fortran_info: keeps an info that describes Fortran's types (MPI 5.0, section 20.4). The
/// Fortran bindings call it once.
pub fn abi_set_fortran_info(guard: &mut Guard, info: Handle) -> Result<()> {
    if guard.fortran_info.is_some() {
        fail!(Class::Abi, "the Fortran info has been set already");
    }
    guard.fortran_info = Some(guard.objects.infos.get(info)?.clone());
    Ok(())
}

/// MPI_Abi_get_fortran_info: stores MPI_INFO_NULL if MPI_Abi_set_fortran_info has not been called.
pub fn abi_get_fortran_info(guard: &mut Guard, info: Out<Handle>) -> Result<()> {
    match guard.fortran_info.clone() {
        Some(facts) => enter_info(guard, facts, info),
        None => info.set(c::INFO_NULL),
    }
}

/// MPI_Abi_set_fortran_booleans: keeps the bits of true and false of a Fortran LOGICAL. May be called once
/// for each size of a LOGICAL.
pub fn abi_set_fortran_booleans(
    guard: &mut Guard,
    logical_size: i32,
    logical_true: Address,
    logical_false: Address,
) -> Result<()> {
    let bytes = logical_bytes(logical_size)?;
    if guard.fortran_booleans.iter().any(|known| known.0 == logical_size) {
        fail!(Class::Abi, "the logicals of {logical_size} bytes have been set already");
    }
    let read = |from: Address, name| -> Result<[u8; 16]> {
        let mut bits = [0; 16];
        bits[..bytes].copy_from_slice(&crate::args::In::<u8>::new(from.0, name).read(bytes)?);
        Ok(bits)
    };
    let pair = (logical_size, read(logical_true, "logical_true")?, read(logical_false, "logical_false")?);
    guard.fortran_booleans.push(pair);
    Ok(())
}

/// MPI_Abi_get_fortran_booleans
pub fn abi_get_fortran_booleans(
    guard: &mut Guard,
    logical_size: i32,
    logical_true: Address,
    logical_false: Address,
    is_set: Out<i32>,
) -> Result<()> {
    let bytes = logical_bytes(logical_size)?;
    let known = guard.fortran_booleans.iter().find(|known| known.0 == logical_size);
    if let Some((_, yes, no)) = known {
        Array::new(logical_true.0, "logical_true").write(&yes[..bytes])?;
        Array::new(logical_false.0, "logical_false").write(&no[..bytes])?;
    }
    is_set.set(i32::from(known.is_some()))
}

fn logical_bytes(size: i32) -> Result<usize> {
    match size {
        1 | 2 | 4 | 8 | 16 => Ok(size as usize),
        _ => fail!(Class::Arg, "there is no Fortran logical of {size} bytes"),
    }
}

/// MPI_Get_hw_resource_info
pub fn get_hw_resource_info(guard: &mut Guard, hw_info: Out<Handle>) -> Result<()> {
    enter_info(guard, crate::hardware::facts()?, hw_info)
}

/// MPI_Get_address
pub fn get_address(_: &mut Guard, location: Address, address: Out<i64>) -> Result<()> {
    address.set(location.0 as i64)
}

/// MPI_Aint_add
pub fn aint_add(base: i64, disp: i64) -> isize {
    base.wrapping_add(disp) as isize
}

/// MPI_Aint_diff
pub fn aint_diff(addr1: i64, addr2: i64) -> isize {
    addr1.wrapping_sub(addr2) as isize
}
