// SPDX-License-Identifier: BSD-3-Clause
//! The page of this process: a mapped file in /dev/shm, in which its MPI calls are counted.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use watch_page::{Call, FILE_PREFIX, Head, MOMENT_NS, TEXT_BYTES, WORDS, at, class, node_at};

/// For how many milliseconds after reading a page a monitor counts as present. A present monitor removes the
/// page's file after the end of the process.
const READER_MS: u64 = 60_000;

struct Page {
    words: &'static [AtomicU64],
    file: PathBuf,
}

/// The page of this process, once `begin` has made it. Calls before that are not counted.
static PAGE: OnceLock<Page> = OnceLock::new();

pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

/// Makes the page of this process, and writes the words `head` into the page's head. If this fails, the
/// process runs on and is not counted.
pub fn begin(head: &[(Head, u64)], host: &str) {
    let pid = std::process::id();
    let file = Path::new("/dev/shm").join(format!("{FILE_PREFIX}{pid}"));
    // A process with the same number may have died and left a file here.
    let _ = std::fs::remove_file(&file);
    let Some(words) = map(&file) else { return };
    for (word, value) in
        head.iter().chain(&[(Head::Pid, pid.into()), (Head::Start, now_ms()), (Head::State, 1)])
    {
        words[*word as usize].store(*value, Ordering::Relaxed);
    }
    let program = std::env::current_exe().ok();
    let program = program
        .as_deref()
        .and_then(Path::file_name)
        .map_or_else(String::new, |name| name.to_string_lossy().into());
    for (word, text) in [(Head::Host, host), (Head::Program, &program)] {
        let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES - 1)];
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word_bytes = [0; 8];
            word_bytes[..chunk.len()].copy_from_slice(chunk);
            words[word as usize + index].store(u64::from_ne_bytes(word_bytes), Ordering::Relaxed);
        }
    }
    // This word is written last: with it the page is complete.
    words[Head::Magic as usize].store(watch_page::MAGIC, Ordering::Release);
    let _ = PAGE.set(Page { words, file });
}

fn map(file: &Path) -> Option<&'static [AtomicU64]> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR).ok()?;
    rustix::fs::ftruncate(&opened, (WORDS * 8) as u64).ok()?;
    let (protection, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping of a file of this length, where the kernel chooses; it is never unmapped.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), WORDS * 8, protection, kind, &opened, 0) }.ok()?;
    // SAFETY: the mapping has so many words, is aligned to a page, and lives until the process ends.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), WORDS) })
}

/// What an MPI call moves: how many bytes, whether it sends them, and the node of the peer if there is one
/// peer.
pub struct CallTraffic {
    pub bytes: u64,
    pub node: Option<usize>,
    pub sends: bool,
}

/// Counts a call that started at `started` (by `now_ns`) and is over now. `about` returns what the call
/// moves, and is called only if there is a page.
pub fn count(call: Call, started: u64, about: impl FnOnce() -> CallTraffic) {
    let Some(page) = PAGE.get() else { return };
    let time = now_ns().saturating_sub(started);
    let CallTraffic { bytes, node, sends } = about();
    let place = usize::from(
        node.is_some_and(|node| node as u64 != page.words[Head::Node as usize].load(Ordering::Relaxed)),
    );
    let first = at(call, class(bytes), place);
    let add = |word: usize, value: u64| page.words[word].fetch_add(value, Ordering::Relaxed);
    add(first, 1);
    add(first + 1, bytes);
    add(first + 2, time);
    add(first + 3, u64::from(time > MOMENT_NS));
    if let (true, Some(node)) = (sends, node) {
        add(node_at(node), bytes);
    }
}

/// Marks the page as ended. If a monitor has read it lately, the monitor reads it once more and removes its
/// file. Otherwise this process removes the file now.
pub fn end() {
    let Some(page) = PAGE.get() else { return };
    page.words[Head::State as usize].store(2, Ordering::Relaxed);
    let seen = page.words[Head::Seen as usize].load(Ordering::Relaxed);
    if seen + READER_MS < now_ms() {
        // If the file stays, the next process with this number removes it.
        let _ = std::fs::remove_file(&page.file);
    }
}
