//! Choice buffers of `mpi_f08`: what a descriptor of ISO_Fortran_binding.h says, and how a section with gaps
//! reaches C (MPI 5.0, section 19.1.2).
//!
//! `(buffer, count, datatype)` means the elements of the section as if they stood one after the other.
//! `Elements` makes a datatype of them, so that blocking and nonblocking calls move the bytes in place. What
//! no datatype describes (reductions, blocks of a length for each rank) is copied if the call waits for its
//! end, and refused otherwise.

use crate::c;
use crate::fault::Error;
use crate::memory;
use std::ffi::c_void;

/// The head of a CFI_cdesc_t; compilers order only the last bytes of the head differently.
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

/// The head of gfortran's own descriptor, which programs compiled for MPICH pass.
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
    /// The elements, and the bytes from one to the next.
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

/// The most dimensions that a descriptor has.
const RANK_MAX: usize = 15;

/// An array: its address, and per dimension the elements and the bytes from one to the next.
struct View {
    address: *mut c_void,
    element_bytes: i64,
    dimensions: Vec<(i64, i64)>,
}

impl View {
    /// # Safety
    /// `descriptor` is one.
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

    /// Whether its elements stand one after the other. The last extent of an assumed-size array is -1.
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

    /// Calls `visit` with the offset of each element, in Fortran's order.
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

/// The address for calls that need no more.
///
/// # Safety
/// `descriptor` is one.
pub unsafe fn first(descriptor: *const Descriptor) -> *mut c_void {
    // SAFETY: the caller's promise.
    memory::buffer(unsafe { (*descriptor).address })
}

/// The address of a buffer that the call uses in ways that no datatype describes.
///
/// # Safety
/// `descriptor` is one.
pub unsafe fn whole(descriptor: *const Descriptor) -> Result<*mut c_void, Error> {
    // SAFETY: the caller's promise.
    let view = unsafe { View::of(descriptor) };
    if memory::is_special(view.address) || view.is_contiguous() || view.elements() == 0 {
        return Ok(memory::buffer(view.address));
    }
    let sentence = "the buffer is an array section with gaps, which this call cannot take; \
                    pass a contiguous array, or use the blocking call";
    Err(Error { class: c::ERR_BUFFER, sentence: sentence.into() })
}

/// A copy of a section for the time of a call, or the array itself if it has no gaps.
pub struct Copy {
    view: View,
    bytes: Option<Vec<u8>>,
}

impl Copy {
    /// # Safety
    /// `descriptor` is one.
    pub unsafe fn new(descriptor: *const Descriptor) -> Copy {
        // SAFETY: the caller's promise.
        let view = unsafe { View::of(descriptor) };
        if memory::is_special(view.address) || view.is_contiguous() || view.elements() == 0 {
            return Copy { view, bytes: None };
        }
        let length = view.element_bytes as usize;
        let mut bytes = Vec::with_capacity(length * view.elements() as usize);
        view.each(|offset| {
            // SAFETY: an element of the array (contract of the crate).
            let element = unsafe { view.address.cast::<u8>().offset(offset) };
            // SAFETY: as above.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(element, length) });
        });
        Copy { view, bytes: Some(bytes) }
    }
    /// The address for C.
    pub fn address(&mut self) -> *mut c_void {
        match &mut self.bytes {
            Some(bytes) => bytes.as_mut_ptr().cast(),
            None => memory::buffer(self.view.address),
        }
    }
    /// Puts what the call has stored into the section.
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

/// The elements that a call moves, as C takes them.
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
    /// `used`: the call looks at the buffer.
    ///
    /// # Safety
    /// `descriptor` is one.
    pub unsafe fn new(
        descriptor: *const Descriptor,
        count: i64,
        datatype: c::MPI_Datatype,
        used: bool,
    ) -> Result<Elements, Error> {
        // SAFETY: the caller's promise.
        let view = unsafe { View::of(descriptor) };
        let plain = Elements { address: memory::buffer(view.address), count, datatype, made: false };
        if !used || count <= 0 || memory::is_special(view.address) {
            return Ok(plain);
        }
        let elements = view.elements();
        if elements == 0 {
            let sentence = format!("count is {count}, and the buffer is an array without elements");
            return Err(Error { class: c::ERR_BUFFER, sentence });
        }
        if view.is_contiguous() {
            return Ok(plain);
        }
        let Some((block, blocks)) = blocks(&view, count, datatype)? else { return Ok(plain) };
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

/// A datatype that this file has made.
#[derive(Clone, Copy)]
struct Made(c::MPI_Datatype);

impl Made {
    fn free(mut self) {
        // SAFETY: made here, and used by nobody else.
        unsafe { c::PMPI_Type_free(&mut self.0) };
    }
}

/// C has told the error handler already.
fn check(code: i32) -> Result<(), Error> {
    if code == c::SUCCESS {
        return Ok(());
    }
    Err(Error { class: c::ERR_TYPE, sentence: "no datatype could be made of the array section".into() })
}

/// A datatype of one element of the array, and how many of them the call moves; `None`: no bytes.
fn blocks(view: &View, count: i64, datatype: c::MPI_Datatype) -> Result<Option<(Made, i64)>, Error> {
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
    Ok(Some((Made(block), count * bytes / element)))
}

/// The first `elements` of an array with these dimensions. Takes `block`, the datatype of an element.
fn first_of(dimensions: &[(i64, i64)], elements: i64, block: Made) -> Result<Made, Error> {
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
        return Ok(Made(rows));
    }
    let last = first_of(inner, rest, Made(copy))?;
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
    Made(rows).free();
    last.free();
    Ok(Made(both))
}
