// SPDX-License-Identifier: BSD-3-Clause
//! chDB: ClickHouse's engine as a Python wheel, for machines without a server. It lives in an environment of
//! its own, made at the first start, and `adapter.py` gives it ClickHouse's HTTP form.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What this was tested with. chDB's own dependencies (pandas, pyarrow) serve Python programs only.
const WHEELS: [&str; 2] = ["chdb==4.4.0", "chdb-core==26.9.0"];

/// The running adapter. It ends when this value is dropped, or this process dies: its standard input closes.
pub struct Chdb {
    child: Child,
    pub url: String,
    pub key: String,
}

impl Chdb {
    pub fn start(venv: &Path, folder: &Path) -> Result<Chdb, String> {
        install(venv)?;
        let key = crate::secret::random();
        let mut child = Command::new(venv.join("bin/python"))
            .args(["-I", "-c", include_str!("adapter.py")])
            .arg(folder)
            // Nothing that was preloaded for us is of use to it.
            .env_remove("LD_PRELOAD")
            // A Ctrl-C is for us; it ends with us.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("chDB cannot be started: {error}"))?;
        let mut line = String::new();
        let told = child.stdin.as_mut().expect("it is a pipe").write_all(format!("{key}\n").as_bytes());
        let heard = BufReader::new(child.stdout.take().expect("it is a pipe")).read_line(&mut line);
        let port = line.trim().parse::<u16>();
        let mut chdb = Chdb { child, url: String::new(), key };
        match (told, heard, port) {
            (Ok(()), Ok(_), Ok(port)) => chdb.url = format!("http://127.0.0.1:{port}"),
            _ => return Err("chDB did not start; its own words stand above".into()),
        }
        Ok(chdb)
    }
}

impl Drop for Chdb {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ended by itself, or cannot be waited for: nothing is left to do.
        let _ = self.child.wait();
    }
}

/// Makes the environment, unless it is there.
fn install(venv: &Path) -> Result<(), String> {
    let done = venv.join("outboard-monitor-done");
    if std::fs::read_to_string(&done).is_ok_and(|text| text == WHEELS.join("\n")) {
        return Ok(());
    }
    println!("outboard monitor: installing chDB into {} (once; 600 MB)", venv.display());
    let run = |command: &mut Command| {
        let output = command
            .env_remove("LD_PRELOAD")
            .output()
            .map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.trim().lines().last().unwrap_or_default().to_string();
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("chDB cannot be installed: {last}; [store] url names a ClickHouse server instead"))
        }
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let pip = ["-q", "--disable-pip-version-check", "install", "--no-deps"];
    run(Command::new(venv.join("bin/pip")).args(pip).args(WHEELS))?;
    std::fs::write(&done, WHEELS.join("\n")).map_err(|error| format!("{}: {error}", done.display()))
}
