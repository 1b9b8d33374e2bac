//! Standard input belongs to rank 0; the others read an empty one.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

/// What rank 0 reads: our own standard input itself, or a pipe that [`pump`] fills from a terminal. A rank leads a process
/// group of its own, and the terminal would stop it if it read there.
pub fn for_first_rank() -> Stdio {
    if std::io::stdin().is_terminal() { Stdio::piped() } else { Stdio::inherit() }
}

/// Copies the terminal's lines to `rank` until either ends, in a thread that is never waited for.
pub fn pump(mut rank: ChildStdin) -> std::io::Result<()> {
    let mut terminal = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let copy = move || {
        let mut buffer = [0; 4096];
        loop {
            match terminal.read(&mut buffer) {
                Ok(0) => return,
                Ok(bytes) => {
                    if rank.write_all(&buffer[..bytes]).is_err() {
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
