//! What `mpirun` and its agents say to each other, over the standard input and output of the command that
//! started the agent.
//!
//! An agent begins with [`greeting`], because a login shell may print before it. Then each side sends frames:
//! a length of 4 bytes (little-endian), then a value in postcard's encoding.
//!
//! Invariants: a frame is at most [`FRAME_BYTES_MAX`] long, whatever its length says; both sides are of one
//! build.
//!
//! Read next: `nodes.rs` (who sends `Down`), `agent.rs` (who sends `Up`).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::arguments::{Global, Program};
use super::output::To;

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
    /// The node of each rank.
    pub node_of: Vec<u32>,
    /// What all packets of the job carry.
    pub secret: u64,
    /// The environment of `mpirun`.
    pub environment: Vec<(OsString, OsString)>,
    /// Where `mpirun` was started.
    pub directory: PathBuf,
    /// The options for the whole job.
    pub global: Global,
    /// The programs, in the order of their ranks.
    pub programs: Vec<Program>,
    /// MPI_UNIVERSE_SIZE, if it is not the number of ranks.
    pub universe: Option<u32>,
}

/// A host of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, as the user wrote it.
    pub name: String,
    /// Its address, as `mpirun` found it by the name; empty if there is only one node.
    pub address: String,
}

/// Arrivals at the gates of MPI_Init and MPI_Finalize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Ranks that have come to MPI_Init.
    pub born: u32,
    /// Ranks that have come to MPI_Finalize.
    pub leaving: u32,
}

/// The name of a rank's endpoint.
pub type EndpointName = (u32, Vec<u8>);

/// From `mpirun` to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// Start your ranks: always the first.
    Start(Box<Start>),
    /// Endpoints of ranks on other nodes.
    Names(Vec<EndpointName>),
    /// How many ranks of other nodes have arrived so far.
    Arrived(Arrivals),
    /// Bytes for the ranks that read standard input; none mean its end.
    Input(Vec<u8>),
    /// SIGUSR1: say what the ranks wait for. Another signal: send it to them.
    Signal(i32),
    /// Ctrl-Z: stop all ranks and proxies, and answer `Stopped`.
    Stop,
    /// Let them go on.
    Continue,
    /// End your ranks by this signal; the job's exit code.
    End { signal: i32, code: u8 },
    /// `mpirun` lives.
    Alive,
}

/// From an agent to `mpirun`.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up {
    /// Endpoints of ranks of this node.
    Names(Vec<EndpointName>),
    /// How many ranks of this node have arrived so far.
    Arrived(Arrivals),
    /// What ranks print, in whole lines where they end.
    Output(To, Vec<u8>),
    /// A line of the agent's own.
    Said(String),
    /// All ranks and proxies are stopped.
    Stopped,
    /// So many bytes of standard input have been taken.
    Taken(u32),
    /// Why the job must end, and its exit code. The ranks of this node are being ended.
    Failed { sentence: String, code: u8 },
    /// Nothing of the job is left here; the exit code of the node's first failure, or 0.
    Done { code: u8 },
    /// The agent lives.
    Alive,
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
