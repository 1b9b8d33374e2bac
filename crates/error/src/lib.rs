// SPDX-License-Identifier: BSD-3-Clause
//! The error type of the library: an MPI error class, and one sentence with the facts.
//!
//! The code that finds an error writes the whole sentence: ranks, tag, bytes, and what to do. No caller
//! rewrites the sentence. The `abi` crate puts "rank 3, MPI_Recv on comm world: " before it, and calls the
//! error handler. Classes have the numbers of the MPI-5.0 standard ABI (MPI 5.0, section 20.3). The code for
//! another ABI translates these numbers.
#![forbid(unsafe_code)]

macro_rules! classes {
    ($($name:ident = $number:literal,)*) => {
        /// An MPI error class (MPI 5.0, section 9.4), numbered as in the standard ABI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        #[allow(missing_docs)] // The names are the standard's.
        pub enum Class {
            $($name = $number,)*
        }

        impl Class {
            /// Returns the class with the number `number`, which another process may have sent. Returns None
            /// if no class has this number.
            pub fn numbered(number: i32) -> Option<Class> {
                match number {
                    $($number => Some(Class::$name),)*
                    _ => None,
                }
            }
        }
    };
}

classes! {
    Buffer = 1,
    Count = 2,
    Type = 3,
    Tag = 4,
    Comm = 5,
    Rank = 6,
    Request = 7,
    Root = 8,
    Group = 9,
    Op = 10,
    Topology = 11,
    Dims = 12,
    Arg = 13,
    Unknown = 14,
    Truncate = 15,
    Other = 16,
    Intern = 17,
    Pending = 18,
    InStatus = 19,
    Access = 20,
    Amode = 21,
    Assert = 22,
    BadFile = 23,
    Base = 24,
    Conversion = 25,
    Disp = 26,
    DupDatarep = 27,
    FileExists = 28,
    FileInUse = 29,
    File = 30,
    InfoKey = 31,
    InfoNokey = 32,
    InfoValue = 33,
    Info = 34,
    Io = 35,
    Keyval = 36,
    LockType = 37,
    Name = 38,
    NoMem = 39,
    NotSame = 40,
    NoSpace = 41,
    NoSuchFile = 42,
    Quota = 44,
    ReadOnly = 45,
    RmaAttach = 46,
    RmaConflict = 47,
    RmaRange = 48,
    RmaShared = 49,
    RmaSync = 50,
    Port = 43,
    Service = 51,
    Size = 52,
    Spawn = 53,
    UnsupportedDatarep = 54,
    UnsupportedOperation = 55,
    Win = 56,
    RmaFlavor = 57,
    ProcAborted = 58,
    ValueTooLarge = 59,
    Session = 60,
    Errhandler = 61,
    Abi = 62,
}

/// An error class and the sentence that explains the error. It is one word wide, so a `Result<()>` fits in a
/// register.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Error(Box<ErrorFacts>);

/// The content of an `Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFacts {
    /// The error class, which the MPI call returns unless `code` is set.
    pub class: Class,
    /// The error code that the MPI call returns in place of the class. None unless a callback of the program
    /// has returned this code.
    pub code: Option<i32>,
    /// The errno of the system call that failed. None if no system call caused the error.
    pub errno: Option<i32>,
    /// One sentence with the facts: which ranks and arguments, how many bytes, and what would be right.
    pub message: String,
}

impl Error {
    /// Makes an error of the class `class`. `message` is one whole sentence without a final stop.
    #[cold]
    pub fn new(class: Class, message: impl Into<String>) -> Error {
        Error(Box::new(ErrorFacts { class, code: None, errno: None, message: message.into() }))
    }

    /// Returns this error, changed so that the MPI call returns `code`.
    pub fn with_code(mut self, code: i32) -> Error {
        self.0.code = Some(code);
        self
    }

    /// Returns this error, changed so that it names `errno`, the errno of the system call that failed.
    pub fn with_errno(mut self, errno: Option<i32>) -> Error {
        self.0.errno = errno;
        self
    }

    /// Returns the number that the MPI call returns: the field `code` if it is set, and otherwise the class.
    pub fn code(&self) -> i32 {
        self.0.code.unwrap_or(self.0.class as i32)
    }
}

impl std::ops::Deref for Error {
    type Target = ErrorFacts;
    fn deref(&self) -> &ErrorFacts {
        &self.0
    }
}

impl std::ops::DerefMut for Error {
    fn deref_mut(&mut self) -> &mut ErrorFacts {
        &mut self.0
    }
}

/// Returns from the function with an error that has a formatted sentence, as in `fail!(Class::Rank, "rank
/// {rank} is not below {size}")`.
#[macro_export]
macro_rules! fail {
    ($class:expr, $($sentence:tt)*) => {
        return Err($crate::cold_error(move || $crate::Error::new($class, format!($($sentence)*))))
    };
}

/// Calls `make` in a cold function. So a hot caller can keep the values that the error's sentence names in
/// registers.
#[cold]
#[inline(never)]
pub fn cold_error(make: impl FnOnce() -> Error) -> Error {
    make()
}

/// The result type that all crates of the library use.
pub type Result<T> = std::result::Result<T, Error>;
