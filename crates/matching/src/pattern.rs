// SPDX-License-Identifier: BSD-3-Clause
//! The envelopes and patterns that matching compares.

/// The fields of a message that matching compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communication context: messages of different contexts never match.
    pub context: u64,
    /// The peer that sent the message.
    pub source: u32,
    /// The tag with which the message was sent.
    pub tag: i32,
}

/// The fields that a receive or a probe asks for. None takes anything (MPI_ANY_SOURCE, MPI_ANY_TAG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communication context that the message must have.
    pub context: u64,
    /// The peer that must have sent the message; None for any (MPI_ANY_SOURCE).
    pub source: Option<u32>,
    /// The tag that the message must have; None for any (MPI_ANY_TAG).
    pub tag: Option<i32>,
}

impl Pattern {
    /// Whether this pattern may take a message with this envelope.
    pub fn fits(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// The number of classes of pattern: exact, any source, any tag, any source and tag.
pub(crate) const CLASSES: usize = 4;
