// SPDX-License-Identifier: BSD-3-Clause
//! MPIX streams: MPI operations in the order of a device's stream. Names and arguments are MPICH's.
//!
//! A call `..._enqueue` gives the operation to a thread, and two commands to the device's stream: to signal
//! that it has reached the operation, and to wait until the operation is over
//! (`device::Stream::enqueue_operation`). The thread then makes the MPI call of that name. So the order is
//! kept, and the program's thread waits for nothing.
//!
//! Invariants: each stream has a thread, so streams need not agree on an order. While there is such a thread,
//! calls take the process's lock. The datatype and the operator of an operation are held until it is over.
//! Read next: `device/src/stream.rs`; the macro `stream_functions` below makes the C functions of both ABIs.

use crate::args::{self, Handle, In, Out, Text};
use crate::body;
use crate::process::{Guard, On, call};
pub use crate::request::{Enqueued, HeldHandles};
use crate::request::{MpixStream, STREAM_NULL, StreamJob, StreamThread, Streams, Work};
use device::has_reached;
use error::{Class, Error, Result, fail};
pub use objects::constants::OP_NULL;
use objects::{Op, TypeEntry, constants as c};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many times a stream's thread polls, without sleeping, whether the device's stream has reached an
/// operation.
const LOOKS: u32 = 200;
/// How long a stream's thread sleeps between two polls after the first `LOOKS` polls. It must poll, because a
/// device only writes memory, and wakes no thread.
const LOOK: Duration = Duration::from_micros(20);

/// The main function of a stream's thread. Makes each enqueued MPI call once the device's stream has reached
/// it.
fn serve(thread: &StreamThread) {
    sys::signal::block_all();
    loop {
        let mut queue = thread.queue();
        while queue.jobs.is_empty() && !queue.stopped {
            queue = thread.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let Some((count, StreamJob { held, call })) = queue.jobs.pop_front() else { return };
        drop(queue);
        let mut looks = 0;
        while !has_reached(&thread.words.reached, count) {
            looks += 1;
            if looks < LOOKS { std::thread::yield_now() } else { std::thread::sleep(LOOK) }
        }
        let failed = call(held) != c::SUCCESS;
        let guard = &mut Guard::enter();
        release(guard, held);
        if failed {
            let (code, sentence) = guard.latest_error.clone().unwrap_or_default();
            let text = format!("an operation enqueued before has failed: {sentence}");
            thread.queue().error.get_or_insert(Error::new(Class::Other, text).with_code(code));
        }
        thread.words.done.store(count, Ordering::Release);
        (thread.wake)();
    }
}

/// MPIX_Stream_create: the info keys `type` and `value` (a pointer's bytes in hexadecimal) name a device's
/// stream. Without `type` the new stream belongs to no device, and operations cannot be enqueued on it.
pub fn create(guard: &mut Guard, info: Handle, stream: Out<i32>) -> Result<()> {
    stream.check()?;
    let info = guard.objects.info_or_empty(info)?;
    let thread = match (info.get("type"), info.get("value")) {
        (None, _) => None,
        (Some(kind), Some(value)) => Some(start(guard, device::stream(kind, of_hex(value)?)?)?),
        (Some(kind), None) => {
            fail!(Class::Info, "the info says that the stream's type is {kind}, but no value")
        }
    };
    let number = guard.job().streams.all.insert(MpixStream { thread, comms: 0 });
    guard.decide_locking();
    stream.set(Streams::number(number))
}

fn start(guard: &mut Guard, stream: device::Stream) -> Result<Arc<StreamThread>> {
    let membership = guard.job().membership;
    let (segment, rank) = (membership.segment, membership.rank);
    let wake = Box::new(move || segment.rank(rank).bell.ring());
    let words = stream.words()?;
    let thread =
        Arc::new(StreamThread { stream, words, queue: Mutex::default(), news: Condvar::new(), wake });
    let ours = thread.clone();
    match std::thread::Builder::new().name("outboard-stream".into()).spawn(move || serve(&ours)) {
        Ok(_) => Ok(thread),
        Err(error) => fail!(Class::Other, "no thread can be made for a stream: {error}"),
    }
}

/// Converts `text` to a pointer. The text has the pointer's bytes in hexadecimal, in the order in which they
/// lie in memory, as MPIX_Info_set_hex writes them.
fn of_hex(text: &str) -> Result<usize> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    match bytes.and_then(|bytes| <[u8; size_of::<usize>()]>::try_from(bytes).ok()) {
        Some(bytes) => Ok(usize::from_ne_bytes(bytes)),
        None => fail!(Class::InfoValue, "the value {text} of a stream is not 8 bytes in hexadecimal"),
    }
}

/// MPIX_Stream_free: waits until the operations that are enqueued on the stream are over.
pub fn free(guard: &mut Guard, stream: Out<i32>) -> Result<()> {
    let number = stream.get()?;
    let comms = guard.job().streams.get(number)?.comms;
    if comms > 0 {
        fail!(Class::Other, "stream {number:#x} belongs to {comms} comms, which must be freed first");
    }
    let thread = guard.job().streams.get(number)?.thread.clone();
    let error = thread.and_then(|thread| {
        guard.wait(|_| thread.is_idle().then_some(()));
        let mut queue = thread.queue();
        queue.stopped = true;
        thread.news.notify_one();
        queue.error.take()
    });
    guard.job().streams.all.remove(Streams::index(number));
    guard.decide_locking();
    stream.set(STREAM_NULL)?;
    error.map_or(Ok(()), Err)
}

/// MPIX_Stream_comm_create, or MPIX_Stream_comm_create_multiplex, which passes several streams.
pub fn comm_create(guard: &mut Guard, comm: Handle, streams: &[i32], newcomm: Out<Handle>) -> Result<()> {
    let numbers: Vec<i32> = streams.iter().copied().filter(|number| *number != STREAM_NULL).collect();
    numbers.iter().try_for_each(|number| guard.job().streams.get(*number).map(|_| ()))?;
    body::comm::comm_dup(guard, comm, newcomm)?;
    let context = guard.objects.comm(newcomm.get()?)?.context;
    for number in &numbers {
        guard.job().streams.get(*number)?.comms += 1;
    }
    guard.job().streams.of_comm.insert(context, numbers);
    Ok(())
}

/// MPIX_Comm_get_stream: stores the number of one of the MPIX streams with which a comm was made.
pub fn comm_get_stream(guard: &mut Guard, comm: Handle, index: i32, stream: Out<i32>) -> Result<()> {
    let context = guard.objects.comm(comm)?.context;
    let list = guard.job().streams.of_comm.get(&context).cloned();
    match list.as_ref().and_then(|list| list.get(usize::try_from(index).ok()?)) {
        Some(number) => stream.set(*number),
        None if index == 0 => stream.set(STREAM_NULL),
        None => {
            fail!(Class::Arg, "idx is {index}, but {comm} has {} streams", list.map_or(0, |list| list.len()))
        }
    }
}

/// MPIX_Stream_progress: makes one round of progress, whatever the stream is.
pub fn progress(guard: &mut Guard, stream: i32) -> Result<()> {
    if stream != STREAM_NULL {
        guard.job().streams.get(stream)?;
    }
    guard.progress();
    Ok(())
}

/// MPIX_Info_set_hex: sets a key of an info to `bytes` bytes, such as a pointer, in hexadecimal.
pub fn info_set_hex(guard: &mut Guard, info: Handle, key: Text, value: In<u8>, bytes: c_int) -> Result<()> {
    let bytes = value.read(args::length(bytes, "value_size")?)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    guard.objects.infos.get_mut(info)?.set(&key.read()?, &digits)
}

/// Returns the value of the parameter `name`, the length of an array. Fails with MPI_ERR_COUNT if it is
/// negative.
pub fn length(count: c_int, name: &'static str) -> Result<usize> {
    args::count(i64::from(count), name)
}

/// Enqueues the MPI function `name` on the device stream of a comm that was made with one. `uses` is the
/// function's datatype and its operator. Fails if the comm has no device stream, or several, or if an earlier
/// operation failed.
pub fn enqueue(
    name: &'static str,
    comm: Handle,
    uses: (Handle, Handle),
    job: impl FnOnce(HeldHandles) -> c_int + Send + 'static,
) -> c_int {
    call(name, On::Comm(comm), |guard| {
        let thread = thread_of(guard, comm)?.1;
        hand_over(guard, &thread, uses, Box::new(job))
    })
}

fn thread_of(guard: &mut Guard, comm: Handle) -> Result<(i32, Arc<StreamThread>)> {
    let context = guard.objects.comm(comm)?.context;
    let streams = &mut guard.job().streams;
    let numbers = streams.of_comm.get(&context).cloned().unwrap_or_default();
    match numbers[..] {
        [number] => match &streams.get(number)?.thread {
            Some(thread) => Ok((number, thread.clone())),
            None => fail!(Class::Comm, "the stream of {comm} is not a device's (info keys type and value)"),
        },
        [] => fail!(Class::Comm, "{comm} has no stream; MPIX_Stream_comm_create makes a comm with one"),
        _ => fail!(
            Class::Comm,
            "{comm} has {} streams; an enqueued operation needs a comm with one",
            numbers.len()
        ),
    }
}

fn hand_over(
    guard: &mut Guard,
    thread: &StreamThread,
    uses: (Handle, Handle),
    call: Box<dyn FnOnce(HeldHandles) -> c_int + Send>,
) -> Result<()> {
    let mut queue = thread.queue();
    if let Some(error) = queue.error.take() {
        return Err(error);
    }
    let held = hold(guard, uses)?;
    let count = queue.count.wrapping_add(1);
    thread.stream.enqueue_operation(thread.words, count).inspect_err(|_| release(guard, held))?;
    queue.count = count;
    queue.jobs.push_back((count, StreamJob { held, call }));
    thread.news.notify_one();
    Ok(())
}

/// Enqueues the start of a nonblocking operation, and stores a request for the program. Only an enqueued wait
/// (MPIX_Wait_enqueue) ends this request.
pub fn enqueue_start(
    name: &'static str,
    comm: Handle,
    datatype: Handle,
    request: Out<Handle>,
    job: impl FnOnce(HeldHandles, usize) -> c_int + Send + 'static,
) -> c_int {
    call(name, On::Comm(comm), |guard| {
        request.check()?;
        let (stream, thread) = thread_of(guard, comm)?;
        let enqueued = Arc::new(Enqueued { stream, real: AtomicUsize::new(0) });
        let theirs = enqueued.clone();
        let job = move |held| job(held, theirs.real.as_ptr().expose_provenance());
        hand_over(guard, &thread, (datatype, OP_NULL), Box::new(job))?;
        request.set(guard.request(comm, Work::Enqueued(enqueued))?)
    })
}

/// Enqueues the wait for `count` requests that `enqueue_start` has made, all of one stream.
pub fn enqueue_wait(
    name: &'static str,
    count: c_int,
    request_at: impl Fn(usize) -> Out<Handle>,
    job: impl FnOnce(&[Arc<Enqueued>]) -> c_int + Send + 'static,
) -> c_int {
    call(name, On::Nothing, |guard| {
        let requests: Vec<_> = (0..length(count, "count")?).map(request_at).collect();
        let mut found = Vec::new();
        for request in &requests {
            let handle = request.get()?;
            match guard.job().requests.get(handle)?.work.as_ref().map(Work::inner) {
                Some(Work::Enqueued(enqueued)) => found.push(enqueued.clone()),
                _ => fail!(
                    Class::Request,
                    "{handle} is no request of MPIX_Isend_enqueue or MPIX_Irecv_enqueue"
                ),
            }
        }
        let Some(first) = found.first() else { return Ok(()) };
        if let Some(other) = found.iter().find(|other| other.stream != first.stream) {
            fail!(Class::Request, "requests are of streams {:#x} and {:#x}", first.stream, other.stream);
        }
        let Some(thread) = guard.job().streams.get(first.stream)?.thread.clone() else { return Ok(()) };
        let uses = (c::DATATYPE_NULL, OP_NULL);
        hand_over(guard, &thread, uses, Box::new(move |_| job(&found)))?;
        for request in requests {
            guard.job().requests.remove(request.get()?)?;
            request.set(c::REQUEST_NULL)?;
        }
        Ok(())
    })
}

/// Makes handles of a datatype and an operator that stay valid until `release` is called. Keeps a bad handle
/// as it is, so that the enqueued MPI call reports it.
fn hold(guard: &mut Guard, (datatype, op): (Handle, Handle)) -> Result<HeldHandles> {
    let mut held = HeldHandles { datatype, op, owns_datatype: false, owns_op: false };
    if let Ok(found) = guard.objects.datatype(datatype)
        && !found.is_permanent()
    {
        let datatype = found.clone();
        let entry = TypeEntry { datatype, name: String::new(), attributes: Default::default() };
        (held.datatype, held.owns_datatype) = (guard.objects.datatypes.insert(entry)?, true);
    }
    if let Ok(found @ Op::User { .. }) = guard.objects.op(op) {
        (held.op, held.owns_op) = (guard.objects.ops.insert(found)?, true);
    }
    Ok(held)
}

fn release(guard: &mut Guard, held: HeldHandles) {
    if held.owns_datatype
        && let Ok(entry) = guard.objects.datatypes.entry(held.datatype)
    {
        entry.discard();
    }
    if held.owns_op {
        let _ = guard.objects.ops.remove(held.op);
    }
}

/// Exports the functions of MPIX streams in an ABI whose handles have the type `handle`. `out` makes an
/// `Out<Handle>` from an address. `shim` has the ABI's MPI functions. The file that uses this macro must have
/// a function `code`, which converts error codes.
#[macro_export]
macro_rules! stream_functions {
    (handle: $handle:ty, from: $from:path, to: $to:path, out: $out:path, shim: $shim:path) => {
        use $shim as calls;
        $crate::stream_functions! { @names
            MPIX_Stream_create PMPIX_Stream_create(info: $handle, stream: usize) {
                let stream = Out::new(stream, "stream");
                code(call("MPIX_Stream_create", On::Nothing, |guard| {
                    stream::create(guard, $from(info), stream)
                }))
            }
            MPIX_Stream_free PMPIX_Stream_free(stream: usize) {
                let stream = Out::new(stream, "stream");
                code(call("MPIX_Stream_free", On::Nothing, |guard| stream::free(guard, stream)))
            }
            MPIX_Stream_comm_create PMPIX_Stream_comm_create(comm: $handle, stream: c_int, newcomm: usize) {
                code(call("MPIX_Stream_comm_create", On::Comm($from(comm)), |guard| {
                    stream::comm_create(guard, $from(comm), &[stream], $out(newcomm, "newcomm"))
                }))
            }
            MPIX_Stream_comm_create_multiplex PMPIX_Stream_comm_create_multiplex(
                comm: $handle, count: c_int, array_of_streams: usize, newcomm: usize
            ) {
                code(call("MPIX_Stream_comm_create_multiplex", On::Comm($from(comm)), |guard| {
                    let streams = In::<i32>::new(array_of_streams, "array_of_streams");
                    let streams = streams.read(stream::length(count, "count")?)?;
                    stream::comm_create(guard, $from(comm), &streams, $out(newcomm, "newcomm"))
                }))
            }
            MPIX_Comm_get_stream PMPIX_Comm_get_stream(comm: $handle, idx: c_int, stream: usize) {
                code(call("MPIX_Comm_get_stream", On::Comm($from(comm)), |guard| {
                    stream::comm_get_stream(guard, $from(comm), idx, Out::new(stream, "stream"))
                }))
            }
            MPIX_Stream_progress PMPIX_Stream_progress(stream: c_int) {
                code(call("MPIX_Stream_progress", On::Nothing, |guard| stream::progress(guard, stream)))
            }
            MPIX_Wait_enqueue PMPIX_Wait_enqueue(request: usize, status: usize) {
                let at = |_| $out(request, "request");
                code(stream::enqueue_wait("MPIX_Wait_enqueue", 1, at, move |all| {
                    // SAFETY: the status is the program's (contract of the file), the request ours.
                    unsafe { calls::PMPI_Wait(all[0].real.as_ptr() as usize, status) }
                }))
            }
            MPIX_Waitall_enqueue PMPIX_Waitall_enqueue(count: c_int, requests: usize, statuses: usize) {
                let at = |index| $out(requests + index * size_of::<$handle>(), "array_of_requests");
                code(stream::enqueue_wait("MPIX_Waitall_enqueue", count, at, move |all| {
                    // SAFETY: an atomic word of ours, of which the first bytes are the handle.
                    let handle = |one: &Arc<stream::Enqueued>| unsafe {
                        one.real.as_ptr().cast::<$handle>().read()
                    };
                    let mut handles: Vec<$handle> = all.iter().map(handle).collect();
                    let (count, at) = (handles.len() as c_int, handles.as_mut_ptr() as usize);
                    // SAFETY: as above.
                    unsafe { calls::PMPI_Waitall(count, at, statuses) }
                }))
            }
            MPIX_Info_set_hex PMPIX_Info_set_hex(info: $handle, key: usize, value: usize, value_size: c_int) {
                let (key, value) = (Text::new(key, "key"), In::<u8>::new(value, "value"));
                code(anytime("MPIX_Info_set_hex", On::Nothing, |guard| {
                    stream::info_set_hex(guard, $from(info), key, value, value_size)
                }))
            }
        }
        $crate::stream_functions! { @counted $handle, $from, $to, $out, c_int:
            MPIX_Send_enqueue PMPIX_Send_enqueue PMPI_Send,
            MPIX_Recv_enqueue PMPIX_Recv_enqueue PMPI_Recv,
            MPIX_Allreduce_enqueue PMPIX_Allreduce_enqueue PMPI_Allreduce,
            MPIX_Bcast_enqueue PMPIX_Bcast_enqueue PMPI_Bcast;
            MPIX_Isend_enqueue PMPIX_Isend_enqueue PMPI_Isend,
            MPIX_Irecv_enqueue PMPIX_Irecv_enqueue PMPI_Irecv
        }
        $crate::stream_functions! { @counted $handle, $from, $to, $out, i64:
            MPIX_Send_enqueue_c PMPIX_Send_enqueue_c PMPI_Send_c,
            MPIX_Recv_enqueue_c PMPIX_Recv_enqueue_c PMPI_Recv_c,
            MPIX_Allreduce_enqueue_c PMPIX_Allreduce_enqueue_c PMPI_Allreduce_c,
            MPIX_Bcast_enqueue_c PMPIX_Bcast_enqueue_c PMPI_Bcast_c;
            MPIX_Isend_enqueue_c PMPIX_Isend_enqueue_c PMPI_Isend_c,
            MPIX_Irecv_enqueue_c PMPIX_Irecv_enqueue_c PMPI_Irecv_c
        }
    };
    (@counted $handle:ty, $from:path, $to:path, $out:path, $count:ty:
     $send:ident $psend:ident $mpi_send:ident,
     $recv:ident $precv:ident $mpi_recv:ident,
     $allreduce:ident $pallreduce:ident $mpi_allreduce:ident,
     $bcast:ident $pbcast:ident $mpi_bcast:ident;
     $($start:ident $pstart:ident $mpi_start:ident),*
    ) => {
        $crate::stream_functions! { @names
            $send $psend(
                buf: usize, count: $count, datatype: $handle, dest: c_int, tag: c_int, comm: $handle
            ) {
                let uses = ($from(datatype), stream::OP_NULL);
                code(stream::enqueue(stringify!($send), $from(comm), uses, move |held| {
                    // SAFETY: the arguments are those of the function's own (contract of the file).
                    unsafe { calls::$mpi_send(buf, count, $to(held.datatype), dest, tag, comm) }
                }))
            }
            $recv $precv(
                buf: usize, count: $count, datatype: $handle, source: c_int, tag: c_int, comm: $handle,
                status: usize
            ) {
                let uses = ($from(datatype), stream::OP_NULL);
                code(stream::enqueue(stringify!($recv), $from(comm), uses, move |held| {
                    // SAFETY: as above.
                    unsafe { calls::$mpi_recv(buf, count, $to(held.datatype), source, tag, comm, status) }
                }))
            }
            $allreduce $pallreduce(
                sendbuf: usize, recvbuf: usize, count: $count, datatype: $handle, op: $handle, comm: $handle
            ) {
                let uses = ($from(datatype), $from(op));
                code(stream::enqueue(stringify!($allreduce), $from(comm), uses, move |held| {
                    let (datatype, op) = ($to(held.datatype), $to(held.op));
                    // SAFETY: as above.
                    unsafe { calls::$mpi_allreduce(sendbuf, recvbuf, count, datatype, op, comm) }
                }))
            }
            $bcast $pbcast(
                buffer: usize, count: $count, datatype: $handle, root: c_int, comm: $handle
            ) {
                let uses = ($from(datatype), stream::OP_NULL);
                code(stream::enqueue(stringify!($bcast), $from(comm), uses, move |held| {
                    // SAFETY: as above.
                    unsafe { calls::$mpi_bcast(buffer, count, $to(held.datatype), root, comm) }
                }))
            }
            $($start $pstart(
                buf: usize, count: $count, datatype: $handle, peer: c_int, tag: c_int, comm: $handle,
                request: usize
            ) {
                let (datatype, request) = ($from(datatype), $out(request, "request"));
                let start = move |held: stream::HeldHandles, at| {
                    // SAFETY: as above; the request is a word of ours.
                    unsafe { calls::$mpi_start(buf, count, $to(held.datatype), peer, tag, comm, at) }
                };
                code(stream::enqueue_start(stringify!($start), $from(comm), datatype, request, start))
            })*
        }
    };
    (@names $($name:ident $profiled:ident($($argument:ident: $kind:ty),*) $body:block)*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $kind),*) -> c_int $body

        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: the same function (contract of this file).
            unsafe { $profiled($($argument),*) }
        }
    )* };
}
