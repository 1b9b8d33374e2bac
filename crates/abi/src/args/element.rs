// SPDX-License-Identifier: BSD-3-Clause
//! Wrappers of pointer parameters: `Out` (one result), `In` (an array to read), `Array` (an array to write),
//! `Counts` (an array of counts) and `OutCount` (one count). A count is a C int, or has 64 bits in a function
//! with the suffix `_c`.
//!
//! An ABI shim, the generated C functions of one binary interface, makes the wrappers. The program's values
//! have the form of the standard ABI, or a form that another shim describes by a `ShimForm`.

use super::{NULL_PAGE_END, null};
use error::{Class, Result, fail};
use objects::constants;

/// The form in which programs that use another ABI than the standard's hold a `T` in memory.
#[derive(Debug)]
pub struct ShimForm<T> {
    /// The distance in bytes from one element of an array to the next.
    pub bytes: usize,
    /// Reads the element at an address. The program guarantees that there is an element (`args/mod.rs`).
    pub load: unsafe fn(usize) -> T,
    /// Writes an element to an address. The program guarantees that there is room for it (`args/mod.rs`).
    pub store: unsafe fn(usize, T),
}

/// A pointer parameter. It points to elements of `T`, in the standard ABI's form or in the form `form`.
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
    /// Returns the first `many` elements of the program's array, each converted by `turn`. Fails for a null
    /// pointer, unless `many` is 0.
    #[inline]
    fn read<U>(self, many: usize, turn: impl Fn(T) -> U) -> Result<Vec<U>> {
        if many > 0 {
            self.check()?;
        }
        Ok((0..many).map(|at| turn(self.load(at))).collect())
    }
    /// Reads element `at` of the program's array. The caller has made sure by `check` that this pointer is
    /// not null.
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
    /// Returns a reference to element `at` of the program's array, which the caller uses at once. Returns
    /// None if the program uses another ABI than the standard's. The caller has made sure by `check` that
    /// this pointer is not null.
    #[inline(always)]
    pub(super) fn element<'a>(self, at: usize) -> Option<&'a mut T> {
        let pointer = (self.address as *mut T).wrapping_add(at);
        // SAFETY: not null, and it points to the element by the contracts of `args/mod.rs` and of the
        // callers; the memory is the library's until the call returns.
        self.form.is_none().then(|| unsafe { &mut *pointer })
    }
    /// Writes `value` to element `at` of the program's array. The caller has made sure by `check` that this
    /// pointer is not null.
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
    /// Wraps the parameter `name` of a program with another ABI: a pointer to one result in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<T>) -> Out<T> {
        Out(Pointer { address, name, form: Some(form) })
    }
    /// Whether the program passed a null pointer for this parameter. A few parameters may be null.
    pub fn is_null(self) -> bool {
        self.is(0)
    }
    /// Whether the pointer is `address`, a constant that MPI defines as a special value of this parameter.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Returns MPI_ERR_ARG if the pointer is null. An MPI function checks all its outputs before it changes
    /// anything.
    #[inline]
    pub fn check(self) -> Result<()> {
        self.0.check()
    }
    /// Stores the result in the program's variable. Returns MPI_ERR_ARG if the pointer is null.
    #[inline]
    pub fn set(self, value: T) -> Result<()> {
        self.0.set(0, value)
    }
    /// Returns the program's value of a parameter that is both input and output (INOUT).
    #[inline]
    pub fn get(self) -> Result<T> {
        self.0.get(0)
    }
}

/// An array parameter that the library only reads.
#[derive(Clone, Copy, Debug)]
pub struct In<T: Copy + 'static>(Pointer<T>);

impl<T: Copy> In<T> {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> In<T> {
        In(Pointer { address, name, form: None })
    }
    /// Wraps the parameter `name` of a program with another ABI: a pointer to an array in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<T>) -> In<T> {
        In(Pointer { address, name, form: Some(form) })
    }
    /// Whether the program passed a null pointer for this parameter.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// Whether the pointer is `address`, a constant such as MPI_UNWEIGHTED, which stands for no array.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Returns element `at` of the program's array. The caller knows that the array has this element.
    #[inline]
    pub fn get(self, at: usize) -> Result<T> {
        self.0.get(at)
    }
    /// Returns the first `many` elements of the program's array.
    pub fn read(self, many: usize) -> Result<Vec<T>> {
        self.0.read(many, |value| value)
    }
}

/// An array parameter that the library writes, or reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Array<T: Copy + 'static>(pub(super) Pointer<T>);

impl<T: Copy> Array<T> {
    /// Wraps the parameter `name`, a pointer with the value `address`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Array<T> {
        Array(Pointer { address, name, form: None })
    }
    /// Wraps the parameter `name` of a program with another ABI: a pointer to an array in the form `form`.
    #[inline]
    pub fn in_form(address: usize, name: &'static str, form: &'static ShimForm<T>) -> Array<T> {
        Array(Pointer { address, name, form: Some(form) })
    }
    /// Whether the program passed a null pointer for this parameter.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// Whether the pointer is `address`, a constant of MPI that stands for no array.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Returns element `at` of the program's array. The caller knows that the array has this element.
    #[inline]
    pub fn get(self, at: usize) -> Result<T> {
        self.0.get(at)
    }
    /// Returns the first `many` elements of the program's array.
    pub fn read(self, many: usize) -> Result<Vec<T>> {
        In(self.0).read(many)
    }
    /// Stores `value` as element `at` of the program's array. The caller knows that the array has it.
    #[inline]
    pub fn set(self, at: usize, value: T) -> Result<()> {
        self.0.set(at, value)
    }
    /// Stores all of `values` in the program's array, from its first element on.
    pub fn write(self, values: &[T]) -> Result<()> {
        if !values.is_empty() {
            self.0.check()?;
        }
        values.iter().enumerate().for_each(|(at, value)| self.0.store(at, *value));
        Ok(())
    }
}

/// An array of counts or displacements. Elements are C ints, or 64 bits wide in a function with the suffix
/// `_c`.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// C ints, the elements in a function without the suffix `_c`.
    Ints(In<i32>),
    /// MPI_Counts or MPI_Aints, the elements in a function with the suffix `_c`.
    Longs(In<i64>),
}

impl Counts {
    /// Wraps the parameter `name`, an array of C ints: the function's name does not end in `_c`.
    #[inline]
    pub fn ints(address: usize, name: &'static str) -> Counts {
        Counts::Ints(In::new(address, name))
    }
    /// Wraps the parameter `name`, an array of 64-bit integers: the function's name ends in `_c`.
    #[inline]
    pub fn longs(address: usize, name: &'static str) -> Counts {
        Counts::Longs(In::new(address, name))
    }
    /// Returns element `at` of the program's array. The caller knows that the array has this element.
    #[inline]
    pub fn get(self, at: usize) -> Result<i64> {
        match self {
            Counts::Ints(array) => array.get(at).map(i64::from),
            Counts::Longs(array) => array.get(at),
        }
    }
    /// Returns the first `many` elements of the program's array.
    pub fn read(self, many: usize) -> Result<Vec<i64>> {
        match self {
            Counts::Ints(array) => array.0.read(many, i64::from),
            Counts::Longs(array) => array.read(many),
        }
    }
    /// Whether the program called the function without the suffix `_c`. MPI_Type_get_envelope needs to know.
    pub fn is_int(self) -> bool {
        matches!(self, Counts::Ints(_))
    }
}

/// A pointer to a count: to a C int, or in a function with the suffix `_c` to an MPI_Count.
#[derive(Clone, Copy, Debug)]
pub enum OutCount {
    /// A pointer to a C int: the program called the function without the suffix `_c`.
    Int(Out<i32>),
    /// A pointer to an MPI_Count: the program called the function with the suffix `_c`.
    Long(Out<i64>),
}

impl OutCount {
    /// Wraps the parameter `name`, a pointer to a C int with the value `address`.
    #[inline]
    pub fn int(address: usize, name: &'static str) -> OutCount {
        OutCount::Int(Out::new(address, name))
    }
    /// Wraps the parameter `name`, a pointer to an MPI_Count with the value `address`.
    #[inline]
    pub fn long(address: usize, name: &'static str) -> OutCount {
        OutCount::Long(Out::new(address, name))
    }
    /// Stores a count in the program's variable. Returns MPI_ERR_VALUE_TOO_LARGE if the variable is an int
    /// that cannot hold the count.
    pub fn set(self, value: i64) -> Result<()> {
        match self {
            OutCount::Long(out) => out.set(value),
            OutCount::Int(out) => match i32::try_from(value) {
                Ok(value) => out.set(value),
                Err(_) => fail!(Class::ValueTooLarge, "{} is {value}, which an int cannot hold", out.0.name),
            },
        }
    }
    /// Stores a count in the program's variable, or MPI_UNDEFINED if `value` is None or does not fit. The
    /// standard allows MPI_UNDEFINED in queries such as MPI_Type_size.
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
    /// Whether the program called the function without the suffix `_c`.
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
