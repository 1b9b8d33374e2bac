// SPDX-License-Identifier: BSD-3-Clause
//! Numbers about the basic types of a datatype, computed from the numbers of the datatypes from which it was
//! made.

use crate::basic::Basic;

/// The type of basic elements: the machine type, and the length in external32, which the machine type does
/// not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub basic: Basic,
    pub external_bytes: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeFacts {
    /// The number of basic elements in one element of the datatype: a pair has two, a complex number is one.
    pub elements: u64,
    /// The length in bytes of one element of the datatype in external32; `u64::MAX` if it is too large.
    pub external_size: u64,
    /// The type that all basic elements have; None if they differ, or if there are none.
    pub uniform: Option<Leaf>,
    /// How deep structs are nested in the datatype.
    pub depth: u32,
}

impl Leaf {
    /// Makes the type of the index in a pair. In external32 the index has the length of its machine type.
    pub fn of_index(basic: Basic) -> Leaf {
        Leaf { basic, external_bytes: basic.size() as u8 }
    }
}

impl TypeFacts {
    pub const NONE: TypeFacts = TypeFacts { elements: 0, external_size: 0, uniform: None, depth: 0 };

    pub fn of(leaf: Leaf) -> TypeFacts {
        TypeFacts { elements: 1, external_size: leaf.external_bytes as u64, uniform: Some(leaf), depth: 0 }
    }

    pub fn times(self, count: u64) -> TypeFacts {
        if count == 0 || self.elements == 0 {
            return TypeFacts::NONE;
        }
        // There are no more elements than bytes, whose number the constructor has checked.
        let (elements, external_size) = (self.elements * count, self.external_size.saturating_mul(count));
        TypeFacts { elements, external_size, ..self }
    }

    /// Returns the facts of a sequence: the elements of `self`, then those of `next`.
    pub fn then(self, next: TypeFacts) -> TypeFacts {
        TypeFacts {
            elements: self.elements + next.elements,
            external_size: self.external_size.saturating_add(next.external_size),
            uniform: if self.elements == 0 || self.uniform == next.uniform { next.uniform } else { None },
            depth: self.depth.max(next.depth),
        }
    }
}
