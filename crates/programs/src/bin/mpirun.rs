//! `mpirun`, also installed as `mpiexec`: see `programs::mpirun`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    outboard_programs::mpirun::run(std::env::args_os().skip(1).collect()).into()
}
