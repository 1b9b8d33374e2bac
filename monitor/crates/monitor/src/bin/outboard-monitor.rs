//! `outboard-monitor`: see `outboard_monitor::run`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    outboard_monitor::run(std::env::args_os().collect()).into()
}
