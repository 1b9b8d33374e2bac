// SPDX-License-Identifier: BSD-3-Clause
//! What ranks read and print.

pub mod input;
pub mod output;
