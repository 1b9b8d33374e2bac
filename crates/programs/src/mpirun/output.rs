//! What ranks print, passed on line by line: lines of different ranks never mix, and can begin with the rank.
//!
//! One thread reads all pipes. It is not the thread that watches processes, so a reader of ours that stalls (`| less`)
//! cannot keep Ctrl-C or a dead rank from being seen.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;

/// A line may be that long; longer ones are broken, so that a stream without newlines needs no memory.
const LINE_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// How long an unfinished line (a prompt, a progress bar) waits for its end before it is shown.
const PATIENCE_NS: i64 = 100_000_000;

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Our standard output.
    Output,
    /// Our standard error.
    Error,
}

struct Stream {
    pipe: OwnedFd,
    /// What every line begins with, if anything.
    label: Option<Arc<str>>,
    to: To,
    /// An unfinished line.
    held: Vec<u8>,
}

/// The thread that passes output on.
pub struct Forwarder {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
    /// Wakes the thread.
    wake: OwnedFd,
}

/// What the watching thread tells the forwarding one.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    new: Mutex<Vec<Stream>>,
}

impl Forwarder {
    /// Starts without any stream.
    pub fn start() -> std::io::Result<Forwarder> {
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let output = std::io::stdout().as_fd().try_clone_to_owned().map(File::from)?;
        let error = std::io::stderr().as_fd().try_clone_to_owned().map(File::from)?;
        let shared = Arc::new(Shared::default());
        let (streams, shared_too) = (Vec::new(), shared.clone());
        let mut pump =
            Pump { streams, sinks: [output, error], broken: [false; 2], shared: shared_too, woken };
        let thread = std::thread::Builder::new().name("output".into()).spawn(move || pump.run())?;
        Ok(Forwarder { thread, shared, wake })
    }

    /// Passes on what comes through `pipe` from now on, each line with `[label] ` before it if there is a label.
    pub fn add(&self, pipe: OwnedFd, label: Option<&str>, to: To) {
        let label = label.map(|label| format!("[{label}] ").into());
        let stream = Stream { pipe, label, to, held: Vec::new() };
        self.shared.new.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.wake();
    }

    /// A full pipe wakes as well.
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &[0]);
    }

    /// Waits until all that ranks wrote is passed on. To be called when no rank lives any more: what some surviving
    /// descendant may still write is not waited for.
    pub fn finish(self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        // A panic in the thread has been printed; the job's exit code is not changed by it.
        let _ = self.thread.join();
    }
}

struct Pump {
    streams: Vec<Stream>,
    sinks: [File; 2],
    /// By sink: nobody reads it any more.
    broken: [bool; 2],
    shared: Arc<Shared>,
    /// Readable when `shared` has news.
    woken: OwnedFd,
}

impl Pump {
    fn run(&mut self) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // Read before polling: what was written before `finish` is then certainly seen by this poll.
            let stopping = self.shared.stop.load(Ordering::Acquire);
            let _ = rustix::io::read(&self.woken, &mut *buffer);
            self.streams.append(&mut self.shared.new.lock().unwrap_or_else(PoisonError::into_inner));
            if stopping && self.streams.is_empty() {
                break;
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: if stopping { 0 } else { PATIENCE_NS } };
            let mut list: Vec<PollFd> =
                self.streams.iter().map(|stream| PollFd::new(&stream.pipe, PollFlags::IN)).collect();
            list.push(PollFd::new(&self.woken, PollFlags::IN));
            let ready = poll(&mut list, Some(&wait)).unwrap_or(0);
            let events: Vec<bool> = list.iter().map(|entry| !entry.revents().is_empty()).collect();
            if ready == 0 {
                if stopping {
                    break;
                }
                self.show_unfinished();
                continue;
            }
            for index in (0..self.streams.len()).rev().filter(|&index| events[index]) {
                self.read(index, &mut buffer);
            }
            let broken = self.broken;
            self.streams.retain(|stream| !broken[stream.to as usize]);
        }
        while let Some(mut stream) = self.streams.pop() {
            self.close(&mut stream);
        }
    }

    /// Reads stream `index` once, and drops it at its end. Called with descending indices.
    fn read(&mut self, index: usize, buffer: &mut [u8]) {
        let bytes = match rustix::io::read(&self.streams[index].pipe, &mut *buffer) {
            Ok(bytes) => bytes,
            Err(rustix::io::Errno::INTR) => return,
            Err(_) => 0,
        };
        if bytes == 0 {
            let mut stream = self.streams.remove(index);
            self.close(&mut stream);
            return;
        }
        let stream = &mut self.streams[index];
        let (to, label) = (stream.to, stream.label.clone());
        let mut lines = std::mem::take(&mut stream.held);
        lines.extend_from_slice(&buffer[..bytes]);
        let ends = |byte: &u8| *byte == b'\n' || (label.is_none() && *byte == b'\r');
        // Only the new bytes can hold an end: the held ones were searched before.
        let end = lines[lines.len() - bytes..].iter().rposition(ends).map(|at| lines.len() - bytes + at + 1);
        match end {
            Some(end) => stream.held = lines.split_off(end),
            None if lines.len() < LINE_BYTES_MAX => {
                stream.held = lines;
                return;
            }
            None if label.is_some() => lines.push(b'\n'),
            None => {}
        }
        self.write(to, label.as_deref(), &lines);
    }

    fn close(&mut self, stream: &mut Stream) {
        let mut held = std::mem::take(&mut stream.held);
        if !held.is_empty() {
            if stream.label.is_some() {
                held.push(b'\n');
            }
            self.write(stream.to, stream.label.as_deref(), &held);
        }
    }

    /// Without labels, a quiet stream's unfinished line is shown: it may be a prompt.
    fn show_unfinished(&mut self) {
        let held: Vec<(To, Vec<u8>)> = self
            .streams
            .iter_mut()
            .filter(|stream| stream.label.is_none() && !stream.held.is_empty())
            .map(|stream| (stream.to, std::mem::take(&mut stream.held)))
            .collect();
        held.iter().for_each(|(to, bytes)| self.write(*to, None, bytes));
    }

    /// Writes whole lines. If nobody reads our stream any more, the ranks' ends are closed, so that they get SIGPIPE as
    /// they would without us.
    fn write(&mut self, to: To, label: Option<&str>, lines: &[u8]) {
        let sink = &mut self.sinks[to as usize];
        let written = match label {
            None => sink.write_all(lines),
            Some(label) => sink.write_all(&labelled(label, lines)),
        };
        if written.is_err() {
            self.broken[to as usize] = true;
        }
    }
}

fn labelled(prefix: &str, lines: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(lines.len() + lines.len() / 8 + prefix.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        all.extend_from_slice(prefix.as_bytes());
        all.extend_from_slice(line);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_gets_its_label() {
        assert_eq!(labelled("[3] ", b"a\n\nb\n"), b"[3] a\n[3] \n[3] b\n");
        assert_eq!(labelled("[12] ", b"no end"), b"[12] no end");
    }
}
