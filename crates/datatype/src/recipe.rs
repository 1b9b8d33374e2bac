//! How a datatype was made: what MPI_Type_get_envelope and MPI_Type_get_contents answer (MPI 5.0, section 5.1.13).

use crate::datatype::Datatype;
use std::ops::Deref;
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
    /// The numbers among the arguments: those of type int, then those of type MPI_Aint, then those of type MPI_Count.
    pub(crate) numbers: Vec<i64>,
    /// How many of them are ints.
    pub(crate) integers: usize,
    /// How many are addresses.
    pub(crate) addresses: usize,
    /// Arguments of type MPI_Datatype. A predefined one has a handle (`Datatype::predefined`); for any other the caller of
    /// MPI_Type_get_contents gets a new handle to it.
    pub datatypes: Parts,
}

/// The datatypes that another was made of: one, but for structs.
#[derive(Clone, Debug)]
pub enum Parts {
    /// One.
    One(Arc<Datatype>),
    /// Those of a struct, or none.
    Many(Vec<Arc<Datatype>>),
}

impl Deref for Parts {
    type Target = [Arc<Datatype>];
    fn deref(&self) -> &[Arc<Datatype>] {
        match self {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }
}

impl Recipe {
    /// A predefined datatype's: it has none.
    pub const NAMED: Recipe = Recipe {
        combiner: Combiner::Named,
        numbers: vec![],
        integers: 0,
        addresses: 0,
        datatypes: Parts::Many(vec![]),
    };

    /// The recipe of a constructor with counts, then `displacements` displacements in bytes: integers and addresses of the `int`
    /// form, all large counts in the `_c` form.
    pub(crate) fn new(
        combiner: Combiner,
        width: Width,
        numbers: Vec<i64>,
        displacements: usize,
        datatypes: Parts,
    ) -> Recipe {
        let (integers, addresses) = match width {
            Width::Int => (numbers.len() - displacements, displacements),
            Width::Count => (0, 0),
        };
        Recipe { combiner, numbers, integers, addresses, datatypes }
    }

    /// Arguments of type int.
    pub fn integers(&self) -> &[i64] {
        &self.numbers[..self.integers]
    }

    /// Arguments of type MPI_Aint.
    pub fn addresses(&self) -> &[i64] {
        &self.numbers[self.integers..self.integers + self.addresses]
    }

    /// Arguments of type MPI_Count; only the `_c` forms have any.
    pub fn counts(&self) -> &[i64] {
        &self.numbers[self.integers + self.addresses..]
    }

    /// The blocks of a struct that have data: how many elements of which datatype.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, &Arc<Datatype>)> {
        let blocks = self.numbers.iter().skip(1).zip(&*self.datatypes);
        blocks
            .map(|(&length, part)| (length as u64, part))
            .filter(|(length, part)| *length > 0 && part.size() > 0)
    }
}
