//! Standard output under `mpirun`, which is a pipe: the C library would fill 4 KiB before anything is seen, and a crash would lose it.
//!
//! Lines are written as they end, as on a terminal. That is set up when the library is loaded, before `main`: whatever the program
//! chooses by setvbuf comes later, and holds. C++ prints through the same stream, as long as it is synchronised with C's.

use std::ptr::null_mut;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = write_lines_as_they_end;

extern "C" fn write_lines_as_they_end() {
    // Not by the settings, which the program may still change before MPI_Init.
    if settings::foreign::variable("OUTBOARD_RANK").is_none() || !sys::file::is_pipe(libc::STDOUT_FILENO) {
        return;
    }
    // SAFETY: the C library has made the stream before it runs this, and never moves it.
    let stream = unsafe { stdout };
    // SAFETY: nothing was written to the stream yet; it keeps making its own buffer.
    unsafe { libc::setvbuf(stream, null_mut(), libc::_IOLBF, 0) };
}
