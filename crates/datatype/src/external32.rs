// SPDX-License-Identifier: BSD-3-Clause
//! external32: the standard's portable form of data, big-endian and without gaps (MPI 5.0, sections 5.3 and
//! 14.5.2).
//!
//! Each basic element is converted alone, since its lengths in the two forms may differ (MPI_LONG has 4 bytes
//! in external32). The native packed form is the form that `Buffer::pack` writes and `Buffer::unpack` reads.

use crate::basic::Basic;
use crate::buffer::Buffer;
use crate::datatype::Datatype;
use crate::facts::Leaf;
use error::{Class, Result, fail};
use sys::Span;

/// Returns the length in bytes of `count` elements of `datatype` in external32 (MPI_Pack_external_size); None
/// if it does not fit 63 bits.
pub fn external32_size(datatype: &Datatype, count: u64) -> Option<u64> {
    datatype.facts.external_size.checked_mul(count).filter(|&bytes| bytes <= i64::MAX as u64)
}

/// Converts `count` elements of `datatype` in `from` to external32, which exactly fills `to`. Errors: a
/// number does not fit its shorter form in external32.
pub fn pack_external32(from: &Buffer, datatype: &Datatype, count: u64, to: Span) -> Result<()> {
    check_lengths(from, datatype, count, to)?;
    convert(datatype, count, |leaf, elements, native_at, external_at| {
        let (native, external) = &mut ([0u8; BLOCK_BYTES], [0u8; BLOCK_BYTES]);
        let (native, external) =
            (&mut native[..elements * leaf.basic.size()], &mut external[..elements * leaf.external()]);
        from.pack(native_at, span_of_slice(native));
        let pairs = native.chunks_exact(leaf.basic.size()).zip(external.chunks_exact_mut(leaf.external()));
        for (native, external) in pairs {
            leaf.encode(native, external)?;
        }
        to.slice(external_at, external.len()).write(external);
        Ok(())
    })
}

/// Converts `from`, which is exactly `count` elements of `datatype` in external32, to the machine's form in
/// `to`.
pub fn unpack_external32(from: Span, to: &Buffer, datatype: &Datatype, count: u64) -> Result<()> {
    check_lengths(to, datatype, count, from)?;
    convert(datatype, count, |leaf, elements, native_at, external_at| {
        let (native, external) = &mut ([0u8; BLOCK_BYTES], [0u8; BLOCK_BYTES]);
        let (native, external) =
            (&mut native[..elements * leaf.basic.size()], &mut external[..elements * leaf.external()]);
        from.slice(external_at, external.len()).read(external);
        let pairs = native.chunks_exact_mut(leaf.basic.size()).zip(external.chunks_exact(leaf.external()));
        for (native, external) in pairs {
            leaf.decode(external, native);
        }
        to.unpack(native_at, span_of_slice(native));
        Ok(())
    })
}

/// The length, in bytes, of each of two blocks on the stack through which elements are converted. One holds
/// elements in the machine's form, one in external32.
const BLOCK_BYTES: usize = 2048;

fn check_lengths(buffer: &Buffer, datatype: &Datatype, count: u64, external: Span) -> Result<()> {
    let native = usize::try_from(count).ok().and_then(|count| Buffer::bytes_of(count, datatype.layout()));
    if native != Some(buffer.bytes()) || external32_size(datatype, count) != Some(external.bytes() as u64) {
        fail!(
            Class::Arg,
            "{count} elements do not have {} bytes, and {} in external32",
            buffer.bytes(),
            external.bytes()
        );
    }
    Ok(())
}

/// Calls `step(leaf, elements, native offset, external offset)` for each block of basic elements of one type
/// (`leaf`), in typemap order. `elements` is their number; the offsets say where they lie in both forms.
fn convert(
    datatype: &Datatype,
    count: u64,
    mut step: impl FnMut(Leaf, usize, usize, usize) -> Result<()>,
) -> Result<()> {
    let (mut native_at, mut external_at, mut outcome) = (0, 0, Ok(()));
    datatype.each_leaf(count, &mut |leaf, elements| {
        if PAIRS_OF_DOUBLES && matches!(leaf.basic, Basic::LongDouble | Basic::CLongDouble) {
            outcome = no_external32();
        }
        let mut left = elements as usize;
        let most = BLOCK_BYTES / leaf.basic.size().max(leaf.external());
        while left > 0 && outcome.is_ok() {
            let elements = left.min(most);
            outcome = step(leaf, elements, native_at, external_at);
            native_at += elements * leaf.basic.size();
            external_at += elements * leaf.external();
            left -= elements;
        }
    });
    outcome
}

/// Whether C's long double is a pair of doubles on this processor. external32 has no such number.
const PAIRS_OF_DOUBLES: bool = cfg!(target_arch = "powerpc64");

#[cold]
fn no_external32() -> Result<()> {
    fail!(
        Class::UnsupportedOperation,
        "a long double of this processor (a pair of doubles) cannot be converted to external32 and back"
    )
}

/// Makes a span of a block on the stack, which the caller passes to one call.
fn span_of_slice(bytes: &mut [u8]) -> Span {
    // SAFETY: the slice stays borrowed during the call in whose argument list this stands, and the span does
    // not outlive that.
    unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }
}

/// How a basic element is converted to external32 and back.
enum Encoding {
    /// The bytes are reversed, in parts of this many bytes: a complex number has two parts.
    Reversed(usize),
    /// The element is an integer, whose bytes are reversed and which may be shorter in external32.
    Integer { signed: bool },
    /// The element has one or two x87 numbers, of 80 bits in 16 bytes, each of which becomes a big-endian
    /// binary128.
    X87,
}

impl Leaf {
    fn external(self) -> usize {
        self.external_bytes as usize
    }

    fn encoding(self) -> Encoding {
        use Basic::*;
        match self.basic {
            I8 | I16 | I32 | I64 | I128 => Encoding::Integer { signed: true },
            U8 | U16 | U32 | U64 | WChar => Encoding::Integer { signed: false },
            LongDouble | CLongDouble if cfg!(target_arch = "x86_64") => Encoding::X87,
            C16 | C32 | C64 | CLongDouble | C128 => Encoding::Reversed(self.basic.size() / 2),
            _ => Encoding::Reversed(self.basic.size()),
        }
    }

    fn encode(self, native: &[u8], external: &mut [u8]) -> Result<()> {
        match self.encoding() {
            Encoding::Reversed(bytes) => reverse(bytes, native, external),
            Encoding::Integer { signed } => {
                let value = read_integer(native, signed);
                external.copy_from_slice(&value.to_be_bytes()[16 - external.len()..]);
                let mut back = [0; 16];
                back[..external.len()].copy_from_slice(external);
                back[..external.len()].reverse();
                if read_integer(&back[..external.len()], signed) != value {
                    fail!(
                        Class::Other,
                        "{value} does not fit the {} bytes that external32 gives its type",
                        external.len()
                    );
                }
            }
            Encoding::X87 => {
                each_part(native, external, |part| x87_to_quad(u128::from_le_bytes(part)).to_be_bytes())
            }
        }
        Ok(())
    }

    fn decode(self, external: &[u8], native: &mut [u8]) {
        match self.encoding() {
            Encoding::Reversed(bytes) => reverse(bytes, external, native),
            Encoding::Integer { signed } => {
                let mut little = [0; 16];
                little[..external.len()].copy_from_slice(external);
                little[..external.len()].reverse();
                let value = read_integer(&little[..external.len()], signed);
                native.copy_from_slice(&value.to_le_bytes()[..native.len()]);
            }
            Encoding::X87 => {
                each_part(external, native, |part| quad_to_x87(u128::from_be_bytes(part)).to_le_bytes())
            }
        }
    }
}

// The conversions assume a little-endian machine.
const _: () = assert!(cfg!(target_endian = "little"));

fn reverse(part_bytes: usize, from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
    to.chunks_exact_mut(part_bytes).for_each(<[u8]>::reverse);
}

fn each_part(from: &[u8], to: &mut [u8], turn: impl Fn([u8; 16]) -> [u8; 16]) {
    for (from, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
        to.copy_from_slice(&turn(from.try_into().expect("a chunk of 16 bytes")));
    }
}

/// Reads a little-endian integer. A signed integer has up to 16 bytes, an unsigned integer up to 8.
fn read_integer(bytes: &[u8], signed: bool) -> i128 {
    let negative = signed && bytes.last().is_some_and(|&high| high >= 0x80);
    let mut wide = if negative { [0xff; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

/// Converts x87 (64 bits of mantissa with an explicit leading one) to binary128 (112 bits of fraction). Sign
/// and exponent are the same.
fn x87_to_quad(x87: u128) -> u128 {
    let sign_and_exponent = (x87 >> 64) & 0xffff;
    let fraction = x87 & ((1 << 63) - 1);
    (sign_and_exponent << 112) | (fraction << 49)
}

/// Converts binary128 to x87, rounding to nearest, ties to even.
fn quad_to_x87(quad: u128) -> u128 {
    let sign = quad >> 127;
    let exponent = (quad >> 112) & 0x7fff;
    let fraction = quad & ((1 << 112) - 1);
    if exponent == 0x7fff {
        // Infinity stays infinity. A NaN keeps its upper bits and is made quiet, so that it cannot become an
        // infinity.
        let quiet = if fraction == 0 { 0 } else { 1 << 62 };
        return (sign << 79) | (exponent << 64) | (1 << 63) | quiet | (fraction >> 49);
    }
    let leading = if exponent == 0 { 0 } else { 1 << 63 };
    let (kept, cut) = ((fraction >> 49) | leading, fraction & ((1 << 49) - 1));
    let half = 1 << 48;
    let rounded = kept + (cut > half || (cut == half && kept & 1 == 1)) as u128;
    let (mantissa, exponent) = match (rounded >> 64, rounded >> 63) {
        (1, _) => (1 << 63, exponent + 1),
        // This denormal number was rounded up to the least normal one.
        (_, 1) if exponent == 0 => (rounded, 1),
        _ => (rounded, exponent),
    };
    (sign << 79) | (exponent << 64) | mantissa
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{predefined, predefined_handle};

    fn named(name: &str) -> &'static Datatype {
        predefined(predefined_handle(name).unwrap()).unwrap()
    }

    fn encoded(name: &str, native: &[u8]) -> Result<Vec<u8>> {
        let datatype = named(name);
        let mut native = native.to_vec();
        let mut external = vec![0; external32_size(datatype, 1).unwrap() as usize];
        pack_external32(
            &Buffer::from(span_of_slice(&mut native)),
            datatype,
            1,
            span_of_slice(&mut external),
        )?;
        let mut back = vec![0xee; native.len()];
        unpack_external32(
            span_of_slice(&mut external),
            &Buffer::from(span_of_slice(&mut back)),
            datatype,
            1,
        )?;
        assert_eq!(back, native, "{name} comes back");
        Ok(external)
    }

    #[test]
    fn values_become_big_endian() {
        assert_eq!(encoded("MPI_INT", &(-2i32).to_ne_bytes()).unwrap(), (-2i32).to_be_bytes());
        assert_eq!(encoded("MPI_LONG", &(-7i64).to_ne_bytes()).unwrap(), (-7i32).to_be_bytes());
        assert_eq!(
            encoded("MPI_UNSIGNED_LONG", &0xffff_fffeu64.to_ne_bytes()).unwrap(),
            0xffff_fffeu32.to_be_bytes()
        );
        assert_eq!(encoded("MPI_OFFSET", &(1i64 << 40).to_ne_bytes()).unwrap(), (1i64 << 40).to_be_bytes());
        assert_eq!(encoded("MPI_WCHAR", &0x263au32.to_ne_bytes()).unwrap(), [0x26, 0x3a]);
        assert_eq!(encoded("MPI_DOUBLE", &1.5f64.to_ne_bytes()).unwrap(), 1.5f64.to_be_bytes());
        let complex = [1.5f32.to_ne_bytes(), (-2.0f32).to_ne_bytes()].concat();
        assert_eq!(
            encoded("MPI_COMPLEX", &complex).unwrap(),
            [1.5f32.to_be_bytes(), (-2.0f32).to_be_bytes()].concat()
        );
        let refusal = encoded("MPI_LONG", &(1i64 << 40).to_ne_bytes()).unwrap_err();
        assert_eq!(refusal.message, "1099511627776 does not fit the 4 bytes that external32 gives its type");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn long_doubles_become_binary128() {
        let x87 = |exponent: u128, mantissa: u128| ((exponent << 64) | mantissa).to_le_bytes();
        let minus_three_halves = x87(0x8000 | 16383, 3 << 62);
        let quad = encoded("MPI_LONG_DOUBLE", &minus_three_halves).unwrap();
        assert_eq!(quad[..4], [0xbf, 0xff, 0x80, 0]);
        for bits in [x87(0, 0), x87(0, 1), x87(0x7fff, 1 << 63), x87(16383 + 63, u64::MAX as u128)] {
            encoded("MPI_LONG_DOUBLE", &bits).unwrap();
        }
        let least_normal = 1u128 << 112;
        assert_eq!(quad_to_x87(least_normal - 1), (1 << 64) | (1 << 63));
        assert_eq!(quad_to_x87((16384 << 112) - 1), (16384 << 64) | (1 << 63));
        let tie = (16383u128 << 112) | (1 << 48);
        assert_eq!(quad_to_x87(tie), (16383 << 64) | (1 << 63), "ties go to even");
        let nan = quad_to_x87((0x7fff << 112) | 1);
        assert_eq!(nan, (0x7fff << 64) | (3 << 62));
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let mut bytes = [0u8; 8];
        let span = span_of_slice(&mut bytes);
        let refusal =
            pack_external32(&Buffer::from(span), named("MPI_INT"), 1, span.slice(0, 4)).unwrap_err();
        assert_eq!(refusal.class, Class::Arg);
    }
}
