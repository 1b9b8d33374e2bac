// SPDX-License-Identifier: BSD-3-Clause
//! A program's output, within a time and a size.

use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a program prints that must succeed, as `run` says.
pub fn output_of(program: &mut Command, input: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let name = program.get_program().to_string_lossy().into_owned();
    let done = run(program, input)?;
    Some(done.and_then(|(status, bytes)| match status.success() {
        true => Ok(bytes),
        false => Err(format!("{name} failed: {status}")),
    }))
}

/// Runs a program for at most 10 s: how it ended, and what it printed, up to 64 MiB. Nothing: it is not
/// installed. The input must fit a pipe (64 KiB).
pub fn run(program: &mut Command, input: &[u8]) -> Option<Result<(ExitStatus, Vec<u8>), String>> {
    const TIME: Duration = Duration::from_secs(10);
    const BYTES_MAX: u64 = 64 << 20;
    let name = program.get_program().to_string_lossy().into_owned();
    let child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env_remove("LD_PRELOAD")
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("{name} cannot be started: {error}"))),
    };
    // A program need not read what it is told.
    let _ = child.stdin.take().expect("it is a pipe").write_all(input);
    let out = child.stdout.take().expect("it is a pipe");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.take(BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes)
    });
    let end = Instant::now() + TIME;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                // It may have ended meanwhile; then there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                return Some(Err(format!("{name} was still running after 10 s and was stopped")));
            }
            Err(error) => break Err(format!("{name} cannot be waited for: {error}")),
        }
    };
    let bytes = reader.join().ok().and_then(Result::ok);
    Some(status.and_then(|status| {
        bytes.map(|bytes| (status, bytes)).ok_or(format!("what {name} prints cannot be read"))
    }))
}
