// SPDX-License-Identifier: BSD-3-Clause
//! Standard input of the job: rank 0 gets it, or the ranks that the user names. All other ranks read an empty
//! file.

use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::mpirun::command::arguments::Readers;
use crate::mpirun::command::say::say;

/// How many bytes of standard input may have been sent to the agents (`mpirun` on each host) and not yet
/// taken by the ranks.
const INPUT_BYTES_MAX: usize = 256 << 10;

/// Returns the standard input of rank `rank`: an empty file if the rank is not in `readers`, else a pipe that
/// [`pump`] fills. The only reader gets our own standard input instead, if ours is the job's (`is_ours`). But
/// it never gets a terminal: ranks run in other process groups, and a read would stop them.
pub fn for_rank(rank: u32, readers: &Readers, is_ours: bool) -> Stdio {
    match readers {
        readers if !readers.has(rank) => Stdio::null(),
        Readers::Only(ranks) if ranks.len() == 1 && is_ours && !std::io::stdin().is_terminal() => {
            Stdio::inherit()
        }
        _ => Stdio::piped(),
    }
}

/// Returns a function that reads our standard input into a buffer. It returns the number of bytes, 0 at the
/// end.
pub fn terminal() -> std::io::Result<impl FnMut(&mut [u8]) -> std::io::Result<usize> + Send> {
    let mut terminal = std::fs::File::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    Ok(move |buffer: &mut [u8]| terminal.read(buffer))
}

/// Starts a thread that gets bytes from `read`, and writes them to each of `ranks`. The thread ends when
/// `read` returns 0 or no rank reads any more. No other thread waits for its end.
pub fn pump(
    mut ranks: Vec<ChildStdin>,
    read: impl FnMut(&mut [u8]) -> std::io::Result<usize> + Send + 'static,
) -> std::io::Result<()> {
    let write = move |bytes: &[u8]| {
        ranks.retain_mut(|rank| rank.write_all(bytes).is_ok());
        !ranks.is_empty()
    };
    std::thread::Builder::new().name("input".into()).spawn(|| copy(read, write)).map(|_| ())
}

/// Gets bytes from `read`, and passes them to `each`, until `read` returns 0 or an error that stays, or
/// `each` returns false.
pub fn copy(mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>, mut each: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 << 10];
    loop {
        match read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) if each(&buffer[..bytes]) => {}
            Ok(_) => return,
            // A read fails while we run in the background (SIGTTIN is blocked); later we may be in the
            // foreground again.
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
                    || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
            {
                std::thread::sleep(Duration::from_millis(300))
            }
            Err(error) => {
                return say(&format!("cannot read standard input: {error}; ranks read its end here"));
            }
        }
    }
}

/// How many bytes of standard input are on the way to the ranks. The thread that sends them and the thread
/// that receives the agents' reports share it.
#[derive(Clone, Default)]
pub struct Credit(Arc<(Mutex<usize>, Condvar)>);

impl Credit {
    /// Counts `bytes` bytes as taken by the ranks, and wakes a thread that waits in `take`.
    pub fn give_back(&self, bytes: usize) {
        let (under_way, changed) = &*self.0;
        let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
        *under_way = under_way.saturating_sub(bytes);
        changed.notify_all();
    }

    /// Counts `bytes` more bytes as on the way, and calls `send`, which sends them. Then waits while more
    /// than [`INPUT_BYTES_MAX`] bytes are on the way.
    pub fn take(&self, bytes: usize, send: impl FnOnce()) {
        let (under_way, changed) = &*self.0;
        let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
        *under_way += bytes;
        send();
        while *under_way > INPUT_BYTES_MAX {
            under_way = changed.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
