// SPDX-License-Identifier: BSD-3-Clause
//! The parametrised types of Fortran 90 (MPI 5.0, section 19.1.9). A program gives a precision and a range,
//! which select one of gfortran's kinds.

use crate::basic::Basic;
use crate::combiner::Combiner;
use crate::datatype::{Datatype, Recipe};
use crate::predefined::unnamed;
use error::{Class, Result, fail};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// MPI_UNDEFINED. A precision or range with this value is not restricted.
const UNDEFINED: i32 = -32766;

/// The kinds of reals of gfortran. Each row has the decimal precision, the decimal exponent range, the
/// machine type of real numbers, and the machine type of complex numbers.
const REALS: [(i32, i32, Basic, Basic); 4] = [
    (6, 37, Basic::F32, Basic::C32),
    (15, 307, Basic::F64, Basic::C64),
    // Kind 10, C's long double, exists on x86-64 only; elsewhere long double is the next row.
    (if cfg!(target_arch = "x86_64") { 18 } else { -1 }, 4931, Basic::LongDouble, Basic::CLongDouble),
    (33, 4931, Basic::F128, Basic::C128),
];

/// The kinds of integers of gfortran, each with its decimal range and its machine type.
const INTEGERS: [(i32, Basic); 5] =
    [(2, Basic::I8), (4, Basic::I16), (9, Basic::I32), (18, Basic::I64), (38, Basic::I128)];

/// Returns the datatype of reals with at least `precision` decimal digits and the decimal exponent range
/// `range` (MPI_Type_create_f90_real). It is predefined, and the same for the same arguments.
pub fn f90_real(precision: i32, range: i32) -> Result<Arc<Datatype>> {
    let (_, _, basic, _) = find_real(precision, range)?;
    Ok(cached(Combiner::F90Real, &[precision, range], basic))
}

/// Returns the datatype of complex numbers whose parts have at least `precision` decimal digits and the
/// decimal exponent range `range` (MPI_Type_create_f90_complex).
pub fn f90_complex(precision: i32, range: i32) -> Result<Arc<Datatype>> {
    let (_, _, _, basic) = find_real(precision, range)?;
    Ok(cached(Combiner::F90Complex, &[precision, range], basic))
}

/// Returns the datatype of integers that hold all numbers of `range` decimal digits
/// (MPI_Type_create_f90_integer).
pub fn f90_integer(range: i32) -> Result<Arc<Datatype>> {
    if range < 0 {
        fail!(Class::Arg, "the range {range} is negative");
    }
    match INTEGERS.iter().find(|entry| range <= entry.0) {
        Some(&(_, basic)) => Ok(cached(Combiner::F90Integer, &[range], basic)),
        None => fail!(Class::Arg, "no Fortran integer has the range {range}; the largest has 38"),
    }
}

fn find_real(precision: i32, range: i32) -> Result<(i32, i32, Basic, Basic)> {
    if precision == UNDEFINED && range == UNDEFINED {
        fail!(Class::Arg, "precision and range must not both be MPI_UNDEFINED");
    }
    if [precision, range].iter().any(|&n| n < 0 && n != UNDEFINED) {
        fail!(Class::Arg, "the precision {precision} or the range {range} is negative");
    }
    let meets = |entry: &&(i32, i32, Basic, Basic)| entry.0 > 0 && precision <= entry.0 && range <= entry.1;
    match REALS.iter().find(meets) {
        Some(&entry) => Ok(entry),
        None => fail!(
            Class::Arg,
            "no Fortran real has the precision {precision} and the range {range}; the largest has 33 and 4931"
        ),
    }
}

/// Returns the datatype of this combiner and these arguments. The first call makes it, and later calls with
/// the same arguments return it again. There are few valid arguments, so the cache is bounded.
fn cached(combiner: Combiner, arguments: &[i32], basic: Basic) -> Arc<Datatype> {
    type Made = HashMap<(Combiner, Vec<i32>), Arc<Datatype>>;
    static MADE: Mutex<Option<Made>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    let recipe = || {
        let numbers = arguments.iter().map(|&n| n as i64).collect();
        Recipe { combiner, integers: arguments.len(), numbers, ..Recipe::NAMED }
    };
    made.entry((combiner, arguments.to_vec())).or_insert_with(|| unnamed(basic, recipe())).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_kind_that_suffices() {
        assert_eq!(f90_real(6, 37).unwrap().basic(), Some(Basic::F32));
        assert_eq!(f90_real(7, UNDEFINED).unwrap().basic(), Some(Basic::F64));
        assert_eq!(f90_real(UNDEFINED, 308).unwrap().size(), 16);
        assert_eq!(f90_complex(33, 4931).unwrap().basic(), Some(Basic::C128));
        assert_eq!(f90_integer(10).unwrap().size(), 8);
        assert!(Arc::ptr_eq(&f90_real(15, 100).unwrap(), &f90_real(15, 100).unwrap()));
        let made = f90_real(15, 100).unwrap();
        assert_eq!(
            (made.recipe().combiner, made.recipe().integers()),
            (Combiner::F90Real, &[15i64, 100][..])
        );
        assert!(made.is_permanent() && made.is_committed() && made.predefined().is_none());
        for wrong in [f90_real(34, 1), f90_real(1, 5000), f90_real(UNDEFINED, UNDEFINED), f90_integer(39)] {
            assert_eq!(wrong.unwrap_err().class, Class::Arg);
        }
    }
}
