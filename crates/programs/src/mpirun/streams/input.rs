// SPDX-License-Identifier: BSD-3-Clause
//! Standard input goes to rank 0, or to the ranks that the user names; the others read an empty one.

use std::io::{IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::mpirun::command::arguments::Readers;

/// How many bytes of standard input may have been sent to the agents and not yet taken by the ranks.
const INPUT_BYTES_MAX: usize = 256 << 10;

/// Returns the standard input of a rank: our own one, if it is the job's (`is_ours`) and no other rank reads
/// it; an empty one, if the rank is no reader; or else a pipe that [`pump`] fills. A rank leads a process
/// group of its own, so a terminal would stop it if it read there.
pub fn for_rank(rank: u32, readers: &Readers, is_ours: bool) -> Stdio {
    match readers {
        readers if !readers.has(rank) => Stdio::null(),
        Readers::Only(ranks) if ranks.len() == 1 && is_ours && !std::io::stdin().is_terminal() => {
            Stdio::inherit()
        }
        _ => Stdio::piped(),
    }
}

/// Returns a function that reads our standard input.
pub fn terminal() -> std::io::Result<impl FnMut(&mut [u8]) -> std::io::Result<usize> + Send> {
    let mut terminal = std::fs::File::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    Ok(move |buffer: &mut [u8]| terminal.read(buffer))
}

/// Starts a thread, for which nothing waits, that writes all that `read` returns to each of `ranks`, until
/// `read` or all ranks end.
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

/// Passes all that `read` returns to `each`, until `read` comes to its end or `each` returns false.
pub fn copy(mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>, mut each: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 << 10];
    loop {
        match read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) if each(&buffer[..bytes]) => {}
            Ok(_) => return,
            // A read fails while we run in the background (SIGTTIN is blocked); later we may be in the
            // foreground again.
            Err(_) => std::thread::sleep(Duration::from_millis(300)),
        }
    }
}

/// The number of bytes of standard input that are on the way to the ranks, shared by the threads that send
/// and receive.
#[derive(Clone, Default)]
pub struct Credit(Arc<(Mutex<usize>, Condvar)>);

impl Credit {
    /// Notes that the ranks have taken `bytes` bytes, and wakes a thread that waits in `take`.
    pub fn give_back(&self, bytes: usize) {
        let (under_way, changed) = &*self.0;
        let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
        *under_way = under_way.saturating_sub(bytes);
        changed.notify_all();
    }

    /// Notes that `bytes` more bytes are on the way, and calls `send`, which sends them. Then waits while
    /// more than [`INPUT_BYTES_MAX`] are on the way.
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
