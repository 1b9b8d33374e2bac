// SPDX-License-Identifier: BSD-3-Clause
//! `outboard`: shows settings, running jobs and schedules, and measures performance. The code is in
//! `programs::outboard`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    outboard_programs::outboard::run(std::env::args_os().collect()).into()
}
