//! How a datatype was made: what MPI_Type_get_envelope and MPI_Type_get_contents answer (MPI 5.0, section 5.1.13).

use crate::datatype::Datatype;
use std::sync::Arc;

/// The constructor that made a datatype, numbered as the MPI_COMBINER constants of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)] // The names are the standard's.
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
    ValueIndex = 117,
}

/// Which form of a constructor was called: the one with `int` arguments, or the `_c` one with MPI_Count arguments. Their
/// envelopes differ: the `_c` forms record counts and displacements as large counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// `MPI_Type_vector`: integers and addresses.
    Int,
    /// `MPI_Type_vector_c`: large counts.
    Count,
}

/// The constructor's arguments, in the order in which MPI_Type_get_contents returns them.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The constructor.
    pub combiner: Combiner,
    /// Arguments of type int.
    pub integers: Vec<i64>,
    /// Arguments of type MPI_Aint.
    pub addresses: Vec<i64>,
    /// Arguments of type MPI_Count; only the `_c` forms have any.
    pub counts: Vec<i64>,
    /// Arguments of type MPI_Datatype. A predefined one has a handle (`Datatype::predefined`); for any other the caller of
    /// MPI_Type_get_contents gets a new handle to it.
    pub datatypes: Vec<Arc<Datatype>>,
}

impl Recipe {
    /// A predefined datatype's: it has none.
    pub const NAMED: Recipe = Recipe {
        combiner: Combiner::Named,
        integers: vec![],
        addresses: vec![],
        counts: vec![],
        datatypes: vec![],
    };

    /// A recipe whose counts are `counts`, and whose byte displacements are `addresses`: integers and addresses of the `int`
    /// form, all large counts in the `_c` form.
    pub(crate) fn new(
        combiner: Combiner,
        width: Width,
        counts: Vec<i64>,
        addresses: Vec<i64>,
        datatypes: &[Arc<Datatype>],
    ) -> Recipe {
        let datatypes = datatypes.to_vec();
        match width {
            Width::Int => Recipe { combiner, integers: counts, addresses, counts: vec![], datatypes },
            Width::Count => {
                let counts = [counts, addresses].concat();
                Recipe { combiner, integers: vec![], addresses: vec![], counts, datatypes }
            }
        }
    }
}
