// SPDX-License-Identifier: BSD-3-Clause
//! Agreement among the members of a comm: either all succeed in a call, or all fail. Opening files, making
//! windows, spawning and connecting need this.
//!
//! A member that failed alone would leave the others waiting. So each member sends its outcome to the others.
//! A member that failed returns its own error. Another member returns the error of the first member that
//! failed.
//!
//! Invariant: all members call the functions here in the same order, whatever their outcomes are.

use crate::args::Handle;
use crate::process::Guard;
use crate::request::{Planned, to_bytes, to_words};
use coll::{Call, CollBuffer, Members};
use datatype::Buffer;
use error::{Class, Error, Result};
use schedule::algorithm::Collective;
use sys::Block;

/// The processes that tell each other whether a call has succeeded on each of them.
pub(crate) enum Among<'a> {
    /// The members of a comm with a handle.
    Comm(Handle),
    /// The members of a comm that has no handle, such as the private comm of a file.
    Members(&'a mut Members),
}

impl From<Handle> for Among<'_> {
    fn from(comm: Handle) -> Self {
        Among::Comm(comm)
    }
}

impl<'a> From<&'a mut Members> for Among<'a> {
    fn from(members: &'a mut Members) -> Self {
        Among::Members(members)
    }
}

impl Guard {
    /// Sends `words` to all members, and returns the words of each member, in the order of ranks. Collective.
    pub(crate) fn gather_from_all<'a>(
        &mut self,
        among: impl Into<Among<'a>>,
        words: &[u64],
    ) -> Result<Vec<Vec<u64>>> {
        among.into().gather(self, words)
    }

    /// Exchanges the members' outcomes. If some member's outcome is an error, fails on all members. Otherwise
    /// returns this member's value and, for each member in the order of ranks, the words that the member's
    /// function `words` has made of its value. Collective.
    pub(crate) fn all_succeed<'a, const WORDS: usize, T>(
        &mut self,
        among: impl Into<Among<'a>>,
        outcome: Result<T>,
        words: impl FnOnce(&T) -> [u64; WORDS],
    ) -> Result<(T, Vec<[u64; WORDS]>)> {
        let mut among = among.into();
        let mut mine = verdict(&outcome, 0).to_vec();
        mine.extend(outcome.as_ref().map_or([0; WORDS], words));
        let all = among.gather(self, &mine)?;
        let Some(rank) = all.iter().position(|words| words[0] != 0) else {
            return Ok((outcome?, all.iter().map(|words| std::array::from_fn(|at| words[at + 2])).collect()));
        };
        let (code, length) = (all[rank][0], all[rank][1] as usize);
        let sentence = Block::new(length);
        if let (Err(error), true) = (&outcome, among.rank(self)? as usize == rank) {
            sentence.span().write(error.message.as_bytes());
        }
        among.broadcast(self, rank as u32, &sentence)?;
        outcome?;
        let sentence = sentence.to_vec();
        let sentence = String::from_utf8_lossy(&sentence);
        Err(remote_error(
            code,
            format!("rank {rank} of the comm failed, and the call succeeds on all or none: {sentence}"),
        ))
    }

    /// Returns, on all members, the bytes that the member `root` passes as `found`; the other members pass
    /// None. If the member `root` passes an error instead, this function returns the error on all members.
    /// Collective.
    pub(crate) fn broadcast_from_root<'a>(
        &mut self,
        among: impl Into<Among<'a>>,
        root: u32,
        found: Option<Result<Vec<u8>>>,
    ) -> Result<Vec<u8>> {
        let mut among = among.into();
        let (mut header, mut bytes) = ([0; 2], Vec::new());
        if let Some(found) = &found {
            bytes = found.as_ref().map_or_else(|error| error.message.clone().into_bytes(), Vec::clone);
            header = verdict(found, bytes.len());
        }
        let sent_header = Block::of(&to_bytes(&header.map(|word| word as i64)));
        among.broadcast(self, root, &sent_header)?;
        let [code, length] = to_words(&sent_header.to_vec())[..] else { unreachable!("two words") };
        bytes.resize(length as usize, 0);
        let bytes = Block::of(&bytes);
        among.broadcast(self, root, &bytes)?;
        match (found, code) {
            (Some(found), _) => found,
            (None, 0) => Ok(bytes.to_vec()),
            (None, code) => {
                Err(remote_error(code as u64, String::from_utf8_lossy(&bytes.to_vec()).into_owned()))
            }
        }
    }
}

impl Among<'_> {
    /// Returns this process's rank among the members.
    fn rank(&self, guard: &Guard) -> Result<u32> {
        match self {
            Among::Comm(comm) => Ok(guard.objects.comm(*comm)?.rank),
            Among::Members(members) => Ok(members.rank),
        }
    }

    fn gather(&mut self, guard: &mut Guard, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        let bytes = 8 * words.len();
        let mine = Block::of(&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>());
        let size = match self {
            Among::Comm(comm) => guard.objects.comm(*comm)?.size() as usize,
            Among::Members(members) => members.peers.len(),
        };
        let all = Block::new(bytes * size);
        match self {
            Among::Comm(comm) => finish(guard, Planned::gathering_bytes(*comm, &mine, &all))?,
            Among::Members(members) => {
                let input = CollBuffer::bytes(Buffer::from(mine.span()));
                let output = CollBuffer::PerRank(Buffer::from(all.span()));
                carry_out(guard, members, Call::new(Collective::Allgather, input, output))?;
            }
        }
        let rank = |bytes: &[u8]| to_words(bytes).into_iter().map(|word| word as u64).collect();
        Ok(all.to_vec().chunks_exact(bytes).map(rank).collect())
    }

    fn broadcast(&mut self, guard: &mut Guard, root: u32, bytes: &Block) -> Result<()> {
        match self {
            Among::Comm(comm) => finish(guard, Planned::spreading_bytes(*comm, root, bytes)),
            Among::Members(members) => {
                let output = CollBuffer::bytes(Buffer::from(bytes.span()));
                carry_out(
                    guard,
                    members,
                    Call { root, ..Call::new(Collective::Bcast, CollBuffer::None, output) },
                )
            }
        }
    }
}

/// Converts an outcome into two words to send: 0 and `bytes` for a value, its code and the length of its
/// message for an error.
fn verdict<T>(outcome: &Result<T>, bytes: usize) -> [u64; 2] {
    match outcome {
        Ok(_) => [0, bytes as u64],
        Err(error) => [error.code() as u64, error.message.len() as u64],
    }
}

/// Makes an error from the code and the message that another member has sent.
fn remote_error(code: u64, sentence: String) -> Error {
    match Class::numbered(code as i32) {
        Some(class) => Error::new(class, sentence),
        None => Error::new(Class::Other, sentence).with_code(code as i32),
    }
}

fn finish(guard: &mut Guard, planned: Planned) -> Result<()> {
    let work = planned.blocking().start(guard)?;
    guard.finish(work).error.map_or(Ok(()), Err)
}

fn carry_out(guard: &mut Guard, members: &mut Members, call: Call) -> Result<()> {
    members.sequence += 1;
    let ticket = guard.job().coll.start(members, Call { blocking: true, ..call })?;
    guard.wait(|process| process.job().coll.outcome(ticket))
}
