//! Standard input belongs to rank 0, or to those that the user names; the others read an empty one.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use super::arguments::Readers;

/// What a rank reads: our own standard input itself, if no other rank reads it, or a pipe that [`pump`] fills. A rank leads a process
/// group of its own, and a terminal would stop it if it read there.
pub fn for_rank(rank: u32, readers: &Readers) -> Stdio {
    match readers {
        readers if !readers.has(rank) => Stdio::null(),
        Readers::Only(ranks) if ranks.len() == 1 && !std::io::stdin().is_terminal() => Stdio::inherit(),
        _ => Stdio::piped(),
    }
}

/// Copies our input to all `ranks` until it or all of them end, in a thread that is never waited for.
pub fn pump(mut ranks: Vec<ChildStdin>) -> std::io::Result<()> {
    let mut terminal = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let copy = move || {
        let mut buffer = [0; 4096];
        loop {
            match terminal.read(&mut buffer) {
                Ok(0) => return,
                Ok(bytes) => {
                    ranks.retain_mut(|rank| rank.write_all(&buffer[..bytes]).is_ok());
                    if ranks.is_empty() {
                        return;
                    }
                }
                // While we run in the background (SIGTTIN being blocked) a read fails; later we may be in front again.
                Err(_) => std::thread::sleep(Duration::from_millis(300)),
            }
        }
    };
    std::thread::Builder::new().name("input".into()).spawn(copy).map(|_| ())
}
