// SPDX-License-Identifier: BSD-3-Clause
//! What a child that the program forks may do with the job's memory: read it. Its writes stay its own.
//!
//! Invariant: the child maps everything anew, privately, before fork returns in it. Of a page that it has not
//! written it goes on to see what the processes of the job write.

use std::sync::OnceLock;
use transport::shm::Segment;

static SEGMENT: OnceLock<&'static Segment> = OnceLock::new();

/// Arranges it for all children of this process. Without the handler they would share the memory, as before.
pub(crate) fn keep_writes_apart(segment: &'static Segment) {
    let mut is_new = false;
    SEGMENT.get_or_init(|| {
        is_new = true;
        segment
    });
    if is_new {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

unsafe extern "C" fn in_child() {
    if let Some(segment) = SEGMENT.get() {
        segment.make_private();
    }
}
