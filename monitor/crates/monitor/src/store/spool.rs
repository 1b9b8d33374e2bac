// SPDX-License-Identifier: BSD-3-Clause
//! The spool: blocks of rows that the store has not taken yet, oldest first. They are files named by a
//! number, and all of them together have a bound.
//!
//! A block is on disk before the store is asked to take it, and stays until the store has it. So it survives
//! the end of the monitor or of the store. A block may be sent twice without harm, because the store
//! remembers its token. A block for which the disk has no room waits in memory, within a bound of its own.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The most bytes of rows that wait in memory because the disk is full.
pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// Rows of one table, which the store gets in one INSERT. The spool keeps the block until the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub table: String,
    /// A text that names this block. The store recognises by it that a block comes a second time.
    pub token: String,
    /// The rows in ClickHouse's TabSeparated format, one a line.
    pub lines: String,
}

impl Block {
    pub fn new(table: &str, lines: String) -> Block {
        Block { table: table.into(), token: crate::secret::random(), lines }
    }

    pub fn rows(&self) -> u64 {
        self.lines.lines().count() as u64
    }

    fn bytes(&self) -> u64 {
        (self.table.len() + self.token.len() + self.lines.len() + 2) as u64
    }
}

enum SpooledBlock {
    Disk(PathBuf),
    Memory(Block),
}

pub struct Spool {
    folder: PathBuf,
    waiting: VecDeque<(SpooledBlock, u64)>,
    /// The bytes of all blocks that wait for the store.
    pub bytes: u64,
    /// The bytes of the blocks that wait in memory, because the disk is full.
    memory_bytes: u64,
    bytes_max: u64,
    next: u64,
}

impl Spool {
    pub fn open(folder: &Path, bytes_max: u64) -> std::io::Result<Spool> {
        std::fs::create_dir_all(folder)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        for entry in std::fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            match name.to_str().and_then(|name| name.parse::<u64>().ok()) {
                Some(number) => found.push((number, entry.path(), entry.metadata()?.len())),
                // A file that a monitor was writing when it was killed.
                None if name.to_str().is_some_and(|name| name.ends_with(".new")) => {
                    std::fs::remove_file(entry.path())?;
                }
                None => {}
            }
        }
        found.sort();
        let next = found.last().map_or(0, |(number, ..)| number + 1);
        let mut waiting = VecDeque::new();
        for (_, path, length) in found {
            bytes += length;
            waiting.push_back((SpooledBlock::Disk(path), length));
        }
        Ok(Spool { folder: folder.into(), waiting, bytes, memory_bytes: 0, bytes_max, next })
    }

    pub fn blocks(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Adds a block at the end of the spool. An error says why there is no room for it; then the block is
    /// lost.
    pub fn keep(&mut self, block: Block) -> Result<(), String> {
        let bytes = block.bytes();
        if self.bytes + bytes > self.bytes_max {
            return Err(format!("the spool is full ({} MB)", self.bytes_max >> 20));
        }
        let place = match self.write(&block) {
            Ok(path) => SpooledBlock::Disk(path),
            Err(why) if self.memory_bytes + bytes > MEMORY_BYTES_MAX => {
                return Err(format!("{}: {why}", self.folder.display()));
            }
            Err(_) => {
                self.memory_bytes += bytes;
                SpooledBlock::Memory(block)
            }
        };
        self.bytes += bytes;
        self.waiting.push_back((place, bytes));
        Ok(())
    }

    /// Writes a block to disk, and returns its path. The file gets its final name only when it is complete.
    fn write(&mut self, block: &Block) -> std::io::Result<PathBuf> {
        let path = self.folder.join(self.next.to_string());
        let new = self.folder.join(format!("{}.new", self.next));
        let written = std::fs::File::create(&new).and_then(|mut file| {
            writeln!(file, "{} {}", block.table, block.token)?;
            file.write_all(block.lines.as_bytes())
        });
        if let Err(why) = written.and_then(|()| std::fs::rename(&new, &path)) {
            // The incomplete file takes room of a disk that is full.
            let _ = std::fs::remove_file(&new);
            return Err(why);
        }
        self.next += 1;
        Ok(path)
    }

    /// Returns the oldest block, or None if no block waits. An error says why the block's file cannot be
    /// read.
    pub fn first(&self) -> Option<Result<Block, String>> {
        match &self.waiting.front()?.0 {
            SpooledBlock::Memory(block) => Some(Ok(block.clone())),
            SpooledBlock::Disk(path) => Some(read(path).map_err(|why| format!("{}: {why}", path.display()))),
        }
    }

    /// Removes the oldest block. Called when the store has taken the block or will never take it.
    pub fn remove_first(&mut self) {
        let Some((place, bytes)) = self.waiting.pop_front() else { return };
        self.bytes -= bytes;
        match place {
            // If the file stays, it is sent again after a restart, and the store knows its token.
            SpooledBlock::Disk(path) => drop(std::fs::remove_file(path)),
            SpooledBlock::Memory(_) => self.memory_bytes -= bytes,
        }
    }
}

fn read(path: &Path) -> Result<Block, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (head, lines) = text.split_once('\n').ok_or("it has no first line")?;
    let (table, token) = head.split_once(' ').ok_or("its first line has no token")?;
    Ok(Block { table: table.into(), token: token.into(), lines: lines.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &str) -> Block {
        Block::new("t", lines.into())
    }

    #[test]
    fn a_spool_keeps_order_and_tokens_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        let all: Vec<_> = (0..12).map(|number| block(&format!("{number}\n"))).collect();
        all.iter().for_each(|one| spool.keep(one.clone()).unwrap());
        std::fs::write(folder.path().join("12.new"), "t 7\nha").unwrap();
        let mut spool = Spool::open(folder.path(), 100).unwrap();
        assert_eq!(spool.blocks(), 12);
        for one in &all {
            assert_eq!(spool.first(), Some(Ok(one.clone())));
            spool.remove_first();
        }
        assert_eq!((spool.bytes, std::fs::read_dir(folder.path()).unwrap().count()), (0, 0));
        assert!(spool.keep(block(&"1\n".repeat(20))).is_ok());
        assert!(spool.keep(block(&"2\n".repeat(20))).unwrap_err().contains("full"), "the bound");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "what has no room leaves nothing");
    }

    #[test]
    fn what_the_disk_does_not_take_waits_in_memory_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&folder.path().join("a"), 1 << 30).unwrap();
        spool.keep(block("1\n")).unwrap();
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        spool.keep(block("2\n")).unwrap();
        std::fs::rename(folder.path().join("b"), folder.path().join("a")).unwrap();
        spool.keep(block("3\n")).unwrap();
        for lines in ["1\n", "2\n", "3\n"] {
            assert_eq!(spool.first().unwrap().unwrap().lines, lines);
            spool.remove_first();
        }
        std::fs::remove_dir(folder.path().join("a")).unwrap();
        let half = "x".repeat(MEMORY_BYTES_MAX as usize / 2 - 100);
        assert!(spool.keep(block(&half)).is_ok() && spool.keep(block(&half)).is_ok());
        assert!(spool.keep(block(&half)).is_err());
        spool.remove_first();
        assert!(spool.keep(block(&half)).is_ok());
    }

    #[test]
    fn a_file_that_is_no_block_is_said() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("0"), "ports\n1\n").unwrap();
        let spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert!(spool.first().unwrap().unwrap_err().contains("no token"));
    }
}
