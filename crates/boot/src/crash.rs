// SPDX-License-Identifier: BSD-3-Clause
//! The report that a rank prints when a signal ends it: rank, signal, place in the program, and how to look
//! closer.
//!
//! The signal handler must not make things worse. It is set only where there is no other handler: a program,
//! a sanitizer, a Java machine, Python's faulthandler keep theirs. It has a stack of its own, since the
//! program's stack may have overflowed. After the handler has returned, the fault happens again and ends the
//! process by the signal itself, so exit code and core dump stay the same.
//!
//! To find names of functions takes allocations and locks, which the crashed thread may hold. So the report
//! without names is printed first, and a timer sends the signal again after some seconds. If the handler is
//! entered a second time, by the timer or by a fault of its own, it leaves the names out. A third time ends
//! the process at once.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};
use settings::Crash;

const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
];
/// The length in bytes of the stack on which the signal handler runs. To find the names of functions takes
/// this much.
const STACK_BYTES: usize = 512 << 10;
/// After this many seconds in the signal handler, a timer sends the signal again.
const PATIENCE_S: i64 = 5;
const FRAMES_MAX: usize = 16;

struct Watch {
    /// The rank's name in the crash report: "rank 1 (pid 4711 on host)".
    who: String,
    pid: i32,
    wait: bool,
}

static WATCH: OnceLock<Watch> = OnceLock::new();
/// The id of the thread whose crash is being reported. 0 before a crash.
static CRASHED: AtomicI32 = AtomicI32::new(0);
/// How many times the crashed thread has entered the signal handler again.
static AGAIN: AtomicI32 = AtomicI32::new(0);
/// The return addresses on the crashed thread's stack, the innermost first. Null ends the list.
static FRAMES: [AtomicPtr<c_void>; FRAMES_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; FRAMES_MAX];
/// How many addresses of `FRAMES` have been printed.
static PRINTED: AtomicUsize = AtomicUsize::new(0);

/// Installs the signal handler that reports a crash of this process. `rank` is the name that it prints. The
/// thread that joins the job calls this once.
pub(crate) fn watch(crash: Crash, rank: &str) {
    if crash == Crash::Off {
        return;
    }
    let pid = sys::process::id() as i32;
    let who = format!("{rank} (pid {pid} on {})", sys::host::name());
    if WATCH.set(Watch { who, pid, wait: crash == Crash::Wait }).is_err() {
        return;
    }
    own_stack();
    // This loads now whatever unwinding loads.
    let mut frames = 0;
    backtrace::trace(|_| {
        frames += 1;
        frames < 2
    });
    for (signal, _) in SIGNALS {
        if handler_of(signal) == libc::SIG_DFL {
            let handle: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
            set(signal, handle as usize, libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER);
        }
    }
}

/// Gives the calling thread a stack for signal handlers, if it has no such stack.
fn own_stack() {
    // SAFETY: all bytes zero is a valid value of this plain struct.
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: `old` is written, nothing is set.
    let known = unsafe { libc::sigaltstack(std::ptr::null(), &mut old) } == 0;
    if !known || old.ss_flags & libc::SS_DISABLE == 0 {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new map, which replaces none; it lives as long as the process.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), STACK_BYTES, protection, flags, -1, 0) };
    if base != libc::MAP_FAILED {
        let stack = libc::stack_t { ss_sp: base, ss_flags: 0, ss_size: STACK_BYTES };
        // SAFETY: the stack is mapped for good.
        unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
    }
}

/// Whether the stack on which the signal handler runs is large enough to find the names of functions.
fn is_roomy() -> bool {
    // SAFETY: all bytes zero is a valid value of this plain struct.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: `stack` is written, nothing is set.
    unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) };
    stack.ss_flags & libc::SS_ONSTACK == 0 || stack.ss_size >= STACK_BYTES / 2
}

fn handler_of(signal: c_int) -> usize {
    // SAFETY: all bytes zero is a valid value of this plain struct.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `old` is written, nothing is set.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut old) };
    old.sa_sigaction
}

fn set(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: all bytes zero is a valid value of this plain struct: an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: the handler is SIG_DFL or `on_signal`, with the flags that its type needs.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
}

/// Handles a signal that would end the process: prints the crash report, then ends the process by the same
/// signal.
extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    let thread = thread();
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid record.
    let info = unsafe { *info };
    // Whether a process sent the signal; a fault has no sender.
    let sent = info.si_code <= 0;
    // SAFETY: the field is there whatever the signal is, and only means something where `sent` is true.
    let sender = unsafe { info.si_pid() };
    let Some(watch) = WATCH.get() else { return end_by(signal) };
    // A child of fork is not a rank. A signal that another process sent needs no report, unlike our timer's.
    let is_from_outside = sent && sender != watch.pid && CRASHED.load(Ordering::Relaxed) != thread;
    if sys::process::id() as i32 != watch.pid || is_from_outside {
        return end_by(signal);
    }
    match CRASHED.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(first) if first == thread => {
            if AGAIN.fetch_add(1, Ordering::Relaxed) == 0 {
                send_after(PATIENCE_S, signal, thread);
                print_frames(false);
                print_hint(watch);
            }
            return end_by(signal);
        }
        // Another thread crashed at the same time, and is printing its report.
        Err(_) => {
            std::thread::sleep(std::time::Duration::from_secs(2 * PATIENCE_S as u64));
            return end_by(signal);
        }
    }
    send_after(PATIENCE_S, signal, thread);
    report(watch, signal, &info, sent);
    if watch.wait {
        send_after(0, signal, thread);
        print(|line| write!(line, "it waits: `gdb -p {}`", watch.pid));
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
    set(signal, libc::SIG_DFL, 0);
    if sent {
        end_by(signal);
    }
}

fn report(watch: &Watch, signal: c_int, info: &siginfo_t, sent: bool) {
    let name = SIGNALS.iter().find(|(number, _)| *number == signal).map_or("", |(_, name)| name);
    // SAFETY: the field is there whatever the signal is, and only means something for a fault.
    let address = unsafe { info.si_addr() };
    match sent {
        true => print(|line| write!(line, "{} crashed: {name}, raised by itself", watch.who)),
        false => print(|line| write!(line, "{} crashed: {name}, address {address:p}", watch.who)),
    }
    if is_roomy() {
        find_frames();
        print_frames(true);
    }
    print_hint(watch);
}

fn print_hint(watch: &Watch) {
    print(|line| {
        let core = "`ulimit -c unlimited` before mpirun leaves a core";
        write!(line, "OUTBOARD_CRASH=wait keeps it for `gdb -p {}`; {core}", watch.pid)
    });
}

/// Stores the return addresses on this thread's stack in `FRAMES`, from the place where the signal came.
fn find_frames() {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
    // Unwinding begins with our own frames: the handler, and the kernel's call of it.
    let (mut own, mut count) = (true, 0);
    let mut skip = 0;
    let mut keep = |frame: &backtrace::Frame| {
        if own {
            own = frame.symbol_address() as usize != handler as usize;
            return true;
        }
        if skip == 0 {
            skip = 1;
            return true;
        }
        FRAMES[count].store(frame.ip(), Ordering::Relaxed);
        count += 1;
        count < FRAMES_MAX
    };
    // SAFETY: only one thread comes here, once; another one that unwinds at this time touches nothing of it.
    unsafe { backtrace::trace_unsynchronized(&mut keep) };
}

/// Prints the addresses of `FRAMES` that have not been printed yet. `with_names` says whether to find the
/// name of each function.
fn print_frames(with_names: bool) {
    loop {
        let number = PRINTED.load(Ordering::Relaxed);
        let ip = FRAMES.get(number).map_or(std::ptr::null_mut(), |frame| frame.load(Ordering::Relaxed));
        if ip.is_null() {
            return;
        }
        let (mut named, mut is_main) = (false, false);
        let mut name = |symbol: &backtrace::Symbol| {
            named = true;
            let name = symbol.name();
            is_main = name.as_ref().is_some_and(|name| name.as_bytes() == b"main");
            print(|line| {
                write!(line, "  #{number} ")?;
                name.map_or(Ok(()), |name| write!(line, "{name:#} "))?;
                match (symbol.filename(), symbol.lineno()) {
                    (Some(file), Some(at)) => write!(line, "({}:{at})", file.display()),
                    _ => write_location(line, ip),
                }
            });
        };
        if with_names {
            // SAFETY: only the thread whose crash is told comes here.
            unsafe { backtrace::resolve_unsynchronized(ip, &mut name) };
        }
        if !named {
            print(|line| write!(line, "  #{number} ").and_then(|()| write_location(line, ip)));
        }
        // The callers of `main` are the same in all programs.
        PRINTED.store(if is_main { FRAMES_MAX } else { number + 1 }, Ordering::Relaxed);
    }
}

/// Writes where the address `ip` lies, in the form for addr2line: a file, and the offset in that file.
fn write_location(line: &mut CrashLine, ip: *mut c_void) -> std::fmt::Result {
    // SAFETY: all bytes zero is a valid value of this plain struct.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is written; any address may be asked for.
    let known = unsafe { libc::dladdr(ip, &mut info) } != 0 && !info.dli_fname.is_null();
    if !known {
        return write!(line, "({ip:p})");
    }
    // SAFETY: where there is a name it is a string of the loader's, which stays while the file is loaded.
    let file = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    write!(line, "({}+{:#x})", file.to_string_lossy(), ip as usize - info.dli_fbase as usize)
}

/// A line of the crash report, as bytes on the stack: the signal handler must not allocate memory.
struct CrashLine {
    bytes: [u8; 512],
    used: usize,
}

impl Write for CrashLine {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // Room is left for the end of the line; text that does not fit is truncated.
        let bytes = &text.as_bytes()[..text.len().min(self.bytes.len() - 1 - self.used)];
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }
}

fn print(write: impl FnOnce(&mut CrashLine) -> std::fmt::Result) {
    let mut line = CrashLine { bytes: [0; 512], used: 0 };
    // A `CrashLine` accepts any text.
    let _ = write!(line, "outboard: ").and_then(|()| write(&mut line));
    line.bytes[line.used] = b'\n';
    // A write that fails has no reader, and cannot be helped.
    // SAFETY: the bytes are initialised and live on this stack.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.used + 1) };
}

fn thread() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Makes the kernel send `signal` to `thread` in `seconds` seconds, once. 0 seconds stops the timer.
fn send_after(seconds: i64, signal: c_int, thread: i32) {
    static TIMER: AtomicI32 = AtomicI32::new(-1);
    if TIMER.load(Ordering::Relaxed) < 0 {
        // SAFETY: all bytes zero is a valid value of this plain struct.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_THREAD_ID, signal);
        event.sigev_notify_thread_id = thread;
        let mut number: c_int = -1;
        // SAFETY: the kernel reads `event` and writes `number`.
        let made = unsafe {
            libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut number)
        };
        if made != 0 {
            return;
        }
        TIMER.store(number, Ordering::Relaxed);
    }
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let when =
        libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_sec: seconds, tv_nsec: 0 } };
    let no_old = std::ptr::null_mut::<libc::itimerspec>();
    // SAFETY: the kernel reads `when`; the old value is not asked for.
    unsafe {
        libc::syscall(libc::SYS_timer_settime, TIMER.load(Ordering::Relaxed), 0, &raw const when, no_old)
    };
}

/// Ends this process by `signal`, as if there were no handler for it.
fn end_by(signal: c_int) {
    set(signal, libc::SIG_DFL, 0);
    let pid = sys::process::id() as i32;
    // SAFETY: no memory is involved. The signal is not blocked here (SA_NODEFER), so it ends the process now.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, thread(), signal) };
}
