// SPDX-License-Identifier: BSD-3-Clause
//! The operations of a library.

/// The types of elements that NCCL-like libraries share, with the libraries' numbers.
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

/// The operators that NCCL-like libraries share, with the libraries' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Op {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
}

/// One operation of the library. Addresses are of the kind of memory that it takes (`Library::memory`), which
/// belongs to the library until the operation has ended. Counts are in elements.
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
    /// An exchange of messages: at most one to and one from each rank.
    Exchange {
        sends: Vec<ExchangePart>,
        recvs: Vec<ExchangePart>,
    },
}

/// A message that an exchange sends to a rank or receives from it.
#[derive(Clone, Copy, Debug)]
pub struct ExchangePart {
    pub peer: u32,
    pub at: usize,
    pub bytes: usize,
}
