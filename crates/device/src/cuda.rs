//! CUDA's driver API, loaded at run time.
//!
//! Only the driver is asked, so it does not matter which runtime the program uses. A copy runs in the context
//! of the memory, or in the device's primary one for memory of a pool, which has none.
//! Written from NVIDIA's documentation of the driver API (CUDA 12); docs/gpu.md says where it has run.

use error::{Class, Result, fail};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use sys::Span;

/// The driver's library: the name under which every installation has it.
pub(crate) const DRIVER: &str = "libcuda.so.1";

type Code = c_int;
type Context = *mut c_void;

/// CUpointer_attribute.
const CONTEXT: c_uint = 1;
const MEMORY_TYPE: c_uint = 2;
const IS_MANAGED: c_uint = 8;
const DEVICE_ORDINAL: c_uint = 9;
const RANGE_START: c_uint = 11;
const RANGE_BYTES: c_uint = 12;
/// CU_MEMORYTYPE_DEVICE.
const ON_DEVICE: c_uint = 2;

/// Functions of the driver that this file needs.
pub(crate) struct Cuda {
    attribute: unsafe extern "C" fn(*mut c_void, c_uint, u64) -> Code,
    copy: unsafe extern "C" fn(u64, u64, usize) -> Code,
    wait: unsafe extern "C" fn(*mut c_void) -> Code,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    primary: unsafe extern "C" fn(*mut Context, c_int) -> Code,
    push: unsafe extern "C" fn(Context) -> Code,
    pop: unsafe extern "C" fn(*mut Context) -> Code,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> Code,
    free: unsafe extern "C" fn(u64) -> Code,
    name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    /// Last: the functions above lie in it.
    _library: libloading::Library,
}

impl Cuda {
    /// Loads the driver `file`.
    ///
    /// Errors (MPI_ERR_OTHER): it is not here, is not CUDA's, or finds no device.
    pub(crate) fn load(file: &str) -> Result<Cuda> {
        // SAFETY: the driver's initialisers may run at any time; another file under its name is the user's.
        let library = match unsafe { libloading::Library::new(file) } {
            Ok(library) => library,
            Err(error) => fail!(
                Class::Other,
                "{file} cannot be loaded ({error}); OUTBOARD_DEVICE=cuda needs NVIDIA's driver"
            ),
        };
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field has the type that cuda.h gives the function.
                match unsafe { library.get(concat!($name, "\0").as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => fail!(Class::Other, "{file} is no CUDA driver: it has no {}", $name),
                }
            };
        }
        let init: unsafe extern "C" fn(c_uint) -> Code = symbol!("cuInit");
        let count: unsafe extern "C" fn(*mut c_int) -> Code = symbol!("cuDeviceGetCount");
        let cuda = Cuda {
            attribute: symbol!("cuPointerGetAttribute"),
            copy: symbol!("cuMemcpy"),
            wait: symbol!("cuStreamSynchronize"),
            device: symbol!("cuDeviceGet"),
            primary: symbol!("cuDevicePrimaryCtxRetain"),
            push: symbol!("cuCtxPushCurrent_v2"),
            pop: symbol!("cuCtxPopCurrent_v2"),
            alloc: symbol!("cuMemAlloc_v2"),
            free: symbol!("cuMemFree_v2"),
            name: symbol!("cuGetErrorName"),
            _library: library,
        };
        // SAFETY: 0 is the only argument that cuInit takes.
        cuda.check("cuInit", unsafe { init(0) })?;
        let mut devices = 0;
        // SAFETY: it stores one number.
        cuda.check("cuDeviceGetCount", unsafe { count(&mut devices) })?;
        if devices == 0 {
            fail!(Class::Other, "{file} finds no device");
        }
        Ok(cuda)
    }

    pub(crate) fn holds(&self, address: usize, bytes: usize) -> Result<bool> {
        // The driver does not know memory that it did not make, so an error here means the host's.
        let is_managed = self.ask::<c_int>(IS_MANAGED, address).is_some_and(|managed| managed != 0);
        if self.ask::<c_uint>(MEMORY_TYPE, address) != Some(ON_DEVICE) || is_managed {
            return Ok(false);
        }
        let range = self.ask::<u64>(RANGE_START, address).zip(self.ask::<usize>(RANGE_BYTES, address));
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
        let _context = self.enter(there.address())?;
        // SAFETY: both ranges are mapped (contract of `Span`); addresses are unified, so the driver knows
        // which of them are on a device.
        let code = unsafe { (self.copy)(to.address() as u64, from.address() as u64, to.bytes()) };
        self.check("cuMemcpy", code)?;
        if is_up {
            // From pageable memory cuMemcpy may return before the last bytes are on the device.
            // SAFETY: null is the default stream of the current context.
            self.check("cuStreamSynchronize", unsafe { (self.wait)(std::ptr::null_mut()) })?;
        }
        Ok(())
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<usize> {
        let _context = self.enter_context(self.primary_of(0)?)?;
        let mut address = 0;
        // SAFETY: it stores one address.
        let code = unsafe { (self.alloc)(&mut address, bytes.max(1)) };
        if code != 0 {
            fail!(Class::NoMem, "cuMemAlloc of {bytes} bytes: {}", self.describe(code));
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

    /// An attribute of an address; nothing if the driver does not know it.
    fn ask<T: Default>(&self, attribute: c_uint, address: usize) -> Option<T> {
        let mut value = T::default();
        // SAFETY: the caller names the type that cuda.h gives the attribute.
        let code = unsafe { (self.attribute)((&raw mut value).cast(), attribute, address as u64) };
        (code == 0).then_some(value)
    }

    /// Makes the context of device memory current, until the value is dropped.
    fn enter(&self, address: usize) -> Result<Entered<'_>> {
        let own = self.ask::<usize>(CONTEXT, address).filter(|context| *context != 0);
        match own {
            Some(context) => self.enter_context(std::ptr::with_exposed_provenance_mut(context)),
            None => self.enter_context(self.primary_of(self.ask(DEVICE_ORDINAL, address).unwrap_or(0))?),
        }
    }

    fn enter_context(&self, context: Context) -> Result<Entered<'_>> {
        // SAFETY: the driver named the context.
        self.check("cuCtxPushCurrent", unsafe { (self.push)(context) })?;
        Ok(Entered(self))
    }

    /// The context that the runtime of a program uses, too. It is kept for the life of the process.
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
            fail!(Class::Other, "{function}: {}", self.describe(code));
        }
        Ok(())
    }

    fn describe(&self, code: Code) -> String {
        let mut name = std::ptr::null();
        // SAFETY: it stores a pointer to a constant string, or null for a number that it does not know.
        unsafe { (self.name)(code, &mut name) };
        if name.is_null() {
            return format!("error {code}");
        }
        // SAFETY: a constant string of the driver.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// A context that is current.
struct Entered<'a>(&'a Cuda);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: it takes away what `enter_context` has pushed, and stores one pointer.
        unsafe { (self.0.pop)(&mut context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is missing is said in a sentence, on machines without a GPU.
    #[test]
    fn a_wrong_driver_is_named() {
        let said = |file| Cuda::load(file).err().expect("it is no driver").message.clone();
        assert!(said("libnone-such.so.1").contains("needs NVIDIA's driver"));
        assert!(said("libc.so.6").contains("no CUDA driver: it has no cuInit"));
    }
}
