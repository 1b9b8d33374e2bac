// SPDX-License-Identifier: BSD-3-Clause
//! What runs when the library is loaded, before `main`, while the process has one thread: standard output is
//! set to write line by line, and the environment variables by which libfabric sizes its tables are set.

use crate::stdio;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    stdio::write_lines_as_they_end();
    transport::route_fabric::set_sizes();
}
