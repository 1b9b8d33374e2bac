// SPDX-License-Identifier: BSD-3-Clause
//! Handles: the values by which a program names MPI objects.
//!
//! A handle is as wide as a pointer. Predefined handles are the constants of the standard ABI (MPI 5.0,
//! section 20.3), below 1024. Others are `kind << 27 | generation << 22 | index`, a positive C int, so
//! `MPI_Comm_toint` returns its argument. The kind tells a handle of another kind of object, the generation
//! tells the handle of a freed object. The upper half of the indices, which have no generation, are numbers
//! of objects that need no entry in a table.

use error::Class;

/// A handle of any kind, as the program passes it: the bits of a pointer.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub usize);

const KIND_SHIFT: u32 = 27;
const GENERATION_SHIFT: u32 = 22;
const GENERATIONS: u32 = 1 << (KIND_SHIFT - GENERATION_SHIFT);

const INDICES: u32 = 1 << GENERATION_SHIFT;

/// The most objects of one kind that a table holds at the same time.
pub const INDEX_MAX: u32 = INDICES / 2;

/// How many handles of one kind stand for a number, and not for an entry in a table.
pub const NUMBERS: u32 = INDICES / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // These are MPI's own names.
pub enum HandleKind {
    Comm = 1,
    Group,
    Datatype,
    Op,
    Errhandler,
    Info,
    Request,
    Message,
    Win,
    File,
    Session,
    Keyval,
}

const KINDS: [HandleKind; 12] = [
    HandleKind::Comm,
    HandleKind::Group,
    HandleKind::Datatype,
    HandleKind::Op,
    HandleKind::Errhandler,
    HandleKind::Info,
    HandleKind::Request,
    HandleKind::Message,
    HandleKind::Win,
    HandleKind::File,
    HandleKind::Session,
    HandleKind::Keyval,
];

impl HandleKind {
    /// Returns the name that error messages give to an object of this kind, with an article.
    pub fn noun(self) -> &'static str {
        match self {
            HandleKind::Comm => "a communicator",
            HandleKind::Group => "a group",
            HandleKind::Datatype => "a datatype",
            HandleKind::Op => "an operation",
            HandleKind::Errhandler => "an error handler",
            HandleKind::Info => "an info",
            HandleKind::Request => "a request",
            HandleKind::Message => "a message",
            HandleKind::Win => "a window",
            HandleKind::File => "a file",
            HandleKind::Session => "a session",
            HandleKind::Keyval => "a keyval",
        }
    }

    /// Returns the error class of a call that got a bad handle in place of a handle of this kind.
    pub fn class(self) -> Class {
        match self {
            HandleKind::Comm => Class::Comm,
            HandleKind::Group => Class::Group,
            HandleKind::Datatype => Class::Type,
            HandleKind::Op => Class::Op,
            HandleKind::Errhandler => Class::Errhandler,
            HandleKind::Info => Class::Info,
            HandleKind::Request | HandleKind::Message => Class::Request,
            HandleKind::Win => Class::Win,
            HandleKind::File => Class::File,
            HandleKind::Session => Class::Session,
            HandleKind::Keyval => Class::Keyval,
        }
    }

    /// Returns the standard ABI's range of predefined handles of this kind: the first handle, which is the
    /// null handle, and how many there are (MPI 5.0, section 20.3.3).
    pub fn predefined(self) -> (usize, usize) {
        match self {
            HandleKind::Op => (0x20, 32),
            HandleKind::Comm => (0x100, 8),
            HandleKind::Group => (0x108, 8),
            HandleKind::Win => (0x110, 8),
            HandleKind::File => (0x118, 8),
            HandleKind::Session => (0x120, 8),
            HandleKind::Message => (0x128, 8),
            HandleKind::Info => (0x130, 16),
            HandleKind::Errhandler => (0x140, 64),
            HandleKind::Request => (0x180, 128),
            HandleKind::Datatype => (0x200, 512),
            // Predefined keyvals are not objects; their numbers are in `constants`.
            HandleKind::Keyval => (0, 1),
        }
    }
}

impl Handle {
    /// Makes the handle of the entry `index` of a table. `generation` is how many objects the entry has held
    /// before.
    pub(crate) fn new(kind: HandleKind, generation: u32, index: u32) -> Handle {
        let generation = generation % GENERATIONS;
        Handle(((kind as u32) << KIND_SHIFT | generation << GENERATION_SHIFT | index) as usize)
    }

    /// Makes a handle that stands for `number`, and not for an entry in a table. Numbers that differ by a
    /// multiple of `NUMBERS` get the same handle.
    #[inline]
    pub fn numbered(kind: HandleKind, number: u32) -> Handle {
        Handle(((kind as u32) << KIND_SHIFT | INDEX_MAX | (number % NUMBERS)) as usize)
    }

    /// Returns the number for which `numbered` made this handle. Returns None for any other handle.
    #[inline]
    pub fn number(self, kind: HandleKind) -> Option<u32> {
        let number = self.0 as u32 % NUMBERS;
        (self == Handle::numbered(kind, number)).then_some(number)
    }

    /// Returns the kind of objects to which the handle belongs, even if its object is freed. Returns None if
    /// it is not a handle of this library.
    pub fn kind(self) -> Option<HandleKind> {
        if let Some(number) = self.dynamic() {
            return KINDS.get((number >> KIND_SHIFT).wrapping_sub(1) as usize).copied();
        }
        KINDS.into_iter().find(|kind| {
            let (first, many) = kind.predefined();
            self.0 != 0 && self.0 >= first && self.0 < first + many
        })
    }

    /// Returns the index of the table's entry that the handle names. Returns None if the handle is predefined
    /// or of another kind.
    #[inline]
    pub(crate) fn slot(self, kind: HandleKind) -> Option<usize> {
        // No kind is 0 or exceeds the bits of a C int.
        (self.0 >> KIND_SHIFT == kind as usize).then_some(self.0 & (INDICES as usize - 1))
    }

    /// Converts the handle to a C int, for `MPI_*_toint` and keyvals. A handle that this library did not make
    /// loses its upper 32 bits.
    pub fn to_int(self) -> i32 {
        self.0 as u32 as i32
    }

    pub fn from_int(number: i32) -> Handle {
        Handle(number as u32 as usize)
    }

    #[inline]
    fn dynamic(self) -> Option<u32> {
        u32::try_from(self.0).ok().filter(|number| *number >= 1 << KIND_SHIFT && *number <= i32::MAX as u32)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
