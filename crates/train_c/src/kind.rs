// SPDX-License-Identifier: BSD-3-Clause
//! Element types and reduction operators, and what they are in MPI. MPI's binary interface has no bfloat16,
//! so this library defines operators on it, which work on 16-bit words. Only the rank executes such a
//! reduction, never a proxy.

use crate::c::{MPI_Datatype, MPI_Op};
use crate::fault::{ARGUMENT, Result, call, fail};
use crate::numbers as n;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    F16,
    Bf16,
    F32,
    F64,
    Signed(u8),
    Unsigned(u8),
    Bool,
}

/// The element types in the order of `outboard_dl_type`, each with MPI's datatype number and its name.
const KINDS: [(ElementKind, i32, &str); 13] = [
    (ElementKind::F16, n::REAL2, "f16"),
    (ElementKind::Bf16, n::UINT16_T, "bf16"),
    (ElementKind::F32, n::FLOAT, "f32"),
    (ElementKind::F64, n::DOUBLE, "f64"),
    (ElementKind::Signed(1), n::INT8_T, "i8"),
    (ElementKind::Unsigned(1), n::UINT8_T, "u8"),
    (ElementKind::Signed(2), n::INT16_T, "i16"),
    (ElementKind::Unsigned(2), n::UINT16_T, "u16"),
    (ElementKind::Signed(4), n::INT32_T, "i32"),
    (ElementKind::Unsigned(4), n::UINT32_T, "u32"),
    (ElementKind::Signed(8), n::INT64_T, "i64"),
    (ElementKind::Unsigned(8), n::UINT64_T, "u64"),
    (ElementKind::Bool, n::C_BOOL, "bool"),
];

impl ElementKind {
    pub fn of(number: c_int) -> Result<ElementKind> {
        match usize::try_from(number - 1).ok().and_then(|at| KINDS.get(at)) {
            Some(row) => Ok(row.0),
            None => fail(ARGUMENT, format!("{number} is no type of enum outboard_dl_type")),
        }
    }

    fn row(self) -> &'static (ElementKind, i32, &'static str) {
        KINDS.iter().find(|row| row.0 == self).unwrap_or(&KINDS[0])
    }

    pub fn datatype(self) -> MPI_Datatype {
        handle(self.row().1)
    }

    pub fn name(self) -> &'static str {
        self.row().2
    }
}

/// Returns the predefined handle that has this number in the standard ABI.
pub fn handle(number: i32) -> usize {
    number as usize
}

/// A reduction: MPI's operator, and whether the result is then divided by the size of the group (an average).
#[derive(Debug, Clone, Copy)]
pub struct ReductionOp {
    pub op: MPI_Op,
    pub is_average: bool,
}

impl ReductionOp {
    pub fn of(number: c_int, kind: ElementKind) -> Result<ReductionOp> {
        let refuse = || fail(ARGUMENT, format!("operator {number} is not defined on {}", kind.name()));
        let is_float =
            matches!(kind, ElementKind::F16 | ElementKind::Bf16 | ElementKind::F32 | ElementKind::F64);
        let op = match (number, kind) {
            (2, _) if !is_float => return refuse(),
            (1 | 2, ElementKind::Bf16) => return brain(0, number == 2),
            (3..=5, ElementKind::Bf16) => return brain(number as usize - 2, false),
            (1 | 5, ElementKind::Bool) => n::LOR,
            (3 | 4, ElementKind::Bool) => n::LAND,
            (1 | 2, _) => n::SUM,
            (3, _) => n::PROD,
            (4, _) => n::MIN,
            (5, _) => n::MAX,
            (6..=8, _) if is_float => return refuse(),
            (6, ElementKind::Bool) => n::LAND,
            (7, ElementKind::Bool) => n::LOR,
            (8, ElementKind::Bool) => n::LXOR,
            (6, _) => n::BAND,
            (7, _) => n::BOR,
            (8, _) => n::BXOR,
            _ => return refuse(),
        };
        Ok(ReductionOp { op: handle(op), is_average: number == 2 })
    }
}

type Operator = unsafe extern "C" fn(*const c_void, *mut c_void, *const i64, *const MPI_Datatype);
static BRAIN: OnceLock<[MPI_Op; 4]> = OnceLock::new();

/// Makes the MPI operators on bfloat16. Called once, after MPI is initialised.
pub fn make_operators() -> Result<()> {
    let mut made = [0; 4];
    let operators: [Operator; 4] = [operator::<0>, operator::<1>, operator::<2>, operator::<3>];
    for (operator, op) in operators.into_iter().zip(&mut made) {
        call!(MPI_Op_create_c(operator as usize, 1, &raw mut *op))?;
    }
    let _ = BRAIN.set(made);
    Ok(())
}

fn brain(which: usize, is_average: bool) -> Result<ReductionOp> {
    match BRAIN.get() {
        Some(operators) => Ok(ReductionOp { op: operators[which], is_average }),
        None => fail(crate::fault::STATE, "outboard_dl_init has not been called"),
    }
}

/// The function of an MPI operator on bfloat16: sum, product, minimum or maximum for `WHICH` 0, 1, 2 or 3.
///
/// # Safety
/// MPI's contract for operators (MPI 5.0, section 6.9.5): both vectors have `length` elements.
unsafe extern "C" fn operator<const WHICH: u8>(
    input: *const c_void,
    inout: *mut c_void,
    length: *const i64,
    _: *const MPI_Datatype,
) {
    // SAFETY: the caller's promise.
    let length = usize::try_from(unsafe { *length }).unwrap_or(0);
    if length == 0 {
        return;
    }
    // SAFETY: the caller's promise; bf16 is a 16-bit word.
    let input = unsafe { std::slice::from_raw_parts(input.cast::<bf16>(), length) };
    // SAFETY: as above, and MPI passes vectors that do not overlap.
    let inout = unsafe { std::slice::from_raw_parts_mut(inout.cast::<bf16>(), length) };
    for (a, b) in input.iter().zip(inout) {
        let (x, y) = (a.to_f32(), b.to_f32());
        *b = bf16::from_f32(match WHICH {
            0 => x + y,
            1 => x * y,
            // A NaN stays, as in torch.
            2 => {
                if x < y || x.is_nan() {
                    x
                } else {
                    y
                }
            }
            _ => {
                if x > y || x.is_nan() {
                    x
                } else {
                    y
                }
            }
        });
    }
}

/// The result of a reduction that averages. The sums at `address` are still to be divided by the size of the
/// group.
#[derive(Debug, Clone, Copy)]
pub struct Average {
    pub address: usize,
    pub count: usize,
    pub kind: ElementKind,
    pub size: u32,
}

impl Average {
    /// Divides the sums, in place, by the number of the group's members.
    pub fn divide(self) {
        if self.count == 0 {
            return;
        }
        let by = self.size as f32;
        match self.kind {
            ElementKind::F16 => divide_in_blocks(self.values::<f16>(), by),
            ElementKind::Bf16 => divide_in_blocks(self.values::<bf16>(), by),
            ElementKind::F32 => self.values::<f32>().iter_mut().for_each(|x| *x /= by),
            ElementKind::F64 => self.values::<f64>().iter_mut().for_each(|x| *x /= f64::from(self.size)),
            // `ReductionOp::of` refuses averages of these.
            ElementKind::Signed(_) | ElementKind::Unsigned(_) | ElementKind::Bool => {}
        }
    }

    fn values<'a, T>(self) -> &'a mut [T] {
        // SAFETY: the operation's receive buffer, which is the operation's until its end (the crate's
        // contract); its kind was checked when it was started.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut T, self.count) }
    }
}

/// Divides `values` by `by`, in blocks. The crate `half` tests the processor's features at each call, so one
/// call for each number is six times slower.
fn divide_in_blocks<T>(values: &mut [T], by: f32)
where
    [T]: HalfFloatSliceExt,
{
    for block in values.chunks_mut(64) {
        let wide = &mut [0.0; 64][..block.len()];
        block.convert_to_f32_slice(wide);
        wide.iter_mut().for_each(|x| *x /= by);
        block.convert_from_f32_slice(wide);
    }
}
