// SPDX-License-Identifier: BSD-3-Clause
//! The route of rows into the store. The rows of one second make one block for each table. Blocks go into the
//! spool (files on disk, oldest first), and from there into the store, in order. A row is lost only if the
//! spool has no room or the store calls the row wrong; lost rows are counted and reported.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::spool::{Block, MEMORY_BYTES_MAX, Spool};
use super::{InsertRefusal, Store};

/// How long rows are gathered in memory before they go into the spool, which is on disk. Gathered rows are
/// lost if the monitor is killed.
const GATHER: Duration = Duration::from_secs(1);
/// How long the writer waits before it offers rows again to a store that has not taken them.
const AGAIN: Duration = Duration::from_secs(2);
/// For how long after a loss of rows the alert `dropped_rows` counts them.
const LATELY: Duration = Duration::from_secs(300);

/// How many rows were written into the store, how many wait for it, and how many were lost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Written {
    pub rows: u64,
    pub spooled_blocks: u64,
    pub spooled_bytes: u64,
    /// How many rows were lost since the monitor's start.
    pub dropped_rows: u64,
    /// How many rows were lost in the last five minutes.
    pub dropped_lately: u64,
    /// Why the store did not take the last block of rows; empty if it did.
    pub error: String,
}

#[derive(Default)]
struct Gathered {
    tables: BTreeMap<String, String>,
    bytes: u64,
}

#[derive(Default)]
struct WriterState {
    gathered: Mutex<Gathered>,
    /// Where rows wait for the store. None if rows are thrown away (in tests).
    spool: Option<Mutex<Spool>>,
    /// Wakes the thread that gives blocks to the store, when a block is added to the spool (the blocks on
    /// disk).
    more: Condvar,
    written: Mutex<Written>,
    lost: Mutex<VecDeque<(Instant, u64)>>,
}

/// The way by which all threads of the monitor give rows to the store. Clones share one state.
#[derive(Clone)]
pub struct Writer(Arc<WriterState>);

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub fn start(store: Arc<Store>, folder: &Path, bytes_max: u64) -> Result<Writer, String> {
        let spool =
            Spool::open(folder, bytes_max).map_err(|error| format!("{}: {error}", folder.display()))?;
        let writer =
            Writer(Arc::new(WriterState { spool: Some(Mutex::new(spool)), ..WriterState::default() }));
        let gatherer = writer.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(GATHER);
                gatherer.flush();
            }
        });
        let inserter = writer.clone();
        std::thread::spawn(move || inserter.insert(&store));
        Ok(writer)
    }

    /// Makes a writer that throws rows away, for tests.
    #[cfg(test)]
    pub fn idle() -> Writer {
        Writer(Arc::default())
    }

    /// Takes rows for a table of the store, one a line, and writes them later. Never waits.
    pub fn add(&self, table: &str, lines: String) {
        let mut gathered = lock(&self.0.gathered);
        // So many rows come together only while a disk hangs.
        if gathered.bytes + lines.len() as u64 > MEMORY_BYTES_MAX {
            drop(gathered);
            return self.lose(lines.lines().count() as u64, "the disk of the spool does not answer");
        }
        if !lines.is_empty() {
            gathered.bytes += lines.len() as u64;
            gathered.tables.entry(table.into()).or_default().push_str(&lines);
        }
    }

    /// Makes a block of the rows that were gathered for each table, and adds it to the spool (the blocks on
    /// disk).
    pub fn flush(&self) {
        let Some(spool) = &self.0.spool else { return };
        // The lock is held over both steps, so that two threads cannot change the order.
        let mut spool = lock(spool);
        let tables = std::mem::take(&mut *lock(&self.0.gathered)).tables;
        for (table, lines) in tables {
            let block = Block::new(&table, lines);
            let rows = block.rows();
            if let Err(why) = spool.keep(block) {
                self.lose(rows, &why);
            }
        }
        self.tell(&spool);
        self.0.more.notify_all();
    }

    pub fn written(&self) -> Written {
        let mut lost = lock(&self.0.lost);
        lost.retain(|(at, _)| at.elapsed() < LATELY);
        let dropped_lately = lost.iter().map(|(_, rows)| rows).sum();
        Written { dropped_lately, ..lock(&self.0.written).clone() }
    }

    fn lose(&self, rows: u64, why: &str) {
        eprintln!("outboard monitor: {rows} rows are lost: {why}");
        lock(&self.0.written).dropped_rows += rows;
        lock(&self.0.lost).push_back((Instant::now(), rows));
    }

    fn tell(&self, spool: &Spool) {
        let mut written = lock(&self.0.written);
        (written.spooled_blocks, written.spooled_bytes) = (spool.blocks(), spool.bytes);
    }

    /// Gives the blocks of the spool (on disk) to the store, oldest first, for as long as the monitor runs.
    fn insert(&self, store: &Store) {
        let spool = self.0.spool.as_ref().expect("it was started with one");
        loop {
            let mut held = lock(spool);
            let first = loop {
                match held.first() {
                    Some(first) => break first,
                    None => held = self.0.more.wait(held).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(held);
            let taken = match first {
                Ok(block) => self.put(store, &block),
                // The number of rows of a block that cannot be read is unknown.
                Err(why) => {
                    self.lose(1, &why);
                    Ok(())
                }
            };
            let error = taken.err().unwrap_or_default();
            let is_taken = error.is_empty();
            if is_taken {
                let mut spool = lock(spool);
                spool.remove_first();
                self.tell(&spool);
            }
            let mut written = lock(&self.0.written);
            if written.error != error {
                let words = if is_taken { "the store takes rows again" } else { &error };
                eprintln!("outboard monitor: {words}");
            }
            written.error = error;
            drop(written);
            if !is_taken {
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// Gives one block to the store. If the store calls rows wrong, the block is halved until the wrong rows
    /// stand alone, so that no other row is lost. Errors: the store cannot take rows now.
    fn put(&self, store: &Store, block: &Block) -> Result<(), String> {
        match store.insert(&block.table, &block.token, &block.lines) {
            Ok(()) => {
                lock(&self.0.written).rows += block.rows();
                Ok(())
            }
            Err(InsertRefusal { is_of_rows: false, why }) => Err(why),
            Err(InsertRefusal { why, .. }) => {
                let rows = block.rows() as usize;
                if rows <= 1 {
                    self.lose(1, &format!("{}: {why}", block.table));
                    return Ok(());
                }
                let lines: Vec<&str> = block.lines.split_inclusive('\n').collect();
                for (name, half) in [("a", &lines[..rows / 2]), ("b", &lines[rows / 2..])] {
                    let token = format!("{}{name}", block.token);
                    self.put(store, &Block { table: block.table.clone(), token, lines: half.concat() })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_within_a_second_is_one_block_for_each_table() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Some(Mutex::new(Spool::open(folder.path(), 1 << 20).unwrap()));
        let writer = Writer(Arc::new(WriterState { spool, ..WriterState::default() }));
        for host in 0..1000 {
            writer.add("host_samples", format!("{host}\n"));
            writer.add("jobs", format!("{host}\n"));
        }
        writer.add("jobs", String::new());
        writer.flush();
        writer.flush();
        let spool = lock(writer.0.spool.as_ref().unwrap());
        assert_eq!((spool.blocks(), spool.first().unwrap().unwrap().rows()), (2, 1000));
        drop(spool);
        assert_eq!((writer.written().dropped_rows, writer.written().spooled_blocks), (0, 2));
    }

    #[test]
    fn rows_are_lost_if_the_spool_is_full_and_only_lately_lost_ones_alarm() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Some(Mutex::new(Spool::open(folder.path(), 100).unwrap()));
        let writer = Writer(Arc::new(WriterState { spool, ..WriterState::default() }));
        writer.add("t", "1\n".repeat(20));
        writer.flush();
        assert_eq!(writer.written().dropped_rows, 0);
        writer.add("t", "1\n".repeat(30));
        writer.flush();
        let written = writer.written();
        assert_eq!((written.dropped_rows, written.dropped_lately, written.spooled_blocks), (30, 30, 1));
        let Some(before) = Instant::now().checked_sub(LATELY) else { return };
        lock(&writer.0.lost)[0].0 = before;
        let written = writer.written();
        assert_eq!((written.dropped_rows, written.dropped_lately), (30, 0));
    }

    #[test]
    fn a_row_that_is_none_is_lost_alone() {
        let block = Block::new("t", (0..8).map(|row| format!("row {row}\n")).collect());
        let (told, taken) = std::sync::mpsc::channel();
        let store = Store::answered_by(move |request| {
            if request.contains("row 5\n") {
                return (27, "Cannot parse input".into());
            }
            told.send(request.lines().next().map(String::from)).unwrap();
            (0, String::new())
        });
        let writer = Writer::idle();
        assert_eq!(writer.put(&store, &block), Ok(()));
        assert_eq!((writer.written().rows, writer.written().dropped_rows), (7, 1));
        // The parts of a block have tokens of their own; otherwise the store would take the second part for a
        // repeat.
        let lines: Vec<_> = taken.try_iter().collect();
        assert_eq!(lines.len(), lines.iter().collect::<std::collections::BTreeSet<_>>().len(), "{lines:?}");
        // Too many parts, no memory, a full disk: the rows are not at fault.
        for code in [252, 241, 243] {
            let store = Store::answered_by(move |_| (code, "not now".into()));
            assert!(writer.put(&store, &block).unwrap_err().contains("not now"));
        }
        assert_eq!(writer.written().dropped_rows, 1);
    }
}
