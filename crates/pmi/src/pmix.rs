// SPDX-License-Identifier: BSD-3-Clause
//! PMIx by libpmix, loaded at run time: the file that OUTBOARD_PMIX_LIB names, else the one that the launcher
//! uses, else the system's.
//!
//! The structs are those of PMIx 3 to 5 (pmix_common.h), whose layout its ABI promises. libpmix has threads
//! of its own, and any thread may call it. It stays loaded until the process ends.

use error::{Class, Error, Result, fail};
use rustix::pipe::PipeFlags;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

const SYSTEM: &str = "libpmix.so.2";

// Constants of pmix_common.h.
const BOOL: u16 = 1;
const UINT32: u16 = 14;
const BYTE_OBJECT: u16 = 27;
const GLOBAL: u8 = 3;
const ANY_RANK: u32 = u32::MAX - 1;
const LOST_CONNECTION: c_int = -61;
const ACTION_COMPLETE: c_int = -334;

/// The name of a process, in libpmix's layout (pmix_proc_t).
#[repr(C)]
#[derive(Clone, Debug)]
struct PmixProc {
    nspace: [c_char; 256],
    rank: u32,
}

/// A value with its type, in libpmix's layout (pmix_value_t). The union in it has three words.
#[repr(C)]
struct PmixValue {
    kind: u16,
    data: [u64; 3],
}

/// A key with a value, in libpmix's layout (pmix_info_t).
#[repr(C)]
struct PmixInfo {
    key: [c_char; 512],
    flags: u32,
    value: PmixValue,
}

type PmixAnswer = unsafe extern "C" fn(c_int, *mut PmixInfo, usize, *const c_void, *mut c_void, *mut c_void);
type PmixNotify = unsafe extern "C" fn(
    usize,
    c_int,
    *const PmixProc,
    *mut PmixInfo,
    usize,
    *mut PmixInfo,
    usize,
    Option<PmixAnswer>,
    *mut c_void,
);

#[derive(Debug)]
struct LibPmix {
    init: unsafe extern "C" fn(*mut PmixProc, *const PmixInfo, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const PmixInfo, usize) -> c_int,
    abort: unsafe extern "C" fn(c_int, *const c_char, *const PmixProc, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut PmixValue) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const PmixProc, usize, *const PmixInfo, usize) -> c_int,
    get: unsafe extern "C" fn(
        *const PmixProc,
        *const c_char,
        *const PmixInfo,
        usize,
        *mut *mut PmixValue,
    ) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    on_event: unsafe extern "C" fn(
        *const c_int,
        usize,
        *const PmixInfo,
        usize,
        PmixNotify,
        *const c_void,
        *mut c_void,
    ) -> c_int,
    /// libpmix, with the functions to which the other fields point. It stays loaded until the process ends.
    _library: std::mem::ManuallyDrop<libloading::Library>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    library: LibPmix,
    me: PmixProc,
    size: u32,
    lifeline: OwnedFd,
}

/// One end of a pipe, until the connection to the launcher is lost. When this end is closed, the other end,
/// `Connection::lifeline`, hangs up. None before `open`, and after the loss.
static LIFE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Closes `LIFE`. libpmix calls it when the connection to the launcher is lost.
unsafe extern "C" fn lost(
    _: usize,
    _: c_int,
    _: *const PmixProc,
    _: *mut PmixInfo,
    _: usize,
    _: *mut PmixInfo,
    _: usize,
    answer: Option<PmixAnswer>,
    data: *mut c_void,
) {
    drop(LIFE.lock().unwrap_or_else(PoisonError::into_inner).take());
    if let Some(answer) = answer {
        // SAFETY: libpmix's own function, which its contract wants called once, with its own data.
        unsafe { answer(ACTION_COMPLETE, ptr::null_mut(), 0, ptr::null(), ptr::null_mut(), data) };
    }
}

impl Connection {
    /// Whether environment variables name a PMIx server, the launcher's process on this host.
    pub fn is_offered() -> bool {
        settings::launcher_variables::variable("PMIX_NAMESPACE").is_some()
            && settings::launcher_variables::variable("PMIX_RANK").is_some()
    }

    /// Registers with the PMIx server, and returns the connection. None if environment variables name no
    /// server.
    pub fn open() -> Result<Option<Connection>> {
        if !Connection::is_offered() {
            return Ok(None);
        }
        let library = LibPmix::load(settings::get().pmix_lib.as_deref())?;
        let mut me = PmixProc { nspace: [0; 256], rank: 0 };
        // SAFETY: `me` is ours, and there are no options.
        let status = unsafe { (library.init)(&mut me, ptr::null(), 0) };
        library.check(status, "PMIx_Init")?;
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (lifeline, life) =
            pipe.map_err(|error| Error::new(Class::Other, format!("cannot make a pipe: {error}")))?;
        *LIFE.lock().unwrap_or_else(PoisonError::into_inner) = Some(life);
        // SAFETY: the code lives during the call, and the function for ever. Without a last function the
        // call waits.
        let status = unsafe {
            (library.on_event)(&LOST_CONNECTION, 1, ptr::null(), 0, lost, ptr::null(), ptr::null_mut())
        };
        library.check(status.min(0), "PMIx_Register_event_handler")?;
        let mut connection = Connection { library, me, size: 1, lifeline };
        connection.size = connection.number(ANY_RANK, "pmix.job.size").unwrap_or(0);
        if connection.me.rank >= connection.size {
            fail!(
                Class::Other,
                "the launcher (PMIx) says rank {} and {} ranks",
                connection.me.rank,
                connection.size
            );
        }
        Ok(Some(connection))
    }

    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn application(&self) -> Result<u32> {
        Ok(self.number(self.me.rank, "pmix.appnum").unwrap_or(0))
    }

    /// Returns the number of each rank's host, as the launcher numbers hosts. None if the launcher does not
    /// say.
    pub fn mapping(&self) -> Result<Option<Vec<u32>>> {
        Ok((0..self.size).map(|rank| self.number(rank, "pmix.nodeid")).collect())
    }

    pub fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let data = [value.as_ptr() as u64, value.len() as u64, 0];
        let (key, mut value) = (self.key(key)?, PmixValue { kind: BYTE_OBJECT, data });
        // SAFETY: a C string, and a value whose bytes live during the call; libpmix copies both.
        let status = unsafe { (self.library.put)(GLOBAL, key.as_ptr(), &mut value) };
        self.library.check(status, "PMIx_Put")
    }

    pub fn fence(&self) -> Result<()> {
        // SAFETY: takes nothing.
        let status = unsafe { (self.library.commit)() };
        self.library.check(status, "PMIx_Commit")?;
        let mut collect = PmixInfo { key: [0; 512], flags: 0, value: PmixValue { kind: BOOL, data: [0; 3] } };
        let name = c"pmix.collect".to_bytes().iter();
        collect.key.iter_mut().zip(name).for_each(|(to, from)| *to = *from as c_char);
        // A bool is the first byte of the union.
        collect.value.data[0] = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]);
        // SAFETY: no processes mean all; the option lives during the call.
        let status = unsafe { (self.library.fence)(ptr::null(), 0, &collect, 1) };
        self.library.check(status, "PMIx_Fence")
    }

    pub fn get(&self, rank: u32, key: &str) -> Result<Vec<u8>> {
        let found = self.look_up(rank, &self.key(key)?, |value| {
            let (at, length) = (value.data[0] as *const u8, value.data[1] as usize);
            if value.kind != BYTE_OBJECT || (at.is_null() && length > 0) {
                return None;
            }
            // SAFETY: libpmix's own copy of so many bytes, which nobody else has.
            let bytes = if length == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(at, length) } };
            let bytes = bytes.to_vec();
            // SAFETY: allocated by libpmix for us to free; null is allowed.
            unsafe { libc::free(at as *mut c_void) };
            Some(bytes)
        })?;
        match found {
            Some(bytes) => Ok(bytes),
            None => {
                fail!(Class::Other, "the launcher's store (PMIx) has no bytes as \"{key}\" of rank {rank}")
            }
        }
    }

    pub fn abort(&self, code: i32) {
        // SAFETY: a C string; no processes mean all.
        unsafe { (self.library.abort)(code, c"MPI_Abort".as_ptr(), ptr::null(), 0) };
    }

    pub fn finalize(&self) {
        // SAFETY: there are no options. No other thread of ours calls libpmix any more.
        unsafe { (self.library.finalize)(ptr::null(), 0) };
    }

    pub fn lifeline(&self) -> BorrowedFd<'_> {
        self.lifeline.as_fd()
    }

    fn key(&self, key: &str) -> Result<CString> {
        CString::new(format!("ob-{key}"))
            .map_err(|_| Error::new(Class::Intern, "a key with a zero byte".to_owned()))
    }

    /// Returns the number that the launcher provides for `rank` under a key. None if it provides no such
    /// number.
    fn number(&self, rank: u32, key: &str) -> Option<u32> {
        let key = CString::new(key).ok()?;
        let read = |value: &PmixValue| {
            let [a, b, c, d, ..] = value.data[0].to_ne_bytes();
            (value.kind == UINT32).then(|| u32::from_ne_bytes([a, b, c, d]))
        };
        self.look_up(rank, &key, read).ok().flatten()
    }

    /// Gets the value of a key for `rank`, calls `read` with it, and returns the result. Frees the value, but
    /// no memory to which the value points.
    fn look_up<T>(&self, rank: u32, key: &CStr, read: impl FnOnce(&PmixValue) -> T) -> Result<T> {
        let of = PmixProc { rank, ..self.me.clone() };
        let mut value = ptr::null_mut();
        // SAFETY: a process, a C string and a place for the answer, all of which live during the call.
        let status = unsafe { (self.library.get)(&of, key.as_ptr(), ptr::null(), 0, &mut value) };
        self.library.check(status, &format!("PMIx_Get of {key:?} of rank {rank}"))?;
        // SAFETY: null, or a value that libpmix allocated for us.
        let Some(found) = (unsafe { value.as_ref() }) else {
            fail!(Class::Other, "PMIx_Get of {key:?} of rank {rank} gave nothing");
        };
        let read = read(found);
        // SAFETY: allocated by libpmix for us to free, and not used any more.
        unsafe { libc::free(value.cast()) };
        Ok(read)
    }
}

impl LibPmix {
    fn load(path: Option<&Path>) -> Result<LibPmix> {
        let candidates: Vec<PathBuf> = match path {
            Some(path) => vec![path.into()],
            // The launcher's own library comes first, since a server understands a client of its own version
            // best.
            None => of_launcher().into_iter().chain([SYSTEM.into()]).collect(),
        };
        let mut refusal = String::new();
        for name in candidates {
            // SAFETY: libpmix's initialisers may run at any time; another file is the user's own choice.
            match unsafe { libloading::Library::new(&name) } {
                Ok(library) => return LibPmix::of(library, &name),
                Err(error) if refusal.is_empty() => refusal = error.to_string(),
                Err(_) => {}
            }
        }
        fail!(
            Class::Other,
            "this program was started by a PMIx launcher, but libpmix cannot be loaded ({refusal}); install it (Debian: libpmix2), name its file by OUTBOARD_PMIX_LIB, or start the program by Outboard's mpirun"
        )
    }

    fn of(library: libloading::Library, name: &Path) -> Result<LibPmix> {
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the symbol has this type since PMIx 3.
                match unsafe { library.get(concat!($name, "\0").as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => fail!(Class::Other, "{} is no libpmix: it has no {}", name.display(), $name),
                }
            };
        }
        Ok(LibPmix {
            init: symbol!("PMIx_Init"),
            finalize: symbol!("PMIx_Finalize"),
            abort: symbol!("PMIx_Abort"),
            put: symbol!("PMIx_Put"),
            commit: symbol!("PMIx_Commit"),
            fence: symbol!("PMIx_Fence"),
            get: symbol!("PMIx_Get"),
            error_string: symbol!("PMIx_Error_string"),
            on_event: symbol!("PMIx_Register_event_handler"),
            _library: std::mem::ManuallyDrop::new(library),
        })
    }

    fn check(&self, status: c_int, what: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: any number is allowed.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            fail!(Class::Other, "{what}: error {status}");
        }
        // SAFETY: a constant C string.
        let text = unsafe { CStr::from_ptr(text) };
        fail!(Class::Other, "{what}: {} ({status})", text.to_string_lossy())
    }
}

/// Returns the path of the libpmix that an ancestor of this process has loaded: it is the launcher's. None if
/// no ancestor has loaded libpmix.
fn of_launcher() -> Option<PathBuf> {
    sys::process::ancestors().find_map(|pid| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        paths.find(|path| path.contains("/libpmix.so.2")).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // pmix_common.h of PMIx 4.2.2 and 5.0, on a machine of 64 bits.
    #[test]
    fn records_have_the_layout_of_the_header() {
        assert_eq!((size_of::<PmixProc>(), std::mem::offset_of!(PmixProc, rank)), (260, 256));
        assert_eq!((size_of::<PmixValue>(), std::mem::offset_of!(PmixValue, data)), (32, 8));
        assert_eq!((size_of::<PmixInfo>(), std::mem::offset_of!(PmixInfo, value)), (552, 520));
    }

    #[test]
    fn a_file_that_is_no_libpmix_is_named() {
        let missing =
            LibPmix::load(Some(Path::new("/nonexistent/libpmix.so"))).err().unwrap().message.clone();
        assert!(missing.contains("/nonexistent") && missing.contains("OUTBOARD_PMIX_LIB"), "{missing}");
        let other = LibPmix::load(Some(Path::new("libc.so.6"))).err().unwrap().message.clone();
        assert!(other.contains("no libpmix"), "{other}");
    }
}
