// SPDX-License-Identifier: BSD-3-Clause
//! `outboard-proxy`: a process that carries out collectives for the ranks of a job. The code is in
//! `programs::proxy`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    outboard_programs::proxy::run(std::env::args_os().nth(1)).into()
}
