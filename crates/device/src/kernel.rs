//! Kernels that pack and unpack datatypes on a device: one launch and one copy for all pieces.
//!
//! CUDA's are compiled by NVRTC from `kernels.cu` for the device that is here; sentinel's are functions on a
//! thread. Read next: `move_strips` in `cuda.rs` and `sentinel.rs`.

use error::{Class, Result, fail};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Pieces of equal length at equal distances in the program's memory. kernels.cu has the same.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Strip {
    /// Of the first piece.
    pub address: usize,
    /// Bytes from one piece to the next.
    pub stride: i64,
    /// Bytes of a piece.
    pub bytes: usize,
    /// Pieces.
    pub repeat: usize,
    /// Where the first piece lies among the packed bytes.
    pub at: usize,
}

/// The source of all kernels.
pub const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("kernels.cu"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => panic!("kernels.cu has a zero byte"),
    };

/// The kernel in it: packed bytes, strips, their count, threads for a piece, whether it packs.
pub(crate) const MOVE: &CStr = c"outboard_move";

/// Threads of a block.
pub(crate) const BLOCK: u32 = 256;

/// How a move is divided: blocks in x and y, and threads for a piece.
pub(crate) fn shape(strips: &[Strip]) -> (u32, u32, u64) {
    let pieces: usize = strips.iter().map(|strip| strip.repeat).sum();
    let bytes: usize = strips.iter().map(|strip| strip.repeat * strip.bytes).sum();
    // A thread moves 16 bytes at a time.
    let lanes = (bytes / pieces.max(1) / 16).next_power_of_two().clamp(1, BLOCK as usize);
    let groups = pieces.div_ceil(strips.len().max(1));
    let x = (groups * lanes).div_ceil(BLOCK as usize).clamp(1, 4096);
    (x as u32, strips.len().clamp(1, 4096) as u32, lanes as u64)
}

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
        let option = CString::new(format!("--gpu-architecture={architecture}")).expect("it has no zero byte");
        let options = [option.as_ptr()];
        // SAFETY: the option outlives the call.
        let code = unsafe { (self.compile)(program, 1, options.as_ptr()) };
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

    // Goal: the source, compiled for the host, packs and unpacks strips of all alignments and lengths.
    #[test]
    fn the_source_moves_strips() {
        let folder = std::env::temp_dir().join(format!("outboard-kernels-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("host.c"), folder.join("host.so"));
        let host = "#define __global__\n#define __device__\ntypedef struct { unsigned x, y; } Dim;\n\
            static Dim blockIdx, blockDim, threadIdx, gridDim;\n#include \"kernels.cu\"\n\
            void run(u64 packed, const Strip *strips, u64 count, u64 lanes, u64 is_pack, unsigned x, unsigned y)\n\
            { gridDim.x = x; gridDim.y = y; blockDim.x = 256;\n\
            for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++) for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++)\n\
            for (threadIdx.x = 0; threadIdx.x < 256; threadIdx.x++) outboard_move(packed, strips, count, lanes, is_pack); }\n";
        std::fs::write(&source, host).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/src"), "-o"])
            .args([&library, &source])
            .status();
        assert!(built.unwrap().success());
        // SAFETY: the library that was just made.
        let library = unsafe { libloading::Library::new(&library) }.unwrap();
        type Run = unsafe extern "C" fn(usize, *const Strip, u64, u64, u64, u32, u32);
        // SAFETY: the type of the function above.
        let run: libloading::Symbol<Run> = unsafe { library.get(b"run") }.unwrap();
        let user: Vec<u8> = (0..60_000usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for bytes in [1, 2, 4, 7, 8, 16, 48, 256, 1000] {
            for shift in [0, 1, 2, 8] {
                let strips: Vec<Strip> = (0..5)
                    .map(|number| Strip {
                        address: user.as_ptr().addr() + number * 10_000 + shift,
                        stride: bytes as i64 + 16,
                        bytes,
                        repeat: 9 - number,
                        at: (0..number).map(|before| (9 - before) * bytes).sum(),
                    })
                    .collect();
                let pieces: Vec<usize> = strips
                    .iter()
                    .flat_map(|strip| (0..strip.repeat).map(|piece| strip.address + piece * (bytes + 16)))
                    .collect();
                let expected: Vec<u8> = pieces
                    .iter()
                    .flat_map(|piece| user[piece - user.as_ptr().addr()..][..bytes].to_vec())
                    .collect();
                let (mut packed, (x, y, lanes)) = (vec![0u8; expected.len()], shape(&strips));
                let to = packed.as_mut_ptr().expose_provenance();
                user.as_ptr().expose_provenance();
                // SAFETY: the strips lie in `user`, and `packed` has room for them.
                unsafe { run(to, strips.as_ptr(), strips.len() as u64, lanes, 1, x, y) };
                assert!(packed == expected, "packed pieces of {bytes} bytes, shifted by {shift}");
                let mut back = vec![0u8; user.len()];
                let moved = back.as_mut_ptr().expose_provenance().wrapping_sub(user.as_ptr().addr());
                let theirs: Vec<Strip> = strips
                    .iter()
                    .map(|strip| Strip { address: strip.address.wrapping_add(moved), ..*strip })
                    .collect();
                // SAFETY: the same places of `back`.
                unsafe { run(to, theirs.as_ptr(), theirs.len() as u64, lanes, 0, x, y) };
                let is_in = |at: usize| {
                    pieces
                        .iter()
                        .any(|piece| (0..bytes).contains(&(user.as_ptr().addr() + at).wrapping_sub(*piece)))
                };
                let right = (0..user.len()).all(|at| back[at] == if is_in(at) { user[at] } else { 0 });
                assert!(right, "unpacked pieces of {bytes} bytes, shifted by {shift}");
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    // Goal: what is missing is named.
    #[test]
    fn another_library_is_not_nvrtc() {
        let said = |file| Nvrtc::load(file).err().expect("it is no compiler").message.clone();
        assert!(said("libnone-such.so.1").contains("cannot be loaded"));
        assert!(said("libc.so.6").contains("is not NVRTC: it has no nvrtcCreateProgram"));
    }
}
