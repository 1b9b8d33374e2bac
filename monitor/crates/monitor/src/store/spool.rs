// SPDX-License-Identifier: BSD-3-Clause
//! Rows on their way into the store. If the store is away they wait as files, oldest first, within a bound;
//! what is over the bound is dropped, counted, and said.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::Store;

const SPOOL_BYTES_MAX: u64 = 1 << 30;
/// Blocks that wait in memory for the writing thread.
const QUEUE_BLOCKS: usize = 64;

/// What became of the rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Written {
    pub rows: u64,
    pub spooled_blocks: u64,
    pub spooled_bytes: u64,
    pub dropped_rows: u64,
    /// Why the store did not take the last block; empty: it did.
    pub error: String,
}

struct Block {
    table: String,
    csv: String,
    rows: u64,
}

/// The way in; copies share it.
#[derive(Clone)]
pub struct Writer {
    queue: SyncSender<Block>,
    written: Arc<Mutex<Written>>,
}

impl Writer {
    pub fn start(store: Arc<Store>, folder: &Path) -> Result<Writer, String> {
        let named = |error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(named)?;
        let (queue, blocks) = sync_channel(QUEUE_BLOCKS);
        let writer = Writer { queue, written: Arc::default() };
        let mut spool = Spool::open(folder).map_err(named)?;
        let written = writer.written.clone();
        std::thread::spawn(move || write(&store, &blocks, &mut spool, &written));
        Ok(writer)
    }

    /// One that writes nowhere.
    #[cfg(test)]
    pub fn idle() -> Writer {
        Writer { queue: sync_channel(1).0, written: Arc::default() }
    }

    /// Gives rows to the writing thread; never waits.
    pub fn add(&self, table: &str, csv: String) {
        let rows = csv.lines().count() as u64;
        let block = Block { table: table.into(), csv, rows };
        if rows > 0
            && let Err(TrySendError::Full(block) | TrySendError::Disconnected(block)) =
                self.queue.try_send(block)
        {
            self.update(|written| written.dropped_rows += block.rows);
        }
    }

    pub fn written(&self) -> Written {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut Written)) {
        change(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Writes blocks until nobody is left who could add one.
fn write(store: &Store, blocks: &Receiver<Block>, spool: &mut Spool, written: &Mutex<Written>) {
    loop {
        // With something on disk the store is asked again now and then, whether or not new rows come.
        let block = blocks.recv_timeout(Duration::from_secs(5));
        if let Err(std::sync::mpsc::RecvTimeoutError::Disconnected) = block {
            return;
        }
        let (mut rows, mut dropped, mut error) = (0, 0, String::new());
        while let Some(path) = spool.files.front().cloned() {
            match spool.read(&path).map(|block| (store.insert(&block.table, &block.csv), block.rows)) {
                Some((Ok(()), count)) => rows += count,
                Some((Err(why), _)) if !is_hopeless(&why) => {
                    error = why;
                    break;
                }
                Some((Err(why), count)) => {
                    dropped += count;
                    error = why;
                }
                None => {}
            }
            spool.remove();
        }
        if let Ok(block) = block {
            let is_behind = !spool.files.is_empty();
            let taken = if is_behind { Err(error.clone()) } else { store.insert(&block.table, &block.csv) };
            match taken {
                Ok(()) => rows += block.rows,
                Err(why) => {
                    if is_hopeless(&why) || !spool.keep(&block) {
                        dropped += block.rows;
                    }
                    error = why;
                }
            }
        }
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
        if !error.is_empty() && written.error != error {
            eprintln!("outboard monitor: {error}");
        }
        written.rows += rows;
        written.dropped_rows += dropped;
        written.error = error;
        (written.spooled_blocks, written.spooled_bytes) = (spool.files.len() as u64, spool.bytes);
    }
}

/// The store is there and will never take these rows: they would block all others.
fn is_hopeless(why: &str) -> bool {
    why.starts_with("the store refuses (400")
}

/// Blocks as files named by a number; the first line is the table.
struct Spool {
    folder: PathBuf,
    files: VecDeque<PathBuf>,
    bytes: u64,
    bytes_max: u64,
    next: u64,
}

impl Spool {
    fn open(folder: &Path) -> std::io::Result<Spool> {
        let mut found = Vec::new();
        let mut bytes = 0;
        for entry in std::fs::read_dir(folder)?.flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if let Some(number) = number {
                bytes += entry.metadata()?.len();
                found.push((number, entry.path()));
            }
        }
        found.sort();
        let next = found.last().map_or(0, |(number, _)| number + 1);
        let files = found.into_iter().map(|(_, path)| path).collect();
        Ok(Spool { folder: folder.into(), files, bytes, bytes_max: SPOOL_BYTES_MAX, next })
    }

    /// False: there is no room, or the disk does not take it.
    fn keep(&mut self, block: &Block) -> bool {
        let text = format!("{}\n{}", block.table, block.csv);
        let path = self.folder.join(self.next.to_string());
        if self.bytes + text.len() as u64 > self.bytes_max || std::fs::write(&path, &text).is_err() {
            // A half-written file must not be read as a block.
            let _ = std::fs::remove_file(&path);
            return false;
        }
        self.next += 1;
        self.bytes += text.len() as u64;
        self.files.push_back(path);
        true
    }

    fn read(&self, path: &Path) -> Option<Block> {
        let text = std::fs::read_to_string(path).ok()?;
        let (table, csv) = text.split_once('\n')?;
        Some(Block { table: table.into(), csv: csv.into(), rows: csv.lines().count() as u64 })
    }

    /// Drops the oldest.
    fn remove(&mut self) {
        if let Some(path) = self.files.pop_front() {
            self.bytes = self.bytes.saturating_sub(std::fs::metadata(&path).map_or(0, |file| file.len()));
            // If it stays, its rows come twice after a restart; nothing is lost.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_keeps_its_order_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path()).unwrap();
        for number in 0..12 {
            assert!(spool.keep(&Block { table: "t".into(), csv: format!("{number}\n"), rows: 1 }));
        }
        let mut spool = Spool::open(folder.path()).unwrap();
        assert_eq!(spool.files.len(), 12);
        for number in 0..12 {
            let path = spool.files.front().cloned().unwrap();
            assert_eq!(spool.read(&path).unwrap().csv, format!("{number}\n"));
            spool.remove();
        }
        spool.bytes_max = 10;
        assert!(spool.keep(&Block { table: "t".into(), csv: "1234\n".into(), rows: 1 }));
        assert!(!spool.keep(&Block { table: "t".into(), csv: "12\n".into(), rows: 1 }), "the bound");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "what has no room leaves nothing");
        spool.remove();
        assert_eq!((spool.bytes, std::fs::read_dir(folder.path()).unwrap().count()), (0, 0));
    }
}
