// SPDX-License-Identifier: BSD-3-Clause
//! The frames between the root of a job and its agents, over the standard input and output of the command
//! that started the agent.
//!
//! An agent first sends a greeting ([`greeting`]), because a login shell may print before it. Then each side
//! sends frames: a length of 4 bytes (little-endian), then a value in postcard's encoding. The tables at
//! [`ToAgent`] and [`ToRoot`] say who sends what and who answers.
//!
//! Invariants: a frame is at most [`FRAME_BYTES_MAX`] long, whatever its length says; both sides are of one
//! build.
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

/// The most bytes of a frame.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// The first bytes of an agent's greeting; the number of the agent's build follows.
const MAGIC: [u8; 16] = *b"\0outboard-agent\n";
/// The length of a greeting in bytes.
pub const GREETING_BYTES: usize = MAGIC.len() + 8;

/// Returns the greeting of an agent: [`MAGIC`] and the number of its build in 8 bytes.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&boot::BUILD.to_le_bytes());
    bytes
}

/// Returns where in `bytes` the first greeting begins, and the build that it names; None if there is no
/// greeting.
pub fn find_greeting(bytes: &[u8]) -> Option<(usize, u64)> {
    let at = bytes.windows(GREETING_BYTES).position(|window| window.starts_with(&MAGIC))?;
    let build = bytes[at + MAGIC.len()..][..8].try_into().ok()?;
    Some((at, u64::from_le_bytes(build)))
}

/// What an agent needs to know to start its part of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The number of the node that gets this frame.
    pub node: u32,
    /// The hosts of the job, by the number of their node.
    pub nodes: Vec<JobNode>,
    /// The nodes that only run proxies: the first of them runs those of node 0, the second those of node 1,
    /// and so on.
    pub dpus: std::ops::Range<u32>,
    /// The node of each rank of the first world.
    pub node_of: Vec<u32>,
    /// A random number that all packets between hosts of this job carry, so that packets of others are
    /// refused; 0 if the job has this machine only.
    pub secret: u64,
    /// The environment variables of `mpirun`, as names and values.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder in which `mpirun` was started.
    pub directory: PathBuf,
    /// The options of the command line for the whole job.
    pub global: Global,
    /// The programs of the command line, in the order of their ranks.
    pub programs: Vec<RankProgram>,
    /// The job's random number, the same on all hosts, or None if the job has this machine only.
    pub job: Option<u64>,
    /// The values in the root's table of tuning for collective libraries (`Tuning::libraries`): all hosts
    /// must use the same. None if the job has this machine only.
    pub libraries: Option<Vec<u64>>,
    /// The value of MPI_UNIVERSE_SIZE, or None if it is the number of ranks.
    pub universe: Option<u32>,
}

impl Start {
    /// Returns the node whose ranks the proxies of this node serve, or None if this node has ranks itself.
    pub fn serves(&self) -> Option<u32> {
        self.dpus.contains(&self.node).then(|| self.node - self.dpus.start)
    }

    /// Whether another node runs the proxies of this node's ranks.
    pub fn is_served(&self) -> bool {
        self.dpus.contains(&(self.dpus.start.saturating_add(self.node)))
    }
}

/// A host of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNode {
    /// The host's name, as the user wrote it.
    pub name: String,
    /// The host's address, or None if `mpirun` did not find it by the name; empty if there is only one node.
    pub address: Option<String>,
}

/// A world that MPI_Comm_spawn starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewWorld {
    /// The id of the world: the first world is 0, the first that is spawned 1, and so on.
    pub id: u64,
    /// The process number in the segment of the world's first rank.
    pub first: u32,
    /// The node of each rank of the world.
    pub node_of: Vec<u32>,
    /// How many ranks run each program of the request.
    pub counts: Vec<u64>,
    /// The rank that called MPI_Comm_spawn.
    pub asker: u32,
    /// The request of the rank `asker`: a `launcher::Spawn` in bytes.
    pub spawn: Vec<u8>,
    /// How many nodes the job has, including those that were added for this world.
    pub nodes: u32,
}

/// How many ranks of a world have come to MPI_Init and to MPI_Finalize, in which ranks wait for all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// How many ranks have come to MPI_Init.
    pub born: u32,
    /// How many ranks have come to MPI_Finalize.
    pub leaving: u32,
}

/// One of the two streams of `mpirun` to which ranks' output goes.
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

/// The number of an endpoint, and its name as the network knows it. An empty name says that the endpoint, a
/// proxy, has ended.
pub type EndpointName = (u32, Vec<u8>);

/// A frame from the root to an agent (`agent/receive.rs`). `first` names a world by its first rank in the
/// segment, `rank` is a process number in the segment, times are nanoseconds of CLOCK_MONOTONIC. Signals and
/// exit codes are the system's. An agent that starts later first gets the present state by these frames
/// (`Root::catch_up`).
///
/// | frame | when the root sends it | what the agent answers |
/// |---|---|---|
/// | `Start` | once, when all agents have greeted | `Failed` and `Done` if it cannot start |
/// | `Names`, `PortsClosed` | another agent sent them; a computer of proxies is lost | nothing |
/// | `Arrived`, `Connected` | another agent sent them: the sum over all other nodes | nothing |
/// | `StartWorld` | a rank spawns processes; to all agents | `Born`, or `FailedToStart` |
/// | `Answer` | a request of a rank (`Ask`) is carried out | nothing; it writes it into the rank's arena |
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
    /// Start your ranks. This is always the first frame.
    Start(Box<Start>),
    /// The names of endpoints on other nodes.
    Names(Vec<EndpointName>),
    /// How many ranks of the world that begins at `first` have arrived on other nodes so far.
    Arrived { first: u32, arrivals: Arrivals },
    /// Start your ranks of a spawned world, if it has any on your node, and enter the world.
    StartWorld(Box<NewWorld>),
    /// The answer to the request of rank `rank`, in bytes as `launcher::answer` writes it.
    Answer { rank: u32, bytes: Vec<u8> },
    /// End your ranks of the spawned world that begins at `first`: it has failed to start.
    UndoWorld { first: u32 },
    /// The worlds with which the world that begins at `first` is connected on other nodes.
    Connected { first: u32, to: Vec<u32> },
    /// The numbers of ports that other nodes have closed.
    PortsClosed(Vec<u64>),
    /// No rank of the world that begins at `first` lives on any node any more.
    Over { first: u32 },
    /// A piece of standard input for the ranks that read it; an empty one is its end.
    Input(Vec<u8>),
    /// This signal has come to `mpirun`. SIGUSR1: report what your ranks wait for. Any other: send it to your
    /// ranks.
    Signal(i32),
    /// Ctrl-Z: stop all ranks and proxies, and answer `Stopped`.
    Stop,
    /// Let stopped ranks and proxies continue.
    Continue,
    /// End your ranks of the worlds that begin at `worlds` by the signal `signal`; `code` is the job's exit
    /// code.
    EndWorlds { worlds: Vec<u32>, signal: i32, code: u8 },
    /// End yourself, and by the signal `signal` your ranks that still live. The signal is 0 if no rank lives.
    EndJob { signal: i32, code: u8 },
    /// Answer with your clock. `sent` is the root's time when it asked.
    Clock { sent: u64 },
    /// A pulse: the root lives.
    Alive,
}

/// A frame from an agent to the root (`root/mod.rs`). Numbers and units are those of [`ToAgent`].
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
    /// The names of endpoints on this node.
    Names(Vec<EndpointName>),
    /// How many ranks of the world that begins at `first` have arrived on this node so far.
    Arrived { first: u32, arrivals: Arrivals },
    /// The request of rank `rank`: a `launcher::Request` in bytes.
    Ask { rank: u32, request: Vec<u8> },
    /// All ranks on this node of the spawned world that begins at `first` have come to MPI_Init.
    Born { first: u32 },
    /// The spawned world that begins at `first` cannot start on this node, for the reason in `sentence`.
    FailedToStart { first: u32, sentence: String },
    /// The worlds with which the world that begins at `first` is connected on this node.
    Connected { first: u32, to: Vec<u32> },
    /// The numbers of ports that this node has closed.
    PortsClosed(Vec<u64>),
    /// The counters of the processes on this node, at the end of the world that begins at `first`, if the
    /// user wants them.
    Counted { first: u32, counted: Counted },
    /// The records of one process of this node for the trace, if the user wants it.
    Traced(TracePart),
    /// No rank of the world that begins at `first` lives on this node any more. `is_broken` says whether some
    /// rank left other than by MPI_Finalize.
    Over { first: u32, is_broken: bool },
    /// Bytes that ranks have printed, mostly whole lines, and the stream to which they go.
    Output(OutputStream, Vec<u8>),
    /// A sentence of the agent's own, which the root prints for the user.
    Print(String),
    /// All ranks and proxies of this node are stopped, as `Stop` asked.
    Stopped,
    /// How many bytes of standard input the ranks of this node have taken.
    Taken(u32),
    /// The worlds that begin at `worlds` must end (all worlds, if the list is empty) for the reason in
    /// `sentence`, and `code` is the job's exit code. The agent already ends those of the list on its node.
    Failed { worlds: Vec<u32>, sentence: String, code: u8 },
    /// The agent's last frame: nothing of the job is left on this node. `code` is the exit code of the node's
    /// first failure, or 0.
    Done { code: u8 },
    /// The answer to `ToAgent::Clock` with the same `sent`: `there` is this node's time. The agent sends 0 as
    /// `back`; the root's reader puts the root's time on arrival there.
    Clock { sent: u64, there: u64, back: u64 },
    /// A pulse: the agent lives.
    Alive,
}

impl ToRoot {
    /// Returns the frame which says that output of ranks could not be written to `what`.
    pub fn not_written(what: &str, error: &io::Error) -> ToRoot {
        let sentence = format!("cannot write {what}: {error}; ending the job");
        ToRoot::Failed { worlds: Vec::new(), sentence, code: 1 }
    }
}

/// Writes a frame: its length, then its bytes.
pub fn write(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut bytes = postcard::to_extend(frame, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads a frame. Returns None if the stream ends before it.
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
