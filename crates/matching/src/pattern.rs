// SPDX-License-Identifier: BSD-3-Clause
//! What matching compares.

/// What a message carries and matching compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communication context: messages of different contexts never match.
    pub context: u64,
    /// The peer that sent the message.
    pub source: u32,
    /// The tag.
    pub tag: i32,
}

/// What a receive or a probe asks for; `None` takes anything (MPI_ANY_SOURCE, MPI_ANY_TAG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communication context.
    pub context: u64,
    /// The peer wanted.
    pub source: Option<u32>,
    /// The tag wanted.
    pub tag: Option<i32>,
}

impl Pattern {
    /// Whether a message with this envelope may be taken by this pattern.
    pub fn fits(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// Classes of pattern: exact; any source; any tag; any of both.
pub(crate) const CLASSES: usize = 4;
