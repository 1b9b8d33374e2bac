// SPDX-License-Identifier: BSD-3-Clause
//! `outboard-monitor`: see `outboard_monitor::run`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    // A thread that panics ends the process, which systemd starts anew; otherwise what it collected would be
    // missing in silence.
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
    outboard_monitor::run(std::env::args_os().collect()).into()
}
