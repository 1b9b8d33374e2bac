// SPDX-License-Identifier: BSD-3-Clause
//! CUDA's driver API, or HIP, loaded at run time.
//!
//! This file calls the driver only, so it does not matter which runtime the program uses. A copy runs in the
//! context of the memory, or in the device's primary context for memory without one (pools; all memory of
//! HIP). HIP has CUDA's functions under other names: `Api` has the differences. Error sentences use the names
//! of the loaded library. Written from NVIDIA's and AMD's documentation (CUDA 12, ROCm 6); docs/gpu.md says
//! where it has run.

mod kernels;
mod streams;

use crate::compiler::{Dialect, HIPRTC, NVRTC};
use crate::export;
use error::{Class, Result, fail};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use sys::Span;

type Code = c_int;
type Context = *mut c_void;

/// CUDA's CUipcMemHandle, by which another process opens an allocation.
#[derive(Clone, Copy)]
#[repr(C)]
struct IpcHandle([u64; 8]);

/// CUDA's CU_POINTER_ATTRIBUTE_CONTEXT, by which the driver is asked for the context of an address. The six
/// constants that follow are other questions about an address (CUpointer_attribute).
const CONTEXT: c_uint = 1;
const MEMORY_TYPE: c_uint = 2;
const BUFFER_NUMBER: c_uint = 7;
const IS_MANAGED: c_uint = 8;
const DEVICE_ORDINAL: c_uint = 9;
const RANGE_START: c_uint = 11;
const RANGE_BYTES: c_uint = 12;
/// CUDA's CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: the first number of a device's architecture. The next
/// constant stands for the second number.
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
/// CUDA's CU_MEMORYTYPE_DEVICE: the address is device memory.
const ON_DEVICE: c_uint = 2;
/// CUDA's CU_STREAM_NON_BLOCKING: the stream does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;
/// CUDA's CU_MEMHOSTALLOC_PORTABLE: pinned memory counts as pinned in all contexts.
const PORTABLE: c_uint = 1;
/// CUDA's CU_MEMHOSTALLOC_DEVICEMAP: the device can access pinned memory.
const MAPPED: c_uint = 2;
/// CUDA_ERROR_NOT_READY, the driver's answer when it is asked whether a stream is idle and the stream has
/// work.
const NOT_READY: Code = 600;
/// HIP's hipMemcpyDefault: the addresses say in which direction a copy goes.
const COPY_DEFAULT: c_int = 4;
/// CUDA's CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which opening another process's memory demands.
const LAZY_PEER_ACCESS: c_uint = 1;
/// CUDA's CU_STREAM_WAIT_VALUE_GEQ: a stream waits until a word is at least a value.
const GREATER_OR_EQUAL: c_uint = 0;

/// The function cuLaunchKernel. Its arguments: the kernel, the blocks in x, y and z, the threads in x, y and
/// z, the bytes of shared memory, the stream, and the kernel's arguments in two forms.
type LaunchKernel = unsafe extern "C" fn(
    usize,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    usize,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

/// The kernels of `kernel.rs`, as they were loaded into one context of a device.
struct Kernels {
    module: usize,
    /// The handles of the kernels that have been used, by the kernels' names.
    functions: BTreeMap<CString, usize>,
    /// The address and the length of device memory that launches of kernels use for packed bytes and strips.
    scratch: (usize, usize),
}

/// The function cuMemcpyAsync. Its arguments: to, from, the number of bytes, the direction (HIP only), the
/// stream.
enum CopyAsync {
    Cuda(unsafe extern "C" fn(u64, u64, usize, usize) -> Code),
    Hip(unsafe extern "C" fn(u64, u64, usize, c_int, usize) -> Code),
}

/// The driver's functions for MPI operations in streams. They are not used with HIP, whose counterparts need
/// memory of a special kind.
struct StreamOrdering {
    write_value: unsafe extern "C" fn(usize, u64, u32, c_uint) -> Code,
    wait_value: unsafe extern "C" fn(usize, u64, u32, c_uint) -> Code,
    capturing: unsafe extern "C" fn(usize, *mut c_uint) -> Code,
    context_of: unsafe extern "C" fn(usize, *mut Context) -> Code,
}

/// A driver whose library is loaded, with the functions of it that this crate needs.
pub struct Driver {
    pub(crate) api: &'static Api,
    attribute: unsafe extern "C" fn(*mut c_void, c_uint, u64) -> Code,
    wait: unsafe extern "C" fn(usize) -> Code,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    primary: unsafe extern "C" fn(*mut Context, c_int) -> Code,
    push: unsafe extern "C" fn(Context) -> Code,
    pop: unsafe extern "C" fn(*mut Context) -> Code,
    current: unsafe extern "C" fn(*mut Context) -> Code,
    query: unsafe extern "C" fn(usize) -> Code,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> Code,
    free: unsafe extern "C" fn(u64) -> Code,
    host_alloc: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Code,
    host_pointer: unsafe extern "C" fn(*mut u64, *mut c_void, c_uint) -> Code,
    stream: unsafe extern "C" fn(*mut usize, c_uint) -> Code,
    destroy: unsafe extern "C" fn(usize) -> Code,
    copy_async: CopyAsync,
    ordering: Option<StreamOrdering>,
    /// For each context, given by its address: the stream on which this crate copies.
    own: Mutex<BTreeMap<usize, usize>>,
    error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    ipc_get: unsafe extern "C" fn(*mut IpcHandle, u64) -> Code,
    ipc_open: unsafe extern "C" fn(*mut u64, IpcHandle, c_uint) -> Code,
    ipc_close: unsafe extern "C" fn(u64) -> Code,
    current_device: unsafe extern "C" fn(*mut c_int) -> Code,
    device_name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code,
    device_attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code,
    load_module: unsafe extern "C" fn(*mut usize, *const c_void) -> Code,
    function: unsafe extern "C" fn(*mut usize, usize, *const c_char) -> Code,
    launch: LaunchKernel,
    /// The kernels that were loaded into each context. An entry is None if the kernels cannot be compiled for
    /// its device.
    kernels: Mutex<BTreeMap<usize, Option<Kernels>>>,
    /// The folder in which compiled kernels are kept. None if they are not kept.
    cache: Option<PathBuf>,
    /// The allocations of other processes that this process has opened. The key is the other process, and the
    /// allocation's address there. The value is the allocation's number there, and its address in this
    /// process.
    opened: Mutex<BTreeMap<(u64, u64), (u64, u64)>>,
    /// The loaded library of the driver, which contains the functions in the other fields. It is the last
    /// field, so that it is dropped last.
    _library: libloading::Library,
}

/// The differences between CUDA's driver and HIP's runtime, whose functions mostly have the same arguments.
pub(crate) struct Api {
    pub name: &'static str,
    /// The file names under which installations have the driver's library.
    files: &'static [&'static str],
    needed: &'static str,
    /// The name of the type of streams in programs, such as `cudaStream_t`.
    pub stream_kind: &'static str,
    /// The first word of the record (`export.rs`) that describes exported memory. The word says that this
    /// driver exported the memory.
    pub number: u64,
    compiler: &'static Dialect,
    is_hip: bool,
}

pub(crate) const CUDA: Api = Api {
    name: "cuda",
    files: &["libcuda.so.1"],
    needed: "NVIDIA's driver",
    stream_kind: "cudaStream_t",
    number: 2,
    compiler: &NVRTC,
    is_hip: false,
};

/// The facts about HIP. `files` does not name version 5, whose numbers for kinds of memory differ.
pub(crate) const HIP: Api = Api {
    name: "hip",
    files: &["libamdhip64.so.7", "libamdhip64.so.6"],
    needed: "AMD's ROCm, version 6 or 7",
    stream_kind: "hipStream_t",
    number: 3,
    compiler: &HIPRTC,
    is_hip: true,
};

/// The functions whose names in HIP do not follow the rule of `Api::function`: CUDA's name and HIP's.
const RENAMED: [(&str, &str); 8] = [
    ("cuMemAlloc", "hipMalloc"),
    ("cuMemFree", "hipFree"),
    ("cuMemHostAlloc", "hipHostMalloc"),
    ("cuMemHostGetDevicePointer", "hipHostGetDevicePointer"),
    ("cuStreamCreate", "hipStreamCreateWithFlags"),
    ("cuLaunchKernel", "hipModuleLaunchKernel"),
    ("cuGetErrorName", "hipDrvGetErrorName"),
    ("cuDeviceGetCount", "hipGetDeviceCount"),
];

impl Api {
    /// Returns the name that this library has for CUDA's driver function `cuda` (given with its version
    /// suffix).
    fn function(&self, cuda: &str) -> String {
        if !self.is_hip {
            return cuda.into();
        }
        let plain = cuda.trim_end_matches("_v2");
        let renamed = RENAMED.iter().find(|(name, _)| *name == plain).map(|(_, hip)| (*hip).into());
        renamed.unwrap_or_else(|| format!("hip{}", &plain["cu".len()..]))
    }
}

impl Driver {
    /// Loads the driver from the first of its files that exists.
    ///
    /// Errors (MPI_ERR_OTHER): there is no such file, it is another library, or it finds no device.
    pub(crate) fn load(api: &'static Api, cache: Option<PathBuf>) -> Result<Driver> {
        let mut error = None;
        for file in api.files {
            // SAFETY: the driver's initialisers may run at any time; the user alone can put another file in
            // its place.
            match unsafe { libloading::Library::new(file) } {
                Ok(library) => return Driver::of_library(api, file, library, cache),
                Err(missing) => error = Some(missing),
            }
        }
        let (files, error) = (api.files.join(" and "), error.expect("it has a name"));
        fail!(
            Class::Other,
            "{files} cannot be loaded ({error}); OUTBOARD_DEVICE={} needs {}",
            api.name,
            api.needed
        )
    }

    /// Finds the functions of a driver in its loaded library, and returns the driver. Errors (MPI_ERR_OTHER):
    /// the library lacks a function, or the driver finds no device.
    fn of_library(
        api: &'static Api,
        file: &str,
        library: libloading::Library,
        cache: Option<PathBuf>,
    ) -> Result<Driver> {
        macro_rules! symbol {
            ($name:literal) => {{
                let name = api.function($name);
                // SAFETY: the field has the type that cuda.h and hip_runtime_api.h give the function.
                match unsafe { library.get(name.as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => fail!(Class::Other, "{file} is not {}: it has no {name}", api.needed),
                }
            }};
        }
        let init: unsafe extern "C" fn(c_uint) -> Code = symbol!("cuInit");
        let count: unsafe extern "C" fn(*mut c_int) -> Code = symbol!("cuDeviceGetCount");
        let copy_async = if api.is_hip {
            CopyAsync::Hip(symbol!("cuMemcpyAsync"))
        } else {
            CopyAsync::Cuda(symbol!("cuMemcpyAsync"))
        };
        let ordering = match api.is_hip {
            true => None,
            false => Some(StreamOrdering {
                write_value: symbol!("cuStreamWriteValue32_v2"),
                wait_value: symbol!("cuStreamWaitValue32_v2"),
                capturing: symbol!("cuStreamIsCapturing"),
                context_of: symbol!("cuStreamGetCtx"),
            }),
        };
        let driver = Driver {
            api,
            attribute: symbol!("cuPointerGetAttribute"),
            wait: symbol!("cuStreamSynchronize"),
            device: symbol!("cuDeviceGet"),
            primary: symbol!("cuDevicePrimaryCtxRetain"),
            push: symbol!("cuCtxPushCurrent_v2"),
            pop: symbol!("cuCtxPopCurrent_v2"),
            current: symbol!("cuCtxGetCurrent"),
            query: symbol!("cuStreamQuery"),
            alloc: symbol!("cuMemAlloc_v2"),
            free: symbol!("cuMemFree_v2"),
            host_alloc: symbol!("cuMemHostAlloc"),
            host_pointer: symbol!("cuMemHostGetDevicePointer_v2"),
            stream: symbol!("cuStreamCreate"),
            destroy: symbol!("cuStreamDestroy_v2"),
            copy_async,
            ordering,
            own: Mutex::default(),
            error_name: symbol!("cuGetErrorName"),
            ipc_get: symbol!("cuIpcGetMemHandle"),
            ipc_open: symbol!("cuIpcOpenMemHandle_v2"),
            ipc_close: symbol!("cuIpcCloseMemHandle"),
            current_device: symbol!("cuCtxGetDevice"),
            device_name: symbol!("cuDeviceGetName"),
            device_attribute: symbol!("cuDeviceGetAttribute"),
            load_module: symbol!("cuModuleLoadData"),
            function: symbol!("cuModuleGetFunction"),
            launch: symbol!("cuLaunchKernel"),
            kernels: Mutex::default(),
            cache,
            opened: Mutex::default(),
            _library: library,
        };
        driver.initialise(file, init, count)?;
        Ok(driver)
    }

    /// Initialises the driver. Errors (MPI_ERR_OTHER): the driver fails, or finds no device.
    fn initialise(
        &self,
        file: &str,
        init: unsafe extern "C" fn(c_uint) -> Code,
        count: unsafe extern "C" fn(*mut c_int) -> Code,
    ) -> Result<()> {
        // SAFETY: 0 is the only argument that it takes.
        self.check("cuInit", unsafe { init(0) })?;
        let mut devices = 0;
        // SAFETY: it stores one number.
        self.check("cuDeviceGetCount", unsafe { count(&mut devices) })?;
        if devices == 0 {
            fail!(Class::Other, "{file} finds no device");
        }
        Ok(())
    }

    /// Enqueues a copy of `bytes` bytes in a stream, whose context must be current.
    ///
    /// # Safety
    /// Both ranges must stay mapped until the copy is over.
    unsafe fn enqueue_copy(&self, to: u64, from: u64, bytes: usize, stream: usize) -> Result<()> {
        let code = match self.copy_async {
            // SAFETY: as the caller promises; the driver knows by an address to which device it belongs.
            CopyAsync::Cuda(copy) => unsafe { copy(to, from, bytes, stream) },
            // SAFETY: likewise.
            CopyAsync::Hip(copy) => unsafe { copy(to, from, bytes, COPY_DEFAULT, stream) },
        };
        self.check("cuMemcpyAsync", code)
    }

    pub(crate) fn holds(&self, address: usize, bytes: usize) -> Result<bool> {
        // The driver does not know memory that it did not allocate, so an error means host memory.
        let is_managed = self.attribute_of::<c_int>(IS_MANAGED, address).is_some_and(|managed| managed != 0);
        if self.attribute_of::<c_uint>(MEMORY_TYPE, address) != Some(ON_DEVICE) || is_managed {
            return Ok(false);
        }
        let range = self
            .attribute_of::<u64>(RANGE_START, address)
            .zip(self.attribute_of::<usize>(RANGE_BYTES, address));
        if let Some((start, length)) = range
            && bytes > length.saturating_sub(address - start as usize)
        {
            fail!(
                Class::Buffer,
                "{bytes} bytes at {address:#x} of device memory are more than its allocation, which has {length} from {start:#x} on"
            );
        }
        Ok(true)
    }

    pub(crate) fn copy(&self, to: Span, from: Span) -> Result<()> {
        let is_up = self.holds(to.address(), to.bytes())?;
        let there = if is_up { to } else { from };
        if !is_up && !self.holds(from.address(), from.bytes())? {
            from.copy_to(to);
            return Ok(());
        }
        let context = self.enter(there.address())?;
        // A stream of this crate: the default stream would wait for streams that wait for MPI.
        let stream = self.own_stream(context.context)?;
        // SAFETY: both ranges are mapped (contract of `Span`).
        unsafe { self.enqueue_copy(to.address() as u64, from.address() as u64, to.bytes(), stream) }?;
        // SAFETY: a stream of the current context.
        self.check("cuStreamSynchronize", unsafe { (self.wait)(stream) })
    }

    /// Returns the stream on which this crate copies in `context`, which is current. The stream is made at
    /// its first use.
    fn own_stream(&self, context: Context) -> Result<usize> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = own.get(&context.addr()) {
            return Ok(*stream);
        }
        let stream = self.new_stream()?;
        own.insert(context.addr(), stream);
        Ok(stream)
    }

    fn new_stream(&self) -> Result<usize> {
        let mut stream = 0;
        // SAFETY: it stores one handle.
        self.check("cuStreamCreate", unsafe { (self.stream)(&mut stream, NON_BLOCKING) })?;
        Ok(stream)
    }

    /// Returns the calling thread's context, or the primary context of the first device if the thread has
    /// none.
    pub(crate) fn context(&self) -> Result<usize> {
        let mut context = std::ptr::null_mut();
        // SAFETY: it stores one pointer.
        self.check("cuCtxGetCurrent", unsafe { (self.current)(&mut context) })?;
        if context.is_null() {
            context = self.primary_of(0)?;
        }
        Ok(context.expose_provenance())
    }

    /// Sets the calling thread's context, for the rest of the thread's life, to one that `context` has
    /// returned.
    pub(crate) fn adopt(&self, context: usize) -> Result<()> {
        self.enter_context(std::ptr::with_exposed_provenance_mut(context)).map(std::mem::forget)
    }

    fn enter_current(&self) -> Result<CurrentContext<'_>> {
        self.enter_context(std::ptr::with_exposed_provenance_mut(self.context()?))
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<usize> {
        let _context = self.enter_current()?;
        let mut address = 0;
        // SAFETY: it stores one address.
        let code = unsafe { (self.alloc)(&mut address, bytes.max(1)) };
        if code != 0 {
            let function = self.api.function("cuMemAlloc");
            fail!(Class::NoMem, "{function} of {bytes} bytes: {}", self.describe(code));
        }
        Ok(address as usize)
    }

    pub(crate) fn free(&self, address: usize) -> Result<()> {
        if !self.holds(address, 1)? {
            fail!(Class::Buffer, "no allocation of device memory begins at {address:#x}");
        }
        let _context = self.enter(address)?;
        // SAFETY: the driver refuses an address that it did not return.
        self.check("cuMemFree", unsafe { (self.free)(address as u64) })
    }

    /// Asks the driver for an attribute of an address, such as the device to which it belongs. None if the
    /// driver does not know the address.
    fn attribute_of<T: Default>(&self, attribute: c_uint, address: usize) -> Option<T> {
        let mut value = T::default();
        // SAFETY: the caller names the type that cuda.h gives the attribute.
        let code = unsafe { (self.attribute)((&raw mut value).cast(), attribute, address as u64) };
        (code == 0).then_some(value)
    }

    /// Makes the context of the device memory at `address` the current one, until the returned guard is
    /// dropped.
    fn enter(&self, address: usize) -> Result<CurrentContext<'_>> {
        let own = self.attribute_of::<usize>(CONTEXT, address).filter(|context| *context != 0);
        match own {
            Some(context) => self.enter_context(std::ptr::with_exposed_provenance_mut(context)),
            None => {
                self.enter_context(self.primary_of(self.attribute_of(DEVICE_ORDINAL, address).unwrap_or(0))?)
            }
        }
    }

    fn enter_context(&self, context: Context) -> Result<CurrentContext<'_>> {
        // SAFETY: the context came from the driver.
        self.check("cuCtxPushCurrent", unsafe { (self.push)(context) })?;
        Ok(CurrentContext { driver: self, context })
    }

    /// Returns the primary context of a device, which the program's runtime uses, too, and retains it for the
    /// life of the process.
    fn primary_of(&self, ordinal: c_int) -> Result<Context> {
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: it stores one number.
        self.check("cuDeviceGet", unsafe { (self.device)(&mut device, ordinal) })?;
        // SAFETY: it stores one pointer.
        self.check("cuDevicePrimaryCtxRetain", unsafe { (self.primary)(&mut context, device) })?;
        Ok(context)
    }

    fn check(&self, function: &str, code: Code) -> Result<()> {
        if code != 0 {
            fail!(Class::Other, "{}: {}", self.api.function(function), self.describe(code));
        }
        Ok(())
    }

    fn describe(&self, code: Code) -> String {
        let mut name = std::ptr::null();
        // SAFETY: it stores a pointer to a constant string, or null for a number that it does not know.
        unsafe { (self.error_name)(code, &mut name) };
        if name.is_null() {
            return format!("error {code}");
        }
        // SAFETY: a constant string of the driver.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

// Memory of other processes (`export.rs`), by the driver's IPC handles. A handle names a whole allocation.
impl Driver {
    /// Describes `span` for another process: this process, the offset in the allocation, and the allocation's
    /// number, handle and address. None if the driver does not export the memory, as for pools.
    pub(crate) fn export(&self, span: Span) -> Option<export::DescriptionWords> {
        let start = self.attribute_of::<u64>(RANGE_START, span.address())?;
        let number = self.attribute_of::<u64>(BUFFER_NUMBER, span.address())?;
        let _context = self.enter(span.address()).ok()?;
        let mut handle = IpcHandle([0; 8]);
        // SAFETY: it stores one handle.
        if unsafe { (self.ipc_get)(&mut handle, start) } != 0 {
            return None;
        }
        let mut words = export::DescriptionWords::default();
        words[..3].copy_from_slice(&[std::process::id() as u64, span.address() as u64 - start, number]);
        words[3..11].copy_from_slice(&handle.0);
        words[11] = start;
        Some(words)
    }

    /// Opens the memory that another process described in `words`. The allocation that holds it stays open
    /// until the other process describes a new allocation at the same address.
    pub(crate) fn import(&self, words: &export::DescriptionWords, bytes: usize) -> Result<Span> {
        let [process, offset, number, ..] = *words;
        let handle = IpcHandle(words[3..11].try_into().expect("eight words"));
        let place = (process, words[11]);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let _context = self.enter_current()?;
        if let Some((old, address)) = opened.get(&place).copied()
            && old != number
        {
            // SAFETY: opened by this function. Its owner has freed it, so no copy uses it.
            self.check("cuIpcCloseMemHandle", unsafe { (self.ipc_close)(address) })?;
            opened.remove(&place);
        }
        let address = match opened.get(&place) {
            Some((_, address)) => *address,
            None => {
                let mut address = 0;
                // SAFETY: it stores one address.
                let code = unsafe { (self.ipc_open)(&mut address, handle, LAZY_PEER_ACCESS) };
                self.check("cuIpcOpenMemHandle", code)?;
                opened.insert(place, (number, address));
                address
            }
        };
        // SAFETY: the driver mapped the whole allocation, and the exporter named a part of it.
        Ok(unsafe { Span::claim((address + offset) as usize, bytes) })
    }
}

/// A guard. While it lives, its context is current in this thread.
struct CurrentContext<'a> {
    driver: &'a Driver,
    context: Context,
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: it removes the context that `enter_context` has pushed, and stores one pointer.
        unsafe { (self.driver.pop)(&mut context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads a driver from `file` alone, which is no driver. Returns the error message.
    fn said(api: &Api, file: &'static str) -> String {
        let files: &'static [&'static str] = Box::leak(Box::new([file]));
        let api: &'static Api = Box::leak(Box::new(Api { files, ..*api }));
        Driver::load(api, None).err().expect("it is no driver").message.clone()
    }

    // Goal: on machines without a GPU, a sentence says what is missing.
    #[test]
    fn a_wrong_driver_is_named() {
        for (api, needed, init) in [(&CUDA, "NVIDIA's driver", "cuInit"), (&HIP, "AMD's ROCm", "hipInit")] {
            let missing = said(api, "libnone-such.so.1");
            assert!(missing.contains(&format!("OUTBOARD_DEVICE={} needs {needed}", api.name)), "{missing}");
            let wrong = said(api, "libc.so.6");
            assert!(
                wrong.contains("libc.so.6 is not") && wrong.ends_with(&format!("it has no {init}")),
                "{wrong}"
            );
        }
    }

    // Goal: HIP's names, as hip_runtime_api.h of ROCm 6 and 7 has them.
    #[test]
    fn functions_have_hips_names() {
        let names = [
            ("cuCtxPushCurrent_v2", "hipCtxPushCurrent"),
            ("cuMemAlloc_v2", "hipMalloc"),
            ("cuStreamCreate", "hipStreamCreateWithFlags"),
            ("cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle"),
            ("cuPointerGetAttribute", "hipPointerGetAttribute"),
        ];
        for (cuda, hip) in names {
            assert_eq!((CUDA.function(cuda).as_str(), HIP.function(cuda).as_str()), (cuda, hip));
        }
    }
}
