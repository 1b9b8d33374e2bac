// SPDX-License-Identifier: BSD-3-Clause
//! Runs a program and reads its output, within bounds of time and size.

use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs a program within the bounds of `run`. Returns what it prints, or None if it is not installed. If the
/// program fails, the error has the last line that it wrote to standard error.
pub fn output_of(program: &mut Command, input: &[u8]) -> Option<Result<Vec<u8>, String>> {
    read_of(program, input, TIME, |out| {
        let mut bytes = Vec::new();
        out.take(BYTES_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    })
}

/// Runs a program for at most `time`, and returns what `read` makes of its output. Returns None if the
/// program is not installed, and an error if the program fails.
pub fn read_of<T: Send + 'static>(
    program: &mut Command,
    input: &[u8],
    time: Duration,
    read: impl FnOnce(&mut dyn Read) -> Result<T, String> + Send + 'static,
) -> Option<Result<T, String>> {
    let name = program.get_program().to_string_lossy().into_owned();
    let done = carried_out(program, input, time, read)?;
    Some(done.and_then(|(status, said, read)| match status.success() {
        true => read,
        false if said.is_empty() => Err(format!("{name} failed: {status}")),
        false => Err(format!("{name} failed ({status}): {said}")),
    }))
}

const TIME: Duration = Duration::from_secs(10);
const BYTES_MAX: u64 = 64 << 20;
/// The most characters that are kept of a program's standard error.
const SAID_CHARS_MAX: usize = 300;

/// Runs a program for at most 10 s. Returns how the program ended and what it printed (up to 64 MiB), or None
/// if it is not installed. The input must fit into a pipe (64 KiB).
pub fn run(program: &mut Command, input: &[u8]) -> Option<Result<(ExitStatus, Vec<u8>), String>> {
    let read = |out: &mut dyn Read| {
        let mut bytes = Vec::new();
        out.take(BYTES_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    };
    let done = carried_out(program, input, TIME, read)?;
    Some(done.and_then(|(status, _, bytes)| Ok((status, bytes?))))
}

type Done<T> = (ExitStatus, String, Result<T, String>);

/// Runs a program. Returns how it ended, the last line of its standard error, and what `read` made of its
/// output. Returns None if the program is not installed.
fn carried_out<T: Send + 'static>(
    program: &mut Command,
    input: &[u8],
    time: Duration,
    read: impl FnOnce(&mut dyn Read) -> Result<T, String> + Send + 'static,
) -> Option<Result<Done<T>, String>> {
    let name = program.get_program().to_string_lossy().into_owned();
    let child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("LD_PRELOAD")
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("{name} cannot be started: {error}"))),
    };
    // A program need not read its input.
    let _ = child.stdin.take().expect("it is a pipe").write_all(input);
    let mut out = child.stdout.take().expect("it is a pipe");
    let reader = std::thread::spawn(move || {
        let read = read(&mut out);
        // The program may print more than was read.
        let _ = std::io::copy(&mut out, &mut std::io::sink());
        read
    });
    let mut said = child.stderr.take().expect("it is a pipe");
    let listener = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = said.by_ref().take(64 << 10).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut said, &mut std::io::sink());
        let words = String::from_utf8_lossy(&bytes);
        words.trim().lines().last().unwrap_or_default().chars().take(SAID_CHARS_MAX).collect::<String>()
    });
    let end = Instant::now() + time;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                // If the program has ended meanwhile, there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                let seconds = time.as_secs();
                return Some(Err(format!("{name} was still running after {seconds} s and was stopped")));
            }
            Err(error) => break Err(format!("{name} cannot be waited for: {error}")),
        }
    };
    let said = listener.join().unwrap_or_default();
    let read = reader.join().unwrap_or_else(|_| Err(format!("what {name} prints cannot be read")));
    Some(status.map(|status| (status, said, read)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_quoted() {
        let shell = |words: &str| output_of(Command::new("sh").args(["-c", words]), b"").unwrap();
        assert_eq!(shell("echo a; echo b >&2"), Ok(b"a\n".to_vec()));
        let why = shell("echo first >&2; echo no such cluster >&2; exit 3").unwrap_err();
        assert!(
            why.contains("sh failed") && why.contains("3") && why.ends_with("): no such cluster"),
            "{why}"
        );
        assert!(output_of(&mut Command::new("/no/such/program"), b"").is_none());
    }

    #[test]
    fn what_is_not_read_to_its_end_holds_nothing_up() {
        let read = |out: &mut dyn Read| out.read(&mut [0; 3]).map_err(|error| error.to_string());
        let result = read_of(Command::new("sh").args(["-c", "head -c 1000000 /dev/zero"]), b"", TIME, read);
        assert_eq!(result.unwrap(), Ok(3));
        let result = read_of(Command::new("sleep").arg("60"), b"", Duration::from_millis(50), |_| Ok(()));
        assert!(result.unwrap().unwrap_err().contains("still running"));
    }
}
