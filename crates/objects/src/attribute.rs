// SPDX-License-Identifier: BSD-3-Clause
//! Attributes of objects, and keyvals, the keys of attributes (MPI 5.0, section 7.7).
//!
//! The functions here call no callback of the program. The `abi` crate reads the callbacks' addresses here,
//! and calls the callbacks when it holds no borrow of `Objects`, so that they may call MPI.

use crate::handle::HandleKind;
use std::sync::Arc;

/// What the program registered with a keyval: its copy and delete function, as addresses. 0 stands for the
/// standard's NULL_COPY_FN or NULL_DELETE_FN, and 1 for its DUP_FN (MPI 5.0, section 20.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyval {
    /// The kind of objects whose attributes may have this keyval: `Comm`, `Datatype` or `Win`.
    pub on: HandleKind,
    pub copy: usize,
    pub delete: usize,
    /// The pointer that the program registered with the functions. Both functions get it as an argument.
    pub extra_state: usize,
    /// The addresses of two functions of a language's binding, through which `copy` and `delete` are called.
    /// None if they are called directly.
    pub wrappers: Option<(usize, usize)>,
}

/// The value of an attribute, in the language that set the value. The other language converts it (MPI 5.0,
/// section 19.3.7): C gets the address of Fortran's integer, Fortran gets C's pointer as an integer.
#[derive(Clone, Debug)]
pub enum AttributeValue {
    /// A pointer, which C has set.
    Pointer(usize),
    /// An INTEGER(KIND=MPI_ADDRESS_KIND), which Fortran has set.
    Address(Arc<i64>),
    /// An INTEGER, which Fortran has set. C gets the address, and reads the low half there, since machines
    /// are little-endian.
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

    /// Makes a value with the bits `bits`, in the language and of the type of this value.
    pub fn with(&self, bits: i64) -> AttributeValue {
        match self {
            AttributeValue::Pointer(_) => AttributeValue::Pointer(bits as usize),
            AttributeValue::Address(_) => AttributeValue::Address(Arc::new(bits)),
            AttributeValue::Integer(_) => AttributeValue::Integer(Arc::new(i64::from(bits as i32))),
        }
    }
}

/// An entry of the table of keyvals. If the program frees the keyval, the entry stays until no attribute has
/// this keyval any more (MPI 5.0, section 7.7.2).
#[derive(Debug)]
pub struct RegisteredKeyval {
    pub keyval: Arc<Keyval>,
    /// Whether the program has freed the keyval.
    pub freed: bool,
}

#[derive(Clone, Debug)]
pub struct Attribute {
    /// The number of the attribute's keyval.
    pub number: i32,
    /// The callbacks of the attribute's keyval. They outlive MPI_Comm_free_keyval while an attribute needs
    /// them.
    pub keyval: Arc<Keyval>,
    pub value: AttributeValue,
}

/// The attributes of one object, in the order in which they were first set.
#[derive(Debug, Default)]
pub struct Attributes {
    entries: Vec<Attribute>,
}

impl Attributes {
    pub fn get(&self, number: i32) -> Option<&Attribute> {
        self.entries.iter().find(|attribute| attribute.number == number)
    }

    /// Adds an attribute, or replaces its value. In the latter case the caller has called the old value's
    /// delete callback.
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

    /// Returns the attribute that was added last, or None if there are no attributes. A new value of an old
    /// attribute does not count as added.
    pub fn last(&self) -> Option<&Attribute> {
        self.entries.last()
    }

    pub fn all(&self) -> Vec<Attribute> {
        self.entries.clone()
    }
}
