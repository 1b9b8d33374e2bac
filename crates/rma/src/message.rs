// SPDX-License-Identifier: BSD-3-Clause
//! Messages between members of a window on different hosts: their format, and how a process reads and checks
//! them. All words are in the sender's byte order, which is the receiver's, too: a connection checks that.
//!
//! | field | unit | meaning |
//! |---|---|---|
//! | kind, key, argument | 3 words | `MessageKind`; the window; by kind |
//! | update | word | operator (bits 8 to 15) and machine type (bits 0 to 7) of an accumulate or swap, or 0 |
//! | pieces, bytes | 2 words | the number of ranges of the target's memory; their bytes together |
//! | each piece | 2 words | a range: its offset in the target's memory (dynamic window: address), its bytes |
//! | data | bytes | what is put, combined, compared or fetched, or an error's sentence |

use crate::update::Update;
use datatype::{Basic, PredefinedOp, check_op};
use error::{Class, Error, Result, fail};
use sys::{Block, Span};

const HEADER_WORDS: usize = 6;
const HEADER_BYTES: usize = HEADER_WORDS * 8;

/// The most bytes of the target that one request moves.
pub(crate) const PART_BYTES: usize = 32 << 10;
/// The most contiguous ranges of the target's memory that one request names.
pub(crate) const PIECES_MAX: usize = 1 << 10;
/// The length, in bytes, of the longest message. It is within the eager limit, so a message arrives as a
/// whole.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + 16 * PIECES_MAX + PART_BYTES;
/// The most bytes of an error's sentence that an answer carries.
const SENTENCE_BYTES: usize = 512;

/// The kind of a message. The kinds up to `Complete` are requests of an origin, which the target answers in
/// order with `Done`, `Fetched` or `Failed`. The later kinds are messages of the target, which nobody
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MessageKind {
    Put,
    Get,
    /// The request of MPI_Accumulate, with the elements to combine as data.
    Accumulate,
    /// The request of MPI_Get_accumulate, with the elements to combine as data.
    FetchAndOp,
    /// The request of MPI_Compare_and_swap. Its data are the element to compare with, then the element to
    /// put.
    Swap,
    /// The request of MPI_Win_lock. Its argument is 1 for an exclusive lock, and 0 for a shared lock.
    Lock,
    Unlock,
    Post,
    Complete,
    /// An answer: the target has carried out the oldest unanswered requests. The argument is how many.
    Done,
    /// An answer: the target has carried out the oldest unanswered request. The answer's data are what the
    /// request has fetched.
    Fetched,
    /// An answer: the oldest unanswered request has failed. Its argument is the error's class, its data the
    /// error's sentence.
    Failed,
    /// A notice of the target: the origin now holds the lock for which it sent a `Lock` earlier.
    Granted,
}

impl MessageKind {
    const ALL: [MessageKind; 13] = {
        use MessageKind::*;
        [Put, Get, Accumulate, FetchAndOp, Swap, Lock, Unlock, Post, Complete, Done, Fetched, Failed, Granted]
    };

    /// Whether a message of this kind is a request, which its receiver must answer.
    pub fn is_request(self) -> bool {
        !matches!(self, MessageKind::Done | MessageKind::Fetched | MessageKind::Failed | MessageKind::Granted)
    }
}

/// A contiguous range of the target's memory: the range's offset from the start of that memory (in a dynamic
/// window, its address), and its length in bytes.
pub(crate) type MessagePiece = (usize, usize);

/// A message about a window that is to be sent to a member on another host.
pub(crate) struct OutgoingMessage<'a> {
    pub kind: MessageKind,
    pub key: u64,
    pub argument: u64,
    pub update: Option<Update>,
    pub pieces: &'a [MessagePiece],
}

impl<'a> OutgoingMessage<'a> {
    /// Makes a message about the window `key` that has only a kind and an argument.
    pub fn short(kind: MessageKind, key: u64, argument: u64) -> OutgoingMessage<'a> {
        OutgoingMessage { kind, key, argument, update: None, pieces: &[] }
    }

    /// Writes the message into a new block. Returns the block, and the part of the block for the `bytes`
    /// bytes of data, which the caller fills.
    pub fn with_data(&self, bytes: usize) -> (Block, Span) {
        let before = HEADER_BYTES + 16 * self.pieces.len();
        let block = Block::new(before + bytes);
        let update = self.update.map_or(0, |Update { op, basic }| (op as u64) << 8 | basic as u64);
        let moved: usize = self.pieces.iter().map(|piece| piece.1).sum();
        let header =
            [self.kind as u64, self.key, self.argument, update, self.pieces.len() as u64, moved as u64];
        let pieces = self.pieces.iter().flat_map(|&(offset, bytes)| [offset as u64, bytes as u64]);
        let words = header.into_iter().chain(pieces).flat_map(u64::to_ne_bytes).collect::<Vec<u8>>();
        block.span().slice(0, before).write(&words);
        let data = block.span().slice(before, bytes);
        (block, data)
    }

    pub fn block(&self) -> Block {
        self.with_data(0).0
    }
}

/// Makes the answer to a request about the window `key` that was not carried out because of `error`.
pub(crate) fn failed(key: u64, error: &Error) -> Block {
    let sentence = error.to_string();
    let mut end = sentence.len().min(SENTENCE_BYTES);
    while !sentence.is_char_boundary(end) {
        end -= 1;
    }
    let (block, data) = OutgoingMessage::short(MessageKind::Failed, key, error.class as u64).with_data(end);
    data.write(&sentence.as_bytes()[..end]);
    block
}

/// A message about a window, which has come from a member on another host and was checked.
#[derive(Debug)]
pub struct IncomingMessage {
    pub(crate) kind: MessageKind,
    /// The key of the window, which is the same at all its members.
    pub key: u64,
    pub(crate) argument: u64,
    update: u64,
    pub(crate) pieces: Vec<MessagePiece>,
    /// The number of bytes in all ranges of the target's memory together.
    pub(crate) bytes: usize,
    /// The message's data, which are still in the memory from which the message was read.
    pub(crate) data: Span,
}

impl IncomingMessage {
    /// Reads a message. Errors (MPI_ERR_INTERN): the bytes are not a valid message.
    pub fn read(message: Span) -> Result<IncomingMessage> {
        let mut words = [0; HEADER_WORDS];
        if message.bytes() < HEADER_BYTES {
            fail!(Class::Intern, "{} bytes are no message about a window", message.bytes());
        }
        read_words(message, &mut words);
        let [kind, key, argument, update, count, bytes] = words;
        let Some(kind) = MessageKind::ALL.get(usize::try_from(kind).unwrap_or(usize::MAX)).copied() else {
            fail!(Class::Intern, "a message about a window of kind {kind}, which there is not");
        };
        let rest = message.bytes() - HEADER_BYTES;
        if count > PIECES_MAX as u64 || count as usize * 16 > rest || bytes > PART_BYTES as u64 {
            fail!(
                Class::Intern,
                "a message about a window with {count} pieces of {bytes} bytes in {rest} bytes"
            );
        }
        let mut words = vec![0; count as usize * 2];
        read_words(message.slice(HEADER_BYTES, words.len() * 8), &mut words);
        let pieces = words.chunks_exact(2).map(|piece| (piece[0] as usize, piece[1] as usize)).collect();
        let before = HEADER_BYTES + words.len() * 8;
        let data = message.slice(before, message.bytes() - before);
        let message = IncomingMessage { kind, key, argument, update, pieces, bytes: bytes as usize, data };
        let total = message.pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.1));
        if total != Some(message.bytes) {
            fail!(Class::Intern, "a message about a window whose pieces are not {bytes} bytes");
        }
        Ok(message)
    }

    /// Reads the operator and the machine type of an accumulate. Errors: a number is invalid, the operator
    /// does not take the type, or the bytes are not whole elements (MPI_ERR_OP, MPI_ERR_TYPE).
    pub fn update(&self) -> Result<Update> {
        let number = |by: u32| u8::try_from(self.update >> by & 0xff).expect("a byte");
        let Some(op) = PredefinedOp::from_number(number(8)).filter(|_| self.update >> 16 == 0) else {
            fail!(Class::Op, "operator number {} of an accumulate, which there is not", self.update >> 8);
        };
        let basic = self.basic()?;
        check_op(op, basic)?;
        if !self.bytes.is_multiple_of(basic.size()) {
            fail!(Class::Type, "{} bytes are no whole elements of {} bytes", self.bytes, basic.size());
        }
        Ok(Update { op, basic })
    }

    /// Reads the machine type of the request's elements. Errors: its number is invalid (MPI_ERR_TYPE).
    pub fn basic(&self) -> Result<Basic> {
        match Basic::from_number(self.update as u8) {
            Some(basic) => Ok(basic),
            None => fail!(Class::Type, "machine type number {}, which there is not", self.update & 0xff),
        }
    }

    /// Reads the error that a message of the kind `Failed` carries.
    pub fn error(&self) -> Error {
        let class = i32::try_from(self.argument).ok().and_then(Class::numbered).unwrap_or(Class::Intern);
        let mut sentence = vec![0; self.data.bytes().min(SENTENCE_BYTES)];
        self.data.slice(0, sentence.len()).read(&mut sentence);
        Error::new(class, String::from_utf8_lossy(&sentence))
    }
}

fn read_words(from: Span, to: &mut [u64]) {
    let mut bytes = vec![0; to.len() * 8];
    from.slice(0, bytes.len()).read(&mut bytes);
    for (word, bytes) in to.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of 8"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    #[test]
    fn what_is_written_is_read() {
        let update = Update { op: PredefinedOp::Sum, basic: Basic::from_number(3).unwrap() };
        let pieces = [(64, 8), (usize::MAX - 15, 16)];
        let message = OutgoingMessage {
            kind: MessageKind::FetchAndOp,
            key: 7,
            argument: 9,
            update: Some(update),
            pieces: &pieces,
        };
        let (block, data) = message.with_data(24);
        data.write(&[5; 24]);
        let read = IncomingMessage::read(block.span()).unwrap();
        assert_eq!((read.kind, read.key, read.argument, read.bytes), (MessageKind::FetchAndOp, 7, 9, 24));
        assert_eq!(read.pieces, pieces);
        assert_eq!(read.data.bytes(), 24);
        assert_eq!(read.update().unwrap(), update);
        let error = Error::new(Class::RmaRange, "é".repeat(400));
        let told = IncomingMessage::read(failed(1, &error).span()).unwrap().error();
        assert_eq!((told.class, told.to_string().len()), (Class::RmaRange, SENTENCE_BYTES));
    }

    // Goal: no message makes the reader crash or believe in bytes that are not there. Method: random changes
    // of a valid message.
    #[test]
    fn spoilt_messages_are_refused() {
        let mut random = SmallRng::seed_from_u64(1);
        let pieces = [(0, 8), (16, 8), (32, 16)];
        let message = OutgoingMessage { pieces: &pieces, ..OutgoingMessage::short(MessageKind::Put, 1, 2) };
        let good = message.with_data(32).0.to_vec();
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            match IncomingMessage::read(Block::of(&bytes).span()) {
                Err(_) => refused += 1,
                Ok(read) => {
                    assert!(read.bytes <= PART_BYTES && read.pieces.len() <= PIECES_MAX);
                    assert_eq!(read.pieces.iter().map(|piece| piece.1).sum::<usize>(), read.bytes);
                    let _ = (read.update(), read.error());
                }
            }
        }
        assert!(refused > 10_000, "{refused}");
    }
}
