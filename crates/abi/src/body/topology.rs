//! What of topologies needs no comm (MPI 5.0, section 8.5.2).

use crate::args::{Array, length};
use crate::process::Guard;
use error::{Class, Result, fail};

/// MPI_Dims_create: fills in the dimensions that are 0.
pub fn dims_create(_: &mut Guard, nnodes: i32, ndims: i32, dims: Array<i32>) -> Result<()> {
    if nnodes < 1 {
        fail!(Class::Arg, "nnodes is {nnodes}, which is not positive");
    }
    let given = dims.read(length(ndims, "ndims")?)?;
    if let Some(dim) = given.iter().position(|extent| *extent < 0) {
        fail!(Class::Dims, "dims[{dim}] is {}, which is negative", given[dim]);
    }
    let fixed =
        given.iter().filter(|extent| **extent > 0).fold(1i64, |all, dim| all.saturating_mul((*dim).into()));
    if i64::from(nnodes) % fixed != 0 {
        fail!(
            Class::Dims,
            "{nnodes} processes cannot be divided by the given dimensions, whose product is {fixed}"
        );
    }
    let rest = (i64::from(nnodes) / fixed) as u64;
    let free = given.iter().filter(|extent| **extent == 0).count();
    if free == 0 && rest != 1 {
        fail!(Class::Dims, "the given dimensions have {fixed} places, not {nnodes}");
    }
    let mut found = balanced(rest, free).into_iter();
    for (dim, extent) in given.iter().enumerate() {
        if *extent == 0 {
            dims.set(dim, found.next().expect("as many as free dimensions") as i32)?;
        }
    }
    Ok(())
}

/// `parts` factors of `number`, the largest first and as small as can be, then the second likewise.
fn balanced(number: u64, parts: usize) -> Vec<u64> {
    let small = (1..).take_while(|d| d * d <= number).filter(|d| number.is_multiple_of(*d));
    let mut divisors: Vec<u64> = small.flat_map(|d| [d, number / d]).collect();
    divisors.sort_unstable();
    divisors.dedup();
    // There are never more than 31 factors above 1, and the rest is ones.
    let factors = parts.min(31);
    let mut found = factor(number, factors, number, &divisors).expect("the number itself and ones will do");
    found.resize(parts, 1);
    found
}

fn factor(number: u64, parts: usize, largest: u64, divisors: &[u64]) -> Option<Vec<u64>> {
    if parts == 0 {
        return (number == 1).then(Vec::new);
    }
    // Where even `parts` factors of this size fall short, a smaller first one cannot do.
    let enough = |first: u64| {
        (0..parts).try_fold(1u64, |all, _| all.checked_mul(first)).is_none_or(|all| all >= number)
    };
    let firsts = divisors.iter().filter(|d| **d <= largest && number.is_multiple_of(**d) && enough(**d));
    firsts.into_iter().find_map(|first| {
        let mut rest = factor(number / first, parts - 1, *first, divisors)?;
        rest.insert(0, *first);
        Some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::balanced;

    #[test]
    fn factors_are_balanced_and_fall() {
        assert_eq!(balanced(72, 2), [9, 8]);
        assert_eq!(balanced(6, 3), [3, 2, 1]);
        assert_eq!(balanced(27, 3), [3, 3, 3]);
        assert_eq!(balanced(7, 2), [7, 1]);
        assert_eq!(balanced(1, 2), [1, 1]);
        assert_eq!(balanced(1 << 30, 3), [1 << 10; 3]);
        // Many divisors, many parts, and primes that cannot be avoided: the search must not wander.
        for number in [735_134_400, 2_095_133_040, 2_147_483_647] {
            for parts in 1..12 {
                assert_eq!(balanced(number, parts).iter().product::<u64>(), number);
            }
        }
        for number in 1..500 {
            for parts in 1..5 {
                let found = balanced(number, parts);
                assert_eq!(found.iter().product::<u64>(), number);
                assert!(found.is_sorted_by(|a, b| a >= b));
            }
        }
    }
}
