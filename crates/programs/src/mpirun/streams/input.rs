//! Standard input belongs to rank 0, or to those that the user names; the others read an empty one.

use std::io::{IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use crate::mpirun::command::arguments::Readers;
use crate::mpirun::wire::upward;

/// What a rank reads: our own standard input itself, if no other rank reads it, or a pipe that [`pump`]
/// fills. A rank leads a process group of its own, and a terminal would stop it if it read there.
pub fn for_rank(rank: u32, readers: &Readers) -> Stdio {
    match readers {
        readers if !readers.has(rank) => Stdio::null(),
        Readers::Only(ranks) if ranks.len() == 1 && !upward::is_one() && !std::io::stdin().is_terminal() => {
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
