// SPDX-License-Identifier: BSD-3-Clause
//! Layouts: one element of a datatype as flat runs.
//!
//! A layout is a short nest of loops around a list of runs, its *body*. Most layouts need one run: a vector
//! of a million blocks is one run, a three-dimensional subarray one run in one loop. Only irregular blocks
//! need a run each. A packed offset is found in O(loops + log runs).
//!
//! Invariant: a layout never changes once made. Read next: `buffer.rs`, which walks layouts, and
//! `construct.rs`, which composes them.

use error::{Class, Error, Result, fail};

/// A run of data: `repeat` pieces of `bytes` bytes, `stride` bytes apart, from `offset` bytes after the
/// element's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRun {
    /// The distance in bytes from the element's origin to the first piece of the run.
    pub offset: i64,
    /// The length in bytes of one piece of the run.
    pub bytes: u64,
    /// The number of pieces in the run.
    pub repeat: u64,
    /// The distance in bytes from the start of one piece of the run to the start of the next; 0 if there is
    /// one piece.
    pub stride: i64,
}

/// A loop of a layout. It repeats all that is inside it, the inner loops and the runs, `repeat` times,
/// `stride` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutLoop {
    pub repeat: u64,
    pub stride: i64,
}

/// One element of a datatype as flat runs, in typemap order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    body: Body,
    /// For each run but the first: how many packed bytes come before the run in one pass over all runs.
    starts: Vec<usize>,
    /// The number of packed bytes of one pass over all runs.
    pass_bytes: usize,
    /// Whether consecutive elements have no gaps and begin at their origin. The answer is stored, because
    /// every message asks for it.
    contiguous: bool,
    /// The number of data bytes of one element (MPI_Type_size).
    pub size: usize,
    /// The distance in bytes from one element to the next (MPI_Type_get_extent).
    pub extent: i64,
    pub lb: i64,
    /// The offset, from the element's origin, of the data byte that is first in memory.
    pub true_lb: i64,
    /// The distance in bytes from the first data byte to the end of the last data byte.
    pub true_extent: i64,
}

/// The most runs of a layout, which take 2 GiB of memory. A layout with more runs is refused.
pub const RUNS_MAX: usize = 1 << 26;

fn too_many() -> Error {
    let message =
        format!("the datatype has more than {RUNS_MAX} irregular blocks; use several smaller datatypes");
    Error::new(Class::NoMem, message)
}

impl Layout {
    /// Makes the layout of an element of `bytes` bytes without gaps.
    pub fn contiguous(bytes: usize) -> Layout {
        let body = if bytes == 0 { Body::default() } else { Body::piece(0, bytes as u64) };
        Layout::new(body, 0, bytes as i64).expect("one piece has bounds")
    }

    /// Makes a layout of a body (loops around runs) with the bounds that a constructor found. Errors: sizes
    /// or offsets do not fit 63 bits.
    pub(crate) fn new(body: Body, lb: i64, extent: i64) -> Result<Layout> {
        let Some((size, true_lb, true_ub)) = body.measure() else {
            fail!(Class::Type, "the datatype's size or its offsets do not fit 63 bits")
        };
        let mut starts = Vec::with_capacity(body.runs.len().saturating_sub(1));
        let mut pass_bytes = 0usize;
        for (at, run) in body.runs.iter().enumerate() {
            if at > 0 {
                starts.push(pass_bytes);
            }
            pass_bytes += (run.bytes * run.repeat) as usize;
        }
        let solid = body.only_piece().is_some_and(|run| run.offset == 0);
        let (contiguous, true_extent) = (size == 0 || (solid && extent == size as i64), true_ub - true_lb);
        Ok(Layout { body, starts, pass_bytes, contiguous, size, extent, lb, true_lb, true_extent })
    }

    /// Whether consecutive elements have no gaps and begin at their origin, which is the buffer's address.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Returns the piece of an element that has just one, as a run; None if the element has several pieces,
    /// or no data.
    pub(crate) fn only_piece(&self) -> Option<LayoutRun> {
        self.body.only_piece()
    }

    /// Returns the runs of one pass over the body, in typemap order.
    pub fn runs(&self) -> &[LayoutRun] {
        &self.body.runs
    }

    /// Returns the loops around the runs, the outermost first.
    pub fn loops(&self) -> &[LayoutLoop] {
        &self.body.loops
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the number of packed bytes of one pass over the runs; 0 only for an empty layout.
    pub(crate) fn pass_bytes(&self) -> usize {
        self.pass_bytes
    }

    /// Returns the offset, from the element's origin, by which pass number `pass` over the runs is moved.
    pub(crate) fn pass_offset(&self, pass: usize) -> i64 {
        self.body.pass_offset(pass as u64)
    }

    /// Returns the index of the run that holds packed byte `at` of a pass, and how many packed bytes of the
    /// pass come before that run.
    pub(crate) fn run_at(&self, at: usize) -> (usize, usize) {
        let index = if at == 0 { 0 } else { self.starts.partition_point(|&start| start <= at) };
        (index, if index == 0 { 0 } else { self.starts[index - 1] })
    }

    /// Returns the number of contiguous pieces of one element, over all passes.
    pub fn pieces(&self) -> u64 {
        let passes: u64 = self.body.loops.iter().map(|l| l.repeat).product();
        self.body.runs.iter().map(|run| run.repeat).sum::<u64>() * passes
    }

    /// Returns the layout as words, from which another process makes the same layout: 6 words, then 2 more
    /// for each loop and 4 more for each run.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = Vec::with_capacity(self.words());
        words.extend([WORDS_MARK, self.size as u64, self.lb as u64, self.extent as u64]);
        words.extend([self.body.loops.len() as u64, self.body.runs.len() as u64]);
        words.extend(self.body.loops.iter().flat_map(|l| [l.repeat, l.stride as u64]));
        words.extend(
            self.body.runs.iter().flat_map(|r| [r.offset as u64, r.bytes, r.repeat, r.stride as u64]),
        );
        words
    }

    pub fn words(&self) -> usize {
        6 + 2 * self.body.loops.len() + 4 * self.body.runs.len()
    }

    /// Makes the layout of the words that `to_words` wrote. Errors: lengths, bounds or size are wrong.
    pub fn from_words(words: &[u64]) -> Result<Layout> {
        let [WORDS_MARK, size, lb, extent, loops, runs, rest @ ..] = words else {
            fail!(Class::Intern, "{} words are not a layout", words.len())
        };
        let wanted = loops.checked_mul(2).zip(runs.checked_mul(4)).and_then(|(l, r)| l.checked_add(r));
        if wanted != Some(rest.len() as u64) {
            fail!(Class::Intern, "a layout of {loops} loops and {runs} runs came with {} words", rest.len());
        }
        let (loops, runs) = rest.split_at(*loops as usize * 2);
        let loops = loops.chunks_exact(2).map(|w| LayoutLoop { repeat: w[0], stride: w[1] as i64 }).collect();
        let runs = runs
            .chunks_exact(4)
            .map(|w| LayoutRun { offset: w[0] as i64, bytes: w[1], repeat: w[2], stride: w[3] as i64 })
            .collect();
        let layout = Layout::new(Body { loops, runs }, *lb as i64, *extent as i64)?;
        if layout.size as u64 != *size {
            fail!(Class::Intern, "a layout of {} bytes came with the size {size}", layout.size);
        }
        Ok(layout)
    }
}

/// The first word that `to_words` writes, by which `from_words` knows a layout. Its low byte is the version
/// of the format.
const WORDS_MARK: u64 = 0x4c41_594f_5554_0001;

/// The data of one element as loops around runs, which constructors compose. No run and no loop is empty,
/// adjacent pieces are joined, and pieces of one length at equal distances are one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    loops: Vec<LayoutLoop>,
    runs: Vec<LayoutRun>,
}

/// The most runs of a body that `repeated` lists instead of making a loop. Adjacent pieces of listed runs can
/// be joined, which is faster.
const UNROLLED_RUNS_MAX: u64 = 8;

impl Body {
    fn only_piece(&self) -> Option<LayoutRun> {
        match self.runs[..] {
            [run] if run.repeat == 1 && self.loops.is_empty() => Some(run),
            _ => None,
        }
    }

    pub fn piece(offset: i64, bytes: u64) -> Body {
        Body { loops: vec![], runs: vec![LayoutRun { offset, bytes, repeat: 1, stride: 0 }] }
    }

    /// Adds `by` bytes to the offsets of all runs.
    pub fn shifted(mut self, by: i64) -> Body {
        self.runs.iter_mut().for_each(|run| run.offset += by);
        self
    }

    /// Repeats the body `times` times, `stride` bytes apart. The caller has checked that all offsets fit 63
    /// bits.
    pub fn repeated(mut self, times: u64, stride: i64) -> Body {
        if times == 0 || self.runs.is_empty() {
            return Body::default();
        }
        if times == 1 {
            return self;
        }
        if let Some(outer) = self.loops.first_mut() {
            if stride.checked_div(outer.repeat as i64) == Some(outer.stride)
                && stride % outer.repeat as i64 == 0
            {
                outer.repeat *= times;
                return self;
            }
        } else if let [run] = &mut self.runs[..] {
            if run.repeat == 1 && stride == run.bytes as i64 {
                run.bytes *= times;
                return self;
            }
            if run.repeat == 1 {
                (run.repeat, run.stride) = (times, stride);
                return self;
            }
            if stride.checked_div(run.repeat as i64) == Some(run.stride) && stride % run.repeat as i64 == 0 {
                run.repeat *= times;
                return self;
            }
        } else if times <= UNROLLED_RUNS_MAX / self.runs.len() as u64 {
            let mut unrolled = Body::default();
            for pass in 0..times as i64 {
                self.runs
                    .iter()
                    .for_each(|run| unrolled.push(LayoutRun { offset: run.offset + pass * stride, ..*run }));
            }
            return unrolled;
        }
        self.loops.insert(0, LayoutLoop { repeat: times, stride });
        self
    }

    /// Appends the runs of `other`, moved by `by` bytes, after the runs of this body. Errors: the body would
    /// have more than `RUNS_MAX` runs.
    pub fn append(&mut self, other: &Body, by: i64) -> Result<()> {
        if self.runs.is_empty() && !other.loops.is_empty() {
            *self = other.clone().shifted(by);
            return Ok(());
        }
        if !self.loops.is_empty() {
            let whole = std::mem::take(self);
            whole.each_pass(|offset| self.push_all(&whole.runs, offset))?;
        }
        other.each_pass(|offset| self.push_all(&other.runs, by + offset))
    }

    /// Calls `each` with the offset of every pass of the loops, in order. Each offset is computed from the
    /// number of its pass, since rustc 1.95 with thin LTO miscompiled code that kept a counter for each loop
    /// (tests/programs/types.c, `struct_of_subarrays`).
    fn each_pass(&self, mut each: impl FnMut(i64) -> Result<()>) -> Result<()> {
        let passes = self.loops.iter().try_fold(1u64, |passes, l| passes.checked_mul(l.repeat));
        let Some(passes) = passes.filter(|passes| *passes <= RUNS_MAX as u64) else { return Err(too_many()) };
        (0..passes).try_for_each(|pass| each(self.pass_offset(pass)))
    }

    fn pass_offset(&self, mut pass: u64) -> i64 {
        let mut offset = 0;
        for l in self.loops.iter().rev() {
            offset += (pass % l.repeat) as i64 * l.stride;
            pass /= l.repeat;
        }
        offset
    }

    fn push_all(&mut self, runs: &[LayoutRun], by: i64) -> Result<()> {
        if self.runs.len() + runs.len() > RUNS_MAX {
            return Err(too_many());
        }
        runs.iter().for_each(|run| self.push(LayoutRun { offset: run.offset + by, ..*run }));
        Ok(())
    }

    /// Adds a run to a body without loops. Where possible, the run is joined to the last piece, or extends
    /// the last run.
    pub fn push(&mut self, run: LayoutRun) {
        let Some(last) = self.runs.last_mut() else { return self.runs.push(run) };
        let last_piece = last.offset + last.stride * (last.repeat as i64 - 1);
        if last_piece + last.bytes as i64 == run.offset {
            let joined =
                LayoutRun { offset: last_piece, bytes: last.bytes + run.bytes, repeat: 1, stride: 0 };
            match last.repeat {
                1 => drop(self.runs.pop()),
                2 => (last.repeat, last.stride) = (1, 0),
                _ => last.repeat -= 1,
            }
            self.push(joined);
            if run.repeat > 1 {
                let stride = if run.repeat > 2 { run.stride } else { 0 };
                self.push(LayoutRun {
                    offset: run.offset + run.stride,
                    repeat: run.repeat - 1,
                    stride,
                    ..run
                });
            }
            return;
        }
        let stride = if last.repeat == 1 { run.offset - last.offset } else { last.stride };
        // The next piece may be beyond the address space.
        let in_step =
            last_piece.wrapping_add(stride) == run.offset && (run.repeat == 1 || run.stride == stride);
        if last.bytes == run.bytes && in_step {
            last.repeat += run.repeat;
            last.stride = stride;
        } else {
            self.runs.push(run);
        }
    }

    /// Returns the number of data bytes, the offset of the first data byte in memory, and the end of the
    /// last. None if a number does not fit 63 bits, or if a run or loop is empty, as in malformed words of
    /// another process.
    fn measure(&self) -> Option<(usize, i64, i64)> {
        let (mut size, mut first, mut end) = (0i64, i64::MAX, i64::MIN);
        for run in &self.runs {
            let (repeat, bytes) = (i64::try_from(run.repeat).ok()?, i64::try_from(run.bytes).ok()?);
            if repeat == 0 || bytes == 0 {
                return None;
            }
            size = size.checked_add(bytes.checked_mul(repeat)?)?;
            let last = run.offset.checked_add(run.stride.checked_mul(repeat - 1)?)?;
            first = first.min(run.offset).min(last);
            end = end.max(run.offset.max(last).checked_add(bytes)?);
        }
        if self.runs.is_empty() {
            return self.loops.is_empty().then_some((0, 0, 0));
        }
        for l in &self.loops {
            let repeat = i64::try_from(l.repeat).ok().filter(|&repeat| repeat > 0)?;
            size = size.checked_mul(repeat)?;
            let last = l.stride.checked_mul(repeat - 1)?;
            first = first.checked_add(last.min(0))?;
            end = end.checked_add(last.max(0))?;
        }
        end.checked_sub(first)?;
        Some((size as usize, first, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(offset: i64, bytes: u64, repeat: u64, stride: i64) -> LayoutRun {
        LayoutRun { offset, bytes, repeat, stride }
    }

    #[test]
    fn a_vector_of_a_million_blocks_is_one_run() {
        let column = Body::piece(0, 8).repeated(1_000_000, 64);
        assert_eq!(column.runs, [run(0, 8, 1_000_000, 64)]);
        let matrix = column.repeated(7, 8);
        assert_eq!((matrix.loops.len(), matrix.runs.len()), (1, 1));
    }

    #[test]
    fn pushing_joins_and_folds() {
        let mut body = Body::default();
        for offset in [0, 8, 16, 20, 40, 60] {
            body.push(run(offset, 4, 1, 0));
        }
        // 16 and 20 are one piece of 8, so the run of 0, 8, 16 loses its last piece.
        assert_eq!(body.runs, [run(0, 4, 2, 8), run(16, 8, 1, 0), run(40, 4, 2, 20)]);
    }

    #[test]
    fn words_come_back_and_bad_words_do_not() {
        let body = Body::piece(4, 8).repeated(3, 32).repeated(5, 1000);
        let layout = Layout::new(body, -8, 6000).unwrap();
        let words = layout.to_words();
        assert_eq!(words.len(), layout.words());
        assert_eq!(Layout::from_words(&words).unwrap(), layout);
        for cut in 0..words.len() {
            assert!(Layout::from_words(&words[..cut]).is_err());
        }
        for (place, bad) in
            [(0, 1), (1, 7), (4, u64::MAX), (5, 2), (6, 0), (6, u64::MAX), (9, 0), (10, 0), (10, 1 << 63)]
        {
            let mut words = words.clone();
            words[place] = bad;
            assert!(Layout::from_words(&words).is_err(), "word {place} = {bad}");
        }
    }

    #[test]
    fn contiguity() {
        assert!(Layout::contiguous(0).is_contiguous());
        assert!(Layout::contiguous(12).is_contiguous());
        assert!(!Layout::new(Body::piece(0, 12), 0, 16).unwrap().is_contiguous());
        assert!(!Layout::new(Body::piece(4, 12), 0, 12).unwrap().is_contiguous());
    }
}
