// SPDX-License-Identifier: BSD-3-Clause
//! The functions that NCCL-like libraries share, as a table.
//!
//! The functions are found by their names, whatever version the library has. There are two families of
//! libraries: `nccl` (also RCCL and MSCCL++) and `oneccl`. Written from NCCL's user guide and oneCCL's ccl.h.

use crate::step::{self, ExchangePart, LibraryStep};
use error::{Class, Error, Result, fail};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The kinds of memory in which a library takes its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Host,
    Device,
}

/// What differs between the two families of collective libraries, `nccl` and `oneccl`.
struct Family {
    prefix: &'static str,
    id_bytes: usize,
    in_progress: c_int,
    /// The code that the library returns for an error in another process. None if the libraries of this
    /// family (`nccl` or `oneccl`) have no such code.
    remote_error: Option<c_int>,
    memory: MemoryKind,
    /// Whether ranks may make several communicators in different orders.
    in_any_order: bool,
}

const NCCL: Family = Family {
    prefix: "nccl",
    id_bytes: 128,
    in_progress: 7,
    remote_error: Some(6),
    memory: MemoryKind::Device,
    in_any_order: true,
};
/// The family of oneCCL. Its calls get no device stream and take host memory.
const ONECCL: Family = Family {
    prefix: "oneccl",
    id_bytes: 4096,
    in_progress: 6,
    remote_error: None,
    memory: MemoryKind::Host,
    in_any_order: false,
};

/// For each library name that the user may give (OUTBOARD_CCL), the names of the library's file in
/// installations.
const FILES: [(&str, &[&str]); 4] = [
    ("nccl", &["libnccl.so.2", "libnccl.so"]),
    ("rccl", &["librccl.so.1", "librccl.so"]),
    ("mscclpp", &["libmscclpp_nccl.so"]),
    ("oneccl", &["libccl.so.2"]),
];

/// The library's own pointer to a communicator (`ncclComm_t`).
type Raw = *mut c_void;
/// The handle of a device's stream, a queue of work for the device. It is 0 if the library takes host memory.
type StreamHandle = usize;
type KindNumber = c_int;
type OpNumber = c_int;

/// This rank's membership in a communicator, and the device's stream (its queue of work) that the rank's
/// calls use.
pub(crate) struct CommunicatorMembership {
    raw: Raw,
    handle: StreamHandle,
    /// The device's stream whose handle is `handle`. None if the library takes host memory.
    stream: Option<device::Stream>,
}

impl CommunicatorMembership {
    /// Makes a membership that has a stream if `memory` is a device's, and that has not joined a communicator
    /// yet.
    fn new(memory: MemoryKind) -> Result<CommunicatorMembership> {
        let (handle, stream) = match memory {
            MemoryKind::Host => (0, None),
            MemoryKind::Device => {
                let handle = device::create_stream()?;
                (handle, Some(device::created_stream(handle)?))
            }
        };
        Ok(CommunicatorMembership { raw: std::ptr::null_mut(), handle, stream })
    }
}

impl Drop for CommunicatorMembership {
    fn drop(&mut self) {
        if self.stream.is_some() {
            // A device that refuses to destroy its stream has failed; its next call reports that.
            let _ = device::destroy_stream(self.handle);
        }
    }
}

/// The id of a communicator (ncclUniqueId). Its rank 0 makes the id before the ranks join.
pub type Id = Vec<u8>;

/// An `Id` as the C struct that the libraries' functions take by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Bytes<N> {
    fn of(id: &Id) -> Bytes<N> {
        Bytes(id.as_slice().try_into().expect("an id has the bytes of its library's family"))
    }
}

enum Init {
    Nccl(unsafe extern "C" fn(*mut Raw, c_int, Bytes<128>, c_int) -> c_int),
    Oneccl(unsafe extern "C" fn(*mut Raw, usize, Bytes<4096>, c_int) -> c_int),
}

/// A loaded collective library (such as NCCL), with its functions.
pub struct Library {
    family: &'static Family,
    file: String,
    version: c_int,
    unique_id: unsafe extern "C" fn(*mut u8) -> c_int,
    init: Init,
    destroy: unsafe extern "C" fn(Raw) -> c_int,
    abort: Option<unsafe extern "C" fn(Raw) -> c_int>,
    async_error: Option<unsafe extern "C" fn(Raw, *mut c_int) -> c_int>,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: Option<unsafe extern "C" fn(Raw) -> *const c_char>,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    all_reduce: unsafe extern "C" fn(usize, usize, usize, KindNumber, OpNumber, Raw, StreamHandle) -> c_int,
    reduce:
        unsafe extern "C" fn(usize, usize, usize, KindNumber, OpNumber, c_int, Raw, StreamHandle) -> c_int,
    reduce_scatter:
        unsafe extern "C" fn(usize, usize, usize, KindNumber, OpNumber, Raw, StreamHandle) -> c_int,
    broadcast: unsafe extern "C" fn(usize, usize, usize, KindNumber, c_int, Raw, StreamHandle) -> c_int,
    all_gather: unsafe extern "C" fn(usize, usize, usize, KindNumber, Raw, StreamHandle) -> c_int,
    send: unsafe extern "C" fn(usize, usize, KindNumber, c_int, Raw, StreamHandle) -> c_int,
    recv: unsafe extern "C" fn(usize, usize, KindNumber, c_int, Raw, StreamHandle) -> c_int,
    /// The function of oneCCL that carries out an exchange in one call. Groups of sends and receives of
    /// oneCCL return before the bytes have arrived. None for other libraries.
    all_to_all_v: Option<
        unsafe extern "C" fn(
            usize,
            *const usize,
            usize,
            *const usize,
            KindNumber,
            Raw,
            StreamHandle,
        ) -> c_int,
    >,
    /// The loaded library that contains these functions. It is the last field, so that it is dropped last.
    _library: libloading::Library,
}

impl Library {
    /// Loads a library by its name or file. Fails as `crate::start` does.
    pub(crate) fn load(name: &str) -> Result<Library> {
        let named = FILES.iter().find(|(known, _)| *known == name).map(|(_, files)| *files);
        let mut reason = String::new();
        for file in named.unwrap_or(&[name]) {
            // SAFETY: the initialisers of such a library may run at any time; the user alone can put another
            // file in its place.
            match unsafe { libloading::Library::new(file) } {
                Ok(library) => return Library::of(file, library),
                Err(error) => reason = format!("{file} cannot be loaded ({error})"),
            }
        }
        fail!(
            Class::Other,
            "{reason}; OUTBOARD_CCL takes nccl, rccl, mscclpp, oneccl, or the path of a library with NCCL's functions"
        )
    }

    fn of(file: &str, library: libloading::Library) -> Result<Library> {
        let has = |family: &Family| {
            // SAFETY: the symbol is only looked up.
            unsafe { library.get::<*const c_void>(format!("{}AllReduce", family.prefix).as_bytes()) }.is_ok()
        };
        let Some(family) = [&NCCL, &ONECCL].into_iter().find(|family| has(family)) else {
            fail!(
                Class::Other,
                "{file} is no collective library: it has no ncclAllReduce and no onecclAllReduce"
            );
        };
        if family.memory == MemoryKind::Device && device::name().is_none() {
            fail!(Class::Other, "{file} takes device memory only; set OUTBOARD_DEVICE, too");
        }
        if family.prefix == ONECCL.prefix {
            use_libfabric();
        }
        macro_rules! maybe {
            ($name:literal) => {
                // SAFETY: the field has the type that the library's header gives the function.
                unsafe { library.get(format!("{}{}", family.prefix, $name).as_bytes()) }
                    .ok()
                    .map(|found| *found)
            };
        }
        macro_rules! symbol {
            ($name:literal) => {
                match maybe!($name) {
                    Some(symbol) => symbol,
                    None => fail!(Class::Other, "{file} has no {}{}", family.prefix, $name),
                }
            };
        }
        let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = symbol!("GetVersion");
        let mut version = 0;
        // SAFETY: it stores one number.
        unsafe { get_version(&mut version) };
        Ok(Library {
            family,
            file: file.into(),
            version,
            unique_id: symbol!("GetUniqueId"),
            init: match family.id_bytes {
                128 => Init::Nccl(symbol!("CommInitRank")),
                _ => Init::Oneccl(symbol!("CommInitRank")),
            },
            destroy: symbol!("CommDestroy"),
            abort: maybe!("CommAbort"),
            async_error: maybe!("CommGetAsyncError"),
            error_string: symbol!("GetErrorString"),
            last_error: maybe!("GetLastError"),
            group_start: symbol!("GroupStart"),
            group_end: symbol!("GroupEnd"),
            all_reduce: symbol!("AllReduce"),
            reduce: symbol!("Reduce"),
            reduce_scatter: symbol!("ReduceScatter"),
            broadcast: symbol!("Broadcast"),
            all_gather: symbol!("AllGather"),
            send: symbol!("Send"),
            recv: symbol!("Recv"),
            all_to_all_v: maybe!("AllToAllV"),
            _library: library,
        })
    }

    /// Returns the kind of memory in which the library takes its buffers.
    pub fn memory(&self) -> MemoryKind {
        self.family.memory
    }

    /// Whether ranks may make several communicators in different orders. If not, only MPI calls that block
    /// may make a communicator.
    pub fn joins_in_any_order(&self) -> bool {
        self.family.in_any_order
    }

    /// Returns the name of the file from which the library was loaded, and the library's version number.
    pub fn file_and_version(&self) -> (&str, i32) {
        (&self.file, self.version)
    }

    /// Returns the length of an `Id` of this library, in bytes.
    pub fn id_bytes(&self) -> usize {
        self.family.id_bytes
    }

    /// Makes the id of a new communicator. Only the communicator's rank 0 calls this; it then sends the id to
    /// the other ranks.
    ///
    /// Errors: what the library reports.
    pub fn make_id(&self) -> Result<Id> {
        let mut id = vec![0; self.family.id_bytes];
        // SAFETY: it stores `id_bytes` bytes.
        let code = unsafe { (self.unique_id)(id.as_mut_ptr()) };
        self.check("GetUniqueId", code, std::ptr::null_mut())?;
        Ok(id)
    }

    /// Starts to join a communicator of `size` ranks as its rank `rank`. The rank has joined once `is_over`
    /// returns true.
    pub(crate) fn join(&self, id: &Id, rank: u32, size: u32) -> Result<CommunicatorMembership> {
        let mut member = CommunicatorMembership::new(self.family.memory)?;
        let raw = &mut member.raw;
        let code = match self.init {
            // SAFETY: `raw` outlives the call; the id was made by this library.
            Init::Nccl(init) => unsafe { init(raw, size as c_int, Bytes::of(id), rank as c_int) },
            // SAFETY: as above.
            Init::Oneccl(init) => unsafe { init(raw, size as usize, Bytes::of(id), rank as c_int) },
        };
        self.check("CommInitRank", code, member.raw)?;
        Ok(member)
    }

    /// Starts one step on the member's stream.
    ///
    /// Errors: those of the library.
    ///
    /// # Safety
    /// The addresses must be of memory that the library takes, long enough, and stay valid until the step is
    /// over.
    pub(crate) unsafe fn start(&self, step: &LibraryStep, member: &CommunicatorMembership) -> Result<()> {
        const BYTE: KindNumber = step::ElementKind::I8 as KindNumber;
        let CommunicatorMembership { raw, handle: stream, .. } = *member;
        let (name, code) = match *step {
            LibraryStep::AllReduce { from, to, count, kind, op } => {
                // SAFETY: contract of this function; so below.
                let code = unsafe {
                    (self.all_reduce)(from, to, count, kind as KindNumber, op as OpNumber, raw, stream)
                };
                ("AllReduce", code)
            }
            LibraryStep::Reduce { from, to, count, kind, op, root } => {
                let (kind, op, root) = (kind as KindNumber, op as OpNumber, root as c_int);
                // SAFETY: as above.
                ("Reduce", unsafe { (self.reduce)(from, to, count, kind, op, root, raw, stream) })
            }
            LibraryStep::ReduceScatter { from, to, count, kind, op } => {
                let (kind, op) = (kind as KindNumber, op as OpNumber);
                // SAFETY: as above.
                ("ReduceScatter", unsafe { (self.reduce_scatter)(from, to, count, kind, op, raw, stream) })
            }
            LibraryStep::Broadcast { at, bytes, root } => {
                // SAFETY: as above.
                ("Broadcast", unsafe { (self.broadcast)(at, at, bytes, BYTE, root as c_int, raw, stream) })
            }
            LibraryStep::AllGather { from, to, bytes } => {
                // SAFETY: as above.
                ("AllGather", unsafe { (self.all_gather)(from, to, bytes, BYTE, raw, stream) })
            }
            LibraryStep::Exchange { ref sends, ref recvs } => {
                // SAFETY: it has no arguments.
                self.check("GroupStart", unsafe { (self.group_start)() }, raw)?;
                let send = |one: &ExchangePart| {
                    // SAFETY: as above.
                    let code =
                        unsafe { (self.send)(one.at, one.bytes, BYTE, one.peer as c_int, raw, stream) };
                    self.check("Send", code, raw)
                };
                let recv = |one: &ExchangePart| {
                    // SAFETY: as above.
                    let code =
                        unsafe { (self.recv)(one.at, one.bytes, BYTE, one.peer as c_int, raw, stream) };
                    self.check("Recv", code, raw)
                };
                let all = sends.iter().try_for_each(send).and_then(|()| recvs.iter().try_for_each(recv));
                // Also after an error, since the group belongs to the thread. SAFETY: it has no arguments.
                let code = unsafe { (self.group_end)() };
                all?;
                ("GroupEnd", code)
            }
        };
        self.check(name, code, raw)
    }

    /// Whether the function `exchange` carries out a `LibraryStep::Exchange`, in one call of the library on
    /// all ranks. If not, `start` carries it out.
    pub(crate) fn exchanges_at_once(&self) -> bool {
        self.all_to_all_v.is_some()
    }

    /// Starts an exchange of bytes between all ranks. At `from` the bytes for each rank lie one after the
    /// other. At `to` the bytes from each rank are stored in the same way.
    ///
    /// # Safety
    /// The contract of `start`; the counts must stay valid as long, too.
    pub(crate) unsafe fn exchange(
        &self,
        (from, sent): (usize, &[usize]),
        (to, received): (usize, &[usize]),
        member: &CommunicatorMembership,
    ) -> Result<()> {
        let CommunicatorMembership { raw, handle: stream, .. } = *member;
        let call = self.all_to_all_v.expect("`exchanges_at_once` was asked");
        let (sent, received) = (sent.as_ptr(), received.as_ptr());
        // SAFETY: contract of this function.
        let code =
            unsafe { call(from, sent, to, received, step::ElementKind::I8 as KindNumber, raw, stream) };
        self.check("AllToAllV", code, raw)
    }

    /// Whether all work that this rank has started on a communicator is over, in the library and on the
    /// stream.
    ///
    /// Errors: an error of that work.
    pub(crate) fn is_over(&self, member: &CommunicatorMembership) -> Result<bool> {
        if let Some(async_error) = self.async_error {
            let mut state = 0;
            // SAFETY: the communicator is alive; it stores one number.
            let code = unsafe { async_error(member.raw, &mut state) };
            self.check("CommGetAsyncError", code, member.raw)?;
            if state == self.family.in_progress {
                return Ok(false);
            }
            self.check("an operation", state, member.raw)?;
        }
        member.stream.as_ref().map_or(Ok(true), device::Stream::is_idle)
    }

    /// Leaves a communicator in which no operation is in progress.
    pub(crate) fn leave(&self, member: CommunicatorMembership) {
        // SAFETY: it is alive, and not used again. The result does not matter any more.
        unsafe { (self.destroy)(member.raw) };
    }

    /// Ends this rank's communicator after an error, without waiting for other ranks.
    pub(crate) fn abort(&self, member: &CommunicatorMembership) {
        if let Some(abort) = self.abort {
            // SAFETY: it is alive, and only dropped after this.
            unsafe { abort(member.raw) };
        }
    }

    fn check(&self, function: &str, code: c_int, raw: Raw) -> Result<()> {
        if code == 0 || code == self.family.in_progress {
            return Ok(());
        }
        let class = if Some(code) == self.family.remote_error { Class::ProcAborted } else { Class::Other };
        // SAFETY: it returns a constant string for any number.
        let text = text_of(unsafe { (self.error_string)(code) });
        // SAFETY: the communicator is alive or null.
        let last = self.last_error.map(|last| text_of(unsafe { last(raw) })).filter(|last| !last.is_empty());
        let (name, prefix) = (&self.file, self.family.prefix);
        let last = last.map_or(String::new(), |last| format!("; {last}"));
        Err(Error::new(class, format!("{name}: {prefix}{function} failed with {code} ({text}{last})")))
    }
}

/// Makes oneCCL use libfabric. By default it would load an MPI library, which in this process is Outboard.
fn use_libfabric() {
    // SAFETY: both are C strings. The call is within MPI_Init, like other changes of the environment.
    unsafe { libc::setenv(c"CCL_ATL_TRANSPORT".as_ptr(), c"ofi".as_ptr(), 0) };
}

fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a string of the library, which stays until its next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a sentence that names the setting says what is missing.
    #[test]
    fn a_wrong_library_is_named() {
        let error_of = |name| Library::load(name).err().expect("it is no such library").message.clone();
        assert!(error_of("libnone-such.so.1").contains("OUTBOARD_CCL takes nccl"));
        assert!(error_of("libc.so.6").contains("has no ncclAllReduce"));
    }
}
