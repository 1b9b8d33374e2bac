//! The run-time compiler of kernels, loaded by its name.

use error::{Class, Result, fail};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

type Code = c_int;
type Program = *mut c_void;

/// NVIDIA's run-time compiler. Facts are from NVRTC's documentation (CUDA 12).
pub struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Code,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Code,
    log_bytes: unsafe extern "C" fn(Program, *mut usize) -> Code,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    ptx_bytes: unsafe extern "C" fn(Program, *mut usize) -> Code,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    destroy: unsafe extern "C" fn(*mut Program) -> Code,
    error: unsafe extern "C" fn(Code) -> *const c_char,
    /// Last: the functions above lie in it.
    _library: libloading::Library,
}

/// The names under which installations have it.
pub(crate) const FILES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

impl Nvrtc {
    /// Errors (MPI_ERR_OTHER): it is not here, or is another library.
    pub fn load(file: &str) -> Result<Nvrtc> {
        // SAFETY: the compiler's initialisers may run at any time; another file under its name is the user's.
        let library = match unsafe { libloading::Library::new(file) } {
            Ok(library) => library,
            Err(error) => fail!(Class::Other, "{file} cannot be loaded ({error})"),
        };
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field has the type that nvrtc.h gives the function.
                match unsafe { library.get(concat!($name, "\0").as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => fail!(Class::Other, "{file} is not NVRTC: it has no {}", $name),
                }
            };
        }
        Ok(Nvrtc {
            create: symbol!("nvrtcCreateProgram"),
            compile: symbol!("nvrtcCompileProgram"),
            log_bytes: symbol!("nvrtcGetProgramLogSize"),
            log: symbol!("nvrtcGetProgramLog"),
            ptx_bytes: symbol!("nvrtcGetPTXSize"),
            ptx: symbol!("nvrtcGetPTX"),
            destroy: symbol!("nvrtcDestroyProgram"),
            error: symbol!("nvrtcGetErrorString"),
            _library: library,
        })
    }

    /// Compiles `source` to PTX for devices of `architecture` (`compute_90`) and newer ones.
    ///
    /// Errors (MPI_ERR_OTHER): what the compiler says.
    pub fn compile(&self, source: &CStr, architecture: &str) -> Result<CString> {
        let mut program = std::ptr::null_mut();
        let (name, none) = (c"kernels.cu".as_ptr(), std::ptr::null());
        // SAFETY: the strings outlive the call; it stores one pointer.
        let code = unsafe { (self.create)(&mut program, source.as_ptr(), name, 0, none, none) };
        self.check("nvrtcCreateProgram", code, "")?;
        let compiled = self.compiled(program, architecture);
        // SAFETY: made above, and not used again.
        unsafe { (self.destroy)(&mut program) };
        compiled
    }

    fn compiled(&self, program: Program, architecture: &str) -> Result<CString> {
        let target = CString::new(format!("--gpu-architecture={architecture}")).expect("it has no zero byte");
        // A product that is rounded before it is added, as the CPU's.
        let options = [target.as_ptr(), c"--fmad=false".as_ptr(), c"--device-int128".as_ptr()];
        // SAFETY: the options outlive the call.
        let code = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        if code != 0 {
            // SAFETY: the compiler's two functions for its log.
            let log = unsafe { text(program, self.log_bytes, self.log) };
            self.check("nvrtcCompileProgram", code, &log.to_string_lossy())?;
        }
        // SAFETY: ... and for what it made.
        Ok(unsafe { text(program, self.ptx_bytes, self.ptx) })
    }

    fn check(&self, function: &str, code: Code, log: &str) -> Result<()> {
        if code != 0 {
            // SAFETY: it takes every number.
            let said = unsafe { (self.error)(code) };
            // SAFETY: a constant string of the compiler.
            let said = unsafe { CStr::from_ptr(said) };
            fail!(Class::Other, "{function}: {} {log}", said.to_string_lossy());
        }
        Ok(())
    }
}

/// A text of a program.
///
/// # Safety
/// `bytes` stores how many bytes `get` writes, the zero byte included.
unsafe fn text(
    program: Program,
    bytes: unsafe extern "C" fn(Program, *mut usize) -> Code,
    get: unsafe extern "C" fn(Program, *mut c_char) -> Code,
) -> CString {
    let mut length = 0;
    // SAFETY: it stores one number.
    unsafe { bytes(program, &mut length) };
    let mut text = vec![0u8; length + 1];
    // SAFETY: the text has room for it (contract).
    unsafe { get(program, text.as_mut_ptr().cast()) };
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(0));
    CString::new(text).expect("it was cut at the first zero byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is missing is named.
    #[test]
    fn another_library_is_not_nvrtc() {
        let said = |file| Nvrtc::load(file).err().expect("it is no compiler").message.clone();
        assert!(said("libnone-such.so.1").contains("cannot be loaded"));
        assert!(said("libc.so.6").contains("is not NVRTC: it has no nvrtcCreateProgram"));
    }
}
