// SPDX-License-Identifier: BSD-3-Clause
//! What `mpirun` and its agents say to each other, over the standard input and output of the command that
//! started the agent.
//!
//! An agent begins with [`greeting`], because a login shell may print before it. Then each side sends frames:
//! a length of 4 bytes (little-endian), then a value in postcard's encoding.
//!
//! Invariants: a frame is at most [`FRAME_BYTES_MAX`] long, whatever its length says; both sides are of one
//! build.
//!
//! Read next: `way.rs`, `root/mod.rs` (who sends `Down`), `agent/hear.rs` (who sends `Up`).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::statistics::Counted;
use super::trace::Part;
use crate::mpirun::command::arguments::{Global, Program};

/// The longest frame, in bytes.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// What an agent's greeting begins with; the number of its build follows.
const MAGIC: [u8; 16] = *b"\0outboard-agent\n";
/// A greeting's length in bytes.
pub const GREETING_BYTES: usize = MAGIC.len() + 8;

/// The first bytes of an agent.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&boot::BUILD.to_le_bytes());
    bytes
}

/// Where in `bytes` the first greeting begins, and the build that it tells of.
pub fn find_greeting(bytes: &[u8]) -> Option<(usize, u64)> {
    let at = bytes.windows(GREETING_BYTES).position(|window| window.starts_with(&MAGIC))?;
    let build = bytes[at + MAGIC.len()..][..8].try_into().ok()?;
    Some((at, u64::from_le_bytes(build)))
}

/// What an agent starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The number of the agent's node.
    pub node: u32,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The nodes that only run proxies: the first of them those of node 0, and so on.
    pub dpus: std::ops::Range<u32>,
    /// The node of each rank.
    pub node_of: Vec<u32>,
    /// What all packets between hosts carry.
    pub secret: u64,
    /// The environment of `mpirun`.
    pub environment: Vec<(OsString, OsString)>,
    /// Where `mpirun` was started.
    pub directory: PathBuf,
    /// The options for the whole job.
    pub global: Global,
    /// The programs, in the order of their ranks.
    pub programs: Vec<Program>,
    /// The number of the job, where all hosts must have the same.
    pub job: Option<u64>,
    /// `Tuning::libraries` of the root's table, where that is another: ranks must decide alike.
    pub libraries: Option<Vec<u64>>,
    /// MPI_UNIVERSE_SIZE, if it is not the number of ranks.
    pub universe: Option<u32>,
}

impl Start {
    /// The node whose proxies run on the agent's node, if it only runs proxies.
    pub fn serves(&self) -> Option<u32> {
        self.dpus.contains(&self.node).then(|| self.node - self.dpus.start)
    }

    /// Whether the proxies of the agent's node run on another.
    pub fn is_served(&self) -> bool {
        self.dpus.contains(&(self.dpus.start.saturating_add(self.node)))
    }
}

/// A host of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, as the user wrote it.
    pub name: String,
    /// Its address, as `mpirun` found it by the name, if it did; empty if there is only one node.
    pub address: Option<String>,
}

/// A world that is spawned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Its number.
    pub id: u64,
    /// Its first rank.
    pub first: u32,
    /// The node of each of its ranks.
    pub node_of: Vec<u32>,
    /// How many processes each program has.
    pub counts: Vec<u64>,
    /// The rank that asked for it.
    pub asker: u32,
    /// What that asked for, a `launcher::Spawn`.
    pub spawn: Vec<u8>,
    /// The nodes that the job has now.
    pub nodes: u32,
}

/// Arrivals at the gates of MPI_Init and MPI_Finalize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Ranks that have come to MPI_Init.
    pub born: u32,
    /// Ranks that have come to MPI_Finalize.
    pub leaving: u32,
}

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// Our standard output.
    Output,
    /// Our standard error.
    Error,
}

impl To {
    /// What it is, for people.
    pub fn name(self) -> &'static str {
        match self {
            To::Output => "standard output",
            To::Error => "standard error",
        }
    }
}

/// The name of an endpoint, with its number. Without a name: its process, a proxy, has ended.
pub type EndpointName = (u32, Vec<u8>);

/// From `mpirun` to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// Start your ranks: always the first.
    Start(Box<Start>),
    /// Endpoints on other nodes.
    Names(Vec<EndpointName>),
    /// How many ranks of the world that begins at `first` have arrived on other nodes so far.
    Arrived { first: u32, arrivals: Arrivals },
    /// Begin a world, of which some ranks may be yours.
    Begin(Box<Begin>),
    /// What rank `rank` has asked for, as `launcher::answer` writes it.
    Answer { rank: u32, bytes: Vec<u8> },
    /// End your ranks of a world that could not be started.
    Undo { first: u32 },
    /// The worlds to which ranks of a world on other nodes are connected.
    Connected { first: u32, to: Vec<u32> },
    /// Ports that were closed on other nodes.
    Closed(Vec<u64>),
    /// No rank of a world lives any more.
    Over { first: u32 },
    /// Bytes for the ranks that read standard input; none mean its end.
    Input(Vec<u8>),
    /// SIGUSR1: say what the ranks wait for. Another signal: send it to them.
    Signal(i32),
    /// Ctrl-Z: stop all ranks and proxies, and answer `Stopped`.
    Stop,
    /// Let them go on.
    Continue,
    /// End your ranks of these worlds by this signal; the job's exit code.
    End { worlds: Vec<u32>, signal: i32, code: u8 },
    /// End, with all ranks that still live, by this signal; 0 if none does.
    Close { signal: i32, code: u8 },
    /// What does your clock say? `mpirun` asked at this time of its own.
    Clock { sent: u64 },
    /// `mpirun` lives.
    Alive,
}

/// From an agent to `mpirun`.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up {
    /// Endpoints of this node.
    Names(Vec<EndpointName>),
    /// How many ranks of the world that begins at `first` have arrived on this node so far.
    Arrived { first: u32, arrivals: Arrivals },
    /// What rank `rank` asks for, a `launcher::Request`.
    Ask { rank: u32, request: Vec<u8> },
    /// All ranks of a spawned world on this node are in MPI_Init.
    Born { first: u32 },
    /// Why ranks of a spawned world on this node will never be.
    Stillborn { first: u32, sentence: String },
    /// The worlds to which ranks of a world on this node are connected.
    Connected { first: u32, to: Vec<u32> },
    /// Ports that were closed on this node.
    Closed(Vec<u64>),
    /// What the processes of a world have counted on this node, if that is wanted.
    Counted { first: u32, counted: Counted },
    /// What a process of this node has kept for the trace.
    Traced(Part),
    /// No rank of a world lives on this node any more; whether some left other than by MPI_Finalize.
    Over { first: u32, is_broken: bool },
    /// What ranks print, in whole lines where they end.
    Output(To, Vec<u8>),
    /// A line of the agent's own.
    Said(String),
    /// All ranks and proxies are stopped.
    Stopped,
    /// So many bytes of standard input have been taken.
    Taken(u32),
    /// Why these worlds must end, or all if none is named, and the job's exit code. Those that are named are
    /// being ended on this node.
    Failed { worlds: Vec<u32>, sentence: String, code: u8 },
    /// Nothing of the job is left here; the exit code of the node's first failure, or 0.
    Done { code: u8 },
    /// What the clock of this node says, to the question of that time; `back` is when the answer has come.
    Clock { sent: u64, there: u64, back: u64 },
    /// The agent lives.
    Alive,
}

impl Up {
    /// What ranks print cannot be written.
    pub fn not_written(what: &str, error: &io::Error) -> Up {
        let sentence = format!("cannot write {what}: {error}; ending the job");
        Up::Failed { worlds: Vec::new(), sentence, code: 1 }
    }
}

/// Sends a frame.
pub fn write(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut bytes = postcard::to_extend(frame, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// Receives a frame; nothing at the stream's end.
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
    // Grows with what really comes, so that a length alone takes no memory.
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
        write(&mut bytes, &Up::Output(To::Error, b"a\n".to_vec())).unwrap();
        write(&mut bytes, &Up::Done { code: 3 }).unwrap();
        let mut from = &bytes[..];
        assert!(matches!(read(&mut from), Ok(Some(Up::Output(To::Error, text))) if text == b"a\n"));
        assert!(matches!(read(&mut from), Ok(Some(Up::Done { code: 3 }))));
        assert!(matches!(read::<Up>(&mut from), Ok(None)));
        for wrong in [&[3, 0, 0, 0, 0xff, 0xff, 0xff][..], &[4, 0, 0, 0, 5], &[0xff; 4], &[0, 0, 0, 0]] {
            assert!(read::<Up>(&mut &wrong[..]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn greetings_are_found_behind_what_a_shell_prints() {
        let noisy = [b"Welcome!\n", &greeting()[..], b"rest"].concat();
        assert_eq!(find_greeting(&noisy), Some((9, boot::BUILD)));
        assert_eq!(find_greeting(&noisy[..20]), None);
    }
}
