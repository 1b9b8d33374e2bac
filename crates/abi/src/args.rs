//! What C arguments become: each wrapper holds a pointer of the program and the parameter's name, and checks before it reads or writes.
//!
//! Contract of every wrapper, kept by the program (MPI 5.0, section 2.5): a pointer that is not null points to as much memory of its
//! type as the function's description says. Nothing here can check more than null; nothing here keeps a reference.

use error::{Class, Result, fail};
pub use objects::Handle;
use objects::constants;

/// A user's buffer, or another pointer that a body reads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub usize);

impl Address {
    /// Whether it is MPI_IN_PLACE.
    pub fn is_in_place(self) -> bool {
        self.0 == constants::IN_PLACE
    }
    /// Whether it is null, which is also MPI_BOTTOM.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// A function of the program, or one of the small numbers that the standard defines for some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callback(pub usize);

/// How the programs of another shim keep a `T` in memory. The standard's shim needs none: its programs keep what we keep.
#[derive(Debug)]
pub struct Foreign<T> {
    /// From one element of an array to the next.
    pub bytes: usize,
    /// Reads the element at an address, which has one by the contract of this file.
    pub load: unsafe fn(usize) -> T,
    /// Writes the element at an address, which has room for one by the contract of this file.
    pub store: unsafe fn(usize, T),
}

/// The memory of one parameter: elements of `T`, in our form or in another shim's.
#[derive(Debug)]
struct Place<T: 'static> {
    address: usize,
    name: &'static str,
    foreign: Option<&'static Foreign<T>>,
}

impl<T> Clone for Place<T> {
    #[inline]
    fn clone(&self) -> Place<T> {
        *self
    }
}

impl<T> Copy for Place<T> {}

/// Addresses below this are null, or constants of the standard such as MPI_IN_PLACE where they mean nothing: Linux maps nothing there
/// (vm.mmap_min_addr).
pub(crate) const NULL_PAGE_END: usize = 1 << 16;

impl<T: Copy> Place<T> {
    #[inline(always)] // As cheap as a plain access where the shim says no form.
    fn check(self) -> Result<()> {
        // Signed, for no process has addresses in the upper half either: there lies MPICH's MPI_IN_PLACE.
        if (self.address as isize) < NULL_PAGE_END as isize { null(self.name) } else { Ok(()) }
    }
    #[inline(always)] // As cheap as a plain access where the shim says no form.
    fn get(self, at: usize) -> Result<T> {
        self.check()?;
        Ok(self.load(at))
    }
    #[inline(always)] // As cheap as a plain access where the shim says no form.
    fn set(self, at: usize, value: T) -> Result<()> {
        self.check()?;
        self.store(at, value);
        Ok(())
    }
    /// The first `many` elements, each as `turn` makes it.
    #[inline]
    fn read<U>(self, many: usize, turn: impl Fn(T) -> U) -> Result<Vec<U>> {
        if many > 0 {
            self.check()?;
        }
        Ok((0..many).map(|at| turn(self.load(at))).collect())
    }
    /// As `get`, after `check`.
    #[inline(always)]
    fn load(self, at: usize) -> T {
        let Some(foreign) = self.foreign else {
            let pointer = (self.address as *const T).wrapping_add(at);
            // SAFETY: not null, and the program gave it holding the element by the contract of this file and of the callers.
            return unsafe { pointer.read() };
        };
        // SAFETY: as above, in the form of the program's shim.
        unsafe { (foreign.load)(self.address.wrapping_add(at * foreign.bytes)) }
    }
    /// The element itself, to be changed at once, if it is in our form; after `check`.
    #[inline(always)]
    fn element<'a>(self, at: usize) -> Option<&'a mut T> {
        let pointer = (self.address as *mut T).wrapping_add(at);
        // SAFETY: not null, and the program gave it holding the element by the contract of this file and of the callers; its memory is the
        // library's until the call returns.
        self.foreign.is_none().then(|| unsafe { &mut *pointer })
    }
    /// As `set`, after `check`.
    #[inline(always)]
    fn store(self, at: usize, value: T) {
        let Some(foreign) = self.foreign else {
            let pointer = (self.address as *mut T).wrapping_add(at);
            // SAFETY: not null, and the program gave it with room for the element by the contract of this file and of the callers.
            return unsafe { pointer.write(value) };
        };
        // SAFETY: as above, in the form of the program's shim.
        unsafe { (foreign.store)(self.address.wrapping_add(at * foreign.bytes), value) }
    }
}

/// Where the result goes.
#[derive(Clone, Copy, Debug)]
pub struct Out<T: Copy + 'static>(Place<T>);

impl<T: Copy> Out<T> {
    /// The parameter `name`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Out<T> {
        Out(Place { address, name, foreign: None })
    }
    /// The parameter `name` of another shim.
    #[inline]
    pub fn foreign(address: usize, name: &'static str, form: &'static Foreign<T>) -> Out<T> {
        Out(Place { address, name, foreign: Some(form) })
    }
    /// Whether it is null: for the few parameters that may be.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// MPI_ERR_ARG if it is null. A body checks all its outputs before it changes anything.
    #[inline]
    pub fn check(self) -> Result<()> {
        self.0.check()
    }
    /// Stores the result.
    #[inline]
    pub fn set(self, value: T) -> Result<()> {
        self.0.set(0, value)
    }
    /// What is there: for parameters that go in and out.
    #[inline]
    pub fn get(self) -> Result<T> {
        self.0.get(0)
    }
}

/// An array that the program fills and we read.
#[derive(Clone, Copy, Debug)]
pub struct In<T: Copy + 'static>(Place<T>);

impl<T: Copy> In<T> {
    /// The parameter `name`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> In<T> {
        In(Place { address, name, foreign: None })
    }
    /// The parameter `name` of another shim.
    #[inline]
    pub fn foreign(address: usize, name: &'static str, form: &'static Foreign<T>) -> In<T> {
        In(Place { address, name, foreign: Some(form) })
    }
    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// Whether it is one of the standard's addresses that mean something else than an array.
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

/// An array that we write, or read and write.
#[derive(Clone, Copy, Debug)]
pub struct Array<T: Copy + 'static>(Place<T>);

impl<T: Copy> Array<T> {
    /// The parameter `name`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Array<T> {
        Array(Place { address, name, foreign: None })
    }
    /// The parameter `name` of another shim.
    #[inline]
    pub fn foreign(address: usize, name: &'static str, form: &'static Foreign<T>) -> Array<T> {
        Array(Place { address, name, foreign: Some(form) })
    }
    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.0.address == 0
    }
    /// Whether it is one of the standard's addresses that mean something else than an array.
    pub fn is(self, address: usize) -> bool {
        self.0.address == address
    }
    /// Element `at`, as `In::get`.
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

/// Counts or displacements: of C ints in a function, of MPI_Count or MPI_Aint in its `_c` form.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// 32 bits each.
    Ints(In<i32>),
    /// 64 bits each.
    Longs(In<i64>),
}

impl Counts {
    /// The parameter `name` of the plain form.
    #[inline]
    pub fn ints(address: usize, name: &'static str) -> Counts {
        Counts::Ints(In::new(address, name))
    }
    /// The parameter `name` of the `_c` form.
    #[inline]
    pub fn longs(address: usize, name: &'static str) -> Counts {
        Counts::Longs(In::new(address, name))
    }
    /// Element `at`, as `In::get`.
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
    /// Whether it is the plain form: constructors of datatypes remember it.
    pub fn is_int(self) -> bool {
        matches!(self, Counts::Ints(_))
    }
}

/// Where a count goes: to a C int in a function, to an MPI_Count in its `_c` form.
#[derive(Clone, Copy, Debug)]
pub enum OutCount {
    /// 32 bits.
    Int(Out<i32>),
    /// 64 bits.
    Long(Out<i64>),
}

impl OutCount {
    /// The parameter `name` of the plain form.
    #[inline]
    pub fn int(address: usize, name: &'static str) -> OutCount {
        OutCount::Int(Out::new(address, name))
    }
    /// The parameter `name` of the `_c` form.
    #[inline]
    pub fn long(address: usize, name: &'static str) -> OutCount {
        OutCount::Long(Out::new(address, name))
    }
    /// Stores a count; MPI_ERR_VALUE_TOO_LARGE if it does not fit.
    pub fn set(self, value: i64) -> Result<()> {
        match self {
            OutCount::Long(out) => out.set(value),
            OutCount::Int(out) => match i32::try_from(value) {
                Ok(value) => out.set(value),
                Err(_) => fail!(Class::ValueTooLarge, "{} is {value}, which an int cannot hold", out.0.name),
            },
        }
    }
    /// Stores a count, or MPI_UNDEFINED if it does not fit: for queries that the standard lets answer so.
    pub fn set_or_undefined(self, value: Option<u64>) -> Result<()> {
        let value = value.and_then(|value| i64::try_from(value).ok());
        match self {
            OutCount::Long(out) => out.set(value.unwrap_or(i64::from(constants::UNDEFINED))),
            OutCount::Int(out) => {
                out.set(value.and_then(|v| i32::try_from(v).ok()).unwrap_or(constants::UNDEFINED))
            }
        }
    }
    /// What is there.
    pub fn get(self) -> Result<i64> {
        match self {
            OutCount::Int(out) => out.get().map(i64::from),
            OutCount::Long(out) => out.get(),
        }
    }
    /// MPI_ERR_ARG if it is null.
    pub fn check(self) -> Result<()> {
        match self {
            OutCount::Int(out) => out.check(),
            OutCount::Long(out) => out.check(),
        }
    }
    /// Whether it is the plain form.
    pub fn is_int(self) -> bool {
        matches!(self, OutCount::Int(_))
    }
}

/// A C string that we read.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    address: usize,
    name: &'static str,
}

impl Text {
    /// The parameter `name`.
    pub fn new(address: usize, name: &'static str) -> Text {
        Text { address, name }
    }
    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.address == 0
    }
    /// The string; bytes that are not UTF-8 are replaced.
    pub fn read(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }
    /// The string as it is.
    pub fn bytes(self) -> Result<Vec<u8>> {
        if self.address == 0 {
            return null(self.name);
        }
        // SAFETY: not null, and the program gave it as a C string (contract of this file).
        let text = unsafe { std::ffi::CStr::from_ptr(self.address as *const _) };
        Ok(text.to_bytes().to_vec())
    }
}

impl Text {
    /// The string as a file's name, whose bytes need not be UTF-8.
    pub fn path(self) -> Result<std::path::PathBuf> {
        if self.address == 0 {
            return null(self.name);
        }
        // SAFETY: not null, and the program gave it as a C string (contract of this file).
        let text = unsafe { std::ffi::CStr::from_ptr(self.address as *const _) };
        let bytes = std::os::unix::ffi::OsStringExt::from_vec(text.to_bytes().to_vec());
        Ok(std::ffi::OsString::into(bytes))
    }
}

/// A buffer for a C string that we write.
#[derive(Clone, Copy, Debug)]
pub struct TextOut {
    address: usize,
    name: &'static str,
    bytes_max: usize,
}

impl TextOut {
    /// The parameter `name`.
    pub fn new(address: usize, name: &'static str) -> TextOut {
        TextOut { address, name, bytes_max: usize::MAX }
    }
    /// The parameter `name` of another shim, whose programs give it room for so many bytes only.
    pub fn at_most(address: usize, name: &'static str, bytes_max: usize) -> TextOut {
        TextOut { address, name, bytes_max }
    }
    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.address == 0
    }
    /// Stores at most `bytes_max` bytes including the final zero; returns how many bytes the text has there without it.
    pub fn set(self, text: &str, bytes_max: usize) -> Result<usize> {
        if self.address == 0 {
            return null(self.name);
        }
        let bytes_max = bytes_max.min(self.bytes_max);
        let mut bytes = text.len().min(bytes_max.saturating_sub(1));
        while !text.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let to = self.address as *mut u8;
        // SAFETY: not null, and the program gave room for `bytes_max` bytes (contract of this file), which are at least bytes + 1.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, bytes) };
        if bytes_max > 0 {
            // SAFETY: as above; this is the last of the bytes + 1.
            unsafe { to.wrapping_add(bytes).write(0) };
        }
        Ok(bytes)
    }
}

/// MPI_Status of the standard ABI (MPI 5.0, section 20.3.1). `hidden` is ours: data bytes, low word first, and whether it was cancelled.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the standard's.
pub struct Status {
    pub source: i32,
    pub tag: i32,
    pub error: i32,
    hidden: [i32; 5],
}

impl Status {
    /// Of a receive or probe of `bytes` bytes.
    pub fn new(source: i32, tag: i32, bytes: u64) -> Status {
        let mut status = Status { source, tag, error: 0, hidden: [0; 5] };
        status.set_bytes(bytes);
        status
    }
    /// The empty status (MPI 5.0, section 3.7.3): of null and inactive requests, and of sends.
    pub const EMPTY: Status =
        Status { source: constants::ANY_SOURCE, tag: constants::ANY_TAG, error: 0, hidden: [0; 5] };
    /// Of a receive from MPI_PROC_NULL (MPI 5.0, section 3.10).
    pub const NO_PROCESS: Status =
        Status { source: constants::PROC_NULL, tag: constants::ANY_TAG, error: 0, hidden: [0; 5] };
    /// Data bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.hidden[0] as u32) | u64::from(self.hidden[1] as u32) << 32
    }
    /// Sets the data bytes.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.hidden[0] = bytes as u32 as i32;
        self.hidden[1] = (bytes >> 32) as u32 as i32;
    }
    /// Whether the operation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.hidden[2] != 0
    }
    /// Says whether the operation was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.hidden[2] = i32::from(cancelled);
    }
}

/// A status that we read; null is an error.
#[derive(Clone, Copy, Debug)]
pub struct StatusIn(In<Status>);

impl StatusIn {
    /// The parameter `name`.
    pub fn new(address: usize, name: &'static str) -> StatusIn {
        StatusIn(In::new(address, name))
    }
    /// The parameter `name` of another shim.
    #[inline]
    pub fn foreign(address: usize, name: &'static str, form: &'static Foreign<Status>) -> StatusIn {
        StatusIn(In::foreign(address, name, form))
    }
    /// The status.
    pub fn get(self) -> Result<Status> {
        self.0.get(0)
    }
}

/// A status that we write; null is MPI_STATUS_IGNORE.
#[derive(Clone, Copy, Debug)]
pub struct StatusOut(Out<Status>);

impl StatusOut {
    /// The parameter `name`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> StatusOut {
        StatusOut(Out::new(address, name))
    }
    /// The parameter `name` of another shim.
    #[inline]
    pub fn foreign(address: usize, name: &'static str, form: &'static Foreign<Status>) -> StatusOut {
        StatusOut(Out::foreign(address, name, form))
    }
    /// Whether it is MPI_STATUS_IGNORE.
    pub fn is_ignored(self) -> bool {
        self.0.is_null()
    }
    /// Stores all but MPI_ERROR, which calls that complete one operation leave alone (MPI 5.0, section 3.2.5).
    #[inline]
    pub fn set(self, status: Status) {
        if !self.is_ignored() {
            let error = self.0.get().expect("not null").error;
            self.0.set(Status { error, ..status }).expect("not null");
        }
    }
    /// Stores the empty status, whose MPI_ERROR is MPI_SUCCESS (MPI 5.0, section 3.7.3).
    pub fn set_empty(self) -> Result<()> {
        if self.is_ignored() { Ok(()) } else { self.0.set(Status::EMPTY) }
    }
    /// Changes one field of a status that the program fills itself.
    pub fn change(self, change: impl FnOnce(&mut Status)) -> Result<()> {
        let mut status = self.0.get()?;
        change(&mut status);
        self.0.set(status)
    }
}

/// An array of statuses; null is MPI_STATUSES_IGNORE.
#[derive(Clone, Copy, Debug)]
pub struct Statuses(Array<Status>);

impl Statuses {
    /// The parameter `name`.
    #[inline]
    pub fn new(address: usize, name: &'static str) -> Statuses {
        Statuses(Array::new(address, name))
    }
    /// The parameter `name` of another shim.
    #[inline]
    pub fn foreign(address: usize, name: &'static str, form: &'static Foreign<Status>) -> Statuses {
        Statuses(Array::foreign(address, name, form))
    }
    /// Whether it is MPI_STATUSES_IGNORE.
    pub fn is_ignored(self) -> bool {
        self.0.is_null()
    }
    /// Stores status `at` but for MPI_ERROR.
    #[inline]
    pub fn set(self, at: usize, status: Status) {
        if self.is_ignored() {
            return;
        }
        // Field by field: one that is put together in memory and moved in wider words is waited for.
        if let Some(Status { source, tag, hidden, .. }) = self.0.0.element(at) {
            (*source, *tag, *hidden) = (status.source, status.tag, status.hidden);
            return;
        }
        let error = self.0.get(at).expect("not null").error;
        self.0.set(at, Status { error, ..status }).expect("not null");
    }
    /// Stores the field MPI_ERROR of status `at`, for calls that return MPI_ERR_IN_STATUS.
    pub fn set_error(self, at: usize, code: i32) {
        if !self.is_ignored() {
            let status = self.0.get(at).expect("not null");
            self.0.set(at, Status { error: code, ..status }).expect("not null");
        }
    }
}

/// A count that must not be negative, as what it counts.
#[inline]
pub fn count(value: i64, name: &str) -> Result<usize> {
    match usize::try_from(value) {
        Ok(count) => Ok(count),
        Err(_) => fail!(Class::Count, "{name} is {value}, which is negative"),
    }
}

/// The length of an argument array, which must not be negative.
#[inline]
pub fn length(value: impl Into<i64>, name: &str) -> Result<usize> {
    let value = value.into();
    match usize::try_from(value) {
        Ok(length) => Ok(length),
        Err(_) => fail!(Class::Arg, "{name} is {value}, which is negative"),
    }
}

#[cold]
fn null<T>(name: &str) -> Result<T> {
    fail!(Class::Arg, "{name} is a null pointer")
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

    #[test]
    fn texts_are_cut_between_characters() {
        let mut buffer = [0xffu8; 8];
        let out = TextOut::new(buffer.as_mut_ptr() as usize, "name");
        assert_eq!(out.set("abcdefé", 8), Ok(6));
        assert_eq!(&buffer, b"abcdef\0\xff");
    }

    #[test]
    fn a_status_hides_its_bytes_and_keeps_its_error() {
        assert_eq!(size_of::<Status>(), 32);
        let mut status = Status { error: 5, ..Status::EMPTY };
        let out = StatusOut::new(&raw mut status as usize, "status");
        let mut new = Status::new(1, 2, (1 << 40) + 3);
        new.set_cancelled(true);
        out.set(new);
        assert_eq!((status.source, status.tag, status.error, status.bytes()), (1, 2, 5, (1 << 40) + 3));
        assert!(status.is_cancelled());
        StatusOut::new(0, "status").set(new);
    }
}
