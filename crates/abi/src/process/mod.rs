// SPDX-License-Identifier: BSD-3-Clause
//! The state of this process, the one lock on this state, and the only place that waits.
//!
//! Read next: `lock.rs` (`Guard`: the state with its lock held), `call.rs` (how the body of an MPI function
//! is run), `wait.rs` and `poll.rs` (calls that wait, and calls that may not), `requests.rs` (whether an
//! operation is over), `raise.rs` (errors), `callback.rs` (the program's functions), `carry.rs` (messages of
//! windows and collectives to other hosts), `handoffs.rs` (long messages that a proxy may move).

mod buffer;
mod call;
pub(crate) mod callback;
mod carry;
mod epoch;
mod handoffs;
mod join;
mod lock;
mod memo;
pub(crate) mod message;
pub(crate) mod operation;
mod poll;
pub(crate) mod raise;
pub(crate) mod report;
mod requests;
mod tools;
mod wait;
mod window;

use crate::request::{Communicators, DeferredReceives, MatchedMessage, Operator, Request, Streams, Work};
use boot::Membership;
pub use call::*;
use coll::Coll;
use datatype::{Basic, PredefinedOp};
pub(crate) use epoch::{EpochChange, Epochs};
pub(crate) use join::environment;
pub use lock::{Guard, On, bare};
pub(crate) use memo::{FoundAllreduce, FoundMessage, MemoKey};
use objects::{Handle, HandleTable, Objects};
use p2p::P2p;
use progress::Cpus;
use rma::Rma;
pub(crate) use tools::{Pvar, Tool};
pub(crate) use wait::{Awaiting, LOOKS};
pub(crate) use window::{Win, WindowAttributes};

/// How far this process has come in leaving its job. It leaves the job once, even if sessions start later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// This process has not finalized MPI, so other processes may need it.
    Needed,
    /// This process has finalized MPI, and has nothing left to do.
    Arrived,
    /// All processes of the job have finalized MPI, and this process has left the job.
    Left,
}

/// How far MPI_Init and MPI_Finalize have come (the world model, MPI 5.0, section 11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// MPI_Init has not been called.
    Before,
    /// MPI_Init has been called, and MPI_Finalize has not.
    Running,
    /// MPI_Finalize has been called.
    Finalized,
}

/// The state of this process, which one lock protects.
pub struct Process {
    /// Comms, groups, datatypes and other objects. They exist before MPI_Init, too.
    pub objects: Objects,
    /// The state that exists only in a job. None before the first MPI_Init or MPI_Session_init, and after the
    /// last finalize.
    pub job: Option<Box<JobState>>,
    /// The state of the job after the last finalize, kept because a session may start again. None otherwise.
    pub parked: Option<Box<JobState>>,
    /// How far this process has come in leaving its job.
    pub departure: Departure,
    /// How far MPI_Init and MPI_Finalize have come.
    pub phase: Phase,
    /// The thread level that MPI_Init_thread granted, as the value of an MPI_THREAD constant.
    pub thread_level: i32,
    /// The thread that called MPI_Init. None before that.
    pub main_thread: Option<std::thread::ThreadId>,
    /// The values of comms' predefined attributes. The program gets pointers to these values, so they must
    /// not move.
    pub attribute_values: Box<[i32; 7]>,
    /// The info that was passed to MPI_Abi_set_fortran_info. None before that call.
    pub fortran_info: Option<objects::Info>,
    /// The arguments of MPI_Abi_set_fortran_booleans: the size of a LOGICAL in bytes, the bits of true, the
    /// bits of false.
    pub fortran_booleans: Vec<(i32, [u8; 16], [u8; 16])>,
    /// The code and the text of the latest error of this process, for MPI_Error_string. None if there was no
    /// error.
    pub latest_error: Option<(i32, String)>,
    /// The state of the tool interface (MPI_T).
    pub(crate) tool: tools::Tool,
    /// What the fast path of messages has looked up for the arguments of the latest calls.
    pub(crate) messages: memo::MessageMemo,
    /// What the fast path of MPI_Allreduce has looked up for the arguments of the latest call.
    pub(crate) allreduces: memo::AllreduceMemo,
}

/// The state of this process as a member of its job.
pub struct JobState {
    /// This process's rank, its world (the processes with the same MPI_COMM_WORLD), and the host's shared
    /// memory.
    pub membership: Membership,
    /// The page of shared memory that all processes of the job on this host use.
    pub shared: &'static transport::shm::JobPage,
    /// The state of point-to-point communication.
    pub p2p: P2p,
    /// The state of collectives.
    pub coll: Coll,
    /// The communicators that this process has in a collective library such as NCCL.
    pub(crate) communicators: Communicators,
    /// The device streams that the program has given to comms (MPIX_Stream).
    pub(crate) streams: Streams,
    /// The accesses to files that are under way.
    pub io: io::Io,
    /// The open files, by their MPI_File handles.
    pub files: HandleTable<io::OpenFile>,
    /// The requests, by their MPI_Request handles, except those of deferred receives.
    pub requests: HandleTable<Request>,
    /// The deferred receives (started, but not yet in the queue of posted receives), by their MPI_Request
    /// handles.
    pub deferred: DeferredReceives,
    /// The one request that stands for every send that was complete when it started. It is never freed. None
    /// with OUTBOARD_CHECK=2: each send then has a request of its own, so that a forgotten request is
    /// reported.
    pub sent: Option<Handle>,
    /// The state that all RMA windows share.
    pub rma: Rma,
    /// The windows, by their MPI_Win handles.
    pub windows: HandleTable<Win>,
    /// The messages that MPI_Mprobe or MPI_Improbe has matched, by their MPI_Message handles.
    pub messages: HandleTable<MatchedMessage>,
    /// Operations under way whose requests the program has freed.
    pub detached: Vec<Work>,
    /// How many collectives and messages each function has started on each comm. Counted only if operations
    /// are timed.
    pub operations: operation::CallCounts,
    /// Requests whose operations each round of progress must advance (`Work::is_driven`).
    pub driven: Vec<Handle>,
    /// Messages of collectives that are under way to or from other hosts.
    pub edges: Vec<(p2p::Ticket, executor::EdgeMessage)>,
    /// Long messages under way whose bytes an executor, such as a proxy, moves.
    pub handoffs: handoffs::Handoffs,
    /// Messages about windows that are under way to or from other hosts.
    pub mail: carry::WindowMail,
    /// The program's operators that reductions under way use. A schedule (the plan of a reduction) names an
    /// operator by its index here.
    pub operators: slab::Slab<Operator>,
    /// The addresses that MPI_Alloc_mem has returned. For each, the memory that MPI_Free_mem is to free.
    pub memory: std::collections::HashMap<usize, Allocation>,
    /// What this rank knows about the cpus on which the ranks of its world wait.
    pub cpus: Cpus,
    /// How many calls have perhaps polled a window since the last `Guard::progress_after_polls`.
    window_polls: u32,
    /// How many polls (MPI_Test and the like) in a row have found nothing.
    failed_polls: poll::FailedPolls,
    /// The launcher that this program has started because it was started without `mpirun`. None if there is
    /// none.
    pub launcher: Option<sys::process::ProcessHandle>,
}

/// Where memory lies that MPI_Alloc_mem or a window has allocated.
pub enum Allocation {
    /// Memory in this rank's arena, its part of shared memory. Holds the offset there.
    Arena(u64),
    /// Memory on the heap. Holds the address that malloc returned.
    Heap(usize),
}

impl Process {
    #[cold]
    fn first(empty: &mut Option<Process>) -> &mut Process {
        empty.insert(Process {
            objects: Objects::new(),
            job: None,
            parked: None,
            departure: Departure::Needed,
            phase: Phase::Before,
            thread_level: objects::constants::THREAD_SINGLE,
            main_thread: None,
            attribute_values: Box::new([0; 7]),
            fortran_info: None,
            fortran_booleans: Vec::new(),
            latest_error: None,
            tool: Default::default(),
            messages: memo::MessageMemo::new(0, FoundMessage { context: 0, peer: 0, bytes: 0 }),
            allreduces: {
                let operator = (PredefinedOp::NoOp, Basic::Byte);
                memo::AllreduceMemo::new(Handle(0), FoundAllreduce { set: 0, operator, bytes: 0 })
            },
        })
    }

    /// Returns the objects and the state of the job as two borrows. In every MPI call that `call` runs there
    /// is a job.
    #[inline]
    pub fn parts(&mut self) -> (&mut Objects, &mut JobState) {
        (&mut self.objects, self.job.as_deref_mut().expect("`call` admits bodies only while the job runs"))
    }

    /// Returns the state of the job. In every MPI call that `call` runs there is a job.
    #[inline(always)]
    pub fn job(&mut self) -> &mut JobState {
        self.job.as_deref_mut().expect("`call` admits bodies only while the job runs")
    }
}
