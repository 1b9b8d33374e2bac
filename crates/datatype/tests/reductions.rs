// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the predefined reductions against their definition element by element, also where the result
//! overwrites an operand.

use half::f16;
use outboard_datatype::{
    Basic, Buffer, PredefinedOp, check_op, predefined, predefined_handle, reduce, reduce_buffers,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use sys::Span;

/// Returns the bytes of `a op b` for one element, by the definition in MPI 5.0, section 6.9.2.
fn defined(op: PredefinedOp, basic: Basic, a: &[u8], b: &[u8]) -> Vec<u8> {
    use Basic::*;
    use PredefinedOp::*;
    macro_rules! integer {
        ($type:ty) => {{
            let (x, y) = (
                <$type>::from_ne_bytes(a.try_into().unwrap()),
                <$type>::from_ne_bytes(b.try_into().unwrap()),
            );
            let z = match op {
                Max => x.max(y),
                Min => x.min(y),
                Sum => x.wrapping_add(y),
                Prod => x.wrapping_mul(y),
                Land => (x != 0 && y != 0) as $type,
                Lor => (x != 0 || y != 0) as $type,
                Lxor => ((x != 0) != (y != 0)) as $type,
                Band => x & y,
                Bor => x | y,
                Bxor => x ^ y,
                _ => unreachable!(),
            };
            z.to_ne_bytes().to_vec()
        }};
    }
    macro_rules! real {
        ($type:ty, $a:expr, $b:expr) => {{
            let (x, y) = (
                <$type>::from_ne_bytes($a.try_into().unwrap()),
                <$type>::from_ne_bytes($b.try_into().unwrap()),
            );
            let z = match op {
                Max => {
                    if x > y {
                        x
                    } else {
                        y
                    }
                }
                Min => {
                    if x < y {
                        x
                    } else {
                        y
                    }
                }
                Sum => x + y,
                Prod => x * y,
                _ => unreachable!(),
            };
            z.to_ne_bytes().to_vec()
        }};
    }
    match basic {
        _ if op == Replace => b.to_vec(),
        _ if op == NoOp => a.to_vec(),
        I8 => integer!(i8),
        I16 => integer!(i16),
        I32 => integer!(i32),
        I64 => integer!(i64),
        I128 => integer!(i128),
        U8 | L8 | Byte => integer!(u8),
        U16 | L16 => integer!(u16),
        U32 | L32 => integer!(u32),
        U64 | L64 => integer!(u64),
        L128 => integer!(u128),
        F16 => real!(f16, a, b),
        F32 => real!(f32, a, b),
        F64 => real!(f64, a, b),
        C32 | C64 => complex(op, basic, a, b),
        F32I32 | F64I32 | I64I32 | I32I32 | I16I32 | F32F32 | F64F64 => pair(op, basic, a, b),
        other => panic!("no definition for {other:?}"),
    }
}

fn complex(op: PredefinedOp, basic: Basic, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! complex {
        ($type:ty, $half:expr) => {{
            let part = |z: &[u8], i: usize| {
                <$type>::from_ne_bytes(z[i * $half..(i + 1) * $half].try_into().unwrap())
            };
            let (ar, ai, br, bi) = (part(a, 0), part(a, 1), part(b, 0), part(b, 1));
            let (re, im) = if op == PredefinedOp::Sum {
                (ar + br, ai + bi)
            } else {
                (ar * br - ai * bi, ar * bi + ai * br)
            };
            [re.to_ne_bytes(), im.to_ne_bytes()].concat()
        }};
    }
    if basic == Basic::C32 { complex!(f32, 4) } else { complex!(f64, 8) }
}

fn number(basic: Basic, bytes: &[u8]) -> f64 {
    match basic {
        Basic::I16 => i16::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        Basic::I32 => i32::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        Basic::I64 => i64::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        Basic::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        _ => f64::from_ne_bytes(bytes.try_into().unwrap()),
    }
}

fn pair(op: PredefinedOp, basic: Basic, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (value, index) = basic.pair().unwrap();
    let (av, ai) = (number(value, &a[..value.size()]), number(index, &a[value.size()..]));
    let (bv, bi) = (number(value, &b[..value.size()]), number(index, &b[value.size()..]));
    let left = if av == bv { ai <= bi } else { (av > bv) == (op == PredefinedOp::Maxloc) };
    if left { a.to_vec() } else { b.to_vec() }
}

/// Returns the bytes of `count` random elements, which are small numbers: ties occur, products stay finite,
/// and every order of operations rounds alike.
fn random_elements(basic: Basic, count: usize, random: &mut SmallRng) -> Vec<u8> {
    use Basic::*;
    let scalar = |basic: Basic, n: i32| -> Vec<u8> {
        match basic {
            F16 => f16::from_f32(n as f32).to_ne_bytes().to_vec(),
            F32 => (n as f32).to_ne_bytes().to_vec(),
            F64 => (n as f64).to_ne_bytes().to_vec(),
            I8 | U8 | L8 | Byte => (n as u8).to_ne_bytes().to_vec(),
            I16 | U16 | L16 => (n as i16).to_ne_bytes().to_vec(),
            I32 | U32 | L32 => n.to_ne_bytes().to_vec(),
            I64 | U64 | L64 => (n as i64).to_ne_bytes().to_vec(),
            _ => (n as i128).to_ne_bytes().to_vec(),
        }
    };
    let parts = match basic {
        C32 => vec![F32, F32],
        C64 => vec![F64, F64],
        _ => basic.pair().map_or(vec![basic], |(value, index)| vec![value, index]),
    };
    (0..count)
        .flat_map(|_| parts.iter().flat_map(|&p| scalar(p, random.random_range(-4..5))).collect::<Vec<_>>())
        .collect()
}

fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: the tests keep the slice alive while they use the span.
    unsafe { Span::claim(bytes.as_mut_ptr().expose_provenance(), bytes.len()) }
}

#[test]
fn every_operator_on_every_type_is_its_definition() {
    use Basic::*;
    let mut random = SmallRng::seed_from_u64(7);
    let mut combinations = 0;
    for basic in Basic::ALL {
        if matches!(
            basic,
            LongDouble | CLongDouble | LongDoubleI32 | F128 | C128 | C16 | Char | WChar | Packed
        ) {
            continue;
        }
        for op in PredefinedOp::ALL.into_iter().filter(|&op| check_op(op, basic).is_ok()) {
            combinations += 1;
            for count in if cfg!(miri) { vec![0, 1, 3] } else { vec![0, 1, 3, 64, 133] } {
                let size = basic.size();
                let left = random_elements(basic, count, &mut random);
                let right = random_elements(basic, count, &mut random);
                let expected: Vec<u8> = left
                    .chunks(size)
                    .zip(right.chunks(size))
                    .flat_map(|(a, b)| defined(op, basic, a, b))
                    .collect();
                for place in ["apart", "over left", "over right"] {
                    // One byte after the beginning of an allocation: no element is aligned.
                    let (mut a, mut b, mut c) = (vec![0u8; 1], vec![0u8; 1], vec![0u8; 1 + left.len()]);
                    a.extend(&left);
                    b.extend(&right);
                    let (l, r) = (span(&mut a[1..]), span(&mut b[1..]));
                    let into = match place {
                        "apart" => span(&mut c[1..]),
                        "over left" => l,
                        _ => r,
                    };
                    reduce(op, basic, l, r, into);
                    let mut result = vec![0; into.bytes()];
                    into.read(&mut result);
                    assert_eq!(result, expected, "{op:?} on {basic:?}, {count} elements, result {place}");
                }
            }
        }
    }
    assert!(combinations > 150, "{combinations}");
}

#[test]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn long_doubles_add_and_compare() {
    // An x87 number: 64 bits of mantissa with its leading one, then sign and exponent (bias 16383).
    let x87 = |n: u64| -> Vec<u8> {
        let shift = n.leading_zeros();
        let exponent = if n == 0 { 0 } else { 16383 + 63 - shift as u16 };
        let mantissa = if n == 0 { 0 } else { n << shift };
        [&mantissa.to_le_bytes()[..], &exponent.to_le_bytes(), &[0; 6]].concat()
    };
    let run = |op, basic, a: &[u8], b: &[u8]| {
        check_op(op, basic).unwrap();
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        let into = span(&mut b);
        reduce(op, basic, span(&mut a), into, into);
        b
    };
    assert_eq!(run(PredefinedOp::Sum, Basic::LongDouble, &x87(40), &x87(2)), x87(42));
    assert_eq!(run(PredefinedOp::Prod, Basic::LongDouble, &x87(6), &x87(7)), x87(42));
    assert_eq!(
        run(PredefinedOp::Max, Basic::LongDouble, &x87(1 << 63), &x87((1 << 63) + 1)),
        x87((1 << 63) + 1)
    );
    let complex = |re, im| [x87(re), x87(im)].concat();
    assert_eq!(run(PredefinedOp::Sum, Basic::CLongDouble, &complex(1, 2), &complex(3, 4)), complex(4, 6));
    let pair = |value, index: i32| [x87(value), index.to_ne_bytes().to_vec()].concat();
    assert_eq!(run(PredefinedOp::Maxloc, Basic::LongDoubleI32, &pair(5, 9), &pair(5, 3)), pair(5, 3));
    assert_eq!(run(PredefinedOp::Minloc, Basic::LongDoubleI32, &pair(4, 9), &pair(5, 3)), pair(4, 9));
    // A binary128: the same bias, 112 bits of fraction without the leading one.
    let quad = |n: u64| -> Vec<u8> {
        let shift = n.leading_zeros();
        let fraction = ((n as u128) << (shift + 49)) & ((1 << 112) - 1);
        (((16383 + 63 - shift as u128) << 112) | fraction).to_le_bytes().to_vec()
    };
    assert_eq!(run(PredefinedOp::Sum, Basic::F128, &quad(40), &quad(2)), quad(42));
    let quads = |re, im| [quad(re), quad(im)].concat();
    assert_eq!(run(PredefinedOp::Sum, Basic::C128, &quads(1, 2), &quads(3, 4)), quads(4, 6));
}

#[test]
fn padding_is_left_alone() {
    // Method: MPI_DOUBLE_INT as C structs of 16 bytes, more than one block of them; their padding is marked.
    let pair = predefined(predefined_handle("MPI_DOUBLE_INT").unwrap()).unwrap();
    let structs = |value: fn(i32) -> f64, index: i32, padding: u8| -> Vec<u8> {
        (0..1000)
            .flat_map(|i| [&value(i).to_ne_bytes()[..], &index.to_ne_bytes(), &[padding; 4]].concat())
            .collect()
    };
    let (mut left, mut into) = (structs(|_| 500.0, 1, 0xaa), structs(f64::from, 2, 0xbb));
    let claim = |bytes: &mut Vec<u8>| {
        // SAFETY: both vectors outlive the buffers.
        unsafe { Buffer::claim(bytes.as_mut_ptr().expose_provenance(), 1000, pair.layout()) }
    };
    reduce_buffers(PredefinedOp::Maxloc, Basic::F64I32, &claim(&mut left), &claim(&mut into));
    for (i, element) in into.chunks(16).enumerate() {
        let (value, index) = if i <= 500 { (500.0, 1i32) } else { (i as f64, 2) };
        assert_eq!(
            element,
            [&value.to_ne_bytes()[..], &index.to_ne_bytes(), &[0xbb; 4]].concat(),
            "element {i}"
        );
    }
}

#[test]
fn sums_of_16_bit_floats_of_any_bits() {
    // `random_elements` has small numbers only: this test has tiny and infinite ones, and NaNs.
    let mut random = SmallRng::seed_from_u64(16);
    let count = if cfg!(miri) { 200 } else { 100_000 };
    let mut left: Vec<u8> = (0..2 * count).map(|_| random.random()).collect();
    let mut right: Vec<u8> = (0..2 * count).map(|_| random.random()).collect();
    let numbers = |bytes: &[u8]| -> Vec<f16> {
        bytes.chunks(2).map(|two| f16::from_ne_bytes(two.try_into().unwrap())).collect()
    };
    let (a, b) = (numbers(&left), numbers(&right));
    // Some lengths are below that for which the widest registers are used.
    for (op, bytes) in
        [(PredefinedOp::Sum, 2 * count), (PredefinedOp::Prod, 2 * count), (PredefinedOp::Sum, 66)]
    {
        let mut into = vec![0u8; bytes];
        let (l, r) = (span(&mut left[..bytes]), span(&mut right[..bytes]));
        reduce(op, Basic::F16, l, r, span(&mut into));
        for (i, result) in numbers(&into).into_iter().enumerate() {
            let wanted = if op == PredefinedOp::Sum { a[i] + b[i] } else { a[i] * b[i] };
            let is_right = result.to_bits() == wanted.to_bits() || result.is_nan() && wanted.is_nan();
            assert!(is_right, "{op:?} of {} and {}: {result}", a[i], b[i]);
        }
    }
}

#[test]
fn half_complex_products() {
    let z = |re: f32, im: f32| [f16::from_f32(re).to_ne_bytes(), f16::from_f32(im).to_ne_bytes()].concat();
    let (mut a, mut b) = (z(1.0, 2.0), z(3.0, -1.0));
    let into = span(&mut b);
    reduce(PredefinedOp::Prod, Basic::C16, span(&mut a), into, into);
    assert_eq!(b, z(5.0, 5.0));
}

#[test]
fn the_table_of_legal_combinations() {
    use PredefinedOp::*;
    let allowed = |op, basic| check_op(op, basic).is_ok();
    assert!(allowed(Sum, Basic::C64) && !allowed(Max, Basic::C64) && !allowed(Band, Basic::F64));
    assert!(allowed(Land, Basic::L32) && !allowed(Sum, Basic::L32) && !allowed(Sum, Basic::WChar));
    assert!(allowed(Bor, Basic::Byte) && !allowed(Lor, Basic::Byte) && !allowed(Sum, Basic::Byte));
    assert!(allowed(Maxloc, Basic::F64I32) && !allowed(Maxloc, Basic::F64) && !allowed(Sum, Basic::F64I32));
    assert!(allowed(Sum, Basic::Char) && allowed(Band, Basic::Char) && !allowed(Maxloc, Basic::Char));
    assert!(allowed(Replace, Basic::WChar) && allowed(NoOp, Basic::Packed));
    let refusal = check_op(Band, Basic::F64).unwrap_err();
    assert_eq!(refusal.class, error::Class::Op);
    assert_eq!(
        refusal.message,
        "MPI_BAND takes integers and MPI_BYTE, but the datatype is a floating-point number"
    );
}
