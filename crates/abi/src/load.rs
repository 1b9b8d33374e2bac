// SPDX-License-Identifier: BSD-3-Clause
//! What happens when the library is loaded, before `main`. At that time the process has one thread, and the
//! program has not chosen otherwise.

use crate::stdio;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    stdio::write_lines_as_they_end();
    transport::route_fabric::set_sizes();
}
