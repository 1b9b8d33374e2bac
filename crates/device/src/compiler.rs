// SPDX-License-Identifier: BSD-3-Clause
//! The run-time compilers of kernels, loaded by their file names, and a cache of compiled kernels on disk.
//!
//! NVRTC and hipRTC have the same functions under two prefixes. Written from their documentation (CUDA 12,
//! ROCm 6).

use error::{Class, Result, fail};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

type Code = c_int;
type CompilerProgram = *mut c_void;

/// The differences between the two compilers, NVRTC and hipRTC.
#[derive(Debug)]
pub struct Dialect {
    /// The name of the compiler in error messages.
    pub name: &'static str,
    /// The file names under which installations have the compiler's library.
    pub files: &'static [&'static str],
    prefix: &'static str,
    /// The word for the compiled code in the names of the compiler's functions: `PTX` in `nvrtcGetPTX`.
    code_word: &'static str,
    /// The compiler's option that names the architecture. None if the compiler always takes the current
    /// device's architecture.
    target: Option<&'static str>,
    options: &'static [&'static CStr],
}

// The options make products rounded before they are added, as on the CPU.

/// NVIDIA's compiler, which makes PTX.
pub const NVRTC: Dialect = Dialect {
    name: "NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    prefix: "nvrtc",
    code_word: "PTX",
    target: Some("--gpu-architecture="),
    options: &[c"--fmad=false", c"--device-int128"],
};

/// AMD's compiler, which makes code objects for the current device.
pub const HIPRTC: Dialect = Dialect {
    name: "hipRTC",
    files: &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"],
    prefix: "hiprtc",
    code_word: "Code",
    target: None,
    options: &[c"-ffp-contract=off"],
};

/// A compiler whose library is loaded, with its functions.
pub struct Compiler {
    dialect: &'static Dialect,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Code,
    create: unsafe extern "C" fn(
        *mut CompilerProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Code,
    compile: unsafe extern "C" fn(CompilerProgram, c_int, *const *const c_char) -> Code,
    log_bytes: unsafe extern "C" fn(CompilerProgram, *mut usize) -> Code,
    log: unsafe extern "C" fn(CompilerProgram, *mut c_char) -> Code,
    made_bytes: unsafe extern "C" fn(CompilerProgram, *mut usize) -> Code,
    made: unsafe extern "C" fn(CompilerProgram, *mut c_char) -> Code,
    destroy: unsafe extern "C" fn(*mut CompilerProgram) -> Code,
    error: unsafe extern "C" fn(Code) -> *const c_char,
    /// The loaded library of the compiler, which contains the functions in the other fields. It is the last
    /// field, so that it is dropped last.
    _library: libloading::Library,
}

impl Compiler {
    /// Loads a compiler from `file`. Errors (MPI_ERR_OTHER): `file` is missing, or is another library.
    pub fn load(dialect: &'static Dialect, file: &str) -> Result<Compiler> {
        // SAFETY: the compiler's initialisers may run at any time; the user alone can put another file in its
        // place.
        let library = match unsafe { libloading::Library::new(file) } {
            Ok(library) => library,
            Err(error) => fail!(Class::Other, "{file} cannot be loaded ({error})"),
        };
        macro_rules! symbol {
            ($name:expr) => {{
                let name = format!("{}{}", dialect.prefix, $name);
                // SAFETY: the field has the type that nvrtc.h and hiprtc.h give the function.
                match unsafe { library.get(name.as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => fail!(Class::Other, "{file} is not {}: it has no {name}", dialect.name),
                }
            }};
        }
        Ok(Compiler {
            dialect,
            version: symbol!("Version"),
            create: symbol!("CreateProgram"),
            compile: symbol!("CompileProgram"),
            log_bytes: symbol!("GetProgramLogSize"),
            log: symbol!("GetProgramLog"),
            made_bytes: symbol!(format!("Get{}Size", dialect.code_word)),
            made: symbol!(format!("Get{}", dialect.code_word)),
            destroy: symbol!("DestroyProgram"),
            error: symbol!("GetErrorString"),
            _library: library,
        })
    }

    /// Compiles `source` for devices of `architecture` (`compute_90`, or a name of HIP's current device), and
    /// returns the code. The folder `cache` keeps the code of earlier calls, which is then not compiled
    /// again.
    ///
    /// Errors (MPI_ERR_OTHER): the compiler's error.
    pub fn compile(&self, source: &CStr, architecture: &str, cache: Option<&Path>) -> Result<Vec<u8>> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it stores two numbers.
        self.check("Version", unsafe { (self.version)(&mut major, &mut minor) }, "")?;
        let mut key = DefaultHasher::new();
        (source, self.dialect.options, major, minor).hash(&mut key);
        let name = format!("{}-{architecture}-{:016x}", self.dialect.prefix, key.finish());
        let file = cache.map(|folder| folder.join(name));
        if let Some(made) = file.as_deref().and_then(cached) {
            return Ok(made);
        }
        let made = self.make(source, architecture)?;
        if let Some(file) = file {
            // If the cache cannot be written, the next process only compiles again.
            let _ = store(&file, &made);
        }
        Ok(made)
    }

    fn make(&self, source: &CStr, architecture: &str) -> Result<Vec<u8>> {
        let mut program = std::ptr::null_mut();
        let (name, none) = (c"kernels.cu".as_ptr(), std::ptr::null());
        // SAFETY: the strings outlive the call; it stores one pointer.
        let code = unsafe { (self.create)(&mut program, source.as_ptr(), name, 0, none, none) };
        self.check("CreateProgram", code, "")?;
        let compiled = self.compiled(program, architecture);
        // SAFETY: the program was made above, and is not used again.
        unsafe { (self.destroy)(&mut program) };
        compiled
    }

    fn compiled(&self, program: CompilerProgram, architecture: &str) -> Result<Vec<u8>> {
        let target = self.dialect.target.map(|option| format!("{option}{architecture}"));
        let target = target.map(|target| CString::new(target).expect("it has no zero byte"));
        let options = target.as_deref().into_iter().chain(self.dialect.options.iter().copied());
        let options: Vec<*const c_char> = options.map(CStr::as_ptr).collect();
        // SAFETY: the options outlive the call.
        let code = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        if code != 0 {
            // SAFETY: the compiler's two functions for its log.
            let log = unsafe { bytes_of(program, self.log_bytes, self.log) };
            self.check("CompileProgram", code, &String::from_utf8_lossy(&log))?;
        }
        // SAFETY: the compiler's two functions for its output.
        Ok(unsafe { bytes_of(program, self.made_bytes, self.made) })
    }

    fn check(&self, function: &str, code: Code, log: &str) -> Result<()> {
        if code != 0 {
            // SAFETY: the function takes any number.
            let said = unsafe { (self.error)(code) };
            // SAFETY: a constant string of the compiler.
            let said = unsafe { CStr::from_ptr(said) };
            fail!(Class::Other, "{}{function}: {} {log}", self.dialect.prefix, said.to_string_lossy());
        }
        Ok(())
    }
}

/// Returns the bytes that `get` stores for a program: a log with its zero byte, or the compiled code.
///
/// # Safety
/// `bytes` must store how many bytes `get` writes.
unsafe fn bytes_of(
    program: CompilerProgram,
    bytes: unsafe extern "C" fn(CompilerProgram, *mut usize) -> Code,
    get: unsafe extern "C" fn(CompilerProgram, *mut c_char) -> Code,
) -> Vec<u8> {
    let mut length = 0;
    // SAFETY: it stores one number.
    unsafe { bytes(program, &mut length) };
    let mut made = vec![0u8; length];
    // SAFETY: `made` has room for these bytes (contract).
    unsafe { get(program, made.as_mut_ptr().cast()) };
    made
}

/// Returns the hash of compiled code, which stands before the code in a file of the cache.
fn check_word(made: &[u8]) -> [u8; 8] {
    let mut hash = DefaultHasher::new();
    made.hash(&mut hash);
    hash.finish().to_ne_bytes()
}

/// Returns the compiled code in a file of the cache. None if there is no such file, or if the file is not
/// whole.
fn cached(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(file).ok()?;
    let made = bytes.split_off(8.min(bytes.len()));
    (bytes == check_word(&made)).then_some(made)
}

/// Stores compiled code in the cache. Writes a file with a name of its own and renames it once it is whole,
/// since other processes may store the same code.
fn store(file: &Path, made: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let own = file.with_extension(std::process::id().to_string());
    let written = fs::write(&own, [&check_word(made), made].concat()).and_then(|()| fs::rename(&own, file));
    if written.is_err() {
        let _ = fs::remove_file(&own);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the error names what is missing.
    #[test]
    fn another_library_is_no_compiler() {
        let said =
            |dialect, file| Compiler::load(dialect, file).err().expect("it is no compiler").message.clone();
        assert!(said(&NVRTC, "libnone-such.so.1").contains("cannot be loaded"));
        assert!(said(&NVRTC, "libc.so.6").contains("is not NVRTC: it has no nvrtcVersion"));
        assert!(said(&HIPRTC, "libc.so.6").contains("is not hipRTC: it has no hiprtcVersion"));
    }

    // Goal: a file of the cache returns its output; a damaged file is ignored.
    #[test]
    fn a_damaged_file_is_ignored() {
        let folder = std::env::temp_dir().join(format!("outboard-kept-{}", std::process::id()));
        let file = folder.join("deeper").join("made");
        assert_eq!(cached(&file), None);
        store(&file, b"made").unwrap();
        assert_eq!(cached(&file).as_deref(), Some(&b"made"[..]));
        store(&file, b"other").unwrap();
        assert_eq!(cached(&file).as_deref(), Some(&b"other"[..]));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        let whole = fs::read(&file).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..5], &[], &[&whole[..9], b"thar"].concat()] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(cached(&file), None, "{damaged:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
