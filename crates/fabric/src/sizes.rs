// SPDX-License-Identifier: BSD-3-Clause
//! Sizes of libfabric's own buffers, which it takes from the environment only (docs/measured/hosts.md).

use std::ffi::CStr;

/// By default tcp of version 2 keeps 1,024 buffers of 16 KiB for messages that nobody waits for, of which there
/// are none here; ofi_rxm of version 1 has 128 messages for each connection, where an endpoint has 32 under way.
const SIZES: [(&CStr, &CStr); 3] = [
    (c"FI_TCP_MAX_RX_SIZE", c"2048"),
    (c"FI_OFI_RXM_MSG_RX_SIZE", c"32"),
    (c"FI_OFI_RXM_MSG_TX_SIZE", c"32"),
];

/// Sets them where the user has not. Only while this process has one thread, before libfabric is loaded: when
/// this library or program is.
pub fn set_sizes() {
    for (name, value) in SIZES {
        // SAFETY: C strings, which are copied; no other thread reads the environment.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 0) };
    }
}
