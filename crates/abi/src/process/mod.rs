// SPDX-License-Identifier: BSD-3-Clause
//! All state of this process, the one lock on it, and the only place that waits.
//!
//! Read next: `lock.rs` (`Guard`: the process with its lock held), `call.rs` (how a body is run), `wait.rs`
//! and `poll.rs` (calls that wait, and calls that may not), `requests.rs` (whether an operation is over),
//! `raise.rs` (errors), `callback.rs` (the program's functions), `carry.rs` (messages of windows and
//! collectives), `handoffs.rs` (messages that executors move).

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

/// How far the process is in leaving its job. A process leaves once, even if sessions start later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Other processes may still need this process.
    Needed,
    /// This process has finalized, and has nothing left to do.
    Arrived,
    /// All processes of the job have finalized, and this process has left the job.
    Left,
}

/// The state of the world model (MPI 5.0, section 11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// MPI_Init has not been called.
    Before,
    /// Between MPI_Init and MPI_Finalize.
    Running,
    /// After MPI_Finalize.
    Finalized,
}

/// The state of this process, which the one lock guards.
pub struct Process {
    /// Comms, datatypes, and so on. They exist before MPI_Init.
    pub objects: Objects,
    /// The state that needs a job, from the first MPI_Init or MPI_Session_init to the last finalize.
    pub job: Option<Box<JobState>>,
    /// The job after the last finalize, since a session may start again.
    pub parked: Option<Box<JobState>>,
    /// How far the process is in leaving its job.
    pub departure: Departure,
    /// The state of the world model.
    pub phase: Phase,
    /// The thread level that MPI_Init_thread granted: an MPI_THREAD constant.
    pub thread_level: i32,
    /// The thread that called MPI_Init.
    pub main_thread: Option<std::thread::ThreadId>,
    /// The values of the predefined attributes of comms. The program gets pointers to them, so they must not
    /// move.
    pub attribute_values: Box<[i32; 7]>,
    /// The argument of MPI_Abi_set_fortran_info.
    pub fortran_info: Option<objects::Info>,
    /// The arguments of MPI_Abi_set_fortran_booleans: a size in bytes, the bits of true, the bits of false.
    pub fortran_booleans: Vec<(i32, [u8; 16], [u8; 16])>,
    /// The class and sentence of the latest error, for MPI_Error_string.
    pub latest_error: Option<(i32, String)>,
    /// The state of the tool interface.
    pub(crate) tool: tools::Tool,
    /// What the fast path of messages has looked up for the latest arguments.
    pub(crate) messages: memo::MessageMemo,
    /// What the fast path of MPI_Allreduce has looked up for the latest arguments.
    pub(crate) allreduces: memo::AllreduceMemo,
}

/// This process as a member of its job.
pub struct JobState {
    /// The process's rank, its world, and the segment.
    pub membership: Membership,
    /// The page that all processes of the job share.
    pub shared: &'static transport::shm::JobPage,
    /// Sends and receives.
    pub p2p: P2p,
    /// Collectives.
    pub coll: Coll,
    /// The communicators of a collective library, for the collectives that it carries out.
    pub(crate) communicators: Communicators,
    /// MPIX streams.
    pub(crate) streams: Streams,
    /// Accesses to files.
    pub io: io::Io,
    /// Files by MPI_File.
    pub files: HandleTable<io::OpenFile>,
    /// Requests by MPI_Request, without those in `deferred`.
    pub requests: HandleTable<Request>,
    /// Receives of the fast path, by MPI_Request.
    pub deferred: DeferredReceives,
    /// The one request of all sends that were over when they started. It is never freed. None with
    /// OUTBOARD_CHECK=2: each send then has a request of its own, so that a forgotten one is reported.
    pub sent: Option<Handle>,
    /// The state that all windows share.
    pub rma: Rma,
    /// Windows by MPI_Win.
    pub windows: HandleTable<Win>,
    /// Matched messages by MPI_Message.
    pub messages: HandleTable<MatchedMessage>,
    /// Operations whose requests the program has freed.
    pub detached: Vec<Work>,
    /// The collectives and messages started so far by function and comm, if operations are timed.
    pub operations: operation::CallCounts,
    /// Requests whose operations take steps of their own (`Work::is_driven`).
    pub driven: Vec<Handle>,
    /// Messages of collectives to and from other hosts, under way.
    pub edges: Vec<(p2p::Ticket, executor::EdgeMessage)>,
    /// Messages whose bytes executors move.
    pub handoffs: handoffs::Handoffs,
    /// Messages about windows to and from other hosts.
    pub mail: carry::WindowMail,
    /// The program's operators that schedules use, by token.
    pub operators: slab::Slab<Operator>,
    /// The addresses that MPI_Alloc_mem returned, and what MPI_Free_mem frees for each.
    pub memory: std::collections::HashMap<usize, Allocation>,
    /// This rank's view of the cpus on which the ranks of its world wait.
    pub cpus: Cpus,
    /// Calls by which the program may poll a window, since the last `Guard::progress_after_polls`.
    window_polls: u32,
    /// The polls without progress since the last poll that found something.
    failed_polls: poll::FailedPolls,
    /// The launcher that this program started for itself, because it runs without `mpirun`.
    pub launcher: Option<sys::process::ProcessHandle>,
}

/// What MPI_Free_mem frees.
pub enum Allocation {
    /// Memory of this rank's arena, with its offset there.
    Arena(u64),
    /// Memory of the heap, with its address.
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

    /// Returns the objects and the job as two borrows. The job is there in every body that `call` runs.
    #[inline]
    pub fn parts(&mut self) -> (&mut Objects, &mut JobState) {
        (&mut self.objects, self.job.as_deref_mut().expect("`call` admits bodies only while the job runs"))
    }

    /// Returns the job, which is there in every body that `call` runs.
    #[inline(always)]
    pub fn job(&mut self) -> &mut JobState {
        self.job.as_deref_mut().expect("`call` admits bodies only while the job runs")
    }
}
