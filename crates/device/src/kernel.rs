// SPDX-License-Identifier: BSD-3-Clause
//! Kernels of a device: packing and unpacking of datatypes, and reductions.
//!
//! Kernels for CUDA and HIP are compiled from `kernels.cu` for the device of this host (`compiler.rs`). The
//! kernels of the test backend `sentinel` are functions on a thread. Read next: `move_strips` and `reduce` in
//! `driver/kernels.rs` and `sentinel.rs`.

use datatype::{Basic, PredefinedOp};
use std::ffi::{CStr, CString};

/// Pieces of memory of equal length at equal distances, which a kernel packs or unpacks. kernels.cu has the
/// same struct.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Strip {
    /// The address of the first piece of the strip.
    pub address: usize,
    /// The distance in bytes from one piece of the strip to the next.
    pub stride: i64,
    /// The length in bytes of a piece of the strip.
    pub bytes: usize,
    /// The number of pieces in the strip.
    pub repeat: usize,
    /// The offset, among the packed bytes, of the first piece of the strip.
    pub at: usize,
}

/// The source code of all kernels, for the run-time compiler.
pub const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("kernels.cu"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => panic!("kernels.cu has a zero byte"),
    };

/// The name of the kernel that packs and unpacks strips. Its arguments are the packed bytes, the strips, the
/// number of strips, the threads for a piece, and whether it packs.
pub(crate) const MOVE: &CStr = c"outboard_move";

/// The number of threads in a block, in every launch of a kernel.
pub(crate) const BLOCK: u32 = 256;

/// Decides how a launch of the kernel `MOVE` is divided. Returns the blocks in x, the blocks in y, and the
/// threads for a piece of a strip.
pub(crate) fn shape(strips: &[Strip]) -> (u32, u32, u64) {
    let pieces: usize = strips.iter().map(|strip| strip.repeat).sum();
    let bytes: usize = strips.iter().map(|strip| strip.repeat * strip.bytes).sum();
    // A thread moves 16 bytes at a time.
    let lanes = (bytes / pieces.max(1) / 16).next_power_of_two().clamp(1, BLOCK as usize);
    let groups = pieces.div_ceil(strips.len().max(1));
    let x = (groups * lanes).div_ceil(BLOCK as usize).clamp(1, 4096);
    (x as u32, strips.len().clamp(1, 4096) as u32, lanes as u64)
}

/// A reduction of elements as they lie in the program's memory: `stride` bytes apart, and pairs with their
/// padding.
#[derive(Clone, Copy, Debug)]
pub struct KernelReduction {
    pub op: PredefinedOp,
    pub basic: Basic,
    pub count: usize,
    pub stride: usize,
}

impl KernelReduction {
    /// Returns the name of the kernel that makes this reduction, or None if no kernel does: for long double,
    /// 128-bit floats, MPI_REPLACE and MPI_NO_OP. The kernel's arguments are two addresses, the count and the
    /// stride.
    pub fn kernel(&self) -> Option<CString> {
        use Basic::*;
        use PredefinedOp::*;
        if matches!(self.op, Replace | NoOp) {
            return None;
        }
        let bits = 8 * self.basic.size();
        let is_signed = match self.basic {
            I8 | I16 | I32 | I64 | I128 => true,
            Char => std::ffi::c_char::MIN != 0,
            _ => false,
        };
        let element_name = match self.basic {
            // The sign makes no difference for sums, products and bits.
            I8 | I16 | I32 | I64 | I128 | Char if is_signed && matches!(self.op, Max | Min) => {
                format!("i{bits}")
            }
            I8 | I16 | I32 | I64 | I128 | Char | U8 | U16 | U32 | U64 => format!("u{bits}"),
            L8 | L16 | L32 | L64 | L128 | Byte => format!("u{bits}"),
            F16 | F32 | F64 | C16 | C32 | C64 | F32I32 | F64I32 | I64I32 | I32I32 | I16I32 | F32F32
            | F64F64 => format!("{:?}", self.basic).to_lowercase(),
            LongDouble | F128 | CLongDouble | LongDoubleI32 | C128 | WChar | Packed => return None,
        };
        let op = self.op.name().trim_start_matches("MPI_").to_lowercase();
        Some(CString::new(format!("outboard_{op}_{element_name}")).expect("it has no zero byte"))
    }

    /// Returns the offset of the index in a pair (0 for other types), and the length of an element, in bytes,
    /// without padding at its end.
    pub(crate) fn element(&self) -> (usize, usize) {
        match self.basic.pair() {
            Some((value, index)) => {
                let at = value.size().next_multiple_of(index.align());
                (at, at + index.size())
            }
            None => (0, self.basic.size()),
        }
    }

    /// Returns the length in bytes from the first element's first byte to the last element's last byte.
    pub(crate) fn bytes(&self) -> usize {
        self.count.checked_sub(1).map_or(0, |others| others * self.stride + self.element().1)
    }

    /// Whether the elements at `left` and `into` are aligned as a device needs them.
    pub(crate) fn is_aligned(&self, left: usize, into: usize) -> bool {
        (left | into | self.stride).is_multiple_of(self.basic.align())
    }

    /// Returns the number of blocks in which the reduction's kernel is launched.
    pub(crate) fn blocks(&self) -> u32 {
        (self.count * self.basic.size()).div_ceil(16 * BLOCK as usize).clamp(1, 4096) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C code that compiles the kernels' source for the host: `move_strips` and `reduce` run the threads of a
    /// kernel one by one.
    const HOST: &str = "#define __global__\n#define __device__\ntypedef struct { unsigned x, y; } Dim;\n\
        static __thread Dim blockIdx, blockDim, threadIdx, gridDim;\n#include \"kernels.cu\"\n\
        #define EACH_THREAD(call) gridDim.x = x, gridDim.y = y, blockDim.x = 256; \\\n\
        for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++) for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) \\\n\
        for (threadIdx.x = 0; threadIdx.x < 256; threadIdx.x++) call\n\
        void move_strips(u64 packed, const Strip *strips, u64 count, u64 lanes, u64 is_pack, unsigned x, unsigned y)\n\
        { EACH_THREAD(outboard_move(packed, strips, count, lanes, is_pack)); }\n\
        void reduce(void (*kernel)(u64, u64, u64, u64), u64 left, u64 into, u64 count, u64 stride, unsigned x)\n\
        { unsigned y = 1; EACH_THREAD(kernel(left, into, count, stride)); }\n";

    fn on_host() -> &'static libloading::Library {
        static LIBRARY: std::sync::OnceLock<libloading::Library> = std::sync::OnceLock::new();
        LIBRARY.get_or_init(|| {
            let folder = std::env::temp_dir().join(format!("outboard-kernels-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let (source, library) = (folder.join("host.c"), folder.join("host.so"));
            std::fs::write(&source, HOST).unwrap();
            let built = std::process::Command::new("cc")
                .args(["-O1", "-ffp-contract=off", "-shared", "-fPIC"])
                .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/src"), "-o"])
                .args([&library, &source])
                .status();
            assert!(built.unwrap().success());
            // SAFETY: the library that was just made.
            let library = unsafe { libloading::Library::new(&library) }.unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
            library
        })
    }

    // Goal: the source packs and unpacks strips of all alignments and lengths.
    #[test]
    fn the_source_moves_strips() {
        type RunKernel = unsafe extern "C" fn(usize, *const Strip, u64, u64, u64, u32, u32);
        // SAFETY: the type of the function above.
        let run: libloading::Symbol<RunKernel> = unsafe { on_host().get(b"move_strips") }.unwrap();
        let user: Vec<u8> = (0..60_000usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for bytes in [1, 2, 4, 7, 8, 16, 48, 256, 1000] {
            for shift in [0, 1, 2, 8] {
                let strips: Vec<Strip> = (0..5)
                    .map(|number| Strip {
                        address: user.as_ptr().addr() + number * 10_000 + shift,
                        stride: bytes as i64 + 16,
                        bytes,
                        repeat: 9 - number,
                        at: (0..number).map(|before| (9 - before) * bytes).sum(),
                    })
                    .collect();
                let pieces: Vec<usize> = strips
                    .iter()
                    .flat_map(|strip| (0..strip.repeat).map(|piece| strip.address + piece * (bytes + 16)))
                    .collect();
                let expected: Vec<u8> = pieces
                    .iter()
                    .flat_map(|piece| user[piece - user.as_ptr().addr()..][..bytes].to_vec())
                    .collect();
                let (mut packed, (x, y, lanes)) = (vec![0u8; expected.len()], shape(&strips));
                let to = packed.as_mut_ptr().expose_provenance();
                user.as_ptr().expose_provenance();
                // SAFETY: the strips lie in `user`, and `packed` has room for them.
                unsafe { run(to, strips.as_ptr(), strips.len() as u64, lanes, 1, x, y) };
                assert!(packed == expected, "packed pieces of {bytes} bytes, shifted by {shift}");
                let mut back = vec![0u8; user.len()];
                let moved = back.as_mut_ptr().expose_provenance().wrapping_sub(user.as_ptr().addr());
                let theirs: Vec<Strip> = strips
                    .iter()
                    .map(|strip| Strip { address: strip.address.wrapping_add(moved), ..*strip })
                    .collect();
                // SAFETY: the same places of `back`.
                unsafe { run(to, theirs.as_ptr(), theirs.len() as u64, lanes, 0, x, y) };
                let is_in = |at: usize| {
                    pieces
                        .iter()
                        .any(|piece| (0..bytes).contains(&(user.as_ptr().addr() + at).wrapping_sub(*piece)))
                };
                let right = (0..user.len()).all(|at| back[at] == if is_in(at) { user[at] } else { 0 });
                assert!(right, "unpacked pieces of {bytes} bytes, shifted by {shift}");
            }
        }
    }

    /// Makes `bytes` bytes of random numbers, each with parts of `part` bytes. Some have any bits, others are
    /// small, so that not all results are infinite.
    fn noise(bytes: usize, part: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut each = Vec::with_capacity(bytes + 16);
        while each.len() < bytes {
            let (kind, any) = (next() % 4, next());
            let small = (any % 17) as f64 / 4.0 - 2.0;
            match (kind, part) {
                (0, 4) => each.extend((small as f32).to_ne_bytes()),
                (0, 8) => each.extend(small.to_ne_bytes()),
                (0, 2) => each.extend((0x3800 + (any % 0x1000) as u16).to_ne_bytes()),
                (1, _) => each.extend(&[[(any % 2) as u8], [0]].concat().repeat(8)[..part]),
                _ => each.extend(&[any, next()].map(u64::to_ne_bytes).concat()[..part]),
            }
        }
        each.truncate(bytes);
        each
    }

    /// Returns the length in bytes of each part of a floating-point or complex number. None for other types.
    fn float_part(basic: Basic) -> Option<usize> {
        match basic {
            Basic::F16 | Basic::C16 => Some(2),
            Basic::F32 | Basic::C32 => Some(4),
            Basic::F64 | Basic::C64 => Some(8),
            _ => None,
        }
    }

    fn is_nan(part: &[u8]) -> bool {
        match *part {
            [a, b] => u16::from_ne_bytes([a, b]) & 0x7fff > 0x7c00,
            [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]).is_nan(),
            _ => f64::from_ne_bytes(part.try_into().unwrap()).is_nan(),
        }
    }

    /// Whether two values have equal bits; two NaNs count as equal.
    fn are_equal(basic: Basic, left: &[u8], right: &[u8]) -> bool {
        let Some(part) = float_part(basic) else { return left == right };
        left.chunks(part).zip(right.chunks(part)).all(|(a, b)| a == b || (is_nan(a) && is_nan(b)))
    }

    /// Compares a kernel with the CPU's reduction, at addresses `shift` bytes after a multiple of 16.
    fn compare(reduction: KernelReduction, shift: usize) {
        let KernelReduction { op, basic, count, stride } = reduction;
        let kernel = reduction.kernel().unwrap();
        let part = float_part(basic).unwrap_or(basic.pair().map_or(basic.size(), |pair| pair.0.size()));
        // Vectors of words, for the alignment.
        let operand = |seed| {
            let words: Vec<u128> = noise(count * stride + 32, part, seed)
                .chunks_exact(16)
                .map(|word| u128::from_ne_bytes(word.try_into().unwrap()))
                .collect();
            words
        };
        let (left, into) = (operand(71 + basic as u64), operand(907 + op as u64));
        let (index_at, end) = reduction.element();
        let bytes = |words: &[u128]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let packed = |element: &[u8]| match basic.pair() {
            Some((value, _)) => [&element[..value.size()], &element[index_at..end]].concat(),
            None => element.to_vec(),
        };
        let (before, other) = (bytes(&into), bytes(&left));
        let mut result = into.clone();
        let from = left.as_ptr().expose_provenance() + shift;
        let to = result.as_mut_ptr().expose_provenance() + shift;
        assert!(reduction.is_aligned(from, to), "{reduction:?}");
        type RunKernel = unsafe extern "C" fn(usize, usize, usize, usize, usize, u32);
        // SAFETY: the type of `reduce` in HOST.
        let run: libloading::Symbol<RunKernel> = unsafe { on_host().get(b"reduce") }.unwrap();
        // SAFETY: the kernel of that name.
        let function: libloading::Symbol<unsafe extern "C" fn()> =
            unsafe { on_host().get(kernel.as_bytes_with_nul()) }.unwrap();
        // SAFETY: both operands have room for so many elements.
        unsafe { run(*function as usize, from, to, count, stride, reduction.blocks()) };
        let after = bytes(&result);
        let mut is_element = vec![false; after.len()];
        for i in 0..count {
            let at = shift + i * stride;
            let [a, b] = [&other, &before].map(|bytes| sys::Block::of(&packed(&bytes[at..at + end])));
            datatype::reduce(op, basic, a.span(), b.span(), b.span());
            let got = packed(&after[at..at + end]);
            assert!(are_equal(basic, &got, &b.to_vec()), "{reduction:?}, {shift}: element {i}, {got:?}");
            is_element[at..at + end].fill(true);
            if let Some((value, _)) = basic.pair() {
                is_element[at + value.size()..at + index_at].fill(false);
            }
        }
        let is_kept = (0..after.len()).all(|at| is_element[at] || after[at] == before[at]);
        assert!(is_kept, "{reduction:?}: bytes between elements have changed");
    }

    // Goal: each operator on each type gives the same bits as on the CPU, without and with gaps, and the
    // bytes in gaps do not change.
    #[test]
    fn the_source_reduces() {
        let (mut left_to_cpu, mut pairs) = (Vec::new(), 0);
        for (op, basic) in PredefinedOp::ALL.into_iter().flat_map(|op| Basic::ALL.map(|basic| (op, basic))) {
            let is_moved = matches!(op, PredefinedOp::Replace | PredefinedOp::NoOp);
            if is_moved || datatype::check_op(op, basic).is_err() {
                continue;
            }
            let natural = KernelReduction { op, basic, count: 1, stride: 1 }
                .element()
                .1
                .next_multiple_of(basic.align());
            let reduction = KernelReduction { op, basic, count: 259, stride: natural };
            if reduction.kernel().is_none() {
                left_to_cpu.push(basic);
                continue;
            }
            pairs += 1;
            compare(reduction, 0);
            compare(reduction, basic.align());
            compare(KernelReduction { count: 5, stride: 3 * natural, ..reduction }, 0);
        }
        left_to_cpu.dedup();
        left_to_cpu.sort_by_key(|basic| *basic as u8);
        left_to_cpu.dedup();
        use Basic::*;
        assert_eq!(left_to_cpu, [LongDouble, F128, CLongDouble, LongDoubleI32, C128]);
        // Integers and characters, floats, complex numbers, logicals, bytes, pairs.
        assert_eq!(pairs, 10 * 10 + 3 * 4 + 3 * 2 + 5 * 3 + 3 + 7 * 2);
    }
}
