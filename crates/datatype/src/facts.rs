// SPDX-License-Identifier: BSD-3-Clause
//! Numbers about the basic types of a datatype, composed from those of its parts.

use crate::basic::Basic;

/// A basic type, and its length in external32, which the machine type does not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub basic: Basic,
    pub external_bytes: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeFacts {
    /// The basic elements of one element: a pair has two, a complex number is one.
    pub elements: u64,
    /// The bytes of one element in external32; saturates.
    pub external_size: u64,
    /// The basic type of all elements, if they all have the same.
    pub uniform: Option<Leaf>,
    /// The depth to which structs are nested.
    pub depth: u32,
}

impl Leaf {
    /// The leaf of a pair's index, which has its own length in external32.
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

    /// The facts of these elements, followed by those of `next`.
    pub fn then(self, next: TypeFacts) -> TypeFacts {
        TypeFacts {
            elements: self.elements + next.elements,
            external_size: self.external_size.saturating_add(next.external_size),
            uniform: if self.elements == 0 || self.uniform == next.uniform { next.uniform } else { None },
            depth: self.depth.max(next.depth),
        }
    }
}
