// SPDX-License-Identifier: BSD-3-Clause
//! How `mpirun` passes on what ranks print, line by line: lines of different ranks never mix, and can begin
//! with the rank.
//!
//! One thread reads all pipes. Another thread watches the processes, so a slow reader of our output (`|
//! less`) delays neither Ctrl-C nor the detection of a dead rank.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;

use crate::mpirun::command::arguments::Global;
use crate::mpirun::wire::frame::{OutputStream, ToRoot};
use crate::mpirun::wire::uplink::Uplink;

/// The most bytes of a line that a rank prints. A longer line is written in parts, so that output without
/// newlines cannot fill the memory.
const LINE_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// How long an unfinished line (a prompt, a progress bar) waits for its newline before it is shown, in ns.
const PATIENCE_NS: i64 = 100_000_000;

/// What stands before the lines that ranks print, and into which files the lines go.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// Whether every line begins with the rank: `[3] ` (`--label`).
    pub label: bool,
    /// Whether every line begins with world, rank and stream: `[1,3]<stdout>: ` (`--tag-output`).
    pub tag: bool,
    /// Whether every line begins with the time (`--timestamp-output`).
    pub stamp: bool,
    /// The pattern of the files' names, such as `out.%r`: first for standard output, then for standard error.
    /// None if that stream goes to the same stream of `mpirun`.
    pub files: [Option<String>; 2],
}

impl Style {
    /// Returns the style that the command line asks for.
    pub fn of(global: &Global) -> Style {
        let file = |pattern: &Option<String>, ending: &str| {
            let all = global.output_filename.as_ref();
            let named = || all.map(|name| format!("{}.%r.{ending}", name.replace('%', "%%")));
            pattern.clone().or_else(named)
        };
        Style {
            label: global.label,
            tag: global.tag_output,
            stamp: global.timestamp_output,
            files: [file(&global.outfile_pattern, "out"), file(&global.errfile_pattern, "err")],
        }
    }

    /// Returns the text that begins every line of rank `rank` of world number `world` in the stream `to`. The
    /// time, which may also stand there, is not part of it.
    pub fn prefix(&self, world: u64, rank: u32, to: OutputStream) -> String {
        let job = world + 1;
        let stream = if to == OutputStream::Output { "stdout" } else { "stderr" };
        let label = if self.label { format!("[{}] ", name(world, rank)) } else { String::new() };
        if self.tag { format!("{label}[{job},{rank}]<{stream}>: ") } else { label }
    }

    /// Returns the path of the file for what rank `rank` of world number `world` prints to the stream `to`.
    /// None if the lines go to the same stream of `mpirun`.
    pub fn file(&self, world: u64, rank: u32, host: &str, to: OutputStream) -> Option<PathBuf> {
        let mut path = String::new();
        let mut letters = self.files[to as usize].as_deref()?.chars();
        while let Some(letter) = letters.next() {
            match (letter == '%').then(|| letters.next()) {
                None => path.push(letter),
                Some(Some('r')) => path += &name(world, rank),
                Some(Some('g')) => path += &world.to_string(),
                Some(Some('h')) => path += host,
                // There is one machine, so one process that starts ranks.
                Some(Some('p')) => path.push('0'),
                Some(other) => path.push(other.unwrap_or('%')),
            }
        }
        Some(path.into())
    }
}

/// Returns a rank's name for the user: `3`, or `2.3` for rank 3 of the spawned world 2.
fn name(world: u64, rank: u32) -> String {
    if world == 0 { rank.to_string() } else { format!("{world}.{rank}") }
}

/// Where the lines that ranks print are written.
enum OutputEnd {
    File(File),
    /// A standard stream of the job's root (`mpirun`), which is in another process. The lines go there in
    /// frames (messages).
    Upward(Arc<dyn Uplink>, OutputStream),
}

impl OutputEnd {
    fn write_all(&self, lines: &[u8]) -> std::io::Result<()> {
        match self {
            OutputEnd::File(file) => (&mut &*file).write_all(lines),
            OutputEnd::Upward(uplink, to) => {
                uplink.send(ToRoot::Output(*to, lines.to_vec()));
                Ok(())
            }
        }
    }
}

/// A file or stream to which the lines of one or more ranks are written, with its state.
struct Sink {
    end: OutputEnd,
    /// The name of the stream or path of the file, as text for the user.
    name: String,
    /// Whether writing to the file or stream has failed, so that no more is written there.
    broken: AtomicBool,
}

struct RankStream {
    pipe: OwnedFd,
    /// What every line begins with, apart from the time. None if lines begin with nothing else.
    label: Option<Arc<str>>,
    stamp: bool,
    sink: Arc<Sink>,
    /// What the rank has printed after its last newline: an unfinished line.
    unfinished: Vec<u8>,
}

impl RankStream {
    fn is_unlabelled(&self) -> bool {
        self.label.is_none() && !self.stamp
    }
}

/// A handle to the thread that passes on what ranks print. The thread that watches the processes holds it.
pub struct Forwarder {
    thread: JoinHandle<()>,
    shared: Arc<ForwarderShared>,
    /// The standard output and the standard error of the job, indexed by [`OutputStream`].
    own: [Arc<Sink>; 2],
    /// The files that were opened for ranks' output, by path. Ranks may share a file.
    files: HashMap<PathBuf, Arc<Sink>>,
    /// The writing end of the pipe that wakes the thread which passes output on.
    wake: OwnedFd,
}

/// What the thread that watches the processes tells the thread that passes output on: new pipes, and that the
/// job has ended.
#[derive(Default)]
struct ForwarderShared {
    stop: AtomicBool,
    new: Mutex<Vec<RankStream>>,
}

impl Forwarder {
    /// Starts the thread that passes output on; pipes of ranks come later (`add`). Lines go to the standard
    /// streams of this process if these are the job's (`is_ours`), else in frames (messages) to the job's
    /// root (`mpirun`).
    pub fn start(uplink: Arc<dyn Uplink>, is_ours: bool) -> std::io::Result<Forwarder> {
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let own = |to: OutputStream| {
            let end = match to {
                _ if !is_ours => OutputEnd::Upward(uplink.clone(), to),
                OutputStream::Output => {
                    OutputEnd::File(std::io::stdout().as_fd().try_clone_to_owned()?.into())
                }
                OutputStream::Error => {
                    OutputEnd::File(std::io::stderr().as_fd().try_clone_to_owned()?.into())
                }
            };
            std::io::Result::Ok(Arc::new(Sink { end, name: to.name().to_owned(), broken: false.into() }))
        };
        let own = [own(OutputStream::Output)?, own(OutputStream::Error)?];
        let shared = Arc::new(ForwarderShared::default());
        let mut pump = Pump { streams: Vec::new(), shared: shared.clone(), uplink, woken };
        let thread = std::thread::Builder::new().name("output".into()).spawn(move || pump.run())?;
        Ok(Forwarder { thread, shared, own, files: HashMap::new(), wake })
    }

    /// Gives the output thread a pipe into which a rank prints to the stream `to`. `world` is the number of
    /// the rank's world, and `rank` the rank's number in that world.
    pub fn add(
        &mut self,
        pipe: OwnedFd,
        style: &Style,
        (world, rank): (u64, u32),
        host: &str,
        to: OutputStream,
    ) -> Result<(), String> {
        let prefix = style.prefix(world, rank, to);
        let sink = match style.file(world, rank, host, to) {
            None => self.own[to as usize].clone(),
            Some(path) => self.file(path)?,
        };
        let label = (!prefix.is_empty()).then(|| prefix.into());
        let stream = RankStream { pipe, label, stamp: style.stamp, sink, unfinished: Vec::new() };
        self.shared.new.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.wake();
        Ok(())
    }

    fn file(&mut self, path: PathBuf) -> Result<Arc<Sink>, String> {
        if let Some(sink) = self.files.get(&path) {
            return Ok(sink.clone());
        }
        let wrong = |error| format!("cannot write {}: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(wrong)?;
        }
        let file = File::create(&path).map_err(wrong)?;
        let sink = Arc::new(Sink {
            end: OutputEnd::File(file),
            name: path.display().to_string(),
            broken: false.into(),
        });
        self.files.insert(path, sink.clone());
        Ok(sink)
    }

    /// Wakes the thread that passes output on, by a byte in a pipe. If the pipe is full, the thread wakes
    /// anyway.
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &[0]);
    }

    /// Ends the thread that passes output on, once everything that ranks wrote has gone. It is called when no
    /// rank lives any more. It does not wait for output of processes that ranks left behind.
    pub fn finish(self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        // A panic in the thread has been printed; it does not change the job's exit code.
        let _ = self.thread.join();
    }
}

struct Pump {
    streams: Vec<RankStream>,
    shared: Arc<ForwarderShared>,
    uplink: Arc<dyn Uplink>,
    /// The reading end of the pipe by which the watching thread wakes this one, after it has changed
    /// `shared`.
    woken: OwnedFd,
}

impl Pump {
    fn run(&mut self) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // The flag is read before polling, so this poll surely sees what was written before `finish`.
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
            self.streams.retain(|stream| !stream.sink.broken.load(Ordering::Relaxed));
        }
        while let Some(mut stream) = self.streams.pop() {
            close(&mut stream, &*self.uplink);
        }
    }

    /// Reads once from the pipe of stream `index`. At the end of the pipe it removes the stream from
    /// `streams`, so the caller takes the streams in descending order of their indices.
    fn read(&mut self, index: usize, buffer: &mut [u8]) {
        let bytes = match rustix::io::read(&self.streams[index].pipe, &mut *buffer) {
            Ok(bytes) => bytes,
            Err(rustix::io::Errno::INTR) => return,
            Err(_) => 0,
        };
        if bytes == 0 {
            let mut stream = self.streams.remove(index);
            close(&mut stream, &*self.uplink);
            return;
        }
        let stream = &mut self.streams[index];
        let unlabelled = stream.is_unlabelled();
        let mut lines = std::mem::take(&mut stream.unfinished);
        lines.extend_from_slice(&buffer[..bytes]);
        let ends = |byte: &u8| *byte == b'\n' || (unlabelled && *byte == b'\r');
        // Only the new bytes can hold an end: the earlier ones were searched before.
        let end = lines[lines.len() - bytes..].iter().rposition(ends).map(|at| lines.len() - bytes + at + 1);
        match end {
            Some(end) => stream.unfinished = lines.split_off(end),
            None if lines.len() < LINE_BYTES_MAX => {
                stream.unfinished = lines;
                return;
            }
            None if !unlabelled => lines.push(b'\n'),
            None => {}
        }
        write(stream, &lines, &*self.uplink);
    }

    /// Writes the unfinished lines of streams whose lines have no label. It is called when no output has come
    /// for a while: these lines may be prompts.
    fn show_unfinished(&mut self) {
        for stream in
            self.streams.iter_mut().filter(|stream| stream.is_unlabelled() && !stream.unfinished.is_empty())
        {
            let unfinished = std::mem::take(&mut stream.unfinished);
            write(stream, &unfinished, &*self.uplink);
        }
    }
}

fn close(stream: &mut RankStream, uplink: &dyn Uplink) {
    let mut unfinished = std::mem::take(&mut stream.unfinished);
    if !unfinished.is_empty() {
        if !stream.is_unlabelled() {
            unfinished.push(b'\n');
        }
        write(stream, &unfinished, uplink);
    }
}

/// Writes lines of a rank to its file or stream. If no process reads our own stream any more, the ranks'
/// pipes are closed, so that ranks get SIGPIPE as they would without `mpirun`. Any other error ends the job.
fn write(stream: &RankStream, lines: &[u8], uplink: &dyn Uplink) {
    let sink = &stream.sink;
    let written = if stream.is_unlabelled() {
        sink.end.write_all(lines)
    } else {
        let time = if stream.stamp { format!("{} ", sys::clock::local()) } else { String::new() };
        let label = stream.label.as_deref().unwrap_or_default();
        sink.end.write_all(&labelled(&format!("{time}{label}"), lines))
    };
    if let Err(error) = written
        && !sink.broken.swap(true, Ordering::Relaxed)
        && error.kind() != ErrorKind::BrokenPipe
    {
        uplink.send(ToRoot::not_written(&sink.name, &error));
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
    fn names_and_files_of_ranks() {
        let pattern = |text: &str| Style { files: [Some(text.into()), None], ..Style::default() };
        let file = |text: &str, world| pattern(text).file(world, 3, "vm", OutputStream::Output).unwrap();
        assert_eq!(file("out/%h-%g-%r.%p%%", 0), PathBuf::from("out/vm-0-3.0%"));
        assert_eq!(file("%r", 2), PathBuf::from("2.3"));
        assert_eq!(pattern("x").file(0, 3, "vm", OutputStream::Error), None);
        let style = Style { tag: true, ..Style::default() };
        assert_eq!(style.prefix(0, 3, OutputStream::Error), "[1,3]<stderr>: ");
        assert_eq!(Style { label: true, ..Style::default() }.prefix(2, 3, OutputStream::Output), "[2.3] ");
    }

    #[test]
    fn every_line_gets_its_label() {
        assert_eq!(labelled("[3] ", b"a\n\nb\n"), b"[3] a\n[3] \n[3] b\n");
        assert_eq!(labelled("[12] ", b"no end"), b"[12] no end");
    }
}
