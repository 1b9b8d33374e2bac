// SPDX-License-Identifier: BSD-3-Clause
//! Buffers that a program passes to `mpi_f08` as arrays or array sections, with a descriptor of
//! ISO_Fortran_binding.h: how a section with gaps reaches C (MPI 5.0, section 19.1.2).
//!
//! `(buffer, count, datatype)` means the elements of the section as if they stood one after the other.
//! `Elements` makes a datatype of them, so that blocking and nonblocking calls move the bytes in place.
//! Sections that no datatype can describe (in reductions, with blocks of different lengths) are copied. The
//! copy lasts until the end of the call, or of the request that the call makes (`SectionCopy::attach`).

use crate::c;
use crate::fault::Error;
use crate::memory;
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;

/// The first fields of a CFI_cdesc_t, before its dimensions. Compilers differ only in the order of the last
/// bytes here.
#[cfg(not(mpich))]
#[repr(C)]
pub struct Descriptor {
    pub address: *mut c_void,
    pub element_bytes: usize,
    version: i32,
    rank: u8,
    others: [u8; 3],
    // CFI_dim_t[rank] follows.
}

/// The first fields of gfortran's own descriptor, before its dimensions. Programs compiled for MPICH pass
/// such descriptors.
#[cfg(mpich)]
#[repr(C)]
pub struct Descriptor {
    pub address: *mut c_void,
    offset: usize,
    pub element_bytes: usize,
    version: i32,
    rank: u8,
    others: [u8; 3],
    span: isize,
}

#[cfg(not(mpich))]
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimension {
    _lower: isize,
    extent: isize,
    stride: isize,
}

#[cfg(mpich)]
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimension {
    stride: isize,
    lower: isize,
    upper: isize,
}

impl Dimension {
    /// Returns the number of elements along this dimension, and the distance in bytes from one to the next.
    #[cfg(not(mpich))]
    fn read(self, _: &Descriptor) -> (i64, i64) {
        (self.extent as i64, self.stride as i64)
    }
    #[cfg(mpich)]
    fn read(self, head: &Descriptor) -> (i64, i64) {
        let span = if head.span == 0 { head.element_bytes as isize } else { head.span };
        ((self.upper - self.lower + 1) as i64, (self.stride * span) as i64)
    }
}

/// The most dimensions that an array has in Fortran.
const RANK_MAX: usize = 15;

/// An array or array section that a descriptor describes. `dimensions` holds, for each dimension, the number
/// of elements and the distance in bytes from one to the next.
struct View {
    address: *mut c_void,
    element_bytes: i64,
    dimensions: Vec<(i64, i64)>,
}

impl View {
    /// Reads a descriptor.
    ///
    /// # Safety
    /// `descriptor` points to a valid descriptor, with its dimensions.
    unsafe fn of(descriptor: *const Descriptor) -> View {
        // SAFETY: the caller's promise.
        let head = unsafe { &*descriptor };
        // SAFETY: the dimensions follow the head.
        let first = unsafe { descriptor.add(1) }.cast::<Dimension>();
        let dimensions = (0..usize::from(head.rank).min(RANK_MAX)).map(|at| {
            // SAFETY: `at` is less than the rank.
            unsafe { first.wrapping_add(at).read() }.read(head)
        });
        View {
            address: head.address,
            element_bytes: head.element_bytes as i64,
            dimensions: dimensions.collect(),
        }
    }

    /// Whether the array's elements have no gaps between them. The extent of an assumed-size array's last
    /// dimension is -1; it does not matter here.
    fn is_contiguous(&self) -> bool {
        let mut bytes = self.element_bytes;
        self.dimensions.iter().all(|(extent, stride)| {
            let fits = *extent == 1 || *stride == bytes;
            bytes *= extent;
            fits
        })
    }

    fn elements(&self) -> i64 {
        self.dimensions.iter().map(|(extent, _)| extent).product()
    }

    /// Calls `visit` for each element, with its offset in bytes from the array's address, in Fortran's order.
    fn each(&self, mut visit: impl FnMut(isize)) {
        for number in 0..self.elements() {
            let (mut rest, mut offset) = (number, 0);
            for (extent, stride) in &self.dimensions {
                offset += rest % extent * stride;
                rest /= extent;
            }
            visit(offset as isize);
        }
    }
}

/// Returns the address that a descriptor holds, or C's constant if it is MPI_BOTTOM or another special
/// address. Serves calls that do not look at the array's shape.
///
/// # Safety
/// `descriptor` points to a valid descriptor, with its dimensions.
pub unsafe fn first(descriptor: *const Descriptor) -> *mut c_void {
    // SAFETY: the caller's promise.
    memory::buffer(unsafe { (*descriptor).address })
}

/// Returns the address of a buffer, for a call that uses parts of the buffer one by one, or uses it after the
/// call has returned. Fails if the buffer is an array section with gaps.
///
/// # Safety
/// `descriptor` points to a valid descriptor, with its dimensions.
pub unsafe fn whole(descriptor: *const Descriptor) -> Result<*mut c_void, Error> {
    // SAFETY: the caller's promise.
    let view = unsafe { View::of(descriptor) };
    if memory::is_special(view.address) || view.is_contiguous() || view.elements() == 0 {
        return Ok(memory::buffer(view.address));
    }
    let sentence = "the buffer is an array section with gaps, which this call cannot take; \
                    pass a contiguous array";
    Err(Error { class: c::ERR_BUFFER, sentence: sentence.into() })
}

type Hook = unsafe extern "C" fn(*mut c_void);
type Attach =
    unsafe extern "C" fn(c::MPI_Request, Option<Hook>, Option<Hook>, Option<Hook>, *mut c_void) -> c_int;

/// The function MPIX_Request_attach (include/mpi-ext.h), which Outboard has. None with another MPI library.
static ATTACH: LazyLock<Option<Attach>> = LazyLock::new(|| {
    let function = memory::symbol(c"PMPIX_Request_attach");
    // SAFETY: a function of this type, or null.
    unsafe { std::mem::transmute::<*mut c_void, Option<Attach>>(function) }
});

/// A copy of an array section with gaps. For an array without gaps, the array itself.
pub struct SectionCopy {
    view: View,
    bytes: Option<Vec<u8>>,
}

impl SectionCopy {
    /// Makes a copy of the section that a descriptor describes, if the section has gaps.
    ///
    /// # Safety
    /// `descriptor` points to a valid descriptor, with its dimensions.
    pub unsafe fn new(descriptor: *const Descriptor) -> SectionCopy {
        // SAFETY: the caller's promise.
        let view = unsafe { View::of(descriptor) };
        if memory::is_special(view.address) || view.is_contiguous() || view.elements() == 0 {
            return SectionCopy { view, bytes: None };
        }
        let bytes = vec![0; view.element_bytes as usize * view.elements() as usize];
        let mut copy = SectionCopy { view, bytes: Some(bytes) };
        copy.fill();
        copy
    }

    /// Makes a copy for a call that makes a request. `attach` then gives the copy to the request. Fails if
    /// the section has gaps and the MPI library lacks MPIX_Request_attach.
    ///
    /// # Safety
    /// `descriptor` points to a valid descriptor, with its dimensions.
    pub unsafe fn lasting(descriptor: *const Descriptor) -> Result<SectionCopy, Error> {
        if ATTACH.is_none() {
            // SAFETY: the caller's promise.
            unsafe { whole(descriptor) }?;
        }
        // SAFETY: as above.
        Ok(unsafe { SectionCopy::new(descriptor) })
    }

    /// Gives the copy to the request that a call has made. If `written`, the copy goes back to the section
    /// when the request has completed. Returns `code`, the call's error code, or the code of an error here.
    pub fn attach(self, request: c::MPI_Request, code: i32, written: bool) -> i32 {
        // A tool may have waited for the operation.
        let is_over = code == c::SUCCESS && request == c::REQUEST_NULL as c::MPI_Request;
        if is_over && written {
            self.store();
        }
        if is_over || self.bytes.is_none() {
            return code;
        }
        let copy = Box::into_raw(Box::new(self));
        let Some(attach) = *ATTACH else { return code };
        if code != c::SUCCESS {
            return code; // What the call has begun may still use the copy.
        }
        let back = written.then_some(store as Hook);
        // SAFETY: the functions below take a copy in a box.
        unsafe { attach(request, Some(fill), back, Some(release), copy.cast()) }
    }

    /// Copies the section's elements into the copy: when it is made, and at each start of a persistent
    /// request.
    fn fill(&mut self) {
        let Some(bytes) = &mut self.bytes else { return };
        let mut elements = bytes.chunks_exact_mut(self.view.element_bytes.max(1) as usize);
        self.view.each(|offset| {
            let element = elements.next().unwrap_or_default();
            // SAFETY: an element of the array (contract of the crate).
            let place = unsafe { self.view.address.cast::<u8>().offset(offset) };
            // SAFETY: as above; the copy lies elsewhere.
            unsafe { place.copy_to_nonoverlapping(element.as_mut_ptr(), element.len()) };
        });
    }

    /// Returns the address to pass to C: that of the copy, or that of the array if it has no gaps.
    pub fn address(&mut self) -> *mut c_void {
        match &mut self.bytes {
            Some(bytes) => bytes.as_mut_ptr().cast(),
            None => memory::buffer(self.view.address),
        }
    }
    /// Copies the elements, which a call has stored in the copy, back to the section.
    pub fn store(&self) {
        let Some(bytes) = &self.bytes else { return };
        let mut elements = bytes.chunks_exact(self.view.element_bytes.max(1) as usize);
        self.view.each(|offset| {
            let element = elements.next().unwrap_or_default();
            // SAFETY: an element of the array (contract of the crate).
            let place = unsafe { self.view.address.cast::<u8>().offset(offset) };
            // SAFETY: as above; the copy lies elsewhere.
            unsafe { place.copy_from_nonoverlapping(element.as_ptr(), element.len()) };
        });
    }
}

unsafe extern "C" fn fill(copy: *mut c_void) {
    // SAFETY: `SectionCopy::attach` passed it; nobody else uses it while the request is not active.
    unsafe { &mut *copy.cast::<SectionCopy>() }.fill();
}

unsafe extern "C" fn store(copy: *mut c_void) {
    // SAFETY: `SectionCopy::attach` passed it, and the operation is over.
    unsafe { &*copy.cast::<SectionCopy>() }.store();
}

unsafe extern "C" fn release(copy: *mut c_void) {
    // SAFETY: `SectionCopy::attach` passed a box, which nothing uses any more.
    drop(unsafe { Box::from_raw(copy.cast::<SectionCopy>()) });
}

/// The elements that a call sends or receives, as arguments of a C function: address, count and datatype.
pub struct Elements {
    pub address: *mut c_void,
    pub count: i64,
    pub datatype: c::MPI_Datatype,
    made: bool,
}

impl Drop for Elements {
    fn drop(&mut self) {
        if self.made {
            // SAFETY: made here; a call that goes on keeps the datatype (MPI 5.0, section 5.1.9).
            unsafe { c::PMPI_Type_free(&mut self.datatype) };
        }
    }
}

impl Elements {
    /// Makes C's arguments for `count` elements of a buffer. For a section with gaps, makes a datatype that
    /// skips the gaps. `used` is false if the call ignores the buffer on this rank.
    ///
    /// # Safety
    /// `descriptor` points to a valid descriptor, with its dimensions.
    pub unsafe fn new(
        descriptor: *const Descriptor,
        count: i64,
        datatype: c::MPI_Datatype,
        used: bool,
    ) -> Result<Elements, Error> {
        // SAFETY: the caller's promise.
        let view = unsafe { View::of(descriptor) };
        let unchanged = Elements { address: memory::buffer(view.address), count, datatype, made: false };
        if !used || count <= 0 || memory::is_special(view.address) {
            return Ok(unchanged);
        }
        let elements = view.elements();
        if elements == 0 {
            let sentence = format!("count is {count}, and the buffer is an array without elements");
            return Err(Error { class: c::ERR_BUFFER, sentence });
        }
        if view.is_contiguous() {
            return Ok(unchanged);
        }
        let Some((block, blocks)) = blocks(&view, count, datatype)? else { return Ok(unchanged) };
        if blocks > elements {
            let sentence = format!(
                "{count} elements of the datatype are {blocks} of the array section, which has {elements}"
            );
            block.free();
            return Err(Error { class: c::ERR_COUNT, sentence });
        }
        let made = first_of(&view.dimensions, blocks, block)?;
        let mut datatype = made.0;
        // SAFETY: a datatype that this function has made.
        check(unsafe { c::PMPI_Type_commit(&mut datatype) })?;
        Ok(Elements { address: view.address, count: 1, datatype, made: true })
    }
}

/// A datatype that this file has made, and must free.
#[derive(Clone, Copy)]
struct MadeDatatype(c::MPI_Datatype);

impl MadeDatatype {
    fn free(mut self) {
        // SAFETY: made here, and used by nobody else.
        unsafe { c::PMPI_Type_free(&mut self.0) };
    }
}

/// Converts the code of a C function on datatypes to a result. That function has called the error handler
/// already.
fn check(code: i32) -> Result<(), Error> {
    if code == c::SUCCESS {
        return Ok(());
    }
    Err(Error { class: c::ERR_TYPE, sentence: "no datatype could be made of the array section".into() })
}

/// Makes a datatype for one element of the array. Returns the datatype, and how many elements of the array
/// the call moves. Returns None if the call moves no bytes.
fn blocks(view: &View, count: i64, datatype: c::MPI_Datatype) -> Result<Option<(MadeDatatype, i64)>, Error> {
    let (mut bytes, mut lower, mut extent) = (0, 0, 0);
    // SAFETY: the address of a local; C checks the handle.
    check(unsafe { c::PMPI_Type_size_c(datatype, &mut bytes) })?;
    // SAFETY: as above.
    check(unsafe { c::PMPI_Type_get_extent_c(datatype, &mut lower, &mut extent) })?;
    if bytes == 0 {
        return Ok(None);
    }
    let element = view.element_bytes;
    if bytes != extent || lower != 0 {
        let sentence = "the buffer is an array section with gaps, and so is the datatype; \
                        let one of them be contiguous";
        return Err(Error { class: c::ERR_TYPE, sentence: sentence.into() });
    }
    if element == 0 || count * bytes % element != 0 {
        let sentence = format!(
            "{count} times a datatype of {bytes} bytes is no whole number of elements of the array section, \
             which have {element} bytes"
        );
        return Err(Error { class: c::ERR_TYPE, sentence });
    }
    // The program's datatype where elements consist of it; bytes where it holds several elements.
    // SAFETY: C takes every number.
    let byte = unsafe { c::MPI_Type_fromint(c::BYTE) };
    let (length, of) = if element % bytes == 0 { (element / bytes, datatype) } else { (element, byte) };
    let mut block = datatype;
    // SAFETY: the address of a local.
    check(unsafe { c::PMPI_Type_contiguous_c(length, of, &mut block) })?;
    Ok(Some((MadeDatatype(block), count * bytes / element)))
}

/// Makes a datatype for the first `elements` elements of an array with the dimensions `dimensions`. Consumes
/// `block`, the datatype of one element.
fn first_of(dimensions: &[(i64, i64)], elements: i64, block: MadeDatatype) -> Result<MadeDatatype, Error> {
    let Some(((_, stride), inner)) = dimensions.split_last() else { return Ok(block) };
    let inner_elements: i64 = inner.iter().map(|(extent, _)| extent).product();
    let (full, rest) = (elements / inner_elements, elements % inner_elements);
    if full == 0 {
        return first_of(inner, rest, block);
    }
    let mut copy = block.0;
    if rest > 0 {
        // SAFETY: the address of a local; the block is a datatype.
        check(unsafe { c::PMPI_Type_dup(block.0, &mut copy) })?;
    }
    let row = first_of(inner, inner_elements, block)?;
    let mut rows = row.0;
    // SAFETY: as above.
    check(unsafe { c::PMPI_Type_create_hvector_c(full, 1, *stride, row.0, &mut rows) })?;
    row.free();
    if rest == 0 {
        return Ok(MadeDatatype(rows));
    }
    let last = first_of(inner, rest, MadeDatatype(copy))?;
    let (mut lengths, mut places, mut parts) = ([1, 1], [0, full * stride], [rows, last.0]);
    let mut both = rows;
    // SAFETY: arrays of two elements, which C reads.
    check(unsafe {
        c::PMPI_Type_create_struct_c(
            2,
            lengths.as_mut_ptr(),
            places.as_mut_ptr(),
            parts.as_mut_ptr(),
            &mut both,
        )
    })?;
    MadeDatatype(rows).free();
    last.free();
    Ok(MadeDatatype(both))
}
