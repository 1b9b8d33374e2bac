// SPDX-License-Identifier: BSD-3-Clause
//! Kernels on a device of CUDA or HIP: compiled when a process first uses one, launched on a stream of this
//! crate.

use super::{CAPABILITY_MAJOR, CAPABILITY_MINOR, CurrentContext, DEVICE_ORDINAL, Driver, Kernels};
use crate::compiler::Compiler;
use crate::kernel::{self, KernelReduction, Strip};
use error::{Class, Result, fail};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::PoisonError;
use sys::Span;

/// The most bytes that one launch copies from another device's memory before its kernel can use them.
const COPIED_BYTES_MAX: usize = 16 << 20;

impl Driver {
    pub(crate) fn move_strips(&self, strips: &[Strip], packed: Span, is_pack: bool) -> Result<bool> {
        let context = self.enter(strips[0].address)?;
        let mut all = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kernels) = self.kernels_of(&mut all, &context) else { return Ok(false) };
        let list = size_of_val(strips);
        let at = packed.bytes().next_multiple_of(256);
        let scratch = self.scratch(kernels, at + list)?;
        let stream = self.own_stream(context.context)?;
        let (there, strips_there) = (scratch as u64, (scratch + at) as u64);
        let copy = |to: u64, from: u64, bytes: usize| {
            // SAFETY: both ranges are mapped, and stay mapped until the wait below.
            unsafe { self.enqueue_copy(to, from, bytes, stream) }
        };
        copy(strips_there, strips.as_ptr().expose_provenance() as u64, list)?;
        if !is_pack {
            copy(there, packed.address() as u64, packed.bytes())?;
        }
        let (x, y, lanes) = kernel::shape(strips);
        let arguments = [there, strips_there, strips.len() as u64, lanes, u64::from(is_pack)];
        self.launch(kernels, kernel::MOVE, (x, y), stream, arguments)?;
        if is_pack {
            copy(packed.address() as u64, there, packed.bytes())?;
        }
        // SAFETY: a stream of the current context.
        self.check("cuStreamSynchronize", unsafe { (self.wait)(stream) })?;
        Ok(true)
    }

    pub(crate) fn reduce(
        &self,
        reduction: KernelReduction,
        kernel: &CStr,
        left: Span,
        into: Span,
    ) -> Result<bool> {
        let is_held = |span: Span| self.holds(span.address(), span.bytes());
        if !is_held(left)? || !is_held(into)? {
            return Ok(false);
        }
        let context = self.enter(into.address())?;
        let mut all = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kernels) = self.kernels_of(&mut all, &context) else { return Ok(false) };
        let stream = self.own_stream(context.context)?;
        let device = |span: Span| self.attribute_of::<c_int>(DEVICE_ORDINAL, span.address());
        let is_same_device = device(left) == device(into);
        let KernelReduction { count, stride, .. } = reduction;
        // A kernel of one device may be unable to access the memory of another, which is copied first.
        let step = if is_same_device { count } else { (COPIED_BYTES_MAX / stride).max(1) };
        for first in (0..count).step_by(step.max(1)) {
            let (at, count) = (first * stride, step.min(count - first));
            let bytes = (count * stride).min(left.bytes() - at);
            let mut from = (left.address() + at) as u64;
            if !is_same_device {
                let there = self.scratch(kernels, bytes)? as u64;
                // SAFETY: both ranges are mapped, and stay mapped until the wait below.
                unsafe { self.enqueue_copy(there, from, bytes, stream) }?;
                from = there;
            }
            let arguments = [from, (into.address() + at) as u64, count as u64, stride as u64];
            let part = KernelReduction { count, ..reduction };
            self.launch(kernels, kernel, (part.blocks(), 1), stream, arguments)?;
        }
        // SAFETY: a stream of the current context.
        self.check("cuStreamSynchronize", unsafe { (self.wait)(stream) })?;
        Ok(true)
    }

    /// Returns the address of at least `bytes` bytes of scratch memory on the device. The next call may free
    /// the memory or use it again.
    fn scratch(&self, kernels: &mut Kernels, bytes: usize) -> Result<usize> {
        if kernels.scratch.1 < bytes {
            if kernels.scratch.1 > 0 {
                self.free(std::mem::take(&mut kernels.scratch).0)?;
            }
            let bytes = bytes.next_power_of_two();
            kernels.scratch = (self.alloc(bytes)?, bytes);
        }
        Ok(kernels.scratch.0)
    }

    /// Returns the kernels of the current context, which are compiled at first use. None if they cannot be
    /// compiled.
    fn kernels_of<'a>(
        &self,
        all: &'a mut BTreeMap<usize, Option<Kernels>>,
        context: &CurrentContext,
    ) -> Option<&'a mut Kernels> {
        let made = all.entry(context.context.addr()).or_insert_with(|| {
            let module = self.compile().ok()?;
            Some(Kernels { module, functions: BTreeMap::new(), scratch: (0, 0) })
        });
        made.as_mut()
    }

    /// Launches a kernel in `x` by `y` blocks. Each of the kernel's arguments has eight bytes.
    fn launch<const COUNT: usize>(
        &self,
        kernels: &mut Kernels,
        name: &CStr,
        (x, y): (u32, u32),
        stream: usize,
        mut arguments: [u64; COUNT],
    ) -> Result<()> {
        let function = match kernels.functions.get(name) {
            Some(function) => *function,
            None => {
                let mut function = 0;
                // SAFETY: a module of this context, which is never unloaded; it stores one handle.
                let code = unsafe { (self.function)(&mut function, kernels.module, name.as_ptr()) };
                self.check("cuModuleGetFunction", code)?;
                kernels.functions.insert(name.into(), function);
                function
            }
        };
        let mut each = arguments.each_mut().map(|argument| (&raw mut *argument).cast::<c_void>());
        let (each, none) = (each.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel has these arguments, which the driver copies in this call.
        let code = unsafe { (self.launch)(function, x, y, 1, kernel::BLOCK, 1, 1, 0, stream, each, none) };
        self.check("cuLaunchKernel", code)
    }

    /// Compiles the kernels for the current context's device, and returns the handle of the loaded module.
    fn compile(&self) -> Result<usize> {
        let dialect = self.api.compiler;
        let compiler = dialect.files.iter().find_map(|file| Compiler::load(dialect, file).ok());
        let Some(compiler) = compiler else { fail!(Class::Other, "{} is not here", dialect.name) };
        let made = compiler.compile(kernel::SOURCE, &self.architecture()?, self.cache.as_deref())?;
        let mut module = 0;
        // SAFETY: PTX with a zero byte at its end, or a whole code object; it stores one handle.
        let code = unsafe { (self.load_module)(&mut module, made.as_ptr().cast()) };
        self.check("cuModuleLoadData", code)?;
        Ok(module)
    }

    /// Returns the architecture for which kernels are compiled. For CUDA this is a compute capability; for
    /// HIP it is the name of the current device, for which hipRTC compiles.
    fn architecture(&self) -> Result<String> {
        let mut device = 0;
        // SAFETY: it stores one number.
        self.check("cuCtxGetDevice", unsafe { (self.current_device)(&mut device) })?;
        if self.api.is_hip {
            let mut name = [0u8; 256];
            // SAFETY: it stores at most the given number of bytes, with a zero byte.
            let code =
                unsafe { (self.device_name)(name.as_mut_ptr().cast(), name.len() as c_int - 1, device) };
            self.check("cuDeviceGetName", code)?;
            let name = CStr::from_bytes_until_nul(&name).expect("its last byte is zero");
            let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
            return Ok(name.to_string_lossy().chars().map(plain).collect());
        }
        let number = |attribute| {
            let mut number = 0;
            // SAFETY: it stores one number.
            let code = unsafe { (self.device_attribute)(&mut number, attribute, device) };
            self.check("cuDeviceGetAttribute", code).map(|()| number)
        };
        Ok(format!("compute_{}{}", number(CAPABILITY_MAJOR)?, number(CAPABILITY_MINOR)?))
    }
}
