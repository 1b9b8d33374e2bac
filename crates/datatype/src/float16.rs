// SPDX-License-Identifier: BSD-3-Clause
//! Numbers of 16 bits (binary16 of IEEE 754) for reductions, which compute in `f32`.
//!
//! The conversions have neither branches nor calls, so loops of them are vectorised on any processor. The
//! crate `half` looks up the processor's features at each number, which takes most of the time of a sum. No
//! `f32` here is subnormal, because a program may have told the processor to flush those to zero.

#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Float16(u16);

/// The number to add to the bits of an `f32` to make its exponent larger by 1.
const EXPONENT: u32 = 1 << 23;
/// The bits of the positive infinite `f32`.
const INFINITE: i32 = 0x7f80_0000;

impl Float16 {
    /// Converts the number to `f32`, exactly. A NaN stays a NaN.
    #[inline(always)] // Compiled for the registers of its caller, like `narrow`.
    pub(crate) fn widen(self) -> f32 {
        let (sign, rest) = (u32::from(self.0 & 0x8000), u32::from(self.0 & 0x7fff));
        // The exponent 31 becomes 255, and multiplying leaves an infinity and a NaN what they are.
        let normal = f32::from_bits((rest << 13) + 224 * EXPONENT) * f32::from_bits(15 * EXPONENT);
        // A subnormal number is a multiple of 2^-24, which is the last bit of numbers from 0.5 to 1.
        let tiny = f32::from_bits(rest + 126 * EXPONENT) - 0.5;
        let size = if rest < 0x400 { tiny } else { normal };
        f32::from_bits(size.to_bits() | sign << 16)
    }

    /// Rounds `wide` to the nearest number of 16 bits, ties to even. The result is infinite from 65520 on.
    #[inline(always)]
    pub(crate) fn narrow(wide: f32) -> Float16 {
        let bits = wide.to_bits();
        // The numbers are signed, because not every processor compares vectors of unsigned ones.
        let size = (bits & 0x7fff_ffff) as i32;
        let is_odd = size >> 13 & 1;
        let normal = ((size - 112 * EXPONENT as i32 + 0xfff + is_odd) >> 13).min(0x7c00);
        // The addition rounds to multiples of 2^-24.
        let tiny = ((f32::from_bits(size as u32) + 0.5).to_bits() - 126 * EXPONENT) as i32;
        let nan = 0x7e00 | size >> 13 & 0x3ff;
        let small = if size < 113 * EXPONENT as i32 { tiny } else { normal };
        Float16(if size > INFINITE { nan } else { small } as u16 | (bits >> 16) as u16 & 0x8000)
    }
}

impl PartialEq for Float16 {
    fn eq(&self, other: &Float16) -> bool {
        self.widen() == other.widen()
    }
}

impl PartialOrd for Float16 {
    fn partial_cmp(&self, other: &Float16) -> Option<std::cmp::Ordering> {
        self.widen().partial_cmp(&other.widen())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn conversions_are_those_of_half() {
        // All numbers of 16 bits; and of 32 bits each of these, the middle to the next, and their neighbours.
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 257 } else { 1 }) {
            let (ours, theirs) = (Float16(bits).widen(), f16::from_bits(bits).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{bits:#x}: {ours}"
            );
            let next = f16::from_bits((bits & 0x8000) | ((bits & 0x7fff) + 1)).to_f32();
            let middle = (f64::midpoint(f64::from(theirs), f64::from(next))) as f32;
            for near in [theirs.to_bits(), middle.to_bits()] {
                for wide in [near.wrapping_sub(1), near, near + 1].map(f32::from_bits) {
                    let wanted = f16::from_f32(wide).to_bits();
                    assert_eq!(Float16::narrow(wide).0, wanted, "{wide} ({:#x})", wide.to_bits());
                }
            }
        }
        // Also a sample of all numbers of 32 bits: far too large, far too small, NaN.
        for bits in (0..=u32::MAX).step_by(if cfg!(miri) { 16_777_213 } else { 4099 }) {
            let wanted = f16::from_f32(f32::from_bits(bits)).to_bits();
            assert_eq!(Float16::narrow(f32::from_bits(bits)).0, wanted, "{bits:#x}");
        }
    }

    #[test]
    fn order_is_that_of_half() {
        let some =
            [0u16, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0xfe01];
        for (a, b) in some.iter().flat_map(|&a| some.map(|b| (a, b))) {
            let theirs = f16::from_bits(a).partial_cmp(&f16::from_bits(b));
            assert_eq!(Float16(a).partial_cmp(&Float16(b)), theirs, "{a:#x} {b:#x}");
        }
    }
}
