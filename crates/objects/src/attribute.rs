//! Attributes: values that a program sets on comms and datatypes, and their keyvals (MPI 5.0, section 7.7).
//!
//! Nothing here calls the program's callbacks: the `abi` crate collects what is to be called, and calls it
//! with nothing borrowed.

use crate::handle::Kind;
use std::sync::Arc;

/// What the program registered under a keyval. The functions are addresses, 0 and 1 being the standard's
/// NULL_COPY_FN / NULL_DELETE_FN and DUP_FN (MPI 5.0, section 20.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyval {
    /// Which objects may carry it: `Comm`, `Datatype` or `Win`.
    pub on: Kind,
    /// The copy callback.
    pub copy: usize,
    /// The delete callback.
    pub delete: usize,
    /// What both get.
    pub extra_state: usize,
    /// Functions through which another language's binding has both called: for copies, for deletions.
    pub proxies: Option<(usize, usize)>,
}

/// The value of an attribute, as the language that set it has it. The others see it as MPI 5.0, section
/// 19.3.7, says: C gets the address of Fortran's integer, Fortran the integer that C's address is.
#[derive(Clone, Debug)]
pub enum Value {
    /// C's pointer.
    Pointer(usize),
    /// Fortran's INTEGER(KIND=MPI_ADDRESS_KIND).
    Address(Arc<i64>),
    /// Fortran's INTEGER. Its low half is what C finds at its address: machines are little-endian.
    Integer(Arc<i64>),
}

impl Value {
    /// What C gets.
    pub fn pointer(&self) -> usize {
        match self {
            Value::Pointer(pointer) => *pointer,
            Value::Address(integer) | Value::Integer(integer) => Arc::as_ptr(integer) as usize,
        }
    }

    /// What Fortran gets.
    pub fn integer(&self) -> i64 {
        match self {
            Value::Pointer(pointer) => *pointer as i64,
            Value::Address(integer) | Value::Integer(integer) => **integer,
        }
    }

    /// The value `bits` in the same language.
    pub fn with(&self, bits: i64) -> Value {
        match self {
            Value::Pointer(_) => Value::Pointer(bits as usize),
            Value::Address(_) => Value::Address(Arc::new(bits)),
            Value::Integer(_) => Value::Integer(Arc::new(i64::from(bits as i32))),
        }
    }
}

/// An entry of the table of keyvals. It stays, and the keyval with it, until no attribute needs it (MPI 5.0,
/// section 7.7.2, MPI_Comm_free_keyval).
#[derive(Debug)]
pub struct Registered {
    /// What is registered.
    pub keyval: Arc<Keyval>,
    /// Whether the program has freed it.
    pub freed: bool,
}

/// One attribute of one object.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// The keyval's number.
    pub number: i32,
    /// Its callbacks, which outlive `MPI_Comm_free_keyval` while an attribute needs them (MPI 5.0, section
    /// 7.7.2).
    pub keyval: Arc<Keyval>,
    /// The value.
    pub value: Value,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Debug, Default)]
pub struct Attributes {
    entries: Vec<Attribute>,
}

impl Attributes {
    /// The value under a keyval.
    pub fn get(&self, number: i32) -> Option<&Attribute> {
        self.entries.iter().find(|attribute| attribute.number == number)
    }

    /// Sets a value. The old one's delete callback must have been called.
    pub fn set(&mut self, attribute: Attribute) {
        match self.entries.iter_mut().find(|old| old.number == attribute.number) {
            Some(old) => *old = attribute,
            None => self.entries.push(attribute),
        }
    }

    /// Removes a value.
    pub fn remove(&mut self, number: i32) -> Option<Attribute> {
        let at = self.entries.iter().position(|attribute| attribute.number == number)?;
        Some(self.entries.remove(at))
    }

    /// The last of them.
    pub fn last(&self) -> Option<&Attribute> {
        self.entries.last()
    }

    /// All of them, to call callbacks over.
    pub fn all(&self) -> Vec<Attribute> {
        self.entries.clone()
    }
}
