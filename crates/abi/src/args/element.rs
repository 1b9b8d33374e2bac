// SPDX-License-Identifier: BSD-3-Clause
//! Parameters that point to elements: `Out`, `In`, `Array`, and counts of both widths.

use super::{NULL_PAGE_END, null};
use error::{Class, Result, fail};
use objects::constants;

/// The form of a `T` in the memory of another shim's programs. Programs of the standard's shim use our form.
#[derive(Debug)]
pub struct ShimForm<T> {
    /// The distance in bytes from one element of an array to the next.
    pub bytes: usize,
    /// Reads the element at an address. By the contract of `args/mod.rs` there is one.
    pub load: unsafe fn(usize) -> T,
    /// Writes the element at an address. By the contract of `args/mod.rs` there is room for one.
    pub store: unsafe fn(usize, T),
}

/// A pointer parameter: elements of `T`, in our form or in another shim's.
#[derive(Debug)]
pub(super) struct Pointer<T: 'static> {
    address: usize,
    name: &'static str,
    form: Option<&'static ShimForm<T>>,
}

impl<T> Clone for Pointer<T> {
    #[inline]
    fn clone(&self) -> Pointer<T> {
        *self
    }
}

impl<T> Copy for Pointer<T> {}

impl<T: Copy> Pointer<T> {
    #[inline(always)] // As cheap as a plain access where the shim has no form.
    fn check(self) -> Result<()> {
        // The comparison is signed: no process has addresses in the upper half, where MPICH's MPI_IN_PLACE
        // lies.
        if (self.address as isize) < NULL_PAGE_END as isize { null(self.name) } else { Ok(()) }
    }
    #[inline(always)]
    fn get(self, at: usize) -> Result<T> {
        self.check()?;
        Ok(self.load(at))
    }
    #[inline(always)]
    fn set(self, at: usize, value: T) -> Result<()> {
        self.check()?;
        self.store(at, value);
        Ok(())
    }
    /// Returns the first `many` elements, each converted by `turn`.
    #[inline]
    fn read<U>(self, many: usize, turn: impl Fn(T) -> U) -> Result<Vec<U>> {
        if many > 0 {
            self.check()?;
        }
        Ok((0..many).map(|at| turn(self.load(at))).collect())
    }
    /// Reads element `at`. The caller has made sure by `check` that the pointer is not null.
    #[inline(always)]
    fn load(self, at: usize) -> T {
        let Some(form) = self.form else {
            let pointer = (self.address as *const T).wrapping_add(at);
            // SAFETY: not null, and it points to the element by the contracts of `args/mod.rs` and of the
            // callers.
            return unsafe { pointer.read() };
        };
        // SAFETY: as above, in the form of the program's shim.
        unsafe { (form.load)(self.address.wrapping_add(at * form.bytes)) }
    }
    /// Returns a reference to element `at`, to be used at once, or None if elements are in another shim's
    /// form. The caller has made sure by `check` that the pointer is not null.
    #[inline(always)]
    pub(super) fn element<'a>(self, at: usize) -> Option<&'a mut T> {
        let pointer = (self.address as *mut T).wrapping_add(at);
        // SAFETY: not null, and it points to the element by the contracts of `args/mod.rs` and of the
        // callers; the memory is the library's until the call returns.
        self.form.is_none().then(|| unsafe { &mut *pointer })
    }
    /// Writes element `at`. The caller has made sure by `check` that the pointer is not null.
    #[inline(always)]
    fn store(self, at: usize, value: T) {
        let Some(form) = self.form else {
            let pointer = (self.address as *mut T).wrapping_add(at);
            // SAFETY: not null, and there is room for the element by the contracts of `args/mod.rs` and of
            // the callers.
            return unsafe { pointer.write(value) };
        };
        // SAFETY: as above, in the form of the program's shim.
        unsafe { (form.store)(self.address.wrapping_add(at * form.bytes), value) }
    }
}

/// A pointer parameter to which the library writes one result.
#[derive(Clone, Copy, Debug)]
pub struct Out<T: Copy + 'static>(pub(super) Pointer<T>);

impl<T: Copy> Out<T> {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Out<T> {
        Out(Pointer { address, name, form: None })
    }
    /// Wraps the parameter `name` of another shim, which has results in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<T>) -> Out<T> {
        Out(Pointer { address, name, form: Some(form) })
    }
    /// Whether the pointer is null, which a few parameters may be.
    pub fn is_null(self) -> bool {
        self.is(0)
    }
    /// Whether the pointer is `address`, one of the constants that are not the address of a value.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Returns MPI_ERR_ARG if the pointer is null. A body checks all its outputs before it changes anything.
    #[inline]
    pub fn check(self) -> Result<()> {
        self.0.check()
    }
    /// Stores the result.
    #[inline]
    pub fn set(self, value: T) -> Result<()> {
        self.0.set(0, value)
    }
    /// Returns the value that the program passed, for parameters that go in and out.
    #[inline]
    pub fn get(self) -> Result<T> {
        self.0.get(0)
    }
}

/// An array that the library reads.
#[derive(Clone, Copy, Debug)]
pub struct In<T: Copy + 'static>(Pointer<T>);

impl<T: Copy> In<T> {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> In<T> {
        In(Pointer { address, name, form: None })
    }
    /// Wraps the parameter `name` of another shim, which has elements in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<T>) -> In<T> {
        In(Pointer { address, name, form: Some(form) })
    }
    /// Whether the pointer is null.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// Whether the pointer is `address`, one of the standard's constants that are not an array.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Element `at`, which the caller knows to be within the array.
    #[inline]
    pub fn get(self, at: usize) -> Result<T> {
        self.0.get(at)
    }
    /// The first `many` elements.
    pub fn read(self, many: usize) -> Result<Vec<T>> {
        self.0.read(many, |value| value)
    }
}

/// An array that the library writes, or reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Array<T: Copy + 'static>(pub(super) Pointer<T>);

impl<T: Copy> Array<T> {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Array<T> {
        Array(Pointer { address, name, form: None })
    }
    /// Wraps the parameter `name` of another shim, which has elements in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<T>) -> Array<T> {
        Array(Pointer { address, name, form: Some(form) })
    }
    /// Whether the pointer is null.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// Whether the pointer is `address`, one of the standard's constants that are not an array.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Element `at`, which the caller knows to be within the array.
    #[inline]
    pub fn get(self, at: usize) -> Result<T> {
        self.0.get(at)
    }
    /// The first `many` elements.
    pub fn read(self, many: usize) -> Result<Vec<T>> {
        In(self.0).read(many)
    }
    /// Stores element `at`, which the caller knows to be within the array.
    #[inline]
    pub fn set(self, at: usize, value: T) -> Result<()> {
        self.0.set(at, value)
    }
    /// Stores all of `values` from the first element on.
    pub fn write(self, values: &[T]) -> Result<()> {
        if !values.is_empty() {
            self.0.check()?;
        }
        values.iter().enumerate().for_each(|(at, value)| self.0.store(at, *value));
        Ok(())
    }
}

/// Counts or displacements: C ints in a function, MPI_Count or MPI_Aint in its `_c` form.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// The elements are C ints: the function has no suffix `_c`.
    Ints(In<i32>),
    /// The elements are MPI_Counts or MPI_Aints: the function has the suffix `_c`.
    Longs(In<i64>),
}

impl Counts {
    /// Wraps the array parameter `name` of a function without the suffix `_c`.
    #[inline]
    pub fn ints(address: usize, name: &'static str) -> Counts {
        Counts::Ints(In::new(address, name))
    }
    /// Wraps the array parameter `name` of a function with the suffix `_c`.
    #[inline]
    pub fn longs(address: usize, name: &'static str) -> Counts {
        Counts::Longs(In::new(address, name))
    }
    /// Element `at`, which the caller knows to be within the array.
    #[inline]
    pub fn get(self, at: usize) -> Result<i64> {
        match self {
            Counts::Ints(array) => array.get(at).map(i64::from),
            Counts::Longs(array) => array.get(at),
        }
    }
    /// The first `many` elements.
    pub fn read(self, many: usize) -> Result<Vec<i64>> {
        match self {
            Counts::Ints(array) => array.0.read(many, i64::from),
            Counts::Longs(array) => array.read(many),
        }
    }
    /// Whether the function has no suffix `_c`, which constructors of datatypes record.
    pub fn is_int(self) -> bool {
        matches!(self, Counts::Ints(_))
    }
}

/// A pointer to a count: a C int in a function, an MPI_Count in its `_c` form.
#[derive(Clone, Copy, Debug)]
pub enum OutCount {
    /// The count is a C int: the function has no suffix `_c`.
    Int(Out<i32>),
    /// The count is an MPI_Count: the function has the suffix `_c`.
    Long(Out<i64>),
}

impl OutCount {
    /// Wraps the parameter `name` of a function without the suffix `_c`.
    #[inline]
    pub fn int(address: usize, name: &'static str) -> OutCount {
        OutCount::Int(Out::new(address, name))
    }
    /// Wraps the parameter `name` of a function with the suffix `_c`.
    #[inline]
    pub fn long(address: usize, name: &'static str) -> OutCount {
        OutCount::Long(Out::new(address, name))
    }
    /// Stores a count. Returns MPI_ERR_VALUE_TOO_LARGE if the program's variable is an int that cannot hold
    /// the count.
    pub fn set(self, value: i64) -> Result<()> {
        match self {
            OutCount::Long(out) => out.set(value),
            OutCount::Int(out) => match i32::try_from(value) {
                Ok(value) => out.set(value),
                Err(_) => fail!(Class::ValueTooLarge, "{} is {value}, which an int cannot hold", out.0.name),
            },
        }
    }
    /// Stores a count, or MPI_UNDEFINED if it does not fit, as the standard allows for some queries.
    pub fn set_or_undefined(self, value: Option<u64>) -> Result<()> {
        let value = value.and_then(|value| i64::try_from(value).ok());
        match self {
            OutCount::Long(out) => out.set(value.unwrap_or(i64::from(constants::UNDEFINED))),
            OutCount::Int(out) => {
                out.set(value.and_then(|v| i32::try_from(v).ok()).unwrap_or(constants::UNDEFINED))
            }
        }
    }
    /// Returns the count that the program passed.
    pub fn get(self) -> Result<i64> {
        match self {
            OutCount::Int(out) => out.get().map(i64::from),
            OutCount::Long(out) => out.get(),
        }
    }
    /// Returns MPI_ERR_ARG if the pointer is null.
    pub fn check(self) -> Result<()> {
        match self {
            OutCount::Int(out) => out.check(),
            OutCount::Long(out) => out.check(),
        }
    }
    /// Whether the function has no suffix `_c`.
    pub fn is_int(self) -> bool {
        matches!(self, OutCount::Int(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_named() {
        let error = Out::<i32>::new(0, "flag").set(1).unwrap_err();
        assert_eq!((error.class, error.message.as_str()), (Class::Arg, "flag is a null pointer"));
        assert!(In::<i32>::new(0, "ranks").read(0).unwrap().is_empty());
        assert!(In::<i32>::new(0, "ranks").read(1).is_err());
    }

    #[test]
    fn counts_of_both_widths() {
        let (ints, longs) = ([1i32, -2], [1i64, 1 << 40]);
        assert_eq!(Counts::ints(ints.as_ptr() as usize, "c").read(2).unwrap(), [1, -2]);
        assert_eq!(Counts::longs(longs.as_ptr() as usize, "c").read(2).unwrap(), longs);
        let mut narrow = 7i32;
        let out = OutCount::int(&raw mut narrow as usize, "size");
        assert_eq!(out.set(1 << 31).unwrap_err().class, Class::ValueTooLarge);
        out.set_or_undefined(Some(1 << 31)).unwrap();
        assert_eq!(out.get(), Ok(i64::from(constants::UNDEFINED)));
        assert_eq!(narrow, constants::UNDEFINED);
    }
}
