//! The way from an agent to `mpirun`.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::frame::{self, Up};
use crate::mpirun::command::refusal::Refusal;

/// How often each side says that it lives.
pub const PULSE: Duration = Duration::from_secs(2);
/// For how long the other side may be silent. Where processes are many more than cores, 20 s were seen.
pub const SILENCE: Duration = Duration::from_secs(45);
/// Whoever looks so much later than it last did stood still itself, as a suspended machine does.
pub const STANDSTILL: Duration = Duration::from_secs(2);

/// The way to `mpirun`: set in agents only.
static UPWARD: OnceLock<Mutex<File>> = OnceLock::new();

/// Makes this process an agent.
pub fn open() -> std::io::Result<()> {
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    UPWARD.get_or_init(|| Mutex::new(output.into()));
    Ok(())
}

/// Says first of all who we are.
pub fn greet() -> std::io::Result<()> {
    let Some(upward) = UPWARD.get() else { return Ok(()) };
    upward.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame::greeting())
}

/// Whether this process is an agent.
pub fn is_one() -> bool {
    UPWARD.get().is_some()
}

/// Tells `mpirun` something. Its end is noticed elsewhere.
pub fn tell(frame: &Up) {
    if let Some(upward) = UPWARD.get() {
        let mut upward = upward.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = frame::write(&mut *upward, frame);
    }
}

/// Our standard input without a buffer: what the first step does not take is there for the second.
pub fn input() -> Result<File, Refusal> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    input.map(File::from).map_err(|error| Refusal::other(format!("cannot read frames: {error}")))
}

/// Prints a line of our own, in one piece, because ranks' lines go to the same place from another thread.
pub fn say(sentence: &str) {
    if is_one() {
        return tell(&Up::Said(sentence.to_owned()));
    }
    // Without anybody to read it there is nothing to do about it.
    let _ = std::io::stderr().write_all(format!("mpirun: {sentence}\n").as_bytes());
}
