//! All state of this process, the one lock on it, and the only place that waits.
//!
//! Read next: `lock.rs` (`Guard`: the process with its lock held), `call.rs` (how a body is run), `wait.rs` and `poll.rs` (calls
//! that wait and calls that may not), `raise.rs` (what becomes of an error), `callback.rs` (calls of the program's functions),
//! `requests.rs` (whether an operation is over).

mod buffer;
mod call;
pub(crate) mod callback;
mod join;
mod lock;
mod memo;
pub(crate) mod operation;
mod poll;
pub(crate) mod raise;
pub(crate) mod report;
mod requests;
mod tools;
mod wait;
mod window;

use crate::request::{Deferred, MatchedMessage, Operator, Request, Work};
use boot::Membership;
pub use call::*;
use coll::Coll;
use datatype::{Basic, PredefinedOp};
pub(crate) use join::environment;
pub use lock::{Guard, On, bare};
pub(crate) use memo::{FoundAllreduce, FoundMessage, Key};
use objects::{Handle, Objects, Table};
use p2p::P2p;
use progress::Cpus;
use rma::Rma;
pub(crate) use tools::{Pvar, Tool};
pub(crate) use wait::{Awaiting, LOOKS};
pub(crate) use window::{Facts, Win};

/// How far the process is in leaving its job, which it does once, whatever sessions come after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Others may still need it.
    Needed,
    /// It has finalized once with nothing left to do.
    Arrived,
    /// So have all others.
    Left,
}

/// How far the process is in its life with MPI_COMM_WORLD (MPI 5.0, section 11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// MPI_Init has not been called.
    Before,
    /// Between MPI_Init and MPI_Finalize.
    Running,
    /// After MPI_Finalize.
    Finalized,
}

/// Everything this process knows.
pub struct Process {
    /// Comms, datatypes, and so on; there before MPI_Init.
    pub objects: Objects,
    /// What needs a job; there between the first of MPI_Init and MPI_Session_init, and the last finalize.
    pub job: Option<Box<Job>>,
    /// The job after the last finalize: a session may begin again.
    pub parked: Option<Box<Job>>,
    /// Whether this process has said goodbye to the others, and whether all have.
    pub departure: Departure,
    /// How far the world model is.
    pub phase: Phase,
    /// What MPI_Init_thread granted: an MPI_THREAD constant.
    pub thread_level: i32,
    /// The thread that called MPI_Init.
    pub main_thread: Option<std::thread::ThreadId>,
    /// Values that attributes point to; they must not move.
    pub attribute_values: Box<[i32; 7]>,
    /// What MPI_Abi_set_fortran_info was told.
    pub fortran_info: Option<objects::Info>,
    /// What MPI_Abi_set_fortran_booleans was told: by size in bytes, the bits of true and of false.
    pub fortran_booleans: Vec<(i32, [u8; 16], [u8; 16])>,
    /// The class and sentence of the latest error, for MPI_Error_string.
    pub latest_error: Option<(i32, String)>,
    /// What tools hold.
    pub(crate) tool: tools::Tool,
    /// What the latest messages' arguments came to.
    pub(crate) messages: memo::Messages,
    /// What the latest MPI_Allreduce's arguments came to.
    pub(crate) allreduces: memo::Allreduces,
}

/// This process's part in the job.
pub struct Job {
    /// Who we are.
    pub membership: Membership,
    /// What concerns all of the job.
    pub shared: &'static transport::shm::Job,
    /// Sends and receives.
    pub p2p: P2p,
    /// Collectives.
    pub coll: Coll,
    /// Accesses to files.
    pub io: io::Io,
    /// What the program's MPI_Files name.
    pub files: Table<io::File>,
    /// What the program's MPI_Requests name, but for `deferred`.
    pub requests: Table<Request>,
    /// What those of plain receives name.
    pub deferred: Deferred,
    /// The request of every send that was over when it began: most short ones. It is never freed. Nothing where the program's
    /// forgotten requests are told at the end (OUTBOARD_CHECK=2), as then each is one.
    pub sent: Option<Handle>,
    /// What all windows share.
    pub rma: Rma,
    /// What the program's MPI_Wins name.
    pub windows: Table<Win>,
    /// What the program's MPI_Messages name.
    pub messages: Table<MatchedMessage>,
    /// Operations whose requests the program has freed.
    pub orphans: Vec<Work>,
    /// Functions and comms of which collectives have been started, where operations are timed.
    pub operations: operation::Counted,
    /// Requests whose operations take steps of their own (`Work::is_driven`).
    pub driven: Vec<Handle>,
    /// Operators of the program in use by schedules, by token.
    pub operators: slab::Slab<Operator>,
    /// Addresses that MPI_Alloc_mem gave out, and their offsets in the arena (none: from the heap, of so many bytes).
    pub memory: std::collections::HashMap<usize, Option<u64>>,
    /// The cpus that it shares with other ranks.
    pub cpus: Cpus,
    /// Calls by which the program may poll a window, since the latest `Guard::move_on`.
    window_polls: u32,
    /// Calls that asked for something and found nothing, since one found something.
    vain: poll::Vain,
    /// The launcher that this program, which runs alone, has started for itself.
    pub launcher: Option<sys::process::Process>,
}

impl Process {
    #[cold]
    fn begin(place: &mut Option<Process>) -> &mut Process {
        place.insert(Process {
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
            messages: memo::Messages::new(0, FoundMessage { context: 0, peer: 0, bytes: 0 }),
            allreduces: {
                let operator = (PredefinedOp::NoOp, Basic::Byte);
                memo::Allreduces::new(Handle(0), FoundAllreduce { set: 0, operator, bytes: 0 })
            },
        })
    }

    /// The objects and the job, borrowed apart. Bodies behind `call` always have a job.
    #[inline]
    pub fn parts(&mut self) -> (&mut Objects, &mut Job) {
        (&mut self.objects, self.job.as_deref_mut().expect("`call` admits bodies only while the job runs"))
    }

    /// The job. Bodies behind `call` always have one.
    #[inline(always)]
    pub fn job(&mut self) -> &mut Job {
        self.job.as_deref_mut().expect("`call` admits bodies only while the job runs")
    }
}
