// SPDX-License-Identifier: BSD-3-Clause
//! What matching compares: the envelopes of messages, and the patterns of receives and probes.

/// The fields of a message by which a receive finds it: context, source and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The context of the comm. Messages of different contexts never match.
    pub context: u64,
    /// The number in the job of the process that sent the message.
    pub source: u32,
    /// The tag with which the message was sent.
    pub tag: i32,
}

/// The fields that a receive or a probe asks for. None in a field takes any value (MPI_ANY_SOURCE,
/// MPI_ANY_TAG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The context of the comm, which the message must have.
    pub context: u64,
    /// The number in the job of the process that must have sent the message; None for any (MPI_ANY_SOURCE).
    pub source: Option<u32>,
    /// The tag that the message must have; None for any (MPI_ANY_TAG).
    pub tag: Option<i32>,
}

impl Pattern {
    /// Whether a receive with this pattern may take a message with this envelope.
    pub fn fits(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// The number of classes of patterns: exact, any source, any tag, any source and any tag.
pub(crate) const CLASSES: usize = 4;
