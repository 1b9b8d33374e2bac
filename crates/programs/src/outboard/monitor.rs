// SPDX-License-Identifier: BSD-3-Clause
//! `outboard monitor` runs the program `outboard-monitor`, which lies beside this one. It is built and
//! installed separately (folder `monitor/`).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

/// Show the fabric, its jobs, and what they do, in a page of this host. `outboard monitor --help` tells more.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Monitor {
    /// The arguments of outboard-monitor.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Monitor {
    /// Replaces this process by the program outboard-monitor. Returns only if that cannot be started: with
    /// the reason.
    pub fn run(&self) -> Result<String, String> {
        let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
        let program = here.with_file_name("outboard-monitor");
        let error = Command::new(&program).arg0("outboard monitor").args(&self.arguments).exec();
        if error.kind() == std::io::ErrorKind::NotFound {
            return Err(format!(
                "there is no {}: the monitor is built and installed apart, by `make monitor` and `make install-monitor` in \
                 Outboard's source, or by the package outboard-monitor",
                program.display()
            ));
        }
        Err(format!("{} cannot be started: {error}", program.display()))
    }
}
