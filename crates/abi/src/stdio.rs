// SPDX-License-Identifier: BSD-3-Clause
//! Makes standard output line-buffered under `mpirun`. There it is a pipe, so the C library would buffer 4
//! KiB, which would be lost in a crash.
//!
//! Each line is written when it ends, as on a terminal. This is set up when the library is loaded, before
//! `main`, so a setvbuf of the program overrides it. C++ prints through the same stream, unless the program
//! turns off the synchronization of C++ streams with C's.

use std::ptr::null_mut;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Makes standard output write each line when it ends, if it is a pipe and `mpirun` started the program.
/// Called when the library is loaded.
pub(crate) fn write_lines_as_they_end() {
    // The settings are not read yet: the program may change them before MPI_Init.
    if settings::launcher_variables::variable("OUTBOARD_RANK").is_none()
        || !sys::file::is_pipe(libc::STDOUT_FILENO)
    {
        return;
    }
    // SAFETY: the C library has made the stream before it runs this, and never moves it.
    let stream = unsafe { stdout };
    // SAFETY: nothing has been written to the stream; it still makes its own buffer.
    unsafe { libc::setvbuf(stream, null_mut(), libc::_IOLBF, 0) };
}
