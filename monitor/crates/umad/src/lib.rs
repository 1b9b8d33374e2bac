// SPDX-License-Identifier: BSD-3-Clause
//! MADs (management datagrams of InfiniBand) through libibumad, which is loaded at run time.
//!
//! A `Port` is this host's access to a fabric. It sends MADs of 256 bytes and receives all answers; the
//! caller finds out which request an answer belongs to. The contents of an answer are not checked here, only
//! passed on as bytes.
//!
//! Invariant: no function waits longer than its caller allows. The kernel's own retries are off, so the
//! sender keeps the time. `record.rs` has the kernel's record around a MAD (`struct ib_user_mad`), which
//! never changes.

mod record;

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::time::Duration;

use libloading::Library;

pub use record::{MAD_BYTES, Mad, MadAddress};
use record::{RECORD_BYTES, read, write};

/// A management class of InfiniBand, to which each MAD (management datagram) of a port belongs. Each class
/// has a version and a queue pair that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Subnet management, in which a MAD names the ports on its path (IBTA 14.2.1.2).
    Directed,
    /// Performance management, which reads a port's counters (IBTA 16.1).
    Performance,
}

const CLASSES: [(Class, u8, u8); 2] = [(Class::Directed, 0x81, 1), (Class::Performance, 0x04, 1)];

/// A MAD (management datagram) that a port has received, or that came back because nobody answered it.
#[derive(Debug)]
pub enum Received {
    /// An answer to a request of this port, or a request that another node has sent.
    Mad(Box<Mad>),
    /// A request that this port sent and that got no answer, so the kernel returned it. Its header is as it
    /// was sent.
    Unanswered(Box<Mad>),
}

/// An open port of a host channel adapter.
pub struct Port {
    library: Functions,
    id: c_int,
    /// The kernel's id of the agent for each class, in the order of `CLASSES`. An agent is the kernel's
    /// receiver for the answers of one class.
    agents: [c_int; CLASSES.len()],
}

/// The functions of libibumad, as infiniband/umad.h declares them.
struct Functions {
    open: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    close: unsafe extern "C" fn(c_int) -> c_int,
    register: unsafe extern "C" fn(c_int, c_int, c_int, u8, *mut c_long) -> c_int,
    send: unsafe extern "C" fn(c_int, c_int, *mut c_void, c_int, c_int, c_int) -> c_int,
    receive: unsafe extern "C" fn(c_int, *mut c_void, *mut c_int, c_int) -> c_int,
    /// The loaded library. The functions can be called as long as it is loaded.
    _library: Library,
}

impl Functions {
    fn load() -> Result<Functions, String> {
        const NAME: &str = "libibumad.so.3";
        // SAFETY: libibumad's initialisers only set its own variables.
        let library = unsafe { Library::new(NAME) }
            .map_err(|error| format!("no InfiniBand management: {NAME} cannot be loaded ({error})"))?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field has the type that infiniband/umad.h of this major version declares.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|_| format!("{NAME} has no function {}", $name))?
            };
        }
        let init: unsafe extern "C" fn() -> c_int = function!("umad_init");
        let functions = Functions {
            open: function!("umad_open_port"),
            close: function!("umad_close_port"),
            register: function!("umad_register"),
            send: function!("umad_send"),
            receive: function!("umad_recv"),
            _library: library,
        };
        // SAFETY: umad_init takes nothing and may be called more than once.
        if unsafe { init() } < 0 {
            return Err("no InfiniBand management: umad_init failed (is the module ib_umad loaded?)".into());
        }
        Ok(functions)
    }
}

impl Port {
    /// Opens a port of the adapter `device` (such as `mlx5_0`). With None it is the first adapter with an
    /// active port; with `port` 0 it is the adapter's first active port.
    pub fn open(device: Option<&str>, port: u8) -> Result<Port, String> {
        let named = match device {
            Some(device) => Some(CString::new(device).map_err(|_| "a device's name has no zero byte")?),
            None => None,
        };
        let library = Functions::load()?;
        let name = named.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: the name is null or a C string that outlives the call.
        let id = unsafe { (library.open)(name, port.into()) };
        let called = format!("port {port} of {}", device.unwrap_or("any device"));
        if id < 0 {
            return Err(format!("{called} cannot be opened for MADs: {}", reason(-id)));
        }
        // From here on the value's drop closes the port.
        let mut opened = Port { library, id, agents: [-1; CLASSES.len()] };
        for (at, (class, number, version)) in CLASSES.into_iter().enumerate() {
            // SAFETY: no mask: the agent takes answers only, so nothing is read through the pointer.
            let agent = unsafe {
                (opened.library.register)(id, number.into(), version.into(), 0, std::ptr::null_mut())
            };
            if agent < 0 {
                return Err(format!("{called} takes no agent for {class:?} management: {}", reason(-agent)));
            }
            opened.agents[at] = agent;
        }
        Ok(opened)
    }

    /// Sends a MAD to an address. The kernel waits for the answer during `timeout`, and then returns the MAD
    /// as unanswered.
    pub fn send(&mut self, class: Class, to: MadAddress, mad: &Mad, timeout: Duration) -> Result<(), String> {
        let mut record = write(to, mad);
        let at = CLASSES.iter().position(|row| row.0 == class).expect("each class has a row");
        let milliseconds = timeout.as_millis().min(60_000) as c_int;
        let (id, agent) = (self.id, self.agents[at]);
        // SAFETY: the record has libibumad's header and `MAD_BYTES` behind it, and is read before the return.
        let code = unsafe {
            (self.library.send)(id, agent, record.as_mut_ptr().cast(), MAD_BYTES as c_int, milliseconds, 0)
        };
        if code < 0 { Err(format!("a MAD cannot be sent: {}", reason(-code))) } else { Ok(()) }
    }

    /// Returns the next MAD that was received, or None if there was none within `wait`.
    pub fn receive(&mut self, wait: Duration) -> Result<Option<Received>, String> {
        const NOTHING: [c_int; 3] = [-11, -110, -4]; // EAGAIN, ETIMEDOUT, EINTR
        let mut record = [0; RECORD_BYTES];
        let mut length = MAD_BYTES as c_int;
        // With 0 the library would not ask first whether there is a MAD to read.
        let milliseconds = wait.as_millis().clamp(1, 60_000) as c_int;
        // SAFETY: the record has room for the header and for `length` bytes, which is what it may write.
        let agent =
            unsafe { (self.library.receive)(self.id, record.as_mut_ptr().cast(), &mut length, milliseconds) };
        if NOTHING.contains(&agent) {
            return Ok(None);
        }
        if agent < 0 {
            return Err(format!("MADs cannot be received: {}", reason(-agent)));
        }
        let (status, mad) = read(&record);
        Ok(Some(if status == 0 { Received::Mad(mad) } else { Received::Unanswered(mad) }))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the port was opened by this library and is closed once. Its agents go with it.
        unsafe { (self.library.close)(self.id) };
    }
}

fn reason(code: c_int) -> std::io::Error {
    std::io::Error::from_raw_os_error(code)
}
