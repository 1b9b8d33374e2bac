// SPDX-License-Identifier: BSD-3-Clause
//! The standard streams of ranks.

pub mod input;
pub mod output;
