// SPDX-License-Identifier: BSD-3-Clause
//! Sizes of libfabric's own buffers, which it reads only from environment variables (docs/measured/hosts.md).

use std::ffi::CString;

/// Environment variables and their values: sizes below libfabric's defaults. By default, tcp of version 2
/// keeps 1,024 buffers of 16 KiB for unexpected messages, which do not occur here. ofi_rxm of version 1 has
/// buffers for 128 messages on each connection, while an endpoint has at most 32 under way.
pub const SIZES: [(&str, &str); 3] =
    [("FI_TCP_MAX_RX_SIZE", "2048"), ("FI_OFI_RXM_MSG_RX_SIZE", "32"), ("FI_OFI_RXM_MSG_TX_SIZE", "32")];

/// Sets those environment variables of `SIZES` that the user has not set. The caller then loads libfabric.
/// Does nothing in a process with several threads, such as a Python that loads this library late: another
/// thread might be reading the environment.
pub fn set_sizes() {
    if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
        return;
    }
    for (name, value) in SIZES {
        let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else { continue };
        // SAFETY: C strings, which are copied; this is the only thread, so no other reads the environment.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 0) };
    }
}
