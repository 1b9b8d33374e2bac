// SPDX-License-Identifier: BSD-3-Clause
//! `mpirun`, also installed as `mpiexec` and `mpirun_rsh`: starts the processes of an MPI job. The code is in
//! `programs::mpirun`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    outboard_programs::mpirun::run(&name, words.collect()).into()
}
