//! Datatypes compiled to flat runs, packing, and the predefined reductions.
//!
//! Always true here: a `Layout` never changes once made; offsets are bytes from the buffer's address (and may be negative);
//! the packed form of a buffer is its bytes in typemap order without gaps.

use error::Result;
use std::sync::Arc;
use sys::Span;

/// `repeat` pieces of `bytes` bytes, the first at `offset` bytes from the element's origin, each `stride` bytes after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes from the element's origin to the first piece.
    pub offset: i64,
    /// Bytes of one piece.
    pub bytes: u64,
    /// Number of pieces.
    pub repeat: u64,
    /// Bytes from the start of one piece to the start of the next.
    pub stride: i64,
}

/// One element of a datatype as flat runs, in typemap order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The runs of one element.
    pub runs: Vec<Run>,
    /// Data bytes of one element (MPI_Type_size).
    pub size: usize,
    /// Bytes from one element to the next (MPI_Type_get_extent).
    pub extent: i64,
    /// Lower bound.
    pub lb: i64,
    /// Offset of the first data byte.
    pub true_lb: i64,
    /// Bytes from the first data byte to the end of the last.
    pub true_extent: i64,
}

impl Layout {
    /// A gap-free element of `bytes` bytes.
    pub fn contiguous(bytes: usize) -> Layout {
        let runs = if bytes == 0 { vec![] } else { vec![Run { offset: 0, bytes: bytes as u64, repeat: 1, stride: 0 }] };
        Layout { runs, size: bytes, extent: bytes as i64, lb: 0, true_lb: 0, true_extent: bytes as i64 }
    }

    /// Whether consecutive elements are one gap-free stretch that starts at the buffer's address.
    pub fn is_contiguous(&self) -> bool {
        self.size == 0
            || (self.extent == self.size as i64
                && self.runs.len() == 1
                && self.runs[0].repeat == 1
                && self.runs[0].offset == 0)
    }
}

/// `count` elements of a layout in user memory: the only form in which the rooms above handle a user's buffer.
/// Offsets into a buffer are packed offsets: bytes of data, without the gaps.
#[derive(Clone, Debug)]
pub struct Buffer {
    base: usize,
    count: usize,
    layout: Arc<Layout>,
}

impl Buffer {
    /// Claims a user's buffer.
    ///
    /// # Safety
    /// All bytes that `count` elements of `layout` at `base` touch must stay mapped until the operation ends (that is what
    /// MPI asks of the caller of every communication function; MPI 5.0, section 2.2).
    pub unsafe fn claim(base: usize, count: usize, layout: Arc<Layout>) -> Buffer {
        Buffer { base, count, layout }
    }

    /// The user's address.
    pub fn base(&self) -> usize {
        self.base
    }
    /// Elements.
    pub fn count(&self) -> usize {
        self.count
    }
    /// Of what.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
    /// Data bytes: the length of the packed form.
    pub fn bytes(&self) -> usize {
        self.count * self.layout.size
    }
    /// The one span that the data occupies, where it has no gaps.
    pub fn contiguous(&self) -> Option<Span> {
        todo!()
    }
    /// Copies packed bytes `[offset, offset + to.bytes())` of the data to `to`.
    pub fn pack(&self, _offset: usize, _to: Span) {
        todo!()
    }
    /// Copies `from` over packed bytes `[offset, offset + from.bytes())` of the data.
    pub fn unpack(&self, _offset: usize, _from: Span) {
        todo!()
    }
    /// Calls `each` with the memory of packed bytes `[offset, offset + bytes)`, piece by piece, in typemap order.
    pub fn pieces(&self, _offset: usize, _bytes: usize, _each: impl FnMut(Span)) {
        todo!()
    }
}

/// The machine type of a predefined datatype: what a reduction must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Basic {
    I8, I16, I32, I64, U8, U16, U32, U64,
    F16, F32, F64, LongDouble, F128,
    C16, C32, C64, CLongDouble,
    /// C and Fortran logicals by width; nonzero is true.
    L8, L16, L32, L64, L128,
    Byte,
    /// MINLOC and MAXLOC pairs: value, then an int (with C's padding).
    F32I32, F64I32, I64I32, I32I32, I16I32, LongDoubleI32, F32F32, F64F64,
}

/// The predefined operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PredefinedOp { Max, Min, Sum, Prod, Land, Band, Lor, Bor, Lxor, Bxor, Maxloc, Minloc, Replace, NoOp }

/// Whether MPI allows `op` on `basic` (MPI 5.0, section 6.9.2); the error says which it does allow.
pub fn check_op(_op: PredefinedOp, _basic: Basic) -> Result<()> {
    todo!()
}

/// `into[i] = left[i] op right[i]` for all elements of the spans, which are equally long; `into` may be `left` or `right`.
pub fn reduce(_op: PredefinedOp, _basic: Basic, _left: Span, _right: Span, _into: Span) {
    todo!()
}
