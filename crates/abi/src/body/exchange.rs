// SPDX-License-Identifier: BSD-3-Clause
//! Exchanges of a few 64-bit integers ("words") among the members of a comm, for the library's own use.

use crate::args::Handle;
use crate::process::Guard;
use crate::request::{Planned, to_bytes, to_words};
use crate::request::{Receive, ReceiveSource, Send, Work};
use crate::staging::Unfilled;
use datatype::Buffer;
use error::{Class, Result, fail};
use p2p::Mode;
use sys::Block;

/// Gathers the words of all members. Returns them in the order of ranks, or, on an intercommunicator, in the
/// order of `Comm::all_peers`. All members pass equally many words. Collective.
pub(crate) fn gather_words(guard: &mut Guard, comm: Handle, words: &[i64]) -> Result<Vec<i64>> {
    let mine = Block::of(&to_bytes(words));
    let all = Block::new(mine.span().bytes() * guard.objects.comm(comm)?.all_peers.len());
    carry_out(guard, Planned::gathering_bytes(comm, &mine, &all))?;
    Ok(to_words(&all.to_vec()))
}

/// Carries out a collective that the library itself calls, and waits for its end.
fn carry_out(guard: &mut Guard, planned: Planned) -> Result<()> {
    let work = planned.blocking().start(guard)?;
    guard.finish(work).error.map_or(Ok(()), Err)
}

/// Gathers words like `gather_words`, for a call that makes a new comm of `comm`. Fails if the members have
/// not made equally many comms of `comm` so far: they would choose different contexts for the new comm.
pub(crate) fn gather_for_new_comm(guard: &mut Guard, comm: Handle, words: &[i64]) -> Result<Vec<i64>> {
    let mine = guard.objects.comm(comm)?.next_fingerprint();
    let all = gather_words(guard, comm, &[words, &[mine]].concat())?;
    let (words, fingerprints): (Vec<_>, Vec<_>) =
        all.chunks_exact(words.len() + 1).map(|member| (&member[..words.len()], member[words.len()])).unzip();
    check_fingerprints(guard, comm, mine, fingerprints.into_iter().enumerate())?;
    Ok(words.concat())
}

/// Fails unless the fingerprints of all members are `mine`. A member's fingerprint is a hash of what it has
/// made of `comm` so far. `fingerprints` has pairs: the member's index in `Comm::all_peers`, its fingerprint.
pub(crate) fn check_fingerprints(
    guard: &Guard,
    comm: Handle,
    mine: i64,
    fingerprints: impl IntoIterator<Item = (usize, i64)>,
) -> Result<()> {
    if let Some((at, _)) = fingerprints.into_iter().find(|(_, theirs)| *theirs != mine) {
        let peer = guard.objects.comm(comm)?.all_peers[at];
        fail!(
            Class::Other,
            "process {peer} of the job has made communicators, windows, files and persistent collectives of \
             {comm} in another order or number than this process, so the two would not make the same one now"
        );
    }
    Ok(())
}

/// Sends the words `outgoing[rank]` to each rank. Returns, by rank, the words that each rank sends to this
/// rank. Collective.
pub(crate) fn exchange_words(
    guard: &mut Guard,
    comm: Handle,
    outgoing: &[Vec<i64>],
) -> Result<Vec<Vec<i64>>> {
    let lengths: Vec<i64> = outgoing.iter().map(|words| words.len() as i64).collect();
    let all_lengths = gather_words(guard, comm, &lengths)?;
    let (rank, size) = (guard.objects.comm(comm)?.rank as usize, outgoing.len());
    let send: Vec<Block> = outgoing.iter().map(|words| Block::of(&to_bytes(words))).collect();
    let length = |from: usize| 8 * all_lengths[from * size + rank] as usize;
    let recv: Vec<Block> = (0..size).map(|from| Block::new(length(from))).collect();
    carry_out(guard, Planned::exchanging_bytes(comm, &send, &recv))?;
    Ok(recv.iter().map(|bytes| to_words(&bytes.to_vec())).collect())
}

/// Sends `words` to the process `peer`, which makes the same call. Returns the words that `peer` sends. No
/// other messages use the context id `context`.
pub(crate) fn swap_words(
    guard: &mut Guard,
    context: u64,
    peer: u32,
    tag: i32,
    words: &[i64],
) -> Result<Vec<i64>> {
    let length = swap_bytes(guard, context, peer, tag, to_bytes(&[words.len() as i64]), 8)?;
    let bytes = 8 * to_words(&length)[0] as usize;
    Ok(to_words(&swap_bytes(guard, context, peer, tag, to_bytes(words), bytes)?))
}

fn swap_bytes(
    guard: &mut Guard,
    context: u64,
    peer: u32,
    tag: i32,
    mine: Vec<u8>,
    expected: usize,
) -> Result<Vec<u8>> {
    let (mine, theirs) = (Block::of(&mine), Block::new(expected));
    let buffer = Buffer::from(theirs.span());
    // Nothing uses the sender's rank in a comm here.
    let recv = Receive { context, source: ReceiveSource::Peer { peer, rank: -1 }, tag: Some(tag), buffer };
    let buffer = Unfilled::new(Buffer::from(mine.span()));
    let send = Send { mode: Mode::Standard, context, peer: Some(peer), tag, buffer };
    let recv = recv.start(guard)?;
    let send = send.start(guard)?;
    let sent = guard.finish(Work::Send(send)).error;
    sent.or(guard.finish(recv).error).map_or_else(|| Ok(theirs.to_vec()), Err)
}
