// SPDX-License-Identifier: BSD-3-Clause
//! The program `outboard-monitor`. It passes its arguments to `outboard_monitor::run`, which does everything.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    // A thread that panics ends the process, and systemd starts it again. Otherwise the figures of that
    // thread would be missing without a word.
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
    outboard_monitor::run(std::env::args_os().collect()).into()
}
