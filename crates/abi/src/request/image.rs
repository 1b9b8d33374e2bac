// SPDX-License-Identifier: BSD-3-Clause
//! Images: memory on which a reduction works in place of the program's buffers if their datatype has gaps. A
//! reduction uses images for a datatype and an operator of the program, and for a predefined pair with
//! padding (MPI 5.0, sections 6.9.4 and 6.9.5).
//!
//! The program's operator must see vectors in the datatype's shape, with gaps, but a reduction may not write
//! into the gaps of the program's buffers. So the schedule works on an image: memory of the same shape. The
//! program's bytes are copied into the image before the reduction, and the result is copied back after it.
//! For the schedule an image is contiguous bytes; only the operator knows the datatype.

use crate::args::Handle;
use datatype::{Basic, Buffer, Datatype, Layout};
use std::sync::Arc;
use sys::{Block, Span};

/// How a reduction's elements lie in an image, memory on which the reduction works in place of the program's
/// buffers.
#[derive(Clone, Debug)]
pub struct ImageShape {
    layout: Arc<Layout>,
    basic: Option<Basic>,
    form: ImageForm,
}

/// How the elements in images (copies on which a reduction works) differ from those in the program's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageForm {
    /// The reduction needs no images (copies of the elements), because the datatype has no gaps.
    Contiguous,
    /// Images (copies on which the reduction works) lack the padding that predefined pairs have, because
    /// `datatype::reduce` needs packed pairs.
    Packed,
    /// Images (copies on which the reduction works) have the same gaps as the program's buffers, because the
    /// program's operator expects them.
    Gaps,
}

impl ImageShape {
    /// Returns how elements of `datatype` lie in the memory that an operator of the program combines: with
    /// their gaps.
    pub fn of(datatype: &Datatype) -> ImageShape {
        let form = if datatype.layout().is_contiguous() { ImageForm::Contiguous } else { ImageForm::Gaps };
        ImageShape { layout: datatype.layout().clone(), basic: datatype.basic(), form }
    }

    /// Returns how elements of a predefined `datatype` lie in the memory that a predefined operator combines:
    /// without padding.
    pub fn packed(datatype: &Datatype) -> ImageShape {
        let form = if datatype.layout().is_contiguous() { ImageForm::Contiguous } else { ImageForm::Packed };
        ImageShape { form, ..ImageShape::of(datatype) }
    }

    /// Returns the elements' predefined type, or None if the program made the datatype.
    pub fn basic(&self) -> Option<Basic> {
        self.basic
    }

    /// Whether the datatype has no gaps, so that the reduction needs no images (copies of the elements).
    pub fn is_contiguous(&self) -> bool {
        self.form == ImageForm::Contiguous
    }

    /// Returns how many bytes an image (a copy of elements on which a reduction works) of `count` elements
    /// has.
    fn bytes(&self, count: i64) -> usize {
        match (count, self.form) {
            (0, _) => 0,
            (_, ImageForm::Contiguous | ImageForm::Packed) => count as usize * self.layout.size,
            (_, ImageForm::Gaps) => self.step() * (count as usize - 1) + self.layout.true_extent as usize,
        }
    }

    /// Returns how many elements an image (a copy of elements) of `bytes` bytes has. This is the inverse
    /// function of `ImageShape::bytes`.
    pub fn elements(&self, bytes: usize) -> usize {
        match (bytes, self.form) {
            (0, _) => 0,
            (_, ImageForm::Contiguous | ImageForm::Packed) => bytes / self.layout.size,
            (_, ImageForm::Gaps) if self.step() == 0 => 1,
            (_, ImageForm::Gaps) => (bytes - self.layout.true_extent as usize) / self.step() + 1,
        }
    }

    /// Returns the distance in bytes from the start of an image (a copy of elements) of `bytes` bytes to the
    /// address that the operator gets.
    pub fn origin(&self, bytes: usize) -> i64 {
        if self.form != ImageForm::Gaps || bytes == 0 {
            return 0;
        }
        let last = self.layout.extent * (self.elements(bytes) as i64 - 1);
        -(self.layout.true_lb + last.min(0))
    }

    /// Returns the length in bytes of the smallest part of an image that an algorithm may treat alone: one
    /// element, or the whole image (`bytes` bytes) if the elements have gaps.
    pub fn unit(&self, bytes: usize) -> u64 {
        (if self.form == ImageForm::Gaps { bytes } else { self.layout.size }).max(1) as u64
    }

    /// Returns the offsets in bytes at which the images (copies of elements) of blocks begin and end. The
    /// images lie one after the other; block `i` has `counts[i]` elements.
    pub fn cuts(&self, counts: &[i64]) -> Arc<[u64]> {
        let mut at = 0;
        let ends = counts.iter().map(|count| {
            at += self.bytes(*count) as u64;
            at
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn step(&self) -> usize {
        self.layout.extent.unsigned_abs() as usize
    }

    /// Makes a buffer of the `count` elements in the memory `image`, a copy on which a reduction works.
    fn buffer(&self, image: Span, count: i64) -> Buffer {
        if self.form != ImageForm::Gaps {
            return Buffer::from(image);
        }
        // A negative origin wraps around. So does its sum with the layout's offsets, which lies in the image.
        let origin = self.origin(image.bytes()) as usize;
        Buffer::within(image, origin, count as usize, &self.layout).expect("an image holds its elements")
    }
}

/// An operator of the program, with the datatype of the elements that it combines.
#[derive(Clone, Debug)]
pub struct UserOp {
    /// The address of the program's function.
    pub function: usize,
    /// Whether the function has a count of the type MPI_Count, because MPI_Op_create_c made the operator.
    pub large: bool,
    /// The program's handle of the datatype. The program may free it before the reduction has ended.
    pub handle: Handle,
    pub datatype: Arc<Datatype>,
    /// The datatype's extent: the distance in bytes from one element to the next.
    pub extent: i64,
}

/// An operator of the program that a reduction under way uses, with what the calls of the operator need.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The program's function, and the datatype of its elements.
    pub op: UserOp,
    /// How the elements lie in the memory on which the reduction works.
    pub shape: ImageShape,
    /// How many elements each block has, if each block has its own image (a copy of its elements). Empty if
    /// the vector is one image.
    pub counts: Vec<i64>,
}

impl Operator {
    /// Returns where the vector for the next call of the operator lies in `bytes` bytes of memory: the
    /// vector's length in bytes, the offset in bytes of its first element, and its number of elements.
    /// `block` is the number of the block at the start of this memory, or None if the vector has no blocks.
    pub fn vector(&self, block: Option<u64>, bytes: usize) -> (usize, i64, usize) {
        let shape = &self.shape;
        let Some(block) = block.filter(|_| !shape.is_contiguous() && !self.counts.is_empty()) else {
            return (bytes, shape.origin(bytes), shape.elements(bytes));
        };
        let count = self.counts[(block % self.counts.len() as u64) as usize];
        let bytes = shape.bytes(count);
        (bytes, shape.origin(bytes), count as usize)
    }
}

/// The images (copies of the program's buffers) and the operator that belong to a reduction until it is over.
#[derive(Debug, Default)]
pub struct Image {
    input: Option<Block>,
    output: Option<Block>,
    /// The image of the result, and the program's buffer into which the image is copied at the end. None if
    /// this rank gets no result.
    result: Option<(Buffer, Buffer)>,
    /// The index of the program's operator in `JobState::operators`. None for a predefined operator.
    pub operator: Option<usize>,
}

impl Image {
    /// Makes an image for `input`, with the program's elements, and one for a result of `received` elements.
    /// Block `i` of `input` has `counts[i]` elements. `output` is the program's buffer for the result, or
    /// None if this rank gets no result.
    pub fn new(
        shape: &ImageShape,
        counts: &[i64],
        received: i64,
        input: &Buffer,
        output: Option<&Buffer>,
    ) -> Image {
        let memory = Block::new(counts.iter().map(|count| shape.bytes(*count)).sum());
        let result = Block::new(shape.bytes(received));
        let (mut packed_at, mut image_at) = (0, 0);
        for count in counts {
            let (bytes, packed) = (shape.bytes(*count), *count as usize * shape.layout.size);
            let part = memory.span().slice(image_at, bytes);
            shape.buffer(part, *count).copy_from(&input.slice(packed_at, packed));
            (packed_at, image_at) = (packed_at + packed, image_at + bytes);
        }
        let mut image = Image { input: Some(memory), output: Some(result), ..Image::default() };
        if let Some(user) = output {
            let result = shape.buffer(span(&image.output), received);
            // A schedule may leave the result unwritten (MPI_Exscan on rank 0). Then the program's buffer
            // must not change.
            result.copy_from(user);
            image.result = Some((result, user.clone()));
        }
        image
    }

    /// Returns the memory that the reduction reads in place of the program's input.
    pub fn input(&self) -> Buffer {
        Buffer::from(span(&self.input))
    }

    /// Returns the memory that the reduction writes in place of the program's output.
    pub fn output(&self) -> Buffer {
        Buffer::from(span(&self.output))
    }

    /// Copies a reduction's result from its image (memory with the same elements) into the program's buffer.
    pub fn deliver(&mut self) {
        if let Some((result, user)) = self.result.take() {
            user.copy_from(&result);
        }
    }
}

fn span(block: &Option<Block>) -> Span {
    block.as_ref().map_or(Span::EMPTY, Block::span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatype::{Width, predefined};

    // Goal: an image spans exactly the memory that elements touch, whatever their extent, and returns what
    // was put in.
    #[test]
    fn images_of_all_extents() {
        let int = predefined(objects::constants::INT.0 as u32).expect("MPI_INT is predefined");
        for extent in [-40, -12, 0, 4, 12, 40] {
            let pair = datatype::hindexed(Width::Int, &[1, 1], &[4, 12], int).unwrap();
            let datatype = datatype::resized(Width::Int, -8, extent, &pair).unwrap();
            let shape = ImageShape::of(&datatype);
            assert!(!shape.is_contiguous());
            for count in 0..5 {
                assert_eq!(
                    shape.elements(shape.bytes(count)),
                    if extent == 0 { count.min(1) } else { count } as usize
                );
                let data: Vec<u8> = (0..count as u8 * 8).collect();
                let memory = Block::of(&data);
                let user = Buffer::from(memory.span());
                let image = Image::new(&shape, &[count], 0, &user, None);
                let buffer = shape.buffer(span(&image.input), count);
                assert_eq!(buffer.bytes(), data.len());
            }
        }
    }
}
