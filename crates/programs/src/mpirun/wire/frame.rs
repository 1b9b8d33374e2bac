// SPDX-License-Identifier: BSD-3-Clause
//! The frames (messages) between the root of a job and its agents, over the standard input and output of the
//! command that started the agent.
//!
//! An agent first sends a greeting ([`greeting`]), because a login shell may print something before it. Then
//! both send frames: a length of 4 bytes (little-endian), then a value in postcard's encoding. The
//! tables at [`ToAgent`] and [`ToRoot`] say who sends which frame and who answers.
//!
//! Invariants: a frame longer than [`FRAME_BYTES_MAX`] is refused; root and agents are of one build.
//!
//! Read next: `uplink.rs`, `root/mod.rs` (sends `ToAgent`), `agent/receive.rs` (takes it).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::statistics::Counted;
use super::trace::TracePart;
use crate::mpirun::command::arguments::{Global, RankProgram};

/// The most bytes of a frame (message) after its length. A reader refuses longer frames.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// The first bytes of an agent's greeting; the number of the agent's build follows.
const MAGIC: [u8; 16] = *b"\0outboard-agent\n";
/// The length of a greeting in bytes.
pub const GREETING_BYTES: usize = MAGIC.len() + 8;

/// Returns an agent's greeting: [`MAGIC`], then the number of the agent's build in 8 bytes.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&boot::BUILD.to_le_bytes());
    bytes
}

/// Returns the index in `bytes` at which the first greeting begins, and the build number in it. None if
/// `bytes` has no whole greeting.
pub fn find_greeting(bytes: &[u8]) -> Option<(usize, u64)> {
    let at = bytes.windows(GREETING_BYTES).position(|window| window.starts_with(&MAGIC))?;
    let build = bytes[at + MAGIC.len()..][..8].try_into().ok()?;
    Some((at, u64::from_le_bytes(build)))
}

/// What an agent (`mpirun` on a host) needs to know to start its part of the job. It is the content of the
/// first frame (message).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The number of the node (host) whose agent gets this frame (message).
    pub node: u32,
    /// The hosts of the job, indexed by node number.
    pub nodes: Vec<JobNode>,
    /// The numbers of the nodes that only run proxies. The first of these runs the proxies of node 0, the
    /// second those of node 1, and so on.
    pub dpus: std::ops::Range<u32>,
    /// The node of each rank of the first world.
    pub node_of: Vec<u32>,
    /// A random number that every packet between hosts of this job carries. A process refuses packets with
    /// another number. 0 if the job has this machine only.
    pub secret: u64,
    /// The environment variables of `mpirun`, as names and values.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder in which `mpirun` was started.
    pub directory: PathBuf,
    /// The command-line options that hold for the whole job.
    pub global: Global,
    /// The programs of the command line, in the order of their ranks.
    pub programs: Vec<RankProgram>,
    /// The job's random number, the same on all hosts, or None if the job has this machine only.
    pub job: Option<u64>,
    /// The tuning of collective libraries (`Tuning::libraries`) that the job's root (`mpirun`) has. All hosts
    /// must use the same. None if the job has this machine only.
    pub libraries: Option<Vec<u64>>,
    /// The value of MPI_UNIVERSE_SIZE, or None if it is to be the number of ranks.
    pub universe: Option<u32>,
}

impl Start {
    /// Returns the node whose ranks are served by the proxies of this node. None if this node has ranks
    /// itself.
    pub fn serves(&self) -> Option<u32> {
        self.dpus.contains(&self.node).then(|| self.node - self.dpus.start)
    }

    /// Whether a node of its own (a DPU) runs the proxies of this node's ranks.
    pub fn is_served(&self) -> bool {
        self.dpus.contains(&(self.dpus.start.saturating_add(self.node)))
    }
}

/// A node of the job: a host with ranks, or a computer that only runs proxies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNode {
    /// The host's name, as the user wrote it.
    pub name: String,
    /// The host's address, empty if the job has this machine only. None if the job's root (`mpirun`) cannot
    /// find it: the host's agent then finds it itself.
    pub address: Option<String>,
}

/// A world that MPI_Comm_spawn starts, as the job's root (`mpirun`) describes it to all agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewWorld {
    /// The world's id: 0 is the first world, 1 the world spawned first, and so on.
    pub id: u64,
    /// The process number of the world's rank 0.
    pub first: u32,
    /// The node of each rank of the world.
    pub node_of: Vec<u32>,
    /// How many ranks run each program of the spawn request.
    pub counts: Vec<u64>,
    /// The process number of the rank that called MPI_Comm_spawn.
    pub asker: u32,
    /// The spawn request of the rank `asker`, a `launcher::Spawn` in bytes.
    pub spawn: Vec<u8>,
    /// How many nodes the job has, with the nodes that were added for this world.
    pub nodes: u32,
}

/// How many ranks of a world have come to MPI_Init and to MPI_Finalize. In both calls a rank waits for all
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// How many ranks have come to MPI_Init.
    pub born: u32,
    /// How many ranks have come to MPI_Finalize.
    pub leaving: u32,
}

/// One of the two streams of `mpirun` to which the ranks' output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputStream {
    /// The standard output of `mpirun`.
    Output,
    /// The standard error of `mpirun`.
    Error,
}

impl OutputStream {
    /// Returns the stream's name, as text for the user.
    pub fn name(self) -> &'static str {
        match self {
            OutputStream::Output => "standard output",
            OutputStream::Error => "standard error",
        }
    }
}

/// The number of a network endpoint, and its name in the network. An empty name says that the endpoint is
/// gone because its proxy has ended.
pub type EndpointName = (u32, Vec<u8>);

/// A frame: a message from the job's root (`mpirun`) to an agent, the `mpirun` process on a host
/// (`agent/receive.rs`). `first` is the first process number of a world, `rank` is a process number in the
/// segment, times are nanoseconds of CLOCK_MONOTONIC. Signals and exit codes are the system's. An agent that
/// starts later first gets the present state by these frames (`Root::catch_up`).
///
/// | frame | when the root sends it | what the agent answers |
/// |---|---|---|
/// | `Start` | once, when all agents have greeted | `Failed` and `Done` if it cannot start |
/// | `Names`, `PortsClosed` | another agent sent them; a computer of proxies is lost | nothing |
/// | `Arrived`, `Connected` | another agent sent them: the sum over all other nodes | nothing |
/// | `StartWorld` | a rank spawns processes; to all agents | `Born`, or `FailedToStart` |
/// | `Answer` | a request of a rank (`Ask`) is carried out | nothing; the rank's arena gets the bytes |
/// | `UndoWorld` | one agent sent `FailedToStart`; to all agents | `Over` when its ranks have ended |
/// | `Over` | the last agent with ranks of the world sent `Over` | nothing |
/// | `Input` | standard input has bytes, or has ended (no bytes) | `Taken` with the number of bytes |
/// | `Signal` | SIGUSR1 or SIGUSR2 came; --timeout is over | SIGUSR1: `Print` with what the ranks wait for |
/// | `Stop`, `Continue` | Ctrl-Z, and when `mpirun` goes on | `Stopped`; nothing |
/// | `EndWorlds` | some worlds have failed, others live | `Over` for each of them |
/// | `EndJob` | the job has failed or is over | `Done`, when nothing of the job is left |
/// | `Clock` | every 2 s while tracing | `Clock`, at once |
/// | `Alive` | every 2 s | nothing |
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToAgent {
    /// Start your ranks. This is the first frame (message) that an agent gets.
    Start(Box<Start>),
    /// The network names of the endpoints (one of each rank and proxy) on other nodes.
    Names(Vec<EndpointName>),
    /// How many ranks of the world whose first process number is `first` have come to MPI_Init and
    /// MPI_Finalize on all other nodes so far.
    Arrived { first: u32, arrivals: Arrivals },
    /// A spawned world begins: start its ranks that belong on your node, and enter the world into your
    /// segment.
    StartWorld(Box<NewWorld>),
    /// The answer to the request of rank `rank`, in bytes as `launcher::answer` writes it.
    Answer { rank: u32, bytes: Vec<u8> },
    /// The spawned world whose first process number is `first` has failed to start: end your ranks of it.
    UndoWorld { first: u32 },
    /// World `first` is connected (MPI_Comm_connect) with the worlds `to`, by ranks on other nodes. Worlds
    /// are named by their first process numbers.
    Connected { first: u32, to: Vec<u32> },
    /// The numbers of ports (MPI_Open_port) that were closed on other nodes.
    PortsClosed(Vec<u64>),
    /// No rank of the world whose first process number is `first` lives on any node any more.
    Over { first: u32 },
    /// Bytes of standard input for your ranks that read it. If there are no bytes, the input has ended.
    Input(Vec<u8>),
    /// The signal that has come to `mpirun`. SIGUSR1: report what your ranks wait for. SIGUSR2: send the
    /// signal to your ranks.
    Signal(i32),
    /// Ctrl-Z was pressed: stop all ranks and proxies, and answer `Stopped`.
    Stop,
    /// Let your ranks and proxies that are stopped continue.
    Continue,
    /// End your ranks of the worlds whose first process numbers are `worlds`, by the signal `signal`. `code`
    /// is the job's exit code.
    EndWorlds { worlds: Vec<u32>, signal: i32, code: u8 },
    /// End your ranks that still live by the signal `signal`, then yourself. The signal is 0 if no rank
    /// lives.
    EndJob { signal: i32, code: u8 },
    /// Answer at once with your clock. `sent` is the time at which the job's root (`mpirun`) asked, in ns.
    Clock { sent: u64 },
    /// The job's root (`mpirun`) lives. This frame (message) shows it when there is no other frame to send.
    Alive,
}

/// A frame: a message from an agent, the `mpirun` process on a host, to the job's root (`root/mod.rs`).
/// Numbers and units are those of [`ToAgent`].
///
/// | frame | when the agent sends it | what the root answers |
/// |---|---|---|
/// | `Names`, `PortsClosed` | endpoints or ports are new or closed | nothing; all other agents get them |
/// | `Arrived`, `Connected` | a world has changed on this node | nothing; all other agents get the sum |
/// | `Ask` | a rank has written a request into its arena | `Answer`, at once or when the world is born |
/// | `Born`, `FailedToStart` | after `StartWorld` | `Answer` to the rank that asked; `UndoWorld` |
/// | `Counted`, `Traced` | a world or process has ended, if the user wants them | nothing |
/// | `Over` | no rank of a world lives on this node any more | `Over`, when all nodes have sent it |
/// | `Output`, `Print` | ranks or the agent print | nothing |
/// | `Stopped` | after `Stop` | `Continue`, when `mpirun` goes on |
/// | `Taken` | after `Input` | more `Input` |
/// | `Failed` | the first failure of some worlds on this node | `EndWorlds` or `EndJob` |
/// | `Done` | the agent's last frame | nothing |
/// | `Clock` | after `Clock` | the next `Clock` of a row |
/// | `Alive` | every 2 s, if the root is another process | nothing |
#[derive(Debug, Serialize, Deserialize)]
pub enum ToRoot {
    /// The network names of the endpoints (one of each rank and proxy) on this node.
    Names(Vec<EndpointName>),
    /// How many ranks of the world whose first process number is `first` have come to MPI_Init and
    /// MPI_Finalize on this node so far.
    Arrived { first: u32, arrivals: Arrivals },
    /// A request by rank `rank` to `mpirun`, a `launcher::Request` in bytes.
    Ask { rank: u32, request: Vec<u8> },
    /// All ranks on this node of the spawned world whose first process number is `first` have come to
    /// MPI_Init.
    Born { first: u32 },
    /// The spawned world whose first process number is `first` cannot start on this node. `sentence` says
    /// why.
    FailedToStart { first: u32, sentence: String },
    /// `to` are the worlds with which the world whose first process number is `first` is connected on this
    /// node. Each is named by its first process number.
    Connected { first: u32, to: Vec<u32> },
    /// The numbers of ports (MPI_Open_port) that were closed on this node.
    PortsClosed(Vec<u64>),
    /// The counters of this node's processes when the world whose first process number is `first` ends, if
    /// the user wants counters.
    Counted { first: u32, counted: Counted },
    /// The events of one process of this node for the trace, if the user wants a trace.
    Traced(TracePart),
    /// No rank of the world whose first process number is `first` lives on this node any more. `is_broken`
    /// says whether one of its ranks ended other than by MPI_Finalize.
    Over { first: u32, is_broken: bool },
    /// Bytes that ranks have printed, mostly whole lines, and the stream of `mpirun` on which the root prints
    /// them.
    Output(OutputStream, Vec<u8>),
    /// A sentence from the agent itself, which the job's root (`mpirun`) prints for the user.
    Print(String),
    /// All ranks and proxies of this node are stopped now, as the frame (message) `ToAgent::Stop` asked.
    Stopped,
    /// How many bytes of standard input the ranks of this node have taken.
    Taken(u32),
    /// The worlds whose first process numbers are `worlds` must end, or all worlds if the list is empty.
    /// `sentence` says why; `code` is the exit code. The agent already ends the ranks of these worlds on its
    /// node.
    Failed { worlds: Vec<u32>, sentence: String, code: u8 },
    /// The agent's last frame (message): no process of the job is left on this node. `code` is the exit code
    /// of the node's first failure, or 0.
    Done { code: u8 },
    /// The answer to `ToAgent::Clock` with the same `sent`: `there` is this node's time, in ns. The agent
    /// sends 0 as `back`; the thread that reads this frame for the job's root (`mpirun`) sets `back` to its
    /// own time.
    Clock { sent: u64, there: u64, back: u64 },
    /// This agent (`mpirun` on a host) lives. The frame (message) shows it when there is no other frame to
    /// send.
    Alive,
}

impl ToRoot {
    /// Returns the frame (message) that ends the job because output of ranks could not be written to the file
    /// or stream `what`.
    pub fn not_written(what: &str, error: &io::Error) -> ToRoot {
        let sentence = format!("cannot write {what}: {error}; ending the job");
        ToRoot::Failed { worlds: Vec::new(), sentence, code: 1 }
    }
}

/// Writes a frame (message) to a stream: its length in 4 bytes, then its content.
pub fn write(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut bytes = postcard::to_extend(frame, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads a frame (message) from a stream. Returns None if the stream has ended.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!(
            "a frame of {length} bytes: at most {FRAME_BYTES_MAX} are possible"
        )));
    }
    // The buffer grows with what really comes, so that a length alone takes no memory.
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_nonsense_is_refused() {
        let mut bytes = Vec::new();
        write(&mut bytes, &ToRoot::Output(OutputStream::Error, b"a\n".to_vec())).unwrap();
        write(&mut bytes, &ToRoot::Done { code: 3 }).unwrap();
        let mut from = &bytes[..];
        assert!(
            matches!(read(&mut from), Ok(Some(ToRoot::Output(OutputStream::Error, text))) if text == b"a\n")
        );
        assert!(matches!(read(&mut from), Ok(Some(ToRoot::Done { code: 3 }))));
        assert!(matches!(read::<ToRoot>(&mut from), Ok(None)));
        for wrong in [&[3, 0, 0, 0, 0xff, 0xff, 0xff][..], &[4, 0, 0, 0, 5], &[0xff; 4], &[0, 0, 0, 0]] {
            assert!(read::<ToRoot>(&mut &wrong[..]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn greetings_are_found_behind_what_a_shell_prints() {
        let noisy = [b"Welcome!\n", &greeting()[..], b"rest"].concat();
        assert_eq!(find_greeting(&noisy), Some((9, boot::BUILD)));
        assert_eq!(find_greeting(&noisy[..20]), None);
    }
}
