// SPDX-License-Identifier: BSD-3-Clause
//! The operations that a collective library carries out, one `LibraryStep` for each.

/// The types of elements that NCCL-like libraries share. The values are the libraries' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ElementKind {
    I8 = 0,
    U8 = 1,
    I32 = 2,
    U32 = 3,
    I64 = 4,
    U64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    Bf16 = 9,
}

/// The operators that NCCL-like libraries share. The values are the libraries' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Op {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
}

/// One operation of the library. Addresses are in memory of the kind `Library::memory`. That memory belongs
/// to the library until the operation has ended. Counts are in elements.
#[derive(Clone, Debug)]
pub enum LibraryStep {
    AllReduce {
        from: usize,
        to: usize,
        count: usize,
        kind: ElementKind,
        op: Op,
    },
    Reduce {
        from: usize,
        to: usize,
        count: usize,
        kind: ElementKind,
        op: Op,
        root: u32,
    },
    ReduceScatter {
        from: usize,
        to: usize,
        count: usize,
        kind: ElementKind,
        op: Op,
    },
    Broadcast {
        at: usize,
        bytes: usize,
        root: u32,
    },
    AllGather {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// An exchange of messages: this rank sends at most one message to each rank and receives at most one
    /// from each.
    Exchange {
        sends: Vec<ExchangePart>,
        recvs: Vec<ExchangePart>,
    },
}

/// A message that this rank sends to a peer, or receives from it, in an exchange.
#[derive(Clone, Copy, Debug)]
pub struct ExchangePart {
    pub peer: u32,
    pub at: usize,
    pub bytes: usize,
}
