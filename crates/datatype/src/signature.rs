//! Type signatures: the sequence of basic types of a message as two words, comparable between ranks (MPI 5.0, section 3.3.1).

use crate::basic::Basic;

/// How many basic elements, and a hash of their sequence. The hash of a sequence follows from those of its parts, so that a
/// million repetitions cost twenty multiplications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Basic elements (a pair has two, a complex number is one).
    pub elements: u64,
    /// Polynomial hash modulo 2^61-1; 0 where MPI_PACKED or MPI_BYTE make the sequence unknown.
    pub hash: u64,
}

/// A Mersenne prime, so that products reduce with shifts.
const MODULUS: u64 = (1 << 61) - 1;
/// An arbitrary number below the modulus.
const POINT: u64 = 0x1357_9bdf_0246_8ace;

impl Signature {
    /// No elements.
    pub const EMPTY: Signature = Signature { elements: 0, hash: 1 };

    /// One element.
    pub fn of(basic: Basic) -> Signature {
        match basic {
            Basic::Byte | Basic::Packed => Signature { elements: 1, hash: 0 },
            _ => Signature { elements: 1, hash: multiply(basic as u64 + 2, POINT ^ 0x5bd1_e995) },
        }
    }

    /// This sequence, then `next`.
    pub fn then(self, next: Signature) -> Signature {
        let elements = self.elements.wrapping_add(next.elements);
        let hash = match (self.elements, next.elements) {
            (0, _) => next.hash,
            (_, 0) => self.hash,
            _ if self.hash == 0 || next.hash == 0 => 0,
            _ => (multiply(self.hash, power(POINT, next.elements)) + next.hash) % MODULUS,
        };
        Signature { elements, hash }
    }

    /// This sequence `count` times.
    pub fn times(self, mut count: u64) -> Signature {
        let (mut result, mut doubled) = (Signature::EMPTY, self);
        while count > 0 {
            if count & 1 == 1 {
                result = result.then(doubled);
            }
            doubled = doubled.then(doubled);
            count >>= 1;
        }
        result
    }

    /// Whether a message of one signature may be received with the other (MPI_PACKED and MPI_BYTE go with anything).
    pub fn matches(self, other: Signature) -> bool {
        self.hash == 0 || other.hash == 0 || self == other
    }
}

fn multiply(a: u64, b: u64) -> u64 {
    (a as u128 * b as u128 % MODULUS as u128) as u64
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_counts_and_the_grouping_does_not() {
        let (a, b) = (Signature::of(Basic::I32), Signature::of(Basic::F64));
        assert_eq!(a.then(b).then(a), a.then(b.then(a)));
        assert_ne!(a.then(b), b.then(a));
        assert_ne!(a, b);
        let mut long = Signature::EMPTY;
        (0..13).for_each(|_| long = long.then(a).then(b));
        assert_eq!(a.then(b).times(13), long);
        assert_eq!(long.elements, 26);
        assert!(!a.times(2).matches(a.times(3)));
        assert!(Signature::of(Basic::Packed).times(5).matches(long));
    }
}
