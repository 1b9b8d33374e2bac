// SPDX-License-Identifier: BSD-3-Clause
//! Lets a child that the program forks read the job's shared memory. The child's writes stay in the child.
//!
//! Invariant: before fork returns in the child, the child maps all shared memory anew, as private copies. A
//! page that the child has not written still shows what the processes of the job write.

use std::sync::OnceLock;
use transport::shm::Segment;

static SEGMENT: OnceLock<&'static Segment> = OnceLock::new();

/// Installs the function that runs in each child after fork. If that fails, children share the memory with
/// the job.
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
