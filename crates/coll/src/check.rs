// SPDX-License-Identifier: BSD-3-Clause
//! Compares the arguments that the members of a collective pass (OUTBOARD_CHECK=1).
//!
//! Every member states its arguments in a fixed number of words. All members get all statements, and come to
//! the same verdict.

use crate::call::{Call, CollBuffer, Members};
use error::{Class, Result, fail};
use executor::Reduction;
use schedule::algorithm::{Collective, Neighbors};

/// The number of words with which each member's statement of its arguments begins: collective, root,
/// operator, bytes. After them come the bytes to and from each rank, if ranks may pass different ones.
const COMMON: usize = 4;
/// The flag, in the first word of a statement, of a collective among neighbours.
const NEIGHBORS: i64 = 1 << 8;
/// The flag, in the first word of a statement, of a nonblocking collective, which never matches a blocking
/// one (MPI 5.0, section 6.12).
const NONBLOCKING: i64 = 1 << 9;

/// The value that stands for root, operator and bytes in the statement of a rank that takes no part in the
/// collective.
const IDLE: i64 = i64::MIN;

/// Returns this member's statement: the arguments of its call, as `statement_words(size)` words. On an
/// intercommunicator ranks are indices into `Members::peers`.
pub fn statement(call: &Call, members: &Members) -> Vec<i64> {
    let (rank, size) = (members.rank, members.peers.len() as u32);
    let op = match call.reduction {
        None => -2,
        Some(Reduction::User { .. }) => -1,
        Some(Reduction::Predefined { op, .. }) => op as i64,
    };
    let mut words = vec![call.collective as i64 | if call.blocking { 0 } else { NONBLOCKING }];
    match (call.neighbors.as_deref(), members.first_group) {
        (Some(Neighbors { to, from, .. }), _) => {
            words = vec![words[0] | NEIGHBORS, 0, op, 0];
            words.extend((0..size).map(|at| neighbor_bytes(&call.input, to, at)));
            words.extend((0..size).map(|at| neighbor_bytes(&call.output, from, at)));
        }
        (None, 0) => {
            words.extend([i64::from(call.root), op, call.bytes(size) as i64]);
            if let Collective::Allgather | Collective::Alltoall = call.collective {
                // The blocks of the input may still differ in length from those of the output.
                let expected = call.bytes(size) as i64;
                let sent = match &call.input {
                    CollBuffer::None => expected,
                    CollBuffer::PerRank(all) => (all.bytes() / size as usize) as i64,
                    same => same.total() as i64,
                };
                words.extend((0..size).map(|_| sent).chain((0..size).map(|_| expected)));
            }
            if call.collective.has_counts() {
                words.extend((0..size).map(|at| bytes_to(call, rank, at)));
                words.extend((0..size).map(|at| bytes_from(call, rank, at)));
            }
        }
        _ if call.is_idle(members) => words.extend([IDLE; COMMON - 1]),
        _ => {
            let vector = if call.collective.reduces() { call.bytes(size) as i64 } else { 0 };
            words.extend([i64::from(call.root), op, vector]);
            words.extend((0..size).map(|at| bytes_across(call, members, at, true)));
            words.extend((0..size).map(|at| bytes_across(call, members, at, false)));
        }
    }
    words.resize(statement_words(size), 0);
    words
}

/// Returns how many bytes this rank sends to (if `sends`) or expects from rank `at` of the remote group of an
/// intercommunicator.
fn bytes_across(call: &Call, members: &Members, at: u32, sends: bool) -> i64 {
    use Collective::*;
    let partners = members.partners();
    // One end of a transfer in a rooted collective is the root.
    let (source, target) = if sends { (members.rank, at) } else { (at, members.rank) };
    let takes_part = match call.collective {
        Bcast | Scatter | Scatterv => source == call.root,
        Gather | Gatherv => target == call.root,
        Barrier | Reduce | Allreduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan => false,
        Allgather | Allgatherv | Alltoall | Alltoallv | Alltoallw => true,
    };
    if !takes_part || !partners.contains(&at) {
        return 0;
    }
    let part = if sends && call.collective != Bcast { &call.input } else { &call.output };
    match part {
        CollBuffer::PerRank(buffer) => (buffer.bytes() / partners.len()) as i64,
        CollBuffer::Each(_) => block(part, at - partners.start),
        part => part.total() as i64,
    }
}

/// Returns how many bytes the blocks to or from rank `at` have in the input or output of a neighborhood
/// collective.
fn neighbor_bytes(part: &CollBuffer, neighbors: &[Option<u32>], at: u32) -> i64 {
    let bytes = |block: usize| match part {
        CollBuffer::Each(buffers) => buffers[block].bytes() as i64,
        CollBuffer::PerRank(all) => (all.bytes() / neighbors.len()) as i64,
        same => same.total() as i64,
    };
    (0..neighbors.len()).filter(|block| neighbors[*block] == Some(at)).map(bytes).sum()
}

/// Returns how many bytes this rank sends to rank `at`. In place, the data to send lies in the output.
fn bytes_to(call: &Call, rank: u32, at: u32) -> i64 {
    match (call.collective, &call.input) {
        (Collective::Scatterv, input) => block(input, at),
        (Collective::Gatherv, _) if at != call.root => 0,
        (Collective::Gatherv | Collective::Allgatherv, CollBuffer::None) => block(&call.output, rank),
        (Collective::Gatherv | Collective::Allgatherv, input) => input.total() as i64,
        (_, CollBuffer::None) => block(&call.output, at),
        (_, input) => block(input, at),
    }
}

/// Returns how many bytes this rank expects from rank `at`. In place, a scatter's root has its own block in
/// the input.
fn bytes_from(call: &Call, rank: u32, at: u32) -> i64 {
    match (call.collective, &call.output) {
        (Collective::Scatterv, _) if at != call.root => 0,
        (Collective::Scatterv, CollBuffer::None) => block(&call.input, rank),
        (Collective::Scatterv, output) => output.total() as i64,
        (_, output) => block(output, at),
    }
}

fn block(part: &CollBuffer, at: u32) -> i64 {
    match part {
        CollBuffer::Each(buffers) => buffers[at as usize].bytes() as i64,
        _ => 0,
    }
}

/// Returns the length, in words, of a member's statement of its arguments in a comm of `size` ranks.
pub fn statement_words(size: u32) -> usize {
    COMMON + 2 * size as usize
}

/// Compares the statements of all ranks about their arguments, in the order of ranks. Errors: the first
/// difference, which is the same on all members.
pub fn compare(statements: &[i64], size: u32) -> Result<()> {
    let of = |rank: u32| &statements[rank as usize * statement_words(size)..][..statement_words(size)];
    let reference = (0..size).find(|rank| of(*rank)[1] != IDLE).unwrap_or(0);
    let first = of(reference);
    let collective = |word: i64| {
        let known = Collective::ALL.get((word & !NEIGHBORS & !NONBLOCKING) as usize);
        let sort = if word & NONBLOCKING != 0 { "nonblocking " } else { "" };
        let among = if word & NEIGHBORS != 0 { "neighbor-" } else { "" };
        format!("{sort}{among}{}", known.map_or("?", |known| known.name()))
    };
    for rank in 0..size {
        let here = of(rank);
        let name = collective(first[0]);
        if here[0] != first[0] {
            fail!(
                Class::Other,
                "rank {reference} is in {name}, but rank {rank} is in {}",
                collective(here[0])
            );
        }
        if here[1] == IDLE {
            continue;
        }
        if here[1] != first[1] {
            fail!(
                Class::Root,
                "in {name} rank {reference} has root {}, but rank {rank} has root {}",
                first[1],
                here[1]
            );
        }
        if here[2] != first[2] {
            fail!(Class::Op, "in {name} rank {reference} and rank {rank} have different operators");
        }
        if here[3] != first[3] {
            fail!(
                Class::Count,
                "in {name} rank {reference} has {} bytes, but rank {rank} has {} bytes",
                first[3],
                here[3]
            );
        }
    }
    let n = size as usize;
    // If all pairs are alike, no rank has stated a length for any.
    for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
        let (sent, expected) = (of(from)[COMMON + to as usize], of(to)[COMMON + n + from as usize]);
        if sent != expected {
            let name = collective(first[0]);
            fail!(
                Class::Count,
                "in {name} rank {from} sends {sent} bytes to rank {to}, which expects {expected}"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatype::Buffer;
    use sys::Span;

    fn bytes(lengths: &[usize]) -> Vec<Buffer> {
        let leaked = |bytes: usize| Span::of(Box::leak(vec![0u8; bytes].into_boxed_slice()));
        lengths.iter().map(|bytes| Buffer::from(leaked(*bytes))).collect()
    }

    fn verdict_of(first_group: u32, calls: &[Call]) -> Result<()> {
        let peers: std::sync::Arc<[u32]> = (0..calls.len() as u32).collect();
        let members = |rank| Members { context: 1, sequence: 1, rank, peers: peers.clone(), first_group };
        let words: Vec<i64> =
            calls.iter().zip(0..).flat_map(|(call, rank)| statement(call, &members(rank))).collect();
        compare(&words, calls.len() as u32)
    }

    fn verdict(calls: &[Call]) -> Result<()> {
        verdict_of(0, calls)
    }

    // Goal: between groups lengths are compared by pair, and the root's group states none but the root's.
    #[test]
    fn groups_are_compared_across() {
        let part = |length: usize| CollBuffer::bytes(bytes(&[length]).remove(0));
        let equal = |length: usize| CollBuffer::PerRank(bytes(&[length]).remove(0));
        let bcast = |root: u32, output: CollBuffer| Call {
            root,
            ..Call::new(Collective::Bcast, CollBuffer::None, output)
        };
        let right = [bcast(1, CollBuffer::None), bcast(1, part(8)), bcast(1, part(8))];
        assert_eq!(verdict_of(2, &right), Ok(()));
        let wrong = [bcast(1, CollBuffer::None), bcast(1, part(8)), bcast(1, part(4))];
        let message = verdict_of(2, &wrong).unwrap_err().to_string();
        assert_eq!(message, "in nonblocking bcast rank 1 sends 8 bytes to rank 2, which expects 4");
        let roots = [bcast(1, CollBuffer::None), bcast(1, part(8)), bcast(0, part(8))];
        assert_eq!(verdict_of(2, &roots).unwrap_err().class, Class::Root);
        let allgather = |send: usize, recv: usize| Call::new(Collective::Allgather, part(send), equal(recv));
        assert_eq!(verdict_of(2, &[allgather(3, 5), allgather(3, 5), allgather(5, 6)]), Ok(()));
        assert!(verdict_of(2, &[allgather(3, 5), allgather(4, 5), allgather(5, 6)]).is_err());
    }

    // Goal: equal calls pass, and each kind of difference gets its class and names the rank.
    #[test]
    fn differences_are_named() {
        let vector = |length: usize| CollBuffer::bytes(bytes(&[length]).remove(0));
        let bcast = |length: usize, root: u32| Call {
            root,
            ..Call::new(Collective::Bcast, CollBuffer::None, vector(length))
        };
        assert_eq!(verdict(&[bcast(8, 1), bcast(8, 1), bcast(8, 1)]), Ok(()));
        let lengths = verdict(&[bcast(8, 1), bcast(8, 1), bcast(12, 1)]).unwrap_err();
        assert_eq!(lengths.class, Class::Count);
        assert_eq!(lengths.message, "in nonblocking bcast rank 0 has 8 bytes, but rank 2 has 12 bytes");
        assert_eq!(verdict(&[bcast(8, 1), bcast(8, 0)]).unwrap_err().class, Class::Root);
        let barrier = Call::new(Collective::Barrier, CollBuffer::None, CollBuffer::None);
        assert_eq!(verdict(&[bcast(0, 0), barrier]).unwrap_err().class, Class::Other);
        let sorts = verdict(&[bcast(8, 1), Call { blocking: true, ..bcast(8, 1) }]).unwrap_err();
        assert_eq!(sorts.message, "rank 0 is in nonblocking bcast, but rank 1 is in bcast");
    }

    // Goal: of an uneven collective every pair is compared, in place too.
    #[test]
    fn pairs_are_compared() {
        let each = |lengths: &[usize]| CollBuffer::Each(bytes(lengths).into());
        let alltoallv =
            |send: &[usize], recv: &[usize]| Call::new(Collective::Alltoallv, each(send), each(recv));
        let right = [alltoallv(&[1, 2], &[1, 3]), alltoallv(&[3, 4], &[2, 4])];
        assert_eq!(verdict(&right), Ok(()));
        let wrong = [alltoallv(&[1, 2], &[1, 3]), alltoallv(&[5, 4], &[2, 4])];
        let message = verdict(&wrong).unwrap_err().to_string();
        assert_eq!(message, "in nonblocking alltoallv rank 1 sends 5 bytes to rank 0, which expects 3");
        let gatherv = |input: CollBuffer, output: CollBuffer, in_place: bool| Call {
            in_place,
            ..Call::new(Collective::Gatherv, input, output)
        };
        let part = |length: usize| CollBuffer::bytes(bytes(&[length]).remove(0));
        let root = || gatherv(CollBuffer::None, each(&[7, 9]), true);
        assert_eq!(verdict(&[root(), gatherv(part(9), CollBuffer::None, false)]), Ok(()));
        assert!(verdict(&[root(), gatherv(part(8), CollBuffer::None, false)]).is_err());
    }

    // Goal: among neighbours too, each edge's length, and that it has two ends.
    #[test]
    fn neighbors_are_compared() {
        let neighbors = |rank, to: &[u32], from: &[u32]| {
            let some = |ranks: &[u32]| ranks.iter().copied().map(Some).collect();
            Some(std::sync::Arc::new(Neighbors {
                rank,
                size: 2,
                to: some(to),
                from: some(from),
                paired: false,
            }))
        };
        let each = |lengths: &[usize]| CollBuffer::Each(bytes(lengths).into());
        let call = |rank, to: &[u32], send: &[usize], from: &[u32], recv: &[usize]| Call {
            neighbors: neighbors(rank, to, from),
            ..Call::new(Collective::Alltoallv, each(send), each(recv))
        };
        let receiver = || call(1, &[], &[], &[0, 0], &[3, 4]);
        assert_eq!(verdict(&[call(0, &[1, 1], &[3, 4], &[], &[]), receiver()]), Ok(()));
        let message = verdict(&[call(0, &[1], &[3], &[], &[]), receiver()]).unwrap_err().to_string();
        assert_eq!(
            message,
            "in nonblocking neighbor-alltoallv rank 0 sends 3 bytes to rank 1, which expects 7"
        );
    }
}
