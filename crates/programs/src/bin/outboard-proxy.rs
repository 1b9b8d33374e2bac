// SPDX-License-Identifier: BSD-3-Clause
//! `outboard-proxy`: see `programs::proxy`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    outboard_programs::proxy::run(std::env::args_os().nth(1)).into()
}
