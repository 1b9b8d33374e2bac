// SPDX-License-Identifier: BSD-3-Clause
//! Attributes of objects, and their keyvals (MPI 5.0, section 7.7).
//!
//! No function here calls the program's callbacks. The `abi` crate collects the callbacks, and calls them
//! while nothing is borrowed.

use crate::handle::HandleKind;
use std::sync::Arc;

/// The functions that the program registered under a keyval, as addresses. 0 is the standard's NULL_COPY_FN
/// or NULL_DELETE_FN, and 1 its DUP_FN (MPI 5.0, section 20.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyval {
    /// The kind of objects that may have the attribute: `Comm`, `Datatype` or `Win`.
    pub on: HandleKind,
    pub copy: usize,
    pub delete: usize,
    /// The pointer that the program registered, and that both functions get as an argument.
    pub extra_state: usize,
    /// The addresses of another language's functions through which `copy` and `delete` are called, in this
    /// order; None if they are called directly.
    pub proxies: Option<(usize, usize)>,
}

/// The value of an attribute, in the language that set it. Another language sees it as MPI 5.0, section
/// 19.3.7 says: C gets the address of Fortran's integer, Fortran the integer value of C's pointer.
#[derive(Clone, Debug)]
pub enum AttributeValue {
    /// A pointer, set in C.
    Pointer(usize),
    /// An INTEGER(KIND=MPI_ADDRESS_KIND), set in Fortran.
    Address(Arc<i64>),
    /// An INTEGER, set in Fortran. C gets the address, and reads the low half there, since machines are
    /// little-endian.
    Integer(Arc<i64>),
}

impl AttributeValue {
    pub fn pointer(&self) -> usize {
        match self {
            AttributeValue::Pointer(pointer) => *pointer,
            AttributeValue::Address(integer) | AttributeValue::Integer(integer) => {
                Arc::as_ptr(integer) as usize
            }
        }
    }

    pub fn integer(&self) -> i64 {
        match self {
            AttributeValue::Pointer(pointer) => *pointer as i64,
            AttributeValue::Address(integer) | AttributeValue::Integer(integer) => **integer,
        }
    }

    /// Makes the value `bits`, in the language and type of this value.
    pub fn with(&self, bits: i64) -> AttributeValue {
        match self {
            AttributeValue::Pointer(_) => AttributeValue::Pointer(bits as usize),
            AttributeValue::Address(_) => AttributeValue::Address(Arc::new(bits)),
            AttributeValue::Integer(_) => AttributeValue::Integer(Arc::new(i64::from(bits as i32))),
        }
    }
}

/// An entry of the table of keyvals. It stays until no attribute needs the keyval, even if the program frees
/// the keyval (MPI 5.0, section 7.7.2).
#[derive(Debug)]
pub struct RegisteredKeyval {
    pub keyval: Arc<Keyval>,
    /// Whether the program has freed the keyval.
    pub freed: bool,
}

#[derive(Clone, Debug)]
pub struct Attribute {
    /// The number of the keyval under which the attribute is set.
    pub number: i32,
    /// The keyval's callbacks, which outlive `MPI_Comm_free_keyval` while an attribute needs them.
    pub keyval: Arc<Keyval>,
    pub value: AttributeValue,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Debug, Default)]
pub struct Attributes {
    entries: Vec<Attribute>,
}

impl Attributes {
    pub fn get(&self, number: i32) -> Option<&Attribute> {
        self.entries.iter().find(|attribute| attribute.number == number)
    }

    /// Sets an attribute, or replaces its value. The caller has called the delete callback of the old value.
    pub fn set(&mut self, attribute: Attribute) {
        match self.entries.iter_mut().find(|old| old.number == attribute.number) {
            Some(old) => *old = attribute,
            None => self.entries.push(attribute),
        }
    }

    pub fn remove(&mut self, number: i32) -> Option<Attribute> {
        let at = self.entries.iter().position(|attribute| attribute.number == number)?;
        Some(self.entries.remove(at))
    }

    /// Returns the attribute that was added last; one whose value was replaced keeps its place. None if there
    /// are no attributes.
    pub fn last(&self) -> Option<&Attribute> {
        self.entries.last()
    }

    pub fn all(&self) -> Vec<Attribute> {
        self.entries.clone()
    }
}
