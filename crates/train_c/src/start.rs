// SPDX-License-Identifier: BSD-3-Clause
//! The C functions that start an operation. Each of them checks its arguments and passes an MPI call to the
//! function `start`, which does the rest.

use crate::c::{MPI_Comm, MPI_Datatype, MPI_Request};
use crate::engine::Engine;
use crate::fault::{ARGUMENT, Result, call, code, fail};
use crate::group::{Group, shared};
use crate::kind::{Average, ElementKind, ReductionOp};
use crate::life::Life;
use crate::numbers as n;
use crate::work::{Callback, OperationFacts, Work, none, note_start_in_callback};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};

/// The C struct `outboard_dl_options` of `outboard_dl.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Options {
    timeout: f64,
    callback: Option<extern "C" fn(*mut c_void, c_int, *const c_char)>,
    state: *mut c_void,
    flags: c_int,
}

/// The flag in `outboard_dl_options` by which a caller says that it will wait for the operation at once.
const WAITED: c_int = 1;

/// The arguments of every C function that starts an operation: the group, the options, and where the
/// operation's handle is stored.
#[derive(Clone, Copy)]
struct Frame {
    group: *const Group,
    options: *const Options,
    work: *mut *const Work,
}

/// An operation to be started. It has what `start` needs besides the C function's common arguments and the
/// MPI call.
struct OperationStart {
    name: &'static str,
    count: i64,
    kind: ElementKind,
    average: Option<usize>,
    lists: Vec<i64>,
    is_receive: bool,
    is_message: bool,
}

impl OperationStart {
    fn new(name: &'static str, count: i64, kind: ElementKind) -> OperationStart {
        OperationStart {
            name,
            count,
            kind,
            average: None,
            lists: Vec::new(),
            is_receive: false,
            is_message: false,
        }
    }

    /// States that the operation is the reduction `reduction`, with its result at `receive`. If the reduction
    /// averages, the end of the operation divides the result. Returns the changed operation.
    fn reduces(mut self, reduction: ReductionOp, receive: *mut c_void) -> OperationStart {
        self.average = reduction.is_average.then_some(receive as usize);
        self
    }
}

/// A function that starts an operation in MPI. Its arguments are the communicator, the datatype, the copies
/// of counts and displacements, and the place where it stores the request.
type MpiCall<'a> = &'a dyn Fn(MPI_Comm, MPI_Datatype, &mut [i64], *mut MPI_Request) -> Result<()>;

fn start(frame: Frame, order: OperationStart, mpi_call: MpiCall) -> Result<()> {
    Engine::get()?;
    let group = shared(frame.group)?;
    if order.count < 0 {
        return fail(ARGUMENT, format!("{} of {} elements", order.name, order.count));
    }
    let options = if frame.options.is_null() {
        Options { timeout: 0.0, callback: None, state: std::ptr::null_mut(), flags: 0 }
    } else {
        // SAFETY: not null; the crate's contract.
        unsafe { *frame.options }
    };
    let timeout = match options.timeout {
        0.0 => group.timeout,
        seconds if seconds > 0.0 => Some(Duration::from_secs_f64(seconds.min(1e9))),
        _ => None,
    };
    let callback = options.callback.map(|function| Callback { function, state: options.state as usize });
    let size = u32::try_from(group.size).unwrap_or(1);
    let work = group.clone().in_order(|number| {
        let OperationStart { name, count, kind, is_receive, is_message, mut lists, .. } = order;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut request = none();
        mpi_call(group.comm, kind.datatype(), &mut lists, &raw mut request)?;
        let average = order.average.map(|address| Average {
            address,
            count: usize::try_from(count).unwrap_or(0),
            kind,
            size,
        });
        let work = Arc::new(Work {
            task: OperationFacts { name, count, kind, number, is_receive, is_message },
            within: note_start_in_callback(),
            timeout,
            deadline,
            average,
            lists,
            callback,
            life: Life::new(request),
            source: AtomicI32::new(-1),
            group,
        });
        Ok(work)
    })?;
    if options.flags & WAITED == 0 || frame.work.is_null() {
        work.request_engine();
    }
    if !frame.work.is_null() {
        // SAFETY: not null; the crate's contract.
        unsafe { *frame.work = Arc::into_raw(work) };
    }
    Ok(())
}

/// Returns the send buffer that MPI gets: MPI_IN_PLACE if the caller has passed NULL.
fn or_in_place(send: *const c_void) -> *mut c_void {
    if send.is_null() { n::IN_PLACE as *mut c_void } else { send.cast_mut() }
}

fn rank_of(group: *const Group) -> Result<(c_int, c_int)> {
    crate::group::of_handle(group).map(|group| (group.rank, group.size))
}

/// Checks that `rank` is a rank of the group. The error names the argument by `role`.
fn check_rank(group: *const Group, rank: c_int, role: &str) -> Result<()> {
    let (_, size) = rank_of(group)?;
    if (0..size).contains(&rank) {
        Ok(())
    } else {
        fail(ARGUMENT, format!("{role} is {rank} in a group of {size}"))
    }
}

/// Returns the sum of the counts. Fails if a count is negative or the sum is too large; the error names the
/// argument by `name`.
fn total(counts: &[i64], name: &str) -> Result<i64> {
    if let Some(at) = counts.iter().position(|count| *count < 0) {
        return fail(ARGUMENT, format!("{name}[{at}] is {}", counts[at]));
    }
    let sum = counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count));
    sum.map_or_else(|| fail(ARGUMENT, format!("the sum of {name} is more than {}", i64::MAX)), Ok)
}

/// Defines C functions that start an operation. Adds the parameters that they all have: group, options and
/// work.
macro_rules! operations {
    ($($function:ident($($argument:ident: $kind:ty),*) $frame:ident $body:block)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $function(
            group: *const Group, $($argument: $kind,)* options: *const Options, work: *mut *const Work,
        ) -> c_int {
            let $frame = Frame { group, options, work };
            let run = || -> Result<()> { $body };
            code(run())
        }
    )* };
}

operations! {
outboard_dl_allreduce(send: *const c_void, receive: *mut c_void, count: i64, kind: c_int, op: c_int) frame {
    let kind = ElementKind::of(kind)?;
    let reduction = ReductionOp::of(op, kind)?;
    let order = OperationStart::new("allreduce", count, kind).reduces(reduction, receive);
    start(frame, order, &|comm, datatype, _, request| {
        call!(MPI_Iallreduce_c(or_in_place(send), receive, count, datatype, reduction.op, comm, request))
    })
}

outboard_dl_reduce(
    send: *const c_void, receive: *mut c_void, count: i64, kind: c_int, op: c_int, root: c_int
) frame {
    let kind = ElementKind::of(kind)?;
    let reduction = ReductionOp::of(op, kind)?;
    check_rank(frame.group, root, "root")?;
    let is_root = rank_of(frame.group)?.0 == root;
    // Only the root has a result to divide.
    let mut order = OperationStart::new("reduce", count, kind).reduces(reduction, receive);
    order.average = order.average.filter(|_| is_root);
    // Only the root may pass MPI_IN_PLACE.
    let send = if is_root { or_in_place(send) } else if send.is_null() { receive } else { send.cast_mut() };
    start(frame, order, &|comm, datatype, _, request| {
        call!(MPI_Ireduce_c(send, receive, count, datatype, reduction.op, root, comm, request))
    })
}

outboard_dl_reduce_scatter(
    send: *const c_void, receive: *mut c_void, count: i64, kind: c_int, op: c_int
) frame {
    let kind = ElementKind::of(kind)?;
    let reduction = ReductionOp::of(op, kind)?;
    let order = OperationStart::new("reduce_scatter", count, kind).reduces(reduction, receive);
    start(frame, order, &|comm, datatype, _, request| {
        let send = or_in_place(send);
        call!(MPI_Ireduce_scatter_block_c(send, receive, count, datatype, reduction.op, comm, request))
    })
}

outboard_dl_broadcast(buffer: *mut c_void, count: i64, kind: c_int, root: c_int) frame {
    check_rank(frame.group, root, "root")?;
    start(frame, OperationStart::new("broadcast", count, ElementKind::of(kind)?), &|comm, datatype, _, request| {
        call!(MPI_Ibcast_c(buffer, count, datatype, root, comm, request))
    })
}

outboard_dl_allgather(send: *const c_void, receive: *mut c_void, count: i64, kind: c_int) frame {
    start(frame, OperationStart::new("allgather", count, ElementKind::of(kind)?), &|comm, datatype, _, request| {
        call!(MPI_Iallgather_c(or_in_place(send), count, datatype, receive, count, datatype, comm, request))
    })
}

outboard_dl_gather(send: *const c_void, receive: *mut c_void, count: i64, kind: c_int, root: c_int) frame {
    check_rank(frame.group, root, "root")?;
    let send = if rank_of(frame.group)?.0 == root { or_in_place(send) } else { send.cast_mut() };
    start(frame, OperationStart::new("gather", count, ElementKind::of(kind)?), &|comm, datatype, _, request| {
        call!(MPI_Igather_c(send, count, datatype, receive, count, datatype, root, comm, request))
    })
}

outboard_dl_scatter(send: *const c_void, receive: *mut c_void, count: i64, kind: c_int, root: c_int) frame {
    check_rank(frame.group, root, "root")?;
    start(frame, OperationStart::new("scatter", count, ElementKind::of(kind)?), &|comm, datatype, _, request| {
        call!(MPI_Iscatter_c(send.cast_mut(), count, datatype, receive, count, datatype, root, comm, request))
    })
}

outboard_dl_alltoall(send: *const c_void, receive: *mut c_void, count: i64, kind: c_int) frame {
    start(frame, OperationStart::new("alltoall", count, ElementKind::of(kind)?), &|comm, datatype, _, request| {
        call!(MPI_Ialltoall_c(or_in_place(send), count, datatype, receive, count, datatype, comm, request))
    })
}

outboard_dl_alltoallv(
    send: *const c_void, send_counts: *const i64, send_places: *const i64, receive: *mut c_void,
    receive_counts: *const i64, receive_places: *const i64, kind: c_int
) frame {
    let size = usize::try_from(rank_of(frame.group)?.1).unwrap_or(0);
    let mut lists = Vec::with_capacity(4 * size);
    for (list, name) in [(send_counts, "send_counts"), (send_places, "send_places"),
        (receive_counts, "receive_counts"), (receive_places, "receive_places")]
    {
        if list.is_null() {
            return fail(ARGUMENT, format!("{name} is a null pointer"));
        }
        // SAFETY: not null; as many elements as the group has members, by the crate's contract.
        lists.extend_from_slice(unsafe { std::slice::from_raw_parts(list, size) });
    }
    let count = total(&lists[..size], "send_counts")?;
    total(&lists[2 * size..3 * size], "receive_counts")?;
    let order = OperationStart { lists, ..OperationStart::new("alltoallv", count, ElementKind::of(kind)?) };
    start(frame, order, &|comm, datatype, lists, request| {
        let lists = lists.as_mut_ptr();
        // The four lists follow one another.
        let list = |at: usize| lists.wrapping_add(at * size);
        let (places, from) = (list(1).cast(), list(3).cast());
        let send = send.cast_mut();
        call!(MPI_Ialltoallv_c(
            send, list(0), places, datatype, receive, list(2), from, datatype, comm, request
        ))
    })
}

outboard_dl_send(buffer: *const c_void, count: i64, kind: c_int, to: c_int, tag: c_int) frame {
    check_rank(frame.group, to, "to")?;
    let order = OperationStart { is_message: true, ..OperationStart::new("send", count, ElementKind::of(kind)?) };
    start(frame, order, &|comm, datatype, _, request| {
        call!(MPI_Isend_c(buffer.cast_mut(), count, datatype, to, tag, comm, request))
    })
}

outboard_dl_receive(buffer: *mut c_void, count: i64, kind: c_int, from: c_int, tag: c_int) frame {
    let from = if from == -1 { n::ANY_SOURCE } else { check_rank(frame.group, from, "from").map(|()| from)? };
    let order = OperationStart { is_receive: true, is_message: true, ..OperationStart::new("receive", count, ElementKind::of(kind)?) };
    start(frame, order, &|comm, datatype, _, request| {
        call!(MPI_Irecv_c(buffer, count, datatype, from, tag, comm, request))
    })
}

outboard_dl_barrier() frame {
    start(frame, OperationStart::new("barrier", 0, ElementKind::Unsigned(1)), &|comm, _, _, request| {
        call!(MPI_Ibarrier(comm, request))
    })
}
}
