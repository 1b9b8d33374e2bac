// SPDX-License-Identifier: BSD-3-Clause
//! A thread that copies private memory for peers, where the kernel refuses cross-memory attach, as it does
//! for a device's memory.
//!
//! The requesting process writes a request into its mailbox, in its own arena: addresses in the owner's
//! memory, and the bytes. It stores the mailbox's offset in its word of the owner's inbox, wakes the owner's
//! thread, and sleeps until the mailbox's state is DONE or REFUSED.
//!
//! Invariants: the thread copies only memory that the owner exposes, whatever a request says. It takes no
//! lock of MPI calls, so it serves while its owner computes or waits.

use error::{Class, Error, Result, fail};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::{Span, futex};
use transport::shm::{Allocator, Arena, LocalRank, Segment};

const PIECES_MAX: usize = 256;
const BYTES_MAX: usize = 64 << 10;

// Words of a mailbox: state, direction, number of pieces; then each piece (address, bytes); then the bytes.
const STATE: usize = 0;
const WAY: usize = 1;
const COUNT: usize = 2;
const PIECES: usize = 8;
const MAILBOX_WORDS: usize = PIECES + 2 * PIECES_MAX;
const MAILBOX_BYTES: u64 = (MAILBOX_WORDS * 8 + BYTES_MAX) as u64;

// States of a mailbox.
const ASKED: u64 = 1;
const DONE: u64 = 2;
const REFUSED: u64 = 3;

/// The index in an inbox at which the words of the ranks begin. Each rank has one word, into which it stores
/// its mailbox's offset.
const SLOTS: usize = 16;
/// The index of an inbox's bell: a word that counts the requests so far, and on which the owner's thread
/// sleeps.
const BELL: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Bytes go from the target to the origin.
    Fetch,
    /// Bytes go from the origin to the target.
    Put,
}

/// A contiguous part of another process's private memory: the part's address in that process, and its length
/// in bytes.
pub(crate) type RemotePiece = (usize, usize);

/// The private memory that this process's thread may copy for peers. Each entry has the number of the window
/// that exposes the memory, and the memory's span.
type ExposedMemory = Arc<Mutex<Vec<(u64, Span)>>>;

/// Copies this process's private memory for peers that cannot reach it themselves. Holds the list of the
/// memory that the windows expose. The thread that copies starts when the first peer needs it.
#[derive(Default)]
pub(crate) struct MemoryServer {
    exposed: ExposedMemory,
    running: Option<RunningServer>,
}

struct RunningServer {
    inbox: u64,
    arena: Arena,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryServer {
    /// Lets the thread that copies for peers reach the memory `span`, as part of the window with this number.
    pub fn expose(&self, window: u64, span: Span) {
        self.regions().push((window, span));
    }

    /// Forbids the thread that copies for peers to reach the memory `span` of a window, or if `span` is None
    /// all memory of the window.
    pub fn conceal(&self, window: u64, span: Option<Span>) {
        self.regions().retain(|&(other, region)| other != window || span.is_some_and(|span| span != region));
    }

    fn regions(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Span)>> {
        self.exposed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that copies memory for peers, unless it runs already, and publishes its inbox.
    /// Returns the inbox's offset in this process's arena.
    pub fn start(&mut self, segment: &Segment, rank: LocalRank, allocator: &mut Allocator) -> Result<u64> {
        if let Some(running) = &self.running {
            return Ok(running.inbox);
        }
        let ranks = segment.shape().ranks as usize;
        let inbox = allocator.alloc((SLOTS + ranks) as u64 * 8)?;
        let arena = allocator.arena().clone();
        let words = arena.words(inbox, SLOTS + ranks).expect("allocated, so mapped");
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let ended = Arc::new(AtomicBool::new(false));
        let server = ServerThread { segment: segment.clone(), rank, inbox, exposed: self.exposed.clone() };
        let stop = ended.clone();
        let thread = std::thread::Builder::new().name("outboard-rma".into()).spawn(move || server.run(&stop));
        let thread = thread.map_err(|error| {
            Error::new(Class::Other, format!("cannot start the thread that serves windows: {error}"))
        })?;
        segment.rank(rank).inbox.store(inbox, Ordering::Release);
        self.running = Some(RunningServer { inbox, arena, ended, thread: Some(thread) });
        Ok(inbox)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Ok(bell) = self.arena.word(self.inbox + BELL as u64 * 8) {
            bell.fetch_add(1, Ordering::Release);
            futex::wake_low(bell, 1);
        }
        // A thread that panicked has reported that itself.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct ServerThread {
    segment: Segment,
    rank: LocalRank,
    inbox: u64,
    exposed: ExposedMemory,
}

impl ServerThread {
    fn run(self, ended: &AtomicBool) {
        sys::signal::block_all();
        let ranks = self.segment.shape().ranks as usize;
        let Ok(arena) = self.segment.arena(self.rank) else { return };
        let Ok(words) = arena.words(self.inbox, SLOTS + ranks) else { return };
        while !ended.load(Ordering::Acquire) {
            let rung = words[BELL].load(Ordering::Acquire);
            for (asker, slot) in self.segment.places().zip(&words[SLOTS..]) {
                if slot.load(Ordering::Relaxed) != 0 {
                    self.answer(asker, slot.swap(0, Ordering::AcqRel));
                }
            }
            futex::wait_low(&words[BELL], rung, None);
        }
    }

    fn answer(&self, asker: LocalRank, offset: u64) {
        let Ok(arena) = self.segment.arena(asker) else { return };
        let Ok(mailbox) = Mailbox::open(&arena, offset) else { return };
        let state = if self.copy(&mailbox) { DONE } else { REFUSED };
        mailbox.words[STATE].store(state, Ordering::Release);
        futex::wake_low(&mailbox.words[STATE], 1);
    }

    /// Carries out the request in a mailbox: copies between the mailbox's bytes and the memory that the
    /// request names. Returns false if some of that memory is not exposed.
    fn copy(&self, mailbox: &Mailbox) -> bool {
        let exposed = self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        for index in 0..(mailbox.words[COUNT].load(Ordering::Relaxed) as usize).min(PIECES_MAX) {
            let (address, bytes) = mailbox.piece(index);
            let inside = |span: &Span| {
                let at = address.wrapping_sub(span.address());
                (at <= span.bytes() && bytes <= span.bytes() - at).then(|| span.slice(at, bytes))
            };
            let Some(here) = exposed.iter().find_map(|(_, span)| inside(span)) else { return false };
            if bytes > mailbox.bytes.bytes() - done {
                return false;
            }
            let there = mailbox.bytes.slice(done, bytes);
            // The memory may be a device's; if it was freed, the copy is refused.
            let is_put = mailbox.words[WAY].load(Ordering::Relaxed) == Direction::Put as u64;
            let copied = if is_put { device::copy(here, there) } else { device::copy(there, here) };
            if copied.is_err() {
                return false;
            }
            done += bytes;
        }
        true
    }
}

struct Mailbox<'a> {
    words: &'a [AtomicU64],
    bytes: Span,
}

impl Mailbox<'_> {
    fn open(arena: &Arena, offset: u64) -> Result<Mailbox<'_>> {
        let words = arena.words(offset, MAILBOX_WORDS)?;
        let bytes = arena.span(offset.saturating_add(MAILBOX_WORDS as u64 * 8), BYTES_MAX as u64)?;
        Ok(Mailbox { words, bytes })
    }

    fn piece(&self, index: usize) -> RemotePiece {
        let word = |at: usize| self.words[PIECES + 2 * index + at].load(Ordering::Relaxed) as usize;
        (word(0), word(1))
    }
}

/// This process's mailbox, by which it asks the threads of other processes to copy the private memory of
/// those processes.
pub(crate) struct OwnMailbox {
    arena: Arena,
    offset: u64,
}

impl OwnMailbox {
    pub fn new(allocator: &mut Allocator) -> Result<OwnMailbox> {
        let offset = allocator.alloc(MAILBOX_BYTES)?;
        Ok(OwnMailbox { arena: allocator.arena().clone(), offset })
    }

    /// Moves bytes between `span` and private memory of `peer`, whose contiguous parts are `pieces`. The
    /// parts together are as long as `span`. The peer's thread copies the bytes; its inbox is at offset
    /// `inbox` of the peer's arena.
    pub fn transfer(
        &self,
        segment: &Segment,
        peer: LocalRank,
        inbox: u64,
        pieces: &[RemotePiece],
        span: Span,
        way: Direction,
    ) -> Result<()> {
        let mailbox = Mailbox::open(&self.arena, self.offset)?;
        // Long pieces are cut; as many pieces as fit make one request.
        let (mut next, mut skipped, mut done) = (0, 0, 0);
        while next < pieces.len() {
            let (mut count, mut bytes) = (0, 0);
            while next < pieces.len() && count < PIECES_MAX && bytes < BYTES_MAX {
                let (address, length) = pieces[next];
                let part = (length - skipped).min(BYTES_MAX - bytes);
                mailbox.words[PIECES + 2 * count]
                    .store((address.wrapping_add(skipped)) as u64, Ordering::Relaxed);
                mailbox.words[PIECES + 2 * count + 1].store(part as u64, Ordering::Relaxed);
                (count, bytes, skipped) = (count + 1, bytes + part, skipped + part);
                if skipped == length {
                    (next, skipped) = (next + 1, 0);
                }
            }
            let here = span.slice(done, bytes);
            if way == Direction::Put {
                here.copy_to(mailbox.bytes.slice(0, bytes));
            }
            mailbox.words[WAY].store(way as u64, Ordering::Relaxed);
            mailbox.words[COUNT].store(count as u64, Ordering::Relaxed);
            self.ask(segment, peer, inbox, &mailbox)?;
            if way == Direction::Fetch {
                mailbox.bytes.slice(0, bytes).copy_to(here);
            }
            done += bytes;
        }
        Ok(())
    }

    fn ask(&self, segment: &Segment, peer: LocalRank, inbox: u64, mailbox: &Mailbox) -> Result<()> {
        let theirs = segment.arena(peer)?;
        let words = theirs.words(inbox, SLOTS + self.arena.rank().index() + 1)?;
        let (bell, slot) = (&words[BELL], &words[SLOTS + self.arena.rank().index()]);
        let state = &mailbox.words[STATE];
        state.store(ASKED, Ordering::Relaxed);
        slot.store(self.offset, Ordering::Release);
        bell.fetch_add(1, Ordering::Release);
        futex::wake_low(bell, 1);
        loop {
            match state.load(Ordering::Acquire) {
                DONE => return Ok(()),
                REFUSED => {
                    fail!(
                        Class::RmaRange,
                        "peer {peer} says that this memory is in none of its windows, or is a device's and freed"
                    )
                }
                _ => {}
            }
            if let Some((rank, code)) = segment.world_of(self.arena.rank()).aborted() {
                fail!(Class::ProcAborted, "{} ended the job with code {code}", segment.name(rank));
            }
            futex::wait_low(state, ASKED, Some(Duration::from_millis(10)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::shm::Shape;

    fn span(bytes: &mut [u8]) -> Span {
        // Leaked: a span must stay mapped.
        Span::of(Box::leak(bytes.to_vec().into_boxed_slice()))
    }

    // Goal: bytes arrive for any pieces, and memory that is not exposed is unchanged. Method: two ranks in
    // one process.
    #[test]
    fn a_thread_copies_what_is_exposed_and_nothing_else() {
        let (segment, _fd) = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 4 << 20 }).unwrap();
        let places = [0, 1].map(|rank| segment.require(rank).unwrap());
        let mut allocators = places.map(|rank| Allocator::new(segment.arena(rank).unwrap(), 16 << 20));
        let mut server = MemoryServer::default();
        let inbox = server.start(&segment, places[1], &mut allocators[1]).unwrap();
        assert_eq!(server.start(&segment, places[1], &mut allocators[1]).unwrap(), inbox);
        let asker = OwnMailbox::new(&mut allocators[0]).unwrap();
        let theirs = span(&mut (0..200_000u32).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>());
        let ours = span(&mut vec![0; 150_000]);
        let pieces = [
            (theirs.address() + 3, 100_000),
            (theirs.address() + 120_000, 0),
            (theirs.address() + 110_000, 50_000),
        ];
        let ask =
            |pieces: &[RemotePiece], span, way| asker.transfer(&segment, places[1], inbox, pieces, span, way);
        assert_eq!(ask(&pieces, ours, Direction::Fetch).unwrap_err().class, Class::RmaRange);
        server.expose(1, theirs);
        ask(&pieces, ours, Direction::Fetch).unwrap();
        let read = |span: Span| {
            let mut bytes = vec![0; span.bytes()];
            span.read(&mut bytes);
            bytes
        };
        assert_eq!(read(ours.slice(0, 100_000)), read(theirs.slice(3, 100_000)));
        assert_eq!(read(ours.slice(100_000, 50_000)), read(theirs.slice(110_000, 50_000)));
        let many: Vec<RemotePiece> = (0..1000).map(|i| (theirs.address() + i * 20, 3)).collect();
        ask(&many, span(&mut vec![9; 3000]), Direction::Put).unwrap();
        let now = read(theirs);
        assert!((0..20_000).all(|i| (now[i] == 9) == (i % 20 < 3) || i % 20 >= 3));
        server.conceal(1, Some(theirs));
        assert!(ask(&many, ours.slice(0, 3000), Direction::Fetch).is_err());
    }
}
