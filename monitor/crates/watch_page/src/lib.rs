// SPDX-License-Identifier: BSD-3-Clause
//! The page of `liboutboard_watch.so`: a file in /dev/shm in which a process of any MPI counts its MPI calls.
//!
//! A page consists of 64-bit words in the machine's order. First comes the head. Then each call, size class
//! and place (same node or another) has four words: calls, bytes, nanoseconds, and calls that took longer
//! than `MOMENT_NS`. The bytes sent to each node follow. The process writes the page. `outboard-monitor`
//! reads it, and writes only the word `Head::Seen`, the time at which it last read.
#![forbid(unsafe_code)]

macro_rules! calls {
    ($($name:ident)*) => {
        /// The MPI calls that are counted in a page.
        #[allow(non_camel_case_types)] // MPI's own names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Call { $($name),* }

        impl Call {
            /// All calls, in the order of their words in the page.
            pub const ALL: &[Call] = &[$(Call::$name),*];

            /// Returns the name of the MPI call without `MPI_`, in small letters.
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

/// The upper bounds of the classes into which calls are divided by bytes. The last class has no bound.
pub const CLASSES: [u64; 6] = [0, 128, 2048, 32 << 10, 512 << 10, 8 << 20];
pub const CLASSES_COUNT: usize = CLASSES.len() + 1;
/// The names of the size classes. Each is the class's upper bound in bytes.
pub const CLASS_NAMES: [&str; CLASSES_COUNT] = ["0", "128", "2K", "32K", "512K", "8M", "more"];

/// Returns the number of the size class to which a call that moves `bytes` bytes belongs.
pub fn class(bytes: u64) -> usize {
    CLASSES.iter().position(|most| bytes <= *most).unwrap_or(CLASSES.len())
}

/// How many places a call's peer may have: on the same node, or on another. A call without a single peer
/// counts for the first place.
pub const PLACES: usize = 2;
/// A call that takes longer than this, in nanoseconds, counts as a call that has waited.
pub const MOMENT_NS: u64 = 50_000;

/// The words of a page's head. The value of a variant is the word's position.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Head {
    Magic,
    Form,
    Pid,
    Rank,
    Size,
    /// The time at which the process called MPI_Init, in milliseconds since 1970.
    Start,
    /// The state of the process: 1 while it runs, 2 once it has called MPI_Finalize.
    State,
    /// The time at which the monitor last read the page, in milliseconds since 1970.
    Seen,
    /// The number of the process's node. The nodes of MPI_COMM_WORLD are numbered in the order of the lowest
    /// rank on each node.
    Node,
    Nodes,
    /// A number for the MPI_COMM_WORLD of the process. All of its processes have the same number, and no
    /// others have it.
    World,
    /// The number of the Slurm job in which the process runs. It is 0 if it runs in none.
    Slurm,
    /// The name of the process's host: a text of `TEXT_BYTES` bytes, with zeros at the end.
    Host = 16,
    /// The name of the program's file: a text of `TEXT_BYTES` bytes, with zeros at the end.
    Program = 24,
}

/// The number of bytes of each text in the head of a page.
pub const TEXT_BYTES: usize = 64;
/// The value of `Head::Magic`, by which a page is recognized: the bytes OBWATCH1.
pub const MAGIC: u64 = u64::from_le_bytes(*b"OBWATCH1");
/// The position in the page of the first word that counts calls.
const CALLS_AT: usize = 32;
/// How many words of the page count the calls of one kind, size class and place.
pub const COUNTS: usize = 4;
const NODES_AT: usize = CALLS_AT + Call::ALL.len() * CLASSES_COUNT * PLACES * COUNTS;
/// How many nodes have a word of their own in a page, for the bytes sent to them. The last word also counts
/// the bytes sent to further nodes.
pub const NODES_MAX: usize = 1024;
/// The number of 64-bit words of a page.
pub const WORDS: usize = NODES_AT + NODES_MAX;
/// The value of `Head::Form`, the number of the page's format. A page with another value is not read.
pub const FORM: u64 = WORDS as u64;
/// The beginning of the name of a page's file in /dev/shm. The pid of the process follows.
pub const FILE_PREFIX: &str = "outboard-watch-";

/// Returns the position in the page of the first of the `COUNTS` words for a call, size class and place.
pub fn at(call: Call, class: usize, place: usize) -> usize {
    CALLS_AT + ((call as usize * CLASSES_COUNT + class) * PLACES + place) * COUNTS
}

/// Returns the position in the page of the word that counts the bytes sent to a node.
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
