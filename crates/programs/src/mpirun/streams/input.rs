// SPDX-License-Identifier: BSD-3-Clause
//! Standard input belongs to rank 0, or to those that the user names; the others read an empty one.

use std::io::{IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::mpirun::command::arguments::Readers;

/// Standard input that is under way to the ranks, in bytes.
const INPUT_BYTES_MAX: usize = 256 << 10;

/// What a rank reads: our own standard input itself, if that is the job's (`is_ours`) and no other rank reads
/// it, or a pipe that [`pump`] fills. A rank leads a process group of its own, and a terminal would stop it
/// if it read there.
pub fn for_rank(rank: u32, readers: &Readers, is_ours: bool) -> Stdio {
    match readers {
        readers if !readers.has(rank) => Stdio::null(),
        Readers::Only(ranks) if ranks.len() == 1 && is_ours && !std::io::stdin().is_terminal() => {
            Stdio::inherit()
        }
        _ => Stdio::piped(),
    }
}

/// Our standard input.
pub fn terminal() -> std::io::Result<impl FnMut(&mut [u8]) -> std::io::Result<usize> + Send> {
    let mut terminal = std::fs::File::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    Ok(move |buffer: &mut [u8]| terminal.read(buffer))
}

/// Copies what `read` brings to all `ranks` until it or all of them end, in a thread that is never waited
/// for.
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

/// Gives what `read` brings to `each`, until it ends or `each` says that it needs no more.
pub fn copy(mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>, mut each: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 << 10];
    loop {
        match read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) if each(&buffer[..bytes]) => {}
            Ok(_) => return,
            // While we run in the background (SIGTTIN being blocked) a read fails; later we may be in front
            // again.
            Err(_) => std::thread::sleep(Duration::from_millis(300)),
        }
    }
}

/// Bytes of standard input that ranks have not taken yet.
#[derive(Clone, Default)]
pub struct Credit(Arc<(Mutex<usize>, Condvar)>);

impl Credit {
    /// Ranks have taken so many bytes.
    pub fn give_back(&self, bytes: usize) {
        let (under_way, changed) = &*self.0;
        let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
        *under_way = under_way.saturating_sub(bytes);
        changed.notify_all();
    }

    /// Counts so many bytes, and calls `send`; waits while too many are under way.
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
