// SPDX-License-Identifier: BSD-3-Clause
//! The predefined datatypes by their handles in the standard ABI (MPI 5.0, section 20.3 and annex A.1), with
//! the sizes of x86-64 and aarch64 Linux and of gfortran's default kinds.

use crate::basic::Basic::{self, *};
use crate::datatype::{Datatype, Recipe};
use crate::facts::{Leaf, TypeFacts};
use crate::layout::{Body, Layout};
use error::{Class, Result, fail};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// The handle MPI_DATATYPE_NULL. The handles of the predefined datatypes follow it.
pub const NULL: u32 = 0x200;

/// Returns the datatype with this predefined handle; None for MPI_DATATYPE_NULL and unassigned numbers.
pub fn predefined(handle: u32) -> Option<&'static Arc<Datatype>> {
    TABLE.get(handle.wrapping_sub(NULL) as usize)?.as_ref()
}

/// Returns the name of a predefined handle, MPI_DATATYPE_NULL included, for MPI_Type_get_name; None for
/// unassigned numbers.
pub fn predefined_name(handle: u32) -> Option<&'static str> {
    if handle == NULL {
        return Some("MPI_DATATYPE_NULL");
    }
    let marker = MARKERS.iter().find(|marker| marker.0 == handle).map(|marker| marker.1);
    marker.or_else(|| ENTRIES.iter().find(|entry| entry.0 == handle).map(|entry| entry.1))
}

/// Returns the handle of the predefined datatype with this name, or with this alias, such as
/// MPI_C_FLOAT_COMPLEX; None if no predefined datatype has the name.
pub fn predefined_handle(name: &str) -> Option<u32> {
    let alias = ALIASES.iter().find(|alias| alias.0 == name).map_or(name, |alias| alias.1);
    ENTRIES.iter().find(|entry| entry.1 == alias).map(|entry| entry.0)
}

pub fn predefined_handles() -> impl Iterator<Item = u32> {
    ENTRIES.iter().map(|entry| entry.0).chain(MARKERS.iter().map(|marker| marker.0))
}

/// The predefined datatypes of one type class: for each, its size in bytes and its handle.
type SizeTable = &'static [(i64, u32)];

/// The type classes MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL and MPI_TYPECLASS_COMPLEX: for each, its
/// number, a noun for error messages, and its datatypes.
const CLASSES: [(i32, &str, SizeTable); 3] = [
    (192, "an integer", &[(1, 0x2c1), (2, 0x2c9), (4, 0x2d1), (8, 0x2d9), (16, 0x2e1)]),
    (193, "a real", &[(2, 0x2ca), (4, 0x2d2), (8, 0x2da), (16, 0x2e2)]),
    (194, "a complex", &[(4, 0x2d3), (8, 0x2db), (16, 0x2e3), (32, 0x2eb)]),
];

/// Returns the predefined datatype of a class (MPI_TYPECLASS_INTEGER, ...) that has `size` bytes
/// (MPI_Type_match_size). Errors: there is no such class, or no such datatype in it.
pub fn match_size(class: i32, size: i64) -> Result<&'static Arc<Datatype>> {
    let Some((_, name, sizes)) = CLASSES.iter().find(|entry| entry.0 == class) else {
        fail!(
            Class::Arg,
            "{class} is not a type class: use MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL or MPI_TYPECLASS_COMPLEX"
        )
    };
    match sizes.iter().find(|entry| entry.0 == size).and_then(|entry| predefined(entry.1)) {
        Some(datatype) => Ok(datatype),
        None => fail!(Class::Arg, "there is no datatype for {name} of {size} bytes"),
    }
}

/// Returns the datatype of pairs of this value type and this index type (MPI_Type_get_value_index; MPI 5.0,
/// section 5.1.12); None (MPI_DATATYPE_NULL) if there is no such pair.
pub fn value_index(value: &Datatype, index: &Datatype) -> Option<&'static Arc<Datatype>> {
    let (value, index) = (value.predefined()?, index.predefined()?);
    VALUE_INDEX
        .iter()
        .find(|entry| (entry.0, entry.1) == (value, index))
        .and_then(|entry| predefined(entry.2))
}

/// The datatypes of pairs: the handles of the value's type, of the index's type, and of the pair's type.
const VALUE_INDEX: [(u32, u32, u32); 9] = [
    (0x210, 0x209, 0x228),
    (0x214, 0x209, 0x229),
    (0x20a, 0x209, 0x22a),
    (0x209, 0x209, 0x22b),
    (0x208, 0x209, 0x22c),
    (0x220, 0x209, 0x22d),
    (0x21a, 0x21a, 0x230),
    (0x21c, 0x21c, 0x231),
    (0x219, 0x219, 0x232),
];

/// Makes a predefined datatype without a handle in the standard ABI, for a type of Fortran 90.
pub(crate) fn unnamed(basic: Basic, recipe: Recipe) -> Arc<Datatype> {
    Arc::new(make(None, basic, basic.size() as u8, recipe))
}

/// The second names of predefined datatypes, each with the first name of the same handle (MPI 5.0, table
/// 3.2).
const ALIASES: [(&str, &str); 2] =
    [("MPI_C_FLOAT_COMPLEX", "MPI_C_COMPLEX"), ("MPI_LONG_LONG", "MPI_LONG_LONG_INT")];

static TABLE: LazyLock<Vec<Option<Arc<Datatype>>>> = LazyLock::new(|| {
    let mut table = vec![None; 256];
    for &(handle, _, basic, external_bytes) in ENTRIES {
        table[(handle - NULL) as usize] =
            Some(Arc::new(make(Some(handle), basic, external_bytes, Recipe::NAMED)));
    }
    for (handle, _, marked) in MARKERS {
        table[(handle - NULL) as usize] = Some(Arc::new(marker(handle, marked)));
    }
    table
});

/// The datatypes MPI_LB and MPI_UB that MPI-3.0 removed, for MPI_Type_struct in programs of the MPICH ABI:
/// handle, name, whether it sets the lower bound, and whether it sets the upper bound.
const MARKERS: [(u32, &str, (bool, bool)); 2] =
    [(0x2fd, "MPI_LB", (true, false)), (0x2fe, "MPI_UB", (false, true))];

fn marker(handle: u32, marked: (bool, bool)) -> Datatype {
    Datatype {
        layout: Arc::new(Layout::new(Body::default(), 0, 0).expect("an empty type has bounds")),
        basic: None,
        predefined: Some(handle),
        permanent: true,
        marked,
        align: 1,
        facts: TypeFacts::NONE,
        recipe: Recipe::NAMED,
        committed: AtomicBool::new(true),
    }
}

/// Makes a predefined datatype. `external_bytes` is the length of an element in external32; for a pair, the
/// length of its value, since its index has the same length in both forms.
fn make(predefined: Option<u32>, basic: Basic, external_bytes: u8, recipe: Recipe) -> Datatype {
    let value = |basic| TypeFacts::of(Leaf { basic, external_bytes });
    let (facts, body, end) = match basic.pair() {
        None => (value(basic), Body::piece(0, basic.size() as u64), basic.size()),
        Some((first, second)) => {
            // C aligns the index.
            let index_offset = first.size().next_multiple_of(second.align());
            let mut body = Body::piece(0, first.size() as u64);
            body.append(&Body::piece(index_offset as i64, second.size() as u64), 0).expect("two runs");
            (value(first).then(TypeFacts::of(Leaf::of_index(second))), body, index_offset + second.size())
        }
    };
    let extent = end.next_multiple_of(basic.align()) as i64;
    let layout = Layout::new(body, 0, extent).expect("a basic type has bounds");
    Datatype {
        layout: Arc::new(layout),
        basic: Some(basic),
        predefined,
        permanent: true,
        marked: (false, false),
        align: basic.align() as i64,
        facts,
        recipe,
        committed: AtomicBool::new(true),
    }
}

/// The predefined datatypes, each with its handle, name, machine type and length in external32 in bytes (MPI
/// 5.0, table 14.2).
#[rustfmt::skip]
const ENTRIES: &[(u32, &str, Basic, u8)] = &[
    (0x201, "MPI_AINT", I64, 8),
    (0x202, "MPI_COUNT", I64, 8),
    (0x203, "MPI_OFFSET", I64, 8),
    (0x207, "MPI_PACKED", Packed, 1),
    (0x208, "MPI_SHORT", I16, 2),
    (0x209, "MPI_INT", I32, 4),
    (0x20a, "MPI_LONG", I64, 4),
    (0x20b, "MPI_LONG_LONG_INT", I64, 8),
    (0x20c, "MPI_UNSIGNED_SHORT", U16, 2),
    (0x20d, "MPI_UNSIGNED", U32, 4),
    (0x20e, "MPI_UNSIGNED_LONG", U64, 4),
    (0x20f, "MPI_UNSIGNED_LONG_LONG", U64, 8),
    (0x210, "MPI_FLOAT", F32, 4),
    (0x212, "MPI_C_COMPLEX", C32, 8),
    (0x213, "MPI_CXX_FLOAT_COMPLEX", C32, 8),
    (0x214, "MPI_DOUBLE", F64, 8),
    (0x216, "MPI_C_DOUBLE_COMPLEX", C64, 16),
    (0x217, "MPI_CXX_DOUBLE_COMPLEX", C64, 16),
    (0x218, "MPI_LOGICAL", L32, 4),
    (0x219, "MPI_INTEGER", I32, 4),
    (0x21a, "MPI_REAL", F32, 4),
    (0x21b, "MPI_COMPLEX", C32, 8),
    (0x21c, "MPI_DOUBLE_PRECISION", F64, 8),
    (0x21d, "MPI_DOUBLE_COMPLEX", C64, 16),
    (0x21e, "MPI_CHARACTER", Char, 1),
    (0x220, "MPI_LONG_DOUBLE", LongDouble, 16),
    (0x224, "MPI_C_LONG_DOUBLE_COMPLEX", CLongDouble, 32),
    (0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", CLongDouble, 32),
    (0x228, "MPI_FLOAT_INT", F32I32, 4),
    (0x229, "MPI_DOUBLE_INT", F64I32, 8),
    (0x22a, "MPI_LONG_INT", I64I32, 4),
    (0x22b, "MPI_2INT", I32I32, 4),
    (0x22c, "MPI_SHORT_INT", I16I32, 2),
    (0x22d, "MPI_LONG_DOUBLE_INT", LongDoubleI32, 16),
    (0x230, "MPI_2REAL", F32F32, 4),
    (0x231, "MPI_2DOUBLE_PRECISION", F64F64, 8),
    (0x232, "MPI_2INTEGER", I32I32, 4),
    (0x238, "MPI_C_BOOL", L8, 1),
    (0x239, "MPI_CXX_BOOL", L8, 1),
    (0x23c, "MPI_WCHAR", WChar, 2),
    (0x240, "MPI_INT8_T", I8, 1),
    (0x241, "MPI_UINT8_T", U8, 1),
    (0x243, "MPI_CHAR", Char, 1),
    (0x244, "MPI_SIGNED_CHAR", I8, 1),
    (0x245, "MPI_UNSIGNED_CHAR", U8, 1),
    (0x247, "MPI_BYTE", Byte, 1),
    (0x248, "MPI_INT16_T", I16, 2),
    (0x249, "MPI_UINT16_T", U16, 2),
    (0x250, "MPI_INT32_T", I32, 4),
    (0x251, "MPI_UINT32_T", U32, 4),
    (0x258, "MPI_INT64_T", I64, 8),
    (0x259, "MPI_UINT64_T", U64, 8),
    (0x2c0, "MPI_LOGICAL1", L8, 1),
    (0x2c1, "MPI_INTEGER1", I8, 1),
    (0x2c8, "MPI_LOGICAL2", L16, 2),
    (0x2c9, "MPI_INTEGER2", I16, 2),
    (0x2ca, "MPI_REAL2", F16, 2),
    (0x2d0, "MPI_LOGICAL4", L32, 4),
    (0x2d1, "MPI_INTEGER4", I32, 4),
    (0x2d2, "MPI_REAL4", F32, 4),
    (0x2d3, "MPI_COMPLEX4", C16, 4),
    (0x2d8, "MPI_LOGICAL8", L64, 8),
    (0x2d9, "MPI_INTEGER8", I64, 8),
    (0x2da, "MPI_REAL8", F64, 8),
    (0x2db, "MPI_COMPLEX8", C32, 8),
    (0x2e0, "MPI_LOGICAL16", L128, 16),
    (0x2e1, "MPI_INTEGER16", I128, 16),
    (0x2e2, "MPI_REAL16", F128, 16),
    (0x2e3, "MPI_COMPLEX16", C64, 16),
    (0x2eb, "MPI_COMPLEX32", C128, 32),
    // The standard does not assign this number; programs of the MPICH ABI use it.
    (0x2ff, "MPIX_C_FLOAT16", F16, 2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_standard_abi() {
        // Method: every MPI_Datatype constant of tables/constants.json, found by a simple scan of the text.
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tables/constants.json"))
                .unwrap();
        let field = |object: &str, key: &str| {
            let value = object.split(&format!("\"{key}\": ")).nth(1)?;
            Some(value.split([',', '\n', '}']).next()?.trim_matches('"').to_string())
        };
        let mut found = 0;
        for object in
            text.split('{').filter(|object| field(object, "type").as_deref() == Some("MPI_Datatype"))
        {
            let name = field(object, "name").unwrap();
            let handle: u32 = field(object, "standard").unwrap().parse().unwrap();
            if handle != NULL {
                assert_eq!(predefined_handle(&name), Some(handle), "{name}");
                assert_eq!(predefined(handle).unwrap().predefined(), Some(handle));
                found += 1;
            }
        }
        assert!(found >= ENTRIES.len() - 1, "{found} constants");
        assert_eq!(predefined_name(NULL), Some("MPI_DATATYPE_NULL"));
        assert!(predefined(NULL).is_none() && predefined(0).is_none() && predefined(0x300).is_none());
    }

    #[test]
    fn pairs_lie_as_in_c() {
        let of = |name| predefined(predefined_handle(name).unwrap()).unwrap();
        let measures = |name| (of(name).size(), of(name).extent(), of(name).true_extent());
        assert_eq!(measures("MPI_SHORT_INT"), (6, 8, 8));
        assert_eq!(measures("MPI_DOUBLE_INT"), (12, 16, 12));
        assert_eq!(measures("MPI_LONG_DOUBLE_INT"), (20, 32, 20));
        assert_eq!(measures("MPI_2INT"), (8, 8, 8));
        assert!(of("MPI_FLOAT_INT").layout().is_contiguous());
        assert_eq!(of("MPI_FLOAT_INT").elements_of(20), Some(5));
        assert_eq!(of("MPI_DOUBLE_INT").elements_of(20), Some(3));
        assert_eq!(of("MPI_DOUBLE_INT").elements_of(22), None);
    }

    // Goal: a marker sets one bound, has no data, and has a name; the other bound is that of the data.
    #[test]
    fn markers_set_one_bound_each() {
        let of = |handle: u32| predefined(handle).unwrap().clone();
        let [lb, ub] = MARKERS.map(|marker| of(marker.0));
        assert_eq!(predefined_name(0x2fe), Some("MPI_UB"));
        let byte = of(predefined_handle("MPI_BYTE").unwrap());
        let make = |displacements: &[i64], parts: &[Arc<Datatype>]| {
            let lengths: Vec<i64> = parts.iter().map(|part| if part.size() > 0 { 4 } else { 1 }).collect();
            crate::structure(crate::Width::Int, &lengths, displacements, parts.to_vec()).unwrap()
        };
        let measures = |made: &Datatype| (made.size(), made.lb(), made.extent(), made.true_lb());
        let both = make(&[-3, 0, 6], &[lb.clone(), byte.clone(), ub.clone()]);
        assert_eq!(measures(&both), (4, -3, 9, 0));
        let three = crate::contiguous(crate::Width::Int, 3, &both).unwrap();
        assert_eq!(measures(&three), (12, -3, 27, 0));
        assert_eq!(measures(&make(&[0, 6], &[byte.clone(), ub])), (4, 0, 6, 0));
        assert_eq!(measures(&make(&[-3, 0], &[lb.clone(), byte])), (4, -3, 7, 0));
        assert_eq!(make(&[10], &[lb]).extent(), -10);
    }

    #[test]
    fn sizes_are_matched() {
        assert_eq!(match_size(193, 8).unwrap().predefined(), predefined_handle("MPI_REAL8"));
        assert_eq!(match_size(193, 3).unwrap_err().class, Class::Arg);
        assert_eq!(match_size(7, 8).unwrap_err().class, Class::Arg);
        for (class, _, sizes) in CLASSES {
            sizes
                .iter()
                .for_each(|&(size, _)| assert_eq!(match_size(class, size).unwrap().size(), size as usize));
        }
    }
}
