// SPDX-License-Identifier: BSD-3-Clause
//! The names of handles in error messages. A predefined handle has the name of its constant.

use crate::constants::handle_name;
use crate::handle::Handle;
use std::fmt;

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match handle_name(*self) {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}
