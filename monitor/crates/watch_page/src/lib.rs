// SPDX-License-Identifier: BSD-3-Clause
//! The page of `liboutboard_watch.so`: what a process of any MPI does, call by call, in a file of /dev/shm.
//!
//! A file of 64-bit words in the machine's order: the head, then for each call, size class and place four
//! words (calls, bytes, nanoseconds, calls that took longer than a moment), then bytes sent to each node. The
//! process writes; `outboard-monitor` reads, and writes one word: that it does (`Head::Seen`).
#![forbid(unsafe_code)]

macro_rules! calls {
    ($($name:ident)*) => {
        /// The calls that are watched.
        #[allow(non_camel_case_types)] // MPI's own names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Call { $($name),* }

        impl Call {
            /// All of them, in the order of the page.
            pub const ALL: &[Call] = &[$(Call::$name),*];

            /// MPI's name without `MPI_`, in small letters.
            pub fn name(self) -> String {
                let name = match self { $(Call::$name => stringify!($name)),* };
                name.to_ascii_lowercase()
            }
        }
    };
}

calls! {
    Send Bsend Ssend Rsend Isend Ibsend Issend Irsend Recv Irecv Sendrecv Sendrecv_replace
    Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Alltoallw
    Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan
    Ibarrier Ibcast Igather Igatherv Iscatter Iscatterv Iallgather Iallgatherv Ialltoall Ialltoallv Ialltoallw
    Ireduce Iallreduce Ireduce_scatter Ireduce_scatter_block Iscan Iexscan
    Put Get Accumulate Wait Waitall Waitany Waitsome
}

/// The upper bounds of size classes in bytes; the last class has none.
pub const CLASSES: [u64; 6] = [0, 128, 2048, 32 << 10, 512 << 10, 8 << 20];
pub const CLASSES_COUNT: usize = CLASSES.len() + 1;
/// Names of the classes.
pub const CLASS_NAMES: [&str; CLASSES_COUNT] = ["0", "128", "2K", "32K", "512K", "8M", "more"];

/// The class of a size in bytes.
pub fn class(bytes: u64) -> usize {
    CLASSES.iter().position(|most| bytes <= *most).unwrap_or(CLASSES.len())
}

/// Where a peer is: on the same node, or another. Calls without one peer have the first.
pub const PLACES: usize = 2;
/// A call that takes longer has waited.
pub const MOMENT_NS: u64 = 50_000;

/// Words of the head.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Head {
    Magic,
    Form,
    Pid,
    Rank,
    Size,
    /// Milliseconds since 1970.
    Start,
    /// 1: it runs. 2: it has called MPI_Finalize.
    State,
    /// When a reader last was here, in milliseconds since 1970.
    Seen,
    /// Of the nodes of MPI_COMM_WORLD, in the order of the lowest rank on each.
    Node,
    Nodes,
    /// The same in all processes of one MPI_COMM_WORLD, and in no others.
    World,
    /// Slurm's job; 0: none.
    Slurm,
    /// 64 bytes each, with zeros at the end.
    Host = 16,
    Program = 24,
}

/// Bytes of a text in the head.
pub const TEXT_BYTES: usize = 64;
/// `Head::Magic`: OBWATCH1.
pub const MAGIC: u64 = u64::from_le_bytes(*b"OBWATCH1");
/// The first word of the calls.
const CALLS_AT: usize = 32;
/// What is counted of a call.
pub const COUNTS: usize = 4;
const NODES_AT: usize = CALLS_AT + Call::ALL.len() * CLASSES_COUNT * PLACES * COUNTS;
/// More nodes are counted with the last.
pub const NODES_MAX: usize = 1024;
/// The words of a page.
pub const WORDS: usize = NODES_AT + NODES_MAX;
/// `Head::Form`: a page of another form is not read.
pub const FORM: u64 = WORDS as u64;
/// How the files are called: with the process's pid behind.
pub const FILE_PREFIX: &str = "outboard-watch-";

/// The word of a call's first count.
pub fn at(call: Call, class: usize, place: usize) -> usize {
    CALLS_AT + ((call as usize * CLASSES_COUNT + class) * PLACES + place) * COUNTS
}

/// The word of the bytes to a node.
pub fn node_at(node: usize) -> usize {
    NODES_AT + node.min(NODES_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_overlap() {
        let mut taken = std::collections::BTreeSet::new();
        for call in Call::ALL {
            for class in 0..CLASSES_COUNT {
                for word in
                    (0..PLACES).flat_map(|place| at(*call, class, place)..at(*call, class, place) + COUNTS)
                {
                    assert!((CALLS_AT..NODES_AT).contains(&word) && taken.insert(word));
                }
            }
        }
        assert_eq!((node_at(0), node_at(usize::MAX)), (NODES_AT, WORDS - 1));
        assert_eq!([0, 1, 128, 129, 8 << 20, u64::MAX].map(class), [0, 1, 1, 2, 5, 6]);
        assert_eq!(
            (Call::ALL[5].name(), Call::Reduce_scatter_block.name()),
            ("ibsend".into(), "reduce_scatter_block".into())
        );
    }
}
